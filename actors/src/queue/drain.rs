//! An orderly stop: select nothing more, let what runs end, cut off what does not, take no more, write all down, answer.

use actix::{Context, Handler};
use journeyman_core::retry::Outcome;
use journeyman_core::{Cause, Fault, Now, Time};

use super::QueueActor;
use crate::answers::ShutdownReport;
use crate::error::CallError;
use crate::events;
use crate::ledger::Ended;
use crate::messages::{Drain, Quiet};

/// How far the stop has come. Never goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Open,
    /// Nothing is selected any more; all else goes on.
    Quiet,
    /// Running attempts may end by themselves.
    Draining {
        until: Time,
    },
    /// Running attempts have been cut off.
    CuttingOff {
        until: Time,
    },
    /// Those that did not react are ended in the books.
    GivenUp,
    /// Nothing is taken any more; what was decided is being written.
    Closing,
    Closed,
    /// The disk has no room for a record: questions are answered, nothing is taken or selected.
    ReadOnly,
    /// Failed: see the status.
    Halted,
}

impl Stage {
    pub(super) const fn is_quiet(self) -> bool {
        !matches!(self, Self::Open)
    }

    pub(super) const fn is_cutting_off(self) -> bool {
        matches!(self, Self::CuttingOff { .. } | Self::GivenUp | Self::Closing)
    }

    /// Why questions are refused, when they are.
    pub(super) const fn silence(self) -> Option<CallError> {
        match self {
            Self::Closed => Some(CallError::ShuttingDown),
            Self::Halted => Some(CallError::Unavailable),
            _ => None,
        }
    }

    /// Whether there is nothing left to decide.
    pub(super) const fn is_over(self) -> bool {
        matches!(self, Self::Closed | Self::Halted)
    }

    /// Why calls that change something are refused, when they are.
    pub(super) const fn refusal(self) -> Option<CallError> {
        match self {
            Self::Open | Self::Quiet | Self::Draining { .. } | Self::CuttingOff { .. } | Self::GivenUp => None,
            Self::Closing | Self::Closed => Some(CallError::ShuttingDown),
            Self::ReadOnly => Some(CallError::ReadOnly),
            Self::Halted => Some(CallError::Unavailable),
        }
    }

    pub(super) const fn deadline(self) -> Option<Time> {
        match self {
            Self::Draining { until } | Self::CuttingOff { until } => Some(until),
            Self::Open | Self::Quiet | Self::GivenUp | Self::Closing | Self::Closed | Self::ReadOnly | Self::Halted => None,
        }
    }
}

impl QueueActor {
    pub(super) fn advance_drain(&mut self, now: Now) {
        let nothing_runs = self.writer.queue().running() == 0 && self.watched.is_empty();
        match self.stage {
            Stage::Draining { .. } | Stage::CuttingOff { .. } | Stage::GivenUp if nothing_runs => self.stage = Stage::Closing,
            Stage::Draining { until } if until <= now.steady => {
                self.ledger.interrupt_all();
                self.stage = Stage::CuttingOff { until: now.steady + self.rules.limits.interrupt_grace.into() };
            }
            Stage::CuttingOff { until } if until <= now.steady => {
                self.stage = Stage::GivenUp;
                self.give_up_on_the_stuck();
                self.settle_outcomes(now);
                return self.advance_drain(now);
            }
            _ => {}
        }
        // What was taken before the door closed is still decided; the report comes when all of it is on disk.
        let is_done = self.intake.is_empty() && self.outcomes.is_empty() && self.effects.is_empty() && self.writer.is_flushed();
        if self.stage == Stage::Closing && is_done {
            self.close();
        }
    }

    fn close(&mut self) {
        self.stage = Stage::Closed;
        self.status.close();
        let report = self.report();
        events::closed(report.interrupted, report.pending);
        self.drained.drain(..).for_each(|reply| reply.give(report));
        self.waiting_for_idle.drain(..).for_each(|waiting| waiting.reply.give(Err(CallError::ShuttingDown.into())));
        self.status.feed.close();
        self.waiting_for_ends.refuse_all(CallError::ShuttingDown);
    }

    fn report(&self) -> ShutdownReport {
        ShutdownReport { interrupted: self.interrupted, pending: self.writer.queue().pending() as u64 }
    }

    /// Attempts that do not come to an await cannot be stopped. They end in the books; the process is about to end them.
    fn give_up_on_the_stuck(&mut self) {
        let fault = Fault::new(Cause::Interrupted, "the runner was stopped while the attempt did not react");
        for (ticket, attempt, begun) in self.ledger.live() {
            let cut_short = Ended::Ran { outcome: Outcome::Interrupted { begun: true }, fault: Some(fault.clone()) };
            self.ledger.note(ticket, attempt, if begun { cut_short } else { Ended::NeverBegan });
            // The first word counts, and that may have been its own.
            self.outcomes.extend(self.ledger.ended(ticket, attempt).map(|ended| (ticket, attempt, ended)));
        }
    }
}

impl Handler<Quiet> for QueueActor {
    type Result = ();

    fn handle(&mut self, _: Quiet, ctx: &mut Context<Self>) {
        if self.stage == Stage::Open {
            self.stage = Stage::Quiet;
        }
        self.request_turn(ctx);
    }
}

impl Handler<Drain> for QueueActor {
    type Result = ();

    fn handle(&mut self, Drain { patience, reply }: Drain, ctx: &mut Context<Self>) {
        if !reply.is_wanted() {
            return;
        }
        // What was called for before is taken before the door closes.
        self.take_calls(ctx);
        let until = self.clock.now().steady + patience;
        match self.stage {
            // Dropped, the answer says that it was lost: the runner has failed.
            Stage::Halted => return,
            Stage::Closed | Stage::ReadOnly => {
                if self.stage == Stage::ReadOnly {
                    // Nothing can be written: attempts that outlived an earlier queue count as failed at the next start.
                    self.ledger.interrupt_all();
                    self.close();
                }
                self.clock.stir();
                return reply.give(self.report());
            }
            Stage::Open | Stage::Quiet => self.stage = Stage::Draining { until },
            // A second, less patient stop counts.
            Stage::Draining { until: before } => self.stage = Stage::Draining { until: before.min(until) },
            Stage::CuttingOff { .. } | Stage::GivenUp | Stage::Closing => {}
        }
        self.drained.push(reply);
        self.request_turn(ctx);
    }
}
