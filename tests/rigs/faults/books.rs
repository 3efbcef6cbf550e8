//! What the program under test was heard to say, what its directory has, and whether the two agree. Every line that was read
//! before a fault binds; so does what the jobs themselves said. Finds nothing by itself and mends nothing: it only judges.

// The rig of power cuts compiles this module for itself, and each uses its own part of it.
#![allow(dead_code)]

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use journeyman_core::disk::Disk;
use journeyman_core::queue::Ends;
use journeyman_core::snapshot::SnapshotStore;
use journeyman_core::store::{OpenError, Store};
use journeyman_core::{JobId, Ticket};

use crate::load;

/// What a directory has, as a start would find it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) live: HashMap<JobId, Standing>,
    pub(crate) ends: Ends,
    pub(crate) last: u64,
    pub(crate) passed_over: Vec<String>,
    pub(crate) torn: Option<String>,
}

/// One job that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) hash: String,
    pub(crate) is_running: bool,
    pub(crate) failures: u32,
}

impl Found {
    pub(crate) fn read(disk: Arc<dyn Disk>, snapshots: &dyn SnapshotStore) -> Result<Self, OpenError> {
        let store = Store::open(disk, snapshots)?;
        store.queue.check();
        let standing = |live: &journeyman_core::queue::Live| Standing {
            hash: load::hash(live.job.payload().expect("all of it is in memory")),
            is_running: live.is_running(),
            failures: live.failures(),
        };
        Ok(Self {
            live: store.queue.tickets().map(|(ticket, live)| (JobId::of(ticket), standing(live))).collect(),
            ends: store.queue.ends(),
            last: store.queue.last().0,
            passed_over: store.passed_over.iter().map(ToString::to_string).collect(),
            torn: store.recovery.torn().map(|torn| format!("{torn:?}")),
        })
    }

    /// Tickets that were ever given out.
    pub(crate) fn tickets(&self) -> u64 {
        self.live.len() as u64 + self.ends.total()
    }

    /// What the role `audit` prints: `live ID HASH pending|running FAILURES` for each, then the sums.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = self
            .live
            .iter()
            .map(|(id, standing)| {
                let phase = if standing.is_running { "running" } else { "pending" };
                format!("live {id} {} {phase} {}", standing.hash, standing.failures)
            })
            .collect();
        lines.sort();
        let Ends { done, rejected, unsafe_to_repeat, spent, late, cancelled } = self.ends;
        lines.push(format!(
            "ended done {done} rejected {rejected} unsafe {unsafe_to_repeat} spent {spent} late {late} cancelled {cancelled}"
        ));
        lines.extend(self.passed_over.iter().map(|text| format!("passed-over {text}")));
        lines.extend(self.torn.iter().map(|text| format!("torn {text}")));
        lines.push(format!("sound {} records, {} tickets", self.last, self.tickets()));
        lines
    }
}

#[derive(Clone, Default)]
pub(crate) struct Books {
    /// By hash, how often the job may be attempted.
    asked: HashMap<String, u32>,
    /// Asked for at once, since the last audit.
    batches: Vec<Vec<String>>,
    /// The id that was acknowledged for a hash.
    ids: HashMap<String, JobId>,
    jobs: HashMap<JobId, Heard>,
    violations: Vec<String>,
    /// Whether a process was heard that has not ended.
    is_heard: bool,
    pub(crate) acks: u64,
}

/// What was heard of a job.
#[derive(Clone, Debug, Default)]
struct Heard {
    hash: Option<String>,
    attempt: u32,
    /// Processes that ended since: each may have begun one more attempt on record, and died before the job could say so.
    ends_since: u32,
    runs: bool,
    /// Its last attempt was cut off: its number may come again if nothing was spent.
    was_cut: bool,
    did: bool,
    gave_up: bool,
    cancel_asked: bool,
    ended: Option<String>,
    /// It was cancelled while an attempt was selected: that one may still say that it runs, in this process.
    is_stopping: bool,
}

impl Books {
    /// Takes down a line that was said before the fault.
    pub(crate) fn hear(&mut self, line: &str) {
        self.note(line, true);
    }

    /// Takes down a line that may have been said after the fault: what it acknowledges is not counted on.
    pub(crate) fn hear_too_late(&mut self, line: &str) {
        self.note(line, false);
    }

    fn note(&mut self, line: &str, binds: bool) {
        self.is_heard = true;
        let mut words = line.split(' ');
        let word = words.next().unwrap_or_default();
        let rest: Vec<&str> = words.collect();
        match (word, &rest[..]) {
            ("ask", [hash, limit]) => _ = self.asked.insert((*hash).to_owned(), limit.parse().unwrap_or(u32::MAX)),
            ("batch", hashes) => self.batches.push(hashes.iter().map(|hash| (*hash).to_owned()).collect()),
            ("ack", [id, hash]) if binds => self.acknowledged(id, hash),
            ("run", [id, attempt]) => self.began(id, attempt.parse().unwrap_or(0), binds),
            ("did", [id]) => self.over(id, |job| job.did = true),
            ("failed", [id]) => self.over(id, |_| ()),
            ("gave-up", [id]) => self.over(id, |job| job.gave_up = true),
            ("cut", [id]) => self.over(id, |job| job.was_cut = true),
            ("cancel", [id]) => self.of(id, |job| job.cancel_asked = true),
            ("cancelled", [id, answer]) if binds => self.cancelled(id, answer),
            ("end", [id, end]) if binds => self.of(id, |job| {
                job.is_stopping |= job.ended.is_none() && *end == "Cancelled";
                job.ended = Some((*end).to_owned());
            }),
            _ => {}
        }
    }

    fn of(&mut self, id: &str, change: impl FnOnce(&mut Heard)) {
        match id.parse() {
            Ok(id) => change(self.jobs.entry(id).or_default()),
            // The last line of a process that was killed may be cut short.
            Err(_) => self.violations.push(format!("{id:?} is no id")),
        }
    }

    fn acknowledged(&mut self, id: &str, hash: &str) {
        let Ok(parsed) = id.parse::<JobId>() else { return };
        self.acks += 1;
        if !self.asked.contains_key(hash) {
            self.violations.push(format!("{id} was acknowledged for {hash}, which nobody asked for"));
        }
        if let Some(other) = self.ids.insert(hash.to_owned(), parsed).filter(|other| *other != parsed) {
            self.violations.push(format!("{hash} was acknowledged as {other} and as {id}"));
        }
        let job = self.jobs.entry(parsed).or_default();
        if let Some(other) = job.hash.replace(hash.to_owned()).filter(|other| other != hash) {
            self.violations.push(format!("{id} was acknowledged for {other} and for {hash}"));
        }
    }

    fn began(&mut self, id: &str, attempt: u32, binds: bool) {
        let mut wrong = None;
        self.of(id, |job| {
            let rises = attempt > job.attempt || (attempt == job.attempt && job.was_cut);
            wrong = if let Some(end) = job.ended.as_ref().filter(|_| !job.is_stopping) {
                Some(format!("{id} runs after its end as {end}"))
            } else if job.runs {
                Some(format!("{id} runs twice at once"))
            } else if !rises && binds {
                Some(format!("{id} runs in attempt {attempt} after attempt {}", job.attempt))
            } else {
                None
            };
            (job.attempt, job.ends_since, job.runs, job.was_cut, job.is_stopping) = (job.attempt.max(attempt), 0, true, false, false);
        });
        self.violations.extend(wrong);
    }

    fn over(&mut self, id: &str, change: impl FnOnce(&mut Heard)) {
        self.of(id, |job| {
            job.runs = false;
            change(job);
        });
    }

    fn cancelled(&mut self, id: &str, answer: &str) {
        match answer {
            "Cancelled" | "Stopping" => self.of(id, |job| {
                job.is_stopping = answer == "Stopping" && !job.runs;
                job.ended = Some("Cancelled".to_owned());
            }),
            // It ended before: with an acknowledgement that we did not hear, or by an earlier try.
            "AlreadyEnded" => self.of(id, |job| _ = job.ended.get_or_insert_with(|| "AlreadyEnded".to_owned())),
            other => self.violations.push(format!("the cancel of {id} was answered by {other}")),
        }
    }

    /// The process is gone, and its attempts with it.
    pub(crate) fn process_ended(&mut self) {
        let ends = u32::from(std::mem::take(&mut self.is_heard));
        for job in self.jobs.values_mut() {
            (job.runs, job.is_stopping) = (false, false);
            job.ends_since += ends;
        }
    }

    /// Compares what was heard with what is there.
    pub(crate) fn audit(&mut self, found: &Found) {
        self.process_ended();
        let mut wrong = Vec::new();
        for (id, job) in &self.jobs {
            match (found.live.get(id), &job.ended, &job.hash) {
                (Some(_), Some(end), _) => wrong.push(format!("{id} has come back after its end as {end}")),
                (Some(live), None, Some(hash)) if live.hash != *hash => wrong.push(format!("{id} was {hash} and is {}", live.hash)),
                (None, None, Some(hash)) if !self.may_have_ended(job, hash) => wrong.push(format!("{id} ({hash}) is lost: {job:?}")),
                _ => {}
            }
        }
        let mut hashes = HashSet::new();
        for (id, live) in &found.live {
            if !self.asked.contains_key(&live.hash) {
                wrong.push(format!("{id} ({}) was never asked for", live.hash));
            }
            if !hashes.insert(&live.hash) || self.ids.get(&live.hash).is_some_and(|known| known != id) {
                wrong.push(format!("{} is there twice, once as {id}", live.hash));
            }
        }
        for batch in self.batches.drain(..) {
            wrong.extend(half_of(&batch, found));
        }
        let highest = self.jobs.iter().filter(|(_, job)| job.hash.is_some()).map(|(id, _)| id.ticket().0).max().unwrap_or(0);
        if found.tickets() < highest {
            wrong.push(format!("ticket {highest} was acknowledged, and {} are known", found.tickets()));
        }
        let did = self.jobs.values().filter(|job| job.did).count() as u64;
        if found.ends.done > did {
            wrong.push(format!("{} ended as done, and {did} said so", found.ends.done));
        }
        self.violations.append(&mut wrong);
    }

    /// Whether there is a reason why an acknowledged job is no longer there, although its end was not heard.
    fn may_have_ended(&self, job: &Heard, hash: &str) -> bool {
        job.did
            || job.gave_up
            || job.cancel_asked
            || job.attempt + job.ends_since.min(MOST_UNHEARD) >= *self.asked.get(hash).unwrap_or(&u32::MAX)
    }

    /// What did not hold until now.
    pub(crate) fn judge(&self) -> Result<(), String> {
        let first = &self.violations[..self.violations.len().min(10)];
        if first.is_empty() { Ok(()) } else { Err(format!("{} violations, first {first:#?}", self.violations.len())) }
    }
}

/// What is wrong with a batch of which a part is there. Its tickets are neighbours: so each of them was given out, and is this one's.
fn half_of(batch: &[String], found: &Found) -> Option<String> {
    let place = |hash: &String| found.live.iter().find(|(_, live)| live.hash == *hash).map(|(id, _)| id.ticket().0);
    let (at, ticket) = batch.iter().enumerate().find_map(|(at, hash)| Some((at as u64, place(hash)?)))?;
    let first = ticket.checked_sub(at).filter(|first| *first > 0 && first + batch.len() as u64 - 1 <= found.tickets());
    let is_whole = first.is_some_and(|first| {
        let mut members = (first..).map(|ticket| JobId::of(Ticket(ticket))).zip(batch);
        members.all(|(id, hash)| found.live.get(&id).is_none_or(|live| live.hash == *hash))
    });
    (!is_whole).then(|| format!("half of a batch is there: {batch:?}"))
}

/// Attempts of a job of which nobody heard: well below what a job may be attempted that is not to be used up.
const MOST_UNHEARD: u32 = 8;
