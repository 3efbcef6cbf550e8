//! Targets that are down: how the breaker keeps attempts away, what an outage costs, how it ends, and that nobody else
//! notices.

use std::time::Duration;

use journeyman::testing::{Syncs, TestRunner};
use journeyman::{BreakerState, Cancelled, JobState, Policy, TargetInfo};

use crate::jobs::{DAY, HOUR, Log, MINUTE, SECOND, Step, task_for, tasks, touchy};

async fn with_capacity(capacity: u32, log: &Log) -> TestRunner<Log> {
    tasks(log).capacity(capacity).circuit(touchy()).test().await.unwrap()
}

async fn target(t: &TestRunner<Log>, name: &str) -> TargetInfo {
    t.jobs().targets().await.unwrap().into_iter().find(|info| info.target.as_str() == name).expect("a known target")
}

/// Two failures that end their jobs: the breaker of `t` is open.
async fn trip(t: &TestRunner<Log>) {
    let jobs = t.jobs();
    let once = Policy::default().attempts(1);
    jobs.enqueue_all((0..2).map(|n| jobs.enqueue(task_for("t", &n.to_string(), &[Step::Fail])).policy(once))).await.unwrap();
    t.settle().await;
    assert_eq!(target(t, "t").await.breaker, BreakerState::Open);
}

fn patient() -> Policy {
    Policy::default().attempts(1000).base(SECOND).cap(SECOND)
}

#[actix::test]
async fn an_outage_costs_the_same_whether_ten_wait_or_a_thousand() {
    let mut costs = Vec::new();
    for waiting in [10, 1000] {
        let log = Log::default();
        let t = with_capacity(4, &log).await;
        let jobs = t.jobs();
        let all = (0..waiting).map(|n| jobs.enqueue(task_for("down", &n.to_string(), &[Step::Fail])).policy(patient()));
        jobs.enqueue_all(all).await.unwrap();
        t.advance(SECOND).await;
        assert_eq!(target(&t, "down").await.breaker, BreakerState::Open);
        let (records, runs) = (jobs.stats().records, log.total());
        t.advance(100 * MINUTE).await;
        assert_eq!(log.total() - runs, 100, "one probe per cooldown");
        costs.push(jobs.stats().records - records);
        assert_eq!(jobs.stats().pending, waiting);
    }
    assert_eq!(costs, [200, 200], "a Select and a Requeue for each probe");
}

#[actix::test]
async fn a_dead_target_disturbs_nobody_else() {
    let log = Log::default();
    let t = with_capacity(4, &log).await;
    let jobs = t.jobs();
    jobs.enqueue_all((0..200).map(|n| jobs.enqueue(task_for("down", &format!("d{n}"), &[Step::Fail])).policy(patient()))).await.unwrap();
    jobs.enqueue_all((0..200).map(|n| jobs.enqueue(task_for("up", &format!("u{n}"), &[Step::Sleep(1000)])))).await.unwrap();
    t.advance(52 * SECOND).await;
    assert_eq!(jobs.stats().done, 200, "four at a time, a second each, and two seconds for the failures");
    assert_eq!(target(&t, "up").await.breaker, BreakerState::Closed);
    assert!(target(&t, "down").await.held > 190);
    assert_eq!(jobs.stats().held, target(&t, "down").await.held);
}

#[actix::test]
async fn a_probe_that_succeeds_lets_everything_through() {
    let log = Log::default();
    let t = with_capacity(4, &log).await;
    let jobs = t.jobs();
    for n in 0..20 {
        // The first two failures open it; whoever runs next succeeds.
        let script: &[Step] = if n < 2 { &[Step::Fail, Step::Ok] } else { &[Step::Ok] };
        jobs.enqueue(task_for("t", &n.to_string(), script))
            .priority(n)
            .policy(patient())
            .delay(if n < 2 { Duration::ZERO } else { SECOND })
            .await
            .unwrap();
    }
    t.advance(10 * SECOND).await;
    assert_eq!((log.total(), target(&t, "t").await.breaker), (2, BreakerState::Open));
    t.advance(MINUTE).await;
    assert_eq!(jobs.stats().done, 20);
    let info = target(&t, "t").await;
    assert_eq!((info.breaker, info.openings, info.held), (BreakerState::Closed, 1, 0));
}

#[actix::test]
async fn half_open_lets_no_more_than_its_probes_run() {
    let log = Log::default();
    let t = tasks(&log).capacity(64).circuit(touchy().probes(3)).test().await.unwrap();
    let jobs = t.jobs();
    jobs.enqueue_all((0..2).map(|n| jobs.enqueue(task_for("t", &n.to_string(), &[Step::Fail, Step::Sleep(5000)])).policy(patient())))
        .await
        .unwrap();
    t.settle().await;
    jobs.enqueue_all((2..50).map(|n| jobs.enqueue(task_for("t", &n.to_string(), &[Step::Sleep(5000)])))).await.unwrap();
    t.advance(MINUTE).await;
    assert_eq!((jobs.stats().running, target(&t, "t").await.breaker), (3, BreakerState::HalfOpen));
    t.advance(4 * SECOND).await;
    assert_eq!(jobs.stats().running, 3);
    t.advance(SECOND).await;
    assert_eq!(jobs.stats().running, 47, "closed: all the others at once");
}

#[actix::test]
async fn a_probe_without_a_verdict_makes_room_for_the_next() {
    for step in [Step::Panic, Step::Defer(86_400_000), Step::NotTheTarget, Step::UntilCancelled] {
        let log = Log::default();
        let t = with_capacity(4, &log).await;
        let jobs = t.jobs();
        trip(&t).await;
        let probe = jobs.enqueue(task_for("t", "probe", &[step])).priority(1).policy(Policy::default().attempts(1)).await.unwrap().id();
        jobs.enqueue(task_for("t", "next", &[Step::Ok])).await.unwrap();
        t.advance(MINUTE).await;
        if step == Step::UntilCancelled {
            assert_eq!(log.runs_of("next"), 0, "the probe is out");
            jobs.cancel(probe).await.unwrap();
            t.settle().await;
        }
        // A cancel that the job answers with Ok is a verdict by the job itself.
        assert_eq!(log.runs_of("next"), 1, "after {step:?}");
        assert_eq!(target(&t, "t").await.breaker, BreakerState::Closed);
    }
}

#[actix::test]
async fn a_probe_that_is_cancelled_before_it_sets_out_makes_room_for_the_next() {
    let log = Log::default();
    let t = with_capacity(4, &log).await;
    let jobs = t.jobs();
    trip(&t).await;
    let probe = jobs.enqueue(task_for("t", "probe", &[Step::Ok])).priority(1).await.unwrap().id();
    jobs.enqueue(task_for("t", "next", &[Step::Ok])).await.unwrap();
    t.set_syncs(Syncs::WhenTold);
    t.advance(MINUTE).await;
    let mut cancel = std::pin::pin!(jobs.cancel(probe));
    assert!(t.drive(&mut cancel, SECOND).await.is_none(), "the Select is at the journal, the Cancel behind it");
    t.set_syncs(Syncs::AtOnce);
    t.release_sync().await;
    assert_eq!(cancel.await.unwrap(), Cancelled::Stopping);
    t.settle().await;
    assert_eq!((log.runs_of("probe"), log.runs_of("next")), (0, 1), "the probe never began, and another went");
    assert_eq!((t.free_units().await, jobs.stats().running), (4, 0));
}

#[actix::test]
async fn a_probe_that_hangs_counts_as_a_failure_at_its_timeout() {
    let log = Log::default();
    let t = with_capacity(4, &log).await;
    let jobs = t.jobs();
    trip(&t).await;
    jobs.enqueue(task_for("t", "probe", &[Step::Hang, Step::Ok])).policy(patient().timeout(10 * SECOND)).await.unwrap();
    t.advance(70 * SECOND).await;
    let info = target(&t, "t").await;
    assert_eq!((info.breaker, info.openings), (BreakerState::Open, 2));
    t.advance(2 * MINUTE).await;
    assert_eq!(jobs.stats().done, 1);
}

#[actix::test]
async fn rejections_and_faults_of_others_open_nothing() {
    let log = Log::default();
    let t = with_capacity(64, &log).await;
    let jobs = t.jobs();
    for (n, step) in [Step::Reject, Step::NotTheTarget, Step::Panic, Step::Defer(1000)].into_iter().cycle().take(40).enumerate() {
        jobs.enqueue(task_for("t", &n.to_string(), &[step, Step::Ok])).await.unwrap();
    }
    t.run_until_idle(HOUR).await.unwrap();
    let info = target(&t, "t").await;
    assert_eq!((info.breaker, info.openings), (BreakerState::Closed, 0));
}

#[actix::test]
async fn a_refused_ticket_spends_nothing_and_keeps_its_place() {
    let log = Log::default();
    let t = with_capacity(1, &log).await;
    let jobs = t.jobs();
    jobs.enqueue_all((0..2).map(|n| jobs.enqueue(task_for("t", &n.to_string(), &[Step::Fail])).policy(Policy::default().attempts(1))))
        .await
        .unwrap();
    let ids = jobs.enqueue_all((2..10).map(|n| jobs.enqueue(task_for("t", &n.to_string(), &[Step::Ok])))).await.unwrap();
    t.settle().await;
    for receipt in &ids {
        let info = jobs.get(receipt.id()).await.unwrap().unwrap();
        assert_eq!((info.failures, info.state), (0, JobState::Held { why: "the breaker of its target is open" }));
    }
    t.advance(MINUTE).await;
    assert_eq!(log.names(), (0..10).map(|n| n.to_string()).collect::<Vec<_>>());
}

#[actix::test]
async fn breakers_are_forgotten_by_a_crash_and_by_idleness() {
    let log = Log::default();
    let mut t = with_capacity(4, &log).await;
    t.jobs().enqueue(task_for("idle", "a", &[Step::Ok])).await.unwrap();
    t.settle().await;
    assert_eq!(t.jobs().targets().await.unwrap().len(), 1);
    t.advance(HOUR).await;
    // The sweep rides on whatever else happens.
    t.jobs().enqueue(task_for("busy", "b", &[Step::Fail, Step::Fail, Step::Ok])).policy(patient()).await.unwrap();
    t.advance(2 * SECOND).await;
    let targets = t.jobs().targets().await.unwrap();
    assert_eq!(targets.iter().map(|info| info.target.as_str()).collect::<Vec<_>>(), ["busy"]);
    assert_eq!(t.actors("breaker"), 1, "and its actor has ended");
    assert_eq!(targets[0].breaker, BreakerState::Open);
    t.crash_and_reopen().await.unwrap();
    t.advance(SECOND).await;
    assert_eq!(t.jobs().stats().done, 2, "a new process asks the target at once");
}

#[actix::test]
async fn a_deadline_passes_while_the_breaker_is_open() {
    let log = Log::default();
    let t = with_capacity(4, &log).await;
    let jobs = t.jobs();
    trip(&t).await;
    jobs.enqueue(task_for("t", "late", &[Step::Ok])).policy(Policy::default().deadline(30 * SECOND)).await.unwrap();
    t.advance(59 * SECOND).await;
    assert_eq!(jobs.stats().late, 0, "a hold never ends a ticket");
    t.advance(SECOND).await;
    assert_eq!((jobs.stats().late, log.runs_of("late")), (1, 0));
    t.advance(DAY).await;
    jobs.enqueue(task_for("t", "fresh", &[Step::Ok])).await.unwrap();
    t.settle().await;
    assert_eq!(jobs.stats().done, 1, "the probe that never ran gave its place back");
}
