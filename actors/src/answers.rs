//! What users are answered: plain values, made by the queue and read by whoever asked.

use std::fmt;
use std::time::SystemTime;

use journeyman_core::breaker::Position;
use journeyman_core::queue::{Live, Phase};
use journeyman_core::schedule::Hold;
use journeyman_core::{Cause, End, Fault, JobId, Kind, Seq, Target, Ticket};
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

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub enum JobEnd {
    /// It did what it was asked.
    Done,
    /// It or its target refused for good: a retry could not help.
    Rejected(Fault),
    /// It failed in a way that might pass, but must not be repeated.
    Unsafe(Fault),
    /// It failed and no attempt was left. With the last fault, where there was one.
    Spent(Option<Fault>),
    /// Its deadline came first. With the last fault, where there was one.
    Late(Option<Fault>),
    /// It was cancelled.
    Cancelled,
    /// It has ended, but how is no longer remembered: too many ended since, or the process is another one.
    Forgotten,
    /// There never was such a job.
    NotFound,
}

impl JobEnd {
    pub(crate) fn of(end: End, fault: Option<Fault>) -> Self {
        let some = |fault: Option<Fault>| fault.unwrap_or_else(|| Fault::new(Cause::Failed, ""));
        match end {
            End::Done => Self::Done,
            End::Rejected => Self::Rejected(some(fault)),
            End::Unsafe => Self::Unsafe(some(fault)),
            End::Spent => Self::Spent(fault),
            End::Late => Self::Late(fault),
        }
    }

    /// What went wrong last, when something did and the end is remembered.
    #[must_use]
    pub const fn fault(&self) -> Option<&Fault> {
        match self {
            Self::Rejected(fault) | Self::Unsafe(fault) => Some(fault),
            Self::Spent(fault) | Self::Late(fault) => fault.as_ref(),
            Self::Done | Self::Cancelled | Self::Forgotten | Self::NotFound => None,
        }
    }
}

/// What [`Jobs::find`](crate::Jobs::find) found.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub enum Found {
    /// It has not ended.
    Live(JobInfo),
    /// It has ended, or never was: [`JobEnd::NotFound`].
    Gone(JobEnd),
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

impl JobInfo {
    pub(crate) fn of(ticket: Ticket, live: &Live, hold: Option<Hold>) -> Self {
        let state = match (live.phase(), hold) {
            (Phase::Running { .. }, _) => JobState::Running,
            (Phase::Pending { .. }, Some(why)) => JobState::Held { why: why.as_str() },
            (Phase::Pending { due }, None) => JobState::Pending { due: due.into() },
        };
        Self {
            id: JobId::of(ticket),
            kind: live.job.kind().clone(),
            target: live.job.target().cloned(),
            priority: live.job.priority(),
            failures: live.failures(),
            last_fault: live.fault().cloned(),
            state,
        }
    }
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

impl From<Position> for BreakerState {
    fn from(position: Position) -> Self {
        match position {
            Position::Closed => Self::Closed,
            Position::Open { .. } => Self::Open,
            Position::HalfOpen => Self::HalfOpen,
        }
    }
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
