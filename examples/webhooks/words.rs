//! What parent and child say to each other: one JSON object a line. Nothing here is kept.

use std::ops::Range;

use journeyman::JobId;
use serde::{Deserialize, Serialize};

use crate::receiver::Receiver;

/// What the parent orders, on the child's stdin. Its end orders the child to end as well.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order {
    /// Open the directory, enqueue these jobs, deliver.
    Begin {
        /// The receivers', in their order.
        ports: [u16; Receiver::ALL.len()],
        /// The jobs that were never seen acknowledged.
        numbers: Vec<Range<usize>>,
    },
    /// Drain, shut down, end.
    Finish,
}

/// What the child says, on its stdout.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Said {
    /// Job `n` is on disk.
    Accepted { n: usize, ticket: JobId, is_new: bool, micros: u64 },
    /// How it goes; several times a second.
    Stats(Standing),
    /// Every job that was to be enqueued is, and nothing is pending or running.
    Idle,
    /// After this, nothing.
    Last(LastWord),
}

/// How the child ends when nobody kills it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LastWord {
    /// As ordered: the journal is sealed and closed.
    Closed,
    /// The directory cannot be used; nothing in it has changed.
    Refused(String),
    Failed(String),
}

/// How the child stands, since it was started.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Standing {
    pub records: u64,
    pub syncs: u64,
    /// The receivers', in their order.
    pub breakers: [Breaker; Receiver::ALL.len()],
}

/// A receiver's breaker. One that was never called, or is forgotten, is closed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Breaker {
    pub state: String,
    pub openings: u64,
}

impl Default for Breaker {
    fn default() -> Self {
        Self { state: "closed".to_owned(), openings: 0 }
    }
}
