//! What the disk does by itself in the directory of a measurement, and what a measurement takes of it.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, Instant};

/// Writes with fdatasync a second, each of one record of 128 bytes.
#[derive(Clone, Copy)]
pub(crate) struct Syncs {
    /// At the end of a file that grows.
    pub(crate) append: f64,
    /// Into a file that was filled before.
    pub(crate) prealloc: f64,
}

impl Syncs {
    /// Tries it for a third of a second.
    pub(crate) fn probe(dir: &Path) -> io::Result<Self> {
        let path = dir.join("syncs.probe");
        let append = rate(&File::create(&path)?, APPEND, u64::MAX)?;
        let filled = File::create(&path)?;
        for at in (0..REGION).step_by(ZEROS.len()) {
            filled.write_all_at(&ZEROS, at)?;
        }
        let prealloc = rate(&filled, PREALLOC, REGION)?;
        fs::remove_file(path)?;
        Ok(Self { append, prealloc })
    }

    pub(crate) fn mean(all: &[Self]) -> Self {
        let count = all.len() as f64;
        let mean = |of: fn(&Self) -> f64| all.iter().map(of).sum::<f64>() / count;
        Self { append: mean(|one| one.append), prealloc: mean(|one| one.prealloc) }
    }
}

/// Goes on at the front when it comes to the end of the region.
fn rate(file: &File, time: Duration, region: u64) -> io::Result<f64> {
    file.sync_all()?;
    let began = Instant::now();
    let (mut count, mut at) = (0_u32, 0);
    while began.elapsed() < time {
        file.write_all_at(&RECORD, at)?;
        file.sync_data()?;
        count += 1;
        at += RECORD.len() as u64;
        if at + RECORD.len() as u64 > region {
            at = 0;
        }
    }
    Ok(f64::from(count) / began.elapsed().as_secs_f64())
}

/// Bytes that everything below takes on disk; files that go meanwhile count as nothing.
pub(crate) fn taken(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(data) if data.is_dir() => taken(&entry.path()),
            Ok(data) => data.blocks() * SECTOR,
            Err(_) => 0,
        })
        .sum()
}

const APPEND: Duration = Duration::from_millis(200);
const PREALLOC: Duration = Duration::from_millis(150);
const RECORD: [u8; 128] = [0xA5; 128];
const REGION: u64 = 8 << 20;
static ZEROS: [u8; 1 << 20] = [0; 1 << 20];
/// What `blocks` counts in, whatever the file system's blocks are.
const SECTOR: u64 = 512;
