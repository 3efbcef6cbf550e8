//! Long runs by chance: appends, rotations, compactions, closes, crashes that keep any part of what was not synced, calls that fail
//! in any way, and a disk that is full for a while. A run is a number: it replays exactly.

use std::sync::atomic::{AtomicU64, Ordering};

use fastrand::Rng;

use crate::support::figures::{figure, held};
use crate::support::program::{Known, Program, Step};
use crate::support::seed;
use crate::support::sim::{Plan, SimDisk};

#[test]
fn no_run_by_chance_loses_or_invents_a_record() {
    let (first, runs) = (seed(), figure(10_000, 500_000));
    let (next, sum) = (AtomicU64::new(0), Sum::default());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= runs {
                        break;
                    }
                    sum.add(&run(first.wrapping_add(number), &SimDisk::default()));
                }
            });
        }
    });
    let Sum { crashes, failures, compactions, records } = sum;
    let (crashes, failures, compactions) = (crashes.into_inner(), failures.into_inner(), compactions.into_inner());
    println!("{crashes} crashes, {failures} failures, {compactions} compactions, {} records", records.into_inner());
    assert!(crashes > 2 * runs && failures > runs / 2 && compactions > runs / 2);
    held("F4", runs, "seeds, each a long run with crashes, faults and a full disk");
    held("F4", crashes, "crash states in long runs");
}

#[test]
fn a_seed_replays_to_the_last_byte() {
    let number = seed();
    let trace = |number| {
        let disk = SimDisk::default();
        disk.trace();
        run(number, &disk);
        (disk.traced(), disk.files())
    };
    let (first, second) = (trace(number), trace(number));
    assert!(first.0.len() > 100, "{} calls", first.0.len());
    assert!(first == second);
    assert!(trace(number.wrapping_add(1)).0 != first.0, "the seed decides");
}

#[derive(Default)]
struct Sum {
    crashes: AtomicU64,
    failures: AtomicU64,
    compactions: AtomicU64,
    records: AtomicU64,
}

struct Ran {
    crashes: u64,
    failures: u64,
    compactions: u64,
    records: u64,
}

impl Sum {
    fn add(&self, ran: &Ran) {
        self.crashes.fetch_add(ran.crashes, Ordering::Relaxed);
        self.failures.fetch_add(ran.failures, Ordering::Relaxed);
        self.compactions.fetch_add(ran.compactions, Ordering::Relaxed);
        self.records.fetch_add(ran.records, Ordering::Relaxed);
    }
}

fn run(number: u64, disk: &SimDisk) -> Ran {
    let seen = std::panic::AssertUnwindSafe(|| steps(number, disk));
    std::panic::catch_unwind(seen).unwrap_or_else(|_| panic!("to see this run alone: JOURNEYMAN_SEED={number}"))
}

fn steps(number: u64, disk: &SimDisk) -> Ran {
    let mut dice = Rng::with_seed(number);
    let mut program = Program::begin(disk, Known::default(), 0);
    let mut crashes = 0;
    for turn in 0..dice.u64(20..60) {
        match dice.u32(..32) {
            0..=13 => program.step(Step::Append(SIZES[dice.usize(..SIZES.len())])),
            14 => program.step(Step::Rotate),
            15..=17 => program.step(Step::Compact),
            18..=20 => program.step(Step::Open),
            21 => program.step(Step::Seal),
            22..=25 => {
                let wreck = disk.wreck();
                let survivors = if dice.u8(..4) == 0 { wreck.nothing() } else { wreck.by_chance(&mut dice) };
                program.crash(&wreck.image(&survivors), &format!("crash in turn {turn}"));
                crashes += 1;
            }
            26..=27 => {
                let per_mille = [10, 50, 200][dice.usize(..3)];
                disk.set_plan(Plan::Chance { per_mille, dice: Rng::with_seed(dice.u64(..)) });
            }
            28 => disk.set_room(Some(dice.u64(..3 << 20))),
            29 => disk.set_room(None),
            _ => disk.set_plan(Plan::Nothing),
        }
    }
    disk.set_plan(Plan::Nothing);
    disk.set_room(None);
    let failures = program.failures;
    program.live(&[Step::Open, Step::Append(9), Step::Compact, Step::Append(700), Step::Open]);
    assert_eq!(program.failures, failures, "a disk that works again");
    let wreck = disk.wreck();
    program.crash(&wreck.image(&wreck.nothing()), &"the last crash");
    let found = program.known.judge(&disk.files(), &"the end");
    assert!(found == *program.known.acked);
    Ran { crashes: crashes + 1, failures, compactions: program.compactions, records: found.last().0 }
}

/// Below, at and above sectors, pages and segments.
const SIZES: [usize; 9] = [0, 1, 30, 400, 512, 900, 1700, 2900, 4100];
