//! One file of the journal: its name, its header, and writing frames into it. A segment is written only by the process
//! that created it, over zeros that were laid down ahead of the writer.
//!
//! To change the format of segments, frames or records: the last release's golden directories must open as before (`tests/golden/`);
//! `FORMAT` rises with every change; `MIN_READER` rises with it when a reader of the format before would misread or refuse what is
//! written now, and only in a release after the one that can read it. The mark, `MIN_READER` and the checksum of a header stay where
//! they are. The whole list is in `docs/journal-format.md`.

use std::io;

use super::frame::{self, Batch, Content, Salt};
use crate::bugs::{self, Bug};
use crate::disk::{self, Disk, DiskFile};
use crate::ids::Seq;

/// What the first bytes of a segment say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub number: u64,
    pub salt: Salt,
    /// The number of the first record in it.
    pub first: Seq,
    /// The segment before it, and how much of that is proved durable; none for the first of a journal.
    pub previous: Option<Proved>,
}

/// How far a segment is known to have reached the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Proved {
    pub number: u64,
    /// Bytes from the start of the file: the end of a frame.
    pub length: u64,
    /// The checksum of the last frame within it.
    pub checksum: u32,
}

/// What stands at the start of a file that bears the name of a segment.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Start {
    Header(Header),
    /// Not a whole header, and nothing but zeros behind it: the file was never finished.
    Torn,
    /// A format that this release cannot read.
    Newer(u16),
    Bad(&'static str),
}

impl Header {
    pub(super) fn encode(&self) -> Vec<u8> {
        let previous = self.previous.unwrap_or(Proved { number: 0, length: 0, checksum: 0 });
        let mut bytes = Vec::with_capacity(HEADER);
        bytes.extend(MAGIC);
        bytes.extend(FORMAT.to_le_bytes());
        bytes.extend(MIN_READER.to_le_bytes());
        bytes.extend(previous.checksum.to_le_bytes());
        bytes.extend(self.salt.0.to_le_bytes());
        for number in [self.number, self.first.0, previous.number, previous.length, 0, 0, 0] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(0u32.to_le_bytes());
        bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
        bytes
    }

    /// Reads the start of a file. In every format to come, the mark, `min_reader` and the checksum stand where they stand
    /// now, so that an older release can tell a newer file from a damaged one.
    pub(super) fn read(bytes: &[u8]) -> Start {
        let whole = bytes.split_first_chunk::<HEADER>();
        let behind = whole.map_or(&[][..], |(_, behind)| behind);
        let Some((header, _)) = whole.filter(|(header, _)| Self::verifies(header)) else {
            return if frame::all_zeros(behind) { Start::Torn } else { Start::Bad("a segment header with a right checksum") };
        };
        let number = |offset: usize| u64::from_le_bytes(frame::field(header, offset));
        let min_reader = u16::from_le_bytes(frame::field(header, 10));
        if min_reader > FORMAT {
            return Start::Newer(min_reader);
        }
        let previous = Proved { number: number(48), length: number(56), checksum: u32::from_le_bytes(frame::field(header, 12)) };
        Start::Header(Self {
            number: number(32),
            salt: Salt(u128::from_le_bytes(frame::field(header, 16))),
            first: Seq(number(40)),
            previous: (previous.number != 0).then_some(previous),
        })
    }

    fn verifies(header: &[u8; HEADER]) -> bool {
        let (said, checksum) = header.split_at(HEADER - 4);
        said.starts_with(MAGIC) && checksum == crc32c::crc32c(said).to_le_bytes()
    }
}

/// A segment that bears no name of a segment yet.
pub(super) struct Draft(Segment);

impl Draft {
    /// Gives it its name. When this returns, the name is durable.
    pub(super) fn publish(self, disk: &dyn Disk) -> io::Result<Segment> {
        let Self(segment) = self;
        let name = name(segment.header.number);
        // Renamed only when its content is durable, and used only when its name is: no crash leaves half a segment.
        disk.rename(&format!("{name}.tmp"), &name)?;
        let named = if bugs::on(Bug::NoNameSync) { Ok(()) } else { disk.sync_names() };
        named.map(|()| segment)
    }
}

/// A segment that is being written.
pub(super) struct Segment {
    file: Box<dyn DiskFile>,
    header: Header,
    length: u64,
    /// Up to where the file holds zeros or frames.
    laid: u64,
    checksum: u32,
}

impl Segment {
    /// Creates the file as a draft: the header, then `carried` if there is a batch that its predecessor could not prove. When
    /// this returns, all of it is durable, but nobody looks for it by that name.
    pub(super) fn draft(disk: &dyn Disk, header: Header, carried: Option<&Batch>) -> io::Result<Draft> {
        if header.number == u64::MAX {
            // A reader refuses it, as its successor could only take its place.
            return Err(io::Error::other("no number is left for another segment"));
        }
        let draft = format!("{}.tmp", name(header.number));
        let checksum = header.previous.map_or(0, |previous| previous.checksum);
        let file = disk.create(&draft)?;
        let mut segment = Self { file, header, length: 0, laid: 0, checksum };
        segment.write(&header.encode())?;
        if let Some(batch) = carried {
            segment.put(&Content::Batch(batch.clone()))?;
        }
        segment.file.sync()?;
        Ok(Draft(segment))
    }

    /// Writes a batch and makes it durable.
    pub(super) fn append(&mut self, batch: Batch) -> io::Result<()> {
        self.put(&Content::Batch(batch))?;
        if bugs::on(Bug::NoBatchSync) { Ok(()) } else { self.file.sync() }
    }

    /// Marks everything before as durable.
    pub(super) fn seal(&mut self) -> io::Result<()> {
        self.put(&Content::Seal)?;
        self.file.sync()
    }

    /// All of it is durable: what the next segment says of this one.
    pub(super) const fn proved(&self) -> Proved {
        Proved { number: self.header.number, length: self.length, checksum: self.checksum }
    }

    pub(super) const fn header(&self) -> &Header {
        &self.header
    }

    pub(super) const fn length(&self) -> u64 {
        self.length
    }

    fn put(&mut self, content: &Content) -> io::Result<()> {
        let (bytes, checksum) = frame::encode(self.header.salt, content, self.checksum);
        self.write(&bytes)?;
        self.checksum = checksum;
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let end = self.length + bytes.len() as u64;
        if end > self.laid {
            // Overwriting zeros that were synced before is 1.5 to 3 times faster than extending the file; and zeros
            // behind the last frame are how a reader knows the end.
            let zeros = vec![0; LAID_AHEAD];
            while self.laid < end {
                self.file.write_at(self.laid, &zeros)?;
                self.laid += LAID_AHEAD as u64;
            }
        }
        self.file.write_at(self.length, bytes)?;
        self.length = end;
        Ok(())
    }
}

/// The name of the file; names sort like their numbers.
pub(super) fn name(number: u64) -> String {
    disk::numbered(number, SUFFIX)
}

/// The number in the name of a segment; none when the name is of something else.
pub(super) fn number_of(text: &str) -> Option<u64> {
    disk::number_of(text, SUFFIX)
}

/// Bytes of a segment header.
pub(super) const HEADER: usize = 96;
/// How the files are written.
pub(super) const FORMAT: u16 = 1;
/// The least format that a reader must know.
const MIN_READER: u16 = 1;
const MAGIC: &[u8; 8] = b"JYSEGMNT";
const SUFFIX: &str = ".segment";
/// Zeros are laid down in steps of this size.
const LAID_AHEAD: usize = 1 << 20;
