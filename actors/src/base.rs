//! What outlives the actors of one reign: how the runner is, who runs, where the queue is reached. Handles, workers and the
//! keeper share it; nothing in it decides.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use journeyman_core::Span;
use tokio::sync::watch;

use crate::answers::ShutdownReport;
use crate::clock::Clock;
use crate::error::RunnerFailed;
use crate::events;
use crate::jobs::Jobs;
use crate::ledger::Ledger;
use crate::line::Line;
use crate::messages::{Drain, Quiet, Reply};
use crate::skews::Skews;
use crate::status::{Condition, Status};
use crate::supervisor::Supervisor;
use crate::wiring::{Blueprint, Core};

/// Clones share it.
#[derive(Clone)]
pub(crate) struct Base {
    pub status: Arc<Status>,
    pub ledger: Ledger,
    pub skews: Skews,
    pub line: Line,
    /// Whether the runner is being stopped: a queue that takes office selects nothing then.
    pub draining: Arc<watch::Sender<bool>>,
    pub jobs: Jobs,
    /// The actors of this reign; none between two.
    core: Arc<Mutex<Option<Core>>>,
    /// Watches the workers, which outlive a reign.
    pub staff: Supervisor,
    pub clock: Clock,
}

impl Base {
    pub(crate) fn new<C: 'static>(blueprint: &Blueprint<C>, clock: Clock) -> Self {
        let (status, line) = (Status::new(), Line::default());
        let jobs = Jobs::new(line.clone(), blueprint.registry.policies(), blueprint.limits.clone(), status.clone(), clock.clone());
        let (core, staff) = (Arc::default(), Supervisor::new(status.clone()));
        Self {
            status,
            ledger: Ledger::default(),
            skews: Skews::default(),
            line,
            draining: Arc::new(watch::Sender::new(false)),
            jobs,
            core,
            staff,
            clock,
        }
    }

    /// The actors of the reign, whichever it is now.
    pub(crate) fn core(&self) -> Option<Core> {
        self.slot().clone()
    }

    pub(crate) fn take_core(&self) -> Option<Core> {
        self.slot().take()
    }

    pub(crate) fn set_core(&self, core: Core) {
        *self.slot() = Some(core);
    }

    fn slot(&self) -> MutexGuard<'_, Option<Core>> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing more is selected, now or by a queue to come. Running attempts go on, and enqueues are still taken.
    pub(crate) fn quiet(&self) {
        if !self.draining.send_replace(true) {
            events::draining(self.status.running.get());
        }
        if let Some(queue) = self.line.queue() {
            queue.do_send(Quiet);
        }
    }

    /// Stops in order, whatever queue is in office. Asked again with less patience, the least counts. A runner that is being reopened
    /// when the patience is over is given up: what was accepted is on disk.
    pub(crate) async fn drain(&self, patience: Span) -> Result<ShutdownReport, RunnerFailed> {
        self.quiet();
        let until = self.clock.now().steady + patience;
        loop {
            let settled = tokio::select! {
                biased;
                settled = self.status.settled() => settled,
                () = self.clock.sleep_until(until) => {
                    self.status.give_up("the runner was stopped while it was being reopened");
                    continue;
                }
            };
            if let Condition::Over(failed) = settled {
                return Err(failed);
            }
            let Some(queue) = self.line.queue() else {
                // It has opened, and failed again since.
                tokio::task::yield_now().await;
                continue;
            };
            let (reply, report) = Reply::new();
            queue.do_send(Drain { patience: until.since(self.clock.now().steady), reply });
            tokio::select! {
                biased;
                report = report => match report {
                    Ok(report) => return Ok(report),
                    Err(_) => {
                        self.status.fail("the queue ended without an answer");
                    }
                },
                _ = self.status.failed() => {}
            }
        }
    }
}
