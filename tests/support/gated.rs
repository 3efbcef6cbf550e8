//! A disk that takes its time: whoever reads, writes or syncs certain files waits as long as a gate is shut.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, ThreadId};
use std::time::Duration;

use journeyman_core::disk::{Disk, DiskFile, MemDisk};

#[derive(Clone)]
pub(crate) struct Gated {
    disk: MemDisk,
    /// How the names of the files end that are behind the gate.
    behind: &'static str,
    gate: Arc<(Mutex<bool>, Condvar)>,
    waiting: Arc<AtomicU32>,
    last_sync: Arc<Mutex<Option<ThreadId>>>,
}

impl Gated {
    pub(crate) fn before(behind: &'static str) -> Self {
        let disk = MemDisk::default();
        Self { disk, behind, gate: Arc::default(), waiting: Arc::default(), last_sync: Arc::default() }
    }

    pub(crate) fn shut(&self, shut: bool) {
        *self.gate.0.lock().unwrap() = shut;
        self.gate.1.notify_all();
    }

    fn pass(&self, name: &str) {
        if name.ends_with(self.behind) {
            self.waiting.fetch_add(1, Ordering::Relaxed);
            drop(self.gate.1.wait_while(self.gate.0.lock().unwrap(), |shut| *shut).unwrap());
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Somebody waits at the gate.
    pub(crate) async fn is_waited_at(&self) {
        while self.waiting.load(Ordering::Relaxed) == 0 {
            actix_rt::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Nobody waits there any more.
    pub(crate) async fn is_left(&self) {
        while self.waiting.load(Ordering::Relaxed) > 0 {
            actix_rt::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Whose thread it was that last synced what is behind the gate.
    pub(crate) fn last_sync(&self) -> Option<ThreadId> {
        *self.last_sync.lock().unwrap()
    }
}

impl Disk for Gated {
    fn free(&self) -> io::Result<u64> {
        self.disk.free()
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        self.disk.read(name)
    }

    fn read_at(&self, name: &str, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        self.pass(name);
        self.disk.read_at(name, offset, length)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(GatedFile { disk: self.clone(), name: name.to_owned(), file: self.disk.create(name)? }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }

    fn sync_names(&self) -> io::Result<()> {
        self.disk.sync_names()
    }
}

struct GatedFile {
    disk: Gated,
    name: String,
    file: Box<dyn DiskFile>,
}

impl DiskFile for GatedFile {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.disk.pass(&self.name);
        self.file.write_at(offset, bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.disk.pass(&self.name);
        if self.name.ends_with(self.disk.behind) {
            *self.disk.last_sync.lock().unwrap() = Some(thread::current().id());
        }
        self.file.sync()
    }
}
