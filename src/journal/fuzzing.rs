//! The reader and the writer of frames as the fuzzer sees them. Only in its builds: nobody else needs a single frame.

use super::frame::{self, Content, Read};
use super::{Batch, Salt};
use crate::ids::Seq;

/// A whole frame.
#[derive(Debug, PartialEq, Eq)]
pub struct Whole {
    /// What it holds; none for a seal.
    pub batch: Option<Batch>,
    /// The checksum of the frame before it.
    pub previous: u32,
    /// Its own.
    pub checksum: u32,
    /// Where the next one begins.
    pub end: usize,
}

/// The whole frame at this offset, if there is one.
#[must_use]
pub fn read(salt: Salt, bytes: &[u8], at: usize) -> Option<Whole> {
    let Read::Whole(frame) = frame::read(salt, bytes, at, &mut Vec::new()) else { return None };
    let batch = match frame.content {
        Content::Batch(batch) => Some(batch),
        Content::Seal => None,
    };
    Some(Whole { batch, previous: frame.previous, checksum: frame.checksum, end: frame.end })
}

/// The bytes of a frame, and its checksum.
#[must_use]
pub fn encode(salt: Salt, batch: Option<&Batch>, previous: u32) -> (Vec<u8>, u32) {
    frame::encode(salt, &batch.map_or(Content::Seal, |batch| Content::Batch(batch.clone())), previous)
}

/// How long the frame at this offset says that it is.
#[must_use]
pub fn length(salt: Salt, bytes: &[u8], at: usize) -> Option<usize> {
    frame::length(salt, bytes, at)
}

/// Whether a frame proves that there was something behind the record `last`.
#[must_use]
pub fn is_later_frame_behind(salt: Salt, bytes: &[u8], from: usize, last: Seq) -> bool {
    frame::is_later_frame_behind(salt, bytes, from, last)
}
