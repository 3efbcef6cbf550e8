//! A rig, not a test, as it takes ten seconds of real time: a runner on a real disk with one ticket due in an hour does no
//! sync and hardly wakes. Run it with `cargo bench --bench idle`; it ends with status 1 when a bound is broken.

use std::collections::HashMap;
use std::fs;
use std::process::ExitCode;
use std::time::Duration;

use journeyman::{Cx, Job, JobResult, Runner};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Later;

impl Job for Later {
    type Context = ();
    type Output = ();
    const KIND: &'static str = "later";

    async fn run(self, _: Cx<()>) -> JobResult<()> {
        Ok(())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let own = switches().into_keys().collect::<Vec<_>>();
    let runner = Runner::open(dir.path().join("jobs")).register::<Later>().start().await.expect("a fresh directory");
    runner.jobs().enqueue(Later).delay(Duration::from_secs(3600)).await.expect("room");
    // What the start left to do is over when the first of its own looks at the clock is.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (syncs, before) = (runner.jobs().stats().syncs, switches());
    tokio::time::sleep(IDLE).await;
    let (more_syncs, after) = (runner.jobs().stats().syncs - syncs, switches());
    let woken: u64 =
        after.iter().filter(|(thread, _)| !own.contains(thread)).map(|(thread, count)| count - before.get(thread).unwrap_or(&0)).sum();
    println!(
        "idle for {IDLE:?}: {more_syncs} syncs (at most 0), {woken} voluntary context switches of the runner's threads (at most {MOST})"
    );
    runner.shutdown(Duration::ZERO).await.expect("an orderly end");
    if more_syncs == 0 && woken <= MOST { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Voluntary context switches of each thread of this process.
fn switches() -> HashMap<String, u64> {
    let tasks = fs::read_dir("/proc/self/task").expect("a Linux system");
    tasks.filter_map(|task| of_thread(&task.ok()?.path())).collect()
}

fn of_thread(task: &std::path::Path) -> Option<(String, u64)> {
    let status = fs::read_to_string(task.join("status")).ok()?;
    let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
    Some((task.file_name()?.to_string_lossy().into_owned(), count.trim().parse().ok()?))
}

const IDLE: Duration = Duration::from_secs(10);
const MOST: u64 = 30;
