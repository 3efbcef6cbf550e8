//! Proves that no length that a damaged file names, with wrong and with right checksums, makes an open reserve more memory than a small
//! multiple of what is there, or take its time. By itself in its file, as it counts what the whole process allocates.

#[path = "damaged_directory/sound.rs"]
mod sound;
mod support;

use std::alloc::System;
use std::sync::Arc;
use std::time::{Duration, Instant};

use journeyman_core::snapshot::PlainStore;
use journeyman_core::store::Store;
use sound::{Sound, seal_body, seal_chunk, seal_frame, seal_meta};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use support::figures::held;
use support::sim::{Files, Still};

#[global_allocator]
static ALLOCATED: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

#[test]
fn no_length_reserves_more_than_is_there() {
    let sound = Sound::of(300, 0);
    let name = sound.live.last().expect("there are some");
    let (first, second) = (sound.frames[0].0, sound.frames[1].0);
    let rest = u32::try_from(sound.files[name].len() - second).expect("small");
    let mut tried = 0;
    let mut tries = |files: Files, context: &str| {
        let there: usize = files.values().map(|bytes| bytes.len()).sum();
        let still = Arc::new(Still::of(files));
        let once = || {
            let region = Region::new(ALLOCATED);
            let begun = Instant::now();
            let opened = Store::open(still.clone(), &PlainStore::new(still.clone()));
            (begun.elapsed(), region.change().bytes_allocated, opened)
        };
        // A busy machine may take the processor away from one of them.
        let (spent, allocated, opened) = (0..3).map(|_| once()).min_by_key(|(spent, ..)| *spent).expect("three");
        // All that was ever reserved, so that no single reservation can be larger.
        assert!(allocated <= 16 * there + (64 << 10), "{context}: {allocated} bytes for {there}");
        assert!(spent < Duration::from_millis(50), "{context}: {spent:?}");
        if let Ok(store) = opened {
            assert!(sound.states.get(&store.queue.last()).is_some_and(|state| **state == store.queue), "{context}: another state");
        }
        tried += 1;
    };
    tries(sound.files.clone(), "nothing changed");
    for length in [0, 1, 63, 64, rest, rest + 1, 1 << 24, 1 << 30, u32::MAX - 64, u32::MAX - 63, u32::MAX] {
        for (frame, field) in [(first, 8), (first, 12), (second, 8), (second, 12)] {
            for sealed in [false, true] {
                let files = sound.with(name, |bytes| {
                    bytes[frame + field..][..4].copy_from_slice(&length.to_le_bytes());
                    if sealed {
                        seal_frame(bytes, frame);
                    }
                });
                tries(files, &format!("{length} at byte {field} of the frame at {frame}, sealed: {sealed}"));
            }
        }
        // A record whose payload says that it is so long, in a body whose checksum is right.
        let files = sound.with(name, |bytes| {
            bytes[second + 64..][..12].copy_from_slice(&[1, 0, 0, 0, 100, 1, 255, 255, 255, 255, 15, 0]);
            seal_body(bytes, second);
            bytes[second + 12..][..4].copy_from_slice(&length.to_le_bytes());
            seal_frame(bytes, second);
        });
        tries(files, &format!("a text of 4 GiB in the first of {length} records"));
    }
    for number in [0, 1, 95, 96, 1 << 32, u64::MAX - 1, u64::MAX] {
        for field in [32, 40, 48, 56] {
            let files = sound.with(name, |bytes| {
                bytes[field..][..8].copy_from_slice(&number.to_le_bytes());
                let sum = crc32c::crc32c(&bytes[..92]);
                bytes[92..96].copy_from_slice(&sum.to_le_bytes());
            });
            tries(files, &format!("{number} at byte {field} of a segment header"));
        }
        for field in [48, 56, 64, 72, 80] {
            let files = sound.with(&sound.snapshot, |bytes| {
                bytes[field..][..8].copy_from_slice(&number.to_le_bytes());
                seal_meta(bytes);
            });
            tries(files, &format!("{number} at byte {field} of the meta data of a snapshot"));
        }
    }
    for length in [0, 1, 1 << 20, u32::MAX] {
        for offset in [128 + 8, 128 + 16] {
            let files = sound.with(&sound.snapshot, |bytes| {
                bytes[offset..][..4].copy_from_slice(&length.to_le_bytes());
                seal_chunk(bytes);
            });
            tries(files, &format!("{length} at byte {offset} of a snapshot"));
        }
    }
    held("F9", tried, "lengths that promise too much or too little, with wrong and with right checksums");
}
