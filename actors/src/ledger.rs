//! Live attempts by (ticket, attempt), outside every actor: their outcomes survive the actor that they are sent to.
//! An entry leaves when the record that ends its attempt is durable. Decides nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use journeyman_core::retry::Outcome;
use journeyman_core::{Attempt, End, Fault, Ticket, Time};
use tokio_util::sync::CancellationToken;

/// The attempts of one runner. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger(Arc<Mutex<HashMap<(Ticket, Attempt), Entry>>>);

/// What can be said to an attempt from outside.
#[derive(Clone, Debug, Default)]
pub(crate) struct Signals {
    /// Its ticket was cancelled: it may finish, but need not.
    pub cancelled: CancellationToken,
    /// The drain is over: it is dropped at its next await.
    pub interrupted: CancellationToken,
}

/// How an attempt ended.
#[derive(Clone, Debug)]
pub(crate) enum Ended {
    /// The job began, and this came of it.
    Ran { outcome: Outcome, fault: Option<Fault> },
    /// The budget does not admit it: the ticket ends.
    Denied(End),
    /// The breaker refuses until then, by the steady clock.
    Open { until: Time },
    /// This build cannot decode the payload.
    Unreadable { why: String },
    /// The stop came before the job began.
    NeverBegan,
    /// Whoever had it is gone without a word; nobody knows how far it came.
    Lost,
    /// The process that ran it died.
    Crashed,
}

#[derive(Debug)]
enum Entry {
    Live {
        signals: Signals,
        /// Whether the job has begun to run.
        begun: bool,
    },
    Ended(Ended),
}

impl Ledger {
    /// Notes an attempt that is about to begin.
    pub(crate) fn begin(&self, ticket: Ticket, attempt: Attempt) -> Signals {
        let signals = Signals::default();
        self.entries().insert((ticket, attempt), Entry::Live { signals: signals.clone(), begun: false });
        signals
    }

    /// Notes how it ended. The first word counts: one that was given up cannot end again.
    pub(crate) fn end(&self, ticket: Ticket, attempt: Attempt, ended: Ended) {
        if let Some(entry @ Entry::Live { .. }) = self.entries().get_mut(&(ticket, attempt)) {
            *entry = Entry::Ended(ended);
        }
    }

    /// How it ended.
    pub(crate) fn ended(&self, ticket: Ticket, attempt: Attempt) -> Option<Ended> {
        match self.entries().get(&(ticket, attempt))? {
            Entry::Ended(ended) => Some(ended.clone()),
            Entry::Live { .. } => None,
        }
    }

    /// The record that ends it is durable.
    pub(crate) fn forget(&self, ticket: Ticket, attempt: Attempt) {
        self.entries().remove(&(ticket, attempt));
    }

    /// Tells a live attempt that its ticket was cancelled.
    pub(crate) fn cancel(&self, ticket: Ticket, attempt: Attempt) {
        if let Some(Entry::Live { signals, .. }) = self.entries().get(&(ticket, attempt)) {
            signals.cancelled.cancel();
        }
    }

    /// Cuts off every live attempt.
    pub(crate) fn interrupt_all(&self) {
        for entry in self.entries().values() {
            if let Entry::Live { signals, .. } = entry {
                signals.interrupted.cancel();
            }
        }
    }

    /// The job begins to run, unless it was cut off or given up before.
    pub(crate) fn may_run(&self, ticket: Ticket, attempt: Attempt) -> bool {
        match self.entries().get_mut(&(ticket, attempt)) {
            Some(Entry::Live { signals, begun }) if !signals.interrupted.is_cancelled() => {
                *begun = true;
                true
            }
            _ => false,
        }
    }

    /// Attempts that have not ended, and whether their jobs have begun to run.
    pub(crate) fn live(&self) -> Vec<(Ticket, Attempt, bool)> {
        let live = |(name, entry): (&(Ticket, Attempt), &Entry)| match entry {
            Entry::Live { begun, .. } => Some((name.0, name.1, *begun)),
            Entry::Ended(_) => None,
        };
        self.entries().iter().filter_map(live).collect()
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<(Ticket, Attempt), Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
