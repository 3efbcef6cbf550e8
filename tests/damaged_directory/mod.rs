//! Proves on a whole directory (segments, the reserve, two snapshots) that damage is named, passed over where something stands in for
//! what is damaged, or reported as the torn end of the last segment: any bit of any file, any sector, frames of other places and of
//! other journals, records of a later release. Nothing foreign is ever applied, and nothing is touched.

mod sound;

use std::collections::BTreeMap;

use fastrand::Rng;
use journeyman_core::journal::RecoverError;
use journeyman_core::snapshot::SnapshotError;
use journeyman_core::store::{FoldError, OpenError};
use sound::{HEADER, Sound, frames, open, relink, seal_body, seal_frame, seal_meta};

use crate::support::figures::{figure, held};
use crate::support::seed;

#[test]
fn any_bit_of_any_file_is_named_reported_stood_in_for_or_not_needed() {
    let sound = Sound::of(usize::try_from(figure(600, 1000)).expect("small"), 0);
    println!("{} files, {} bytes", sound.files.len(), sound.bytes());
    let outcomes = std::thread::scope(|scope| {
        let halves = [0, 4].map(|first| {
            let sound = &sound;
            scope.spawn(move || {
                let mut outcomes = BTreeMap::new();
                for (name, bytes) in &sound.files {
                    for at in 0..bytes.len() {
                        for bit in first..first + 4 {
                            let files = sound.with(name, |bytes| bytes[at] ^= 1 << bit);
                            let outcome = sound.judge(name, files, at, at + 1, &format!("bit {bit} of byte {at} of {name}"));
                            *outcomes.entry(outcome).or_insert(0) += 1_u64;
                        }
                    }
                }
                outcomes
            })
        });
        let mut sum = BTreeMap::new();
        for half in halves {
            half.join().expect("no flip is misread").into_iter().for_each(|(outcome, count)| *sum.entry(outcome).or_insert(0) += count);
        }
        sum
    });
    let flips: u64 = outcomes.values().sum();
    assert_eq!(flips as usize, 8 * sound.bytes());
    assert_eq!(outcomes.len(), 4, "{outcomes:?}");
    held("F8", flips, &format!("bits of a whole directory flipped, one at a time ({outcomes:?})"));
}

#[test]
fn any_sector_of_any_file_lost_or_garbled_is_named_reported_stood_in_for_or_not_needed() {
    let sound = Sound::of(1000, 0);
    let mut dice = Rng::with_seed(seed());
    let mut tried = 0;
    for (name, bytes) in &sound.files {
        for length in [512, 4096] {
            for at in (0..bytes.len()).step_by(length) {
                let end = (at + length).min(bytes.len());
                for garbage in [false, true] {
                    let content: Vec<u8> = (at..end).map(|_| if garbage { dice.u8(..) } else { 0 }).collect();
                    if bytes[at..end] == content {
                        continue;
                    }
                    let files = sound.with(name, |bytes| bytes[at..end].copy_from_slice(&content));
                    let context = format!("{length} bytes at {at} of {name}, garbage: {garbage}");
                    let whole = at == 0 && files[name].iter().all(|byte| *byte == 0);
                    if whole && Some(name) == sound.live.last() {
                        // Nothing of it is left: it might as well never have been finished.
                        let store = open(files).unwrap_or_else(|error| panic!("{context}: {error}"));
                        assert!(store.recovery.torn().is_some_and(|torn| torn.file == *name), "{context}");
                    } else {
                        sound.judge(name, files, at, end, &context);
                    }
                    tried += 1;
                }
            }
        }
    }
    assert!(tried > 100, "{tried}");
    held("F8", tried, "sectors of 512 and 4096 bytes zeroed or garbled");
}

/// What a misdirected write, a recycled block or a copied file puts there.
#[test]
fn nothing_that_was_whole_elsewhere_is_ever_applied() {
    let mut dice = Rng::with_seed(seed());
    let sound = Sound::of(200, 0);
    // Another journal, and one that went the same way with other content.
    let (other, forked) = (Sound::of(200, 5000), Sound::of(201, 0));
    let name = sound.live.last().expect("there are some");
    let own = &sound.files[name];
    let mut donors: Vec<Vec<u8>> = Vec::new();
    for files in [&sound.files, &other.files, &forked.files] {
        for (name, bytes) in files.iter().filter(|(name, _)| name.ends_with(".segment")) {
            donors.extend(frames(bytes).into_iter().map(|(from, to, _)| bytes[from..to].to_vec()));
            let _ = name;
        }
    }
    let end = sound.frames.last().expect("there are some").1;
    let (mut named, mut torn, mut not_seen) = (0, 0, 0);
    let splices = figure(10_000, 300_000);
    for splice in 0..splices {
        let mut donor = dice.choice(&donors).expect("there are some").clone();
        if dice.u8(..4) == 0 {
            donor.truncate(donor.len() / 512 * 512);
        }
        let at = match dice.u8(..4) {
            // Right at the end, behind it, in the place of another frame, anywhere.
            0 => end,
            1 => end + dice.usize(..700),
            2 => dice.choice(&sound.frames).expect("there are some").0,
            _ => dice.usize(HEADER..end),
        };
        let files = sound.with(name, |bytes| {
            bytes.resize(bytes.len().max(at + donor.len()), 0);
            bytes[at..at + donor.len()].copy_from_slice(&donor);
        });
        let same = own.get(at..at + donor.len()) == Some(&donor[..]);
        let before = sound.frames.iter().take_while(|frame| frame.1 <= at).count();
        let least = sound.frames.get(before).map_or(sound.last, |frame| frame.2);
        match open(files) {
            Ok(store) => {
                let found = store.queue.last();
                let known = sound.states.get(&found).is_some_and(|state| **state == store.queue);
                assert!(known && found >= least, "splice {splice} at {at}: record {found}");
                if same || found == sound.last && store.recovery.torn().is_none() { not_seen += 1 } else { torn += 1 }
            }
            Err(OpenError::Journal(RecoverError::Damaged { file, .. })) if file == *name && !same => named += 1,
            Err(other) => panic!("splice {splice} at {at}: {other}"),
        }
    }
    assert!(named > splices / 10 && torn > splices / 10, "{named} named, {torn} torn");
    held(
        "F7",
        splices,
        &format!("splices of frames of this and other journals: {named} named, {torn} torn, {not_seen} in their own place"),
    );
}

/// A segment of another directory under the right name, whole.
#[test]
fn a_file_of_another_directory_is_named_or_stood_in_for() {
    let sound = Sound::of(200, 0);
    let mut tried = 0;
    for other in [Sound::of(200, 5000), Sound::of(201, 0)] {
        for (name, bytes) in other.files.iter().filter(|(name, _)| sound.files.contains_key(*name) && !name.ends_with(".lock")) {
            let files = sound.with(name, |own| own.clone_from(bytes));
            match open(files) {
                Ok(store) => {
                    let found = store.queue.last();
                    assert!(sound.states.get(&found).is_some_and(|state| **state == store.queue), "{name}: a foreign state");
                    assert!(!sound.live.contains(name), "{name}: it was believed");
                }
                Err(OpenError::Journal(RecoverError::Damaged { .. }) | OpenError::NoSnapshot { .. }) => {}
                Err(error) => panic!("{name}: {error}"),
            }
            tried += 1;
        }
    }
    assert!(tried > 8, "{tried}");
    held("F10", tried, "files of another directory under a right name");
}

#[test]
fn what_a_later_release_has_written_is_refused_as_such_and_nothing_is_touched() {
    let sound = Sound::of(300, 0);
    let name = sound.live.last().expect("there are some");
    let (frame, _, before) = sound.frames[1];
    let mut tried = 0;
    for tag in [0, 9, 77, 127] {
        let files = sound.with(name, |bytes| {
            bytes[frame + 64] = tag;
            seal_body(bytes, frame);
            seal_frame(bytes, frame);
            relink(bytes, frame);
        });
        match open(files) {
            Err(OpenError::Journal(RecoverError::Fold { file, offset, source: FoldError::Malformed { seq, .. } })) => {
                assert_eq!((&file, offset, seq), (name, frame as u64, before.next()), "tag {tag}");
            }
            other => panic!("tag {tag}: {:?}", other.map(|store| store.queue.last())),
        }
        tried += 1;
    }
    for segment in &sound.live {
        let files = sound.with(segment, |bytes| {
            bytes[10] = 2;
            let sum = crc32c::crc32c(&bytes[..92]);
            bytes[92..96].copy_from_slice(&sum.to_le_bytes());
        });
        assert!(matches!(open(files), Err(OpenError::Journal(RecoverError::Newer { file, needs: 2 })) if file == *segment));
        tried += 1;
    }
    let files = sound.with(&sound.snapshot, |bytes| {
        bytes[10] = 2;
        seal_meta(bytes);
    });
    assert!(matches!(open(files), Err(OpenError::Snapshot(SnapshotError::Newer { needs: 2, .. }))));
    held("F24", tried + 1, "records and files of a later release");
}

/// A snapshot whose checksums hold, but which stands elsewhere: within a record, before the journal, behind its end.
#[test]
fn a_snapshot_that_does_not_fit_the_journal_is_never_built_upon() {
    let sound = Sound::of(300, 0);
    let number = |field: usize| u64::from_le_bytes(sound.files[&sound.snapshot][field..field + 8].try_into().expect("8 bytes"));
    let mut tried = 0;
    for (field, what) in [(32, "record"), (40, "epoch"), (48, "segment"), (56, "length")] {
        for by in [1_i64, -1, 7, -64, 1 << 40] {
            let moved = number(field).wrapping_add_signed(by);
            let files = sound.with(&sound.snapshot, |bytes| {
                bytes[field..][..8].copy_from_slice(&moved.to_le_bytes());
                seal_meta(bytes);
            });
            let context = format!("{what} {moved}");
            match open(files) {
                // The one before stands in, or nothing of it is believed but what agrees.
                Ok(store) => assert!(store.queue == *sound.states[&sound.last], "{context}"),
                Err(OpenError::Journal(RecoverError::Damaged { .. }) | OpenError::NoSnapshot { .. }) => {}
                Err(other) => panic!("{context}: {other}"),
            }
            tried += 1;
        }
    }
    held("F20", tried, "snapshots that point elsewhere, with right checksums");
}
