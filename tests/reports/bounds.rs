//! What grows: with what is alive, and with nothing else.

use std::collections::HashMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

use journeyman::testing::TestRunner;
use journeyman::{EnqueueError, JobEnd, JobId, JobState, Limits, Policy, Query};
use journeyman_core::disk::{Disk, MemDisk};
use journeyman_core::{Codec, Job, Key, Op, Options, Packed, Queue, Record, Seq, Ticket, Time};

use super::{patient, small};
use crate::jobs::{DAY, Log, MINUTE, SECOND, Step, runner, seed, task, task_for, tasks};
use crate::support::figures::figure;

/// What the files hold, without the zeros that are laid ahead of the writer: with segments this small they would be most of it.
fn bytes_on(disk: &MemDisk) -> u64 {
    let held = |name: &String| disk.read(name).unwrap().iter().rposition(|byte| *byte != 0).map_or(0, |last| last as u64 + 1);
    disk.list().unwrap().iter().map(held).sum()
}

/// What a directory may take whatever its history: its snapshots and what was written between two compactions, each of which is due
/// after a quarter of the journal's bound; once for the newest, once for the one before it, once while another is made.
fn bound(t: &TestRunner<Log>) -> u64 {
    8 * t.jobs().stats().live_bytes + 3 * small().journal_bytes / 4
}

/// beanstalkd#622: a hundred thousand jobs are released with a delay over and over, and the log grows for ever. A hundred here.
#[actix::test]
async fn b01_jobs_that_go_round_and_round_do_not_grow_the_journal() {
    let log = Log::default();
    let t = tasks(&log).limits(small()).test().await.unwrap();
    let jobs = t.jobs();
    for (n, step) in [Step::Defer(1_000), Step::Fail].into_iter().cycle().take(100).enumerate() {
        jobs.enqueue(task(&format!("{n}{}", "x".repeat(300)), &[step])).policy(patient()).await.unwrap();
    }
    for round in 0..figure(40, 1_000) {
        t.advance(5 * SECOND).await;
        assert!(bytes_on(t.disk()) <= bound(&t), "{} of {} in round {round}", bytes_on(t.disk()), bound(&t));
    }
    let stats = jobs.stats();
    assert!(stats.pending == 100 && stats.compactions > 2, "{stats:?}");
}

/// beanstalkd#43, #276, #359 (700 GB for 1 GB alive): one old job pins every later log file.
#[actix::test]
async fn b02_one_job_due_in_a_year_pins_nothing() {
    let log = Log::default();
    let mut t = tasks(&log).limits(small()).test().await.unwrap();
    let old = t.jobs().enqueue(task("old", &[Step::Ok])).delay(365 * DAY).await.unwrap().id();
    for _ in 0..figure(300, 6_000) {
        let jobs = t.jobs();
        jobs.enqueue_all((0..20).map(|_| jobs.enqueue(task(&"x".repeat(300), &[Step::Ok])))).await.unwrap();
        t.advance(SECOND).await;
        assert!(bytes_on(t.disk()) <= bound(&t), "{} of {}", bytes_on(t.disk()), bound(&t));
    }
    let first = t.disk().list().unwrap().into_iter().filter(|name| name.ends_with(".segment")).min().unwrap();
    assert_ne!(first, format!("{:020}.segment", 1), "the one with its record has gone long ago");
    t.crash_and_reopen().await.unwrap();
    assert!(matches!(t.jobs().get(old).await.unwrap().unwrap().state, JobState::Pending { .. }));
}

/// river#746, hangfire#1733: counts and lists go through millions of rows. A page from the end costs what one from the beginning
/// does, and counters cost nothing; compared with each other, as times are not the same everywhere.
#[actix::test]
async fn b21_a_page_costs_the_same_wherever_it_is() {
    let log = Log::default();
    let t = runner(&log).await;
    let jobs = t.jobs();
    let many = figure(60_000, 900_000);
    let mut last = None;
    for first in (0..many).step_by(5_000) {
        let chunk = (first..first + 5_000).map(|_| jobs.enqueue(task("a", &[Step::Ok])).delay(DAY));
        last = jobs.enqueue_all(chunk).await.unwrap().last().map(|receipt| receipt.id());
    }
    assert_eq!(jobs.stats().pending, many);
    let before_last: JobId = JobId::of(Ticket(last.unwrap().ticket().0 - 100));
    let mut costs = [Duration::MAX; 2];
    for _ in 0..30 {
        for (cost, query) in costs.iter_mut().zip([Query::new(), Query::new().after(before_last)]) {
            let began = Instant::now();
            assert_eq!(jobs.list(query).await.unwrap().jobs.len(), 100);
            *cost = (*cost).min(began.elapsed());
        }
    }
    println!("{many} jobs: {:?} for the first page, {:?} for the last", costs[0], costs[1]);
    assert!(costs[1] < 20 * costs[0], "{costs:?}");
}

fn job() -> Packed {
    let options = Options::default();
    Job { kind: "k".into(), version: 1, codec: Codec::RAW, target: None, priority: 1, options, meta: Vec::new(), payload: vec![0; 50] }
        .into()
}

/// How long it takes to store so many jobs with these keys.
fn cost(keys: &[Option<Key>]) -> Duration {
    let job = job();
    let began = Instant::now();
    let mut queue = Queue::default();
    for key in keys {
        let op = Op::Enqueue { now: Time(1), due: Time(1), key: key.clone(), job: job.clone() };
        let _ = black_box(queue.step(queue.last().next(), Time(1), &Record::Op(op)));
    }
    began.elapsed()
}

/// river#446: the check for uniqueness makes a bulk insert take seconds. Half of the keys are there already.
#[test]
fn b32_keys_cost_no_more_than_the_jobs_themselves() {
    let many = figure(40_000, 400_000);
    let plain: Vec<_> = (0..many).map(|_| None).collect();
    let keyed: Vec<_> = (0..many).map(|n| Some(Key::new(format!("key {}", n % (many / 2))))).collect();
    let best = |keys: &[Option<Key>]| (0..5).map(|_| cost(keys)).min().unwrap();
    let (plain, keyed) = (best(&plain), best(&keyed));
    println!("{many} jobs: {plain:?} without keys, {keyed:?} with keys of which half are taken");
    assert!(keyed < 3 * plain, "{keyed:?} against {plain:?}");
}

/// The same after the keys: a single call after a long silence pays for none of the windows that ended meanwhile.
#[test]
fn b32_keys_whose_windows_are_over_are_forgotten_in_portions() {
    let (many, job) = (10_000, job());
    let mut queue = Queue::default();
    let step = |queue: &mut Queue, now: u64, op: Op| queue.step(queue.last().next(), Time(now), &Record::Op(op)).unwrap();
    for n in 0..many {
        step(&mut queue, 1, Op::Enqueue { now: Time(1), due: Time(1), key: Some(Key::new(n.to_string())), job: job.clone() });
        step(&mut queue, 1, Op::Cancel { ticket: Ticket(n + 1) });
    }
    assert_eq!(queue.keys(), many as usize);
    let far = Time(1_000_000_000);
    let mut steps = 0;
    while queue.keys() > steps {
        let before = queue.keys();
        step(&mut queue, far.0, Op::Enqueue { now: far, due: far, key: Some(Key::new(format!("new {steps}"))), job: job.clone() });
        steps += 1;
        assert!(before - (queue.keys() - 1) <= 1_000, "{} in one step", before - queue.keys());
        assert!(queue.keys() <= before, "and more go than come");
        queue.check();
    }
    assert_eq!(queue.holder(&Key::new("7"), far), None, "though none is taken any more");
    assert_eq!(queue.last(), Seq(2 * many + steps as u64));
}

/// bullmq#366, twenty#26219 (232 finished jobs, 711 MiB): what is kept of finished work fills the memory.
#[actix::test]
async fn b43_ends_are_kept_up_to_their_limit_and_long_faults_are_cut() {
    let log = Log::default();
    let mut limits = Limits::default();
    limits.ends_remembered = 10;
    let t = tasks(&log).limits(limits).test().await.unwrap();
    let mut ids = Vec::new();
    for n in 0..1_000 {
        let name = format!("{n}{}", "x".repeat(20_000));
        ids.push(t.jobs().enqueue(task(&name, &[Step::Reject])).await.unwrap().id());
        t.settle().await;
    }
    let mut kept = 0;
    for id in ids {
        let end = t.jobs().outcome(id).await.unwrap();
        kept += usize::from(matches!(end, JobEnd::Rejected(_)));
        assert!(matches!(end, JobEnd::Rejected(_) | JobEnd::Forgotten), "{end:?}");
    }
    assert_eq!((kept, t.jobs().stats().rejected), (10, 1_000));
    assert_eq!((t.jobs().stats().live_bytes, t.jobs().stats().pending), (0, 0));
}

/// river#240, sidekiq#7006: a small leak for each job. By what can be counted; the rig measures memory.
#[actix::test]
async fn b44_after_many_jobs_nothing_of_them_is_there() {
    let log = Log::default();
    let t = tasks(&log).limits(small()).test().await.unwrap();
    let jobs = t.jobs();
    for round in 0..figure(150, 10_000) {
        jobs.enqueue_all((0..50).map(|_| jobs.enqueue(task_for("t", "a", &[Step::Ok])))).await.unwrap();
        jobs.enqueue(task("keyed", &[Step::Ok])).key(round.to_string()).key_window(SECOND).await.unwrap();
        t.advance(SECOND).await;
    }
    // Its key is the first to see that the others are over.
    jobs.enqueue(task("last", &[Step::Ok])).key("last").key_window(Duration::ZERO).await.unwrap();
    t.run_until_idle(MINUTE).await.unwrap();
    jobs.enqueue(task("last", &[Step::Ok])).key("last").key_window(Duration::ZERO).await.unwrap();
    t.run_until_idle(MINUTE).await.unwrap();
    let stats = jobs.stats();
    assert_eq!((stats.pending, stats.running, stats.held), (0, 0, 0));
    assert!(stats.live_bytes < 500, "{stats:?}");
    assert_eq!((t.free_units().await, t.actors("breaker"), t.actors("worker")), (8, 1, 1));
    assert!(bytes_on(t.disk()) <= bound(&t));
}

/// rsky#254 (5.8 million entries, 8.6 GB in 5 hours): a producer without a consumer, and nothing bounds it.
#[actix::test]
async fn b48_a_producer_without_a_consumer_is_told_that_it_is_full() {
    for bytes in [10, 2_000] {
        let log = Log::default();
        let mut limits = Limits::default();
        (limits.pending, limits.pending_bytes) = (2_000, 1 << 20);
        let t = tasks(&log).limits(limits).test().await.unwrap();
        let mut stored = 0;
        let full = loop {
            match t.jobs().enqueue(task(&"x".repeat(bytes), &[Step::Ok])).delay(DAY).await {
                Ok(_) => stored += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(full, EnqueueError::Full(_)) && stored <= 2_000, "{full} after {stored}");
        assert_eq!(t.jobs().stats().pending, stored);
        t.run_until_idle(2 * DAY).await.unwrap();
        assert!(t.jobs().enqueue(task("x", &[Step::Ok])).await.is_ok(), "what ends makes room");
    }
}

/// faktory#148, river#1185: counters below zero, and others that nobody can explain.
#[actix::test]
async fn b49_counters_are_a_recount_at_any_moment() {
    let (log, mut dice) = (Log::default(), fastrand::Rng::with_seed(seed()));
    let mut t = tasks(&log).capacity(8).test().await.unwrap();
    let steps = [
        Step::Ok,
        Step::Fail,
        Step::Reject,
        Step::Unsafe,
        Step::Defer(700),
        Step::PanicAfter(300),
        Step::Hang,
        Step::UntilCancelled,
        Step::Sleep(900),
    ];
    let mut ids = Vec::new();
    for round in 0..60 {
        for _ in 0..10 {
            let script = [steps[dice.usize(..steps.len())], steps[dice.usize(..steps.len())]];
            let name = ids.len().to_string();
            let job = if dice.bool() { task(&name, &script) } else { task_for("t", &name, &script) };
            let jobs = t.jobs();
            let call = jobs.enqueue(job).policy(Policy::default().attempts(2).base(SECOND).timeout(3 * SECOND).deadline(MINUTE));
            ids.push(call.delay(Duration::from_millis(dice.u64(..2_000))).await.unwrap().id());
            if dice.u8(..5) == 0 {
                t.jobs().cancel(ids[dice.usize(..ids.len())]).await.unwrap();
            }
            t.advance(Duration::from_millis(dice.u64(..400))).await;
        }
        match dice.u8(..8) {
            0 => t.crash_and_reopen().await.unwrap(),
            1 => _ = t.stop_and_reopen(SECOND).await.unwrap(),
            2 => {
                t.kill(["queue", "journal", "worker"][dice.usize(..3)]).await;
                t.advance(70 * SECOND).await;
            }
            _ => {}
        }
        recount(&t, ids.len() as u64, round).await;
    }
    t.run_until_idle(DAY).await.unwrap();
    recount(&t, ids.len() as u64, 60).await;
    let stats = t.jobs().stats();
    assert_eq!((stats.pending, stats.running, stats.held), (0, 0, 0), "{stats:?}");
}

async fn recount(t: &TestRunner<Log>, stored: u64, round: u64) {
    t.settle().await;
    let mut states: HashMap<&str, u64> = HashMap::new();
    let mut query = Query::new();
    loop {
        let page = t.jobs().list(query).await.unwrap();
        for info in page.jobs {
            let state = match info.state {
                JobState::Running => "running",
                JobState::Held { .. } => "held",
                _ => "pending",
            };
            *states.entry(state).or_default() += 1;
        }
        let Some(next) = page.next else { break };
        query = Query::new().after(next);
    }
    let count = |state| states.get(state).copied().unwrap_or_default();
    let stats = t.jobs().stats();
    let ends = stats.done + stats.rejected + stats.unsafe_to_repeat + stats.spent + stats.late + stats.cancelled;
    assert_eq!((stats.running, stats.held), (count("running"), count("held")), "round {round}: {stats:?}");
    assert_eq!(stats.pending, count("pending") + count("held"), "round {round}: {stats:?}");
    assert_eq!(ends + stats.pending + stats.running, stored, "round {round}: {stats:?}");
}
