//! A job that does what its script says, and a log of what ran: for tests that drive a whole runner.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use journeyman::testing::TestRunner;
use journeyman::{Circuit, Configured, Cx, Failure, Job, JobResult, Policy, Runner, Target};
use serde::{Deserialize, Serialize};

/// What a run of a task does. The last step of a script repeats.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Step {
    Ok,
    Fail,
    NotTheTarget,
    Reject,
    Unsafe,
    RetryAfter(u64),
    Defer(u64),
    Panic,
    PanicOnDrop,
    Hang,
    Sleep(u64),
    FailAfter(u64),
    PanicAfter(u64),
    UntilCancelled,
}

/// A job with a script: step n for its run n.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Task {
    pub(crate) name: String,
    pub(crate) target: Option<String>,
    pub(crate) script: Vec<Step>,
}

pub(crate) fn task(name: &str, script: &[Step]) -> Task {
    Task { name: name.to_owned(), target: None, script: script.to_vec() }
}

pub(crate) fn task_for(target: &str, name: &str, script: &[Step]) -> Task {
    Task { target: Some(target.to_owned()), ..task(name, script) }
}

/// What ran, in order: name and attempt number. Survives crashes of the runner.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log(Arc<Mutex<LogState>>);

#[derive(Debug, Default)]
struct LogState {
    runs: Vec<(String, u32)>,
    count: HashMap<String, usize>,
    live: usize,
    most_live: usize,
}

impl Log {
    pub(crate) fn runs(&self) -> Vec<(String, u32)> {
        self.0.lock().unwrap().runs.clone()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.runs().into_iter().map(|(name, _)| name).collect()
    }

    pub(crate) fn runs_of(&self, name: &str) -> usize {
        self.0.lock().unwrap().count.get(name).copied().unwrap_or(0)
    }

    pub(crate) fn total(&self) -> usize {
        self.0.lock().unwrap().runs.len()
    }

    /// The most attempts that were running at once.
    pub(crate) fn most_live(&self) -> usize {
        self.0.lock().unwrap().most_live
    }

    fn begin(&self, name: &str, attempt: u32) -> (usize, Live) {
        let mut log = self.0.lock().unwrap();
        log.runs.push((name.to_owned(), attempt));
        log.live += 1;
        log.most_live = log.most_live.max(log.live);
        let count = log.count.entry(name.to_owned()).or_default();
        *count += 1;
        (*count - 1, Live(self.clone()))
    }
}

struct Live(Log);

impl Drop for Live {
    fn drop(&mut self) {
        self.0.0.lock().unwrap().live -= 1;
    }
}

struct PanicOnDrop;

impl Drop for PanicOnDrop {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("a panic while the job is dropped");
        }
    }
}

impl Job for Task {
    type Context = Log;
    type Output = ();
    const KIND: &'static str = "task";

    fn target(&self) -> Option<Target> {
        self.target.as_deref().map(Target::new)
    }

    fn policy() -> Policy {
        Policy::default().attempts(3).timeout(Duration::from_secs(60))
    }

    async fn run(self, cx: Cx<Log>) -> JobResult<()> {
        let (run, _live) = cx.context().begin(&self.name, cx.attempt());
        match self.script[run.min(self.script.len() - 1)] {
            Step::Ok => Ok(()),
            Step::Fail => Err(Failure::transient("told to fail")),
            Step::NotTheTarget => Err(Failure::transient("told to fail").not_the_target()),
            Step::Reject => Err(Failure::permanent("told to give up")),
            Step::Unsafe => Err(Failure::transient("told to fail").do_not_repeat()),
            Step::RetryAfter(ms) => Err(Failure::transient("busy").retry_after(Duration::from_millis(ms))),
            Step::Defer(ms) => Err(Failure::defer(Duration::from_millis(ms))),
            Step::Panic => panic!("told to panic"),
            Step::PanicOnDrop => {
                let _bomb = PanicOnDrop;
                cx.sleep(Duration::from_secs(1_000_000)).await;
                Ok(())
            }
            Step::Hang => std::future::pending().await,
            Step::Sleep(ms) => {
                cx.sleep(Duration::from_millis(ms)).await;
                Ok(())
            }
            Step::FailAfter(ms) => {
                cx.sleep(Duration::from_millis(ms)).await;
                Err(Failure::transient("told to fail"))
            }
            Step::PanicAfter(ms) => {
                cx.sleep(Duration::from_millis(ms)).await;
                panic!("told to panic")
            }
            Step::UntilCancelled => {
                cx.cancelled().await;
                Ok(())
            }
        }
    }
}

/// A runner of tasks, still to be configured.
pub(crate) fn tasks(log: &Log) -> Configured<Log> {
    let log = log.clone();
    Runner::in_memory().context(move || std::future::ready(Ok::<_, std::convert::Infallible>(log.clone()))).register::<Task>()
}

/// A runner of tasks with the default limits.
pub(crate) async fn runner(log: &Log) -> TestRunner<Log> {
    tasks(log).test_with(Default::default(), seed()).await.expect("an empty disk opens")
}

/// A circuit that opens at two failures, for a minute.
pub(crate) fn touchy() -> Circuit {
    Circuit::default().threshold(2).cooldown(Duration::from_secs(60))
}

/// The seed of this run: given by `JOURNEYMAN_SEED`, else 0; printed, so that a failure can be had again.
pub(crate) fn seed() -> u64 {
    let seed = std::env::var("JOURNEYMAN_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0);
    println!("JOURNEYMAN_SEED={seed}");
    seed
}

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MINUTE: Duration = Duration::from_secs(60);
pub(crate) const HOUR: Duration = Duration::from_secs(3600);
pub(crate) const DAY: Duration = Duration::from_secs(24 * 3600);
