//! When the child is killed: half of the kills while enqueues are unanswered, the others on the way from there to the last
//! delivery, all at moments that the seed picks. Kills nobody itself.

use std::time::Duration;

use crate::ledger::Counts;

/// The kills that are still to come.
pub(crate) struct Kills {
    dice: fastrand::Rng,
    jobs: usize,
    /// So many acknowledgements; least last.
    while_enqueuing: Vec<usize>,
    /// So much of the way from the last acknowledgement to the last delivery; least last.
    while_delivering: Vec<f64>,
    /// How many were settled when the last acknowledgement came.
    settled_before: Option<usize>,
}

impl Kills {
    pub(crate) fn plan(kills: u32, jobs: usize, seed: u64) -> Self {
        let mut dice = fastrand::Rng::with_seed(seed);
        let mut while_enqueuing: Vec<usize> = (0..kills.div_ceil(2)).map(|_| dice.usize(1..jobs.max(2))).collect();
        let mut while_delivering: Vec<f64> = (0..kills / 2).map(|_| dice.f64()).collect();
        while_enqueuing.sort_unstable_by(|one, other| other.cmp(one));
        while_delivering.sort_unstable_by(|one, other| other.total_cmp(one));
        Self { dice, jobs, while_enqueuing, while_delivering, settled_before: None }
    }

    /// Takes the next kill when its time has come.
    pub(crate) fn is_due(&mut self, counts: Counts) -> bool {
        if self.while_enqueuing.pop_if(|acks| *acks <= counts.accepted).is_some() {
            return true;
        }
        if counts.accepted < self.jobs {
            return false;
        }
        let before = *self.settled_before.get_or_insert_with(|| counts.settled());
        let way = counts.settled().saturating_sub(before) as f64 / (self.jobs - before).max(1) as f64;
        self.while_delivering.pop_if(|part| *part <= way).is_some()
    }

    /// Takes the next kill at once. Answers whether there was one.
    pub(crate) fn hurry(&mut self) -> bool {
        self.while_enqueuing.pop().is_some() || self.while_delivering.pop().is_some()
    }

    /// A little while, so that no kill comes always at the reading of a line.
    pub(crate) fn pause(&mut self) -> Duration {
        Duration::from_micros(self.dice.u64(..20_000))
    }
}
