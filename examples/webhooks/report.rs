//! What came of it: a table, one line that must add up, and what does not hold. Counts job by job in the ledger, and holds
//! the queue's own numbers against that.

use std::fmt;
use std::time::Duration;

use journeyman::Stats;

use crate::ledger::{Ledger, Page};
use crate::options::Options;
use crate::receiver::Receiver;
use crate::words::Standing;

/// What the child's lives came to together.
#[derive(Default)]
pub(crate) struct Lives {
    pub kills: u32,
    pub kills_while_enqueuing: u32,
    /// Acknowledgements that named a job from before a kill.
    pub existing: u32,
    records: u64,
    syncs: u64,
    openings: [u64; Receiver::ALL.len()],
    /// The latest word of the current life. What came after it, before a kill, is not known.
    now: Standing,
}

impl Lives {
    pub(crate) fn stands(&mut self, standing: Standing) {
        self.now = standing;
    }

    pub(crate) fn killed(&mut self, while_enqueuing: bool) {
        self.kills += 1;
        self.kills_while_enqueuing += u32::from(while_enqueuing);
        self.records += self.now.records;
        self.syncs += self.now.syncs;
        self.openings.iter_mut().zip(&self.now.breakers).for_each(|(sum, breaker)| *sum += breaker.openings);
        self.now = Standing::default();
    }
}

/// The whole result.
pub(crate) struct Report {
    rows: Vec<Row>,
    queue: Stats,
    jobs: usize,
    tickets: usize,
    /// Kills that were asked for.
    asked: u32,
    kills: u32,
    kills_while_enqueuing: u32,
    existing: u32,
    capacity: u32,
    /// In the journal.
    records: u64,
    records_a_sync: f64,
    took: Duration,
}

/// A receiver's line, or that of all of them.
#[derive(Default)]
struct Row {
    name: &'static str,
    accepted: usize,
    delivered: usize,
    rejected: usize,
    /// Acknowledged, yet neither delivered nor rejected.
    lost: usize,
    /// Deliveries beyond the first of a job.
    twice: usize,
    altered: usize,
    attempts: u64,
    openings: u64,
    breaker: String,
    acknowledgements: Percentiles,
    deliveries: Percentiles,
}

impl Report {
    pub(crate) fn new(options: &Options, ledger: &Ledger, lives: &Lives, queue: Stats, records: u64, took: Duration) -> Self {
        Self {
            rows: Receiver::ALL.iter().map(|receiver| Row::new(*receiver, &ledger.pages_of(*receiver), lives)).collect(),
            queue,
            jobs: options.jobs(),
            tickets: ledger.tickets(),
            asked: options.kill,
            kills: lives.kills,
            kills_while_enqueuing: lives.kills_while_enqueuing,
            existing: lives.existing,
            capacity: options.capacity,
            records,
            records_a_sync: (lives.records + lives.now.records) as f64 / (lives.syncs + lives.now.syncs).max(1) as f64,
            took,
        }
    }

    /// What should hold and does not.
    pub(crate) fn broken(&self) -> Vec<String> {
        let sum = self.sum();
        let (settled, gave_up) = (sum.delivered + sum.rejected, self.gave_up());
        let Stats { done, rejected, pending, running, cancelled, .. } = self.queue;
        let down = &self.rows[Receiver::Down.number()];
        let most_twice = self.kills as usize * self.capacity as usize;
        let rules = [
            (sum.accepted == self.jobs, format!("{} of {} jobs are accepted", sum.accepted, self.jobs)),
            (sum.lost == 0, format!("{} jobs are lost", sum.lost)),
            (sum.accepted as u64 == settled as u64 + gave_up, "the sum does not add up".to_owned()),
            (sum.twice <= most_twice, format!("{} are delivered twice, beyond capacity times kills: {most_twice}", sum.twice)),
            (sum.altered == 0, format!("{} jobs came to their receiver altered", sum.altered)),
            (self.tickets == sum.accepted, format!("{} jobs have {} tickets", sum.accepted, self.tickets)),
            (done == sum.delivered as u64, format!("the queue says that {done} are done, the receivers took {}", sum.delivered)),
            (
                rejected == sum.rejected as u64,
                format!("the queue says that {rejected} are rejected, the receivers refused {}", sum.rejected),
            ),
            (pending + running + cancelled == 0, format!("{pending} are pending, {running} running, {cancelled} cancelled")),
            (self.kills == self.asked, format!("{} kills of {}", self.kills, self.asked)),
            (down.breaker == "closed", format!("the breaker of {} is {}", down.name, down.breaker)),
            (down.openings > 0 || self.jobs < ENOUGH_FOR_AN_OPENING, format!("the breaker of {} never opened", down.name)),
        ];
        rules.into_iter().filter(|(holds, _)| !holds).map(|(_, what)| what).collect()
    }

    fn sum(&self) -> Row {
        let add = |sum: Row, row: &Row| Row {
            accepted: sum.accepted + row.accepted,
            delivered: sum.delivered + row.delivered,
            rejected: sum.rejected + row.rejected,
            lost: sum.lost + row.lost,
            twice: sum.twice + row.twice,
            altered: sum.altered + row.altered,
            ..sum
        };
        self.rows.iter().fold(Row::default(), add)
    }

    /// What the queue itself says it gave up.
    const fn gave_up(&self) -> u64 {
        self.queue.spent + self.queue.late + self.queue.unsafe_to_repeat
    }
}

impl Row {
    fn new(receiver: Receiver, pages: &[Page], lives: &Lives) -> Self {
        let count = |counts: fn(&Page) -> bool| pages.iter().filter(|page| counts(page)).count();
        let breaker = &lives.now.breakers[receiver.number()];
        Self {
            name: receiver.name(),
            accepted: count(|page| page.accepted.is_some()),
            delivered: count(|page| page.taken > 0),
            rejected: count(|page| page.refused),
            lost: count(|page| page.accepted.is_some() && !page.is_settled()),
            twice: pages.iter().map(|page| page.taken.saturating_sub(1) as usize).sum(),
            altered: count(|page| page.altered),
            attempts: pages.iter().map(|page| u64::from(page.attempts)).sum(),
            openings: lives.openings[receiver.number()] + breaker.openings,
            breaker: breaker.state.clone(),
            acknowledgements: Percentiles::of(pages.iter().filter_map(|page| Some(page.accepted?.latency))),
            deliveries: Percentiles::of(pages.iter().filter_map(Page::delivery)),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{HEAD}")?;
        self.rows.iter().try_for_each(|row| writeln!(f, "{row}"))?;
        let Self { kills, kills_while_enqueuing: while_enqueuing, existing, .. } = self;
        let Stats { done, rejected, pending, running, bytes, .. } = self.queue;
        let (sum, gave_up) = (self.sum(), self.gave_up());
        writeln!(
            f,
            "kills {kills}, {while_enqueuing} of them while enqueues were unanswered; answers that named an existing job {existing}"
        )?;
        write!(f, "took {:.1} s, {} records, ", self.took.as_secs_f64(), self.records)?;
        writeln!(f, "{:.1} a sync, journal {} MB", self.records_a_sync, bytes / 1_000_000)?;
        writeln!(f, "opened again: done {done}, rejected {rejected}, gave up {gave_up}, pending {pending}, running {running}")?;
        write!(
            f,
            "accepted {} = delivered {} + rejected {} + gave up {gave_up}; lost {}; delivered twice {}",
            sum.accepted, sum.delivered, sum.rejected, sum.lost, sum.twice
        )
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, accepted, delivered, rejected, lost, attempts, openings, breaker, acknowledgements, deliveries, .. } = self;
        write!(f, "{name:<10} {accepted:>8} {delivered:>9} {rejected:>8} {lost:>7} {attempts:>8} {openings:>8} {breaker:<9}")?;
        write!(f, " {acknowledgements}  {deliveries}")
    }
}

/// The middle, and what one in a hundred exceeds.
#[derive(Default)]
struct Percentiles {
    p50: Duration,
    p99: Duration,
}

impl Percentiles {
    fn of(durations: impl Iterator<Item = Duration>) -> Self {
        let mut sorted: Vec<Duration> = durations.collect();
        sorted.sort_unstable();
        let at = |percent: usize| sorted.get((sorted.len() * percent).div_ceil(100).saturating_sub(1)).copied().unwrap_or_default();
        Self { p50: at(50), p99: at(99) }
    }
}

impl fmt::Display for Percentiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>8.1} {:>8.1}", self.p50.as_secs_f64() * 1e3, self.p99.as_secs_f64() * 1e3)
    }
}

const HEAD: &str = concat!(
    "                                                                             acknowledged, ms     delivered, ms\n",
    "receiver   accepted delivered rejected gave up attempts openings breaker        p50      p99       p50      p99"
);
/// With fewer, the outage may be over, or its only openings lie between the last word and a kill.
const ENOUGH_FOR_AN_OPENING: usize = 5000;
