//! Which pending ticket is next: an index over the queue, never a fact. It is made anew at every open and safe to
//! forget. It knows when tickets are due, their order, and what holds them back; a hold never ends a ticket.
//!
//! Tickets of one kind and target form a lane. A lane is held as a whole, so an outage costs the same whether ten
//! tickets wait or ten million.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use crate::ids::{Kind, Target, Ticket};
use crate::packed::Route;
use crate::sorted::Sorted;
use crate::time::{Now, Time};

/// The pending tickets of one partition, in the order in which they will be taken. Of a ticket it keeps its number and what it is sorted
/// by, and nothing twice: all else is told with each call.
#[derive(Debug, Default)]
pub struct Schedule {
    kinds: HashSet<Kind>,
    steady: Sorted<(Time, Ticket)>,
    wall: Sorted<(Time, Ticket)>,
    /// Why a ticket was put aside, and what it waited for.
    aside: BTreeMap<Ticket, (Hold, Wake)>,
    lanes: BTreeMap<u32, Lane>,
    lane_ids: HashMap<Arc<Route>, u32>,
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
}

/// A pending ticket, as the schedule needs it. It is the same with each call, from the one that inserts it to the one that takes it out.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Its number.
    pub ticket: Ticket,
    /// Its job type and what it calls.
    pub route: &'a Arc<Route>,
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

    /// Adds a pending ticket that is not in it.
    pub fn insert(&mut self, entry: Entry<'_>) {
        let id = self.lane_of(entry.route);
        if let Some(lane) = self.lanes.get_mut(&id) {
            lane.tickets += 1;
        }
        self.line_up(id, entry);
    }

    /// Takes a ticket out, wherever it is. Answers whether it was there.
    pub fn remove(&mut self, entry: Entry<'_>) -> bool {
        let was_here = self.withdraw(entry).is_some();
        if was_here && let Some(id) = self.lane_ids.get(entry.route).copied() {
            self.leave_lane(id);
        }
        was_here
    }

    /// Makes ready what is due; `find` knows all tickets that are in it. At most `wall_limit` tickets that wait by the wall clock are
    /// taken, so that a jump of it fires no storm. Lets probes go to targets whose time has come.
    pub fn promote<'a>(&mut self, now: Now, wall_limit: usize, find: impl Fn(Ticket) -> Option<Entry<'a>>) {
        let all = self.promote_some(now, usize::MAX, wall_limit, find);
        debug_assert!(all, "there are never so many");
    }

    /// The same for at most `most` tickets. Answers whether that was all; until then [`Schedule::least`] is only the least of those
    /// that are ready.
    pub fn promote_some<'a>(&mut self, now: Now, most: usize, wall_limit: usize, find: impl Fn(Ticket) -> Option<Entry<'a>>) -> bool {
        let mut left = most;
        while let Some((at, ticket)) = self.steady.first()
            && at <= now.steady
        {
            if left == 0 {
                return false;
            }
            left -= 1;
            self.steady.remove((at, ticket));
            self.make_ready(find(ticket));
        }
        for _ in 0..wall_limit {
            let Some((at, ticket)) = self.wall.first() else { break };
            if at > now.wall {
                break;
            }
            if left == 0 {
                return false;
            }
            left -= 1;
            self.wall.remove((at, ticket));
            self.make_ready(find(ticket));
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

    /// Takes the least runnable ticket, which is to run; to a target that is being probed, it counts as a probe until
    /// [`Schedule::settled`].
    pub fn take_least(&mut self) -> Option<Ticket> {
        let (order, id) = self.heads.first_key_value().map(|(order, id)| (*order, *id))?;
        let lane = self.lanes.get_mut(&id)?;
        // It is the head of a lane that is not held.
        lane.ready.pop_first();
        self.ready -= 1;
        self.runnable -= 1;
        if let Some(next) = lane.head() {
            self.heads.insert(next, id);
        }
        // Behind that, so that the tree is not given up and made again.
        self.heads.remove(&order);
        if let Some(target) = lane.route.target.clone()
            && let Some(gated) = self.targets.get_mut(&target)
            && matches!(gated.gate, Gate::Probing { .. })
        {
            gated.probing.insert(order.ticket);
            self.refresh_target(&target);
        }
        self.leave_lane(id);
        Some(order.ticket)
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
    pub fn put_aside(&mut self, entry: Entry<'_>, why: Hold) {
        if let Some(wake) = self.withdraw(entry) {
            self.aside.insert(entry.ticket, (why, wake));
        }
    }

    /// Puts a ticket that was put aside back in line, to wait for what it waited for.
    pub fn bring_back(&mut self, entry: Entry<'_>) {
        if let Some(wake) = self.withdraw_aside(entry.ticket) {
            let id = self.lane_of(entry.route);
            self.line_up(id, Entry { wake, ..entry });
        }
    }

    /// Why the ticket is held, when it is.
    #[must_use]
    pub fn hold(&self, entry: Entry<'_>) -> Option<Hold> {
        if let Some((why, _)) = self.aside.get(&entry.ticket) {
            return Some(*why);
        }
        let lane = self.lanes.get(self.lane_ids.get(entry.route)?)?;
        lane.hold.filter(|_| lane.ready.contains(entry.order()))
    }

    /// When to look again, by each clock: the earliest due, or the earliest time at which a gate lets probes through.
    #[must_use]
    pub fn next_wake(&self) -> (Option<Time>, Option<Time>) {
        let due = self.steady.first().map(|(at, _)| at);
        let gate = self.reopening.first().map(|(at, _)| *at);
        (due.into_iter().chain(gate).min(), self.wall.first().map(|(at, _)| at))
    }

    /// Due tickets that may be taken now. A lane that is being probed counts with all its due tickets.
    #[must_use]
    pub const fn runnable(&self) -> usize {
        self.runnable
    }

    /// Due tickets that something holds back.
    #[must_use]
    pub fn held(&self) -> usize {
        self.ready - self.runnable + self.aside.len()
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
        self.steady.len() + self.wall.len() + self.ready + self.aside.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Counts everything again and compares; for tests.
    ///
    /// # Panics
    /// When a counter or an index disagrees with what it counts.
    pub fn check(&self) {
        let ready = || self.lanes.values().flat_map(|lane| lane.ready.iter()).map(|order| order.ticket);
        assert_eq!(self.ready, ready().count(), "ready");
        assert_eq!(self.lanes.values().map(|lane| lane.tickets).sum::<usize>(), self.len(), "lanes");
        let waiting = self.steady.iter().chain(self.wall.iter()).map(|(_, ticket)| ticket);
        let tickets: HashSet<Ticket> = waiting.chain(ready()).chain(self.aside.keys().copied()).collect();
        assert_eq!(tickets.len(), self.len(), "each ticket is in one place");
        let free = self.lanes.values().filter(|lane| lane.hold.is_none());
        assert_eq!(self.runnable, free.clone().map(|lane| lane.ready.len()).sum::<usize>(), "runnable");
        let heads: BTreeMap<_, _> = free.filter_map(|lane| Some((lane.ready.first()?, self.lane_ids[&lane.route]))).collect();
        assert_eq!(self.heads, heads, "heads");
    }

    /// It waits no more: its lane has it from the beginning.
    fn make_ready(&mut self, entry: Option<Entry<'_>>) {
        debug_assert!(entry.is_some(), "a ticket that nobody knows");
        if let Some(entry) = entry {
            let id = self.lane_of(entry.route);
            self.line_up(id, Entry { wake: Wake::AtOnce, ..entry });
        }
    }

    /// Puts a ticket of the lane where it waits.
    fn line_up(&mut self, id: u32, entry: Entry<'_>) {
        match entry.wake {
            Wake::AtOnce => self.change(id, |lane| _ = lane.ready.insert(entry.order())),
            Wake::Steady(at) => _ = self.steady.insert((at, entry.ticket)),
            Wake::Wall(at) => _ = self.wall.insert((at, entry.ticket)),
        }
    }

    /// Takes the ticket from where it waits, and answers for what; its lane counts it still.
    fn withdraw(&mut self, entry: Entry<'_>) -> Option<Wake> {
        if let Some(wake) = self.withdraw_aside(entry.ticket) {
            return Some(wake);
        }
        let is_waiting = match entry.wake {
            Wake::AtOnce => false,
            Wake::Steady(at) => self.steady.remove((at, entry.ticket)),
            Wake::Wall(at) => self.wall.remove((at, entry.ticket)),
        };
        if is_waiting {
            return Some(entry.wake);
        }
        let id = *self.lane_ids.get(entry.route)?;
        let mut was_ready = false;
        self.change(id, |lane| was_ready = lane.ready.remove(entry.order()));
        was_ready.then_some(Wake::AtOnce)
    }

    fn withdraw_aside(&mut self, ticket: Ticket) -> Option<Wake> {
        self.aside.remove(&ticket).map(|(_, wake)| wake)
    }

    /// One ticket less is in the lane.
    fn leave_lane(&mut self, id: u32) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        lane.tickets -= 1;
        if lane.tickets == 0 {
            self.drop_lane(id);
        }
    }

    /// Every change of a lane but that of its least goes through here, so that heads and counters follow.
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

    /// The lane of this route, which is made where there is none.
    fn lane_of(&mut self, route: &Arc<Route>) -> u32 {
        if self.lanes.get(&self.last_lane).is_none_or(|lane| lane.route != *route) {
            self.last_lane = self.lane_ids.get(route).copied().unwrap_or_else(|| self.add_lane(route));
        }
        self.last_lane
    }

    fn add_lane(&mut self, route: &Arc<Route>) -> u32 {
        // Lanes are fewer than tickets, and these fill the memory long before.
        let id = self.free_lanes.pop().unwrap_or_else(|| u32::try_from(self.lanes.len()).unwrap_or(u32::MAX));
        if let Some(target) = &route.target {
            self.targets.entry(target.clone()).or_default().lanes.push(id);
        }
        let hold = self.hold_for(route);
        self.lanes.insert(id, Lane { route: route.clone(), ready: Sorted::default(), tickets: 0, hold });
        self.lane_ids.insert(route.clone(), id);
        id
    }

    fn drop_lane(&mut self, id: u32) {
        let Some(lane) = self.lanes.remove(&id) else { return };
        if self.lanes.is_empty() {
            self.free_lanes = Vec::new();
        } else {
            self.free_lanes.push(id);
        }
        if let Some(target) = &lane.route.target
            && let Some(gated) = self.targets.get_mut(target)
        {
            gated.lanes.retain(|other| *other != id);
            self.forget_if_idle(target);
        }
        self.lane_ids.remove(&lane.route);
    }

    fn refresh_target(&mut self, target: &Target) {
        let lanes = self.targets.get(target).map(|gated| gated.lanes.clone()).unwrap_or_default();
        for id in lanes {
            let Some(lane) = self.lanes.get(&id) else { continue };
            let hold = self.hold_for(&lane.route);
            self.change(id, |lane| lane.hold = hold);
        }
        self.forget_if_idle(target);
    }

    fn forget_if_idle(&mut self, target: &Target) {
        if self.targets.get(target).is_some_and(|gated| gated.lanes.is_empty() && gated.gate == Gate::Open) {
            self.targets.remove(target);
        }
    }

    fn hold_for(&self, route: &Route) -> Option<Hold> {
        if !self.kinds.contains(&route.kind) {
            return Some(Hold::UnknownKind);
        }
        let gated = self.targets.get(route.target.as_ref()?)?;
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

impl Entry<'_> {
    const fn order(&self) -> Order {
        Order { priority: self.priority, rank: self.rank, ticket: self.ticket }
    }
}

#[derive(Debug)]
struct Lane {
    route: Arc<Route>,
    ready: Sorted<Order>,
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
        self.ready.first().filter(|_| self.hold.is_none())
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
