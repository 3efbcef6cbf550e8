//! A runner as an actor, for programs that speak in messages: what [`Jobs`] can do, one message for each call, and the actor
//! that takes them. It judges nothing that `Jobs` does not judge: the same bounds hold, and the same answers come.
//!
//! ```no_run
//! use journeyman::protocol::{Enqueue, Outcome};
//! # use journeyman::{Cx, Job, JobResult, Runner};
//! # #[derive(serde::Serialize, serde::Deserialize)] struct Mail { to: String }
//! # impl Job for Mail {
//! #     type Context = (); type Output = (); const KIND: &'static str = "mail";
//! #     async fn run(self, _: Cx<()>) -> JobResult<()> { Ok(()) }
//! # }
//! # async fn example(runner: Runner) -> Result<(), Box<dyn std::error::Error>> {
//! let jobs = runner.jobs().start_actor();
//! let receipt = jobs.send(Enqueue::of(Mail { to: "a@example.org".into() }).key("welcome-17")).await??;
//! let end = jobs.send(Outcome { id: receipt.id() }).await??;
//! # drop(end);
//! # Ok(()) }
//! ```

use std::fmt;

use actix::dev::{MessageResponse, OneshotSender};
use actix::{Actor, Addr, Context, Handler, Message, MessageResult, Recipient, ResponseFuture, WeakRecipient};
use futures_util::future::LocalBoxFuture;
use journeyman_core::{JobId, Kind, Route};
use tokio::task::JoinSet;

use crate::answers::{Cancelled, Found, JobEnd, Receipt, TargetInfo};
use crate::draft::{Draft, options};
use crate::error::{CallError, EnqueueError};
use crate::feed::{Event, EventFilter, Events};
use crate::job::Job;
use crate::jobs::Jobs;
use crate::listing::{Page, Query};

/// The twin of [`Jobs`]: takes the messages of this module. Its address stays the same for as long as the actor lives, whatever
/// is rebuilt behind it. It may run on any arbiter, and in any number.
#[derive(Debug)]
pub struct JobsActor {
    jobs: Jobs,
    /// One for each subscription; they end with this actor.
    subscriptions: JoinSet<()>,
}

impl JobsActor {
    /// An actor that is not started yet.
    #[must_use]
    pub fn new(jobs: Jobs) -> Self {
        Self { jobs, subscriptions: JoinSet::new() }
    }
}

impl Jobs {
    /// Starts an actor that takes the messages of [`protocol`](crate::protocol), on this arbiter.
    ///
    /// # Panics
    /// Outside an actix runtime.
    #[must_use]
    pub fn start_actor(&self) -> Addr<JobsActor> {
        JobsActor::new(self.clone()).start()
    }
}

impl Actor for JobsActor {
    type Context = Context<Self>;
}

/// A job to store. Answered with its receipt when it is on disk, or with why nothing is stored.
#[derive(Debug, Message)]
#[rtype(result = "Result<Receipt, EnqueueError>")]
#[must_use = "nothing is stored until this is sent"]
pub struct Enqueue {
    draft: Result<Draft, EnqueueError>,
}

impl Enqueue {
    /// A job, to be run as soon as it can. Its fields are written down here; whether the runner takes it, the answer tells.
    pub fn of<J: Job>(job: J) -> Self {
        Self { draft: Draft::of(Route::without_target(Kind::new(J::KIND)), &job) }
    }

    options!();
}

/// Jobs to store in one batch, all or none. Answered with their receipts, in the same order, when they are on disk.
#[derive(Debug, Message)]
#[rtype(result = "Result<Vec<Receipt>, EnqueueError>")]
pub struct EnqueueAll(pub Vec<Enqueue>);

/// A job to take back. Answered as [`Jobs::cancel`].
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "Result<Cancelled, CallError>")]
pub struct Cancel {
    /// The job.
    pub id: JobId,
}

/// Asks what is known of a job, or how it ended. Answered as [`Jobs::find`].
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "Result<Found, CallError>")]
pub struct Get {
    /// The job.
    pub id: JobId,
}

/// Asks for a page of the jobs that have not ended. Answered as [`Jobs::list`].
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<Page, CallError>")]
pub struct List(pub Query);

/// Asks how a job ended. Answered when it has, as [`Jobs::outcome`]; until then this takes a place among the calls that wait,
/// and gives it back when the sender goes away.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "Result<JobEnd, CallError>")]
pub struct Outcome {
    /// The job.
    pub id: JobId,
}

/// Asks for every target that was called lately, with its breaker. Answered as [`Jobs::targets`].
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "Result<Vec<TargetInfo>, CallError>")]
pub struct Targets;

/// Asks for the counters. Answered at once, as [`Jobs::stats`].
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "crate::Stats")]
pub struct Stats;

/// Asks how the runner is. Answered at once, as [`Jobs::health`].
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "crate::Health")]
pub struct Health;

/// Asks for the events that pass the filter, from the answer on, as messages. The subscriber is kept weakly: the subscription
/// ends with him, with the runner, and with the actor that took it. Each event is sent when the one before has been handled;
/// a subscriber that falls too far behind hears [`Event::Lagged`].
#[derive(Message)]
#[rtype(result = "()")]
pub struct Subscribe {
    /// Who is to hear.
    pub to: Recipient<Event>,
    /// What.
    pub filter: EventFilter,
}

impl fmt::Debug for Subscribe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscribe").field("filter", &self.filter).finish_non_exhaustive()
    }
}

impl Handler<Enqueue> for JobsActor {
    type Result = ResponseFuture<Result<Receipt, EnqueueError>>;

    fn handle(&mut self, Enqueue { draft }: Enqueue, _: &mut Context<Self>) -> Self::Result {
        let jobs = self.jobs.clone();
        Box::pin(async move { jobs.store_one(jobs.checked(jobs.among_kinds(draft))?).await })
    }
}

impl Handler<EnqueueAll> for JobsActor {
    type Result = ResponseFuture<Result<Vec<Receipt>, EnqueueError>>;

    fn handle(&mut self, EnqueueAll(all): EnqueueAll, _: &mut Context<Self>) -> Self::Result {
        let jobs = self.jobs.clone();
        Box::pin(async move { jobs.store_all(all.into_iter().map(|one| one.draft)).await })
    }
}

impl Handler<Cancel> for JobsActor {
    type Result = ResponseFuture<Result<Cancelled, CallError>>;

    fn handle(&mut self, Cancel { id }: Cancel, _: &mut Context<Self>) -> Self::Result {
        let jobs = self.jobs.clone();
        Box::pin(async move { jobs.cancel(id).await })
    }
}

impl Handler<Get> for JobsActor {
    type Result = ResponseFuture<Result<Found, CallError>>;

    fn handle(&mut self, Get { id }: Get, _: &mut Context<Self>) -> Self::Result {
        let jobs = self.jobs.clone();
        Box::pin(async move { jobs.find(id).await })
    }
}

impl Handler<List> for JobsActor {
    type Result = ResponseFuture<Result<Page, CallError>>;

    fn handle(&mut self, List(query): List, _: &mut Context<Self>) -> Self::Result {
        let jobs = self.jobs.clone();
        Box::pin(async move { jobs.list(query).await })
    }
}

impl Handler<Outcome> for JobsActor {
    type Result = WhileWanted;

    fn handle(&mut self, Outcome { id }: Outcome, _: &mut Context<Self>) -> Self::Result {
        let jobs = self.jobs.clone();
        WhileWanted(Box::pin(async move { jobs.outcome(id).await }))
    }
}

/// An answer that may be long in coming: its future is dropped when the sender no longer waits for it.
pub struct WhileWanted(LocalBoxFuture<'static, Result<JobEnd, CallError>>);

impl MessageResponse<JobsActor, Outcome> for WhileWanted {
    fn handle(self, _: &mut Context<JobsActor>, sender: Option<OneshotSender<Result<JobEnd, CallError>>>) {
        let Some(mut sender) = sender else { return };
        actix_rt::spawn(async move {
            tokio::select! {
                answer = self.0 => drop(sender.send(answer)),
                () = sender.closed() => {}
            }
        });
    }
}

impl fmt::Debug for WhileWanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WhileWanted")
    }
}

impl Handler<Targets> for JobsActor {
    type Result = ResponseFuture<Result<Vec<TargetInfo>, CallError>>;

    fn handle(&mut self, _: Targets, _: &mut Context<Self>) -> Self::Result {
        let jobs = self.jobs.clone();
        Box::pin(async move { jobs.targets().await })
    }
}

impl Handler<Stats> for JobsActor {
    type Result = MessageResult<Stats>;

    fn handle(&mut self, _: Stats, _: &mut Context<Self>) -> Self::Result {
        MessageResult(self.jobs.stats())
    }
}

impl Handler<Health> for JobsActor {
    type Result = MessageResult<Health>;

    fn handle(&mut self, _: Health, _: &mut Context<Self>) -> Self::Result {
        MessageResult(self.jobs.health())
    }
}

impl Handler<Subscribe> for JobsActor {
    type Result = ();

    fn handle(&mut self, Subscribe { to, filter }: Subscribe, _: &mut Context<Self>) {
        while self.subscriptions.try_join_next().is_some() {}
        self.subscriptions.spawn_local(pass_on(self.jobs.events(filter), to.downgrade()));
    }
}

async fn pass_on(mut events: Events, to: WeakRecipient<Event>) {
    while let Some(event) = events.next().await {
        let Some(to) = to.upgrade() else { return };
        // Waited for, so that the bound of the stream is the bound of this subscriber; not held, so that he may end meanwhile.
        let handled = to.send(event);
        drop(to);
        if handled.await.is_err() {
            return;
        }
    }
}
