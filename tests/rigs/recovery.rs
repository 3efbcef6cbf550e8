//! A rig, not a test, as it needs an optimised build and processes of its own: how long a journal of a million records takes to open,
//! and what it takes of memory meanwhile. Once with a quarter of a million jobs that wait, once with nothing left of all that was.
//! At most 10 seconds; at most twice the memory that the state takes then, or that of two segments when it takes less; and a runner
//! that opens and closes it without anything to do leaves every byte as it was.
//! Run it with `cargo bench --bench recovery`; it ends with status 1 when a bound is broken.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::{Duration, Instant};

use journeyman::{Cx, Job, JobResult, Runner};
use journeyman_core::disk::{Disk, FileDisk};
use journeyman_core::journal::{Batch, Journal, JournalLimits, Salt};
use journeyman_core::snapshot::PlainStore;
use journeyman_core::store::Store;
use journeyman_core::{Attempt, Codec, End, Kind, Op, Options, Packed, Queue, Record, Ticket, Time, record};
use serde::{Deserialize, Serialize};

/// The kind that the runner knows; those in the journal are of another, and so are held and never run.
#[derive(Serialize, Deserialize)]
struct Nothing;

impl Job for Nothing {
    type Context = ();
    type Output = ();
    const KIND: &'static str = "nothing";

    async fn run(self, _: Cx<()>) -> JobResult<()> {
        Ok(())
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    if let [word, dir] = &words[..]
        && word == "open"
    {
        open(Path::new(dir));
        return ExitCode::SUCCESS;
    }
    let mut held = true;
    for (what, leaves) in [("a quarter of a million jobs wait", true), ("nothing is left", false)] {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let jobs = dir.path().join("jobs");
        let live = write(&jobs, leaves);
        println!("{what}: {RECORDS} records in {:.0} MB, {live} jobs", bytes_of(&jobs) as f64 / 1e6);
        held &= opens(&jobs) & stays_as_it_is(&jobs);
    }
    if held { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Opens it in a process of its own, and judges what that says.
fn opens(dir: &Path) -> bool {
    let me = std::env::current_exe().expect("this program");
    let output = Command::new(me).arg("open").arg(dir).output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("text");
    let numbers: Vec<u64> = text.split_whitespace().map(|word| word.parse().expect("a number")).collect();
    let [millis, before, peak, after] = numbers[..] else { panic!("{text}") };
    let (peak, state) = (peak - before, after - before);
    let most = (2 * state).max(2 * SEGMENT);
    let per_second = RECORDS as f64 / millis as f64 * 1e3;
    println!(
        "F26: opened in {millis} ms (at most 10000), {per_second:.0} records a second; {} MB at most on the way (at most {}), {} MB of state",
        peak >> 20,
        most >> 20,
        state >> 20
    );
    millis <= 10_000 && peak <= most
}

/// A runner that has nothing to do writes nothing.
fn stays_as_it_is(dir: &Path) -> bool {
    let before = sums(dir);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let begun = Instant::now();
    runtime.block_on(async {
        let runner = Runner::open(dir).register::<Nothing>().start().await.expect("it opens");
        runner.shutdown(Duration::ZERO).await.expect("an orderly end");
    });
    let same = sums(dir) == before;
    println!("a runner opened and closed it in {:?}; every byte is as it was: {same}", begun.elapsed());
    same
}

/// Says how long it took, and the memory before, at most meanwhile, and with the state alone.
fn open(dir: &Path) {
    let disk: Arc<dyn Disk> = Arc::new(FileDisk::open(dir).expect("nobody else has it"));
    let before = memory("VmRSS:");
    let begun = Instant::now();
    let Store { queue, recovery, .. } = Store::open(disk.clone(), &PlainStore::new(disk)).expect("it is sound");
    let took = begun.elapsed();
    let peak = memory("VmHWM:");
    assert_eq!(recovery.last().0, RECORDS);
    drop(recovery);
    println!("{} {before} {peak} {}", took.as_millis(), memory("VmRSS:"));
    assert_eq!(queue.last().0, RECORDS);
}

/// A journal of so many records: jobs that are enqueued, selected and done, and when it `leaves` some, as many that wait.
fn write(dir: &Path, leaves: bool) -> usize {
    let disk: Arc<dyn Disk> = Arc::new(FileDisk::open(dir).expect("a fresh directory"));
    let store = Store::open(disk.clone(), &PlainStore::new(disk)).expect("it is empty");
    let limits = JournalLimits { segment_bytes: SEGMENT, batch_bytes: 4 << 20 };
    let mut writer =
        Writer { journal: store.recovery.into_journal(limits, Salt(fastrand::u128(..))), queue: store.queue, body: Vec::new(), count: 0 };
    writer.put(&Record::Lead { epoch: writer.queue.epoch().next() });
    let mut ticket = 0;
    while writer.queue.last().0 < RECORDS {
        let left = RECORDS - writer.queue.last().0;
        if left < 4 || leaves {
            ticket += 1;
            writer.put(&enqueue());
        }
        if left >= 4 {
            ticket += 1;
            writer.put(&enqueue());
            writer.put(&Record::Op(Op::Select { ticket: Ticket(ticket) }));
            let attempt = Attempt(writer.queue.last());
            writer.put(&Record::Op(Op::Complete { ticket: Ticket(ticket), attempt, end: End::Done, fault: None }));
        }
    }
    writer.flush();
    writer.journal.seal().expect("the disk takes it");
    writer.queue.pending()
}

struct Writer {
    journal: Journal,
    queue: Queue,
    body: Vec<u8>,
    count: u32,
}

impl Writer {
    fn put(&mut self, record: &Record) {
        self.queue.step(self.queue.last().next(), NOW, record).expect("it fits");
        record::encode(record, &mut self.body);
        self.count += 1;
        if self.count == 1000 {
            self.flush();
        }
    }

    fn flush(&mut self) {
        if self.count > 0 {
            let first = journeyman_core::Seq(self.queue.last().0 + 1 - u64::from(self.count));
            let body = std::mem::take(&mut self.body);
            let batch = Batch { epoch: self.queue.epoch(), first, count: std::mem::take(&mut self.count), time: NOW, body };
            self.journal.append(batch).expect("the disk takes it");
        }
    }
}

fn enqueue() -> Record {
    let job = journeyman_core::Job {
        kind: Kind::new("of the rig"),
        version: 1,
        codec: Codec(2),
        target: None,
        priority: 100,
        options: Options::default(),
        meta: Vec::new(),
        payload: vec![7; 100],
    };
    Record::Op(Op::Enqueue { now: NOW, due: NOW, key: None, job: Packed::from(job) })
}

fn sums(dir: &Path) -> BTreeMap<String, (u64, u32)> {
    let files = fs::read_dir(dir).expect("it lists").map(|entry| entry.expect("it lists").path());
    let sum = |bytes: Vec<u8>| (bytes.len() as u64, crc32c::crc32c(&bytes));
    files.map(|path| (path.display().to_string(), sum(fs::read(&path).expect("it reads")))).collect()
}

fn bytes_of(dir: &Path) -> u64 {
    sums(dir).values().map(|(bytes, _)| bytes).sum()
}

/// Bytes of memory of this process.
fn memory(name: &str) -> u64 {
    let text = fs::read_to_string("/proc/self/status").expect("a Linux system");
    let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("there is such a line");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}

const RECORDS: u64 = 1_000_000;
const SEGMENT: u64 = 64 << 20;
const NOW: Time = Time(1_767_225_600_000);
