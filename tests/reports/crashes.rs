//! What a crash, a failed write or a damaged file takes with it: nothing that was acknowledged.

use std::future::{Future, IntoFuture};
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use journeyman::testing::{Syncs, TestRunner};
use journeyman::{Cancelled, Cx, EnqueueError, Failure, Health, Job, JobResult, Limits, Policy, Runner};
use journeyman_core::disk::{Disk, MemDisk};
use serde::{Deserialize, Serialize};

use super::{patient, small};
use crate::jobs::{DAY, HOUR, Log, MINUTE, SECOND, Step, runner, seed, task, tasks};
use crate::support::figures::figure;

fn segments(disk: &MemDisk) -> Vec<String> {
    let mut names: Vec<String> = disk.list().unwrap().into_iter().filter(|name| name.ends_with(".segment")).collect();
    names.sort();
    names
}

/// beanstalkd#536: after the first write error the log is switched off, and commands succeed in memory only.
#[actix::test]
async fn b03_after_a_failed_sync_nothing_is_acknowledged_until_a_clean_reopen() {
    let log = Log::default();
    let mut limits = Limits::default();
    limits.reopenings = 0;
    let mut t = tasks(&log).limits(limits).test().await.unwrap();
    let kept = t.jobs().enqueue(task("kept", &[Step::Ok])).delay(HOUR).await.unwrap().id();
    t.disk().fail_syncs(true);
    assert_eq!(t.jobs().enqueue(task("a", &[Step::Ok])).await, Err(EnqueueError::Unknown));
    t.disk().fail_syncs(false);
    for _ in 0..100 {
        assert_eq!(t.jobs().enqueue(task("b", &[Step::Ok])).await, Err(EnqueueError::Unavailable));
    }
    assert!(matches!(t.jobs().health(), Health::Red { .. }));
    t.crash_and_reopen().await.unwrap();
    assert!(t.jobs().get(kept).await.unwrap().is_some());
    assert_eq!((t.jobs().stats().pending, t.jobs().health()), (1, Health::Green));
}

/// beanstalkd#546: a kill leaves a newest file that is empty or full of zeros, and every start complains.
#[actix::test]
async fn b04_a_newest_file_that_is_cut_or_zeroed_anywhere_costs_only_itself() {
    let log = Log::default();
    let mut t = runner(&log).await;
    let kept = t.jobs().enqueue(task("kept", &[Step::Ok])).delay(DAY).await.unwrap().id();
    // In order, so that nothing of it has to be carried into the next file: no crash takes back what was carried.
    t.stop_and_reopen(SECOND).await.unwrap();
    t.jobs().enqueue(task("last", &[Step::Ok])).delay(DAY).await.unwrap();
    let names = segments(t.disk());
    let [older, newest] = &names[..] else { panic!("{names:?}") };
    let (older_bytes, newest_bytes) = (t.disk().read(older).unwrap(), t.disk().read(newest).unwrap());
    let used = newest_bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    drop(t);
    let mut lost = 0;
    for cut in 0..=used {
        for zeroed in [false, true] {
            let mut damaged = newest_bytes[..cut].to_vec();
            if zeroed {
                damaged.resize(used + 4096, 0);
            }
            let disk = MemDisk::default();
            disk.put(older, &older_bytes);
            disk.put(newest, &damaged);
            let mut t = tasks(&log).test_with(disk, 0).await.unwrap_or_else(|error| panic!("cut at {cut}, zeroed: {zeroed}: {error}"));
            assert!(t.jobs().get(kept).await.unwrap().is_some(), "cut at {cut}, zeroed: {zeroed}");
            lost += u64::from(t.jobs().stats().pending == 1);
            // An acknowledged one lies behind whatever was torn, and stays.
            let next = t.jobs().enqueue(task("next", &[Step::Ok])).delay(DAY).await.unwrap().id();
            t.crash_and_reopen().await.unwrap();
            assert!(t.jobs().get(kept).await.unwrap().is_some() && t.jobs().get(next).await.unwrap().is_some());
        }
    }
    assert!(lost > used as u64, "most cuts take the last batch: {lost} of {}", 2 * used);
}

/// beanstalkd#98: files are missing from the middle of the sequence, and the start goes on.
#[actix::test]
async fn b05_a_missing_file_in_the_middle_is_named_and_nothing_starts() {
    let log = Log::default();
    let mut t = runner(&log).await;
    for n in 0..4 {
        t.jobs().enqueue(task(&n.to_string(), &[Step::Ok])).delay(DAY).await.unwrap();
        t.crash_and_reopen().await.unwrap();
    }
    let disk = t.disk().clone();
    drop(t);
    let names = segments(&disk);
    for missing in &names[..names.len() - 1] {
        let bytes = disk.read(missing).unwrap();
        disk.remove(missing).unwrap();
        let error = tasks(&log).test_with(disk.clone(), 0).await.unwrap_err().to_string();
        assert!(names.iter().any(|name| error.contains(name.as_str())), "{missing}: {error}");
        assert_eq!(segments(&disk).len(), names.len() - 1, "nothing was removed or made");
        disk.put(missing, &bytes);
    }
    assert_eq!(tasks(&log).test_with(disk, 0).await.unwrap().jobs().stats().pending, 4);
}

/// Fails once.
#[derive(Serialize, Deserialize)]
struct FailsOnce;

impl Job for FailsOnce {
    type Context = ();
    type Output = ();
    const KIND: &'static str = "fails-once";

    fn policy() -> Policy {
        Policy::default().base(Duration::from_millis(10)).timeout(Duration::MAX)
    }

    async fn run(self, cx: Cx<()>) -> JobResult<()> {
        match cx.attempt() {
            1 => Err(Failure::transient("once")),
            _ => Ok(()),
        }
    }
}

/// rustqueue 0.3.0: the embedded builder never started what fires retries and delays.
#[actix::test]
async fn b07_the_smallest_embedding_retries_and_fires_what_is_delayed() {
    let dir = tempfile::tempdir().unwrap();
    let runner = Runner::open(dir.path().join("jobs")).register::<FailsOnce>().start().await.unwrap();
    let jobs = runner.jobs();
    jobs.enqueue(FailsOnce).await.unwrap();
    jobs.enqueue(FailsOnce).delay(Duration::from_millis(50)).await.unwrap();
    jobs.run_until_idle(MINUTE).await.unwrap();
    assert_eq!(jobs.stats().done, 2);
    let never = jobs.enqueue(FailsOnce).delay(Duration::MAX).await.unwrap().id();
    assert_eq!(jobs.cancel(never).await, Ok(Cancelled::Cancelled), "and no span is too long for its clock");
    runner.shutdown(SECOND).await.unwrap();
}

/// effectum 0.1.1, 0.4.1: an answer before the commit, and a future with effects that was never awaited.
#[actix::test]
async fn b08_a_call_that_is_dropped_anywhere_is_wholly_there_or_not_at_all() {
    let mut seen = [false; 2];
    for syncs in [Syncs::AtOnce, Syncs::WhenTold, Syncs::After(SECOND)] {
        for polls in 0..12 {
            let log = Log::default();
            let mut t = runner(&log).await;
            let jobs = t.jobs();
            drop(jobs.enqueue(task("never awaited", &[Step::Ok])).delay(DAY).into_future());
            t.set_syncs(syncs);
            {
                let all = (0..3).map(|n| jobs.enqueue(task(&n.to_string(), &[Step::Ok])).delay(DAY));
                let mut call = pin!(jobs.enqueue_all(all));
                for _ in 0..polls {
                    if call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
                        break;
                    }
                    tokio::task::yield_now().await;
                }
            }
            t.advance(2 * SECOND).await;
            t.crash_and_reopen().await.unwrap();
            let stored = t.jobs().stats().pending;
            assert!([0, 3].contains(&stored), "{stored} of three after {polls} polls, {syncs:?}");
            assert!(stored == 0 || polls > 0, "nothing happens before it is awaited");
            assert!(stored == 0 || syncs != Syncs::WhenTold, "nor before it is on disk");
            seen[usize::from(stored == 3)] = true;
        }
    }
    assert_eq!(seen, [true, true]);
}

/// sidekiq#1831, #3845, #5558: taking a job removes it, and the worker is killed.
#[actix::test]
async fn b09_kills_at_any_time_leave_every_acknowledged_job_done_or_alive() {
    let (log, mut dice) = (Log::default(), fastrand::Rng::with_seed(seed()));
    let mut t = tasks(&log).capacity(8).test().await.unwrap();
    let mut acknowledged = 0;
    for _ in 0..figure(300, 3_000) {
        for _ in 0..dice.u8(..4) {
            let job = task(&acknowledged.to_string(), &[[Step::Ok, Step::Sleep(40), Step::Fail][dice.usize(..3)], Step::Ok]);
            t.jobs().enqueue(job).policy(patient().base(Duration::from_millis(20))).await.unwrap();
            acknowledged += 1;
        }
        t.set_syncs([Syncs::AtOnce, Syncs::After(Duration::from_millis(5)), Syncs::WhenTold][dice.usize(..3)]);
        t.advance(Duration::from_millis(dice.u64(50..500))).await;
        t.crash_and_reopen().await.unwrap();
        let stats = t.jobs().stats();
        assert_eq!(stats.done + stats.pending + stats.running, acknowledged);
    }
    t.run_until_idle(DAY).await.unwrap();
    assert_eq!(t.jobs().stats().done, acknowledged);
}

/// sidekiq#843: a poller takes two million due jobs out, and dies before it puts them in line. Scaled to some thousands.
#[actix::test]
async fn b10_a_kill_while_many_become_due_loses_none() {
    let log = Log::default();
    let mut t = tasks(&log).capacity(64).test().await.unwrap();
    let many = figure(5_000, 100_000);
    store_many(&t, many).await;
    t.advance(HOUR).await;
    for kills in 0..20 {
        let stats = t.jobs().stats();
        assert_eq!(stats.done + stats.pending + stats.running, many, "after {kills} kills");
        for _ in 0..kills {
            tokio::task::yield_now().await;
        }
        t.crash_and_reopen().await.unwrap();
    }
    t.run_until_idle(DAY).await.unwrap();
    assert_eq!(t.jobs().stats().done, many);
}

/// So many jobs that are due in an hour and take a millisecond each.
async fn store_many(t: &TestRunner<Log>, many: u64) {
    let jobs = t.jobs();
    for first in (0..many).step_by(5_000) {
        let chunk = (first..many.min(first + 5_000)).map(|_| jobs.enqueue(task("a", &[Step::Sleep(1)])).policy(patient()).delay(HOUR));
        jobs.enqueue_all(chunk).await.unwrap();
    }
}

/// solid_queue#748: the write that records the finish fails once, the process lives, and nobody ever reclaims the job.
#[actix::test]
async fn b14_an_end_whose_record_fails_once_is_recorded_all_the_same() {
    let log = Log::default();
    let t = runner(&log).await;
    t.jobs().enqueue(task("a", &[Step::Sleep(1_000)])).await.unwrap();
    t.settle().await;
    t.disk().fail_syncs(true);
    t.advance(SECOND).await;
    assert!(matches!(t.jobs().health(), Health::Red { .. }), "it does not pretend");
    t.disk().fail_syncs(false);
    t.advance(MINUTE).await;
    let stats = t.jobs().stats();
    assert_eq!((stats.done, stats.running, stats.pending, log.total()), (1, 0, 0, 1), "and it ran once");
    assert_eq!(t.jobs().health(), Health::Green);
}

/// oban#862: a new process under the old name looks like the owner, and the orphans are never rescued.
#[actix::test]
async fn b15_a_restart_takes_over_at_once_however_soon_it_comes() {
    let log = Log::default();
    let mut t = runner(&log).await;
    t.jobs().enqueue(task("a", &[Step::Hang, Step::Hang, Step::Ok])).policy(patient()).await.unwrap();
    t.settle().await;
    let began = t.now();
    t.crash_and_reopen().await.unwrap();
    t.crash_and_reopen().await.unwrap();
    assert_eq!((t.now(), t.jobs().stats().done, log.total()), (began, 1, 3), "no time has passed");
}

/// background-jobs: a failed job is first removed, then put back, and a crash between loses it.
#[actix::test]
async fn b53_a_crash_between_any_two_writes_of_a_retry_loses_nothing() {
    // Each sync that is let through is a place to crash behind.
    for syncs in 0..12 {
        let log = Log::default();
        let mut t = tasks(&log).limits(small()).test().await.unwrap();
        t.set_syncs(Syncs::WhenTold);
        let jobs = t.jobs();
        let call = actix_rt::spawn(async move { jobs.enqueue(task("a", &[Step::Fail, Step::Fail, Step::Ok])).policy(patient()).await });
        let mut through = 0;
        for _ in 0..20 {
            t.advance(2 * SECOND).await;
            through += u64::from(through < syncs && t.release_sync().await);
        }
        t.crash_and_reopen().await.unwrap();
        let stats = t.jobs().stats();
        let is_acknowledged = call.is_finished() && call.await.unwrap().is_ok();
        assert_eq!(is_acknowledged, syncs > 0);
        assert_eq!(stats.done + stats.pending + stats.running, u64::from(syncs > 0), "{syncs} syncs let through");
        t.run_until_idle(DAY).await.unwrap();
        assert_eq!(t.jobs().stats().done, u64::from(syncs > 0));
    }
}
