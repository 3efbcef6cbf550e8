//! A rig, not a test, as it takes minutes: a runner with default settings that stays up. A million jobs pass through it; a thousand
//! are requeued a thousand times each; one waits for a year beside a million that pass. All the while its directory keeps to
//! 8 times of what is alive and 6 segments, its memory does not grow with its history, and what it leaves opens in 2 seconds.
//! Run it with `cargo bench --bench soak`, or one part with `-- passing`, `-- requeued` or `-- pinned`; it ends with status 1 when a
//! bound is broken.

#[path = "../support/figures.rs"]
#[allow(dead_code, reason = "how much to try is fixed here")]
mod figures;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use journeyman::{Cx, Failure, Job, JobResult, Jobs, Policy, Runner};
use serde::{Deserialize, Serialize};

/// Does nothing.
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

/// Fails a thousand times, and then waits for better times.
#[derive(Serialize, Deserialize)]
struct Stubborn(Vec<u8>);

impl Job for Stubborn {
    type Context = ();
    type Output = ();
    const KIND: &'static str = "stubborn";

    fn policy() -> Policy {
        Policy::default().attempts(1_000_000).base(Duration::from_millis(1)).cap(Duration::from_millis(1))
    }

    async fn run(self, cx: Cx<()>) -> JobResult<()> {
        Err(if cx.attempt() <= REQUEUES { Failure::transient("not today") } else { Failure::defer(YEAR) })
    }
}

/// Lives through it in a directory, and answers whether all bounds held.
type Part = fn(&Path) -> bool;

fn main() -> ExitCode {
    if std::env::var_os(TRIM).is_none() {
        return again();
    }
    let wanted: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    let parts: [(&str, Part); 3] = [("passing", passing), ("requeued", requeued), ("pinned", pinned)];
    let mut held = true;
    for (name, part) in parts.into_iter().filter(|(name, _)| wanted.is_empty() || wanted.iter().any(|one| one == name)) {
        let dir = tempfile::tempdir().expect("a temporary directory");
        println!("{name}");
        held &= part(&dir.path().join("jobs"));
    }
    if held { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs this program with an allocator that gives back what is freed. As it is set up else, glibc keeps 8 to 10 MiB at its second
/// compaction, then no more (docs/decisions/0007-snapshots.md); a step like that in a short run looks like a slope, and would hide one.
fn again() -> ExitCode {
    let program = std::env::current_exe().expect("a program");
    let status = Command::new(program).args(std::env::args().skip(1)).env(TRIM, "131072").status().expect("it runs once more");
    if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A million jobs that do nothing.
fn passing(dir: &Path) -> bool {
    soak(dir, RECORDS_A_JOB, |jobs, watch| {
        flow(jobs, 1_000_000, watch);
        let compactions = jobs.stats().compactions;
        println!("  {compactions} compactions (at least 2)");
        compactions >= 2
    })
}

/// A thousand jobs, each requeued a thousand times.
fn requeued(dir: &Path) -> bool {
    soak(dir, RECORDS_A_REQUEUE, |jobs, _| {
        let all = (0..1_000).map(|_| jobs.enqueue(Stubborn(vec![7; 100])));
        jobs.wait(jobs.enqueue_all(all)).expect("room");
        let began = Instant::now();
        // Each is selected once more than it fails, and then it is deferred.
        let least = 1_000 + 1_000 * (2 * u64::from(REQUEUES) + 2);
        while jobs.stats().records < least {
            assert!(began.elapsed() < Duration::from_secs(900), "{:?}", jobs.stats());
            std::thread::sleep(Duration::from_millis(50));
        }
        println!("  {} records for 1,000 jobs that are all still alive: {}", jobs.stats().records, jobs.stats().pending);
        jobs.stats().pending == 1_000
    })
}

/// One that is due in a year, beside a million that pass.
fn pinned(dir: &Path) -> bool {
    soak(dir, RECORDS_A_JOB, |jobs, watch| {
        let pinned = jobs.wait(jobs.enqueue(Nothing).delay(YEAR)).expect("room").id();
        flow(jobs, 1_000_000, watch);
        jobs.wait(jobs.get(pinned)).expect("an answer").is_some()
    })
}

/// Lets so many jobs pass, a thousand at a time, with never more than twenty thousand waiting.
fn flow(jobs: &Jobs, count: u64, watch: &Watch) {
    for _ in 0..count / 1_000 {
        while jobs.stats().pending > 20_000 {
            std::thread::sleep(Duration::from_millis(1));
        }
        jobs.wait(jobs.enqueue_all((0..1_000).map(|_| jobs.enqueue(Nothing)))).expect("room");
    }
    let began = Instant::now();
    while jobs.stats().done < count {
        assert!(began.elapsed() < Duration::from_secs(300), "{:?}", jobs.stats());
        std::thread::sleep(Duration::from_millis(5));
    }
    watch.look();
}

/// Runs a part beside a watch over disk and memory, then closes and opens again.
fn soak(dir: &Path, records_each: f64, part: impl FnOnce(&Jobs, &Watch) -> bool) -> bool {
    let runner = start(dir);
    let watch = Watch { dir: dir.to_owned(), jobs: runner.jobs(), records_each, seen: Arc::default() };
    let (looker, over) = (watch.clone(), Arc::new(AtomicBool::new(false)));
    let ends = over.clone();
    let looking = std::thread::spawn(move || {
        while !ends.load(Ordering::Relaxed) {
            looker.look();
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let began = Instant::now();
    let mut held = part(&runner.jobs(), &watch);
    println!("  {:.1} s", began.elapsed().as_secs_f64());
    over.store(true, Ordering::Relaxed);
    looking.join().expect("it only looks");
    held &= watch.report();
    let patience = Duration::from_secs(5);
    let jobs = runner.jobs();
    jobs.wait(runner.shutdown(patience)).expect("an orderly end");
    let began = Instant::now();
    let runner = start(dir);
    let opened = began.elapsed();
    println!("  opened again in {:.2} s (at most 2)", opened.as_secs_f64());
    runner.jobs().wait(runner.shutdown(patience)).expect("an orderly end");
    held && opened <= Duration::from_secs(2)
}

fn start(dir: &Path) -> Runner {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(Runner::open(dir).register::<Nothing>().register::<Stubborn>().start()).expect("a sound directory")
}

/// What is seen of a runner from outside.
#[derive(Clone)]
struct Watch {
    dir: PathBuf,
    jobs: Jobs,
    /// Records of a job that passes, or of a requeue.
    records_each: f64,
    seen: Arc<std::sync::Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    looks: u64,
    most_bytes: u64,
    /// The largest share of what the directory may take.
    most_share: f64,
    /// Jobs that ended or were requeued, in hundreds of thousands, and resident MiB, from the first compaction on.
    memory: Vec<(f64, f64)>,
}

impl Watch {
    fn look(&self) {
        // What is alive may shrink between the two readings, never what it was before both.
        let before = self.jobs.stats().live_bytes;
        let bytes = size_of(&self.dir);
        let stats = self.jobs.stats();
        let bound = 8 * before.max(stats.live_bytes) + 6 * SEGMENT;
        let mut seen = self.seen.lock().expect("no look panics");
        seen.looks += 1;
        seen.most_bytes = seen.most_bytes.max(bytes);
        seen.most_share = seen.most_share.max(bytes as f64 / bound as f64);
        if stats.compactions > 0 {
            seen.memory.push((stats.records as f64 / self.records_each / 100_000.0, resident() as f64 / MIB));
        }
    }

    fn report(&self) -> bool {
        let seen = self.seen.lock().expect("no look panics");
        let Seen { looks, most_bytes, most_share, memory } = &*seen;
        let slope = slope(memory);
        let most = memory.iter().map(|(_, mib)| *mib).fold(0.0, f64::max);
        println!(
            "  directory: at most {:.0} MiB, {:.0} % of 8 x live + 6 segments, in {looks} looks",
            *most_bytes as f64 / MIB,
            most_share * 100.0
        );
        println!("  memory: {slope:+.2} MiB per 100,000 jobs after the first compaction (at most 1), at most {most:.0} MiB");
        let holds = *most_share <= 1.0 && slope <= 1.0;
        if holds {
            figures::held("F25", *looks, "looks at what a runner that stays up takes of disk and memory");
        }
        holds
    }
}

/// The rise of the line of least squares.
fn slope(points: &[(f64, f64)]) -> f64 {
    let count = points.len().max(1) as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let spread: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
    let common: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
    if spread > 0.0 { common / spread } else { 0.0 }
}

/// Bytes of all files below, as long as they are; files that go meanwhile count as nothing.
fn size_of(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(data) if data.is_dir() => size_of(&entry.path()),
            Ok(data) => data.len(),
            Err(_) => 0,
        })
        .sum()
}

/// Bytes of this process in memory.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").trim().parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

const TRIM: &str = "MALLOC_TRIM_THRESHOLD_";
const REQUEUES: u32 = 1_000;
/// It is enqueued, selected, and completed.
const RECORDS_A_JOB: f64 = 3.0;
/// Selected, and requeued.
const RECORDS_A_REQUEUE: f64 = 2.0;
const SEGMENT: u64 = 64 << 20;
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
const MIB: f64 = (1 << 20) as f64;
