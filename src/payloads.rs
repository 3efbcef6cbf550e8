//! Payloads that were put away to files, so that what waits long takes little memory. The files are no part of what is stored: the journal
//! has every payload, nothing here is ever synced, and whoever opens the directory sweeps what an earlier one has left. A piece that does
//! not come back as it was written is an error, never another payload.

mod book;

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use book::{Book, HEADER, MOST_FILE_BYTES, MOST_PAYLOAD_BYTES, Place, Slot};

use crate::disk::{self, Disk, DiskFile};
use crate::ids::Ticket;

/// The payloads that one reign has put away. All files together take at most twice what is wanted and one file, once
/// [`Payloads::tidy`] has nothing left to do.
pub struct Payloads {
    disk: Arc<dyn Disk>,
    numbers: Numbers,
    /// A file is full when it has so many.
    file_bytes: u64,
    book: Book,
    writing: Option<Writing>,
    /// The file whose survivors are being moved, and how far that has come.
    moving: Option<(Slot, u64)>,
    /// Files that could not be removed when they should.
    left: Vec<String>,
    /// Bytes written into all files that there ever were.
    written: u64,
}

/// The file that is being written.
struct Writing {
    slot: Slot,
    number: u64,
    end: u64,
    file: Box<dyn DiskFile>,
}

/// The numbers of files. All reigns of a process share them: one that is given up may still be at its own files.
#[derive(Clone, Debug, Default)]
pub struct Numbers(Arc<AtomicU64>);

/// What was read last, for whoever asks for one payload after the other.
#[derive(Default)]
pub struct Window {
    number: Option<u64>,
    begin: u64,
    bytes: Vec<u8>,
}

/// What became of payloads that were to be put away.
#[derive(Debug, Default)]
pub struct Put {
    /// Those that may be let go.
    pub away: Vec<Ticket>,
    /// Why others may not.
    pub failed: Option<io::Error>,
}

/// A payload that was put away does not come back. The journal has it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PayloadError {
    /// The disk refuses.
    #[error("{file}: cannot be read: {source}")]
    Io {
        /// The file.
        file: String,
        /// Why.
        source: io::Error,
    },
    /// What is there is not what was written.
    #[error("{file} is damaged at byte {offset}: expected the payload that was put there")]
    Damaged {
        /// The file.
        file: String,
        /// Where the piece begins.
        offset: u64,
    },
    /// It was never put away, or is wanted no more.
    #[error("the payload of ticket {0} was not put away")]
    Unknown(Ticket),
}

impl Payloads {
    /// None yet. Makes no file before it is needed.
    #[must_use]
    pub fn new(disk: Arc<dyn Disk>, numbers: Numbers) -> Self {
        Self::with_files_of(disk, numbers, FILE_BYTES)
    }

    /// The same with files of another size than the usual one, for tests; 16 MiB at most.
    #[must_use]
    pub fn with_files_of(disk: Arc<dyn Disk>, numbers: Numbers, file_bytes: u64) -> Self {
        let file_bytes = file_bytes.clamp(1, MOST_FILE_BYTES);
        Self { disk, numbers, file_bytes, book: Book::default(), writing: None, moving: None, left: Vec::new(), written: 0 }
    }

    /// Removes the files that an earlier process, or an earlier reign of this one, has left. Answers how many.
    ///
    /// # Errors
    /// Those of the disk; what could not be removed is still there then, and harms nobody.
    pub fn sweep(disk: &dyn Disk) -> io::Result<usize> {
        let (mut swept, mut failed) = (0, None);
        for name in disk.list()?.iter().filter(|name| disk::number_of(name, SUFFIX).is_some()) {
            match removed(disk, name) {
                Ok(()) => swept += 1,
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(swept), Err)
    }

    /// Puts payloads away. One that is already, is not written again.
    pub fn put<'a>(&mut self, payloads: impl IntoIterator<Item = (Ticket, &'a [u8])>) -> Put {
        let mut put = Put::default();
        let mut draft = Draft::default();
        for (ticket, payload) in payloads {
            if self.book.place(ticket).is_some() {
                put.away.push(ticket);
            } else if payload.len() as u64 <= MOST_PAYLOAD_BYTES
                && let Err(error) = self.add(&mut draft, ticket, payload, &mut put.away)
            {
                put.failed = Some(error);
                return put;
            }
        }
        put.failed = self.write(&mut draft, &mut put.away).err();
        put
    }

    /// Reads payloads, and gives each with its place in the list; those that lie side by side are read together.
    ///
    /// # Errors
    /// [`PayloadError`] for the first that does not come back.
    pub fn read(&self, tickets: &[Ticket], mut each: impl FnMut(usize, &[u8])) -> Result<(), PayloadError> {
        let place = |ticket: &Ticket| self.book.place(*ticket).ok_or(PayloadError::Unknown(*ticket));
        let mut wanted = Vec::with_capacity(tickets.len());
        for (at, ticket) in tickets.iter().enumerate() {
            wanted.push((place(ticket)?, at, *ticket));
        }
        wanted.sort_unstable_by_key(|(place, ..)| (place.slot(), place.offset()));
        let mut rest = wanted.as_slice();
        while let Some((first, ..)) = rest.first() {
            // One at least, and those that lie near behind it as long as the read is not too long.
            let (mut end, mut near) = (first.end(), 1);
            for (place, ..) in rest.iter().skip(1) {
                let is_near = place.slot() == first.slot() && place.offset() <= end + GAP_BYTES;
                if !is_near || place.end() - first.offset() > READ_BYTES {
                    break;
                }
                end = end.max(place.end());
                near += 1;
            }
            let bytes = self.bytes(first.slot(), first.offset(), end - first.offset())?;
            let (now, later) = rest.split_at(near);
            for (place, at, ticket) in now {
                each(*at, self.payload_of(*ticket, *place, &bytes, first.offset())?);
            }
            rest = later;
        }
        Ok(())
    }

    /// Reads one payload, and with it what lies behind it: the next that is asked for is likely there.
    ///
    /// # Errors
    /// [`PayloadError`].
    pub fn look<'a>(&self, window: &'a mut Window, ticket: Ticket) -> Result<&'a [u8], PayloadError> {
        let place = self.book.place(ticket).ok_or(PayloadError::Unknown(ticket))?;
        let number = self.number(place.slot());
        let seen = window.begin..=window.begin + window.bytes.len() as u64;
        if window.number != Some(number) || !seen.contains(&place.offset()) || !seen.contains(&place.end()) {
            let bytes = self.bytes(place.slot(), place.offset(), place.bytes().max(READ_BYTES))?;
            *window = Window { number: Some(number), begin: place.offset(), bytes };
        }
        self.payload_of(ticket, place, &window.bytes, window.begin)
    }

    /// A payload is wanted no more. One that was not put away changes nothing.
    pub fn forget(&mut self, ticket: Ticket) {
        if let Some(place) = self.book.forget(ticket) {
            self.remove_if_empty(place.slot());
        }
    }

    /// None is wanted any more.
    pub fn clear(&mut self) {
        self.writing = None;
        self.moving = None;
        let files = std::mem::take(&mut self.book).into_files();
        files.for_each(|file| self.remove(name(file.number)));
    }

    /// Does a bounded piece of the work of keeping the files small: about a mebibyte. Answers whether there is more to do.
    ///
    /// # Errors
    /// [`TidyError`].
    pub fn tidy(&mut self) -> Result<bool, TidyError> {
        let writing = self.writing.as_ref().map(|writing| writing.slot);
        let next = || self.book.wasteful(writing, self.file_bytes).map(|slot| (slot, 0));
        let Some((slot, offset)) = self.moving.or_else(next) else { return Ok(false) };
        self.moving = Some((slot, offset));
        let offset = self.move_some(slot, offset)?;
        // With the last survivor it is gone.
        self.moving = self.book.file(slot).map(|_| (slot, offset));
        Ok(true)
    }

    /// Whether [`Payloads::tidy`] has something to do.
    #[must_use]
    pub fn is_untidy(&self) -> bool {
        let writing = self.writing.as_ref().map(|writing| writing.slot);
        self.moving.is_some() || self.book.wasteful(writing, self.file_bytes).is_some()
    }

    /// Whether none is wanted.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.book.len() == 0
    }

    /// Bytes of the pieces that are wanted, and of all files.
    #[must_use]
    pub const fn bytes_of_files(&self) -> (u64, u64) {
        (self.book.live(), self.book.total())
    }

    /// Bytes written since it was made.
    #[must_use]
    pub const fn written(&self) -> u64 {
        self.written
    }

    /// Moves what of a file is still wanted and begins at `offset` or soon behind it. Answers how far it has come.
    fn move_some(&mut self, slot: Slot, offset: u64) -> Result<u64, TidyError> {
        let Some(file) = self.book.file(slot) else { return Ok(offset) };
        let left = file.bytes.saturating_sub(offset);
        let mut bytes = self.bytes(slot, offset, left.min(READ_BYTES))?;
        // One that is larger than what is read at once.
        if let Some((_, length)) = Header::lengths(&bytes).filter(|(_, length)| HEADER + length > bytes.len() as u64) {
            bytes = self.bytes(slot, offset, left.min(HEADER + length))?;
        }
        let (mut put, mut draft) = (Vec::new(), Draft::default());
        let mut at = offset;
        while let Some((ticket, payload)) = self.payload(&bytes, offset, slot, at) {
            let place = Place::new(slot, at, payload.len());
            at += HEADER + payload.len() as u64;
            if place.is_some() && self.book.place(ticket) == place {
                self.add(&mut draft, ticket, payload, &mut put).map_err(TidyError::Full)?;
            }
        }
        self.write(&mut draft, &mut put).map_err(TidyError::Full)?;
        // Nothing that could be read, or all of it, and something is still wanted: that does not come back.
        let is_over = at == offset || at >= file.bytes;
        if is_over && self.book.file(slot).is_some_and(|file| file.live > 0) {
            return Err(self.damaged(slot, at).into());
        }
        if is_over {
            self.remove_if_empty(slot);
        }
        Ok(at)
    }

    /// Puts a piece into the draft, and what the draft holds into the file when that is enough.
    fn add(&mut self, draft: &mut Draft, ticket: Ticket, payload: &[u8], away: &mut Vec<Ticket>) -> io::Result<()> {
        let drafted = draft.bytes.len() as u64;
        if drafted >= WRITE_BYTES || self.writing()?.2 + drafted >= self.file_bytes {
            self.write(draft, away)?;
        }
        let (slot, number, end) = self.writing()?;
        let offset = end + draft.bytes.len() as u64;
        // What does not fit stays where it is.
        if let Some(place) = Place::new(slot, offset, payload.len()) {
            Header::put(&mut draft.bytes, number, ticket, payload);
            draft.pieces.push((ticket, place));
        }
        Ok(())
    }

    /// Writes the draft, and has its pieces from then on. When that fails it has none of them.
    fn write(&mut self, draft: &mut Draft, away: &mut Vec<Ticket>) -> io::Result<()> {
        let Draft { bytes, pieces } = std::mem::take(draft);
        let Some(writing) = self.writing.as_mut().filter(|_| !bytes.is_empty()) else { return Ok(()) };
        let written = writing.file.write_at(writing.end, &bytes);
        writing.end += bytes.len() as u64;
        self.written += bytes.len() as u64;
        self.book.grown(writing.slot, bytes.len() as u64);
        if let Err(error) = written {
            // Nobody knows what of it is there: nothing is put behind it.
            self.close();
            return Err(error);
        }
        for (ticket, place) in pieces {
            if let Some(before) = self.book.keep(ticket, place) {
                self.remove_if_empty(before.slot());
            }
            away.push(ticket);
        }
        if self.writing.as_ref().is_some_and(|writing| writing.end >= self.file_bytes) {
            self.close();
        }
        Ok(())
    }

    /// The file to write to: its slot, its number, and where it ends. Begins one where there is none.
    fn writing(&mut self) -> io::Result<(Slot, u64, u64)> {
        if self.writing.is_none() {
            let wanted = self.file_bytes.saturating_add(ROOM_LEFT);
            // A disk that does not say counts as having room: the write will find out.
            if self.disk.free().is_ok_and(|free| free < wanted) {
                let left = format!("less than {} MiB are free, which the journal may need", wanted >> 20);
                return Err(io::Error::new(ErrorKind::StorageFull, left));
            }
            let number = self.numbers.0.fetch_add(1, Ordering::Relaxed);
            let file = self.disk.create(&name(number))?;
            let Some(slot) = self.book.begin(number) else {
                self.remove(name(number));
                return Err(io::Error::new(ErrorKind::StorageFull, "there are too many files of payloads"));
            };
            self.writing = Some(Writing { slot, number, end: 0, file });
        }
        let writing = self.writing.as_ref().ok_or(ErrorKind::NotFound)?;
        Ok((writing.slot, writing.number, writing.end))
    }

    fn close(&mut self) {
        if let Some(writing) = self.writing.take() {
            self.remove_if_empty(writing.slot);
        }
    }

    fn remove_if_empty(&mut self, slot: Slot) {
        let is_written = self.writing.as_ref().is_some_and(|writing| writing.slot == slot);
        if !is_written && self.book.file(slot).is_some_and(|file| file.live == 0) {
            if let Some(file) = self.book.end(slot) {
                self.remove(name(file.number));
            }
            self.moving = self.moving.filter(|(moving, _)| *moving != slot);
        }
    }

    /// One that cannot be removed now is tried again with the next.
    fn remove(&mut self, name: String) {
        self.left.push(name);
        let disk = &*self.disk;
        self.left.retain(|name| removed(disk, name).is_err());
    }

    fn bytes(&self, slot: Slot, offset: u64, length: u64) -> Result<Vec<u8>, PayloadError> {
        let file = name(self.number(slot));
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        self.disk.read_at(&file, offset, length).map_err(|source| PayloadError::Io { file, source })
    }

    /// The piece that begins at `offset` of the file, in `bytes` that begin at `begin` of it. None when it is not whole, or not what was
    /// written.
    fn payload<'a>(&self, bytes: &'a [u8], begin: u64, slot: Slot, offset: u64) -> Option<(Ticket, &'a [u8])> {
        let piece = bytes.get(usize::try_from(offset.checked_sub(begin)?).ok()?..)?;
        Header::take(piece, self.book.file(slot)?.number)
    }

    /// The payload of this ticket, of which the place is known. That of another ticket, or another length, is none.
    fn payload_of<'a>(&self, ticket: Ticket, place: Place, bytes: &'a [u8], begin: u64) -> Result<&'a [u8], PayloadError> {
        let found = self.payload(bytes, begin, place.slot(), place.offset());
        let found = found.filter(|(found, payload)| *found == ticket && payload.len() as u64 == place.length());
        found.map(|(_, payload)| payload).ok_or_else(|| self.damaged(place.slot(), place.offset()))
    }

    fn damaged(&self, slot: Slot, offset: u64) -> PayloadError {
        PayloadError::Damaged { file: name(self.number(slot)), offset }
    }

    fn number(&self, slot: Slot) -> u64 {
        self.book.file(slot).map_or(u64::MAX, |file| file.number)
    }
}

/// Sizes only: payloads are private.
impl std::fmt::Debug for Payloads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (wanted, files) = self.bytes_of_files();
        f.debug_struct("Payloads").field("payloads", &self.book.len()).field("wanted", &wanted).field("files", &files).finish()
    }
}

/// Why the files cannot be kept small.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TidyError {
    /// What is to be moved does not come back.
    #[error(transparent)]
    Lost(#[from] PayloadError),
    /// There is no room to move it to. All is where it was.
    #[error("payloads cannot be moved: {0}")]
    Full(io::Error),
}

/// Pieces that are yet to be written.
#[derive(Default)]
struct Draft {
    bytes: Vec<u8>,
    pieces: Vec<(Ticket, Place)>,
}

/// What stands in front of a payload: a checksum over the number of the file and all behind it, the length of the payload, the ticket.
struct Header;

impl Header {
    fn put(out: &mut Vec<u8>, number: u64, ticket: Ticket, payload: &[u8]) {
        let length = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_le_bytes();
        let ticket = ticket.0.to_le_bytes();
        out.extend_from_slice(&checksum(number, &[&length, &ticket, payload]).to_le_bytes());
        out.extend_from_slice(&length);
        out.extend_from_slice(&ticket);
        out.extend_from_slice(payload);
    }

    /// The checksum and the length of the payload that it tells.
    fn lengths(bytes: &[u8]) -> Option<(u32, u64)> {
        let (checksum, behind) = bytes.split_first_chunk()?;
        let (length, _) = behind.split_first_chunk()?;
        Some((u32::from_le_bytes(*checksum), u32::from_le_bytes(*length).into()))
    }

    /// The piece at the front of `bytes`, if it is whole and of this file.
    fn take(bytes: &[u8], number: u64) -> Option<(Ticket, &[u8])> {
        let (told, length) = Self::lengths(bytes)?;
        let (ticket, behind) = bytes.get(8..)?.split_first_chunk()?;
        let payload = behind.get(..usize::try_from(length).ok()?)?;
        let is_whole = checksum(number, &[bytes.get(4..8)?, ticket, payload]) == told;
        is_whole.then(|| (Ticket(u64::from_le_bytes(*ticket)), payload))
    }
}

fn checksum(number: u64, parts: &[&[u8]]) -> u32 {
    parts.iter().fold(crc32c::crc32c(&number.to_le_bytes()), |sum, part| crc32c::crc32c_append(sum, part))
}

fn removed(disk: &dyn Disk, name: &str) -> io::Result<()> {
    match disk.remove(name) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn name(number: u64) -> String {
    disk::numbered(number, SUFFIX)
}

/// As what has no meaning once its process is gone.
const SUFFIX: &str = ".payloads.tmp";
/// One file: small beside what is put away where it matters, so that much of it is soon free again, and large beside what making one costs.
const FILE_BYTES: u64 = 16 << 20;
/// What is left free for the journal and its snapshots, of which all is stored: a segment.
const ROOM_LEFT: u64 = 64 << 20;
/// What is written at once, about.
const WRITE_BYTES: u64 = 1 << 20;
/// What is read at once, but for a payload that is larger.
const READ_BYTES: u64 = 1 << 20;
/// What lies between two payloads is read along when it is no more: that costs less than to ask the disk twice.
const GAP_BYTES: u64 = 16 << 10;
