//! How many calls one turn takes in, and when the batch sets out. Both are about callers who answer an answer with their next call:
//! a batch that waits a moment for them carries all of them instead of half, and one that is bounded by them leaves
//! room for the jobs that run. Why these rules: `docs/decisions/0009-pace.md`.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use actix::{AsyncContext, Context, WrapFuture};

use super::QueueActor;
use crate::clock::{Clock, Stopwatch};

/// What the queue knows of those who call and of what its last batches carried.
pub(super) struct Pace {
    /// Callers who may ride in one batch while attempts come and go.
    places: usize,
    /// Callers whose answers wait for the batch that is being filled.
    riders: usize,
    /// Whether the batch that is being filled moves an attempt.
    moves_attempts: bool,
    /// Batches in a row that moved none.
    quiet_batches: u32,
    /// Callers who were answered just now and have not called again: the batch waits a moment for them.
    awaited: Option<Rc<Cell<usize>>>,
    /// Since when the journal has a batch.
    underway: Option<Stopwatch>,
    /// Batches in a row that had one caller in them, moved no attempt, and were on disk soon.
    lone_batches: u32,
}

impl Pace {
    /// For so many attempts at once.
    pub(super) const fn new(capacity: u32) -> Self {
        let capacity = capacity as usize;
        let places = match capacity {
            ..LEAST_RIDERS => LEAST_RIDERS,
            CALLS.. => CALLS,
            _ => capacity,
        };
        Self { places, riders: 0, moves_attempts: false, quiet_batches: 0, awaited: None, underway: None, lone_batches: 0 }
    }

    /// How many calls this turn may take in.
    pub(super) fn calls(&self) -> usize {
        if !self.is_busy() {
            return CALLS;
        }
        let places = self.places.saturating_sub(self.riders);
        places.min(self.places / TURNS)
    }

    /// A call was taken in.
    pub(super) const fn took_in(&mut self) {
        self.riders += 1;
    }

    /// A Select or the end of an attempt was decided.
    pub(super) const fn moved_an_attempt(&mut self) {
        self.moves_attempts = true;
    }

    /// A call has come.
    pub(super) fn called(&self) {
        if let Some(awaited) = &self.awaited {
            awaited.set(awaited.get().saturating_sub(1));
        }
    }

    /// Whether the batch is to wait.
    pub(super) const fn is_gathering(&self) -> bool {
        self.awaited.is_some()
    }

    /// Whether the batch is best written on this thread, which stands still meanwhile: it is of a caller who is alone, as those before it
    /// were, and nothing else comes and goes. He waits for two wake-ups less.
    pub(super) const fn is_lone(&self) -> bool {
        self.riders == 1 && !self.is_busy() && self.lone_batches >= LONE_BATCHES
    }

    /// The batch has set out.
    pub(super) fn set_out(&mut self, clock: &Clock) {
        self.underway = Some(clock.stopwatch());
        self.lone_batches = if self.riders == 1 && !self.moves_attempts { self.lone_batches.saturating_add(1) } else { 0 };
        self.quiet_batches = if self.moves_attempts { 0 } else { self.quiet_batches.saturating_add(1) };
        self.moves_attempts = false;
    }

    /// The batch that had set out is on disk.
    pub(super) fn arrived(&mut self) {
        if self.underway.as_ref().is_some_and(|underway| underway.elapsed() > SOON) {
            self.lone_batches = 0;
        }
    }

    /// Nobody waits for a batch that is still being filled.
    pub(super) const fn all_aboard(&mut self) {
        self.riders = 0;
    }

    /// Whether attempts come and go. One that runs for long is no reason to let callers wait.
    const fn is_busy(&self) -> bool {
        self.moves_attempts || self.quiet_batches < QUIET_BATCHES
    }
}

impl QueueActor {
    /// So many callers have their answers. Most of them have something more to ask, and come too late for a batch that sets out
    /// now: they would be two cohorts for ever, each waiting for the syncs of both.
    pub(super) fn gather(&mut self, answered: usize, ctx: &mut Context<Self>) {
        if answered < 2 || !self.intake.is_empty() || self.pace.is_gathering() {
            return;
        }
        // As long as it is little against what the callers wait for the disk anyway.
        let sync = self.pace.underway.as_ref().map_or(Duration::ZERO, Stopwatch::elapsed);
        let longest = (sync / 4).clamp(LEAST_GATHERING, MOST_GATHERING);
        let awaited = Rc::new(Cell::new(answered));
        self.pace.awaited = Some(awaited.clone());
        let clock = self.clock.clone();
        let calls = self.links.calls.clone();
        let wait = async move { clock.linger(longest, || calls.count() >= awaited.get()).await };
        ctx.spawn(actix::fut::ActorFutureExt::map(wait.into_actor(self), |(), actor: &mut Self, ctx| {
            actor.pace.awaited = None;
            actor.take_calls(ctx);
            actor.request_turn(ctx);
        }));
    }

    /// Takes another turn when others have had theirs.
    pub(super) fn request_turn_later(&mut self, ctx: &mut Context<Self>) {
        if !self.turn_is_due {
            self.turn_is_due = true;
            ctx.spawn(actix::fut::ActorFutureExt::map(tokio::task::yield_now().into_actor(self), |(), actor: &mut Self, ctx| {
                actor.clock.stir();
                actor.turn(ctx);
            }));
        }
    }
}

/// Calls that one turn takes in: a fraction of a millisecond.
const CALLS: usize = 512;
/// Callers who ride in one batch while attempts come and go: as many as there may be attempts, at least so many, and not more than come in
/// at one go otherwise. To wake a caller costs more than to store a job, so it is callers that are counted: one may bring a thousand jobs.
const LEAST_RIDERS: usize = 64;
/// They come in over so many turns at least: outcomes do not wait behind a flood of calls.
const TURNS: usize = 2;
/// After so many batches that moved no attempt, none come and go: one sets out in a batch, ends during the next, and is in the third.
const QUIET_BATCHES: u32 = 3;
/// After so many batches of one caller each, it is one who calls again when he has his answer.
const LONE_BATCHES: u32 = 3;
/// No longer does the queue's thread stand still for the disk, by what the last batches took.
const SOON: Duration = Duration::from_micros(400);
/// How long a batch waits for those who were just answered: a quarter of the last sync, within these.
const LEAST_GATHERING: Duration = Duration::from_micros(50);
const MOST_GATHERING: Duration = Duration::from_micros(500);
