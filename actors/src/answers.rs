//! What users are answered: plain values, made by the queue and read by whoever asked.

use std::fmt;
use std::time::SystemTime;

use journeyman_core::{Fault, JobId, Kind, Seq, Target};
use serde::Serialize;

/// The proof that a job is on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    id: JobId,
    seq: Seq,
    is_new: bool,
}

impl Receipt {
    pub(crate) const fn new(id: JobId, seq: Seq) -> Self {
        Self { id, seq, is_new: true }
    }

    pub(crate) const fn existing(id: JobId, seq: Seq) -> Self {
        Self { id, seq, is_new: false }
    }

    /// The job.
    #[must_use]
    pub const fn id(&self) -> JobId {
        self.id
    }

    /// The record of the journal up to which everything is on disk, the job included.
    #[must_use]
    pub const fn seq(&self) -> Seq {
        self.seq
    }

    /// False when the key was taken: the job is the one that has it.
    #[must_use]
    pub const fn is_new(&self) -> bool {
        self.is_new
    }
}

/// What a cancel came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Cancelled {
    /// It waited, and will never run.
    Cancelled,
    /// It runs: this attempt may finish, and there will be no other.
    Stopping,
    /// It had ended before.
    AlreadyEnded,
    /// There never was such a job.
    NotFound,
}

/// What is known of a job that has not ended.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct JobInfo {
    /// The job.
    pub id: JobId,
    /// Its type.
    pub kind: Kind,
    /// What it calls.
    pub target: Option<Target>,
    /// Least first.
    pub priority: u8,
    /// Attempts that failed.
    pub failures: u32,
    /// What went wrong last.
    pub last_fault: Option<Fault>,
    /// Where it stands.
    pub state: JobState,
}

/// Where a job stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub enum JobState {
    /// It waits for its time or its turn.
    Pending {
        /// Not before this.
        due: SystemTime,
    },
    /// It is due, but something holds it back. A hold never ends a job.
    Held {
        /// What.
        why: &'static str,
    },
    /// It runs.
    Running,
}

/// A target and its breaker.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct TargetInfo {
    /// The target.
    pub target: Target,
    /// Where its breaker stands.
    pub breaker: BreakerState,
    /// How often it has opened since the runner started, or since it was last forgotten.
    pub openings: u64,
    /// Due jobs that it holds back.
    pub held: u64,
}

/// Where a breaker stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub enum BreakerState {
    /// Everything goes through.
    Closed,
    /// Nothing goes through.
    Open,
    /// A few attempts find out whether the target is back.
    HalfOpen,
}

impl fmt::Display for BreakerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half-open",
        })
    }
}

/// What an orderly stop left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// Attempts that the stop cut short. Their jobs run again at the next start, unless it was their last attempt.
    pub interrupted: u64,
    /// Jobs that wait for the next start.
    pub pending: u64,
}
