//! Those who wait for the end of a job. They hear of it when its record is on disk; who waits for a job that has ended before
//! hears what is remembered.

use actix::{Context, Handler};
use journeyman_core::Ticket;

use super::QueueActor;
use crate::answers::JobEnd;
use crate::error::CallError;
use crate::messages::{Outcome, Reply};

type Asker = Reply<Result<JobEnd, CallError>>;

/// Who waits, by ticket. Each holds his place at the edge himself, and gives it back when he goes away; here he is then
/// swept out before those who have gone outnumber those who wait.
#[derive(Default)]
pub(super) struct WaitingForEnds {
    replies: foldhash::HashMap<Ticket, Vec<Asker>>,
    waiting: usize,
    /// How many there were after the last sweep.
    swept: usize,
}

impl WaitingForEnds {
    fn wait(&mut self, ticket: Ticket, reply: Asker) {
        if self.waiting > self.swept.saturating_mul(2) + SWEEP_FROM {
            self.sweep();
        }
        self.replies.entry(ticket).or_default().push(reply);
        self.waiting += 1;
    }

    fn sweep(&mut self) {
        self.replies.retain(|_, replies| {
            replies.retain(Reply::is_wanted);
            !replies.is_empty()
        });
        self.waiting = self.replies.values().map(Vec::len).sum();
        self.swept = self.waiting;
    }

    fn of(&mut self, ticket: Ticket) -> Vec<Asker> {
        // Asked at the end of every job, and mostly nobody waits.
        if self.replies.is_empty() {
            return Vec::new();
        }
        let replies = self.replies.remove(&ticket).unwrap_or_default();
        self.waiting -= replies.len();
        replies
    }

    /// Nobody hears more than this.
    pub(super) fn refuse_all(&mut self, why: CallError) {
        self.waiting = 0;
        self.replies.drain().flat_map(|(_, replies)| replies).for_each(|reply| reply.give(Err(why)));
    }

    /// Dropped, an answer says that it was lost.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

impl QueueActor {
    /// The job has ended, and that is on disk.
    pub(super) fn has_ended(&mut self, ticket: Ticket, end: JobEnd) {
        for reply in self.waiting_for_ends.of(ticket) {
            reply.give(Ok(end.clone()));
        }
        self.status.recent.note(ticket, end, self.rules.limits.ends_remembered);
    }
}

impl Handler<Outcome> for QueueActor {
    type Result = ();

    fn handle(&mut self, Outcome { ticket, reply }: Outcome, ctx: &mut Context<Self>) {
        if !reply.is_wanted() {
            return;
        }
        let queue = self.writer.queue();
        if let Some(why) = self.stage.silence() {
            self.clock.stir();
            reply.give(Err(why));
        } else if queue.get(ticket).is_some() {
            self.waiting_for_ends.wait(ticket, reply);
        } else {
            let was_issued = queue.was_issued(ticket);
            let status = self.status.clone();
            // Looked up when everything before it is on disk, its own end included.
            self.answer(move || reply.give(Ok(if was_issued { status.recent.end_of(ticket) } else { JobEnd::NotFound })));
            self.request_turn(ctx);
        }
    }
}

/// So few are never swept.
const SWEEP_FROM: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_have_gone_never_outnumber_those_who_wait_by_much() {
        let mut waiting = WaitingForEnds::default();
        for n in 0..10_000 {
            // Nobody has its other half.
            waiting.wait(Ticket(n % 7), Reply::new().0);
            assert!(waiting.waiting <= SWEEP_FROM + 1, "{} at {n}", waiting.waiting);
        }
        assert_eq!(waiting.replies.values().map(Vec::len).sum::<usize>(), waiting.waiting);
    }
}
