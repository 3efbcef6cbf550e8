//! JournalActor: makes batches durable, on an arbiter of its own as it blocks there. It calls nobody but whoever is to
//! hear the fate of a batch, and knows nothing of what a record means.
//!
//! Two of them share one journal: the other is on the queue's own arbiter, for the batch of a caller who is alone (see `queue/pace.rs`).

use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use actix::{Actor, Context, Handler, Recipient};
use journeyman_core::journal::{AppendError, Journal};

use crate::clock::Clock;
use crate::messages::{Append, Appended, Release, Released, Rotate, Rotated, Seal};
use crate::metrics;
use crate::status::Status;

/// The journal of a reign, for whoever writes to it. No two ever want to at once but for a rotation: one batch is on its way at a time.
#[derive(Clone)]
pub(crate) struct Pen(Arc<Mutex<Option<Journal>>>);

impl Pen {
    pub(crate) fn new(journal: Journal) -> Self {
        Self(Arc::new(Mutex::new(Some(journal))))
    }

    /// None once it has been sealed or taken away. An append that panicked leaves a journal of which nothing is known.
    fn journal(&self) -> MutexGuard<'_, Option<Journal>> {
        self.0.lock().unwrap_or_else(|poisoned| {
            let mut journal = poisoned.into_inner();
            *journal = None;
            journal
        })
    }

    /// Sees to it that nobody writes any more. False when somebody is at it right now.
    pub(crate) fn take_away(&self) -> bool {
        match self.0.try_lock() {
            Ok(mut journal) => *journal = None,
            Err(TryLockError::Poisoned(poisoned)) => *poisoned.into_inner() = None,
            Err(TryLockError::WouldBlock) => return false,
        }
        true
    }
}

pub(crate) struct JournalActor {
    pen: Pen,
    /// Whether it writes on the queue's own thread.
    is_near: bool,
    queue: Recipient<Released>,
    /// Bytes of the journal when it last began a segment for a compaction.
    sealed: u64,
    status: Arc<Status>,
    clock: Clock,
}

impl JournalActor {
    pub(crate) const fn new(pen: Pen, queue: Recipient<Released>, status: Arc<Status>, clock: Clock) -> Self {
        Self { pen, is_near: false, queue, sealed: 0, status, clock }
    }

    /// The other one, on the thread of the queue.
    pub(crate) fn near(&self) -> Self {
        let Self { pen, queue, status, clock, .. } = self;
        Self { is_near: true, ..Self::new(pen.clone(), queue.clone(), status.clone(), clock.clone()) }
    }
}

impl Actor for JournalActor {
    type Context = Context<Self>;
}

impl Handler<Append> for JournalActor {
    type Result = ();

    fn handle(&mut self, Append { batch, reply }: Append, _: &mut Context<Self>) {
        self.clock.stir();
        let mut journal = self.pen.journal();
        let Some(journal) = journal.as_mut() else { return reply.give(Appended::Unavailable) };
        let _blocked = self.is_near.then(|| self.status.blocks(self.clock.now().steady));
        let last = batch.last();
        let (watch, records, bytes) = (self.clock.stopwatch(), batch.count, batch.body.len());
        let answer = match journal.append(batch) {
            Ok(()) => {
                metrics::appended(&watch, records, bytes);
                Appended::Durable(last)
            }
            Err(error @ AppendError::Fenced { .. }) => Appended::Fenced { why: error.to_string() },
            Err(AppendError::TooLarge) => Appended::TooLarge,
            Err(AppendError::Poisoned) => Appended::Unavailable,
            Err(error) => Appended::Unknown { why: error.to_string() },
        };
        self.status.journal(journal.counters());
        reply.give(answer);
    }
}

impl Handler<Seal> for JournalActor {
    type Result = std::io::Result<()>;

    fn handle(&mut self, _: Seal, _: &mut Context<Self>) -> std::io::Result<()> {
        self.clock.stir();
        self.pen.journal().take().map_or(Ok(()), Journal::seal)
    }
}

impl Handler<Rotate> for JournalActor {
    type Result = ();

    fn handle(&mut self, Rotate { reply }: Rotate, _: &mut Context<Self>) {
        self.clock.stir();
        let mut journal = self.pen.journal();
        let rotated = match journal.as_mut().map(|journal| (journal.rotate(), journal.writes_to())) {
            None | Some((Ok(_), None)) => Rotated::NothingWritten,
            Some((Ok(_), Some(number))) => Rotated::To(number),
            Some((Err(error), _)) => Rotated::Failed { why: error.to_string() },
        };
        if let (Some(journal), Rotated::To(_)) = (&*journal, &rotated) {
            self.sealed = journal.counters().bytes;
        }
        reply.do_send(rotated);
    }
}

impl Handler<Release> for JournalActor {
    type Result = ();

    fn handle(&mut self, Release { removed }: Release, _: &mut Context<Self>) {
        self.clock.stir();
        if let Some(journal) = self.pen.journal().as_mut() {
            journal.release(removed);
            self.status.journal(journal.counters());
            self.status.reserve.set(self.sealed.saturating_sub(removed));
        }
        self.queue.do_send(Released);
    }
}
