//! The wall clock jumps (F22), for the whole program, by libfaketime: an hour back, ten years back, to 1970, an hour on, ten years on;
//! while it runs, and between two runs. While it runs, no delay, backoff, breaker, deadline or timeout moves by more than two
//! seconds; what is due at an instant follows the clock, in portions; and new work is done at once, whatever the clock shows.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use journeyman::{Circuit, Cx, Event, EventFilter, Failure, Happened, Job, JobResult, Limits, Policy, Runner, Target};
use serde::{Deserialize, Serialize};

use crate::load::{Options, say};
use crate::program::{self, Program};
use crate::support::figures::held;
use crate::{Held, Part};

pub(crate) const PART: Part = Part { name: "clocks", run };

/// What is written where libfaketime looks, and whether the clock goes on or back by it.
const JUMPS: [(&str, i8); 6] = [("+0", 0), ("-1h", -1), ("-10y", -1), ("@1970-01-01 00:00:10", -1), ("+1h", 1), ("+10y", 1)];

fn run(dir: &Path) -> Held {
    let Some(library) = library()? else { return Ok(()) };
    let results: Vec<Result<u64, String>> = thread::scope(|scope| {
        let tries: Vec<_> = JUMPS
            .iter()
            .enumerate()
            .map(|(n, (jump, way))| {
                let place = dir.join(format!("jump-{n}"));
                let library = &library;
                scope.spawn(move || {
                    let named = |why: String| format!("a jump by {jump}: {why}");
                    fs::create_dir_all(&place).map_err(|error| error.to_string())?;
                    let at_run_time = at_run_time(library, &place, jump, *way).map_err(named)?;
                    Ok(at_run_time + between_runs(library, &place, jump, *way).map_err(|why| format!("between runs, {}", named(why)))?)
                })
            })
            .collect();
        tries.into_iter().map(|one| one.join().unwrap_or_else(|_| Err("it panicked".to_owned()))).collect()
    });
    let mut checks = 0;
    for result in results {
        checks += result?;
    }
    held("F22", checks, "waits of a real program under jumps of the wall clock");
    Ok(())
}

fn library() -> Result<Option<PathBuf>, String> {
    if !crate::is_given("faketime", "faketime")? {
        return Ok(None);
    }
    let dirs = fs::read_dir("/usr/lib").into_iter().flatten().flatten().map(|entry| entry.path());
    let found = dirs.map(|dir| dir.join("faketime/libfaketimeMT.so.1")).find(|library| library.is_file());
    if found.is_none() {
        crate::passed_over("jumps of the wall clock", "libfaketimeMT.so.1 below /usr/lib")?;
    }
    Ok(found)
}

/// The program with a clock that shows what `file` says.
fn faked(library: &Path, file: &Path, dir: &Path, options: &[&str]) -> Command {
    let mut command = program::role("waits", dir, options);
    command.env("LD_PRELOAD", library).env("FAKETIME_TIMESTAMP_FILE", file).env("FAKETIME_NO_CACHE", "1").env("TZ", "UTC");
    // Waiting is by the steady clock, which no jump moves.
    command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("DONT_FAKE_MONOTONIC", "1");
    command
}

fn at_run_time(library: &Path, place: &Path, jump: &str, way: i8) -> Result<u64, String> {
    let (file, dir) = (place.join("clock"), place.join("running"));
    fs::write(&file, "+0\n").map_err(|error| error.to_string())?;
    let mut program = Program::start(faked(library, &file, &dir, &[]));
    if !program.until("ready", Duration::from_secs(20)) {
        return Err(format!("it does not start: {:?}", program.end()));
    }
    thread::sleep(Duration::from_secs(1));
    fs::write(&file, format!("{jump}\n")).map_err(|error| error.to_string())?;
    let ended = program.end();
    if !ended.status.success() || !ended.said("health Green") {
        return Err(format!("{ended:?}"));
    }
    // The clock that the program saw has really jumped.
    let walls: Vec<f64> = ended.lines.iter().filter_map(|line| line.strip_prefix("wall ")?.parse().ok()).collect();
    let moved = walls.last().zip(walls.first()).map_or(0.0, |(last, first)| last - first);
    if walls.len() < 2 || (way == 0) != (moved.abs() < 60.0) || (way < 0) != (moved < -60.0) {
        return Err(format!("its clock went by {moved} s"));
    }
    // `at MS NAME WHAT`: when, by a clock that nobody moves.
    let mut seen: HashMap<String, Vec<u64>> = HashMap::new();
    for line in &ended.lines {
        if let ["at", ms, rest @ ..] = &line.split(' ').collect::<Vec<_>>()[..] {
            seen.entry(rest.join(" ")).or_default().push(ms.parse().unwrap_or(u64::MAX));
        }
    }
    let within = |what: &str, from: u64, to: u64| match seen.get(what).and_then(|times| times.first()) {
        Some(ms) if (from..=to).contains(ms) => Ok(1),
        other => Err(format!("{what} was expected after {from} to {to} ms, not {other:?}: {:#?}", ended.lines)),
    };
    let never = |what: &str| if seen.contains_key(what) { Err(format!("{what} came although the clock went back")) } else { Ok(1) };
    let mut checks = 0;
    checks += within("delay run 1", 3_000 - EARLY, 3_000 + LATE)?;
    // Equal jitter: half of the backoff at least.
    checks += within("retry run 2", 1_500 - EARLY, 3_000 + LATE)?;
    checks += within("breaker run 2", 3_000 - EARLY, 3_000 + LATE)?;
    checks += within("deadline end Late", 1_000 - EARLY, 3_000 + LATE)?;
    checks += within("timeout end Spent", 3_000 - EARLY, 3_000 + LATE)?;
    checks += match way {
        0 => within("instant run 1", 3_000 - EARLY, 3_000 + LATE)?,
        1 => within("instant run 1", 1_000 - EARLY, 1_000 + LATE)?,
        _ => never("instant run 1")?,
    };
    for n in 0..NEW {
        checks += within(&format!("new-{n} run 1"), n * NEW_EVERY, n * NEW_EVERY + LATE)?;
    }
    let mut crowd: Vec<u64> = (0..CROWD).filter_map(|n| seen.get(&format!("crowd-{n} run 1"))?.first().copied()).collect();
    crowd.sort_unstable();
    let densest = crowd.iter().map(|from| crowd.iter().filter(|ms| (*from..from + 1_000).contains(ms)).count()).max().unwrap_or(0);
    println!(
        "  {jump}: {} of {CROWD} jobs came due by it, at most {densest} of them in a second (at most {})",
        crowd.len(),
        2 * CATCH_UP + 10
    );
    let expected = if way > 0 { CROWD } else { 0 };
    if crowd.len() != expected || densest > 2 * CATCH_UP + 10 {
        return Err("a storm, or jobs that did not come".to_owned());
    }
    Ok(checks + 1)
}

/// What waits by stored times waits by the wall clock after a restart.
fn between_runs(library: &Path, place: &Path, jump: &str, way: i8) -> Result<u64, String> {
    let (file, dir) = (place.join("clock"), place.join("stopped"));
    let mut checks = 0;
    for (run, clock, is_due) in [("a", "+0", false), ("b", jump, way > 0), ("c", "+0", false)] {
        fs::write(&file, format!("{clock}\n")).map_err(|error| error.to_string())?;
        let ended = Program::start(faked(library, &file, &dir, &["hours=true", &format!("run={run}")])).end();
        if !ended.status.success() || !ended.said("health Green") {
            return Err(format!("run {run}: {ended:?}"));
        }
        let ran = |what: &str| ended.lines.iter().any(|line| line.ends_with(&format!(" {what} run 1")));
        if !ran(&format!("new-{run}")) {
            return Err(format!("run {run}: new work is not done: {:?}", ended.lines));
        }
        for what in ["hour", "hour-instant"] {
            if ran(what) != is_due {
                return Err(format!("run {run}: {what} is due is {is_due}: {:?}", ended.lines));
            }
            checks += 1;
        }
        let left = program::audit(&dir)?.live.len();
        let expected = if way > 0 && run != "a" { 0 } else { 2 };
        if left != expected {
            return Err(format!("after run {run} there are {left} jobs"));
        }
    }
    Ok(checks)
}

/// What a job does; all are begun at once.
#[derive(Serialize, Deserialize)]
struct Tick {
    name: String,
    does: Does,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
enum Does {
    Well,
    FailsOnce,
    FailsOnceAtItsTarget,
    Fails,
    Hangs,
}

impl Job for Tick {
    type Context = ();
    type Output = ();
    const KIND: &'static str = "tick";

    fn target(&self) -> Option<Target> {
        matches!(self.does, Does::FailsOnceAtItsTarget).then(|| Target::new("there"))
    }

    async fn run(self, cx: Cx<()>) -> JobResult<()> {
        told(&format!("{} run {}", self.name, cx.attempt()));
        match self.does {
            Does::Well => Ok(()),
            Does::FailsOnce | Does::FailsOnceAtItsTarget if cx.attempt() > 1 => Ok(()),
            Does::Hangs => std::future::pending().await,
            _ => Err(Failure::transient("told to fail")),
        }
    }
}

static BEGAN: OnceLock<Instant> = OnceLock::new();

fn told(what: &str) {
    say(&format!("at {} {what}", BEGAN.get_or_init(Instant::now).elapsed().as_millis()));
}

fn wall() {
    say(&format!("wall {:.3}", SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(-1.0, |since| since.as_secs_f64())));
}

/// The role `clocks`.
pub(crate) fn role(options: &Options) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut limits = Limits::default();
        limits.catch_up = CATCH_UP;
        let circuit = Circuit::default().threshold(1).cooldown(SECONDS(3));
        let runner =
            Runner::open(&options.dir).limits(limits).circuit(circuit).register::<Tick>().start().await.expect("a sound directory");
        let jobs = runner.jobs();
        let mut events = jobs.events(EventFilter::all());
        let tick = |name: &str, does| jobs.enqueue(Tick { name: name.to_owned(), does });
        if options.get("hours", false) {
            let run = options.get("run", String::new());
            if run == "a" {
                tick("hour", Does::Well).delay(SECONDS(3_500)).await.expect("room");
                tick("hour-instant", Does::Well).at(SystemTime::now() + SECONDS(3_500)).await.expect("room");
            }
            tick(&format!("new-{run}"), Does::Well).await.expect("room");
            tokio::time::sleep(SECONDS(2)).await;
        } else {
            BEGAN.get_or_init(Instant::now);
            let base = Policy::default().attempts(1_000);
            let mut names = HashMap::new();
            tick("delay", Does::Well).delay(SECONDS(3)).await.expect("room");
            tick("retry", Does::FailsOnce).policy(base.base(SECONDS(3)).cap(SECONDS(3))).await.expect("room");
            tick("breaker", Does::FailsOnceAtItsTarget)
                .policy(base.base(Duration::from_millis(1)).cap(Duration::from_millis(1)))
                .await
                .expect("room");
            let half = Duration::from_millis(500);
            let late = tick("deadline", Does::Fails).policy(base.base(half).cap(half).deadline(SECONDS(3))).await.expect("room");
            names.insert(late.id(), "deadline");
            let hangs = tick("timeout", Does::Hangs).policy(Policy::default().attempts(1).timeout(SECONDS(3))).await.expect("room");
            names.insert(hangs.id(), "timeout");
            tick("instant", Does::Well).at(SystemTime::now() + SECONDS(3)).await.expect("room");
            let crowd = (0..CROWD).map(|n| tick(&format!("crowd-{n}"), Does::Well).at(SystemTime::now() + SECONDS(1_800)));
            jobs.enqueue_all(crowd.collect::<Vec<_>>()).await.expect("room");
            tokio::spawn(async move {
                while let Some(event) = events.next().await {
                    let Event::Job(job) = event else { continue };
                    if let (Happened::Ended { end, .. }, Some(name)) = (job.what, names.get(&job.id)) {
                        told(&format!("{name} end {end:?}"));
                    }
                }
            });
            wall();
            say("ready");
            let began = BEGAN.get_or_init(Instant::now);
            for n in 0..NEW {
                tokio::time::sleep(Duration::from_millis(n * NEW_EVERY).saturating_sub(began.elapsed())).await;
                tick(&format!("new-{n}"), Does::Well).await.expect("room");
            }
            tokio::time::sleep(Duration::from_millis(RUN).saturating_sub(began.elapsed())).await;
            wall();
        }
        say(&format!("health {:?}", jobs.health()));
        runner.shutdown(Duration::from_millis(100)).await.expect("an orderly end");
    });
    ExitCode::SUCCESS
}

const SECONDS: fn(u64) -> Duration = Duration::from_secs;
/// What a wait may be early, in ms: the clock that counts it shows whole ones.
const EARLY: u64 = 1;
/// What a wait may be late, in ms.
const LATE: u64 = 2_000;
/// Jobs that are due at an instant half an hour away.
const CROWD: usize = 120;
/// How many of them may start in a second.
const CATCH_UP: usize = 50;
/// Jobs that are enqueued one after the other, and how many ms apart.
const NEW: u64 = 8;
const NEW_EVERY: u64 = 600;
/// How long it all goes, in ms.
const RUN: u64 = 7_000;
