//! Which pending ticket is next: an index over the queue, never a fact. It is made anew at every open and safe to
//! forget. It knows when tickets are due, their order, and what holds them back; a hold never ends a ticket.
//!
//! Tickets of one kind and target form a lane. A lane is held as a whole, so an outage costs the same whether ten
//! tickets wait or ten million.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::ids::{Kind, Target, Ticket};
use crate::table::Table;
use crate::time::{Now, Time};

/// The pending tickets of one partition, in the order in which they will be taken.
#[derive(Debug, Default)]
pub struct Schedule {
    kinds: HashSet<Kind>,
    places: Table<Place>,
    steady: BTreeSet<(Time, Ticket)>,
    wall: BTreeSet<(Time, Ticket)>,
    lanes: BTreeMap<u32, Lane>,
    lane_ids: HashMap<(Kind, Option<Target>), u32>,
    /// Numbers of lanes that are no more.
    free_lanes: Vec<u32>,
    /// The lane of the last ticket that came: the next one is often of the same.
    last_lane: u32,
    targets: HashMap<Target, Gated>,
    reopening: BTreeSet<(Time, Target)>,
    /// The least runnable ticket of each lane that is not held.
    heads: BTreeMap<Order, u32>,
    ready: usize,
    runnable: usize,
    put_aside: usize,
}

/// A pending ticket, as the schedule needs it.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its number.
    pub ticket: Ticket,
    /// Its job type.
    pub kind: Kind,
    /// What it calls.
    pub target: Option<Target>,
    /// Least first.
    pub priority: u8,
    /// Least first among those of one priority.
    pub rank: Time,
    /// When it may be taken.
    pub wake: Wake,
}

/// When a ticket may be taken, and by which clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// Now: it is ready as soon as it is here, and waits in no line for its time.
    AtOnce,
    /// By the clock that never jumps: backoffs, delays, deferrals.
    Steady(Time),
    /// By the wall clock: an instant that was asked for as such.
    Wall(Time),
}

/// Why a due ticket is not taken now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Hold {
    /// Nobody registered its kind in this process.
    UnknownKind,
    /// The breaker of its target refuses.
    Breaker,
    /// This build cannot decode its payload.
    Unreadable,
    /// A blocking section of an earlier attempt has not come back.
    StillRunning,
}

impl Hold {
    /// The words for logs and tables.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::UnknownKind => "its kind is not registered here",
            Self::Breaker => "the breaker of its target is open",
            Self::Unreadable => "its payload cannot be decoded by this build",
            Self::StillRunning => "a blocking section of an earlier attempt still runs",
        }
    }
}

/// What the breaker of a target lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// Everything.
    Open,
    /// Nothing until then, by the steady clock; after that `probes` at once.
    Held {
        /// When probes may go.
        until: Time,
        /// How many at once.
        probes: u32,
    },
    /// A few at once, until the breaker closes.
    Probing {
        /// How many at once.
        probes: u32,
    },
}

impl Schedule {
    /// An empty schedule that knows these kinds; tickets of every other are held.
    #[must_use]
    pub fn new(kinds: impl IntoIterator<Item = Kind>) -> Self {
        Self { kinds: kinds.into_iter().collect(), ..Self::default() }
    }

    /// Adds a pending ticket; in the place of what was there under its number.
    pub fn insert(&mut self, entry: Entry) {
        let Entry { ticket, kind, target, priority, rank, wake } = entry;
        let lane = self.lane_of(&kind, target.as_ref());
        if let Some(lane) = self.lanes.get_mut(&lane) {
            lane.tickets += 1;
        }
        let place = Place { lane, rank, wake, priority, spot: Spot::first(wake) };
        if let Some(before) = self.places.insert(ticket, place) {
            self.leave(ticket, before);
            self.leave_lane(before.lane);
        }
        self.line_up(ticket, place);
    }

    /// Takes a ticket out, wherever it is. Answers whether it was there.
    pub fn remove(&mut self, ticket: Ticket) -> bool {
        let Some(place) = self.places.remove(ticket) else { return false };
        self.leave(ticket, place);
        self.leave_lane(place.lane);
        true
    }

    /// Makes ready what is due. At most `wall_limit` tickets that wait by the wall clock are taken, so that a jump of it
    /// fires no storm. Lets probes go to targets whose time has come.
    pub fn promote(&mut self, now: Now, wall_limit: usize) {
        let all = self.promote_some(now, usize::MAX, wall_limit);
        debug_assert!(all, "there are never so many");
    }

    /// The same for at most `most` tickets. Answers whether that was all; until then [`Schedule::least`] is only the least of those
    /// that are ready.
    pub fn promote_some(&mut self, now: Now, most: usize, wall_limit: usize) -> bool {
        let mut left = most;
        while let Some((at, ticket)) = self.steady.first().copied()
            && at <= now.steady
        {
            if left == 0 {
                return false;
            }
            left -= 1;
            self.make_ready(ticket);
        }
        for _ in 0..wall_limit {
            let Some((at, ticket)) = self.wall.first().copied() else { break };
            if at > now.wall {
                break;
            }
            if left == 0 {
                return false;
            }
            left -= 1;
            self.make_ready(ticket);
        }
        while let Some((until, target)) = self.reopening.first().cloned()
            && until <= now.steady
        {
            let probes = self.targets.get(&target).map_or(1, |gated| gated.gate.probes());
            self.set_gate(&target, Gate::Probing { probes });
        }
        true
    }

    /// The least runnable ticket by priority, rank and number.
    #[must_use]
    pub fn least(&self) -> Option<Ticket> {
        self.heads.first_key_value().map(|(order, _)| order.ticket)
    }

    /// Takes a ticket that is to run; to a target that is being probed, it counts as a probe until [`Schedule::settled`].
    pub fn take(&mut self, ticket: Ticket) {
        let target = self.places.get(ticket).and_then(|place| self.lanes.get(&place.lane)).and_then(|lane| lane.target.clone());
        if let Some(target) = target
            && let Some(gated) = self.targets.get_mut(&target)
            && matches!(gated.gate, Gate::Probing { .. })
        {
            gated.probing.insert(ticket);
            self.refresh_target(&target);
        }
        self.remove(ticket);
    }

    /// An attempt of the ticket is over, whatever came of it: it is no probe any more.
    pub fn settled(&mut self, ticket: Ticket, target: &Target) {
        if let Some(gated) = self.targets.get_mut(target)
            && gated.probing.remove(&ticket)
        {
            self.refresh_target(target);
        }
    }

    /// Says what the breaker of `target` lets through from now on.
    pub fn set_gate(&mut self, target: &Target, gate: Gate) {
        let gated = self.targets.entry(target.clone()).or_default();
        if let Gate::Held { until, .. } = gated.gate {
            self.reopening.remove(&(until, target.clone()));
        }
        if let Gate::Held { until, .. } = gate {
            self.reopening.insert((until, target.clone()));
        }
        if !matches!(gate, Gate::Probing { .. }) {
            gated.probing.clear();
        }
        gated.gate = gate;
        self.refresh_target(target);
    }

    /// What the breaker of `target` lets through.
    #[must_use]
    pub fn gate(&self, target: &Target) -> Gate {
        self.targets.get(target).map_or(Gate::Open, |gated| gated.gate)
    }

    /// Puts a ticket aside until [`Schedule::bring_back`].
    pub fn put_aside(&mut self, ticket: Ticket, why: Hold) {
        let Some(place) = self.places.get_mut(ticket) else { return };
        let before = *place;
        place.spot = Spot::Aside(why);
        if before.spot == Spot::Ready {
            place.wake = Wake::AtOnce;
        }
        let after = *place;
        self.leave(ticket, before);
        self.line_up(ticket, after);
    }

    /// Puts a ticket that was put aside back in line, to wait for what it waited for.
    pub fn bring_back(&mut self, ticket: Ticket) {
        let Some(place) = self.places.get_mut(ticket).filter(|place| matches!(place.spot, Spot::Aside(_))) else { return };
        let before = *place;
        place.spot = Spot::first(place.wake);
        let after = *place;
        self.leave(ticket, before);
        self.line_up(ticket, after);
    }

    /// Why the ticket is held, when it is.
    #[must_use]
    pub fn hold(&self, ticket: Ticket) -> Option<Hold> {
        let place = self.places.get(ticket)?;
        match place.spot {
            Spot::Aside(why) => Some(why),
            Spot::Waiting => None,
            Spot::Ready => self.lanes.get(&place.lane)?.hold,
        }
    }

    /// When to look again, by each clock: the earliest due, or the earliest time at which a gate lets probes through.
    #[must_use]
    pub fn next_wake(&self) -> (Option<Time>, Option<Time>) {
        let due = self.steady.first().map(|(at, _)| *at);
        let gate = self.reopening.first().map(|(at, _)| *at);
        (due.into_iter().chain(gate).min(), self.wall.first().map(|(at, _)| *at))
    }

    /// Due tickets that may be taken now. A lane that is being probed counts with all its due tickets.
    #[must_use]
    pub const fn runnable(&self) -> usize {
        self.runnable
    }

    /// Due tickets that something holds back.
    #[must_use]
    pub const fn held(&self) -> usize {
        self.ready - self.runnable + self.put_aside
    }

    /// Pending tickets of a target that are due and held by its breaker.
    #[must_use]
    pub fn held_of(&self, target: &Target) -> usize {
        let lanes = self.targets.get(target).map_or(&[][..], |gated| &gated.lanes);
        lanes.iter().filter_map(|id| self.lanes.get(id)).filter(|lane| lane.hold == Some(Hold::Breaker)).map(|lane| lane.ready.len()).sum()
    }

    /// Targets that have pending tickets or a gate that is not open.
    #[must_use]
    pub fn targets(&self) -> usize {
        self.targets.len()
    }

    /// Whether the target has pending tickets or a gate that is not open.
    #[must_use]
    pub fn knows(&self, target: &Target) -> bool {
        self.targets.contains_key(target)
    }

    /// Whether tickets of the target are pending.
    #[must_use]
    pub fn has_tickets_of(&self, target: &Target) -> bool {
        self.targets.get(target).is_some_and(|gated| !gated.lanes.is_empty())
    }

    /// Whether tickets of this kind can run here.
    #[must_use]
    pub fn knows_kind(&self, kind: &Kind) -> bool {
        self.kinds.contains(kind)
    }

    /// All tickets in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Counts everything again and compares; for tests.
    ///
    /// # Panics
    /// When a counter or an index disagrees with the places.
    pub fn check(&self) {
        let spots = |f: fn(&Spot) -> bool| self.places.iter().filter(|(_, place)| f(&place.spot)).count();
        assert_eq!(self.ready, spots(|spot| matches!(spot, Spot::Ready)), "ready");
        assert_eq!(self.put_aside, spots(|spot| matches!(spot, Spot::Aside(..))), "put aside");
        assert_eq!(self.steady.len() + self.wall.len(), spots(|spot| matches!(spot, Spot::Waiting)), "waiting");
        assert_eq!(self.lanes.values().map(|lane| lane.tickets).sum::<usize>(), self.places.len(), "lanes");
        let free = self.lanes.values().filter(|lane| lane.hold.is_none());
        assert_eq!(self.runnable, free.clone().map(|lane| lane.ready.len()).sum::<usize>(), "runnable");
        let heads: BTreeMap<_, _> =
            free.filter_map(|lane| Some((*lane.ready.first()?, self.lane_ids[&(lane.kind.clone(), lane.target.clone())]))).collect();
        assert_eq!(self.heads, heads, "heads");
    }

    fn make_ready(&mut self, ticket: Ticket) {
        let Some(place) = self.places.get_mut(ticket) else { return };
        let before = *place;
        place.spot = Spot::Ready;
        let after = *place;
        self.leave(ticket, before);
        self.line_up(ticket, after);
    }

    /// Puts the ticket into the set that its spot names.
    fn line_up(&mut self, ticket: Ticket, place: Place) {
        match (place.spot, place.wake) {
            (Spot::Waiting, Wake::Steady(at)) => drop(self.steady.insert((at, ticket))),
            (Spot::Waiting, Wake::Wall(at)) => drop(self.wall.insert((at, ticket))),
            (Spot::Aside(_), _) => self.put_aside += 1,
            // Who waits for nothing is ready: see [`Spot::first`].
            (Spot::Ready, _) | (Spot::Waiting, Wake::AtOnce) => self.change(place.lane, |lane| {
                lane.ready.insert(place.order(ticket));
            }),
        }
    }

    /// Takes the ticket out of that set.
    fn leave(&mut self, ticket: Ticket, place: Place) {
        match (place.spot, place.wake) {
            (Spot::Waiting, Wake::Steady(at)) => drop(self.steady.remove(&(at, ticket))),
            (Spot::Waiting, Wake::Wall(at)) => drop(self.wall.remove(&(at, ticket))),
            (Spot::Aside(_), _) => self.put_aside -= 1,
            (Spot::Ready, _) | (Spot::Waiting, Wake::AtOnce) => self.change(place.lane, |lane| {
                lane.ready.remove(&place.order(ticket));
            }),
        }
    }

    /// One ticket less is in the lane.
    fn leave_lane(&mut self, id: u32) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        lane.tickets -= 1;
        if lane.tickets == 0 {
            self.drop_lane(id);
        }
    }

    /// Every change of a lane goes through here, so that heads and counters follow.
    fn change(&mut self, id: u32, change: impl FnOnce(&mut Lane)) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let (ready, runnable, head) = (lane.ready.len(), lane.runnable(), lane.head());
        change(lane);
        self.ready = self.ready - ready + lane.ready.len();
        self.runnable = self.runnable - runnable + lane.runnable();
        let new_head = lane.head();
        if head != new_head {
            head.map(|head| self.heads.remove(&head));
            new_head.map(|head| self.heads.insert(head, id));
        }
    }

    fn lane_of(&mut self, kind: &Kind, target: Option<&Target>) -> u32 {
        if self.lanes.get(&self.last_lane).is_some_and(|lane| lane.kind == *kind && lane.target.as_ref() == target) {
            return self.last_lane;
        }
        self.last_lane = self.find_lane(kind, target);
        self.last_lane
    }

    fn find_lane(&mut self, kind: &Kind, target: Option<&Target>) -> u32 {
        let name = (kind.clone(), target.cloned());
        if let Some(id) = self.lane_ids.get(&name) {
            return *id;
        }
        // Lanes are fewer than tickets, and these fill the memory long before.
        let id = self.free_lanes.pop().unwrap_or_else(|| u32::try_from(self.lanes.len()).unwrap_or(u32::MAX));
        if let Some(target) = target {
            self.targets.entry(target.clone()).or_default().lanes.push(id);
        }
        let hold = self.hold_for(kind, target);
        self.lanes.insert(id, Lane { kind: name.0.clone(), target: name.1.clone(), ready: BTreeSet::new(), tickets: 0, hold });
        self.lane_ids.insert(name, id);
        id
    }

    fn drop_lane(&mut self, id: u32) {
        let Some(lane) = self.lanes.remove(&id) else { return };
        if self.lanes.is_empty() {
            self.free_lanes = Vec::new();
        } else {
            self.free_lanes.push(id);
        }
        if let Some(target) = &lane.target
            && let Some(gated) = self.targets.get_mut(target)
        {
            gated.lanes.retain(|other| *other != id);
            self.forget_if_idle(target);
        }
        self.lane_ids.remove(&(lane.kind, lane.target));
    }

    fn refresh_target(&mut self, target: &Target) {
        let lanes = self.targets.get(target).map(|gated| gated.lanes.clone()).unwrap_or_default();
        for id in lanes {
            let Some(lane) = self.lanes.get(&id) else { continue };
            let hold = self.hold_for(&lane.kind, Some(target));
            self.change(id, |lane| lane.hold = hold);
        }
        self.forget_if_idle(target);
    }

    fn forget_if_idle(&mut self, target: &Target) {
        if self.targets.get(target).is_some_and(|gated| gated.lanes.is_empty() && gated.gate == Gate::Open) {
            self.targets.remove(target);
        }
    }

    fn hold_for(&self, kind: &Kind, target: Option<&Target>) -> Option<Hold> {
        if !self.kinds.contains(kind) {
            return Some(Hold::UnknownKind);
        }
        let gated = self.targets.get(target?)?;
        match gated.gate {
            Gate::Open => None,
            Gate::Probing { probes } if gated.probing.len() < probes as usize => None,
            Gate::Probing { .. } | Gate::Held { .. } => Some(Hold::Breaker),
        }
    }
}

impl Gate {
    const fn probes(self) -> u32 {
        match self {
            Self::Open => 1,
            Self::Held { probes, .. } | Self::Probing { probes } => probes,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Order {
    priority: u8,
    rank: Time,
    ticket: Ticket,
}

/// Small, as there is one for each ticket.
#[derive(Clone, Copy, Debug)]
struct Place {
    lane: u32,
    rank: Time,
    /// What it waits for, or waited for before it was put aside.
    wake: Wake,
    priority: u8,
    spot: Spot,
}

impl Place {
    const fn order(&self, ticket: Ticket) -> Order {
        Order { priority: self.priority, rank: self.rank, ticket }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spot {
    Waiting,
    Ready,
    Aside(Hold),
}

impl Spot {
    /// Where a ticket begins, or goes on when it comes back.
    const fn first(wake: Wake) -> Self {
        match wake {
            Wake::AtOnce => Self::Ready,
            Wake::Steady(_) | Wake::Wall(_) => Self::Waiting,
        }
    }
}

#[derive(Debug)]
struct Lane {
    kind: Kind,
    target: Option<Target>,
    ready: BTreeSet<Order>,
    /// Tickets in it, ready or not.
    tickets: usize,
    hold: Option<Hold>,
}

impl Lane {
    /// Tickets of it that may be taken.
    fn runnable(&self) -> usize {
        if self.hold.is_none() { self.ready.len() } else { 0 }
    }

    /// The least of these.
    fn head(&self) -> Option<Order> {
        self.ready.first().copied().filter(|_| self.hold.is_none())
    }
}

#[derive(Debug)]
struct Gated {
    gate: Gate,
    lanes: Vec<u32>,
    /// Tickets that run as probes.
    probing: HashSet<Ticket>,
}

impl Default for Gated {
    fn default() -> Self {
        Self { gate: Gate::Open, lanes: Vec::new(), probing: HashSet::new() }
    }
}
