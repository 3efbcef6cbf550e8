//! The end of an attempt: which record it calls for, and where its ticket goes then. An outcome that is stale changes nothing.

use actix::{Context, Handler};
use journeyman_core::queue::{Live, Phase};
use journeyman_core::retry::{Outcome, Plan};
use journeyman_core::schedule::{Entry, Gate, Hold, Wake};
use journeyman_core::{Attempt, Cause, End, Fault, Now, Op, Ticket, record};

use super::effects::Effect;
use super::{QueueActor, due_after, pending};
use crate::events;
use crate::ledger::Ended;
use crate::messages::{Finished, Freed, Over, Returns};

impl QueueActor {
    pub(super) fn settle_outcomes(&mut self, now: Now) {
        while self.writer.fits(record::LARGEST_END)
            && let Some((ticket, attempt, ended)) = self.outcomes.pop_front()
        {
            self.settle(now, ticket, attempt, ended);
        }
    }

    /// Turns an outcome into the record that it calls for. One that is stale changes nothing.
    fn settle(&mut self, now: Now, ticket: Ticket, attempt: Attempt, ended: Ended) {
        self.runs_no_more(ticket, attempt);
        let Some(live) = self.writer.queue().get(ticket).filter(|live| live.phase() == Phase::Running { attempt }) else {
            // Its ticket was cancelled, or selected again: the outcome is history, once that is on disk.
            let ledger = self.ledger.clone();
            return self.answer(move || ledger.forget(&[(ticket, attempt)]));
        };
        let cut_short = matches!(ended, Ended::NeverBegan | Ended::Ran { outcome: Outcome::Interrupted { .. }, .. });
        let (route, earlier, is_away) = (live.job.route().clone(), live.fault().cloned(), live.job.is_away());
        let (plan, fault) = self.plan(now, ticket, live, &ended);
        self.interrupted += u64::from(cut_short);
        match plan {
            Plan::Complete(end) => {
                // A ticket that ends without an attempt keeps what went wrong in the last one.
                let fault = fault.or_else(|| earlier.filter(|_| end != End::Done));
                let op = Op::Complete { ticket, attempt, end, fault: fault.clone() };
                let Some((seq, _)) = self.decide(now, op) else { return };
                if is_away {
                    self.away.forget(ticket);
                }
                self.effects.push(seq, Effect::Completed { ticket, attempt, route, end, fault });
            }
            Plan::Requeue { due } => {
                let fault = fault.unwrap_or_else(|| Fault::new(Cause::Failed, ""));
                let wait = self.wait_until(now, ticket, due);
                let due = due_after(now, wait);
                let Some((seq, _)) = self.decide(now, Op::Requeue { ticket, attempt, due, fault: fault.clone() }) else { return };
                self.skews.back_in_line(ticket, now);
                self.back_in_line(ticket, attempt, ended);
                self.effects.push(seq, Effect::Requeued { ticket, attempt, route, due, fault });
            }
            Plan::Defer { due } => {
                let wait = self.wait_until(now, ticket, due);
                let due = due_after(now, wait);
                let Some((seq, _)) = self.decide(now, Op::Defer { ticket, attempt, due }) else { return };
                self.skews.back_in_line(ticket, now);
                self.back_in_line(ticket, attempt, ended);
                self.effects.push(seq, Effect::Deferred { ticket, attempt, route, due });
            }
        }
    }

    /// What becomes of the ticket, in the ticket's own time, and what went wrong in this attempt.
    fn plan(&self, now: Now, ticket: Ticket, live: &Live, ended: &Ended) -> (Plan, Option<Fault>) {
        let policy = self.policy(live);
        let budget = policy.budget(live.failures(), live.start());
        let mine = self.time_of(now, ticket, live);
        let plan = |outcome| policy.plan(outcome, live.failures(), budget.charged(), mine, self.clock.random());
        match ended {
            Ended::Ran { outcome, fault } => (plan(*outcome), fault.clone()),
            Ended::Denied(end) => (Plan::Complete(*end), None),
            Ended::Open { until } => (budget.defer_until(mine + until.since(now.steady)), None),
            Ended::Unreadable { .. } => (Plan::Defer { due: mine }, None),
            Ended::NeverBegan => (plan(Outcome::Interrupted { begun: false }), None),
            Ended::Lost => {
                let fault = Fault::new(Cause::Crashed, "the worker was lost during the attempt");
                (plan(Outcome::Transient { retry_after: None }), Some(fault))
            }
            // At once, and whatever the budget: admission ends it when nothing is left.
            Ended::Crashed => (Plan::Requeue { due: mine }, Some(Fault::new(Cause::Crashed, "the process died during the attempt"))),
        }
    }

    /// Puts a ticket back in line, held where something holds it.
    fn back_in_line(&mut self, ticket: Ticket, attempt: Attempt, ended: Ended) {
        let Some(entry) = pending(self.writer.queue(), &self.skews, ticket) else { return };
        // A ticket that its breaker refused is due as it was before: its lane is held instead, and wakes with it.
        let refused = if let Ended::Open { until } = ended { Some(until) } else { None };
        let wake = if refused.is_some() { Wake::AtOnce } else { entry.wake };
        self.schedule.insert(Entry { wake, ..entry });
        if let (Some(until), Some(target)) = (refused, &entry.route.target) {
            self.schedule.set_gate(target, Gate::Held { until, probes: self.rules.circuit.probes_at_once() });
        }
        if let Ended::Unreadable { why } = ended {
            self.schedule.put_aside(entry, Hold::Unreadable);
            events::unreadable(ticket, &entry.route.kind, &why);
        }
        if self.ledger.is_occupied(ticket, attempt) {
            self.schedule.put_aside(entry, Hold::StillRunning);
        }
    }
}

impl QueueActor {
    /// Puts a ticket that was held for what still ran of it back in line. Had its end not been settled yet, it would not be held.
    fn bring_back(&mut self, ticket: Ticket) {
        if let Some(entry) = pending(self.writer.queue(), &self.skews, ticket)
            && self.schedule.hold(entry) == Some(Hold::StillRunning)
        {
            self.schedule.bring_back(entry);
        }
    }
}

impl Handler<Finished> for QueueActor {
    type Result = ();

    fn handle(&mut self, _: Finished, ctx: &mut Context<Self>) {
        if self.stage.is_over() {
            return;
        }
        for Over { ticket, attempt, unit, ended } in self.ledger.take_over(self.reign) {
            if let Returns::Now(units) = unit {
                self.take_units(units);
                self.bring_back(ticket);
            }
            self.pace.ended(attempt);
            // None that counts: settled before, or told of an attempt that runs on and will be told of again.
            self.outcomes.extend(ended.map(|ended| (ticket, attempt, ended)));
        }
        self.request_turn(ctx);
    }
}

impl Handler<Freed> for QueueActor {
    type Result = ();

    fn handle(&mut self, Freed { ticket, units }: Freed, ctx: &mut Context<Self>) {
        if self.stage.is_over() {
            return;
        }
        self.take_units(units);
        self.bring_back(ticket);
        self.request_turn(ctx);
    }
}
