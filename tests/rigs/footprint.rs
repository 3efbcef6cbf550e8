//! A rig, not a test, as it takes real time and a process of its own: what a runner costs while it waits. With one ticket
//! due in an hour it does no sync and hardly wakes; a waiting job takes so much memory, and a job so much disk.
//! Run it with `cargo bench --bench footprint`; it ends with status 1 when a bound is broken.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use journeyman::{Cx, Job, JobResult, Jobs, PayloadCodec, Runner};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Hundred(Vec<u8>);

impl Job for Hundred {
    type Context = ();
    type Output = ();
    const KIND: &'static str = "hundred";
    const CODEC: PayloadCodec<Self> = PayloadCodec::raw(|job| Ok(job.0.clone()), |bytes| Ok(Self(bytes.to_vec())));

    async fn run(self, _: Cx<()>) -> JobResult<()> {
        Ok(())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let own: Vec<_> = switches().into_keys().collect();
    let runner = Runner::open(dir.path().join("jobs")).register::<Hundred>().start().await.expect("a fresh directory");
    let jobs = runner.jobs();
    let held = [idles(&jobs, &own).await, costs_little_disk(&jobs).await, costs_little_memory(&jobs).await];
    runner.shutdown(Duration::ZERO).await.expect("an orderly end");
    if held.iter().all(|held| *held) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// One ticket due in an hour, ten seconds of nothing.
async fn idles(jobs: &Jobs, own: &[String]) -> bool {
    let id = jobs.enqueue(hundred()).delay(HOUR).await.expect("room").id();
    // What the start left to do is over then.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (syncs, before) = (jobs.stats().syncs, switches());
    tokio::time::sleep(IDLE).await;
    let syncs = jobs.stats().syncs - syncs;
    let count = |(thread, count): (String, u64)| count - before.get(&thread).unwrap_or(&0);
    let woken: u64 = switches().into_iter().filter(|(thread, _)| !own.contains(thread)).map(count).sum();
    println!("idle for {IDLE:?}: {syncs} syncs (at most 0), {woken} voluntary context switches of the runner's threads (at most 15)");
    jobs.cancel(id).await.expect("it waits");
    syncs == 0 && woken <= 15
}

/// Jobs of 100 bytes that succeed at once: Enqueue, Select, Complete, and the frames around them.
async fn costs_little_disk(jobs: &Jobs) -> bool {
    let before = jobs.stats().bytes;
    for _ in 0..100 {
        jobs.enqueue_all((0..100).map(|_| jobs.enqueue(hundred()))).await.expect("room");
        jobs.run_until_idle(HOUR).await.expect("they do nothing");
    }
    let bytes = (jobs.stats().bytes - before) as f64 / 10_000.0;
    println!("a job of 100 bytes: {bytes:.0} bytes of journal (at most 200)");
    bytes <= 200.0
}

async fn costs_little_memory(jobs: &Jobs) -> bool {
    let before = resident();
    for _ in 0..200 {
        jobs.enqueue_all((0..1000).map(|_| jobs.enqueue(hundred()).delay(HOUR))).await.expect("room");
    }
    let bytes = (resident() - before) / 200_000;
    println!("a waiting job of 100 bytes: {bytes} bytes of memory (at most 700)");
    bytes <= 700
}

fn hundred() -> Hundred {
    Hundred(vec![7; 100])
}

/// Voluntary context switches of each thread of this process.
fn switches() -> HashMap<String, u64> {
    let tasks = fs::read_dir("/proc/self/task").expect("a Linux system");
    tasks.filter_map(|task| of_thread(&task.ok()?.path())).collect()
}

fn of_thread(task: &Path) -> Option<(String, u64)> {
    let count = field(&task.join("status"), "voluntary_ctxt_switches:")?;
    Some((task.file_name()?.to_string_lossy().into_owned(), count))
}

/// Bytes of memory that this process has in use.
fn resident() -> u64 {
    field(Path::new("/proc/self/status"), "VmRSS:").expect("a Linux system") * 1024
}

fn field(file: &Path, name: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name))?.trim().trim_end_matches(" kB").parse().ok()
}

const IDLE: Duration = Duration::from_secs(10);
const HOUR: Duration = Duration::from_secs(3600);
