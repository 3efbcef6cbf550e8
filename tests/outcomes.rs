//! What each answer of a job comes to: done, retried, rejected, deferred, and the answers that are none, a panic and a hang.

use std::time::Duration;

use journeyman::{Cause, Cx, Failure, Job, JobResult, JobState, Policy, Runner, Target};
use serde::{Deserialize, Serialize};

use crate::jobs::{DAY, HOUR, Log, MINUTE, SECOND, Step, Task, runner, task, tasks};

#[actix::test]
async fn a_failure_is_retried_after_its_backoff() {
    let log = Log::default();
    let t = runner(&log).await;
    let policy = Policy::default().attempts(4).base(SECOND);
    let id = t.jobs().enqueue(task("a", &[Step::Fail])).policy(policy).await.unwrap().id();
    t.settle().await;
    for (failures, least, most) in [(1, 500, 1000), (2, 1000, 2000), (3, 2000, 4000)] {
        let info = t.jobs().get(id).await.unwrap().unwrap();
        assert_eq!((info.failures, info.last_fault.unwrap().text()), (failures, "told to fail"));
        let JobState::Pending { due } = info.state else { panic!("it waits") };
        let wait = due.duration_since(t.now()).unwrap();
        assert!(wait >= Duration::from_millis(least) && wait <= Duration::from_millis(most), "half of the backoff is fixed: {wait:?}");
        t.advance(wait - Duration::from_millis(1)).await;
        assert_eq!(log.total(), failures as usize);
        t.advance(Duration::from_millis(1)).await;
        assert_eq!(log.total(), failures as usize + 1);
    }
    let stats = t.jobs().stats();
    assert_eq!((stats.spent, stats.pending), (1, 0));
}

#[actix::test]
async fn a_target_that_asks_for_time_gets_it_up_to_its_own_cap() {
    let log = Log::default();
    let t = runner(&log).await;
    let policy = Policy::default().cap(SECOND).retry_after_cap(HOUR);
    t.jobs().enqueue(task("asked", &[Step::RetryAfter(600_000), Step::Ok])).policy(policy).await.unwrap();
    t.jobs().enqueue(task("asked too much", &[Step::RetryAfter(u64::MAX), Step::Ok])).policy(policy).await.unwrap();
    t.advance(Duration::from_millis(599_999)).await;
    assert_eq!(log.total(), 2, "not earlier than asked");
    t.advance(Duration::from_millis(1)).await;
    assert_eq!(log.runs_of("asked"), 2);
    t.advance(HOUR).await;
    assert_eq!(log.runs_of("asked too much"), 2);
}

#[actix::test]
async fn each_answer_has_its_end() {
    let log = Log::default();
    let t = runner(&log).await;
    for (name, step) in [("ok", Step::Ok), ("reject", Step::Reject), ("unsafe", Step::Unsafe), ("fail", Step::Fail), ("panic", Step::Panic)]
    {
        t.jobs().enqueue(task(name, &[step])).await.unwrap();
    }
    t.run_until_idle(DAY).await.unwrap();
    let stats = t.jobs().stats();
    assert_eq!((stats.done, stats.rejected, stats.unsafe_to_repeat, stats.spent, stats.late), (1, 1, 1, 2, 0));
    assert_eq!((log.runs_of("reject"), log.runs_of("unsafe"), log.runs_of("panic")), (1, 1, 3));
}

#[actix::test]
async fn a_deferral_spends_no_attempt_however_often() {
    let log = Log::default();
    let t = runner(&log).await;
    let mut script = vec![Step::Defer(1000); 1000];
    script.push(Step::Fail);
    script.push(Step::Ok);
    let id = t.jobs().enqueue(task("a", &script)).await.unwrap().id();
    t.advance(Duration::from_millis(1_000_000)).await;
    assert_eq!(log.total(), 1001);
    assert_eq!(log.runs().last().unwrap().1, 1, "still its first attempt");
    assert_eq!(t.jobs().get(id).await.unwrap().unwrap().failures, 1);
    t.advance(SECOND).await;
    assert_eq!((log.total(), t.jobs().stats().done), (1002, 1), "its first backoff is the first step");
}

#[actix::test]
async fn a_panic_is_a_failure_of_its_job_alone() {
    let log = Log::default();
    let t = runner(&log).await;
    let id = t.jobs().enqueue(task("bad", &[Step::Panic, Step::Ok])).await.unwrap().id();
    t.jobs().enqueue(task("good", &[Step::Ok])).await.unwrap();
    t.settle().await;
    let fault = t.jobs().get(id).await.unwrap().unwrap().last_fault.unwrap();
    assert_eq!((fault.cause(), fault.text()), (Cause::Panicked, "told to panic"));
    t.run_until_idle(HOUR).await.unwrap();
    assert_eq!(t.jobs().stats().done, 2);
}

#[actix::test]
async fn an_attempt_that_hangs_is_cut_off_at_its_timeout() {
    let log = Log::default();
    let t = tasks(&log).capacity(1).test().await.unwrap();
    let id = t.jobs().enqueue(task("a", &[Step::Hang, Step::Ok])).await.unwrap().id();
    t.advance(MINUTE - Duration::from_millis(1)).await;
    assert_eq!(t.jobs().stats().running, 1);
    t.advance(Duration::from_millis(1)).await;
    assert_eq!(t.jobs().get(id).await.unwrap().unwrap().last_fault.unwrap().cause(), Cause::TimedOut);
    t.run_until_idle(HOUR).await.unwrap();
    assert_eq!(t.jobs().stats().done, 1);
}

#[actix::test]
async fn a_panic_in_the_drop_of_a_job_that_timed_out_stays_inside() {
    let log = Log::default();
    let t = runner(&log).await;
    let id = t.jobs().enqueue(task("a", &[Step::PanicOnDrop, Step::Ok])).await.unwrap().id();
    t.advance(MINUTE).await;
    assert_eq!(t.jobs().get(id).await.unwrap().unwrap().last_fault.unwrap().cause(), Cause::Panicked);
    t.run_until_idle(HOUR).await.unwrap();
    assert_eq!(t.jobs().stats().done, 1);
}

#[actix::test]
async fn no_attempt_starts_at_or_after_the_deadline_and_the_last_real_fault_is_kept() {
    let log = Log::default();
    let t = runner(&log).await;
    let policy = Policy::default().deadline(10 * SECOND).base(8 * SECOND);
    t.jobs().enqueue(task("a", &[Step::Fail])).policy(policy).await.unwrap();
    t.advance(HOUR).await;
    assert_eq!(t.jobs().stats().late, 1);
    assert_eq!(log.total(), 2, "the second retry could only have begun after the deadline");
}

#[actix::test]
async fn a_ticket_that_waits_beyond_its_deadline_ends_late_without_a_run() {
    let log = Log::default();
    let t = tasks(&log).capacity(1).test().await.unwrap();
    t.jobs().enqueue(task("long", &[Step::Sleep(30_000)])).await.unwrap();
    t.jobs().enqueue(task("late", &[Step::Ok])).policy(Policy::default().deadline(20 * SECOND)).await.unwrap();
    t.jobs().enqueue(task("in time", &[Step::Ok])).policy(Policy::default().deadline(40 * SECOND)).await.unwrap();
    t.advance(MINUTE).await;
    assert_eq!(log.names(), ["long", "in time"]);
    assert_eq!((t.jobs().stats().late, t.jobs().stats().done), (1, 2));
}

#[actix::test]
async fn a_deferral_is_bounded_by_the_deadline() {
    let log = Log::default();
    let t = runner(&log).await;
    let policy = Policy::default().deadline(10 * SECOND);
    t.jobs().enqueue(task("a", &[Step::Defer(86_400_000)])).policy(policy).await.unwrap();
    t.advance(10 * SECOND).await;
    assert_eq!(t.jobs().stats().late, 1, "not a day later");
}

#[actix::test]
async fn the_policy_of_the_call_goes_before_the_registration_and_that_before_the_kind() {
    let log = Log::default();
    let shared = log.clone();
    let t = Runner::in_memory()
        .context(move || std::future::ready(Ok::<_, std::convert::Infallible>(shared.clone())))
        .register_with::<Task>(Policy::default().attempts(2).base(SECOND))
        .test()
        .await
        .unwrap();
    t.jobs().enqueue(task("registered", &[Step::Fail])).await.unwrap();
    t.jobs().enqueue(task("called", &[Step::Fail])).policy(Policy::default().attempts(5).base(SECOND)).await.unwrap();
    t.run_until_idle(DAY).await.unwrap();
    assert_eq!((log.runs_of("registered"), log.runs_of("called")), (2, 5));
}

#[actix::test]
async fn the_overrides_of_a_call_survive_a_crash() {
    let log = Log::default();
    let mut t = runner(&log).await;
    t.jobs().enqueue(task("a", &[Step::Fail])).policy(Policy::default().attempts(5).base(SECOND)).await.unwrap();
    t.settle().await;
    t.crash_and_reopen().await.unwrap();
    t.run_until_idle(DAY).await.unwrap();
    assert_eq!(log.total(), 5);
}

/// Fails once, and gives up for good when it is not what was enqueued.
#[derive(Serialize, Deserialize)]
struct Traced;

impl Job for Traced {
    type Context = ();
    type Output = ();
    const KIND: &'static str = "traced";

    fn target(&self) -> Option<Target> {
        Some("there".into())
    }

    async fn run(self, cx: Cx<()>) -> JobResult<()> {
        let pairs = [("traceparent".to_owned(), "00-1".to_owned()), ("tenant".to_owned(), "a".to_owned())];
        match cx.attempt() {
            _ if cx.meta() != pairs => Err(Failure::permanent("other meta")),
            1 => Err(Failure::transient("once")),
            _ => Ok(()),
        }
    }
}

#[actix::test]
async fn every_attempt_sees_the_same_meta_and_target() {
    let mut t = Runner::in_memory().register::<Traced>().test().await.unwrap();
    let id = t.jobs().enqueue(Traced).meta("traceparent", "00-1").meta("tenant", "a").await.unwrap().id();
    t.settle().await;
    t.crash_and_reopen().await.unwrap();
    let info = t.jobs().get(id).await.unwrap().unwrap();
    assert_eq!((info.target.unwrap().as_str(), info.failures), ("there", 1));
    t.run_until_idle(HOUR).await.unwrap();
    assert_eq!((t.jobs().stats().done, t.jobs().stats().rejected), (1, 0));
}
