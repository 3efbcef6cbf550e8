//! A directory as one input of a fuzzer, and mending: with checksums in front of everything, bytes by chance never get past them,
//! so an input says how far its checksums, its chain and its counts are made right before it is read. The offsets are those of
//! `docs/journal-format.md`.

use std::collections::BTreeMap;
use std::sync::Arc;

use journeyman_core::disk::{Disk, MemDisk, numbered};
use journeyman_core::snapshot::PlainStore;
use journeyman_core::store::{OpenError, Store};

/// The first byte of an input.
#[derive(Clone, Copy)]
pub struct Mode(pub u8);

impl Mode {
    /// 0 mends nothing, 1 the checksums, 2 the chain as well, 3 also counts and lengths.
    pub fn mending(self) -> u8 {
        self.0 & 3
    }

    /// Whether what was opened is also written to and compacted.
    pub fn goes_on(self) -> bool {
        self.0 & 4 != 0
    }
}

pub type Files = BTreeMap<String, Vec<u8>>;

/// An input as a directory: the mode, then for each file what it is, its number, how many zeros are behind it, and its bytes with
/// their length in front.
pub fn parse(input: &[u8]) -> Option<(Mode, Files)> {
    let (mode, mut rest) = input.split_first()?;
    let mut files = Files::new();
    while let Some((head, behind)) = rest.split_first_chunk::<6>() {
        let [kind, low, high, zeros, length @ ..] = *head;
        let number = u64::from(u16::from_le_bytes([low, high]));
        let length = usize::from(u16::from_le_bytes(length)).min(behind.len());
        let (bytes, behind) = behind.split_at(length);
        rest = behind;
        files.insert(name(kind, number), [bytes, &vec![0; usize::from(zeros) * ZEROS]].concat());
    }
    let mode = Mode(*mode);
    mend(&mut files, mode.mending());
    Some((mode, files))
}

/// The input that [`parse`] makes these files of.
pub fn unparse(mode: Mode, files: &Files) -> Vec<u8> {
    let mut input = vec![mode.0];
    for (name, bytes) in files {
        let kind = if name.ends_with(".segment") { SEGMENT } else { SNAPSHOT };
        let number: u64 = name.split('.').next().and_then(|digits| digits.parse().ok()).expect("a numbered file");
        let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let zeros = (bytes.len() - used).div_ceil(ZEROS).min(4) as u8;
        input.push(kind);
        input.extend(u16::try_from(number).expect("a small number").to_le_bytes());
        input.push(zeros);
        input.extend(u16::try_from(used).expect("a small file").to_le_bytes());
        input.extend(&bytes[..used]);
    }
    input
}

fn name(kind: u8, number: u64) -> String {
    match kind % 8 {
        SEGMENT => numbered(number, ".segment"),
        SNAPSHOT => numbered(number, ".snapshot"),
        2 => numbered(number, ".segment.tmp"),
        3 => numbered(number, ".snapshot.tmp"),
        4 => numbered(u64::MAX - number, ".segment"),
        5 => numbered(u64::MAX - number, ".snapshot"),
        6 => format!("{number}.segment"),
        _ => "journeyman.lock".to_owned(),
    }
}

pub fn disk_of(files: &Files) -> MemDisk {
    let disk = MemDisk::default();
    files.iter().for_each(|(name, bytes)| disk.put(name, bytes));
    disk
}

pub fn image(disk: &MemDisk) -> Files {
    let names = disk.list().expect("memory lists");
    names.into_iter().map(|name| (name.clone(), disk.read(&name).expect("memory reads"))).collect()
}

pub fn open(disk: &MemDisk) -> Result<Store, OpenError> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Store::open(disk.clone(), &PlainStore::new(disk))
}

fn mend(files: &mut Files, mending: u8) {
    if mending == 0 {
        return;
    }
    // How far the segment with this number reaches, and the checksum of its last frame.
    let mut ends: BTreeMap<u64, (u64, u32)> = BTreeMap::new();
    for (name, bytes) in files.iter_mut().filter(|(name, _)| name.ends_with(".segment")) {
        if let Some((number, end)) = mend_segment(bytes, mending, &ends)
            && name.starts_with(&format!("{number:020}"))
        {
            ends.insert(number, end);
        }
    }
    for (_, bytes) in files.iter_mut().filter(|(name, _)| name.ends_with(".snapshot")) {
        mend_snapshot(bytes, mending, &ends);
    }
}

fn mend_segment(bytes: &mut [u8], mending: u8, ends: &BTreeMap<u64, (u64, u32)>) -> Option<(u64, (u64, u32))> {
    let (header, frames) = bytes.split_first_chunk_mut::<96>()?;
    if mending > 1 && let Some((length, checksum)) = ends.get(&number(header, 48)) {
        header[12..16].copy_from_slice(&checksum.to_le_bytes());
        if mending > 2 {
            header[56..64].copy_from_slice(&length.to_le_bytes());
        }
    }
    let sum = crc32c::crc32c(&header[..92]);
    seal(header, 92, sum);
    let salt: [u8; 16] = header[16..32].try_into().expect("sixteen");
    let previous = u32::from_le_bytes(header[12..16].try_into().expect("four"));
    let (length, checksum) = mend_frames(frames, salt, (mending > 1).then_some(previous), mending > 2);
    Some((number(header, 32), (96 + length as u64, checksum)))
}

/// Mends the frames from the front, as far as there are some. Answers how long they are, and the checksum of the last.
pub fn mend_frames(frames: &mut [u8], salt: [u8; 16], mut chain: Option<u32>, lengths: bool) -> (usize, u32) {
    let (mut at, mut checksum) = (0, chain.unwrap_or_default());
    while let Some(frame) = frames.get_mut(at..).filter(|frame| frame.len() >= 64 && frame.starts_with(b"JYFR")) {
        let left = frame.len() - 64;
        let mut length = u32::from_le_bytes(frame[8..12].try_into().expect("four")) as usize;
        if lengths && length > left {
            length = left;
            frame[8..12].copy_from_slice(&(left as u32).to_le_bytes());
        }
        if let Some(previous) = &mut chain {
            frame[48..52].copy_from_slice(&previous.to_le_bytes());
        }
        if let Some(body) = frame.get(64..64 + length) {
            seal(frame, 52, salted(salt, body));
        }
        checksum = salted(salt, &frame[..60]);
        seal(frame, 60, checksum);
        chain = chain.map(|_| checksum);
        at += 64 + length;
    }
    (at.min(frames.len()), checksum)
}

/// Mends a snapshot in a plain file.
pub fn mend_snapshot(bytes: &mut [u8], mending: u8, ends: &BTreeMap<u64, (u64, u32)>) {
    let Some((meta, chunks)) = bytes.split_first_chunk_mut::<128>() else { return };
    if mending > 1 && let Some((length, checksum)) = ends.get(&number(meta, 48)) {
        meta[12..16].copy_from_slice(&checksum.to_le_bytes());
        if mending > 2 {
            meta[56..64].copy_from_slice(&length.to_le_bytes());
        }
    }
    let salt: [u8; 16] = meta[16..32].try_into().expect("sixteen");
    let mut digest = crc32c::crc32c(&salt);
    let (mut count, mut entries, mut bodies) = (0_u64, 0_u64, Vec::new());
    let length = chunks.len() as u64;
    for chunk in chunks.chunks_mut(65536).filter(|chunk| chunk.len() >= 16) {
        if mending > 2 {
            chunk[4..8].copy_from_slice(&(count as u32).to_le_bytes());
            let body = (chunk.len() - 16) as u32;
            chunk[8..12].copy_from_slice(&body.to_le_bytes());
        }
        let sum = crc32c::crc32c_append(salted(salt, &meta[32..40]), &chunk[..12]);
        seal(chunk, 12, crc32c::crc32c_append(sum, &chunk[16..]));
        digest = crc32c::crc32c_append(digest, chunk);
        bodies.extend_from_slice(&chunk[16..]);
        count += 1;
    }
    let mut rest = &bodies[..];
    while let Some((length, behind)) = rest.split_first_chunk::<4>() {
        let Some(behind) = behind.get(u32::from_le_bytes(*length) as usize..) else { break };
        rest = behind;
        entries += 1;
    }
    if mending > 1 {
        meta[88..96].copy_from_slice(&u64::from(digest).to_le_bytes());
    }
    if mending > 2 {
        for (offset, number) in [(64, count), (72, length), (80, entries)] {
            meta[offset..offset + 8].copy_from_slice(&number.to_le_bytes());
        }
    }
    let sum = crc32c::crc32c(&meta[..124]);
    seal(meta, 124, sum);
}

fn salted(salt: [u8; 16], bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&salt), bytes)
}

fn seal(bytes: &mut [u8], at: usize, checksum: u32) {
    bytes[at..at + 4].copy_from_slice(&checksum.to_le_bytes());
}

fn number(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight"))
}

const SEGMENT: u8 = 0;
const SNAPSHOT: u8 = 1;
/// Zeros are counted in steps of this many.
const ZEROS: usize = 64;
