//! What a decided record does to the world, in line by seq: it leaves when the record is on disk, and not before.

use std::collections::VecDeque;
use std::sync::Arc;

use journeyman_core::{Attempt, End, Fault, Route, Seq, Ticket, Time};

use super::QueueActor;
use crate::admission::Room;
use crate::answers::{JobEnd, Receipt};
use crate::error::EnqueueError;
use crate::events;
use crate::feed::Happened;
use crate::messages::{Few, Reply, Units};

/// First in, first out. Seqs never fall from front to back.
#[derive(Default)]
pub(super) struct Effects(VecDeque<(Seq, Effect)>);

pub(super) enum Effect {
    Selected {
        ticket: Ticket,
        attempt: Attempt,
        route: Arc<Route>,
        unit: Units,
    },
    Completed {
        ticket: Ticket,
        attempt: Attempt,
        route: Arc<Route>,
        end: End,
        fault: Option<Fault>,
    },
    Requeued {
        ticket: Ticket,
        attempt: Attempt,
        route: Arc<Route>,
        due: Time,
        fault: Fault,
    },
    Deferred {
        ticket: Ticket,
        attempt: Attempt,
        route: Arc<Route>,
        due: Time,
    },
    Cancelled {
        ticket: Ticket,
        attempt: Option<Attempt>,
        route: Arc<Route>,
    },
    /// The answer to a call that stored jobs: the most frequent of all, so it needs no box.
    Stored {
        receipts: Few<Receipt>,
        /// The ways of those that are new, in their order, each with how many of them in a row go it.
        routes: Few<(Arc<Route>, u32)>,
        reply: Reply<Result<Few<Receipt>, EnqueueError>>,
        /// None when it has been given back, as it is before the answer is given.
        room: Option<Room>,
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

    /// Gives back the places of the calls whose jobs are on disk, all at once: each would cost as much as all of them.
    pub(super) fn give_rooms_back(&mut self, durable: Seq) {
        let mut all: Option<Room> = None;
        for (_, effect) in self.0.iter_mut().take_while(|(seq, _)| *seq <= durable) {
            if let Effect::Stored { room, .. } = effect
                && let Some(room) = room.take()
            {
                match &mut all {
                    Some(all) => all.join(room),
                    None => all = Some(room),
                }
            }
        }
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
    /// These are on disk, of which the new ones go these ways.
    fn stored(&mut self, receipts: &[Receipt], routes: &[(Arc<Route>, u32)]) {
        let mut new = receipts.iter().filter(|receipt| receipt.is_new());
        for (route, count) in routes {
            self.status.pending.add(u64::from(*count));
            self.meters.enqueued(&route.kind, *count);
            for receipt in new.by_ref().take(*count as usize) {
                let (ticket, seq) = (receipt.id().ticket(), receipt.seq());
                events::enqueued(ticket, &route.kind, route.target.as_ref(), seq);
                self.status.feed.tell_job(ticket, route, seq, Happened::Enqueued);
                self.away.stored(ticket);
                self.waits(ticket);
            }
        }
    }

    pub(super) fn perform(&mut self, seq: Seq, effect: Effect) {
        let status = &self.status;
        match effect {
            Effect::Selected { ticket, attempt, route, unit } => {
                status.pending.sub(1);
                status.running.add(1);
                events::selected(ticket, seq);
                status.feed.tell_job(ticket, &route, seq, Happened::Selected);
                self.beginning.push((ticket, attempt, unit));
            }
            Effect::Completed { ticket, attempt, route, end, fault } => {
                status.running.sub(1);
                status.ended(end).add(1);
                self.ended.push((ticket, attempt));
                events::completed(ticket, &route.kind, end, fault.as_ref(), seq);
                self.meters.ended(&route.kind, end);
                let cause = fault.as_ref().map(Fault::cause);
                status.feed.tell_job(ticket, &route, seq, Happened::Ended { end, cause });
                self.skews.forget(ticket);
                self.has_ended(ticket, JobEnd::of(end, fault));
            }
            Effect::Requeued { ticket, attempt, route, due, fault } => {
                status.running.sub(1);
                status.pending.add(1);
                self.ended.push((ticket, attempt));
                events::requeued(ticket, due, &fault, seq);
                self.meters.requeued(&route.kind);
                status.feed.tell_job(ticket, &route, seq, Happened::Requeued { cause: fault.cause() });
                self.waits(ticket);
            }
            Effect::Deferred { ticket, attempt, route, due } => {
                status.running.sub(1);
                status.pending.add(1);
                self.ended.push((ticket, attempt));
                events::deferred(ticket, due, seq);
                self.meters.deferred(&route.kind);
                status.feed.tell_job(ticket, &route, seq, Happened::Deferred);
                self.waits(ticket);
            }
            Effect::Cancelled { ticket, attempt, route } => {
                if attempt.is_some() { &status.running } else { &status.pending }.sub(1);
                status.cancelled.add(1);
                if let Some(attempt) = attempt {
                    self.ledger.cancel(ticket, attempt);
                }
                events::cancelled(ticket, attempt.is_some(), seq);
                self.meters.cancelled(&route.kind);
                status.feed.tell_job(ticket, &route, seq, Happened::Cancelled { was_running: attempt.is_some() });
                self.skews.forget(ticket);
                self.has_ended(ticket, JobEnd::Cancelled);
            }
            Effect::Stored { receipts, routes, reply, room } => {
                self.stored(&receipts, &routes);
                drop(room);
                reply.give(Ok(receipts));
            }
            Effect::Answer { answer, .. } => {
                self.forget_ended();
                answer();
            }
        }
    }
}
