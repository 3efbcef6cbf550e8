//! What a decided record does to the world, in line by seq: it leaves when the record is on disk, and not before.

use std::collections::VecDeque;
use std::sync::Arc;

use journeyman_core::{Attempt, End, Fault, Job, Kind, Now, Seq, Ticket, Time};

use super::QueueActor;
use crate::answers::JobEnd;
use crate::events;
use crate::messages::Units;

/// First in, first out. Seqs never fall from front to back.
#[derive(Default)]
pub(super) struct Effects(VecDeque<(Seq, Effect)>);

pub(super) enum Effect {
    Enqueued { ticket: Ticket, job: Arc<Job> },
    Selected { ticket: Ticket, attempt: Attempt, unit: Units },
    Completed { ticket: Ticket, attempt: Attempt, kind: Kind, end: End, fault: Option<Fault> },
    Requeued { ticket: Ticket, attempt: Attempt, due: Time, fault: Fault },
    Deferred { ticket: Ticket, attempt: Attempt, due: Time },
    Cancelled { ticket: Ticket, attempt: Option<Attempt> },
    Answer(Box<dyn FnOnce()>),
}

impl Effects {
    pub(super) fn push(&mut self, seq: Seq, effect: Effect) {
        self.0.push_back((seq, effect));
    }

    /// The next one, when its record is on disk.
    pub(super) fn pop(&mut self, durable: Seq) -> Option<(Seq, Effect)> {
        self.0.front().filter(|(seq, _)| *seq <= durable)?;
        self.0.pop_front()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

impl QueueActor {
    pub(super) fn perform(&mut self, now: Now, seq: Seq, effect: Effect) {
        let status = &self.status;
        match effect {
            Effect::Enqueued { ticket, job } => {
                status.pending.add(1);
                events::enqueued(ticket, &job.kind, job.target.as_ref(), seq);
            }
            Effect::Selected { ticket, attempt, unit } => {
                status.pending.sub(1);
                status.running.add(1);
                events::selected(ticket, seq);
                self.start(now, ticket, attempt, unit);
            }
            Effect::Completed { ticket, attempt, kind, end, fault } => {
                status.running.sub(1);
                status.ended(end).add(1);
                self.ledger.forget(ticket, attempt);
                events::completed(ticket, &kind, end, fault.as_ref(), seq);
                self.has_ended(ticket, JobEnd::of(end, fault));
            }
            Effect::Requeued { ticket, attempt, due, fault } => {
                status.running.sub(1);
                status.pending.add(1);
                self.ledger.forget(ticket, attempt);
                events::requeued(ticket, due, &fault, seq);
            }
            Effect::Deferred { ticket, attempt, due } => {
                status.running.sub(1);
                status.pending.add(1);
                self.ledger.forget(ticket, attempt);
                events::deferred(ticket, due, seq);
            }
            Effect::Cancelled { ticket, attempt } => {
                if attempt.is_some() { &status.running } else { &status.pending }.sub(1);
                status.cancelled.add(1);
                if let Some(attempt) = attempt {
                    self.ledger.cancel(ticket, attempt);
                }
                events::cancelled(ticket, attempt.is_some(), seq);
                self.has_ended(ticket, JobEnd::Cancelled);
            }
            Effect::Answer(answer) => answer(),
        }
    }
}
