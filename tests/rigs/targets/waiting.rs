//! Whether jobs that are due run as fast with millions waiting as with a thousand.

use std::time::Duration;

use journeyman::Jobs;

use crate::load::{self, HOUR, Nothing, run_one, slice};
use crate::rows::{median, with_runner};
use crate::{Bound, Line};

pub(crate) fn due_rate() -> Vec<Line> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let with_many = load::real(dir.path().join("many"), 64);
    let with_few = load::real(dir.path().join("few"), 64);
    let figure = with_runner(with_many, async |many| {
        let runner = with_few.await;
        let few = runner.jobs();
        fill(many, MANY).await;
        fill(&few, 1000).await;
        let mut ratios = Vec::new();
        for _ in 0..5 {
            let base = slice(&few, 64, SLICE, run_one).await.jobs_per_second();
            ratios.push(slice(many, 64, SLICE, run_one).await.jobs_per_second() / base);
        }
        runner.shutdown(Duration::ZERO).await.expect("an orderly end");
        median(ratios)
    });
    vec![Line { target: "jobs with 10,000,000 waiting / with 1,000", figure, unit: "x", bound: Bound::AtLeast(0.7, 0.9) }]
}

/// Stores jobs that wait.
pub(crate) async fn fill(jobs: &Jobs, waiting: u64) {
    for _ in 0..waiting / 1000 {
        jobs.enqueue_all((0..1000).map(|_| jobs.enqueue(Nothing::new()).delay(HOUR))).await.expect("room");
    }
}

const MANY: u64 = 10_000_000;
const SLICE: Duration = Duration::from_millis(500);
