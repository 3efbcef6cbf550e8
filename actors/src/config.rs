//! Every bound, with its name, its default and its reason. Nothing in the runner grows without one of these.

use std::time::Duration;

use journeyman_core::Span;

/// The bounds of a runner. Make the default and change what you need:
///
/// ```
/// let mut limits = journeyman::Limits::default();
/// limits.pending = 10_000_000;
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// Attempts that run at once: 64, enough to keep a slow network busy, few enough for its file handles.
    pub capacity: u32,
    /// Threads that run jobs: 1, as jobs wait more than they compute; work that blocks goes to `Cx::blocking`.
    pub worker_arbiters: usize,
    /// Pending and running tickets: 1,000,000, somewhat under a gigabyte of memory with small payloads. Tens of millions are fine
    /// where the memory is.
    pub pending: usize,
    /// Bytes of payload and meta of all tickets: 1 GiB.
    pub pending_bytes: u64,
    /// Bytes of payload and meta that are kept in memory: 256 MiB, a quarter of the bound on all of them, so that usual backlogs never touch
    /// the disk again. The payload of a job that waits beyond it is put on disk, and read back when the job is selected.
    pub payload_memory: u64,
    /// Keys remembered, of live tickets and of ended ones within their window: 10,000,000.
    pub keys: usize,
    /// Targets with a breaker or with waiting tickets: 10,000; each costs an actor.
    pub targets: usize,
    /// Calls that wait for an answer: 65,536. Beyond, callers hear `Full` at once instead of growing a mailbox.
    pub calls: usize,
    /// Bytes of the jobs in calls that wait for an answer: 64 MiB.
    pub call_bytes: u64,
    /// One job with everything stored beside it: 1 MiB, and 16 MiB at most. Larger input belongs into a file that the job names.
    pub record_bytes: u64,
    /// What reaches the disk at once: 4 MiB, and 256 MiB at most; beyond the former, a sync takes longer than the callers it serves gain.
    pub batch_bytes: u64,
    /// One file of the journal: 64 MiB; its frames are read into memory when it is opened.
    pub segment_bytes: u64,
    /// All files of the journal: 8 GiB. When they are full, new work is refused; ending what runs never is.
    pub journal_bytes: u64,
    /// What a compaction writes per second: 32 MiB. Callers hardly notice 16 MiB/s, and lose a third of their speed at 64 MiB/s.
    pub compaction_rate: u64,
    /// The name of a kind: 128 bytes.
    pub kind_bytes: usize,
    /// A key: 256 bytes.
    pub key_bytes: usize,
    /// The name of a target: 256 bytes.
    pub target_bytes: usize,
    /// All meta pairs of a job: 4 KiB, room for trace context and a tenant.
    pub meta_bytes: usize,
    /// Ends of jobs that are remembered, for those who ask later how a job ended: 10,000, at most 80 MB if each left the longest
    /// fault text, a few hundred KB where most succeed.
    pub ends_remembered: usize,
    /// Events that wait for a listener, rounded up to a power of two: 1,024, a burst of a few hundred jobs. One that falls further
    /// behind hears how many it lost.
    pub events_kept: usize,
    /// Tickets due at an instant that a jump of the wall clock makes due per second: 1,000, so that a jump is no storm.
    pub catch_up: usize,
    /// How long a closed breaker is remembered without a call: 10 min, ten times the window in which failures count.
    pub breaker_idle: Duration,
    /// How long the journal may take for one batch before its fate counts as unknown: 30 s, beyond what a healthy disk
    /// ever takes.
    pub append_timeout: Duration,
    /// How long `start` waits for another runner to let go of the directory: 0. A rolling restart wants more.
    pub wait_for_lock: Duration,
    /// How often in a row a runner that has failed reopens its journal by itself: 8, which with the pauses between them is half a
    /// minute. A minute without a failure begins a new row. 0: a failure is the end of the runner.
    pub reopenings: u32,
    /// The pause before the first reopening of a row, doubled for each that follows up to a hundredfold: 100 ms.
    pub reopening_pause: Duration,
    /// How long the queue may take no turn while work is there, before it counts as stuck and is replaced: 1 s, where a turn takes
    /// milliseconds.
    pub stuck_after: Duration,
    /// How long a cut-off attempt gets to notice at the end of a drain: 1 s.
    pub interrupt_grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            capacity: 64,
            worker_arbiters: 1,
            pending: 1_000_000,
            pending_bytes: 1 << 30,
            payload_memory: 256 << 20,
            keys: 10_000_000,
            targets: 10_000,
            calls: 65_536,
            call_bytes: 64 << 20,
            record_bytes: 1 << 20,
            batch_bytes: 4 << 20,
            segment_bytes: 64 << 20,
            journal_bytes: 8 << 30,
            compaction_rate: 32 << 20,
            kind_bytes: 128,
            key_bytes: 256,
            target_bytes: 256,
            meta_bytes: 4 << 10,
            ends_remembered: 10_000,
            events_kept: 1_024,
            catch_up: 1_000,
            breaker_idle: Duration::from_secs(600),
            append_timeout: Duration::from_secs(30),
            wait_for_lock: Duration::ZERO,
            reopenings: 8,
            reopening_pause: Duration::from_millis(100),
            stuck_after: Duration::from_secs(1),
            interrupt_grace: Duration::from_secs(1),
        }
    }
}

impl Limits {
    /// What contradicts itself, in one line.
    pub(crate) fn contradiction(&self) -> Option<String> {
        let least_journal = self.segment_bytes.saturating_add(self.reserve(self.capacity));
        let rules = [
            (self.capacity == 0, "capacity is 0: nothing could ever run".to_owned()),
            (self.worker_arbiters == 0, "worker_arbiters is 0: nothing could ever run".to_owned()),
            (self.pending == 0, "pending is 0: nothing could ever be enqueued".to_owned()),
            (self.targets == 0, "targets is 0: no job with a target could be enqueued".to_owned()),
            (
                !(1..=MOST_EVENTS_KEPT).contains(&self.events_kept),
                format!("events_kept is {}: it takes 1 to {MOST_EVENTS_KEPT}", self.events_kept),
            ),
            (self.calls == 0, "calls is 0: nobody could ever ask for anything".to_owned()),
            (
                self.stuck_after < Duration::from_millis(LEAST_STUCK_MS),
                format!("stuck_after is {:?}, less than the {LEAST_STUCK_MS} ms that a busy machine may pause", self.stuck_after),
            ),
            (self.compaction_rate == 0, "compaction_rate is 0: the journal would grow to its limit".to_owned()),
            (self.catch_up == 0, "catch_up is 0: a ticket due at an instant would never start after a jump of the clock".to_owned()),
            (
                self.record_bytes > MOST_RECORD_BYTES,
                format!("record_bytes is {}: it takes at most {MOST_RECORD_BYTES}, as larger input belongs into a file", self.record_bytes),
            ),
            (
                self.record_bytes < RECORD_OVERHEAD,
                format!("record_bytes is {}, below the {RECORD_OVERHEAD} of an empty job", self.record_bytes),
            ),
            (
                self.batch_bytes < self.record_bytes.max(RECORD_OVERHEAD + journeyman_core::record::LARGEST_END),
                format!("batch_bytes ({}) cannot hold one record ({})", self.batch_bytes, self.record_bytes),
            ),
            (
                self.batch_bytes > MOST_BATCH_BYTES,
                format!("batch_bytes is {}: it takes at most {MOST_BATCH_BYTES}, which is one write", self.batch_bytes),
            ),
            (
                self.segment_bytes < self.batch_bytes,
                format!("segment_bytes ({}) is less than batch_bytes ({})", self.segment_bytes, self.batch_bytes),
            ),
            (
                self.journal_bytes < least_journal,
                format!(
                    "journal_bytes ({}) is less than one segment and the room to end {} jobs ({least_journal})",
                    self.journal_bytes, self.capacity
                ),
            ),
        ];
        rules.into_iter().find_map(|(broken, text)| broken.then_some(text))
    }

    /// Journal bytes that must stay free so that `running` attempts can end, whatever else was refused.
    pub(crate) fn reserve(&self, running: u32) -> u64 {
        // Each end may have to open a segment's worth of frames of its own; the frame header is part of the price.
        u64::from(running) * (journeyman_core::record::LARGEST_END + FRAME_OVERHEAD) + FRAME_OVERHEAD
    }
}

/// The largest job that can be allowed: it is in memory several times while it is stored, and in every snapshot.
const MOST_RECORD_BYTES: u64 = 16 << 20;
/// The largest batch that can be allowed: a system writes no more than 2 GiB at once, and nobody waits for so long.
const MOST_BATCH_BYTES: u64 = 256 << 20;
/// Events that may be kept for listeners: each takes its place in memory when the first one listens.
pub(crate) const MOST_EVENTS_KEPT: usize = 1 << 24;
/// Jobs on a page unless asked otherwise: a screen or two.
pub(crate) const PAGE_LIMIT: usize = 100;
/// Jobs on a page at most: the faults of a thousand take at most 8 MB.
pub(crate) const PAGE_LIMIT_MOST: usize = 1_000;
/// Tickets that are looked at for one page: some milliseconds, as a turn that takes longer delays everybody.
pub(crate) const PAGE_LOOKS: usize = 10_000;
/// What a job's numbers and tags add to its names, meta and payload in a record.
pub(crate) const RECORD_OVERHEAD: u64 = 256;
/// What a frame adds to its records, and a segment header to that.
pub(crate) const FRAME_OVERHEAD: u64 = 256;
/// How much sooner than its limit the journal turns health amber: the last eighth.
pub(crate) const NEARLY_FULL: u64 = 8;
/// Units kept by the queue while nothing waits, so that a lone job needs no round trip to the pool.
pub(crate) const SPARE_UNITS: u32 = 16;
/// Between two looks at the wall clock, while a job waits by it; at a journal that is silent; at a disk that is full.
pub(crate) const RECHECK_MS: u64 = 1_000;
/// A queue that takes no turn for less than this is not stuck.
const LEAST_STUCK_MS: u64 = 100;
/// A reign of this length ends a row of reopenings.
pub(crate) const STEADY_REIGN_MS: u64 = 60_000;
/// The longest pause between two reopenings, in first pauses.
pub(crate) const LONGEST_PAUSE: u64 = 100;
/// The pause after a compaction that failed, doubled for each that follows.
pub(crate) const COMPACTION_PAUSE: Span = Span::from_secs(1);
/// The longest of these pauses: a person who makes room is not to wait long.
pub(crate) const LONGEST_COMPACTION_PAUSE: Span = Span::from_secs(600);
/// Tickets that one turn makes ready, when very many become due together: some tens of milliseconds, as a turn that takes longer delays
/// everybody, and one of a second counts as stuck. More than a batch of the smallest jobs.
pub(crate) const MADE_READY_AT_ONCE: usize = 20_000;
/// Tickets that are remembered because their payloads may go; of more, it is looked for them anew. Half a mebibyte.
pub(crate) const CANDIDATES: usize = 65_536;
/// Tickets that one turn looks at for payloads that may go: below a millisecond.
pub(crate) const LOOKS_FOR_PAYLOADS: usize = 10_000;
/// Bytes of payload that are put away at once, about: one write.
pub(crate) const PUT_AWAY_AT_ONCE: u64 = 1 << 20;
/// The pause before a disk that took no payloads is asked again: a person who makes room is not to wait long.
pub(crate) const PAYLOADS_PAUSE: Span = Span::from_secs(10);
/// A jump of the wall clock: more than its own slewing does between two looks.
pub(crate) const JUMP_MS: u64 = 1_000;
