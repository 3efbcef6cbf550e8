//! Things that come in the wrong order, twice, too late or never: verdicts, probes, outcomes and messages. Proves for each that
//! it ends as it should, and that afterwards no unit of the pool and no place of a breaker is missing or there twice.

mod messages;
mod outcomes;
mod outlived;
mod probes;
mod verdicts;

use journeyman::testing::TestRunner;
use journeyman::{BreakerState, Circuit, JobId, Policy, TargetInfo};

use crate::jobs::{DAY, Log, MINUTE, SECOND, Step, task_for, tasks, touchy};

/// Units of the pool in all tests here.
const CAPACITY: u32 = 8;

/// A runner whose breakers open at two failures, for a minute.
async fn runner(log: &Log) -> TestRunner<Log> {
    runner_with(log, touchy()).await
}

async fn runner_with(log: &Log, circuit: Circuit) -> TestRunner<Log> {
    tasks(log).capacity(CAPACITY).circuit(circuit).test().await.unwrap()
}

/// Stores a job for the target.
async fn store(t: &TestRunner<Log>, name: &str, script: &[Step], policy: Policy) -> JobId {
    t.jobs().enqueue(task_for("t", name, script)).policy(policy).await.unwrap().id()
}

fn once() -> Policy {
    Policy::default().attempts(1).timeout(DAY)
}

/// Two failures that end their jobs: the breaker of the target is open for a minute.
async fn trip(t: &TestRunner<Log>) {
    let jobs = t.jobs();
    jobs.enqueue_all((0..2).map(|_| jobs.enqueue(task_for("t", "failing", &[Step::Fail])).policy(once()))).await.unwrap();
    t.settle().await;
    assert_eq!(breaker(t).await.breaker, BreakerState::Open);
}

async fn breaker(t: &TestRunner<Log>) -> TargetInfo {
    let targets = t.jobs().targets().await.unwrap();
    targets.into_iter().find(|info| info.target.as_str() == "t").expect("a known target")
}

/// Lets all work end, and then looks whether anything is missing or there twice: the target is closed by a good job, opened,
/// and half-open lets exactly `probes` through; closed again, it lets as many run as there are units; and all units are free.
async fn all_is_there(t: &TestRunner<Log>, probes: u32) {
    let jobs = t.jobs();
    t.run_until_idle(DAY).await.unwrap();
    t.advance(2 * MINUTE).await;
    store(t, "good", &[Step::Ok], once()).await;
    t.run_until_idle(DAY).await.unwrap();
    assert_eq!(breaker(t).await.breaker, BreakerState::Closed);
    trip(t).await;
    let many = (0..CAPACITY + probes).map(|_| jobs.enqueue(task_for("t", "many", &[Step::Sleep(1000)])));
    jobs.enqueue_all(many).await.unwrap();
    t.advance(MINUTE).await;
    assert_eq!(
        (jobs.stats().running, breaker(t).await.breaker),
        (u64::from(probes), BreakerState::HalfOpen),
        "no probe is missing or too many"
    );
    t.advance(SECOND).await;
    assert_eq!(jobs.stats().running, u64::from(CAPACITY), "nor a unit");
    t.run_until_idle(MINUTE).await.unwrap();
    let stats = jobs.stats();
    assert_eq!((stats.pending, stats.running, stats.held, t.free_units().await), (0, 0, 0, CAPACITY));
    assert_eq!(breaker(t).await.breaker, BreakerState::Closed);
}
