//! WorkerActor: runs admitted attempts, many at once, as local futures in one list. An attempt is a list of phases;
//! a panic, a timeout and a cut-off join the same end. It decides nothing about what becomes of a ticket.

use std::any::Any;
use std::cell::RefCell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{self, Poll};

use actix::fut::ActorFuture;
use actix::{Actor, AsyncContext, Context, Handler, Recipient};
use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use journeyman_core::breaker::Verdict;
use journeyman_core::retry::Outcome;
use journeyman_core::{Cause, Fault};
use tracing::Instrument;

use crate::cx::{Cx, Running, Surroundings};
use crate::events;
use crate::job::JobResult;
use crate::ledger::Ended;
use crate::messages::{Admitted, Flight, Start};
use crate::metrics::Meters;
use crate::registry::Registry;

pub(crate) struct WorkerActor<C> {
    shared: Rc<Shared<C>>,
    attempts: Attempts,
}

/// What all attempts of a worker use.
pub(crate) struct Shared<C> {
    pub context: Rc<C>,
    pub registry: Arc<Registry<C>>,
    pub surroundings: Rc<Surroundings>,
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

    fn handle(&mut self, Start(admitted): Start, ctx: &mut Context<Self>) {
        self.shared.surroundings.clock.stir();
        if self.attempts.are_over() {
            ctx.spawn(Drive);
        }
        admitted.into_iter().for_each(|one| self.begin(one));
    }
}

impl<C: 'static> WorkerActor<C> {
    fn begin(&mut self, Admitted { flight, leave }: Admitted) {
        let shared = self.shared.clone();
        let span = events::attempt_span(&flight);
        let attempt = async move {
            let (ended, verdict) = shared.run(&flight).await;
            shared.surroundings.clock.stir();
            events::attempt_ended(&ended);
            // The breaker hears first: the queue may take the next ticket of the target at once.
            if let Some(leave) = leave {
                leave.settle(verdict);
            }
            flight.finish(ended);
        };
        self.attempts.add(attempt.instrument(span));
    }
}

/// Attempts that have not ended. Dropped with the actor, in which they end as lost.
#[derive(Default)]
struct Attempts(FuturesUnordered<LocalBoxFuture<'static, ()>>);

impl Attempts {
    fn add(&self, attempt: impl Future<Output = ()> + 'static) {
        self.0.push(Box::pin(attempt));
    }

    fn are_over(&self) -> bool {
        self.0.is_empty()
    }

    /// Lets those go on that can.
    fn go_on(&mut self, task: &mut task::Context<'_>) -> Poll<()> {
        loop {
            // A panic that is not the job's own goes no further than its attempt either, which is dropped by it and so ends as lost.
            match catch_unwind(AssertUnwindSafe(|| self.0.poll_next_unpin(task))) {
                Ok(Poll::Ready(Some(()))) => {}
                Ok(Poll::Ready(None)) => return Poll::Ready(()),
                Ok(Poll::Pending) => return Poll::Pending,
                Err(panic) => defuse(panic),
            }
        }
    }
}

impl Drop for Attempts {
    fn drop(&mut self) {
        // Each of them, whatever the destructors of another do.
        for attempt in std::mem::take(&mut self.0) {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(attempt))) {
                defuse(panic);
            }
        }
    }
}

/// Lets the attempts of a worker go on until all are over: of the futures of the actor the only one, as it polls all that it has whenever one of
/// them wakes.
struct Drive;

impl<C: 'static> ActorFuture<WorkerActor<C>> for Drive {
    type Output = ();

    fn poll(self: Pin<&mut Self>, worker: &mut WorkerActor<C>, _: &mut Context<WorkerActor<C>>, task: &mut task::Context<'_>) -> Poll<()> {
        worker.attempts.go_on(task)
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
        let watch = self.surroundings.clock.stopwatch();
        self.meters.borrow_mut().attempt_began(flight.job.kind());
        let interrupted = flight.interrupted();
        let late = watch.reaches(flight.timeout);
        let end = first_of(job.future(), pin!(interrupted), pin!(late)).await;
        // Whatever is left of the job goes now, inside the boundary: its destructors are its own code.
        let dropped = job.close();
        self.meters.borrow_mut().attempt_ran(flight.job.kind(), &watch);
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
        let (ticket, attempt, number) = (flight.ticket, flight.attempt, flight.number);
        Running::new((ticket, attempt), number, flight.job.meta(), self.surroundings.clone())
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::task::{Context, Waker};

    use futures_util::task::noop_waker;

    use super::*;

    #[test]
    fn only_those_that_were_woken_are_looked_at() {
        let mut attempts = Attempts::default();
        let polls = Rc::new(Cell::new(0));
        let wakers: Rc<RefCell<Vec<Waker>>> = Rc::default();
        for _ in 0..1000 {
            let (polls, wakers) = (polls.clone(), wakers.clone());
            attempts.add(std::future::poll_fn(move |task| {
                polls.set(polls.get() + 1);
                wakers.borrow_mut().push(task.waker().clone());
                if polls.get() > 1000 { Poll::Ready(()) } else { Poll::Pending }
            }));
        }
        let waker = noop_waker();
        let mut task = Context::from_waker(&waker);
        // A list lets others have their turn between.
        while polls.get() < 1000 {
            assert!(attempts.go_on(&mut task).is_pending());
        }
        wakers.borrow()[500].wake_by_ref();
        assert!(attempts.go_on(&mut task).is_pending());
        assert_eq!((polls.get(), attempts.0.len()), (1001, 999));
        wakers.borrow().iter().for_each(Waker::wake_by_ref);
        while attempts.go_on(&mut task).is_pending() {}
        assert!(attempts.are_over());
    }

    #[test]
    fn a_panic_that_is_not_the_jobs_own_goes_no_further_than_its_attempt() {
        let mut attempts = Attempts::default();
        let ended = Rc::new(Cell::new(0));
        for n in 0..10 {
            let ended = ended.clone();
            attempts.add(async move {
                assert!(n != 4, "one of them");
                ended.set(ended.get() + 1);
            });
        }
        let waker = noop_waker();
        while attempts.go_on(&mut Context::from_waker(&waker)).is_pending() {}
        assert_eq!((ended.get(), attempts.are_over()), (9, true));
    }

    #[test]
    fn all_are_dropped_whatever_one_of_them_does_then() {
        struct Counted(Rc<Cell<u32>>);

        impl Drop for Counted {
            fn drop(&mut self) {
                self.0.set(self.0.get() + 1);
                assert!(self.0.get() != 4, "one of them");
            }
        }

        let (mut attempts, dropped) = (Attempts::default(), Rc::new(Cell::new(0)));
        for _ in 0..10 {
            let counted = Counted(dropped.clone());
            attempts.add(async move {
                std::future::pending::<()>().await;
                drop(counted);
            });
        }
        assert!(attempts.go_on(&mut Context::from_waker(&noop_waker())).is_pending());
        drop(attempts);
        assert_eq!(dropped.get(), 10);
    }
}
