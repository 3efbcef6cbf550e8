//! Reading a journal back. Only reads: whatever it finds, the files stay as they are. A torn tail is every crash's normal
//! leftover and is reported; damage anywhere else is an error that names file, offset and expectation.
//!
//! What proves that a batch had reached the disk: a later frame of its segment (batch N+1 is never written before
//! batch N is durable), a seal, or the header of the next segment. Damage in front of any of these is rot. A last batch
//! that is whole but unproved is kept, and carried into the next segment before anything else is believed.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use super::frame::{self, Batch, Content, Read};
use super::segment::{self, Header, Proved, Start};
use super::{Journal, JournalLimits, Salt};
use crate::disk::Disk;
use crate::ids::{Epoch, Seq};

/// A journal that has been read and not yet written to. Becomes a [`Journal`] with [`Recovery::into_journal`].
pub struct Recovery {
    disk: Arc<dyn Disk>,
    tail: Tail,
    torn: Option<Torn>,
    bytes: u64,
}

/// Where the journal ends: what the next segment has to say of the ones before.
pub(super) struct Tail {
    pub last: Seq,
    pub epoch: Epoch,
    pub proved: Option<Proved>,
    /// Whole, but nothing proves that it had reached the disk.
    pub unproved: Option<Batch>,
    /// The number of the segment to come.
    pub next: u64,
}

/// What a crash left behind the last whole batch. Nobody ever heard that it was durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Torn {
    /// The file.
    pub file: String,
    /// Where the leftover begins.
    pub offset: u64,
    /// The last record before it.
    pub last: Seq,
}

/// Why a journal cannot be read. No file has changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecoverError<E> {
    /// The disk refused: not a sign of damage.
    #[error("{file}: cannot be read: {source}")]
    Io {
        /// The file, or `.` for the directory.
        file: String,
        /// Why.
        source: io::Error,
    },
    /// Something was there, was durable, and is no longer what it was.
    #[error("{file} is damaged at byte {offset}: expected {expected}")]
    Damaged {
        /// The file.
        file: String,
        /// Where.
        offset: u64,
        /// What should stand there.
        expected: String,
    },
    /// The file was written by a newer release.
    #[error("{file} needs a reader of format {needs}; this one knows format {knows}", knows = segment::FORMAT)]
    Newer {
        /// The file.
        file: String,
        /// The format it needs.
        needs: u16,
    },
    /// The records were read, but do not make sense.
    #[error("{file}, the batch at byte {offset}: {source}")]
    Fold {
        /// The file.
        file: String,
        /// Where the batch begins.
        offset: u64,
        /// What is wrong with it.
        source: E,
    },
}

impl Recovery {
    /// Reads the journal on `disk` and gives every batch to `fold`, in order.
    ///
    /// # Errors
    /// [`RecoverError`]; reading stops there, and no file has changed.
    pub fn read<E>(disk: Arc<dyn Disk>, fold: impl FnMut(&Batch) -> Result<(), E>) -> Result<Self, RecoverError<E>> {
        let segments = Segments::find(&*disk)?;
        let tail = Tail { last: Seq(0), epoch: Epoch(0), proved: None, unproved: None, next: segments.next };
        let mut walk = Walk { disk: &*disk, fold, tail, torn: segments.torn, bytes: 0 };
        let mut files = segments.files.into_iter().peekable();
        while let Some(file) = files.next() {
            let successor = files.peek().and_then(|next| next.header.previous);
            walk.segment(&file, successor)?;
        }
        let Walk { tail, mut torn, bytes, .. } = walk;
        if let Some(torn) = &mut torn {
            torn.last = tail.last;
        }
        Ok(Self { disk, tail, torn, bytes })
    }

    /// What a crash left behind the last whole batch. Reported by every open until something is appended.
    #[must_use]
    pub const fn torn(&self) -> Option<&Torn> {
        self.torn.as_ref()
    }

    /// The last record.
    #[must_use]
    pub const fn last(&self) -> Seq {
        self.tail.last
    }

    /// Up to here everything is proved to be on disk. The records of the last batch beyond it were read, but a crash may still
    /// take them back until something is appended.
    #[must_use]
    pub fn proved(&self) -> Seq {
        self.tail.unproved.as_ref().map_or(self.tail.last, |batch| Seq(batch.first.0.saturating_sub(1)))
    }

    /// Bytes of the segments, without the zeros behind the last frame.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Makes it a journal to append to. Writes nothing yet: the first append creates a segment. `salt` must be drawn
    /// by chance.
    #[must_use]
    pub fn into_journal(self, limits: JournalLimits, salt: Salt) -> Journal {
        Journal::new(self.disk, limits, salt, self.tail, self.bytes)
    }
}

/// A segment and what its header says; its frames are read when its turn comes.
struct File {
    name: String,
    header: Header,
}

struct Segments {
    files: Vec<File>,
    next: u64,
    torn: Option<Torn>,
}

impl Segments {
    /// Finds the segments and checks that they form one chain from the first record.
    fn find<E>(disk: &dyn Disk) -> Result<Self, RecoverError<E>> {
        let names = disk.list().map_err(|source| RecoverError::Io { file: ".".to_owned(), source })?;
        let names: BTreeMap<u64, String> = names.into_iter().filter_map(|name| Some((segment::number_of(&name)?, name))).collect();
        let newest = names.keys().next_back().copied();
        let mut found = Self { files: Vec::new(), next: newest.unwrap_or(0).saturating_add(1), torn: None };
        for (number, name) in names {
            // Of the newest all is needed: whether anything stands behind a torn header.
            let bytes = if Some(number) == newest { disk.read(&name) } else { disk.read_at(&name, 0, segment::HEADER) };
            match Header::read(&bytes.map_err(|source| RecoverError::Io { file: name.clone(), source })?) {
                Start::Header(header) => found.push(number, name, header)?,
                Start::Torn if Some(number) == newest => {
                    found.torn = Some(Torn { file: name, offset: 0, last: Seq(0) });
                    // Nothing but a piece of a header was ever in it: its number is free.
                    found.next = number;
                }
                Start::Torn => return Err(damaged(&name, 0, "a segment header")),
                Start::Newer(needs) => return Err(RecoverError::Newer { file: name, needs }),
                Start::Bad(expected) => return Err(damaged(&name, 0, expected)),
            }
        }
        Ok(found)
    }

    fn push<E>(&mut self, number: u64, name: String, header: Header) -> Result<(), RecoverError<E>> {
        if header.number != number {
            return Err(damaged(&name, 0, &format!("the header of segment {number}, not of {}", header.number)));
        }
        let before = self.files.last().map(|file| file.header.number);
        match (header.previous, before) {
            (None, None) if header.first == Seq(1) => {}
            (Some(previous), Some(before)) if previous.number == before => {}
            (Some(previous), _) => return Err(damaged(&segment::name(previous.number), 0, &format!("this segment, which {name} follows"))),
            (None, _) => return Err(damaged(&name, 0, "a segment that follows another, or begins at record 1")),
        }
        self.files.push(File { name, header });
        Ok(())
    }
}

struct Walk<'a, F> {
    disk: &'a dyn Disk,
    fold: F,
    tail: Tail,
    torn: Option<Torn>,
    bytes: u64,
}

impl<F> Walk<'_, F> {
    /// Reads one segment: up to the length that its successor names, or to the end of the last one.
    fn segment<E>(&mut self, file: &File, successor: Option<Proved>) -> Result<(), RecoverError<E>>
    where
        F: FnMut(&Batch) -> Result<(), E>,
    {
        let bytes = read(self.disk, &file.name)?;
        let salt = file.header.salt;
        let mut at = segment::HEADER;
        let mut checksum = file.header.previous.map_or(0, |previous| previous.checksum);
        let here = |checksum, length: usize| Proved { number: file.header.number, length: length as u64, checksum };
        if file.header.first != self.tail.last.next() {
            return Err(damaged(&file.name, 0, &format!("a segment that begins at record {}", self.tail.last.next())));
        }
        self.tail.proved = Some(here(checksum, at));
        // The header of this segment, durable before it got its name, proves all before it.
        self.tail.unproved = None;
        loop {
            if let Some(proved) = successor
                && at as u64 >= proved.length
            {
                self.bytes += at as u64;
                let agrees = here(checksum, at) == proved;
                return if agrees {
                    Ok(())
                } else {
                    Err(damaged(&file.name, proved.length, "the end of a frame that the next segment names"))
                };
            }
            match frame::read(salt, &bytes, at) {
                Read::Whole(frame) if frame.previous != checksum => {
                    return Err(damaged(&file.name, at as u64, "a frame that follows the one before it"));
                }
                Read::Whole(frame) => {
                    // This frame proves all before it.
                    self.tail.unproved = None;
                    self.tail.proved = Some(here(checksum, at));
                    if let Content::Batch(batch) = frame.content {
                        self.batch(file, at, batch)?;
                    }
                    checksum = frame.checksum;
                    at = frame.end;
                }
                Read::Zeros if successor.is_none() => {
                    self.bytes += at as u64;
                    return Ok(());
                }
                Read::Bad(expected) if successor.is_none() => {
                    if frame::is_later_frame_behind(salt, &bytes, at + 1, self.tail.last) {
                        return Err(damaged(&file.name, at as u64, &format!("{expected}, as a later frame is whole")));
                    }
                    self.bytes += at as u64;
                    self.torn = Some(Torn { file: file.name.clone(), offset: at as u64, last: self.tail.last });
                    return Ok(());
                }
                Read::Zeros => return Err(damaged(&file.name, at as u64, "a frame, as the next segment says")),
                Read::Bad(expected) => return Err(damaged(&file.name, at as u64, expected)),
            }
        }
    }

    fn batch<E>(&mut self, file: &File, at: usize, batch: Batch) -> Result<(), RecoverError<E>>
    where
        F: FnMut(&Batch) -> Result<(), E>,
    {
        if batch.first != self.tail.last.next() || batch.epoch < self.tail.epoch {
            let expected = format!("record {} of epoch {} or later", self.tail.last.next(), self.tail.epoch);
            return Err(damaged(&file.name, at as u64, &expected));
        }
        (self.fold)(&batch).map_err(|source| RecoverError::Fold { file: file.name.clone(), offset: at as u64, source })?;
        self.tail.last = batch.last();
        self.tail.epoch = batch.epoch;
        self.tail.unproved = Some(batch);
        Ok(())
    }
}

fn read<E>(disk: &dyn Disk, name: &str) -> Result<Vec<u8>, RecoverError<E>> {
    disk.read(name).map_err(|source| RecoverError::Io { file: name.to_owned(), source })
}

fn damaged<E>(file: &str, offset: u64, expected: &str) -> RecoverError<E> {
    RecoverError::Damaged { file: file.to_owned(), offset, expected: expected.to_owned() }
}
