//! Records on disk, in batches that are durable before anything they say is believed. Append, sync, rotate; after the
//! first failure nothing more, ever. Knows batches and bytes; never what a record means.
//!
//! `docs/journal-format.md` has the format in full; how it may change stands in `segment.rs`.

mod frame;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod recovery;
mod sealed;
mod segment;
mod survey;
mod walk;

use std::io;
use std::sync::Arc;

pub use frame::{Batch, Salt};
pub use recovery::{RecoverError, Recovery, Torn};
pub(crate) use sealed::{Sealed, removable};
pub(crate) use survey::{Sight, survey};
pub use walk::Boundary;

use crate::bugs::{self, Bug};
use crate::disk::Disk;
use crate::ids::{Epoch, Seq};
use segment::{Draft, Header, Segment};
use walk::Tail;

/// A journal that is open for writing.
pub struct Journal {
    disk: Arc<dyn Disk>,
    limits: JournalLimits,
    salt: Salt,
    state: State,
    last: Seq,
    epoch: Epoch,
    counters: JournalCounters,
}

/// Bounds of the files.
#[derive(Clone, Copy, Debug)]
pub struct JournalLimits {
    /// A segment that would grow beyond this is followed by another.
    pub segment_bytes: u64,
    /// The most bytes of records in one batch.
    pub batch_bytes: u64,
}

/// What the journal has done and holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalCounters {
    /// Records appended since it was opened.
    pub records: u64,
    /// Batches made durable since it was opened; one sync each.
    pub syncs: u64,
    /// Bytes of all segments, without the zeros behind the last frame.
    pub bytes: u64,
}

/// Why a batch was not appended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AppendError {
    /// The batch does not follow the last record, or another writer leads. Nothing was written.
    #[error("the batch begins at record {first} of {epoch}, but the journal ends at record {last} of {led}")]
    Fenced {
        /// The first record of the batch.
        first: Seq,
        /// Its epoch.
        epoch: Epoch,
        /// The last record of the journal.
        last: Seq,
        /// Its epoch.
        led: Epoch,
    },
    /// The batch is beyond the limit. Nothing was written.
    #[error("the batch is larger than the journal takes")]
    TooLarge,
    /// The disk failed: the batch may be on it or not. The journal takes nothing more.
    #[error("the journal could not be written: {0}")]
    Failed(#[source] io::Error),
    /// An earlier append failed. Nothing was written.
    #[error("an earlier append failed")]
    Poisoned,
}

/// What a call of [`Journal::rotate`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rotated {
    /// A new segment has begun, with this number: all before it are sealed.
    Began(u64),
    /// Nothing was appended since the last segment began, or at all: everything before is sealed already, if there is anything.
    Nothing,
}

/// Why no new segment was begun.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RotateError {
    /// The new segment could not be written. The journal goes on in the old one, which was not touched.
    #[error("the next segment could not be written: {0}")]
    Draft(#[source] io::Error),
    /// The new segment could not be given its name, or the name may not last. The journal takes nothing more.
    #[error("the next segment could not be named: {0}")]
    Failed(#[source] io::Error),
    /// An earlier call failed. Nothing was written.
    #[error("an earlier append failed")]
    Poisoned,
}

impl Journal {
    fn new(disk: Arc<dyn Disk>, limits: JournalLimits, salt: Salt, tail: Tail, bytes: u64) -> Self {
        let counters = JournalCounters { bytes, ..JournalCounters::default() };
        Self { disk, limits, salt, last: tail.last, epoch: tail.epoch, state: State::Unwritten(tail), counters }
    }

    /// Appends a batch. When this returns, every later open has it.
    ///
    /// # Errors
    /// [`AppendError`]. After `Failed` the batch may be on disk or not, and nothing is appended any more: a sync that
    /// failed once may have dropped what it was to write, so no later one can be believed.
    pub fn append(&mut self, batch: Batch) -> Result<(), AppendError> {
        if matches!(self.state, State::Poisoned) {
            return Err(AppendError::Poisoned);
        }
        if batch.first != self.last.next() || batch.epoch < self.epoch || batch.count == 0 {
            return Err(AppendError::Fenced { first: batch.first, epoch: batch.epoch, last: self.last, led: self.epoch });
        }
        if batch.body.len() as u64 > self.limits.batch_bytes {
            return Err(AppendError::TooLarge);
        }
        let (last, epoch, count) = (batch.last(), batch.epoch, batch.count);
        self.write(batch).map_err(AppendError::Failed)?;
        self.last = last;
        self.epoch = epoch;
        self.counters.records += u64::from(count);
        self.counters.syncs += 1;
        Ok(())
    }

    /// Marks a clean close: the next open knows that everything is durable. A journal that was not written to stays as
    /// it is.
    ///
    /// # Errors
    /// Those of the disk. What was appended is durable all the same.
    pub fn seal(mut self) -> io::Result<()> {
        match std::mem::replace(&mut self.state, State::Poisoned) {
            State::Writing(mut segment) => segment.seal(),
            State::Unwritten(_) | State::Poisoned => Ok(()),
        }
    }

    /// Begins a new segment now, so that all before it are sealed and can be compacted. Its header, durable when this returns,
    /// names its predecessor and the length of that.
    ///
    /// # Errors
    /// [`RotateError`]; after `Draft` the journal is as it was.
    pub fn rotate(&mut self) -> Result<Rotated, RotateError> {
        let segment = match &self.state {
            State::Poisoned => return Err(RotateError::Poisoned),
            State::Writing(segment) if segment.header().first <= self.last => segment,
            State::Writing(_) | State::Unwritten(_) => return Ok(Rotated::Nothing),
        };
        let number = segment.header().number.saturating_add(1);
        let draft = self.draft(number, self.last.next(), Some(segment.proved()), None).map_err(RotateError::Draft)?;
        self.state = State::Poisoned;
        self.state = State::Writing(self.publish(draft).map_err(RotateError::Failed)?);
        Ok(Rotated::Began(number))
    }

    /// The number of the segment that it writes to: all before it are sealed. None before the first append and after a failure.
    #[must_use]
    pub const fn writes_to(&self) -> Option<u64> {
        match &self.state {
            State::Writing(segment) => Some(segment.header().number),
            State::Unwritten(_) | State::Poisoned => None,
        }
    }

    /// Takes so many bytes off its count: segments that a compaction has removed.
    pub const fn release(&mut self, bytes: u64) {
        self.counters.bytes = self.counters.bytes.saturating_sub(bytes);
    }

    /// What it has done and holds.
    #[must_use]
    pub const fn counters(&self) -> JournalCounters {
        self.counters
    }

    fn write(&mut self, batch: Batch) -> io::Result<()> {
        // Poisoned unless all of it succeeds.
        let mut segment = match std::mem::replace(&mut self.state, State::Poisoned) {
            State::Writing(segment) if !self.is_full(&segment, &batch) => segment,
            State::Writing(full) => {
                let number = full.header().number.saturating_add(1);
                self.create(number, batch.first, Some(full.proved()), None)?
            }
            State::Unwritten(tail) => {
                // A name that was found may not be durable: the sync of an earlier process may have failed. Were the name of the next
                // segment to survive a crash and that of the one before it not, there would be a gap.
                self.disk.sync_names()?;
                let first = tail.unproved.as_ref().map_or(batch.first, |carried| carried.first);
                self.create(tail.next, first, tail.proved, tail.unproved.as_ref())?
            }
            State::Poisoned => return Err(io::Error::other("the journal is poisoned")),
        };
        let before = segment.length();
        let appended = segment.append(batch);
        if appended.is_ok() || bugs::on(Bug::NoPoison) {
            self.counters.bytes += segment.length() - before;
            self.state = State::Writing(segment);
        }
        appended
    }

    fn create(&mut self, number: u64, first: Seq, previous: Option<segment::Proved>, carried: Option<&Batch>) -> io::Result<Segment> {
        let draft = self.draft(number, first, previous, carried)?;
        self.publish(draft)
    }

    fn draft(&self, number: u64, first: Seq, previous: Option<segment::Proved>, carried: Option<&Batch>) -> io::Result<Draft> {
        // The salt of each segment differs, as it is drawn by chance once and moved by the segment's number.
        let salt = Salt(self.salt.0.wrapping_add(u128::from(number).wrapping_mul(SALT_STEP)));
        Segment::draft(&*self.disk, Header { number, salt, first, previous }, carried)
    }

    fn publish(&mut self, draft: Draft) -> io::Result<Segment> {
        let segment = draft.publish(&*self.disk)?;
        self.counters.bytes += segment.length();
        Ok(segment)
    }

    const fn is_full(&self, segment: &Segment, batch: &Batch) -> bool {
        segment.length() + (frame::HEADER + batch.body.len()) as u64 > self.limits.segment_bytes
    }
}

/// Writes the empty segment that goes on behind a boundary, for a directory that has none. Answers its bytes.
pub(crate) fn begin_behind(disk: &dyn Disk, boundary: &Boundary, salt: Salt) -> io::Result<u64> {
    let header = Header { number: boundary.segment.saturating_add(1), salt, first: boundary.last.next(), previous: boundary.proved() };
    let segment = Segment::draft(disk, header, None)?.publish(disk)?;
    Ok(segment.length())
}

/// Bytes that the disk must have free before a journal begins to write: a segment with the zeros ahead of its first frames.
pub const ROOM_TO_BEGIN: u64 = 2 << 20;

enum State {
    Unwritten(Tail),
    Writing(Segment),
    Poisoned,
}

/// An odd number, so that no two segment numbers give one salt: 2^128 divided by the golden ratio.
const SALT_STEP: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;
