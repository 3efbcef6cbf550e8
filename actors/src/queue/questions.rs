//! What the queue tells without changing anything. An answer that reveals a decided fact waits for its record like any other.

use actix::{Context, Handler};
use journeyman_core::breaker::Position;
use journeyman_core::queue::Live;
use journeyman_core::schedule::Gate;
use journeyman_core::{Now, Target, Ticket, Time};

use super::selection::Known;
use super::{QueueActor, pending};
use crate::admission::Room;
use crate::answers::{BreakerState, Found, JobEnd, JobInfo, TargetInfo};
use crate::error::IdleError;
use crate::listing::Page;
use crate::messages::{Get, List, Reply, Targets, UntilIdle};
use crate::status::Concern;
use crate::{config, events, metrics};

/// Someone who waits until nothing is pending or running.
pub(super) struct WaitingForIdle {
    pub(super) until: Time,
    pub(super) reply: Reply<Result<(), IdleError>>,
    _room: Room,
}

impl QueueActor {
    pub(super) fn answer_idle(&mut self, now: Now) {
        if self.waiting_for_idle.is_empty() {
            return;
        }
        let (pending, running) = (self.status.pending.get(), self.status.running.get());
        let idle = pending + running == 0 && self.writer.is_settled() && self.effects.is_empty() && self.intake.is_empty();
        for waiting in std::mem::take(&mut self.waiting_for_idle) {
            if idle {
                waiting.reply.give(Ok(()));
            } else if waiting.until <= now.steady {
                waiting.reply.give(Err(IdleError::WorkLeft { pending, running }));
            } else if waiting.reply.is_wanted() {
                self.waiting_for_idle.push(waiting);
            }
        }
    }

    pub(super) fn set_gauges(&self) {
        self.status.held.set(self.schedule.held() as u64);
        let queue = self.writer.queue();
        self.status.live_bytes.set(queue.live_bytes());
        self.status.payload_memory.set(queue.weight_in_memory());
        self.status.payload_disk.set(queue.weight() - queue.weight_in_memory());
        let (bytes, limit) = (self.status.journal_bytes(), self.rules.limits.journal_bytes);
        let nearly_full = self.journal_room(self.rules.limits.capacity) < limit / config::NEARLY_FULL;
        let concern = nearly_full.then(|| format!("the journal holds {bytes} of at most {limit} bytes; soon no new work is accepted"));
        if self.status.concern(Concern::JournalNearlyFull, concern) {
            events::journal_nearly_full(bytes, limit);
        }
        metrics::level(self.status.pending.get(), self.status.running.get(), self.status.held.get(), bytes);
        metrics::payloads(self.status.payload_memory.get(), self.status.payload_disk.get());
    }

    fn info(&self, ticket: Ticket, live: &Live) -> JobInfo {
        let place = pending(self.writer.queue(), &self.skews, ticket);
        JobInfo::of(ticket, live, place.and_then(|entry| self.schedule.hold(entry)))
    }

    fn target_info(&self, target: &Target, known: &Known) -> TargetInfo {
        let breaker = match (known.position, self.schedule.gate(target)) {
            (Position::Closed, _) => BreakerState::Closed,
            // Its time has come, and the first probe is still on its way.
            (Position::HalfOpen, _) | (_, Gate::Probing { .. }) => BreakerState::HalfOpen,
            (Position::Open { .. }, _) => BreakerState::Open,
        };
        TargetInfo { target: target.clone(), breaker, openings: known.openings, held: self.schedule.held_of(target) as u64 }
    }
}

impl Handler<Get> for QueueActor {
    type Result = ();

    fn handle(&mut self, Get { ticket, room, reply }: Get, ctx: &mut Context<Self>) {
        if !reply.is_wanted() {
            return;
        }
        if let Some(why) = self.stage.silence() {
            return self.refuse(reply, room, why);
        }
        let queue = self.writer.queue();
        let info = queue.get(ticket).map(|live| self.info(ticket, live));
        let was_issued = queue.was_issued(ticket);
        let status = self.status.clone();
        self.answer(move || {
            // An end is looked up when everything before this is on disk, the end included.
            let gone = || if was_issued { status.recent.end_of(ticket) } else { JobEnd::NotFound };
            drop(room);
            reply.give(Ok(info.map_or_else(|| Found::Gone(gone()), Found::Live)));
        });
        self.request_turn(ctx);
    }
}

impl Handler<List> for QueueActor {
    type Result = ();

    fn handle(&mut self, List { query, room, reply }: List, ctx: &mut Context<Self>) {
        if !reply.is_wanted() {
            return;
        }
        if let Some(why) = self.stage.silence() {
            return self.refuse(reply, room, why);
        }
        let page = Page::of(&query, self.writer.queue().tickets_from(query.first()), |ticket, live| self.info(ticket, live));
        self.answer(move || {
            drop(room);
            reply.give(Ok(page));
        });
        self.request_turn(ctx);
    }
}

impl Handler<Targets> for QueueActor {
    type Result = ();

    fn handle(&mut self, Targets { room, reply }: Targets, ctx: &mut Context<Self>) {
        if !reply.is_wanted() {
            return;
        }
        if let Some(why) = self.stage.silence() {
            return self.refuse(reply, room, why);
        }
        let mut targets: Vec<TargetInfo> = self.targets.iter().map(|(target, known)| self.target_info(target, known)).collect();
        targets.sort_by(|one, other| one.target.cmp(&other.target));
        self.answer(move || {
            drop(room);
            reply.give(Ok(targets));
        });
        self.request_turn(ctx);
    }
}

impl Handler<UntilIdle> for QueueActor {
    type Result = ();

    fn handle(&mut self, UntilIdle { patience, room, reply }: UntilIdle, ctx: &mut Context<Self>) {
        if !reply.is_wanted() {
            return;
        }
        if let Some(why) = self.stage.silence() {
            return self.refuse(reply, room, why);
        }
        // What was called for before is no idleness.
        self.take_calls(ctx);
        self.waiting_for_idle.push(WaitingForIdle { until: self.clock.now().steady + patience, reply, _room: room });
        self.request_turn(ctx);
    }
}

/// The jobs that wait, in the order of their tickets; for tests.
#[cfg(feature = "testing")]
#[derive(actix::Message)]
#[rtype(result = "Vec<(Ticket, journeyman_core::Packed)>")]
pub(crate) struct Waiting;

#[cfg(feature = "testing")]
impl Handler<Waiting> for QueueActor {
    type Result = actix::MessageResult<Waiting>;

    fn handle(&mut self, _: Waiting, _: &mut Context<Self>) -> Self::Result {
        let waiting = self.writer.queue().tickets().filter(|(_, live)| !live.is_running());
        actix::MessageResult(waiting.map(|(ticket, live)| (ticket, live.job.clone())).collect())
    }
}
