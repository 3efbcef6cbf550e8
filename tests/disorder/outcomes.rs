//! Outcomes that are early, late or there twice, or are for a ticket that was cancelled, has ended or was selected again: an
//! outcome counts for the attempt that runs, once, and for nothing else.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt;
use journeyman::testing::{Syncs, TestRunner};
use journeyman::{Cancelled, Event, EventFilter, Events, Happened, JobEnd, JobId, JobState, Policy, Seq};

use super::{CAPACITY, all_is_there, once, runner, store, trip};
use crate::jobs::{DAY, HOUR, Log, MINUTE, SECOND, Step, seed, task_for};

/// The attempts that have begun since this was last asked, by the records of their Selects.
fn attempts(events: &mut Events) -> Vec<(JobId, Seq)> {
    let mut found = Vec::new();
    while let Some(Some(event)) = events.next().now_or_never() {
        if let Event::Job(job) = event
            && job.what == Happened::Selected
        {
            found.push((job.id, job.seq));
        }
    }
    found
}

async fn state(t: &TestRunner<Log>, id: JobId) -> (u32, JobState) {
    let info = t.jobs().get(id).await.unwrap().expect("it lives");
    (info.failures, info.state)
}

async fn driven<T>(t: &TestRunner<Log>, call: impl Future<Output = T>) -> T {
    t.drive(call, MINUTE).await.expect("an answer")
}

#[actix::test]
async fn an_outcome_counts_once_and_only_for_the_attempt_that_runs() {
    let log = Log::default();
    let t = runner(&log).await;
    let mut events = t.jobs().events(EventFilter::all());
    let policy = Policy::default().base(10 * SECOND).cap(10 * SECOND);
    let id = store(&t, "a", &[Step::FailAfter(1_000), Step::Sleep(30_000)], policy).await;
    t.advance(SECOND).await;
    let first = attempts(&mut events)[0].1;
    let waiting = state(&t, id).await;
    assert_eq!(waiting.0, 1);
    for _ in 0..3 {
        t.stray_outcome(id, first).await;
    }
    assert_eq!(state(&t, id).await, waiting, "it has been settled");
    t.advance(10 * SECOND).await;
    let second = attempts(&mut events)[0].1;
    let records = t.jobs().stats().records;
    for stale in [first, Seq(0), Seq(second.0 + 1), Seq(u64::MAX)] {
        t.stray_outcome(id, stale).await;
    }
    assert_eq!((state(&t, id).await, t.jobs().stats().records), ((1, JobState::Running), records), "selected again");
    t.advance(30 * SECOND).await;
    for attempt in [first, second, second] {
        t.stray_outcome(id, attempt).await;
        t.stray_outcome("0-77".parse().unwrap(), attempt).await;
    }
    assert_eq!(t.jobs().find(id).await.map(|found| format!("{found:?}")).unwrap(), "Gone(Done)");
    assert_eq!((t.jobs().stats().done, log.runs_of("a")), (1, 2));
    all_is_there(&t, 1).await;
}

#[actix::test]
async fn an_end_that_is_told_before_it_comes_frees_nothing() {
    let log = Log::default();
    let t = runner(&log).await;
    trip(&t).await;
    let mut events = t.jobs().events(EventFilter::all());
    let probe = store(&t, "probe", &[Step::Sleep(30_000)], once()).await;
    t.advance(MINUTE).await;
    store(&t, "next", &[Step::Ok], once()).await;
    t.stray_outcome(probe, attempts(&mut events)[0].1).await;
    let records = t.jobs().stats().records;
    t.advance(20 * SECOND).await;
    assert_eq!((t.jobs().stats().records, log.runs_of("next")), (records, 0), "the probe is still out");
    let report = t.shutdown(MINUTE).await.unwrap();
    assert_eq!((report.interrupted, report.pending), (0, 1), "and the stop waits for it");
    assert_eq!(t.jobs().stats().done, 1);
}

#[actix::test]
async fn an_outcome_for_a_ticket_that_was_cancelled_changes_nothing() {
    let log = Log::default();
    let t = runner(&log).await;
    let mut events = t.jobs().events(EventFilter::all());
    for step in [Step::Sleep(1_000), Step::FailAfter(1_000), Step::PanicAfter(1_000)] {
        let id = store(&t, "a", &[step], Policy::default()).await;
        t.advance(SECOND / 2).await;
        // The record of the cancel is on its way to the disk while the attempt ends.
        t.set_syncs(Syncs::WhenTold);
        let jobs = t.jobs();
        let mut cancel = pin!(jobs.cancel(id));
        assert!(t.drive(&mut cancel, SECOND).await.is_none());
        t.set_syncs(Syncs::AtOnce);
        t.release_sync().await;
        assert_eq!(cancel.await, Ok(Cancelled::Stopping));
        t.stray_outcome(id, attempts(&mut events)[0].1).await;
        assert_eq!(driven(&t, t.jobs().outcome(id)).await, Ok(JobEnd::Cancelled), "{step:?}");
    }
    let stats = t.jobs().stats();
    assert_eq!((stats.cancelled, stats.done, stats.spent, stats.pending), (3, 0, 0, 0));
    all_is_there(&t, 1).await;
}

#[actix::test]
async fn a_cancel_that_comes_behind_the_outcome_changes_nothing() {
    let log = Log::default();
    let t = runner(&log).await;
    let id = store(&t, "a", &[Step::Sleep(1_000)], once()).await;
    t.advance(SECOND / 2).await;
    t.set_syncs(Syncs::WhenTold);
    t.advance(SECOND / 2).await;
    let jobs = t.jobs();
    let mut cancel = pin!(jobs.cancel(id));
    assert!(t.drive(&mut cancel, SECOND).await.is_none(), "its answer reveals an end that is not yet on disk");
    t.set_syncs(Syncs::AtOnce);
    t.release_sync().await;
    assert_eq!(cancel.await, Ok(Cancelled::AlreadyEnded));
    assert_eq!((t.jobs().stats().done, t.jobs().stats().cancelled), (1, 0));
    all_is_there(&t, 1).await;
}

#[actix::test]
async fn an_outcome_of_an_attempt_that_was_given_up_for_lost_changes_nothing() {
    let log = Log::default();
    let t = runner(&log).await;
    let mut events = t.jobs().events(EventFilter::all());
    let id = store(&t, "a", &[Step::Hang, Step::Sleep(20_000)], Policy::default().attempts(3).base(SECOND)).await;
    t.settle().await;
    let lost = attempts(&mut events)[0].1;
    t.kill("worker").await;
    t.advance(5 * SECOND).await;
    assert_eq!(state(&t, id).await, (1, JobState::Running), "by another attempt");
    t.stray_outcome(id, lost).await;
    assert_eq!(state(&t, id).await, (1, JobState::Running));
    t.advance(20 * SECOND).await;
    assert_eq!((t.jobs().stats().done, log.runs_of("a")), (1, 2));
    all_is_there(&t, 1).await;
}

#[actix::test]
async fn an_attempt_that_ends_in_the_millisecond_of_its_timeout_has_ended() {
    let log = Log::default();
    let t = runner(&log).await;
    store(&t, "a", &[Step::Sleep(5_000)], once().timeout(5 * SECOND)).await;
    store(&t, "b", &[Step::Sleep(5_001)], once().timeout(5 * SECOND)).await;
    t.advance(5 * SECOND).await;
    assert_eq!((t.jobs().stats().done, t.jobs().stats().spent), (1, 1));
    all_is_there(&t, 1).await;
}

/// Strays of all kinds amid attempts of all kinds, cancels, deaths of actors and stops: each job ends once.
#[actix::test]
async fn amid_everything_each_job_ends_once_and_nothing_leaks() {
    const SCRIPT: [Step; 9] = [
        Step::Ok,
        Step::Fail,
        Step::NotTheTarget,
        Step::Defer(300),
        Step::Sleep(700),
        Step::FailAfter(900),
        Step::PanicAfter(400),
        Step::Hang,
        Step::UntilCancelled,
    ];
    let (log, mut dice) = (Log::default(), fastrand::Rng::with_seed(seed()));
    let mut t = runner(&log).await;
    let mut seen: Vec<(JobId, Seq)> = Vec::new();
    let mut stored = 0;
    for round in 0..120 {
        let mut events = t.jobs().events(EventFilter::all());
        for n in 0..10 {
            let script = [(); 2].map(|()| SCRIPT[dice.usize(..SCRIPT.len())]);
            let policy = Policy::default().attempts(3).base(SECOND).timeout(2 * SECOND).deadline(MINUTE);
            let job = task_for(if n % 2 == 0 { "t" } else { "u" }, &format!("{round}-{n}"), &script);
            let id = t.jobs().enqueue(job).policy(policy).await.unwrap().id();
            stored += 1;
            t.advance(Duration::from_millis(dice.u64(..300))).await;
            seen.extend(attempts(&mut events));
            for _ in 0..3 {
                if let Some((id, attempt)) = dice.choice(&seen) {
                    t.stray_outcome(*id, *attempt).await;
                }
            }
            if dice.u8(..4) == 0 {
                t.jobs().cancel(id).await.unwrap();
            }
        }
        match round % 8 {
            2 => t.kill(["queue", "journal", "pool", "breaker", "worker"][dice.usize(..5)]).await,
            5 => _ = t.stop_and_reopen(Duration::from_millis(dice.u64(..2_000))).await.unwrap(),
            7 => t.crash_and_reopen().await.unwrap(),
            _ => {}
        }
        // The pause of a reopening, and so long after it that the next one is not in its row.
        t.advance(Duration::from_secs(70)).await;
    }
    t.run_until_idle(DAY).await.unwrap();
    let stats = t.jobs().stats();
    let ends = [stats.done, stats.rejected, stats.unsafe_to_repeat, stats.spent, stats.late, stats.cancelled];
    assert_eq!(ends.iter().sum::<u64>(), stored, "{stats:?}");
    assert!(log.most_live() <= CAPACITY as usize, "{} at once", log.most_live());
    println!("{stored} jobs, {} attempts, {} of them told about again", log.total(), seen.len());
    t.advance(HOUR).await;
    all_is_there(&t, 1).await;
}
