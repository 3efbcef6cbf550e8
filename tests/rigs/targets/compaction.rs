//! What callers notice of a compaction: how long an answer takes meanwhile, against the same without one.

use std::mem;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use journeyman::Jobs;

use crate::load::{self, HOUR, Nothing, run_one};
use crate::rows::{PAIRS, median, with_runner};
use crate::waiting::fill;
use crate::{Bound, Line};

/// Against the time right before each compaction: the machine's own moods last longer than that.
pub(crate) fn latency() -> Vec<Line> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let pairs = with_runner(load::real(dir.path().join("jobs"), 64), async |jobs| {
        fill(jobs, 200_000).await;
        let (mut pairs, mut quiet, mut busy) = (Vec::new(), Vec::new(), Vec::new());
        let began = Instant::now();
        // Compactions come by themselves, as jobs that end leave their records behind.
        while began.elapsed() < LONGEST && pairs.len() < PAIRS {
            let before = jobs.stats();
            let times = waits(jobs).await;
            let after = jobs.stats();
            if !before.compacting && after.compacting {
                continue; // Partly one, partly the other.
            }
            match (after.compacting, after.compactions == before.compactions) {
                (true, true) => busy.extend(times),
                (false, true) if busy.is_empty() => quiet.extend(times),
                _ => {
                    // It is over. One that ran from the beginning has nothing before it.
                    let (quiet, busy) = (mem::take(&mut quiet), mem::take(&mut busy));
                    if !quiet.is_empty() && !busy.is_empty() {
                        pairs.push((quiet, busy));
                    }
                }
            }
        }
        pairs
    });
    assert_eq!(pairs.len(), PAIRS, "fewer compactions came and went in {LONGEST:?}");
    let ratio = |percent| median(pairs.iter().map(|(quiet, busy)| at(busy, percent) / at(quiet, percent)).collect());
    vec![
        Line { target: "p50 of enqueue during a compaction / before", figure: ratio(50), unit: "x", bound: Bound::AtMost(1.3, 1.1) },
        Line { target: "p99 of the same", figure: ratio(99), unit: "x", bound: Bound::Report },
    ]
}

/// No pause of the queue, however much waits: a question that is asked every millisecond is answered soon, also while a compaction runs.
/// What else runs on the machine can only make a wait longer, so of the longest waits of several compactions the least counts.
pub(crate) fn longest_turn() -> Vec<Line> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let figure = with_runner(load::real(dir.path().join("jobs"), 64), async |jobs| {
        fill(jobs, WAITING).await;
        let mut longest = Vec::new();
        while longest.len() < 3 {
            longest.push(longest_wait(jobs).await.as_secs_f64() * 1e3);
        }
        longest.into_iter().fold(f64::INFINITY, f64::min)
    });
    vec![Line { target: "longest wait for an answer in a compaction", figure, unit: "ms", bound: Bound::AtMost(5.0, 1.0) }]
}

/// Over one whole compaction.
async fn longest_wait(jobs: &Jobs) -> Duration {
    while jobs.stats().compacting {
        tokio::time::sleep(MILLISECOND).await;
    }
    // Jobs are run until their records make the next one due.
    let (mut longest, mut rounds) = (Duration::ZERO, 0);
    while !jobs.stats().compacting {
        rounds += 1;
        assert!(rounds < MOST_ROUNDS, "{rounds} thousand jobs made no compaction due");
        jobs.enqueue_all((0..1000).map(|_| jobs.enqueue(Nothing::new()))).await.expect("room");
        while jobs.stats().pending > WAITING + 1000 {
            tokio::time::sleep(MILLISECOND).await;
        }
    }
    let id = jobs.enqueue(Nothing::new()).delay(HOUR).await.expect("room").id();
    while jobs.stats().compacting {
        let asked = Instant::now();
        jobs.get(id).await.expect("it is answered");
        longest = longest.max(asked.elapsed());
        tokio::time::sleep(MILLISECOND).await;
    }
    longest
}

/// How long each of 64 callers waits for an answer, in microseconds, over a moment.
async fn waits(jobs: &Jobs) -> Vec<f64> {
    let began = Instant::now();
    let produce = || async {
        let mut times = Vec::new();
        while began.elapsed() < MOMENT {
            let asked = Instant::now();
            run_one(jobs.clone()).await;
            times.push(asked.elapsed().as_secs_f64() * 1e6);
        }
        times
    };
    join_all((0..64).map(|_| produce())).await.concat()
}

fn at(times: &[f64], percent: usize) -> f64 {
    let mut times = times.to_vec();
    times.sort_by(f64::total_cmp);
    times.get(times.len() * percent / 100).copied().unwrap_or(f64::NAN)
}

const WAITING: u64 = 1_000_000;
const MOMENT: Duration = Duration::from_millis(50);
/// Many times as many jobs as make a compaction due.
const MOST_ROUNDS: u32 = 20_000;
const MILLISECOND: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_secs(60);
