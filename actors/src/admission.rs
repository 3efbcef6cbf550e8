//! The bound at the public edge. An actor's mailbox is none: it grows with every sender. So each call takes its place
//! here, by count and by bytes, before its message exists, and gives it back with its answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

/// What calls may hold at once. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Admission(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    calls: Bounded,
    bytes: Bounded,
    /// Told when a call comes and none was there.
    awake: Notify,
}

/// The place of a call, or of several; given back on drop.
#[derive(Debug)]
pub(crate) struct Room {
    admission: Admission,
    calls: u64,
    bytes: u64,
}

impl Admission {
    pub(crate) fn new(calls: usize, bytes: u64) -> Self {
        Self(Arc::new(Inner { calls: Bounded::new(calls as u64), bytes: Bounded::new(bytes), awake: Notify::new() }))
    }

    /// A place for a call that carries so many bytes; the name of the bound that is reached otherwise.
    pub(crate) fn enter(&self, bytes: u64) -> Result<Room, &'static str> {
        let before = self.0.calls.take(1).ok_or("calls that wait for an answer")?;
        if self.0.bytes.take(bytes).is_none() {
            self.0.calls.give(1);
            return Err("bytes in calls that wait for an answer");
        }
        if before == 0 {
            self.0.awake.notify_one();
        }
        Ok(Room { admission: self.clone(), calls: 1, bytes })
    }
}

impl Admission {
    /// Calls that have a place.
    pub(crate) fn calls(&self) -> u64 {
        self.0.calls.taken.load(Ordering::Relaxed)
    }

    /// Waits for a call that comes when none is there; one that came since it was last awaited counts.
    pub(crate) async fn awake(&self) {
        self.0.awake.notified().await;
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if self.calls > 0 {
            self.admission.0.calls.give(self.calls);
            self.admission.0.bytes.give(self.bytes);
        }
    }
}

impl Room {
    /// Makes this the place of both; of the same bound, as there is one.
    pub(crate) fn join(&mut self, mut other: Self) {
        debug_assert!(Arc::ptr_eq(&self.admission.0, &other.admission.0), "a place at the same edge");
        self.calls += std::mem::take(&mut other.calls);
        self.bytes += std::mem::take(&mut other.bytes);
    }
}

#[derive(Debug)]
struct Bounded {
    taken: AtomicU64,
    limit: u64,
}

impl Bounded {
    const fn new(limit: u64) -> Self {
        Self { taken: AtomicU64::new(0), limit }
    }

    /// What was taken before; none when the amount does not fit.
    fn take(&self, amount: u64) -> Option<u64> {
        let fits = |taken: u64| taken.checked_add(amount).filter(|sum| *sum <= self.limit);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).ok()
    }

    fn give(&self, amount: u64) {
        self.taken.fetch_sub(amount, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_given_back_whole() {
        let admission = Admission::new(2, 10);
        let first = admission.enter(10).expect("empty");
        assert!(admission.enter(1).is_err(), "bytes are all taken");
        let second = admission.enter(0).expect("a call without bytes");
        assert!(admission.enter(0).is_err(), "calls are all taken");
        let mut both = first;
        both.join(second);
        assert!(admission.enter(0).is_err(), "joined, they are still taken");
        drop(both);
        assert_eq!((admission.calls(), admission.0.bytes.taken.load(Ordering::Relaxed)), (0, 0));
    }
}
