//! Opening what is on disk: the state, and the journal to go on with. Reads only.

use std::sync::Arc;

use crate::disk::Disk;
use crate::ids::Seq;
use crate::journal::{Batch, RecoverError, Recovery};
use crate::queue::{Misfit, Queue};
use crate::record::{self, Malformed};

/// A partition that has been read.
pub struct Store {
    /// What its records come to.
    pub queue: Queue,
    /// The journal, not yet written to.
    pub recovery: Recovery,
}

/// A batch whose checksums hold, but whose records cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FoldError {
    /// A record does not decode, or bytes are left over.
    #[error("record {seq} cannot be decoded: {source}")]
    Malformed {
        /// The record.
        seq: Seq,
        /// Why.
        source: Malformed,
    },
    /// A record does not fit the state: this build folds the journal to another history than the one that wrote it.
    #[error("record {seq} does not fit what came before: {source}")]
    Diverged {
        /// The record.
        seq: Seq,
        /// Why.
        source: Misfit,
    },
}

impl Store {
    /// Reads all that `disk` has.
    ///
    /// # Errors
    /// [`RecoverError`]; no file has changed.
    pub fn open(disk: Arc<dyn Disk>) -> Result<Self, RecoverError<FoldError>> {
        let mut queue = Queue::default();
        let recovery = Recovery::read(disk, |batch| fold(&mut queue, batch))?;
        Ok(Self { queue, recovery })
    }
}

/// Applies every record of a batch.
fn fold(queue: &mut Queue, batch: &Batch) -> Result<(), FoldError> {
    let mut rest = &batch.body[..];
    let mut seq = batch.first;
    for _ in 0..batch.count {
        let record = record::decode(&mut rest).map_err(|source| FoldError::Malformed { seq, source })?;
        queue.step(seq, batch.time, &record).map_err(|source| FoldError::Diverged { seq, source })?;
        seq = seq.next();
    }
    if rest.is_empty() { Ok(()) } else { Err(FoldError::Malformed { seq, source: Malformed::Fields }) }
}
