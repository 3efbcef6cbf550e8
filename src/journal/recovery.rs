//! Reading a journal back. Only reads: whatever it finds, the files stay as they are. A torn tail is every crash's normal
//! leftover and is reported; damage anywhere else is an error that names file, offset and expectation.
//!
//! What proves that a batch had reached the disk: a later frame of its segment (batch N+1 is never written before
//! batch N is durable), a seal, or the header of the next segment. Damage in front of any of these is rot. A last batch
//! that is whole but unproved is kept, and carried into the next segment before anything else is believed.

use std::io;
use std::sync::Arc;

use super::frame::Batch;
use super::sealed::removable;
use super::walk::{Boundary, Inside, Segments, Tail, Walk, unreadable};
use super::{Journal, JournalLimits, Salt, segment};
use crate::disk::Disk;
use crate::ids::Seq;

/// A journal that has been read and not yet written to. Becomes a [`Journal`] with [`Recovery::into_journal`].
pub struct Recovery {
    disk: Arc<dyn Disk>,
    tail: Tail,
    torn: Option<Torn>,
    bytes: u64,
    /// Bytes of the segments before the snapshot, which are kept in reserve.
    kept: u64,
}

/// What a crash left behind the last whole batch. Nobody ever heard that it was durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Torn {
    /// The file.
    pub file: String,
    /// Where the leftover begins.
    pub offset: u64,
    /// The last record before it.
    pub last: Seq,
}

/// Why a journal cannot be read. No file has changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecoverError<E> {
    /// The disk refused: not a sign of damage.
    #[error("{file}: cannot be read: {source}")]
    Io {
        /// The file, or `.` for the directory.
        file: String,
        /// Why.
        source: io::Error,
    },
    /// Something was there, was durable, and is no longer what it was.
    #[error("{file} is damaged at byte {offset}: expected {expected}")]
    Damaged {
        /// The file.
        file: String,
        /// Where.
        offset: u64,
        /// What should stand there.
        expected: String,
    },
    /// The file was written by a newer release.
    #[error("{file} needs a reader of format {needs}; this one knows format {knows}", knows = segment::FORMAT)]
    Newer {
        /// The file.
        file: String,
        /// The format it needs.
        needs: u16,
    },
    /// The records were read, but do not make sense.
    #[error("{file}, the batch at byte {offset}: {source}")]
    Fold {
        /// The file.
        file: String,
        /// Where the batch begins.
        offset: u64,
        /// What is wrong with it.
        source: E,
    },
}

impl Recovery {
    /// Reads the journal on `disk` from its first record on and gives every batch to `fold`, in order.
    ///
    /// # Errors
    /// [`RecoverError`]; reading stops there, and no file has changed.
    pub fn read<E>(disk: Arc<dyn Disk>, fold: impl FnMut(&Batch) -> Result<(), E>) -> Result<Self, RecoverError<E>> {
        Self::read_from(disk, &Boundary::START, fold)
    }

    /// The same from a boundary on, where a snapshot stands for everything before. The segments before it are not read: they may be
    /// damaged or gone.
    ///
    /// # Errors
    /// [`RecoverError`]; reading stops there, and no file has changed.
    pub fn read_from<E>(
        disk: Arc<dyn Disk>,
        from: &Boundary,
        mut fold: impl FnMut(&Batch) -> Result<(), E>,
    ) -> Result<Self, RecoverError<E>> {
        let segments = Segments::find(&*disk, from, u64::MAX)?;
        let mut walk = Walk::from(from, segments.next, segments.torn);
        let mut files = segments.files.into_iter().peekable();
        while let Some(file) = files.next() {
            let successor = files.peek().and_then(|next| next.header.previous);
            // Piece by piece, in the same room again and again. Where a file ends of which nothing follows, only the whole of it tells.
            let bytes = if successor.is_some() { disk.read_at(&file.name, 0, PIECE) } else { disk.read(&file.name) };
            let bytes = bytes.map_err(unreadable(&file.name))?;
            let is_whole = successor.is_none() || bytes.len() < PIECE;
            let mut inside = walk.enter(file, successor, bytes, is_whole)?;
            loop {
                while inside.read_on(&*disk, PIECE)?.is_some() {}
                let Some(batch) = walk.next(&mut inside)? else { break };
                fold(batch).map_err(|source| failed(&inside, source))?;
            }
        }
        let Walk { tail, mut torn, bytes, .. } = walk;
        if let Some(torn) = &mut torn {
            torn.last = tail.last;
        }
        let kept = removable(&*disk, from.segment)?.iter().map(|(_, bytes)| bytes).sum();
        Ok(Self { disk, tail, torn, bytes, kept })
    }

    /// What a crash left behind the last whole batch. Reported by every open until something is appended.
    #[must_use]
    pub const fn torn(&self) -> Option<&Torn> {
        self.torn.as_ref()
    }

    /// The last record.
    #[must_use]
    pub const fn last(&self) -> Seq {
        self.tail.last
    }

    /// Up to here everything is proved to be on disk. The records of the last batch beyond it were read, but a crash may still
    /// take them back until something is appended.
    #[must_use]
    pub fn proved(&self) -> Seq {
        self.tail.unproved.as_ref().map_or(self.tail.last, |batch| Seq(batch.first.0.saturating_sub(1)))
    }

    /// Bytes of all segments, without the zeros behind the last frame.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes + self.kept
    }

    /// Bytes of the segments that were read: those behind the snapshot.
    #[must_use]
    pub const fn bytes_since_snapshot(&self) -> u64 {
        self.bytes
    }

    /// Makes it a journal to append to. Writes nothing yet: the first append creates a segment. `salt` must be drawn
    /// by chance.
    #[must_use]
    pub fn into_journal(self, limits: JournalLimits, salt: Salt) -> Journal {
        Journal::new(self.disk, limits, salt, self.tail, self.bytes + self.kept)
    }
}

/// The records of the batch that was read last do not make sense.
pub(super) fn failed<E>(inside: &Inside, source: E) -> RecoverError<E> {
    let (file, offset) = inside.place();
    RecoverError::Fold { file, offset, source }
}

/// Bytes of a segment that are read at once: so few that the memory they take is soon used again, and so many that a read costs little
/// beside what it brings.
const PIECE: usize = 1 << 20;
