//! The rows about snapshots and compactions, with every store that this build has.

use std::fs;

use journeyman_core::compaction::{CompactionError, Phase};
use journeyman_core::disk::MemDisk;
use journeyman_core::journal::RecoverError;
use journeyman_core::{Op, Queue};

use super::{LIMITS, open, short};
use crate::kit::{Kind, Life, PHASES, Place, Rig, kinds, run, run_to};
use crate::support::{disk_of, image, seed, segment};

/// Two snapshots and a journal behind them.
fn two_snapshots(kind: Kind) -> (Place, Queue) {
    let place = Place::new(kind);
    let mut life = Life::with(&place.rig(), LIMITS);
    for _ in 0..2 {
        life.busy(30);
        life.compact();
    }
    life.busy(5);
    (place, life.queue)
}

#[test]
fn d1_a_snapshot_with_an_empty_or_a_zeroed_file_is_stood_in_for() {
    for kind in kinds() {
        let (place, queue) = two_snapshots(kind);
        let newest = *place.rig().seqs().last().expect("there are two");
        for path in place.files_of(newest) {
            let sound = fs::read(&path).expect("it reads");
            for damaged in [Vec::new(), vec![0; sound.len()]] {
                if damaged == sound {
                    continue;
                }
                fs::write(&path, damaged).expect("it writes");
                let store = place.rig().open().expect("the one before stands in");
                assert_eq!((store.queue, store.passed_over.len()), (queue.clone(), 1), "{}", path.display());
            }
            fs::write(&path, sound).expect("it writes");
        }
    }
}

#[test]
fn d4_no_damage_of_any_file_makes_an_open_panic() {
    let mut dice = fastrand::Rng::with_seed(seed());
    for kind in kinds() {
        let (place, _) = two_snapshots(kind);
        let files: Vec<_> = place.files().into_iter().filter(|(_, bytes)| !bytes.is_empty()).collect();
        let mut errors = 0;
        for n in 0..160 {
            let (path, sound) = dice.choice(&files).expect("there are some");
            let mut bytes = sound.clone();
            let at = dice.usize(..bytes.len());
            match n % 4 {
                0 => bytes.truncate(at),
                1 => bytes.iter_mut().skip(at).take(4096).for_each(|byte| *byte = dice.u8(..)),
                2 => bytes[at] ^= 1 << dice.u8(..8),
                _ => bytes.extend_from_slice(&sound[..at]),
            }
            fs::write(path, bytes).expect("it writes");
            match place.rig().open() {
                Ok(store) => store.queue.check(),
                Err(_) => errors += 1,
            }
            fs::write(path, sound).expect("it writes");
        }
        println!("{kind:?}: {errors} of 160 did not open");
    }
}

#[test]
fn d5_the_room_of_what_has_ended_comes_back() {
    for kind in kinds() {
        let place = Place::new(kind);
        let mut life = Life::with(&place.rig(), LIMITS);
        let mut sizes = Vec::new();
        for _ in 0..12 {
            life.busy(40);
            life.complete_all();
            life.compact();
            sizes.push(place.files().values().map(Vec::len).sum::<usize>());
        }
        // Keys of ended jobs are remembered, a few hundred kilobytes at most; segments are laid out a mebibyte ahead.
        assert!(sizes[11] < 2 * sizes[2] && sizes[11] < 32 << 20, "{kind:?}: {sizes:?}");
    }
}

#[test]
fn d7_every_byte_of_a_snapshot_is_verified_when_it_is_read() {
    let mut dice = fastrand::Rng::with_seed(seed());
    for kind in kinds() {
        let (place, queue) = two_snapshots(kind);
        let newest = *place.rig().seqs().last().expect("there are two");
        let files = place.files_of(newest);
        for _ in 0..150 {
            let path = dice.choice(&files).expect("there are some");
            let sound = fs::read(path).expect("it reads");
            let mut bytes = sound.clone();
            let at = dice.usize(..bytes.len());
            bytes[at] = bytes[at].wrapping_add(dice.u8(1..));
            fs::write(path, bytes).expect("it writes");
            let store = place.rig().open().expect("the one before stands in");
            assert_eq!((store.queue == queue, store.passed_over.len()), (true, 1), "byte {at} of {}", path.display());
            fs::write(path, sound).expect("it writes");
        }
    }
}

#[test]
fn d13_ids_rise_when_all_is_compacted_and_closed() {
    for kind in kinds() {
        let place = Place::new(kind);
        let rig = place.rig();
        let mut life = Life::begin(&rig);
        let most = (0..5).map(|n| life.enqueue(None, n)).max().expect("five");
        life.complete_all();
        for _ in 0..3 {
            life.compact();
            life.lead().expect("the disk takes it");
        }
        let last = life.queue.last();
        life.journal.seal().expect("the disk takes it");
        let mut life = Life::begin(&rig);
        assert!(life.enqueue(None, 1) > most && life.queue.last() > last, "{kind:?}");
    }
}

#[test]
fn d16_one_job_that_never_ends_keeps_no_file_of_the_others() {
    let disk = MemDisk::default();
    let rig = Rig::plain(disk.clone());
    let mut life = Life::with(&rig, LIMITS);
    let buried = life.enqueue(None, 1);
    let mut segments = Vec::new();
    for _ in 0..10 {
        for n in 0..100 {
            let ticket = life.enqueue(None, n);
            life.complete(ticket);
        }
        life.compact();
        segments.push(rig.names().iter().filter(|name| name.ends_with(".segment")).count());
    }
    assert!(segments[9] <= segments[2] + 1, "{segments:?}");
    assert!(rig.queue().get(buried).is_some());
}

#[test]
fn d24_a_snapshot_of_no_bytes_is_no_empty_queue() {
    let (place, queue) = two_snapshots(Kind::Plain);
    let seqs = place.rig().seqs();
    let path = |n: usize| place.dir.path().join(place.rig().snapshots().name(seqs[n]));
    let sound = [fs::read(path(0)).expect("it reads"), fs::read(path(1)).expect("it reads")];
    fs::write(path(1), "").expect("it writes");
    assert_eq!(place.rig().open().expect("the one before stands in").queue, queue);
    fs::write(path(0), "").expect("it writes");
    let error = place.rig().open().map(|store| store.queue.last()).expect_err("never empty");
    assert!(error.to_string().starts_with("no snapshot is sound"), "{error}");
    fs::write(path(0), &sound[0]).expect("it writes");
    fs::write(path(1), &sound[1]).expect("it writes");
    assert_eq!(place.rig().queue(), queue);
}

#[test]
fn d31_a_compaction_that_meets_damage_says_so_and_deletes_nothing() {
    let disk = MemDisk::default();
    let rig = Rig::plain(disk.clone());
    let mut life = Life::with(&rig, LIMITS);
    life.busy(30);
    let name = segment(1);
    let sound = image(&disk)[&name].clone();
    let mut rotten = sound.clone();
    rotten[500] ^= 1;
    disk.put(&name, &rotten);
    for _ in 0..3 {
        let before = rig.names();
        let mut compaction = life.compaction();
        let error = run(&mut compaction).map(|_| ()).expect_err("it reads what it folds");
        assert!(matches!(&error, CompactionError::Journal(RecoverError::Damaged { file, .. }) if *file == name), "{error}");
        assert!(matches!(run(&mut compaction), Err(CompactionError::Over)), "it is not tried by itself");
        assert!(before.iter().all(|name| rig.names().contains(name)), "nothing is removed");
        life.busy(1);
    }
    disk.put(&name, &sound);
    life.compact();
    assert_eq!(rig.queue(), life.queue, "and the journal went on all the while");
}

#[test]
fn d37_what_is_in_the_snapshot_and_in_the_journal_counts_once() {
    for phase in PHASES {
        let disk = MemDisk::default();
        let rig = Rig::plain(disk.clone());
        let mut life = Life::with(&rig, LIMITS);
        life.busy(20);
        life.compact();
        life.busy(20);
        let failures: u32 = life.queue.tickets().map(|(_, live)| live.failures()).sum();
        assert!(failures > 5);
        let mut compaction = life.compaction();
        run_to(&mut compaction, phase);
        drop(compaction);
        disk.crash();
        let store = open(&short(image(&disk))).expect("it opens");
        assert_eq!(store.queue.tickets().map(|(_, live)| live.failures()).sum::<u32>(), failures, "{phase:?}");
        assert_eq!(store.queue, life.queue, "{phase:?}");
    }
}

/// A snapshot that was cut off from its journal by a later life: what it stands for is not applied again, and not lost.
#[test]
fn d37_a_completed_job_does_not_come_back_from_an_older_file() {
    let disk = MemDisk::default();
    let rig = Rig::plain(disk.clone());
    let mut life = Life::with(&rig, LIMITS);
    let ticket = life.enqueue(Some("once"), 3);
    life.busy(10);
    life.compact();
    let older = image(&disk);
    let attempt = life.select(ticket);
    life.op(Op::Complete { ticket, attempt, end: journeyman_core::End::Done, fault: None });
    life.busy(10);
    life.compact();
    life.compact_again();
    let mut files = image(&disk);
    for (name, bytes) in older {
        files.entry(name).or_insert(bytes);
    }
    // Files that a sweep had removed are back, as after a crash that forgot the removal.
    let store = crate::support::open(&disk_of(&files)).expect("it opens");
    assert_eq!(store.queue, life.queue);
    assert!(store.queue.get(ticket).is_none());
}

trait CompactAgain {
    fn compact_again(&mut self);
}

impl CompactAgain for Life {
    /// After a record more, so that there is something to compact.
    fn compact_again(&mut self) {
        self.lead().expect("the disk takes it");
        let mut compaction = self.compaction();
        run_to(&mut compaction, Phase::Sweeping);
        run(&mut compaction).expect("the disk takes it");
    }
}
