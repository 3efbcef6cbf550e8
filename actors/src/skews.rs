//! How far the wall clock was from the steady one when the times of a ticket were set. Kept outside the queue, so that the next
//! queue of this process waits as the one before did. Holds nothing unless the wall clock was set while the runner ran.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use journeyman_core::{Now, Ticket};

use crate::config::JUMP_MS;

/// The skews of one process. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Skews(Arc<Inner>);

#[derive(Default)]
struct Inner {
    /// Whether the map holds anything: asked several times for each job, and mostly it does not.
    holds_any: AtomicBool,
    map: Mutex<HashMap<Ticket, Skew>>,
}

/// In milliseconds; 0 as long as both clocks are as level as they were at the start.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Skew {
    /// When the ticket got its start, from which its deadline counts.
    start: i64,
    /// When it got its due.
    due: i64,
}

/// How far the wall clock has been moved since the process started; what is no more than its slewing counts as nothing.
pub(crate) fn skew_of(now: Now) -> i64 {
    let skew = now.wall.skew_ms(now.steady);
    if skew.unsigned_abs() > JUMP_MS { skew } else { 0 }
}

impl Skews {
    /// The ticket was stored now.
    pub(crate) fn stored(&self, ticket: Ticket, now: Now) {
        let skew = skew_of(now);
        self.set(ticket, |_| Skew { start: skew, due: skew });
    }

    /// The ticket went back in line now.
    pub(crate) fn back_in_line(&self, ticket: Ticket, now: Now) {
        let due = skew_of(now);
        self.set(ticket, |before| Skew { due, ..before });
    }

    /// The ticket has ended.
    pub(crate) fn forget(&self, ticket: Ticket) {
        self.set(ticket, |_| Skew::default());
    }

    /// Only of these is anything kept.
    pub(crate) fn keep(&self, lives: impl Fn(Ticket) -> bool) {
        let mut map = self.map();
        map.retain(|ticket, _| lives(*ticket));
        self.note(&map);
    }

    pub(crate) fn of_start(&self, ticket: Ticket) -> i64 {
        self.of(ticket).start
    }

    /// Those of all dues as they are now, for who asks for very many.
    pub(crate) fn of_dues(&self) -> impl Fn(Ticket) -> i64 + use<> {
        let map = self.map().clone();
        move |ticket| map.get(&ticket).map_or(0, |skew| skew.due)
    }

    pub(crate) fn of_due(&self, ticket: Ticket) -> i64 {
        self.of(ticket).due
    }

    fn of(&self, ticket: Ticket) -> Skew {
        if self.holds_any() { self.map().get(&ticket).copied().unwrap_or_default() } else { Skew::default() }
    }

    fn set(&self, ticket: Ticket, change: impl Fn(Skew) -> Skew) {
        if !self.holds_any() && change(Skew::default()) == Skew::default() {
            return;
        }
        let mut map = self.map();
        let skew = change(map.get(&ticket).copied().unwrap_or_default());
        if skew == Skew::default() {
            map.remove(&ticket);
        } else {
            map.insert(ticket, skew);
        }
        self.note(&map);
    }

    fn holds_any(&self) -> bool {
        self.0.holds_any.load(Ordering::Acquire)
    }

    fn note(&self, map: &HashMap<Ticket, Skew>) {
        self.0.holds_any.store(!map.is_empty(), Ordering::Release);
    }

    fn map(&self) -> MutexGuard<'_, HashMap<Ticket, Skew>> {
        self.0.map.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use journeyman_core::Time;

    use super::*;

    #[test]
    fn nothing_is_kept_while_the_clocks_are_level() {
        let skews = Skews::default();
        let at = |wall, steady| Now { wall: Time(wall), steady: Time(steady) };
        skews.stored(Ticket(1), at(10_000, 10_001));
        assert!(skews.map().is_empty(), "slewing is no jump");
        skews.stored(Ticket(1), at(90_000, 10_000));
        skews.back_in_line(Ticket(1), at(5_000, 20_000));
        assert_eq!((skews.of_start(Ticket(1)), skews.of_due(Ticket(1))), (80_000, -15_000));
        skews.back_in_line(Ticket(1), at(30_000, 30_000));
        assert_eq!((skews.of_start(Ticket(1)), skews.of_due(Ticket(1))), (80_000, 0));
        skews.stored(Ticket(2), at(90_000, 10_000));
        skews.keep(|ticket| ticket == Ticket(2));
        skews.forget(Ticket(2));
        assert!(skews.map().is_empty());
    }
}
