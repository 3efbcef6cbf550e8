//! What the jobs note of their runs: which ran, how often, when. Everything of this process, as the handlers of a runner are.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};

use crate::payload;

/// A job runs; it waits for ever when jobs are to be held.
pub(crate) async fn note(bytes: &[u8]) {
    let now = payload::nanos();
    let (number, made) = payload::read(bytes);
    if place(number).is_some_and(|seen| seen.fetch_add(1, Ordering::Relaxed) > 0) {
        TWICE.fetch_add(1, Ordering::Relaxed);
    }
    if TIMED.load(Ordering::Relaxed) {
        let micros = u32::try_from(now.saturating_sub(made) / 1000).unwrap_or(u32::MAX);
        LATENCIES.lock().unwrap_or_else(PoisonError::into_inner).push(micros);
    }
    let _ = FIRST.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
    LAST.fetch_max(now, Ordering::Relaxed);
    STARTED.fetch_add(1, Ordering::Relaxed);
    if HELD.load(Ordering::Relaxed) {
        std::future::pending::<()>().await;
    }
    DONE.fetch_add(1, Ordering::Relaxed);
}

/// Makes room for the notes, so that no measurement pays for it.
pub(crate) fn open() {
    LazyLock::force(&SEEN);
}

/// From now on jobs do not end.
pub(crate) fn hold() {
    HELD.store(true, Ordering::Relaxed);
}

/// From now on it is noted how long each took from its making to its start.
pub(crate) fn time_starts() {
    TIMED.store(true, Ordering::Relaxed);
}

/// These times in microseconds.
pub(crate) fn start_times() -> Vec<u32> {
    std::mem::take(&mut *LATENCIES.lock().unwrap_or_else(PoisonError::into_inner))
}

pub(crate) fn has_run(number: u64) -> bool {
    place(number).is_some_and(|seen| seen.load(Ordering::Relaxed) > 0)
}

pub(crate) fn started() -> u64 {
    STARTED.load(Ordering::Relaxed)
}

/// Runs that have ended, each job once.
pub(crate) fn done() -> u64 {
    DONE.load(Ordering::Relaxed).saturating_sub(twice())
}

/// Runs of jobs that had run before.
pub(crate) fn twice() -> u64 {
    TWICE.load(Ordering::Relaxed)
}

/// Seconds from the start of this process to that of the first and of the last run.
pub(crate) fn first_and_last() -> (f64, f64) {
    let seconds = |nanos: &AtomicU64| nanos.load(Ordering::Relaxed) as f64 / 1e9;
    (seconds(&FIRST), seconds(&LAST))
}

fn place(number: u64) -> Option<&'static AtomicU8> {
    SEEN.get(usize::try_from(number).ok()?)
}

/// By number. Those of a backlog are beyond it.
static SEEN: LazyLock<Vec<AtomicU8>> = LazyLock::new(|| (0..8 << 20).map(|_| AtomicU8::new(0)).collect());
static STARTED: AtomicU64 = AtomicU64::new(0);
static DONE: AtomicU64 = AtomicU64::new(0);
static TWICE: AtomicU64 = AtomicU64::new(0);
static FIRST: AtomicU64 = AtomicU64::new(0);
static LAST: AtomicU64 = AtomicU64::new(0);
static HELD: AtomicBool = AtomicBool::new(false);
static TIMED: AtomicBool = AtomicBool::new(false);
static LATENCIES: Mutex<Vec<u32>> = Mutex::new(Vec::new());
