//! WorkerActor: runs admitted attempts, many at once, as local futures of its arbiter. An attempt is a list of phases;
//! a panic, a timeout and a cut-off join the same end. It decides nothing about what becomes of a ticket.

use std::any::Any;
use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use actix::{Actor, Context, Handler, Recipient};
use futures_util::FutureExt;
use journeyman_core::breaker::Verdict;
use journeyman_core::retry::Outcome;
use journeyman_core::{Cause, Fault};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tracing::Instrument;

use crate::clock::Clock;
use crate::cx::{Cx, Running};
use crate::events;
use crate::job::JobResult;
use crate::jobs::Jobs;
use crate::ledger::Ended;
use crate::messages::{Admitted, Flight, Start};
use crate::metrics::{Meters, Timer};
use crate::registry::Registry;

pub(crate) struct WorkerActor<C> {
    shared: Rc<Shared<C>>,
    attempts: Attempts,
}

/// What all attempts of a worker use.
pub(crate) struct Shared<C> {
    pub context: Rc<C>,
    pub registry: Arc<Registry<C>>,
    pub draining: watch::Receiver<bool>,
    pub jobs: Jobs,
    pub clock: Clock,
    pub meters: RefCell<Meters>,
}

impl<C> WorkerActor<C> {
    pub(crate) fn new(shared: Shared<C>) -> Self {
        Self { shared: Rc::new(shared), attempts: Attempts::default() }
    }
}

impl<C: 'static> Actor for WorkerActor<C> {
    type Context = Context<Self>;
}

impl<C: 'static> Handler<Start> for WorkerActor<C> {
    type Result = ();

    fn handle(&mut self, Start(admitted): Start, _: &mut Context<Self>) {
        self.shared.clock.stir();
        admitted.into_iter().for_each(|one| self.begin(one));
    }
}

impl<C: 'static> WorkerActor<C> {
    fn begin(&mut self, Admitted { flight, leave }: Admitted) {
        let shared = self.shared.clone();
        let span = events::attempt_span(&flight);
        self.attempts.spawn(
            async move {
                let (ended, verdict) = shared.run(&flight).await;
                shared.clock.stir();
                events::attempt_ended(&ended);
                // The breaker hears first: the queue may take the next ticket of the target at once.
                if let Some(leave) = leave {
                    leave.settle(verdict);
                }
                flight.finish(ended);
            }
            .instrument(span),
        );
    }
}

/// The tasks of attempts that have not ended. Dropped with the actor, which aborts them: the attempts end as lost.
#[derive(Default)]
struct Attempts {
    tasks: Tasks,
    begun: u64,
}

/// In the order in which they began, so that what is aborted together does not hang on chance.
type Tasks = Rc<RefCell<BTreeMap<u64, AbortHandle>>>;

impl Attempts {
    fn spawn(&mut self, attempt: impl Future<Output = ()> + 'static) {
        self.begun += 1;
        let listed = Listed { tasks: self.tasks.clone(), number: self.begun };
        // Large, and moved several times on its way into the task.
        let attempt = Box::pin(async move {
            attempt.await;
            drop(listed);
        });
        let task = tokio::task::spawn_local(attempt);
        self.tasks.borrow_mut().insert(self.begun, task.abort_handle());
    }
}

impl Drop for Attempts {
    fn drop(&mut self) {
        let tasks = self.tasks.take();
        tasks.values().for_each(AbortHandle::abort);
    }
}

/// An attempt's place among them, given up when it is dropped, whatever became of it.
struct Listed {
    tasks: Tasks,
    number: u64,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.tasks.borrow_mut().remove(&self.number);
    }
}

impl<C: 'static> Shared<C> {
    /// The phases of an attempt: begin, run, and how it ended.
    async fn run(&self, flight: &Flight) -> (Ended, Verdict) {
        if !flight.may_run() {
            return (Ended::NeverBegan, Verdict::None);
        }
        let cx = Cx::new(self.context.clone(), self.running(flight));
        let begun = catch_unwind(AssertUnwindSafe(|| self.registry.begin(&flight.job, cx)));
        let job = match begun {
            Ok(Ok(job)) => job,
            Ok(Err(why)) => return (Ended::Unreadable { why }, Verdict::None),
            Err(panic) => return panicked(panic),
        };
        let mut job = Guarded(Some(job));
        let timer = Timer::start(&self.clock);
        self.meters.borrow_mut().attempt_began(flight.job.kind());
        let interrupted = flight.interrupted();
        let late = self.clock.sleep(flight.timeout);
        let end = first_of(job.future(), pin!(interrupted), pin!(late)).await;
        // Whatever is left of the job goes now, inside the boundary: its destructors are its own code.
        let dropped = job.close();
        self.meters.borrow_mut().attempt_ran(flight.job.kind(), &timer);
        match (end, dropped) {
            (First::Done(Ok(result)), Ok(())) => settled(result),
            (First::Done(Err(panic)), dropped) => {
                if let Err(another) = dropped {
                    defuse(another);
                }
                panicked(panic)
            }
            (_, Err(panic)) => panicked(panic),
            (First::Interrupted, Ok(())) => {
                let fault = Fault::new(Cause::Interrupted, "the runner was stopped before the attempt ended");
                (Ended::Ran { outcome: Outcome::Interrupted { begun: true }, fault: Some(fault) }, Verdict::None)
            }
            (First::Late, Ok(())) => {
                let fault = Fault::new(Cause::TimedOut, format!("the attempt ran longer than {}", flight.timeout));
                (Ended::Ran { outcome: Outcome::Transient { retry_after: None }, fault: Some(fault) }, Verdict::Failure)
            }
        }
    }

    fn running(&self, flight: &Flight) -> Running {
        Running {
            ticket: flight.ticket,
            attempt: flight.attempt,
            number: flight.number,
            meta: flight.job.meta(),
            ledger: flight.ledger().clone(),
            cancelled: OnceCell::new(),
            draining: self.draining.clone(),
            clock: self.clock.clone(),
            jobs: self.jobs.clone(),
        }
    }
}

/// Where admitted attempts go. Clones share the list.
#[derive(Clone)]
pub(crate) struct Workers(Arc<[Recipient<Start>]>);

impl Workers {
    pub(crate) fn new(workers: Vec<Recipient<Start>>) -> Self {
        Self(workers.into())
    }

    /// Tickets are numbered in a row, so their numbers spread them evenly.
    pub(crate) fn send(&self, mut admitted: Vec<Admitted>) {
        if let [only] = &*self.0 {
            return only.do_send(Start(admitted));
        }
        let workers = self.0.len() as u64;
        for (turn, worker) in (0..).zip(self.0.iter()) {
            let its: Vec<Admitted> = admitted.extract_if(.., |one| one.flight.ticket.0 % workers == turn).collect();
            if !its.is_empty() {
                worker.do_send(Start(its));
            }
        }
    }
}

fn settled(result: JobResult<()>) -> (Ended, Verdict) {
    match result {
        Ok(()) => (Ended::Ran { outcome: Outcome::Done, fault: None }, Verdict::Success),
        Err(failure) => {
            let (outcome, verdict) = (failure.outcome(), failure.verdict());
            let fault = match outcome {
                Outcome::Deferred { .. } => None,
                _ => Some(failure.into_fault()),
            };
            (Ended::Ran { outcome, fault }, verdict)
        }
    }
}

/// A panic may pass next time, like any failure; it says nothing of the target.
fn panicked(panic: Panic) -> (Ended, Verdict) {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let fault = Fault::new(Cause::Panicked, text.unwrap_or("a panic without a text"));
    defuse(panic);
    (Ended::Ran { outcome: Outcome::Transient { retry_after: None }, fault: Some(fault) }, Verdict::None)
}

type Panic = Box<dyn Any + Send>;
type LocalJob = Pin<Box<dyn Future<Output = JobResult<()>>>>;

/// Drops what a panic carries. That is the job's own code too, and may panic in turn: then what that one carries is left as it is,
/// as it may go on so.
fn defuse(panic: Panic) {
    if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(another);
    }
}

/// The future of a job, and the boundary that its panics do not pass.
struct Guarded(Option<LocalJob>);

impl Guarded {
    async fn future(&mut self) -> Result<JobResult<()>, Panic> {
        match &mut self.0 {
            Some(job) => AssertUnwindSafe(job).catch_unwind().await,
            None => std::future::pending().await,
        }
    }

    fn close(&mut self) -> Result<(), Panic> {
        let job = self.0.take();
        catch_unwind(AssertUnwindSafe(|| drop(job)))
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // The worker goes down with attempts in flight: a panic of theirs must not become an abort.
        if let Err(panic) = self.close() {
            defuse(panic);
        }
    }
}

enum First {
    Done(Result<JobResult<()>, Panic>),
    Interrupted,
    Late,
}

/// Polls the job first: one that is ready has ended, however late it is.
async fn first_of(
    job: impl Future<Output = Result<JobResult<()>, Panic>>,
    mut interrupted: Pin<&mut impl Future<Output = ()>>,
    mut late: Pin<&mut impl Future<Output = ()>>,
) -> First {
    let mut job = pin!(job);
    std::future::poll_fn(|task| {
        if let Poll::Ready(result) = job.as_mut().poll(task) {
            return Poll::Ready(First::Done(result));
        }
        if interrupted.as_mut().poll(task).is_ready() {
            return Poll::Ready(First::Interrupted);
        }
        late.as_mut().poll(task).map(|()| First::Late)
    })
    .await
}
