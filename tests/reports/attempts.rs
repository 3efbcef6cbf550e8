//! How often a job runs: not for ever, not once too often, and never twice at once.

use std::collections::HashMap;
use std::future::IntoFuture;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use journeyman::testing::Syncs;
use journeyman::{Cancelled, Cause, Cx, Event, EventFilter, Happened, Health, Job, JobEnd, JobResult, JobState, Policy, Runner};
use journeyman_core::queue::{Change, Misfit};
use journeyman_core::{Attempt, End, Fault, Op, Queue, Record, Seq, Ticket, Time};
use serde::{Deserialize, Serialize};

use super::{once, patient};
use crate::jobs::{DAY, HOUR, Log, MINUTE, SECOND, Step, runner, seed, task, tasks};
use crate::support::figures::figure;

/// faktory#99, good_job#922, sidekiq#3400: a job that kills the process is run for ever, and others never.
#[actix::test]
async fn b11_a_job_that_kills_the_process_ends_and_others_go_on() {
    let log = Log::default();
    let mut t = runner(&log).await;
    let poison = t.jobs().enqueue(task("poison", &[Step::Hang])).policy(Policy::default().attempts(4)).await.unwrap().id();
    for n in 0..20 {
        t.jobs().enqueue(task(&n.to_string(), &[Step::Ok])).delay(n * SECOND).await.unwrap();
    }
    let mut last = None;
    for _ in 0..20 {
        t.advance(SECOND).await;
        if let Some(info) = t.jobs().get(poison).await.unwrap() {
            last = info.last_fault;
        }
        t.crash_and_reopen().await.unwrap();
    }
    t.run_until_idle(MINUTE).await.unwrap();
    assert_eq!((log.runs_of("poison"), t.jobs().stats().spent, t.jobs().stats().done), (4, 1, 20));
    assert_eq!(last.unwrap().cause(), Cause::Crashed);
}

/// asynq#1015, faktory#409: a deployment burns the only retry. An orderly stop spends nothing, unless it cuts off the last attempt
/// of all; a crash counts as a failure.
#[actix::test]
async fn b12_a_stop_spends_nothing_and_a_crash_one_attempt_without_a_backoff() {
    let log = Log::default();
    let mut t = runner(&log).await;
    let two = Policy::default().attempts(2).timeout(DAY);
    let id = t.jobs().enqueue(task("a", &[Step::Hang])).policy(two).await.unwrap().id();
    for _ in 0..5 {
        t.settle().await;
        t.stop_and_reopen(SECOND).await.unwrap();
        let info = t.jobs().get(id).await.unwrap().unwrap();
        assert_eq!((info.failures, info.state), (0, JobState::Running), "it goes on at once");
    }
    t.crash_and_reopen().await.unwrap();
    let info = t.jobs().get(id).await.unwrap().unwrap();
    assert_eq!((info.failures, info.state), (1, JobState::Running), "at once as well");
    t.stop_and_reopen(SECOND).await.unwrap();
    assert_eq!((t.jobs().stats().spent, log.total()), (1, 7), "it had begun, and was the last");
}

/// oban#364, river#1258: thousands of jobs "run" for months.
#[actix::test]
async fn b13_what_runs_is_what_lives() {
    let (log, mut dice) = (Log::default(), fastrand::Rng::with_seed(seed()));
    let mut t = tasks(&log).capacity(16).test().await.unwrap();
    let steps = [Step::Ok, Step::Hang, Step::Sleep(3_000), Step::FailAfter(500), Step::UntilCancelled];
    for round in 0..100 {
        let mut ids = Vec::new();
        for _ in 0..5 {
            ids.push(t.jobs().enqueue(task("a", &[steps[dice.usize(..steps.len())]])).await.unwrap().id());
        }
        t.advance(Duration::from_millis(dice.u64(..4_000))).await;
        if dice.bool() {
            t.jobs().cancel(ids[dice.usize(..ids.len())]).await.unwrap();
            t.advance(MINUTE).await;
        }
        match dice.u8(..4) {
            0 => t.crash_and_reopen().await.unwrap(),
            1 => _ = t.stop_and_reopen(SECOND).await.unwrap(),
            _ => {}
        }
        t.settle().await;
        assert_eq!(t.jobs().stats().running, u64::from(16 - t.free_units().await), "round {round}");
    }
    t.run_until_idle(DAY).await.unwrap();
    assert_eq!((t.jobs().stats().running, t.free_units().await), (0, 16));
}

/// river#1302: a rescuer works on an old picture, and overwrites a completion or a fresh attempt.
#[test]
fn b16_an_outcome_of_an_attempt_that_is_over_is_refused() {
    let mut queue = Queue::default();
    let mut step = |op: Op| queue.step(queue.last().next(), Time(1), &Record::Op(op));
    let job = journeyman_core::Job {
        kind: "k".into(),
        version: 1,
        codec: journeyman_core::Codec::RAW,
        target: None,
        priority: 1,
        options: Default::default(),
        meta: Vec::new(),
        payload: Vec::new(),
    };
    let (ticket, fault) = (Ticket(1), Fault::new(Cause::Failed, "x"));
    let complete = |attempt| Op::Complete { ticket, attempt: Attempt(Seq(attempt)), end: End::Done, fault: None };
    let requeue = |attempt| Op::Requeue { ticket, attempt: Attempt(Seq(attempt)), due: Time(1), fault: fault.clone() };
    assert_eq!(step(Op::Enqueue { now: Time(1), due: Time(1), key: None, job: job.into() }), Ok(Change::Enqueued(ticket)));
    assert_eq!(step(Op::Select { ticket }), Ok(Change::Selected(Attempt(Seq(2)))));
    assert_eq!(step(requeue(2)), Ok(Change::Requeued));
    assert_eq!(step(Op::Select { ticket }), Ok(Change::Selected(Attempt(Seq(4)))));
    assert_eq!(step(complete(2)), Err(Misfit::Stale), "of attempt 2 after attempt 4 has started");
    assert_eq!(step(requeue(2)), Err(Misfit::Stale));
    assert_eq!(step(complete(4)), Ok(Change::Completed(End::Done)));
    assert_eq!(step(requeue(4)), Err(Misfit::Unknown), "a requeue after the end");
}

/// hangfire#817, celery#2599, bull#308: a lease runs out, and a healthy long job runs twice.
#[actix::test]
async fn b17_a_job_of_three_hours_and_one_due_in_a_month_run_once() {
    let log = Log::default();
    let t = runner(&log).await;
    t.jobs().enqueue(task("long", &[Step::Sleep(3 * 3_600_000)])).policy(Policy::default().timeout(DAY)).await.unwrap();
    t.jobs().enqueue(task("far", &[Step::Ok])).delay(30 * DAY).await.unwrap();
    t.advance(31 * DAY).await;
    assert_eq!((log.runs_of("long"), log.runs_of("far"), t.jobs().stats().done), (1, 1, 2));
}

static SPUN: AtomicU32 = AtomicU32::new(0);

/// Computes for two seconds without coming to an await: longer than the queue may be silent.
#[derive(Serialize, Deserialize)]
struct Spins;

impl Job for Spins {
    type Context = ();
    type Output = ();
    const KIND: &'static str = "spins";

    async fn run(self, _: Cx<()>) -> JobResult<()> {
        SPUN.fetch_add(1, Ordering::Relaxed);
        let began = std::time::Instant::now();
        while began.elapsed() < 2 * SECOND {
            std::hint::spin_loop();
        }
        Ok(())
    }
}

/// sidekiq#4611, bullmq#3183: a handler that never yields keeps its own lease from being renewed.
#[actix::test]
async fn b17_a_job_that_never_yields_runs_once() {
    let dir = tempfile::tempdir().unwrap();
    let runner = Runner::open(dir.path().join("jobs")).register::<Spins>().start().await.unwrap();
    let jobs = runner.jobs();
    jobs.enqueue(Spins).await.unwrap();
    jobs.run_until_idle(MINUTE).await.unwrap();
    assert_eq!((SPUN.load(Ordering::Relaxed), jobs.stats().done, jobs.health()), (1, 1, Health::Green));
    runner.shutdown(SECOND).await.unwrap();
}

/// sidekiq#4112, bullmq#834: at a stop a job is both pushed back and retried, or its end is not recorded.
#[actix::test]
async fn b18_in_the_millisecond_of_a_stop_each_attempt_has_one_record() {
    let steps = [Step::Sleep(1_000), Step::FailAfter(1_000), Step::PanicAfter(1_000), Step::Hang, Step::UntilCancelled];
    for patience in [999, 1_000, 1_001] {
        let log = Log::default();
        let mut t = runner(&log).await;
        let mut events = t.jobs().events(EventFilter::all());
        for n in 0..40 {
            t.jobs().enqueue(task(&n.to_string(), &[steps[n % 5], Step::Ok])).policy(patient()).await.unwrap();
        }
        t.settle().await;
        t.shutdown(Duration::from_millis(patience)).await.unwrap();
        let mut records: HashMap<_, (u32, u32)> = HashMap::new();
        while let Some(Some(event)) = events.next().now_or_never() {
            let Event::Job(job) = event else { continue };
            let (starts, ends) = records.entry(job.id).or_default();
            match job.what {
                Happened::Selected => *starts += 1,
                Happened::Requeued { .. } | Happened::Deferred | Happened::Ended { .. } | Happened::Cancelled { .. } => *ends += 1,
                _ => {}
            }
        }
        assert_eq!(records.len(), 40);
        assert!(records.values().all(|counts| *counts == (1, 1)), "after {patience} ms: {records:?}");
        t.crash_and_reopen().await.unwrap();
        t.run_until_idle(DAY).await.unwrap();
        assert_eq!(t.jobs().stats().done, 40);
        assert!(log.runs().iter().all(|(name, _)| log.runs_of(name) <= 2), "at most the first run and one after it");
    }
}

/// oban#245, sidekiq#3943: a deferral counts as an attempt.
#[actix::test]
async fn b24_a_deferral_leaves_the_attempts_alone() {
    let log = Log::default();
    let t = runner(&log).await;
    let mut script = vec![Step::Defer(1_000); 1_000];
    script.extend([Step::Fail, Step::Ok]);
    let policy = Policy::default().attempts(2).base(8 * SECOND);
    let id = t.jobs().enqueue(task("a", &script)).policy(policy).await.unwrap().id();
    t.advance(1_000 * SECOND).await;
    let info = t.jobs().get(id).await.unwrap().unwrap();
    assert_eq!((log.total(), info.failures), (1_001, 1));
    let JobState::Pending { due } = info.state else { panic!("{:?}", info.state) };
    let wait = due.duration_since(t.now()).unwrap();
    assert!((4 * SECOND..=8 * SECOND).contains(&wait), "the first step of its backoff: {wait:?}");
    t.advance(8 * SECOND).await;
    assert_eq!((t.jobs().stats().done, log.runs().last().unwrap().1), (1, 2));
}

/// oban#712: handlers that ignore their cancel occupy all slots for ever.
#[actix::test]
async fn b40_a_handler_that_ignores_its_cancel_has_its_unit_until_its_timeout_and_no_longer() {
    let log = Log::default();
    let t = tasks(&log).capacity(1).test().await.unwrap();
    let id = t.jobs().enqueue(task("deaf", &[Step::Hang])).policy(once().timeout(MINUTE)).await.unwrap().id();
    t.jobs().enqueue(task("next", &[Step::Ok])).await.unwrap();
    t.settle().await;
    assert_eq!(t.jobs().cancel(id).await, Ok(Cancelled::Stopping));
    t.advance(MINUTE - Duration::from_millis(1)).await;
    assert_eq!(log.names(), ["deaf"]);
    t.advance(Duration::from_millis(1)).await;
    assert_eq!((log.names(), t.free_units().await), (vec!["deaf".to_owned(), "next".to_owned()], 1));
}

/// river#678, asynq#420: the cancel of a running job is dropped, or it is "cancelled" and then "completed".
#[actix::test]
async fn b41_a_cancel_at_any_time_leaves_one_end_and_the_caller_knows_which() {
    let (log, mut dice) = (Log::default(), fastrand::Rng::with_seed(seed()));
    let t = tasks(&log).capacity(4).test().await.unwrap();
    let (jobs, mut answers) = (t.jobs(), HashMap::<String, u64>::new());
    for round in 0..figure(2_000, 10_000) {
        t.set_syncs(if dice.bool() { Syncs::AtOnce } else { Syncs::After(Duration::from_millis(dice.u64(1..4))) });
        let step = [Step::Sleep(dice.u64(..5)), Step::UntilCancelled, Step::FailAfter(2)][dice.usize(..3)];
        let call = jobs.enqueue(task("a", &[step])).policy(once());
        let id = t.drive(call.into_future(), MINUTE).await.unwrap().unwrap().id();
        t.advance(Duration::from_millis(dice.u64(..8))).await;
        let cancelled = t.drive(jobs.cancel(id), MINUTE).await.unwrap().unwrap();
        let end = t.drive(jobs.outcome(id), MINUTE).await.unwrap().unwrap();
        let told = matches!(cancelled, Cancelled::Cancelled | Cancelled::Stopping);
        assert_eq!(told, end == JobEnd::Cancelled, "round {round}: {cancelled:?} and {end:?}");
        *answers.entry(format!("{cancelled:?}")).or_default() += 1;
    }
    t.set_syncs(Syncs::AtOnce);
    t.run_until_idle(HOUR).await.unwrap();
    // A job that was cancelled while it ran may still be at it.
    t.advance(MINUTE).await;
    let stats = jobs.stats();
    println!("{answers:?}, {stats:?}");
    assert_eq!(answers["AlreadyEnded"], stats.done + stats.spent);
    assert!(answers["Stopping"] > 0 && stats.cancelled > 0, "both ways were walked");
    assert_eq!(t.free_units().await, 4);
}

/// river#1331: a recovery that does not know that this kind may run for long.
#[actix::test]
async fn b54_a_kind_without_a_timeout_runs_for_hours_untouched() {
    let log = Log::default();
    let mut t = runner(&log).await;
    let forever = Policy::default().attempts(3).timeout(Duration::MAX);
    for _ in 0..2 {
        t.jobs().enqueue(task("long", &[Step::Sleep(7_200_000)])).policy(forever).await.unwrap();
        t.advance(2 * HOUR).await;
    }
    assert_eq!((log.total(), t.jobs().stats().done), (2, 2));
    t.jobs().enqueue(task("long", &[Step::Sleep(7_200_000)])).policy(forever).await.unwrap();
    t.advance(HOUR).await;
    t.kill("queue").await;
    t.advance(HOUR).await;
    assert_eq!((log.total(), t.jobs().stats().done), (3, 3), "nor does another queue lay hands on it");
    t.crash_and_reopen().await.unwrap();
}
