//! Proves what opening a journal makes of what is on the disk: what was appended comes back, a torn tail is left behind
//! and reported, damage is a typed error that names its place, and no file is ever touched by any of it.

mod support;

use journeyman_core::disk::{Disk, MemDisk};
use journeyman_core::journal::{AppendError, Batch, Journal, JournalLimits, RecoverError, Salt, Torn};
use journeyman_core::{Epoch, Seq};
use support::disks::Failing;
use support::{Edgy, Image, SALT, WIDE, batch, disk_of, holds, image, journal, read, segment};

/// One batch of some hundred bytes fits into a segment, two do not.
const NARROW: JournalLimits = JournalLimits { segment_bytes: 700, batch_bytes: 1 << 20 };

/// Bytes of the header of a segment, and of a frame.
const SEGMENT_HEADER: usize = 96;
const FRAME_HEADER: usize = 64;

mod round_trips {
    use super::*;

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
}

mod tails {
    use super::*;

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
        journal(disk.clone(), NARROW).append(batch(2, 1, body(9))).expect("memory takes it");
        let mut files = image(&disk);
        assert_eq!(first_of(&files[&segment(2)]), 2);

        // And so damage of what was sealed is damage.
        files.get_mut(&segment(1)).expect("it is there")[SEGMENT_HEADER + FRAME_HEADER] ^= 1;
        assert_eq!(damage(&disk_of(&files)), (segment(1), SEGMENT_HEADER as u64));
    }

    #[test]
    fn a_recovery_can_be_recovered_from_many_times_in_a_row() {
        let (disk, _) = filled(1);
        // The power goes when the segment is made, right before the append: create, zeros, header, carried batch, sync,
        // rename, names.
        let made = 7;
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
            failing.arm(6 + 1);
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
}

mod damage {
    use super::*;

    #[test]
    fn any_other_order_of_segments_is_damage_and_stays_as_it_is() {
        let disk = still(4);
        let files = image(&disk);
        let mut stranger = image(&filled_with(4, 7).0)[&segment(2)].clone();
        stranger.truncate(2000);
        let contents: Vec<_> = files.values().chain([&stranger]).collect();
        let sound: Vec<_> = (0..4).map(Some).collect();
        // Each of the four names has the content of any segment, or of a stranger's, or is not there.
        let choice = |n: usize, name: u32| (n / 6_usize.pow(name)) % 6;
        let (mut refused, mut shorter) = (0, 0);
        for n in 0..6_usize.pow(4) {
            let chosen: Vec<_> = (0..4).map(|name| contents.get(choice(n, name)).map(|_| choice(n, name))).collect();
            let named = chosen.iter().zip(1..).filter_map(|(content, name)| Some((segment(name), contents[(*content)?].clone())));
            let files: Image = named.collect();
            let disk = disk_of(&files);
            match read(disk.clone()) {
                // That the newest are missing cannot be seen from the others: what is there is a whole journal.
                Ok((found, _)) => {
                    let there = chosen.iter().flatten().count();
                    assert!(chosen[..there] == sound[..there], "{chosen:?}");
                    assert_eq!(found.len(), there);
                    shorter += 1;
                }
                Err(RecoverError::Damaged { file, .. }) => {
                    assert!((1..=4).any(|name| segment(name) == file), "{file}");
                    refused += 1;
                }
                Err(other) => panic!("{chosen:?}: {other}"),
            }
            assert!(image(&disk) == files, "{chosen:?}");
        }
        assert_eq!((shorter, refused), (5, 6_usize.pow(4) - 5));
    }

    #[test]
    fn a_missing_segment_is_named() {
        let disk = still(4);
        for missing in 1..=3 {
            let mut files = image(&disk);
            files.remove(&segment(missing));
            assert_eq!(damage(&disk_of(&files)), (segment(missing), 0));
        }
    }

    #[test]
    fn a_segment_without_a_whole_header_in_the_middle_is_named() {
        let disk = still(3);
        for number in 1..=2 {
            let spoiled: [fn(&mut Vec<u8>); 4] =
                [|bytes| bytes.clear(), |bytes| bytes.fill(0), |bytes| bytes.truncate(95), |bytes| bytes[40] ^= 1];
            for spoil in spoiled {
                assert_eq!(damage(&disk_of(&with(&disk, number, spoil))), (segment(number), 0));
            }
        }
    }

    #[test]
    fn a_segment_that_ends_before_its_successor_says_is_damage() {
        let disk = still(3);
        let end = SEGMENT_HEADER + FRAME_HEADER + 300;
        for cut in [SEGMENT_HEADER, SEGMENT_HEADER + 1, SEGMENT_HEADER + FRAME_HEADER, end - 1] {
            let files = with(&disk, 2, |bytes| bytes.truncate(cut));
            assert_eq!(damage(&disk_of(&files)), (segment(2), SEGMENT_HEADER as u64));
        }
        assert_eq!(firsts(&disk_of(&with(&disk, 2, |bytes| bytes.truncate(end)))), [1, 2, 3], "zeros are not missed");
    }

    #[test]
    fn a_journal_that_begins_behind_its_first_record_is_damage() {
        let disk = still(1);
        let files = with(&disk, 1, |bytes| {
            bytes[40] = 5;
            seal_header(bytes);
        });
        assert_eq!(damage(&disk_of(&files)), (segment(1), 0));
    }

    #[test]
    fn a_newer_format_is_told_from_damage() {
        let disk = still(3);
        for number in 1..=3 {
            let files = with(&disk, number, |bytes| {
                bytes[8..12].copy_from_slice(&[9, 0, 2, 0]);
                // What a later release keeps elsewhere is none of our business.
                bytes[12..90].fill(0xa5);
                seal_header(bytes);
            });
            match read(disk_of(&files)).map(|_| ()) {
                Err(RecoverError::Newer { file, needs: 2 }) if file == segment(number) => {}
                other => panic!("{other:?}"),
            }
            let files = with(&disk, number, |bytes| {
                bytes[8] = 9;
                seal_header(bytes);
            });
            assert_eq!(firsts(&disk_of(&files)), [1, 2, 3], "written by a later release, for readers like this one");
        }
    }

    #[test]
    fn frames_that_were_whole_elsewhere_are_never_applied() {
        let disk = MemDisk::default();
        let mut writer = journal(disk.clone(), WIDE);
        (1..=3).for_each(|first| writer.append(batch(first, 1, body(300))).expect("memory takes it"));
        let older = still(3);
        let length = FRAME_HEADER + 300;
        let frame = |bytes: &[u8], n: usize| bytes[SEGMENT_HEADER + n * length..][..length].to_vec();
        let own = image(&disk)[&segment(1)].clone();
        let end = SEGMENT_HEADER + 3 * length;

        // Its own frames again, at the end and further behind: only rot puts them there.
        for (n, gap) in [(0, 0), (1, 0), (2, 0), (0, 100), (2, 100), (1, 4096)] {
            let files = with(&disk, 1, |bytes| bytes[end + gap..][..length].copy_from_slice(&frame(&own, n)));
            assert_eq!(damage(&disk_of(&files)), (segment(1), end as u64), "frame {n}, {gap} behind the end");
        }
        // Frames of another segment and of another journal are nothing but a torn tail.
        let others = [image(&older)[&segment(2)].clone(), image(&filled_with(4, 7).0)[&segment(4)].clone()];
        for (other, gap) in others.iter().flat_map(|other| [(other, 0), (other, 1), (other, 500)]) {
            let files = with(&disk, 1, |bytes| bytes[end + gap..][..length].copy_from_slice(&frame(other, 0)));
            let (found, recovery) = read(disk_of(&files)).expect("a torn tail is no damage");
            assert_eq!((found.len(), recovery.torn().map(|torn| torn.offset)), (3, Some(end as u64)));
        }
    }

    #[test]
    fn a_length_that_the_file_does_not_have_is_believed_by_nobody() {
        let disk = still(2);
        for length in [0, 1, 299, 301, 1 << 20, u32::MAX - 64, u32::MAX - 63, u32::MAX] {
            for checked in [false, true] {
                let files = with(&disk, 2, |bytes| {
                    bytes.truncate(SEGMENT_HEADER + FRAME_HEADER + 300);
                    bytes[SEGMENT_HEADER + 8..][..4].copy_from_slice(&length.to_le_bytes());
                    if checked {
                        seal_frame(bytes);
                    }
                });
                let (found, recovery) = read(disk_of(&files)).expect("a torn tail is no damage");
                assert_eq!((found.len(), recovery.torn().is_some()), (1, true), "{length}");
            }
        }
    }

    #[test]
    fn a_disk_that_refuses_to_be_read_is_not_damaged() {
        let disk = still(3);
        let before = image(&disk);
        for at in 1.. {
            let failing = Failing::on(&disk);
            failing.arm(at);
            match read(failing.clone()) {
                Err(RecoverError::Io { file, .. }) => assert!(file == "." || before.contains_key(&file), "{file}"),
                Err(other) => panic!("{other}"),
                Ok((found, _)) => {
                    assert_eq!((found.len(), failing.calls()), (3, at - 1));
                    assert!(at > 4, "there is more than that to read");
                    break;
                }
            }
        }
        assert!(image(&disk) == before);
    }

    #[test]
    fn names_that_are_not_those_of_segments_are_left_alone() {
        let disk = still(2);
        let names = ["1.segment", "+0000000000000000001.segment", "00000000000000000001.segment.tmp", "+0000000000000000003.segment"];
        for name in names.into_iter().chain(["journeyman.lock", "99999999999999999999.segment", ".segment", "0000000000000000000x.segment"])
        {
            disk.put(name, &[b'x'; 200]);
        }
        let before = image(&disk);
        assert_eq!(firsts(&disk), [1, 2]);
        journal(disk.clone(), NARROW).append(batch(3, 1, body(9))).expect("memory takes it");
        assert!(before.iter().all(|(name, bytes)| image(&disk)[name] == *bytes));
    }

    #[test]
    fn a_journal_in_any_order_of_epochs_but_rising_is_damage() {
        holds(200, |epochs: Vec<Edgy>| {
            let disk = MemDisk::default();
            let mut writer = journal(disk.clone(), WIDE);
            let mut led = 0;
            let mut first = 1;
            for Edgy(epoch) in epochs.into_iter().take(10) {
                let answer = writer.append(Batch { epoch: Epoch(epoch), ..batch(first, 1, vec![]) });
                assert_eq!(answer.is_ok(), epoch >= led);
                if answer.is_ok() {
                    (led, first) = (epoch, first + 1);
                }
            }
            assert_eq!(read(disk).expect("a sound journal").0.len() as u64, first - 1);
        });
    }
}

/// A disk with so many segments and a batch of 300 bytes in each.
fn still(segments: u64) -> MemDisk {
    let mut files = image(&filled(segments).0);
    // Of the megabyte of zeros behind them a part says the same.
    files.values_mut().for_each(|bytes| bytes.truncate(2000));
    disk_of(&files)
}

/// The same, and the journal that wrote them.
fn filled(segments: u64) -> (MemDisk, Journal) {
    filled_with(segments, 0)
}

fn filled_with(segments: u64, salt: u128) -> (MemDisk, Journal) {
    let disk = MemDisk::default();
    let (_, recovery) = read(disk.clone()).expect("a sound journal");
    let mut writer = recovery.into_journal(JournalLimits { segment_bytes: 500, ..NARROW }, Salt(SALT.0 + salt));
    (1..=segments).for_each(|first| writer.append(batch(first, 1, body(300))).expect("memory takes it"));
    (disk, writer)
}

fn body(length: u16) -> Vec<u8> {
    (0..length).map(|n| n.to_le_bytes()[0] | 1).collect()
}

fn next_of(batches: &[Batch]) -> u64 {
    batches.last().map_or(1, |batch| batch.last().0 + 1)
}

/// The first records of the batches that are there.
fn firsts(disk: &MemDisk) -> Vec<u64> {
    read(disk.clone()).expect("a sound journal").0.iter().map(|batch| batch.first.0).collect()
}

/// The files, with one segment changed.
fn with(disk: &MemDisk, number: u64, change: impl FnOnce(&mut Vec<u8>)) -> Image {
    let mut files = image(disk);
    change(files.get_mut(&segment(number)).expect("there is such a segment"));
    files
}

/// Which file is damaged, and where. It stays as it is.
fn damage(disk: &MemDisk) -> (String, u64) {
    let before = image(disk);
    let answer = read(disk.clone()).map(|(found, _)| found.len());
    assert!(image(disk) == before);
    match answer {
        Err(RecoverError::Damaged { file, offset, .. }) => (file, offset),
        other => panic!("{other:?}"),
    }
}

/// The number of the first record, as the header of a segment has it.
fn first_of(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[40..48].try_into().expect("8 bytes"))
}

/// Makes the checksum of a segment header right.
fn seal_header(bytes: &mut [u8]) {
    let checksum = crc32c::crc32c(&bytes[..92]);
    bytes[92..96].copy_from_slice(&checksum.to_le_bytes());
}

/// Makes the checksum of the first frame header right: it is salted.
fn seal_frame(bytes: &mut [u8]) {
    let salt = crc32c::crc32c(&bytes[16..32]);
    let header = SEGMENT_HEADER..SEGMENT_HEADER + FRAME_HEADER - 4;
    let checksum = crc32c::crc32c_append(salt, &bytes[header.clone()]);
    bytes[header.end..][..4].copy_from_slice(&checksum.to_le_bytes());
}
