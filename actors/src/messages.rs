//! Every message, in the order of the walk; `Called` stands for the `Enqueue`s in the line's list. Each adds one thing to the one before, so the type is the progress:
//!
//! ```text
//!   Called  -> QueueActor -Append-> JournalActor -Appended-> QueueActor: releases what waited for the disk
//!     QueueActor -Want-> PoolActor -Granted-> QueueActor: one Select per unit, and once that is durable
//!     Selected -> BreakerActor -Admitted-> WorkerActor -Verdict-> BreakerActor
//!                      | refused                | Finished -> QueueActor: Complete | Requeue | Defer, and round again
//!                      +-------- Finished ----> QueueActor
//!   QueueActor -PutAway-> PayloadsActor -WentAway-> QueueActor: keeps of a job what it needs to know
//!   QueueActor -Fetch-> PayloadsActor -Fetched-> QueueActor: while the Select gets on disk, where the payload is away
//! ```

use std::sync::Arc;

use actix::{Message, Recipient};
use journeyman_core::breaker::{Pass, Position};
use journeyman_core::journal::Batch;
use journeyman_core::pool::Permit;
use journeyman_core::retry::Budget;
use journeyman_core::{Attempt, Key, Packed, Seq, Span, Target, Ticket, Time};
use smallvec::SmallVec;
use tokio::sync::oneshot;
use tokio_util::sync::WaitForCancellationFuture;

use crate::admission::Room;
use crate::answers::{Cancelled, Found, JobEnd, Receipt, ShutdownReport, TargetInfo};
use crate::error::{CallError, EnqueueError, IdleError};
use crate::ledger::{Ended, Ledger};
use crate::listing::{Page, Query};

/// Where the answer to a message is given, whenever it is there: it travels with its question, so that whoever holds it can answer.
/// Dropped unused, the caller hears that the answer was lost.
pub(crate) struct Reply<T>(oneshot::Sender<T>);

impl<T> Reply<T> {
    /// And where it is awaited.
    pub(crate) fn new() -> (Self, oneshot::Receiver<T>) {
        let (sender, answer) = oneshot::channel();
        (Self(sender), answer)
    }

    /// Whether somebody still waits for it.
    pub(crate) fn is_wanted(&self) -> bool {
        !self.0.is_closed()
    }

    pub(crate) fn give(self, answer: T) {
        // The caller may have gone.
        let _ = self.0.send(answer);
    }
}

/// Calls that store jobs have come; which, the line has in a list. Sent with the first of a list: those that follow before it is taken come
/// without a message of their own.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Called;

/// One of them: jobs to store, all or nothing.
pub(crate) struct Enqueue {
    pub jobs: Few<NewJob>,
    /// The place of the call among those that wait for an answer.
    pub room: Room,
    pub reply: Reply<Result<Few<Receipt>, EnqueueError>>,
}

/// Mostly one, which needs no memory of its own: what one thread asks for and another gives back costs both.
pub(crate) type Few<T> = SmallVec<[T; 1]>;

/// A job that was checked and is not yet stored.
#[derive(Clone, Debug)]
pub(crate) struct NewJob {
    pub job: Packed,
    pub key: Option<Key>,
    pub due: Due,
    /// The most bytes that its record takes.
    pub bytes: u64,
}

/// When a job is due.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Due {
    /// This long after it is accepted.
    After(Span),
    /// At an instant of the wall clock.
    At(Time),
}

/// A ticket that is no longer wanted.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Cancel {
    pub ticket: Ticket,
    pub room: Room,
    pub reply: Reply<Result<Cancelled, CallError>>,
}

/// A batch for the journal: it is to begin right behind the last record.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Append {
    pub batch: Batch,
    pub reply: AppendReply,
}

/// Where the fate of a batch is to be told. Dropped unused, it tells that nobody knows.
pub(crate) struct AppendReply {
    to: Option<Recipient<Appended>>,
}

impl AppendReply {
    pub(crate) const fn to(queue: Recipient<Appended>) -> Self {
        Self { to: Some(queue) }
    }

    /// Nobody hears it.
    #[cfg(feature = "testing")]
    pub(crate) const fn nowhere() -> Self {
        Self { to: None }
    }

    pub(crate) fn give(mut self, answer: Appended) {
        if let Some(to) = self.to.take() {
            to.do_send(answer);
        }
    }
}

impl Drop for AppendReply {
    fn drop(&mut self) {
        if let Some(to) = self.to.take() {
            to.do_send(Appended::Unknown { why: "the journal gave no answer".to_owned() });
        }
    }
}

/// The fate of a batch. Names no file, offset or sync: a journal elsewhere answers in the same words.
#[derive(Clone, Debug, PartialEq, Eq, Message)]
#[rtype(result = "()")]
pub(crate) enum Appended {
    /// Every later open has all records up to this one.
    Durable(Seq),
    /// Another writer leads, or the batch does not follow the last record. Nothing was written.
    Fenced { why: String },
    /// It may be there or not.
    Unknown { why: String },
    /// Larger than the journal takes. Nothing was written.
    TooLarge,
    /// An earlier append failed. Nothing was written.
    Unavailable,
}

/// A clean close: the last message to a journal.
#[derive(Message)]
#[rtype(result = "std::io::Result<()>")]
pub(crate) struct Seal;

/// The journal has grown enough to be compacted.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Compact;

/// Begin a new segment, so that all before it can be compacted.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Rotate {
    pub reply: Recipient<Rotated>,
}

/// What became of it.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) enum Rotated {
    /// Everything before this segment is sealed.
    To(u64),
    /// Nothing has been written yet since the journal was opened.
    NothingWritten,
    /// The journal goes on in the old one, or has failed and will say so.
    Failed { why: String },
}

/// A compaction is over: everything that was sealed when it began is in the newest snapshot.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Release {
    /// Bytes of the segments that are gone.
    pub removed: u64,
}

/// The journal has been told of the end of a compaction: the next one may come.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Released;

/// So many more units of the pool are wanted.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Want(pub u32);

/// Units of the pool.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Granted(pub Units);

/// Units that come back.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Returned(pub Permit);

/// Units of the pool that find their way back when they are dropped.
pub(crate) struct Units {
    permit: Option<Permit>,
    pool: Arc<Recipient<Returned>>,
}

impl Units {
    pub(crate) const fn new(permit: Permit, pool: Arc<Recipient<Returned>>) -> Self {
        Self { permit: Some(permit), pool }
    }

    pub(crate) fn count(&self) -> u32 {
        self.permit.as_ref().map_or(0, Permit::units)
    }

    pub(crate) fn split(&mut self, units: u32) -> Option<Self> {
        let permit = self.permit.as_mut()?.split(units)?;
        Some(Self::new(permit, self.pool.clone()))
    }

    pub(crate) fn join(&mut self, mut other: Self) {
        match (&mut self.permit, other.permit.take()) {
            // Units of another pool, which there is not, go back where they came from.
            (Some(permit), Some(more)) => other.permit = permit.join(more).err(),
            (permit, more) => *permit = more,
        }
    }
}

impl Drop for Units {
    fn drop(&mut self) {
        if let Some(permit) = self.permit.take().filter(|permit| permit.units() > 0) {
            self.pool.do_send(Returned(permit));
        }
    }
}

/// An attempt on its way: its Select is durable. Whoever has it must end it; dropped, it ends as lost. It tells the ledger,
/// which knows who is to hear of it: the queue that sent it out may be gone by then.
pub(crate) struct Flight {
    pub ticket: Ticket,
    pub attempt: Attempt,
    /// 1 for the first run that counts.
    pub number: u32,
    pub job: Packed,
    pub timeout: Span,
    is_over: bool,
    ledger: Ledger,
}

impl Flight {
    pub(crate) const fn new(name: (Ticket, Attempt), number: u32, job: Packed, timeout: Span, ledger: Ledger) -> Self {
        let (ticket, attempt) = name;
        Self { ticket, attempt, number, job, timeout, is_over: false, ledger }
    }

    /// Whether the job may begin to run: asked once, right before it does.
    pub(crate) fn may_run(&self) -> bool {
        self.ledger.may_run(self.ticket, self.attempt)
    }

    /// Waits until it is cut off: then it is dropped at its next await.
    pub(crate) fn interrupted(&self) -> WaitForCancellationFuture<'_> {
        self.ledger.interrupted()
    }

    /// The attempt is over.
    pub(crate) fn finish(mut self, ended: Ended) {
        self.end(ended);
    }

    fn end(&mut self, ended: Ended) {
        if !self.is_over {
            self.is_over = true;
            self.ledger.end(self.ticket, self.attempt, ended);
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.end(Ended::Lost);
    }
}

/// Jobs whose payloads are to be put away, with all that they are until that is done.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct PutAway(pub Vec<(Ticket, Packed)>);

/// What became of it.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct WentAway {
    /// Those whose payloads need not be kept in memory any more.
    pub tickets: Vec<Ticket>,
    /// Whether the disk did not take the others.
    pub is_full: bool,
}

/// Payloads that nobody wants any more.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Forget(pub Vec<Ticket>);

/// Selected jobs whose payloads are away.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Fetch(pub Vec<(Ticket, Attempt, Packed)>);

/// The same with their payloads; or why one of them does not come back.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Fetched(pub Result<Vec<(Ticket, Attempt, Packed)>, String>);

/// A ticket with its unit and its durable Select, asking its breaker for leave.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Selected {
    pub flight: Flight,
    /// Attempts left, this one not yet taken, and the deadline.
    pub budget: Budget,
    /// The time by which the deadline is judged.
    pub now: Time,
}

/// Attempts that may run: many cost little more than one.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Start(pub Vec<Admitted>);

/// An attempt that may run.
pub(crate) struct Admitted {
    pub flight: Flight,
    /// The leave of its breaker; none when the job has no target.
    pub leave: Option<Leave>,
}

/// A breaker's pass that finds its way back when it is dropped, then without a verdict.
pub(crate) struct Leave {
    pass: Option<Pass>,
    breaker: Recipient<Verdict>,
}

impl Leave {
    pub(crate) const fn new(pass: Pass, breaker: Recipient<Verdict>) -> Self {
        Self { pass: Some(pass), breaker }
    }

    pub(crate) fn settle(mut self, verdict: journeyman_core::breaker::Verdict) {
        self.back(verdict);
    }

    fn back(&mut self, verdict: journeyman_core::breaker::Verdict) {
        if let Some(pass) = self.pass.take() {
            self.breaker.do_send(Verdict { pass, verdict });
        }
    }
}

impl Drop for Leave {
    fn drop(&mut self) {
        self.back(journeyman_core::breaker::Verdict::None);
    }
}

/// What an attempt found out about its target.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Verdict {
    pub pass: Pass,
    pub verdict: journeyman_core::breaker::Verdict,
}

/// A breaker changed its mind, or has a place for a probe again.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct BreakerMoved {
    pub target: Target,
    pub position: Position,
    pub openings: u64,
}

/// Attempts are over; which, the ledger has in a list. Sent with the first of a list: those that follow before it is taken come
/// without a message of their own.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Finished;

/// One of them.
pub(crate) struct Over {
    pub ticket: Ticket,
    pub attempt: Attempt,
    pub unit: Returns,
    /// As the ledger has it. None when it was settled before, or has not ended, which nobody tells.
    pub ended: Option<Ended>,
}

/// When the unit of an attempt comes back.
pub(crate) enum Returns {
    /// At once.
    Now(Option<Units>),
    /// A blocking section has outlived the attempt: the unit comes with it.
    WithItsLastSection,
}

/// The last blocking section of an attempt has ended, later than the attempt itself.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Freed {
    pub ticket: Ticket,
    /// None when a new pool had none to spare for it.
    pub units: Option<Units>,
}

/// Answered when the ticket has ended, and that is on disk. The caller keeps his place at the edge himself.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Outcome {
    pub ticket: Ticket,
    pub reply: Reply<Result<JobEnd, CallError>>,
}

/// A page of live tickets.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct List {
    pub query: Query,
    pub room: Room,
    pub reply: Reply<Result<Page, CallError>>,
}

/// What is known of a ticket.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Get {
    pub ticket: Ticket,
    pub room: Room,
    pub reply: Reply<Result<Found, CallError>>,
}

/// Every target and its breaker.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Targets {
    pub room: Room,
    pub reply: Reply<Result<Vec<TargetInfo>, CallError>>,
}

/// Answered when nothing is pending or running, or when the time is over.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct UntilIdle {
    pub patience: Span,
    pub room: Room,
    pub reply: Reply<Result<(), IdleError>>,
}

/// Select nothing more. Running attempts go on, and enqueues are still taken.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Quiet;

/// Let running attempts end for so long, then cut them off; take no more, write all down, and answer.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Drain {
    pub patience: Span,
    pub reply: Reply<ShutdownReport>,
}

/// Sign of life: take a turn. A queue that takes none is stuck.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Beat;
