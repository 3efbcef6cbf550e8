//! What users of other job runners have reported, each as a test here: named after its row in a list of such reports, and small
//! where the report was large (`JOURNEYMAN_FIGURES=release` asks for more). Proves that these things do not happen here. The
//! sources are public: beanstalkd#622 is an issue of that project.
//!
//! Some rows are shown elsewhere too, with more of the kind:
//!
//! | row | what was reported | also shown by |
//! |---|---|---|
//! | b01, b02 | a log that grows with transitions, or that one old job pins (beanstalkd#622, #43) | the rig `soak`; `compacting.rs` |
//! | b06 | a crash amid a snapshot leaves a store that does not open (sled#1533) | `snapshots/crashes.rs`, each step of it; no test here |
//! | b09 | a killed worker takes its job along (sidekiq#1831) | the example `webhooks --kill`, with real processes |
//! | b13, b45 | jobs that run for ever, workers that stop without a word (oban#364, solid_queue#751) | `reopening.rs`: 200 failures of each actor |
//! | b16 | a stale rescue overwrites a completion (river#1302) | `disorder/outcomes.rs`, in the whole runner |
//! | b34 | a breaker that stays half-open (resilience4j#903) | `disorder/probes.rs`, fourteen ways; no test here |
//! | b38 | a clock that is set back (jobrunr#250) | `clock.rs`, each jump against all that waits; no test here |
//! | b44 | a small leak for each job (river#240) | the rig `soak`, by memory; here by counts |
//!
//! And these are about what does not exist here:
//!
//! | row | about | here |
//! |---|---|---|
//! | b22, b23 | rate limits that delay for ever or lose the order (bull#2235, bullmq#214) | no rate limits. Order after a hold is b23 |
//! | b33 | slots of a limit for each key (solid_queue#546) | no limits by key. The pool's units are b33 |
//! | b35, b36, b37 | cron: zones, misfires, doubles (hangfire#529, good_job#1484, river#283) | no schedules yet |
//! | b39 | a low priority that starves (asynq#907) | priorities are strict and documented so: no ageing |
//! | b42 | dead jobs listed and driven again (faktory#442) | a job that has ended is counted, not kept |
//! | b43 | results that fill the memory (bullmq#366) | no results are kept. Ends and their faults are b43 |
//! | b50 | arguments encrypted twice on a retry (good_job#1620) | no encryption. The bytes of each attempt are b50 |

mod attempts;
mod bounds;
mod crashes;
mod order;
mod payloads;
mod targets;
mod waits;

use std::time::Duration;

use journeyman::{Limits, Policy};

use crate::jobs::DAY;

/// Bounds that are reached with little: a segment of 64 KiB, a compaction each 256 KiB.
fn small() -> Limits {
    let mut limits = Limits::default();
    limits.record_bytes = 16 << 10;
    limits.batch_bytes = 64 << 10;
    limits.segment_bytes = 64 << 10;
    limits.journal_bytes = 1 << 20;
    limits.capacity = 8;
    limits
}

/// One attempt, which may take a day.
fn once() -> Policy {
    Policy::default().attempts(1).timeout(DAY)
}

/// Retries each second, for as long as it takes.
fn patient() -> Policy {
    Policy::default().attempts(1_000_000).base(Duration::from_secs(1)).cap(Duration::from_secs(1))
}
