//! What is counted and measured, in one place: every metric's name, unit, labels and description. They go to the recorder that
//! the program has installed; without the feature `metrics` nothing of this is compiled. No label says more than a kind and an
//! end: payloads, keys and targets are in none.

use journeyman_core::breaker::Position;
use journeyman_core::{End, Kind};

use crate::clock::Stopwatch;
use crate::status::Health;

/// Compiled only with the feature; without it, the arguments count as used.
macro_rules! with_metrics {
    (($($used:expr),*) => $($code:tt)*) => {
        #[cfg(feature = "metrics")]
        {
            $($code)*
        }
        #[cfg(not(feature = "metrics"))]
        {
            $(let _ = $used;)*
        }
    };
}

/// Tells the recorder what each metric is. Telling it again changes nothing.
pub(crate) fn describe() {
    with_metrics!(() => {
        use ::metrics::{Unit, describe_counter, describe_gauge, describe_histogram};
        describe_counter!(ENQUEUED, Unit::Count, "Jobs stored, by kind.");
        describe_counter!(ENDED, Unit::Count, "Jobs that ended, by kind and end.");
        describe_counter!(REQUEUED, Unit::Count, "Attempts that failed and will be followed by another, by kind.");
        describe_counter!(DEFERRED, Unit::Count, "Jobs put back in line without spending an attempt, by kind.");
        describe_counter!(ATTEMPTS, Unit::Count, "Attempts that began to run, by kind.");
        describe_counter!(BREAKER_OPENINGS, Unit::Count, "Times that the breaker of any target opened.");
        describe_gauge!(PENDING, Unit::Count, "Jobs that wait.");
        describe_gauge!(RUNNING, Unit::Count, "Jobs that run.");
        describe_gauge!(HELD, Unit::Count, "Due jobs that something holds back.");
        describe_gauge!(JOURNAL_BYTES, Unit::Bytes, "Bytes of the journal.");
        describe_gauge!(PAYLOAD_MEMORY_BYTES, Unit::Bytes, "Bytes of payload and meta of live jobs in memory.");
        describe_gauge!(PAYLOAD_DISK_BYTES, Unit::Bytes, "Bytes of payload of live jobs that only the disk has.");
        describe_gauge!(HEALTH, "0 green, 1 amber, 2 red.");
        describe_histogram!(ATTEMPT_SECONDS, Unit::Seconds, "How long an attempt ran, by kind.");
        describe_histogram!(APPEND_SECONDS, Unit::Seconds, "How long a batch took to be on disk.");
        describe_histogram!(BATCH_RECORDS, Unit::Count, "Records of a batch.");
        describe_histogram!(BATCH_BYTES, Unit::Bytes, "Bytes of the records of a batch.");
    });
}

/// What is counted of the jobs of each kind. The recorder is asked for a counter when the first job of its kind comes, and not again:
/// to ask costs far more than to count.
#[derive(Default)]
pub(crate) struct Meters {
    #[cfg(feature = "metrics")]
    kinds: foldhash::HashMap<Kind, usize>,
    #[cfg(feature = "metrics")]
    all: Vec<(Kind, OfKind)>,
    /// The next job is often of the same kind.
    #[cfg(feature = "metrics")]
    last: usize,
}

#[cfg(feature = "metrics")]
struct OfKind {
    enqueued: ::metrics::Counter,
    requeued: ::metrics::Counter,
    deferred: ::metrics::Counter,
    cancelled: ::metrics::Counter,
    ended: [::metrics::Counter; End::ALL.len()],
    attempts: ::metrics::Counter,
    attempt_seconds: ::metrics::Histogram,
}

impl Meters {
    pub(crate) fn enqueued(&mut self, kind: &Kind, jobs: u32) {
        with_metrics!((kind, jobs) => self.of(kind).enqueued.increment(jobs.into()));
    }

    pub(crate) fn ended(&mut self, kind: &Kind, end: End) {
        with_metrics!((kind, end) => self.of(kind).ended[end as usize].increment(1));
    }

    pub(crate) fn cancelled(&mut self, kind: &Kind) {
        with_metrics!((kind) => self.of(kind).cancelled.increment(1));
    }

    pub(crate) fn requeued(&mut self, kind: &Kind) {
        with_metrics!((kind) => self.of(kind).requeued.increment(1));
    }

    pub(crate) fn deferred(&mut self, kind: &Kind) {
        with_metrics!((kind) => self.of(kind).deferred.increment(1));
    }

    pub(crate) fn attempt_began(&mut self, kind: &Kind) {
        with_metrics!((kind) => self.of(kind).attempts.increment(1));
    }

    pub(crate) fn attempt_ran(&mut self, kind: &Kind, watch: &Stopwatch) {
        with_metrics!((kind, watch) => self.of(kind).attempt_seconds.record(watch.elapsed().as_secs_f64()));
    }

    #[cfg(feature = "metrics")]
    fn of(&mut self, kind: &Kind) -> &OfKind {
        if self.all.get(self.last).is_none_or(|(last, _)| last != kind) {
            self.last = self.kinds.get(kind).copied().unwrap_or_else(|| {
                self.all.push((kind.clone(), OfKind::new(kind)));
                self.kinds.insert(kind.clone(), self.all.len() - 1);
                self.all.len() - 1
            });
        }
        &self.all[self.last].1
    }
}

#[cfg(feature = "metrics")]
impl OfKind {
    fn new(kind: &Kind) -> Self {
        use ::metrics::{counter, histogram};
        // Shares the text.
        let label = || ::metrics::SharedString::from_shared(kind.clone().into());
        let ended = |end: &'static str| counter!(ENDED, "kind" => label(), "end" => end);
        Self {
            enqueued: counter!(ENQUEUED, "kind" => label()),
            requeued: counter!(REQUEUED, "kind" => label()),
            deferred: counter!(DEFERRED, "kind" => label()),
            cancelled: ended("cancelled"),
            ended: End::ALL.map(|end| ended(end.as_str())),
            attempts: counter!(ATTEMPTS, "kind" => label()),
            attempt_seconds: histogram!(ATTEMPT_SECONDS, "kind" => label()),
        }
    }
}

pub(crate) fn breaker_moved(position: Position) {
    with_metrics!((position) => if matches!(position, Position::Open { .. }) {
        ::metrics::counter!(BREAKER_OPENINGS).increment(1);
    });
}

pub(crate) fn appended(watch: &Stopwatch, records: u32, bytes: usize) {
    with_metrics!((watch, records, bytes) => {
        ::metrics::histogram!(APPEND_SECONDS).record(watch.elapsed().as_secs_f64());
        ::metrics::histogram!(BATCH_RECORDS).record(f64::from(records));
        ::metrics::histogram!(BATCH_BYTES).record(bytes as f64);
    });
}

pub(crate) fn level(pending: u64, running: u64, held: u64, journal_bytes: u64) {
    with_metrics!((pending, running, held, journal_bytes) => {
        ::metrics::gauge!(PENDING).set(pending as f64);
        ::metrics::gauge!(RUNNING).set(running as f64);
        ::metrics::gauge!(HELD).set(held as f64);
        ::metrics::gauge!(JOURNAL_BYTES).set(journal_bytes as f64);
    });
}

pub(crate) fn payloads(memory: u64, disk: u64) {
    with_metrics!((memory, disk) => {
        ::metrics::gauge!(PAYLOAD_MEMORY_BYTES).set(memory as f64);
        ::metrics::gauge!(PAYLOAD_DISK_BYTES).set(disk as f64);
    });
}

pub(crate) fn health(health: &Health) {
    with_metrics!((health) => ::metrics::gauge!(HEALTH).set(match health {
        Health::Green => 0.0,
        Health::Amber { .. } => 1.0,
        Health::Red { .. } => 2.0,
    }));
}

#[cfg(feature = "metrics")]
use names::*;

#[cfg(feature = "metrics")]
mod names {
    pub(super) const ENQUEUED: &str = "journeyman_enqueued_total";
    pub(super) const ENDED: &str = "journeyman_ended_total";
    pub(super) const REQUEUED: &str = "journeyman_requeued_total";
    pub(super) const DEFERRED: &str = "journeyman_deferred_total";
    pub(super) const ATTEMPTS: &str = "journeyman_attempts_total";
    pub(super) const BREAKER_OPENINGS: &str = "journeyman_breaker_openings_total";
    pub(super) const PENDING: &str = "journeyman_pending";
    pub(super) const RUNNING: &str = "journeyman_running";
    pub(super) const HELD: &str = "journeyman_held";
    pub(super) const JOURNAL_BYTES: &str = "journeyman_journal_bytes";
    pub(super) const PAYLOAD_MEMORY_BYTES: &str = "journeyman_payload_memory_bytes";
    pub(super) const PAYLOAD_DISK_BYTES: &str = "journeyman_payload_disk_bytes";
    pub(super) const HEALTH: &str = "journeyman_health";
    pub(super) const ATTEMPT_SECONDS: &str = "journeyman_attempt_seconds";
    pub(super) const APPEND_SECONDS: &str = "journeyman_append_seconds";
    pub(super) const BATCH_RECORDS: &str = "journeyman_batch_records";
    pub(super) const BATCH_BYTES: &str = "journeyman_batch_bytes";
}
