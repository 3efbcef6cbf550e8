//! What was durable and is no longer what it was is an error that names its place, and nothing of it is applied.

use journeyman_core::Epoch;
use journeyman_core::disk::MemDisk;
use journeyman_core::journal::{Batch, RecoverError, RotateError, Salt};

use super::{FRAME_HEADER, NARROW, SEGMENT_HEADER, body, damage, filled_with, firsts, seal_frame, seal_frame_at, seal_header, still, with};
use crate::support::disks::Failing;
use crate::support::figures::held;
use crate::support::{Edgy, Image, WIDE, batch, disk_of, holds, image, journal, read, segment};

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
    held("F10", 6_u64.pow(4), "orders of four segments, with any missing, doubled, renamed or another journal's");
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
fn a_segment_that_no_other_could_follow_is_damage_and_none_is_begun() {
    let numbered = |number: u64| {
        let mut bytes = image(&still(1))[&segment(1)].clone();
        bytes[32..40].copy_from_slice(&number.to_le_bytes());
        seal_header(&mut bytes);
        Image::from([(segment(number), bytes)])
    };
    assert_eq!(damage(&disk_of(&numbered(u64::MAX))), (segment(u64::MAX), 0));

    let files = numbered(u64::MAX - 1);
    let disk = disk_of(&files);
    let (found, recovery) = read(disk.clone()).expect("one could follow");
    let mut journal = recovery.into_journal(WIDE, Salt(7));
    let next = batch(found.last().expect("there is one").last().0 + 1, 1, body(1));
    let failed = journal.append(next).expect_err("no number is left");
    assert_eq!(failed.to_string(), "the journal could not be written: no number is left for another segment");
    assert!(image(&disk) == files, "nothing takes the place of what is there");

    let disk = disk_of(&numbered(u64::MAX - 2));
    let (found, recovery) = read(disk.clone()).expect("two could follow");
    let mut journal = recovery.into_journal(WIDE, Salt(7));
    let next = found.last().expect("there is one").last().0 + 1;
    journal.append(batch(next, 1, body(1))).expect("one number is left");
    let before = image(&disk);
    assert!(matches!(journal.rotate(), Err(RotateError::Draft(_))));
    assert!(image(&disk) == before);
    journal.append(batch(next + 1, 1, body(1))).expect("it goes on in the old one");
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
    held("F10", 8, "segments in the middle without a whole header");
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

    // Its own frames again, right at the end: only rot puts them there.
    for n in 0..3 {
        let files = with(&disk, 1, |bytes| bytes[end..][..length].copy_from_slice(&frame(&own, n)));
        assert_eq!(damage(&disk_of(&files)), (segment(1), end as u64), "frame {n}");
    }
    // Further behind, they may be pieces of a torn payload that holds a copy of this very file.
    for (n, gap) in [(0, 100), (2, 100), (1, 4096)] {
        let files = with(&disk, 1, |bytes| bytes[end + gap..][..length].copy_from_slice(&frame(&own, n)));
        let (found, recovery) = read(disk_of(&files)).expect("no witness of anything lost");
        assert_eq!((found.len(), recovery.torn().map(|torn| torn.offset)), (3, Some(end as u64)), "frame {n}, {gap} behind the end");
    }
    // Frames of another segment and of another journal are nothing but a torn tail.
    let others = [image(&older)[&segment(2)].clone(), image(&filled_with(4, 7).0)[&segment(4)].clone()];
    for (other, gap) in others.iter().flat_map(|other| [(other, 0), (other, 1), (other, 500)]) {
        let files = with(&disk, 1, |bytes| bytes[end + gap..][..length].copy_from_slice(&frame(other, 0)));
        let (found, recovery) = read(disk_of(&files)).expect("a torn tail is no damage");
        assert_eq!((found.len(), recovery.torn().map(|torn| torn.offset)), (3, Some(end as u64)));
    }
}

/// It may have been torn like all of its batch: what proves that a batch was durable is a frame behind the next one.
#[test]
fn a_frame_of_the_batch_that_is_torn_is_no_witness() {
    let disk = MemDisk::default();
    let mut writer = journal(disk.clone(), WIDE);
    (1..=3).for_each(|first| writer.append(batch(first, 1, body(300))).expect("memory takes it"));
    let length = FRAME_HEADER + 300;
    let own = image(&disk)[&segment(1)].clone();
    let (second, third) = (SEGMENT_HEADER + length, SEGMENT_HEADER + 2 * length);
    let files = with(&disk, 1, |bytes| {
        bytes[third] ^= 1;
        bytes[third + 100..][..length].copy_from_slice(&own[third..][..length]);
    });
    let (found, recovery) = read(disk_of(&files)).expect("a torn tail is no damage");
    assert_eq!((found.len(), recovery.torn().map(|torn| torn.offset)), (2, Some(third as u64)));
    assert_eq!(recovery.bytes(), third as u64, "what is torn does not count");
    let files = with(&disk, 1, |bytes| bytes[second] ^= 1);
    assert_eq!(damage(&disk_of(&files)), (segment(1), second as u64), "the one behind it is");
}

/// A backup of the journal, sent as a job: its payload holds whole frames of the segment that it is written to.
#[test]
fn a_torn_batch_that_holds_a_copy_of_an_earlier_frame_is_a_torn_tail() {
    let disk = MemDisk::default();
    let mut writer = journal(disk.clone(), WIDE);
    writer.append(batch(1, 1, body(300))).expect("memory takes it");
    let copy = image(&disk)[&segment(1)][SEGMENT_HEADER..][..FRAME_HEADER + 300].to_vec();
    writer.append(batch(2, 1, [copy.clone(), copy, body(50)].concat())).expect("memory takes it");
    let second = SEGMENT_HEADER + FRAME_HEADER + 300;
    for torn in 0..FRAME_HEADER + 2 * (FRAME_HEADER + 300) + 50 {
        let files = with(&disk, 1, |bytes| bytes[second + torn] ^= 1);
        let (found, recovery) = read(disk_of(&files)).expect("a torn tail is no damage");
        assert_eq!((found.len(), recovery.torn().map(|torn| torn.offset)), (1, Some(second as u64)), "torn at {torn}");
    }
}

/// The smallest frame, at the very end of the file, proves what stands before it.
#[test]
fn a_whole_frame_that_ends_with_the_file_proves_the_one_before() {
    let disk = MemDisk::default();
    let mut writer = journal(disk.clone(), WIDE);
    writer.append(batch(1, 1, body(300))).expect("memory takes it");
    writer.append(batch(2, 1, vec![])).expect("memory takes it");
    let end = SEGMENT_HEADER + FRAME_HEADER + 300 + FRAME_HEADER;
    let rotten = |length| {
        with(&disk, 1, |bytes| {
            bytes.truncate(length);
            bytes[SEGMENT_HEADER + FRAME_HEADER] ^= 1;
        })
    };
    assert_eq!(damage(&disk_of(&rotten(end))), (segment(1), SEGMENT_HEADER as u64));
    let (found, recovery) = read(disk_of(&rotten(end - 1))).expect("nothing proves that it was durable");
    assert_eq!((found.len(), recovery.torn().is_some()), (0, true));
}

/// Same salt, same place, same numbers, right checksums: only the chain tells that it does not belong there.
#[test]
fn a_frame_of_another_history_is_never_applied() {
    let written = |byte| {
        let disk = MemDisk::default();
        let mut writer = journal(disk.clone(), WIDE);
        (1..=3).for_each(|first| writer.append(batch(first, 1, vec![byte; 300])).expect("memory takes it"));
        disk
    };
    let length = FRAME_HEADER + 300;
    let (here, other) = (written(1), image(&written(2))[&segment(1)].clone());
    for n in 1..3 {
        let at = SEGMENT_HEADER + n * length;
        let files = with(&here, 1, |bytes| bytes[at..at + length].copy_from_slice(&other[at..at + length]));
        assert_eq!(damage(&disk_of(&files)), (segment(1), at as u64), "frame {n}");
    }
}

#[test]
fn a_batch_or_a_segment_that_leaves_records_out_is_damage() {
    let files = with(&still(1), 1, |bytes| {
        bytes[SEGMENT_HEADER + 24..][..8].copy_from_slice(&2_u64.to_le_bytes());
        bytes[SEGMENT_HEADER + 40..][..8].copy_from_slice(&1_u64.to_le_bytes());
        seal_frame(bytes);
    });
    assert_eq!(damage(&disk_of(&files)), (segment(1), SEGMENT_HEADER as u64));
    for first in [0, 1, 3, u64::MAX] {
        let files = with(&still(3), 2, |bytes| {
            bytes[40..48].copy_from_slice(&first.to_le_bytes());
            seal_header(bytes);
        });
        assert_eq!(damage(&disk_of(&files)), (segment(2), 0), "{first}");
    }
}

#[test]
fn an_epoch_that_falls_is_damage() {
    let disk = MemDisk::default();
    let led = |first, epoch| Batch { epoch: Epoch(epoch), ..batch(first, 1, body(300)) };
    let mut writer = journal(disk.clone(), WIDE);
    writer.append(led(1, 5)).expect("memory takes it");
    writer.append(led(2, 5)).expect("memory takes it");
    let at = SEGMENT_HEADER + FRAME_HEADER + 300;
    let files = with(&disk, 1, |bytes| {
        bytes[at + 16..][..8].copy_from_slice(&4_u64.to_le_bytes());
        seal_frame_at(bytes, at);
    });
    assert_eq!(damage(&disk_of(&files)), (segment(1), at as u64));
}

#[test]
fn a_frame_that_cannot_be_is_no_frame() {
    let spoiled: [fn(&mut [u8]); 4] = [
        // Of an unknown kind; without records; beginning at record 0; saying that more was durable than was written.
        |frame| frame[4] = 3,
        |frame| frame[12] = 0,
        |frame| frame[24] = 0,
        |frame| frame[40] = 1,
    ];
    for spoil in spoiled {
        let files = with(&still(1), 1, |bytes| {
            spoil(&mut bytes[SEGMENT_HEADER..]);
            seal_frame(bytes);
        });
        let (found, recovery) = read(disk_of(&files)).expect("nothing proves that it was durable");
        assert_eq!((found.len(), recovery.torn().is_some()), (0, true));
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
    held("F9", 16, "lengths of the last frame that the file does not have");
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
    for name in names.into_iter().chain(["journeyman.lock", "99999999999999999999.segment", ".segment", "0000000000000000000x.segment"]) {
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
