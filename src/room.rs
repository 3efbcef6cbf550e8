//! The memory that the payloads of a state may take while it is read: beyond it they are put away, and what writes the state again gets them
//! from there. Whoever has the state later goes by a rule of its own.

use crate::ids::Ticket;
use crate::packed::Packed;
use crate::payloads::{PayloadError, Payloads, Put, Window};
use crate::queue::Queue;

/// Payloads, and how many bytes of them may be in memory.
pub struct Room {
    payloads: Payloads,
    memory: u64,
    /// The tickets before this one have been looked at.
    next: Ticket,
    /// The disk takes no more: all else stays in memory.
    is_full: bool,
    window: Window,
}

impl Room {
    /// Room for so many bytes of payload and meta in memory, about; others go to `payloads`, which are empty.
    #[must_use]
    pub fn new(payloads: Payloads, memory: u64) -> Self {
        Self { payloads, memory, next: Ticket(0), is_full: false, window: Window::default() }
    }

    /// What was put away.
    #[must_use]
    pub fn into_payloads(self) -> Payloads {
        self.payloads
    }

    /// Puts away the payloads that came last, when there are too many in memory: those before them are to run sooner. What was put away
    /// and does not come back, is noticed when it is wanted.
    pub(crate) fn make(&mut self, queue: &mut Queue) {
        let next = self.next;
        self.next = next.max(queue.last_ticket().next());
        if queue.weight_in_memory() > self.memory && !self.is_full {
            let came = queue.tickets_from(next).filter(|(_, live)| live.job.payload_bytes() > 0);
            let Put { away, failed } = self.payloads.put(came.filter_map(|(ticket, live)| Some((ticket, live.job.payload()?))));
            away.iter().for_each(|ticket| _ = queue.let_go(*ticket));
            self.is_full = failed.is_some();
        }
        if !self.is_full {
            self.is_full = self.payloads.tidy().is_err();
        }
    }

    /// Bytes that were written to put payloads away.
    pub(crate) const fn written(&self) -> u64 {
        self.payloads.written()
    }

    /// The ticket has ended.
    pub(crate) fn forget(&mut self, ticket: Ticket) {
        self.payloads.forget(ticket);
    }

    /// What was read is of no use.
    pub(crate) fn clear(&mut self) {
        self.payloads.clear();
        self.next = Ticket(0);
    }

    /// The job of this ticket with its payload. Cheap for those that are asked for in the order in which they came.
    pub(crate) fn whole(&mut self, ticket: Ticket, job: &Packed) -> Result<Packed, PayloadError> {
        let payload = self.payloads.look(&mut self.window, ticket)?;
        job.brought_back(payload).ok_or(PayloadError::Unknown(ticket))
    }
}
