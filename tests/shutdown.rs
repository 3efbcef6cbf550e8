//! The orderly stop: what runs may end, what does not is deferred and spends nothing, nobody's acknowledged job is lost at
//! any instant of it.

use std::time::Duration;

use journeyman::testing::Syncs;
use journeyman::{CallError, EnqueueError, Policy};

use crate::jobs::{DAY, HOUR, Log, MINUTE, SECOND, Step, runner, seed, task, task_for, tasks};

#[actix::test]
async fn what_runs_may_end_within_the_drain() {
    let log = Log::default();
    let mut t = runner(&log).await;
    t.jobs().enqueue(task("running", &[Step::Sleep(5000)])).await.unwrap();
    t.settle().await;
    let report = t.stop_and_reopen(10 * SECOND).await.unwrap();
    assert_eq!((report.interrupted, report.pending), (0, 0));
    assert_eq!((t.jobs().stats().done, log.total()), (1, 1));
}

#[actix::test]
async fn nothing_new_starts_during_the_drain() {
    let log = Log::default();
    let mut t = tasks(&log).capacity(1).test().await.unwrap();
    t.jobs().enqueue(task("running", &[Step::Sleep(5000)])).await.unwrap();
    t.jobs().enqueue(task("waiting", &[Step::Ok])).await.unwrap();
    t.settle().await;
    let report = t.shutdown(10 * SECOND).await.unwrap();
    assert_eq!((report.interrupted, report.pending), (0, 1));
    assert_eq!(log.names(), ["running"]);
    t.crash_and_reopen().await.unwrap();
    assert_eq!(log.names(), ["running", "waiting"]);
}

#[actix::test]
async fn what_the_stop_cuts_short_spends_no_attempt() {
    let log = Log::default();
    let mut t = runner(&log).await;
    let id = t.jobs().enqueue(task("a", &[Step::Hang, Step::Hang, Step::Hang, Step::Hang, Step::Ok])).await.unwrap().id();
    for _ in 0..4 {
        t.settle().await;
        assert_eq!(t.jobs().get(id).await.unwrap().unwrap().failures, 0);
        let report = t.stop_and_reopen(SECOND).await.unwrap();
        assert_eq!((report.interrupted, report.pending), (1, 1));
    }
    t.run_until_idle(HOUR).await.unwrap();
    assert_eq!(log.runs(), vec![("a".to_owned(), 1); 5]);
    assert_eq!(t.jobs().stats().done, 1);
}

#[actix::test]
async fn the_last_attempt_that_had_begun_is_spent_by_the_stop() {
    let log = Log::default();
    let mut t = runner(&log).await;
    t.jobs().enqueue(task("once", &[Step::Hang])).policy(Policy::default().attempts(1)).await.unwrap();
    t.settle().await;
    let report = t.stop_and_reopen(SECOND).await.unwrap();
    assert_eq!((report.interrupted, report.pending), (1, 0));
    t.advance(DAY).await;
    assert_eq!((log.total(), t.jobs().stats().spent), (1, 1), "at most one run, always");
}

#[actix::test]
async fn jobs_are_taken_during_the_drain_and_refused_after_it() {
    let log = Log::default();
    let mut t = runner(&log).await;
    t.jobs().enqueue(task("running", &[Step::Sleep(5000)])).await.unwrap();
    t.settle().await;
    let jobs = t.jobs();
    let late = actix_rt::spawn({
        let jobs = jobs.clone();
        async move { jobs.enqueue(task("late", &[Step::Ok])).await }
    });
    let report = t.shutdown(10 * SECOND).await.unwrap();
    assert!(late.await.unwrap().is_ok());
    assert_eq!(report.pending, 1);
    assert_eq!(jobs.enqueue(task("too late", &[Step::Ok])).await, Err(EnqueueError::ShuttingDown));
    t.crash_and_reopen().await.unwrap();
    assert_eq!(log.names(), ["running", "late"]);
}

#[actix::test]
async fn a_stop_amid_everything_loses_no_acknowledged_job_and_starts_none_twice() {
    let mut dice = fastrand::Rng::with_seed(seed());
    let steps = [Step::Ok, Step::Fail, Step::Panic, Step::Defer(5), Step::Sleep(3), Step::Reject];
    for round in 0..200 {
        let log = Log::default();
        let mut t = tasks(&log).capacity(8).test_with(Default::default(), round).await.unwrap();
        let jobs = t.jobs();
        let producers: Vec<_> = (0..8)
            .map(|producer| {
                let (jobs, script) = (jobs.clone(), [steps[dice.usize(..steps.len())], Step::Ok]);
                actix_rt::spawn(async move {
                    let mut acknowledged = 0;
                    for n in 0..20 {
                        match jobs.enqueue(task_for("t", &format!("{producer}-{n}"), &script)).await {
                            Ok(_) => acknowledged += 1,
                            Err(EnqueueError::ShuttingDown) => break,
                            Err(other) => panic!("{other}"),
                        }
                    }
                    acknowledged
                })
            })
            .collect();
        for _ in 0..dice.u32(..40) {
            tokio::task::yield_now().await;
        }
        t.shutdown(Duration::from_millis(dice.u64(..5))).await.unwrap();
        let mut acknowledged = 0;
        for producer in producers {
            acknowledged += producer.await.unwrap();
        }
        t.crash_and_reopen().await.unwrap();
        t.run_until_idle(DAY).await.unwrap();
        let stats = t.jobs().stats();
        assert_eq!(stats.done + stats.rejected, acknowledged, "round {round}: {stats:?}");
        assert_eq!(t.free_units().await, 8);
    }
}

#[actix::test]
async fn a_second_less_patient_stop_counts() {
    let log = Log::default();
    let t = runner(&log).await;
    t.jobs().enqueue(task("a", &[Step::Hang])).policy(Policy::default().timeout(DAY)).await.unwrap();
    t.settle().await;
    let started = t.now();
    let (first, second) = futures_util::future::join(t.shutdown(HOUR), t.shutdown(Duration::ZERO)).await;
    assert_eq!(first, second);
    assert_eq!(first.unwrap().interrupted, 1);
    assert!(t.now().duration_since(started).unwrap() < MINUTE);
}

#[actix::test]
async fn a_stop_waits_for_a_slow_disk_without_spinning() {
    let log = Log::default();
    let mut t = runner(&log).await;
    t.set_syncs(Syncs::After(10 * SECOND));
    let jobs = t.jobs();
    let call = actix_rt::spawn(async move { jobs.enqueue(task("a", &[Step::Ok])).await });
    t.settle().await;
    let report = t.shutdown(Duration::ZERO).await.unwrap();
    assert!(call.await.unwrap().is_ok());
    assert_eq!(report.pending, 1);
    t.crash_and_reopen().await.unwrap();
    assert_eq!(t.jobs().stats().done, 1);
}

#[actix::test]
async fn after_the_close_every_call_hears_so() {
    let log = Log::default();
    let t = runner(&log).await;
    let id = t.jobs().enqueue(task("a", &[Step::Ok])).delay(HOUR).await.unwrap().id();
    let jobs = t.jobs();
    let waiting = actix_rt::spawn(async move { jobs.run_until_idle(DAY).await });
    t.shutdown(SECOND).await.unwrap();
    assert_eq!(waiting.await.unwrap(), Err(CallError::ShuttingDown.into()));
    assert_eq!(t.jobs().get(id).await.unwrap_err(), CallError::ShuttingDown);
    assert_eq!(t.jobs().cancel(id).await, Err(CallError::ShuttingDown));
    assert_eq!(t.jobs().targets().await.unwrap_err(), CallError::ShuttingDown);
}
