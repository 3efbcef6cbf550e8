//! What a job that waits takes of memory, each time in a process of its own, so that what others have left free does not hide it.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use crate::load::{self, HOUR, Nothing};
use crate::rows::with_runner;
use crate::{Bound, Line};

pub(crate) fn per_waiting_job() -> Vec<Line> {
    let ([in_memory, reopened, from_memory], [on_disk, reopened_on_disk, from_disk]) = (said("memory"), said("disk"));
    vec![
        Line {
            target: "a waiting job of 100 bytes, payload in memory",
            figure: in_memory,
            unit: "bytes",
            bound: Bound::AtMost(220.0, 165.0),
        },
        Line { target: "the same, payload on disk", figure: on_disk, unit: "bytes", bound: Bound::AtMost(96.0, 64.0) },
        Line { target: "  10^6 of them opened again, in memory", figure: reopened, unit: "s", bound: Bound::Report },
        Line { target: "  and put on disk", figure: reopened_on_disk, unit: "s", bound: Bound::Report },
        Line { target: "  a backlog that is run, in memory", figure: from_memory, unit: "jobs/s", bound: Bound::Report },
        Line { target: "  and on disk", figure: from_disk, unit: "jobs/s", bound: Bound::Report },
    ]
}

/// Runs a role of this program in a process of its own; answers the numbers that it prints.
fn said<const N: usize>(role: &str) -> [f64; N] {
    let me = std::env::current_exe().expect("this program");
    let output = Command::new(me).args(["role", role]).output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("text");
    let numbers: Vec<f64> = text.split_whitespace().map(|word| word.parse().expect("a number")).collect();
    numbers.try_into().expect("as many as were asked for")
}

/// What such a process does.
pub(crate) fn play(role: &[String]) {
    let payload_memory = match role {
        [role] if role == "memory" => 1 << 30,
        [role] if role == "disk" => 0,
        _ => panic!("there is no such role"),
    };
    let dir = tempfile::tempdir().expect("a temporary directory");
    let bytes = bytes_per_job(dir.path(), payload_memory);
    let (seconds, rate) = opened_and_run(dir.path(), payload_memory);
    println!("{bytes} {seconds} {rate}");
}

fn bytes_per_job(dir: &Path, payload_memory: u64) -> f64 {
    with_runner(load::keeping(dir.join("jobs"), payload_memory), async |jobs| {
        let before = resident();
        for _ in 0..WAITING / 1000 {
            jobs.enqueue_all((0..1000).map(|_| jobs.enqueue(Nothing::new()).delay(HOUR))).await.expect("room");
        }
        while payload_memory == 0 && jobs.stats().payload_memory > 0 {
            tokio::time::sleep(PAUSE).await;
        }
        (resident() - before) as f64 / WAITING as f64
    })
}

/// How long it takes to open the same again, and how many of them are run in a second once they are due.
fn opened_and_run(dir: &Path, payload_memory: u64) -> (f64, f64) {
    let begun = Instant::now();
    with_runner(load::keeping(dir.join("jobs"), payload_memory), async |jobs| {
        let seconds = begun.elapsed().as_secs_f64();
        // A backlog that becomes due at one moment, when all of it is where it is to wait.
        let before = jobs.stats().done;
        let due = SystemTime::now() + BACKLOG_DUE;
        for _ in 0..RUN / 1000 {
            jobs.enqueue_all((0..1000).map(|_| jobs.enqueue(Nothing::new()).at(due))).await.expect("room");
        }
        let left = due.duration_since(SystemTime::now()).expect("it takes less to enqueue them");
        tokio::time::sleep(left).await;
        let (begun, already) = (Instant::now(), jobs.stats().done);
        while jobs.stats().done < before + RUN {
            tokio::time::sleep(PAUSE).await;
        }
        (seconds, (before + RUN - already) as f64 / begun.elapsed().as_secs_f64())
    })
}

/// Bytes of memory of this process.
pub(crate) fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").expect("a Linux system");
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("there is such a line");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}

const WAITING: u64 = 1_000_000;
/// Jobs that are run.
const RUN: u64 = 200_000;
/// By then they have been enqueued.
const BACKLOG_DUE: Duration = Duration::from_secs(8);
/// Between two looks at how far it has come.
const PAUSE: Duration = Duration::from_millis(5);
