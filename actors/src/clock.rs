//! What time it is, and chance: the only "now" and the only dice; and how a wait lets others have the processor. The system's clock runs
//! by itself; a virtual one moves only when told, and then wakes who waits.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use journeyman_core::bugs::{self, Bug};
use journeyman_core::{Now, Span, Time};
use tokio::sync::oneshot;

use crate::threads;

/// A clock and dice. Clones share both.
#[derive(Clone, Debug)]
pub(crate) enum Clock {
    System(SystemClock),
    #[cfg_attr(not(feature = "testing"), expect(dead_code, reason = "only the test kit makes one"))]
    Virtual(VirtualClock),
}

impl Clock {
    pub(crate) fn system() -> Self {
        Self::System(SystemClock { level: SystemTime::now().into(), start: Instant::now() })
    }

    pub(crate) fn now(&self) -> Now {
        let now = match self {
            Self::System(clock) => clock.now(),
            Self::Virtual(clock) => clock.now(),
        };
        if bugs::on(Bug::NoMonotonicWait) { Now { steady: now.wall, ..now } } else { now }
    }

    /// Waits until the steady clock shows `at`.
    pub(crate) async fn sleep_until(&self, at: Time) {
        match self {
            Self::System(_) => tokio::time::sleep(at.since(self.now().steady).into()).await,
            Self::Virtual(clock) => clock.sleep_until(at).await,
        }
    }

    /// Waits for so long by the steady clock, from this call on, whenever the wait is first polled.
    pub(crate) fn sleep(&self, span: Span) -> impl Future<Output = ()> + use<> {
        self.stopwatch().reaches(span)
    }

    /// Lets others go on until it is enough for the caller, for at most so long of real time (longer where whoever gets the processor keeps it). On
    /// a virtual clock, nothing is waited for.
    pub(crate) async fn linger(&self, longest: Duration, courtesy: &Courtesy, is_enough: impl Fn() -> bool) {
        if let Self::System(_) = self {
            let began = Instant::now();
            while !is_enough() && began.elapsed() < longest {
                courtesy.show();
                tokio::task::yield_now().await;
            }
        }
    }

    /// A measure that is finer than the clock's milliseconds.
    pub(crate) fn stopwatch(&self) -> Stopwatch {
        match self {
            Self::System(_) => Stopwatch::System(Instant::now()),
            Self::Virtual(clock) => Stopwatch::Virtual(clock.clone(), clock.now().steady),
        }
    }

    pub(crate) fn random(&self) -> u64 {
        match self {
            Self::System(_) => fastrand::u64(..),
            Self::Virtual(clock) => clock.state().dice.u64(..),
        }
    }

    pub(crate) const fn is_virtual(&self) -> bool {
        matches!(self, Self::Virtual(_))
    }

    /// Says that something happened: a virtual clock stands still until nothing does.
    pub(crate) fn stir(&self) {
        if let Self::Virtual(clock) = self {
            clock.stirred.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Lets whoever else wants this thread's processor have it. Those who call have it for a moment. But whoever computes, in this program or in
/// another one, keeps it for milliseconds, as long as the system hands it out at once: then it is offered to nobody for a while, so that
/// little of all time is lost to them.
#[derive(Default)]
pub(crate) struct Courtesy {
    not_before: Cell<Option<Instant>>,
}

impl Courtesy {
    fn show(&self) {
        let now = Instant::now();
        if self.is_due(now) {
            threads::yield_processor();
            self.took(now, now.elapsed());
        }
    }

    fn is_due(&self, now: Instant) -> bool {
        self.not_before.get().is_none_or(|at| at <= now)
    }

    fn took(&self, began: Instant, taken: Duration) {
        if taken >= KEPT {
            self.not_before.set(began.checked_add(taken.saturating_mul(LOST_AT_MOST).min(LONGEST_PAUSE)));
        }
    }
}

/// Longer than callers have it, and shorter than a system hands it out at once to those who compute (3 to 4 ms where it was measured). Where
/// that is shorter, it goes on being offered.
const KEPT: Duration = Duration::from_millis(2);
/// One part in so many of all time is lost to those who keep it, as long as each keeps it no longer than the pause allows for.
const LOST_AT_MOST: u32 = 32;
/// From the offer on. A process that was stopped in the meantime is no reason to be discourteous for hours.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Runs from the moment it is made.
pub(crate) enum Stopwatch {
    System(Instant),
    Virtual(VirtualClock, Time),
}

impl Stopwatch {
    pub(crate) fn elapsed(&self) -> Duration {
        match self {
            Self::System(start) => start.elapsed(),
            Self::Virtual(clock, start) => clock.now().steady.since(*start).into(),
        }
    }

    /// Waits until it shows so much. A wait that is never polled costs next to nothing.
    pub(crate) fn reaches(&self, span: Span) -> impl Future<Output = ()> + use<> {
        let until = match self {
            Self::System(start) => Ok(start.checked_add(span.into())),
            Self::Virtual(clock, start) => Err((clock.clone(), *start + span)),
        };
        async move {
            match until {
                Ok(Some(at)) => tokio::time::sleep_until(at.into()).await,
                // Beyond all that the clock can show.
                Ok(None) => std::future::pending().await,
                Err((clock, at)) => clock.sleep_until(at).await,
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct SystemClock {
    /// Where the steady clock began: level with the wall clock, so that stored times need no conversion.
    level: Time,
    start: Instant,
}

impl SystemClock {
    fn now(&self) -> Now {
        // Rounded down: a time is reached only when it is.
        let elapsed = Span(u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX));
        Now { wall: SystemTime::now().into(), steady: self.level + elapsed }
    }
}

/// A clock that moves only when told.
#[derive(Clone, Debug)]
pub(crate) struct VirtualClock {
    state: Arc<Mutex<VirtualState>>,
    stirred: Arc<AtomicU64>,
}

#[derive(Debug)]
struct VirtualState {
    now: Now,
    dice: fastrand::Rng,
    sleepers: BTreeMap<(Time, u64), oneshot::Sender<()>>,
    slept: u64,
}

#[cfg_attr(not(feature = "testing"), allow(dead_code, reason = "only the test kit moves one"))]
impl VirtualClock {
    pub(crate) fn new(start: Time, seed: u64) -> Self {
        let now = Now { wall: start, steady: start };
        let state = VirtualState { now, dice: fastrand::Rng::with_seed(seed), sleepers: BTreeMap::new(), slept: 0 };
        Self { state: Arc::new(Mutex::new(state)), stirred: Arc::default() }
    }

    pub(crate) fn now(&self) -> Now {
        self.state().now
    }

    /// How much has happened so far.
    pub(crate) fn stirred(&self) -> u64 {
        self.stirred.load(Ordering::Relaxed)
    }

    /// Moves to the next time at or before `limit` at which somebody wants to wake, and wakes them.
    pub(crate) fn move_to_next(&self, limit: Time) -> bool {
        let mut state = self.state();
        state.sleepers.retain(|_, sleeper| !sleeper.is_closed());
        let Some(((at, _), _)) = state.sleepers.first_key_value().filter(|((at, _), _)| *at <= limit) else { return false };
        let at = *at;
        state.move_to(at);
        while let Some(entry) = state.sleepers.first_entry()
            && entry.key().0 <= at
        {
            // A sleeper that is gone does not mind.
            let _ = entry.remove().send(());
        }
        true
    }

    /// Moves to `at`, when that is ahead.
    pub(crate) fn move_to(&self, at: Time) {
        self.state().move_to(at);
    }

    /// Sets the wall clock alone, forward or back.
    pub(crate) fn set_wall(&self, wall: Time) {
        self.state().now.wall = wall;
    }

    /// Makes the steady clock level with the wall clock, as a new process finds them.
    pub(crate) fn level(&self) {
        let mut state = self.state();
        state.now.steady = state.now.wall;
        state.sleepers.clear();
    }

    async fn sleep_until(&self, at: Time) {
        let (wake, woken) = oneshot::channel();
        {
            let mut state = self.state();
            if at <= state.now.steady {
                return;
            }
            state.slept += 1;
            let id = state.slept;
            state.sleepers.insert((at, id), wake);
        }
        // The sender goes away only when the clock is made level: then this process is no more.
        if woken.await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    fn state(&self) -> MutexGuard<'_, VirtualState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl VirtualState {
    fn move_to(&mut self, at: Time) {
        let step = at.since(self.now.steady);
        self.now = Now { wall: self.now.wall + step, steady: self.now.steady + step };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_keeps_the_processor_is_not_offered_it_for_a_while() {
        let (courtesy, began, millisecond) = (Courtesy::default(), Instant::now(), Duration::from_millis(1));
        courtesy.took(began, KEPT - Duration::from_nanos(1));
        assert!(courtesy.is_due(began), "a caller had it");
        courtesy.took(began, 3 * millisecond);
        assert!(!courtesy.is_due(began + 3 * millisecond) && !courtesy.is_due(began + 95 * millisecond));
        assert!(courtesy.is_due(began + 96 * millisecond), "a part in 32 is lost");
        courtesy.took(began, Duration::MAX);
        assert!(!courtesy.is_due(began + 999 * millisecond) && courtesy.is_due(began + 1000 * millisecond));
    }
}
