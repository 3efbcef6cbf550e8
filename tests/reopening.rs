//! A runner that replaces its actors in the same process: what was acknowledged goes on, attempts that run are kept, handles and
//! waiting calls survive, and it does so a bounded number of times.

use std::collections::{HashMap, HashSet};
use std::future::IntoFuture;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use journeyman::testing::{Syncs, TestRunner};
use journeyman::{CallError, Configured, Cx, EnqueueError, Health, Job, JobEnd, JobResult, Jobs, Limits, Policy, Receipt, Runner, Target};
use serde::{Deserialize, Serialize};

use crate::jobs::seed;

/// A job that takes so long and notes that it ran.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Work {
    name: String,
    target: Option<String>,
    ms: u64,
}

#[derive(Clone, Default)]
struct Book(Arc<Mutex<Notes>>);

#[derive(Default)]
struct Notes {
    live: HashSet<String>,
    most_live: usize,
    begun: HashMap<(String, u32), u32>,
    done: HashMap<String, u32>,
    overlaps: Vec<String>,
}

struct Live(Book, String);

impl Drop for Live {
    fn drop(&mut self) {
        self.0.0.lock().unwrap().live.remove(&self.1);
    }
}

impl Book {
    fn begin(&self, name: &str, attempt: u32) -> Live {
        let mut notes = self.0.lock().unwrap();
        let runs = notes.begun.entry((name.to_owned(), attempt)).or_default();
        *runs += 1;
        if *runs > 1 {
            notes.overlaps.push(format!("{name}, attempt {attempt}, began again"));
        }
        if !notes.live.insert(name.to_owned()) {
            notes.overlaps.push(format!("{name} ran twice at once"));
        }
        notes.most_live = notes.most_live.max(notes.live.len());
        Live(self.clone(), name.to_owned())
    }

    fn done(&self, name: &str) {
        *self.0.lock().unwrap().done.entry(name.to_owned()).or_default() += 1;
    }

    fn live(&self) -> usize {
        self.0.lock().unwrap().live.len()
    }
}

impl Job for Work {
    type Context = Book;
    type Output = ();
    const KIND: &'static str = "work";

    fn target(&self) -> Option<Target> {
        self.target.as_deref().map(Target::new)
    }

    fn policy() -> Policy {
        Policy::default().attempts(1_000_000).base(Duration::from_millis(10)).cap(Duration::from_millis(20))
    }

    async fn run(self, cx: Cx<Book>) -> JobResult<()> {
        let _live = cx.context().begin(&self.name, cx.attempt());
        cx.sleep(Duration::from_millis(self.ms)).await;
        cx.context().done(&self.name);
        Ok(())
    }
}

fn works(start: journeyman::Builder, book: &Book, limits: Limits) -> Configured<Book> {
    let book = book.clone();
    start.limits(limits).context(move || std::future::ready(Ok::<_, std::convert::Infallible>(book.clone()))).register::<Work>()
}

async fn runner(book: &Book) -> TestRunner<Book> {
    works(Runner::in_memory(), book, limits(1_000)).test_with(Default::default(), seed()).await.unwrap()
}

fn limits(reopenings: u32) -> Limits {
    let mut limits = Limits::default();
    limits.reopenings = reopenings;
    limits
}

fn work(name: impl Into<String>, ms: u64) -> Work {
    let name = name.into();
    // Half of them call one of three targets.
    let target = (name.len() % 2 == 0).then(|| format!("target-{}", ms % 3));
    Work { name, target, ms }
}

/// A call that straddles a failure: its job, and whether it is on disk.
async fn straddle(jobs: Jobs, name: String) -> (String, bool) {
    let answer = jobs.enqueue(work(name.clone(), 500)).key(name.clone()).await;
    match answer {
        Ok(_) => (name, true),
        Err(EnqueueError::Unknown | EnqueueError::Unavailable) => (name, false),
        Err(other) => panic!("{name}: {other}"),
    }
}

/// Any actor, or the disk, fails; 200 times, with 64 attempts in flight.
#[actix::test]
async fn whatever_fails_the_runner_goes_on_with_everything_that_was_acknowledged() {
    whatever_fails(Limits::default().payload_memory).await;
}

/// The same with every payload on disk while its job waits.
#[actix::test]
async fn so_it_does_when_no_payload_is_kept_in_memory() {
    whatever_fails(0).await;
}

async fn whatever_fails(payload_memory: u64) {
    let (book, mut dice) = (Book::default(), fastrand::Rng::with_seed(seed()));
    let mut limits = limits(1_000);
    limits.payload_memory = payload_memory;
    let t = works(Runner::in_memory(), &book, limits).test_with(Default::default(), seed()).await.unwrap();
    let jobs = t.jobs();
    let mut acknowledged = Vec::new();
    let mut kept = 0;
    for round in 0..200 {
        while jobs.stats().pending + jobs.stats().running < 80 {
            let name = format!("job-{round}-{}", acknowledged.len());
            jobs.enqueue(work(name.clone(), dice.u64(100..20_000))).await.unwrap();
            acknowledged.push(name);
        }
        t.advance(Duration::from_millis(dice.u64(1..1_500))).await;
        assert_eq!(book.live(), 64, "all units are at work in round {round}");
        let calls = (0..8).map(|call| straddle(jobs.clone(), format!("straddling-{round}-{call}")));
        let mut calls = std::pin::pin!(join_all(calls));
        let before: HashSet<String> = book.0.lock().unwrap().live.clone();
        let failing = ["queue", "journal", "journal in front", "pool", "breaker", "worker", "the disk", "payloads"][round % 8];
        // Some of the calls have been sent by then, in some rounds.
        let mut early = None;
        for _ in 0..dice.u32(0..3) {
            early = early.or_else(|| calls.as_mut().now_or_never());
            tokio::task::yield_now().await;
        }
        if failing == "the disk" {
            t.disk().fail_syncs(true);
        } else {
            t.kill(failing).await;
        }
        let answers = match early {
            Some(answers) => answers,
            None => t.drive(&mut calls, Duration::from_secs(5)).await.expect("every call is answered in time"),
        };
        // A disk that nobody writes to just then fails later.
        if t.actors("queue") == 0 || answers.iter().any(|(_, is_on_disk)| !is_on_disk) {
            assert!(matches!(jobs.health(), Health::Red { .. }), "{failing} in round {round}: {:?}", jobs.health());
        }
        t.disk().fail_syncs(false);
        if failing != "worker" {
            let live = book.0.lock().unwrap().live.clone();
            kept += before.intersection(&live).count();
        }
        t.advance(Duration::from_secs(70)).await;
        assert_eq!(jobs.health(), Health::Green, "{failing} in round {round}");
        for (name, is_on_disk) in answers {
            // With its key, asking again is harmless.
            let receipt = jobs.enqueue(work(name.clone(), 500)).key(name.clone()).await.unwrap();
            assert!(!(is_on_disk && receipt.is_new()), "{name} was lost");
            acknowledged.push(name);
        }
    }
    t.run_until_idle(Duration::from_secs(100_000)).await.unwrap();
    let stats = jobs.stats();
    let free = t.free_units().await;
    let notes = book.0.lock().unwrap();
    assert_eq!(stats.done, acknowledged.len() as u64);
    assert_eq!(free, 64);
    assert_eq!(notes.overlaps, Vec::<String>::new());
    assert_eq!(notes.most_live, 64, "kept attempts count against the new pool");
    let again: Vec<_> = notes.done.iter().filter(|(_, times)| **times > 1).collect();
    assert!(acknowledged.iter().all(|name| notes.done.contains_key(name)), "all were done");
    assert_eq!(again, Vec::new(), "outcomes are settled from the ledger: nothing is done again");
    println!("{} jobs, {kept} attempts outlived their queue", acknowledged.len());
    assert!(kept > 5_000);
}

/// The same on threads and a disk: with panics only, as a disk does not fail when told.
#[actix::test]
async fn on_real_threads_too() {
    let (book, mut dice) = (Book::default(), fastrand::Rng::with_seed(seed()));
    let dir = tempfile::tempdir().unwrap();
    let mut limits = limits(1_000);
    limits.reopening_pause = Duration::from_millis(1);
    let runner = works(Runner::open(dir.path()), &book, limits).start().await.unwrap();
    let jobs = runner.jobs();
    let mut acknowledged = Vec::new();
    for round in 0..60 {
        for n in 0..80 - jobs.stats().pending.min(80) {
            let name = format!("job-{round}-{n}");
            store(&jobs, &name, dice.u64(1..60)).await;
            acknowledged.push(name);
        }
        let calls = join_all((0..8).map(|call| tokio::spawn(straddle(jobs.clone(), format!("straddling-{round}-{call}")))));
        tokio::time::sleep(Duration::from_millis(dice.u64(0..10))).await;
        runner.kill(["queue", "journal", "pool", "breaker", "worker"][round % 5]);
        let answers = tokio::time::timeout(Duration::from_secs(10), calls).await.expect("every call is answered in time");
        green(&jobs).await;
        for answer in answers {
            let (name, is_on_disk) = answer.unwrap();
            let receipt = store(&jobs, &name, 5).await;
            assert!(!(is_on_disk && receipt.is_new()), "{name} was lost");
            acknowledged.push(name);
        }
    }
    jobs.run_until_idle(Duration::from_secs(60)).await.unwrap();
    assert_eq!(jobs.stats().done, acknowledged.len() as u64);
    runner.shutdown(Duration::from_secs(5)).await.unwrap();
    let notes = book.0.lock().unwrap();
    assert_eq!(notes.overlaps, Vec::<String>::new());
    assert!(notes.most_live <= 64);
    assert!(acknowledged.iter().all(|name| notes.done.contains_key(name)), "all were done");
}

/// Asks until it is on disk: an actor dies a moment after it was told, so any call may meet its end.
async fn store(jobs: &Jobs, name: &str, ms: u64) -> Receipt {
    loop {
        match jobs.enqueue(work(name, ms)).key(name).await {
            Ok(receipt) => return receipt,
            Err(EnqueueError::Unknown | EnqueueError::Unavailable) => green(jobs).await,
            Err(other) => panic!("{other}"),
        }
    }
}

async fn green(jobs: &Jobs) {
    let turns_green = async {
        while jobs.health() != Health::Green {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), turns_green).await.unwrap_or_else(|_| panic!("still {:?}", jobs.health()));
}

#[actix::test]
async fn a_queue_that_is_stuck_is_noticed_within_a_second_and_replaced() {
    let book = Book::default();
    let dir = tempfile::tempdir().unwrap();
    let runner = works(Runner::open(dir.path()), &book, limits(8)).start().await.unwrap();
    let jobs = runner.jobs();
    let long = jobs.enqueue(work("long", 3_000)).await.unwrap();
    while book.live() == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let (release, released) = std::sync::mpsc::channel::<()>();
    runner.stall(move || released.recv().unwrap_or_default());
    let began = std::time::Instant::now();
    assert_eq!(jobs.enqueue(work("caught", 1)).await, Err(EnqueueError::Unknown));
    let noticed = began.elapsed();
    assert!(noticed < Duration::from_secs(3), "noticed after {noticed:?}");
    println!("noticed after {noticed:?}");
    green(&jobs).await;
    let next = jobs.enqueue(work("next", 1)).await.unwrap();
    // The old queue comes back to find that it was replaced.
    drop(release);
    jobs.run_until_idle(Duration::from_secs(20)).await.unwrap();
    assert_eq!((jobs.stats().done, book.0.lock().unwrap().done.get("caught")), (2, None), "{long:?} {next:?}");
    assert_eq!(book.0.lock().unwrap().overlaps, Vec::<String>::new());
    runner.shutdown(Duration::from_secs(5)).await.unwrap();
}

#[actix::test]
async fn a_runner_that_keeps_failing_gives_up_after_growing_pauses() {
    let book = Book::default();
    let t = works(Runner::in_memory(), &book, limits(3)).test().await.unwrap();
    let jobs = t.jobs();
    t.disk().fail_syncs(true);
    assert_eq!(jobs.enqueue(work("a", 1)).await, Err(EnqueueError::Unknown));
    assert!(matches!(jobs.health(), Health::Red { .. }));
    for pause in [100, 200, 400] {
        t.advance(Duration::from_millis(pause - 1)).await;
        assert_eq!(jobs.enqueue(work("b", 1)).await, Err(EnqueueError::Unavailable), "not before {pause} ms");
        t.advance(Duration::from_millis(1)).await;
        assert_eq!(jobs.enqueue(work("c", 1)).await, Err(EnqueueError::Unknown), "open again, and failed again");
    }
    t.advance(Duration::from_secs(3_600)).await;
    let Health::Red { why } = jobs.health() else { panic!("{:?}", jobs.health()) };
    assert!(why.ends_with("(after 3 reopenings in a row)"), "{why}");
    assert_eq!(jobs.run_until_idle(Duration::from_secs(1)).await, Err(CallError::Unavailable.into()));
    assert!(t.shutdown(Duration::from_secs(1)).await.unwrap_err().reason.ends_with("in a row)"));
}

#[actix::test]
async fn a_minute_without_a_failure_begins_a_new_row() {
    let book = Book::default();
    let t = works(Runner::in_memory(), &book, limits(1)).test().await.unwrap();
    for _ in 0..5 {
        t.kill("queue").await;
        t.advance(Duration::from_secs(61)).await;
        assert_eq!(t.jobs().health(), Health::Green);
    }
    t.kill("queue").await;
    t.advance(Duration::from_secs(2)).await;
    t.kill("queue").await;
    t.advance(Duration::from_secs(61)).await;
    assert!(matches!(t.jobs().health(), Health::Red { .. }), "twice within a minute is once too often here");
}

#[actix::test]
async fn a_wait_for_an_idle_queue_survives_and_so_does_a_drain() {
    let book = Book::default();
    let t = runner(&book).await;
    let jobs = t.jobs();
    jobs.enqueue(work("a", 10_000)).await.unwrap();
    t.settle().await;
    let mut idle = std::pin::pin!(jobs.run_until_idle(Duration::from_secs(60)));
    assert!(t.drive(&mut idle, Duration::from_secs(1)).await.is_none());
    t.kill("queue").await;
    assert_eq!(t.drive(&mut idle, Duration::from_secs(60)).await, Some(Ok(())));
    jobs.enqueue(work("b", 10_000)).await.unwrap();
    t.settle().await;
    let mut stop = std::pin::pin!(t.shutdown(Duration::from_secs(60)));
    assert!(stop.as_mut().now_or_never().is_none());
    t.kill("queue").await;
    jobs.enqueue(work("c", 1)).into_future().await.unwrap_err();
    let report = stop.await.unwrap();
    assert_eq!((report.interrupted, jobs.stats().done, book.live()), (0, 2, 0), "the new queue went on with the drain");
}

#[actix::test]
async fn a_wait_for_an_outcome_survives_wherever_the_failure_falls() {
    let book = Book::default();
    let t = runner(&book).await;
    let jobs = t.jobs();
    let id = jobs.enqueue(work("a", 10_000)).await.unwrap().id();
    t.settle().await;
    let mut end = std::pin::pin!(jobs.outcome(id));
    assert!(t.drive(&mut end, Duration::from_secs(1)).await.is_none());
    t.kill("queue").await;
    assert!(t.drive(&mut end, Duration::from_secs(5)).await.is_none(), "it goes on");
    // The record that ends it reaches the disk, and nobody hears so.
    t.set_syncs(Syncs::Unheard);
    assert!(t.drive(&mut end, Duration::from_secs(10)).await.is_none());
    t.set_syncs(Syncs::AtOnce);
    t.kill("journal").await;
    assert_eq!(t.drive(&mut end, Duration::from_secs(60)).await, Some(Ok(JobEnd::Done)));
    assert_eq!(jobs.outcome(id).await, Ok(JobEnd::Done), "and it is remembered");
}

#[actix::test]
async fn a_cancel_that_nobody_heard_of_reaches_the_attempt_all_the_same() {
    let book = Book::default();
    let t = runner(&book).await;
    let jobs = t.jobs();
    let id = jobs.enqueue(work("a", 100_000)).await.unwrap().id();
    t.settle().await;
    // The record reaches the disk, and its answer gets lost.
    t.set_syncs(Syncs::Unheard);
    assert_eq!(jobs.cancel(id).await, Err(CallError::Unknown));
    t.set_syncs(Syncs::AtOnce);
    t.advance(Duration::from_secs(1)).await;
    assert_eq!((jobs.stats().cancelled, jobs.stats().running, book.live()), (1, 0, 1));
    t.advance(Duration::from_secs(200)).await;
    assert_eq!((t.free_units().await, jobs.stats().done), (64, 0), "its unit came back, its outcome changed nothing");
}

#[actix::test]
async fn an_outcome_is_kept_until_its_record_is_proved() {
    let book = Book::default();
    let t = runner(&book).await;
    let jobs = t.jobs();
    jobs.enqueue(work("a", 1_000)).await.unwrap();
    t.advance(Duration::from_millis(500)).await;
    // It ends, its record is written and not synced, and the next reign, which reads it, cannot prove it either.
    t.disk().fail_syncs(true);
    t.advance(Duration::from_millis(650)).await;
    assert_eq!(book.0.lock().unwrap().done.get("a"), Some(&1));
    assert!(matches!(jobs.health(), Health::Red { .. }));
    // The system drops what it could not sync.
    t.disk().crash();
    t.disk().fail_syncs(false);
    t.advance(Duration::from_secs(70)).await;
    assert_eq!((jobs.health(), jobs.stats().done), (Health::Green, 1));
    assert_eq!(book.0.lock().unwrap().done.get("a"), Some(&1), "it ran once, and that is what the journal says now");
}

#[actix::test]
async fn drafts_that_a_crash_has_left_on_a_full_disk_make_room() {
    let book = Book::default();
    let mut t = runner(&book).await;
    t.jobs().enqueue(work("waiting", 1)).delay(Duration::from_secs(5)).await.unwrap();
    t.disk().put("00000000000000000007.snapshot.tmp", b"half a snapshot");
    t.disk().set_free(Some(0));
    t.crash_and_reopen().await.unwrap();
    assert!(matches!(t.jobs().health(), Health::Red { .. }));
    let names = journeyman_core::disk::Disk::list(t.disk()).unwrap();
    assert!(names.iter().all(|name| !name.ends_with(".tmp")), "{names:?}");
}

#[actix::test]
async fn a_stop_does_not_wait_for_a_reopening_longer_than_its_patience() {
    let book = Book::default();
    let t = runner(&book).await;
    t.disk().fail_syncs(true);
    t.jobs().enqueue(work("a", 1)).await.unwrap_err();
    let began = t.now();
    t.shutdown(Duration::from_millis(30)).await.unwrap_err();
    assert!(t.now().duration_since(began).unwrap() <= Duration::from_millis(40));
    assert!(matches!(t.jobs().health(), Health::Red { .. }));
}

#[actix::test]
async fn a_full_disk_makes_a_runner_that_answers_questions_and_takes_nothing_until_there_is_room() {
    let book = Book::default();
    let mut t = runner(&book).await;
    let id = t.jobs().enqueue(work("waiting", 1)).delay(Duration::from_secs(5)).await.unwrap().id();
    t.jobs().enqueue(work("running", 100_000)).await.unwrap();
    t.settle().await;
    t.disk().set_free(Some(0));
    t.crash_and_reopen().await.unwrap();
    let jobs = t.jobs();
    let Health::Red { why } = jobs.health() else { panic!("{:?}", jobs.health()) };
    assert!(why.contains("the disk is full"), "{why}");
    assert!(jobs.get(id).await.unwrap().is_some(), "what waits can be asked for");
    assert_eq!(jobs.stats().pending, 1);
    assert_eq!(jobs.enqueue(work("more", 1)).await, Err(EnqueueError::ReadOnly));
    assert_eq!(jobs.cancel(id).await, Err(CallError::ReadOnly));
    t.advance(Duration::from_secs(60)).await;
    assert_eq!((book.live(), jobs.stats().records), (0, 0), "nothing runs and nothing is written");
    t.disk().set_free(None);
    t.advance(Duration::from_secs(2)).await;
    assert_eq!(jobs.health(), Health::Green);
    t.run_until_idle(Duration::from_secs(200)).await.unwrap();
    assert_eq!(jobs.stats().done, 2);
}

#[actix::test]
async fn a_read_only_runner_stops_in_order() {
    let book = Book::default();
    let mut t = runner(&book).await;
    t.jobs().enqueue(work("waiting", 1)).delay(Duration::from_secs(5)).await.unwrap();
    t.disk().set_free(Some(0));
    t.crash_and_reopen().await.unwrap();
    assert_eq!(t.shutdown(Duration::from_secs(5)).await.unwrap().pending, 1);
    assert_eq!(t.jobs().enqueue(work("more", 1)).await, Err(EnqueueError::ShuttingDown));
}
