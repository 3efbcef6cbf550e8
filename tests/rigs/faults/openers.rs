//! One directory, one runner (F18): a second opener is refused at once, of another process and of the same one; an owner that was killed
//! leaves nothing that keeps the next one out, not even where a process that it started lives on.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use journeyman::{Runner, StartError};
use journeyman_core::disk::DirError;

use crate::load::{Refusal, Work};
use crate::program::{self, Program};
use crate::support::figures::held;
use crate::{Held, Part};

pub(crate) const PART: Part = Part { name: "openers", run };

fn run(dir: &Path) -> Held {
    let dir = &dir.join("jobs");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())?;
    let start = || runtime.block_on(Runner::open(dir).register::<Work>().start());

    // While another process has it.
    let mut first = Program::start(program::role("load", dir, &["run=first"]));
    if !first.until("ack", PATIENCE) {
        return Err(format!("the first does not start: {:?}", first.end()));
    }
    let mut slowest = Duration::ZERO;
    for _ in 0..TRIES {
        let began = Instant::now();
        let second = start();
        slowest = slowest.max(began.elapsed());
        match second {
            Err(StartError::Directory(DirError::Locked { .. })) => {}
            Err(other) => return Err(format!("refused for another reason: {other}")),
            Ok(_) => return Err("two runners have one directory".to_owned()),
        }
    }
    for _ in 0..PROCESSES {
        let ended = Program::start(program::role("load", dir, &[])).end();
        if ended.status.code() != Some(Refusal::Locked as i32) {
            return Err(format!("a second process: {ended:?}"));
        }
    }
    println!("  the slowest refusal took {slowest:.1?} (at most {AT_ONCE:?})");
    if slowest > AT_ONCE {
        return Err(format!("a refusal took {slowest:?}"));
    }
    if !first.until("ack", PATIENCE) {
        return Err("the first has stopped".to_owned());
    }
    drop(first.kill());

    // After it was killed, while a process that it started lives on.
    let mut slowest = Duration::ZERO;
    for n in 0..KILLS {
        let mut owner = Program::start(program::role("load", dir, &["run=owner", "spawn=3", "quiet=true"]));
        if !owner.until("child", PATIENCE) {
            return Err(format!("owner {n} does not start: {:?}", owner.end()));
        }
        drop(owner.kill());
        let began = Instant::now();
        let runner = start().map_err(|error| format!("after a kill: {error}"))?;
        slowest = slowest.max(began.elapsed());
        runtime.block_on(runner.shutdown(Duration::ZERO)).map_err(|error| error.to_string())?;
    }
    println!("  the slowest start after a kill took {slowest:.1?} (at most {SOON:?})");
    if slowest > SOON {
        return Err(format!("a start after a kill took {slowest:?}"));
    }

    // Two in one process, and a child of it that outlives the first.
    let one = start().map_err(|error| error.to_string())?;
    if !matches!(start(), Err(StartError::Directory(DirError::Locked { .. }))) {
        return Err("two runners of one process have one directory".to_owned());
    }
    let mut child = Command::new("sleep").arg("60").stdout(Stdio::null()).spawn().map_err(|error| error.to_string())?;
    let stopped = runtime.block_on(one.shutdown(Duration::ZERO)).map_err(|error| error.to_string());
    let two = start();
    let _ = child.kill();
    let _ = child.wait();
    stopped?;
    let two = two.map_err(|error| format!("a child of the process keeps the lock: {error}"))?;
    runtime.block_on(two.shutdown(Duration::ZERO)).map_err(|error| error.to_string())?;
    held("F18", u64::from(TRIES + PROCESSES + 1), "second openers refused");
    held("F18", u64::from(KILLS + 1), "starts after the owner was gone, with a child of it alive");
    Ok(())
}

const TRIES: u32 = 1_000;
const PROCESSES: u32 = 20;
const KILLS: u32 = 20;
const AT_ONCE: Duration = Duration::from_millis(100);
const SOON: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(20);
