//! How many calls the queue takes in at once: jobs that come and go are not starved by a flood of calls, a flood is not slowed by one
//! long job, and calls that store nothing wait for no batch.

use std::future::IntoFuture;
use std::time::Duration;

use futures_util::future::join_all;
use journeyman::testing::{Syncs, TestRunner};
use journeyman::{Jobs, Limits};
use journeyman_core::disk::MemDisk;

use crate::jobs::{DAY, HOUR, Log, SECOND, Step, runner, task, tasks};

#[actix::test]
async fn while_jobs_come_and_go_a_batch_carries_sixty_four_callers() {
    let log = Log::default();
    let t = slow(&log).await;
    t.drive(t.jobs().enqueue(task("a", &[Step::Ok])).into_future(), SECOND).await.unwrap().unwrap();
    let syncs = flood(&t, 256).await;
    println!("256 callers while a job comes and goes: {syncs} syncs");
    // Busy for three batches behind the end of the job; then all that is left rides in one.
    assert!(syncs >= 4, "{syncs}");
    assert_eq!(log.total(), 1, "it has run meanwhile");
}

#[actix::test]
async fn one_long_job_is_no_reason_to_let_callers_wait() {
    let log = Log::default();
    let t = slow(&log).await;
    t.drive(t.jobs().enqueue(task("long", &[Step::Sleep(3_600_000)])).into_future(), SECOND).await.unwrap().unwrap();
    for _ in 0..4 {
        t.drive(t.jobs().enqueue(task("later", &[Step::Ok])).delay(DAY).into_future(), SECOND).await.unwrap().unwrap();
    }
    let syncs = flood(&t, 1024).await;
    println!("1024 callers beside a long job: {syncs} syncs");
    assert!(syncs <= 3, "{syncs}");
    assert_eq!(t.jobs().stats().running, 1);
}

#[actix::test]
async fn calls_that_store_nothing_wait_for_no_batch() {
    let log = Log::default();
    let t = slow(&log).await;
    let jobs = t.jobs();
    let first = t.drive(jobs.enqueue(task("a", &[Step::Ok])).key("one").into_future(), SECOND).await.unwrap().unwrap();
    let again = join_all((0..1000).map(|_| jobs.enqueue(task("a", &[Step::Ok])).key("one").into_future()));
    let receipts = t.drive(again, SECOND).await.expect("all are answered");
    assert!(receipts.into_iter().all(|receipt| receipt.is_ok_and(|receipt| receipt.id() == first.id() && !receipt.is_new())));
    let cancels = join_all((0..1000).map(|_| jobs.cancel("0-77".parse().unwrap())));
    let answers = t.drive(cancels, SECOND).await.expect("all are answered");
    assert!(answers.into_iter().all(|answer| answer.is_ok()));
}

#[actix::test]
async fn a_stop_amid_callers_who_call_again_and_again_answers_all_of_them() {
    let log = Log::default();
    let runner = tasks(&log).start_on(MemDisk::default()).await.unwrap();
    let producers: Vec<_> = (0..8).map(|_| actix_rt::spawn(calls_until_refused(runner.jobs()))).collect();
    actix_rt::time::sleep(Duration::from_millis(200)).await;
    let report = runner.shutdown(Duration::ZERO).await.unwrap();
    let stored: u64 = join_all(producers).await.into_iter().map(|stored| stored.expect("no caller panics")).sum();
    println!("{stored} jobs stored before the stop");
    assert!(stored > 8 && report.pending == stored, "{} wait, {stored} were acknowledged", report.pending);
}

async fn calls_until_refused(jobs: Jobs) -> u64 {
    let mut stored = 0;
    while jobs.enqueue(task("again", &[Step::Ok])).delay(DAY).await.is_ok() {
        stored += 1;
    }
    stored
}

#[actix::test]
async fn calls_without_a_bound_are_a_bound_like_any_other() {
    let log = Log::default();
    let mut limits = Limits::default();
    limits.calls = usize::MAX;
    let t = tasks(&log).limits(limits).test().await.unwrap();
    t.jobs().enqueue(task("a", &[Step::Ok])).await.unwrap();
    t.run_until_idle(SECOND).await.unwrap();
}

/// Each sync takes a millisecond.
async fn slow(log: &Log) -> TestRunner<Log> {
    let t = runner(log).await;
    t.set_syncs(Syncs::After(Duration::from_millis(1)));
    t
}

/// So many callers at once, each with a job for another day. Answers the syncs that they took.
async fn flood(t: &TestRunner<Log>, callers: usize) -> u64 {
    let jobs = t.jobs();
    let before = jobs.stats().syncs;
    let calls = join_all((0..callers).map(|_| jobs.enqueue(task("flood", &[Step::Ok])).delay(DAY).into_future()));
    let answers = t.drive(calls, HOUR).await.expect("all are answered");
    assert!(answers.iter().all(Result::is_ok));
    jobs.stats().syncs - before
}
