//! A line of JSON: what was measured, in the fields and the units of the peers' programs, so that what reads theirs reads ours.

use std::fmt::Write;

use crate::asked::{Asked, Workload};
use crate::disk::Syncs;

pub(crate) struct Line(String);

impl Line {
    pub(crate) fn new(workload: Workload, asked: &Asked) -> Self {
        let (mode, workload, rep) = (&asked.mode, workload.name(), asked.rep);
        Self(format!(r#"{{"peer":"journeyman","mode":"{mode}","workload":"{workload}","rep":{rep}"#))
    }

    pub(crate) fn count(mut self, name: &str, value: u64) -> Self {
        let _ = write!(self.0, r#","{name}":{value}"#);
        self
    }

    pub(crate) fn number(mut self, name: &str, value: f64) -> Self {
        let _ = write!(self.0, r#","{name}":{value:.3}"#);
        self
    }

    /// Three quantiles of these microseconds.
    pub(crate) fn latencies(self, micros: &mut [u32]) -> Self {
        micros.sort_unstable();
        self.count("p50_us", quantile(micros, 0.5)).count("p99_us", quantile(micros, 0.99)).count("p999_us", quantile(micros, 0.999))
    }

    /// Three quantiles of these microseconds, of the time of this name.
    pub(crate) fn waits(self, when: &str, micros: &mut [u32]) -> Self {
        micros.sort_unstable();
        let of = |part| quantile(micros, part);
        self.count(&format!("{when}_p50_us"), of(0.5))
            .count(&format!("{when}_p99_us"), of(0.99))
            .count(&format!("{when}_p999_us"), of(0.999))
    }

    /// How long the callers waited for their acknowledgements.
    pub(crate) fn acknowledgements(self, micros: &mut [u32]) -> Self {
        micros.sort_unstable();
        self.count("ack_p50_us", quantile(micros, 0.5)).count("ack_p99_us", quantile(micros, 0.99))
    }

    /// The rate, and what it is beside what the disk did before and after.
    pub(crate) fn rate(self, rate: f64, before: Syncs, after: Syncs) -> Self {
        let (append, prealloc) = ((before.append + after.append) / 2.0, (before.prealloc + after.prealloc) / 2.0);
        self.number("rate", rate).number("fsync_append", append).number("fsync_prealloc", prealloc).number("ratio", rate / append)
    }

    pub(crate) fn print(self) {
        println!("{}}}", self.0);
    }
}

/// Of what is in order; 0 of nothing.
fn quantile(sorted: &[u32], part: f64) -> u64 {
    let last = sorted.len().saturating_sub(1);
    sorted.get((last as f64 * part).round() as usize).copied().unwrap_or(0).into()
}
