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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap as Map;

    use quickcheck::quickcheck;

    use super::*;

    /// Counts everything again and compares.
    fn check(book: &Book) {
        assert_eq!(book.total, book.files.values().map(|file| file.bytes).sum::<u64>(), "bytes of all files");
        assert_eq!(book.live, book.places.iter().map(|(_, place)| place.bytes()).sum::<u64>(), "bytes that are wanted");
        for (slot, file) in &book.files {
            let live: u64 = book.places.iter().filter(|(_, place)| place.slot() == *slot).map(|(_, place)| place.bytes()).sum();
            assert!(file.live == live && live <= file.bytes, "bytes that are wanted of {slot}");
        }
    }

    quickcheck! {
        fn what_is_wanted_is_counted_and_a_wasteful_file_is_found(moves: Vec<(u8, u8, u16)>, spare: u16) -> () {
            let (mut book, mut model, spare) = (Book::default(), Map::new(), u64::from(spare));
            let mut writing = None;
            for (what, which, length) in moves {
                let ticket = Ticket(u64::from(which % 32) + 1);
                match what % 4 {
                    0 => writing = book.begin(which.into()),
                    1 => assert_eq!(book.forget(ticket), model.remove(&ticket)),
                    _ => {
                        let end = writing.and_then(|slot| book.file(slot)).map(|file| file.bytes);
                        let place = writing.zip(end).and_then(|(slot, end)| Place::new(slot, end, length.into()));
                        if let Some(place) = place {
                            book.grown(place.slot(), place.bytes());
                            assert_eq!(book.keep(ticket, place), model.insert(ticket, place));
                        }
                    }
                }
                let is_over = |slot: &Slot, file: &File| Some(*slot) != writing && file.live == 0;
                let empty: Vec<Slot> = book.files.iter().filter(|(slot, file)| is_over(slot, file)).map(|(slot, _)| *slot).collect();
                empty.into_iter().for_each(|slot| assert!(book.end(slot).is_some()));
                check(&book);
                assert_eq!((book.place(ticket), book.len()), (model.get(&ticket).copied(), model.len()));
                let of_writing = writing.and_then(|slot| book.file(slot)).map_or(0, |file| file.bytes);
                let found = book.wasteful(writing, spare.max(of_writing));
                let is_too_much = book.total > 2 * book.live + spare.max(of_writing);
                assert_eq!(found.is_some(), is_too_much);
                let is_wasteful = |slot| book.file(slot).is_some_and(|file| file.live * 2 < file.bytes);
                assert!(found.is_none_or(|slot| Some(slot) != writing && is_wasteful(slot)), "less than half of it is wanted");
            }
        }

        fn a_place_keeps_its_numbers(slot: u16, offset: u64, length: u32) -> () {
            let place = Place::new(slot, offset, length as usize);
            let fits = slot < 1 << 15 && offset < 1 << 24 && length < 1 << 25;
            assert_eq!(place.map(|place| (place.slot(), place.offset(), place.length())), fits.then_some((slot, offset, length.into())));
        }
    }

    #[test]
    fn the_ends_of_what_a_place_may_say() {
        let (slot, offset, length) = ((1 << 15) - 1, (1 << 24) - 1, (1 << 25) - 1);
        let most = Place::new(slot, offset, length).map(|most| (most.slot(), most.offset(), most.length()));
        assert_eq!(most, Some((slot, offset, length as u64)));
        for (slot, offset, length) in [(1 << 15, 0, 0), (0, 1 << 24, 0), (0, 0, 1 << 25)] {
            assert!(Place::new(slot, offset, length).is_none());
        }
    }
}
