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
    ends: foldhash::HashMap<Ticket, JobEnd>,
    /// The oldest first; each ticket ends once.
    order: VecDeque<Ticket>,
}

impl Recent {
    /// Remembers an end, and forgets the oldest beyond `limit`.
    pub(crate) fn note(&self, ticket: Ticket, end: JobEnd, limit: usize) {
        let mut ring = self.ring();
        if ring.ends.insert(ticket, end).is_none() {
            ring.order.push_back(ticket);
        }
        while ring.order.len() > limit {
            let oldest = ring.order.pop_front();
            oldest.and_then(|oldest| ring.ends.remove(&oldest));
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
        self.ring().ends.get(&ticket).cloned().unwrap_or(JobEnd::Forgotten)
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Recent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Recent({} ends)", self.ring().order.len())
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
    fn with_no_room_nothing_is_remembered() {
        let recent = Recent::default();
        recent.note(Ticket(1), JobEnd::Done, 0);
        assert_eq!(recent.end_of(Ticket(1)), JobEnd::Forgotten);
    }
}
