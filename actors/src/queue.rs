//! QueueActor: owns the state and turns messages into records. A handler only notes what came; one turn then decides as
//! much as the open batch holds, outcomes first, and hands the batch to the journal. What others may see of it leaves in
//! line, by seq, when the journal says that it is durable. It never waits for another actor.

mod drain;
mod effects;
mod ends;
mod holds;
mod intake;
mod outcomes;
mod questions;
mod selection;
mod timing;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use actix::{Actor, AsyncContext, Context, Handler, Message, Recipient, SpawnHandle};
use journeyman_core::breaker::Circuit;
use journeyman_core::queue::{Change, Live, Phase};
use journeyman_core::schedule::{Entry, Schedule, Wake};
use journeyman_core::{Attempt, Kind, Now, Op, Policy, Record, Span, Target, Ticket, Time};
use tokio::sync::watch;

use crate::answers::ShutdownReport;
use crate::clock::Clock;
use crate::config::Limits;
use crate::events;
use crate::ledger::{Ended, Ledger};
use crate::messages::{Appended, Finished, Freed, Halt, Later, Selected, Units, Want};
use crate::metrics;
use crate::registry::Policies;
use crate::status::Status;
use crate::worker::Workers;
use crate::writer::Writer;
use drain::Stage;
use effects::{Effect, Effects};
use ends::WaitingForEnds;
use holds::Asides;
use intake::Intake;
#[cfg(feature = "testing")]
pub(crate) use questions::Waiting;
use questions::WaitingForIdle;
use selection::Known;
#[cfg(feature = "testing")]
pub(crate) use selection::Spare;
use timing::WallWatch;

/// What the wiring gives the queue: everything it talks to, as messages only.
pub(crate) struct Links {
    pub pool: Recipient<Want>,
    pub workers: Workers,
    pub breakers: StartBreaker,
    pub finished: Recipient<Finished>,
    pub freed: Recipient<Freed>,
    pub draining: watch::Sender<bool>,
}

/// Starts the breaker of a target beside the queue.
pub(crate) type StartBreaker = Box<dyn Fn(&Target) -> Recipient<Selected>>;

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
    waiting_for_idle: Vec<WaitingForIdle>,
    waiting_for_ends: WaitingForEnds,
    stage: Stage,
    /// Who waits for the end of the drain.
    drained: Vec<Later<ShutdownReport>>,
    /// Attempts that the stop cut short.
    interrupted: u64,
    wall: WallWatch,
    turn_is_due: bool,
    timer: Option<(Time, SpawnHandle)>,
    /// When the journal was first found overdue with its batch.
    overdue: Option<Time>,
    links: Links,
    rules: Rules,
    ledger: Ledger,
    status: Arc<Status>,
    clock: Clock,
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
            waiting_for_ends: WaitingForEnds::default(),
            stage: Stage::Open,
            drained: Vec::new(),
            interrupted: 0,
            wall: WallWatch::new(now),
            turn_is_due: false,
            timer: None,
            overdue: None,
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
        self.release(now);
        self.advance_drain(now);
        if !self.effects.is_empty() || !self.waiting_for_idle.is_empty() {
            self.writer.prove(now);
        }
        self.writer.flush(now);
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

    /// Releases what waited for the disk and has it now.
    fn release(&mut self, now: Now) {
        while let Some((seq, effect)) = self.effects.pop(self.writer.durable()) {
            self.perform(now, seq, effect);
        }
    }

    fn decide(&mut self, now: Now, op: Op) -> Option<(journeyman_core::Seq, Change)> {
        let led = self.writer.queue().epoch();
        let decided = self.writer.decide(now, &Record::Op(op));
        debug_assert!(decided.is_ok(), "an op is checked before it is decided");
        let epoch = self.writer.queue().epoch();
        if epoch != led {
            self.answer(move || events::led(epoch));
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

    /// An attempt is over, or will never begin: its ticket neither runs nor probes any more.
    fn runs_no_more(&mut self, ticket: Ticket, attempt: Attempt) {
        if self.running.get(&ticket).is_some_and(|(running, _)| *running == attempt)
            && let Some((_, Some(target))) = self.running.remove(&ticket)
        {
            self.schedule.settled(ticket, &target);
        }
    }

    /// Tells something when all that is decided now is on disk.
    fn answer(&mut self, answer: impl FnOnce() + 'static) {
        self.effects.push(self.writer.queue().last(), Effect::Answer(Box::new(answer)));
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
        self.waiting_for_ends.clear();
        self.drained.clear();
        self.intake.clear();
        self.ledger.interrupt_all();
    }
}

impl Actor for QueueActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        metrics::describe();
        metrics::health(&self.status.health());
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

impl Handler<Halt> for QueueActor {
    type Result = ();

    fn handle(&mut self, _: Halt, _: &mut Context<Self>) {
        self.clock.stir();
        self.halt();
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
