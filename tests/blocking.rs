//! Calls from plain threads. Proves that every call of the handle works on a thread without a runtime and where blocking is
//! allowed, and that it panics at once, and harms nothing, where it would block a runtime.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;

use journeyman::{Cancelled, Cx, EventFilter, Job, JobEnd, JobResult, Query, Runner};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Nothing;

impl Job for Nothing {
    type Context = ();
    type Output = ();
    const KIND: &'static str = "nothing";

    async fn run(self, _: Cx<()>) -> JobResult<()> {
        Ok(())
    }
}

#[derive(Serialize, Deserialize)]
struct Parent;

impl Job for Parent {
    type Context = ();
    type Output = ();
    const KIND: &'static str = "parent";

    async fn run(self, cx: Cx<()>) -> JobResult<()> {
        let jobs = cx.jobs().clone();
        let child = cx.blocking(move || jobs.enqueue(Nothing).wait()).await?;
        assert_eq!(cx.jobs().outcome(child.id()).await?, JobEnd::Done);
        Ok(())
    }
}

async fn runner(dir: &std::path::Path) -> Runner {
    Runner::open(dir.join("jobs.d")).register::<Nothing>().register::<Parent>().start().await.unwrap()
}

#[actix::test]
async fn every_call_works_on_a_plain_thread() {
    let dir = tempfile::tempdir().unwrap();
    let runner = runner(dir.path()).await;
    let jobs = runner.jobs();
    let plain = thread::spawn(move || {
        let id = jobs.enqueue(Nothing).key("k").wait().unwrap().id();
        assert_eq!(jobs.wait(jobs.outcome(id)), Ok(JobEnd::Done));
        let later = || jobs.enqueue(Nothing).delay(Duration::from_secs(3600));
        let receipts = jobs.wait(jobs.enqueue_all([later(), later()])).unwrap();
        assert_eq!(jobs.wait(jobs.list(Query::new())).unwrap().jobs.len(), 2);
        assert!(jobs.wait(jobs.get(receipts[0].id())).unwrap().is_some());
        let mut events = jobs.events(EventFilter::all());
        for receipt in receipts {
            assert_eq!(jobs.wait(jobs.cancel(receipt.id())), Ok(Cancelled::Cancelled));
        }
        assert!(jobs.wait(events.next()).is_some());
        jobs.wait(jobs.run_until_idle(Duration::from_secs(10))).unwrap();
        assert!(jobs.wait(jobs.targets()).unwrap().is_empty());
    });
    while !plain.is_finished() {
        tokio::task::yield_now().await;
    }
    plain.join().unwrap();
    runner.shutdown(Duration::from_secs(5)).await.unwrap();
}

#[actix::test]
async fn it_works_where_blocking_is_allowed() {
    let dir = tempfile::tempdir().unwrap();
    let runner = runner(dir.path()).await;
    let jobs = runner.jobs();
    let id = actix_web::web::block(move || jobs.enqueue(Parent).wait()).await.unwrap().unwrap().id();
    assert_eq!(runner.jobs().outcome(id).await, Ok(JobEnd::Done), "and in a blocking section of a job");
    runner.shutdown(Duration::from_secs(5)).await.unwrap();
}

#[actix::test]
async fn on_a_thread_that_runs_a_runtime_it_panics_at_once_and_harms_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let runner = runner(dir.path()).await;
    let jobs = runner.jobs();
    let panic = catch_unwind(AssertUnwindSafe(|| jobs.enqueue(Nothing).wait())).unwrap_err();
    let text = panic.downcast_ref::<&str>().map(ToString::to_string).or_else(|| panic.downcast_ref::<String>().cloned()).unwrap();
    assert!(text.contains("runtime"), "{text}");
    let id = jobs.enqueue(Nothing).await.unwrap().id();
    assert_eq!(id.to_string(), "0-1", "the call before stored nothing");
    runner.shutdown(Duration::from_secs(5)).await.unwrap();
}
