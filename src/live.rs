//! A ticket that has not ended, in little room: most wait for their first due, have no key, and never failed.

use std::num::NonZeroU64;

use crate::ids::{Attempt, Key, Seq};
use crate::job::Fault;
use crate::packed::Packed;
use crate::time::Time;

/// A ticket that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Live {
    /// What to do.
    pub job: Packed,
    start: Time,
    attempt: Option<NonZeroU64>,
    /// What most have not. There is none that says only what is so without it, so that equal tickets have equal fields.
    history: Option<Box<History>>,
}

/// Where a live ticket stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Waiting; not to be selected before `due`.
    Pending {
        /// The earliest time at which it may be selected.
        due: Time,
    },
    /// Taken by an attempt.
    Running {
        /// The attempt whose outcome counts.
        attempt: Attempt,
    },
}

/// What is known of a ticket beside its job and its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct History {
    /// Of a pending ticket; of a running one, the start.
    due: Time,
    pub rank: Time,
    pub failures: u32,
    pub fault: Option<Fault>,
    pub key: Option<Key>,
}

impl Phase {
    /// The attempt that runs.
    #[must_use]
    pub const fn attempt(self) -> Option<Attempt> {
        match self {
            Self::Running { attempt } => Some(attempt),
            Self::Pending { .. } => None,
        }
    }
}

impl Live {
    /// A new ticket, pending until `start`.
    pub(crate) fn new(job: Packed, key: Option<Key>, start: Time) -> Self {
        let mut live = Self { job, start, attempt: None, history: None };
        if key.is_some() {
            live.change(|history| history.key = key);
        }
        live
    }

    /// One as it was: a ticket of [`Live::new`] with this history. None when no attempt has such a number.
    pub(crate) fn restored(job: Packed, start: Time, phase: Phase, history: impl FnOnce(&mut History)) -> Option<Self> {
        let mut live = Self::new(job, None, start);
        live.change(history);
        match phase {
            Phase::Pending { due } => live.defer(due),
            Phase::Running { attempt } => live.attempt = Some(NonZeroU64::new(attempt.0.0)?),
        }
        Some(live)
    }

    /// Unique while the ticket lives.
    #[must_use]
    pub fn key(&self) -> Option<&Key> {
        self.history.as_ref()?.key.as_ref()
    }

    /// The first due, from which the policy's deadline counts.
    #[must_use]
    pub const fn start(&self) -> Time {
        self.start
    }

    /// Its place among runnable tickets of one priority: the due of its Enqueue or last Requeue.
    #[must_use]
    pub fn rank(&self) -> Time {
        self.history.as_ref().map_or(self.start, |history| history.rank)
    }

    /// Attempts that failed.
    #[must_use]
    pub fn failures(&self) -> u32 {
        self.history.as_ref().map_or(0, |history| history.failures)
    }

    /// What went wrong last.
    #[must_use]
    pub fn fault(&self) -> Option<&Fault> {
        self.history.as_ref()?.fault.as_ref()
    }

    /// Pending or running.
    #[must_use]
    pub fn phase(&self) -> Phase {
        match self.attempt {
            Some(attempt) => Phase::Running { attempt: Attempt(Seq(attempt.get())) },
            None => Phase::Pending { due: self.history.as_ref().map_or(self.start, |history| history.due) },
        }
    }

    /// Whether an attempt of it runs.
    #[must_use]
    pub const fn is_running(&self) -> bool {
        self.attempt.is_some()
    }

    /// The attempt takes it. It is named by its record, of which none has the number 0.
    pub(crate) fn select(&mut self, attempt: Attempt) {
        self.attempt = NonZeroU64::new(attempt.0.0);
        if self.history.is_some() {
            let start = self.start;
            self.change(|history| history.due = start);
        }
    }

    /// It waits again, until `due`.
    pub(crate) fn defer(&mut self, due: Time) {
        self.attempt = None;
        if due != self.start || self.history.is_some() {
            self.change(|history| history.due = due);
        }
    }

    /// It waits again, until `due`, after an attempt that failed.
    pub(crate) fn requeue(&mut self, due: Time, fault: &Fault) {
        self.attempt = None;
        self.change(|history| {
            let failures = history.failures.saturating_add(1);
            *history = History { due, rank: due, failures, fault: Some(fault.clone()), key: history.key.take() };
        });
    }

    fn change(&mut self, change: impl FnOnce(&mut History)) {
        let nothing = History { due: self.start, rank: self.start, failures: 0, fault: None, key: None };
        let mut history = self.history.take().unwrap_or_else(|| Box::new(nothing.clone()));
        change(&mut history);
        self.history = Some(history).filter(|history| **history != nothing);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Kind;
    use crate::job::{Cause, Codec, Job, Options};

    fn job() -> Packed {
        let (kind, options) = (Kind::new("k"), Options::default());
        Job { kind, version: 1, codec: Codec::RAW, target: None, priority: 1, options, meta: vec![], payload: vec![] }.into()
    }

    #[test]
    fn it_is_small() {
        assert!(size_of::<Live>() <= 56, "{}", size_of::<Live>());
    }

    #[test]
    fn what_was_so_before_is_told_by_equal_fields() {
        let new = Live::new(job(), None, Time(5));
        let mut live = new.clone();
        live.select(Attempt(Seq(7)));
        assert_eq!((live.phase(), live.is_running(), &live.history), (Phase::Running { attempt: Attempt(Seq(7)) }, true, &None));
        live.defer(Time(9));
        assert_eq!((live.phase(), live.rank(), live.start()), (Phase::Pending { due: Time(9) }, Time(5), Time(5)));
        live.select(Attempt(Seq(8)));
        assert_eq!(live.history, None, "nothing is left of a deferral that is over");
        live.defer(Time(5));
        assert_eq!(live, new);
    }

    #[test]
    fn what_is_rare_is_kept_while_it_runs() {
        let fault = Fault::new(Cause::Failed, "why");
        let mut live = Live::new(job(), Some(Key::new("one")), Time(5));
        live.select(Attempt(Seq(7)));
        live.requeue(Time(9), &fault);
        live.select(Attempt(Seq(8)));
        assert_eq!((live.key(), live.failures(), live.fault()), (Some(&Key::new("one")), 1, Some(&fault)));
        assert_eq!((live.start(), live.rank()), (Time(5), Time(9)));
        let restored = |phase| {
            Live::restored(job(), Time(5), phase, |history| {
                (history.rank, history.failures) = (Time(9), 1);
                (history.fault, history.key) = (Some(fault.clone()), Some(Key::new("one")));
            })
        };
        assert_eq!(restored(live.phase()), Some(live));
        assert_eq!(restored(Phase::Running { attempt: Attempt(Seq(0)) }), None);
    }
}
