//! The pure core of journeyman: values, decisions, bytes and files. Nothing here is asynchronous, knows an actor, asks
//! what time it is, throws dice or starts a thread: time and chance are arguments everywhere.
//!
//! Users add the crate `journeyman`, which re-exports what they need of this one. Read here how it decides:
//!
//! ```text
//!   ids time                     what travels
//!   job op                       what is asked, and what can happen to it
//!   packed                       a job as it is kept while it waits
//!   live                         a ticket that has not ended, in little room
//!   queue                        the state machine: one function, `Queue::step`, live and in replay
//!   table                        what is known of each ticket, by its number
//!   sorted                       a set in order, in pages
//!   schedule                     which pending ticket is next, and what holds it back
//!   retry breaker pool           the policies; they know neither the queue nor each other
//!   bytes record                 data as bytes; ops as bytes
//!   disk payloads                files; payloads that wait there, and are no part of what is stored
//!   room                         how much of them is in memory while a state is read
//!   journal                      batches of records as files, durable before they are believed
//!   snapshot                     the state at a seq, saved
//!   store compaction             what is on disk, opened; and kept small
//!   inspect salvage              what is on disk, looked at; and saved from damage
//! ```

pub mod breaker;
#[doc(hidden)]
pub mod bugs;
#[deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::unreachable, clippy::indexing_slicing, clippy::string_slice)]
mod bytes;
// What reads what a disk holds answers to any bytes, and never ends the process: so it does not index, and unwraps nothing.
#[deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::unreachable, clippy::indexing_slicing, clippy::string_slice)]
pub mod compaction;
#[deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::unreachable, clippy::indexing_slicing, clippy::string_slice)]
pub mod disk;
pub mod ids;
#[deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::unreachable, clippy::indexing_slicing, clippy::string_slice)]
pub mod inspect;
pub mod job;
#[deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::unreachable, clippy::indexing_slicing, clippy::string_slice)]
pub mod journal;
mod live;
pub mod op;
#[deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::unreachable, clippy::indexing_slicing, clippy::string_slice)]
pub mod packed;
#[deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::unreachable, clippy::indexing_slicing, clippy::string_slice)]
pub mod payloads;
pub mod pool;
pub mod queue;
#[deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::unreachable, clippy::indexing_slicing, clippy::string_slice)]
pub mod record;
pub mod retry;
#[deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::unreachable, clippy::indexing_slicing, clippy::string_slice)]
pub mod room;
#[deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::unreachable, clippy::indexing_slicing, clippy::string_slice)]
pub mod salvage;
pub mod schedule;
#[deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::unreachable, clippy::indexing_slicing, clippy::string_slice)]
pub mod snapshot;
mod sorted;
#[deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::unreachable, clippy::indexing_slicing, clippy::string_slice)]
pub mod store;
mod table;
pub mod time;

pub use breaker::Circuit;
pub use ids::{Attempt, Epoch, JobId, Key, Kind, Seq, Target, Ticket};
pub use job::{Cause, Codec, End, Fault, Job, Options};
pub use op::{Op, Record};
pub use packed::{Packed, Route};
pub use queue::Queue;
pub use retry::Policy;
pub use time::{Now, Span, Time};

/// The programs on the front page compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
