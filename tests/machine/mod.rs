//! Proves on the simulated disk that the whole runner keeps its promises in long runs by chance: jobs that succeed, fail, hang, panic
//! and defer, with retries, breakers, keys and cancels, while the power goes, calls of the disk fail in every way, the disk fills up,
//! the wall clock jumps, the journal is compacted and the runner is stopped. No acknowledged job is lost, none runs after
//! an end that was told, no two runs of one job are alive at once, attempts rise, no id is given twice, and in the end
//! every unit of the pool is back. A run is a number.

mod book;
mod life;

use std::time::{Duration, Instant};

use life::Life;

use crate::panics::{Silence, silence};
use crate::support::figures::{figure, held};
use crate::support::seed;

#[actix::test]
async fn no_run_of_the_whole_machine_loses_a_job_or_runs_one_that_has_ended() {
    let _silence = silence_panics();
    let (first, runs) = (seed(), figure(400, 50_000));
    let mut sum = life::Told::default();
    let begun = Instant::now();
    for run in 0..runs {
        let told = Life::run(first.wrapping_add(run), 80).await;
        sum.add(&told);
    }
    println!("{runs} runs in {:?}: {sum:?}", begun.elapsed());
    // Each kind of thing happened, often enough to mean something.
    let counts = [sum.acked, sum.crashes, sum.stops, sum.faults, sum.unknown, sum.compactions, sum.cancels, sum.jumps, sum.ended];
    assert!(counts.iter().all(|count| *count >= runs / 10), "{sum:?}");
    held("F4", sum.crashes, "power cuts of the whole runner in long runs by chance");
    held("F13", sum.full, "times that the disk of a whole runner filled up");
    held("F22", sum.jumps, "jumps of the wall clock under a whole runner");
}

#[actix::test]
async fn a_run_replays_to_the_last_call_of_the_disk() {
    let _silence = silence_panics();
    let first = seed();
    for number in (0..8).map(|n| first.wrapping_add(n)) {
        let (one, other) = (Life::traced(number, 60).await, Life::traced(number, 60).await);
        assert!(one.len() > 50, "{} lines", one.len());
        if let Some(at) = one.iter().zip(&other).position(|(one, other)| one != other) {
            let around = |trace: &[String]| trace[at.saturating_sub(8)..(at + 3).min(trace.len())].to_vec();
            panic!("{number}: line {at} differs:\n{:#?}\n{:#?}", around(&one), around(&other));
        }
        assert_eq!(one.len(), other.len(), "{number}");
        assert!(Life::traced(number.wrapping_add(1), 60).await != one, "the seed decides");
    }
}

/// The panics of jobs are told nowhere: there are thousands. Those of the test are.
fn silence_panics() -> Silence {
    silence(|info| info.payload().downcast_ref::<&str>() == Some(&book::TOLD))
}

const PATIENCE: Duration = Duration::from_secs(40 * 24 * 3600);
