//! A disk in memory that keeps what was synced apart from what was written, so that a test can pull the plug.

// Of tests: what it indexes are its own tables, and no bytes of anybody.
#![allow(clippy::indexing_slicing)]

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Disk, DiskFile};

/// A directory in memory. Clones share it.
///
/// ```
/// use journeyman_core::disk::{Disk, MemDisk};
///
/// let disk = MemDisk::default();
/// let mut file = disk.create("a").unwrap();
/// file.write_at(0, b"kept").unwrap();
/// file.sync().unwrap();
/// disk.sync_names().unwrap();
/// file.write_at(0, b"lost").unwrap();
/// disk.crash();
/// assert_eq!(disk.read("a").unwrap(), b"kept");
/// ```
#[derive(Clone, Default)]
pub struct MemDisk(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    files: Vec<Content>,
    names: BTreeMap<String, usize>,
    synced_names: BTreeMap<String, usize>,
    syncs: u64,
    fail_syncs: bool,
    free: Option<u64>,
}

#[derive(Default)]
struct Content {
    bytes: Vec<u8>,
    /// What unsynced writes replaced, oldest first: the offset, the old length, the old bytes.
    undo: Vec<(usize, usize, Vec<u8>)>,
}

impl MemDisk {
    /// Cuts the power: what was not synced is gone.
    pub fn crash(&self) {
        let mut state = self.state();
        state.names = state.synced_names.clone();
        for content in &mut state.files {
            while let Some((offset, length, old)) = content.undo.pop() {
                content.bytes[offset..offset + old.len()].copy_from_slice(&old);
                content.bytes.truncate(length);
            }
        }
    }

    /// Puts a file there, synced.
    pub fn put(&self, name: &str, bytes: &[u8]) {
        let mut state = self.state();
        let id = state.files.len();
        state.files.push(Content { bytes: bytes.to_vec(), undo: Vec::new() });
        state.names.insert(name.to_owned(), id);
        state.synced_names.insert(name.to_owned(), id);
    }

    /// File syncs so far.
    #[must_use]
    pub fn syncs(&self) -> u64 {
        self.state().syncs
    }

    /// From now on every sync fails, or no longer does.
    pub fn fail_syncs(&self, fail: bool) {
        self.state().fail_syncs = fail;
    }

    /// Says that so many bytes are free; without a word, there is room for everything. Writes are not refused by it.
    pub fn set_free(&self, bytes: Option<u64>) {
        self.state().free = bytes;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Its files hold payloads and keys, which may be private: this shows their names and sizes.
impl fmt::Debug for MemDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        let sizes = state.names.iter().map(|(name, id)| (name, state.files.get(*id).map_or(0, |file| file.bytes.len())));
        f.debug_map().entries(sizes).finish()
    }
}

impl Disk for MemDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.state().names.keys().cloned().collect())
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let state = self.state();
        let id = state.names.get(name).ok_or(ErrorKind::NotFound)?;
        Ok(state.files[*id].bytes.clone())
    }

    fn read_at(&self, name: &str, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        let state = self.state();
        let id = state.names.get(name).ok_or(ErrorKind::NotFound)?;
        let bytes = &state.files[*id].bytes;
        let start = usize::try_from(offset).map_or(bytes.len(), |offset| offset.min(bytes.len()));
        let end = start.saturating_add(length).min(bytes.len());
        Ok(bytes[start..end].to_vec())
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.state();
        let id = state.files.len();
        state.files.push(Content::default());
        state.names.insert(name.to_owned(), id);
        Ok(Box::new(MemFile { disk: self.clone(), id }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.state();
        let id = state.names.remove(from).ok_or(ErrorKind::NotFound)?;
        state.names.insert(to.to_owned(), id);
        Ok(())
    }

    fn free(&self) -> io::Result<u64> {
        Ok(self.state().free.unwrap_or(u64::MAX))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.state().names.remove(name).map(drop).ok_or_else(|| ErrorKind::NotFound.into())
    }

    fn sync_names(&self) -> io::Result<()> {
        let mut state = self.state();
        if state.fail_syncs {
            return Err(io::Error::other("a sync that was told to fail"));
        }
        state.synced_names = state.names.clone();
        Ok(())
    }
}

struct MemFile {
    disk: MemDisk,
    id: usize,
}

impl DiskFile for MemFile {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.disk.state();
        let content = &mut state.files[self.id];
        let offset = usize::try_from(offset).map_err(|_| ErrorKind::FileTooLarge)?;
        let end = offset + bytes.len();
        let length = content.bytes.len();
        content.bytes.resize(length.max(end), 0);
        let overlap = offset.min(length)..end.min(length);
        content.undo.push((overlap.start, length, content.bytes[overlap].to_vec()));
        content.bytes[offset..end].copy_from_slice(bytes);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut state = self.disk.state();
        state.syncs += 1;
        if state.fail_syncs {
            return Err(io::Error::other("a sync that was told to fail"));
        }
        state.files[self.id].undo.clear();
        Ok(())
    }
}
