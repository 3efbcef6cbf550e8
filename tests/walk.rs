//! The whole walk on the virtual clock: from enqueue to an end, with its order, its keys, its delays, its cancels, and what
//! a crash leaves of it. Proves that an acknowledged job is never lost and an unacknowledged one never half there.

use std::time::Duration;

use journeyman::testing::Syncs;
use journeyman::{Cancelled, Cause, EnqueueError, JobState, Policy};

use crate::jobs::{DAY, HOUR, Log, MINUTE, SECOND, Step, runner, task, tasks};

#[actix::test]
async fn a_job_goes_the_whole_way() {
    let log = Log::default();
    let t = runner(&log).await;
    let receipt = t.jobs().enqueue(task("a", &[Step::Ok])).await.unwrap();
    assert!(receipt.is_new());
    assert_eq!(receipt.id().to_string(), "0-1");
    t.settle().await;
    assert_eq!(log.runs(), [("a".to_owned(), 1)]);
    let stats = t.jobs().stats();
    assert_eq!((stats.done, stats.pending, stats.running), (1, 0, 0));
    assert!(t.jobs().get(receipt.id()).await.unwrap().is_none(), "it has ended");
}

#[actix::test]
async fn nothing_is_acknowledged_and_nothing_starts_before_the_disk_says_so() {
    let log = Log::default();
    let t = runner(&log).await;
    t.set_syncs(Syncs::WhenTold);
    let jobs = t.jobs();
    let mut call = std::pin::pin!(async { jobs.enqueue(task("a", &[Step::Ok])).await });
    assert!(t.drive(&mut call, SECOND).await.is_none(), "no answer without a sync");
    assert_eq!(t.jobs().stats().pending, 0, "counters are of durable facts");
    assert_eq!(log.total(), 0);
    assert!(t.release_sync().await);
    assert!(call.await.is_ok());
    t.settle().await;
    while t.release_sync().await {}
    assert_eq!(log.total(), 1);
}

#[actix::test]
async fn what_was_not_synced_is_gone_after_a_crash_and_what_was_is_there() {
    let log = Log::default();
    let mut t = runner(&log).await;
    let kept = t.jobs().enqueue(task("kept", &[Step::Ok])).delay(HOUR).await.unwrap();
    t.set_syncs(Syncs::WhenTold);
    let jobs = t.jobs();
    let lost = t.drive(async { jobs.enqueue(task("lost", &[Step::Ok])).delay(HOUR).await }, SECOND).await;
    assert!(lost.is_none());
    t.crash_and_reopen().await.unwrap();
    assert_eq!(t.jobs().stats().pending, 1);
    assert!(matches!(t.jobs().get(kept.id()).await.unwrap().unwrap().state, JobState::Pending { .. }));
    let next = t.jobs().enqueue(task("next", &[Step::Ok])).await.unwrap();
    assert_eq!(next.id().to_string(), "0-2", "a ticket that nobody heard of may be given again");
    t.advance(HOUR).await;
    assert_eq!(log.names(), ["next", "kept"]);
}

#[actix::test]
async fn an_attempt_cut_off_by_a_crash_counts_as_failed_and_goes_on_at_once() {
    let log = Log::default();
    let mut t = runner(&log).await;
    let id = t.jobs().enqueue(task("a", &[Step::Hang, Step::Hang, Step::Ok])).await.unwrap().id();
    t.settle().await;
    assert_eq!(t.jobs().get(id).await.unwrap().unwrap().state, JobState::Running);
    t.crash_and_reopen().await.unwrap();
    let info = t.jobs().get(id).await.unwrap().unwrap();
    assert_eq!((info.failures, info.state), (1, JobState::Running), "it runs again without any wait");
    assert_eq!(info.last_fault.unwrap().cause(), Cause::Crashed);
    t.crash_and_reopen().await.unwrap();
    assert_eq!(log.runs(), [("a".to_owned(), 1), ("a".to_owned(), 2), ("a".to_owned(), 3)]);
    assert_eq!(t.jobs().stats().done, 1);
}

#[actix::test]
async fn with_one_attempt_a_job_runs_at_most_once_whatever_happens() {
    let log = Log::default();
    let mut t = runner(&log).await;
    t.jobs().enqueue(task("a", &[Step::Hang])).policy(Policy::default().attempts(1)).await.unwrap();
    t.settle().await;
    for _ in 0..3 {
        t.crash_and_reopen().await.unwrap();
    }
    assert_eq!(log.total(), 1);
    assert_eq!(t.jobs().stats().spent, 1);
}

#[actix::test]
async fn a_job_that_kills_the_process_ends_when_its_attempts_are_spent() {
    let log = Log::default();
    let mut t = runner(&log).await;
    t.jobs().enqueue(task("poison", &[Step::Hang])).await.unwrap();
    t.settle().await;
    for _ in 0..10 {
        t.crash_and_reopen().await.unwrap();
    }
    assert_eq!(log.total(), 3, "three attempts by its policy, each on record before it began");
    assert_eq!(t.jobs().stats().spent, 1);
}

#[actix::test]
async fn a_delayed_job_starts_when_it_is_due_and_not_before() {
    let log = Log::default();
    let t = runner(&log).await;
    t.jobs().enqueue(task("a", &[Step::Ok])).delay(HOUR).await.unwrap();
    t.advance(HOUR - Duration::from_millis(1)).await;
    assert_eq!(log.total(), 0);
    t.advance(Duration::from_millis(1)).await;
    assert_eq!(log.total(), 1);
}

#[actix::test]
async fn a_delay_stands_through_a_restart() {
    let log = Log::default();
    let mut t = runner(&log).await;
    t.jobs().enqueue(task("a", &[Step::Ok])).delay(HOUR).await.unwrap();
    t.advance(HOUR / 2).await;
    t.crash_and_reopen().await.unwrap();
    t.advance(HOUR / 2 - Duration::from_millis(1)).await;
    assert_eq!(log.total(), 0);
    t.advance(Duration::from_millis(1)).await;
    assert_eq!(log.total(), 1);
}

#[actix::test]
async fn a_jump_of_the_wall_clock_moves_instants_and_no_delays() {
    let log = Log::default();
    let t = runner(&log).await;
    t.jobs().enqueue(task("delay", &[Step::Ok])).delay(HOUR).await.unwrap();
    t.jobs().enqueue(task("instant", &[Step::Ok])).at(t.now() + HOUR).await.unwrap();
    t.set_wall_clock(t.now() + 2 * HOUR).await;
    t.advance(SECOND).await;
    assert_eq!(log.names(), ["instant"]);
    t.set_wall_clock(t.now() - 10 * DAY).await;
    t.advance(HOUR).await;
    assert_eq!(log.names(), ["instant", "delay"]);
}

#[actix::test]
async fn the_last_that_is_said_of_a_due_counts_for_its_clock_too() {
    let log = Log::default();
    let t = runner(&log).await;
    let at = t.now() + HOUR;
    t.jobs().enqueue(task("delay", &[Step::Ok])).at(at).delay(HOUR).await.unwrap();
    t.jobs().enqueue(task("instant", &[Step::Ok])).delay(HOUR).at(at).await.unwrap();
    t.set_wall_clock(at).await;
    t.advance(SECOND).await;
    assert_eq!(log.names(), ["instant"]);
    t.advance(HOUR).await;
    assert_eq!(log.names(), ["instant", "delay"]);
}

#[actix::test]
async fn a_jump_of_the_wall_clock_fires_no_storm() {
    let log = Log::default();
    let mut limits = journeyman::Limits::default();
    limits.catch_up = 10;
    let t = tasks(&log).limits(limits).test().await.unwrap();
    let at = t.now() + HOUR;
    let jobs = t.jobs();
    jobs.enqueue_all((0..50).map(|n| jobs.enqueue(task(&n.to_string(), &[Step::Ok])).at(at))).await.unwrap();
    t.set_wall_clock(at).await;
    let at_once = log.total();
    assert!(at_once <= 10, "{at_once} started at once");
    t.advance(SECOND).await;
    assert!(log.total() <= 21, "{} after a second", log.total());
    t.advance(10 * SECOND).await;
    assert_eq!(log.total(), 50);
}

#[actix::test]
async fn least_priority_number_first_then_the_longest_due() {
    let log = Log::default();
    let t = tasks(&log).capacity(1).test().await.unwrap();
    let jobs = t.jobs();
    jobs.enqueue(task("first", &[Step::Sleep(1000)])).await.unwrap();
    t.settle().await;
    jobs.enqueue(task("normal", &[Step::Ok])).await.unwrap();
    jobs.enqueue(task("late", &[Step::Ok])).priority(200).await.unwrap();
    t.advance(Duration::from_millis(10)).await;
    jobs.enqueue(task("second", &[Step::Ok])).await.unwrap();
    jobs.enqueue(task("urgent", &[Step::Ok])).priority(1).await.unwrap();
    t.advance(SECOND).await;
    assert_eq!(log.names(), ["first", "urgent", "normal", "second", "late"]);
}

#[actix::test]
async fn a_key_is_taken_while_its_job_lives_and_for_its_window() {
    let log = Log::default();
    let mut t = runner(&log).await;
    let enqueue = |t: &journeyman::testing::TestRunner<Log>| {
        let jobs = t.jobs();
        async move { jobs.enqueue(task("a", &[Step::Ok])).key("k").key_window(MINUTE).delay(SECOND).await.unwrap() }
    };
    let first = enqueue(&t).await;
    assert!(first.is_new());
    let again = enqueue(&t).await;
    assert_eq!((again.id(), again.is_new()), (first.id(), false));
    t.advance(SECOND).await;
    assert_eq!(t.jobs().stats().done, 1);
    assert!(!enqueue(&t).await.is_new(), "within the window");
    t.crash_and_reopen().await.unwrap();
    assert!(!enqueue(&t).await.is_new(), "a crash changes nothing");
    t.advance(MINUTE).await;
    let second = enqueue(&t).await;
    assert!(second.is_new());
    assert_ne!(second.id(), first.id());
}

#[actix::test]
async fn many_are_stored_in_one_batch_or_none_is() {
    let log = Log::default();
    let t = runner(&log).await;
    let jobs = t.jobs();
    let before = jobs.stats().syncs;
    let receipts = jobs.enqueue_all((0..100).map(|n| jobs.enqueue(task(&n.to_string(), &[Step::Ok])).delay(HOUR))).await.unwrap();
    assert_eq!(receipts.len(), 100);
    assert_eq!(jobs.stats().syncs, before + 1);
    let bad = (0..3).map(|n| jobs.enqueue(task("x", &[Step::Ok])).key("k".repeat(if n == 2 { 257 } else { 1 })));
    assert!(matches!(jobs.enqueue_all(bad).await, Err(EnqueueError::TooLong { what: "its key", bytes: 257, .. })));
    let big = "x".repeat(100_000);
    let many = (0..100).map(|_| jobs.enqueue(task(&big, &[Step::Ok])));
    assert!(matches!(jobs.enqueue_all(many).await, Err(EnqueueError::BatchTooLarge { .. })));
    assert_eq!(jobs.stats().pending, 100);
    assert_eq!(jobs.enqueue_all(std::iter::empty()).await.unwrap(), []);
}

#[actix::test]
async fn a_cancelled_job_never_runs() {
    let log = Log::default();
    let mut t = runner(&log).await;
    let id = t.jobs().enqueue(task("a", &[Step::Ok])).delay(SECOND).await.unwrap().id();
    assert_eq!(t.jobs().cancel(id).await.unwrap(), Cancelled::Cancelled);
    assert_eq!(t.jobs().cancel(id).await.unwrap(), Cancelled::AlreadyEnded);
    assert_eq!(t.jobs().cancel("0-77".parse().unwrap()).await.unwrap(), Cancelled::NotFound);
    t.crash_and_reopen().await.unwrap();
    t.advance(HOUR).await;
    assert_eq!(log.total(), 0);
    assert_eq!((t.jobs().stats().cancelled, t.jobs().stats().pending), (1, 0));
}

#[actix::test]
async fn a_running_job_is_told_of_its_cancel_and_its_outcome_changes_nothing() {
    let log = Log::default();
    let t = tasks(&log).capacity(1).test().await.unwrap();
    let id = t.jobs().enqueue(task("a", &[Step::UntilCancelled])).await.unwrap().id();
    t.jobs().enqueue(task("b", &[Step::Ok])).await.unwrap();
    t.settle().await;
    assert_eq!(log.names(), ["a"], "one unit, and it is taken");
    assert_eq!(t.jobs().cancel(id).await.unwrap(), Cancelled::Stopping);
    t.settle().await;
    assert_eq!(log.names(), ["a", "b"], "the unit came back with the end of the attempt");
    let stats = t.jobs().stats();
    assert_eq!((stats.cancelled, stats.done, stats.running), (1, 1, 0));
}

#[actix::test]
async fn cancels_race_with_ends_and_each_job_ends_once() {
    let log = Log::default();
    let t = runner(&log).await;
    let jobs = t.jobs();
    let mut answers = [0; 3];
    for n in 0..300u64 {
        let id = jobs.enqueue(task(&n.to_string(), &[Step::Sleep(n % 7)])).await.unwrap().id();
        t.advance(Duration::from_millis(n % 8)).await;
        match jobs.cancel(id).await.unwrap() {
            Cancelled::Cancelled => answers[0] += 1,
            Cancelled::Stopping => answers[1] += 1,
            Cancelled::AlreadyEnded => answers[2] += 1,
            Cancelled::NotFound => panic!("job {n} was stored"),
        }
    }
    t.advance(MINUTE).await;
    let stats = jobs.stats();
    assert_eq!(stats.cancelled, answers[0] + answers[1], "{answers:?}");
    assert_eq!(stats.done, answers[2], "{answers:?}");
    assert!(answers[1] > 0 && answers[2] > 0, "both ways were walked: {answers:?}");
    assert_eq!(t.free_units().await, 64);
}

#[actix::test]
async fn no_more_than_the_capacity_runs_at_once() {
    let log = Log::default();
    let t = tasks(&log).capacity(7).test().await.unwrap();
    let jobs = t.jobs();
    jobs.enqueue_all((0..100).map(|n| jobs.enqueue(task(&n.to_string(), &[Step::Sleep(100)])))).await.unwrap();
    t.run_until_idle(HOUR).await.unwrap();
    assert_eq!((log.total(), log.most_live()), (100, 7));
}

#[actix::test]
async fn waiting_for_idle_says_what_was_left() {
    let log = Log::default();
    let t = runner(&log).await;
    t.jobs().enqueue(task("a", &[Step::Ok])).delay(HOUR).await.unwrap();
    t.jobs().enqueue(task("b", &[Step::Sleep(7_200_000)])).policy(Policy::default().timeout(DAY)).await.unwrap();
    let left = t.run_until_idle(MINUTE).await.unwrap_err();
    assert_eq!(left.to_string(), "work is left: 1 pending and 1 running");
    t.run_until_idle(3 * HOUR).await.unwrap();
}

#[actix::test]
async fn an_idle_runner_writes_nothing_at_all() {
    let log = Log::default();
    let mut t = runner(&log).await;
    t.advance(DAY).await;
    t.stop_and_reopen(MINUTE).await.unwrap();
    assert_eq!(journeyman_core::disk::Disk::list(t.disk()).unwrap(), Vec::<String>::new());
}

#[actix::test]
async fn tickets_are_never_used_twice_not_even_after_everything_ended() {
    let log = Log::default();
    let mut t = runner(&log).await;
    for n in 1..=5 {
        let id = t.jobs().enqueue(task("a", &[Step::Ok])).await.unwrap().id();
        assert_eq!(id.to_string(), format!("0-{n}"));
        t.settle().await;
        if n % 2 == 0 {
            t.crash_and_reopen().await.unwrap();
        } else {
            t.stop_and_reopen(MINUTE).await.unwrap();
        }
        assert_eq!(t.jobs().stats().done, n);
    }
}
