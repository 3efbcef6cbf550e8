//! What is stored with a job: bytes that come back as they were, or not at all; names that are data; keys that live with their
//! job.

use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use journeyman::{
    Cancelled, Configured, Cx, EnqueueError, Failure, Job, JobResult, JobState, PayloadCodec, Policy, Query, Runner, StateFilter,
};
use serde::{Deserialize, Serialize};

use super::{once, small};
use crate::jobs::{DAY, HOUR, Log, MINUTE, SECOND, Step, runner, task, task_for, tasks};

macro_rules! letter {
    ($name:ident, $type:ty) => {
        #[derive(Serialize, Deserialize)]
        struct $name {
            to: $type,
        }

        impl Job for $name {
            type Context = ();
            type Output = ();
            const KIND: &'static str = "letter";

            async fn run(self, _: Cx<()>) -> JobResult<()> {
                Ok(())
            }
        }
    };
}

letter!(Old, String);
letter!(Changed, u32);
letter!(Either, serde_json::Value);

/// jobrunr#431, celery#4308, apalis-sqlite#75: one payload that does not decode stops the worker, or the listing.
#[actix::test]
async fn b29_one_of_a_hundred_that_does_not_decode_is_parked_and_the_others_run() {
    let t = Runner::in_memory().register::<Either>().test().await.unwrap();
    for n in 0..100 {
        let to = if n == 50 { "text".into() } else { n.into() };
        t.jobs().enqueue(Either { to }).delay(SECOND).await.unwrap();
    }
    t.shutdown(SECOND).await.unwrap();
    let disk = t.disk().clone();
    drop(t);
    let t = Runner::in_memory().register::<Changed>().test_with(disk.clone(), 0).await.unwrap();
    t.advance(HOUR).await;
    let stats = t.jobs().stats();
    assert_eq!((stats.done, stats.held, stats.pending), (99, 1, 1));
    let page = t.jobs().list(Query::new().state(StateFilter::Held)).await.unwrap();
    assert_eq!(page.jobs[0].state, JobState::Held { why: "its payload cannot be decoded by this build" });
    t.shutdown(SECOND).await.unwrap();
    drop(t);
    let t = Runner::in_memory().register::<Old>().test_with(disk, 0).await.unwrap();
    t.advance(HOUR).await;
    assert_eq!(t.jobs().stats().done, 100, "its bytes were kept");
}

#[derive(Serialize, Deserialize)]
struct Other;

impl Job for Other {
    type Context = ();
    type Output = ();
    const KIND: &'static str = "other";

    async fn run(self, _: Cx<()>) -> JobResult<()> {
        Ok(())
    }
}

/// oban#18, good_job#1211: a kind without a handler "runs", and cannot even be deleted.
#[actix::test]
async fn b30_a_kind_without_a_handler_can_be_cancelled_or_wait_for_one() {
    let t = Runner::in_memory().register::<Old>().test().await.unwrap();
    let mut ids = Vec::new();
    for to in ["cancelled", "kept"] {
        ids.push(t.jobs().enqueue(Old { to: to.to_owned() }).delay(SECOND).await.unwrap().id());
    }
    t.shutdown(SECOND).await.unwrap();
    let disk = t.disk().clone();
    drop(t);
    let t = Runner::in_memory().register::<Other>().test_with(disk.clone(), 0).await.unwrap();
    t.advance(HOUR).await;
    assert_eq!((t.jobs().stats().held, t.jobs().stats().running), (2, 0));
    assert_eq!(t.jobs().cancel(ids[0]).await, Ok(Cancelled::Cancelled));
    t.shutdown(SECOND).await.unwrap();
    drop(t);
    let t = Runner::in_memory().register::<Old>().test_with(disk, 0).await.unwrap();
    t.advance(HOUR).await;
    assert_eq!((t.jobs().stats().done, t.jobs().stats().cancelled), (1, 1));
}

/// sidekiq-unique-jobs#955, #14, asynq#275: a unique lock outlives its job, and it never runs again.
#[actix::test]
async fn b31_a_key_is_free_after_every_end_a_crash_and_a_compaction() {
    let log = Log::default();
    let mut t = tasks(&log).limits(small()).test().await.unwrap();
    let mut ends = 0;
    for step in [Step::Ok, Step::Reject, Step::Unsafe, Step::Fail, Step::Panic, Step::Hang, Step::RetryAfter(DAY.as_millis() as u64)] {
        for crashes in [false, true] {
            let policy = Policy::default().attempts(if step == Step::Fail { 2 } else { 1 }).timeout(MINUTE).deadline(HOUR);
            let receipt = t.jobs().enqueue(task("a", &[step])).key("k").key_window(Duration::ZERO).policy(policy).await.unwrap();
            assert!(receipt.is_new(), "free after {ends} ends, before {step:?}");
            t.settle().await;
            if crashes {
                t.crash_and_reopen().await.unwrap();
            }
            t.run_until_idle(DAY).await.unwrap();
            ends += 1;
        }
    }
    for crashes in [false, true] {
        let receipt = t.jobs().enqueue(task("a", &[Step::Ok])).key("k").key_window(Duration::ZERO).delay(HOUR).await.unwrap();
        assert!(receipt.is_new());
        assert_eq!(t.jobs().cancel(receipt.id()).await, Ok(Cancelled::Cancelled));
        if crashes {
            t.crash_and_reopen().await.unwrap();
        }
    }
    // And while it is taken, a compaction does not free it.
    let held = t.jobs().enqueue(task("a", &[Step::Ok])).key("k").key_window(Duration::ZERO).delay(10 * DAY).await.unwrap();
    assert!(held.is_new());
    let compactions = t.jobs().stats().compactions;
    while t.jobs().stats().compactions < compactions + 2 {
        for _ in 0..16 {
            t.jobs().enqueue(task(&"x".repeat(1_000), &[Step::Ok])).await.unwrap();
        }
        t.advance(SECOND).await;
    }
    t.crash_and_reopen().await.unwrap();
    let again = t.jobs().enqueue(task("a", &[Step::Ok])).key("k").await.unwrap();
    assert_eq!((again.is_new(), again.id()), (false, held.id()));
    t.run_until_idle(20 * DAY).await.unwrap();
    assert!(t.jobs().enqueue(task("a", &[Step::Ok])).key("k").await.unwrap().is_new());
}

/// Bytes, and what each attempt saw of them.
#[derive(Serialize, Deserialize)]
struct Blob(Vec<u8>);

type Seen = Arc<Mutex<Vec<Vec<u8>>>>;

impl Job for Blob {
    type Context = Seen;
    type Output = ();
    const KIND: &'static str = "blob";
    const CODEC: PayloadCodec<Self> = PayloadCodec::raw(|blob| Ok(blob.0.clone()), |bytes| Ok(Self(bytes.to_vec())));

    async fn run(self, cx: Cx<Seen>) -> JobResult<()> {
        cx.context().lock().unwrap().push(self.0);
        match cx.attempt() {
            1 => std::future::pending().await,
            2 => panic!("the second attempt"),
            3 => Err(Failure::defer(SECOND)),
            _ => Ok(()),
        }
    }
}

fn blobs(seen: &Seen) -> Configured<Seen> {
    let seen = seen.clone();
    Runner::in_memory().context(move || std::future::ready(Ok::<_, std::convert::Infallible>(seen.clone()))).register::<Blob>()
}

/// good_job#1620: arguments are lost, or encrypted twice, on a retry.
#[actix::test]
async fn b50_each_attempt_sees_the_same_bytes() {
    let seen = Seen::default();
    let mut t = blobs(&seen).test().await.unwrap();
    let bytes: Vec<u8> = (0..100_000u32).map(|n| (n.wrapping_mul(n) >> 7) as u8).collect();
    let id = t.jobs().enqueue(Blob(bytes.clone())).policy(Policy::default().base(SECOND)).await.unwrap().id();
    t.settle().await;
    t.crash_and_reopen().await.unwrap();
    t.advance(MINUTE).await;
    t.kill("queue").await;
    t.advance(MINUTE).await;
    t.stop_and_reopen(SECOND).await.unwrap();
    t.advance(MINUTE).await;
    t.jobs().cancel(id).await.unwrap();
    let seen = seen.lock().unwrap();
    assert!(seen.len() > 10, "{} attempts and deferrals", seen.len());
    assert!(seen.iter().all(|one| *one == bytes));
}

/// faktory 1.10.0; background-jobs joins queue and key with a comma: names collide with what is internal.
#[actix::test]
async fn b51_names_are_data_whatever_they_are() {
    let long = "n".repeat(256);
    let names = ["", " ", ",", "a,b", "\0", "a\0b", "a\nb\r", "../../x", "\u{1b}[2J", "ключ", "鍵\u{202e}🦀", "%s{}", "'\";--", &long];
    let log = Log::default();
    let mut t = runner(&log).await;
    let mut ids = Vec::new();
    for name in names {
        let receipt = t.jobs().enqueue(task_for(name, name, &[Step::Ok])).key(name).meta(name, name).delay(HOUR).await.unwrap();
        assert!(receipt.is_new(), "{name:?} is no other's");
        ids.push(receipt.id());
    }
    t.crash_and_reopen().await.unwrap();
    for (name, id) in names.iter().zip(&ids) {
        let again = t.jobs().enqueue(task(name, &[Step::Ok])).key(*name).await.unwrap();
        assert_eq!((again.is_new(), again.id()), (false, *id), "{name:?}");
        let info = t.jobs().get(*id).await.unwrap().unwrap();
        assert_eq!(info.target.as_ref().map(|target| target.as_str()), Some(*name));
        assert_eq!(t.jobs().list(Query::new().target(*name)).await.unwrap().jobs.len(), 1);
    }
    t.advance(HOUR).await;
    assert_eq!(log.names(), names);
    assert_eq!(t.jobs().targets().await.unwrap().len(), names.len());
    let huge = "k".repeat(64 << 10);
    for refused in [
        t.jobs().enqueue(task("a", &[Step::Ok])).key(huge.clone()).await,
        t.jobs().enqueue(task_for(&huge, "a", &[Step::Ok])).await,
        t.jobs().enqueue(task("a", &[Step::Ok])).meta(huge.clone(), "x").await,
    ] {
        assert!(matches!(refused, Err(EnqueueError::TooLong { .. })), "{refused:?}");
    }
    t.crash_and_reopen().await.unwrap();
    assert_eq!(t.jobs().stats().done, names.len() as u64);
}

/// sidekiq#4763, asynq 0.19.1: a period under a second, or one that is over, becomes a negative expiry and an error.
#[actix::test]
async fn b52_windows_and_instants_that_are_short_or_over_are_no_error() {
    let log = Log::default();
    let t = runner(&log).await;
    let jobs = t.jobs();
    for window in [Duration::ZERO, Duration::from_nanos(1), Duration::from_millis(1)] {
        let enqueue = || jobs.enqueue(task("a", &[Step::Ok])).key("k").key_window(window).policy(once());
        assert!(enqueue().await.unwrap().is_new());
        t.settle().await;
        assert_eq!(enqueue().await.unwrap().is_new(), window.is_zero(), "{window:?}");
        t.advance(Duration::from_millis(1)).await;
        assert!(enqueue().await.unwrap().is_new(), "{window:?}");
        t.advance(SECOND).await;
    }
    for instant in [UNIX_EPOCH, UNIX_EPOCH - DAY, t.now() - SECOND, t.now() - Duration::from_nanos(1), t.now()] {
        let before = log.total();
        jobs.enqueue(task("past", &[Step::Ok])).at(instant).await.unwrap();
        t.settle().await;
        assert_eq!(log.total(), before + 1, "{instant:?} is over");
    }
}
