//! When to take the next turn if no message comes before: one timer for all tickets, and a watch on the wall clock.

use actix::{AsyncContext, Context, WrapFuture};
use journeyman_core::{Now, Span, Time};

use super::QueueActor;
use super::drain::Stage;
use crate::skews::skew_of;
use crate::{config, events};

impl QueueActor {
    pub(super) fn set_timer(&mut self, now: Now, ctx: &mut Context<Self>) {
        let Some(at) = self.next_look(now) else { return };
        if let Some((armed, handle)) = self.timer {
            if armed <= at {
                return;
            }
            ctx.cancel_future(handle);
        }
        let clock = self.clock.clone();
        // What is due already, but was too much for one turn, lets others have theirs first.
        let wake = async move {
            tokio::task::yield_now().await;
            clock.sleep_until(at).await;
        };
        let wake = wake.into_actor(self);
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
        let idle = self.waiting_for_idle.iter().map(|waiting| waiting.until).min();
        let second_look = self.overdue.map(|at| at + Span(config::RECHECK_MS));
        let timeout = second_look.or_else(|| self.waiting_since().map(|since| since + self.rules.limits.append_timeout.into()));
        // A queue that cannot write lets what is due wait.
        let due = if self.stage == Stage::ReadOnly { None } else { steady.into_iter().chain(by_wall).min() };
        let next = [due, idle, timeout, self.away.next_try(), self.stage.deadline()].into_iter().flatten().min()?;
        // Only the wall clock may jump, and the virtual one never does by itself: whoever sets it says so.
        let recheck = wall.filter(|_| !self.clock.is_virtual()).map(|_| now.steady + Span(config::RECHECK_MS));
        Some(recheck.map_or(next, |at| at.min(next)))
    }

    /// Since when an answer of the disk is awaited: that of the journal, or a payload that was put away.
    fn waiting_since(&self) -> Option<Time> {
        self.writer.waiting_since().into_iter().chain(self.away.waiting_since()).min()
    }

    /// A journal that stays silent is as good as one that failed: nobody knows what is on disk. So are payloads that do not come back.
    pub(super) fn watch_disk(&mut self, now: Now) {
        let patience = self.rules.limits.append_timeout;
        let is_overdue = self.waiting_since().is_some_and(|since| since + patience.into() <= now.steady);
        // Asked for in the same turn, the journal is the one that matters.
        let journal = self.writer.waiting_since();
        let who = if self.away.waiting_since().is_some_and(|since| journal.is_none_or(|journal| since < journal)) {
            "the disk of the payloads"
        } else {
            "the journal"
        };
        match self.overdue {
            _ if !is_overdue => self.overdue = None,
            // A process that was frozen finds everything overdue: the answer gets a moment to come in.
            None => self.overdue = Some(now.steady),
            Some(at) if at + Span(config::RECHECK_MS) <= now.steady => self.fail(&format!("{who} gave no answer for {patience:?}")),
            Some(_) => {}
        }
    }
}

/// Notices a wall clock that jumps, and then lets tickets that wait by it through in portions.
pub(super) struct WallWatch {
    skew_ms: i64,
    catching_up: bool,
    /// When the last portion was let through.
    last: Option<Time>,
}

impl WallWatch {
    /// A queue that takes office after a jump may take over what the one before has not let through yet.
    pub(super) fn new(now: Now) -> Self {
        let catching_up = skew_of(now) != 0;
        Self { skew_ms: now.wall.skew_ms(now.steady), catching_up, last: catching_up.then_some(now.steady) }
    }

    /// How many tickets that wait by the wall clock may become ready now. A clock that is set to and fro gets no more of them
    /// through than one that is set once.
    pub(super) fn limit(&mut self, now: Now, per_second: usize) -> usize {
        let skew_ms = now.wall.skew_ms(now.steady);
        let jumped = skew_ms.saturating_sub(self.skew_ms);
        self.skew_ms = skew_ms;
        if jumped.unsigned_abs() > config::JUMP_MS {
            events::wall_jumped(jumped);
            self.catching_up = true;
        }
        if !self.catching_up {
            return usize::MAX;
        }
        let passed = self.last.map_or(A_SECOND, |last| now.steady.since(last)).min(A_SECOND);
        let portion = usize::try_from(passed.0).unwrap_or(usize::MAX).saturating_mul(per_second) / 1000;
        if portion > 0 {
            self.last = Some(now.steady);
        }
        portion
    }

    /// Nothing that the wall clock has made due is left.
    pub(super) const fn caught_up(&mut self) {
        self.catching_up = false;
    }

    /// The least wait for what the wall clock has made due.
    pub(super) fn pause(&self) -> Span {
        Span(if self.catching_up { CATCH_UP_PAUSE_MS } else { 0 })
    }
}

/// Between two portions of a catch-up: short against a second, long against a turn.
const CATCH_UP_PAUSE_MS: u64 = 100;
const A_SECOND: Span = Span::from_secs(1);
