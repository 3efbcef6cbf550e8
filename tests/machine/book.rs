//! The jobs of the long runs, and the book of what they did: it outlives every crash, as the outside world does.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use journeyman::{Cx, Failure, Job, JobResult, Policy, Target};
use serde::{Deserialize, Serialize};

/// What a run of an errand does. The last step of a script repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Act {
    Ok,
    Fail,
    NotTheTarget,
    Reject,
    Unsafe,
    Defer(u64),
    Panic,
    Hang,
    Sleep(u64),
}

impl Act {
    /// Whether a run that did this has no successor.
    pub(crate) const fn is_last(self) -> bool {
        matches!(self, Self::Ok | Self::Reject | Self::Unsafe | Self::Sleep(_))
    }
}

/// A job: its number in the run, what it does, and bytes that no other has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Errand {
    pub(crate) number: u64,
    pub(crate) target: Option<String>,
    pub(crate) script: Vec<Act>,
    pub(crate) ballast: String,
}

/// One run of an errand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) attempt: u32,
    pub(crate) process: u64,
    /// What it came to; none when it was cut off, or goes on.
    pub(crate) did: Option<Act>,
    pub(crate) lives: bool,
}

/// What ran.
#[derive(Clone, Default)]
pub(crate) struct Book(Arc<Mutex<Pages>>);

#[derive(Default)]
pub(crate) struct Pages {
    pub(crate) runs: BTreeMap<u64, Vec<Run>>,
    /// What was asked for.
    pub(crate) asked: BTreeMap<u64, Errand>,
    /// Processes so far.
    pub(crate) process: u64,
    /// What must not be.
    pub(crate) wrong: Vec<String>,
}

impl Book {
    pub(crate) fn pages(&self) -> MutexGuard<'_, Pages> {
        self.0.lock().expect("nobody panics with it")
    }

    fn begin(&self, errand: &Errand, attempt: u32) -> Rc<Page> {
        let mut pages = self.pages();
        let process = pages.process;
        if pages.asked.get(&errand.number) != Some(errand) {
            pages.wrong.push(format!("errand {} is not what was asked for", errand.number));
        }
        let runs = pages.runs.entry(errand.number).or_default();
        let before = runs.last().copied();
        let at = runs.len();
        runs.push(Run { attempt, process, did: None, lives: true });
        if let Some(before) = before {
            if before.lives && before.process == process {
                pages.wrong.push(format!("errand {}: two runs at once", errand.number));
            }
            // A failure and a death are counted; what was deferred or stopped in order is not.
            let counted = matches!(before.did, Some(Act::Fail | Act::NotTheTarget | Act::Panic));
            if attempt < before.attempt || counted && attempt == before.attempt {
                pages.wrong.push(format!("errand {}: attempt {attempt} after {before:?}", errand.number));
            }
            if matches!(before.did, Some(Act::Reject | Act::Unsafe | Act::Ok | Act::Sleep(_))) && before.process == process {
                pages.wrong.push(format!("errand {}: ran again after {before:?}", errand.number));
            }
        }
        Rc::new(Page { book: self.clone(), number: errand.number, at })
    }
}

/// A run that is alive.
struct Page {
    book: Book,
    number: u64,
    at: usize,
}

impl Page {
    fn write(&self, did: Act) {
        self.change(|run| run.did = Some(did));
    }

    fn change(&self, change: impl FnOnce(&mut Run)) {
        let mut pages = self.book.pages();
        if let Some(run) = pages.runs.get_mut(&self.number).and_then(|runs| runs.get_mut(self.at)) {
            change(run);
        }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.change(|run| run.lives = false);
    }
}

impl Job for Errand {
    type Context = Book;
    type Output = ();
    const KIND: &'static str = "errand";

    fn target(&self) -> Option<Target> {
        self.target.as_deref().map(Target::new)
    }

    fn policy() -> Policy {
        Policy::default().attempts(ATTEMPTS).base(Duration::from_secs(1)).cap(Duration::from_secs(60)).timeout(Duration::from_secs(30))
    }

    async fn run(self, cx: Cx<Book>) -> JobResult<()> {
        let page = cx.context().begin(&self, cx.attempt());
        let runs = cx.context().pages().runs[&self.number].len();
        let act = self.script[(runs - 1).min(self.script.len() - 1)];
        match act {
            Act::Hang => return std::future::pending().await,
            Act::Sleep(ms) => cx.sleep(Duration::from_millis(ms)).await,
            _ => {}
        }
        page.write(act);
        match act {
            Act::Ok | Act::Sleep(_) | Act::Hang => Ok(()),
            Act::Fail => Err(Failure::transient("told to fail")),
            Act::NotTheTarget => Err(Failure::transient("told to fail").not_the_target()),
            Act::Reject => Err(Failure::permanent("told to give up")),
            Act::Unsafe => Err(Failure::transient("told to fail").do_not_repeat()),
            Act::Defer(ms) => Err(Failure::defer(Duration::from_millis(ms))),
            Act::Panic => std::panic::panic_any(TOLD),
        }
    }
}

pub(crate) const ATTEMPTS: u32 = 6;
pub(crate) const TOLD: &str = "told to panic";
