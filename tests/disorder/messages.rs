//! The raw messages in an odd order: before the job exists, all at once, after its end, and to a runner that is closing, reopening
//! or over. Whatever the order, the answers agree with each other and with what became of the job.

use actix::Addr;
use actix::dev::Request;
use futures_util::future::join_all;
use journeyman::protocol::{Cancel, Enqueue, EnqueueAll, Get, JobsActor, List, Outcome, Stats, Targets};
use journeyman::testing::{Syncs, TestRunner};
use journeyman::{CallError, Cancelled, EnqueueError, Found, JobEnd, JobId, Limits, Query};

use super::{all_is_there, runner};
use crate::jobs::{HOUR, Log, MINUTE, SECOND, Step, task_for, tasks};

fn of(name: &str, step: Step) -> Enqueue {
    Enqueue::of(task_for("t", name, &[step]))
}

fn id(number: u64) -> JobId {
    format!("0-{number}").parse().unwrap()
}

#[actix::test]
async fn asked_before_it_exists_a_job_is_not_found_and_comes_to_be_all_the_same() {
    let log = Log::default();
    let t = runner(&log).await;
    let jobs = t.jobs().start_actor();
    for number in [1, 2, u64::MAX] {
        assert_eq!(jobs.send(Cancel { id: id(number) }).await.unwrap(), Ok(Cancelled::NotFound));
        assert_eq!(jobs.send(Outcome { id: id(number) }).await.unwrap(), Ok(JobEnd::NotFound));
        assert!(matches!(jobs.send(Get { id: id(number) }).await.unwrap(), Ok(Found::Gone(JobEnd::NotFound))));
        assert!(jobs.send(List(Query::new().after(id(number)))).await.unwrap().unwrap().jobs.is_empty());
    }
    assert_eq!(t.jobs().stats().records, 0, "questions write nothing");
    assert_eq!(jobs.send(of("a", Step::Ok)).await.unwrap().unwrap().id(), id(1));
    t.settle().await;
    assert_eq!(jobs.send(Outcome { id: id(1) }).await.unwrap(), Ok(JobEnd::Done));
    all_is_there(&t, 1).await;
}

/// One message of each sort, sent without waiting for any answer.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Sort {
    Enqueue,
    Cancel,
    Outcome,
    Get,
}

/// All orders of these.
fn orders(left: &[Sort]) -> Vec<Vec<Sort>> {
    if left.is_empty() {
        return vec![Vec::new()];
    }
    let with_first = |at: usize| {
        let mut rest = left.to_vec();
        let first = rest.remove(at);
        orders(&rest).into_iter().map(move |mut order| {
            order.insert(0, first);
            order
        })
    };
    (0..left.len()).flat_map(with_first).collect()
}

/// What was answered to each sort.
#[derive(Debug)]
struct Answers {
    cancelled: Cancelled,
    end: JobEnd,
}

async fn send_all(t: &TestRunner<Log>, jobs: &Addr<JobsActor>, order: &[Sort], step: Step, number: u64) -> Answers {
    let mut enqueue: Option<Request<JobsActor, Enqueue>> = None;
    let (mut cancel, mut outcome, mut get) = (None, None, None);
    for sort in order {
        match sort {
            Sort::Enqueue => enqueue = Some(jobs.send(of("a", step))),
            Sort::Cancel => cancel = Some(jobs.send(Cancel { id: id(number) })),
            Sort::Outcome => outcome = Some(jobs.send(Outcome { id: id(number) })),
            Sort::Get => get = Some(jobs.send(Get { id: id(number) })),
        }
    }
    let all = async { (enqueue.unwrap().await, cancel.unwrap().await, outcome.unwrap().await, get.unwrap().await) };
    let (enqueued, cancelled, end, found) = t.drive(all, HOUR).await.expect("all are answered");
    assert_eq!(enqueued.unwrap().unwrap().id(), id(number));
    found.unwrap().unwrap();
    Answers { cancelled: cancelled.unwrap().unwrap(), end: end.unwrap().unwrap() }
}

#[actix::test]
async fn in_whatever_order_messages_come_their_answers_agree() {
    let log = Log::default();
    let t = runner(&log).await;
    let jobs = t.jobs().start_actor();
    let all = orders(&[Sort::Enqueue, Sort::Cancel, Sort::Outcome, Sort::Get]);
    assert_eq!(all.len(), 24);
    let (mut number, mut cancels) = (0, 0);
    for syncs in [Syncs::AtOnce, Syncs::After(SECOND)] {
        t.set_syncs(syncs);
        for step in [Step::Ok, Step::Sleep(5_000), Step::UntilCancelled] {
            for order in &all {
                let at = |wanted| order.iter().position(|sort| *sort == wanted);
                if step == Step::UntilCancelled && at(Sort::Cancel) < at(Sort::Enqueue) {
                    // Nobody would cancel it.
                    continue;
                }
                number += 1;
                let before = t.jobs().stats();
                let answers = send_all(&t, &jobs, order, step, number).await;
                assert!(
                    answers.cancelled != Cancelled::NotFound || at(Sort::Cancel) < at(Sort::Enqueue),
                    "{order:?}, {step:?}: {answers:?}"
                );
                t.run_until_idle(HOUR).await.unwrap();
                let after = t.jobs().stats();
                let (done, cancelled) = (after.done - before.done, after.cancelled - before.cancelled);
                assert_eq!(done + cancelled, 1, "{order:?}, {step:?}: {answers:?}");
                let told = matches!(answers.cancelled, Cancelled::Cancelled | Cancelled::Stopping);
                assert!(!told || cancelled == 1, "{order:?}, {step:?}: {answers:?}");
                let end = if cancelled == 1 { JobEnd::Cancelled } else { JobEnd::Done };
                assert!([end, JobEnd::NotFound].contains(&answers.end), "{order:?}, {step:?}: {answers:?}");
                cancels += cancelled;
            }
        }
    }
    println!("{number} jobs, {cancels} of them cancelled");
    assert!(cancels > 0 && cancels < number, "both ways were walked");
    t.set_syncs(Syncs::AtOnce);
    all_is_there(&t, 1).await;
}

#[actix::test]
async fn messages_to_a_runner_that_closes_are_answered_each_by_the_door_it_finds() {
    let log = Log::default();
    let mut t = runner(&log).await;
    let jobs = t.jobs().start_actor();
    jobs.send(of("running", Step::Sleep(5_000))).await.unwrap().unwrap();
    t.settle().await;
    let asked = jobs.clone();
    let amid = actix_rt::spawn(async move {
        let cancel = asked.send(Cancel { id: id(1) }).await.unwrap();
        (asked.send(of("late", Step::Ok)).await.unwrap().map(|receipt| receipt.id()), cancel)
    });
    let report = t.shutdown(MINUTE).await.unwrap();
    assert_eq!(amid.await.unwrap(), (Ok(id(2)), Ok(Cancelled::Stopping)));
    assert_eq!((report.interrupted, report.pending), (0, 1));
    assert_eq!(jobs.send(of("too late", Step::Ok)).await.unwrap(), Err(EnqueueError::ShuttingDown));
    assert_eq!(jobs.send(EnqueueAll(vec![of("x", Step::Ok)])).await.unwrap(), Err(EnqueueError::ShuttingDown));
    assert_eq!(jobs.send(Cancel { id: id(2) }).await.unwrap(), Err(CallError::ShuttingDown));
    assert_eq!(jobs.send(Outcome { id: id(2) }).await.unwrap(), Err(CallError::ShuttingDown));
    assert!(matches!(jobs.send(Targets).await.unwrap(), Err(CallError::ShuttingDown)));
    assert_eq!(jobs.send(Stats).await.unwrap().pending, 1);
    t.crash_and_reopen().await.unwrap();
    assert_eq!((t.jobs().stats().done, t.jobs().stats().cancelled), (1, 1));
    all_is_there(&t, 1).await;
}

#[actix::test]
async fn messages_to_a_runner_that_reopens_are_answered_and_the_address_stays() {
    let log = Log::default();
    let t = runner(&log).await;
    let jobs = t.jobs().start_actor();
    let first = jobs.send(of("first", Step::Sleep(30_000)).key("first")).await.unwrap().unwrap().id();
    t.settle().await;
    let outcome = jobs.send(Outcome { id: first });
    t.kill("queue").await;
    assert_eq!(jobs.send(of("second", Step::Ok)).await.unwrap(), Err(EnqueueError::Unavailable));
    assert_eq!(jobs.send(Cancel { id: first }).await.unwrap(), Err(CallError::Unavailable));
    t.advance(SECOND).await;
    assert!(!jobs.send(of("first", Step::Ok).key("first")).await.unwrap().unwrap().is_new());
    assert_eq!(t.drive(outcome, MINUTE).await.unwrap().unwrap(), Ok(JobEnd::Done), "who waits is not forgotten");
    all_is_there(&t, 1).await;
}

#[actix::test]
async fn messages_to_a_runner_that_is_over_are_all_answered() {
    let log = Log::default();
    let mut limits = Limits::default();
    limits.reopenings = 0;
    let t = tasks(&log).limits(limits).test().await.unwrap();
    let jobs = t.jobs().start_actor();
    jobs.send(of("a", Step::Hang)).await.unwrap().unwrap();
    t.settle().await;
    let waiting = join_all((0..5).map(|_| jobs.send(Outcome { id: id(1) })));
    t.kill("journal").await;
    t.advance(SECOND).await;
    for answer in t.drive(waiting, SECOND).await.expect("all are answered") {
        assert!(matches!(answer.unwrap(), Err(CallError::Unknown | CallError::Unavailable)));
    }
    assert_eq!(jobs.send(of("b", Step::Ok)).await.unwrap(), Err(EnqueueError::Unavailable));
    assert_eq!(jobs.send(Get { id: id(1) }).await.unwrap().map(drop), Err(CallError::Unavailable));
}
