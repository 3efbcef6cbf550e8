//! What the parent knows of every job: when it was acknowledged, and what its receiver got. Asks nobody; it is what the
//! queue's own numbers are held against.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use journeyman::JobId;
use tokio::sync::watch;

use crate::receiver::Receiver;

/// One page for each job. Shared by the receivers and the parent's loop.
pub(crate) struct Ledger {
    pages: Mutex<Vec<Page>>,
    counts: watch::Sender<Counts>,
}

/// How many distinct jobs are how far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Acknowledged.
    pub accepted: usize,
    /// Taken by their receiver.
    pub delivered: usize,
    /// Refused for good.
    pub rejected: usize,
}

impl Counts {
    /// Delivered or rejected.
    pub(crate) const fn settled(self) -> usize {
        self.delivered + self.rejected
    }
}

/// What is known of a job.
#[derive(Clone, Debug, Default)]
pub(crate) struct Page {
    pub accepted: Option<Accepted>,
    /// The number of the latest attempt, as it came with the request. It counts those that never reached the receiver.
    pub attempts: u32,
    /// How often the receiver took it.
    pub taken: u32,
    pub first_taken: Option<Instant>,
    /// Whether the receiver refused it for good.
    pub refused: bool,
    /// Whether what came was not what was enqueued.
    pub altered: bool,
}

/// An acknowledgement that the parent has read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Accepted {
    pub ticket: JobId,
    pub read: Instant,
    /// How long the caller waited for it.
    pub latency: Duration,
}

impl Ledger {
    pub(crate) fn new(jobs: usize) -> Self {
        Self { pages: Mutex::new(vec![Page::default(); jobs]), counts: watch::Sender::default() }
    }

    /// An acknowledgement was read. Of two for one job, the first counts.
    pub(crate) fn accepted(&self, n: usize, accepted: Accepted) {
        self.write(n, |page| {
            page.accepted.get_or_insert(accepted);
        });
    }

    /// A request has come.
    pub(crate) fn came(&self, n: usize, attempt: u32, altered: bool) {
        self.write(n, |page| {
            page.attempts = page.attempts.max(attempt);
            page.altered |= altered;
        });
    }

    /// The receiver took it, or took it again.
    pub(crate) fn taken(&self, n: usize) {
        self.write(n, |page| {
            page.taken += 1;
            page.first_taken.get_or_insert_with(Instant::now);
        });
    }

    /// The receiver refused it for good.
    pub(crate) fn refused(&self, n: usize) {
        self.write(n, |page| page.refused = true);
    }

    pub(crate) fn counts(&self) -> Counts {
        *self.counts.borrow()
    }

    /// Hears of every change of the counts.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Counts> {
        self.counts.subscribe()
    }

    /// Waits until so many jobs are settled.
    pub(crate) async fn until_settled(&self, jobs: usize) {
        // The sender is a field of self: it outlives this call.
        let _ = self.subscribe().wait_for(|counts| counts.settled() >= jobs).await;
    }

    /// The jobs that were never seen acknowledged.
    pub(crate) fn unacknowledged(&self) -> Vec<Range<usize>> {
        let mut ranges: Vec<Range<usize>> = Vec::new();
        for (n, _) in self.pages().iter().enumerate().filter(|(_, page)| page.accepted.is_none()) {
            match ranges.last_mut() {
                Some(last) if last.end == n => last.end = n + 1,
                _ => ranges.push(n..n + 1),
            }
        }
        ranges
    }

    /// The pages of a receiver's jobs.
    pub(crate) fn pages_of(&self, receiver: Receiver) -> Vec<Page> {
        let numbered = self.pages().clone().into_iter().enumerate();
        numbered.filter(|(n, _)| Receiver::of(*n) == receiver).map(|(_, page)| page).collect()
    }

    /// How many different tickets were named.
    pub(crate) fn tickets(&self) -> usize {
        self.pages().iter().filter_map(|page| page.accepted).map(|accepted| accepted.ticket).collect::<HashSet<_>>().len()
    }

    fn write(&self, n: usize, change: impl FnOnce(&mut Page)) {
        let mut pages = self.pages();
        let Some(page) = pages.get_mut(n) else { return };
        let before = page.counts();
        change(page);
        let after = page.counts();
        if before != after {
            self.counts.send_modify(|counts| {
                counts.accepted += after.accepted - before.accepted;
                counts.delivered += after.delivered - before.delivered;
                counts.rejected += after.rejected - before.rejected;
            });
        }
    }

    fn pages(&self) -> MutexGuard<'_, Vec<Page>> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Page {
    pub(crate) const fn is_settled(&self) -> bool {
        self.taken > 0 || self.refused
    }

    /// How long after its acknowledgement was read the receiver took it; nothing when it was faster than the line.
    pub(crate) fn delivery(&self) -> Option<Duration> {
        Some(self.first_taken?.saturating_duration_since(self.accepted?.read))
    }

    /// What this job adds to the counts.
    fn counts(&self) -> Counts {
        Counts { accepted: self.accepted.is_some().into(), delivered: (self.taken > 0).into(), rejected: self.refused.into() }
    }
}
