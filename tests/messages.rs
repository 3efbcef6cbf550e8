//! A program that speaks in messages only. Proves that the actor answers as the handle does, within the same bounds; that
//! subscribers are kept weakly and slow nobody; and that who goes away frees his place.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use actix::prelude::*;
use journeyman::protocol::{Cancel, Enqueue, EnqueueAll, Get, Health, JobsActor, List, Outcome, Stats, Subscribe, Targets};
use journeyman::{
    BreakerState, CallError, Cancelled, Cx, EnqueueError, Event, EventFilter, Found, Happened, Job, JobEnd, JobResult, Limits, Query,
};

use crate::jobs::{HOUR, Log, MINUTE, SECOND, Step, Task, runner, task, task_for, tasks};

fn of(name: &str, script: &[Step]) -> Enqueue {
    Enqueue::of(task(name, script))
}

#[actix::test]
async fn a_program_of_messages_goes_the_whole_way() {
    let log = Log::default();
    let t = runner(&log).await;
    let jobs: Addr<JobsActor> = t.jobs().start_actor();
    let receipt = jobs.send(of("a", &[Step::Sleep(10)]).key("k").priority(3).meta("tenant", "x")).await.unwrap().unwrap();
    assert!(matches!(jobs.send(Get { id: receipt.id() }).await.unwrap(), Ok(Found::Live(info)) if info.priority == 3));
    let again = jobs.send(of("a", &[Step::Ok]).key("k")).await.unwrap().unwrap();
    assert_eq!((again.id(), again.is_new()), (receipt.id(), false));
    let later = |n: &str| of(n, &[Step::Ok]).delay(HOUR);
    let all = jobs.send(EnqueueAll(vec![later("b"), later("c")])).await.unwrap().unwrap();
    let page = jobs.send(List(Query::new().limit(2))).await.unwrap().unwrap();
    assert_eq!((page.jobs.len(), page.next), (2, Some(all[0].id())));
    assert_eq!(jobs.send(Cancel { id: all[0].id() }).await.unwrap(), Ok(Cancelled::Cancelled));
    jobs.send(Enqueue::of(task_for("host", "d", &[Step::Ok]))).await.unwrap().unwrap();
    let outcome = jobs.send(Outcome { id: receipt.id() });
    assert_eq!(t.drive(outcome, MINUTE).await.unwrap().unwrap(), Ok(JobEnd::Done));
    let targets = jobs.send(Targets).await.unwrap().unwrap();
    assert_eq!((targets.len(), targets[0].breaker), (1, BreakerState::Closed));
    let stats = jobs.send(Stats).await.unwrap();
    assert_eq!((stats.done, stats.cancelled, stats.pending), (2, 1, 1));
    assert_eq!(jobs.send(Health).await.unwrap(), journeyman::Health::Green);
    assert!(matches!(jobs.send(Get { id: receipt.id() }).await.unwrap(), Ok(Found::Gone(JobEnd::Done))));
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Stranger;

impl Job for Stranger {
    type Context = ();
    type Output = ();
    const KIND: &'static str = "stranger";

    async fn run(self, _: Cx<()>) -> JobResult<()> {
        Ok(())
    }
}

#[actix::test]
async fn the_same_bounds_hold_as_for_the_handle() {
    let log = Log::default();
    let mut limits = Limits::default();
    (limits.calls, limits.key_bytes) = (4, 8);
    let t = tasks(&log).limits(limits).test().await.unwrap();
    let jobs = t.jobs().start_actor();
    assert!(matches!(jobs.send(Enqueue::of(Stranger)).await.unwrap(), Err(EnqueueError::UnknownKind(_))));
    assert!(matches!(jobs.send(of("a", &[Step::Ok]).key("123456789")).await.unwrap(), Err(EnqueueError::TooLong { .. })));
    assert_eq!(jobs.send(EnqueueAll(Vec::new())).await.unwrap(), Ok(Vec::new()));
    let id = jobs.send(of("a", &[Step::Ok]).delay(HOUR)).await.unwrap().unwrap().id();
    for round in 0..20 {
        let waiting: Vec<_> = (0..4).map(|_| jobs.send(Outcome { id })).collect();
        let mut waiting = futures_util::future::join_all(waiting);
        assert!(t.drive(&mut waiting, Duration::ZERO).await.is_none());
        assert_eq!(jobs.send(Outcome { id }).await.unwrap(), Err(CallError::Full), "round {round}");
        drop(waiting);
        t.settle().await;
    }
    assert!(jobs.send(Get { id }).await.unwrap().is_ok(), "those who went away freed their places");
    t.shutdown(SECOND).await.unwrap();
    assert_eq!(jobs.send(of("b", &[Step::Ok])).await.unwrap(), Err(EnqueueError::ShuttingDown));
}

/// Hears events, and keeps them where the test can see them.
struct Ear(Arc<Mutex<Vec<Event>>>);

impl Actor for Ear {
    type Context = Context<Self>;
}

impl Handler<Event> for Ear {
    type Result = ();

    fn handle(&mut self, event: Event, _: &mut Context<Self>) {
        self.0.lock().unwrap().push(event);
    }
}

/// An actor that enqueues and listens, and knows nothing but the address of the runner.
struct Program {
    jobs: Addr<JobsActor>,
    heard: Arc<Mutex<Vec<Event>>>,
}

impl Actor for Program {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        self.jobs.do_send(Subscribe { to: ctx.address().recipient(), filter: EventFilter::all().kind(Task::KIND) });
        self.jobs.do_send(of("a", &[Step::Ok]));
    }
}

impl Handler<Event> for Program {
    type Result = ();

    fn handle(&mut self, event: Event, _: &mut Context<Self>) {
        self.heard.lock().unwrap().push(event);
    }
}

#[actix::test]
async fn an_actor_hears_what_it_subscribed_to() {
    let log = Log::default();
    let t = runner(&log).await;
    let heard = Arc::default();
    let program = Program { jobs: t.jobs().start_actor(), heard: Arc::clone(&heard) }.start();
    t.run_until_idle(MINUTE).await.unwrap();
    t.settle().await;
    let whats: Vec<_> = heard.lock().unwrap().iter().map(|event| if let Event::Job(job) = event { Some(job.what) } else { None }).collect();
    let done = Happened::Ended { end: journeyman::End::Done, cause: None };
    assert_eq!(whats, [Some(Happened::Enqueued), Some(Happened::Selected), Some(done)]);
    drop(program);
}

#[actix::test]
async fn a_subscriber_is_not_kept_alive() {
    let log = Log::default();
    let t = runner(&log).await;
    let jobs = t.jobs().start_actor();
    let heard = Arc::default();
    let ear = Ear(Arc::clone(&heard)).start();
    jobs.send(Subscribe { to: ear.clone().recipient(), filter: EventFilter::all() }).await.unwrap();
    let weak = ear.downgrade();
    drop(ear);
    t.settle().await;
    assert!(weak.upgrade().is_none(), "nobody else holds it");
    jobs.send(of("a", &[Step::Ok])).await.unwrap().unwrap();
    t.run_until_idle(MINUTE).await.unwrap();
    assert!(heard.lock().unwrap().is_empty());
}

#[actix::test]
async fn a_subscriber_that_falls_behind_hears_how_many_he_lost() {
    let log = Log::default();
    let mut limits = Limits::default();
    limits.events_kept = 8;
    let t = tasks(&log).limits(limits).test().await.unwrap();
    let jobs = t.jobs().start_actor();
    let heard = Arc::default();
    let ear = Ear(Arc::clone(&heard)).start();
    jobs.send(Subscribe { to: ear.clone().recipient(), filter: EventFilter::all() }).await.unwrap();
    jobs.send(EnqueueAll((0..100).map(|n| of(&n.to_string(), &[Step::Ok])).collect())).await.unwrap().unwrap();
    t.run_until_idle(MINUTE).await.unwrap();
    t.settle().await;
    let heard = heard.lock().unwrap();
    let lost: u64 = heard.iter().map(|event| if let Event::Lagged(lost) = event { *lost } else { 0 }).sum();
    let told = heard.iter().filter(|event| matches!(event, Event::Job(_))).count() as u64;
    assert!(lost > 0 && lost + told == 300, "{lost} lost and {told} told of three for each job");
}
