//! What anybody may ask at any time without waiting for the disk: counters of durable facts, and health.
//! Holds no decision; the queue and the journal write here, everybody reads.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use journeyman_core::End;
use journeyman_core::journal::JournalCounters;
use journeyman_core::queue::Ends;
use serde::Serialize;
use tokio::sync::watch;

use crate::error::RunnerFailed;
use crate::feed::{Event, Feed};
use crate::metrics;
use crate::recent::Recent;

/// Counters of the queue and its journal, each read in constant time. All but `held` are of facts that are on disk; right after a
/// crash, of what was found there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Stats {
    /// Tickets that wait, held ones included.
    pub pending: u64,
    /// Tickets that run.
    pub running: u64,
    /// Due tickets that something holds back; part of `pending`.
    pub held: u64,
    /// Tickets that did what they were asked, over the whole life of the directory. So for all ends.
    pub done: u64,
    /// Tickets that were refused for good.
    pub rejected: u64,
    /// Tickets that failed and must not be repeated.
    pub unsafe_to_repeat: u64,
    /// Tickets that failed with no attempt left.
    pub spent: u64,
    /// Tickets that their deadline overtook.
    pub late: u64,
    /// Tickets that were cancelled.
    pub cancelled: u64,
    /// Records written since the runner was opened.
    pub records: u64,
    /// Batches made durable since the runner was opened; one sync each.
    pub syncs: u64,
    /// Bytes of the journal.
    pub bytes: u64,
}

/// How a runner is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub enum Health {
    /// All is well.
    Green,
    /// It works, but somebody should look.
    Amber {
        /// At what.
        why: String,
    },
    /// It takes nothing until it is opened again.
    Red {
        /// What happened.
        why: String,
    },
}

#[derive(Debug)]
pub(crate) struct Status {
    pub pending: Gauge,
    pub running: Gauge,
    pub held: Gauge,
    ends: [Gauge; 5],
    pub cancelled: Gauge,
    records: Gauge,
    syncs: Gauge,
    bytes: Gauge,
    pub recent: Recent,
    pub feed: Feed,
    concern: Mutex<Option<String>>,
    failed: watch::Sender<Option<RunnerFailed>>,
    pub closed: AtomicBool,
}

/// A number that one actor writes and anybody reads.
#[derive(Debug, Default)]
pub(crate) struct Gauge(AtomicU64);

impl Gauge {
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub(crate) fn add(&self, by: u64) {
        self.0.fetch_add(by, Ordering::Relaxed);
    }

    pub(crate) fn sub(&self, by: u64) {
        self.0.fetch_sub(by, Ordering::Relaxed);
    }
}

impl Status {
    pub(crate) fn new(pending: usize, running: usize, ends: Ends, bytes: u64) -> Arc<Self> {
        let status = Self {
            pending: Gauge::default(),
            running: Gauge::default(),
            held: Gauge::default(),
            ends: Default::default(),
            cancelled: Gauge::default(),
            records: Gauge::default(),
            syncs: Gauge::default(),
            bytes: Gauge::default(),
            recent: Recent::default(),
            feed: Feed::default(),
            concern: Mutex::default(),
            failed: watch::Sender::new(None),
            closed: AtomicBool::new(false),
        };
        status.pending.set(pending as u64);
        status.running.set(running as u64);
        status.bytes.set(bytes);
        for end in End::ALL {
            status.ended(end).set(ends.of(end));
        }
        status.cancelled.set(ends.cancelled);
        Arc::new(status)
    }

    pub(crate) fn ended(&self, end: End) -> &Gauge {
        &self.ends[End::ALL.iter().position(|other| *other == end).unwrap_or(0)]
    }

    pub(crate) fn journal(&self, counters: JournalCounters) {
        self.records.set(counters.records);
        self.syncs.set(counters.syncs);
        self.bytes.set(counters.bytes);
    }

    pub(crate) fn journal_bytes(&self) -> u64 {
        self.bytes.get()
    }

    pub(crate) fn stats(&self) -> Stats {
        Stats {
            pending: self.pending.get(),
            running: self.running.get(),
            held: self.held.get(),
            done: self.ended(End::Done).get(),
            rejected: self.ended(End::Rejected).get(),
            unsafe_to_repeat: self.ended(End::Unsafe).get(),
            spent: self.ended(End::Spent).get(),
            late: self.ended(End::Late).get(),
            cancelled: self.cancelled.get(),
            records: self.records.get(),
            syncs: self.syncs.get(),
            bytes: self.bytes.get(),
        }
    }

    pub(crate) fn health(&self) -> Health {
        if let Some(RunnerFailed { reason }) = self.failed.borrow().clone() {
            return Health::Red { why: reason };
        }
        self.concerned().clone().map_or(Health::Green, |why| Health::Amber { why })
    }

    /// Sets what somebody should look at. Answers whether there was nothing before.
    pub(crate) fn concern(&self, concern: Option<String>) -> bool {
        let is_one = concern.is_some();
        let before = std::mem::replace(&mut *self.concerned(), concern);
        if is_one != before.is_some() {
            metrics::health(&self.health());
            self.feed.tell(|| Event::Health(self.health()));
        }
        is_one && before.is_none()
    }

    /// Ends this runner for good. The first reason stays. Answers whether this was it.
    pub(crate) fn fail(&self, reason: &str) -> bool {
        let first = self.failed.send_if_modified(|failed| {
            let first = failed.is_none();
            if first {
                *failed = Some(RunnerFailed { reason: reason.to_owned() });
            }
            first
        });
        if first {
            metrics::health(&self.health());
            self.feed.tell(|| Event::Health(self.health()));
            self.feed.close();
        }
        first
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failed.borrow().is_some()
    }

    /// Waits until the runner has failed.
    pub(crate) async fn failure(&self) -> RunnerFailed {
        let mut failed = self.failed.subscribe();
        match failed.wait_for(Option::is_some).await.map(|failed| failed.clone()) {
            Ok(Some(failed)) => failed,
            // The sender is a field of self: it outlives this call.
            _ => std::future::pending().await,
        }
    }

    fn concerned(&self) -> MutexGuard<'_, Option<String>> {
        self.concern.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
