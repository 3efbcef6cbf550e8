//! What anybody may ask at any time without waiting for the disk: counters of durable facts, and health.
//! Holds no decision; the queue and the journal write here, everybody reads.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use journeyman_core::journal::JournalCounters;
use journeyman_core::{End, Queue, Time};
use serde::Serialize;
use tokio::sync::{Notify, watch};

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
    /// About what a snapshot of everything alive takes: jobs with their payloads, and remembered keys.
    pub live_bytes: u64,
    /// Bytes of payload and meta of live tickets that are in memory.
    pub payload_memory: u64,
    /// Bytes of payload of live tickets that are not in memory: see `Limits::payload_memory`.
    pub payload_disk: u64,
    /// Bytes of the files that they are in, those of tickets that have ended among them.
    pub payload_files: u64,
    /// Compactions since the runner was opened.
    pub compactions: u64,
    /// Whether one is under way.
    pub compacting: bool,
    /// What the newest of them wrote of the state, before its store adds its own.
    pub snapshot_bytes: u64,
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
    /// It takes nothing: it is being reopened, has no room on its disk, or is over.
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
    pub live_bytes: Gauge,
    pub payload_memory: Gauge,
    pub payload_disk: Gauge,
    pub payload_files: Gauge,
    /// When the queue took its last turn, by the steady clock.
    pub pulse: Gauge,
    /// Since when its thread waits for the disk; 0 while it does not.
    pub blocked: Gauge,
    records: Gauge,
    syncs: Gauge,
    bytes: Gauge,
    pub recent: Recent,
    pub feed: Feed,
    /// Bytes of the journal that the newest snapshot stands for: kept in case it is damaged.
    pub reserve: Gauge,
    compactions: Gauge,
    pub(crate) compacting: AtomicBool,
    snapshot_bytes: Gauge,
    /// What the journals of earlier reigns had done.
    before: Mutex<JournalCounters>,
    concerns: Mutex<BTreeMap<Concern, String>>,
    condition: watch::Sender<Condition>,
    door: Door,
    /// Told when the actors cease to answer. Every call writes itself down there.
    fails: Notify,
}

/// While it lives, the queue's thread waits for the disk.
pub(crate) struct Blocked<'a>(&'a Gauge);

impl Drop for Blocked<'_> {
    fn drop(&mut self) {
        self.0.set(0);
    }
}

/// What every call looks at: on a cache line of its own, which nothing beside it moves from thread to thread.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Door {
    /// What the condition says.
    answers: AtomicBool,
    closed: AtomicBool,
}

/// How it stands with the actors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    /// They work.
    Open,
    /// They answer questions and take nothing.
    ReadOnly { why: String },
    /// They are being started; why those before are no more, when there were some.
    Opening { why: Option<String> },
    /// They have failed, and are to be replaced.
    Failed { why: String },
    /// They have failed or been dropped, and are not replaced any more.
    Over(RunnerFailed),
}

impl Condition {
    /// Whether questions are answered.
    pub(crate) const fn answers(&self) -> bool {
        matches!(self, Self::Open | Self::ReadOnly { .. })
    }
}

/// What somebody should look at, one thing of each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Concern {
    JournalNearlyFull,
    /// Damage that was passed over at the open.
    Snapshot,
    Compaction,
    /// Payloads that the disk does not take.
    Payloads,
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
    /// Of a runner that has not been opened yet.
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            pending: Gauge::default(),
            running: Gauge::default(),
            held: Gauge::default(),
            ends: Default::default(),
            cancelled: Gauge::default(),
            live_bytes: Gauge::default(),
            payload_memory: Gauge::default(),
            payload_disk: Gauge::default(),
            payload_files: Gauge::default(),
            pulse: Gauge::default(),
            blocked: Gauge::default(),
            records: Gauge::default(),
            syncs: Gauge::default(),
            bytes: Gauge::default(),
            recent: Recent::default(),
            feed: Feed::default(),
            reserve: Gauge::default(),
            compactions: Gauge::default(),
            compacting: AtomicBool::new(false),
            snapshot_bytes: Gauge::default(),
            before: Mutex::default(),
            concerns: Mutex::default(),
            condition: watch::Sender::new(Condition::Opening { why: None }),
            door: Door::default(),
            fails: Notify::new(),
        })
    }

    /// What was found on disk takes the place of what was known before.
    pub(crate) fn recovered(&self, queue: &Queue, bytes: u64, bytes_since_snapshot: u64) {
        self.pending.set(queue.pending() as u64);
        self.running.set(queue.running() as u64);
        self.held.set(0);
        self.live_bytes.set(queue.live_bytes());
        self.payload_memory.set(queue.weight_in_memory());
        self.payload_disk.set(queue.weight() - queue.weight_in_memory());
        self.payload_files.set(0);
        self.concern(Concern::Payloads, None);
        for end in End::ALL {
            self.ended(end).set(queue.ends().of(end));
        }
        self.cancelled.set(queue.ends().cancelled);
        self.bytes.set(bytes);
        self.reserve.set(bytes.saturating_sub(bytes_since_snapshot));
        let done = JournalCounters { records: self.records.get(), syncs: self.syncs.get(), bytes: 0 };
        *self.before.lock().unwrap_or_else(PoisonError::into_inner) = done;
    }

    pub(crate) fn ended(&self, end: End) -> &Gauge {
        &self.ends[end as usize]
    }

    pub(crate) fn journal(&self, counters: JournalCounters) {
        let before = *self.before.lock().unwrap_or_else(PoisonError::into_inner);
        self.records.set(before.records + counters.records);
        self.syncs.set(before.syncs + counters.syncs);
        self.bytes.set(counters.bytes);
    }

    /// A compaction has succeeded.
    pub(crate) fn compacted(&self, snapshot_bytes: u64) {
        self.compactions.add(1);
        self.snapshot_bytes.set(snapshot_bytes);
    }

    pub(crate) fn bytes_since_snapshot(&self) -> u64 {
        self.bytes.get().saturating_sub(self.reserve.get())
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
            live_bytes: self.live_bytes.get(),
            payload_memory: self.payload_memory.get(),
            payload_disk: self.payload_disk.get(),
            payload_files: self.payload_files.get(),
            compactions: self.compactions.get(),
            compacting: self.compacting.load(Ordering::Relaxed),
            snapshot_bytes: self.snapshot_bytes.get(),
        }
    }

    pub(crate) fn health(&self) -> Health {
        match &*self.condition.borrow() {
            Condition::ReadOnly { why } | Condition::Failed { why } | Condition::Opening { why: Some(why) } => {
                return Health::Red { why: why.clone() };
            }
            Condition::Over(RunnerFailed { reason }) => return Health::Red { why: reason.clone() },
            Condition::Opening { why: None } => return Health::Red { why: "the runner is being opened".to_owned() },
            Condition::Open => {}
        }
        let concerns = self.concerns();
        if concerns.is_empty() {
            return Health::Green;
        }
        Health::Amber { why: concerns.values().map(String::as_str).collect::<Vec<_>>().join("; ") }
    }

    /// Sets what somebody should look at, or that there is nothing any more. Answers whether it is new.
    pub(crate) fn concern(&self, concern: Concern, text: Option<String>) -> bool {
        let (is_one, before) = {
            let mut concerns = self.concerns();
            match text {
                Some(text) => (true, concerns.insert(concern, text)),
                None => (false, concerns.remove(&concern)),
            }
        };
        if is_one != before.is_some() {
            self.tell_health();
        }
        is_one && before.is_none()
    }

    fn tell_health(&self) {
        metrics::health(&self.health());
        self.feed.tell(|| Event::Health(self.health()));
    }

    pub(crate) fn condition(&self) -> watch::Receiver<Condition> {
        self.condition.subscribe()
    }

    /// The queue's thread waits for the disk from now on.
    pub(crate) fn blocks(&self, now: Time) -> Blocked<'_> {
        self.blocked.set(now.0);
        Blocked(&self.blocked)
    }

    pub(crate) fn answers(&self) -> bool {
        self.door.answers.load(Ordering::Acquire)
    }

    /// Whether the runner was stopped in order.
    pub(crate) fn is_closed(&self) -> bool {
        self.door.closed.load(Ordering::Acquire)
    }

    pub(crate) fn close(&self) {
        self.door.closed.store(true, Ordering::Release);
    }

    /// Actors are about to be started. What becomes of them from now on counts.
    pub(crate) fn opening(&self) {
        self.set(|before| match before {
            Condition::Over(_) => None,
            Condition::Failed { why } | Condition::ReadOnly { why } => Some(Condition::Opening { why: Some(why.clone()) }),
            Condition::Open | Condition::Opening { .. } => Some(Condition::Opening { why: None }),
        });
    }

    /// The actors are there, and take everything or questions only. False when one of them has failed since they were started.
    pub(crate) fn opened(&self, read_only: Option<String>) -> bool {
        self.set(|before| match before {
            Condition::Opening { .. } => Some(read_only.map_or(Condition::Open, |why| Condition::ReadOnly { why })),
            _ => None,
        })
    }

    /// The actors have failed and are to be replaced. The first reason stays. Answers whether this was it.
    pub(crate) fn fail(&self, why: &str) -> bool {
        self.set(|before| match before {
            Condition::Failed { .. } | Condition::Over(_) => None,
            _ => Some(Condition::Failed { why: why.to_owned() }),
        })
    }

    /// Ends this runner for good. The first reason stays. Answers whether this was it.
    pub(crate) fn give_up(&self, reason: &str) -> bool {
        let over = || Condition::Over(RunnerFailed { reason: reason.to_owned() });
        let first = self.set(|before| (!matches!(before, Condition::Over(_))).then(over));
        if first {
            self.feed.close();
        }
        first
    }

    fn set(&self, change: impl FnOnce(&Condition) -> Option<Condition>) -> bool {
        let mut fails = false;
        let changed = self.condition.send_if_modified(|condition| match change(condition) {
            Some(next) => {
                *condition = next;
                fails = !condition.answers();
                self.door.answers.store(condition.answers(), Ordering::Release);
                true
            }
            None => false,
        });
        if changed {
            if fails {
                self.fails.notify_waiters();
            }
            self.tell_health();
        }
        changed
    }

    /// Waits until the actors do not answer, for now or for good.
    pub(crate) async fn failed(&self) {
        let fails = self.fails.notified();
        // Asked behind that: what comes between is not missed.
        if self.answers() {
            fails.await;
        }
    }

    /// Waits until the actors answer, or will never again.
    pub(crate) async fn settled(&self) -> Condition {
        self.until(|condition| !matches!(condition, Condition::Failed { .. } | Condition::Opening { .. })).await
    }

    /// Waits until the runner is over.
    pub(crate) async fn over(&self) -> RunnerFailed {
        match self.until(|condition| matches!(condition, Condition::Over(_))).await {
            Condition::Over(failed) => failed,
            _ => std::future::pending().await,
        }
    }

    async fn until(&self, is_so: impl FnMut(&Condition) -> bool) -> Condition {
        let mut condition = self.condition.subscribe();
        match condition.wait_for(is_so).await.map(|condition| condition.clone()) {
            Ok(condition) => condition,
            // The sender is a field of self: it outlives this call.
            Err(_) => std::future::pending().await,
        }
    }

    fn concerns(&self) -> MutexGuard<'_, BTreeMap<Concern, String>> {
        self.concerns.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_while_the_actors_are_started_is_not_forgotten() {
        let status = Status::new();
        status.opening();
        assert!(status.fail("a worker died"));
        assert!(!status.opened(None));
        assert_eq!(status.health(), Health::Red { why: "a worker died".to_owned() });
        status.opening();
        assert_eq!(status.health(), Health::Red { why: "a worker died".to_owned() }, "still for the same reason");
        assert!(status.opened(None));
        assert_eq!(status.health(), Health::Green);
    }

    #[test]
    fn what_is_over_stays_over() {
        let status = Status::new();
        assert!(status.give_up("dropped"));
        status.opening();
        assert!(!status.opened(None) && !status.fail("x") && !status.give_up("y"));
        assert_eq!(status.health(), Health::Red { why: "dropped".to_owned() });
    }
}
