//! The rows about a whole runner, on a virtual clock and a disk in memory unless they say otherwise.

use std::fs;
use std::future::IntoFuture;

use futures_util::future::join_all;
use journeyman::testing::Syncs;
use journeyman::{EnqueueError, Health, Limits, StartError};
use journeyman_core::disk::Disk;
use tempfile::tempdir;

use crate::jobs::{DAY, HOUR, Log, MINUTE, SECOND, Step, Task, runner, task, tasks};

fn limits(change: impl FnOnce(&mut Limits)) -> Limits {
    let mut limits = Limits::default();
    change(&mut limits);
    limits
}

#[actix::test]
async fn d26_between_the_call_and_its_answer_there_is_a_sync() {
    let log = Log::default();
    let mut t = runner(&log).await;
    for n in 0..20 {
        let before = t.disk().syncs();
        t.jobs().enqueue(task(&n.to_string(), &[Step::Ok])).delay(HOUR).await.unwrap();
        assert!(t.disk().syncs() > before, "job {n} was acknowledged without a sync");
    }
    t.set_syncs(Syncs::WhenTold);
    let jobs = t.jobs();
    let mut call = std::pin::pin!(jobs.enqueue(task("waits", &[Step::Ok])).delay(HOUR).into_future());
    assert!(t.drive(&mut call, SECOND).await.is_none(), "no sync, no answer");
    t.set_syncs(Syncs::AtOnce);
    t.release_sync().await;
    call.await.unwrap();
    t.crash_and_reopen().await.unwrap();
    assert_eq!(t.jobs().stats().pending, 21);
}

/// On a real directory: the program that starts it over and over hears the same each time.
#[actix::test]
async fn d35_a_start_on_a_damaged_directory_fails_once_each_time_and_changes_nothing() {
    let dir = tempdir().unwrap();
    let start = || {
        let context = || async { Ok::<_, std::convert::Infallible>(Log::default()) };
        journeyman::Runner::open(dir.path()).context(context).register::<Task>().start()
    };
    let first = start().await.unwrap();
    first.jobs().enqueue(task("a", &[Step::Ok])).delay(HOUR).await.unwrap();
    first.jobs().enqueue(task("b", &[Step::Ok])).delay(HOUR).await.unwrap();
    first.shutdown(SECOND).await.unwrap();
    let segment = dir.path().join(super::segment(1));
    let mut bytes = fs::read(&segment).unwrap();
    bytes[200] ^= 1;
    fs::write(&segment, &bytes).unwrap();
    let mut said = Vec::new();
    for _ in 0..3 {
        match start().await {
            Err(error @ StartError::Journal { .. }) => said.push(error.to_string()),
            other => panic!("{other:?}"),
        }
        assert!(fs::read(&segment).unwrap() == bytes);
    }
    assert!(said[0].contains("is damaged at byte") && said.iter().all(|line| *line == said[0]), "{said:?}");
}

#[actix::test]
async fn d44_a_close_amid_calls_and_compactions_writes_nothing_twice() {
    let log = Log::default();
    let small = limits(|l| {
        l.record_bytes = 16 << 10;
        l.batch_bytes = 64 << 10;
        l.segment_bytes = 64 << 10;
        l.journal_bytes = 1 << 20;
        l.capacity = 8;
    });
    let mut t = tasks(&log).limits(small).test().await.unwrap();
    let mut stored = 0;
    for round in 0..10 {
        let jobs = t.jobs();
        let calls: Vec<_> =
            (0..100).map(|n| jobs.enqueue(task(&format!("{round}-{n}-{}", "x".repeat(700)), &[Step::Ok])).into_future()).collect();
        let mut calls = std::pin::pin!(join_all(calls));
        // Some of them are under way by then, and some are not.
        drop(t.drive(&mut calls, std::time::Duration::ZERO).await);
        t.stop_and_reopen(SECOND).await.expect("what was written reads back");
        let stats = t.jobs().stats();
        stored = stats.pending + stats.done;
    }
    t.run_until_idle(HOUR).await.unwrap();
    assert!(stored > 100);
    let runs: Vec<String> = log.names();
    let once: std::collections::BTreeSet<&String> = runs.iter().collect();
    assert_eq!(runs.len(), once.len(), "nothing ran twice");
    assert_eq!(t.jobs().stats().done as usize, runs.len());
}

#[actix::test]
async fn d45_after_a_failed_sync_the_caller_hears_that_nobody_knows_and_a_key_makes_one_job() {
    let log = Log::default();
    for survives in [true, false] {
        let mut t = tasks(&log).limits(limits(|l| l.reopenings = 0)).test().await.unwrap();
        t.disk().fail_syncs(true);
        let name = format!("written, {survives}");
        let lost = t.jobs().enqueue(task(&name, &[Step::Ok])).key("k").await;
        assert_eq!(lost, Err(EnqueueError::Unknown));
        t.disk().fail_syncs(false);
        if survives {
            let disk = t.disk().clone();
            drop(t);
            t = tasks(&log).test_with(disk, 0).await.unwrap();
        } else {
            t.crash_and_reopen().await.unwrap();
        }
        t.jobs().enqueue(task(&name, &[Step::Ok])).key("k").await.unwrap();
        t.run_until_idle(HOUR).await.unwrap();
        assert_eq!(log.runs_of(&name), 1);
        assert_eq!(t.jobs().stats().done, 1);
    }
}

#[actix::test]
async fn d53_a_journal_that_dies_over_and_over_is_reopened_so_often_and_no_oftener() {
    let log = Log::default();
    let mut t = tasks(&log).limits(limits(|l| l.reopenings = 3)).test().await.unwrap();
    t.jobs().enqueue(task("kept", &[Step::Ok])).delay(DAY).await.unwrap();
    let mut reopened = 0;
    for _ in 0..10 {
        t.kill("journal").await;
        assert!(matches!(t.jobs().health(), Health::Red { .. }));
        t.advance(10 * SECOND).await;
        reopened += u32::from(t.jobs().health() == Health::Green);
    }
    assert_eq!(reopened, 3);
    let syncs = t.disk().syncs();
    t.advance(DAY).await;
    assert_eq!(t.disk().syncs(), syncs, "and then it is quiet");
    assert_eq!(t.jobs().enqueue(task("x", &[Step::Ok])).await, Err(EnqueueError::Unavailable));
    t.crash_and_reopen().await.unwrap();
    t.run_until_idle(2 * DAY).await.unwrap();
    assert_eq!(log.runs_of("kept"), 1);
}

#[actix::test]
async fn d54_a_panic_in_any_actor_is_noticed_by_all_and_loses_nothing() {
    for actor in ["queue", "journal", "pool", "breaker", "worker"] {
        let log = Log::default();
        let t = runner(&log).await;
        let jobs = t.jobs();
        jobs.enqueue(crate::jobs::task_for("host", "before", &[Step::Ok])).await.unwrap();
        t.settle().await;
        let mut answers = Vec::new();
        for n in 0..20 {
            if n == 10 {
                t.kill(actor).await;
                assert!(matches!(jobs.health(), Health::Red { .. }), "{actor}");
            }
            answers.push(jobs.enqueue(task(&format!("job {n}"), &[Step::Ok])).await);
        }
        t.advance(MINUTE).await;
        assert_eq!(jobs.health(), Health::Green, "{actor}");
        t.run_until_idle(HOUR).await.unwrap();
        for (n, answer) in answers.iter().enumerate() {
            let ran = log.runs_of(&format!("job {n}"));
            match answer {
                Ok(_) => assert!(ran >= 1, "{actor}: job {n} was accepted"),
                Err(EnqueueError::Unavailable) => assert_eq!(ran, 0, "{actor}: job {n} was refused"),
                Err(other) => assert_eq!(*other, EnqueueError::Unknown, "{actor}: job {n}"),
            }
        }
        assert!(answers[..10].iter().all(Result::is_ok));
    }
}

#[actix::test]
async fn d55_a_flood_against_a_journal_that_stands_still_is_refused_and_not_kept() {
    let log = Log::default();
    let t = tasks(&log).limits(limits(|l| l.calls = 200)).test().await.unwrap();
    t.set_syncs(Syncs::WhenTold);
    let jobs = t.jobs();
    let mut flood = std::pin::pin!(join_all((0..10_000).map(|n| jobs.enqueue(task(&n.to_string(), &[Step::Ok])).delay(DAY).into_future())));
    assert!(t.drive(&mut flood, SECOND).await.is_none());
    t.set_syncs(Syncs::AtOnce);
    t.release_sync().await;
    let answers = flood.await;
    let full = answers.iter().filter(|answer| matches!(answer, Err(EnqueueError::Full(_)))).count();
    assert!(answers.len() - full <= 200 && answers.iter().all(|answer| matches!(answer, Ok(_) | Err(EnqueueError::Full(_)))));
    assert_eq!(jobs.stats().pending as usize, answers.len() - full);
}

#[actix::test]
async fn d56_what_ran_when_the_process_was_killed_runs_again_as_the_next_attempt() {
    let log = Log::default();
    let mut t = runner(&log).await;
    for n in 0..5 {
        t.jobs().enqueue(task(&n.to_string(), &[Step::Sleep(20_000), Step::Ok])).await.unwrap();
    }
    t.advance(SECOND).await;
    assert_eq!(t.jobs().stats().running, 5);
    t.crash_and_reopen().await.unwrap();
    t.run_until_idle(HOUR).await.unwrap();
    let mut runs = log.runs();
    runs.sort();
    let expected: Vec<_> = (0..5).flat_map(|n| [(n.to_string(), 1), (n.to_string(), 2)]).collect();
    assert_eq!(runs, expected, "none vanished, and none counts from 1 again");
    assert_eq!((t.jobs().stats().done, t.jobs().stats().running), (5, 0));
    assert!(t.disk().list().unwrap().len() > 1);
}
