//! Enqueueing alone, while no worker runs: one caller, many callers, a thousand jobs a call. In four slices with a look at the disk
//! before each and after the last, so that both sides of the ratio see the same noise.

use std::time::{Duration, Instant};

use crate::asked::{Asked, Workload};
use crate::disk::Syncs;
use crate::line::Line;
use crate::producers::{Produced, Producers};
use crate::shop::{self, BULK, Shop};
use crate::{Fallible, payload, process};

pub(crate) async fn measure(workload: Workload, asked: &Asked) -> Fallible<()> {
    asked.clear()?;
    let shop = Shop::closed(asked).await?;
    let callers = if workload == Workload::W2 { asked.producers } else { 1 };
    for _ in 0..callers {
        shop::enqueue(&shop.jobs, payload::next()).await?; // to be warm
    }
    let before = shop.jobs.stats();
    let (mut all, mut probes, mut cpu, mut syncs) = (Produced { jobs: 0, secs: 0.0, waits: Vec::new() }, Vec::new(), 0, 0);
    for _ in 0..SLICES {
        probes.push(Syncs::probe(asked.dir())?);
        let (cpu_before, syncs_before) = (process::processor_micros(), shop.jobs.stats().syncs);
        let slice = match workload {
            Workload::W3 => bulks(&shop, asked.secs / f64::from(SLICES), MOST - all.jobs.min(MOST)).await?,
            _ => {
                let producers = Producers { count: callers, secs: asked.secs / f64::from(SLICES), total: u64::MAX, rate: None };
                producers.produce(&shop.jobs).await?
            }
        };
        cpu += process::processor_micros() - cpu_before;
        syncs += shop.jobs.stats().syncs - syncs_before;
        all.jobs += slice.jobs;
        all.secs += slice.secs;
        all.waits.extend(slice.waits);
    }
    let after = Syncs::probe(asked.dir())?;
    let line = Line::new(workload, asked).count("jobs", all.jobs).number("secs", all.secs).latencies(&mut all.waits);
    let line = line.count("syncs", syncs).number("cpu_us", cpu as f64 / all.jobs.max(1) as f64);
    line.rate(all.jobs as f64 / all.secs, Syncs::mean(&probes), after).print();
    let stats = shop.jobs.stats();
    if stats.pending != before.pending + all.jobs {
        return Err(format!("{} jobs were acknowledged beside {}, and {} are there", all.jobs, before.pending, stats.pending).into());
    }
    shop.close().await
}

/// One caller who stores a thousand a call.
async fn bulks(shop: &Shop, secs: f64, most: u64) -> Fallible<Produced> {
    let began = Instant::now();
    let (mut jobs, mut waits) = (0, Vec::new());
    while began.elapsed().as_secs_f64() < secs && jobs < most {
        let asked = Instant::now();
        shop::enqueue_all(&shop.jobs, BULK, Duration::ZERO).await?;
        waits.push(u32::try_from(asked.elapsed().as_micros()).unwrap_or(u32::MAX));
        jobs += BULK;
    }
    Ok(Produced { jobs, secs: began.elapsed().as_secs_f64(), waits })
}

const SLICES: u32 = 4;
/// What w3 stores at most: somewhat more than 3 GB of memory.
const MOST: u64 = 4_000_000;
