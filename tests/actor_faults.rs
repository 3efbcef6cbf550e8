//! The death of each actor at each point of a batch's way to the disk, with a call of every sort on its way; mailboxes that are
//! closed; bounds that are full; and jobs that stop the threads they run on. No call is left without an answer; what was
//! acknowledged is there; what was not is there whole or not at all; each job ends once.

use std::future::{Future, IntoFuture};
use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use journeyman::testing::{Syncs, TestRunner};
use journeyman::{
    CallError, Cancelled, Cx, EnqueueError, Event, EventFilter, Failure, Health, IdleError, Job, JobEnd, JobResult, Jobs, Limits, Policy,
    Query, Receipt, Runner,
};
use serde::{Deserialize, Serialize};

use crate::jobs::{DAY, HOUR, Log, MINUTE, SECOND, Step, runner, task, task_for, tasks};
use crate::support::figures::held;

const ACTORS: [&str; 7] = ["queue", "journal", "journal in front", "pool", "breaker", "compactor", "worker"];

/// How far the batch has come when the actor dies.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Point {
    /// Calls are in the mailbox, and nobody has looked at them.
    InTheMailbox,
    /// The batch has left the queue, and not reached the journal.
    BeforeTheAppend,
    /// It is on disk, and the answer is lost: the queue fails of that, and the actor dies amid what follows.
    AfterTheAppend,
    /// Everything is answered.
    Quiet,
}

const POINTS: [Point; 4] = [Point::InTheMailbox, Point::BeforeTheAppend, Point::AfterTheAppend, Point::Quiet];

/// A call of each sort, and what came of them.
struct Calls {
    stored: Vec<Result<Vec<Receipt>, EnqueueError>>,
    cancelled: Result<Cancelled, CallError>,
    ended: Result<JobEnd, CallError>,
    idle: Result<(), IdleError>,
}

async fn calls(jobs: Jobs, waiting: journeyman::JobId, running: journeyman::JobId) -> Calls {
    let one = jobs.enqueue(task("new", &[Step::Ok])).key("one").into_future().map(|stored| stored.map(|receipt| vec![receipt]));
    let three = jobs.enqueue_all((0..3).map(|n| jobs.enqueue(task("new", &[Step::Ok])).key(format!("three {n}"))));
    let questions = async {
        let (get, list, targets) = tokio::join!(jobs.get(running), jobs.list(Query::new()), jobs.targets());
        for error in [get.err(), list.err(), targets.err()].into_iter().flatten() {
            assert!(matches!(error, CallError::Unknown | CallError::Unavailable), "{error}");
        }
    };
    let (one, three, cancelled, ended, idle, ()) =
        tokio::join!(one, three, jobs.cancel(waiting), jobs.outcome(running), jobs.run_until_idle(HOUR), questions);
    Calls { stored: vec![one, three], cancelled, ended, idle }
}

#[actix::test]
async fn whichever_actor_dies_and_whenever_every_call_is_answered_and_nothing_vanishes() {
    let mut tries = 0;
    for actor in ACTORS {
        for point in POINTS {
            for crashes in [false, true] {
                let name = format!("{actor}, {point:?}, {crashes}");
                let log = Log::default();
                let mut t = tasks(&log).capacity(8).test().await.unwrap();
                let running = t.jobs().enqueue(task_for("t", "running", &[Step::Sleep(30_000)])).await.unwrap().id();
                let waiting = t.jobs().enqueue(task("waiting", &[Step::Ok])).delay(MINUTE).await.unwrap().id();
                t.settle().await;
                t.set_syncs(match point {
                    Point::BeforeTheAppend => Syncs::WhenTold,
                    Point::AfterTheAppend => Syncs::Unheard,
                    Point::InTheMailbox | Point::Quiet => Syncs::AtOnce,
                });
                let mut all = pin!(calls(t.jobs(), waiting, running));
                assert!(all.as_mut().now_or_never().is_none(), "{name}: asked");
                if point != Point::InTheMailbox {
                    assert!(t.drive(&mut all, Duration::ZERO).await.is_none(), "{name}: on their way");
                }
                assert!(t.actors(actor) == 1 || point == Point::AfterTheAppend, "{name}");
                t.kill(actor).await;
                assert_eq!(t.actors(actor), 0, "{name}");
                t.set_syncs(Syncs::AtOnce);
                let Calls { stored, cancelled, ended, idle } = t.drive(&mut all, HOUR).await.unwrap_or_else(|| panic!("{name}: no answer"));
                assert!(matches!(idle, Ok(()) | Err(IdleError::Call(CallError::Unknown | CallError::Unavailable))), "{name}: {idle:?}");
                assert_eq!(t.jobs().health(), Health::Green, "{name}");
                if crashes {
                    t.crash_and_reopen().await.unwrap();
                }
                let mut expected = 1;
                for (answer, keys) in stored.iter().zip([&["one"][..], &["three 0", "three 1", "three 2"]]) {
                    let mut new = 0;
                    for key in keys {
                        new += usize::from(t.jobs().enqueue(task("new", &[Step::Ok])).key(*key).await.unwrap().is_new());
                    }
                    assert!(new == 0 || new == keys.len(), "{name}: {new} of {} were there", keys.len());
                    match answer {
                        Ok(_) => assert_eq!(new, 0, "{name}: what was acknowledged is there"),
                        Err(error) => assert!(matches!(error, EnqueueError::Unknown | EnqueueError::Unavailable), "{name}: {error}"),
                    }
                    expected += keys.len() as u64;
                }
                t.run_until_idle(HOUR).await.unwrap();
                let stats = t.jobs().stats();
                match cancelled {
                    Ok(Cancelled::Cancelled) => assert_eq!((stats.cancelled, log.runs_of("waiting")), (1, 0), "{name}"),
                    Err(CallError::Unknown | CallError::Unavailable) => {
                        assert_eq!(stats.cancelled + log.runs_of("waiting") as u64, 1, "{name}");
                        expected += log.runs_of("waiting") as u64;
                    }
                    other => panic!("{name}: {other:?}"),
                }
                // It takes half a minute, and the wait for it outlives the failure.
                assert_eq!(ended, Ok(JobEnd::Done), "{name}");
                assert_eq!((stats.done, stats.spent, stats.pending, stats.running), (expected, 0, 0, 0), "{name}");
                assert_eq!(
                    log.runs_of("running"),
                    if actor == "worker" { 2 } else { 1 },
                    "{name}: only its worker's death costs it an attempt"
                );
                assert_eq!(t.free_units().await, 8, "{name}");
                tries += 1;
            }
        }
    }
    held("F27", tries, "deaths of actors");
}

#[actix::test]
async fn a_mailbox_that_is_closed_is_an_answer_at_once() {
    for actor in ACTORS {
        let log = Log::default();
        let mut limits = Limits::default();
        limits.reopenings = 0;
        let t = tasks(&log).limits(limits).test().await.unwrap();
        let id = t.jobs().enqueue(task_for("t", "a", &[Step::Hang])).await.unwrap().id();
        t.settle().await;
        t.kill(actor).await;
        let jobs = t.jobs();
        assert_eq!(jobs.enqueue(task("b", &[Step::Ok])).into_future().now_or_never(), Some(Err(EnqueueError::Unavailable)), "{actor}");
        assert_eq!(jobs.cancel(id).now_or_never(), Some(Err(CallError::Unavailable)), "{actor}");
        assert_eq!(jobs.run_until_idle(HOUR).now_or_never(), Some(Err(CallError::Unavailable.into())), "{actor}");
        t.advance(SECOND).await;
        assert!(matches!(jobs.health(), Health::Red { .. }), "{actor}");
        assert_eq!(jobs.outcome(id).now_or_never(), Some(Err(CallError::Unavailable)), "{actor}");
    }
}

#[actix::test]
async fn a_full_house_answers_at_once_and_keeps_what_it_took() {
    let log = Log::default();
    let mut limits = Limits::default();
    (limits.calls, limits.call_bytes) = (8, 1 << 20);
    let t = tasks(&log).limits(limits).test().await.unwrap();
    for (syncs, dies) in [(Syncs::WhenTold, false), (Syncs::WhenTold, true)] {
        t.set_syncs(syncs);
        let jobs = t.jobs();
        let before = jobs.stats().pending;
        let mut taken = pin!(join_all((0..8).map(|_| jobs.enqueue(task("a", &[Step::Ok])).delay(DAY).into_future())));
        assert!(t.drive(&mut taken, Duration::ZERO).await.is_none());
        for _ in 0..1_000 {
            let refused = jobs.enqueue(task("b", &[Step::Ok])).into_future().now_or_never();
            assert!(matches!(refused, Some(Err(EnqueueError::Full(_)))), "{refused:?}");
            assert_eq!(jobs.cancel("0-1".parse().unwrap()).now_or_never(), Some(Err(CallError::Full)));
        }
        if dies {
            t.kill("journal").await;
        }
        t.set_syncs(Syncs::AtOnce);
        t.release_sync().await;
        let answers = t.drive(&mut taken, MINUTE).await.expect("all are answered");
        assert!(answers.iter().all(|answer| if dies { *answer == Err(EnqueueError::Unknown) } else { answer.is_ok() }), "{answers:?}");
        t.advance(MINUTE).await;
        let stored = t.jobs().stats().pending - before;
        assert!(stored == 8 || (dies && stored == 0), "{stored}");
        assert!(t.jobs().get("0-1".parse().unwrap()).await.is_ok(), "their places are free again");
    }
}

/// Stops a thread, or all of them, from within.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Saboteur {
    StopsItsArbiter,
    StopsItsSystem,
    Harmless,
}

impl Job for Saboteur {
    type Context = ();
    type Output = ();
    const KIND: &'static str = "saboteur";

    fn policy() -> Policy {
        Policy::default().attempts(2).base(Duration::from_millis(10))
    }

    async fn run(self, _: Cx<()>) -> JobResult<()> {
        match self {
            Self::StopsItsArbiter => {
                actix::Arbiter::current().stop();
            }
            Self::StopsItsSystem => actix::System::current().stop(),
            Self::Harmless => return Ok(()),
        }
        std::future::pending().await
    }
}

/// At most so long, though much less is expected.
async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(MINUTE, future).await.unwrap_or_else(|_| panic!("never: {what}"))
}

#[actix::test]
async fn a_job_that_stops_its_thread_or_all_threads_fails_and_others_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let runner = Runner::open(dir.path().join("jobs")).register::<Saboteur>().start().await.unwrap();
    let jobs = runner.jobs();
    for sabotage in [Saboteur::StopsItsArbiter, Saboteur::StopsItsSystem] {
        let id = store(&jobs, sabotage).await;
        let end = soon("its end", jobs.outcome(id)).await.unwrap();
        assert!(matches!(end, JobEnd::Spent(Some(_))), "{sabotage:?}: {end:?}");
        let id = store(&jobs, Saboteur::Harmless).await;
        assert_eq!(soon("its end", jobs.outcome(id)).await, Ok(JobEnd::Done), "after {sabotage:?}");
    }
    soon("the stop", runner.shutdown(SECOND)).await.unwrap();
    let stats = jobs.stats();
    assert_eq!((stats.done, stats.spent, stats.pending), (2, 2, 0));
}

/// Asks until it is on disk: the runner may just be reopening.
async fn store(jobs: &Jobs, job: Saboteur) -> journeyman::JobId {
    loop {
        match soon("an answer", jobs.enqueue(job).key(format!("{job:?} {}", jobs.stats().done)).into_future()).await {
            Ok(receipt) => return receipt.id(),
            Err(EnqueueError::Unknown | EnqueueError::Unavailable) => tokio::time::sleep(Duration::from_millis(5)).await,
            Err(other) => panic!("{other}"),
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Other;

impl Job for Other {
    type Context = ();
    type Output = ();
    const KIND: &'static str = "other";

    async fn run(self, _: Cx<()>) -> JobResult<()> {
        Err(Failure::transient("never"))
    }
}

#[actix::test]
async fn a_runner_that_is_dropped_with_work_in_flight_answers_everybody_and_keeps_everything() {
    let dir = tempfile::tempdir().unwrap();
    let start = || Runner::open(dir.path().join("jobs")).wait_for_lock(MINUTE).register::<Saboteur>().register::<Other>().start();
    let runner = start().await.unwrap();
    let jobs = runner.jobs();
    let mut acknowledged = Vec::new();
    for _ in 0..100 {
        acknowledged.push(jobs.enqueue(Other).policy(Policy::default().attempts(1_000).base(HOUR)).await.unwrap().id());
    }
    let mut events = jobs.events(EventFilter::all());
    let amid = join_all((0..20).map(|n| {
        let jobs = jobs.clone();
        tokio::spawn(async move { (n, jobs.enqueue(Other).key(n.to_string()).delay(HOUR).await) })
    }));
    let outcome = tokio::spawn({
        let jobs = jobs.clone();
        async move { jobs.outcome("0-1".parse().unwrap()).await }
    });
    tokio::task::yield_now().await;
    drop(runner);
    let answers = soon("their answers", amid).await;
    assert!(soon("its answer", outcome).await.unwrap().is_err());
    soon("the end of the events", async {
        while let Some(Event::Job(_) | Event::Health(_) | Event::Breaker { .. }) = events.next().await {}
    })
    .await;
    let runner = soon("the start", start()).await.unwrap();
    for id in acknowledged {
        assert!(runner.jobs().get(id).await.unwrap().is_some(), "{id}");
    }
    for answer in answers {
        let (n, stored) = answer.unwrap();
        match stored {
            Ok(receipt) => assert_eq!(runner.jobs().enqueue(Other).key(n.to_string()).await.unwrap().id(), receipt.id()),
            Err(error) => assert!(matches!(error, EnqueueError::Unknown | EnqueueError::Unavailable), "{error}"),
        }
    }
    soon("the stop", runner.shutdown(SECOND)).await.unwrap();
}

/// A worker that dies while it has nothing to do is missed all the same.
#[actix::test]
async fn an_idle_worker_that_dies_is_replaced_before_it_is_needed() {
    let log = Log::default();
    let t: TestRunner<Log> = runner(&log).await;
    for _ in 0..3 {
        t.kill("worker").await;
        t.advance(2 * MINUTE).await;
        assert_eq!((t.actors("worker"), t.jobs().health()), (1, Health::Green));
    }
    t.jobs().enqueue(task("a", &[Step::Ok])).await.unwrap();
    t.settle().await;
    assert_eq!(t.jobs().stats().done, 1);
}
