//! Each call of a whole life fails once, or from then on, in every way in which its kind can; and the disk is full at every size.
//! What was acknowledged is there before a crash and after it, nothing is acknowledged behind a failure until the directory has
//! been opened again, and then the life goes on.

use std::sync::Arc;

use fastrand::Rng;
use journeyman_core::disk::Disk;
use journeyman_core::journal::RecoverError;
use journeyman_core::snapshot::{PlainStore, SnapshotError};
use journeyman_core::store::{OpenError, Store};

use crate::support::figures::{figure, held};
use crate::support::program::{Known, Program, Step, known_at};
use crate::support::seed;
use crate::support::sim::{ANY, EINTR, EIO, ENOSPC, Fault, Kind, Plan, READING, SimDisk, Work};

use Step::{Append, Compact, Open, Rotate, Seal};

/// Appends, rotations, three compactions of which the last removes segments, openings from a clean close and from none.
const LIFE: [Step; 20] = [
    Append(10),
    Append(700),
    Append(1500),
    Rotate,
    Append(900),
    Compact,
    Append(1800),
    Append(600),
    Compact,
    Open,
    Append(300),
    Append(2000),
    Compact,
    Append(40),
    Seal,
    Open,
    Append(5),
    Append(1400),
    Compact,
    Append(7),
];

#[test]
fn a_sync_that_fails_once_is_never_believed_again() {
    let works = [Work::Nothing, Work::MarkedClean, Work::HalfMarkedClean, Work::All];
    let tried = each_call(&[Kind::Sync], &works, EIO);
    assert!(tried.calls > 100, "{tried:?}");
    held("F11", tried.calls, "syncs of a whole life, each failed once in one of 4 ways");
    let tried = each_call(&[Kind::Sync], &works, ENOSPC);
    held("F14", tried.calls, "syncs that found no space, each in one of 4 ways");
}

#[test]
fn a_change_of_names_that_fails_is_a_failure_of_its_caller_and_loses_nothing() {
    let mut calls = 0;
    for kind in [&[Kind::SyncNames], &[Kind::Rename], &[Kind::Remove], &[Kind::Create]] {
        let tried = each_call(kind, &[Work::Nothing, Work::All], EIO);
        assert!(tried.calls >= 8, "{kind:?}: {tried:?}");
        calls += tried.calls;
    }
    held("F12", calls, "syncs of names, renames, removals and creations, each failed once, undone or done");
}

#[test]
fn a_write_that_fails_with_any_part_of_it_done_loses_nothing() {
    let works = [Work::Nothing, Work::First, Work::Half, Work::AllButLast, Work::All];
    let full = each_call(&[Kind::Write], &works, ENOSPC);
    assert!(full.calls > 150, "{full:?}");
    held("F13", full.calls, "writes that found no space with any part done: of appends, rotations and snapshots");
    let short = each_call(&[Kind::Write], &works, EIO).calls;
    let interrupted = each_call(ANY, &[Work::Nothing, Work::First, Work::Half], EINTR).calls;
    held("F16", short + interrupted, "writes cut short at 1 byte, half or all but one, and calls of every kind interrupted");
}

#[test]
fn a_disk_that_fails_for_good_in_the_middle_of_anything_loses_nothing() {
    let changing: &'static [Kind] = &[Kind::Create, Kind::Write, Kind::Sync, Kind::Rename, Kind::Remove, Kind::SyncNames];
    let mut tried = 0;
    for work in [Work::Nothing, Work::Half, Work::MarkedClean] {
        for at in 1.. {
            let disk = SimDisk::default();
            disk.set_plan(Plan::From { kinds: changing, left: at, fault: Fault { errno: EIO, work } });
            let mut program = Program::begin(&disk, Known::default(), 0);
            program.live(&LIFE);
            let refused = disk.refused();
            ends_well(&disk, program, &format!("all from change {at} on, {work:?}"));
            if refused == 0 {
                break;
            }
            tried += 1;
        }
    }
    assert!(tried > 300, "{tried}");
    held("F19", tried, "disks that fail for good, from every call of a life with four compactions on");
}

#[test]
fn a_disk_that_is_full_at_any_size_can_be_read_and_goes_on_when_there_is_room() {
    let mut dice = Rng::with_seed(seed());
    let step = figure(20 << 10, 512);
    let (mut tried, mut full) = (0, 0);
    for size in 0.. {
        let room = size * step + dice.u64(..step);
        let disk = SimDisk::default();
        disk.set_room(Some(room));
        let mut program = Program::begin(&disk, Known::default(), 0);
        program.live(&LIFE);
        let failures = program.failures;
        // It is full, and can be read all the same.
        let store = opened(&disk).expect("a full disk can be read");
        program.known.agrees(&store.queue, &format!("{room} bytes of room"));
        disk.set_room(None);
        ends_well(&disk, program, &format!("{room} bytes of room"));
        tried += 1;
        full += u64::from(failures > 0);
        if failures == 0 {
            break;
        }
    }
    assert!(full > 100, "{full}");
    held("F13", tried, "sizes of a disk that a life fills up");
}

#[test]
fn a_disk_that_cannot_be_read_says_so_at_every_call_and_nothing_is_touched() {
    let disk = SimDisk::default();
    let mut program = Program::begin(&disk, Known::default(), 0);
    program.live(&LIFE);
    let before = disk.files();
    let mut tried = 0;
    for at in 1.. {
        disk.fail_once(READING, at, Fault { errno: EIO, work: Work::Nothing });
        let refused = disk.refused();
        let answer = opened(&disk);
        if disk.refused() == refused {
            assert!(answer.is_ok());
            break;
        }
        tried += 1;
        match answer {
            Err(error @ (OpenError::Journal(RecoverError::Io { .. }) | OpenError::Snapshot(SnapshotError::Io { .. }))) => {
                let text = error.to_string();
                assert!(text.contains("cannot be read") && text.contains("os error 5") && !text.contains("damaged"), "{text}");
            }
            Err(other) => panic!("call {at}: {other}"),
            // Heads of segments in reserve are looked at only to count their bytes.
            Ok(store) => assert!(store.queue == *program.known.acked && store.passed_over.is_empty(), "call {at}"),
        }
        assert!(disk.files() == before, "call {at}");
    }
    assert!(tried >= 8, "{tried}");
    held("F15", tried, "calls that read at an open, each failed once");
}

#[derive(Debug, Default)]
struct Tried {
    calls: u64,
    states: u64,
}

/// A life for each call of these kinds and each way in which it can fail. What a crash leaves is judged behind the failure, at each of
/// the next calls and then here and there.
fn each_call(kinds: &'static [Kind], works: &[Work], errno: i32) -> Tried {
    let mut dice = Rng::with_seed(seed());
    let mut tried = Tried::default();
    for work in works {
        for at in 1.. {
            let disk = SimDisk::default();
            disk.fail_once(kinds, at, Fault { errno, work: *work });
            disk.record();
            let mut program = Program::begin(&disk, Known::default(), 0);
            program.live(&LIFE);
            let context = format!("{kinds:?} {at} failed, {work:?} of it done");
            let Some(failed) = disk.first_refused() else {
                assert_eq!(program.failures, 0);
                break;
            };
            tried.calls += 1;
            for (point, wreck) in disk.recorded().iter().enumerate().skip(failed) {
                if point > failed + 12 && !(point - failed).is_multiple_of(7) {
                    continue;
                }
                let known = known_at(&program.history, point);
                for (state, survivors) in wreck.few_states(2, &mut dice).iter().enumerate() {
                    known.judge(&wreck.image(survivors), &format!("{context}, state {state} after call {point}, {failed} failed"));
                    tried.states += 1;
                }
            }
            ends_well(&disk, program, &context);
        }
    }
    println!("{kinds:?} with error {errno}: {tried:?}");
    tried
}

/// The disk works again: what was acknowledged is there, and a restart goes on without any repair.
fn ends_well(disk: &SimDisk, mut program: Program, context: &str) {
    program.known.judge(&disk.files(), &context);
    disk.set_plan(Plan::Nothing);
    let failures = program.failures;
    program.live(&[Open, Append(20), Compact, Append(30)]);
    assert_eq!(program.failures, failures, "{context}: the next process goes on");
    let wreck = disk.wreck();
    program.crash(&wreck.image(&wreck.nothing()), &context);
    program.live(&[Append(20)]);
    assert_eq!(program.failures, failures, "{context}: so does the one after a crash");
}

fn opened(disk: &SimDisk) -> Result<Store, OpenError> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Store::open(disk.clone(), &PlainStore::new(disk))
}
