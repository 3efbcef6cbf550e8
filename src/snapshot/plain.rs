//! Snapshots as plain files beside the segments: the meta data, then the chunks. The reference for every other store, and the
//! store of builds without one. Never judges a byte.

use std::sync::Arc;

use super::draft::Finished;
use super::reading::Verified;
use super::{CHUNK_BYTES, ChunkSink, ChunkSource, META_BYTES, SnapshotError, SnapshotStore};
use crate::disk::{self, Disk, DiskFile};
use crate::ids::Seq;

/// Keeps each snapshot in a file of the same directory as the journal, named for its seq.
///
/// ```
/// use std::sync::Arc;
/// use journeyman_core::disk::MemDisk;
/// use journeyman_core::snapshot::{PlainStore, SnapshotStore};
///
/// let store = PlainStore::new(Arc::new(MemDisk::default()));
/// assert!(store.list().unwrap().is_empty());
/// ```
pub struct PlainStore {
    disk: Arc<dyn Disk>,
}

impl PlainStore {
    /// The snapshots in this directory.
    #[must_use]
    pub const fn new(disk: Arc<dyn Disk>) -> Self {
        Self { disk }
    }

    fn names(&self) -> Result<Vec<String>, SnapshotError> {
        self.disk.list().map_err(SnapshotError::io("."))
    }

    fn source(&self, name: String) -> Box<dyn ChunkSource> {
        Box::new(PlainSource { disk: self.disk.clone(), name })
    }
}

impl SnapshotStore for PlainStore {
    fn name(&self, seq: Seq) -> String {
        name(seq)
    }

    fn list(&self) -> Result<Vec<Seq>, SnapshotError> {
        Ok(self.names()?.iter().filter_map(|name| seq_of(name)).collect())
    }

    fn sweep(&self) -> Result<(), SnapshotError> {
        for left in self.names()?.iter().filter(|name| name.strip_suffix(DRAFT).is_some_and(|name| seq_of(name).is_some())) {
            self.disk.remove(left).map_err(SnapshotError::io(left))?;
        }
        Ok(())
    }

    fn begin(&self, seq: Seq) -> Result<Box<dyn ChunkSink>, SnapshotError> {
        self.sweep()?;
        let name = draft(seq);
        let file = self.disk.create(&name).map_err(SnapshotError::io(&name))?;
        Ok(Box::new(PlainSink { disk: self.disk.clone(), name, file, end: META_BYTES as u64 }))
    }

    fn open(&self, seq: Seq) -> Result<Box<dyn ChunkSource>, SnapshotError> {
        Ok(self.source(name(seq)))
    }

    fn open_draft(&self, finished: &Finished) -> Result<Box<dyn ChunkSource>, SnapshotError> {
        Ok(self.source(draft(finished.seq())))
    }

    fn publish(&self, verified: Verified) -> Result<(), SnapshotError> {
        let name = name(verified.seq());
        let renamed = self.disk.rename(&draft(verified.seq()), &name).and_then(|()| self.disk.sync_names());
        renamed.map_err(SnapshotError::io(name))
    }

    fn remove(&self, seq: Seq) -> Result<(), SnapshotError> {
        let name = name(seq);
        self.disk.remove(&name).and_then(|()| self.disk.sync_names()).map_err(SnapshotError::io(name))
    }
}

struct PlainSink {
    disk: Arc<dyn Disk>,
    name: String,
    file: Box<dyn DiskFile>,
    end: u64,
}

impl ChunkSink for PlainSink {
    fn put(&mut self, chunk: &[u8]) -> Result<(), SnapshotError> {
        self.file.write_at(self.end, chunk).map_err(SnapshotError::io(&self.name))?;
        self.end += chunk.len() as u64;
        Ok(())
    }

    fn sync(&mut self) -> Result<(), SnapshotError> {
        self.file.sync().map_err(SnapshotError::io(&self.name))
    }

    fn finish(mut self: Box<Self>, meta: &[u8]) -> Result<(), SnapshotError> {
        self.sync()?;
        self.file.write_at(0, meta).map_err(SnapshotError::io(&self.name))?;
        self.sync()?;
        self.disk.sync_names().map_err(SnapshotError::io(&self.name))
    }
}

struct PlainSource {
    disk: Arc<dyn Disk>,
    name: String,
}

impl ChunkSource for PlainSource {
    fn meta(&mut self) -> Result<Vec<u8>, SnapshotError> {
        self.disk.read_at(&self.name, 0, META_BYTES).map_err(SnapshotError::io(&self.name))
    }

    fn chunk(&mut self, index: u32) -> Result<Option<Vec<u8>>, SnapshotError> {
        let offset = META_BYTES as u64 + u64::from(index) * CHUNK_BYTES as u64;
        let chunk = self.disk.read_at(&self.name, offset, CHUNK_BYTES).map_err(SnapshotError::io(&self.name))?;
        Ok((!chunk.is_empty()).then_some(chunk))
    }
}

fn name(seq: Seq) -> String {
    disk::numbered(seq.0, SUFFIX)
}

fn draft(seq: Seq) -> String {
    name(seq) + DRAFT
}

/// The seq in the name of a snapshot; none when the name is of something else.
fn seq_of(text: &str) -> Option<Seq> {
    disk::number_of(text, SUFFIX).map(Seq)
}

const SUFFIX: &str = ".snapshot";
const DRAFT: &str = ".tmp";
