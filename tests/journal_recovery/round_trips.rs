//! What is appended comes back, and what may not be appended writes nothing.

use journeyman_core::disk::{Disk, MemDisk};
use journeyman_core::journal::{AppendError, Batch, JournalLimits, ROOM_TO_BEGIN};
use journeyman_core::{Epoch, Seq};

use super::{FRAME_HEADER, NARROW, SEGMENT_HEADER, body, filled, next_of};
use crate::support::{Image, WIDE, batch, holds, image, journal, read, segment};

#[test]
fn what_was_appended_is_read_back_in_order_over_many_lives() {
    holds(20, |(lives, limit): (Vec<(Vec<u16>, bool)>, u16)| {
        let limits = JournalLimits { segment_bytes: limit.into(), batch_bytes: 1 << 20 };
        let disk = MemDisk::default();
        let mut appended = Vec::new();
        for (sizes, sealed) in lives.into_iter().take(4) {
            let mut writer = journal(disk.clone(), limits);
            for size in sizes.into_iter().take(8) {
                let first = next_of(&appended);
                let next = Batch { epoch: Epoch(first), ..batch(first, u32::from(size % 5) + 1, body(size)) };
                writer.append(next.clone()).expect("memory takes it");
                appended.push(next);
            }
            if sealed {
                writer.seal().expect("memory takes it");
            }
            let (found, recovery) = read(disk.clone()).expect("a sound journal");
            assert!(found == appended);
            assert_eq!((recovery.torn(), recovery.last().0 + 1), (None, next_of(&appended)));
        }
    });
}

#[test]
fn a_segment_that_would_grow_beyond_its_limit_is_followed_by_another() {
    let (disk, _) = filled(3);
    assert_eq!(disk.list().expect("memory lists"), [segment(1), segment(2), segment(3)]);
}

#[test]
fn a_batch_beyond_the_limit_of_a_segment_has_one_for_itself() {
    let disk = MemDisk::default();
    let mut writer = journal(disk.clone(), NARROW);
    for first in 1..=3 {
        writer.append(batch(first, 1, body(5000))).expect("memory takes it");
    }
    // The very first batch needs no second segment: the first one is made for it.
    assert_eq!(image(&disk).len(), 3);
    assert_eq!(read(disk).expect("a sound journal").0.len(), 3);
}

#[test]
fn batches_of_several_megabytes_stay_whole_when_others_follow() {
    let disk = MemDisk::default();
    let mut writer = journal(disk.clone(), WIDE);
    for (first, megabytes) in [(1, 3), (2, 0), (3, 4), (4, 1), (5, 0)] {
        let content = u8::try_from(first).expect("few");
        writer.append(batch(first, 1, vec![content; megabytes << 20])).expect("memory takes it");
    }
    let (found, _) = read(disk).expect("a sound journal");
    let sizes: Vec<_> = found.iter().map(|batch| batch.body.len() >> 20).collect();
    assert_eq!(sizes, [3, 0, 4, 1, 0]);
    assert!(found.iter().all(|batch| batch.body.iter().all(|byte| u64::from(*byte) == batch.first.0)));
}

#[test]
fn an_open_that_appends_nothing_writes_nothing() {
    for sealed in [false, true] {
        let (disk, writer) = filled(3);
        if sealed {
            writer.seal().expect("memory takes it");
        }
        let before = image(&disk);
        for _ in 0..3 {
            let unwritten = journal(disk.clone(), NARROW);
            unwritten.seal().expect("there is nothing to seal");
            assert!(image(&disk) == before);
        }
    }
    let empty = MemDisk::default();
    journal(empty.clone(), NARROW).seal().expect("there is nothing to seal");
    assert_eq!(image(&empty), Image::new());
}

#[test]
fn a_journal_counts_what_it_did_and_holds() {
    let disk = MemDisk::default();
    let mut writer = journal(disk.clone(), JournalLimits { segment_bytes: 1000, ..NARROW });
    for (first, count) in [(1, 2), (3, 1), (4, 5)] {
        writer.append(batch(first, count, body(300))).expect("memory takes it");
    }
    let counters = writer.counters();
    assert_eq!((counters.records, counters.syncs), (8, 3));
    let used = 2 * SEGMENT_HEADER + 3 * FRAME_HEADER + 3 * 300;
    assert_eq!(counters.bytes, used as u64);
    assert_eq!(read(disk).expect("a sound journal").1.bytes(), used as u64);
}

/// Zeros are laid down by the mebibyte, and no further than a journal has been promised room for.
#[test]
fn no_more_is_laid_down_than_is_needed() {
    for (body, mebibytes) in [(0, 1), ((1 << 20) - 160, 1), ((1 << 20) - 159, 2), ((2 << 20) - 160, 2), ((3 << 20) - 160, 3)] {
        let disk = MemDisk::default();
        journal(disk.clone(), WIDE).append(batch(1, 1, vec![1; body])).expect("memory takes it");
        let length = image(&disk)[&segment(1)].len();
        assert_eq!(length, mebibytes << 20, "{body}");
        assert!(length as u64 <= ROOM_TO_BEGIN || body > 1 << 20);
    }
}

#[test]
fn what_does_not_follow_is_fenced_and_writes_nothing() {
    let (disk, mut writer) = filled(2);
    let before = image(&disk);
    let led = |first, epoch| Batch { epoch: Epoch(epoch), ..batch(first, 1, body(1)) };
    for wrong in [led(1, 1), led(2, 1), led(4, 1), led(u64::MAX, 1), led(0, 1), led(3, 0), batch(3, 0, vec![])] {
        let (first, epoch) = (wrong.first, wrong.epoch);
        match writer.append(wrong) {
            Err(AppendError::Fenced { first: f, epoch: e, last, led }) => {
                assert_eq!((f, e, last, led), (first, epoch, Seq(2), Epoch(1)));
            }
            other => panic!("{first}: {other:?}"),
        }
    }
    assert!(image(&disk) == before);
    writer.append(led(3, 2)).expect("it is as good as before");
    assert!(matches!(writer.append(led(4, 1)), Err(AppendError::Fenced { .. })), "an earlier epoch than the last");
}

#[test]
fn a_batch_beyond_the_limit_is_refused_and_writes_nothing() {
    let disk = MemDisk::default();
    let mut writer = journal(disk.clone(), JournalLimits { batch_bytes: 1000, ..WIDE });
    assert!(matches!(writer.append(batch(1, 1, body(1001))), Err(AppendError::TooLarge)));
    assert_eq!(image(&disk), Image::new());
    writer.append(batch(1, 1, body(1000))).expect("as large as may be");
}
