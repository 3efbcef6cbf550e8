//! A crash after every call of short scripts, in a recovery from it, and twenty in a row.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use fastrand::Rng;

use super::kit::{Played, SCRIPTS, Script, play};
use crate::support::figures::{figure, held};
use crate::support::program::{Known, Program, Step, known_at};
use crate::support::seed;
use crate::support::sim::{Files, SimDisk};

/// Where a state comes from.
struct Place<'a> {
    script: &'a str,
    point: usize,
    state: usize,
    behind: Option<(usize, usize)>,
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, state {} after call {}", self.script, self.state, self.point)?;
        self.behind.map_or(Ok(()), |(point, state)| write!(f, ", and state {state} after call {point} of what followed"))
    }
}

#[test]
fn whatever_survives_a_crash_after_any_call_of_a_script_holds_what_was_acknowledged() {
    let seed = seed();
    let by_chance = figure(64, 4000);
    let states = for_each_script(|script| {
        let Played { wrecks, history, made } = play(script);
        let mut dice = Rng::with_seed(seed);
        let mut states = 0;
        for (point, wreck) in wrecks.iter().enumerate() {
            let known = known_at(&history, point);
            for (state, survivors) in wreck.states(by_chance, &mut dice).iter().enumerate() {
                let files = wreck.image(survivors);
                let place = Place { script: script.name, point, state, behind: None };
                known.judge(&files, &place);
                if state % 16 == 0 {
                    goes_on(&files, known, made, &place);
                }
                states += 1;
            }
        }
        states
    });
    assert!(states > figure(5_000, 5_000), "{states}");
    held("F4", states, "crash states, the power cut after every call of 11 scripts");
    held("F19", states, "crash states, those within every step of a compaction among them");
}

#[test]
fn a_crash_in_the_recovery_from_a_crash_loses_nothing_either() {
    let seed = seed();
    let (first, second) = (figure(1, 6), figure(2, 160));
    let states = for_each_script(|script| {
        let Played { wrecks, history, made } = play(script);
        let mut dice = Rng::with_seed(seed);
        let mut states = 0;
        for (point, wreck) in wrecks.iter().enumerate() {
            for (state, survivors) in wreck.few_states(first, &mut dice).iter().enumerate() {
                let again = SimDisk::on(&wreck.image(survivors));
                let mut next = Program::begin(&again, known_at(&history, point).clone(), made);
                again.record();
                next.live(&RECOVERY);
                for (behind, wreck) in again.recorded().iter().enumerate() {
                    let known = known_at(&next.history, behind);
                    for (number, survivors) in wreck.states(second, &mut dice).iter().enumerate() {
                        let place = Place { script: script.name, point, state, behind: Some((behind, number)) };
                        known.judge(&wreck.image(survivors), &place);
                        states += 1;
                    }
                }
            }
        }
        states
    });
    assert!(states > figure(100_000, 100_000), "{states}");
    held("F4", states, "crash states, the power cut in the recovery from a crash");
    held("F21", states, "crashes in the recovery from a crash");
}

/// Each time the process comes to another call of its start before the power goes again.
#[test]
fn twenty_crashes_in_a_row_end_in_the_same_state_and_with_progress() {
    let seed = seed();
    let rows = figure(300, 10_000);
    for row in 0..rows {
        let mut dice = Rng::with_seed(seed.wrapping_add(row));
        let Played { wrecks, history, made } = play(&SCRIPTS[dice.usize(..SCRIPTS.len())]);
        let point = dice.usize(..wrecks.len());
        let mut known = known_at(&history, point).clone();
        let mut files = wrecks[point].image(&wrecks[point].by_chance(&mut dice));
        for crash in 0..20 {
            let context = format!("row {row}, crash {crash}");
            let found = known.judge(&files, &context);
            assert!(found == known.judge(&files, &context), "{context}: two opens find two states");
            let disk = SimDisk::on(&files);
            let mut program = Program::begin(&disk, known, made + crash);
            disk.record();
            program.live(&[Step::Append(30)]);
            let wrecks = disk.recorded();
            let point = dice.usize(..wrecks.len());
            known = known_at(&program.history, point).clone();
            files = wrecks[point].image(&wrecks[point].by_chance(&mut dice));
        }
        goes_on(&files, &known, made + 20, &format!("row {row}"));
    }
    held("F21", 20 * rows, "crashes, twenty in a row while it starts");
}

/// What a process does that finds what a crash has left.
const RECOVERY: [Step; 3] = [Step::Append(20), Step::Append(600), Step::Compact];

/// From what a crash left one can go on: what was found stays, and what is appended comes behind it.
fn goes_on(files: &Files, known: &Known, made: u64, context: &dyn fmt::Display) {
    let disk = SimDisk::on(files);
    let mut program = Program::begin(&disk, known.clone(), made);
    program.live(&[Step::Append(11), Step::Append(12)]);
    assert_eq!((program.failures, program.known.maybe.len()), (0, 0), "{context}");
    let wreck = disk.wreck();
    let found = program.known.judge(&wreck.image(&wreck.nothing()), context);
    assert!(found == *program.known.acked, "{context}: what was appended behind a crash is durable");
}

/// Does it for all scripts, on two threads, and adds up.
fn for_each_script(each: impl Fn(&Script) -> u64 + Sync) -> u64 {
    let (next, sum) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(script) = usize::try_from(next.fetch_add(1, Ordering::Relaxed)).ok().and_then(|at| SCRIPTS.get(at)) {
                    let begun = std::time::Instant::now();
                    let states = each(script);
                    println!("{}: {states} states in {:?}", script.name, begun.elapsed());
                    sum.fetch_add(states, Ordering::Relaxed);
                }
            });
        }
    });
    sum.into_inner()
}
