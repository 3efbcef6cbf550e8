//! Jobs that run: those of a queue that was filled before, and those that producers enqueue meanwhile.

use std::time::{Duration, Instant};

use crate::asked::{Asked, Workload};
use crate::disk::Syncs;
use crate::line::Line;
use crate::producers::Producers;
use crate::shop::{Filled, Shop};
use crate::{Fallible, books, process};

/// From the opening of the gate until the directory says that nothing is left.
pub(crate) async fn preloaded(asked: &Asked) -> Fallible<()> {
    asked.clear()?;
    let shop = Shop::closed(asked).await?;
    let filled = Filled::fill(&shop.jobs, asked.n as u64, Duration::ZERO, asked.budget).await?;
    books::open();
    let before = Syncs::probe(asked.dir())?;
    let (cpu, syncs) = (process::processor_micros(), shop.jobs.stats().syncs);
    let began = Instant::now();
    shop.open_gate();
    let settled = Settled::wait(&shop, began, filled.jobs, 0, asked.cap).await;
    let (cpu, syncs) = (process::processor_micros() - cpu, shop.jobs.stats().syncs - syncs);
    let done = books::done();
    let line = Line::new(Workload::W4, asked).count("preloaded", filled.jobs).number("preload_rate", filled.jobs as f64 / filled.secs);
    let line = line.count("jobs", done).number("secs", settled.secs).number("handlers_rate", done as f64 / settled.handlers);
    let line = line.count("dups", books::twice()).count("complete", settled.complete.into());
    let line = line.count("syncs", syncs).number("cpu_us", cpu as f64 / done.max(1) as f64);
    line.rate(done as f64 / settled.secs, before, Syncs::probe(asked.dir())?).print();
    none_twice()?;
    shop.close().await
}

/// Completed within the window of the producers, and how long each took from its call to its start.
pub(crate) async fn end_to_end(workload: Workload, asked: &Asked) -> Fallible<()> {
    asked.clear()?;
    let shop = Shop::open(asked).await?;
    books::open();
    let before = Syncs::probe(asked.dir())?;
    books::time_starts();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let (cpu, syncs) = (process::processor_micros(), shop.jobs.stats().syncs);
    let rate = (workload == Workload::W5lat).then_some(asked.rate);
    let mut produced = Producers { count: asked.producers, secs: asked.secs, total: u64::MAX, rate }.produce(&shop.jobs).await?;
    let done = books::done();
    let mut starts = books::start_times();
    let (cpu, syncs) = (process::processor_micros() - cpu, shop.jobs.stats().syncs - syncs);
    let line = Line::new(workload, asked).count("enqueued", produced.jobs).count("jobs", done).number("secs", produced.secs);
    let line = line.number("enqueue_rate", produced.jobs as f64 / produced.secs).latencies(&mut starts);
    let line = line.acknowledgements(&mut produced.waits).count("dups", books::twice());
    let line = line.count("syncs", syncs).number("cpu_us", cpu as f64 / done.max(1) as f64);
    line.rate(done as f64 / produced.secs, before, Syncs::probe(asked.dir())?).print();
    let rest = Settled::wait(&shop, Instant::now(), produced.jobs, 0, asked.cap).await;
    if rest.complete && books::done() != produced.jobs {
        return Err(format!("{} jobs were acknowledged, {} ran, and none is left", produced.jobs, books::done()).into());
    }
    none_twice()?;
    shop.close().await
}

/// Without a crash each runs once.
pub(crate) fn none_twice() -> Fallible<()> {
    if books::twice() == 0 { Ok(()) } else { Err(format!("{} jobs ran twice", books::twice()).into()) }
}

/// When everything was done.
pub(crate) struct Settled {
    /// Seconds until as many runs had ended.
    pub(crate) handlers: f64,
    /// Seconds until the directory said so too.
    pub(crate) secs: f64,
    /// False when it was not waited for any longer.
    pub(crate) complete: bool,
}

impl Settled {
    pub(crate) async fn wait(shop: &Shop, began: Instant, jobs: u64, backlog: u64, cap: f64) -> Self {
        let mut handlers = None;
        loop {
            let secs = began.elapsed().as_secs_f64();
            if books::done() >= jobs {
                handlers = handlers.or(Some(secs));
            }
            let complete = handlers.is_some() && shop.is_drained(backlog);
            if complete || secs > cap {
                return Self { handlers: handlers.unwrap_or(secs), secs, complete };
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}
