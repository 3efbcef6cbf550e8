//! Calls that change something, in the order in which they came: each waits for room in the batch, or hears at once what is
//! full.

use std::collections::HashSet;

use actix::{AsyncContext, Context, Handler, Message};
use journeyman_core::queue::Change;
use journeyman_core::schedule::Wake;
use journeyman_core::{JobId, Now, Op, Target, Ticket};

use super::effects::Effect;
use super::{QueueActor, SMALL_RECORD, entry};
use crate::answers::{Cancelled, Receipt};
use crate::error::{CallError, EnqueueError};
use crate::messages::{Cancel, Due, Enqueue, Later, NewJob};

/// A call that waits for its turn.
pub(super) enum Intake {
    Enqueue(Enqueue, Later<Result<Vec<Receipt>, EnqueueError>>),
    Cancel(Cancel, Later<Result<Cancelled, CallError>>),
}

impl QueueActor {
    /// Takes in as many calls as this turn may. Answers whether the next turn may take in more.
    pub(super) fn take_in(&mut self, now: Now) -> bool {
        for _ in 0..self.pace.calls() {
            let Some(call) = self.intake.pop_front() else { return false };
            let bytes = match &call {
                Intake::Enqueue(enqueue, _) => enqueue.jobs.iter().map(|job| job.bytes).sum(),
                Intake::Cancel(..) => SMALL_RECORD,
            };
            if !self.writer.fits(bytes) {
                self.intake.push_front(call);
                return false;
            }
            self.pace.took_in();
            match call {
                Intake::Enqueue(enqueue, reply) => self.enqueue(now, enqueue, reply),
                Intake::Cancel(cancel, reply) => self.cancel(now, cancel, reply),
            }
        }
        self.pace.calls() > 0
    }

    fn enqueue(&mut self, now: Now, Enqueue { jobs, room }: Enqueue, reply: Later<Result<Vec<Receipt>, EnqueueError>>) {
        if let Some(full) = self.what_is_full(now, &jobs) {
            self.wants_room |= full == JOURNAL_BYTES;
            // Refusals reveal decided facts too: they wait like every answer.
            return self.answer_call(move || {
                reply.give(Err(EnqueueError::Full(full)));
                drop(room);
            });
        }
        let mut receipts = Vec::with_capacity(jobs.len());
        for NewJob { job, key, due, .. } in jobs {
            if let Some(holder) = key.as_ref().and_then(|key| self.writer.queue().holder(key, now.wall)) {
                receipts.push(Receipt::existing(JobId::of(holder), self.writer.queue().last()));
                continue;
            }
            let (due, wake) = match due {
                Due::After(wait) => (now.wall + wait, Wake::Steady(now.steady + wait)),
                Due::At(due) => (due, Wake::Wall(due)),
            };
            let op = Op::Enqueue { now: now.wall, due, key, job: job.clone() };
            let Some((seq, Change::Enqueued(ticket))) = self.decide(now, op) else { continue };
            if let Some(live) = self.writer.queue().get(ticket) {
                self.schedule.insert(entry(ticket, live, wake));
            }
            self.skews.stored(ticket, now);
            receipts.push(Receipt::new(JobId::of(ticket), seq));
            self.effects.push(seq, Effect::Enqueued { ticket, job });
        }
        self.answer_call(move || {
            reply.give(Ok(receipts));
            drop(room);
        });
    }

    /// The bound that these jobs would break. Those whose key is taken store nothing: asking again is never refused.
    fn what_is_full(&self, now: Now, jobs: &[NewJob]) -> Option<&'static str> {
        let limits = &self.rules.limits;
        let queue = self.writer.queue();
        let is_new = |new: &&NewJob| new.key.as_ref().is_none_or(|key| queue.holder(key, now.wall).is_none());
        let jobs: Vec<&NewJob> = jobs.iter().filter(is_new).collect();
        let weight: u64 = jobs.iter().map(|new| new.job.weight()).sum();
        let bytes: u64 = jobs.iter().map(|new| new.bytes).sum();
        let keys = jobs.iter().filter(|new| new.key.is_some()).count();
        let bounds = [
            // Only a directory that somebody made up has come so far.
            (!jobs.is_empty() && queue.was_issued(Ticket(u64::MAX - jobs.len() as u64)), "numbers of tickets"),
            (!jobs.is_empty() && queue.pending() + queue.running() + jobs.len() > limits.pending, "pending tickets"),
            (queue.weight() + weight > limits.pending_bytes && weight > 0, "payload bytes of pending tickets"),
            (keys > 0 && queue.keys_left_at(now.wall, keys) + keys > limits.keys, "keys"),
            (self.targets_are_full(&jobs), "targets"),
            (self.journal_room(limits.capacity) < bytes, JOURNAL_BYTES),
        ];
        bounds.into_iter().find_map(|(full, what)| full.then_some(what))
    }

    /// A target counts with its breaker, with its waiting tickets, or with both.
    fn targets_are_full(&self, jobs: &[&NewJob]) -> bool {
        let is_known = |target: &Target| self.targets.contains_key(target) || self.schedule.knows(target);
        let new: HashSet<&Target> = jobs.iter().filter_map(|new| new.job.target.as_ref()).filter(|target| !is_known(target)).collect();
        // The union costs a walk over all targets: only where the sum is near the limit.
        let most = self.targets.len() + self.schedule.targets() + new.len();
        !new.is_empty() && most > self.rules.limits.targets && {
            let idle = self.targets.keys().filter(|target| !self.schedule.knows(target)).count();
            idle + self.schedule.targets() + new.len() > self.rules.limits.targets
        }
    }

    /// Bytes of the journal that are neither used nor kept free so that `attempts` can end. New work leaves room for a whole
    /// pool of them, so that it never takes the place of what waits.
    pub(super) fn journal_room(&self, attempts: u32) -> u64 {
        let limits = &self.rules.limits;
        let taken = self.status.journal_bytes() + self.writer.unwritten_bytes() + limits.reserve(attempts);
        limits.journal_bytes.saturating_sub(taken)
    }

    /// Whether one more attempt could begin, and all that run then could end.
    pub(super) fn has_room_for_an_attempt(&self) -> bool {
        let running = u32::try_from(self.writer.queue().running()).unwrap_or(u32::MAX);
        self.journal_room(running.saturating_add(1)) >= SMALL_RECORD
    }

    fn cancel(&mut self, now: Now, Cancel { ticket, room }: Cancel, reply: Later<Result<Cancelled, CallError>>) {
        let queue = self.writer.queue();
        let job = queue.get(ticket).map(|live| live.job.clone());
        let answer = if queue.was_issued(ticket) { Cancelled::AlreadyEnded } else { Cancelled::NotFound };
        let answer = if let Some(job) = job
            && let Some((seq, Change::Cancelled { was_running })) = self.decide(now, Op::Cancel { ticket })
        {
            self.schedule.remove(ticket);
            let attempt = self.running.get(&ticket).map(|(attempt, _)| *attempt).filter(|_| was_running);
            self.effects.push(seq, Effect::Cancelled { ticket, attempt, job });
            if was_running { Cancelled::Stopping } else { Cancelled::Cancelled }
        } else {
            answer
        };
        self.answer_call(move || {
            reply.give(Ok(answer));
            drop(room);
        });
    }

    /// Answers at once what changes nothing; the caller's slot is there only after the handler has returned.
    pub(super) fn refuse(&mut self, ctx: &mut Context<Self>, answer: impl FnOnce() + 'static) {
        ctx.notify(Refuse(Box::new(answer)));
    }
}

impl Handler<Enqueue> for QueueActor {
    type Result = Later<Result<Vec<Receipt>, EnqueueError>>;

    fn handle(&mut self, enqueue: Enqueue, ctx: &mut Context<Self>) -> Self::Result {
        let (response, reply) = Later::new();
        match self.stage.refusal() {
            Some(why) => self.refuse(ctx, move || reply.give(Err(why.into()))),
            None => {
                self.pace.called();
                self.intake.push_back(Intake::Enqueue(enqueue, reply));
                self.request_turn(ctx);
            }
        }
        response
    }
}

impl Handler<Cancel> for QueueActor {
    type Result = Later<Result<Cancelled, CallError>>;

    fn handle(&mut self, cancel: Cancel, ctx: &mut Context<Self>) -> Self::Result {
        let (response, reply) = Later::new();
        match self.stage.refusal() {
            Some(why) => self.refuse(ctx, move || reply.give(Err(why))),
            None => {
                self.pace.called();
                self.intake.push_back(Intake::Cancel(cancel, reply));
                self.request_turn(ctx);
            }
        }
        response
    }
}

/// What a call hears that the journal has no room for.
const JOURNAL_BYTES: &str = "journal bytes";

/// An answer that waits for nothing.
#[derive(Message)]
#[rtype(result = "()")]
struct Refuse(Box<dyn FnOnce()>);

impl Handler<Refuse> for QueueActor {
    type Result = ();

    fn handle(&mut self, Refuse(answer): Refuse, _: &mut Context<Self>) {
        self.clock.stir();
        answer();
    }
}
