//! What a decided record does to the world, in line by seq: it leaves when the record is on disk, and not before.

use std::collections::VecDeque;
use std::sync::Arc;

use journeyman_core::{Attempt, End, Fault, Job, Now, Seq, Ticket, Time};

use super::QueueActor;
use crate::admission::Room;
use crate::answers::{JobEnd, Receipt};
use crate::error::EnqueueError;
use crate::events;
use crate::feed::Happened;
use crate::messages::{Reply, Units};

/// First in, first out. Seqs never fall from front to back.
#[derive(Default)]
pub(super) struct Effects(VecDeque<(Seq, Effect)>);

pub(super) enum Effect {
    Enqueued {
        ticket: Ticket,
        job: Arc<Job>,
    },
    Selected {
        ticket: Ticket,
        attempt: Attempt,
        job: Arc<Job>,
        unit: Units,
    },
    Completed {
        ticket: Ticket,
        attempt: Attempt,
        job: Arc<Job>,
        end: End,
        fault: Option<Fault>,
    },
    Requeued {
        ticket: Ticket,
        attempt: Attempt,
        job: Arc<Job>,
        due: Time,
        fault: Fault,
    },
    Deferred {
        ticket: Ticket,
        attempt: Attempt,
        job: Arc<Job>,
        due: Time,
    },
    Cancelled {
        ticket: Ticket,
        attempt: Option<Attempt>,
        job: Arc<Job>,
    },
    /// The answer to a call that stored jobs: the most frequent of all, so it needs no box.
    Stored {
        receipts: Vec<Receipt>,
        reply: Reply<Result<Vec<Receipt>, EnqueueError>>,
        room: Room,
    },
    Answer {
        answer: Box<dyn FnOnce()>,
        /// Whether it is that of a call that was taken in: its caller may have the next one at hand.
        is_of_a_call: bool,
    },
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

    /// Gives up what was not released, and tells the ends among it: their records may be on disk.
    pub(super) fn abandon(&mut self, mut left: impl FnMut(Seq, Ticket, JobEnd)) {
        for (seq, effect) in self.0.drain(..) {
            match effect {
                Effect::Completed { ticket, end, fault, .. } => left(seq, ticket, JobEnd::of(end, fault)),
                Effect::Cancelled { ticket, .. } => left(seq, ticket, JobEnd::Cancelled),
                // Dropped unanswered, an answer says that it was lost; a unit goes home.
                _ => {}
            }
        }
    }
}

impl Effect {
    /// Whether it is the answer to a call that was taken in.
    pub(super) const fn answers_a_call(&self) -> bool {
        matches!(self, Self::Stored { .. } | Self::Answer { is_of_a_call: true, .. })
    }
}

impl QueueActor {
    pub(super) fn perform(&mut self, now: Now, seq: Seq, effect: Effect) {
        let status = &self.status;
        match effect {
            Effect::Enqueued { ticket, job } => {
                status.pending.add(1);
                events::enqueued(ticket, &job.kind, job.target.as_ref(), seq);
                self.meters.enqueued(&job.kind);
                status.feed.tell_job(ticket, &job, seq, Happened::Enqueued);
            }
            Effect::Selected { ticket, attempt, job, unit } => {
                status.pending.sub(1);
                status.running.add(1);
                events::selected(ticket, seq);
                status.feed.tell_job(ticket, &job, seq, Happened::Selected);
                self.start(now, ticket, attempt, unit);
            }
            Effect::Completed { ticket, attempt, job, end, fault } => {
                status.running.sub(1);
                status.ended(end).add(1);
                self.ledger.forget(ticket, attempt);
                events::completed(ticket, &job.kind, end, fault.as_ref(), seq);
                self.meters.ended(&job.kind, end);
                let cause = fault.as_ref().map(Fault::cause);
                status.feed.tell_job(ticket, &job, seq, Happened::Ended { end, cause });
                self.skews.forget(ticket);
                self.has_ended(ticket, JobEnd::of(end, fault));
            }
            Effect::Requeued { ticket, attempt, job, due, fault } => {
                status.running.sub(1);
                status.pending.add(1);
                self.ledger.forget(ticket, attempt);
                events::requeued(ticket, due, &fault, seq);
                self.meters.requeued(&job.kind);
                status.feed.tell_job(ticket, &job, seq, Happened::Requeued { cause: fault.cause() });
            }
            Effect::Deferred { ticket, attempt, job, due } => {
                status.running.sub(1);
                status.pending.add(1);
                self.ledger.forget(ticket, attempt);
                events::deferred(ticket, due, seq);
                self.meters.deferred(&job.kind);
                status.feed.tell_job(ticket, &job, seq, Happened::Deferred);
            }
            Effect::Cancelled { ticket, attempt, job } => {
                if attempt.is_some() { &status.running } else { &status.pending }.sub(1);
                status.cancelled.add(1);
                if let Some(attempt) = attempt {
                    self.ledger.cancel(ticket, attempt);
                }
                events::cancelled(ticket, attempt.is_some(), seq);
                self.meters.cancelled(&job.kind);
                status.feed.tell_job(ticket, &job, seq, Happened::Cancelled { was_running: attempt.is_some() });
                self.skews.forget(ticket);
                self.has_ended(ticket, JobEnd::Cancelled);
            }
            Effect::Stored { receipts, reply, room } => {
                drop(room);
                reply.give(Ok(receipts));
            }
            Effect::Answer { answer, .. } => answer(),
        }
    }
}
