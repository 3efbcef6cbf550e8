//! What is logged, in one place: every line's target, level and fields. Payloads, keys, meta values and the texts of faults
//! are in none of them; the last fault of a job is asked for with `Jobs::get`.
//!
//! Targets are stable: `journeyman::queue`, `journeyman::breaker`, `journeyman::worker`, `journeyman::journal`,
//! `journeyman::runner`. One event per transition at debug; warnings are for a person to act on.

use std::path::Path;

use journeyman_core::breaker::Position;
use journeyman_core::compaction::Compacted;
use journeyman_core::journal::Torn;
use journeyman_core::schedule::Hold;
use journeyman_core::{End, Epoch, Fault, JobId, Kind, Seq, Target, Ticket, Time};
use tracing::{Span, debug, debug_span, error, info, warn};

use crate::ledger::Ended;
use crate::messages::Flight;
use crate::metrics;

pub(crate) fn enqueued(ticket: Ticket, kind: &Kind, target: Option<&Target>, seq: Seq) {
    debug!(target: QUEUE, id = %JobId::of(ticket), %kind, target = target.map(tracing::field::display), %seq, "enqueued");
}

pub(crate) fn selected(ticket: Ticket, seq: Seq) {
    debug!(target: QUEUE, id = %JobId::of(ticket), %seq, "selected");
}

pub(crate) fn completed(ticket: Ticket, kind: &Kind, end: End, fault: Option<&Fault>, seq: Seq) {
    let id = JobId::of(ticket);
    let cause = fault.map(|fault| fault.cause().as_str());
    match end {
        End::Done => debug!(target: QUEUE, %id, %kind, end = end.as_str(), %seq, "completed"),
        End::Rejected => info!(target: QUEUE, %id, %kind, end = end.as_str(), cause, %seq, "completed"),
        End::Unsafe | End::Spent | End::Late => {
            warn!(target: QUEUE, %id, %kind, end = end.as_str(), cause, %seq, "given up: the job was not done and will not be tried again");
        }
    }
}

pub(crate) fn requeued(ticket: Ticket, due: Time, fault: &Fault, seq: Seq) {
    debug!(target: QUEUE, id = %JobId::of(ticket), due = due.0, cause = fault.cause().as_str(), %seq, "requeued");
}

pub(crate) fn deferred(ticket: Ticket, due: Time, seq: Seq) {
    debug!(target: QUEUE, id = %JobId::of(ticket), due = due.0, %seq, "deferred");
}

pub(crate) fn cancelled(ticket: Ticket, was_running: bool, seq: Seq) {
    debug!(target: QUEUE, id = %JobId::of(ticket), was_running, %seq, "cancelled");
}

pub(crate) fn led(epoch: Epoch) {
    debug!(target: QUEUE, %epoch, "leads the journal");
}

pub(crate) fn unreadable(ticket: Ticket, kind: &Kind, why: &str) {
    warn!(target: QUEUE, id = %JobId::of(ticket), %kind, why, "held: {}; it waits for a build that understands it, or for a cancel", Hold::Unreadable.as_str());
}

pub(crate) fn unknown_kinds(kind: &Kind, tickets: usize) {
    warn!(target: QUEUE, %kind, tickets, "held: {}; register it, or cancel them", Hold::UnknownKind.as_str());
}

pub(crate) fn orphans(count: usize) {
    warn!(target: QUEUE, count, "attempts were cut off by a crash; they count as failed and go on at once");
}

pub(crate) fn wall_jumped(skew_ms: i64) {
    warn!(target: QUEUE, skew_ms, "the wall clock jumped; only tickets due at an instant move with it");
}

pub(crate) fn journal_nearly_full(bytes: u64, limit: u64) {
    warn!(target: JOURNAL, bytes, limit, "the journal nears its limit: soon no new work is accepted");
}

pub(crate) fn journal_failed(why: &str) {
    error!(target: JOURNAL, why, "the journal has failed: nothing is acknowledged until it is open again; look at the disk");
}

pub(crate) fn compacted(compacted: &Compacted) {
    let (snapshot, removed, kept) = (compacted.snapshot_bytes, compacted.removed_bytes, compacted.kept_bytes);
    info!(target: JOURNAL, last = %compacted.seq, snapshot, removed, kept, "compacted");
}

pub(crate) fn compaction_failed(why: &str, failures: u32, pause: journeyman_core::Span) {
    warn!(target: JOURNAL, why, failures, pause_ms = pause.0, "the journal could not be compacted and grows; nothing is lost, and it is tried again");
}

pub(crate) fn sweep_failed(why: &str) {
    warn!(target: JOURNAL, why, "what unfinished snapshots have left behind could not be removed");
}

pub(crate) fn not_put_away(why: &str) {
    warn!(target: QUEUE, why, "payloads beyond their share of memory cannot be put on disk, and stay in memory");
}

pub(crate) fn payloads_not_swept(why: &str) {
    warn!(target: QUEUE, why, "files of payloads that an earlier process has left could not be removed");
}

pub(crate) fn snapshot_passed_over(why: &str) {
    error!(target: JOURNAL, why, "a snapshot is damaged; the one before it and the journal since make up for it, but look at the disk");
}

pub(crate) fn torn(torn: &Torn) {
    warn!(target: JOURNAL, file = torn.file, offset = torn.offset, last = %torn.last, "a torn tail, the normal leftover of a crash, is left behind: no disk that kept its word has acknowledged anything in it");
}

pub(crate) fn breaker_moved(target: &Target, position: Position, openings: u64) {
    metrics::breaker_moved(position);
    match position {
        Position::Closed => info!(target: BREAKER, %target, openings, "closed: the target answers again"),
        Position::HalfOpen => debug!(target: BREAKER, %target, openings, "half-open: probing the target"),
        Position::Open { until } => {
            warn!(target: BREAKER, %target, openings, until = until.0, "open: the target is down and left alone for a while");
        }
    }
}

pub(crate) fn attempt_span(flight: &Flight) -> Span {
    let target = flight.job.target().map(tracing::field::display);
    debug_span!(target: WORKER, "job.run", kind = %flight.job.kind(), id = %JobId::of(flight.ticket), attempt = flight.number, target)
}

pub(crate) fn attempt_ended(ended: &Ended) {
    match ended {
        Ended::Ran { fault: Some(fault), .. } => debug!(target: WORKER, cause = fault.cause().as_str(), "attempt failed"),
        Ended::Ran { .. } => debug!(target: WORKER, "attempt ended"),
        _ => debug!(target: WORKER, "attempt did not begin"),
    }
}

pub(crate) fn opened(dir: &Path, pending: usize, running: usize, last: Seq) {
    info!(target: RUNNER, dir = %dir.display(), pending, running, %last, "opened");
}

pub(crate) fn group_writable(dir: &Path) {
    warn!(target: RUNNER, dir = %dir.display(), "the directory can be written to by its group: whoever is in that can forge jobs and take some away");
}

pub(crate) fn waiting_for_lock(dir: &Path, patience: std::time::Duration) {
    info!(target: RUNNER, dir = %dir.display(), ?patience, "locked by another runner; waiting for it to let go");
}

pub(crate) fn draining(running: u64) {
    info!(target: RUNNER, running, "draining: no new attempt starts");
}

pub(crate) fn closed(deferred: u64, pending: u64) {
    info!(target: RUNNER, deferred, pending, "closed");
}

pub(crate) fn dropped() {
    warn!(target: RUNNER, "the runner was dropped without a shutdown: attempts are cut off, and count as failed at the next start");
}

pub(crate) fn actor_died(name: &str) {
    error!(target: RUNNER, name, "a core actor died: nothing is acknowledged until the journal is open again");
}

pub(crate) fn stuck(why: &str) {
    error!(target: RUNNER, why, "the queue is stuck: nothing is acknowledged until the journal is open again");
}

pub(crate) fn abandoned() {
    warn!(target: RUNNER, "the thread of a queue that is stuck is left behind; that queue decides nothing any more");
}

pub(crate) fn reopened(tries: u32) {
    warn!(target: RUNNER, tries, "reopened: everything acknowledged goes on, attempts that still run are kept");
}

pub(crate) fn reopening_failed(why: &str) {
    error!(target: RUNNER, why, "the journal could not be reopened");
}

pub(crate) fn given_up(why: &str) {
    error!(target: RUNNER, why, "the runner is over: it will not be reopened any more; what was accepted is on disk for the next start");
}

pub(crate) fn read_only() {
    error!(target: RUNNER, "the disk is full: questions are answered, and nothing is taken or run until there is room again");
}

pub(crate) fn seal_failed(why: &str) {
    warn!(target: JOURNAL, why, "the journal could not be sealed; everything acknowledged is on disk all the same");
}

const QUEUE: &str = "journeyman::queue";
const JOURNAL: &str = "journeyman::journal";
const BREAKER: &str = "journeyman::breaker";
const WORKER: &str = "journeyman::worker";
const RUNNER: &str = "journeyman::runner";
