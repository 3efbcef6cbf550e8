//! Every bound refuses with its name, loses nothing, and never refuses the end of what runs.

use std::future::IntoFuture;

use futures_util::future::join_all;
use journeyman::testing::Syncs;
use journeyman::{EnqueueError, Health, Limits, Policy};

use crate::jobs::{DAY, HOUR, Log, SECOND, Step, task, task_for, tasks};

fn limits(change: impl FnOnce(&mut Limits)) -> Limits {
    let mut limits = Limits::default();
    change(&mut limits);
    limits
}

#[actix::test]
async fn pending_tickets_are_bounded_by_number() {
    let log = Log::default();
    let t = tasks(&log).limits(limits(|l| l.pending = 10)).test().await.unwrap();
    let jobs = t.jobs();
    for n in 0..10 {
        jobs.enqueue(task(&n.to_string(), &[Step::Ok])).delay(HOUR).await.unwrap();
    }
    let refused = jobs.enqueue(task("x", &[Step::Ok])).await.unwrap_err();
    assert_eq!(refused.to_string(), "nothing is stored: the limit of pending tickets is reached");
    t.advance(HOUR).await;
    assert!(jobs.enqueue(task("x", &[Step::Ok])).await.is_ok(), "ended tickets make room");
}

#[actix::test]
async fn pending_tickets_are_bounded_by_bytes() {
    let log = Log::default();
    let t = tasks(&log).limits(limits(|l| l.pending_bytes = 10_000)).test().await.unwrap();
    let jobs = t.jobs();
    let big = "x".repeat(4000);
    jobs.enqueue(task(&big, &[Step::Ok])).delay(HOUR).await.unwrap();
    jobs.enqueue(task(&big, &[Step::Ok])).delay(HOUR).await.unwrap();
    assert_eq!(jobs.enqueue(task(&big, &[Step::Ok])).await, Err(EnqueueError::Full("payload bytes of pending tickets")));
    assert!(jobs.enqueue(task("small", &[Step::Ok])).await.is_ok());
}

#[actix::test]
async fn keys_and_targets_are_bounded() {
    let log = Log::default();
    let bounds = limits(|l| {
        l.keys = 2;
        l.targets = 2;
    });
    let t = tasks(&log).limits(bounds).test().await.unwrap();
    let jobs = t.jobs();
    for n in 0..2 {
        jobs.enqueue(task_for(&n.to_string(), "a", &[Step::Ok])).key(n.to_string()).delay(HOUR).await.unwrap();
    }
    assert_eq!(jobs.enqueue(task("x", &[Step::Ok])).key("x").await, Err(EnqueueError::Full("keys")));
    assert_eq!(jobs.enqueue(task_for("x", "x", &[Step::Ok])).await, Err(EnqueueError::Full("targets")));
    assert!(jobs.enqueue(task_for("1", "x", &[Step::Ok])).await.is_ok(), "a known target");
}

#[actix::test]
async fn a_flood_on_a_stalled_disk_is_refused_instead_of_remembered() {
    let log = Log::default();
    let bounds = limits(|l| {
        l.calls = 500;
        l.call_bytes = 200_000;
    });
    let t = tasks(&log).limits(bounds).test().await.unwrap();
    t.set_syncs(Syncs::WhenTold);
    let jobs = t.jobs();
    let mut calls: Vec<_> = (0..20_000).map(|n| jobs.enqueue(task(&n.to_string(), &[Step::Ok])).delay(DAY).into_future()).collect();
    let mut flood = std::pin::pin!(join_all(calls.drain(..)));
    assert!(t.drive(&mut flood, SECOND).await.is_none());
    t.set_syncs(Syncs::AtOnce);
    t.release_sync().await;
    let answers = flood.await;
    let stored = answers.iter().filter(|answer| answer.is_ok()).count();
    assert!(answers.iter().all(|answer| matches!(answer, Ok(_) | Err(EnqueueError::Full(_)))));
    assert!((400..=500).contains(&stored), "{stored} of 20,000 were waiting");
    assert_eq!(jobs.stats().pending, stored as u64, "what was refused is not there");
    assert!(jobs.enqueue(task("after", &[Step::Ok])).await.is_ok(), "and the room is given back");
}

#[actix::test]
async fn what_is_too_large_is_refused_before_the_journal() {
    let log = Log::default();
    let t = tasks(&log).test().await.unwrap();
    let jobs = t.jobs();
    let refused = jobs.enqueue(task(&"x".repeat(1 << 20), &[Step::Ok])).await.unwrap_err();
    assert!(matches!(refused, EnqueueError::PayloadTooLarge { limit: 1_048_576, .. }), "{refused}");
    let long = "x".repeat(257);
    assert!(matches!(jobs.enqueue(task("a", &[Step::Ok])).key(long.clone()).await, Err(EnqueueError::TooLong { what: "its key", .. })));
    assert!(matches!(jobs.enqueue(task_for(&long, "a", &[Step::Ok])).await, Err(EnqueueError::TooLong { what: "its target", .. })));
    let meta = jobs.enqueue(task("a", &[Step::Ok])).meta("name", "x".repeat(4096)).await;
    assert!(matches!(meta, Err(EnqueueError::TooLong { what: "its meta", .. })));
    assert_eq!(jobs.stats().records, 0);
    let name = "n".repeat(1_000_000);
    jobs.enqueue(task(&name, &[Step::Ok])).key("k".repeat(256)).await.unwrap();
    t.settle().await;
    assert_eq!(log.runs_of(&name), 1, "just below the limit");
}

#[actix::test]
async fn a_full_journal_refuses_new_work_and_lets_what_runs_end() {
    let log = Log::default();
    let bounds = limits(|l| {
        l.record_bytes = 16 << 10;
        l.batch_bytes = 64 << 10;
        l.segment_bytes = 128 << 10;
        l.journal_bytes = 384 << 10;
        l.capacity = 8;
    });
    let t = tasks(&log).limits(bounds).test().await.unwrap();
    let jobs = t.jobs();
    for n in 0..8 {
        jobs.enqueue(task(&n.to_string(), &[Step::Sleep(1000)])).await.unwrap();
    }
    t.settle().await;
    assert_eq!(jobs.stats().running, 8);
    let filler = "x".repeat(8000);
    let mut stored = 0;
    let full = loop {
        match jobs.enqueue(task(&filler, &[Step::Ok])).delay(DAY).await {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(full, EnqueueError::Full("journal bytes"));
    assert!(stored > 20);
    assert!(matches!(jobs.health(), Health::Amber { .. }));
    t.advance(SECOND).await;
    assert_eq!((jobs.stats().done, jobs.stats().running), (8, 0));
    assert!(jobs.stats().bytes <= 384 << 10, "{}", jobs.stats().bytes);
}

#[actix::test]
async fn a_journal_that_fills_with_failures_still_ends_every_attempt() {
    let log = Log::default();
    let bounds = limits(|l| {
        l.record_bytes = 16 << 10;
        l.batch_bytes = 64 << 10;
        l.segment_bytes = 128 << 10;
        l.journal_bytes = 256 << 10;
        l.capacity = 4;
        // A compaction never ends, and so makes no room.
        l.compaction_rate = 1;
    });
    let mut t = tasks(&log).limits(bounds).test().await.unwrap();
    let jobs = t.jobs();
    let policy = Policy::default().attempts(1_000_000).base(SECOND).cap(SECOND);
    jobs.enqueue_all((0..40).map(|n| jobs.enqueue(task(&n.to_string(), &[Step::Fail])).policy(policy))).await.unwrap();
    t.advance(HOUR).await;
    let stats = jobs.stats();
    assert_eq!((stats.running, stats.pending), (0, 40), "selecting stops in time");
    assert!(stats.bytes <= 256 << 10, "{}", stats.bytes);
    assert_eq!(jobs.enqueue(task("x", &[Step::Ok])).await, Err(EnqueueError::Full("journal bytes")));
    t.crash_and_reopen().await.unwrap();
    assert_eq!(t.jobs().stats().pending, 40);
}

#[actix::test]
async fn a_bound_on_keys_opens_again_when_their_windows_are_over() {
    let log = Log::default();
    let t = tasks(&log).limits(limits(|l| l.keys = 2)).test().await.unwrap();
    for n in 0..2 {
        t.jobs().enqueue(task("a", &[Step::Ok])).key(n.to_string()).await.unwrap();
    }
    t.settle().await;
    assert_eq!(t.jobs().enqueue(task("a", &[Step::Ok])).key("x").await, Err(EnqueueError::Full("keys")));
    t.advance(DAY).await;
    assert!(t.jobs().enqueue(task("a", &[Step::Ok])).key("x").await.unwrap().is_new());
}

#[actix::test]
async fn asking_again_with_a_key_is_never_refused_as_full() {
    let log = Log::default();
    let t = tasks(&log).limits(limits(|l| l.pending = 1)).test().await.unwrap();
    let first = t.jobs().enqueue(task("a", &[Step::Ok])).key("k").delay(HOUR).await.unwrap();
    assert_eq!(t.jobs().enqueue(task("b", &[Step::Ok])).await, Err(EnqueueError::Full("pending tickets")));
    let again = t.jobs().enqueue(task("a", &[Step::Ok])).key("k").await.unwrap();
    assert_eq!((again.id(), again.is_new()), (first.id(), false));
}

#[actix::test]
async fn callers_that_have_gone_hold_no_place() {
    let log = Log::default();
    let t = tasks(&log).limits(limits(|l| l.calls = 5)).test().await.unwrap();
    let jobs = t.jobs();
    jobs.enqueue(task("a", &[Step::Ok])).delay(HOUR).await.unwrap();
    for _ in 0..100 {
        let left = std::pin::pin!(jobs.run_until_idle(DAY));
        assert!(t.drive(left, std::time::Duration::ZERO).await.is_none());
        // Whatever happens next notices.
        assert!(jobs.get("0-1".parse().unwrap()).await.unwrap().is_some());
    }
    let idle = futures_util::future::join(jobs.run_until_idle(DAY), t.advance(HOUR)).await;
    assert_eq!(idle.0, Ok(()));
}
