//! Disks that fail when they are told to, and one that remembers every call, so that a crash can be played at any of
//! them with any part of what was not yet synced.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use journeyman_core::disk::{Disk, DiskFile, MemDisk};

use super::Image;

/// A disk whose n-th call fails, and only that one. A write that fails has done half of its work.
#[derive(Clone)]
pub(crate) struct Failing {
    disk: MemDisk,
    calls: Arc<AtomicU64>,
    at: Arc<AtomicU64>,
}

impl Failing {
    /// Fails at no call before it is armed.
    pub(crate) fn on(disk: &MemDisk) -> Self {
        Self { disk: disk.clone(), calls: Arc::default(), at: Arc::default() }
    }

    /// Counts calls anew, and fails the n-th from here, which is never the 0th.
    pub(crate) fn arm(&self, at: u64) {
        self.calls.store(0, Ordering::Relaxed);
        self.at.store(at, Ordering::Relaxed);
    }

    /// Calls since it was armed, the failed one among them.
    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    fn call(&self) -> io::Result<()> {
        let number = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        if number == self.at.load(Ordering::Relaxed) { Err(io::Error::other("a call that was told to fail")) } else { Ok(()) }
    }
}

impl Disk for Failing {
    fn free(&self) -> io::Result<u64> {
        Ok(u64::MAX)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.call()?;
        self.disk.list()
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        self.call()?;
        self.disk.read(name)
    }

    fn read_at(&self, name: &str, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        self.call()?;
        self.disk.read_at(name, offset, length)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        self.call()?;
        Ok(Box::new(FailingFile { disk: self.clone(), file: self.disk.create(name)? }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.call()?;
        self.disk.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.call()?;
        self.disk.remove(name)
    }

    fn sync_names(&self) -> io::Result<()> {
        self.call()?;
        self.disk.sync_names()
    }
}

struct FailingFile {
    disk: Failing,
    file: Box<dyn DiskFile>,
}

impl DiskFile for FailingFile {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if let Err(error) = self.disk.call() {
            self.file.write_at(offset, &bytes[..bytes.len() / 2])?;
            return Err(error);
        }
        self.file.write_at(offset, bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.disk.call()?;
        self.file.sync()
    }
}

/// A disk that remembers every call that changes it.
#[derive(Clone)]
pub(crate) struct Recorded {
    disk: MemDisk,
    log: Arc<Mutex<Log>>,
}

struct Log {
    base: Image,
    calls: Vec<Call>,
    files: usize,
}

#[derive(Clone)]
pub(crate) enum Call {
    Create { file: usize, name: String },
    Write { file: usize, offset: usize, bytes: Arc<[u8]> },
    Sync { file: usize },
    Rename { from: String, to: String },
    Remove { name: String },
    SyncNames,
}

impl Recorded {
    /// Begins with these files, all of them synced.
    pub(crate) fn on(base: Image) -> Self {
        let log = Log { files: base.len(), base, calls: Vec::new() };
        Self { disk: super::disk_of(&log.base), log: Arc::new(Mutex::new(log)) }
    }

    /// Changing calls so far.
    pub(crate) fn calls(&self) -> usize {
        self.log().calls.len()
    }

    /// What a crash may leave after the first `calls` of them.
    pub(crate) fn crashed_after(&self, calls: usize) -> Crashed {
        let log = self.log();
        let mut crashed = Crashed { files: Vec::new(), names: Names::new(), renames: Vec::new(), writes: Vec::new() };
        for (name, bytes) in &log.base {
            crashed.names.insert(name.clone(), crashed.files.len());
            crashed.files.push(bytes.clone());
        }
        crashed.files.resize(log.files, Vec::new());
        log.calls.iter().take(calls).for_each(|call| crashed.follow(call));
        crashed
    }

    fn call(&self, call: Call) {
        self.log().calls.push(call);
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().expect("nobody panics with it")
    }
}

impl Disk for Recorded {
    fn free(&self) -> io::Result<u64> {
        Ok(u64::MAX)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        self.disk.read(name)
    }

    fn read_at(&self, name: &str, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        self.disk.read_at(name, offset, length)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let id = self.log().files;
        self.log().files += 1;
        self.call(Call::Create { file: id, name: name.to_owned() });
        Ok(Box::new(RecordedFile { disk: self.clone(), id, file: self.disk.create(name)? }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.call(Call::Rename { from: from.to_owned(), to: to.to_owned() });
        self.disk.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.call(Call::Remove { name: name.to_owned() });
        self.disk.remove(name)
    }

    fn sync_names(&self) -> io::Result<()> {
        self.call(Call::SyncNames);
        self.disk.sync_names()
    }
}

struct RecordedFile {
    disk: Recorded,
    id: usize,
    file: Box<dyn DiskFile>,
}

impl DiskFile for RecordedFile {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let at = usize::try_from(offset).expect("small files");
        // Of zeros that are laid ahead by the megabyte a part says the same, and makes a thousand files small.
        let kept = if bytes.len() > ZEROS_KEPT && bytes.iter().all(|byte| *byte == 0) { &bytes[..ZEROS_KEPT] } else { bytes };
        self.disk.call(Call::Write { file: self.id, offset: at, bytes: kept.into() });
        self.file.write_at(offset, bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.disk.call(Call::Sync { file: self.id });
        self.file.sync()
    }
}

const ZEROS_KEPT: usize = 16 << 10;

type Names = std::collections::BTreeMap<String, usize>;

/// What was durable when the power went, and what might be.
pub(crate) struct Crashed {
    files: Vec<Vec<u8>>,
    names: Names,
    /// Changes of names that were not synced, oldest first.
    pub(crate) renames: Vec<Call>,
    /// Writes that were not synced, oldest first: the file, where, what.
    pub(crate) writes: Vec<(usize, usize, Arc<[u8]>)>,
}

impl Crashed {
    fn follow(&mut self, call: &Call) {
        match call {
            Call::Create { .. } | Call::Rename { .. } | Call::Remove { .. } => self.renames.push(call.clone()),
            Call::Write { file, offset, bytes } => self.writes.push((*file, *offset, bytes.clone())),
            Call::Sync { file: synced } => {
                let (done, rest) = self.writes.drain(..).partition(|(file, ..)| file == synced);
                self.writes = rest;
                let done: Vec<_> = done;
                done.iter().for_each(|(file, offset, bytes)| lay(&mut self.files[*file], *offset, bytes));
            }
            Call::SyncNames => {
                let renames = std::mem::take(&mut self.renames);
                renames.iter().for_each(|call| rename(&mut self.names, call));
            }
        }
    }

    /// The files when of what was not synced the first `renames` changes of names survived, and of every write the parts
    /// that `survives` says: it is asked with the number of the write and its bytes, and answers with ranges of them.
    pub(crate) fn image(&self, renames: usize, survives: impl Fn(usize, &[u8]) -> Vec<std::ops::Range<usize>>) -> Image {
        let mut names = self.names.clone();
        self.renames.iter().take(renames).for_each(|call| rename(&mut names, call));
        let mut files = self.files.clone();
        for (number, (file, offset, bytes)) in self.writes.iter().enumerate() {
            for part in survives(number, bytes) {
                lay(&mut files[*file], offset + part.start, &bytes[part]);
            }
        }
        names.into_iter().map(|(name, file)| (name, files[file].clone())).collect()
    }
}

fn rename(names: &mut Names, call: &Call) {
    match call {
        Call::Create { file, name } => drop(names.insert(name.clone(), *file)),
        Call::Rename { from, to } => {
            let file = names.remove(from).expect("what is renamed is there");
            names.insert(to.clone(), file);
        }
        Call::Remove { name } => drop(names.remove(name)),
        Call::Write { .. } | Call::Sync { .. } | Call::SyncNames => {}
    }
}

fn lay(file: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    let end = offset + bytes.len();
    file.resize(file.len().max(end), 0);
    file[offset..end].copy_from_slice(bytes);
}
