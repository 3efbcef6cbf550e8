//! How many calls one turn takes in, and when the batch sets out. Both are about callers who answer an answer with their next call, and
//! about attempts that end as soon as they have begun: a batch that waits a moment for them carries all of them instead of half, and one
//! that is bounded by callers leaves room for the jobs that run. Why these rules: `docs/decisions/0009-pace.md`.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use actix::fut::ActorFutureExt;
use actix::{AsyncContext, Context, WrapFuture};
use journeyman_core::Attempt;

use super::QueueActor;
use crate::clock::{Clock, Courtesy, Stopwatch};

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
    gathering: Gathering,
    /// Whether it is worth it to wait twice as long for callers.
    callers_are_near: bool,
    begun: Begun,
    /// Whether a wait yields the processor. Remembered from one batch to the next.
    courtesy: Rc<Courtesy>,
    /// Since when the journal has a batch.
    underway: Option<Stopwatch>,
    /// How long the last one was under way.
    sync: Duration,
    /// Batches in a row that had one caller in them, moved no attempt, and were on disk soon.
    lone_batches: u32,
}

/// Whom the batch waits for before it sets out.
enum Gathering {
    Nobody,
    /// So many who were answered just now, less those whose calls have been taken since. Calls that store stay in their list until as many
    /// are there, until it has been long enough, or until somebody asks what there is.
    Callers(Rc<Cell<usize>>),
    /// Attempts that began just now. Meanwhile calls are taken in and ends are settled as they come.
    Attempts,
}

/// The attempts that began last, all at once.
#[derive(Default)]
struct Begun {
    /// The first of them, and since when.
    first: Option<(Attempt, Stopwatch)>,
    /// So many have not ended. Shared with who waits for them.
    left: Rc<Cell<usize>>,
    /// Times in a row that all of them were over soon.
    quick: u32,
    /// Waits in a row that were in vain.
    in_vain: u32,
}

impl Pace {
    /// For so many attempts at once.
    pub(super) fn new(capacity: u32) -> Self {
        let capacity = capacity as usize;
        let places = match capacity {
            ..LEAST_RIDERS => LEAST_RIDERS,
            CALLS.. => CALLS,
            _ => capacity,
        };
        Self {
            places,
            riders: 0,
            moves_attempts: false,
            quiet_batches: 0,
            gathering: Gathering::Nobody,
            callers_are_near: false,
            begun: Begun::default(),
            courtesy: Rc::default(),
            underway: None,
            sync: Duration::ZERO,
            lone_batches: 0,
        }
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

    /// A call has been taken.
    pub(super) fn called(&self) {
        if let Gathering::Callers(awaited) = &self.gathering {
            awaited.set(awaited.get().saturating_sub(1));
        }
    }

    /// Whether the batch is to wait.
    pub(super) const fn is_gathering(&self) -> bool {
        !matches!(self.gathering, Gathering::Nobody)
    }

    /// Whether calls are to stay where they come in.
    pub(super) const fn is_gathering_callers(&self) -> bool {
        matches!(self.gathering, Gathering::Callers(_))
    }

    /// So many attempts begin, this one first.
    pub(super) fn begin(&mut self, first: Attempt, count: usize, clock: &Clock) {
        if self.begun.left.replace(count) > 0 {
            self.begun.quick = 0;
        }
        self.begun.first = Some((first, clock.stopwatch()));
    }

    /// One has ended.
    pub(super) fn ended(&mut self, attempt: Attempt) {
        if let Some((_, watch)) = self.begun.first.as_ref().filter(|(first, _)| *first <= attempt) {
            let left = self.begun.left.get().saturating_sub(1);
            self.begun.left.set(left);
            if left == 0 {
                let is_soon = watch.elapsed() <= self.longest_for_attempts();
                self.begun.quick = if is_soon { self.begun.quick.saturating_add(1) } else { 0 };
            }
        }
    }

    /// Whether there are attempts to wait for: quick ones, as far as is known, and not few beside those who call. One by itself can wait for
    /// the next batch, which it shares with nobody. Where some are quick and some are not, fewer and fewer batches wait.
    fn has_quick_attempts(&self, answered: usize) -> bool {
        let begun = self.begun.left.get();
        let are_quick = self.begun.quick > self.begun.in_vain && !self.left_for_attempts().is_zero();
        are_quick && begun > 1 && begun * FEW >= answered
    }

    /// The batch has waited for attempts.
    fn waited_for_attempts(&mut self) {
        self.begun.in_vain = if self.begun.left.get() == 0 { 0 } else { self.begun.in_vain.saturating_add(1) };
    }

    /// A sync, as they would wait for one more if the batch went without them.
    fn longest_for_attempts(&self) -> Duration {
        self.sync.clamp(LEAST_GATHERING, MOST_GATHERING)
    }

    /// How much longer the batch is to wait for the attempts that have begun.
    fn left_for_attempts(&self) -> Duration {
        self.begun.first.as_ref().map_or(Duration::ZERO, |(_, watch)| self.longest_for_attempts().saturating_sub(watch.elapsed()))
    }

    /// A quarter of a sync is little against what callers wait for the disk anyway. Half of one when all of them will be there then, unless
    /// jobs wait for a slot already.
    fn longest_for_callers(&self, has_backlog: bool) -> Duration {
        let longest = (self.sync / 4).clamp(LEAST_GATHERING, MOST_GATHERING);
        if self.callers_are_near && !has_backlog { longest * 2 } else { longest }
    }

    /// Of so many callers these are missing. Where half of them came, the others may in as much time again.
    const fn came(&mut self, callers: usize, missing: usize) {
        self.callers_are_near = if self.callers_are_near { missing == 0 } else { missing <= callers / 2 };
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
        self.sync = self.underway.as_ref().map_or(Duration::ZERO, Stopwatch::elapsed);
        if self.sync > SOON {
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
    /// now: they would be two cohorts for ever, each waiting for the syncs of both. So would attempts that have begun now and end at once.
    pub(super) fn gather(&mut self, answered: usize, ctx: &mut Context<Self>) {
        let callers = if answered > 1 && self.intake.is_empty() { answered } else { 0 };
        let attempts = self.pace.has_quick_attempts(answered);
        if self.pace.is_gathering() || (callers == 0 && !attempts) {
            return;
        }
        let awaited = Rc::new(Cell::new(callers));
        self.pace.gathering = Gathering::Callers(awaited.clone());
        let has_backlog = self.schedule.least().is_some();
        let longest = self.pace.longest_for_callers(has_backlog);
        let (clock, courtesy, calls) = (self.clock.clone(), self.pace.courtesy.clone(), self.links.calls.clone());
        let for_callers = async move {
            let missing = || awaited.get().saturating_sub(calls.count());
            clock.linger(longest, &courtesy, || missing() == 0).await;
            missing()
        };
        let for_all = for_callers.into_actor(self).then(move |missing, actor: &mut Self, ctx| {
            if callers > 0 && !has_backlog {
                actor.pace.came(callers, missing);
            }
            actor.pace.gathering = Gathering::Attempts;
            actor.take_calls(ctx);
            let longest = if attempts { actor.pace.left_for_attempts() } else { Duration::ZERO };
            let (clock, courtesy, left) = (actor.clock.clone(), actor.pace.courtesy.clone(), actor.pace.begun.left.clone());
            let for_attempts = async move {
                clock.linger(longest, &courtesy, || left.get() == 0).await;
                !longest.is_zero()
            };
            for_attempts.into_actor(actor)
        });
        ctx.spawn(for_all.map(|has_waited, actor: &mut Self, ctx| {
            if has_waited {
                actor.pace.waited_for_attempts();
            }
            actor.pace.gathering = Gathering::Nobody;
            actor.request_turn(ctx);
        }));
    }

    /// Takes another turn when others have had theirs.
    pub(super) fn request_turn_later(&mut self, ctx: &mut Context<Self>) {
        if !self.turn_is_due {
            self.turn_is_due = true;
            ctx.spawn(tokio::task::yield_now().into_actor(self).map(|(), actor: &mut Self, ctx| {
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
/// One attempt is worth holding back so many callers who were answered, and no more.
const FEW: usize = 4;
/// Between these a batch waits for callers, or for attempts; for callers who are near up to twice as long.
const LEAST_GATHERING: Duration = Duration::from_micros(50);
const MOST_GATHERING: Duration = Duration::from_micros(500);

#[cfg(test)]
mod tests {
    use journeyman_core::{Seq, Span, Time};

    use super::*;
    use crate::clock::VirtualClock;

    const MILLISECOND: Duration = Duration::from_millis(1);

    /// The batch is under way for `sync` milliseconds; then attempts begin.
    fn release(pace: &mut Pace, clock: &VirtualClock, sync: u64, attempts: std::ops::Range<u64>) {
        let its_clock = Clock::Virtual(clock.clone());
        pace.set_out(&its_clock);
        pass(clock, sync);
        pace.arrived();
        pace.begin(Attempt(Seq(attempts.start)), attempts.count(), &its_clock);
    }

    fn pass(clock: &VirtualClock, milliseconds: u64) {
        clock.move_to(clock.now().steady + Span(milliseconds));
    }

    fn end(pace: &mut Pace, attempts: std::ops::Range<u64>) {
        attempts.for_each(|seq| pace.ended(Attempt(Seq(seq))));
    }

    /// So many batches whose attempts end at once. Answers the number after their last.
    fn quick(pace: &mut Pace, clock: &VirtualClock, from: u64, batches: u64) -> u64 {
        for n in 0..batches {
            let first = from + 10 * n;
            release(pace, clock, 1, first..first + 10);
            end(pace, first..first + 10);
        }
        from + 10 * batches
    }

    #[test]
    fn a_batch_waits_for_attempts_when_those_before_them_were_quick() {
        let (mut pace, clock) = (Pace::new(64), VirtualClock::new(Time(0), 1));
        release(&mut pace, &clock, 1, 0..10);
        assert!(!pace.has_quick_attempts(0), "nothing is known yet");
        end(&mut pace, 0..10);
        release(&mut pace, &clock, 1, 10..20);
        assert!(pace.has_quick_attempts(40) && !pace.has_quick_attempts(41), "they are few beside so many callers");
        assert_eq!(pace.left_for_attempts(), MOST_GATHERING);
        end(&mut pace, 10..19);
        assert_eq!(pace.left_for_attempts(), MOST_GATHERING, "one is left to wait for");
        pass(&clock, 1);
        assert_eq!(pace.left_for_attempts(), Duration::ZERO, "it took too long");
        end(&mut pace, 19..20);
        release(&mut pace, &clock, 1, 20..30);
        assert!(!pace.has_quick_attempts(0), "the last ones were slow");
    }

    #[test]
    fn it_waits_for_none_when_one_before_them_still_runs() {
        let (mut pace, clock) = (Pace::new(64), VirtualClock::new(Time(0), 1));
        quick(&mut pace, &clock, 0, 1);
        release(&mut pace, &clock, 1, 10..20);
        end(&mut pace, 11..20);
        release(&mut pace, &clock, 1, 20..30);
        assert!(!pace.has_quick_attempts(0));
        // Those that end now began before: they say nothing of these.
        end(&mut pace, 0..20);
        assert_eq!(pace.begun.left.get(), 10);
    }

    #[test]
    fn the_more_waits_are_in_vain_the_fewer_there_are() {
        let (mut pace, clock) = (Pace::new(64), VirtualClock::new(Time(0), 1));
        let mut next = 0;
        for waits_in_vain in 0..5 {
            next = quick(&mut pace, &clock, next, waits_in_vain);
            release(&mut pace, &clock, 1, next..next + 10);
            assert!(!pace.has_quick_attempts(0), "{waits_in_vain} were, and as many quick ones were not enough");
            end(&mut pace, next..next + 10);
            release(&mut pace, &clock, 1, next + 10..next + 20);
            assert!(pace.has_quick_attempts(0));
            pace.waited_for_attempts();
            next += 20;
        }
        next = quick(&mut pace, &clock, next, 1);
        pace.waited_for_attempts();
        release(&mut pace, &clock, 1, next..next + 10);
        assert!(pace.has_quick_attempts(0), "one that was not in vain makes up for all");
    }

    #[test]
    fn it_waits_no_more_for_those_that_turned_out_slow() {
        let (mut pace, clock) = (Pace::new(64), VirtualClock::new(Time(0), 1));
        quick(&mut pace, &clock, 0, 5);
        release(&mut pace, &clock, 1, 50..60);
        assert!(pace.has_quick_attempts(0));
        pass(&clock, 1);
        assert!(!pace.has_quick_attempts(0), "whatever is written meanwhile, and it is no wait in vain");
    }

    #[test]
    fn it_waits_for_no_attempt_that_is_alone() {
        let (mut pace, clock) = (Pace::new(64), VirtualClock::new(Time(0), 1));
        quick(&mut pace, &clock, 0, 3);
        release(&mut pace, &clock, 1, 30..31);
        assert!(!pace.has_quick_attempts(0));
    }

    #[test]
    fn it_waits_twice_as_long_for_callers_who_will_be_there_then() {
        let (mut pace, clock) = (Pace::new(64), VirtualClock::new(Time(0), 1));
        release(&mut pace, &clock, 1, 0..1);
        let once = MILLISECOND / 4;
        for (missing, longest) in [(33, once), (32, 2 * once), (0, 2 * once), (1, once), (0, 2 * once)] {
            pace.came(64, missing);
            assert_eq!(pace.longest_for_callers(false), longest, "{missing} are missing");
            assert_eq!(pace.longest_for_callers(true), once);
        }
    }
}
