//! How a job ended, for those who wait and for those who ask later. Proves that an end is told only when it is on disk, that
//! each way to end has its answer, that memory has its bound, and that those who wait are never forgotten nor in the way.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use journeyman::testing::{Syncs, TestRunner};
use journeyman::{CallError, Cause, Found, JobEnd, JobId, Limits, Policy};

use crate::jobs::{HOUR, Log, MINUTE, SECOND, Step, runner, task, tasks};

async fn stored(t: &TestRunner<Log>, script: &[Step]) -> JobId {
    t.jobs().enqueue(task("a", script)).await.unwrap().id()
}

/// What is answered when time goes on for an hour.
async fn driven<T>(t: &TestRunner<Log>, call: impl Future<Output = T>) -> T {
    t.drive(call, HOUR).await.expect("an answer")
}

#[actix::test]
async fn each_way_to_end_is_answered_to_who_waited_and_to_who_asks_later() {
    let log = Log::default();
    let t = runner(&log).await;
    let jobs = t.jobs();
    let id = stored(&t, &[Step::Sleep(10)]).await;
    assert_eq!(driven(&t, jobs.outcome(id)).await, Ok(JobEnd::Done));
    assert_eq!(jobs.outcome(id).await, Ok(JobEnd::Done), "and again, at once");
    let id = stored(&t, &[Step::Reject]).await;
    let end = driven(&t, jobs.outcome(id)).await.unwrap();
    assert!(matches!(&end, JobEnd::Rejected(fault) if fault.text() == "told to give up"), "{end:?}");
    let id = stored(&t, &[Step::Unsafe]).await;
    let end = driven(&t, jobs.outcome(id)).await.unwrap();
    assert!(matches!(&end, JobEnd::Unsafe(fault) if fault.cause() == Cause::Failed), "{end:?}");
    let id = stored(&t, &[Step::Fail]).await;
    let end = driven(&t, jobs.outcome(id)).await.unwrap();
    assert!(matches!(&end, JobEnd::Spent(Some(_))), "{end:?}");
    assert_eq!(end.fault().map(|fault| fault.text()), Some("told to fail"));
    assert!(!format!("{end:?}").contains("told"), "a fault's text is shown only to who asks for it");
    let policy = Policy::default().deadline(SECOND);
    let id = jobs.enqueue(task("a", &[Step::RetryAfter(1_000_000)])).policy(policy).await.unwrap().id();
    assert!(matches!(driven(&t, jobs.outcome(id)).await, Ok(JobEnd::Late(Some(_)))));
    let id = jobs.enqueue(task("a", &[Step::Ok])).delay(HOUR).await.unwrap().id();
    let wait = jobs.outcome(id);
    let (end, _) = futures_util::future::join(wait, jobs.cancel(id)).await;
    assert_eq!(end, Ok(JobEnd::Cancelled));
    assert_eq!(jobs.outcome("0-99".parse().unwrap()).await, Ok(JobEnd::NotFound));
    assert_eq!(jobs.outcome("7-1".parse().unwrap()).await, Ok(JobEnd::NotFound));
}

#[actix::test]
async fn an_end_is_told_when_it_is_on_disk_and_not_before() {
    let log = Log::default();
    let t = runner(&log).await;
    let jobs = t.jobs();
    let id = stored(&t, &[Step::Sleep(1000)]).await;
    t.settle().await;
    t.set_syncs(Syncs::WhenTold);
    let mut early = pin!(jobs.outcome(id));
    assert!(t.drive(&mut early, 2 * SECOND).await.is_none(), "it has ended, but not on disk");
    let mut late = pin!(jobs.outcome(id));
    assert!(t.drive(&mut late, SECOND).await.is_none(), "nor for one who asks now");
    while t.release_sync().await {}
    assert_eq!((early.await, late.await), (Ok(JobEnd::Done), Ok(JobEnd::Done)));
}

#[actix::test]
async fn what_ended_is_told_from_what_never_was() {
    let log = Log::default();
    let mut t = runner(&log).await;
    let id = stored(&t, &[Step::Sleep(1000), Step::Ok]).await;
    assert!(matches!(t.jobs().find(id).await, Ok(Found::Live(info)) if info.id == id));
    t.advance(SECOND).await;
    assert!(matches!(t.jobs().find(id).await, Ok(Found::Gone(JobEnd::Done))));
    assert!(t.jobs().get(id).await.unwrap().is_none());
    assert!(matches!(t.jobs().find("0-2".parse().unwrap()).await, Ok(Found::Gone(JobEnd::NotFound))));
    assert!(matches!(t.jobs().find("1-1".parse().unwrap()).await, Ok(Found::Gone(JobEnd::NotFound))));
    t.crash_and_reopen().await.unwrap();
    assert!(matches!(t.jobs().find(id).await, Ok(Found::Gone(JobEnd::Forgotten))), "another process has seen it");
    assert_eq!(t.jobs().outcome(id).await, Ok(JobEnd::Forgotten));
}

#[actix::test]
async fn only_so_many_ends_are_remembered() {
    let log = Log::default();
    let mut limits = Limits::default();
    limits.ends_remembered = 3;
    let t = tasks(&log).limits(limits).test().await.unwrap();
    for _ in 0..5 {
        stored(&t, &[Step::Ok]).await;
    }
    t.run_until_idle(MINUTE).await.unwrap();
    let mut ends = Vec::new();
    for n in 1..=5 {
        ends.push(t.jobs().outcome(format!("0-{n}").parse().unwrap()).await.unwrap());
    }
    assert_eq!(ends, [JobEnd::Forgotten, JobEnd::Forgotten, JobEnd::Done, JobEnd::Done, JobEnd::Done]);
}

#[actix::test]
async fn one_who_goes_away_frees_his_place() {
    let log = Log::default();
    let mut limits = Limits::default();
    limits.calls = 10;
    let t = tasks(&log).limits(limits).test().await.unwrap();
    let jobs = t.jobs();
    let id = jobs.enqueue(task("a", &[Step::Ok])).delay(HOUR).await.unwrap().id();
    for round in 0..50 {
        let mut waiting: Vec<_> = (0..10).map(|_| Box::pin(jobs.outcome(id))).collect();
        assert!(t.drive(futures_util::future::join_all(&mut waiting), Duration::ZERO).await.is_none());
        assert_eq!(jobs.outcome(id).await, Err(CallError::Full), "round {round}");
        drop(waiting);
    }
    let end = t.drive(jobs.outcome(id), 2 * HOUR).await;
    assert_eq!(end, Some(Ok(JobEnd::Done)));
}

#[actix::test]
async fn those_who_wait_hear_of_a_shutdown() {
    let log = Log::default();
    let t = runner(&log).await;
    let jobs = t.jobs();
    let id = jobs.enqueue(task("a", &[Step::Ok])).delay(HOUR).await.unwrap().id();
    let mut wait = pin!(jobs.outcome(id));
    assert!(t.drive(&mut wait, SECOND).await.is_none());
    t.shutdown(SECOND).await.unwrap();
    assert_eq!(wait.await, Err(CallError::ShuttingDown));
    assert_eq!(jobs.outcome(id).await, Err(CallError::ShuttingDown));
}

#[actix::test]
async fn a_wait_ends_with_its_runner() {
    let log = Log::default();
    let mut limits = Limits::default();
    limits.reopenings = 0;
    let t = tasks(&log).limits(limits).test().await.unwrap();
    let jobs = t.jobs();
    let id = jobs.enqueue(task("a", &[Step::Ok])).delay(HOUR).await.unwrap().id();
    let mut wait = pin!(jobs.outcome(id));
    assert!(t.drive(&mut wait, SECOND).await.is_none());
    t.kill("queue").await;
    assert_eq!(t.drive(&mut wait, SECOND).await, Some(Err(CallError::Unknown)));
}

#[actix::test]
async fn one_who_waits_alone_on_what_is_not_proved_does_not_hang() {
    let log = Log::default();
    let mut t = runner(&log).await;
    let ended = stored(&t, &[Step::Ok]).await;
    let waits = t.jobs().enqueue(task("b", &[Step::Ok])).delay(HOUR).await.unwrap().id();
    t.settle().await;
    t.crash_and_reopen().await.unwrap();
    let jobs = t.jobs();
    assert_eq!(t.drive(jobs.outcome(ended), SECOND).await, Some(Ok(JobEnd::Forgotten)));
    t.crash_and_reopen().await.unwrap();
    let jobs = t.jobs();
    assert_eq!(t.drive(jobs.outcome(waits), 2 * HOUR).await, Some(Ok(JobEnd::Done)));
}
