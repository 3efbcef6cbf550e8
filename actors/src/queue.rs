//! QueueActor: owns the state and turns messages into records. A handler only notes what came; one turn then decides as
//! much as the open batch holds, outcomes first, and hands the batch to the journal. What others may see of it leaves in
//! line, by seq, when the journal says that it is durable. It never waits for another actor.

mod drain;
mod effects;
mod holds;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use actix::{Actor, AsyncContext, Context, Handler, Message, Recipient, SpawnHandle, WrapFuture};
use journeyman_core::breaker::{Circuit, Position};
use journeyman_core::queue::{Change, Live, Phase};
use journeyman_core::retry::{Outcome, Plan};
use journeyman_core::schedule::{Entry, Gate, Hold, Schedule, Wake};
use journeyman_core::{Attempt, Cause, End, Fault, JobId, Kind, Now, Op, Policy, Record, Span, Target, Ticket, Time, record};
use tokio::sync::watch;

use crate::clock::Clock;
use crate::config::{self, Limits};
use crate::error::{CallError, EnqueueError};
use crate::events;
use crate::jobs::{BreakerState, Cancelled, JobInfo, JobState, Receipt, TargetInfo};
use crate::ledger::{Ended, Ledger};
use crate::messages::{
    Appended, BreakerMoved, Cancel, Due, Enqueue, Finished, Freed, Get, Granted, Halt, Later, NewJob, Returns, Selected, Targets, Units,
    UntilIdle, Want,
};
use crate::registry::Policies;
use crate::runner::ShutdownReport;
use crate::status::Status;
use crate::worker::Workers;
use crate::writer::Writer;
use drain::Stage;
use effects::{Effect, Effects};
use holds::Asides;

/// What the wiring gives the queue: everything it talks to, as messages only.
pub(crate) struct Links {
    pub pool: Recipient<Want>,
    pub workers: Workers,
    /// Starts the breaker of a target.
    pub breakers: Box<dyn Fn(&Target) -> Recipient<Selected>>,
    pub finished: Recipient<Finished>,
    pub freed: Recipient<Freed>,
    pub draining: watch::Sender<bool>,
}

/// What the queue goes by.
pub(crate) struct Rules {
    pub limits: Limits,
    pub policies: Arc<Policies>,
    pub circuit: Circuit,
}

pub(crate) struct QueueActor {
    writer: Writer,
    schedule: Schedule,
    effects: Effects,
    intake: VecDeque<Intake>,
    outcomes: VecDeque<(Ticket, Attempt)>,
    /// Selected and not yet settled; its target, to tell the schedule.
    running: HashMap<Ticket, (Attempt, Option<Target>)>,
    asides: Asides,
    /// How far the wall clock was ahead of the steady one when a ticket got its start; only where it was not level.
    skews: HashMap<Ticket, i64>,
    spare: Option<Units>,
    /// Units that the pool was asked for and has not given yet.
    asked: u32,
    targets: HashMap<Target, Known>,
    swept: Time,
    waiting_for_idle: Vec<(Time, Later<Result<(), crate::error::IdleError>>)>,
    stage: Stage,
    /// Who waits for the end of the drain.
    drained: Vec<Later<ShutdownReport>>,
    /// Attempts that the stop cut short.
    interrupted: u64,
    wall: WallWatch,
    turn_is_due: bool,
    timer: Option<(Time, SpawnHandle)>,
    links: Links,
    rules: Rules,
    ledger: Ledger,
    status: Arc<Status>,
    clock: Clock,
}

/// A call that waits for its turn.
enum Intake {
    Enqueue(Enqueue, Later<Result<Vec<Receipt>, EnqueueError>>),
    Cancel(Cancel, Later<Result<Cancelled, CallError>>),
}

/// A target with a breaker.
struct Known {
    breaker: Recipient<Selected>,
    used: Time,
    position: Position,
    openings: u64,
}

impl QueueActor {
    pub(crate) fn new(writer: Writer, links: Links, rules: Rules, ledger: Ledger, status: Arc<Status>, clock: Clock) -> Self {
        let now = clock.now();
        let mut actor = Self {
            writer,
            schedule: Schedule::new(rules.policies.keys().cloned()),
            effects: Effects::default(),
            intake: VecDeque::new(),
            outcomes: VecDeque::new(),
            running: HashMap::new(),
            asides: Asides::default(),
            skews: HashMap::new(),
            spare: None,
            asked: 0,
            targets: HashMap::new(),
            swept: now.steady,
            waiting_for_idle: Vec::new(),
            stage: Stage::Open,
            drained: Vec::new(),
            interrupted: 0,
            wall: WallWatch::new(now),
            turn_is_due: false,
            timer: None,
            links,
            rules,
            ledger,
            status,
            clock,
        };
        actor.take_over();
        actor
    }

    /// Makes the index of what is on disk. Tickets that were running when the last process died are orphans: their
    /// attempts are settled as crashed before anything is selected.
    fn take_over(&mut self) {
        let mut unknown: HashMap<Kind, usize> = HashMap::new();
        let tickets: Vec<Ticket> = self.writer.queue().tickets().map(|(ticket, _)| ticket).collect();
        for ticket in tickets {
            let Some(live) = self.writer.queue().get(ticket) else { continue };
            if !self.schedule.knows_kind(&live.job.kind) {
                *unknown.entry(live.job.kind.clone()).or_default() += 1;
            }
            match live.phase {
                Phase::Pending { due } => self.schedule.insert(entry(ticket, live, first_wake(live, due))),
                Phase::Running { attempt } => {
                    self.running.insert(ticket, (attempt, live.job.target.clone()));
                    self.ledger.begin(ticket, attempt);
                    self.ledger.end(ticket, attempt, Ended::Crashed);
                    self.outcomes.push_back((ticket, attempt));
                }
            }
        }
        for (kind, tickets) in unknown {
            events::unknown_kinds(&kind, tickets);
        }
        if !self.outcomes.is_empty() {
            events::orphans(self.outcomes.len());
        }
    }

    /// Decides as much as the batch holds, and hands it over.
    fn turn(&mut self, ctx: &mut Context<Self>) {
        self.turn_is_due = false;
        let now = self.clock.now();
        if self.stage.is_over() {
            return;
        }
        self.settle_outcomes(now);
        self.take_in(now);
        self.select(now);
        self.advance_drain(now);
        self.writer.flush(now);
        self.release(now);
        self.watch_journal(now);
        self.sweep_breakers(now);
        self.answer_idle(now);
        self.set_gauges();
        self.set_timer(now, ctx);
    }

    fn request_turn(&mut self, ctx: &mut Context<Self>) {
        self.clock.stir();
        if !self.turn_is_due {
            self.turn_is_due = true;
            ctx.notify(Turn);
        }
    }

    // ---- outcomes

    fn settle_outcomes(&mut self, now: Now) {
        while self.writer.fits(record::LARGEST_END)
            && let Some((ticket, attempt)) = self.outcomes.pop_front()
        {
            self.settle(now, ticket, attempt);
        }
    }

    /// Turns an outcome into the record that it calls for. One that is stale changes nothing.
    fn settle(&mut self, now: Now, ticket: Ticket, attempt: Attempt) {
        if let Some((_, target)) = self.running.get(&ticket).filter(|(running, _)| *running == attempt) {
            if let Some(target) = target.clone() {
                self.schedule.settled(ticket, &target);
            }
            self.running.remove(&ticket);
        }
        let Some(ended) = self.ledger.ended(ticket, attempt) else { return };
        let Some(live) = self.writer.queue().get(ticket).filter(|live| live.phase == Phase::Running { attempt }) else {
            // Its ticket was cancelled, or selected again: the outcome is history.
            self.ledger.forget(ticket, attempt);
            return;
        };
        let cut_short = matches!(ended, Ended::NeverBegan | Ended::Ran { outcome: Outcome::Interrupted { .. }, .. });
        let (kind, earlier) = (live.job.kind.clone(), live.fault.clone());
        let (plan, fault) = self.plan(now, ticket, live, ended);
        self.interrupted += u64::from(cut_short);
        match plan {
            Plan::Complete(end) => {
                // A ticket that ends without an attempt keeps what went wrong in the last one.
                let fault = fault.or_else(|| earlier.filter(|_| end != End::Done));
                let op = Op::Complete { ticket, attempt, end, fault: fault.clone() };
                let Some((seq, _)) = self.decide(now, op) else { return };
                self.skews.remove(&ticket);
                self.effects.push(seq, Effect::Completed { ticket, attempt, kind, end, fault });
            }
            Plan::Requeue { due } => {
                let fault = fault.unwrap_or_else(|| Fault::new(Cause::Failed, ""));
                let wait = self.wait_until(now, ticket, due);
                let due = now.wall + wait;
                let Some((seq, _)) = self.decide(now, Op::Requeue { ticket, attempt, due, fault: fault.clone() }) else { return };
                self.back_in_line(ticket, attempt, Wake::Steady(now.steady + wait));
                self.effects.push(seq, Effect::Requeued { ticket, attempt, due, fault });
            }
            Plan::Defer { due } => {
                let wait = self.wait_until(now, ticket, due);
                let due = now.wall + wait;
                let Some((seq, _)) = self.decide(now, Op::Defer { ticket, attempt, due }) else { return };
                self.back_in_line(ticket, attempt, Wake::Steady(now.steady + wait));
                self.effects.push(seq, Effect::Deferred { ticket, attempt, due });
            }
        }
    }

    /// What becomes of the ticket, in the ticket's own time, and what went wrong in this attempt.
    fn plan(&self, now: Now, ticket: Ticket, live: &Live, ended: Ended) -> (Plan, Option<Fault>) {
        let policy = self.policy(live);
        let budget = policy.budget(live.failures, live.start);
        let mine = self.time_of(now, ticket, live);
        let plan = |outcome| policy.plan(outcome, live.failures, budget.charged(), mine, self.clock.random());
        match ended {
            Ended::Ran { outcome, fault } => (plan(outcome), fault),
            Ended::Denied(end) => (Plan::Complete(end), None),
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
    fn back_in_line(&mut self, ticket: Ticket, attempt: Attempt, wake: Wake) {
        let ended = self.ledger.ended(ticket, attempt);
        let Some(live) = self.writer.queue().get(ticket) else { return };
        let (kind, target) = (live.job.kind.clone(), live.job.target.clone());
        // A ticket that its breaker refused is due as it was before: its lane is held instead, and wakes with it.
        let refused = match ended {
            Some(Ended::Open { until }) => Some(until),
            _ => None,
        };
        let wake = if refused.is_some() { Wake::Steady(Time(0)) } else { wake };
        self.schedule.insert(entry(ticket, live, wake));
        if let (Some(until), Some(target)) = (refused, target) {
            self.schedule.set_gate(&target, Gate::Held { until, probes: self.rules.circuit.probes_at_once() });
        }
        if let Some(Ended::Unreadable { why }) = ended {
            self.schedule.put_aside(ticket, Hold::Unreadable);
            events::unreadable(ticket, &kind, &why);
        }
        if self.asides.lingers(ticket, attempt) {
            self.schedule.put_aside(ticket, Hold::StillRunning);
        }
    }

    // ---- intake

    fn take_in(&mut self, now: Now) {
        while let Some(call) = self.intake.pop_front() {
            let bytes = match &call {
                Intake::Enqueue(enqueue, _) => enqueue.jobs.iter().map(|job| job.bytes).sum(),
                Intake::Cancel(..) => SMALL_RECORD,
            };
            if !self.writer.fits(bytes) {
                self.intake.push_front(call);
                return;
            }
            match call {
                Intake::Enqueue(enqueue, reply) => self.enqueue(now, enqueue, bytes, reply),
                Intake::Cancel(cancel, reply) => self.cancel(now, cancel, reply),
            }
        }
    }

    fn enqueue(&mut self, now: Now, Enqueue { jobs, room }: Enqueue, bytes: u64, reply: Later<Result<Vec<Receipt>, EnqueueError>>) {
        if let Some(full) = self.what_is_full(&jobs, bytes) {
            // Refusals reveal decided facts too: they wait like every answer.
            return self.answer(move || reply.give(Err(EnqueueError::Full(full))));
        }
        let mut receipts = Vec::with_capacity(jobs.len());
        for NewJob { job, key, due, .. } in jobs {
            if let Some(holder) = key.as_ref().and_then(|key| self.writer.queue().holder(key, now.wall)) {
                receipts.push(Receipt::existing(JobId::of(holder), self.writer.queue().last()));
                continue;
            }
            let (due, wake) = match due {
                Due::After(wait) => (now.wall + wait, Wake::Steady(now.steady + wait)),
                Due::At(due) => (due, Wake::Wall(due)),
            };
            let op = Op::Enqueue { now: now.wall, due, key, job: job.clone() };
            let Some((seq, Change::Enqueued(ticket))) = self.decide(now, op) else { continue };
            if let Some(live) = self.writer.queue().get(ticket) {
                self.schedule.insert(entry(ticket, live, wake));
            }
            let skew = now.wall.skew_ms(now.steady);
            if skew != 0 {
                self.skews.insert(ticket, skew);
            }
            receipts.push(Receipt::new(JobId::of(ticket), seq));
            self.effects.push(seq, Effect::Enqueued { ticket, job });
        }
        self.answer(move || {
            reply.give(Ok(receipts));
            drop(room);
        });
    }

    /// The bound that these jobs would break. Ending what runs needs room as well: it is kept free for that.
    fn what_is_full(&self, jobs: &[NewJob], bytes: u64) -> Option<&'static str> {
        let limits = &self.rules.limits;
        let queue = self.writer.queue();
        let weight: u64 = jobs.iter().map(|new| new.job.weight()).sum();
        let keys = jobs.iter().filter(|new| new.key.is_some()).count();
        let unknown =
            |new: &NewJob| new.job.target.clone().filter(|target| !self.targets.contains_key(target) && !self.schedule.knows(target));
        let targets: HashSet<Target> = jobs.iter().filter_map(unknown).collect();
        let bounds = [
            (queue.pending() + queue.running() + jobs.len() > limits.pending, "pending tickets"),
            (queue.weight() + weight > limits.pending_bytes, "payload bytes of pending tickets"),
            (keys > 0 && queue.keys() + keys > limits.keys, "keys"),
            (!targets.is_empty() && self.targets.len().max(self.schedule.targets()) + targets.len() > limits.targets, "targets"),
            (self.journal_room(limits.capacity) < bytes, "journal bytes"),
        ];
        bounds.into_iter().find_map(|(full, what)| full.then_some(what))
    }

    /// Bytes of the journal that are neither used nor kept free so that `attempts` can end. New work leaves room for a whole
    /// pool of them, so that it never takes the place of what waits.
    fn journal_room(&self, attempts: u32) -> u64 {
        let limits = &self.rules.limits;
        let taken = self.status.journal_bytes() + self.writer.unwritten_bytes() + limits.reserve(attempts);
        limits.journal_bytes.saturating_sub(taken)
    }

    /// Whether one more attempt could begin, and all that run then could end.
    fn has_room_for_an_attempt(&self) -> bool {
        let running = u32::try_from(self.writer.queue().running()).unwrap_or(u32::MAX);
        self.journal_room(running.saturating_add(1)) >= SMALL_RECORD
    }

    fn cancel(&mut self, now: Now, Cancel { ticket, room }: Cancel, reply: Later<Result<Cancelled, CallError>>) {
        let queue = self.writer.queue();
        let answer = if queue.get(ticket).is_none() {
            if queue.was_issued(ticket) { Cancelled::AlreadyEnded } else { Cancelled::NotFound }
        } else if let Some((seq, Change::Cancelled { was_running })) = self.decide(now, Op::Cancel { ticket }) {
            self.schedule.remove(ticket);
            self.skews.remove(&ticket);
            let attempt = self.running.get(&ticket).map(|(attempt, _)| *attempt).filter(|_| was_running);
            self.effects.push(seq, Effect::Cancelled { ticket, attempt });
            if was_running { Cancelled::Stopping } else { Cancelled::Cancelled }
        } else {
            Cancelled::NotFound
        };
        self.answer(move || {
            reply.give(Ok(answer));
            drop(room);
        });
    }

    // ---- selection

    /// Takes the least runnable tickets, one for each unit, and asks the pool for as many units as are wanted.
    fn select(&mut self, now: Now) {
        let wall_limit = self.wall.limit(now, self.rules.limits.catch_up, !self.clock.is_virtual());
        self.schedule.promote(now, wall_limit);
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
            self.schedule.take(ticket);
            let target = self.writer.queue().get(ticket).and_then(|live| live.job.target.clone());
            self.running.insert(ticket, (attempt, target));
            self.effects.push(seq, Effect::Selected { ticket, attempt, unit });
        }
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

    fn take_units(&mut self, units: Option<Units>) {
        match (&mut self.spare, units) {
            (Some(spare), Some(units)) => spare.join(units),
            (spare @ None, units) => *spare = units,
            (Some(_), None) => {}
        }
    }

    // ---- what leaves

    /// Releases what waited for the disk and has it now.
    fn release(&mut self, now: Now) {
        while let Some((seq, effect)) = self.effects.pop(self.writer.durable()) {
            self.perform(now, seq, effect);
        }
    }

    /// The Select is durable: the attempt sets out. Unless its ticket was cancelled meanwhile: then it never began.
    fn start(&mut self, now: Now, ticket: Ticket, attempt: Attempt, unit: Units) {
        let Some(live) = self.writer.queue().get(ticket).filter(|live| live.phase == Phase::Running { attempt }) else {
            self.running.remove(&ticket);
            return self.take_units(Some(unit));
        };
        let policy = self.policy(live);
        let selected = Selected {
            flight: self.flight(ticket, attempt, live, policy.attempt_timeout(), unit),
            budget: policy.budget(live.failures, live.start),
            now: self.time_of(now, ticket, live),
        };
        match live.job.target.clone() {
            _ if self.stage.is_cutting_off() => selected.flight.finish(Ended::NeverBegan),
            Some(target) => self.breaker(now, &target).do_send(selected),
            None => match selected.budget.admit(selected.now) {
                Ok(()) => self.links.workers.send(crate::messages::Admitted { flight: selected.flight, leave: None }),
                Err(end) => selected.flight.finish(Ended::Denied(end)),
            },
        }
    }

    fn flight(&self, ticket: Ticket, attempt: Attempt, live: &Live, timeout: Span, unit: Units) -> crate::messages::Flight {
        let seat = crate::messages::Seat::new(unit, ticket, attempt, self.links.freed.clone());
        let (ledger, finished) = (self.ledger.clone(), self.links.finished.clone());
        crate::messages::Flight::new(ticket, attempt, live.failures.saturating_add(1), live.job.clone(), timeout, seat, ledger, finished)
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

    /// An idle closed breaker is safe to forget: its failures are older than its window.
    fn sweep_breakers(&mut self, now: Now) {
        let idle = Span::from(self.rules.limits.breaker_idle).max(self.rules.circuit.failure_window());
        if now.steady.since(self.swept) < Span(idle.0 / 2) {
            return;
        }
        self.swept = now.steady;
        self.targets.retain(|_, known| known.position != Position::Closed || now.steady.since(known.used) < idle);
    }

    // ---- rules

    fn decide(&mut self, now: Now, op: Op) -> Option<(journeyman_core::Seq, Change)> {
        let led = self.writer.queue().epoch();
        let decided = self.writer.decide(now, &Record::Op(op));
        debug_assert!(decided.is_ok(), "an op is checked before it is decided");
        let epoch = self.writer.queue().epoch();
        if epoch != led {
            events::led(epoch.0, self.writer.queue().last());
        }
        decided.ok()
    }

    fn policy(&self, live: &Live) -> Policy {
        self.rules.policies.get(&live.job.kind).copied().unwrap_or_default().with(&live.job.options)
    }

    /// What time it is for a ticket: an instant that was asked for moves with the wall clock, all else does not.
    fn time_of(&self, now: Now, ticket: Ticket, live: &Live) -> Time {
        if live.job.options.due_is_absolute() {
            return now.wall;
        }
        now.steady.shifted(self.skews.get(&ticket).copied().unwrap_or(0))
    }

    /// How long it is from now until `due`, which is in the ticket's own time.
    fn wait_until(&self, now: Now, ticket: Ticket, due: Time) -> Span {
        self.writer.queue().get(ticket).map_or(Span(0), |live| due.since(self.time_of(now, ticket, live)))
    }

    fn answer(&mut self, answer: impl FnOnce() + 'static) {
        self.effects.push(self.writer.queue().last(), Effect::Answer(Box::new(answer)));
    }

    // ---- time

    fn set_timer(&mut self, now: Now, ctx: &mut Context<Self>) {
        let Some(at) = self.next_look(now) else { return };
        if let Some((armed, handle)) = self.timer {
            if armed <= at {
                return;
            }
            ctx.cancel_future(handle);
        }
        let clock = self.clock.clone();
        let wake = async move { clock.sleep_until(at).await }.into_actor(self);
        let handle = ctx.spawn(actix::fut::ActorFutureExt::map(wake, |(), actor: &mut Self, ctx| {
            actor.timer = None;
            actor.request_turn(ctx);
        }));
        self.timer = Some((at, handle));
    }

    /// When to take the next turn if nothing comes before. One timer for all, never one for each.
    fn next_look(&self, now: Now) -> Option<Time> {
        let (steady, wall) = self.schedule.next_wake();
        let by_wall = wall.map(|at| now.steady + at.since(now.wall).max(self.wall.pause()));
        let idle = self.waiting_for_idle.iter().map(|(until, _)| *until).min();
        let timeout = self.writer.waiting_since().map(|since| since + self.rules.limits.append_timeout.into());
        let next = [steady, by_wall, idle, timeout, self.stage.deadline()].into_iter().flatten().min()?;
        // The virtual clock never jumps by itself, and whoever sets its wall clock says so.
        let recheck = if self.clock.is_virtual() { next } else { now.steady + Span(config::RECHECK_MS) };
        Some(next.min(recheck))
    }

    /// A journal that stays silent is as good as one that failed: nobody knows what is on disk.
    fn watch_journal(&mut self, now: Now) {
        let patience = self.rules.limits.append_timeout;
        if self.writer.waiting_since().is_some_and(|since| since + patience.into() <= now.steady) {
            self.fail(&format!("the journal gave no answer for {patience:?}"));
        }
    }

    fn answer_idle(&mut self, now: Now) {
        if self.waiting_for_idle.is_empty() {
            return;
        }
        let (pending, running) = (self.status.pending.get(), self.status.running.get());
        let idle = pending + running == 0 && self.writer.is_settled() && self.effects.is_empty() && self.intake.is_empty();
        let waiting = std::mem::take(&mut self.waiting_for_idle);
        for (until, reply) in waiting {
            if idle {
                reply.give(Ok(()));
            } else if until <= now.steady {
                reply.give(Err(crate::error::IdleError::WorkLeft { pending, running }));
            } else {
                self.waiting_for_idle.push((until, reply));
            }
        }
    }

    fn set_gauges(&self) {
        self.status.held.set(self.schedule.held() as u64);
        let (bytes, limit) = (self.status.journal_bytes(), self.rules.limits.journal_bytes);
        let nearly_full = self.journal_room(self.rules.limits.capacity) < limit / config::NEARLY_FULL;
        let concern = nearly_full.then(|| format!("the journal holds {bytes} of at most {limit} bytes; soon no new work is accepted"));
        if self.status.concern(concern) {
            events::journal_nearly_full(bytes, limit);
        }
    }

    /// The end of this runner: what waits hears that nobody knows, later calls that nothing is available.
    fn fail(&mut self, why: &str) {
        if self.status.fail(why) {
            events::journal_failed(why);
        }
        self.halt();
    }

    fn halt(&mut self) {
        // Dropped unanswered, an answer says that it was lost; a unit goes home.
        self.stage = Stage::Halted;
        self.effects.clear();
        self.waiting_for_idle.clear();
        self.drained.clear();
        self.intake.clear();
        self.ledger.interrupt_all();
    }
}

impl Actor for QueueActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        self.request_turn(ctx);
    }
}

/// Time to decide.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Turn;

impl Handler<Turn> for QueueActor {
    type Result = ();

    fn handle(&mut self, _: Turn, ctx: &mut Context<Self>) {
        self.clock.stir();
        self.turn(ctx);
    }
}

impl Handler<Enqueue> for QueueActor {
    type Result = Later<Result<Vec<Receipt>, EnqueueError>>;

    fn handle(&mut self, enqueue: Enqueue, ctx: &mut Context<Self>) -> Self::Result {
        let (response, reply) = Later::new();
        match self.stage.refusal() {
            Some(CallError::ShuttingDown) => self.refuse(ctx, move || reply.give(Err(EnqueueError::ShuttingDown))),
            Some(_) => self.refuse(ctx, move || reply.give(Err(EnqueueError::Unavailable))),
            None => {
                self.intake.push_back(Intake::Enqueue(enqueue, reply));
                self.request_turn(ctx);
            }
        }
        response
    }
}

impl Handler<Cancel> for QueueActor {
    type Result = Later<Result<Cancelled, CallError>>;

    fn handle(&mut self, cancel: Cancel, ctx: &mut Context<Self>) -> Self::Result {
        let (response, reply) = Later::new();
        match self.stage.refusal() {
            Some(why) => self.refuse(ctx, move || reply.give(Err(why))),
            None => {
                self.intake.push_back(Intake::Cancel(cancel, reply));
                self.request_turn(ctx);
            }
        }
        response
    }
}

impl Handler<Get> for QueueActor {
    type Result = Later<Result<Option<JobInfo>, CallError>>;

    fn handle(&mut self, Get(ticket): Get, ctx: &mut Context<Self>) -> Self::Result {
        let (response, reply) = Later::new();
        if self.stage == Stage::Halted {
            self.refuse(ctx, move || reply.give(Err(CallError::Unavailable)));
            return response;
        }
        let info = self.writer.queue().get(ticket).map(|live| self.info(ticket, live));
        self.answer(move || reply.give(Ok(info)));
        self.request_turn(ctx);
        response
    }
}

impl Handler<Targets> for QueueActor {
    type Result = Later<Result<Vec<TargetInfo>, CallError>>;

    fn handle(&mut self, _: Targets, ctx: &mut Context<Self>) -> Self::Result {
        let (response, reply) = Later::new();
        if self.stage == Stage::Halted {
            self.refuse(ctx, move || reply.give(Err(CallError::Unavailable)));
            return response;
        }
        let mut targets: Vec<TargetInfo> = self.targets.iter().map(|(target, known)| self.target_info(target, known)).collect();
        targets.sort_by(|one, other| one.target.cmp(&other.target));
        self.answer(move || reply.give(Ok(targets)));
        self.request_turn(ctx);
        response
    }
}

impl Handler<UntilIdle> for QueueActor {
    type Result = Later<Result<(), crate::error::IdleError>>;

    fn handle(&mut self, UntilIdle { patience }: UntilIdle, ctx: &mut Context<Self>) -> Self::Result {
        let (response, reply) = Later::new();
        if self.stage == Stage::Halted {
            self.refuse(ctx, move || reply.give(Err(CallError::Unavailable.into())));
            return response;
        }
        self.waiting_for_idle.push((self.clock.now().steady + patience, reply));
        self.request_turn(ctx);
        response
    }
}

impl Handler<Appended> for QueueActor {
    type Result = ();

    fn handle(&mut self, appended: Appended, ctx: &mut Context<Self>) {
        match appended {
            _ if self.stage.is_over() => {}
            Appended::Durable(upto) => {
                self.writer.is_durable(upto);
                self.release(self.clock.now());
                self.request_turn(ctx);
            }
            Appended::Fenced { why } | Appended::Unknown { why } => self.fail(&why),
            Appended::TooLarge => self.fail("the journal refused a batch as too large"),
            Appended::Unavailable => self.fail("the journal is closed after an earlier failure"),
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

impl Handler<Finished> for QueueActor {
    type Result = ();

    fn handle(&mut self, Finished { ticket, attempt, seat }: Finished, ctx: &mut Context<Self>) {
        if self.stage.is_over() {
            return;
        }
        match seat {
            Returns::Now(units) => self.take_units(units),
            Returns::WithItsLastSection => self.asides.outlived(ticket, attempt),
        }
        self.outcomes.push_back((ticket, attempt));
        self.request_turn(ctx);
    }
}

impl Handler<Freed> for QueueActor {
    type Result = ();

    fn handle(&mut self, Freed { ticket, attempt, units }: Freed, ctx: &mut Context<Self>) {
        if self.stage.is_over() {
            return;
        }
        self.take_units(Some(units));
        self.asides.left(ticket, attempt);
        self.bring_back(ticket);
        self.request_turn(ctx);
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
            known.position = position;
            known.openings = openings;
        }
        self.request_turn(ctx);
    }
}

impl Handler<Halt> for QueueActor {
    type Result = ();

    fn handle(&mut self, _: Halt, _: &mut Context<Self>) {
        self.clock.stir();
        self.halt();
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

impl QueueActor {
    /// Answers at once what changes nothing; the caller's slot is there only after the handler has returned.
    fn refuse(&mut self, ctx: &mut Context<Self>, answer: impl FnOnce() + 'static) {
        ctx.notify(Refuse(Box::new(answer)));
    }

    fn info(&self, ticket: Ticket, live: &Live) -> JobInfo {
        let state = match (live.phase, self.schedule.hold(ticket)) {
            (Phase::Running { .. }, _) => JobState::Running,
            (Phase::Pending { .. }, Some(why)) => JobState::Held { why: why.as_str() },
            (Phase::Pending { due }, None) => JobState::Pending { due: due.into() },
        };
        JobInfo {
            id: JobId::of(ticket),
            kind: live.job.kind.clone(),
            target: live.job.target.clone(),
            priority: live.job.priority,
            failures: live.failures,
            last_fault: live.fault.clone(),
            state,
        }
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

/// An answer that waits for nothing.
#[derive(Message)]
#[rtype(result = "()")]
struct Refuse(Box<dyn FnOnce()>);

impl Handler<Refuse> for QueueActor {
    type Result = ();

    fn handle(&mut self, Refuse(answer): Refuse, _: &mut Context<Self>) {
        self.clock.stir();
        answer();
    }
}

/// Notices a wall clock that jumps, and then lets tickets that wait by it through in portions.
struct WallWatch {
    skew_ms: i64,
    /// When the last portion was let through, while catching up.
    catching_up: Option<Time>,
}

impl WallWatch {
    fn new(now: Now) -> Self {
        Self { skew_ms: now.wall.skew_ms(now.steady), catching_up: None }
    }

    /// How many tickets that wait by the wall clock may become ready now.
    fn limit(&mut self, now: Now, per_second: usize, log: bool) -> usize {
        let skew_ms = now.wall.skew_ms(now.steady);
        let jumped = skew_ms.saturating_sub(self.skew_ms);
        self.skew_ms = skew_ms;
        if jumped.unsigned_abs() > config::JUMP_MS {
            if log {
                events::wall_jumped(jumped);
            }
            self.catching_up = Some(now.steady);
            return per_second;
        }
        let Some(last) = self.catching_up else { return usize::MAX };
        let portion = usize::try_from(now.steady.since(last).0).unwrap_or(usize::MAX).saturating_mul(per_second) / 1000;
        if portion > 0 {
            self.catching_up = Some(now.steady);
        }
        portion
    }

    /// Nothing that the wall clock has made due is left.
    const fn caught_up(&mut self) {
        self.catching_up = None;
    }

    /// The least wait for what the wall clock has made due.
    fn pause(&self) -> Span {
        Span(if self.catching_up.is_some() { CATCH_UP_PAUSE_MS } else { 0 })
    }
}

fn entry(ticket: Ticket, live: &Live, wake: Wake) -> Entry {
    Entry { ticket, kind: live.job.kind.clone(), target: live.job.target.clone(), priority: live.job.priority, rank: live.rank, wake }
}

/// How a recovered ticket waits. At the start both clocks are level, so stored times need no conversion.
fn first_wake(live: &Live, due: Time) -> Wake {
    if live.job.options.due_is_absolute() && live.failures == 0 { Wake::Wall(due) } else { Wake::Steady(due) }
}

/// The most bytes of a record that has only numbers.
const SMALL_RECORD: u64 = 64;
/// Between two portions of a catch-up: short against a second, long against a turn.
const CATCH_UP_PAUSE_MS: u64 = 100;
