//! The bytes of one batch: a header with its own checksum, then the body. Reading tells a whole frame from zeros and
//! from damage; what damage means is decided by recovery. Frozen: see `segment.rs` for how it may change.

use std::fmt;

use crate::bugs::{self, Bug};
use crate::ids::{Epoch, Seq};
use crate::time::Time;

/// Consecutive records that reach the disk together or not at all.
#[derive(Clone, PartialEq, Eq)]
pub struct Batch {
    /// The reign under which it was written.
    pub epoch: Epoch,
    /// The number of its first record.
    pub first: Seq,
    /// How many records it holds.
    pub count: u32,
    /// When it was opened: the `now` of its records.
    pub time: Time,
    /// The records, one behind the other.
    pub body: Vec<u8>,
}

impl Batch {
    /// The number of its last record.
    #[must_use]
    pub const fn last(&self) -> Seq {
        Seq(self.first.0.saturating_add(self.count as u64).saturating_sub(1))
    }
}

/// The records hold payloads and keys, which may be private: this shows how many bytes they are.
impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { epoch, first, count, time, body } = self;
        let mut batch = f.debug_struct("Batch");
        batch.field("epoch", epoch).field("first", first).field("count", count).field("time", time);
        batch.field("body", &format_args!("{} bytes", body.len())).finish()
    }
}

/// The secret of one segment that is mixed into every checksum in it: a frame of another file, or one that a payload
/// imitates, does not verify.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Salt(pub u128);

/// What stands at an offset of a segment.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// A frame whose checksums hold.
    Whole(Frame),
    /// Nothing but zeros up to the end of the file.
    Zeros,
    /// Anything else.
    Bad(&'static str),
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub content: Content,
    /// The checksum of the frame before it.
    pub previous: u32,
    /// Its own, which the next frame names.
    pub checksum: u32,
    /// Where the next frame begins.
    pub end: usize,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Content {
    Batch(Batch),
    /// A clean close: every frame before it is durable.
    Seal,
}

/// The bytes of a frame, and its checksum for the next one to name.
#[allow(clippy::expect_used, reason = "writing, not reading: a body beyond the limit of a batch is refused before it gets here")]
pub(super) fn encode(salt: Salt, content: &Content, previous: u32) -> (Vec<u8>, u32) {
    let (kind, body, numbers) = match content {
        Content::Batch(batch) => {
            // Everything before a batch is durable when it is written: that is the rule of the journal, and the mark.
            let durable_to = batch.first.0 - 1;
            (BATCH, &batch.body[..], [batch.epoch.0, batch.first.0, batch.time.0, durable_to])
        }
        Content::Seal => (SEAL, &[][..], [0; 4]),
    };
    let count = if let Content::Batch(batch) = content { batch.count } else { 0 };
    let length = u32::try_from(body.len()).expect("the limit of a batch is far below 4 GiB");
    let mut bytes = Vec::with_capacity(HEADER + body.len());
    for word in [MAGIC, kind, length, count] {
        bytes.extend(word.to_le_bytes());
    }
    for number in numbers {
        bytes.extend(number.to_le_bytes());
    }
    bytes.extend(previous.to_le_bytes());
    bytes.extend(salted(salt, body).to_le_bytes());
    bytes.extend(0u32.to_le_bytes());
    let checksum = salted(salt, &bytes);
    bytes.extend(checksum.to_le_bytes());
    bytes.extend(body);
    (bytes, checksum)
}

/// Reads what stands at `at`. Believes no length before its header has verified. What `room` there is holds the records of a batch.
pub(super) fn read(salt: Salt, bytes: &[u8], at: usize, room: &mut Vec<u8>) -> Read {
    let rest = bytes.get(at..).unwrap_or_default();
    let Some((header, behind)) = rest.split_first_chunk::<HEADER>() else {
        return if all_zeros(rest) { Read::Zeros } else { Read::Bad("a whole frame header") };
    };
    let word = |offset: usize| u32::from_le_bytes(field(header, offset));
    let number = |offset: usize| u64::from_le_bytes(field(header, offset));
    if word(0) != MAGIC {
        return if all_zeros(rest) { Read::Zeros } else { Read::Bad("the mark of a frame") };
    }
    if word(60) != salted(salt, &header[..60]) && !bugs::on(Bug::NoHeaderCrc) {
        return Read::Bad("a frame header with a right checksum");
    }
    let Some(body) = usize::try_from(word(8)).ok().and_then(|length| behind.get(..length)) else {
        return Read::Bad("a whole frame body");
    };
    if word(52) != salted(salt, body) {
        return Read::Bad("a frame body with a right checksum");
    }
    let content = match word(4) {
        SEAL => Content::Seal,
        BATCH if word(12) > 0 && number(24) > 0 && number(40) == number(24) - 1 => {
            room.clear();
            room.extend_from_slice(body);
            Content::Batch(Batch {
                epoch: Epoch(number(16)),
                first: Seq(number(24)),
                count: word(12),
                time: Time(number(32)),
                body: std::mem::take(room),
            })
        }
        BATCH => return Read::Bad("a frame that holds records"),
        _ => return Read::Bad("a frame of a known kind"),
    };
    Read::Whole(Frame { content, previous: word(48), checksum: word(60), end: at + HEADER + body.len() })
}

/// How many bytes the frame at `at` takes, as its header says; none when that is not whole or does not verify.
pub(super) fn length(salt: Salt, bytes: &[u8], at: usize) -> Option<usize> {
    let (header, _) = bytes.get(at..)?.split_first_chunk::<HEADER>()?;
    let verifies = u32::from_le_bytes(field(header, 60)) == salted(salt, &header[..60]);
    let body = usize::try_from(u32::from_le_bytes(field(header, 8))).ok()?;
    (verifies || bugs::on(Bug::NoHeaderCrc)).then(|| body.saturating_add(HEADER))
}

/// Whether a whole frame that was written after record `last` begins anywhere at or behind `from`: a seal, or a batch behind
/// the one that comes next. An earlier frame found there is no witness: a torn payload may hold a copy of one.
pub(super) fn is_later_frame_behind(salt: Salt, bytes: &[u8], from: usize, last: Seq) -> bool {
    marks(bytes, from).any(|at| match read(salt, bytes, at, &mut Vec::new()) {
        Read::Whole(Frame { content: Content::Batch(batch), .. }) => batch.first > last.next(),
        Read::Whole(Frame { content: Content::Seal, .. }) => true,
        Read::Zeros | Read::Bad(_) => false,
    })
}

/// The first whole batch behind record `last` that begins anywhere at or behind `from`: where it begins, its first record, and the
/// checksum that it names.
pub(super) fn batch_behind(salt: Salt, bytes: &[u8], from: usize, last: Seq) -> Option<(usize, Seq, u32)> {
    marks(bytes, from).find_map(|at| match read(salt, bytes, at, &mut Vec::new()) {
        Read::Whole(Frame { content: Content::Batch(batch), previous, .. }) if batch.first > last => Some((at, batch.first, previous)),
        _ => None,
    })
}

/// Where a frame may begin, at or behind `from`: the mark of one, with room for a header.
fn marks(bytes: &[u8], from: usize) -> impl Iterator<Item = usize> {
    let mark = MAGIC.to_le_bytes();
    bytes.windows(HEADER).enumerate().skip(from).filter(move |(_, window)| window.starts_with(&mark)).map(|(at, _)| at)
}

pub(super) fn salted(salt: Salt, bytes: &[u8]) -> u32 {
    let salt = if bugs::on(Bug::NoSaltCheck) { Salt(0) } else { salt };
    crc32c::crc32c_append(crc32c::crc32c(&salt.0.to_le_bytes()), bytes)
}

pub(super) fn all_zeros(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// The `N` bytes at a fixed offset of a header, which is longer than any of them.
pub(super) fn field<const N: usize>(header: &[u8], offset: usize) -> [u8; N] {
    let mut value = [0; N];
    if let Some(bytes) = header.get(offset..offset + N) {
        value.copy_from_slice(bytes);
    }
    value
}

/// Bytes of a frame header.
pub(super) const HEADER: usize = 64;
const MAGIC: u32 = u32::from_le_bytes(*b"JYFR");
const BATCH: u32 = 1;
const SEAL: u32 = 2;
