//! Payloads beyond what the memory is to hold: which are put away, and the attempts that wait until theirs is back. A job that waits is
//! put away when there are too many by the time that it is on disk; it is asked for when it is selected, so that it is mostly here when that
//! is on disk, and the attempt sets out. Knows no file.

use std::collections::VecDeque;
use std::mem;

use actix::{Context, Handler};
use journeyman_core::queue::Live;
use journeyman_core::{Attempt, Now, Packed, Ticket, Time};

use super::QueueActor;
use crate::config;
use crate::ledger::Ended;
use crate::messages::{Fetch, Fetched, Flight, Forget, PutAway, WentAway};
use crate::payloads::Desk;
use crate::status::Concern;

/// What is on its way to the disk and back, and what is to be.
#[derive(Default)]
pub(super) struct Away {
    /// Tickets that came to wait when there were too many payloads in memory.
    candidates: Vec<Ticket>,
    /// From here on others may be among the tickets: those that were found at the open, and those that the disk did not take.
    rest: Option<Ticket>,
    /// The last ticket whose Enqueue is on disk.
    newest: Ticket,
    /// The least of the tickets whose payloads are on their way to the disk.
    putting: Option<Ticket>,
    /// Whether the disk did not take what it was given last.
    is_full: bool,
    /// When it is asked again.
    again: Option<Time>,
    /// Of tickets that have ended.
    unwanted: Vec<Ticket>,
    /// Selected jobs whose payloads are to be asked for.
    wanted: Vec<(Ticket, Attempt, Packed)>,
    /// Since when they have been asked for, oldest first.
    asked: VecDeque<Time>,
    /// What has been asked for, or will be at the end of this turn.
    fetching: foldhash::HashMap<(Ticket, Attempt), Fetching>,
}

/// How far it is with an attempt whose payload is away: what comes first, its Select on disk or its payload, waits for the other.
enum Fetching {
    /// Neither is there.
    Asked,
    /// Its payload is there.
    Here(Packed),
    /// Its Select is on disk.
    Begun(Flight),
}

impl Away {
    /// All tickets up to this one were found at the open.
    pub(super) const fn found(&mut self, newest: Ticket) {
        self.newest = newest;
        self.rest = Some(Ticket(0));
    }

    /// The Enqueue of this ticket is on disk.
    pub(super) const fn stored(&mut self, ticket: Ticket) {
        self.newest = ticket;
    }

    /// A ticket with a payload that is away has ended.
    pub(super) fn forget(&mut self, ticket: Ticket) {
        self.unwanted.push(ticket);
    }

    /// The job has been selected, and its payload will be wanted as soon as that is on disk.
    pub(super) fn want(&mut self, ticket: Ticket, attempt: Attempt, job: &Packed) {
        self.wanted.push((ticket, attempt, job.clone()));
        self.fetching.insert((ticket, attempt), Fetching::Asked);
    }

    /// The attempt begins, and is given back when its payload is here; else it is kept until then.
    pub(super) fn begin(&mut self, mut flight: Flight) -> Option<Flight> {
        let name = (flight.ticket, flight.attempt);
        match self.fetching.remove(&name) {
            Some(Fetching::Here(job)) => {
                flight.job = job;
                return Some(flight);
            }
            Some(Fetching::Asked | Fetching::Begun(_)) => {}
            // It went away since the job was selected.
            None => self.want(flight.ticket, flight.attempt, &flight.job),
        }
        self.fetching.insert(name, Fetching::Begun(flight));
        None
    }

    /// The attempt will not begin.
    pub(super) fn give_up(&mut self, ticket: Ticket, attempt: Attempt) {
        if !self.fetching.is_empty() {
            self.fetching.remove(&(ticket, attempt));
        }
    }

    /// A payload is here. Answers the attempt that has waited for it.
    fn is_here(&mut self, ticket: Ticket, attempt: Attempt, job: Packed) -> Option<Flight> {
        match self.fetching.remove(&(ticket, attempt))? {
            Fetching::Begun(mut flight) => {
                flight.job = job;
                Some(flight)
            }
            Fetching::Asked | Fetching::Here(_) => {
                self.fetching.insert((ticket, attempt), Fetching::Here(job));
                None
            }
        }
    }

    /// Asks for what is wanted.
    pub(super) fn ask(&mut self, now: Now, desk: &Desk) {
        if !self.wanted.is_empty() {
            self.asked.push_back(now.steady);
            desk.fetch.do_send(Fetch(mem::take(&mut self.wanted)));
        }
    }

    /// Since when a payload has been asked for that is not here.
    pub(super) fn waiting_since(&self) -> Option<Time> {
        self.asked.front().copied()
    }

    /// When a disk that was full is asked again.
    pub(super) const fn next_try(&self) -> Option<Time> {
        self.again
    }

    /// Puts off what is to be put away.
    fn put_off(&mut self, least: Option<Ticket>) {
        let least = self.candidates.drain(..).chain(least).chain(self.rest).min();
        self.rest = least;
    }
}

impl QueueActor {
    /// A ticket waits, and that is on disk: its payload goes, when there are too many in memory.
    pub(super) fn waits(&mut self, ticket: Ticket) {
        if self.writer.queue().weight_in_memory() <= self.rules.limits.payload_memory {
            return;
        }
        if self.away.candidates.len() >= config::CANDIDATES {
            self.away.put_off(None);
        }
        self.away.candidates.push(ticket);
    }

    /// Has as many payloads put away as there are too many in memory, but not more than a few at once. Answers whether it has to go on
    /// looking for them.
    pub(super) fn put_away(&mut self, now: Now) -> bool {
        if !self.away.unwanted.is_empty() {
            self.links.payloads.forget.do_send(Forget(mem::take(&mut self.away.unwanted)));
        }
        if self.away.putting.is_some() {
            return false;
        }
        let over = self.writer.queue().weight_in_memory().saturating_sub(self.rules.limits.payload_memory);
        if over == 0 {
            self.away.candidates.clear();
            self.away.rest = None;
            self.away.again = None;
            if mem::take(&mut self.away.is_full) {
                self.status.concern(Concern::Payloads, None);
            }
            return false;
        }
        if self.away.again.is_some_and(|at| at > now.steady) {
            self.away.put_off(None);
            return false;
        }
        self.away.again = None;
        let (jobs, is_all) = self.choose(over);
        if let Some(least) = jobs.iter().map(|(ticket, _)| *ticket).min() {
            self.away.putting = Some(least);
            self.links.payloads.put.do_send(PutAway(jobs));
            return false;
        }
        !is_all
    }

    /// Payloads of about so many bytes that may go; and whether there are no others. Those that came last go first: they are to run last.
    fn choose(&mut self, over: u64) -> (Vec<(Ticket, Packed)>, bool) {
        let most = over.min(config::PUT_AWAY_AT_ONCE);
        let (queue, away) = (self.writer.queue(), &mut self.away);
        let (mut jobs, mut bytes, mut looks) = (Vec::new(), 0, config::LOOKS_FOR_PAYLOADS);
        let mut take = |ticket, live: &Live| {
            if !live.is_running() && queue.may_go_away(ticket) {
                bytes += live.job.payload_bytes();
                jobs.push((ticket, live.job.clone()));
            }
            bytes < most
        };
        let mut is_enough = false;
        while !is_enough
            && looks > 0
            && let Some(ticket) = away.candidates.pop()
        {
            looks -= 1;
            is_enough = queue.get(ticket).is_some_and(|live| !take(ticket, live));
        }
        // Side by side on disk as they are in time.
        if let Some(first) = away.rest.filter(|_| !is_enough) {
            away.rest = None;
            for (ticket, live) in queue.tickets_from(first).take_while(|(ticket, _)| *ticket <= away.newest) {
                if is_enough || looks == 0 {
                    away.rest = Some(ticket);
                    break;
                }
                looks -= 1;
                is_enough = !take(ticket, live);
            }
        }
        jobs.sort_unstable_by_key(|(ticket, _)| *ticket);
        (jobs, away.rest.is_none() && away.candidates.is_empty())
    }
}

impl Handler<WentAway> for QueueActor {
    type Result = ();

    fn handle(&mut self, WentAway { tickets, is_full }: WentAway, ctx: &mut Context<Self>) {
        if !self.is_in_office() {
            return;
        }
        let least = self.away.putting.take();
        for ticket in tickets {
            // It ended meanwhile, when nobody knew that it was away.
            if !self.writer.let_go(ticket) {
                self.away.forget(ticket);
            }
        }
        self.away.is_full = is_full;
        self.away.again = is_full.then(|| self.clock.now().steady + config::PAYLOADS_PAUSE);
        if is_full {
            self.away.put_off(least);
        }
        self.request_turn(ctx);
    }
}

impl Handler<Fetched> for QueueActor {
    type Result = ();

    fn handle(&mut self, Fetched(fetched): Fetched, ctx: &mut Context<Self>) {
        if !self.is_in_office() {
            return;
        }
        let jobs = match fetched {
            Ok(jobs) => jobs,
            // The journal has it: the next queue reads it from there.
            Err(why) => return self.fail(&why),
        };
        self.away.asked.pop_front();
        let now = self.clock.now();
        for (ticket, attempt, job) in jobs {
            let Some(flight) = self.away.is_here(ticket, attempt, job) else { continue };
            let queue = self.writer.queue();
            match queue.get(ticket).filter(|_| queue.is_run_by(ticket, attempt)) {
                Some(live) => {
                    let (selected, target) = (self.selected(now, live, self.policy(live), flight), live.job.target().cloned());
                    self.set_out(now, selected, target);
                }
                // Cancelled meanwhile.
                None => flight.finish(Ended::NeverBegan),
            }
        }
        self.send_starts();
        self.request_turn(ctx);
    }
}
