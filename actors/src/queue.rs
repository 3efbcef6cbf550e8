//! QueueActor: owns the state and turns messages into records. A handler only notes what came; one turn then decides as
//! much as the open batch holds, outcomes first, and hands the batch to the journal. What others may see of it leaves in
//! line, by seq, when the journal says that it is durable. It never waits for another actor.

mod drain;
mod effects;
mod ends;
mod intake;
mod outcomes;
mod pace;
mod payloads;
mod questions;
mod selection;
mod timing;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::mem;
use std::sync::Arc;

use actix::{Actor, AsyncContext, Context, Handler, Message, Recipient, SpawnHandle};
use journeyman_core::breaker::Circuit;
use journeyman_core::compaction::{CompactionLimits, is_due};
use journeyman_core::queue::{Change, Live, Phase, Queue};
use journeyman_core::schedule::{Entry, Hold, Schedule, Wake};
use journeyman_core::{Attempt, Kind, Now, Op, Policy, Record, Span, Target, Ticket, Time};

use crate::answers::ShutdownReport;
use crate::clock::Clock;
use crate::config::Limits;
use crate::events;
use crate::ledger::{self, Ended, Ledger, Reign, Standing};
use crate::line::Calls;
use crate::messages::{Admitted, Appended, Beat, Compact, Released, Reply, Selected, Units, Want};
use crate::metrics::{self, Meters};
use crate::payloads::Desk;
use crate::registry::Policies;
use crate::skews::{Skews, skew_of};
use crate::status::Status;
use crate::worker::Workers;
use crate::writer::Writer;
use drain::Stage;
use effects::{Effect, Effects};
use ends::WaitingForEnds;
use intake::{Intake, Ways};
use pace::Pace;
use payloads::Away;
#[cfg(feature = "testing")]
pub(crate) use questions::Waiting;
use questions::WaitingForIdle;
use selection::Known;
#[cfg(feature = "testing")]
pub(crate) use selection::{Spare, Stall};
use timing::WallWatch;

/// What the wiring gives the queue: everything it talks to, as messages only.
pub(crate) struct Links {
    /// Calls that store jobs come in here.
    pub calls: Calls,
    pub pool: Recipient<Want>,
    pub workers: Workers,
    pub breakers: StartBreaker,
    pub compactor: Recipient<Compact>,
    pub payloads: Desk,
}

/// Starts the breaker of a target beside the queue.
pub(crate) type StartBreaker = Box<dyn Fn(&Target) -> Recipient<Selected>>;

/// What the queue goes by.
pub(crate) struct Rules {
    pub limits: Limits,
    pub policies: Arc<Policies>,
    pub circuit: Circuit,
}

/// What a queue is handed when it takes office.
pub(crate) struct Office {
    pub ledger: Ledger,
    pub reign: Reign,
    /// Attempts that outlived the queue before.
    pub standings: Vec<Standing>,
    /// Those of tickets that an earlier queue of this process had.
    pub skews: Skews,
    /// Whether there is no room for a single record.
    pub is_read_only: bool,
    /// Whether the runner is being stopped.
    pub is_draining: bool,
}

pub(crate) struct QueueActor {
    writer: Writer,
    schedule: Schedule,
    effects: Effects,
    intake: VecDeque<Intake>,
    ways: Ways,
    pace: Pace,
    outcomes: VecDeque<(Ticket, Attempt, Ended)>,
    /// Selected and not yet settled, where more has to be known of it than that its ticket runs: that its target is to be told, or that the
    /// ticket was cancelled.
    watched: foldhash::HashMap<Ticket, (Attempt, Option<Target>)>,
    /// Attempts whose Selects are durable: all of a release begin together, as a look into the ledger costs as much as what is done there.
    beginning: Vec<(Ticket, Attempt, Units)>,
    /// Attempts whose ends are durable, to be forgotten together.
    ended: Vec<(Ticket, Attempt)>,
    /// Attempts without a breaker that set out when all that is durable has been released.
    starts: Vec<Admitted>,
    /// Payloads that are not in memory.
    away: Away,
    skews: Skews,
    spare: Option<Units>,
    /// Units that the pool was asked for and has not given yet.
    asked: u32,
    targets: HashMap<Target, Known>,
    swept: Time,
    waiting_for_idle: Vec<WaitingForIdle>,
    waiting_for_ends: WaitingForEnds,
    stage: Stage,
    /// Who waits for the end of the drain.
    drained: Vec<Reply<ShutdownReport>>,
    /// Attempts that the stop cut short.
    interrupted: u64,
    wall: WallWatch,
    meters: Meters,
    turn_is_due: bool,
    timer: Option<(Time, SpawnHandle)>,
    /// Whether a compaction is under way.
    compacting: bool,
    /// Whether something had to wait or was refused for want of room in the journal, since the last compaction began.
    wants_room: bool,
    /// When the journal was first found overdue with its batch.
    overdue: Option<Time>,
    links: Links,
    rules: Rules,
    ledger: Ledger,
    reign: Reign,
    status: Arc<Status>,
    clock: Clock,
}

impl QueueActor {
    pub(crate) fn new(writer: Writer, links: Links, rules: Rules, office: Office, status: Arc<Status>, clock: Clock) -> Self {
        let now = clock.now();
        let Office { ledger, reign, standings, skews, is_read_only, is_draining } = office;
        let mut actor = Self {
            writer,
            schedule: Schedule::new(rules.policies.keys().cloned()),
            effects: Effects::default(),
            intake: VecDeque::new(),
            ways: Ways::default(),
            pace: Pace::new(rules.limits.capacity),
            outcomes: VecDeque::new(),
            watched: foldhash::HashMap::default(),
            beginning: Vec::new(),
            ended: Vec::new(),
            starts: Vec::new(),
            away: Away::default(),
            skews,
            spare: None,
            asked: 0,
            targets: HashMap::new(),
            swept: now.steady,
            waiting_for_idle: Vec::new(),
            waiting_for_ends: WaitingForEnds::default(),
            stage: match (is_read_only, is_draining) {
                (true, _) => Stage::ReadOnly,
                (_, true) => Stage::Quiet,
                (false, false) => Stage::Open,
            },
            drained: Vec::new(),
            interrupted: 0,
            wall: WallWatch::new(now),
            meters: Meters::default(),
            turn_is_due: false,
            timer: None,
            compacting: false,
            wants_room: false,
            overdue: None,
            links,
            rules,
            ledger,
            reign,
            status,
            clock,
        };
        let running = actor.take_over();
        actor.take_over_attempts(&standings, running);
        actor
    }

    /// Makes the index of what is on disk. Answers what runs there.
    fn take_over(&mut self) -> BTreeMap<Ticket, Attempt> {
        let mut unknown: HashMap<Kind, usize> = HashMap::new();
        let mut running = BTreeMap::new();
        self.skews.keep(|ticket| self.writer.queue().get(ticket).is_some());
        let skew_of_due = self.skews.of_dues();
        // The next ticket is mostly of the same route.
        let mut last = None;
        for (ticket, live) in self.writer.queue().tickets() {
            let is_known = match last {
                Some((route, is_known)) if Arc::ptr_eq(route, live.job.route()) => is_known,
                _ => self.schedule.knows_kind(live.job.kind()),
            };
            last = Some((live.job.route(), is_known));
            if !is_known {
                *unknown.entry(live.job.kind().clone()).or_default() += 1;
            }
            match live.phase() {
                Phase::Pending { due } => {
                    self.schedule.insert(entry(ticket, live, wake_at(live, due, skew_of_due(ticket))));
                }
                Phase::Running { attempt } => {
                    running.insert(ticket, attempt);
                    self.watched.extend(live.job.target().map(|target| (ticket, (attempt, Some(target.clone())))));
                }
            }
        }
        self.away.found(self.writer.queue().last_ticket());
        for (kind, tickets) in unknown {
            events::unknown_kinds(&kind, tickets);
        }
        running
    }

    /// Settles what became of attempts while no queue was in office. One that is on disk as running and that nobody knows has
    /// never begun when this process selected it; else it died with the process that did.
    fn take_over_attempts(&mut self, standings: &[Standing], mut unaccounted: BTreeMap<Ticket, Attempt>) {
        self.ledger.first_record(self.writer.queue().last().next());
        for Standing { ticket, attempt, stage, is_occupied } in standings.iter().copied() {
            let counts = unaccounted.get(&ticket) == Some(&attempt);
            match stage {
                _ if counts => drop(unaccounted.remove(&ticket)),
                // Its record was found on disk, though nobody heard so: that counts when it is proved.
                ledger::Stage::Live => self.once_proved(move |ledger| ledger.cancel(ticket, attempt)),
                ledger::Stage::Ended => self.once_proved(move |ledger| ledger.forget(&[(ticket, attempt)])),
                ledger::Stage::Settled => {}
            }
            if counts && stage == ledger::Stage::Ended {
                self.outcomes.extend(self.ledger.ended(ticket, attempt).map(|ended| (ticket, attempt, ended)));
            }
            if !counts
                && is_occupied
                && let Some(entry) = pending(self.writer.queue(), &self.skews, ticket)
            {
                self.schedule.put_aside(entry, Hold::StillRunning);
            }
        }
        let mut orphans = 0;
        for (ticket, attempt) in unaccounted {
            let is_ours = self.ledger.selected_here(attempt);
            orphans += usize::from(!is_ours);
            let ended = if is_ours { Ended::NeverBegan } else { Ended::Crashed };
            self.ledger.note(ticket, attempt, ended.clone());
            self.outcomes.push_back((ticket, attempt, ended));
        }
        if orphans > 0 {
            events::orphans(orphans);
        }
    }

    /// Acts on what was found when an append has proved it; a queue that cannot write leaves it to the next.
    fn once_proved(&mut self, act: impl FnOnce(&Ledger) + 'static) {
        if self.stage != Stage::ReadOnly {
            let ledger = self.ledger.clone();
            self.answer(move || act(&ledger));
        }
    }

    /// Decides as much as the batch holds, and hands it over.
    fn turn(&mut self, ctx: &mut Context<Self>) {
        self.turn_is_due = false;
        let now = self.clock.now();
        if !self.is_in_office() {
            return;
        }
        self.status.pulse.set(now.steady.0);
        let mut may_take_more = false;
        if self.stage != Stage::ReadOnly {
            self.settle_outcomes(now);
            may_take_more = self.take_in(now);
            self.select(now);
        }
        self.release(now);
        if !self.is_in_office() {
            return;
        }
        self.advance_drain(now);
        if self.stage != Stage::ReadOnly {
            if !self.effects.is_empty() || !self.waiting_for_idle.is_empty() {
                self.writer.prove(now);
            }
            if !self.pace.is_gathering() {
                self.flush(now);
            }
            // Those who found no place in it are taken in for the next. Calls that store nothing fill no batch, and wait for none.
            let is_empty = self.writer.is_empty();
            if is_empty {
                self.pace.all_aboard();
            }
            if !self.intake.is_empty() && (is_empty || may_take_more) {
                self.request_turn_later(ctx);
            }
            self.watch_disk(now);
            self.compact_if_due(now);
            if self.put_away(now) {
                self.request_turn_later(ctx);
            }
        }
        self.sweep_breakers(now);
        self.answer_idle(now);
        self.set_gauges();
        self.set_timer(now, ctx);
        debug_assert_eq!(self.schedule.len(), self.writer.queue().pending(), "the schedule has what is pending, and nothing else");
    }

    fn compact_if_due(&mut self, now: Now) {
        if self.compacting {
            return;
        }
        let limits = CompactionLimits::of(self.rules.limits.journal_bytes);
        let live = self.writer.queue().live_bytes();
        // What an earlier process left is sealed by the first append of this one.
        let is_due = self.writer.has_written() && is_due(self.status.bytes_since_snapshot(), live, &limits);
        let wants_room = mem::take(&mut self.wants_room);
        if !is_due && !wants_room {
            return;
        }
        if !is_due {
            // What takes the room is what an earlier process left, or the reserve of a snapshot that came too late. It goes by a
            // compaction, which wants a record to begin behind; and nothing else may ever be written, as all is refused.
            self.writer.begin_anew(now);
            self.flush(now);
        }
        self.compacting = true;
        self.links.compactor.do_send(Compact);
    }

    fn request_turn(&mut self, ctx: &mut Context<Self>) {
        self.clock.stir();
        if !self.turn_is_due {
            self.turn_is_due = true;
            ctx.notify(Turn);
        }
    }

    /// Whether this queue decides. One that was replaced while it was stuck finds out here.
    fn is_in_office(&mut self) -> bool {
        if !self.stage.is_over() && !self.ledger.is_in_office(self.reign) {
            self.halt();
        }
        !self.stage.is_over()
    }

    /// Releases what waited for the disk and has it now; tells how many answers to calls were among it. A queue that cannot write tells what it
    /// has read.
    fn release(&mut self, now: Now) -> usize {
        let mut answers = 0;
        let upto = if self.stage == Stage::ReadOnly { self.writer.queue().last() } else { self.writer.durable() };
        self.effects.give_rooms_back(upto);
        while self.is_in_office()
            && let Some((seq, effect)) = self.effects.pop(upto)
        {
            answers += usize::from(effect.answers_a_call());
            self.perform(seq, effect);
        }
        self.forget_ended();
        self.begin(now);
        self.away.ask(now, &self.links.payloads);
        self.send_starts();
        answers
    }

    fn forget_ended(&mut self) {
        if !self.ended.is_empty() {
            self.ledger.forget(&self.ended);
            self.ended.clear();
        }
    }

    fn send_starts(&mut self) {
        if !self.starts.is_empty() {
            self.links.workers.send(mem::take(&mut self.starts));
        }
    }

    fn decide(&mut self, now: Now, op: Op) -> Option<(journeyman_core::Seq, Change)> {
        if matches!(op, Op::Select { .. } | Op::Complete { .. } | Op::Requeue { .. } | Op::Defer { .. }) {
            self.pace.moved_an_attempt();
        }
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
        self.rules.policies.get(live.job.kind()).map_or_else(Policy::default, |known| known.policy).with(&live.job.options())
    }

    /// What time it is for a ticket: an instant that was asked for moves with the wall clock, all else does not.
    fn time_of(&self, now: Now, ticket: Ticket, live: &Live) -> Time {
        if live.job.due_is_absolute() {
            return now.wall;
        }
        now.steady.shifted(self.skews.of_start(ticket))
    }

    /// How long it is from now until `due`, which is in the ticket's own time.
    fn wait_until(&self, now: Now, ticket: Ticket, due: Time) -> Span {
        self.writer.queue().get(ticket).map_or(Span(0), |live| due.since(self.time_of(now, ticket, live)))
    }

    /// An attempt is over, or will never begin: its ticket neither runs nor probes any more.
    fn runs_no_more(&mut self, ticket: Ticket, attempt: Attempt) {
        if self.watched.get(&ticket).is_some_and(|(running, _)| *running == attempt)
            && let Some((_, Some(target))) = self.watched.remove(&ticket)
        {
            self.schedule.settled(ticket, &target);
        }
    }

    /// Tells something when all that is decided now is on disk.
    fn answer(&mut self, answer: impl FnOnce() + 'static) {
        self.effects.push(self.writer.queue().last(), Effect::Answer { answer: Box::new(answer), is_of_a_call: false });
    }

    /// The same to a call that was taken in.
    fn answer_call(&mut self, answer: impl FnOnce() + 'static) {
        self.effects.push(self.writer.queue().last(), Effect::Answer { answer: Box::new(answer), is_of_a_call: true });
    }

    fn flush(&mut self, now: Now) {
        let near = self.pace.is_lone() && self.intake.is_empty() && !self.compacting;
        if self.writer.flush(now, near) {
            self.pace.set_out(&self.clock);
        }
    }

    /// The end of this queue: what waits hears that nobody knows, later calls that nothing is available.
    fn fail(&mut self, why: &str) {
        if self.ledger.is_in_office(self.reign) && self.status.fail(why) {
            events::journal_failed(why);
        }
        self.halt();
    }

    /// What was not released is left to the next queue, which finds out what of it is on disk. One that has a successor already
    /// has nothing to say.
    fn abandon_effects(&mut self) {
        let (recent, counts) = (&self.status.recent, self.ledger.is_latest(self.reign));
        self.effects.abandon(|seq, ticket, end| {
            if counts {
                recent.leave(seq, ticket, end);
            }
        });
    }

    fn halt(&mut self) {
        self.stage = Stage::Halted;
        self.abandon_effects();
        self.waiting_for_idle.clear();
        self.waiting_for_ends.clear();
        self.drained.clear();
        self.intake.clear();
    }
}

impl Drop for QueueActor {
    fn drop(&mut self) {
        self.abandon_effects();
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
            _ if !self.is_in_office() => {}
            Appended::Durable(upto) => {
                self.writer.is_durable(upto);
                self.pace.arrived();
                let answered = self.release(self.clock.now());
                self.gather(answered, ctx);
                self.request_turn(ctx);
            }
            Appended::Fenced { why } | Appended::Unknown { why } => self.fail(&why),
            Appended::TooLarge => self.fail("the journal refused a batch as too large"),
            Appended::Unavailable => self.fail("the journal is closed after an earlier failure"),
        }
    }
}

impl Handler<Released> for QueueActor {
    type Result = ();

    fn handle(&mut self, _: Released, ctx: &mut Context<Self>) {
        self.compacting = false;
        self.request_turn(ctx);
    }
}

impl Handler<Beat> for QueueActor {
    type Result = ();

    fn handle(&mut self, _: Beat, ctx: &mut Context<Self>) {
        self.request_turn(ctx);
    }
}

/// A pending ticket, as the schedule knows it.
fn pending<'a>(queue: &'a Queue, skews: &Skews, ticket: Ticket) -> Option<Entry<'a>> {
    let live = queue.get(ticket)?;
    let Phase::Pending { due } = live.phase() else { return None };
    Some(entry(ticket, live, wake_at(live, due, skews.of_due(ticket))))
}

fn entry(ticket: Ticket, live: &Live, wake: Wake) -> Entry<'_> {
    Entry { ticket, route: live.job.route(), priority: live.job.priority(), rank: live.rank(), wake }
}

/// How a ticket waits for its due, which was set when the wall clock had been moved by `skew`: no jump of it moves any due but the one
/// that was asked for as an instant. That is the start of its ticket: any other due is one that it was put back to.
fn wake_at(live: &Live, due: Time, skew: i64) -> Wake {
    let is_absolute = live.job.due_is_absolute() && due == live.start();
    if is_absolute { Wake::Wall(due) } else { Wake::Steady(due.shifted(skew.saturating_neg())) }
}

/// The due that is so far away: by the wall clock, as far as it has been moved. Its own slewing, which is all that there is between it and
/// the steady one beside, counts in no wait.
fn due_after(now: Now, wait: Span) -> Time {
    now.steady.shifted(skew_of(now)) + wait
}

/// The most bytes of a record that has only numbers.
const SMALL_RECORD: u64 = 64;
