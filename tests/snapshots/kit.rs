//! A partition with its journal and its snapshots, that decides, appends, rotates and compacts. Proves nothing by itself.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use journeyman_core::compaction::{Compacted, Compaction, CompactionError, Phase, Progress};
use journeyman_core::disk::{Disk, FileDisk, MemDisk};
use journeyman_core::journal::{AppendError, Batch, Journal, JournalLimits, Salt};
use journeyman_core::queue::{Change, Phase as Standing};
use journeyman_core::snapshot::SnapshotStore;
use journeyman_core::store::{OpenError, Store};
use journeyman_core::{Attempt, Cause, End, Fault, Key, Op, Packed, Queue, Record, Seq, Ticket, Time, record};
use tempfile::TempDir;

use crate::support::job;

/// Which store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Plain,
    Sled,
}

/// The stores that this build has.
pub(crate) fn kinds() -> impl Iterator<Item = Kind> {
    [Kind::Plain, Kind::Sled].into_iter().filter(|kind| *kind != Kind::Sled || has_sled())
}

pub(crate) fn has_sled() -> bool {
    let store = journeyman::snapshots::store(Path::new("."), Arc::new(MemDisk::default()));
    store.name(Seq(1)).ends_with(".sled")
}

/// A directory of the file system, locked, with a store in it.
pub(crate) struct Place {
    pub(crate) dir: TempDir,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) kind: Kind,
}

impl Place {
    pub(crate) fn new(kind: Kind) -> Self {
        let dir = TempDir::new().expect("there is a place for temporary files");
        let disk = Arc::new(FileDisk::open(dir.path()).expect("it is empty"));
        Self { dir, disk, kind }
    }

    pub(crate) fn rig(&self) -> Rig {
        let (dir, disk, kind) = (self.dir.path().to_owned(), self.disk.clone(), self.kind);
        Rig::new(self.disk.clone(), move || match kind {
            Kind::Plain => journeyman::snapshots::plain(disk.clone()),
            Kind::Sled => journeyman::snapshots::store(&dir, disk.clone()),
        })
    }

    /// The files of the snapshot, or none when there is no such.
    pub(crate) fn files_of(&self, seq: Seq) -> Vec<PathBuf> {
        let path = self.dir.path().join(self.rig().snapshots().name(seq));
        if path.is_dir() { below(&path) } else { vec![path] }
    }

    pub(crate) fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        below(self.dir.path()).into_iter().map(|path| (path.clone(), fs::read(&path).expect("it reads"))).collect()
    }
}

pub(crate) fn below(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).expect("it lists") {
        let path = entry.expect("it lists").path();
        if path.is_dir() { files.extend(below(&path)) } else { files.push(path) }
    }
    files.sort();
    files
}

type Make = dyn Fn() -> Box<dyn SnapshotStore>;

/// A disk and how to make the store on it.
#[derive(Clone)]
pub(crate) struct Rig {
    pub(crate) disk: Arc<dyn Disk>,
    make: Arc<Make>,
}

impl Rig {
    pub(crate) fn new(disk: Arc<dyn Disk>, make: impl Fn() -> Box<dyn SnapshotStore> + 'static) -> Self {
        Self { disk, make: Arc::new(make) }
    }

    /// Plain files on any disk.
    pub(crate) fn plain(disk: impl Disk + 'static) -> Self {
        let disk: Arc<dyn Disk> = Arc::new(disk);
        Self::new(disk.clone(), move || journeyman::snapshots::plain(disk.clone()))
    }

    pub(crate) fn snapshots(&self) -> Box<dyn SnapshotStore> {
        (self.make)()
    }

    pub(crate) fn open(&self) -> Result<Store, OpenError> {
        Store::open(self.disk.clone(), &*self.snapshots())
    }

    /// What is published, oldest first.
    pub(crate) fn seqs(&self) -> Vec<Seq> {
        let mut seqs = self.snapshots().list().expect("it lists");
        seqs.sort();
        seqs
    }

    /// What the disk says it comes to; nothing newer may have been damaged.
    pub(crate) fn queue(&self) -> Queue {
        let store = self.open().expect("it opens");
        assert!(store.passed_over.is_empty(), "{:?}", store.passed_over);
        store.queue.check();
        store.queue
    }

    pub(crate) fn compaction(&self, before: u64) -> Result<Compaction, CompactionError> {
        Compaction::begin(self.disk.clone(), self.snapshots(), before, Salt(u128::from(before) << 77))
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let mut names = self.disk.list().expect("it lists");
        names.sort();
        names
    }
}

/// A process that has opened a partition.
pub(crate) struct Life {
    pub(crate) rig: Rig,
    pub(crate) journal: Journal,
    /// Of what was acknowledged.
    pub(crate) queue: Queue,
    pub(crate) now: Time,
}

pub(crate) const LIMITS: JournalLimits = JournalLimits { segment_bytes: 32 << 10, batch_bytes: 1 << 20 };

impl Life {
    pub(crate) fn begin(rig: &Rig) -> Self {
        Self::with(rig, LIMITS)
    }

    pub(crate) fn with(rig: &Rig, limits: JournalLimits) -> Self {
        let mut life = Self::quiet(rig, limits);
        life.lead().expect("the disk takes it");
        life
    }

    /// One that has written nothing yet.
    pub(crate) fn quiet(rig: &Rig, limits: JournalLimits) -> Self {
        let store = rig.open().expect("it opens");
        let salt = Salt(u128::from(store.queue.last().0) << 64);
        Self { rig: rig.clone(), journal: store.recovery.into_journal(limits, salt), now: Time(1000), queue: store.queue }
    }

    pub(crate) fn lead(&mut self) -> Result<(), AppendError> {
        self.write(&[Record::Lead { epoch: self.queue.epoch().next() }])
    }

    /// Appends the records as one batch.
    pub(crate) fn write(&mut self, records: &[Record]) -> Result<(), AppendError> {
        let mut next = self.queue.clone();
        let mut body = Vec::new();
        for record in records {
            next.step(next.last().next(), self.now, record).expect("it fits");
            record::encode(record, &mut body);
        }
        let count = u32::try_from(records.len()).expect("few");
        self.journal.append(Batch { epoch: next.epoch(), first: self.queue.last().next(), count, time: self.now, body })?;
        self.queue = next;
        self.now = Time(self.now.0 + 7);
        Ok(())
    }

    pub(crate) fn op(&mut self, op: Op) {
        self.write(&[Record::Op(op)]).expect("the disk takes it");
    }

    pub(crate) fn enqueue(&mut self, key: Option<&str>, n: u8) -> Ticket {
        let before = self.queue.clone();
        let job = Packed::from(job(n, None));
        self.op(Op::Enqueue { now: self.now, due: self.now, key: key.map(Key::new), job: job.clone() });
        let mut after = before;
        let record = Record::Op(Op::Enqueue { now: self.now, due: self.now, key: None, job });
        match after.step(after.last().next(), self.now, &record) {
            Ok(Change::Enqueued(ticket)) => ticket,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn select(&mut self, ticket: Ticket) -> Attempt {
        self.op(Op::Select { ticket });
        Attempt(self.queue.last())
    }

    pub(crate) fn complete(&mut self, ticket: Ticket) {
        let attempt = self.select(ticket);
        self.op(Op::Complete { ticket, attempt, end: End::Done, fault: None });
    }

    pub(crate) fn complete_all(&mut self) {
        let live: Vec<_> = self.queue.tickets().map(|(ticket, live)| (ticket, live.phase())).collect();
        for (ticket, phase) in live {
            match phase {
                Standing::Pending { .. } => self.complete(ticket),
                Standing::Running { attempt } => self.op(Op::Complete { ticket, attempt, end: End::Late, fault: None }),
            }
        }
    }

    /// Some of everything: pending and running tickets, faults, keys of live and of ended ones.
    pub(crate) fn busy(&mut self, rounds: u64) {
        for round in 0..rounds {
            let n = u8::try_from(round % 200).expect("small");
            let stamp = self.queue.last();
            let key = format!("busy {stamp}");
            let first = self.enqueue(Some(&key), n);
            let second = self.enqueue(None, n / 2);
            let third = self.enqueue(Some(&format!("other {key}")), 3);
            self.complete(first);
            let attempt = self.select(second);
            if round % 2 == 0 {
                let fault = Fault::new(Cause::Failed, format!("fault after {stamp}"));
                self.op(Op::Requeue { ticket: second, attempt, due: Time(5000), fault });
            }
            if round % 3 == 0 {
                self.op(Op::Cancel { ticket: third });
            }
        }
    }

    pub(crate) fn compaction(&mut self) -> Compaction {
        self.journal.rotate().expect("the disk takes it");
        self.rig.compaction(self.journal.writes_to().expect("it writes")).expect("it lists")
    }

    pub(crate) fn compact(&mut self) -> Compacted {
        let mut compaction = self.compaction();
        match run(&mut compaction).expect("the disk takes it") {
            Progress::Done(compacted) => {
                self.journal.release(compacted.removed_bytes);
                compacted
            }
            other => panic!("{other:?}"),
        }
    }

    /// Rotates and compacts; whatever the disk refuses is told.
    pub(crate) fn try_to_compact(&mut self) -> Result<Progress, String> {
        self.journal.rotate().map_err(|error| error.to_string())?;
        let before = self.journal.writes_to().expect("it writes");
        let mut compaction = self.rig.compaction(before).map_err(|error| error.to_string())?;
        run(&mut compaction).map_err(|error| error.to_string())
    }
}

/// Steps until it is over.
pub(crate) fn run(compaction: &mut Compaction) -> Result<Progress, CompactionError> {
    loop {
        match compaction.step()? {
            Progress::Working { .. } => {}
            over => return Ok(over),
        }
    }
}

/// Steps until it is about to do this.
pub(crate) fn run_to(compaction: &mut Compaction, phase: Phase) {
    while compaction.phase() != Some(phase) {
        assert!(matches!(compaction.step(), Ok(Progress::Working { .. })), "{phase:?} comes");
    }
}

pub(crate) const PHASES: [Phase; 6] =
    [Phase::Loading, Phase::Folding, Phase::Writing, Phase::Verifying, Phase::Publishing, Phase::Sweeping];
