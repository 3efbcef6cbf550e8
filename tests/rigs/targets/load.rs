//! A runner and those who give it work: so many producers, each with one call under way, for a slice of time.

use std::cell::Cell;
use std::future::Future;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use journeyman::{Cx, Job, JobResult, Jobs, Limits, PayloadCodec, Runner, Stats};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::disk::Paced;

/// A hundred bytes, nothing to do.
#[derive(Serialize, Deserialize)]
pub(crate) struct Nothing(Vec<u8>);

impl Nothing {
    pub(crate) fn new() -> Self {
        Self(vec![7; 100])
    }
}

impl Job for Nothing {
    type Context = ();
    type Output = ();
    const KIND: &'static str = "nothing";
    const CODEC: PayloadCodec<Self> = PayloadCodec::raw(|job| Ok(job.0.clone()), |bytes| Ok(Self(bytes.to_vec())));

    async fn run(self, _: Cx<()>) -> JobResult<()> {
        Ok(())
    }
}

/// On a disk that pauses so long for each sync.
pub(crate) async fn simulated(pause: Duration, slots: u32) -> Runner {
    let build = Runner::in_memory().capacity(slots).limits(limits(slots)).register::<Nothing>();
    build.start_on(Paced::new(pause)).await.expect("an empty disk")
}

/// On the real one.
pub(crate) async fn real(dir: PathBuf, slots: u32) -> Runner {
    Runner::open(dir).limits(limits(slots)).register::<Nothing>().start().await.expect("a fresh directory")
}

/// With so many bytes of payload in memory.
pub(crate) async fn keeping(dir: PathBuf, payload_memory: u64) -> Runner {
    let mut limits = limits(64);
    limits.payload_memory = payload_memory;
    Runner::open(dir).limits(limits).register::<Nothing>().start().await.expect("a fresh directory, or the same again")
}

fn limits(slots: u32) -> Limits {
    let mut limits = Limits::default();
    limits.capacity = slots;
    limits.pending = 20_000_000;
    limits.pending_bytes = 8 << 30;
    limits.journal_bytes = 16 << 30;
    limits
}

/// What a slice came to.
#[derive(Clone, Copy)]
pub(crate) struct Slice {
    pub seconds: f64,
    pub acknowledged: u64,
    pub done: u64,
    pub records: u64,
    pub syncs: u64,
    pub cpu_seconds: f64,
}

impl Slice {
    pub(crate) fn acks_per_second(&self) -> f64 {
        self.acknowledged as f64 / self.seconds
    }

    pub(crate) fn jobs_per_second(&self) -> f64 {
        self.done as f64 / self.seconds
    }
}

/// Lets all of `producers` call again and again until the slice is over; then waits for their answers.
pub(crate) async fn slice<F: Future<Output = u64>>(jobs: &Jobs, producers: usize, length: Duration, call: impl Fn(Jobs) -> F) -> Slice {
    let (before, cpu, began) = (jobs.stats(), cpu_seconds(), Instant::now());
    let acknowledged = Rc::new(Cell::new(0));
    let produce = || async {
        while began.elapsed() < length {
            let count = call(jobs.clone()).await;
            acknowledged.set(acknowledged.get() + count);
        }
    };
    join_all((0..producers).map(|_| produce())).await;
    took(&before, &jobs.stats(), began.elapsed(), acknowledged.get(), cpu_seconds() - cpu)
}

pub(crate) fn took(before: &Stats, after: &Stats, time: Duration, acknowledged: u64, cpu_seconds: f64) -> Slice {
    Slice {
        seconds: time.as_secs_f64(),
        acknowledged,
        done: after.done - before.done,
        records: after.records - before.records,
        syncs: after.syncs - before.syncs,
        cpu_seconds,
    }
}

/// Stores one job that waits.
pub(crate) async fn store_one(jobs: Jobs) -> u64 {
    jobs.enqueue(Nothing::new()).delay(HOUR).await.expect("room");
    1
}

/// Stores 64 jobs that wait, in one call.
pub(crate) async fn store_64(jobs: Jobs) -> u64 {
    jobs.enqueue_all((0..64).map(|_| jobs.enqueue(Nothing::new()).delay(HOUR))).await.expect("room");
    64
}

/// Stores one job that runs at once.
pub(crate) async fn run_one(jobs: Jobs) -> u64 {
    jobs.enqueue(Nothing::new()).await.expect("room");
    1
}

/// What all threads of this process have computed so far.
pub(crate) fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

pub(crate) const HOUR: Duration = Duration::from_secs(3600);
