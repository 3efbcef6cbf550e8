//! JournalActor: makes batches durable, on an arbiter of its own as it blocks there. It calls nobody but whoever is to
//! hear the fate of a batch, and knows nothing of what a record means.

use actix::{Actor, Context, Handler};
use std::sync::Arc;

use journeyman_core::journal::{AppendError, Journal};

use crate::clock::Clock;
use crate::messages::{Append, Appended, Seal};
use crate::metrics::{self, Timer};
use crate::status::Status;

pub(crate) struct JournalActor {
    /// None once it has been sealed.
    journal: Option<Journal>,
    status: Arc<Status>,
    clock: Clock,
}

impl JournalActor {
    pub(crate) const fn new(journal: Journal, status: Arc<Status>, clock: Clock) -> Self {
        Self { journal: Some(journal), status, clock }
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
        let (timer, records, bytes) = (Timer::start(&self.clock), batch.count, batch.body.len());
        let answer = match journal.append(batch) {
            Ok(()) => {
                metrics::appended(&timer, records, bytes);
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
