//! Payloads whose disk takes its time: whatever becomes of their jobs meanwhile, each ends right, and every unit of the pool comes back.

use std::future::IntoFuture;
use std::time::Duration;

use journeyman::{Cancelled, Cx, Health, Job, JobEnd, JobResult, Jobs, Limits, Runner};
use serde::{Deserialize, Serialize};

use crate::gated::Gated;
use crate::jobs::SECOND;

#[derive(Serialize, Deserialize)]
struct Letter(String);

impl Job for Letter {
    type Context = ();
    type Output = ();
    const KIND: &'static str = "letter";

    async fn run(self, _: Cx<()>) -> JobResult<()> {
        if self.0 == "as it was" { Ok(()) } else { Err(journeyman::Failure::permanent("another letter")) }
    }
}

fn payloads() -> Gated {
    Gated::before(".payloads.tmp")
}

fn letter() -> Letter {
    Letter("as it was".to_owned())
}

/// One unit of the pool, and nothing in memory.
async fn start(disk: &Gated, append_timeout: Duration) -> Runner {
    let mut limits = Limits::default();
    (limits.capacity, limits.payload_memory, limits.append_timeout) = (1, 0, append_timeout);
    Runner::in_memory().limits(limits).register::<Letter>().start_on(disk.clone()).await.unwrap()
}

async fn until(jobs: &Jobs, is_so: impl Fn(&journeyman::Stats) -> bool) {
    let waiting = async {
        while !is_so(&jobs.stats()) {
            actix_rt::time::sleep(Duration::from_millis(1)).await;
        }
    };
    assert!(actix_rt::time::timeout(20 * SECOND, waiting).await.is_ok(), "{:?}", jobs.stats());
}

/// Its job is due, and its payload on disk.
async fn selected(disk: &Gated, jobs: &Jobs) -> journeyman::JobId {
    let id = jobs.enqueue(letter()).delay(Duration::from_millis(300)).await.unwrap().id();
    until(jobs, |stats| stats.payload_disk > 0).await;
    disk.shut(true);
    disk.is_waited_at().await;
    until(jobs, |stats| stats.running == 1).await;
    id
}

#[actix::test]
async fn one_that_is_cancelled_while_its_payload_is_read_never_begins_and_gives_its_unit_back() {
    let disk = payloads();
    let runner = start(&disk, 30 * SECOND).await;
    let jobs = runner.jobs();
    let id = selected(&disk, &jobs).await;
    assert_eq!(jobs.cancel(id).await.unwrap(), Cancelled::Stopping);
    disk.shut(false);
    let next = jobs.enqueue(letter()).await.unwrap().id();
    assert_eq!(jobs.outcome(next).await.unwrap(), JobEnd::Done);
    until(&jobs, |stats| (stats.running, stats.cancelled, stats.payload_disk, stats.payload_memory) == (0, 1, 0, 0)).await;
    assert_eq!(jobs.health(), Health::Green);
    runner.shutdown(SECOND).await.unwrap();
}

#[actix::test]
async fn one_that_is_cancelled_while_its_payload_is_written_leaves_nothing() {
    let disk = payloads();
    let runner = start(&disk, 30 * SECOND).await;
    let jobs = runner.jobs();
    disk.shut(true);
    let id = jobs.enqueue(letter()).delay(60 * SECOND).await.unwrap().id();
    disk.is_waited_at().await;
    assert!(jobs.stats().payload_memory > 0, "on its way it is in memory");
    assert_eq!(jobs.cancel(id).await.unwrap(), Cancelled::Cancelled);
    // Meanwhile others come and go.
    let next = jobs.enqueue(letter()).await.unwrap().id();
    assert_eq!(jobs.outcome(next).await.unwrap(), JobEnd::Done);
    disk.shut(false);
    let last = jobs.enqueue(letter()).delay(60 * SECOND).await.unwrap().id();
    until(&jobs, |stats| stats.payload_disk > 0 && stats.payload_memory == 0).await;
    jobs.cancel(last).await.unwrap();
    until(&jobs, |stats| (stats.payload_disk, stats.payload_memory) == (0, 0)).await;
    runner.shutdown(SECOND).await.unwrap();
}

#[actix::test]
async fn a_stop_does_not_wait_for_a_payload_and_spends_no_attempt() {
    let disk = payloads();
    let runner = start(&disk, 30 * SECOND).await;
    let jobs = runner.jobs();
    let id = selected(&disk, &jobs).await;
    let mut stop = std::pin::pin!(runner.shutdown(Duration::ZERO));
    let early = actix_rt::time::timeout(4 * SECOND, &mut stop).await;
    assert!(early.is_err(), "the thread of the payloads is waited for as the journal's is");
    disk.shut(false);
    let report = stop.await.unwrap();
    assert_eq!((report.interrupted, report.pending), (1, 1));
    let runner = start(&disk, 30 * SECOND).await;
    assert_eq!(runner.jobs().outcome(id).await.unwrap(), JobEnd::Done);
    runner.shutdown(SECOND).await.unwrap();
}

#[actix::test]
async fn a_disk_that_keeps_a_payload_fails_the_reign_and_the_next_one_has_it_from_the_journal() {
    let disk = payloads();
    let runner = start(&disk, SECOND / 2).await;
    let jobs = runner.jobs();
    let id = selected(&disk, &jobs).await;
    while !matches!(jobs.health(), Health::Red { .. }) {
        actix_rt::time::sleep(Duration::from_millis(1)).await;
    }
    let Health::Red { why } = jobs.health() else { panic!("it does not get better by itself") };
    assert!(why.contains("the disk of the payloads gave no answer for 500ms"), "{why}");
    disk.shut(false);
    assert_eq!(jobs.outcome(id).into_future().await.unwrap(), JobEnd::Done);
    until(&jobs, |stats| (stats.running, stats.payload_disk) == (0, 0)).await;
    let again = jobs.enqueue(letter()).await.unwrap().id();
    assert_eq!(jobs.outcome(again).await.unwrap(), JobEnd::Done, "the one unit is free");
    runner.shutdown(SECOND).await.unwrap();
}
