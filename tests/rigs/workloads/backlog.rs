//! A backlog of jobs that are due in a week: what it takes of memory and disk, what it costs those that are due now, and how long a
//! process takes to its first job with it.

use std::fs;
use std::time::{Duration, Instant};

use crate::asked::{Asked, Workload};
use crate::child::Child;
use crate::disk::{self, Syncs};
use crate::line::Line;
use crate::producers::Producers;
use crate::running::{self, Settled};
use crate::shop::{self, Filled, Shop};
use crate::{Fallible, books, payload, process};

pub(crate) async fn load(asked: &Asked) -> Fallible<()> {
    asked.clear()?;
    let had = asked.backlog();
    let shop = Shop::open(asked).await?;
    let before = process::resident();
    payload::numbers_from(BEYOND_THE_BOOKS);
    let Filled { jobs: stored, secs, slowest } = Filled::fill(&shop.jobs, asked.n as u64, WEEK, asked.budget).await?;
    let after = process::resident();
    let line = Line::new(Workload::W6load, asked).count("jobs", stored).number("secs", secs).number("rate", stored as f64 / secs);
    let line = line.count("slowest_us", u64::try_from(slowest.as_micros()).unwrap_or(u64::MAX));
    tokio::time::sleep(Duration::from_millis(1500)).await;
    line.count("rss_before", before).count("rss_after", after).count("disk", disk::taken(&asked.jobs())).print();
    fs::write(asked.backlog_file(), (had + stored).to_string())?;
    let pending = shop.jobs.stats().pending;
    if pending != had + stored {
        return Err(format!("{stored} jobs were acknowledged beside {had}, and {pending} are there").into());
    }
    shop.close().await
}

/// Due jobs, enqueued and done beside it; with an empty directory, what they take without it.
pub(crate) async fn run_beside(asked: &Asked) -> Fallible<()> {
    asked.clear()?;
    let (backlog, began) = (asked.backlog(), Instant::now());
    let shop = Shop::open(asked).await?;
    let open = began.elapsed().as_secs_f64();
    books::open();
    let rss_open = process::resident();
    payload::numbers_from(1 + asked.rep * 1_000_000);
    let before = Syncs::probe(asked.dir())?;
    let began = Instant::now();
    let producers = Producers { count: asked.producers, secs: asked.cap, total: asked.n as u64, rate: None };
    let produced = producers.produce(&shop.jobs).await?;
    let settled = Settled::wait(&shop, began, asked.n as u64, backlog, asked.cap).await;
    let done = books::done();
    let line = Line::new(Workload::W6run, asked).count("backlog", backlog).number("open_s", open).count("rss_open", rss_open);
    let line = line.count("rss_end", process::resident()).count("enqueued", produced.jobs);
    let line = line.number("enqueue_rate", produced.jobs as f64 / produced.secs).count("jobs", done).number("secs", settled.handlers);
    let line = line.count("complete", settled.complete.into()).count("disk", disk::taken(&asked.jobs()));
    line.rate(done as f64 / settled.handlers, before, Syncs::probe(asked.dir())?).print();
    running::none_twice()?;
    let pending = shop.jobs.stats().pending;
    if settled.complete && pending != backlog {
        return Err(format!("a backlog of {backlog} jobs is one of {pending} now").into());
    }
    shop.close().await
}

/// The journal of the backlog is compacted: how long that takes, and how long callers wait for their acknowledgements meanwhile and
/// behind it.
pub(crate) async fn compact(asked: &Asked) -> Fallible<()> {
    let before = disk::taken(&asked.jobs());
    let (shop, began) = (Shop::to_be_compacted(asked).await?, Instant::now());
    payload::numbers_from(COMPACTED);
    let moment = Producers { count: asked.producers, secs: MOMENT.as_secs_f64(), total: u64::MAX, rate: Some(asked.rate) };
    // What is due is noticed when something is written.
    while shop.jobs.stats().compactions == 0 && !shop.jobs.stats().compacting {
        if began.elapsed().as_secs_f64() > asked.cap {
            return Err(format!("no compaction is due: {:?}", shop.jobs.stats()).into());
        }
        moment.produce(&shop.jobs).await?;
    }
    let (compacts, mut during) = (Instant::now(), Vec::new());
    while shop.jobs.stats().compacting {
        during.extend(moment.produce(&shop.jobs).await?.waits);
    }
    let secs = compacts.elapsed().as_secs_f64();
    let mut quiet = Vec::new();
    for _ in 0..QUIET_MOMENTS {
        quiet.extend(moment.produce(&shop.jobs).await?.waits);
    }
    let stats = shop.jobs.stats();
    let line =
        Line::new(Workload::W6compact, asked).count("backlog", asked.backlog()).number("secs", secs).count("rss", process::resident());
    let line = line.count("disk_before", before).count("disk_after", disk::taken(&asked.jobs())).count("snapshot", stats.snapshot_bytes);
    let line = line.count("acks_during", during.len() as u64).count("acks_quiet", quiet.len() as u64);
    line.waits("during", &mut during).waits("quiet", &mut quiet).print();
    if stats.compactions == 0 || quiet.is_empty() {
        return Err(format!("nothing was compacted, or nobody enqueued: {stats:?}").into());
    }
    shop.close().await
}

/// A process adds one due job and stops in order; from the start of the next one to that of this job.
pub(crate) fn reopen(asked: &Asked) -> Fallible<()> {
    asked.clear()?;
    Child::start(Workload::LeaveOne, asked)?.wait()?;
    let began = Instant::now();
    let mut next = Child::start(Workload::StartFirst, asked)?;
    let said = next.numbers(2)?;
    let total = began.elapsed().as_secs_f64();
    next.wait()?;
    let line = Line::new(Workload::W7reopen, asked).count("backlog", asked.backlog()).number("total_s", total);
    line.number("server_s", 0.0).number("open_s", said[0]).number("first_job_s", said[1]).print();
    if said[1] > 0.0 { Ok(()) } else { Err("the job that was left did not start".into()) }
}

/// It is taken up at once, does not end, and so is put back by the stop.
pub(crate) async fn leave_one(asked: &Asked) -> Fallible<()> {
    books::hold();
    let shop = Shop::open(asked).await?;
    shop::enqueue(&shop.jobs, payload::numbered(LEFT + asked.rep)).await?;
    shop.close().await
}

pub(crate) async fn start_first(asked: &Asked) -> Fallible<()> {
    books::open();
    let began = Instant::now();
    let shop = Shop::open(asked).await?;
    let open = began.elapsed().as_secs_f64();
    let waits = Instant::now();
    while books::started() == 0 && waits.elapsed().as_secs_f64() < asked.cap {
        tokio::time::sleep(Duration::from_micros(300)).await;
    }
    let first = if books::started() == 0 { -1.0 } else { books::first_and_last().0 };
    println!("{open} {first}");
    let settled = Settled::wait(&shop, Instant::now(), 1, asked.backlog(), asked.cap).await;
    if !settled.complete {
        return Err(format!("the job that was left did not end: {:?}", shop.jobs.stats()).into());
    }
    shop.close().await
}

const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);
/// Numbers of a backlog, out of the way of those that are due.
const BEYOND_THE_BOOKS: u64 = 1 << 40;
/// Numbers of those that are enqueued beside a compaction.
const COMPACTED: u64 = 3_000_000;
/// Between two looks at whether it is over.
const MOMENT: Duration = Duration::from_millis(100);
const QUIET_MOMENTS: u32 = 50;
/// The number of the job that is left for the next process.
const LEFT: u64 = 7_000_000;
