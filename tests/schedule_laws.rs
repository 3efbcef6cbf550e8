//! Proves that the schedule, with all its indexes, says exactly what a list of tickets and a linear scan would say:
//! which ticket is next, what is held and why, and when to look again.

use std::collections::BTreeMap;
use std::sync::Arc;

use journeyman_core::packed::Route;
use journeyman_core::schedule::{self, Gate, Hold, Schedule, Wake};
use journeyman_core::time::Now;
use journeyman_core::{Target, Ticket, Time};
use quickcheck::{Arbitrary, Gen};

use crate::support::{Edgy, holds, kind_of, target_of};

const CASES: u64 = 1500;

/// Tickets, kinds and targets are few, so that they meet.
const TICKETS: u8 = 12;
const TARGETS: u8 = 3;
/// Kinds 0 and 1 are registered, kind 2 is not.
const KNOWN: [u8; 2] = [0, 1];

#[test]
fn the_next_ticket_is_the_least_of_what_is_due_and_not_held() {
    holds(CASES, |moves: Vec<Move>| {
        every_move(&moves, |schedule, naive| {
            let least = naive.runnable().min_by_key(|entry| (entry.priority, entry.rank, entry.ticket)).map(|entry| entry.ticket);
            assert_eq!(schedule.least(), least);
        });
    });
}

#[test]
fn what_is_counted_is_what_is_there() {
    holds(CASES, |moves: Vec<Move>| {
        every_move(&moves, |schedule, naive| {
            assert_eq!(schedule.len(), naive.entries.len());
            assert_eq!(schedule.is_empty(), naive.entries.is_empty());
            assert_eq!(schedule.runnable(), naive.runnable().count(), "runnable");
            assert_eq!(schedule.held(), naive.held().count(), "held");
            let known: Vec<_> = targets().filter(|target| naive.knows(target)).collect();
            assert_eq!(schedule.targets(), known.len(), "targets");
            for target in targets() {
                let here = naive.held().filter(|(entry, _)| entry.route.target.as_ref() == Some(&target));
                let held = here.filter(|(entry, spot)| naive.hold(entry, spot) == Some(Hold::Breaker)).count();
                assert_eq!(schedule.held_of(&target), held, "held by {target}");
                assert_eq!(schedule.knows(&target), known.contains(&target), "{target}");
                assert_eq!(schedule.gate(&target), naive.gate(&target), "{target}");
            }
        });
    });
}

#[test]
fn every_held_ticket_says_why_and_no_other_does() {
    holds(CASES, |moves: Vec<Move>| {
        every_move(&moves, |schedule, naive| {
            for (entry, spot) in &naive.entries {
                assert_eq!(schedule.hold(entry.told()), naive.hold(entry, spot), "{entry:?}");
            }
        });
    });
}

#[test]
fn the_next_wake_is_the_earliest_of_each_clock() {
    holds(CASES, |moves: Vec<Move>| {
        every_move(&moves, |schedule, naive| {
            let (mut steady, mut wall) = (Vec::new(), Vec::new());
            for (_, spot) in &naive.entries {
                match spot {
                    Spot::Waiting(Wake::Steady(at)) => steady.push(*at),
                    Spot::Waiting(Wake::Wall(at)) => wall.push(*at),
                    Spot::Waiting(Wake::AtOnce) | Spot::Ready | Spot::Aside(..) => {}
                }
            }
            for (_, gated) in &naive.gates {
                if let Gate::Held { until, .. } = gated.gate {
                    steady.push(until);
                }
            }
            assert_eq!(schedule.next_wake(), (steady.into_iter().min(), wall.into_iter().min()));
        });
    });
}

#[test]
fn waking_at_the_next_wake_is_never_in_vain() {
    holds(CASES, |moves: Vec<Move>| {
        let mut told = run(&moves);
        loop {
            let before = told.schedule.next_wake();
            let (steady, wall) = before;
            if (steady, wall) == (None, None) {
                break;
            }
            told.promote(Now { wall: wall.unwrap_or_default(), steady: steady.unwrap_or_default() }, usize::MAX);
            told.schedule.check();
            assert_ne!(told.schedule.next_wake(), before);
        }
    });
}

#[test]
fn a_held_lane_hides_no_ticket_of_another() {
    holds(CASES, |(moves, free): (Vec<Move>, Waiting)| {
        let mut told = run(&moves);
        told.insert(Entry { ticket: Ticket(1000), route: route_of(KNOWN[0], None), ..free.0 });
        let end = Time(u64::MAX);
        told.promote(Now { wall: end, steady: end }, usize::MAX);
        // Nothing holds this one: it comes when those before it have gone, whatever else is held.
        let others = std::iter::from_fn(|| {
            let next = told.schedule.take_least().expect("the free one at the latest");
            (next != Ticket(1000)).then_some(next)
        });
        assert!(others.count() <= TICKETS.into());
    });
}

#[test]
fn no_more_probes_are_out_at_once_than_the_gate_lets_through() {
    holds(CASES, |moves: Vec<Move>| {
        let mut told = Told::default();
        let mut naive = Naive::default();
        // Who was taken from each target since its gate began to probe, and has not settled.
        let mut out: Vec<(Target, Ticket)> = Vec::new();
        for step in &moves {
            if let Move::TakeLeast = step
                && let Some(ticket) = told.schedule.least()
                && let Some(target) = naive.find(ticket).and_then(|(entry, _)| entry.route.target.as_ref())
                && let Gate::Probing { probes } = told.schedule.gate(target)
            {
                // No ticket runs twice at once: when it is taken again, its last attempt is over.
                out.retain(|(_, other)| *other != ticket);
                out.push((target.clone(), ticket));
                let number = out.iter().filter(|(other, _)| other == target).count();
                assert!(number <= probes as usize, "{number} of {probes} probes of {target}");
            }
            if let Move::Settle(ticket, target) = step {
                out.retain(|probe| *probe != (target_of(*target), ticket_of(*ticket)));
            }
            told.apply(step);
            naive.apply(step);
            out.retain(|(target, _)| matches!(told.schedule.gate(target), Gate::Probing { .. }));
        }
    });
}

#[test]
fn a_gate_that_opens_lets_everything_through() {
    holds(CASES, |moves: Vec<Move>| {
        let mut told = run(&moves);
        for target in targets() {
            told.schedule.set_gate(&target, Gate::Open);
            told.schedule.check();
        }
        assert!(told.holds().iter().all(|hold| *hold != Some(Hold::Breaker)));
    });
}

#[test]
fn a_steady_ticket_waits_by_the_steady_clock_and_a_wall_clock_ticket_by_the_wall() {
    holds(CASES, |(due, wall, steady): (Edgy, Edgy, Edgy)| {
        let now = Now { wall: wall.time(), steady: steady.time() };
        for (wake, clock) in [(Wake::Steady(due.time()), now.steady), (Wake::Wall(due.time()), now.wall)] {
            let mut told = Told::default();
            told.insert(entry(1, wake));
            told.promote(now, 1);
            assert_eq!(told.schedule.least().is_some(), due.time() <= clock, "{wake:?} at {now:?}");
        }
    });
}

#[test]
fn what_is_made_ready_in_portions_comes_to_the_same_as_at_once() {
    holds(CASES, |(moves, wall, steady, most): (Vec<Move>, Edgy, Edgy, usize)| {
        let now = Now { wall: wall.time(), steady: steady.time() };
        let most = 1 + most % 4;
        let (mut whole, mut parts) = (run(&moves), run(&moves));
        whole.promote(now, usize::MAX);
        loop {
            let Told { schedule, entries } = &mut parts;
            let before = schedule.runnable() + schedule.held();
            let all = schedule.promote_some(now, most, usize::MAX, |ticket| entries.get(&ticket).map(Entry::told));
            schedule.check();
            assert!(schedule.runnable() + schedule.held() <= before + most, "no more than {most} at once");
            if all {
                break;
            }
        }
        let seen = |told: &Told| {
            let schedule = &told.schedule;
            (schedule.least(), schedule.runnable(), schedule.held(), schedule.next_wake(), told.holds())
        };
        assert_eq!(seen(&parts), seen(&whole));
    });
}

#[test]
fn a_jump_of_the_wall_clock_makes_ready_no_more_than_the_limit() {
    holds(CASES, |(waiting, limit): (Vec<Waiting>, usize)| {
        let limit = limit % 8;
        let mut told = Told::default();
        let mut walls = Vec::new();
        for (n, Waiting(entry)) in waiting.into_iter().enumerate() {
            let ticket = Ticket(n as u64);
            if let Wake::Wall(at) = entry.wake {
                walls.push((at, ticket));
            }
            told.insert(Entry { ticket, route: route_of(KNOWN[0], None), ..entry });
        }
        walls.sort();
        let steady = told.schedule.len() - walls.len();
        let end = Time(u64::MAX);
        for round in 1.. {
            told.promote(Now { wall: end, steady: end }, limit);
            let schedule = &told.schedule;
            schedule.check();
            let expected = walls.len().min(round * limit);
            assert_eq!(schedule.runnable(), steady + expected, "the steady ones at once, the others {limit} at a time");
            assert_eq!(schedule.next_wake(), (None, walls.get(expected).map(|(at, _)| *at)), "the earliest go first");
            if limit == 0 || expected == walls.len() {
                break;
            }
        }
    });
}

#[test]
fn what_is_ready_stays_ready_when_a_clock_is_set_back() {
    let mut told = Told::default();
    told.insert(entry(1, Wake::Wall(Time(100))));
    told.promote(Now { wall: Time(100), steady: Time(0) }, 1);
    told.promote(Now { wall: Time(0), steady: Time(1) }, 1);
    assert_eq!(told.schedule.least(), Some(Ticket(1)));
}

#[test]
fn a_target_without_tickets_and_with_an_open_gate_is_forgotten() {
    holds(CASES, |moves: Vec<Move>| {
        let mut told = run(&moves);
        for ticket in 0..TICKETS {
            told.remove(ticket_of(ticket));
        }
        let Told { mut schedule, .. } = told;
        for target in targets() {
            schedule.set_gate(&target, Gate::Open);
        }
        schedule.check();
        assert_eq!((schedule.len(), schedule.targets(), schedule.next_wake()), (0, 0, (None, None)));
    });
}

/// Makes the moves on a new schedule.
fn run(moves: &[Move]) -> Told {
    let mut told = Told::default();
    moves.iter().for_each(|step| told.apply(step));
    told
}

/// Makes the moves on a schedule and on the naive one, and shows both to `law` after each.
fn every_move(moves: &[Move], law: impl Fn(&Schedule, &Naive)) {
    let (mut told, mut naive) = (Told::default(), Naive::default());
    for step in moves {
        told.apply(step);
        naive.apply(step);
        told.schedule.check();
        law(&told.schedule, &naive);
    }
}

/// A ticket, as whoever asks a schedule knows it.
#[derive(Clone, Debug)]
struct Entry {
    ticket: Ticket,
    route: Arc<Route>,
    priority: u8,
    rank: Time,
    wake: Wake,
}

impl Entry {
    fn told(&self) -> schedule::Entry<'_> {
        schedule::Entry { ticket: self.ticket, route: &self.route, priority: self.priority, rank: self.rank, wake: self.wake }
    }
}

fn entry(ticket: u64, wake: Wake) -> Entry {
    Entry { ticket: Ticket(ticket), route: route_of(KNOWN[0], None), priority: 1, rank: Time(0), wake }
}

fn route_of(kind: u8, target: Option<u8>) -> Arc<Route> {
    Arc::new(Route { kind: kind_of(kind), target: target.map(target_of) })
}

/// A schedule, and what it is told of its tickets with each call.
struct Told {
    schedule: Schedule,
    entries: BTreeMap<Ticket, Entry>,
}

impl Default for Told {
    fn default() -> Self {
        Self { schedule: Schedule::new(KNOWN.map(kind_of)), entries: BTreeMap::new() }
    }
}

impl Told {
    fn insert(&mut self, entry: Entry) {
        self.schedule.insert(entry.told());
        self.entries.insert(entry.ticket, entry);
    }

    /// Whether it is in the schedule is for that to know: it may have been taken.
    fn remove(&mut self, ticket: Ticket) {
        if let Some(entry) = self.entries.get(&ticket) {
            self.schedule.remove(entry.told());
        }
    }

    fn promote(&mut self, now: Now, wall_limit: usize) {
        self.schedule.promote(now, wall_limit, |ticket| self.entries.get(&ticket).map(Entry::told));
    }

    fn holds(&self) -> Vec<Option<Hold>> {
        self.entries.values().map(|entry| self.schedule.hold(entry.told())).collect()
    }

    fn apply(&mut self, step: &Move) {
        match step {
            Move::Insert(entry) => {
                self.remove(entry.ticket);
                self.insert(entry.clone());
            }
            Move::Remove(ticket) => self.remove(ticket_of(*ticket)),
            Move::Promote(now, limit) => self.promote(*now, *limit),
            Move::TakeLeast => _ = self.schedule.take_least(),
            Move::Settle(ticket, target) => self.schedule.settled(ticket_of(*ticket), &target_of(*target)),
            Move::Gate(target, gate) => self.schedule.set_gate(&target_of(*target), *gate),
            Move::PutAside(ticket, why) => {
                if let Some(entry) = self.entries.get(&ticket_of(*ticket)) {
                    self.schedule.put_aside(entry.told(), *why);
                }
            }
            Move::BringBack(ticket) => {
                if let Some(entry) = self.entries.get(&ticket_of(*ticket)) {
                    self.schedule.bring_back(entry.told());
                }
            }
        }
    }
}

/// The schedule as one would write it for ten tickets: a list, and a look at each.
struct Naive {
    entries: Vec<(Entry, Spot)>,
    gates: Vec<(Target, Gated)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spot {
    Waiting(Wake),
    Ready,
    /// And what it waited for.
    Aside(Hold, Wake),
}

impl Spot {
    fn of(wake: Wake) -> Self {
        if wake == Wake::AtOnce { Self::Ready } else { Self::Waiting(wake) }
    }
}

struct Gated {
    gate: Gate,
    probing: Vec<Ticket>,
}

impl Default for Naive {
    fn default() -> Self {
        let open = || Gated { gate: Gate::Open, probing: Vec::new() };
        Self { entries: Vec::new(), gates: targets().map(|target| (target, open())).collect() }
    }
}

impl Naive {
    fn apply(&mut self, step: &Move) {
        match step {
            Move::Insert(entry) => {
                self.remove(entry.ticket);
                self.entries.push((entry.clone(), Spot::of(entry.wake)));
            }
            Move::Remove(ticket) => self.remove(ticket_of(*ticket)),
            Move::Promote(now, limit) => self.promote(*now, *limit),
            Move::TakeLeast => {
                let least = self.runnable().min_by_key(|entry| (entry.priority, entry.rank, entry.ticket)).map(|entry| entry.ticket);
                least.into_iter().for_each(|ticket| self.take(ticket));
            }
            Move::Settle(ticket, target) => self.gated(&target_of(*target)).probing.retain(|probe| *probe != ticket_of(*ticket)),
            Move::Gate(target, gate) => {
                let gated = self.gated(&target_of(*target));
                gated.gate = *gate;
                if !matches!(gate, Gate::Probing { .. }) {
                    gated.probing.clear();
                }
            }
            Move::PutAside(ticket, why) => {
                for (_, spot) in self.entries.iter_mut().filter(|(entry, _)| entry.ticket == ticket_of(*ticket)) {
                    let wake = match *spot {
                        Spot::Waiting(wake) | Spot::Aside(_, wake) => wake,
                        Spot::Ready => Wake::AtOnce,
                    };
                    *spot = Spot::Aside(*why, wake);
                }
            }
            Move::BringBack(ticket) => {
                for (_, spot) in self.entries.iter_mut().filter(|(entry, _)| entry.ticket == ticket_of(*ticket)) {
                    if let Spot::Aside(_, wake) = *spot {
                        *spot = Spot::of(wake);
                    }
                }
            }
        }
    }

    fn promote(&mut self, now: Now, limit: usize) {
        let mut walls = Vec::new();
        for (entry, spot) in &mut self.entries {
            match spot {
                Spot::Waiting(Wake::Steady(at)) if *at <= now.steady => *spot = Spot::Ready,
                Spot::Waiting(Wake::Wall(at)) if *at <= now.wall => walls.push((*at, entry.ticket)),
                _ => {}
            }
        }
        walls.sort();
        for (_, ticket) in walls.into_iter().take(limit) {
            self.entries.iter_mut().filter(|(entry, _)| entry.ticket == ticket).for_each(|(_, spot)| *spot = Spot::Ready);
        }
        for (_, gated) in &mut self.gates {
            if let Gate::Held { until, probes } = gated.gate
                && until <= now.steady
            {
                gated.gate = Gate::Probing { probes };
            }
        }
    }

    fn take(&mut self, ticket: Ticket) {
        if let Some(target) = self.find(ticket).and_then(|(entry, _)| entry.route.target.clone()) {
            let gated = self.gated(&target);
            if matches!(gated.gate, Gate::Probing { .. }) && !gated.probing.contains(&ticket) {
                gated.probing.push(ticket);
            }
        }
        self.remove(ticket);
    }

    fn remove(&mut self, ticket: Ticket) {
        self.entries.retain(|(entry, _)| entry.ticket != ticket);
    }

    fn find(&self, ticket: Ticket) -> Option<&(Entry, Spot)> {
        self.entries.iter().find(|(entry, _)| entry.ticket == ticket)
    }

    fn gated(&mut self, target: &Target) -> &mut Gated {
        &mut self.gates.iter_mut().find(|(other, _)| other == target).expect("all targets are in it").1
    }

    fn gate(&self, target: &Target) -> Gate {
        self.gates.iter().find(|(other, _)| other == target).expect("all targets are in it").1.gate
    }

    fn knows(&self, target: &Target) -> bool {
        self.gate(target) != Gate::Open || self.entries.iter().any(|(entry, _)| entry.route.target.as_ref() == Some(target))
    }

    fn hold(&self, entry: &Entry, spot: &Spot) -> Option<Hold> {
        match spot {
            Spot::Waiting(_) => None,
            Spot::Aside(why, _) => Some(*why),
            Spot::Ready if !KNOWN.map(kind_of).contains(&entry.route.kind) => Some(Hold::UnknownKind),
            Spot::Ready => {
                let (_, gated) = self.gates.iter().find(|(target, _)| Some(target) == entry.route.target.as_ref())?;
                match gated.gate {
                    Gate::Open => None,
                    Gate::Probing { probes } => (gated.probing.len() >= probes as usize).then_some(Hold::Breaker),
                    Gate::Held { .. } => Some(Hold::Breaker),
                }
            }
        }
    }

    fn runnable(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|(entry, spot)| *spot == Spot::Ready && self.hold(entry, spot).is_none()).map(|(entry, _)| entry)
    }

    fn held(&self) -> impl Iterator<Item = &(Entry, Spot)> {
        self.entries.iter().filter(|(entry, spot)| self.hold(entry, spot).is_some())
    }
}

/// One thing that is asked of a schedule.
#[derive(Clone, Debug)]
enum Move {
    Insert(Entry),
    Remove(u8),
    Promote(Now, usize),
    TakeLeast,
    Settle(u8, u8),
    Gate(u8, Gate),
    PutAside(u8, Hold),
    BringBack(u8),
}

impl Arbitrary for Move {
    fn arbitrary(g: &mut Gen) -> Self {
        let ticket = u8::arbitrary(g) % TICKETS;
        let target = u8::arbitrary(g) % TARGETS;
        let probes = u32::from(u8::arbitrary(g) % 4);
        match u8::arbitrary(g) % 17 {
            0..=5 => Self::Insert(Waiting::arbitrary(g).0),
            6 => Self::Remove(ticket),
            7..=9 => {
                let now = Now { wall: Edgy::arbitrary(g).time(), steady: Edgy::arbitrary(g).time() };
                Self::Promote(now, usize::from(u8::arbitrary(g) % 4))
            }
            10..=11 => Self::TakeLeast,
            12 => Self::Settle(ticket, target),
            13..=14 => {
                let until = Edgy::arbitrary(g).time();
                Self::Gate(target, *g.choose(&[Gate::Open, Gate::Held { until, probes }, Gate::Probing { probes }]).expect("one"))
            }
            15 => Self::BringBack(ticket),
            _ => Self::PutAside(ticket, *g.choose(&[Hold::Unreadable, Hold::StillRunning]).expect("one")),
        }
    }
}

/// A ticket to be inserted.
#[derive(Clone, Debug)]
struct Waiting(Entry);

impl Arbitrary for Waiting {
    fn arbitrary(g: &mut Gen) -> Self {
        let at = Edgy::arbitrary(g).time();
        Self(Entry {
            ticket: ticket_of(u8::arbitrary(g) % TICKETS),
            route: route_of(u8::arbitrary(g) % 3, bool::arbitrary(g).then(|| u8::arbitrary(g) % TARGETS)),
            priority: *g.choose(&[0, 100, 100, 255]).expect("one"),
            rank: Edgy::arbitrary(g).time(),
            wake: *g.choose(&[Wake::AtOnce, Wake::Steady(at), Wake::Wall(at)]).expect("one"),
        })
    }
}

fn ticket_of(n: u8) -> Ticket {
    Ticket(n.into())
}

fn targets() -> impl Iterator<Item = Target> {
    (0..TARGETS).map(target_of)
}

#[test]
fn a_ticket_that_was_put_aside_waits_on_for_what_it_waited_for() {
    let mut told = Told::default();
    let wakes = [Wake::Steady(Time(100)), Wake::Wall(Time(200)), Wake::AtOnce];
    (1..).zip(wakes).for_each(|(ticket, wake)| told.insert(entry(ticket, wake)));
    told.promote(Now { wall: Time(0), steady: Time(0) }, usize::MAX);
    for ticket in 1..=3 {
        told.apply(&Move::PutAside(ticket, Hold::StillRunning));
        told.schedule.check();
    }
    assert_eq!(told.holds(), [Some(Hold::StillRunning); 3]);
    assert_eq!((told.schedule.next_wake(), told.schedule.held()), ((None, None), 3));
    (1..=3).for_each(|ticket| told.apply(&Move::BringBack(ticket)));
    told.promote(Now { wall: Time(50), steady: Time(50) }, usize::MAX);
    told.schedule.check();
    assert_eq!(told.schedule.least(), Some(Ticket(3)), "what was due is due");
    assert_eq!(told.schedule.next_wake(), (Some(Time(100)), Some(Time(200))));
}
