//! Which ticket sets out next: one unit of the pool for each, and its breaker's leave once its Select is on disk.

use std::mem;

#[cfg(feature = "testing")]
use actix::Message;
use actix::{Context, Handler, Recipient};
use journeyman_core::breaker::Position;
use journeyman_core::queue::{Change, Live};
use journeyman_core::schedule::Gate;
use journeyman_core::{Attempt, Now, Op, Policy, Span, Target, Ticket, Time};

use super::effects::Effect;
use super::{QueueActor, SMALL_RECORD, pending};
use crate::config;
use crate::feed::Event;
use crate::ledger::Ended;
use crate::messages::{Admitted, BreakerMoved, Flight, Granted, Selected, Units, Want};

/// A target with a breaker.
pub(super) struct Known {
    breaker: Recipient<Selected>,
    used: Time,
    pub(super) position: Position,
    pub(super) openings: u64,
}

impl QueueActor {
    /// Takes the least runnable tickets, one for each unit, and asks the pool for as many units as are wanted. Which is the least
    /// is known when all that is due has been made ready: where that is too much for one turn, the next ones go on with it.
    pub(super) fn select(&mut self, now: Now) {
        let wall_limit = self.wall.limit(now, self.rules.limits.catch_up);
        let find = |ticket| pending(self.writer.queue(), &self.skews, ticket);
        if !self.schedule.promote_some(now, config::MADE_READY_AT_ONCE, wall_limit, find) {
            return;
        }
        if self.schedule.next_wake().1.is_none_or(|at| at > now.wall) {
            self.wall.caught_up();
        }
        if self.stage.is_quiet() || !self.outcomes.is_empty() {
            return;
        }
        while let Some(ticket) = self.schedule.least()
            && self.writer.fits(SMALL_RECORD)
            && self.has_room_for_an_attempt()
            && let Some(unit) = self.spare.as_mut().and_then(|spare| spare.split(1))
        {
            let Some((seq, Change::Selected(attempt))) = self.decide(now, Op::Select { ticket }) else { return };
            let taken = self.schedule.take_least();
            debug_assert_eq!(taken, Some(ticket), "nothing came between");
            let Some(live) = self.writer.queue().get(ticket) else { return };
            let route = live.job.route().clone();
            if live.job.is_away() {
                self.away.want(ticket, attempt, &live.job);
            }
            if let Some(target) = &route.target {
                self.watched.insert(ticket, (attempt, Some(target.clone())));
            }
            self.effects.push(seq, Effect::Selected { ticket, attempt, route, unit });
        }
        self.away.ask(now, &self.links.payloads);
        self.wants_room |= self.schedule.least().is_some() && !self.has_room_for_an_attempt();
        self.balance_units();
    }

    fn balance_units(&mut self) {
        let spare = self.spare.as_ref().map_or(0, Units::count);
        let runnable = u32::try_from(self.schedule.runnable()).unwrap_or(u32::MAX);
        let wanted = runnable.min(self.rules.limits.capacity).saturating_sub(spare + self.asked);
        if wanted > 0 {
            self.asked += wanted;
            self.links.pool.do_send(Want(wanted));
        }
        let excess = spare.saturating_sub(runnable.max(config::SPARE_UNITS));
        if let Some(units) = self.spare.as_mut()
            && excess > 0
        {
            drop(units.split(excess));
        }
    }

    pub(super) fn take_units(&mut self, units: Option<Units>) {
        match (&mut self.spare, units) {
            (Some(spare), Some(units)) => spare.join(units),
            (spare @ None, units) => *spare = units,
            (Some(_), None) => {}
        }
    }

    /// Their Selects are durable: the attempts set out. But for those whose tickets were cancelled meanwhile: they never began.
    pub(super) fn begin(&mut self, now: Now) {
        if self.beginning.is_empty() {
            return;
        }
        let mut all = mem::take(&mut self.beginning);
        let queue = self.writer.queue();
        let cancelled: Vec<_> = all.extract_if(.., |(ticket, attempt, _)| !queue.is_run_by(*ticket, *attempt)).collect();
        for (ticket, attempt, unit) in cancelled {
            self.runs_no_more(ticket, attempt);
            self.away.give_up(ticket, attempt);
            self.take_units(Some(unit));
        }
        let names: Vec<_> = all.iter().map(|(ticket, attempt, _)| (*ticket, *attempt)).collect();
        // Unless another queue is in office, and decides what becomes of them.
        if self.ledger.begin(self.reign, all) {
            if let Some((_, first)) = names.first() {
                self.pace.begin(*first, names.len(), &self.clock);
            }
            names.into_iter().for_each(|(ticket, attempt)| self.start(now, ticket, attempt));
        }
    }

    fn start(&mut self, now: Now, ticket: Ticket, attempt: Attempt) {
        let Some(live) = self.writer.queue().get(ticket) else { return };
        let policy = self.policy(live);
        let (number, timeout) = (live.failures().saturating_add(1), policy.attempt_timeout());
        let flight = Flight::new((ticket, attempt), number, live.job.clone(), timeout, self.ledger.clone());
        let ready = if !live.job.is_away() {
            Some(flight)
        } else if self.stage.is_cutting_off() {
            // It needs none.
            self.away.give_up(ticket, attempt);
            Some(flight)
        } else {
            self.away.begin(flight)
        };
        let Some(flight) = ready else { return };
        let (selected, target) = (self.selected(now, live, policy, flight), live.job.target().cloned());
        self.set_out(now, selected, target);
    }

    /// With what is left to it now.
    pub(super) fn selected(&self, now: Now, live: &Live, policy: Policy, flight: Flight) -> Selected {
        let (budget, now) = (policy.budget(live.failures(), live.start()), self.time_of(now, flight.ticket, live));
        Selected { flight, budget, now }
    }

    pub(super) fn set_out(&mut self, now: Now, selected: Selected, target: Option<Target>) {
        match target {
            _ if self.stage.is_cutting_off() => selected.flight.finish(Ended::NeverBegan),
            Some(target) => self.breaker(now, &target).do_send(selected),
            None => match selected.budget.admit(selected.now) {
                Ok(()) => self.starts.push(Admitted { flight: selected.flight, leave: None }),
                Err(end) => selected.flight.finish(Ended::Denied(end)),
            },
        }
    }

    fn breaker(&mut self, now: Now, target: &Target) -> &Recipient<Selected> {
        let known = self.targets.entry(target.clone()).or_insert_with(|| Known {
            breaker: (self.links.breakers)(target),
            used: now.steady,
            position: Position::Closed,
            openings: 0,
        });
        known.used = now.steady;
        &known.breaker
    }

    /// A breaker that nobody asked for long is safe to forget: closed, its failures are older than its window; else the next
    /// job finds out for itself. Not while jobs of its target wait or run.
    fn idle_breakers(&self, now: Now) -> Vec<Target> {
        let circuit = &self.rules.circuit;
        let idle = Span::from(self.rules.limits.breaker_idle).max(circuit.failure_window()).max(circuit.cooldown_span());
        let is_idle = |target: &Target, known: &Known| {
            now.steady.since(known.used) >= idle
                && !self.schedule.has_tickets_of(target)
                && !self.watched.values().any(|(_, running)| running.as_ref() == Some(target))
        };
        self.targets.iter().filter(|(target, known)| is_idle(target, known)).map(|(target, _)| target.clone()).collect()
    }

    pub(super) fn sweep_breakers(&mut self, now: Now) {
        if now.steady.since(self.swept) < Span(Span::from(self.rules.limits.breaker_idle).0 / 2) {
            return;
        }
        self.swept = now.steady;
        for target in self.idle_breakers(now) {
            self.targets.remove(&target);
            self.schedule.set_gate(&target, Gate::Open);
        }
    }
}

impl Handler<Granted> for QueueActor {
    type Result = ();

    fn handle(&mut self, Granted(units): Granted, ctx: &mut Context<Self>) {
        self.asked = self.asked.saturating_sub(units.count());
        if !self.stage.is_over() {
            self.take_units(Some(units));
            self.request_turn(ctx);
        }
    }
}

impl Handler<BreakerMoved> for QueueActor {
    type Result = ();

    fn handle(&mut self, BreakerMoved { target, position, openings }: BreakerMoved, ctx: &mut Context<Self>) {
        let probes = self.rules.circuit.probes_at_once();
        let gate = match position {
            Position::Closed => Gate::Open,
            Position::Open { until } => Gate::Held { until, probes },
            Position::HalfOpen => Gate::Probing { probes },
        };
        self.schedule.set_gate(&target, gate);
        if let Some(known) = self.targets.get_mut(&target) {
            if known.position != position {
                let state = position.into();
                self.status.feed.tell(|| Event::Breaker { target: target.clone(), state, openings });
            }
            known.position = position;
            known.openings = openings;
        }
        self.request_turn(ctx);
    }
}

/// How many units the queue keeps for the next attempts; for tests.
#[cfg(feature = "testing")]
#[derive(Message)]
#[rtype(result = "u32")]
pub(crate) struct Spare;

#[cfg(feature = "testing")]
impl Handler<Spare> for QueueActor {
    type Result = u32;

    fn handle(&mut self, _: Spare, _: &mut Context<Self>) -> u32 {
        self.spare.as_ref().map_or(0, Units::count)
    }
}

/// Something that keeps the queue from its work; for tests.
#[cfg(feature = "testing")]
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Stall(pub Box<dyn FnOnce() + Send>);

#[cfg(feature = "testing")]
impl Handler<Stall> for QueueActor {
    type Result = ();

    fn handle(&mut self, Stall(section): Stall, _: &mut Context<Self>) {
        section();
    }
}
