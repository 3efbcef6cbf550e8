//! Payloads beyond their share of memory: put on disk when their jobs wait, back when they are selected, and always the job's own bytes,
//! whatever becomes of the job, the runner or the files.

use std::collections::HashMap;
use std::future::IntoFuture;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use journeyman::testing::TestRunner;
use journeyman::{Cancelled, Configured, Cx, Failure, Health, Job, JobResult, JobState, Limits, Policy, Runner, Target};
use journeyman_core::disk::{Disk, MemDisk};
use serde::{Deserialize, Serialize};

use crate::jobs::{DAY, HOUR, MINUTE, SECOND, seed};

/// A job that knows what it has to carry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Parcel {
    number: u64,
    target: Option<String>,
    /// Failures before it succeeds.
    fails: u32,
    ms: u64,
    content: String,
}

#[derive(Clone, Default)]
struct Delivered(Arc<Mutex<HashMap<u64, u32>>>);

impl Delivered {
    fn times(&self, number: u64) -> u32 {
        self.0.lock().unwrap().get(&number).copied().unwrap_or_default()
    }

    fn total(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

fn parcel(number: u64) -> Parcel {
    Parcel { number, target: None, fails: 0, ms: 0, content: content(number) }
}

/// So much for so many, and never the same.
fn content(number: u64) -> String {
    format!("{number}-").repeat(1 + number as usize * 7 % 90)
}

impl Job for Parcel {
    type Context = Delivered;
    type Output = ();
    const KIND: &'static str = "parcel";

    fn target(&self) -> Option<Target> {
        self.target.as_deref().map(Target::new)
    }

    async fn run(self, cx: Cx<Delivered>) -> JobResult<()> {
        if self.content != content(self.number) {
            return Err(Failure::permanent("somebody else's content"));
        }
        if cx.meta().iter().any(|(name, value)| name == "number" && *value != self.number.to_string()) {
            return Err(Failure::permanent("somebody else's meta"));
        }
        cx.sleep(Duration::from_millis(self.ms)).await;
        if cx.attempt() <= self.fails {
            return Err(Failure::transient("not yet"));
        }
        *cx.context().0.lock().unwrap().entry(self.number).or_default() += 1;
        Ok(())
    }
}

fn limits(payload_memory: u64) -> Limits {
    let mut limits = Limits::default();
    limits.payload_memory = payload_memory;
    limits
}

fn parcels(delivered: &Delivered, payload_memory: u64) -> Configured<Delivered> {
    let delivered = delivered.clone();
    let context = move || std::future::ready(Ok::<_, std::convert::Infallible>(delivered.clone()));
    Runner::in_memory().context(context).register::<Parcel>().limits(limits(payload_memory))
}

async fn on(disk: &MemDisk, delivered: &Delivered, payload_memory: u64) -> TestRunner<Delivered> {
    parcels(delivered, payload_memory).test_on(disk.clone(), seed()).await.unwrap()
}

/// The files of payloads that are there.
fn files(disk: &impl Disk) -> Vec<String> {
    let mut names = disk.list().unwrap();
    names.retain(|name| name.ends_with(".payloads.tmp"));
    names.sort();
    names
}

#[actix::test]
async fn a_job_that_waits_beyond_the_share_of_memory_is_on_disk_and_runs_with_its_own_payload() {
    let (disk, delivered) = (MemDisk::default(), Delivered::default());
    let t = on(&disk, &delivered, 0).await;
    let jobs = t.jobs();
    for number in 0..200u64 {
        let mut job = jobs.enqueue(parcel(number)).delay(HOUR);
        if number % 3 == 0 {
            job = job.meta("number", number.to_string());
        }
        if number % 4 == 0 {
            job = job.key(format!("key {number}"));
        }
        if number % 5 == 0 {
            job = job.policy(Policy::default().attempts(2));
        }
        job.await.unwrap();
    }
    t.settle().await;
    let stats = t.jobs().stats();
    let meta: u64 = (0..200u64).filter(|n| n % 3 == 0).map(|n| (6 + n.to_string().len()) as u64).sum();
    assert_eq!((stats.payload_memory, stats.pending), (meta, 200), "nothing but the meta is in memory");
    assert!(stats.payload_disk > 20_000 && stats.payload_files > stats.payload_disk, "{stats:?}");
    assert_eq!(files(&disk).len(), 1);
    let waiting = t.enqueued::<Parcel>().await;
    assert!(waiting.iter().eq(&(0..200).map(parcel).collect::<Vec<_>>()), "a test sees them all the same");
    t.advance(2 * HOUR).await;
    assert_eq!((t.jobs().stats().done, delivered.total()), (200, 200));
    t.settle().await;
    assert_eq!((t.jobs().stats().payload_disk, t.free_units().await), (0, 64));
}

#[actix::test]
async fn within_the_share_of_memory_no_file_is_made() {
    let (disk, delivered) = (MemDisk::default(), Delivered::default());
    let t = on(&disk, &delivered, 1 << 20).await;
    let jobs = t.jobs();
    join_all((0..200).map(|number| jobs.enqueue(parcel(number)).delay(HOUR).into_future())).await;
    t.advance(2 * HOUR).await;
    assert_eq!((delivered.total(), files(&disk).len(), t.jobs().stats().payload_files), (200, 0, 0));
}

#[actix::test]
async fn the_share_of_memory_is_kept_and_the_jobs_that_came_first_stay() {
    let (disk, delivered) = (MemDisk::default(), Delivered::default());
    let share = 10_000;
    let t = on(&disk, &delivered, share).await;
    for number in 0..500 {
        t.jobs().enqueue(parcel(number)).delay(HOUR + Duration::from_millis(number)).await.unwrap();
        t.settle().await;
        let stats = t.jobs().stats();
        assert!(stats.payload_memory <= share, "{stats:?}");
    }
    let stats = t.jobs().stats();
    assert!(stats.payload_memory > share - 1_000 && stats.payload_disk > 5 * share, "{stats:?}");
    // Those in memory need no file.
    files(&disk).iter().for_each(|name| disk.remove(name).unwrap());
    t.advance(HOUR).await;
    t.advance(Duration::from_millis(20)).await;
    assert_eq!((1..=20).map(|number| delivered.times(number)).sum::<u32>(), 20);
}

#[actix::test]
async fn what_fails_waits_on_disk_too_and_comes_back_for_each_attempt() {
    let (disk, delivered) = (MemDisk::default(), Delivered::default());
    let t = on(&disk, &delivered, 0).await;
    for number in 0..60 {
        let target = (number % 2 == 0).then(|| format!("target {}", number % 6));
        t.jobs().enqueue(Parcel { fails: 3, target, ..parcel(number) }).await.unwrap();
    }
    t.settle().await;
    let stats = t.jobs().stats();
    assert!(stats.payload_memory == 0 && stats.payload_disk > 0 && stats.pending == 60, "{stats:?}");
    t.run_until_idle(DAY).await.unwrap();
    assert_eq!((delivered.total(), t.jobs().stats().done, t.free_units().await), (60, 60, 64));
}

#[actix::test]
async fn jobs_that_are_cancelled_on_any_way_leave_nothing_behind() {
    let (disk, delivered) = (MemDisk::default(), Delivered::default());
    let t = parcels(&delivered, 0).capacity(8).test_on(disk.clone(), seed()).await.unwrap();
    let mut dice = fastrand::Rng::with_seed(seed());
    let mut cancelled = [0; 2];
    for round in 0..60 {
        let jobs = t.jobs();
        let receipts =
            join_all((0..10).map(|n| jobs.enqueue(Parcel { ms: 20, ..parcel(round * 10 + n) }).delay(SECOND).into_future())).await;
        // Before they are put away, after it, when they have just been selected, and while they run.
        t.advance(Duration::from_millis(dice.u64(0..4) * 500)).await;
        for receipt in receipts {
            if dice.bool() {
                continue;
            }
            let answer = jobs.cancel(receipt.unwrap().id()).await.unwrap();
            cancelled[usize::from(answer == Cancelled::Stopping)] += u32::from(answer != Cancelled::AlreadyEnded);
            t.advance(Duration::from_millis(dice.u64(0..3))).await;
        }
    }
    t.run_until_idle(DAY).await.unwrap();
    t.settle().await;
    let stats = t.jobs().stats();
    assert!(cancelled.iter().all(|count| *count > 10) && stats.done + stats.cancelled == 600, "{cancelled:?} {stats:?}");
    assert_eq!((stats.payload_memory, stats.payload_disk, t.free_units().await), (0, 0, 8));
    assert!(stats.payload_files <= 16 << 20 && files(&disk).len() <= 1);
}

#[actix::test]
async fn a_crash_and_a_stop_lose_no_payload_and_leave_no_file_of_before() {
    let (disk, delivered) = (MemDisk::default(), Delivered::default());
    let mut t = on(&disk, &delivered, 3_000).await;
    let mut number = 0;
    for round in 0..8 {
        for _ in 0..50 {
            t.jobs().enqueue(Parcel { fails: number as u32 % 2, ..parcel(number) }).delay(number as u32 % 3 * MINUTE).await.unwrap();
            number += 1;
        }
        t.advance(20 * SECOND).await;
        // Of whoever had the directory before.
        disk.put("00000000000000000999.payloads.tmp", b"of no use");
        match round % 4 {
            0 => t.crash_and_reopen().await.unwrap(),
            1 => drop(t.stop_and_reopen(SECOND).await.unwrap()),
            2 => {
                t.kill("payloads").await;
                t.advance(SECOND).await;
            }
            _ => {
                t.kill("queue").await;
                t.advance(SECOND).await;
            }
        }
        t.settle().await;
        assert!(!files(&disk).contains(&"00000000000000000999.payloads.tmp".to_owned()), "{:?}", files(&disk));
        let stats = t.jobs().stats();
        assert!(stats.payload_memory <= 3_000 && stats.payload_disk > 0, "found at the open: {stats:?}");
    }
    t.run_until_idle(DAY).await.unwrap();
    assert_eq!((delivered.total() as u64, t.jobs().stats().done, t.free_units().await), (number, number, 64));
}

#[actix::test]
async fn a_file_that_is_damaged_is_never_believed_and_every_job_runs_with_its_own_payload() {
    let (disk, delivered) = (MemDisk::default(), Delivered::default());
    let t = on(&disk, &delivered, 0).await;
    for number in 0..40 {
        t.jobs().enqueue(parcel(number)).delay(MINUTE).await.unwrap();
    }
    t.settle().await;
    for name in files(&disk) {
        let bytes: Vec<u8> = disk.read(&name).unwrap().iter().map(|byte| byte ^ 1).collect();
        disk.put(&name, &bytes);
    }
    let jobs = t.jobs();
    t.advance(MINUTE).await;
    assert!(matches!(jobs.health(), Health::Red { .. }), "it is being reopened");
    t.advance(MINUTE).await;
    assert_eq!((delivered.total(), jobs.stats().done, jobs.stats().rejected), (40, 40, 0));
    assert_eq!((jobs.health(), t.free_units().await), (Health::Green, 64));
}

#[actix::test]
async fn files_that_are_gone_are_made_up_for_from_the_journal() {
    let (disk, delivered) = (MemDisk::default(), Delivered::default());
    let t = on(&disk, &delivered, 0).await;
    let first = t.jobs().enqueue(parcel(1)).delay(MINUTE).await.unwrap().id();
    t.settle().await;
    files(&disk).iter().for_each(|name| disk.remove(name).unwrap());
    assert!(matches!(t.jobs().get(first).await.unwrap().unwrap().state, JobState::Pending { .. }), "what is known of it needs no file");
    t.advance(MINUTE).await;
    assert!(matches!(t.jobs().health(), Health::Red { .. }), "it is being reopened");
    t.advance(SECOND).await;
    assert_eq!((delivered.times(1), t.jobs().health()), (1, Health::Green));
}

#[actix::test]
async fn a_full_disk_leaves_payloads_in_memory_until_there_is_room() {
    let (disk, delivered) = (MemDisk::default(), Delivered::default());
    let t = on(&disk, &delivered, 1_000).await;
    disk.set_free(Some(70 << 20));
    for number in 0..40 {
        t.jobs().enqueue(parcel(number)).delay(HOUR).await.unwrap();
    }
    t.settle().await;
    let stats = t.jobs().stats();
    assert!(stats.payload_disk == 0 && stats.payload_memory > 1_000 && files(&disk).is_empty(), "{stats:?}");
    let Health::Amber { why } = t.jobs().health() else { panic!("somebody should look: {:?}", t.jobs().health()) };
    assert!(why.contains("payloads cannot be put on disk, and stay in memory"), "{why}");
    disk.set_free(None);
    t.advance(11 * SECOND).await;
    let stats = t.jobs().stats();
    assert!(stats.payload_memory <= 1_000 && stats.payload_disk > 0, "{stats:?}");
    assert_eq!(t.jobs().health(), Health::Green);
    t.advance(2 * HOUR).await;
    assert_eq!(delivered.total(), 40);
}

#[actix::test]
async fn jobs_that_end_make_room_in_the_files() {
    let (disk, delivered) = (MemDisk::default(), Delivered::default());
    let mut limits = limits(0);
    limits.record_bytes = 4 << 20;
    let t = parcels(&delivered, 0).limits(limits).test_on(disk.clone(), seed()).await.unwrap();
    // Of each forty, one waits for long.
    let large = |number| Parcel { content: "x".repeat(1 << 20), ..parcel(number) };
    for number in 0..160 {
        let delay = if number % 40 == 0 { HOUR } else { SECOND };
        t.jobs().enqueue(large(number)).delay(delay).await.unwrap();
    }
    t.settle().await;
    assert!(files(&disk).len() >= 9, "{:?}", files(&disk));
    t.advance(MINUTE).await;
    let stats = t.jobs().stats();
    assert_eq!(stats.pending, 4);
    assert!(stats.payload_files <= 2 * stats.payload_disk + (16 << 20) + 64, "{stats:?}");
    assert!(files(&disk).len() <= 3, "{:?}", files(&disk));
    t.advance(2 * HOUR).await;
    assert_eq!(t.jobs().stats().pending, 0);
}

/// On real threads and a real disk.
#[actix::test]
async fn a_runner_with_nothing_in_memory_does_all_its_work() {
    let dir = tempfile::tempdir().unwrap();
    let delivered = Delivered::default();
    let start = || {
        let (delivered, dir) = (delivered.clone(), dir.path().join("jobs"));
        let context = move || std::future::ready(Ok::<_, std::convert::Infallible>(delivered.clone()));
        let build = Runner::open(dir).context(context).register::<Parcel>().limits(limits(0));
        build.wait_for_lock(10 * SECOND).start()
    };
    let names = || {
        let entries = std::fs::read_dir(dir.path().join("jobs")).unwrap();
        entries
            .map(|entry| entry.unwrap())
            .filter(|entry| entry.file_name().to_string_lossy().ends_with(".payloads.tmp"))
            .collect::<Vec<_>>()
    };
    let runner = start().await.unwrap();
    let jobs = runner.jobs();
    jobs.enqueue_all((0..2_000).map(|number| jobs.enqueue(parcel(number)).delay(Duration::from_millis(200)))).await.unwrap();
    for number in 2_000..2_200 {
        jobs.enqueue(parcel(number)).delay(HOUR).await.unwrap();
    }
    while jobs.stats().done < 2_000 {
        actix_rt::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(delivered.total(), 2_000);
    use std::os::unix::fs::PermissionsExt;
    assert!(names().iter().all(|entry| entry.metadata().unwrap().permissions().mode() & 0o777 == 0o600) && !names().is_empty());
    runner.shutdown(SECOND).await.unwrap();
    assert!(names().is_empty(), "a clean close leaves none");
    // One that was killed leaves some.
    std::fs::write(dir.path().join("jobs").join(format!("{:020}.payloads.tmp", 0)), b"of before").unwrap();
    let runner = start().await.unwrap();
    let stats = runner.jobs().stats();
    assert_eq!((stats.pending, stats.payload_memory), (200, 0), "put away as they were read");
    assert!(stats.payload_disk > 0);
    // One that is dropped ends as by a crash, in the middle of its work.
    let jobs = runner.jobs();
    jobs.enqueue_all((3_000..4_000).map(|number| jobs.enqueue(Parcel { ms: 1, ..parcel(number) }))).await.unwrap();
    drop(runner);
    let runner = start().await.unwrap();
    let jobs = runner.jobs();
    while jobs.stats().done < 3_000 {
        actix_rt::time::sleep(Duration::from_millis(10)).await;
    }
    assert!((3_000..4_000).all(|number| delivered.times(number) > 0) && jobs.stats().rejected == 0);
    runner.shutdown(SECOND).await.unwrap();
    assert!(names().is_empty());
}
