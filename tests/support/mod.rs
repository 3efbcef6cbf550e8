//! What the tests of the core share: the seed of every random test, generators of times, hostile texts and whole lives of
//! a queue, and journals in memory. Proves nothing by itself.

#![allow(dead_code, reason = "each program of tests uses a part of it")]

pub(crate) mod children;
pub(crate) mod disks;
pub(crate) mod figures;
pub(crate) mod program;
pub(crate) mod sim;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::Debug;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use journeyman_core::disk::{Disk, MemDisk};
use journeyman_core::journal::{Batch, Journal, JournalLimits, RecoverError, Recovery, Salt};
use journeyman_core::queue::{Change, Misfit, Phase};
use journeyman_core::snapshot::PlainStore;
use journeyman_core::store::{OpenError, Store};
use journeyman_core::{
    Attempt, Cause, Codec, End, Epoch, Fault, Job, Key, Kind, Op, Options, Packed, Queue, Record, Seq, Span, Target, Ticket, Time,
};
use quickcheck::{Arbitrary, Gen, QuickCheck, Testable};

/// The seed of this run: what `JOURNEYMAN_SEED` says, else one drawn by chance. It is printed, so that a failure shows
/// how to have it again.
pub(crate) fn seed() -> u64 {
    let seed = match std::env::var("JOURNEYMAN_SEED") {
        Ok(text) => text.parse().expect("JOURNEYMAN_SEED is a number of 64 bits"),
        Err(_) => fastrand::u64(..),
    };
    println!("to see this again: JOURNEYMAN_SEED={seed}");
    seed
}

/// Tries the property on so many cases; every one of them counts, none may be discarded unseen.
pub(crate) fn holds<A: Arbitrary + Debug, R: Testable>(cases: u64, property: fn(A) -> R) {
    let source = Gen::from_size_and_seed(SIZE, seed());
    QuickCheck::new().tests(cases).min_tests_passed(cases).rng(source).quickcheck(property);
}

/// The longest sequence that is made.
const SIZE: usize = 100;

/// A number that is often small, often one of the extremes, and sometimes anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Edgy(pub(crate) u64);

impl Arbitrary for Edgy {
    fn arbitrary(g: &mut Gen) -> Self {
        let small = u64::from(u8::arbitrary(g)) % 20;
        let any = u64::arbitrary(g);
        let shape =
            *g.choose(&[Shape::Small, Shape::Small, Shape::Small, Shape::Large, Shape::Huge, Shape::Zero, Shape::Any]).expect("one");
        Self(match shape {
            Shape::Small => small,
            Shape::Large => 1000 * small,
            Shape::Huge => u64::MAX - small / 10,
            Shape::Zero => 0,
            Shape::Any => any,
        })
    }

    fn shrink(&self) -> Box<dyn Iterator<Item = Self>> {
        Box::new(self.0.shrink().map(Self))
    }
}

#[derive(Clone, Copy)]
enum Shape {
    Small,
    Large,
    Huge,
    Zero,
    Any,
}

impl Edgy {
    pub(crate) const fn time(self) -> Time {
        Time(self.0)
    }

    pub(crate) const fn span(self) -> Span {
        Span(self.0)
    }

    /// The same for what has 32 bits: large numbers become the largest.
    pub(crate) fn number(self) -> u32 {
        u32::try_from(self.0).unwrap_or(u32::MAX)
    }
}

/// Text that somebody hopes will be mistaken for something else.
#[derive(Clone, Debug)]
pub(crate) struct Hostile(pub(crate) String);

impl Arbitrary for Hostile {
    fn arbitrary(g: &mut Gen) -> Self {
        if bool::arbitrary(g) {
            return Self(String::arbitrary(g));
        }
        let text = *g.choose(&HOSTILE).expect("one");
        let times = *g.choose(&[1, 1, 1, 7, 300]).expect("one");
        Self(text.repeat(times))
    }

    fn shrink(&self) -> Box<dyn Iterator<Item = Self>> {
        Box::new(self.0.shrink().map(Self))
    }
}

const HOSTILE: [&str; 12] = [
    "",
    "\0",
    "../../etc/passwd",
    "\u{1b}[2J\r\n",
    "'; DROP TABLE jobs; --",
    "%s%n{}{{",
    "\u{202e}gnp.exe",
    "JYFR",
    "JYSEGMNT",
    "é\u{301}\u{feff}\u{10ffff}",
    "🦀",
    "\u{7f}\u{80}\u{ff}",
];

/// One thing that may happen to a queue. Which record it becomes depends on the queue that it happens to.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    Enqueue {
        key: Option<u8>,
        window: Option<Span>,
        due: Time,
        job: u8,
    },
    Select(Pick),
    Complete(Pick, Aim, End, bool),
    Cancel(Pick),
    Requeue(Pick, Aim, Time),
    Defer(Pick, Aim, Time),
    Lead {
        rise: u8,
    },
    /// The next records carry this time: later or earlier than the last.
    Clock(Time),
    /// The open batch is full.
    Flush,
    /// The process ends and another begins.
    Restart,
}

/// Which ticket an act is about.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pick {
    /// The n-th of those that live, going round.
    Living(u8),
    /// This number, whether it was ever given out or not.
    Number(u8),
}

/// Which attempt an act names.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Aim {
    /// The one that runs.
    True,
    /// This one.
    At(u8),
}

impl Pick {
    pub(crate) fn of(self, queue: &Queue) -> Ticket {
        match self {
            Self::Living(n) if queue.tickets().next().is_some() => {
                let living = queue.pending() + queue.running();
                queue.tickets().nth(usize::from(n) % living).expect("fewer than live").0
            }
            Self::Living(n) | Self::Number(n) => Ticket(n.into()),
        }
    }
}

impl Aim {
    fn of(self, queue: &Queue, ticket: Ticket) -> Attempt {
        match (self, queue.get(ticket).map(|live| live.phase())) {
            (Self::True, Some(Phase::Running { attempt })) => attempt,
            (Self::True, _) => Attempt(queue.last()),
            (Self::At(seq), _) => Attempt(Seq(seq.into())),
        }
    }
}

impl Act {
    /// The record that this act would write; none for those that are no record.
    pub(crate) fn record(&self, queue: &Queue, now: Time) -> Option<Record> {
        let op = match self {
            Self::Enqueue { key, window, due, job: n } => {
                Op::Enqueue { now, due: *due, key: key.map(key_of), job: Packed::from(job(*n, *window)) }
            }
            Self::Select(pick) => Op::Select { ticket: pick.of(queue) },
            Self::Complete(pick, aim, end, failed) => {
                let ticket = pick.of(queue);
                let fault = failed.then(|| Fault::new(Cause::TimedOut, "too slow"));
                Op::Complete { ticket, attempt: aim.of(queue, ticket), end: *end, fault }
            }
            Self::Cancel(pick) => Op::Cancel { ticket: pick.of(queue) },
            Self::Requeue(pick, aim, due) => {
                let ticket = pick.of(queue);
                let fault = Fault::new(Cause::Failed, format!("after {}", queue.last()));
                Op::Requeue { ticket, attempt: aim.of(queue, ticket), due: *due, fault }
            }
            Self::Defer(pick, aim, due) => {
                let ticket = pick.of(queue);
                Op::Defer { ticket, attempt: aim.of(queue, ticket), due: *due }
            }
            Self::Lead { rise } => return Some(Record::Lead { epoch: Epoch(queue.epoch().0 + u64::from(*rise)) }),
            Self::Clock(_) | Self::Flush | Self::Restart => return None,
        };
        Some(Record::Op(op))
    }
}

impl Arbitrary for Act {
    fn arbitrary(g: &mut Gen) -> Self {
        let due = Edgy::arbitrary(g).time();
        let (pick, aim) = (Pick::arbitrary(g), Aim::arbitrary(g));
        match u8::arbitrary(g) % 32 {
            0..=8 => Self::Enqueue {
                key: bool::arbitrary(g).then(|| u8::arbitrary(g) % 3),
                window: bool::arbitrary(g).then(|| Edgy::arbitrary(g).span()),
                due,
                job: u8::arbitrary(g),
            },
            9..=15 => Self::Select(pick),
            16..=17 => Self::Complete(pick, aim, *g.choose(&End::ALL).expect("one"), bool::arbitrary(g)),
            18 => Self::Cancel(pick),
            19..=21 => Self::Requeue(pick, aim, due),
            22..=24 => Self::Defer(pick, aim, due),
            25 => Self::Lead { rise: u8::arbitrary(g) % 3 },
            26..=28 => Self::Clock(due),
            29..=30 => Self::Flush,
            _ => Self::Restart,
        }
    }
}

impl Arbitrary for Pick {
    fn arbitrary(g: &mut Gen) -> Self {
        let n = u8::arbitrary(g);
        if n < 224 { Self::Living(n) } else { Self::Number(n % 12) }
    }
}

impl Arbitrary for Aim {
    fn arbitrary(g: &mut Gen) -> Self {
        let n = u8::arbitrary(g);
        if n < 208 { Self::True } else { Self::At(n % 24) }
    }
}

/// One step as a law sees it.
pub(crate) struct Step<'a> {
    pub(crate) before: &'a Queue,
    pub(crate) record: &'a Record,
    pub(crate) now: Time,
    pub(crate) answer: Result<Change, Misfit>,
    pub(crate) after: &'a Queue,
}

/// Lets the acts happen to an empty queue and shows every step to `law`; the counters and indexes are checked at each.
pub(crate) fn every_step(acts: &[Act], mut law: impl FnMut(Step<'_>)) {
    let mut queue = Queue::default();
    let mut now = Time(0);
    for act in acts {
        if let Act::Clock(time) = act {
            now = *time;
        }
        let Some(record) = act.record(&queue, now) else { continue };
        let before = queue.clone();
        let answer = queue.step(queue.last().next(), now, &record);
        queue.check();
        law(Step { before: &before, record: &record, now, answer, after: &queue });
    }
}

/// The records that the acts leave: those that were not refused.
pub(crate) fn history(acts: &[Act]) -> Vec<(Time, Record)> {
    let mut records = Vec::new();
    every_step(acts, |step| {
        if step.answer.is_ok() {
            records.push((step.now, step.record.clone()));
        }
    });
    records
}

pub(crate) fn replay(mut queue: Queue, history: &[(Time, Record)]) -> Queue {
    for (now, record) in history {
        queue.step(queue.last().next(), *now, record).expect("a record of a sound history fits");
    }
    queue
}

pub(crate) fn key_of(n: u8) -> Key {
    Key::new(format!("key {n}"))
}

pub(crate) fn kind_of(n: u8) -> Kind {
    Kind::new(format!("kind {n}"))
}

pub(crate) fn target_of(n: u8) -> Target {
    Target::new(format!("target {n}"))
}

/// A job that differs with `n` in all that the machine sees of it.
pub(crate) fn job(n: u8, window: Option<Span>) -> Job {
    let mut options = Options::default();
    if let Some(window) = window {
        options.set(Options::KEY_WINDOW, window.0);
    }
    Job {
        kind: kind_of(n % 3),
        version: n.into(),
        codec: Codec(n % 4),
        target: (!n.is_multiple_of(2)).then(|| target_of(n % 5)),
        priority: n,
        options,
        meta: (0..n % 3).map(|i| (format!("name {i}"), "value".repeat(i.into()))).collect(),
        payload: vec![n; n.into()],
    }
}

/// A batch whose `count` records are opaque bytes: for a journal they need not mean anything.
pub(crate) fn batch(first: u64, count: u32, body: Vec<u8>) -> Batch {
    Batch { epoch: Epoch(1), first: Seq(first), count, time: Time(first / 2), body }
}

/// Bounds that no test here comes near to.
pub(crate) const WIDE: JournalLimits = JournalLimits { segment_bytes: 1 << 30, batch_bytes: 1 << 22 };

/// A salt that is not drawn by chance, so that files are the same in every run.
pub(crate) const SALT: Salt = Salt(0x5a17_0000_0000_0000_0000_0000_0000_0001);

/// All files of a disk, as they are now.
pub(crate) type Image = BTreeMap<String, Vec<u8>>;

pub(crate) fn image(disk: &MemDisk) -> Image {
    let names = disk.list().expect("memory lists");
    names.into_iter().map(|name| (name.clone(), disk.read(&name).expect("memory reads"))).collect()
}

/// A disk that holds exactly these files, synced.
pub(crate) fn disk_of(files: &Image) -> MemDisk {
    let disk = MemDisk::default();
    for (name, bytes) in files {
        disk.put(name, bytes);
    }
    disk
}

/// What a journal holds: its batches, and the recovery that goes on from there.
pub(crate) fn read(disk: impl Disk + 'static) -> Result<(Vec<Batch>, Recovery), RecoverError<Infallible>> {
    let mut batches = Vec::new();
    let recovery = Recovery::read(Arc::new(disk), |batch| {
        batches.push(batch.clone());
        Ok(())
    })?;
    Ok((batches, recovery))
}

/// What a disk holds, snapshots in plain files included.
pub(crate) fn open(disk: &(impl Disk + Clone + 'static)) -> Result<Store, OpenError> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Store::open(disk.clone(), &PlainStore::new(disk))
}

/// The journal on this disk, opened to append to.
pub(crate) fn journal(disk: impl Disk + 'static, limits: JournalLimits) -> Journal {
    read(disk).expect("a sound journal").1.into_journal(limits, SALT)
}

/// A pipe, open at both ends. It is not possible to sync one, and so it tells whether a sync gets as far as the kernel.
pub(crate) fn pipe(path: &Path) -> File {
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).expect("the place is free");
    File::options().read(true).write(true).open(path).expect("it is ours")
}

/// The name of the segment with this number.
pub(crate) fn segment(number: u64) -> String {
    format!("{number:020}.segment")
}
