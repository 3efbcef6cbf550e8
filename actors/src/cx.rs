//! What a running job can ask of its surroundings. Never changes what becomes of the attempt.

use std::cell::OnceCell;
use std::fmt;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use journeyman_core::{Attempt, JobId, Ticket};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::jobs::Jobs;
use crate::ledger::Ledger;

/// The surroundings of one attempt. Cheap to clone; stays on the thread of its attempt.
pub struct Cx<C> {
    context: Rc<C>,
    attempt: Rc<Running>,
}

/// What all clones of a [`Cx`] share.
pub(crate) struct Running {
    ticket: Ticket,
    attempt: Attempt,
    number: u32,
    meta: Vec<(String, String)>,
    surroundings: Rc<Surroundings>,
    /// Asked for when the job wants to know.
    cancelled: OnceCell<CancellationToken>,
}

/// What all attempts of a worker can ask: one for all of them, as a count that several threads keep of whoever has it costs each of them.
pub(crate) struct Surroundings {
    pub ledger: Ledger,
    pub draining: watch::Receiver<bool>,
    pub clock: Clock,
    pub jobs: Jobs,
}

impl Running {
    pub(crate) const fn new(name: (Ticket, Attempt), number: u32, meta: Vec<(String, String)>, surroundings: Rc<Surroundings>) -> Self {
        let (ticket, attempt) = name;
        Self { ticket, attempt, number, meta, surroundings, cancelled: OnceCell::new() }
    }

    fn cancelled(&self) -> &CancellationToken {
        self.cancelled.get_or_init(|| self.surroundings.ledger.cancelled(self.ticket, self.attempt))
    }
}

impl<C> Cx<C> {
    pub(crate) fn new(context: Rc<C>, attempt: Running) -> Self {
        Self { context, attempt: Rc::new(attempt) }
    }

    /// What the factory made for this worker.
    #[must_use]
    pub fn context(&self) -> &C {
        &self.context
    }

    /// The job that runs.
    #[must_use]
    pub fn id(&self) -> JobId {
        JobId::of(self.attempt.ticket)
    }

    /// 1 for the first attempt that counts; deferrals do not.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt.number
    }

    /// The pairs that were stored with the job, in their order.
    #[must_use]
    pub fn meta(&self) -> &[(String, String)] {
        &self.attempt.meta
    }

    /// Ends when the job is cancelled. What the attempt does then is its own affair: it changes nothing any more.
    pub async fn cancelled(&self) {
        self.attempt.cancelled().cancelled().await;
    }

    /// Whether the job has been cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.attempt.cancelled().is_cancelled()
    }

    /// Whether the runner is being stopped: a long job may want to come to an end, or answer with `Failure::defer`.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        *self.attempt.surroundings.draining.borrow()
    }

    /// What the wall clock of the runner shows, which a test moves.
    #[must_use]
    pub fn now(&self) -> SystemTime {
        self.attempt.surroundings.clock.now().wall.into()
    }

    /// Waits by the runner's clock, which a test moves.
    pub async fn sleep(&self, duration: Duration) {
        self.attempt.surroundings.clock.sleep(duration.into()).await;
    }

    /// Runs what blocks on a thread of its own. A section that outlives its attempt keeps the attempt's unit of the
    /// pool until it ends, and its job is not tried again before. In a test it runs at once, in place.
    ///
    /// # Panics
    /// When `section` does, and when the attempt is already over: both end the attempt that is still there.
    pub async fn blocking<T: Send + 'static>(&self, section: impl FnOnce() -> T + Send + 'static) -> T {
        if self.attempt.surroundings.clock.is_virtual() {
            return section();
        }
        let Running { surroundings, ticket, attempt, .. } = &*self.attempt;
        let occupant = surroundings.ledger.enter(*ticket, *attempt).expect("the attempt that asks for a blocking section is over");
        let section = move || {
            let result = section();
            drop(occupant);
            result
        };
        match tokio::task::spawn_blocking(section).await {
            Ok(result) => result,
            Err(failed) => match failed.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The runtime goes down, and this attempt with it.
                Err(_) => std::future::pending().await,
            },
        }
    }

    /// The runner that runs this job.
    #[must_use]
    pub fn jobs(&self) -> &Jobs {
        &self.attempt.surroundings.jobs
    }
}

impl<C> Clone for Cx<C> {
    fn clone(&self) -> Self {
        Self { context: self.context.clone(), attempt: self.attempt.clone() }
    }
}

impl<C> fmt::Debug for Cx<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cx").field("id", &self.id()).field("attempt", &self.attempt.number).finish_non_exhaustive()
    }
}
