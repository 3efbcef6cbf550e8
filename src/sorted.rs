//! A set in the order of its items, in pages: what comes in order leaves every page full, so that millions take little more room than
//! their items.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

/// A set of small items, of which the least is at hand.
#[derive(Clone, Debug)]
pub(crate) struct Sorted<T> {
    /// By a bound: no item of a page is below its own, and none reaches that of the next page. Only a page that is alone may be empty.
    pages: BTreeMap<T, VecDeque<T>>,
    len: usize,
}

impl<T> Default for Sorted<T> {
    fn default() -> Self {
        Self { pages: BTreeMap::new(), len: 0 }
    }
}

impl<T: Copy + Ord> Sorted<T> {
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn first(&self) -> Option<T> {
        self.pages.first_key_value()?.1.front().copied()
    }

    pub(crate) fn contains(&self, item: T) -> bool {
        let page = self.pages.range(..=item).next_back();
        page.is_some_and(|(_, page)| page.binary_search(&item).is_ok())
    }

    /// Answers whether it is new.
    pub(crate) fn insert(&mut self, item: T) -> bool {
        // Most come in order: that page needs no search.
        if let Some(mut last) = self.pages.last_entry()
            && last.get().back().is_some_and(|greatest| *greatest < item)
            && last.get().len() < ITEMS
        {
            last.get_mut().push_back(item);
            self.len += 1;
            return true;
        }
        let Some(page) = self.page_for(item) else {
            self.pages.insert(item, VecDeque::from([item]));
            self.len += 1;
            return true;
        };
        let Err(at) = page.binary_search(&item) else { return false };
        if page.len() < ITEMS {
            page.insert(at, item);
        } else if at < ITEMS || !self.goes_before_the_next(item) {
            let Some(page) = self.page_for(item) else { return false };
            // What comes behind a full page begins another one; what comes between its items makes two of it.
            let mut next = page.split_off(if at == ITEMS { ITEMS } else { ITEMS / 2 });
            let (half, at) = if at > page.len() || page.len() == ITEMS { (&mut next, at - page.len()) } else { (&mut *page, at) };
            half.insert(at, item);
            if page.len() < ITEMS {
                page.shrink_to_fit();
            }
            if let Some(bound) = next.front() {
                self.pages.insert(*bound, next);
            }
        }
        self.len += 1;
        true
    }

    /// Answers whether it was there.
    pub(crate) fn remove(&mut self, item: T) -> bool {
        let Some((bound, page)) = self.pages.range_mut(..=item).next_back() else { return false };
        let Ok(at) = page.binary_search(&item) else { return false };
        page.remove(at);
        self.len -= 1;
        if page.is_empty() && self.len > 0 {
            let bound = *bound;
            self.pages.remove(&bound);
        } else {
            give_back(page);
        }
        true
    }

    /// Takes the least out.
    pub(crate) fn pop_first(&mut self) -> Option<T> {
        let mut page = self.pages.first_entry()?;
        let item = page.get_mut().pop_front()?;
        self.len -= 1;
        if page.get().is_empty() && self.len > 0 {
            page.remove();
        } else {
            give_back(page.get_mut());
        }
        Some(item)
    }

    /// Puts the item in front of the page behind it, if that has room: what comes against the order fills pages as well.
    fn goes_before_the_next(&mut self, item: T) -> bool {
        let next = self.pages.range((Bound::Excluded(item), Bound::Unbounded)).next();
        let Some(bound) = next.filter(|(_, page)| page.len() < ITEMS).map(|(bound, _)| *bound) else { return false };
        let Some(mut page) = self.pages.remove(&bound) else { return false };
        page.push_front(item);
        self.pages.insert(item, page);
        true
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = T> {
        self.pages.values().flatten().copied()
    }

    /// The page where the item is, or would be; its bound is lowered where need be. None when there is no page.
    fn page_for(&mut self, item: T) -> Option<&mut VecDeque<T>> {
        if self.pages.first_key_value().is_some_and(|(bound, _)| *bound > item)
            && let Some((_, page)) = self.pages.pop_first()
        {
            self.pages.insert(item, page);
        }
        self.pages.range_mut((Bound::Unbounded, Bound::Included(item))).next_back().map(|(_, page)| page)
    }
}

/// A few that stay for long do not keep the room of all that were beside them.
fn give_back<T>(page: &mut VecDeque<T>) {
    if page.len() < page.capacity() / 4 {
        page.shrink_to(ITEMS / 8);
    }
}

/// Items of a page: many enough that the tree of pages is small, few enough that one that comes or goes moves little.
const ITEMS: usize = 64;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use quickcheck::quickcheck;

    use super::*;

    quickcheck! {
        fn it_is_a_set_in_order(moves: Vec<(u8, u16)>) -> () {
            let (mut sorted, mut set) = (Sorted::default(), BTreeSet::new());
            // In order, against it, and mixed; each move is one of many, so that pages fill and empty.
            for (what, first) in moves {
                let items = (0..150u16).map(|n| if what & 1 == 0 { first.wrapping_add(n) } else { first.wrapping_sub(n.wrapping_mul(7)) });
                for item in items {
                    if what & 2 == 0 || what & 4 == 0 {
                        assert_eq!(sorted.insert(item), set.insert(item));
                    } else if what & 8 == 0 {
                        assert_eq!(sorted.remove(item), set.remove(&item));
                    } else {
                        assert_eq!(sorted.pop_first(), set.pop_first());
                    }
                    assert_eq!((sorted.first(), sorted.len()), (set.first().copied(), set.len()));
                }
                for item in [first, first.wrapping_add(75), 0, u16::MAX] {
                    assert_eq!(sorted.contains(item), set.contains(&item));
                }
                assert!(sorted.iter().eq(set.iter().copied()));
                let pages: Vec<_> = sorted.pages.iter().collect();
                assert!(pages.iter().all(|(bound, page)| page.len() <= ITEMS && page.front().is_none_or(|first| *bound <= first)));
                assert!(pages.iter().all(|(_, page)| !page.is_empty() || pages.len() == 1));
                assert!(pages.windows(2).all(|two| two[0].1.back() < Some(two[1].0)), "none reaches that of the next page");
            }
        }
    }

    #[test]
    fn what_comes_against_the_order_fills_pages_too() {
        let mut sorted = Sorted::default();
        (0..64).chain((100..6500).rev()).for_each(|n| assert!(sorted.insert(n)));
        assert!(sorted.pages.len() <= 205, "{} pages for 6,464", sorted.pages.len());
    }

    #[test]
    fn what_comes_in_order_leaves_no_room_unused() {
        let mut sorted = Sorted::default();
        (0..6400).for_each(|n| assert!(sorted.insert(n)));
        assert_eq!(sorted.pages.len(), 100);
        assert!(sorted.pages.values().all(|page| page.capacity() == ITEMS));
        (0..6400).filter(|n| n % 64 != 5).for_each(|n| assert!(sorted.remove(n)));
        let room: usize = sorted.pages.values().map(VecDeque::capacity).sum();
        assert!(room <= 1000, "{room} places for 100");
        (0..6400).for_each(|n| _ = sorted.remove(n));
        assert_eq!((sorted.len(), sorted.pages.len()), (0, 1), "an empty one is kept for what comes next");
    }
}
