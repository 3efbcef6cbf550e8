//! How a journal ends: unproved, sealed, with nothing yet, in zeros, or torn. None of it is damage.

use journeyman_core::Seq;
use journeyman_core::disk::MemDisk;
use journeyman_core::journal::{AppendError, Torn};

use super::{FRAME_HEADER, NARROW, SEGMENT_HEADER, body, damage, filled, first_of, firsts, still, with};
use crate::support::disks::Failing;
use crate::support::figures::held;
use crate::support::{SALT, WIDE, batch, disk_of, image, journal, read, segment};

#[test]
fn an_unproved_last_batch_is_carried_into_the_next_segment_and_the_old_file_stays() {
    let (disk, _) = filled(1);
    let old = image(&disk)[&segment(1)].clone();
    journal(disk.clone(), NARROW).append(batch(2, 1, body(9))).expect("memory takes it");
    let mut files = image(&disk);
    assert!(files[&segment(1)] == old);
    assert_eq!(first_of(&files[&segment(2)]), 1, "the carried batch, then the new one");

    // The old copy was never proved to be on the disk: if it was not, nothing is missing.
    let frame = SEGMENT_HEADER..SEGMENT_HEADER + FRAME_HEADER + 300;
    files.get_mut(&segment(1)).expect("it is there")[frame].fill(0);
    assert_eq!(firsts(&disk_of(&files)), [1, 2]);
}

#[test]
fn a_batch_with_another_behind_it_is_not_carried() {
    let disk = MemDisk::default();
    let mut writer = journal(disk.clone(), WIDE);
    (1..=3).for_each(|first| writer.append(batch(first, 1, body(300))).expect("memory takes it"));
    journal(disk.clone(), WIDE).append(batch(4, 1, body(9))).expect("memory takes it");
    assert_eq!(first_of(&image(&disk)[&segment(2)]), 3, "the last one alone");
    assert_eq!(firsts(&disk), [1, 2, 3, 4]);
}

#[test]
fn after_a_seal_nothing_is_carried() {
    let (disk, writer) = filled(1);
    writer.seal().expect("memory takes it");
    disk.crash();
    journal(disk.clone(), NARROW).append(batch(2, 1, body(9))).expect("memory takes it");
    let mut files = image(&disk);
    assert_eq!(first_of(&files[&segment(2)]), 2);

    // And so damage of what was sealed is damage.
    files.get_mut(&segment(1)).expect("it is there")[SEGMENT_HEADER + FRAME_HEADER] ^= 1;
    assert_eq!(damage(&disk_of(&files)), (segment(1), SEGMENT_HEADER as u64));
}

#[test]
fn a_seal_proves_what_stands_before_it() {
    let (disk, writer) = filled(1);
    let recovery = read(disk.clone()).expect("a sound journal").1;
    assert_eq!((recovery.last(), recovery.proved()), (Seq(1), Seq(0)));
    writer.seal().expect("memory takes it");
    let recovery = read(disk.clone()).expect("a sound journal").1;
    assert_eq!((recovery.last(), recovery.proved()), (Seq(1), Seq(1)));
    let files = with(&disk, 1, |bytes| bytes[SEGMENT_HEADER + FRAME_HEADER] ^= 1);
    assert_eq!(damage(&disk_of(&files)), (segment(1), SEGMENT_HEADER as u64));
}

#[test]
fn a_recovery_can_be_recovered_from_many_times_in_a_row() {
    let (disk, _) = filled(1);
    // The power goes when the segment is made, right before the append: names, create, zeros, header, carried batch, sync,
    // rename, names.
    let made = 8;
    for life in 0..5 {
        let failing = Failing::on(&disk);
        let mut writer = journal(failing.clone(), NARROW);
        failing.arm(made + 1);
        assert!(matches!(writer.append(batch(2, 1, body(9))), Err(AppendError::Failed(_))));
        disk.crash();
        assert_eq!(image(&disk).len(), life + 2, "a segment that holds what was carried, and nothing else");
        assert_eq!(firsts(&disk), [1]);
    }
    journal(disk.clone(), NARROW).append(batch(2, 1, body(9))).expect("memory takes it");
    assert_eq!(firsts(&disk), [1, 2]);
}

#[test]
fn segments_that_hold_nothing_but_their_header_are_as_good_as_others() {
    let disk = MemDisk::default();
    for life in 1..=5 {
        let failing = Failing::on(&disk);
        let mut writer = journal(failing.clone(), NARROW);
        // The same with nothing to carry.
        failing.arm(7 + 1);
        assert!(matches!(writer.append(batch(1, 1, body(9))), Err(AppendError::Failed(_))));
        disk.crash();
        assert_eq!(image(&disk).len(), life);
        let (found, recovery) = read(disk.clone()).expect("a sound journal");
        assert_eq!((found.len(), recovery.torn(), recovery.bytes()), (0, None, (life * SEGMENT_HEADER) as u64));
    }
    journal(disk.clone(), NARROW).append(batch(1, 1, body(9))).expect("memory takes it");
    assert_eq!(firsts(&disk), [1]);
}

#[test]
fn zeros_behind_the_end_are_the_end_however_many() {
    let disk = still(2);
    let used = SEGMENT_HEADER + FRAME_HEADER + 300;
    for zeros in (0..=4096).chain((13..=20).map(|power| 1 << power)) {
        let files = with(&disk, 2, |bytes| bytes.resize(used + zeros, 0));
        let (found, recovery) = read(disk_of(&files)).expect("a sound journal");
        assert_eq!((found.len(), recovery.torn()), (2, None), "{zeros} zeros");
    }
    held("F6", 4097 + 8, "tails of zeros, up to a mebibyte");
}

/// What delayed allocation leaves of a file that was never synced.
#[test]
fn a_last_file_of_nothing_but_zeros_or_of_nothing_is_a_torn_creation_and_no_more() {
    let disk = still(3);
    let mut tried = 0;
    for length in (0..=4096).chain((13..=20).map(|power| 1 << power)) {
        let files = with(&disk, 3, |bytes| *bytes = vec![0; length]);
        let (found, recovery) = read(disk_of(&files)).expect("a torn creation is no damage");
        assert_eq!((found.len(), recovery.torn()), (2, Some(&Torn { file: segment(3), offset: 0, last: Seq(2) })), "{length} zeros");
        tried += 1;
    }
    // And of every file, when none was ever synced: nothing was acknowledged then.
    let files = with(&still(1), 1, |bytes| bytes.fill(0));
    let (found, recovery) = read(disk_of(&files)).expect("a torn creation is no damage");
    assert_eq!((found.len(), recovery.torn().is_some()), (0, true));
    held("F6", tried + 1, "last files of nothing but zeros, or of nothing");
}

#[test]
fn a_hole_of_zeros_in_the_last_batch_is_a_torn_tail() {
    let disk = still(2);
    let start = SEGMENT_HEADER;
    let end = SEGMENT_HEADER + FRAME_HEADER + 300;
    for (from, to) in [(start, start + 16), (start + 16, start + 64), (start + 40, start + 200), (end - 100, end), (start + 4, end)] {
        let files = with(&disk, 2, |bytes| bytes[from..to].fill(0));
        let (found, recovery) = read(disk_of(&files)).expect("a torn tail is no damage");
        assert_eq!(found.len(), 1);
        assert_eq!(recovery.torn(), Some(&Torn { file: segment(2), offset: SEGMENT_HEADER as u64, last: Seq(1) }));
    }
    held("F6", 5, "holes of zeros in the last batch");
}

#[test]
fn a_torn_tail_is_reported_until_something_is_appended_and_left_where_it_is() {
    let disk = still(2);
    let files = with(&disk, 2, |bytes| bytes[SEGMENT_HEADER + FRAME_HEADER] ^= 1);
    let disk = disk_of(&files);
    for _ in 0..3 {
        let torn = read(disk.clone()).expect("a torn tail is no damage").1.torn().cloned();
        assert_eq!(torn, Some(Torn { file: segment(2), offset: SEGMENT_HEADER as u64, last: Seq(1) }));
    }
    journal(disk.clone(), NARROW).append(batch(2, 1, body(9))).expect("memory takes it");
    assert!(files.iter().all(|(name, bytes)| image(&disk)[name] == *bytes), "the old files stay as they are");
    let (found, recovery) = read(disk).expect("a sound journal");
    assert_eq!((found.len(), recovery.torn()), (2, None));
}

#[test]
fn a_torn_creation_is_reported_and_its_number_used_again() {
    let disk = still(2);
    let header = &image(&disk)[&segment(2)][..SEGMENT_HEADER].to_vec();
    for before in [0, 1] {
        for cut in 0..SEGMENT_HEADER {
            for zeros in [0, 1, 1000, 8192] {
                let mut files = image(&disk);
                files.retain(|name, _| before == 1 && *name == segment(1));
                let number = before as u64 + 1;
                files.insert(segment(number), [&header[..cut], &vec![0; zeros]].concat());
                let disk = disk_of(&files);
                let (found, recovery) = read(disk.clone()).expect("a torn creation is no damage");
                assert_eq!((found.len(), recovery.bytes() > 0), (before, before == 1));
                let torn = Torn { file: segment(number), offset: 0, last: Seq(before as u64) };
                assert_eq!(recovery.torn(), Some(&torn), "cut at {cut}");
                recovery.into_journal(NARROW, SALT).append(batch(number, 1, body(9))).expect("memory takes it");
                assert_eq!(image(&disk).len(), files.len(), "no new number");
                assert_eq!(firsts(&disk), (1..=number).collect::<Vec<_>>());
            }
        }
    }
}

#[test]
fn a_torn_header_with_anything_behind_it_is_damage() {
    let disk = still(2);
    let files = with(&disk, 2, |bytes| bytes[10] ^= 1);
    assert_eq!(damage(&disk_of(&files)), (segment(2), 0));
}
