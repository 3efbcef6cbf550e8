//! Where each payload that was put away lies, and how many bytes of each file are still wanted. Pure: it touches no file.

use std::collections::BTreeMap;

use crate::ids::Ticket;
use crate::table::Table;

/// Files by their slots, and places by their tickets.
#[derive(Debug, Default)]
pub(super) struct Book {
    places: Table<Place, PLACES>,
    files: BTreeMap<Slot, File>,
    total: u64,
    live: u64,
}

/// Stands for a file: its number is too long to be kept with every place. Free again when the file is gone.
pub(super) type Slot = u16;

/// A file and what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct File {
    /// Never the same for two files of one process.
    pub number: u64,
    /// Bytes written into it.
    pub bytes: u64,
    /// Those of pieces that are still wanted.
    pub live: u64,
}

/// Where a piece begins and how long its payload is, in eight bytes: there may be tens of millions.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Place(u64);

impl Place {
    /// None when a number does not fit.
    pub(super) fn new(slot: Slot, offset: u64, length: usize) -> Option<Self> {
        let length = u64::try_from(length).ok()?;
        let fits = slot < SLOTS && offset < MOST_FILE_BYTES && length <= MOST_PAYLOAD_BYTES;
        fits.then(|| Self(u64::from(slot) << (OFFSET_BITS + LENGTH_BITS) | offset << LENGTH_BITS | length))
    }

    pub(super) const fn slot(self) -> Slot {
        (self.0 >> (OFFSET_BITS + LENGTH_BITS)) as Slot
    }

    pub(super) const fn offset(self) -> u64 {
        self.0 >> LENGTH_BITS & (MOST_FILE_BYTES - 1)
    }

    /// Bytes of its payload.
    pub(super) const fn length(self) -> u64 {
        self.0 & MOST_PAYLOAD_BYTES
    }

    /// Bytes of the piece.
    pub(super) const fn bytes(self) -> u64 {
        HEADER + self.length()
    }

    pub(super) const fn end(self) -> u64 {
        self.offset() + self.bytes()
    }
}

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Place").field(&self.slot()).field(&self.offset()).field(&self.length()).finish()
    }
}

impl Book {
    /// Bytes of all files.
    pub(super) const fn total(&self) -> u64 {
        self.total
    }

    /// Bytes of the pieces that are wanted.
    pub(super) const fn live(&self) -> u64 {
        self.live
    }

    /// Payloads that are wanted.
    pub(super) const fn len(&self) -> usize {
        self.places.len()
    }

    pub(super) fn place(&self, ticket: Ticket) -> Option<Place> {
        self.places.get(ticket).copied()
    }

    pub(super) fn file(&self, slot: Slot) -> Option<File> {
        self.files.get(&slot).copied()
    }

    /// A slot for a new, empty file. None when all are taken.
    pub(super) fn begin(&mut self, number: u64) -> Option<Slot> {
        let last = self.files.last_key_value().map_or(0, |(slot, _)| slot + 1);
        let free = if last < SLOTS { Some(last) } else { (0..SLOTS).find(|slot| !self.files.contains_key(slot)) };
        let slot = free?;
        self.files.insert(slot, File { number, bytes: 0, live: 0 });
        Some(slot)
    }

    /// So many bytes have been written into a file, of whatever use they are.
    pub(super) fn grown(&mut self, slot: Slot, bytes: u64) {
        if let Some(file) = self.files.get_mut(&slot) {
            file.bytes += bytes;
            self.total += bytes;
        }
    }

    /// A piece is there. Answers where the one of this ticket was before.
    pub(super) fn keep(&mut self, ticket: Ticket, place: Place) -> Option<Place> {
        if let Some(file) = self.files.get_mut(&place.slot()) {
            file.live += place.bytes();
        }
        self.live += place.bytes();
        let before = self.places.insert(ticket, place);
        before.inspect(|before| self.dead(*before))
    }

    /// A payload is wanted no more. Answers where it was.
    pub(super) fn forget(&mut self, ticket: Ticket) -> Option<Place> {
        let place = self.places.remove(ticket)?;
        self.dead(place);
        Some(place)
    }

    fn dead(&mut self, place: Place) {
        if let Some(file) = self.files.get_mut(&place.slot()) {
            file.live -= place.bytes();
        }
        self.live -= place.bytes();
    }

    /// The file is gone.
    pub(super) fn end(&mut self, slot: Slot) -> Option<File> {
        let file = self.files.remove(&slot)?;
        self.total -= file.bytes;
        Some(file)
    }

    /// All files, when none of them is wanted.
    pub(super) fn into_files(self) -> impl Iterator<Item = File> {
        self.files.into_values()
    }

    /// A file whose survivors are to be moved, so that all files are no more than twice what is wanted and `spare` bytes. There is always
    /// one while they are, if the file that is being written, which is passed over, has no more than `spare`: were all others at least half
    /// wanted, they would be at most twice what is wanted.
    pub(super) fn wasteful(&self, writing: Option<Slot>, spare: u64) -> Option<Slot> {
        if self.total <= self.live.saturating_mul(2).saturating_add(spare) {
            return None;
        }
        let others = self.files.iter().filter(|(slot, _)| Some(**slot) != writing);
        others.min_by_key(|(_, file)| (file.live << SHARE_BITS) / file.bytes.max(1)).map(|(slot, _)| *slot)
    }

    /// Counts everything again and compares.
    #[cfg(test)]
    pub(super) fn check(&self) {
        assert_eq!(self.total, self.files.values().map(|file| file.bytes).sum::<u64>(), "bytes of all files");
        assert_eq!(self.live, self.places.iter().map(|(_, place)| place.bytes()).sum::<u64>(), "bytes that are wanted");
        for (slot, file) in &self.files {
            let live: u64 = self.places.iter().filter(|(_, place)| place.slot() == *slot).map(|(_, place)| place.bytes()).sum();
            assert_eq!(file.live, live, "bytes that are wanted of {slot}");
            assert!(file.live <= file.bytes, "{slot}");
        }
        assert!(self.places.iter().all(|(_, place)| self.files.contains_key(&place.slot())), "no place without a file");
    }
}

/// In front of each payload: its checksum, its length, its ticket.
pub(super) const HEADER: u64 = 16;
const OFFSET_BITS: u32 = 24;
const LENGTH_BITS: u32 = 25;
/// Files at once: half a terabyte of them.
const SLOTS: Slot = 1 << (u64::BITS - OFFSET_BITS - LENGTH_BITS);
/// No piece begins behind so many bytes of a file.
pub(super) const MOST_FILE_BYTES: u64 = 1 << OFFSET_BITS;
/// The largest payload that is put away: twice what a runner takes.
pub(super) const MOST_PAYLOAD_BYTES: u64 = (1 << LENGTH_BITS) - 1;
/// Places to a page: they are small, so that moving some costs little, and the page should cost little beside them.
const PLACES: u32 = u64::BITS;
/// How finely the shares of files that are wanted are told apart.
const SHARE_BITS: u32 = 16;
