//! Those who enqueue: each awaits the acknowledgement of one job before it makes the next.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use journeyman::{EnqueueError, Jobs};

use crate::{Fallible, payload, shop};

/// How many produce for how long.
#[derive(Clone, Copy)]
pub(crate) struct Producers {
    pub(crate) count: usize,
    pub(crate) secs: f64,
    /// They end sooner when so many are stored.
    pub(crate) total: u64,
    /// Jobs a second of all of them, evenly spaced; none: as fast as they are acknowledged.
    pub(crate) rate: Option<f64>,
}

/// What came of it.
pub(crate) struct Produced {
    pub(crate) jobs: u64,
    pub(crate) secs: f64,
    /// Microseconds that each caller waited.
    pub(crate) waits: Vec<u32>,
}

impl Producers {
    pub(crate) async fn produce(self, jobs: &Jobs) -> Fallible<Produced> {
        let began = Instant::now();
        let left = Arc::new(AtomicU64::new(self.total));
        let all: Vec<_> = (0..self.count).map(|at| tokio::spawn(self.one(at, began, jobs.clone(), left.clone()))).collect();
        let mut waits = Vec::new();
        for one in all {
            waits.extend(one.await??);
        }
        Ok(Produced { jobs: waits.len() as u64, secs: began.elapsed().as_secs_f64(), waits })
    }

    async fn one(self, at: usize, began: Instant, jobs: Jobs, left: Arc<AtomicU64>) -> Result<Vec<u32>, EnqueueError> {
        let end = began + Duration::from_secs_f64(self.secs);
        let mut waits = Vec::new();
        for turn in 0.. {
            if let Some(rate) = self.rate {
                let due = began + Duration::from_secs_f64((turn * self.count + at) as f64 / rate);
                tokio::time::sleep_until(due.min(end).into()).await;
            }
            let has_one = |left: u64| left.checked_sub(1);
            if Instant::now() >= end || left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, has_one).is_err() {
                break;
            }
            let asked = Instant::now();
            shop::enqueue(&jobs, payload::next()).await?;
            waits.push(u32::try_from(asked.elapsed().as_micros()).unwrap_or(u32::MAX));
        }
        Ok(waits)
    }
}
