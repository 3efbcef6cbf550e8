//! The end of a journal and the death of an actor, where the runner is not to reopen by itself: what waited hears that nobody knows, later calls that nothing is
//! available, nothing is acknowledged any more, and what was acknowledged is there at the next open.

use std::future::IntoFuture;

use journeyman::testing::{Syncs, TestRunner};
use journeyman::{CallError, EnqueueError, Health, Limits};

use crate::jobs::{DAY, HOUR, Log, MINUTE, SECOND, Step, runner, task, task_for, tasks};

#[actix::test]
async fn a_failed_sync_ends_the_journal_and_no_sync_follows() {
    let log = Log::default();
    let mut t = brittle(&log).await;
    t.jobs().enqueue(task("before", &[Step::Ok])).delay(HOUR).await.unwrap();
    t.jobs().enqueue(task("running", &[Step::Sleep(1000)])).await.unwrap();
    t.settle().await;
    t.disk().fail_syncs(true);
    let jobs = t.jobs();
    assert_eq!(jobs.enqueue(task("during", &[Step::Ok])).key("during").await, Err(EnqueueError::Unknown));
    let syncs = t.disk().syncs();
    assert_eq!(jobs.enqueue(task("after", &[Step::Ok])).await, Err(EnqueueError::Unavailable));
    assert_eq!(jobs.cancel("0-1".parse().unwrap()).await, Err(CallError::Unavailable));
    assert!(matches!(jobs.health(), Health::Red { .. }));
    t.advance(DAY).await;
    assert_eq!(t.disk().syncs(), syncs, "a sync that failed is never tried again");
    assert_eq!(jobs.stats().done, 0, "nothing is believed any more");
    t.disk().fail_syncs(false);
    t.crash_and_reopen().await.unwrap();
    let stats = t.jobs().stats();
    assert_eq!((stats.running, stats.done), (1, 1), "both acknowledged jobs are there, and both are overdue");
    let again = t.jobs().enqueue(task("during", &[Step::Ok])).key("during").await.unwrap();
    t.run_until_idle(2 * HOUR).await.unwrap();
    assert_eq!(log.runs_of("during"), 1, "{again:?}");
    assert_eq!(log.runs_of("before"), 1);
}

#[actix::test]
async fn an_answer_lost_on_the_way_is_unknown_and_a_key_makes_asking_again_harmless() {
    let log = Log::default();
    let mut t = brittle(&log).await;
    t.jobs().enqueue(task("first", &[Step::Ok])).await.unwrap();
    t.settle().await;
    t.set_syncs(Syncs::Unheard);
    let jobs = t.jobs();
    let lost = jobs.enqueue(task("job", &[Step::Ok])).key("job");
    assert_eq!(lost.await, Err(EnqueueError::Unknown));
    assert!(matches!(jobs.health(), Health::Red { .. }));
    assert_eq!(jobs.enqueue(task("x", &[Step::Ok])).await, Err(EnqueueError::Unavailable));
    t.crash_and_reopen().await.unwrap();
    let again = t.jobs().enqueue(task("job", &[Step::Ok])).key("job").await.unwrap();
    assert!(!again.is_new(), "it had been stored after all");
    t.run_until_idle(HOUR).await.unwrap();
    assert_eq!(log.runs_of("job"), 1);
}

#[actix::test]
async fn a_journal_that_stays_silent_is_given_up() {
    let log = Log::default();
    let t = brittle(&log).await;
    t.set_syncs(Syncs::WhenTold);
    let jobs = t.jobs();
    let answer = t.drive(jobs.enqueue(task("a", &[Step::Ok])).into_future(), 2 * MINUTE).await.unwrap();
    assert_eq!(answer, Err(EnqueueError::Unknown));
    assert_eq!(jobs.health(), Health::Red { why: "the journal gave no answer for 30s".to_owned() });
}

#[actix::test]
async fn the_death_of_any_core_actor_ends_the_runner_at_once_and_loses_nothing() {
    for actor in ["queue", "journal", "journal in front", "pool", "breaker", "worker"] {
        let log = Log::default();
        let mut t = brittle(&log).await;
        t.jobs().enqueue(task_for("t", "done", &[Step::Ok])).await.unwrap();
        t.settle().await;
        t.jobs().enqueue(task_for("t", "running", &[Step::Sleep(60_000), Step::Ok])).await.unwrap();
        t.jobs().enqueue(task("waiting", &[Step::Ok])).delay(HOUR).await.unwrap();
        t.settle().await;
        t.set_syncs(Syncs::WhenTold);
        let jobs = t.jobs();
        let mut caught = std::pin::pin!(jobs.enqueue(task("caught", &[Step::Ok])).into_future());
        assert!(t.drive(&mut caught, SECOND).await.is_none());
        t.kill(actor).await;
        assert_eq!(caught.await, Err(EnqueueError::Unknown), "{actor}");
        assert_eq!(jobs.enqueue(task("later", &[Step::Ok])).await, Err(EnqueueError::Unavailable), "{actor}");
        assert_eq!(jobs.health(), Health::Red { why: format!("the {actor} actor died") });
        t.crash_and_reopen().await.unwrap();
        t.run_until_idle(2 * HOUR).await.unwrap();
        assert_eq!(t.jobs().stats().done, 3, "{actor}");
        assert_eq!(log.runs_of("running"), 2, "{actor}: cut off once, and done");
        assert_eq!(log.runs_of("done"), 1, "{actor}");
    }
}

#[actix::test]
async fn what_nothing_proves_to_be_on_disk_is_proved_before_anybody_hears_of_it() {
    let log = Log::default();
    let t = runner(&log).await;
    t.jobs().enqueue(task("first", &[Step::Ok])).delay(HOUR).await.unwrap();
    t.disk().fail_syncs(true);
    // Written, and never synced: the next process reads it all the same, as the system still has the pages.
    assert_eq!(t.jobs().enqueue(task("job", &[Step::Ok])).key("job").delay(HOUR).await, Err(EnqueueError::Unknown));
    t.disk().fail_syncs(false);
    let disk = t.disk().clone();
    drop(t);
    let mut t = tasks(&log).test_with(disk, 0).await.unwrap();
    let again = t.jobs().enqueue(task("job", &[Step::Ok])).key("job").delay(HOUR).await.unwrap();
    assert!(!again.is_new(), "it was found");
    t.crash_and_reopen().await.unwrap();
    assert!(t.jobs().get(again.id()).await.unwrap().is_some(), "and a receipt is a fact on disk");
}

#[actix::test]
async fn a_question_alone_proves_what_was_found_and_silence_writes_nothing() {
    let log = Log::default();
    let mut t = runner(&log).await;
    t.jobs().enqueue(task("a", &[Step::Ok])).delay(HOUR).await.unwrap();
    t.crash_and_reopen().await.unwrap();
    t.advance(SECOND).await;
    t.shutdown(SECOND).await.unwrap();
    assert_eq!(t.jobs().stats().records, 0, "nobody asked");
    t.crash_and_reopen().await.unwrap();
    assert!(t.jobs().get("0-1".parse().unwrap()).await.unwrap().is_some());
    assert_eq!(t.jobs().stats().records, 1, "a bare Lead, behind a copy of the last batch");
    assert!(t.jobs().get("0-1".parse().unwrap()).await.unwrap().is_some());
    assert_eq!(t.jobs().stats().records, 1, "once is enough");
}

/// A runner that never reopens by itself.
async fn brittle(log: &Log) -> TestRunner<Log> {
    let mut limits = Limits::default();
    limits.reopenings = 0;
    tasks(log).limits(limits).test().await.expect("an empty disk opens")
}
