//! An attempt that outlives its timeout: a blocking section on real threads, which nothing can stop. It keeps its unit, whatever
//! becomes of its attempt, its ticket and its queue meanwhile, and gives it back once.

use std::future::Future;
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use journeyman::{Cancelled, Cx, Event, EventFilter, Health, Job, JobResult, JobState, Policy, Runner};
use serde::{Deserialize, Serialize};

use crate::jobs::{Log, MINUTE, SECOND, Step, Task, task};

static LET_GO: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());

/// Blocks until all of its sort are let go.
#[derive(Serialize, Deserialize)]
struct Stubborn;

impl Job for Stubborn {
    type Context = Log;
    type Output = ();
    const KIND: &'static str = "stubborn";

    fn policy() -> Policy {
        Policy::default().timeout(Duration::from_millis(20)).base(MINUTE)
    }

    async fn run(self, cx: Cx<Log>) -> JobResult<()> {
        cx.blocking(|| {
            let (is_let_go, told) = &LET_GO;
            drop(told.wait_while(is_let_go.lock().unwrap(), |is_let_go| !*is_let_go).unwrap());
        })
        .await;
        Ok(())
    }
}

/// Waits until it is so, for at most a minute.
async fn until<F: Future<Output = bool>>(what: &str, is_so: impl Fn() -> F) {
    let asked = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(MINUTE, asked).await.unwrap_or_else(|_| panic!("never: {what}"));
}

#[actix::test]
async fn a_section_that_outlives_attempt_ticket_and_queue_gives_its_unit_back_once() {
    let log = Log::default();
    let shared = log.clone();
    let dir = tempfile::tempdir().unwrap();
    let runner = Runner::open(dir.path().join("jobs"))
        .context(move || std::future::ready(Ok::<_, std::convert::Infallible>(shared.clone())))
        .register::<Stubborn>()
        .register::<Task>()
        .capacity(3)
        .start()
        .await
        .unwrap();
    let jobs = runner.jobs();
    let held = JobState::Held { why: "a blocking section of an earlier attempt still runs" };
    let cancelled = jobs.enqueue(Stubborn).await.unwrap().id();
    let kept = jobs.enqueue(Stubborn).await.unwrap().id();
    for id in [cancelled, kept] {
        let jobs = &jobs;
        until("its attempt is over", || async move { jobs.get(id).await.unwrap().unwrap().state == held }).await;
    }
    assert_eq!(jobs.cancel(cancelled).await, Ok(Cancelled::Cancelled));
    let mut health = jobs.events(EventFilter::all());
    runner.kill("queue");
    let reopened = async { while health.next().await != Some(Event::Health(Health::Green)) {} };
    tokio::time::timeout(MINUTE, reopened).await.expect("it reopens");
    assert_eq!(jobs.get(kept).await.unwrap().unwrap().state, held, "the next queue knows of it");
    run_six(&jobs).await;
    assert_eq!(log.most_live(), 1, "two of three units are still taken");
    *LET_GO.0.lock().unwrap() = true;
    LET_GO.1.notify_all();
    {
        let jobs = &jobs;
        until("it is held no more", || async move { jobs.get(kept).await.unwrap().unwrap().state != held }).await;
    }
    run_six(&jobs).await;
    assert_eq!(log.most_live(), 3, "all three are back, and no fourth");
    assert_eq!((jobs.stats().pending, jobs.stats().cancelled), (1, 1));
    runner.shutdown(SECOND).await.unwrap();
}

/// Six jobs that take a while each, to their ends.
async fn run_six(jobs: &journeyman::Jobs) {
    let six = (0..6).map(|n| jobs.enqueue(task(&n.to_string(), &[Step::Sleep(60)])));
    for receipt in jobs.enqueue_all(six).await.unwrap() {
        tokio::time::timeout(MINUTE, jobs.outcome(receipt.id())).await.expect("it ends").unwrap();
    }
}
