//! A program that keeps a queue in a journal with snapshots, and what it knows: which records it has heard to be durable, and which
//! may be on the disk without its knowledge. Proves nothing by itself.

use std::fmt::Display;
use std::sync::Arc;

use journeyman_core::compaction::{Compaction, Progress};
use journeyman_core::disk::Disk;
use journeyman_core::journal::{AppendError, Batch, Journal, JournalLimits, RecoverError, RotateError, Salt};
use journeyman_core::payloads::Payloads;
use journeyman_core::queue::Phase;
use journeyman_core::room::Room;
use journeyman_core::snapshot::{PlainStore, SnapshotError};
use journeyman_core::store::{OpenError, Store};
use journeyman_core::{Cause, Codec, End, Fault, Job, Key, Kind, Op, Options, Packed, Queue, Record, Target, Ticket, Time, record};

use super::sim::{Files, SimDisk, Still};

/// What a program knows of its partition.
#[derive(Clone, Default)]
pub(crate) struct Known {
    /// Acknowledged: this is there for good.
    pub(crate) acked: Arc<Queue>,
    /// What it comes to with each batch behind that: on the disk or not, nobody has heard.
    pub(crate) maybe: Vec<Arc<Queue>>,
}

impl Known {
    /// Opens what is left and checks that it holds all that was acknowledged, and of the rest a beginning. Nothing is damaged, and
    /// nothing is changed by looking.
    pub(crate) fn judge(&self, files: &Files, context: &dyn Display) -> Queue {
        let still: Arc<dyn Disk> = Arc::new(Still(Arc::new(files.clone())));
        let store = Store::open(still.clone(), &PlainStore::new(still)).unwrap_or_else(|error| panic!("{context}: {error}"));
        assert!(store.passed_over.is_empty(), "{context}: {:?}", store.passed_over);
        self.agrees(&store.queue, context);
        store.queue
    }

    /// Which of the states that may be it is: how many batches of those that may be there.
    pub(crate) fn agrees(&self, found: &Queue, context: &dyn Display) -> usize {
        let possible = std::iter::once(&self.acked).chain(&self.maybe);
        let Some(at) = possible.clone().position(|queue| **queue == *found) else {
            let lasts: Vec<_> = possible.map(|queue| queue.last()).collect();
            panic!("{context}: found another state, at record {}; it must be that at one of {lasts:?}", found.last());
        };
        at
    }
}

/// What a program does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// Ends the process without a word, and begins another.
    Open,
    /// A batch of about so many bytes.
    Append(usize),
    /// A new segment.
    Rotate,
    /// A new segment and a compaction of all before it.
    Compact,
    /// A clean close.
    Seal,
}

/// A process with a partition, and the next ones after it.
pub(crate) struct Program {
    disk: SimDisk,
    limits: JournalLimits,
    journal: Option<Journal>,
    pub(crate) known: Known,
    /// The last state that it decided, acknowledged or not.
    head: Queue,
    /// Steps so far, so that no two batches are the same.
    pub(crate) made: u64,
    has_led: bool,
    /// What was known, with the number of crash points before it.
    pub(crate) history: Vec<(usize, Known)>,
    /// Failures of any kind, so that a test sees that there were some.
    pub(crate) failures: u64,
    pub(crate) compactions: u64,
}

/// Segments that stay within what the simulated disk keeps of the zeros ahead.
pub(crate) const SMALL: JournalLimits = JournalLimits { segment_bytes: 3 << 10, batch_bytes: 1 << 20 };

impl Program {
    pub(crate) fn begin(disk: &SimDisk, known: Known, made: u64) -> Self {
        Self {
            disk: disk.clone(),
            limits: SMALL,
            journal: None,
            head: (*known.acked).clone(),
            history: vec![(0, known.clone())],
            known,
            made,
            has_led: false,
            failures: 0,
            compactions: 0,
        }
    }

    pub(crate) fn live(&mut self, steps: &[Step]) {
        steps.iter().for_each(|step| self.step(*step));
    }

    /// Takes a step. What fails ends the process, and the next step begins with an open.
    pub(crate) fn step(&mut self, step: Step) {
        self.disk.note(|| format!("{step:?}"));
        match step {
            Step::Open => {
                self.journal = None;
                self.open();
            }
            Step::Append(bytes) => {
                self.open_if_closed();
                self.append(bytes);
            }
            Step::Rotate => {
                self.open_if_closed();
                self.rotate();
            }
            Step::Compact => {
                self.open_if_closed();
                if self.rotate() {
                    self.compact();
                }
            }
            // What was appended is durable, whatever becomes of the seal.
            Step::Seal => self.failures += u64::from(self.journal.take().is_some_and(|journal| journal.seal().is_err())),
        }
    }

    /// The power goes: what a crash leaves is laid on the disk, and the process is over.
    pub(crate) fn crash(&mut self, files: &Files, context: &dyn Display) {
        self.journal = None;
        self.disk.crash_to(files);
        self.known.judge(files, context);
    }

    fn open_if_closed(&mut self) {
        if self.journal.is_none() {
            self.open();
        }
    }

    fn open(&mut self) {
        let disk: Arc<dyn Disk> = Arc::new(self.disk.clone());
        let mut tries = (0..1000).map(|_| Store::open(disk.clone(), &PlainStore::new(disk.clone())));
        let opened = loop {
            match tries.next().expect("a disk that always refuses is no disk") {
                Ok(store) => break store,
                // A disk that refuses is no sign of damage; it may work the next time.
                Err(OpenError::Journal(RecoverError::Io { .. }) | OpenError::Snapshot(SnapshotError::Io { .. })) => self.failures += 1,
                Err(error) => panic!("step {}: {error}", self.made),
            }
        };
        assert!(opened.passed_over.is_empty(), "{:?}", opened.passed_over);
        let found = self.known.agrees(&opened.queue, &format!("step {}", self.made));
        self.known.maybe.truncate(found);
        self.tell();
        self.head = opened.queue;
        self.has_led = false;
        let salt = Salt((u128::from(self.made) << 64) + u128::from(self.head.last().0) + 1);
        self.journal = Some(opened.recovery.into_journal(self.limits, salt));
    }

    fn append(&mut self, bytes: usize) {
        let Some(mut journal) = self.journal.take() else { return };
        let batch = self.decide(bytes);
        self.known.maybe.push(Arc::new(self.head.clone()));
        self.tell();
        match journal.append(batch) {
            Ok(()) => {
                self.known.acked = self.known.maybe.pop().expect("it was pushed");
                self.known.maybe.clear();
                self.tell();
                self.journal = Some(journal);
            }
            Err(AppendError::Failed(_)) => self.says_no_more(journal),
            Err(other) => panic!("step {}: {other}", self.made),
        }
    }

    /// Answers whether there is a journal that goes on.
    fn rotate(&mut self) -> bool {
        let Some(mut journal) = self.journal.take() else { return false };
        match journal.rotate() {
            Ok(_) => self.journal = Some(journal),
            Err(RotateError::Draft(_)) => {
                self.failures += 1;
                self.journal = Some(journal);
                return false;
            }
            Err(RotateError::Failed(_)) => self.says_no_more(journal),
            Err(other) => panic!("step {}: {other}", self.made),
        }
        self.journal.is_some()
    }

    /// After a failure nothing is acknowledged and the disk is not touched, whatever is asked.
    fn says_no_more(&mut self, mut journal: Journal) {
        self.failures += 1;
        let (calls, syncs) = (self.disk.calls(), self.disk.syncs());
        let next = Batch { epoch: self.head.epoch(), first: self.head.last().next(), count: 1, time: Time(1), body: vec![1] };
        assert!(matches!(journal.append(next), Err(AppendError::Poisoned)));
        assert!(matches!(journal.rotate(), Err(RotateError::Poisoned)));
        journal.seal().expect("there is nothing to seal");
        assert_eq!((self.disk.calls(), self.disk.syncs()), (calls, syncs), "a journal that failed touched the disk");
    }

    fn compact(&mut self) {
        let Some(journal) = &mut self.journal else { return };
        let Some(before) = journal.writes_to() else { return };
        let disk: Arc<dyn Disk> = Arc::new(self.disk.clone());
        let salt = Salt(u128::from(self.made) << 77);
        let steps = || {
            let mut compaction = Compaction::begin(disk.clone(), Box::new(PlainStore::new(disk.clone())), before, salt)?;
            if self.made.is_multiple_of(2) {
                // With no payload in memory.
                compaction = compaction.within(Room::new(Payloads::new(disk.clone(), Default::default()), 0));
            }
            loop {
                match compaction.step()? {
                    Progress::Working { .. } => {}
                    over => return Ok(over),
                }
            }
        };
        let over: Result<Progress, journeyman_core::compaction::CompactionError> = steps();
        match over {
            Ok(Progress::Done(compacted)) => {
                assert!(compacted.passed_over.is_empty(), "step {}: {:?}", self.made, compacted.passed_over);
                journal.release(compacted.removed_bytes);
                self.compactions += 1;
            }
            Ok(_) => {}
            Err(error) => {
                let text = error.to_string();
                assert!(!text.contains("damaged"), "step {}: {text}", self.made);
                self.failures += 1;
            }
        }
    }

    fn tell(&mut self) {
        self.history.push((self.disk.points(), self.known.clone()));
    }

    /// Records that fit the state, and the batch that holds them.
    fn decide(&mut self, bytes: usize) -> Batch {
        self.made += 1;
        let now = Time(1_000 + self.made * 7);
        let (first, before) = (self.head.last().next(), self.made);
        let (mut body, mut count) = (Vec::new(), 0);
        let mut write = |queue: &mut Queue, record: Record| {
            queue.step(queue.last().next(), now, &record).expect("it fits");
            record::encode(&record, &mut body);
            count += 1;
        };
        if !self.has_led {
            let epoch = self.head.epoch().next();
            write(&mut self.head, Record::Lead { epoch });
            self.has_led = true;
        }
        let key = before.is_multiple_of(3).then(|| Key::new(format!("key {}", before % 7)));
        let key = key.filter(|key| self.head.holder(key, now).is_none());
        let job = Packed::from(job(before, bytes));
        write(&mut self.head, Record::Op(Op::Enqueue { now, due: now, key, job }));
        for op in self.moves(now) {
            write(&mut self.head, Record::Op(op));
        }
        Batch { epoch: self.head.epoch(), first, count, time: now, body }
    }

    /// What happens to those that are there: each takes a step, and no more than a handful stay.
    fn moves(&self, now: Time) -> Vec<Op> {
        let live: Vec<(Ticket, Phase)> = self.head.tickets().map(|(ticket, live)| (ticket, live.phase())).collect();
        let too_many = live.len().saturating_sub(4);
        let mut moves = Vec::new();
        for (at, (ticket, phase)) in live.into_iter().enumerate() {
            match (phase, (ticket.0 + self.made) % 5) {
                _ if at < too_many && matches!(phase, Phase::Pending { .. }) => moves.push(Op::Cancel { ticket }),
                (Phase::Pending { .. }, 0 | 1) => moves.push(Op::Select { ticket }),
                (Phase::Pending { .. }, _) => {}
                (Phase::Running { attempt }, 2) => moves.push(Op::Defer { ticket, attempt, due: Time(now.0 + 5) }),
                (Phase::Running { attempt }, 3) => {
                    let fault = Fault::new(Cause::Failed, format!("fault {}", self.made));
                    moves.push(Op::Requeue { ticket, attempt, due: Time(now.0 + 9), fault });
                }
                (Phase::Running { attempt }, _) => moves.push(Op::Complete { ticket, attempt, end: End::Done, fault: None }),
            }
        }
        moves
    }
}

/// A job whose payload no other has.
fn job(number: u64, bytes: usize) -> Job {
    Job {
        kind: Kind::new("simulated"),
        version: 1,
        codec: Codec(2),
        target: number.is_multiple_of(2).then(|| Target::new(format!("target {}", number % 3))),
        priority: 100,
        options: Options::default(),
        meta: Vec::new(),
        payload: number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes().into_iter().cycle().take(bytes).collect(),
    }
}

/// What was known when so many points had been recorded.
pub(crate) fn known_at(history: &[(usize, Known)], points: usize) -> &Known {
    &history.iter().take_while(|(at, _)| *at <= points).last().expect("something is known from the start").1
}
