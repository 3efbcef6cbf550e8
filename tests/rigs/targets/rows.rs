//! The rows that want a runner and somebody who calls it.

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use journeyman::{Jobs, Runner};
use journeyman_core::disk::Disk;
use journeyman_core::journal::{Batch, Journal, JournalLimits, Salt};
use journeyman_core::snapshot::PlainStore;
use journeyman_core::store::Store;
use journeyman_core::{Attempt, Codec, End, Kind, Op, Options, Packed, Queue, Record, Seq, Ticket, Time, record};

use crate::disk::{Paced, Probe};
use crate::load::{self, HOUR, Nothing, Slice, run_one, slice, store_64, store_one};
use crate::{Bound, Line};

pub(crate) fn records_per_sync() -> Vec<Line> {
    let measured = on_simulated(MILLISECOND, 64, async |jobs| slice(jobs, 64, SECOND, store_one).await);
    let figure = measured.records as f64 / measured.syncs as f64;
    vec![Line { target: "64 producers, disk of 1 ms", figure, unit: "records/sync", bound: Bound::AtLeast(48.0, 60.0) }]
}

pub(crate) fn syncs_per_job() -> Vec<Line> {
    let one_by_one = async |jobs: &Jobs| {
        // What the first job of a runner pays once is not counted.
        for _ in 0..3 {
            one_whole(jobs).await;
        }
        let before = jobs.stats();
        for _ in 0..200 {
            one_whole(jobs).await;
        }
        (jobs.stats().syncs - before.syncs) as f64 / 200.0
    };
    let figure = on_simulated(Duration::ZERO, 64, one_by_one);
    vec![Line { target: "one job at a time", figure, unit: "syncs/job", bound: Bound::AtMost(2.0, 2.0) }]
}

async fn one_whole(jobs: &Jobs) {
    jobs.enqueue(Nothing::new()).await.expect("room");
    jobs.run_until_idle(HOUR).await.expect("it does nothing");
}

pub(crate) fn enqueue_64() -> Vec<Line> {
    let figure = against_disk(false, 64, async |jobs| slice(jobs, 64, SLICE, store_one).await.acks_per_second());
    vec![Line { target: "enqueue, 64 producers / one caller of the disk", figure, unit: "x", bound: Bound::AtLeast(12.0, 25.0) }]
}

pub(crate) fn enqueue_many() -> Vec<Line> {
    let single = against_disk(false, 64, async |jobs| slice(jobs, 512, SLICE, store_one).await.acks_per_second());
    let bulk = against_disk(false, 64, async |jobs| slice(jobs, 16, SLICE, store_64).await.acks_per_second());
    vec![
        Line { target: "enqueue, 512 producers / one caller of the disk", figure: single, unit: "x", bound: Bound::AtLeast(30.0, 60.0) },
        Line { target: "enqueue_all of 64, 16 producers / the same", figure: bulk, unit: "x", bound: Bound::AtLeast(60.0, 120.0) },
    ]
}

pub(crate) fn enqueue_alone() -> Vec<Line> {
    let figure = against_disk(true, 64, async |jobs| slice(jobs, 1, SLICE, store_one).await.acks_per_second());
    vec![Line { target: "enqueue, one producer / one caller, growing file", figure, unit: "x", bound: Bound::Report }]
}

pub(crate) fn end_to_end() -> Vec<Line> {
    let few = against_disk(false, 64, async |jobs| slice(jobs, 64, SLICE, run_one).await.jobs_per_second());
    let many = against_disk(false, 512, async |jobs| slice(jobs, 512, SLICE, run_one).await.jobs_per_second());
    vec![
        Line { target: "jobs, 64 producers and slots / one caller of the disk", figure: few, unit: "x", bound: Bound::AtLeast(8.0, 18.0) },
        Line { target: "jobs, 512 producers and slots / the same", figure: many, unit: "x", bound: Bound::AtLeast(12.0, 50.0) },
    ]
}

pub(crate) fn end_to_end_simulated() -> Vec<Line> {
    let best = |slots: u32| on_simulated(MILLISECOND, slots, async |jobs| best_slice(jobs, slots as usize).await);
    let (few, many) = (best(64), best(512));
    let shared = few.done as f64 / few.syncs as f64;
    vec![
        Line {
            target: "jobs, 64 producers and slots, disk of 1 ms",
            figure: few.jobs_per_second(),
            unit: "jobs/s",
            bound: Bound::AtLeast(25e3, 40e3),
        },
        Line { target: "and how many of these share a sync", figure: shared, unit: "jobs/sync", bound: Bound::AtLeast(40.0, 60.0) },
        Line {
            target: "jobs, 512 producers and slots, disk of 1 ms",
            figure: many.jobs_per_second(),
            unit: "jobs/s",
            bound: Bound::AtLeast(150e3, 250e3),
        },
    ]
}

/// No real disk is in it, and what else runs on the machine can only make it slower: of many slices the best counts.
async fn best_slice(jobs: &Jobs, producers: usize) -> Slice {
    let mut slices = Vec::new();
    for _ in 0..3 * PAIRS {
        slices.push(slice(jobs, producers, SLICE, run_one).await);
    }
    let best = slices.into_iter().max_by(|one, other| one.jobs_per_second().total_cmp(&other.jobs_per_second()));
    best.expect("some were measured")
}

/// What a journal does that takes one record after the other, each durable before the next is decided: three for a job. Of several slices
/// of each the best counts here too.
pub(crate) fn against_strict() -> Vec<Line> {
    let mut strict = Strict::new(Paced::new(MILLISECOND));
    let (by_itself, alone) = on_simulated(MILLISECOND, 64, async |jobs| {
        (best_rate(async || strict.run_one()).await, best_rate(async || one_whole(jobs).await).await)
    });
    let together = on_simulated(MILLISECOND, 64, async |jobs| best_slice(jobs, 64).await.jobs_per_second());
    vec![
        Line { target: "one job at a time / each record by itself", figure: alone / by_itself, unit: "x", bound: Bound::AtLeast(1.3, 1.5) },
        Line { target: "64 slots / each record by itself", figure: together / by_itself, unit: "x", bound: Bound::AtLeast(20.0, 90.0) },
    ]
}

/// How often a second `one` is done, in the best of some slices.
async fn best_rate(mut one: impl AsyncFnMut()) -> f64 {
    let mut best: f64 = 0.0;
    for _ in 0..PAIRS {
        let (began, mut done) = (Instant::now(), 0);
        while began.elapsed() < SLICE {
            one().await;
            done += 1;
        }
        best = best.max(f64::from(done) / began.elapsed().as_secs_f64());
    }
    best
}

/// What else runs on the machine takes caches away, which makes a job dearer (or keeps threads awake, which makes it cheaper): of several
/// slices the least counts.
pub(crate) fn cpu_per_job() -> Vec<Line> {
    // Long enough that compactions come as often as they do in the long run.
    let microseconds = |_| {
        let measured = on_simulated(Duration::ZERO, 512, async |jobs| slice(jobs, 512, SECOND, run_one).await);
        measured.cpu_seconds * 1e6 / measured.done as f64
    };
    let figure = (0..PAIRS).map(microseconds).fold(f64::INFINITY, f64::min);
    vec![Line { target: "CPU of a job from end to end, disk that takes no time", figure, unit: "us/job", bound: Bound::AtMost(5.0, 2.0) }]
}

/// Records of 43 bytes on the average, a thousand jobs waiting, from memory.
pub(crate) fn replay() -> Vec<Line> {
    let disk = Paced::new(Duration::ZERO);
    let mut strict = Strict::new(disk.clone());
    strict.fill(REPLAYED, 1000);
    drop(strict);
    let times: Vec<f64> = (0..5)
        .map(|_| {
            let disk: Arc<dyn Disk> = Arc::new(disk.clone());
            let began = Instant::now();
            let store = Store::open(disk.clone(), &PlainStore::new(disk)).expect("it is sound");
            assert!(store.recovery.last().0 >= REPLAYED && store.queue.pending() >= 1000, "all of it is there");
            began.elapsed().as_secs_f64()
        })
        .collect();
    let figure = REPLAYED as f64 / median(times) / 1e6;
    vec![Line { target: "replay, 1,000 jobs waiting", figure, unit: "M records/s", bound: Bound::AtLeast(3.0, 10.0) }]
}

/// How much of their speed jobs keep when 512 callers flood the queue, against 64.
pub(crate) fn flood() -> Vec<Line> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let run = |producers: usize, name: String| {
        let dir = dir.path().join(name);
        with_runner(load::real(dir, 64), async |jobs| slice(jobs, producers, SLICE, run_one).await.jobs_per_second())
    };
    let pairs = (0..PAIRS).map(|pair| {
        let usual = run(64, format!("usual-{pair}"));
        run(512, format!("flood-{pair}")) / usual
    });
    let figure = median(pairs.collect());
    vec![Line { target: "jobs with 512 producers / with 64; 64 slots", figure, unit: "x", bound: Bound::AtLeast(0.6, 0.95) }]
}

/// Nothing to do but one job in an hour.
pub(crate) fn wakes() -> Vec<Line> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mine = switches();
    let woken = with_runner(load::real(dir.path().join("jobs"), 64), async |jobs| {
        store_one(jobs.clone()).await;
        tokio::time::sleep(2 * SECOND).await;
        let before = switches();
        tokio::time::sleep(10 * SECOND).await;
        let count =
            |(thread, count): &(String, u64)| count - before.iter().find(|(other, _)| other == thread).map_or(0, |(_, count)| *count);
        switches().iter().filter(|(thread, _)| mine.iter().all(|(own, _)| own != thread)).map(count).sum::<u64>()
    });
    vec![Line { target: "idle, one job due in an hour", figure: woken as f64 / 10.0, unit: "wakes/s", bound: Bound::AtMost(2.0, 1.0) }]
}

/// Voluntary switches of each thread of this process.
fn switches() -> Vec<(String, u64)> {
    let of_thread = |path: &Path| {
        let text = std::fs::read_to_string(path.join("status")).ok()?;
        let count = text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?.trim().parse().ok()?;
        Some((path.file_name()?.to_string_lossy().into_owned(), count))
    };
    let threads = std::fs::read_dir("/proc/self/task").expect("a Linux system");
    threads.filter_map(|thread| of_thread(&thread.ok()?.path())).collect()
}

pub(crate) fn bytes_per_job() -> Vec<Line> {
    let bytes = on_simulated(Duration::ZERO, 64, async |jobs| {
        let before = jobs.stats();
        for _ in 0..100 {
            jobs.enqueue_all((0..64).map(|_| jobs.enqueue(Nothing::new()))).await.expect("room");
            jobs.run_until_idle(HOUR).await.expect("they do nothing");
        }
        (jobs.stats().bytes - before.bytes) as f64 / 6400.0
    });
    vec![Line { target: "journal of a job of 100 bytes, 64 at a time", figure: bytes, unit: "bytes", bound: Bound::AtMost(150.0, 140.0) }]
}

pub(crate) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// Runs a runner beside this thread, where `with` calls it.
pub(crate) fn with_runner<T>(start: impl Future<Output = Runner>, with: impl AsyncFnOnce(&Jobs) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let runner = start.await;
        let figure = with(&runner.jobs()).await;
        runner.shutdown(Duration::ZERO).await.expect("an orderly end");
        figure
    })
}

fn on_simulated<T>(pause: Duration, slots: u32, with: impl AsyncFnOnce(&Jobs) -> T) -> T {
    with_runner(load::simulated(pause, slots), with)
}

/// The median of what `rate` comes to, each time divided by what one caller of the disk gets right before and after.
fn against_disk(extends: bool, slots: u32, rate: impl AsyncFn(&Jobs) -> f64) -> f64 {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut probe = Probe::new(dir.path(), extends).expect("a disk");
    let mut probed = || probe.rate(SLICE / 2).expect("a disk");
    with_runner(load::real(dir.path().join("jobs"), slots), async |jobs| {
        rate(jobs).await;
        let mut ratios = Vec::new();
        for _ in 0..PAIRS {
            let before = probed();
            let rate = rate(jobs).await;
            ratios.push(rate / f64::midpoint(before, probed()));
        }
        median(ratios)
    })
}

/// A journal by itself.
struct Strict {
    queue: Queue,
    journal: Journal,
    issued: u64,
}

impl Strict {
    fn new(disk: Paced) -> Self {
        let disk: Arc<dyn Disk> = Arc::new(disk);
        let store = Store::open(disk.clone(), &PlainStore::new(disk)).expect("it is empty");
        let limits = JournalLimits { segment_bytes: 64 << 20, batch_bytes: 4 << 20 };
        let mut strict = Self { queue: store.queue, journal: store.recovery.into_journal(limits, Salt(1)), issued: 0 };
        strict.append(&[Record::Lead { epoch: strict.queue.epoch().next() }]);
        strict
    }

    fn append(&mut self, records: &[Record]) {
        let first = self.queue.last().next();
        let mut body = Vec::new();
        for record in records {
            self.queue.step(self.queue.last().next(), NOW, record).expect("it fits");
            record::encode(record, &mut body);
        }
        let count = u32::try_from(records.len()).expect("few");
        self.journal.append(Batch { epoch: self.queue.epoch(), first, count, time: NOW, body }).expect("room");
    }

    fn run_one(&mut self) {
        self.issued += 1;
        let ticket = Ticket(self.issued);
        self.append(&[enqueue()]);
        self.append(&[Record::Op(Op::Select { ticket })]);
        let attempt = Attempt(self.queue.last());
        self.append(&[Record::Op(Op::Complete { ticket, attempt, end: End::Done, fault: None })]);
    }

    /// So many records: jobs that wait, then others that come and go, 64 at a time.
    fn fill(&mut self, records: u64, waiting: usize) {
        self.append(&(0..waiting).map(|_| enqueue()).collect::<Vec<_>>());
        self.issued = waiting as u64;
        while self.queue.last().0 < records {
            let first = self.issued + 1;
            self.issued += 64;
            self.append(&(0..64).map(|_| enqueue()).collect::<Vec<_>>());
            let selected = self.queue.last().0;
            self.append(&(0..64).map(|n| Record::Op(Op::Select { ticket: Ticket(first + n) })).collect::<Vec<_>>());
            let complete = |n| {
                let attempt = Attempt(Seq(selected + 1 + n));
                Record::Op(Op::Complete { ticket: Ticket(first + n), attempt, end: End::Done, fault: None })
            };
            self.append(&(0..64).map(complete).collect::<Vec<_>>());
        }
    }
}

fn enqueue() -> Record {
    let job = journeyman_core::Job {
        kind: Kind::new("nothing"),
        version: 1,
        codec: Codec(2),
        target: None,
        priority: 100,
        options: Options::default(),
        meta: Vec::new(),
        payload: vec![7; 100],
    };
    Record::Op(Op::Enqueue { now: NOW, due: NOW, key: None, job: Packed::from(job) })
}

pub(crate) const PAIRS: usize = 5;
const SLICE: Duration = Duration::from_millis(400);
const SECOND: Duration = Duration::from_secs(1);
const MILLISECOND: Duration = Duration::from_millis(1);
const REPLAYED: u64 = 1_000_000;
const NOW: Time = Time(1_767_225_600_000);
