//! The runner that is measured, set up as somebody would who wants speed and many waiting jobs; and the gate that keeps its
//! workers from work where only a store is wanted.

use std::time::{Duration, Instant};

use journeyman::{Cx, EnqueueError, Job, JobResult, Jobs, Limits, PayloadCodec, Runner};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use crate::Fallible;
use crate::asked::Asked;
use crate::{books, disk, payload};

/// A hundred bytes, noted when it runs.
#[derive(Serialize, Deserialize)]
struct Note(Vec<u8>);

impl Job for Note {
    type Context = ();
    type Output = ();
    const KIND: &'static str = "note";
    const CODEC: PayloadCodec<Self> = PayloadCodec::raw(|note| Ok(note.0.clone()), |bytes| Ok(Self(bytes.to_vec())));

    async fn run(self, _: Cx<()>) -> JobResult<()> {
        books::note(&self.0).await;
        Ok(())
    }
}

/// Takes up one place until the gate is open.
#[derive(Serialize, Deserialize)]
struct Waits;

impl Job for Waits {
    type Context = ();
    type Output = ();
    const KIND: &'static str = "waits";

    async fn run(self, _: Cx<()>) -> JobResult<()> {
        // A closed semaphore is an open gate.
        let _ = GATE.acquire().await;
        Ok(())
    }
}

pub(crate) struct Shop {
    runner: Runner,
    pub(crate) jobs: Jobs,
}

impl Shop {
    /// One whose workers run what is due.
    pub(crate) async fn open(asked: &Asked) -> Fallible<Self> {
        GATE.close();
        Self::start(asked, JOURNAL_BYTES).await
    }

    /// The same with so little room for the journal that what is in it makes a compaction due.
    pub(crate) async fn to_be_compacted(asked: &Asked) -> Fallible<Self> {
        GATE.close();
        Self::start(asked, (3 * disk::taken(&asked.jobs())).max(LEAST_JOURNAL_BYTES)).await
    }

    /// One whose workers run nothing before [`Shop::open_gate`]: each place is taken.
    pub(crate) async fn closed(asked: &Asked) -> Fallible<Self> {
        let shop = Self::start(asked, JOURNAL_BYTES).await?;
        shop.jobs.enqueue_all((0..asked.conc).map(|_| shop.jobs.enqueue(Waits))).await?;
        let began = Instant::now();
        while shop.jobs.stats().running < u64::from(asked.conc) {
            if began.elapsed() > PATIENCE {
                return Err(format!("the places are not taken: {:?}", shop.jobs.stats()).into());
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(shop)
    }

    pub(crate) fn open_gate(&self) {
        GATE.close();
    }

    async fn start(asked: &Asked, journal_bytes: u64) -> Fallible<Self> {
        let mut limits = Limits::default();
        limits.capacity = asked.conc;
        limits.pending = 20_000_000;
        limits.pending_bytes = 32 << 30;
        limits.journal_bytes = journal_bytes;
        let runner = Runner::open(asked.jobs()).limits(limits).register::<Note>().register::<Waits>().start().await?;
        let jobs = runner.jobs();
        Ok(Self { runner, jobs })
    }

    /// Whether its directory says that nothing but a backlog is left.
    pub(crate) fn is_drained(&self, backlog: u64) -> bool {
        let stats = self.jobs.stats();
        stats.running == 0 && stats.pending <= backlog
    }

    pub(crate) async fn close(self) -> Fallible<()> {
        self.runner.shutdown(Duration::ZERO).await?;
        Ok(())
    }
}

pub(crate) async fn enqueue(jobs: &Jobs, payload: Vec<u8>) -> Result<(), EnqueueError> {
    jobs.enqueue(Note(payload)).await.map(drop)
}

/// So many in one call.
pub(crate) async fn enqueue_all(jobs: &Jobs, count: u64, delay: Duration) -> Result<(), EnqueueError> {
    jobs.enqueue_all((0..count).map(|_| jobs.enqueue(Note(payload::next())).delay(delay))).await.map(drop)
}

/// What was filled in, a thousand jobs a call, as long as there was time.
pub(crate) struct Filled {
    pub(crate) jobs: u64,
    pub(crate) secs: f64,
    /// What the longest call took.
    pub(crate) slowest: Duration,
}

impl Filled {
    pub(crate) async fn fill(jobs: &Jobs, count: u64, delay: Duration, budget: f64) -> Fallible<Self> {
        let began = Instant::now();
        let (mut stored, mut slowest) = (0, Duration::ZERO);
        while stored < count && began.elapsed().as_secs_f64() < budget {
            let (some, asked) = (BULK.min(count - stored), Instant::now());
            enqueue_all(jobs, some, delay).await.map_err(|error| format!("behind {stored} jobs: {error}"))?;
            stored += some;
            slowest = slowest.max(asked.elapsed());
        }
        Ok(Self { jobs: stored, secs: began.elapsed().as_secs_f64(), slowest })
    }
}

const JOURNAL_BYTES: u64 = 64 << 30;
/// Below a segment and some room a runner does not start.
const LEAST_JOURNAL_BYTES: u64 = 80 << 20;
/// Jobs of a call that stores many.
pub(crate) const BULK: u64 = 1000;
static GATE: Semaphore = Semaphore::const_new(0);
const PATIENCE: Duration = Duration::from_secs(30);
