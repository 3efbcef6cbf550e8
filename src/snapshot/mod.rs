//! The state at a seq, saved so that the journal before it can go: the seam to where snapshots are kept, and the one way in
//! which a draft becomes a snapshot. Knows neither when one is due nor what of the journal may go then.
//!
//! ```text
//! Draft --finish--> Finished --verify--> Verifying --finish--> Verified --publish--> found by every later open
//! ```
//!
//! `docs/journal-format.md` has the bytes in full.

mod draft;
mod entry;
mod meta;
mod plain;
mod reading;

use std::io;

pub use draft::{Draft, Finished};
pub use plain::PlainStore;
pub use reading::{Loaded, Loading, Verified, Verifying};

use crate::ids::Seq;
use crate::payloads::PayloadError;

/// Where the snapshots of one partition are kept, each under its seq. Unfinished ones are drafts: no open looks at them, and the
/// next draft begins with sweeping them away.
pub trait SnapshotStore: Send {
    /// What errors call the snapshot of this seq: the name of its file or directory.
    fn name(&self, seq: Seq) -> String;

    /// The seqs of the published snapshots, in any order.
    ///
    /// # Errors
    /// Those of the disk.
    fn list(&self) -> Result<Vec<Seq>, SnapshotError>;

    /// Sweeps away what unfinished drafts have left behind.
    ///
    /// # Errors
    /// Those of the disk.
    fn sweep(&self) -> Result<(), SnapshotError>;

    /// Begins an empty draft, and sweeps away what earlier ones left behind.
    ///
    /// # Errors
    /// Those of the disk.
    fn begin(&self, seq: Seq) -> Result<Box<dyn ChunkSink>, SnapshotError>;

    /// Opens a published snapshot for reading. Changes nothing of it.
    ///
    /// # Errors
    /// [`SnapshotError`].
    fn open(&self, seq: Seq) -> Result<Box<dyn ChunkSource>, SnapshotError>;

    /// Opens a finished draft for reading. Changes nothing of it.
    ///
    /// # Errors
    /// [`SnapshotError`].
    fn open_draft(&self, draft: &Finished) -> Result<Box<dyn ChunkSource>, SnapshotError>;

    /// Makes a draft a snapshot, in the place of a damaged one of the same seq. When this returns, no crash can undo it.
    ///
    /// # Errors
    /// Those of the disk: it may be published or not.
    fn publish(&self, draft: Verified) -> Result<(), SnapshotError>;

    /// Takes a published snapshot away for good.
    ///
    /// # Errors
    /// Those of the disk: it may be gone, whole, or damaged.
    fn remove(&self, seq: Seq) -> Result<(), SnapshotError>;
}

/// A draft that is being written. Dropped before it is finished, it leaves something that the next draft sweeps away.
pub trait ChunkSink: Send {
    /// Adds the next chunk: [`CHUNK_BYTES`], the last one at most so many.
    ///
    /// # Errors
    /// Those of the disk.
    fn put(&mut self, chunk: &[u8]) -> Result<(), SnapshotError>;

    /// Makes durable what was put so far, so that the end need not do all of it at once.
    ///
    /// # Errors
    /// Those of the disk.
    fn sync(&mut self) -> Result<(), SnapshotError>;

    /// Writes the meta data, the last of all. When this returns, every byte of the draft is durable, and so are its names.
    ///
    /// # Errors
    /// Those of the disk.
    fn finish(self: Box<Self>, meta: &[u8]) -> Result<(), SnapshotError>;
}

/// A snapshot or a draft that is being read.
pub trait ChunkSource: Send {
    /// The meta data, whatever its bytes.
    ///
    /// # Errors
    /// [`SnapshotError`]; damage when there is none.
    fn meta(&mut self) -> Result<Vec<u8>, SnapshotError>;

    /// The chunk with this number, counted from 0; none behind the last.
    ///
    /// # Errors
    /// [`SnapshotError`].
    fn chunk(&mut self, index: u32) -> Result<Option<Vec<u8>>, SnapshotError>;
}

/// Why a snapshot cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// The disk refused: not a sign of damage.
    #[error("{name}: cannot be read or written: {source}")]
    Io {
        /// The file or directory.
        name: String,
        /// Why.
        source: io::Error,
    },
    /// It is not what was written.
    #[error("{name} is damaged: expected {expected}")]
    Damaged {
        /// The file or directory.
        name: String,
        /// What should be there.
        expected: String,
    },
    /// It was written by a newer release.
    #[error("{name} needs a reader of format {needs}; this one knows format {knows}", knows = meta::FORMAT)]
    Newer {
        /// The file or directory.
        name: String,
        /// The format it needs.
        needs: u16,
    },
    /// A payload that belongs into it does not come back from where it was put.
    #[error(transparent)]
    Payload(#[from] PayloadError),
}

impl SnapshotError {
    /// The disk refused something about the file or directory of this name.
    pub fn io(name: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let name = name.into();
        move |source| Self::Io { name, source }
    }

    /// The snapshot of this name is not what was written.
    pub fn damaged(name: impl Into<String>, expected: impl Into<String>) -> Self {
        Self::Damaged { name: name.into(), expected: expected.into() }
    }

    /// Whether it tells of damage: then an older snapshot may stand in, which it may not for any other error.
    #[must_use]
    pub const fn is_damage(&self) -> bool {
        matches!(self, Self::Damaged { .. })
    }
}

/// The bytes of every chunk but the last. In sled, 64 KiB took the least of the disk (`docs/decisions/0007-snapshots.md`).
pub const CHUNK_BYTES: usize = 64 << 10;
/// The bytes of the meta data.
pub const META_BYTES: usize = meta::BYTES;
/// What is read or written at one go, about.
const STEP_BYTES: usize = 1 << 20;
/// Entries that are made at one go, at most.
const STEP_ENTRIES: usize = 4096;
