//! JournalActor: makes batches durable, on an arbiter of its own as it blocks there. It calls nobody but whoever is to
//! hear the fate of a batch, and knows nothing of what a record means.

use std::sync::Arc;

use actix::{Actor, Context, Handler, Recipient};
use journeyman_core::journal::{AppendError, Journal};

use crate::clock::Clock;
use crate::messages::{Append, Appended, Release, Released, Rotate, Rotated, Seal};
use crate::metrics;
use crate::status::Status;

pub(crate) struct JournalActor {
    /// None once it has been sealed.
    journal: Option<Journal>,
    queue: Recipient<Released>,
    /// Bytes of the journal when it last began a segment for a compaction.
    sealed: u64,
    status: Arc<Status>,
    clock: Clock,
}

impl JournalActor {
    pub(crate) const fn new(journal: Journal, queue: Recipient<Released>, status: Arc<Status>, clock: Clock) -> Self {
        Self { journal: Some(journal), queue, sealed: 0, status, clock }
    }
}

impl Actor for JournalActor {
    type Context = Context<Self>;
}

impl Handler<Append> for JournalActor {
    type Result = ();

    fn handle(&mut self, Append { batch, reply }: Append, _: &mut Context<Self>) {
        self.clock.stir();
        let Some(journal) = &mut self.journal else { return reply.give(Appended::Unavailable) };
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
        self.journal.take().map_or(Ok(()), Journal::seal)
    }
}

impl Handler<Rotate> for JournalActor {
    type Result = ();

    fn handle(&mut self, Rotate { reply }: Rotate, _: &mut Context<Self>) {
        self.clock.stir();
        let rotated = match self.journal.as_mut().map(|journal| (journal.rotate(), journal.writes_to())) {
            None | Some((Ok(_), None)) => Rotated::NothingWritten,
            Some((Ok(_), Some(number))) => Rotated::To(number),
            Some((Err(error), _)) => Rotated::Failed { why: error.to_string() },
        };
        if let (Some(journal), Rotated::To(_)) = (&self.journal, &rotated) {
            self.sealed = journal.counters().bytes;
        }
        reply.do_send(rotated);
    }
}

impl Handler<Release> for JournalActor {
    type Result = ();

    fn handle(&mut self, Release { removed }: Release, _: &mut Context<Self>) {
        self.clock.stir();
        if let Some(journal) = &mut self.journal {
            journal.release(removed);
            self.status.journal(journal.counters());
            self.status.reserve.set(self.sealed.saturating_sub(removed));
        }
        self.queue.do_send(Released);
    }
}
