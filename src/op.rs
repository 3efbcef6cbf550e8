//! The six transitions of a ticket, and what a journal record can be. Decisions are recorded here, rules are not:
//! a Select names the ticket that it took and a Requeue carries its due, so that a later release with other
//! policies replays an old journal to the same history.
//!
//! ```text
//!              Enqueue
//!                 |
//!                 v        Select
//!             [pending] ------------> [running] -- Complete --> gone: Done Rejected Unsafe Spent Late
//!              |     ^                 |     |
//!              |     |  Requeue (+1)   |     |
//!              |     +-----------------+     |
//!              |     |  Defer          |     |
//!              |     +-----------------+     |
//!              |                             |
//!              +----------- Cancel ----------+-- > gone
//! ```
//!
//! The journal's format is frozen: what any release has written is read by every later one (`tests/golden/`). To add an op:
//!
//! 1. a variant here with its sentence, and its arm in `Queue::step`;
//! 2. a new tag in `record.rs`, with encoder and decoder. Existing tags never change their fields: a new need gets a new tag;
//! 3. a release that reads it before any release writes it; the one that writes it raises the least format that a reader must
//!    know (`journal/segment.rs`), so that an older one refuses the directory and leaves it alone;
//! 4. a line in `docs/journal-format.md`, in `tests/golden/reader.py` and in a new golden directory.
//!
//! `docs/architecture.md` has the whole list.

use crate::ids::{Attempt, Epoch, Key, Ticket};
use crate::job::{End, Fault};
use crate::packed::Packed;
use crate::time::Time;

/// One transition of one ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// A new pending ticket, with no failures and its start at `due`. With a known key: nothing.
    Enqueue {
        /// When it was asked for.
        now: Time,
        /// The earliest time at which it may be selected.
        due: Time,
        /// Unique while the ticket lives and for its window after.
        key: Option<Key>,
        /// What to do.
        job: Packed,
    },
    /// Pending to running; the attempt is named by this record's seq. Due is judged live, never in the fold.
    Select {
        /// The ticket that was taken.
        ticket: Ticket,
    },
    /// Running to gone.
    Complete {
        /// The ticket that ended.
        ticket: Ticket,
        /// The attempt that ended it.
        attempt: Attempt,
        /// How.
        end: End,
        /// What went wrong in this attempt; none when it did not fail or never began.
        fault: Option<Fault>,
    },
    /// Pending or running to gone. A running attempt may finish; its outcome changes nothing.
    Cancel {
        /// The ticket that is no longer wanted.
        ticket: Ticket,
    },
    /// Running to pending at `due`, with one failure more.
    Requeue {
        /// The ticket that failed.
        ticket: Ticket,
        /// The attempt that failed.
        attempt: Attempt,
        /// When it may be tried again.
        due: Time,
        /// What went wrong.
        fault: Fault,
    },
    /// Running to pending at `due`; failures and rank stay as they are.
    Defer {
        /// The ticket that goes back.
        ticket: Ticket,
        /// The attempt that was given up.
        attempt: Attempt,
        /// When it may be tried again.
        due: Time,
    },
}

/// What stands in a journal: a transition, or the mark of a new writer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A transition of a ticket.
    Op(Op),
    /// The first record of a new writer: its epoch is higher than every one before. Changes nothing else.
    Lead {
        /// The reign that begins.
        epoch: Epoch,
    },
}
