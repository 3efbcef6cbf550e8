//! The rows about the files of the journal.

use std::fs;
use std::io;
use std::time::{Duration, Instant};

use journeyman_core::Queue;
use journeyman_core::compaction::Progress;
use journeyman_core::disk::{Disk, DiskFile, FileDisk, MemDisk};
use journeyman_core::journal::RecoverError;
use journeyman_core::record;
use journeyman_core::store::OpenError;

use super::{FRAME_HEADER, LIMITS, SEGMENT_HEADER, frames, goes_on, killed, last_of, open, refused, segment, states, with};
use crate::kit::{Life, Place, Rig, kinds};
use crate::support::disks::{Call, Failing, Recorded};
use crate::support::{Image, disk_of, image, seed};

#[test]
fn d2_what_was_acknowledged_is_there_when_the_power_goes_at_once() {
    let disk = MemDisk::default();
    let rig = Rig::plain(disk.clone());
    let mut life = Life::with(&rig, LIMITS);
    for _ in 0..30 {
        life.busy(1);
        let after = disk_of(&image(&disk));
        after.crash();
        disk.crash();
        assert_eq!(crate::support::open(&disk).expect("it opens").queue, life.queue);
        // The file that it had open is as it was: it goes on in the same life.
    }
    life.compact();
    disk.crash();
    assert_eq!(rig.queue(), life.queue, "so for what a compaction has put in its place");
}

#[test]
fn d3_a_process_that_was_killed_opens_at_the_first_try_with_every_store() {
    for kind in kinds() {
        let place = Place::new(kind);
        let mut before = Queue::default();
        for round in 0..10 {
            let mut life = Life::begin(&place.rig());
            assert_eq!(life.queue.ends(), before.ends(), "{kind:?}, life {round}");
            life.busy(10);
            if round % 3 == 1 {
                life.compact();
            }
            // Dropped, as a kill does: no seal, and in the middle of a compaction in every second life.
            if round % 2 == 1 {
                let mut compaction = life.compaction();
                for _ in 0..round {
                    if !matches!(compaction.step(), Ok(Progress::Working { .. })) {
                        break;
                    }
                }
            }
            before = life.queue;
        }
    }
}

#[test]
fn d6_a_disk_that_was_full_for_a_moment_opens_later_with_all_that_was_acknowledged() {
    let mut places = 0;
    for at in 1.. {
        let disk = MemDisk::default();
        let failing = Failing::on(&disk);
        let mut life = Life::with(&Rig::plain(failing.clone()), LIMITS);
        life.busy(10);
        failing.arm(at);
        let mut failed = false;
        for n in 0..60 {
            let job = journeyman_core::Packed::from(crate::support::job(n, None));
            let now = journeyman_core::Time(5000);
            let enqueue = journeyman_core::Op::Enqueue { now, due: now, key: None, job };
            failed |= life.write(&[journeyman_core::Record::Op(enqueue)]).is_err();
        }
        if !failed {
            break;
        }
        places += 1;
        disk.crash();
        let found = crate::support::open(&disk).expect("it opens").queue;
        assert!(found.last() >= life.queue.last(), "all that was acknowledged, when call {at} found no room");
        goes_on(disk, &found);
    }
    assert!(places > 60, "{places} calls were refused");
}

#[test]
fn d8_an_open_of_anything_at_all_is_an_answer() {
    let mut dice = fastrand::Rng::with_seed(seed());
    let (sound, _) = killed();
    let (mut opened, mut errors) = (0, 0);
    for _ in 0..1000 {
        match open(&spoilt(&sound, &mut dice)) {
            Ok(store) => {
                store.queue.check();
                opened += 1;
            }
            Err(_) => errors += 1,
        }
    }
    println!("{opened} opened, {errors} were refused");
    assert!(opened > 10 && errors > 100, "both happen");
}

/// The files with some of them damaged in some of the ways that there are.
fn spoilt(sound: &Image, dice: &mut fastrand::Rng) -> Image {
    let mut files = sound.clone();
    let names: Vec<_> = files.keys().cloned().collect();
    for _ in 0..dice.usize(1..4) {
        let name = dice.choice(&names).expect("there are some").clone();
        let other = files.values().nth(dice.usize(..files.len().max(1))).cloned().unwrap_or_default();
        let Some(bytes) = files.get_mut(&name) else { continue };
        let at = dice.usize(..bytes.len().max(1));
        match dice.u8(..8) {
            0 => bytes.truncate(at),
            1 => bytes[at..].fill(0),
            2 => bytes.iter_mut().skip(at).take(512).for_each(|byte| *byte = dice.u8(..)),
            3 => bytes.extend((0..at).map(|_| dice.u8(..))),
            4 => {
                let length = other.len().saturating_sub(at).min(2000);
                bytes.splice(at..at, other.iter().skip(at).take(length).copied());
            }
            5 => *bytes = other,
            6 => drop(files.remove(&name)),
            _ => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << dice.u8(..8)),
        }
    }
    files
}

#[test]
fn d11_a_damaged_header_before_records_is_no_harmless_tail() {
    let (files, _) = killed();
    let (name, frames) = last_of(&files);
    assert!(frames.len() > 1);
    for byte in 0..SEGMENT_HEADER {
        let error = refused(&with(&files, &name, |bytes| bytes[byte] ^= 1));
        assert!(error.contains(&name), "{error}");
    }
    assert!(refused(&with(&files, &name, |bytes| bytes[..SEGMENT_HEADER].fill(0))).contains(&name));
}

#[test]
fn d12_damage_in_an_older_segment_is_named_by_file_and_place() {
    let (files, _) = killed();
    for (frame, range) in frames(&files[&segment(1)]).into_iter().enumerate() {
        let error = refused(&with(&files, &segment(1), |bytes| bytes[range.start + FRAME_HEADER - 1] ^= 0x10));
        assert!(error.starts_with(&format!("{} is damaged at byte {}", segment(1), range.start)), "frame {frame}: {error}");
    }
}

#[test]
fn d14_a_lock_file_that_somebody_left_behind_keeps_nobody_out() {
    let place = Place::new(kinds().next().expect("there is one"));
    let mut life = Life::begin(&place.rig());
    life.busy(2);
    let (dir, queue) = (place.dir, life.queue);
    drop((life.journal, life.rig, place.disk));
    for left in ["", "4711\n", "locked by somebody else"] {
        fs::write(dir.path().join("journeyman.lock"), left).expect("the directory is ours");
        let disk = FileDisk::open(dir.path()).expect("nobody holds it");
        let found = Rig::plain(disk).queue();
        assert_eq!(found, queue);
    }
}

#[test]
fn d17_a_last_segment_of_zeros_is_empty_and_any_other_is_damage() {
    let (files, queue) = killed();
    let (last, _) = last_of(&files);
    let next = segment(files.len() as u64 + 1);
    for length in [0, 1, 95, 96, 4096, 1 << 20] {
        let mut with_zeros = files.clone();
        with_zeros.insert(next.clone(), vec![0; length]);
        let store = open(&with_zeros).expect("nothing was ever in it");
        assert_eq!(store.queue, queue, "{length} zeros");
        goes_on(disk_of(&with_zeros), &queue);
    }
    for number in 1..files.len() as u64 {
        assert_ne!(segment(number), last);
        let error = refused(&with(&files, &segment(number), |bytes| bytes.fill(0)));
        assert!(error.contains(&segment(number)), "{error}");
    }
}

#[test]
fn d21_no_name_is_used_before_it_is_durable() {
    let disk = Recorded::on(Image::new());
    let rig = Rig::plain(disk.clone());
    let mut life = Life::with(&rig, LIMITS);
    let mut renames = 0;
    for round in 0..60 {
        life.busy(1);
        if round % 20 == 19 {
            life.compact();
        }
        let crashed = disk.crashed_after(disk.calls());
        let unsynced = crashed.renames.iter().filter(|call| matches!(call, Call::Rename { .. })).count();
        assert_eq!(unsynced, 0, "an acknowledgement rests on a name that a crash may take back");
        assert_eq!(open(&crashed.image(0, |_, _| Vec::new())).expect("it opens").queue, life.queue);
        renames = renames.max(rig.names().len());
    }
    assert!(renames > 3, "there were names to lose");
}

/// A disk that has no room at all.
#[derive(Clone)]
struct Full(MemDisk);

impl Disk for Full {
    fn list(&self) -> io::Result<Vec<String>> {
        self.0.list()
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        self.0.read(name)
    }

    fn read_at(&self, name: &str, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        self.0.read_at(name, offset, length)
    }

    fn create(&self, _: &str) -> io::Result<Box<dyn DiskFile>> {
        Err(io::ErrorKind::StorageFull.into())
    }

    fn rename(&self, _: &str, _: &str) -> io::Result<()> {
        Err(io::ErrorKind::StorageFull.into())
    }

    fn free(&self) -> io::Result<u64> {
        Ok(0)
    }

    fn remove(&self, _: &str) -> io::Result<()> {
        panic!("nothing may be removed to make room for a repair");
    }

    fn sync_names(&self) -> io::Result<()> {
        Err(io::ErrorKind::StorageFull.into())
    }
}

#[test]
fn d22_a_torn_journal_on_a_full_disk_opens_without_any_room() {
    let (files, _) = killed();
    let states = states(&files);
    let (name, frames) = last_of(&files);
    let torn = with(&files, &name, |bytes| bytes[frames.last().expect("there is one").end - 1] ^= 1);
    let full = Full(disk_of(&torn));
    for _ in 0..2 {
        let store = crate::support::open(&full).expect("an open only reads");
        assert_eq!(store.queue, states[states.len() - 2]);
        let mut journal = store.recovery.into_journal(LIMITS, crate::support::SALT);
        let batch =
            journeyman_core::journal::Batch { epoch: store.queue.epoch(), ..crate::support::batch(store.queue.last().0 + 1, 1, vec![]) };
        assert!(journal.append(batch).is_err(), "a write says that there is no room");
        assert!(image(&full.0) == torn);
    }
    goes_on(full.0, &states[states.len() - 2]);
}

/// The lengths that nobody wrote.
const LENGTHS: [u32; 9] = [0, 1, 1 << 20, 1 << 24, i32::MAX as u32, 1 << 31, u32::MAX - 64, u32::MAX - 1, u32::MAX];

#[test]
fn d23_a_length_is_believed_only_when_its_header_verifies() {
    let (files, _) = killed();
    let states = states(&files);
    let (name, frames) = last_of(&files);
    let (before, last) = (frames[frames.len() - 2].start, frames[frames.len() - 1].start);
    for length in LENGTHS {
        let began = Instant::now();
        let spoil = |at: usize| with(&files, &name, |bytes| bytes[at + 8..at + 12].copy_from_slice(&length.to_le_bytes()));
        assert_eq!(open(&spoil(last)).expect("the last batch is torn").queue, states[states.len() - 2], "{length}");
        assert!(refused(&spoil(before)).contains(&format!("{name} is damaged at byte {before}")), "{length}");
        assert!(began.elapsed() < Duration::from_secs(1), "{length}: a length makes nobody wait");
    }
}

#[test]
fn d40_a_length_with_a_right_checksum_is_bounded_by_the_bytes_that_are_there() {
    let (files, _) = killed();
    let states = states(&files);
    let (name, frames) = last_of(&files);
    let at = frames[frames.len() - 1].start;
    for length in LENGTHS {
        let forged = with(&files, &name, |bytes| {
            bytes[at + 8..at + 12].copy_from_slice(&length.to_le_bytes());
            let salt = crc32c::crc32c(&bytes[16..32]);
            let checksum = crc32c::crc32c_append(salt, &bytes[at..at + 60]);
            bytes[at + 60..at + 64].copy_from_slice(&checksum.to_le_bytes());
        });
        let began = Instant::now();
        let store = open(&forged).expect("the last batch is torn");
        assert_eq!(store.queue, states[states.len() - 2], "{length}");
        assert!(began.elapsed() < Duration::from_secs(1), "{length}");
    }
}

#[test]
fn d25_a_bit_in_the_middle_never_shortens_the_queue_in_silence() {
    let mut dice = fastrand::Rng::with_seed(seed());
    let (files, queue) = killed();
    let (last, of_last) = last_of(&files);
    let unproved = of_last.last().expect("there is one").clone();
    let mut errors = 0;
    for _ in 0..2000 {
        let name = dice.choice(files.keys().collect::<Vec<_>>()).expect("there are some").clone();
        let used = frames(&files[&name]).last().map_or(SEGMENT_HEADER, |frame| frame.end);
        let at = dice.usize(..used);
        if name == last && unproved.contains(&at) {
            continue;
        }
        let error = refused(&with(&files, &name, |bytes| bytes[at] ^= 1 << dice.u8(..8)));
        assert!(error.contains(" is damaged at byte "), "{error}");
        errors += 1;
    }
    assert!(errors > 1500 && open(&files).expect("it is sound").queue == queue);
}

#[test]
fn d33_whatever_is_damaged_nothing_newer_is_removed() {
    let (files, _) = killed();
    for name in files.keys() {
        for at in [10, SEGMENT_HEADER + 70, SEGMENT_HEADER + FRAME_HEADER + 2] {
            // It says so, and the files are as they were: `refused` compares them all.
            let error = refused(&with(&files, name, |bytes| bytes[at] ^= 4));
            assert!(error.contains(name.as_str()), "{error}");
        }
    }
}

#[test]
fn d34_a_reader_comes_to_an_end_whatever_it_reads() {
    let mut dice = fastrand::Rng::with_seed(seed());
    let (sound, _) = killed();
    let marks: Vec<u8> = b"JYFR".iter().copied().cycle().take(64 << 10).collect();
    let name = last_of(&sound).0;
    let of_marks = with(&sound, &name, |bytes| bytes.splice(SEGMENT_HEADER.., marks.iter().copied()).for_each(drop));
    let of_empty_frames = with(&sound, &name, |bytes| {
        let empty: Vec<u8> = b"JYFR\x01\0\0\0".iter().copied().chain([0; 56]).collect();
        bytes.splice(SEGMENT_HEADER.., empty.into_iter().cycle().take(1 << 20)).for_each(drop);
    });
    let mut longest = Duration::ZERO;
    for files in [of_marks, of_empty_frames].into_iter().chain((0..300).map(|_| spoilt(&sound, &mut dice))) {
        let began = Instant::now();
        drop(open(&files));
        longest = longest.max(began.elapsed());
    }
    println!("the longest open took {longest:?}");
    assert!(longest < Duration::from_secs(5), "{longest:?}");
}

#[test]
fn d39_an_empty_segment_is_an_answer_at_each_position() {
    let (files, queue) = killed();
    let count = files.len() as u64;
    for number in 1..count {
        assert!(refused(&with(&files, &segment(number), Vec::clear)).contains(&segment(number)));
    }
    let mut behind = files.clone();
    behind.insert(segment(count + 1), Vec::new());
    assert_eq!(open(&behind).expect("it never began").queue, queue);
    let alone = Image::from([(segment(1), Vec::new())]);
    assert_eq!(open(&alone).expect("it never began").queue, Queue::default());
}

#[test]
fn d42_a_kill_needs_no_flag_and_rot_is_never_cut() {
    let (files, queue) = killed();
    let store = open(&files).expect("a kill needs nothing");
    assert_eq!((store.queue, store.recovery.torn()), (queue.clone(), None));
    let (name, frames) = last_of(&files);
    let torn = with(&files, &name, |bytes| bytes.truncate(frames.last().expect("there is one").end - 1));
    assert!(open(&torn).expect("nor does a torn tail").recovery.torn().is_some());
    let rotten = with(&files, &name, |bytes| bytes[frames[0].end - 1] ^= 1);
    for _ in 0..3 {
        assert!(refused(&rotten).contains(&name));
    }
}

#[test]
fn d43_frames_of_an_older_file_are_not_replayed_and_a_gap_is_seen() {
    let (files, queue) = killed();
    let (name, own) = last_of(&files);
    let end = own.last().expect("there is one").end;
    for number in 1..files.len() as u64 {
        let old = files[&segment(number)].clone();
        for frame in frames(&old) {
            let recycled = with(&files, &name, |bytes| bytes.splice(end.., old[frame.clone()].iter().copied()).for_each(drop));
            let store = open(&recycled).expect("what is behind the end is a torn tail");
            assert_eq!((store.queue.last(), store.recovery.torn().is_some()), (queue.last(), true));
        }
        let mut gap = files.clone();
        gap.remove(&segment(number));
        assert!(refused(&gap).contains(&segment(number)), "segment {number} is missed");
    }
}

#[test]
fn d44_a_batch_that_is_there_twice_is_not_applied_twice() {
    let (files, _) = killed();
    let (name, own) = last_of(&files);
    for frame in own.iter().rev().take(3) {
        let copy = files[&name][frame.clone()].to_vec();
        let twice = with(&files, &name, |bytes| {
            let end = own.last().expect("there is one").end;
            bytes.splice(end.., copy).for_each(drop);
        });
        assert!(refused(&twice).contains(&name));
        let within = with(&files, &name, |bytes| bytes.splice(frame.end..frame.end, files[&name][frame.clone()].to_vec()).for_each(drop));
        assert!(refused(&within).contains(&name));
    }
}

#[test]
fn d47_the_decoder_of_records_answers_whatever_it_is_given() {
    let mut dice = fastrand::Rng::with_seed(seed());
    let (files, _) = killed();
    let bodies: Vec<Vec<u8>> = crate::support::read(disk_of(&files)).expect("it is sound").0.into_iter().map(|batch| batch.body).collect();
    let mut refused = 0;
    for _ in 0..50_000 {
        let mut bytes = dice.choice(&bodies).expect("there are some").clone();
        for _ in 0..dice.usize(1..4) {
            let at = dice.usize(..bytes.len().max(1));
            match dice.u8(..3) {
                0 => bytes.truncate(at),
                1 => bytes.insert(at.min(bytes.len()), dice.u8(..)),
                _ => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte = dice.u8(..)),
            }
        }
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let left = rest.len();
            if record::decode(&mut rest).is_err() {
                refused += 1;
                break;
            }
            assert!(rest.len() < left, "a record takes bytes");
        }
    }
    assert!(refused > 5000);
}

#[test]
fn d51_an_error_of_an_open_is_never_taken_for_damage_or_for_nothing() {
    let disk = MemDisk::default();
    let mut life = Life::with(&Rig::plain(disk.clone()), LIMITS);
    life.busy(20);
    life.compact();
    life.busy(20);
    let before = image(&disk);
    let failing = Failing::on(&disk);
    let mut refusals = 0;
    for at in 1.. {
        failing.arm(at);
        match crate::support::open(&failing) {
            Err(OpenError::Journal(RecoverError::Io { .. })) => {}
            Err(OpenError::Snapshot(error)) => assert!(!error.is_damage(), "{error}"),
            Err(other) => panic!("call {at}: {other}"),
            Ok(store) => {
                // What is in reserve is only counted: that it cannot be read hides nothing.
                assert!(store.queue == life.queue, "call {at}");
                if failing.calls() < at {
                    break;
                }
            }
        }
        assert!(image(&disk) == before);
        refusals += 1;
    }
    assert!(refusals > 5, "there is more than that to read");
}

#[test]
fn d58_a_segment_whose_header_cannot_be_read_is_not_skipped() {
    let (files, _) = killed();
    let middle = segment(2);
    let spoilt: [fn(&mut Vec<u8>); 4] =
        [|bytes| bytes[..8].fill(b'x'), |bytes| bytes.truncate(50), |bytes| bytes[92] ^= 1, |bytes| bytes[..96].fill(0xff)];
    for spoil in spoilt {
        assert!(refused(&with(&files, &middle, spoil)).contains(&middle));
    }
    let disk = disk_of(&files);
    let failing = Failing::on(&disk);
    failing.arm(3);
    assert!(matches!(crate::support::open(&failing), Err(OpenError::Journal(RecoverError::Io { .. }))));
    assert!(image(&disk) == files);
}

#[test]
fn d59_a_length_in_a_record_reserves_nothing_that_the_bytes_do_not_pay_for() {
    let (files, _) = killed();
    let bodies: Vec<Vec<u8>> = crate::support::read(disk_of(&files)).expect("it is sound").0.into_iter().map(|batch| batch.body).collect();
    let huge: [&[u8]; 3] =
        [&[0xff, 0xff, 0xff, 0xff, 0x0f], &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01], &[0x80, 0x80, 0x80, 0x80, 0x08]];
    let began = Instant::now();
    let mut refused = 0;
    // A varint of the largest lengths in the place of each byte of a record: its own lengths among them.
    for body in bodies.iter().take(60) {
        for (at, length) in (0..body.len()).flat_map(|at| huge.iter().map(move |length| (at, length))) {
            let bytes = [&body[..at], length, &body[at + 1..]].concat();
            refused += u32::from(record::decode(&mut &bytes[..]).is_err());
        }
    }
    assert!(refused > 1000 && began.elapsed() < Duration::from_secs(10), "{refused} in {:?}", began.elapsed());
}
