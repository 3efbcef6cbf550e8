//! How jobs ended lately: a bounded memory beside the queue, which itself forgets a ticket with its end. It outlives the queue: an end
//! that was decided when a queue failed counts if its record is found on disk. It is no record itself: what it has forgotten, or a
//! process before this one has seen, stays counted and no more.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use journeyman_core::{Seq, Ticket};

use crate::answers::JobEnd;

/// The last ends, each noted when its record is on disk.
#[derive(Default)]
pub(crate) struct Recent(Mutex<Ring>);

#[derive(Default)]
struct Ring {
    /// Ends that a queue left undone: decided, and perhaps on disk.
    left: Vec<(Seq, Ticket, JobEnd)>,
    /// The oldest first; each ticket ends once.
    ends: VecDeque<(Ticket, JobEnd)>,
    /// The number of the first of them: they are counted on and on.
    first: u64,
    /// Their numbers by ticket, as far as they are listed here. Every job ends, and few are asked for: it is whoever asks that lists them.
    numbers: foldhash::HashMap<Ticket, u64>,
    /// The number up to which they are listed.
    listed: u64,
}

impl Ring {
    fn forget_the_oldest(&mut self) {
        let Some((ticket, _)) = self.ends.pop_front() else { return };
        if self.first < self.listed {
            self.numbers.remove(&ticket);
        }
        self.first += 1;
        self.listed = self.listed.max(self.first);
    }

    fn get(&mut self, ticket: Ticket) -> Option<&JobEnd> {
        let place = |number: u64, first: u64| usize::try_from(number - first).ok();
        let new = self.ends.iter().skip(place(self.listed, self.first)?);
        self.numbers.extend((self.listed..).zip(new).map(|(number, (ticket, _))| (*ticket, number)));
        self.listed = self.first + self.ends.len() as u64;
        let number = *self.numbers.get(&ticket)?;
        self.ends.get(place(number, self.first)?).map(|(_, end)| end)
    }
}

impl Recent {
    /// Remembers an end, and forgets the oldest beyond `limit`.
    pub(crate) fn note(&self, ticket: Ticket, end: JobEnd, limit: usize) {
        let mut ring = self.ring();
        ring.ends.push_back((ticket, end));
        while ring.ends.len() > limit {
            ring.forget_the_oldest();
        }
    }

    /// Keeps an end whose record may be on disk or not.
    pub(crate) fn leave(&self, seq: Seq, ticket: Ticket, end: JobEnd) {
        self.ring().left.push((seq, ticket, end));
    }

    /// Everything up to `last` was found on disk: so ends that were left up to there have happened.
    pub(crate) fn found(&self, last: Seq, limit: usize) {
        let left = std::mem::take(&mut self.ring().left);
        left.into_iter().filter(|(seq, ..)| *seq <= last).for_each(|(_, ticket, end)| self.note(ticket, end, limit));
    }

    /// How a ticket ended that no longer lives and was once given out.
    pub(crate) fn end_of(&self, ticket: Ticket) -> JobEnd {
        self.ring().get(ticket).cloned().unwrap_or(JobEnd::Forgotten)
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Recent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Recent({} ends)", self.ring().ends.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_end_is_forgotten_first() {
        let recent = Recent::default();
        for n in 1..=3 {
            recent.note(Ticket(n), JobEnd::Done, 2);
        }
        let ends = [1, 2, 3].map(|n| recent.end_of(Ticket(n)));
        assert_eq!(ends, [JobEnd::Forgotten, JobEnd::Done, JobEnd::Done]);
    }

    #[test]
    fn who_asks_between_finds_what_there_is() {
        let recent = Recent::default();
        for n in 1..=100 {
            recent.note(Ticket(n), JobEnd::Done, 10);
            if n % 7 == 0 {
                let known: Vec<u64> = (0..=n + 1).filter(|n| recent.end_of(Ticket(*n)) == JobEnd::Done).collect();
                assert_eq!(known, (n.saturating_sub(10) + 1..=n).collect::<Vec<_>>());
            }
        }
        assert!(recent.ring().numbers.len() <= 10, "of what is forgotten nothing stays");
    }

    #[test]
    fn with_no_room_nothing_is_remembered() {
        let recent = Recent::default();
        recent.note(Ticket(1), JobEnd::Done, 0);
        assert_eq!(recent.end_of(Ticket(1)), JobEnd::Forgotten);
    }
}
