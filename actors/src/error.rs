//! What can go wrong at the edge, each with what failed, on what, and what stays true.

use std::fmt;
use std::path::PathBuf;

use journeyman_core::Kind;
use journeyman_core::disk::DirError;
use journeyman_core::store::OpenError;

/// Why a job was not enqueued. Unless it says `Unknown`, nothing was stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EnqueueError {
    /// This runner has no such job type: it would never run here.
    #[error("nothing is stored: kind {0} is not registered with this runner")]
    UnknownKind(Kind),
    /// The job cannot be written down, or would not come back from what was written.
    #[error("nothing is stored: a {kind} cannot be encoded: {why}")]
    NotEncodable {
        /// Its kind.
        kind: Kind,
        /// What the codec said, without any of the data.
        why: String,
    },
    /// The job and what is stored beside it are too large.
    #[error("nothing is stored: the job takes {bytes} bytes, beyond the limit of {limit}")]
    PayloadTooLarge {
        /// What it takes.
        bytes: u64,
        /// What is allowed.
        limit: u64,
    },
    /// A key, a target's name or the meta pairs are too long.
    #[error("nothing is stored: {what} takes {bytes} bytes, beyond the limit of {limit}")]
    TooLong {
        /// What is too long.
        what: &'static str,
        /// What it takes.
        bytes: usize,
        /// What is allowed.
        limit: usize,
    },
    /// The jobs do not fit into one batch.
    #[error("nothing is stored: the jobs take {bytes} bytes together, beyond the limit of {limit} for what is stored at once")]
    BatchTooLarge {
        /// What they take.
        bytes: u64,
        /// What is allowed.
        limit: u64,
    },
    /// A bound is reached. Work that is accepted goes on, and makes room as it ends.
    #[error("nothing is stored: the limit of {0} is reached")]
    Full(&'static str),
    /// The runner is closing. What is accepted waits for the next start.
    #[error("nothing is stored: the runner is shutting down")]
    ShuttingDown,
    /// The answer was lost: the job may be stored or not. With a key, asking again is harmless.
    #[error("the answer was lost: the job may be stored or not; with a key, asking again is harmless")]
    Unknown,
    /// The disk has no room. What was accepted waits there, and can be asked for.
    #[error("nothing is stored: the disk is full, and the runner takes nothing until there is room again")]
    ReadOnly,
    /// The runner has failed. What was accepted is on disk; a runner that reopens by itself goes on with it soon.
    #[error("nothing is stored: the runner has failed and takes nothing until it is opened again")]
    Unavailable,
}

/// Why a call other than enqueue was not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// Too many calls wait for an answer.
    #[error("nothing has changed: too many calls wait for an answer")]
    Full,
    /// The runner is closing.
    #[error("nothing has changed: the runner is shutting down")]
    ShuttingDown,
    /// The answer was lost: what was asked may have happened or not. Asking again is harmless.
    #[error("the answer was lost: it may have happened or not; asking again is harmless")]
    Unknown,
    /// The disk has no room for the change.
    #[error("nothing has changed: the disk is full, and the runner takes nothing until there is room again")]
    ReadOnly,
    /// The runner has failed; it may be about to reopen by itself.
    #[error("nothing has changed: the runner has failed and takes nothing until it is opened again")]
    Unavailable,
}

/// As a call to store something hears it.
impl From<CallError> for EnqueueError {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Full => Self::Full("calls that wait for an answer"),
            CallError::ShuttingDown => Self::ShuttingDown,
            CallError::Unknown => Self::Unknown,
            CallError::ReadOnly => Self::ReadOnly,
            CallError::Unavailable => Self::Unavailable,
        }
    }
}

/// Why waiting for an idle queue ended without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdleError {
    /// Work was left at the deadline. It goes on.
    #[error("work is left: {pending} pending and {running} running")]
    WorkLeft {
        /// Tickets that wait.
        pending: u64,
        /// Tickets that run.
        running: u64,
    },
    /// The queue could not be asked.
    #[error(transparent)]
    Call(#[from] CallError),
}

/// Why a runner did not start. A directory that was there is as it was; one that was not may have been made, and is empty but
/// for its lock file.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The directory cannot be used.
    #[error(transparent)]
    Directory(#[from] DirError),
    /// The journal in it cannot be read.
    #[error("{}: {source}", dir.display())]
    Journal {
        /// The directory.
        dir: PathBuf,
        /// What is wrong with which file.
        source: OpenError,
    },
    /// Two job types have one name, or one has it twice: as its kind or among its aliases.
    #[error("kind {0} is registered twice")]
    DuplicateKind(Kind),
    /// A kind's name is empty or too long.
    #[error("a kind's name takes 1 to {limit} bytes, not {bytes}")]
    KindName {
        /// What it takes.
        bytes: usize,
        /// What is allowed.
        limit: usize,
    },
    /// No job type is registered.
    #[error("no job is registered: there is nothing that this runner could run")]
    NoKinds,
    /// The limits contradict each other.
    #[error("the limits contradict each other: {0}")]
    Limits(String),
    /// The program aborts on panic, so that a panicking job would take the process with it.
    #[error("the program is built with panic = \"abort\": a job that panics would end the process. Allow it with `allow_abort_on_panic`")]
    AbortsOnPanic,
    /// The factory of the job context failed.
    #[error("the context of the jobs could not be made: {0}")]
    Context(String),
    /// The system gave no thread.
    #[error("the runner's thread could not be started: {0}")]
    Thread(String),
    /// The test kit was started outside an actix runtime.
    #[error("a runner for tests needs an actix runtime: mark the test with #[actix::test]")]
    NoActixRuntime,
}

/// A `main` that ends with this error prints it with `Debug`: let it be the line for people.
impl fmt::Debug for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<StartError> for std::io::Error {
    fn from(error: StartError) -> Self {
        Self::other(error)
    }
}

/// Why a runner ended other than asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the runner has failed: {reason}. What was accepted is on disk for the next start")]
pub struct RunnerFailed {
    /// What happened, in one line.
    pub reason: String,
}

impl From<RunnerFailed> for std::io::Error {
    fn from(failed: RunnerFailed) -> Self {
        Self::other(failed)
    }
}
