//! Proves that no crash and no failed call of the disk loses an acknowledged batch or makes one up. The power goes after
//! every call of a whole life (first open, append, rotation, recovery, seal, append), and of what was not synced there
//! survives nothing, all, the last write alone, any part of it, or what chance picks; and every call fails once.

use std::ops::Range;

use journeyman_core::disk::{Disk, MemDisk};
use journeyman_core::journal::{AppendError, Batch, Journal, JournalLimits, RecoverError, RotateError};

use crate::support::disks::{Crashed, Failing, Recorded};
use crate::support::sim::{EIO, Fault, Kind, SimDisk, Still, Work};
use crate::support::{Image, batch, disk_of, image, journal, read, seed};

#[test]
fn whatever_survives_a_crash_after_any_call_holds_every_acknowledged_batch() {
    let disk = Recorded::on(Image::new());
    let history = History::of(&disk, Known::default(), &WHOLE_LIFE);
    let mut dice = fastrand::Rng::with_seed(seed());
    let mut states = 0;
    for calls in 0..=disk.calls() {
        each_image(&disk.crashed_after(calls), &mut dice, |files| {
            let context = format!("state {states}, after call {calls} of {}", disk.calls());
            let found = history.at(calls).check(&disk_of(files), &context);
            goes_on(files, found, &context);
            states += 1;
        });
    }
    println!("{states} states after a crash");
    assert!(states > 500, "{states}");
}

#[test]
fn a_crash_in_the_recovery_from_a_crash_loses_nothing_either() {
    let disk = Recorded::on(Image::new());
    let history = History::of(&disk, Known::default(), &WHOLE_LIFE);
    let mut states = 0;
    for calls in 0..=disk.calls() {
        for files in nothing_and_all(&disk.crashed_after(calls)) {
            let again = Recorded::on(files);
            let next = History::of(&again, history.at(calls).clone(), &[Step::Open, Step::Append(20), Step::Append(30)]);
            for calls in 0..=again.calls() {
                for files in nothing_and_all(&again.crashed_after(calls)) {
                    next.at(calls).check(&disk_of(&files), &format!("state {states}"));
                    states += 1;
                }
            }
        }
    }
    println!("{states} states after a second crash");
    assert!(states > 500, "{states}");
}

#[test]
fn after_any_call_that_failed_once_a_reopened_journal_holds_what_was_acknowledged() {
    let mut failures = 0;
    for at in 1.. {
        let disk = MemDisk::default();
        let failing = Failing::on(&disk);
        failing.arm(at);
        let known = live(&failing, Known::default(), &WHOLE_LIFE, |_| {});
        if failing.calls() < at {
            break;
        }
        failures += 1;
        // What the next open sees, and what it sees when the power goes before it.
        known.check(&disk, &format!("after the failure of call {at}"));
        disk.crash();
        known.check(&disk, &format!("after the failure of call {at} and a crash"));
    }
    println!("{failures} calls failed");
    assert!(failures > 40, "{failures}");
}

#[test]
fn a_journal_that_failed_says_so_and_touches_the_disk_no_more() {
    let mut failures = 0;
    for at in 1.. {
        let disk = MemDisk::default();
        let failing = Failing::on(&disk);
        let mut writer = journal(failing.clone(), SMALL);
        failing.arm(at);
        let Some(number) = (1..6).find(|number| writer.append(batch(*number, 1, vec![2; 1500])).is_err()) else { break };
        failures += 1;
        let (calls, syncs, files) = (failing.calls(), disk.syncs(), image(&disk));
        for number in [number, number + 1, 1] {
            assert!(matches!(writer.append(batch(number, 1, vec![3; 10])), Err(AppendError::Poisoned)));
        }
        assert_eq!(writer.counters().records, number - 1, "only what was acknowledged");
        writer.seal().expect("there is nothing to seal");
        assert_eq!((failing.calls(), disk.syncs()), (calls, syncs), "after the failure of call {at}");
        assert!(image(&disk) == files, "after the failure of call {at}");
    }
    println!("{failures} calls failed");
    assert!(failures > 20, "{failures}");
}

/// A sync that failed may have dropped what it was to write, and the next one says that all is well. So what it was to
/// write may not be believed, not even when it can still be read, until it has been written again.
#[test]
fn a_batch_whose_sync_failed_is_written_again_before_it_is_believed() {
    let disk = MemDisk::default();
    let mut writer = journal(disk.clone(), SMALL);
    writer.append(batch(1, 1, vec![1; 10])).expect("memory takes it");
    disk.fail_syncs(true);
    assert!(matches!(writer.append(batch(2, 1, vec![2; 10])), Err(AppendError::Failed(_))));
    disk.fail_syncs(false);

    let (found, recovery) = read(disk.clone()).expect("it can still be read");
    assert_eq!(found.len(), 2);
    let mut next = recovery.into_journal(SMALL, crate::support::SALT);
    next.append(batch(3, 1, vec![3; 10])).expect("memory takes it");
    disk.crash();
    let (found, _) = read(disk).expect("a sound journal");
    assert_eq!(found.iter().map(|batch| batch.body[0]).collect::<Vec<_>>(), [1, 2, 3]);
}

/// The process is over, the name is there to see, and nobody knows whether it is durable. Were the name of the next segment kept by
/// a crash and this one not, the next open would find a gap.
#[test]
fn a_name_whose_sync_failed_is_durable_before_the_next_segment_has_one() {
    let disk = SimDisk::default();
    let mut writer = journal(disk.clone(), SMALL);
    writer.append(batch(1, 1, vec![1; 10])).expect("it works");
    disk.fail_once(&[Kind::SyncNames], 1, Fault { errno: EIO, work: Work::Nothing });
    assert!(matches!(writer.rotate(), Err(RotateError::Failed(_))));
    disk.record();
    journal(disk.clone(), SMALL).append(batch(2, 1, vec![2; 10])).expect("it works again");
    let mut dice = fastrand::Rng::with_seed(0);
    for (call, wreck) in disk.recorded().iter().enumerate() {
        for survivors in wreck.states(0, &mut dice) {
            let (found, _) = read(Still::of(wreck.image(&survivors))).unwrap_or_else(|error| panic!("after call {call}: {error}"));
            assert!(!found.is_empty(), "after call {call}");
        }
    }
}

#[derive(Clone, Copy)]
enum Step {
    Open,
    Append(usize),
    Seal,
}

/// First open, appends, rotations, a recovery from no clean close, a seal, a recovery from a clean close, an open without
/// an append, and an append after that. The sizes are below, at and above those of sectors and of a segment.
const WHOLE_LIFE: [Step; 19] = [
    Step::Open,
    Step::Append(10),
    Step::Append(1500),
    Step::Append(513),
    Step::Append(2500),
    Step::Append(1),
    Step::Open,
    Step::Append(700),
    Step::Append(9000),
    Step::Append(30),
    Step::Seal,
    Step::Open,
    Step::Append(40),
    Step::Open,
    Step::Open,
    Step::Append(4096),
    Step::Append(64),
    Step::Seal,
    Step::Open,
];

const SMALL: JournalLimits = JournalLimits { segment_bytes: 4096, batch_bytes: 1 << 20 };

/// What a program knows of its journal.
#[derive(Clone, Default)]
struct Known {
    /// Acknowledged: these are there for good.
    acked: Vec<Batch>,
    /// Behind them: on the disk or not, nobody has heard.
    maybe: Vec<Batch>,
    /// Batches made so far, so that no two are the same.
    made: u64,
}

impl Known {
    /// Reads the disk and checks that it holds all that was acknowledged, and of the rest a beginning.
    fn check(&self, disk: &MemDisk, context: &str) -> Vec<Batch> {
        let (found, recovery) = read(disk.clone()).unwrap_or_else(|error| panic!("{context}: {error}"));
        self.agrees(&found, context);
        assert_eq!(recovery.last().0, found.len() as u64, "{context}");
        found
    }

    fn agrees(&self, found: &[Batch], context: &str) {
        let all: Vec<_> = self.acked.iter().chain(&self.maybe).collect();
        let (acked, read) = (self.acked.len(), found.len());
        assert!(read >= acked, "{context}: {acked} batches were acknowledged, {read} are there");
        assert!(read <= all.len() && all.iter().zip(found).all(|(one, other)| *one == other), "{context}: {read} batches, and not those");
    }

    fn next(&mut self, length: usize) -> Batch {
        self.made += 1;
        let first = (self.acked.len() + self.maybe.len()) as u64 + 1;
        batch(first, 1, self.made.to_le_bytes().into_iter().cycle().take(length).collect())
    }
}

/// Lives the steps on this disk, and tells what is known whenever that changes. What fails ends the process: the next
/// step begins with another open.
fn live(disk: &(impl Disk + Clone + 'static), mut known: Known, steps: &[Step], mut tell: impl FnMut(&Known)) -> Known {
    let mut writer = None;
    for step in steps {
        match step {
            Step::Open => writer = Some(open(disk, &mut known)),
            Step::Append(length) => {
                let mut journal = writer.take().unwrap_or_else(|| open(disk, &mut known));
                let batch = known.next(*length);
                known.maybe.push(batch.clone());
                tell(&known);
                match journal.append(batch) {
                    Ok(()) => {
                        known.acked.append(&mut known.maybe);
                        tell(&known);
                        writer = Some(journal);
                    }
                    Err(AppendError::Failed(_)) => {}
                    Err(other) => panic!("{other}"),
                }
            }
            // What was appended is durable, whatever becomes of the seal.
            Step::Seal => drop(writer.take().map(Journal::seal)),
        }
    }
    known
}

fn open(disk: &(impl Disk + Clone + 'static), known: &mut Known) -> Journal {
    let (found, recovery) = match read(disk.clone()) {
        // A disk that refuses is no sign of damage; it may work the next time.
        Err(RecoverError::Io { .. }) => read(disk.clone()).expect("only one call fails"),
        other => other.expect("no crash and no failure is damage"),
    };
    known.agrees(&found, "reopened");
    known.maybe.truncate(found.len() - known.acked.len());
    recovery.into_journal(SMALL, crate::support::SALT)
}

/// What was known after each call.
struct History(Vec<(usize, Known)>);

impl History {
    fn of(disk: &Recorded, known: Known, steps: &[Step]) -> Self {
        let mut history = vec![(0, known.clone())];
        live(disk, known, steps, |known| history.push((disk.calls(), known.clone())));
        Self(history)
    }

    fn at(&self, calls: usize) -> &Known {
        let known = self.0.iter().take_while(|(at, _)| *at <= calls).last();
        &known.expect("something is known from the start").1
    }
}

/// From what a crash left one can go on: what was found stays, and what is appended comes behind it.
fn goes_on(files: &Image, mut found: Vec<Batch>, context: &str) {
    let disk = disk_of(files);
    let next = batch(found.len() as u64 + 1, 1, b"next".to_vec());
    journal(disk.clone(), SMALL).append(next.clone()).expect("memory takes it");
    disk.crash();
    found.push(next);
    let (again, recovery) = read(disk).unwrap_or_else(|error| panic!("{context}, and on: {error}"));
    assert!(again == found, "{context}, and on: {} batches of {}", again.len(), found.len());
    assert_eq!(recovery.torn(), None, "{context}: reported once, and gone with the next append");
}

fn nothing_and_all(crashed: &Crashed) -> [Image; 2] {
    [crashed.image(0, |_, _| vec![]), crashed.image(usize::MAX, |_, bytes| all_of(bytes))]
}

/// Everything that might be on the disk, for each number of renames that may have got there.
fn each_image(crashed: &Crashed, dice: &mut fastrand::Rng, mut check: impl FnMut(&Image)) {
    for renames in 0..=crashed.renames.len() {
        check(&crashed.image(renames, |_, _| vec![]));
        let Some(last) = crashed.writes.len().checked_sub(1) else { continue };
        check(&crashed.image(renames, |_, bytes| all_of(bytes)));
        check(&crashed.image(renames, |number, bytes| if number == last { all_of(bytes) } else { vec![] }));
        check(&crashed.image(renames, |number, bytes| if number == last { vec![] } else { all_of(bytes) }));
        for at in sectors(crashed.writes[last].2.len()) {
            let torn = 0..at.start;
            check(&crashed.image(renames, |number, bytes| if number == last { vec![torn.clone()] } else { all_of(bytes) }));
            let hole = |bytes: &[u8]| vec![0..at.start, at.end..bytes.len()];
            check(&crashed.image(renames, |number, bytes| if number == last { hole(bytes) } else { all_of(bytes) }));
        }
        for _ in 0..12 {
            let chance = std::cell::RefCell::new(&mut *dice);
            check(&crashed.image(renames, |_, bytes| sectors(bytes.len()).filter(|_| chance.borrow_mut().bool()).collect()));
        }
    }
}

/// A write in parts of which each gets to the disk or not: sectors, or quarters of it when it has very many.
fn sectors(length: usize) -> impl Iterator<Item = Range<usize>> {
    let step = if length > 16 * 512 { length.div_ceil(4) } else { 512 };
    (0..length).step_by(step).map(move |at| at..length.min(at + step))
}

#[expect(clippy::single_range_in_vec_init, reason = "one range is meant")]
fn all_of(bytes: &[u8]) -> Vec<Range<usize>> {
    vec![0..bytes.len()]
}
