//! Calls that change something: each waits for room in the batch, or hears at once what is full. Those of one sort come in the order
//! in which they were made; a cancellation may pass calls that store, whose answers nobody has yet.

use std::collections::HashSet;
use std::sync::Arc;

use actix::{Context, Handler};
use journeyman_core::queue::Change;
use journeyman_core::schedule::{Entry, Wake};
use journeyman_core::{JobId, Now, Op, Packed, Route, Span, Target, Ticket};

use super::effects::Effect;
use super::{QueueActor, SMALL_RECORD, due_after, pending};
use crate::admission::Room;
use crate::answers::{Cancelled, Receipt};
use crate::error::EnqueueError;
use crate::messages::{Called, Cancel, Due, Enqueue, Few, NewJob, Reply};

/// Exchanges the route that calls for jobs of one kind share for the queue's own. Each call counts one more that has it, on a thread of
/// its own; were the queue to look at it and count it off for each job, the two would be in each other's way. So it knows it by its place
/// in memory, and counts off all of a turn in one go.
#[derive(Default)]
pub(super) struct Ways {
    /// That of the last call which had none of its own, and the queue's.
    last: Option<(Arc<Route>, Arc<Route>)>,
    left: Vec<Arc<Route>>,
}

impl Ways {
    /// Gives the job the queue's route, if that is known; else answers that of its call.
    fn leave(&mut self, job: &mut Packed) -> Option<Arc<Route>> {
        match &self.last {
            Some((calling, own)) if Arc::ptr_eq(calling, job.route()) => {
                self.left.push(job.share(own.clone()));
                None
            }
            // One that has a target is of its call alone.
            _ => Some(job.route()).filter(|route| route.target.is_none()).cloned(),
        }
    }

    fn learn(&mut self, calling: Option<Arc<Route>>, own: &Arc<Route>) {
        if let Some(calling) = calling {
            self.last = Some((calling, own.clone()));
        }
    }

    fn give_back(&mut self) {
        self.left.clear();
    }
}

/// A call that waits for its turn.
pub(super) enum Intake {
    Enqueue(Enqueue),
    Cancel(Cancel),
}

impl QueueActor {
    /// Takes in as many calls as this turn may. Answers whether the next turn may take in more.
    pub(super) fn take_in(&mut self, now: Now) -> bool {
        let may_take_more = self.take_in_calls(now);
        self.ways.give_back();
        may_take_more
    }

    fn take_in_calls(&mut self, now: Now) -> bool {
        for _ in 0..self.pace.calls() {
            let Some(call) = self.intake.pop_front() else { return false };
            let bytes = match &call {
                Intake::Enqueue(enqueue) => enqueue.jobs.iter().map(|job| job.bytes).sum(),
                Intake::Cancel(_) => SMALL_RECORD,
            };
            if !self.writer.fits(bytes) {
                self.intake.push_front(call);
                return false;
            }
            self.pace.took_in();
            match call {
                Intake::Enqueue(enqueue) => self.enqueue(now, enqueue),
                Intake::Cancel(cancel) => self.cancel(now, cancel),
            }
        }
        self.pace.calls() > 0
    }

    fn enqueue(&mut self, now: Now, Enqueue { jobs, room, reply }: Enqueue) {
        if let Some(full) = self.what_is_full(now, &jobs) {
            self.wants_room |= full == JOURNAL_BYTES;
            // Refusals reveal decided facts too: they wait like every answer.
            return self.answer_call(move || {
                drop(room);
                reply.give(Err(EnqueueError::Full(full)));
            });
        }
        let (mut receipts, mut routes) = (Few::with_capacity(jobs.len()), Few::<(Arc<Route>, u32)>::new());
        for NewJob { mut job, key, due, .. } in jobs {
            if let Some(holder) = key.as_ref().and_then(|key| self.writer.queue().holder(key, now.wall)) {
                receipts.push(Receipt::existing(JobId::of(holder), self.writer.queue().last()));
                continue;
            }
            let (due, wake) = match due {
                Due::After(Span(0)) => (now.wall, Some(Wake::AtOnce)),
                Due::After(wait) => (due_after(now, wait), None),
                Due::At(due) => (due, None),
            };
            let calling = self.ways.leave(&mut job);
            let op = Op::Enqueue { now: now.wall, due, key, job };
            let Some((seq, Change::Enqueued(ticket))) = self.decide(now, op) else { continue };
            self.skews.stored(ticket, now);
            receipts.push(Receipt::new(JobId::of(ticket), seq));
            if let Some(entry) = pending(self.writer.queue(), &self.skews, ticket) {
                self.ways.learn(calling, entry.route);
                self.schedule.insert(Entry { wake: wake.unwrap_or(entry.wake), ..entry });
                match routes.last_mut() {
                    Some((route, count)) if Arc::ptr_eq(route, entry.route) => *count += 1,
                    _ => routes.push((entry.route.clone(), 1)),
                }
            }
        }
        self.effects.push(self.writer.queue().last(), Effect::Stored { receipts, routes, reply, room: Some(room) });
    }

    /// The bound that these jobs would break. Those whose key is taken store nothing: asking again is never refused.
    fn what_is_full(&self, now: Now, jobs: &[NewJob]) -> Option<&'static str> {
        let limits = &self.rules.limits;
        let queue = self.writer.queue();
        let is_new = |new: &&NewJob| new.key.as_ref().is_none_or(|key| queue.holder(key, now.wall).is_none());
        let (mut count, mut weight, mut bytes, mut keys) = (0, 0, 0, 0);
        for new in jobs.iter().filter(is_new) {
            count += 1;
            weight += new.job.weight();
            bytes += new.bytes;
            keys += usize::from(new.key.is_some());
        }
        let bounds = [
            // Only a directory that somebody made up has come so far.
            (count > 0 && queue.was_issued(Ticket(u64::MAX - count as u64)), "numbers of tickets"),
            (count > 0 && queue.pending() + queue.running() + count > limits.pending, "pending tickets"),
            (queue.weight() + weight > limits.pending_bytes && weight > 0, "payload bytes of pending tickets"),
            (keys > 0 && queue.keys_left_at(now.wall, keys) + keys > limits.keys, "keys"),
            (self.targets_are_full(jobs.iter().filter(|new| new.job.target().is_some()).filter(is_new)), "targets"),
            (self.journal_room(limits.capacity) < bytes, JOURNAL_BYTES),
        ];
        bounds.into_iter().find_map(|(full, what)| full.then_some(what))
    }

    /// A target counts with its breaker, with its waiting tickets, or with both.
    fn targets_are_full<'a>(&self, jobs: impl Iterator<Item = &'a NewJob>) -> bool {
        let is_known = |target: &Target| self.targets.contains_key(target) || self.schedule.knows(target);
        let new: HashSet<&Target> = jobs.filter_map(|new| new.job.target()).filter(|target| !is_known(target)).collect();
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

    fn cancel(&mut self, now: Now, Cancel { ticket, room, reply }: Cancel) {
        let queue = self.writer.queue();
        let (route, is_away) = queue.get(ticket).map(|live| (live.job.route().clone(), live.job.is_away())).unzip();
        let answer = if queue.was_issued(ticket) { Cancelled::AlreadyEnded } else { Cancelled::NotFound };
        // The queue will have forgotten it when the schedule has to know.
        let place = pending(queue, &self.skews, ticket).map(|Entry { priority, rank, wake, .. }| (priority, rank, wake));
        let attempt = queue.get(ticket).and_then(|live| live.phase().attempt());
        let answer = if let Some(route) = route
            && let Some((seq, Change::Cancelled { was_running })) = self.decide(now, Op::Cancel { ticket })
        {
            if let Some((priority, rank, wake)) = place {
                self.schedule.remove(Entry { ticket, route: &route, priority, rank, wake });
            }
            if is_away == Some(true) {
                self.away.forget(ticket);
            }
            if let Some(attempt) = attempt {
                self.watched.entry(ticket).or_insert((attempt, None));
            }
            self.effects.push(seq, Effect::Cancelled { ticket, attempt, route });
            if was_running { Cancelled::Stopping } else { Cancelled::Cancelled }
        } else {
            answer
        };
        self.answer_call(move || {
            drop(room);
            reply.give(Ok(answer));
        });
    }

    /// Answers at once what changes nothing. As with every answer, the place of the call is free when its caller hears.
    pub(super) fn refuse<T, E>(&self, reply: Reply<Result<T, E>>, room: Room, why: impl Into<E>) {
        self.clock.stir();
        drop(room);
        reply.give(Err(why.into()));
    }

    /// Takes all the calls that store jobs out of the list where they come in.
    pub(super) fn take_calls(&mut self, ctx: &mut Context<Self>) {
        for enqueue in self.links.calls.take() {
            match self.stage.refusal() {
                // Its caller has gone while it waited here.
                _ if !enqueue.reply.is_wanted() => {}
                Some(why) => self.refuse(enqueue.reply, enqueue.room, why),
                None => self.call(Intake::Enqueue(enqueue), ctx),
            }
        }
    }

    fn call(&mut self, call: Intake, ctx: &mut Context<Self>) {
        self.pace.called();
        self.intake.push_back(call);
        self.request_turn(ctx);
    }
}

impl Handler<Called> for QueueActor {
    type Result = ();

    fn handle(&mut self, _: Called, ctx: &mut Context<Self>) {
        // Else all of them are taken when the batch has waited for them, and only the first had to tell.
        if !self.pace.is_gathering_callers() {
            self.take_calls(ctx);
        }
    }
}

impl Handler<Cancel> for QueueActor {
    type Result = ();

    fn handle(&mut self, cancel: Cancel, ctx: &mut Context<Self>) {
        match self.stage.refusal() {
            _ if !cancel.reply.is_wanted() => {}
            Some(why) => self.refuse(cancel.reply, cancel.room, why),
            None => self.call(Intake::Cancel(cancel), ctx),
        }
    }
}

/// What a call hears that the journal has no room for.
const JOURNAL_BYTES: &str = "journal bytes";
