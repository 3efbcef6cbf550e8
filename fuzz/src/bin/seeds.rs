//! Writes the first inputs of every target into `corpus/`: pieces of a real directory, small, and the same in every run.
//! `cargo run --bin seeds` in this directory, when the format has changed.

use std::fs;
use std::sync::Arc;

use journeyman_core::compaction::{Compaction, Progress};
use journeyman_core::disk::{Disk, MemDisk};
use journeyman_core::journal::{Batch, Journal, JournalLimits, Salt};
use journeyman_core::snapshot::PlainStore;
use journeyman_core::{Attempt, Cause, Codec, End, Epoch, Fault, Job, Key, Op, Options, Packed, Queue, Record, Ticket, Time, record};
use journeyman_fuzz::{Files, Mode, image, open, unparse};

fn main() {
    let mut life = Life::begin(MemDisk::default());
    life.some_of_everything(1);
    put_directories("first", &image(&life.disk));
    life.some_of_everything(2);
    life.compact();
    put_directories("compacted", &image(&life.disk));
    life.some_of_everything(3);
    life.compact();
    life.some_of_everything(4);
    let disk = life.disk.clone();
    life.journal.seal().expect("memory takes it");
    let files = image(&disk);
    put_directories("sealed", &files);
    let mut life = Life::begin(disk.clone());
    life.some_of_everything(5);
    put_directories("reopened", &image(&disk));

    for (name, bytes) in &files {
        let name = name.trim_start_matches('0').replace('.', "-");
        let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        for mode in [0, 3] {
            if name.ends_with("snapshot") {
                put("snapshot", &format!("{name}-{mode}"), &[&[mode], &bytes[..used]].concat());
            } else {
                put("frame", &format!("{name}-{mode}"), &[&[mode], &bytes[16..32], &bytes[96..used]].concat());
            }
        }
    }
    for (number, record) in records(1, 2).iter().enumerate() {
        let mut bytes = Vec::new();
        record::encode(record, &mut bytes);
        put("record", &format!("one-{number}"), &bytes);
    }
    let mut all = Vec::new();
    records(1, 2).iter().for_each(|record| record::encode(record, &mut all));
    put("record", "all", &all);
}

/// As it is, with everything mended, and the same with a life behind it.
fn put_directories(name: &str, files: &Files) {
    for mode in [0, 3, 7] {
        put("recovery", &format!("{name}-{mode}"), &unparse(Mode(mode), files));
    }
}

fn put(target: &str, name: &str, bytes: &[u8]) {
    let dir = format!("corpus/{target}");
    fs::create_dir_all(&dir).expect("it is made");
    fs::write(format!("{dir}/{name}"), bytes).expect("it is written");
}

/// A partition that decides, appends and compacts.
struct Life {
    disk: MemDisk,
    journal: Journal,
    queue: Queue,
}

impl Life {
    fn begin(disk: MemDisk) -> Self {
        let store = open(&disk).expect("it opens");
        let limits = JournalLimits { segment_bytes: 600, batch_bytes: 1 << 20 };
        let salt = Salt(u128::from(store.queue.last().0 + 1) << 64);
        let mut life = Self { disk, journal: store.recovery.into_journal(limits, salt), queue: store.queue };
        let epoch = life.queue.epoch().next();
        life.write(&[Record::Lead { epoch }]);
        life
    }

    fn write(&mut self, records: &[Record]) {
        let first = self.queue.last().next();
        let time = Time(1000 + first.0);
        let mut body = Vec::new();
        for record in records {
            self.queue.step(self.queue.last().next(), time, record).expect("it fits");
            record::encode(record, &mut body);
        }
        let count = u32::try_from(records.len()).expect("few");
        self.journal.append(Batch { epoch: self.queue.epoch(), first, count, time, body }).expect("memory takes it");
    }

    fn some_of_everything(&mut self, round: u64) {
        let issued = self.queue.ends().total() + (self.queue.pending() + self.queue.running()) as u64;
        let all = records(round, self.queue.last().next().0);
        for pair in all[1..].chunks(2) {
            let moved: Vec<_> = pair.iter().map(|record| moved(record, issued)).collect();
            self.write(&moved);
        }
    }

    fn compact(&mut self) {
        self.journal.rotate().expect("memory takes it");
        let disk: Arc<dyn Disk> = Arc::new(self.disk.clone());
        let snapshots = Box::new(PlainStore::new(disk.clone()));
        let before = self.journal.writes_to().expect("it writes");
        let mut compaction = Compaction::begin(disk, snapshots, before, Salt(7)).expect("memory lists");
        while let Progress::Working { .. } = compaction.step().expect("memory takes it") {}
    }
}

/// One of each record, for tickets counted from 1, where the second of them is number `first`.
fn records(round: u64, first: u64) -> Vec<Record> {
    let enqueue = |key: Option<&str>, n: u8| {
        let mut options = Options::default();
        options.set(Options::KEY_WINDOW, 60_000);
        let job = Job {
            kind: "mail".into(),
            version: 1,
            codec: Codec(n % 3),
            target: (n % 2 == 1).then(|| "smtp".into()),
            priority: n,
            options,
            meta: vec![("trace".to_owned(), format!("{n}"))],
            payload: vec![n; n.into()],
        };
        let key = key.map(|key| Key::new(format!("{key} {round}")));
        Record::Op(Op::Enqueue { now: Time(1000), due: Time(1000 + u64::from(n)), key, job: Packed::from(job) })
    };
    let at = |n: u64| Attempt(journeyman_core::Seq(first + n));
    let fault = || Fault::new(Cause::Failed, "no answer");
    let ops = [
        Op::Select { ticket: Ticket(1) },
        Op::Requeue { ticket: Ticket(1), attempt: at(4), due: Time(9000), fault: fault() },
        Op::Select { ticket: Ticket(2) },
        Op::Defer { ticket: Ticket(2), attempt: at(6), due: Time(9000) },
        Op::Select { ticket: Ticket(3) },
        Op::Complete { ticket: Ticket(3), attempt: at(8), end: End::Done, fault: None },
        Op::Select { ticket: Ticket(1) },
        Op::Complete { ticket: Ticket(1), attempt: at(10), end: End::Spent, fault: Some(fault()) },
        Op::Cancel { ticket: Ticket(2) },
        Op::Select { ticket: Ticket(4) },
    ];
    let jobs = [enqueue(Some("one"), 30), enqueue(None, 7), enqueue(Some("three"), 1), enqueue(None, 90)];
    [Record::Lead { epoch: Epoch(round) }].into_iter().chain(jobs).chain(ops.map(Record::Op)).collect()
}

/// The same about tickets that were given out later.
fn moved(record: &Record, by: u64) -> Record {
    let mut record = record.clone();
    if let Record::Op(
        Op::Select { ticket }
        | Op::Requeue { ticket, .. }
        | Op::Defer { ticket, .. }
        | Op::Complete { ticket, .. }
        | Op::Cancel { ticket },
    ) = &mut record
    {
        ticket.0 += by;
    }
    record
}
