//! A handle without a runner: it takes what is enqueued and keeps it for the test to look at. Nothing runs, nothing is on any
//! disk; all else is as with a runner, as the state machine is the same.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use journeyman_core::queue::{Change, Misfit};
use journeyman_core::{JobId, Op, Packed, Queue, Record, Ticket};

use crate::answers::{Cancelled, Found, JobEnd, JobInfo, Receipt};
use crate::clock::Clock;
use crate::error::{CallError, IdleError};
use crate::feed::Happened;
use crate::job::Job;
use crate::jobs::Jobs;
use crate::listing::{Page, Query};
use crate::messages::{Due, Few, NewJob};
use crate::registry::bring_back;
use crate::status::Status;

impl Jobs {
    /// A handle without a runner, to test what enqueues: it takes jobs of every kind, within the usual bounds, and respects
    /// their keys. Nothing runs: to wait for the end of a job that waits is refused as [`CallError::Unavailable`].
    ///
    /// ```
    /// use journeyman::Jobs;
    /// # use journeyman::{Cx, Job, JobResult};
    /// # #[derive(serde::Serialize, serde::Deserialize)] struct Mail { to: String }
    /// # impl Job for Mail {
    /// #     type Context = (); type Output = (); const KIND: &'static str = "mail";
    /// #     async fn run(self, _: Cx<()>) -> JobResult<()> { Ok(()) }
    /// # }
    ///
    /// async fn sign_up(jobs: &Jobs, address: &str) -> Result<(), journeyman::EnqueueError> {
    ///     jobs.enqueue(Mail { to: address.to_owned() }).key(address).await?;
    ///     Ok(())
    /// }
    ///
    /// let (jobs, captured) = Jobs::capture();
    /// jobs.wait(sign_up(&jobs, "a@example.org")).unwrap();
    /// jobs.wait(sign_up(&jobs, "a@example.org")).unwrap();
    /// let mails = captured.enqueued::<Mail>();
    /// assert_eq!(mails.len(), 1);
    /// assert_eq!(mails[0].to, "a@example.org");
    /// ```
    #[must_use]
    pub fn capture() -> (Self, Captured) {
        let (status, clock) = (Status::new(), Clock::system());
        status.opened(None);
        let capture = Arc::new(Capture { queue: Mutex::default(), status: status.clone(), clock: clock.clone() });
        (Self::captured(capture.clone(), status, clock), Captured(capture))
    }
}

/// What a handle of [`Jobs::capture`] has taken.
#[derive(Clone)]
pub struct Captured(Arc<Capture>);

impl Captured {
    /// The jobs of this type that wait, in the order in which they were enqueued; those under its aliases too.
    ///
    /// # Panics
    /// When one of them does not come back.
    #[must_use]
    pub fn enqueued<J: Job>(&self) -> Vec<J> {
        decoded(self.0.queue().tickets().map(|(_, live)| &live.job))
    }
}

impl fmt::Debug for Captured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Captured").field("stats", &self.0.status.stats()).finish()
    }
}

/// Those of this type, brought back.
pub(super) fn decoded<'a, J: Job>(jobs: impl Iterator<Item = &'a Packed>) -> Vec<J> {
    let is_mine = |job: &&Packed| job.kind().as_str() == J::KIND || J::ALIASES.contains(&job.kind().as_str());
    let back = |job| bring_back(job).unwrap_or_else(|why| panic!("a stored {} does not come back: {why}", J::KIND));
    jobs.filter(is_mine).map(back).collect()
}

/// What stands in for the queue.
pub(crate) struct Capture {
    queue: Mutex<Queue>,
    status: Arc<Status>,
    clock: Clock,
}

impl Capture {
    pub(crate) fn store(&self, jobs: Few<NewJob>) -> Few<Receipt> {
        let receipts = jobs.into_iter().filter_map(|new| self.store_one(new)).collect();
        self.status.pending.set(self.queue().pending() as u64);
        receipts
    }

    fn store_one(&self, NewJob { job, key, due, .. }: NewJob) -> Option<Receipt> {
        let now = self.clock.now().wall;
        let mut queue = self.queue();
        let due = match due {
            Due::After(wait) => now + wait,
            Due::At(due) => due,
        };
        let (seq, route) = (queue.last().next(), job.route().clone());
        match queue.step(seq, now, &Record::Op(Op::Enqueue { now, due, key, job })) {
            Ok(Change::Enqueued(ticket)) => {
                self.status.feed.tell_job(ticket, &route, seq, Happened::Enqueued);
                Some(Receipt::new(JobId::of(ticket), seq))
            }
            Err(Misfit::Duplicate(holder)) => Some(Receipt::existing(JobId::of(holder), queue.last())),
            // An Enqueue does nothing else.
            Ok(_) | Err(_) => None,
        }
    }

    pub(crate) fn cancel(&self, ticket: Ticket) -> Cancelled {
        let mut queue = self.queue();
        let Some(route) = queue.get(ticket).map(|live| live.job.route().clone()) else {
            return if queue.was_issued(ticket) { Cancelled::AlreadyEnded } else { Cancelled::NotFound };
        };
        let seq = queue.last().next();
        let cancelled = queue.step(seq, self.clock.now().wall, &Record::Op(Op::Cancel { ticket }));
        debug_assert!(cancelled.is_ok(), "a ticket that lives can be cancelled");
        self.status.recent.note(ticket, JobEnd::Cancelled, usize::MAX);
        self.status.feed.tell_job(ticket, &route, seq, Happened::Cancelled { was_running: false });
        self.status.pending.set(queue.pending() as u64);
        self.status.cancelled.add(1);
        Cancelled::Cancelled
    }

    pub(crate) fn find(&self, ticket: Ticket) -> Found {
        let queue = self.queue();
        match queue.get(ticket) {
            Some(live) => Found::Live(JobInfo::of(ticket, live, None)),
            None if queue.was_issued(ticket) => Found::Gone(self.status.recent.end_of(ticket)),
            None => Found::Gone(JobEnd::NotFound),
        }
    }

    pub(crate) fn outcome(&self, ticket: Ticket) -> Result<JobEnd, CallError> {
        match self.find(ticket) {
            Found::Live(_) => Err(CallError::Unavailable),
            Found::Gone(end) => Ok(end),
        }
    }

    pub(crate) fn list(&self, query: &Query) -> Page {
        Page::of(query, self.queue().tickets_from(query.first()), |ticket, live| JobInfo::of(ticket, live, None))
    }

    pub(crate) fn is_idle(&self) -> Result<(), IdleError> {
        match self.queue().pending() as u64 {
            0 => Ok(()),
            pending => Err(IdleError::WorkLeft { pending, running: 0 }),
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
