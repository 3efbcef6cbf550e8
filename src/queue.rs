//! The state machine: which tickets live, and what each op does to them. One function, [`Queue::step`], moves it, live
//! and in replay alike. It knows no clock, no chance, no disk, and no policy: whether a ticket may be taken, and when a
//! failed one is due again, is decided outside and told to it.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;

use crate::bugs::{self, Bug};
use crate::ids::{Attempt, Epoch, Key, Seq, Ticket};
use crate::job::{End, Fault};
pub use crate::live::{Live, Phase};
use crate::op::{Op, Record};
use crate::packed::{Packed, Route};
use crate::table::Table;
use crate::time::Time;

/// The durable state of one partition: what every replay of its journal comes to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    last: Seq,
    epoch: Epoch,
    issued: Ticket,
    tickets: Table<Live>,
    routes: Routes,
    keys: HashMap<Key, Holder>,
    /// Keys of ended tickets by the end of their window.
    expiring: BTreeSet<(Time, Ticket, Key)>,
    running: usize,
    weight: u64,
    /// Of it, bytes of payloads that are somewhere else.
    away: u64,
    live_bytes: u64,
    ends: Ends,
}

/// The routes of live tickets, each once: tickets are many more. Those that no ticket has any more go when about as many came as were left
/// the last time.
#[derive(Debug, Default)]
struct Routes {
    all: HashSet<Arc<Route>>,
    /// The next ticket is often of the same.
    last: Option<Arc<Route>>,
    swept: usize,
}

/// Nothing is known by them that tickets do not know.
impl PartialEq for Routes {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Routes {}

/// Of another queue: that one keeps its own.
impl Clone for Routes {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Routes {
    fn shared(&mut self, route: &Arc<Route>) -> Arc<Route> {
        if let Some(last) = self.last.as_ref().filter(|last| *last == route) {
            return last.clone();
        }
        let shared = self.all.get(route).cloned().unwrap_or_else(|| {
            if self.all.len() > self.swept.saturating_mul(2) + ROUTES_KEPT {
                self.all.retain(|route| Arc::strong_count(route) > 1);
                self.swept = self.all.len();
            }
            // One of its own: two threads that count who has the same one would be in each other's way.
            let own = Arc::new(Route::clone(route));
            self.all.insert(own.clone());
            own
        });
        self.last = Some(shared.clone());
        shared
    }
}

/// How many tickets ended in each way, over the whole life of the journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ends {
    /// Did what they were asked.
    pub done: u64,
    /// Refused for good.
    pub rejected: u64,
    /// Failed and must not be repeated.
    pub unsafe_to_repeat: u64,
    /// Failed with no attempt left.
    pub spent: u64,
    /// Overtaken by their deadline.
    pub late: u64,
    /// Cancelled.
    pub cancelled: u64,
}

/// About what a snapshot takes for a ticket.
fn bytes_of(live: &Live) -> u64 {
    let job = &live.job;
    let names = job.kind().as_str().len() + job.target().map_or(0, |target| target.as_str().len()) + key_bytes(live.key());
    let fault = live.fault().map_or(0, |fault| fault.text().len());
    (job.body_len() + TICKET_BYTES + names + fault) as u64
}

/// Bytes of its payload, if that is somewhere else.
fn away_bytes(live: &Live) -> u64 {
    if live.job.is_away() { live.job.payload_bytes() } else { 0 }
}

impl Ends {
    /// The count of `end`.
    #[must_use]
    pub const fn of(&self, end: End) -> u64 {
        match end {
            End::Done => self.done,
            End::Rejected => self.rejected,
            End::Unsafe => self.unsafe_to_repeat,
            End::Spent => self.spent,
            End::Late => self.late,
        }
    }

    /// All of them.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.done + self.rejected + self.unsafe_to_repeat + self.spent + self.late + self.cancelled
    }

    fn checked_total(&self) -> Option<u64> {
        let counts = [self.done, self.rejected, self.unsafe_to_repeat, self.spent, self.late, self.cancelled];
        counts.into_iter().try_fold(0u64, u64::checked_add)
    }

    const fn count(&mut self, end: End) {
        match end {
            End::Done => self.done += 1,
            End::Rejected => self.rejected += 1,
            End::Unsafe => self.unsafe_to_repeat += 1,
            End::Spent => self.spent += 1,
            End::Late => self.late += 1,
        }
    }
}

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A new ticket is pending.
    Enqueued(Ticket),
    /// The ticket runs.
    Selected(Attempt),
    /// The ticket is gone.
    Completed(End),
    /// The ticket is gone; whether an attempt of it was running.
    Cancelled {
        /// An attempt may still be finishing.
        was_running: bool,
    },
    /// The ticket is pending again, with a failure more.
    Requeued,
    /// The ticket is pending again.
    Deferred,
    /// A new writer has begun.
    Led,
}

/// Why an op did not fit the state. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    /// The key is taken by this ticket, which lives or ended within the key's window.
    #[error("the key is taken by ticket {0}")]
    Duplicate(Ticket),
    /// No such ticket lives.
    #[error("no such ticket lives")]
    Unknown,
    /// The ticket is not pending.
    #[error("the ticket is not pending")]
    NotPending,
    /// The ticket does not run, or runs by another attempt.
    #[error("the attempt is not the one that runs")]
    Stale,
    /// The epoch does not rise.
    #[error("the epoch does not rise")]
    EpochNotRising,
    /// The record is not the next one.
    #[error("the record is not the next one")]
    OutOfOrder,
    /// All tickets have been issued, or so it says on disk.
    #[error("no number is left for another ticket")]
    UsedUp,
}

impl Queue {
    /// Applies one record. `now` is the time of its batch. Total and deterministic: a record that does not fit changes
    /// nothing and says why. Live, that is an answer; in replay of a sound journal it cannot be.
    ///
    /// # Errors
    /// [`Misfit`], with the state as it was.
    pub fn step(&mut self, seq: Seq, now: Time, record: &Record) -> Result<Change, Misfit> {
        if self.last.0.checked_add(1) != Some(seq.0) {
            return Err(Misfit::OutOfOrder);
        }
        let change = match record {
            Record::Lead { epoch } => self.lead(*epoch),
            Record::Op(Op::Enqueue { now, due, key, job }) => self.enqueue(*now, *due, key.as_ref(), job),
            Record::Op(Op::Select { ticket }) => self.select(*ticket, Attempt(seq)),
            Record::Op(Op::Complete { ticket, attempt, end, .. }) => self.complete(*ticket, *attempt, *end, now),
            Record::Op(Op::Cancel { ticket }) => self.cancel(*ticket, now),
            Record::Op(Op::Requeue { ticket, attempt, due, fault }) => self.requeue(*ticket, *attempt, *due, fault),
            Record::Op(Op::Defer { ticket, attempt, due }) => self.defer(*ticket, *attempt, *due),
        }?;
        self.last = seq;
        Ok(change)
    }

    fn lead(&mut self, epoch: Epoch) -> Result<Change, Misfit> {
        if epoch <= self.epoch {
            return Err(Misfit::EpochNotRising);
        }
        self.epoch = epoch;
        Ok(Change::Led)
    }

    fn enqueue(&mut self, now: Time, due: Time, key: Option<&Key>, job: &Packed) -> Result<Change, Misfit> {
        if let Some(holder) = key.and_then(|key| self.holder(key, now)) {
            return Err(Misfit::Duplicate(holder));
        }
        if self.issued.next() == self.issued {
            return Err(Misfit::UsedUp);
        }
        self.issued = self.issued.next();
        let ticket = self.issued;
        if let Some(key) = key {
            self.forget_expired(now);
            let before = self.keys.insert(key.clone(), Holder { ticket, until: None });
            if let Some(Holder { ticket, until: Some(until) }) = before {
                self.live_bytes -= ended_bytes(key);
                self.expiring.remove(&(until, ticket, key.clone()));
            }
        }
        self.insert(ticket, Live::new(job.clone(), key.cloned(), due));
        Ok(Change::Enqueued(ticket))
    }

    fn select(&mut self, ticket: Ticket, attempt: Attempt) -> Result<Change, Misfit> {
        let live = self.tickets.get_mut(ticket).ok_or(Misfit::Unknown)?;
        if live.is_running() {
            return Err(Misfit::NotPending);
        }
        live.select(attempt);
        self.running += 1;
        Ok(Change::Selected(attempt))
    }

    fn complete(&mut self, ticket: Ticket, attempt: Attempt, end: End, now: Time) -> Result<Change, Misfit> {
        self.run_of(ticket, attempt)?;
        self.remove(ticket, now);
        self.ends.count(end);
        Ok(Change::Completed(end))
    }

    fn cancel(&mut self, ticket: Ticket, now: Time) -> Result<Change, Misfit> {
        let live = self.remove(ticket, now).ok_or(Misfit::Unknown)?;
        self.ends.cancelled += 1;
        Ok(Change::Cancelled { was_running: live.is_running() })
    }

    fn requeue(&mut self, ticket: Ticket, attempt: Attempt, due: Time, fault: &Fault) -> Result<Change, Misfit> {
        let live = self.run_of(ticket, attempt)?;
        let before = bytes_of(live);
        live.requeue(due, fault);
        let after = bytes_of(live);
        self.live_bytes = self.live_bytes - before + after;
        self.running -= 1;
        Ok(Change::Requeued)
    }

    fn defer(&mut self, ticket: Ticket, attempt: Attempt, due: Time) -> Result<Change, Misfit> {
        self.run_of(ticket, attempt)?.defer(due);
        self.running -= 1;
        Ok(Change::Deferred)
    }

    /// The ticket, when `attempt` is the one that runs it.
    fn run_of(&mut self, ticket: Ticket, attempt: Attempt) -> Result<&mut Live, Misfit> {
        let live = self.tickets.get_mut(ticket).ok_or(Misfit::Unknown)?;
        if live.phase() == (Phase::Running { attempt }) { Ok(live) } else { Err(Misfit::Stale) }
    }

    fn insert(&mut self, ticket: Ticket, mut live: Live) {
        drop(live.job.share(self.routes.shared(live.job.route())));
        self.running += usize::from(live.is_running());
        self.weight += live.job.weight();
        self.away += away_bytes(&live);
        self.live_bytes += bytes_of(&live);
        self.tickets.insert(ticket, live);
    }

    fn remove(&mut self, ticket: Ticket, now: Time) -> Option<Live> {
        let live = self.tickets.remove(ticket)?;
        self.running -= usize::from(live.is_running());
        self.weight -= live.job.weight();
        self.away -= away_bytes(&live);
        self.live_bytes -= bytes_of(&live);
        if let Some(key) = live.key() {
            let until = now + live.job.key_window();
            self.remember(until, ticket, key.clone());
        }
        Some(live)
    }

    /// Keeps the key of an ended ticket until its window is over.
    fn remember(&mut self, until: Time, ticket: Ticket, key: Key) {
        self.live_bytes += ended_bytes(&key);
        self.keys.insert(key.clone(), Holder { ticket, until: Some(until) });
        self.expiring.insert((until, ticket, key));
    }

    /// Drops some of the keys whose windows are over: more than come with one enqueue, and few enough that the first one after a long
    /// silence does not pay for all of them. One that is still there is taken by nobody: see [`Queue::holder`].
    fn forget_expired(&mut self, now: Time) {
        for _ in 0..FORGOTTEN_AT_ONCE {
            let Some((_, _, key)) = self.expiring.first().filter(|(until, ..)| *until <= now) else { return };
            self.live_bytes -= ended_bytes(key);
            self.keys.remove(key);
            self.expiring.pop_first();
        }
    }

    /// The ticket that holds `key` at `now`.
    #[must_use]
    pub fn holder(&self, key: &Key, now: Time) -> Option<Ticket> {
        let holder = self.keys.get(key)?;
        holder.until.is_none_or(|until| now < until).then_some(holder.ticket)
    }

    /// The live ticket.
    #[must_use]
    pub fn get(&self, ticket: Ticket) -> Option<&Live> {
        self.tickets.get(ticket)
    }

    /// Whether `attempt` is the one that runs the ticket.
    #[must_use]
    pub fn is_run_by(&self, ticket: Ticket, attempt: Attempt) -> bool {
        self.get(ticket).is_some_and(|live| live.phase() == Phase::Running { attempt })
    }

    /// The route of the ticket that came last: that of the next one is often the same.
    pub(crate) const fn last_route(&self) -> Option<&Arc<Route>> {
        self.routes.last.as_ref()
    }

    /// All live tickets, in the order of their numbers.
    pub fn tickets(&self) -> impl Iterator<Item = (Ticket, &Live)> {
        self.tickets.iter()
    }

    /// The live tickets from `first` on, in the order of their numbers. Finding the first costs the logarithm of how many live.
    pub fn tickets_from(&self, first: Ticket) -> impl Iterator<Item = (Ticket, &Live)> {
        self.tickets.iter_from(first)
    }

    /// The newest of the tickets that live; 0 when none does.
    #[must_use]
    pub fn last_ticket(&self) -> Ticket {
        self.tickets.last().unwrap_or_default()
    }

    /// The last record that was applied.
    #[must_use]
    pub const fn last(&self) -> Seq {
        self.last
    }

    /// The epoch of the last writer.
    #[must_use]
    pub const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Whether the ticket was ever given out, whatever became of it.
    #[must_use]
    pub fn was_issued(&self, ticket: Ticket) -> bool {
        ticket != Ticket(0) && ticket <= self.issued
    }

    /// Tickets that wait.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.tickets.len() - self.running
    }

    /// Tickets that run.
    #[must_use]
    pub const fn running(&self) -> usize {
        self.running
    }

    /// Keys that are remembered, of live and of ended tickets.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.keys.len()
    }

    /// Keys that would still be remembered after so many keyed Enqueues at `now`, themselves not counted.
    #[must_use]
    pub fn keys_left_at(&self, now: Time, enqueues: usize) -> usize {
        let most = enqueues.saturating_mul(FORGOTTEN_AT_ONCE);
        self.keys.len() - self.expiring.iter().take(most).take_while(|(until, ..)| *until <= now).count()
    }

    /// Bytes of payload and meta of all live tickets.
    #[must_use]
    pub const fn weight(&self) -> u64 {
        self.weight
    }

    /// Those of them that are in memory.
    #[must_use]
    pub const fn weight_in_memory(&self) -> u64 {
        self.weight - self.away
    }

    /// Whether a payload of this ticket is in memory, and somewhere else it would take none.
    #[must_use]
    pub fn may_go_away(&self, ticket: Ticket) -> bool {
        self.get(ticket).is_some_and(|live| !live.job.is_away() && live.job.payload_bytes() > 0)
    }

    /// Lets go of the payload of this ticket: whoever asks has it somewhere else. All else of the state, and what a step does, is as it was.
    /// Answers false when no such ticket lives.
    pub fn let_go(&mut self, ticket: Ticket) -> bool {
        let Some(live) = self.tickets.get_mut(ticket) else { return false };
        if !live.job.is_away() {
            live.job = live.job.away();
            self.away += away_bytes(live);
        }
        true
    }

    /// About the bytes that a snapshot of it takes: payloads, names, keys, faults, and a fixed part for each ticket.
    #[must_use]
    pub const fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    /// How tickets ended so far.
    #[must_use]
    pub const fn ends(&self) -> Ends {
        self.ends
    }

    /// Counts everything again and compares; for tests.
    ///
    /// # Panics
    /// When a counter or an index disagrees with the tickets.
    pub fn check(&self) {
        let running = self.tickets().filter(|(_, live)| live.is_running()).count();
        assert_eq!(self.running, running, "running tickets");
        assert_eq!(self.weight, self.tickets().map(|(_, live)| live.job.weight()).sum::<u64>(), "weight");
        assert_eq!(self.away, self.tickets().map(|(_, live)| away_bytes(live)).sum::<u64>(), "payloads that are away");
        let tickets: u64 = self.tickets().map(|(_, live)| bytes_of(live)).sum();
        let keys: u64 = self.expiring.iter().map(|(.., key)| ended_bytes(key)).sum();
        assert_eq!(self.live_bytes, tickets + keys, "live bytes");
        assert_eq!(self.issued.0, self.ends.total() + self.tickets.len() as u64, "every ticket lives or ended");
        assert!(self.tickets.last().is_none_or(|ticket| ticket <= self.issued), "issued");
        for (ticket, live) in self.tickets() {
            if let Some(key) = live.key() {
                assert_eq!(self.keys.get(key), Some(&Holder { ticket, until: None }), "key of {ticket}");
            }
        }
        let held = self.keys.values().filter(|holder| holder.until.is_none()).count();
        assert_eq!(held, self.tickets().filter(|(_, live)| live.key().is_some()).count(), "live keys");
        for (until, ticket, key) in &self.expiring {
            assert_eq!(self.keys.get(key), Some(&Holder { ticket: *ticket, until: Some(*until) }), "ended key of {ticket}");
        }
        assert_eq!(self.keys.len() - held, self.expiring.len(), "ended keys");
    }
}

/// What of a queue is neither a ticket nor a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    pub last: Seq,
    pub epoch: Epoch,
    pub issued: Ticket,
    pub ends: Ends,
}

/// A key of an ended ticket, in the order in which their windows end.
pub(crate) type EndedKey = (Time, Ticket, Key);

/// The way out into a snapshot, piece by piece, and back in. What comes in is judged: a queue that is taken in whole is one
/// that [`Queue::check`] finds no fault with.
impl Queue {
    pub(crate) fn facts(&self) -> Facts {
        let forgets = bugs::on(Bug::NoSeqPersistence) && self.pieces() == 0;
        let (issued, ends) = if forgets { Default::default() } else { (self.issued, self.ends) };
        Facts { last: self.last, epoch: self.epoch, issued, ends }
    }

    pub(crate) fn tickets_after(&self, ticket: Ticket) -> impl Iterator<Item = (Ticket, &Live)> {
        self.tickets.iter_from(ticket).skip_while(move |(other, _)| *other == ticket)
    }

    pub(crate) fn ended_keys_after(&self, key: Option<&EndedKey>) -> impl Iterator<Item = &EndedKey> {
        self.expiring.range((key.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded))
    }

    /// How many tickets and ended keys it holds.
    pub(crate) fn pieces(&self) -> u64 {
        (self.tickets.len() + self.expiring.len()) as u64
    }

    pub(crate) fn of_facts(facts: Facts) -> Self {
        let Facts { last, epoch, issued, ends } = facts;
        Self { last, epoch, issued, ends, ..Self::default() }
    }

    /// Takes in a ticket. Tickets come in the order of their numbers, before all ended keys.
    pub(crate) fn take_in(&mut self, ticket: Ticket, live: Live) -> Result<(), &'static str> {
        let newest = self.last_ticket();
        if ticket <= newest || ticket > self.issued || !self.expiring.is_empty() {
            return Err("a ticket that was issued, behind the one before and before the ended keys");
        }
        if let Some(key) = live.key()
            && self.keys.insert(key.clone(), Holder { ticket, until: None }).is_some()
        {
            return Err("a key that no other ticket holds");
        }
        self.insert(ticket, live);
        Ok(())
    }

    /// Takes in the key of an ended ticket, behind all tickets and in the order of the ends of their windows.
    pub(crate) fn take_in_ended(&mut self, ended: EndedKey) -> Result<(), &'static str> {
        if self.expiring.last().is_some_and(|before| *before >= ended) {
            return Err("an ended key behind the one before");
        }
        let (until, ticket, key) = ended;
        if !self.was_issued(ticket) || self.tickets.get(ticket).is_some() || self.keys.contains_key(&key) {
            return Err("a key of an ended ticket, held by no other");
        }
        self.remember(until, ticket, key);
        Ok(())
    }

    /// Whether every ticket that was issued lives or ended.
    pub(crate) fn is_whole(&self) -> bool {
        self.ends.checked_total().and_then(|ended| ended.checked_add(self.tickets.len() as u64)) == Some(self.issued.0)
    }
}

fn key_bytes(key: Option<&Key>) -> usize {
    key.map_or(0, |key| key.as_str().len())
}

fn ended_bytes(key: &Key) -> u64 {
    (ENDED_BYTES + key.as_str().len()) as u64
}

/// The fixed part of a ticket in a snapshot: its length, tag, times and numbers.
const TICKET_BYTES: usize = 37;
/// So many routes are kept, whether a ticket has them or not.
const ROUTES_KEPT: usize = 64;
/// The fixed part of an ended key.
const ENDED_BYTES: usize = 20;
/// Keys that are forgotten with one keyed Enqueue, when their windows are over.
const FORGOTTEN_AT_ONCE: usize = 64;

/// Who holds a key: a live ticket, or an ended one until its window is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Holder {
    ticket: Ticket,
    until: Option<Time>,
}
