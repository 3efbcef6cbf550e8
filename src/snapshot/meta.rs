//! What a snapshot says of itself, and the frame of its chunks: checksums that tell one snapshot's bytes from another's and
//! from damage. Knows nothing of what is in a chunk.
//!
//! Frozen, as `entry.rs` is: to change either, raise `FORMAT`, and `MIN_READER` when an older release must not go on; the golden directories
//! (`tests/golden/`) must open as before, and a new one is added. The mark, `MIN_READER` and the checksum stay where they are.

use crate::ids::{Epoch, Seq};
use crate::journal::{Boundary, Salt};

use super::CHUNK_BYTES;

/// Written last, read first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Meta {
    /// Where in the journal it stands; the seq is that of the last record before.
    pub boundary: Boundary,
    pub salt: Salt,
    pub chunks: u64,
    /// Of all chunks, their frames included.
    pub bytes: u64,
    pub entries: u64,
    /// Over all chunks in their order.
    pub digest: u32,
}

/// What stands in the place of the meta data.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Start {
    Meta(Meta),
    /// A format that this release cannot read.
    Newer(u16),
    Bad,
}

impl Meta {
    /// Of a snapshot that has nothing in it yet.
    pub(super) fn begin(boundary: Boundary, salt: Salt) -> Self {
        Self { boundary, salt, chunks: 0, bytes: 0, entries: 0, digest: crc32c::crc32c(&salt.0.to_le_bytes()) }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let Boundary { last, epoch, segment, length, checksum } = self.boundary;
        let mut bytes = Vec::with_capacity(BYTES);
        bytes.extend(MAGIC);
        bytes.extend(FORMAT.to_le_bytes());
        bytes.extend(MIN_READER.to_le_bytes());
        bytes.extend(checksum.to_le_bytes());
        bytes.extend(self.salt.0.to_le_bytes());
        for number in [last.0, epoch.0, segment, length, self.chunks, self.bytes, self.entries, u64::from(self.digest)] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.resize(BYTES - 4, 0);
        bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
        bytes
    }

    /// In every format to come, the mark, the least format and the checksum stand where they stand now, so that an older
    /// release can tell a newer snapshot from a damaged one.
    pub(super) fn read(bytes: &[u8]) -> Start {
        let Some((said, checksum)) = bytes.split_last_chunk::<4>() else { return Start::Bad };
        if bytes.len() != BYTES || !said.starts_with(MAGIC) || *checksum != crc32c::crc32c(said).to_le_bytes() {
            return Start::Bad;
        }
        let number = |offset: usize| u64::from_le_bytes(field(said, offset));
        let min_reader = u16::from_le_bytes(field(said, 10));
        if min_reader > FORMAT {
            return Start::Newer(min_reader);
        }
        let Ok(digest) = u32::try_from(number(88)) else { return Start::Bad };
        Start::Meta(Self {
            boundary: Boundary {
                last: Seq(number(32)),
                epoch: Epoch(number(40)),
                segment: number(48),
                length: number(56),
                checksum: u32::from_le_bytes(field(said, 12)),
            },
            salt: Salt(u128::from_le_bytes(field(said, 16))),
            chunks: number(64),
            bytes: number(72),
            entries: number(80),
            digest,
        })
    }

    /// The next chunk, which holds `body`.
    pub(super) fn frame(&mut self, body: &[u8]) -> Vec<u8> {
        let mut chunk = Vec::with_capacity(CHUNK_HEADER + body.len());
        chunk.extend(CHUNK_MAGIC);
        // A body is far below 4 GiB, and so many chunks of 64 KiB no disk holds.
        for number in [self.chunks, body.len() as u64] {
            chunk.extend(u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes());
        }
        chunk.extend(self.checksum(&chunk, body).to_le_bytes());
        chunk.extend(body);
        self.count(&chunk);
        chunk
    }

    /// What is in the chunk with this number, when it is that chunk of this snapshot and sound.
    pub(super) fn unframe<'a>(&self, index: u32, chunk: &'a [u8]) -> Option<&'a [u8]> {
        let (header, body) = chunk.split_first_chunk::<CHUNK_HEADER>()?;
        let (said, checksum) = header.split_last_chunk::<4>()?;
        let word = |offset: usize| u32::from_le_bytes(field(said, offset));
        let sound = said.starts_with(CHUNK_MAGIC)
            && word(4) == index
            && u64::from(word(8)) == body.len() as u64
            && *checksum == self.checksum(said, body).to_le_bytes();
        sound.then_some(body)
    }

    /// Counts a chunk that was written or read.
    pub(super) fn count(&mut self, chunk: &[u8]) {
        self.chunks = self.chunks.saturating_add(1);
        self.bytes = self.bytes.saturating_add(chunk.len() as u64);
        self.digest = crc32c::crc32c_append(self.digest, chunk);
    }

    fn checksum(&self, header: &[u8], body: &[u8]) -> u32 {
        let salted = crc32c::crc32c_append(crc32c::crc32c(&self.salt.0.to_le_bytes()), &self.boundary.last.0.to_le_bytes());
        crc32c::crc32c_append(crc32c::crc32c_append(salted, header), body)
    }
}

/// The `N` bytes at a fixed offset of what is longer than any of them.
fn field<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    bytes.get(offset..).and_then(<[u8]>::first_chunk).copied().unwrap_or([0; N])
}

/// How snapshots are written.
pub(super) const FORMAT: u16 = 1;
/// The least format that a reader must know.
const MIN_READER: u16 = 1;
pub(super) const BYTES: usize = 128;
/// What a whole chunk holds.
pub(super) const BODY: usize = CHUNK_BYTES - CHUNK_HEADER;
const CHUNK_HEADER: usize = 16;
const MAGIC: &[u8; 8] = b"JYSNAPST";
const CHUNK_MAGIC: &[u8; 4] = b"JYCK";
