//! Many that become due at once: in order, in portions, and spread out where they failed together.

use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt;
use journeyman::{JobState, Policy};

use super::{once, patient};
use crate::jobs::{DAY, HOUR, Log, MINUTE, SECOND, Step, runner, task, task_for, tasks, touchy};
use crate::support::figures::figure;

/// sidekiq#3012, #3889: a million jobs are due in one second, and nothing else gets a turn. Scaled down; the queue is watched
/// through its gauge of due tickets that are held, which is all of them here, as their target is down.
#[actix::test]
async fn b19_while_many_become_due_at_once_calls_are_answered_in_between() {
    let log = Log::default();
    let t = tasks(&log).capacity(4).circuit(touchy().cooldown(DAY)).test().await.unwrap();
    let jobs = t.jobs();
    jobs.enqueue_all((0..2).map(|_| jobs.enqueue(task_for("t", "failing", &[Step::Fail])).policy(once()))).await.unwrap();
    t.settle().await;
    let many = figure(50_000, 1_000_000);
    for first in (0..many).step_by(5_000) {
        let chunk = (first..first + 5_000).map(|n| {
            let call = jobs.enqueue(task_for("t", "a", &[Step::Ok])).policy(once());
            // Both by a span and by an instant.
            if n % 2 == 0 { call.delay(HOUR) } else { call.at(t.now() + HOUR) }
        });
        jobs.enqueue_all(chunk).await.unwrap();
    }
    t.advance(HOUR - Duration::from_millis(1)).await;
    assert_eq!(jobs.stats().held, 0);
    let mut due = pin!(t.advance(Duration::from_millis(1)));
    let mut levels = std::collections::BTreeSet::new();
    while due.as_mut().now_or_never().is_none() {
        levels.insert(jobs.stats().held);
        tokio::task::yield_now().await;
    }
    levels.insert(jobs.stats().held);
    assert_eq!(jobs.stats().held, many, "all are due now");
    let largest = levels.iter().zip(levels.iter().skip(1)).map(|(one, next)| next - one).max().unwrap_or(many);
    println!("{many} due at once, in {} portions of at most {largest}", levels.len());
    assert!(largest <= 20_000, "{largest} in one turn");
}

/// sidekiq#3430: a fresh and urgent job waits behind all that have become due.
#[actix::test]
async fn b19_an_urgent_job_is_taken_next_however_many_are_due() {
    let log = Log::default();
    let t = tasks(&log).capacity(4).test().await.unwrap();
    let jobs = t.jobs();
    let many = figure(20_000, 200_000);
    for first in (0..many).step_by(5_000) {
        jobs.enqueue_all((first..first + 5_000).map(|_| jobs.enqueue(task("a", &[Step::Sleep(10)])).delay(HOUR))).await.unwrap();
    }
    t.advance(HOUR).await;
    for _ in 0..10 {
        let before = log.total();
        jobs.enqueue(task("urgent", &[Step::Ok])).priority(0).await.unwrap();
        t.advance(Duration::from_millis(10)).await;
        let names = log.names();
        let at = names[before..].iter().position(|name| name == "urgent").expect("it has run");
        assert!(at <= 4, "{at} others began before it");
    }
}

/// oban 2.23, sidekiq#4480: all fetchers fire together, or all retries.
#[actix::test]
async fn b20_retries_of_what_failed_together_spread_over_the_jitter() {
    let log = Log::default();
    let mut t = tasks(&log).capacity(1_000).test().await.unwrap();
    let jobs = t.jobs();
    let policy = Policy::default().attempts(2).base(100 * SECOND).cap(100 * SECOND);
    let many = figure(3_000, 10_000);
    jobs.enqueue_all((0..many).map(|_| jobs.enqueue(task("a", &[Step::Fail])).policy(policy))).await.unwrap();
    t.settle().await;
    assert_eq!(log.total() as u64, many);
    // A restart does not bring them together again.
    t.crash_and_reopen().await.unwrap();
    t.advance(50 * SECOND - Duration::from_millis(1)).await;
    let mut before = log.total();
    assert_eq!(before as u64, many, "none comes before half of it");
    for second in 0..50 {
        t.advance(SECOND).await;
        let begun = (log.total() - before) as u64;
        assert!((many / 100..many / 25).contains(&begun), "{begun} in second {second}");
        before = log.total();
    }
    t.advance(SECOND).await;
    assert_eq!(log.total() as u64, 2 * many);
}

/// bullmq#214, #1915: order and priority are lost when jobs come back from being held.
#[actix::test]
async fn b23_what_was_held_comes_back_in_its_order() {
    let log = Log::default();
    let t = tasks(&log).capacity(1).circuit(touchy()).test().await.unwrap();
    let jobs = t.jobs();
    let mut expected = Vec::new();
    for n in 0..100u8 {
        jobs.enqueue(task_for("t", &format!("{n}"), &[Step::Ok]))
            .priority(1 + n % 4)
            .delay(Duration::from_millis((200 - n).into()))
            .await
            .unwrap();
        expected.push((n % 4, 200 - n, n));
    }
    for _ in 0..2 {
        jobs.enqueue(task_for("t", "failing", &[Step::Fail])).policy(once()).await.unwrap();
    }
    t.advance(SECOND).await;
    // Each probe fails a few times, and what waits behind it keeps its place.
    for _ in 0..5 {
        jobs.enqueue(task_for("t", "failing", &[Step::Fail])).priority(0).policy(once()).await.unwrap();
    }
    t.advance(10 * MINUTE).await;
    expected.sort_unstable();
    let names: Vec<String> = log.names().into_iter().filter(|name| name != "failing").collect();
    assert_eq!(names, expected.into_iter().map(|(.., n)| n.to_string()).collect::<Vec<_>>());
}

/// solid_queue#546, #735: a slot stays taken for a day after a crash, or is lost and two run at once.
#[actix::test]
async fn b33_after_a_crash_exactly_as_many_run_as_there_are_units_and_at_once() {
    let log = Log::default();
    let mut t = tasks(&log).capacity(1).test().await.unwrap();
    for name in ["a", "b", "c"] {
        t.jobs().enqueue(task(name, &[Step::Hang])).policy(patient().timeout(DAY)).await.unwrap();
    }
    for _ in 0..10 {
        t.settle().await;
        assert_eq!((t.jobs().stats().running, log.most_live()), (1, 1));
        t.crash_and_reopen().await.unwrap();
    }
    assert_eq!(log.total(), 11, "one more at each start, without a wait");
}

/// What became due while nobody looked is taken by its due time.
#[actix::test]
async fn b19_after_a_restart_the_longest_due_goes_first() {
    let log = Log::default();
    let mut t = runner(&log).await;
    for n in (0..50u64).rev() {
        t.jobs().enqueue(task(&n.to_string(), &[Step::Ok])).delay(SECOND + Duration::from_millis(n)).await.unwrap();
    }
    let later = t.now() + DAY;
    t.crash_and_reopen_at(later).await.unwrap();
    assert_eq!(log.names(), (0..50).map(|n| n.to_string()).collect::<Vec<_>>());
    let info = t.jobs().enqueue(task("x", &[Step::Ok])).delay(SECOND).await.unwrap().id();
    assert!(matches!(t.jobs().get(info).await.unwrap().unwrap().state, JobState::Pending { .. }));
}
