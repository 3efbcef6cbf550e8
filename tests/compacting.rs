//! The journal is compacted beside the queue: when it has grown enough, at its own pace, again and again; a failure turns health
//! amber, loses nothing and is tried again later each time.

use std::time::Duration;

use journeyman::testing::TestRunner;
use journeyman::{Configured, EnqueueError, Health, Jobs, Limits};
use journeyman_core::disk::{Disk, MemDisk};

use crate::jobs::{DAY, HOUR, Log, MINUTE, SECOND, Step, seed, task, tasks};

/// A runner whose journal is compacted each 256 KiB.
fn small(log: &Log) -> Configured<Log> {
    tasks(log).limits(small_limits())
}

fn small_limits() -> Limits {
    let mut limits = Limits::default();
    limits.capacity = 8;
    limits.record_bytes = 16 << 10;
    limits.batch_bytes = 64 << 10;
    limits.segment_bytes = 64 << 10;
    limits.journal_bytes = 1 << 20;
    limits
}

/// So many jobs of a kilobyte each, which are done at once.
async fn pass(t: &TestRunner<Log>, count: usize) {
    let done = t.jobs().stats().done;
    for n in 0..count {
        t.jobs().enqueue(task(&"x".repeat(1_000 + n % 7), &[Step::Ok])).await.expect("room");
        if n % 16 == 0 {
            t.advance(SECOND).await;
        }
    }
    t.advance(SECOND).await;
    assert_eq!(t.jobs().stats().done, done + count as u64);
}

fn names(disk: &MemDisk, suffix: &str) -> Vec<String> {
    let mut names: Vec<String> = disk.list().unwrap().into_iter().filter(|name| name.ends_with(suffix)).collect();
    names.sort();
    names
}

fn flip(disk: &MemDisk, name: &str) -> Vec<u8> {
    let bytes = disk.read(name).unwrap();
    let mut damaged = bytes.clone();
    damaged[(bytes.len() / 3).min(10_000)] ^= 1;
    disk.put(name, &damaged);
    bytes
}

/// Enqueues what waits for long until the journal is full, faster than a compaction comes to its end.
async fn fill(jobs: &Jobs) {
    let refused = loop {
        if let Err(refused) = jobs.enqueue(task(&"x".repeat(8_000), &[Step::Ok])).delay(DAY).await {
            break refused;
        }
    };
    assert_eq!(refused, EnqueueError::Full("journal bytes"));
}

/// Asks for one more job until it is taken, for some hours.
async fn is_taken(t: &TestRunner<Log>) -> bool {
    for _ in 0..8 {
        if t.jobs().enqueue(task("one more", &[Step::Ok])).delay(DAY).await.is_ok() {
            return true;
        }
        t.advance(HOUR).await;
    }
    false
}

/// Then all of it is the reserve of the snapshot, and so little has come since that no compaction is due.
#[actix::test]
async fn a_journal_that_was_full_before_its_compaction_ended_takes_new_work_again() {
    let log = Log::default();
    let mut limits = small_limits();
    limits.compaction_rate = 1 << 10;
    let t = tasks(&log).limits(limits).test_with(MemDisk::default(), seed()).await.unwrap();
    fill(&t.jobs()).await;
    t.advance(HOUR).await;
    assert!(is_taken(&t).await, "{:?}", t.jobs().stats());
    assert!(t.jobs().stats().bytes < 768 << 10, "{:?}", t.jobs().stats());
}

/// Nothing is running or due, and all new work is refused: so nothing is ever written by which the old segments are sealed.
#[actix::test]
async fn a_journal_that_is_full_when_it_is_opened_takes_new_work_again() {
    let log = Log::default();
    let mut limits = small_limits();
    limits.compaction_rate = 1 << 10;
    let mut t = tasks(&log).limits(limits).test_with(MemDisk::default(), seed()).await.unwrap();
    fill(&t.jobs()).await;
    t.stop_and_reopen(SECOND).await.unwrap();
    assert_eq!(t.jobs().stats().compactions, 0);
    assert!(is_taken(&t).await, "{:?}", t.jobs().stats());
}

#[actix::test]
async fn the_disk_holds_what_is_alive_and_not_what_was() {
    let log = Log::default();
    let mut t = small(&log).test_with(MemDisk::default(), seed()).await.unwrap();
    let pinned = t.jobs().enqueue(task("in a year", &[Step::Ok])).delay(365 * DAY).await.unwrap().id();
    let mut most = 0;
    for _ in 0..12 {
        pass(&t, 200).await;
        let bytes: usize = t.disk().list().unwrap().iter().map(|name| t.disk().read(name).unwrap().len()).sum();
        most = most.max(bytes);
    }
    let stats = t.jobs().stats();
    println!("{} compactions, at most {most} bytes, {} of them the journal's now", stats.compactions, stats.bytes);
    assert!(stats.compactions >= 6, "{stats:?}");
    // Each segment is laid out a mebibyte ahead, so what counts is how few they are.
    assert!(most <= 12 << 20, "{most} bytes");
    assert!(stats.bytes <= 768 << 10, "{stats:?}");
    assert!(names(t.disk(), ".snapshot").len() <= 2 && names(t.disk(), ".tmp").is_empty());
    assert_eq!(t.jobs().health(), Health::Green);
    let last = t.jobs().enqueue(task("last", &[Step::Ok])).delay(HOUR).await.unwrap().id();
    t.crash_and_reopen().await.unwrap();
    let stats = t.jobs().stats();
    assert_eq!((stats.done, stats.pending), (2_400, 2), "counts of all that ever was are kept");
    assert!(t.jobs().get(pinned).await.unwrap().is_some());
    let next = t.jobs().enqueue(task("next", &[Step::Ok])).await.unwrap().id();
    assert_eq!(next.ticket().0, last.ticket().0 + 1, "no number is given twice");
}

#[actix::test]
async fn damage_that_it_meets_turns_health_amber_deletes_nothing_and_is_tried_again_with_growing_pauses() {
    let log = Log::default();
    let t = small(&log).test_with(MemDisk::default(), seed()).await.unwrap();
    pass(&t, 150).await;
    assert_eq!(t.jobs().stats().compactions, 0, "not enough yet");
    let first = names(t.disk(), ".segment")[0].clone();
    let sound = flip(t.disk(), &first);
    pass(&t, 120).await;
    t.advance(SECOND).await;
    let Health::Amber { why } = t.jobs().health() else { panic!("{:?}", t.jobs().health()) };
    assert!(why.contains(&first), "{why}");
    assert_eq!(t.jobs().stats().compactions, 0);
    pass(&t, 50).await;
    assert!(names(t.disk(), ".segment").contains(&first) && names(t.disk(), ".tmp").is_empty());
    t.disk().put(&first, &sound);
    t.advance(20 * MINUTE).await;
    assert_eq!(t.jobs().health(), Health::Green);
    assert!(t.jobs().stats().compactions >= 1);
}

#[actix::test]
async fn a_damaged_snapshot_is_made_up_for_reported_and_replaced() {
    let log = Log::default();
    let mut t = small(&log).test_with(MemDisk::default(), seed()).await.unwrap();
    let waiting = t.jobs().enqueue(task("waiting", &[Step::Ok])).delay(365 * DAY).await.unwrap().id();
    pass(&t, 800).await;
    assert!(t.jobs().stats().compactions >= 2);
    let snapshots = names(t.disk(), ".snapshot");
    flip(t.disk(), &snapshots[1]);
    t.crash_and_reopen().await.unwrap();
    let Health::Amber { why } = t.jobs().health() else { panic!("{:?}", t.jobs().health()) };
    assert!(why.contains(&snapshots[1]), "{why}");
    assert_eq!((t.jobs().stats().done, t.jobs().stats().pending), (800, 1), "nothing is lost");
    assert!(t.jobs().get(waiting).await.unwrap().is_some());
    pass(&t, 400).await;
    assert_eq!(t.jobs().health(), Health::Green);
    assert!(!names(t.disk(), ".snapshot").contains(&snapshots[1]), "swept away");
}

#[actix::test]
async fn it_may_be_cut_short_at_any_time() {
    let log = Log::default();
    let mut limits = small_limits();
    // A second for each 64 KiB: there is time to meet it at work.
    limits.compaction_rate = 64 << 10;
    let mut t = tasks(&log).limits(limits).test_with(MemDisk::default(), seed()).await.unwrap();
    for n in 0..300 {
        t.jobs().enqueue(task(&format!("{n}{}", "x".repeat(1_000)), &[Step::Ok])).delay(DAY).await.unwrap();
    }
    t.settle().await;
    assert_eq!(names(t.disk(), ".tmp").len(), 1, "it is at work");
    t.kill("compactor").await;
    t.advance(2 * SECOND).await;
    assert_eq!(t.jobs().health(), Health::Green, "its death is that of a core actor");
    still_there(&t.jobs());
    t.jobs().enqueue(task("a", &[Step::Ok])).delay(DAY).await.unwrap();
    t.settle().await;
    assert_eq!(names(t.disk(), ".tmp").len(), 1, "it has begun anew, and swept the old draft");
    t.stop_and_reopen(SECOND).await.unwrap();
    t.jobs().enqueue(task("b", &[Step::Ok])).delay(DAY).await.unwrap();
    t.settle().await;
    t.crash_and_reopen().await.unwrap();
    still_there(&t.jobs());
    t.jobs().enqueue(task("c", &[Step::Ok])).delay(DAY).await.unwrap();
    t.advance(MINUTE).await;
    assert_eq!(t.jobs().stats().compactions, 1);
    t.crash_and_reopen().await.unwrap();
    still_there(&t.jobs());
    t.advance(2 * DAY).await;
    assert_eq!(t.jobs().stats().done, 303);
}

fn still_there(jobs: &Jobs) {
    assert!(jobs.stats().pending >= 300, "{:?}", jobs.stats());
}

#[actix::test]
async fn it_writes_no_faster_than_told() {
    let log = Log::default();
    let mut limits = Limits::default();
    limits.journal_bytes = 72 << 20;
    limits.compaction_rate = 1 << 20;
    let t = tasks(&log).limits(limits).test_with(MemDisk::default(), seed()).await.unwrap();
    for _ in 0..20 {
        let jobs = t.jobs();
        let all = (0..100).map(|n| jobs.enqueue(task(&format!("{n}{}", "x".repeat(10_000)), &[Step::Ok])).delay(DAY));
        jobs.enqueue_all(all).await.unwrap();
    }
    t.settle().await;
    let began = t.now();
    let mut took = Duration::ZERO;
    while t.jobs().stats().compactions == 0 {
        t.advance(SECOND).await;
        took = t.now().duration_since(began).unwrap();
        assert!(took < HOUR, "{:?}", t.jobs());
    }
    let bytes = t.jobs().stats().snapshot_bytes;
    let least = Duration::from_millis(bytes * 1_000 / (1 << 20) - 1_000);
    assert!(took >= least && took <= least + 10 * SECOND, "{bytes} bytes in {took:?}");
}
