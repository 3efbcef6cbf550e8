//! A map from tickets to what is known of them. Tickets are numbered in a row and mostly come and go in that order, so neighbours lie side
//! by side: finding one costs a step in a tree of pages and one within a page, and a ticket takes little more than its own bytes.

use std::collections::{BTreeMap, VecDeque};

use crate::ids::Ticket;

/// In the order of the tickets, so many to a page: few where what is known of a ticket is large, as one that comes or goes moves those behind
/// it, and at most 64.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table<T, const DIGITS: u32 = USUAL> {
    pages: BTreeMap<u64, Page<T>>,
    len: usize,
}

/// Tickets whose numbers differ in the last digit only, counting in as many as a page holds.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Page<T> {
    /// A bit for each digit that is taken.
    taken: u64,
    /// What stands under them, in their order. The first ones mostly go first, and none of the others has to move for that.
    items: VecDeque<T>,
}

impl<T, const DIGITS: u32> Default for Table<T, DIGITS> {
    fn default() -> Self {
        Self { pages: BTreeMap::new(), len: 0 }
    }
}

impl<T, const DIGITS: u32> Table<T, DIGITS> {
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn get(&self, ticket: Ticket) -> Option<&T> {
        let (page, digit) = Self::split(ticket);
        let page = self.pages.get(&page)?;
        page.items.get(page.at(digit)?)
    }

    pub(crate) fn get_mut(&mut self, ticket: Ticket) -> Option<&mut T> {
        let (page, digit) = Self::split(ticket);
        let page = self.pages.get_mut(&page)?;
        let at = page.at(digit)?;
        page.items.get_mut(at)
    }

    /// Answers what stood there before.
    pub(crate) fn insert(&mut self, ticket: Ticket, item: T) -> Option<T> {
        let (page, digit) = Self::split(ticket);
        // Most come in order: that page needs no search.
        let page = match self.pages.last_entry() {
            Some(last) if *last.key() == page => last.into_mut(),
            // With the first of a page the others are soon to come.
            _ => self
                .pages
                .entry(page)
                .or_insert_with(|| Page { taken: 0, items: VecDeque::with_capacity(if digit == 0 { DIGITS as usize } else { 0 }) }),
        };
        if let Some(before) = page.at(digit).and_then(|at| page.items.get_mut(at)) {
            return Some(std::mem::replace(before, item));
        }
        page.items.insert(page.before(digit), item);
        page.taken |= 1 << digit;
        self.len += 1;
        None
    }

    pub(crate) fn remove(&mut self, ticket: Ticket) -> Option<T> {
        let (number, digit) = Self::split(ticket);
        let page = self.pages.get_mut(&number)?;
        let item = page.items.remove(page.at(digit)?)?;
        page.taken &= !(1 << digit);
        self.len -= 1;
        if page.taken == 0 {
            self.pages.remove(&number);
        } else if page.items.len() <= page.items.capacity() / 4 {
            // A few that stay for long do not keep the room of all that were beside them.
            page.items.shrink_to_fit();
        }
        Some(item)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Ticket, &T)> {
        self.pages.iter().flat_map(|(number, page)| page.iter(*number, DIGITS))
    }

    /// From `first` on. To find the first costs the logarithm of how many there are.
    pub(crate) fn iter_from(&self, first: Ticket) -> impl Iterator<Item = (Ticket, &T)> {
        let pages = self.pages.range(Self::split(first).0..);
        pages.flat_map(|(number, page)| page.iter(*number, DIGITS)).skip_while(move |(ticket, _)| *ticket < first)
    }

    pub(crate) fn last(&self) -> Option<Ticket> {
        let (number, page) = self.pages.last_key_value()?;
        Some(join(*number, page.taken.checked_ilog2()?, DIGITS))
    }

    const fn split(ticket: Ticket) -> (u64, u32) {
        const { assert!(DIGITS <= u64::BITS, "a bit for each") };
        (ticket.0 / DIGITS as u64, (ticket.0 % DIGITS as u64) as u32)
    }
}

impl<T> Page<T> {
    /// Where the item of this digit stands.
    const fn at(&self, digit: u32) -> Option<usize> {
        if self.taken >> digit & 1 == 1 { Some(self.before(digit)) } else { None }
    }

    /// How many stand before it.
    const fn before(&self, digit: u32) -> usize {
        (self.taken & ((1 << digit) - 1)).count_ones() as usize
    }

    fn iter(&self, number: u64, digits: u32) -> impl Iterator<Item = (Ticket, &T)> {
        let taken = (0..digits).filter(|digit| self.taken >> digit & 1 == 1);
        taken.map(move |digit| join(number, digit, digits)).zip(&self.items)
    }
}

const fn join(page: u64, digit: u32, digits: u32) -> Ticket {
    Ticket(page * digits as u64 + digit as u64)
}

/// Tickets of a page: many enough that the tree of pages is small, few enough that one that comes or goes moves little.
const USUAL: u32 = 16;

#[cfg(test)]
mod tests {
    use quickcheck::quickcheck;

    use super::*;

    quickcheck! {
        fn it_is_a_map_in_the_order_of_the_tickets(moves: Vec<(bool, u8, u32)>, first: u8) -> () {
            let (mut table, mut map) = (Table::<_, 64>::default(), BTreeMap::new());
            let mut usual = Table::<_>::default();
            for (comes, number, item) in moves {
                // Both ends of the numbers.
                let ticket = Ticket(if number < 128 { number.into() } else { u64::MAX - u64::from(number) + 128 });
                if comes {
                    let before = map.insert(ticket, item);
                    assert_eq!((table.insert(ticket, item), usual.insert(ticket, item)), (before, before));
                } else {
                    let gone = map.remove(&ticket);
                    assert_eq!((table.remove(ticket), usual.remove(ticket)), (gone, gone));
                }
                assert_eq!((table.get(ticket), table.len()), (map.get(&ticket), map.len()));
                assert_eq!(table.get_mut(ticket), map.get_mut(&ticket));
                assert_eq!(table.last(), map.keys().next_back().copied());
            }
            assert!(table.iter().eq(map.iter().map(|(ticket, item)| (*ticket, item))));
            assert!(usual.iter().eq(table.iter()));
            let first = Ticket(first.into());
            assert!(table.iter_from(first).eq(map.range(first..).map(|(ticket, item)| (*ticket, item))));
        }
    }

    #[test]
    fn a_few_of_each_page_take_little_more_than_their_own_room() {
        let mut table = Table::<_>::default();
        (1..1600).step_by(16).for_each(|n| assert_eq!(table.insert(Ticket(n), [0u64; 8]), None));
        let room: usize = table.pages.values().map(|page| page.items.capacity()).sum();
        assert!(room <= 400, "{room} places for 100");
    }

    #[test]
    fn one_that_stays_keeps_little_more_than_its_own_room() {
        let mut table = Table::<_>::default();
        (0..1600).for_each(|n| assert_eq!(table.insert(Ticket(n), [0u64; 8]), None));
        (0..1600).filter(|n| n % 16 != 5).for_each(|n| _ = table.remove(Ticket(n)));
        let room: usize = table.pages.values().map(|page| page.items.capacity()).sum();
        assert_eq!((table.len(), table.pages.len()), (100, 100));
        assert!(room <= 400, "{room} places for 100");
        (0..1600).for_each(|n| _ = table.remove(Ticket(n)));
        assert!(table.pages.is_empty(), "nothing stays of what is gone");
    }
}
