//! Going through the segments in order, frame by frame: the one reader of recovery and of compaction. Checks that they form
//! one chain; never decides what is done with a batch.

use std::collections::BTreeMap;

use super::frame::{self, Batch, Content, Read};
use super::recovery::{RecoverError, Torn};
use super::segment::{self, Header, Proved, Start};
use crate::bugs::{self, Bug};
use crate::disk::Disk;
use crate::ids::{Epoch, Seq};

/// Where one segment ends and the next begins: what a snapshot keeps of the journal before it, so that the chain can be
/// checked there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Boundary {
    /// The last record before it; 0 at the very beginning.
    pub last: Seq,
    /// The epoch of that record.
    pub epoch: Epoch,
    /// The number of the segment that ends there; 0 when there is none.
    pub segment: u64,
    /// The bytes of that segment which are proved durable.
    pub length: u64,
    /// The checksum of the last frame within them.
    pub checksum: u32,
}

impl Boundary {
    /// Where a journal begins.
    pub const START: Self = Self { last: Seq(0), epoch: Epoch(0), segment: 0, length: 0, checksum: 0 };

    pub(super) fn proved(&self) -> Option<Proved> {
        (self.segment != 0).then_some(Proved { number: self.segment, length: self.length, checksum: self.checksum })
    }
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

/// A segment and what its header says; its frames are read when its turn comes.
pub(super) struct File {
    pub name: String,
    pub header: Header,
}

/// The segments behind a boundary, in order.
pub(super) struct Segments {
    pub files: Vec<File>,
    pub next: u64,
    pub torn: Option<Torn>,
}

impl Segments {
    /// Finds the segments behind `from` up to the number `upto` and checks that they form one chain from there. Those before it are
    /// not looked at.
    pub(super) fn find<E>(disk: &dyn Disk, from: &Boundary, upto: u64) -> Result<Self, RecoverError<E>> {
        let names = numbered(disk)?;
        let newest = names.keys().next_back().copied();
        let mut found = Self { files: Vec::new(), next: newest.unwrap_or(from.segment).saturating_add(1), torn: None };
        for (number, name) in names.into_iter().filter(|(number, _)| (from.segment.saturating_add(1)..=upto).contains(number)) {
            // No sound journal comes so far; the next one would have to take its place.
            if number == u64::MAX {
                return Err(damaged(&name, 0, "a segment that another can follow"));
            }
            // Of the newest all is needed: whether anything stands behind a torn header.
            let bytes = if upto == u64::MAX && Some(number) == newest { disk.read(&name) } else { disk.read_at(&name, 0, segment::HEADER) };
            match Header::read(&bytes.map_err(unreadable(&name))?) {
                Start::Header(header) => found.push(from, number, name, header)?,
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
        if from.segment != 0 && found.files.is_empty() {
            let expected = format!("the segment that begins at record {}", from.last.next());
            return Err(damaged(&segment::name(from.segment.saturating_add(1)), 0, &expected));
        }
        Ok(found)
    }

    fn push<E>(&mut self, from: &Boundary, number: u64, name: String, header: Header) -> Result<(), RecoverError<E>> {
        if header.number != number {
            return Err(damaged(&name, 0, &format!("the header of segment {number}, not of {}", header.number)));
        }
        match (header.previous, self.files.last()) {
            (None, None) if from.segment == 0 && header.first == Seq(1) => {}
            (Some(previous), Some(before)) if previous.number == before.header.number => {}
            (Some(previous), None) if from.segment == previous.number => self.follows(from, &name, &header)?,
            (Some(previous), _) => return Err(damaged(&segment::name(previous.number), 0, &format!("this segment, which {name} follows"))),
            (None, _) => return Err(damaged(&name, 0, "a segment that follows another, or begins at record 1")),
        }
        self.files.push(File { name, header });
        Ok(())
    }

    /// The first segment behind a snapshot must go on exactly where the snapshot ends.
    fn follows<E>(&self, from: &Boundary, name: &str, header: &Header) -> Result<(), RecoverError<E>> {
        if header.first != from.last.next() {
            return Err(damaged(name, 0, &format!("the segment that begins at record {}", from.last.next())));
        }
        if header.previous != from.proved() {
            return Err(damaged(name, 0, "a segment that follows the frame where the snapshot ends"));
        }
        Ok(())
    }
}

/// The files of a disk that bear the names of segments.
pub(super) fn numbered<E>(disk: &dyn Disk) -> Result<BTreeMap<u64, String>, RecoverError<E>> {
    let names = disk.list().map_err(unreadable("."))?;
    Ok(names.into_iter().filter_map(|name| Some((segment::number_of(&name)?, name))).collect())
}

/// How far the segments have been read.
pub(super) struct Walk {
    pub tail: Tail,
    pub torn: Option<Torn>,
    /// Bytes of what was read, without the zeros behind the last frames.
    pub bytes: u64,
    /// Room for the records of the next batch: that of one that is done with.
    spare: Vec<u8>,
}

/// One segment while its frames are read.
pub(super) struct Inside {
    file: File,
    /// How much of it its successor says is there; none for the last.
    successor: Option<Proved>,
    /// Its bytes from `base` on, as far as they have been read.
    bytes: Vec<u8>,
    base: usize,
    /// Whether nothing follows them.
    is_whole: bool,
    at: usize,
    checksum: u32,
    batch_at: usize,
}

impl Inside {
    /// Its name, and where the last batch began.
    pub(super) fn place(&self) -> (String, u64) {
        (self.file.name.clone(), self.batch_at as u64)
    }

    /// Where the last frame that was read ends.
    pub(super) const fn end(&self) -> u64 {
        self.at as u64
    }

    /// Goes on behind damage, at the next whole batch behind the last one that was read: for those who only look. Answers its first
    /// record; none when there is no such batch here.
    pub(super) fn skip_damage(&mut self, tail: &mut Tail) -> Option<Seq> {
        let salt = self.file.header.salt;
        let upto = self.successor.map_or(usize::MAX, |proved| usize::try_from(proved.length).unwrap_or(usize::MAX));
        let (at, batch, previous) = frame::batch_behind(salt, &self.bytes, (self.at - self.base).saturating_add(1), tail.last)?;
        if at + self.base >= upto {
            return None;
        }
        self.at = at + self.base;
        self.checksum = previous;
        tail.last = Seq(batch.0.saturating_sub(1));
        // An epoch that is lower than one before would be found wrong again and again.
        tail.epoch = Epoch(0);
        Some(batch)
    }

    /// Reads at most `most` bytes more, and answers how many came; none when nothing had to be read: the next frame is here, or nothing follows.
    pub(super) fn read_on<E>(&mut self, disk: &dyn Disk, most: usize) -> Result<Option<u64>, RecoverError<E>> {
        let Some((offset, left)) = self.wants() else { return Ok(None) };
        let ask = usize::try_from(left).unwrap_or(usize::MAX).min(most);
        let more = disk.read_at(&self.file.name, offset, ask).map_err(unreadable(&self.file.name))?;
        self.feed(&more, more.len() < ask || more.len() as u64 == left);
        Ok(Some(more.len() as u64))
    }

    /// Where to read on, and how much of the file is left, when the next frame is not whole yet.
    fn wants(&self) -> Option<(u64, u64)> {
        let behind = self.base + self.bytes.len();
        let unread = behind.saturating_sub(self.at);
        let is_there = unread >= frame::HEADER
            && frame::length(self.file.header.salt, &self.bytes, self.at - self.base).is_none_or(|length| length <= unread);
        let left = self.successor.map_or(0, |proved| proved.length.saturating_sub(behind as u64));
        (!self.is_whole && !is_there && left > 0).then_some((behind as u64, left))
    }

    /// Goes on with `more` behind what was read; what is behind the last frame read is let go. A file that ends too early is judged
    /// by its frames.
    fn feed(&mut self, more: &[u8], is_whole: bool) {
        let done = (self.at - self.base).min(self.bytes.len());
        self.bytes.drain(..done);
        self.base += done;
        self.bytes.extend_from_slice(more);
        self.is_whole = is_whole;
    }

    fn here(&self) -> Proved {
        Proved { number: self.file.header.number, length: self.at as u64, checksum: self.checksum }
    }

    fn damaged<E>(&self, expected: &str) -> RecoverError<E> {
        damaged(&self.file.name, self.at as u64, expected)
    }
}

impl Walk {
    pub(super) fn from(boundary: &Boundary, next: u64, torn: Option<Torn>) -> Self {
        let Boundary { last, epoch, .. } = *boundary;
        Self { tail: Tail { last, epoch, proved: boundary.proved(), unproved: None, next }, torn, bytes: 0, spare: Vec::new() }
    }

    /// Begins with a segment, of which these are the first bytes: all of it, or to be [read on](Inside::read_on).
    pub(super) fn enter<E>(
        &mut self,
        file: File,
        successor: Option<Proved>,
        bytes: Vec<u8>,
        is_whole: bool,
    ) -> Result<Inside, RecoverError<E>> {
        if file.header.first != self.tail.last.next() {
            return Err(damaged(&file.name, 0, &format!("a segment that begins at record {}", self.tail.last.next())));
        }
        let checksum = file.header.previous.map_or(0, |previous| previous.checksum);
        let inside = Inside { file, successor, bytes, base: 0, is_whole, at: segment::HEADER, checksum, batch_at: 0 };
        self.tail.proved = Some(inside.here());
        // The header of this segment, durable before it got its name, proves all before it.
        self.tail.unproved = None;
        Ok(inside)
    }

    /// The next batch of the segment; none at its end: at the length that its successor names, or where the last one ends.
    pub(super) fn next<E>(&mut self, inside: &mut Inside) -> Result<Option<&Batch>, RecoverError<E>> {
        loop {
            if let Some(proved) = inside.successor
                && inside.at as u64 >= proved.length
            {
                self.bytes += inside.at as u64;
                let agrees = inside.here() == proved;
                let end = || damaged(&inside.file.name, proved.length, "the end of a frame that the next segment names");
                return if agrees { Ok(None) } else { Err(end()) };
            }
            let last = inside.successor.is_none();
            match frame::read(inside.file.header.salt, &inside.bytes, inside.at - inside.base, &mut self.spare) {
                Read::Whole(frame) if frame.previous != inside.checksum => {
                    return Err(inside.damaged("a frame that follows the one before it"));
                }
                Read::Whole(frame) => {
                    // This frame proves all before it.
                    self.spare = self.tail.unproved.take().map_or_else(Vec::new, |batch| batch.body);
                    self.tail.proved = Some(inside.here());
                    inside.batch_at = inside.at;
                    inside.checksum = frame.checksum;
                    let end = inside.base + frame.end;
                    match frame.content {
                        Content::Batch(batch) => {
                            self.check(inside, &batch)?;
                            inside.at = end;
                            self.tail.last = batch.last();
                            self.tail.epoch = batch.epoch;
                            return Ok(Some(self.tail.unproved.insert(batch)));
                        }
                        Content::Seal => inside.at = end,
                    }
                }
                Read::Zeros if last => {
                    self.bytes += inside.at as u64;
                    return Ok(None);
                }
                Read::Bad(expected) if last => {
                    let behind = inside.at - inside.base + 1;
                    let proved = frame::is_later_frame_behind(inside.file.header.salt, &inside.bytes, behind, self.tail.last);
                    if proved && !bugs::on(Bug::NoBatchRule) {
                        return Err(inside.damaged(&format!("{expected}, as a later frame is whole")));
                    }
                    self.bytes += inside.at as u64;
                    self.torn = Some(Torn { file: inside.file.name.clone(), offset: inside.at as u64, last: self.tail.last });
                    return Ok(None);
                }
                Read::Zeros => return Err(inside.damaged("a frame, as the next segment says")),
                Read::Bad(expected) => return Err(inside.damaged(expected)),
            }
        }
    }

    fn check<E>(&self, inside: &Inside, batch: &Batch) -> Result<(), RecoverError<E>> {
        if batch.first == self.tail.last.next() && batch.epoch >= self.tail.epoch {
            return Ok(());
        }
        Err(inside.damaged(&format!("record {} of epoch {} or later", self.tail.last.next(), self.tail.epoch)))
    }
}

/// The disk refused to give what is in this file.
pub(super) fn unreadable<E>(file: &str) -> impl FnOnce(std::io::Error) -> RecoverError<E> {
    move |source| RecoverError::Io { file: file.to_owned(), source }
}

pub(super) fn damaged<E>(file: &str, offset: u64, expected: &str) -> RecoverError<E> {
    RecoverError::Damaged { file: file.to_owned(), offset, expected: expected.to_owned() }
}
