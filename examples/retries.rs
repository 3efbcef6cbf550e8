//! A parcel's hard day, told in virtual time: what each kind of failure costs, and what costs nothing. An hour passes in an
//! instant, a crash is a call, and one seed tells one story. Never sleeps.
//!
//! `cargo run --example retries`

use std::collections::VecDeque;
use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use journeyman::testing::TestRunner;
use journeyman::{Cx, Failure, Job, JobId, JobInfo, JobResult, JobState, Policy, Runner};
use serde::{Deserialize, Serialize};

/// A job that fares as the world has it.
#[derive(Serialize, Deserialize)]
struct Parcel;

impl Job for Parcel {
    type Context = World;
    type Output = ();
    const KIND: &'static str = "parcel.deliver";

    fn policy() -> Policy {
        Policy::default().attempts(8).base(Duration::from_secs(1)).cap(Duration::from_secs(60))
    }

    async fn run(self, cx: Cx<World>) -> JobResult<()> {
        match cx.context().next() {
            Answer::NobodyHome => Err(Failure::transient("nobody home")),
            Answer::ClosedFor(wait) => Err(Failure::transient("the shop is closed").retry_after(wait)),
            Answer::NotYet(wait) => Err(Failure::defer(wait)),
            Answer::Jam => {
                cx.sleep(Duration::from_secs(300)).await;
                Ok(())
            }
            Answer::Thanks => Ok(()),
        }
    }
}

/// What the parcel meets, attempt by attempt. It lies outside the runner, so a crash does not touch it.
#[derive(Clone, Default)]
struct World(Arc<Mutex<VecDeque<Answer>>>);

#[derive(Clone, Copy)]
enum Answer {
    NobodyHome,
    ClosedFor(Duration),
    NotYet(Duration),
    /// Takes five minutes.
    Jam,
    Thanks,
}

impl World {
    fn next(&self) -> Answer {
        self.lock().pop_front().unwrap_or(Answer::Thanks)
    }

    fn set(&self, answers: impl IntoIterator<Item = Answer>) {
        *self.lock() = answers.into_iter().collect();
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Answer>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[actix::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let world = World::default();
    let outside = world.clone();
    let context = move || std::future::ready(Ok::<_, std::io::Error>(outside.clone()));
    let runner = Runner::in_memory().context(context).register::<Parcel>().test().await?;
    let mut story = Story { began: runner.now(), runner };

    story.a_hard_day(&world).await?;
    story.a_hopeless_one(&world).await
}

/// The runner, and since when its story runs.
struct Story {
    runner: TestRunner<World>,
    began: SystemTime,
}

impl Story {
    async fn a_hard_day(&mut self, world: &World) -> Told {
        let closed = Answer::ClosedFor(Duration::from_secs(90));
        let not_yet = Answer::NotYet(Duration::from_secs(20));
        world.set([Answer::NobodyHome, Answer::NobodyHome, Answer::NobodyHome, closed, not_yet, Answer::Jam, Answer::NobodyHome]);
        let id = self.runner.jobs().enqueue(Parcel).await?.id();
        self.say(format!("parcel {id} is on disk; it has 8 attempts"))?;
        self.follow(id).await?;

        self.runner.advance(Duration::from_secs(7)).await;
        self.say("the process is killed in the middle of attempt 5, and started again: that attempt counts as failed".to_owned())?;
        self.runner.crash_and_reopen().await?;
        self.follow(id).await
    }

    async fn a_hopeless_one(&self, world: &World) -> Told {
        world.set([Answer::NobodyHome; 4]);
        let id = self.runner.jobs().enqueue(Parcel).policy(Parcel::policy().attempts(4)).await?.id();
        self.say(format!("parcel {id} is on disk; it has 4 attempts"))?;
        self.follow(id).await
    }

    /// Tells what becomes of a parcel, until it has ended or is on its way.
    async fn follow(&self, id: JobId) -> Told {
        let mut told = 0;
        loop {
            self.runner.settle().await;
            let Some(parcel) = self.runner.jobs().get(id).await? else { return self.tell_end(id) };
            let JobState::Pending { due } = parcel.state else {
                return self.say(format!("attempt {} is on its way", parcel.failures + 1));
            };
            let wait = due.duration_since(self.runner.now())?;
            self.say(if parcel.failures > told { failed(&parcel, wait) } else { deferred(&parcel, wait) })?;
            told = parcel.failures;
            self.runner.advance(wait).await;
        }
    }

    fn tell_end(&self, id: JobId) -> Told {
        let stats = self.runner.jobs().stats();
        self.say(format!("parcel {id} has ended; in all: {} done, {} with their attempts used up\n", stats.done, stats.spent))
    }

    fn say(&self, line: String) -> Told {
        let time = self.runner.now().duration_since(self.began)?;
        println!("{:>8.3} s  {line}", time.as_secs_f64());
        Ok(())
    }
}

type Told = Result<(), Box<dyn Error>>;

fn failed(parcel: &JobInfo, wait: Duration) -> String {
    let failures = parcel.failures;
    let fault = parcel.last_fault.as_ref().map_or("", |fault| fault.text());
    let backoff = Duration::from(Parcel::policy().backoff(failures - 1));
    let reason = if wait > backoff { "as it was asked".to_owned() } else { format!("the backoff of {backoff:?}, jittered") };
    format!("attempt {failures} failed: {fault}; the next in {:.3} s: {reason}", wait.as_secs_f64())
}

fn deferred(parcel: &JobInfo, wait: Duration) -> String {
    format!("attempt {} put itself off for {:.3} s, which spends nothing", parcel.failures + 1, wait.as_secs_f64())
}
