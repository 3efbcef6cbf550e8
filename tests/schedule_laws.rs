//! Proves that the schedule, with all its indexes, says exactly what a list of tickets and a linear scan would say:
//! which ticket is next, what is held and why, and when to look again.

use journeyman_core::schedule::{Entry, Gate, Hold, Schedule, Wake};
use journeyman_core::time::Now;
use journeyman_core::{Kind, Target, Ticket, Time};
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
                let here = naive.held().filter(|(entry, _)| entry.target.as_ref() == Some(&target));
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
            for ticket in (0..TICKETS).map(ticket_of) {
                let expected = naive.find(ticket).and_then(|(entry, spot)| naive.hold(entry, spot));
                assert_eq!(schedule.hold(ticket), expected, "{ticket}");
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
                    Spot::Waiting(Wake::AtOnce) | Spot::Ready | Spot::Aside(_) => {}
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
        let mut schedule = run(&moves);
        loop {
            let before = schedule.next_wake();
            let (steady, wall) = before;
            if (steady, wall) == (None, None) {
                break;
            }
            schedule.promote(Now { wall: wall.unwrap_or_default(), steady: steady.unwrap_or_default() }, usize::MAX);
            schedule.check();
            assert_ne!(schedule.next_wake(), before);
        }
    });
}

#[test]
fn a_held_lane_hides_no_ticket_of_another() {
    holds(CASES, |(moves, free): (Vec<Move>, Waiting)| {
        let mut schedule = run(&moves);
        let free = Entry { ticket: Ticket(1000), kind: kind_of(KNOWN[0]), target: None, ..free.0 };
        schedule.insert(free);
        let end = Time(u64::MAX);
        schedule.promote(Now { wall: end, steady: end }, usize::MAX);
        // Nothing holds this one: it comes when those before it have gone, whatever else is held.
        let others = std::iter::from_fn(|| {
            let next = schedule.least().expect("the free one at the latest");
            schedule.take(next);
            (next != Ticket(1000)).then_some(next)
        });
        assert!(others.count() <= TICKETS.into());
    });
}

#[test]
fn no_more_probes_are_out_at_once_than_the_gate_lets_through() {
    holds(CASES, |moves: Vec<Move>| {
        let mut schedule = Schedule::new(KNOWN.map(kind_of));
        let mut naive = Naive::default();
        // Who was taken from each target since its gate began to probe, and has not settled.
        let mut out: Vec<(Target, Ticket)> = Vec::new();
        for step in &moves {
            let taken = schedule.least().filter(|_| matches!(step, Move::TakeLeast | Move::Take(_)));
            if let Some(ticket) = taken
                && let Some((Entry { target: Some(target), .. }, _)) = naive.find(ticket)
                && let Gate::Probing { probes } = schedule.gate(target)
            {
                // No ticket runs twice at once: when it is taken again, its last attempt is over.
                out.retain(|(_, other)| *other != ticket);
                out.push((target.clone(), ticket));
                let number = out.iter().filter(|(other, _)| other == target).count();
                assert!(number <= probes as usize, "{number} of {probes} probes of {target}");
            }
            let step = if taken.is_some() { &Move::TakeLeast } else { step };
            if let Move::Settle(ticket, target) = step {
                out.retain(|probe| *probe != (target_of(*target), ticket_of(*ticket)));
            }
            step.apply(&mut schedule);
            naive.apply(step);
            out.retain(|(target, _)| matches!(schedule.gate(target), Gate::Probing { .. }));
        }
    });
}

#[test]
fn a_gate_that_opens_lets_everything_through() {
    holds(CASES, |moves: Vec<Move>| {
        let mut schedule = run(&moves);
        for target in targets() {
            schedule.set_gate(&target, Gate::Open);
            schedule.check();
        }
        assert!((0..TICKETS).map(ticket_of).all(|ticket| schedule.hold(ticket) != Some(Hold::Breaker)));
    });
}

#[test]
fn a_steady_ticket_waits_by_the_steady_clock_and_a_wall_clock_ticket_by_the_wall() {
    holds(CASES, |(due, wall, steady): (Edgy, Edgy, Edgy)| {
        let now = Now { wall: wall.time(), steady: steady.time() };
        for (wake, clock) in [(Wake::Steady(due.time()), now.steady), (Wake::Wall(due.time()), now.wall)] {
            let mut schedule = Schedule::new([kind_of(0)]);
            schedule.insert(Entry { ticket: Ticket(1), kind: kind_of(0), target: None, priority: 0, rank: Time(0), wake });
            schedule.promote(now, 1);
            assert_eq!(schedule.least().is_some(), due.time() <= clock, "{wake:?} at {now:?}");
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
            let before = parts.runnable() + parts.held();
            let all = parts.promote_some(now, most, usize::MAX);
            parts.check();
            assert!(parts.runnable() + parts.held() <= before + most, "no more than {most} at once");
            if all {
                break;
            }
        }
        let seen = |schedule: &Schedule| {
            let holds: Vec<_> = (0..TICKETS).map(|ticket| schedule.hold(ticket_of(ticket))).collect();
            (schedule.least(), schedule.runnable(), schedule.held(), schedule.next_wake(), holds)
        };
        assert_eq!(seen(&parts), seen(&whole));
    });
}

#[test]
fn a_jump_of_the_wall_clock_makes_ready_no_more_than_the_limit() {
    holds(CASES, |(waiting, limit): (Vec<Waiting>, usize)| {
        let limit = limit % 8;
        let mut schedule = Schedule::new([kind_of(0)]);
        let mut walls = Vec::new();
        for (n, Waiting(entry)) in waiting.into_iter().enumerate() {
            let ticket = Ticket(n as u64);
            if let Wake::Wall(at) = entry.wake {
                walls.push((at, ticket));
            }
            schedule.insert(Entry { ticket, kind: kind_of(0), target: None, ..entry });
        }
        walls.sort();
        let steady = schedule.len() - walls.len();
        let end = Time(u64::MAX);
        for round in 1.. {
            schedule.promote(Now { wall: end, steady: end }, limit);
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
    let mut schedule = Schedule::new([kind_of(0)]);
    schedule.insert(Entry { ticket: Ticket(1), kind: kind_of(0), target: None, priority: 0, rank: Time(0), wake: Wake::Wall(Time(100)) });
    schedule.promote(Now { wall: Time(100), steady: Time(0) }, 1);
    schedule.promote(Now { wall: Time(0), steady: Time(1) }, 1);
    assert_eq!(schedule.least(), Some(Ticket(1)));
}

#[test]
fn a_target_without_tickets_and_with_an_open_gate_is_forgotten() {
    holds(CASES, |moves: Vec<Move>| {
        let mut schedule = run(&moves);
        for ticket in 0..TICKETS {
            schedule.remove(ticket_of(ticket));
        }
        for target in targets() {
            schedule.set_gate(&target, Gate::Open);
        }
        schedule.check();
        assert_eq!((schedule.len(), schedule.targets(), schedule.next_wake()), (0, 0, (None, None)));
    });
}

/// Makes the moves on a new schedule.
fn run(moves: &[Move]) -> Schedule {
    let mut schedule = Schedule::new(KNOWN.map(kind_of));
    moves.iter().for_each(|step| step.apply(&mut schedule));
    schedule
}

/// Makes the moves on a schedule and on the naive one, and shows both to `law` after each.
fn every_move(moves: &[Move], law: impl Fn(&Schedule, &Naive)) {
    let mut schedule = Schedule::new(KNOWN.map(kind_of));
    let mut naive = Naive::default();
    for step in moves {
        step.apply(&mut schedule);
        naive.apply(step);
        schedule.check();
        law(&schedule, &naive);
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
    Aside(Hold),
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
                let spot = if entry.wake == Wake::AtOnce { Spot::Ready } else { Spot::Waiting(entry.wake) };
                self.entries.push((entry.clone(), spot));
            }
            Move::Remove(ticket) => self.remove(ticket_of(*ticket)),
            Move::Promote(now, limit) => self.promote(*now, *limit),
            Move::TakeLeast => {
                let least = self.runnable().min_by_key(|entry| (entry.priority, entry.rank, entry.ticket)).map(|entry| entry.ticket);
                least.into_iter().for_each(|ticket| self.take(ticket));
            }
            Move::Take(ticket) => self.take(ticket_of(*ticket)),
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
                    *spot = Spot::Aside(*why);
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
        if let Some((Entry { target: Some(target), .. }, _)) = self.find(ticket) {
            let target = target.clone();
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
        self.gate(target) != Gate::Open || self.entries.iter().any(|(entry, _)| entry.target.as_ref() == Some(target))
    }

    fn hold(&self, entry: &Entry, spot: &Spot) -> Option<Hold> {
        match spot {
            Spot::Waiting(_) => None,
            Spot::Aside(why) => Some(*why),
            Spot::Ready if !KNOWN.map(kind_of).contains(&entry.kind) => Some(Hold::UnknownKind),
            Spot::Ready => {
                let (_, gated) = self.gates.iter().find(|(target, _)| Some(target) == entry.target.as_ref())?;
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
    Take(u8),
    Settle(u8, u8),
    Gate(u8, Gate),
    PutAside(u8, Hold),
}

impl Move {
    fn apply(&self, schedule: &mut Schedule) {
        match self {
            Self::Insert(entry) => schedule.insert(entry.clone()),
            Self::Remove(ticket) => drop(schedule.remove(ticket_of(*ticket))),
            Self::Promote(now, limit) => schedule.promote(*now, *limit),
            Self::TakeLeast => schedule.least().into_iter().for_each(|ticket| schedule.take(ticket)),
            Self::Take(ticket) => schedule.take(ticket_of(*ticket)),
            Self::Settle(ticket, target) => schedule.settled(ticket_of(*ticket), &target_of(*target)),
            Self::Gate(target, gate) => schedule.set_gate(&target_of(*target), *gate),
            Self::PutAside(ticket, why) => schedule.put_aside(ticket_of(*ticket), *why),
        }
    }
}

impl Arbitrary for Move {
    fn arbitrary(g: &mut Gen) -> Self {
        let ticket = u8::arbitrary(g) % TICKETS;
        let target = u8::arbitrary(g) % TARGETS;
        let probes = u32::from(u8::arbitrary(g) % 4);
        match u8::arbitrary(g) % 16 {
            0..=5 => Self::Insert(Waiting::arbitrary(g).0),
            6 => Self::Remove(ticket),
            7..=9 => {
                let now = Now { wall: Edgy::arbitrary(g).time(), steady: Edgy::arbitrary(g).time() };
                Self::Promote(now, usize::from(u8::arbitrary(g) % 4))
            }
            10 => Self::TakeLeast,
            11 => Self::Take(ticket),
            12 => Self::Settle(ticket, target),
            13..=14 => {
                let until = Edgy::arbitrary(g).time();
                Self::Gate(target, *g.choose(&[Gate::Open, Gate::Held { until, probes }, Gate::Probing { probes }]).expect("one"))
            }
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
            kind: kind_of(u8::arbitrary(g) % 3),
            target: bool::arbitrary(g).then(|| target_of(u8::arbitrary(g) % TARGETS)),
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
    let mut schedule = Schedule::new([Kind::new("k")]);
    let entry = |ticket, wake| Entry { ticket: Ticket(ticket), kind: Kind::new("k"), target: None, priority: 1, rank: Time(0), wake };
    schedule.insert(entry(1, Wake::Steady(Time(100))));
    schedule.insert(entry(2, Wake::Wall(Time(200))));
    schedule.insert(entry(3, Wake::AtOnce));
    schedule.promote(Now { wall: Time(0), steady: Time(0) }, usize::MAX);
    for ticket in 1..=3 {
        schedule.put_aside(Ticket(ticket), Hold::StillRunning);
        assert_eq!(schedule.hold(Ticket(ticket)), Some(Hold::StillRunning));
        schedule.check();
    }
    assert_eq!((schedule.next_wake(), schedule.held()), ((None, None), 3));
    (1..=3).for_each(|ticket| schedule.bring_back(Ticket(ticket)));
    schedule.promote(Now { wall: Time(50), steady: Time(50) }, usize::MAX);
    schedule.check();
    assert_eq!(schedule.least(), Some(Ticket(3)), "what was due is due");
    assert_eq!(schedule.next_wake(), (Some(Time(100)), Some(Time(200))));
}
