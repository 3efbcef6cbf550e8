//! A durable job runner for actix programs. A program enqueues jobs; each is on disk before the call returns, runs in a
//! bounded pool, is retried within a budget, is kept away from targets that are down, and after any crash goes on at once
//! where it was.
//!
//! Start at [`Runner::open`]; write a [`Job`]; enqueue with [`Jobs::enqueue`]; test with the feature `testing`. The feature `cli` makes the
//! program `journeyman`, which verifies a directory, shows its history, and saves what is sound of a damaged one.

mod admission;
mod answers;
mod base;
mod breaker;
#[cfg(feature = "cli")]
pub mod cli;
mod clock;
mod codec;
mod compactor;
mod config;
mod cx;
mod draft;
mod error;
mod events;
mod feed;
mod job;
mod jobs;
mod journal;
mod keeper;
mod ledger;
mod line;
mod listing;
mod messages;
mod metrics;
mod payloads;
mod pool;
pub mod protocol;
mod queue;
mod recent;
mod registry;
mod runner;
mod skews;
#[deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::unreachable, clippy::indexing_slicing, clippy::string_slice)]
pub mod snapshots;
mod status;
mod supervisor;
#[cfg(feature = "testing")]
pub mod testing;
mod threads;
mod wiring;
mod worker;
mod writer;

pub use answers::{BreakerState, Cancelled, Found, JobEnd, JobInfo, JobState, Receipt, ShutdownReport, TargetInfo};
pub use codec::{PayloadCodec, Stored, Unreadable};
pub use config::Limits;
pub use cx::Cx;
pub use error::{CallError, EnqueueError, IdleError, RunnerFailed, StartError};
pub use feed::{Event, EventFilter, Events, Happened, JobEvent};
pub use job::{Failure, Job, JobResult};
pub use jobs::{Enqueue, Jobs};
pub use listing::{Page, Query, StateFilter};
pub use runner::{Builder, Configured, Runner, stop_signal};
pub use status::{Health, Stats};

#[doc(no_inline)]
pub use journeyman_core::{Cause, Circuit, End, Fault, JobId, Key, Kind, Policy, Seq, Target};
