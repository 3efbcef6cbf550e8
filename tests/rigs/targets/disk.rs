//! The disks that the targets are measured on: one that does nothing but take a millisecond for each sync, the last fifth of it awake, and
//! probes of the real one, by which rates are divided.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use journeyman_core::disk::{Disk, DiskFile, MemDisk};

/// Memory, and a pause for each sync.
#[derive(Clone, Default)]
pub(crate) struct Paced {
    disk: MemDisk,
    pause: Duration,
}

impl Paced {
    pub(crate) fn new(pause: Duration) -> Self {
        Self { disk: MemDisk::default(), pause }
    }
}

impl Disk for Paced {
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
        Ok(Box::new(PacedFile { file: self.disk.create(name)?, pause: self.pause }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn free(&self) -> io::Result<u64> {
        self.disk.free()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }

    fn sync_names(&self) -> io::Result<()> {
        self.disk.sync_names()
    }
}

struct PacedFile {
    file: Box<dyn DiskFile>,
    pause: Duration,
}

impl DiskFile for PacedFile {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_at(offset, bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        let began = Instant::now();
        // A sleep ends late, here by a tenth of a millisecond and more: the rest is waited for awake.
        thread::sleep(self.pause.saturating_sub(LATE));
        while began.elapsed() < self.pause {
            thread::yield_now();
        }
        self.file.sync()
    }
}

/// Writes 128 bytes and syncs, again and again: what one caller alone gets of the disk.
pub(crate) struct Probe {
    file: File,
    at: u64,
    extends: bool,
}

impl Probe {
    /// Over a file that was written before, which is the faster, or at the end of one that grows.
    pub(crate) fn new(dir: &Path, extends: bool) -> io::Result<Self> {
        let name = if extends { "probe-extending" } else { "probe-overwriting" };
        let file = OpenOptions::new().write(true).create(true).truncate(true).open(dir.join(name))?;
        if !extends {
            file.write_all_at(&vec![0; PROBED], 0)?;
            file.sync_all()?;
        }
        Ok(Self { file, at: 0, extends })
    }

    /// Syncs per second over about `slice`.
    pub(crate) fn rate(&mut self, slice: Duration) -> io::Result<f64> {
        let (began, mut syncs) = (Instant::now(), 0);
        while began.elapsed() < slice {
            self.file.write_all_at(&[7; 128], self.at)?;
            self.file.sync_data()?;
            self.at += 128;
            if !self.extends && self.at + 128 > PROBED as u64 {
                self.at = 0;
            }
            syncs += 1;
        }
        Ok(f64::from(syncs) / began.elapsed().as_secs_f64())
    }
}

/// How long before its end a pause wakes up.
const LATE: Duration = Duration::from_micros(200);
const PROBED: usize = 4 << 20;
