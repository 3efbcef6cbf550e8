//! What a job that waits takes of memory, each time in a process of its own, so that what others have left free does not hide it.

use std::path::Path;
use std::process::Command;

use crate::load::{self, HOUR, Nothing};
use crate::rows::with_runner;
use crate::{Bound, Line};

pub(crate) fn per_waiting_job() -> Vec<Line> {
    let [in_memory] = said("memory");
    vec![Line {
        target: "a waiting job of 100 bytes, payload in memory",
        figure: in_memory,
        unit: "bytes",
        bound: Bound::AtMost(220.0, 165.0),
    }]
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
    assert_eq!(role, ["memory"], "there is no other role");
    let dir = tempfile::tempdir().expect("a temporary directory");
    println!("{}", bytes_per_job(dir.path()));
}

fn bytes_per_job(dir: &Path) -> f64 {
    with_runner(load::real(dir.join("jobs"), 64), async |jobs| {
        let before = resident();
        for _ in 0..WAITING / 1000 {
            jobs.enqueue_all((0..1000).map(|_| jobs.enqueue(Nothing::new()).delay(HOUR))).await.expect("room");
        }
        (resident() - before) as f64 / WAITING as f64
    })
}

/// Bytes of memory of this process.
pub(crate) fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").expect("a Linux system");
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("there is such a line");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}

const WAITING: u64 = 1_000_000;
