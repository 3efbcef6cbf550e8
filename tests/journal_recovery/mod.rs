//! Proves what opening a journal makes of what is on the disk: what was appended comes back, a torn tail is left behind
//! and reported, damage is a typed error that names its place, and no file is ever touched by any of it.

mod damage;
mod round_trips;
mod tails;

use journeyman_core::disk::MemDisk;
use journeyman_core::journal::{Batch, Journal, JournalLimits, RecoverError, Salt};

use crate::support::{Image, SALT, batch, disk_of, image, read, segment};

/// One batch of some hundred bytes fits into a segment, two do not.
const NARROW: JournalLimits = JournalLimits { segment_bytes: 700, batch_bytes: 1 << 20 };

/// Bytes of the header of a segment, and of a frame.
const SEGMENT_HEADER: usize = 96;
const FRAME_HEADER: usize = 64;

/// A disk with so many segments and a batch of 300 bytes in each.
fn still(segments: u64) -> MemDisk {
    let mut files = image(&filled(segments).0);
    // Of the megabyte of zeros behind them a part says the same.
    files.values_mut().for_each(|bytes| bytes.truncate(2000));
    disk_of(&files)
}

/// The same, and the journal that wrote them.
fn filled(segments: u64) -> (MemDisk, Journal) {
    filled_with(segments, 0)
}

fn filled_with(segments: u64, salt: u128) -> (MemDisk, Journal) {
    let disk = MemDisk::default();
    let (_, recovery) = read(disk.clone()).expect("a sound journal");
    let mut writer = recovery.into_journal(JournalLimits { segment_bytes: 500, ..NARROW }, Salt(SALT.0 + salt));
    (1..=segments).for_each(|first| writer.append(batch(first, 1, body(300))).expect("memory takes it"));
    (disk, writer)
}

fn body(length: u16) -> Vec<u8> {
    (0..length).map(|n| n.to_le_bytes()[0] | 1).collect()
}

fn next_of(batches: &[Batch]) -> u64 {
    batches.last().map_or(1, |batch| batch.last().0 + 1)
}

/// The first records of the batches that are there.
fn firsts(disk: &MemDisk) -> Vec<u64> {
    read(disk.clone()).expect("a sound journal").0.iter().map(|batch| batch.first.0).collect()
}

/// The files, with one segment changed.
fn with(disk: &MemDisk, number: u64, change: impl FnOnce(&mut Vec<u8>)) -> Image {
    let mut files = image(disk);
    change(files.get_mut(&segment(number)).expect("there is such a segment"));
    files
}

/// Which file is damaged, and where. It stays as it is.
fn damage(disk: &MemDisk) -> (String, u64) {
    let before = image(disk);
    let answer = read(disk.clone()).map(|(found, _)| found.len());
    assert!(image(disk) == before);
    match answer {
        Err(RecoverError::Damaged { file, offset, .. }) => (file, offset),
        other => panic!("{other:?}"),
    }
}

/// The number of the first record, as the header of a segment has it.
fn first_of(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[40..48].try_into().expect("8 bytes"))
}

/// Makes the checksum of a segment header right.
fn seal_header(bytes: &mut [u8]) {
    let checksum = crc32c::crc32c(&bytes[..92]);
    bytes[92..96].copy_from_slice(&checksum.to_le_bytes());
}

/// Makes the checksum of the first frame header right.
fn seal_frame(bytes: &mut [u8]) {
    seal_frame_at(bytes, SEGMENT_HEADER);
}

/// Makes the checksum of a frame header right: it is salted.
fn seal_frame_at(bytes: &mut [u8], at: usize) {
    let salt = crc32c::crc32c(&bytes[16..32]);
    let header = at..at + FRAME_HEADER - 4;
    let checksum = crc32c::crc32c_append(salt, &bytes[header.clone()]);
    bytes[header.end..][..4].copy_from_slice(&checksum.to_le_bytes());
}
