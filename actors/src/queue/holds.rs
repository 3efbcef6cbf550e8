//! Attempts that have ended while a blocking section of theirs goes on: their tickets are not tried again before it is over.

use std::collections::HashSet;

use journeyman_core::schedule::Hold;
use journeyman_core::{Attempt, Ticket};

use super::QueueActor;

/// The end of an attempt and the end of its last section come by different ways; either may be first.
#[derive(Debug, Default)]
pub(super) struct Asides {
    lingering: HashSet<(Ticket, Attempt)>,
    gone_early: HashSet<(Ticket, Attempt)>,
}

impl Asides {
    /// The attempt has ended, and a section of it may go on.
    pub(super) fn outlived(&mut self, ticket: Ticket, attempt: Attempt) {
        if !self.gone_early.remove(&(ticket, attempt)) {
            self.lingering.insert((ticket, attempt));
        }
    }

    /// The last section has ended.
    pub(super) fn left(&mut self, ticket: Ticket, attempt: Attempt) {
        if !self.lingering.remove(&(ticket, attempt)) {
            self.gone_early.insert((ticket, attempt));
        }
    }

    pub(super) fn lingers(&self, ticket: Ticket, attempt: Attempt) -> bool {
        self.lingering.contains(&(ticket, attempt))
    }
}

impl QueueActor {
    /// Puts a ticket that was held for a section back in line.
    pub(super) fn bring_back(&mut self, ticket: Ticket) {
        if self.schedule.hold(ticket) == Some(Hold::StillRunning) {
            self.schedule.bring_back(ticket);
        }
    }
}
