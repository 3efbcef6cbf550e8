//! Testing what enqueues, and one attempt by itself. Proves that a captured handle takes what a runner would, that a performed
//! job goes through its codec on a clock that needs no waiting, and that a test runner shows what waits.

use std::time::Duration;

use futures_util::FutureExt;
use journeyman::testing::{perform, perform_with};
use journeyman::{
    CallError, Cancelled, Cx, EnqueueError, Event, EventFilter, Failure, Found, IdleError, Job, JobEnd, JobResult, JobState, Jobs,
    PayloadCodec, Query,
};
use serde::{Deserialize, Serialize};

use crate::jobs::{HOUR, Log, SECOND, Step, Task, runner, task};

/// Sends a letter for each name, in an hour.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Invite {
    names: Vec<String>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Letter {
    to: String,
}

impl Job for Invite {
    type Context = Duration;
    type Output = usize;
    const KIND: &'static str = "invite";

    async fn run(self, cx: Cx<Duration>) -> JobResult<usize> {
        let before = cx.now();
        cx.sleep(*cx.context()).await;
        assert_eq!(cx.now().duration_since(before)?, *cx.context());
        if self.names.is_empty() {
            return Err(Failure::permanent("nobody to invite"));
        }
        for name in &self.names {
            cx.jobs().enqueue(Letter { to: name.clone() }).delay(HOUR).await?;
        }
        let lengths = self.names.clone();
        Ok(cx.blocking(move || lengths.len()).await)
    }
}

impl Job for Letter {
    type Context = ();
    type Output = ();
    const KIND: &'static str = "letter";
    const CODEC: PayloadCodec<Self> = PayloadCodec::postcard();

    async fn run(self, _: Cx<()>) -> JobResult<()> {
        Ok(())
    }
}

fn letter(to: &str) -> Letter {
    Letter { to: to.to_owned() }
}

fn invite(names: &[&str]) -> Invite {
    Invite { names: names.iter().map(ToString::to_string).collect() }
}

#[test]
fn a_captured_handle_takes_what_is_enqueued_and_keeps_it_in_order() {
    let (jobs, captured) = Jobs::capture();
    let all = [jobs.enqueue(letter("a")), jobs.enqueue(letter("b")).key("k").priority(1)];
    let receipts = jobs.wait(jobs.enqueue_all(all)).unwrap();
    jobs.enqueue(invite(&["c"])).delay(HOUR).wait().unwrap();
    let again = jobs.enqueue(letter("again")).key("k").wait().unwrap();
    assert_eq!((again.id(), again.is_new()), (receipts[1].id(), false));
    assert_eq!(captured.enqueued::<Letter>(), [letter("a"), letter("b")]);
    assert_eq!(captured.enqueued::<Invite>(), [invite(&["c"])]);
    assert_eq!(jobs.stats().pending, 3);
    assert_eq!(jobs.wait(jobs.list(Query::new().kind("letter"))).unwrap().jobs.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_captured_handle_answers_like_a_runner_that_runs_nothing() {
    let (jobs, captured) = Jobs::capture();
    let mut events = jobs.events(EventFilter::all());
    let id = jobs.enqueue(letter("a")).await.unwrap().id();
    assert!(matches!(events.next().await, Some(Event::Job(job)) if job.id == id));
    assert!(matches!(jobs.get(id).await.unwrap().unwrap().state, JobState::Pending { .. }));
    assert_eq!(jobs.outcome(id).await, Err(CallError::Unavailable), "nothing runs");
    assert!(matches!(jobs.run_until_idle(SECOND).await, Err(IdleError::WorkLeft { pending: 1, running: 0 })));
    assert_eq!(jobs.cancel(id).await, Ok(Cancelled::Cancelled));
    assert_eq!(jobs.cancel(id).await, Ok(Cancelled::AlreadyEnded));
    assert!(matches!(jobs.find(id).await, Ok(Found::Gone(JobEnd::Cancelled))));
    assert_eq!(jobs.cancel("0-9".parse().unwrap()).await, Ok(Cancelled::NotFound));
    assert!(jobs.targets().await.unwrap().is_empty() && captured.enqueued::<Letter>().is_empty());
    jobs.run_until_idle(SECOND).await.unwrap();
    let long = jobs.enqueue(letter("a")).key("k".repeat(257)).await;
    assert!(matches!(long, Err(EnqueueError::TooLong { .. })), "the usual bounds hold");
}

#[actix::test]
async fn a_performed_job_answers_what_it_answers_at_once() {
    let year = 365 * 24 * HOUR;
    assert_eq!(perform(invite(&["a", "b"]), year).await.unwrap(), 2);
    assert!(perform(invite(&[]), year).await.is_err());
    let (jobs, captured) = Jobs::capture();
    perform_with(invite(&["a", "b"]), SECOND, jobs).await.unwrap();
    assert_eq!(captured.enqueued::<Letter>(), [letter("a"), letter("b")]);
}

#[derive(Serialize, Deserialize)]
struct NotANumber(f64);

impl Job for NotANumber {
    type Context = ();
    type Output = ();
    const KIND: &'static str = "not a number";

    async fn run(self, _: Cx<()>) -> JobResult<()> {
        Ok(())
    }
}

#[actix::test]
async fn a_job_that_would_be_refused_cannot_be_performed() {
    let performed = std::panic::AssertUnwindSafe(perform(NotANumber(f64::NAN), ())).catch_unwind().await;
    let panic = performed.err().and_then(|panic| panic.downcast::<String>().ok()).unwrap();
    assert!(panic.starts_with("nothing is stored: a not a number cannot be encoded"), "{panic}");
    perform(NotANumber(1.0), ()).await.unwrap();
}

#[actix::test]
async fn a_test_runner_shows_what_waits() {
    let log = Log::default();
    let t = runner(&log).await;
    let jobs = t.jobs();
    jobs.enqueue(task("runs", &[Step::Hang])).await.unwrap();
    jobs.enqueue(task("waits", &[Step::Ok])).delay(HOUR).await.unwrap();
    jobs.enqueue(task("fails", &[Step::Fail])).await.unwrap();
    t.settle().await;
    let names: Vec<_> = t.enqueued::<Task>().await.into_iter().map(|task| task.name).collect();
    assert_eq!(names, ["waits", "fails"], "one runs, one waits for its time, one for its retry");
    assert!(t.enqueued::<Letter>().await.is_empty());
}
