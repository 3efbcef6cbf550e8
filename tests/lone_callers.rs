//! The batch of a caller who is alone is written on the queue's own thread: no other thread has to wake up for it. Nothing else changes by it, and
//! a disk that takes its time is waited for as long as it would be elsewhere.

use std::thread::ThreadId;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use journeyman::{EnqueueError, Health, Jobs, Limits, Runner};

use crate::gated::Gated;
use crate::jobs::{DAY, Log, SECOND, Step, task, tasks};

fn journals() -> Gated {
    // So its files are called when they are made.
    Gated::before(".segment.tmp")
}

async fn start(disk: &Gated, append_timeout: Duration) -> Runner {
    let mut limits = Limits::default();
    (limits.append_timeout, limits.interrupt_grace) = (append_timeout, Duration::from_millis(100));
    tasks(&Log::default()).limits(limits).start_on(disk.clone()).await.unwrap()
}

async fn store(jobs: &Jobs) -> Result<journeyman::JobId, EnqueueError> {
    jobs.enqueue(task("later", &[Step::Ok])).delay(DAY).await.map(|receipt| receipt.id())
}

/// Calls until the journal is written on another thread than at first; that is the queue's. A machine may pause in any of the calls, which
/// then does not count.
async fn alone(disk: &Gated, jobs: &Jobs) -> (ThreadId, ThreadId) {
    store(jobs).await.unwrap();
    let far = disk.last_sync().unwrap();
    for _ in 0..2_000 {
        store(jobs).await.unwrap();
        if let Some(near) = disk.last_sync().filter(|thread| *thread != far) {
            return (far, near);
        }
    }
    panic!("the thread never changes");
}

#[actix::test]
async fn one_caller_alone_is_served_by_the_queue_and_several_by_the_journal() {
    let disk = journals();
    let runner = start(&disk, 30 * SECOND).await;
    let jobs = runner.jobs();
    for _ in 0..3 {
        let (far, near) = alone(&disk, &jobs).await;
        for receipts in [8, 2] {
            let calls = (0..receipts).map(|_| store(&jobs));
            assert!(join_all(calls).await.into_iter().all(|stored| stored.is_ok()));
        }
        assert_eq!(disk.last_sync(), Some(far), "{near:?}");
    }
    // As long as jobs come and go, their ends must not wait for a caller's disk.
    let (far, _) = alone(&disk, &jobs).await;
    jobs.enqueue(task("now", &[Step::Ok])).await.unwrap();
    while jobs.stats().done == 0 {
        actix_rt::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(disk.last_sync(), Some(far));
    runner.shutdown(Duration::ZERO).await.unwrap();
}

#[actix::test]
async fn what_the_queue_writes_itself_is_there_when_it_is_opened_again() {
    let disk = journals();
    let runner = start(&disk, 30 * SECOND).await;
    alone(&disk, &runner.jobs()).await;
    let before = runner.jobs().stats();
    runner.shutdown(Duration::ZERO).await.unwrap();
    let again = start(&disk, 30 * SECOND).await;
    assert_eq!(again.jobs().stats().pending, before.pending);
    again.shutdown(Duration::ZERO).await.unwrap();
}

#[actix::test]
async fn a_disk_that_takes_its_time_is_no_queue_that_is_stuck() {
    let disk = journals();
    let runner = start(&disk, 30 * SECOND).await;
    let jobs = runner.jobs();
    alone(&disk, &jobs).await;
    disk.shut(true);
    let gate = async {
        disk.is_waited_at().await;
        // A queue counts as stuck after a second.
        actix_rt::time::sleep(Duration::from_millis(2_500)).await;
        assert_eq!(jobs.health(), Health::Green);
        disk.shut(false);
    };
    let (stored, ()) = tokio::join!(store(&jobs), gate);
    assert!(stored.is_ok(), "{stored:?}");
    assert_eq!(jobs.health(), Health::Green);
    store(&jobs).await.unwrap();
    runner.shutdown(Duration::ZERO).await.unwrap();
}

#[actix::test]
async fn a_disk_that_hangs_under_the_queue_is_given_up_after_its_time_and_nothing_is_read_before_it_is_back() {
    for comes_back in [true, false] {
        let disk = journals();
        let runner = start(&disk, 2 * SECOND).await;
        let jobs = runner.jobs();
        alone(&disk, &jobs).await;
        let stored = jobs.stats().pending;
        disk.shut(true);
        let began = Instant::now();
        assert_eq!(store(&jobs).await, Err(EnqueueError::Unknown));
        let noticed = began.elapsed();
        assert!(noticed > Duration::from_millis(1_900) && noticed < Duration::from_secs(6), "{noticed:?}");
        let Health::Red { why } = jobs.health() else { panic!("{:?}", jobs.health()) };
        assert_eq!(why, "the journal gave no answer for 2s");
        if comes_back {
            disk.shut(false);
            let open = async {
                while store(&jobs).await.is_err() {
                    actix_rt::time::sleep(Duration::from_millis(5)).await;
                }
            };
            assert!(actix_rt::time::timeout(20 * SECOND, open).await.is_ok(), "{:?}", jobs.health());
            runner.shutdown(Duration::ZERO).await.unwrap();
        } else {
            let over = async {
                while !matches!(jobs.health(), Health::Red { why } if why == "the thread of the old journal hangs in the disk") {
                    actix_rt::time::sleep(Duration::from_millis(5)).await;
                }
            };
            assert!(actix_rt::time::timeout(20 * SECOND, over).await.is_ok(), "{:?}", jobs.health());
            assert!(runner.shutdown(Duration::ZERO).await.is_err());
            disk.shut(false);
            disk.is_left().await;
            let again = start(&disk, 30 * SECOND).await;
            let pending = again.jobs().stats().pending;
            assert!(pending == stored || pending == stored + 1, "{pending} of {stored} and one of which nobody knows");
            again.shutdown(Duration::ZERO).await.unwrap();
        }
    }
}
