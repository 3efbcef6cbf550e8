//! Wrong use and bad directories: each a typed error of `start` with one line that names the thing, and nothing on disk
//! changed. On real directories.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use journeyman::{Configured, Cx, Job, JobResult, Limits, Runner, StartError};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Nothing;

impl Job for Nothing {
    type Context = ();
    type Output = ();
    const KIND: &'static str = "nothing";

    async fn run(self, _: Cx<()>) -> JobResult<()> {
        Ok(())
    }
}

#[derive(Serialize, Deserialize)]
struct Twin;

impl Job for Twin {
    type Context = ();
    type Output = ();
    const KIND: &'static str = "nothing";

    async fn run(self, _: Cx<()>) -> JobResult<()> {
        Ok(())
    }
}

fn on(dir: impl AsRef<Path>) -> Configured<()> {
    Runner::open(dir.as_ref()).register::<Nothing>()
}

/// The one line that a start fails with, and the proof that it left everything as it was.
async fn refusal(dir: &Path, runner: Configured<()>) -> (StartError, String) {
    let before = contents(dir);
    let error = runner.start().await.expect_err("it cannot start");
    assert_eq!(contents(dir), before, "nothing has changed on disk");
    let line = error.to_string();
    assert!(!line.contains('\n'), "one line: {line}");
    (error, line)
}

fn contents(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let Ok(entries) = fs::read_dir(dir) else { return BTreeMap::new() };
    entries
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path()).unwrap_or_default()))
        .collect()
}

/// A directory with one segment in it, sealed.
async fn used() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let runner = on(dir.path().join("jobs")).start().await.unwrap();
    runner.jobs().enqueue(Nothing).delay(Duration::from_secs(3600)).await.unwrap();
    runner.shutdown(Duration::ZERO).await.unwrap();
    dir
}

fn segment(dir: &Path) -> std::path::PathBuf {
    let mut segments: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "segment"))
        .collect();
    assert_eq!(segments.len(), 1);
    segments.remove(0)
}

#[actix::test]
async fn a_directory_that_another_runner_has_open() {
    let dir = used().await;
    let dir = dir.path().join("jobs");
    let owner = on(&dir).start().await.unwrap();
    let (error, line) = refusal(&dir, on(&dir)).await;
    assert!(matches!(error, StartError::Directory(_)) && line.ends_with("is locked: another runner has it open"), "{line}");
    owner.shutdown(Duration::ZERO).await.unwrap();
    on(&dir).start().await.expect("free again").shutdown(Duration::ZERO).await.unwrap();
}

#[actix::test]
async fn a_rolling_restart_waits_for_the_lock() {
    let dir = used().await;
    let dir = dir.path().join("jobs");
    let owner = on(&dir).start().await.unwrap();
    let successor = actix_rt::spawn(on(&dir).wait_for_lock(Duration::from_secs(60)).start());
    owner.jobs().enqueue(Nothing).delay(Duration::from_secs(3600)).await.unwrap();
    owner.shutdown(Duration::ZERO).await.unwrap();
    let successor = successor.await.unwrap().expect("it gets the lock when the owner lets go");
    assert_eq!(successor.jobs().stats().pending, 2);
    successor.shutdown(Duration::ZERO).await.unwrap();
}

#[actix::test]
async fn a_directory_of_somebody_else() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("letters.txt"), "mine").unwrap();
    let (_, line) = refusal(dir.path(), on(dir.path())).await;
    assert!(line.contains("is not a directory of this runner") && line.contains("letters.txt"), "{line}");
}

#[actix::test]
async fn a_file_where_a_directory_should_be() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("jobs");
    fs::write(&file, "mine").unwrap();
    let (_, line) = refusal(dir.path(), on(&file)).await;
    assert!(line.ends_with("is not a directory"), "{line}");
    let (_, line) = refusal(dir.path(), on(file.join("below"))).await;
    assert!(line.contains("is not a directory"), "{line}");
}

#[actix::test]
async fn a_journal_from_a_newer_format() {
    let dir = used().await;
    let dir = dir.path().join("jobs");
    let path = segment(&dir);
    let mut bytes = fs::read(&path).unwrap();
    bytes[10] = 9;
    let checksum = crc32c::crc32c(&bytes[..92]);
    bytes[92..96].copy_from_slice(&checksum.to_le_bytes());
    fs::write(&path, bytes).unwrap();
    let (_, line) = refusal(&dir, on(&dir)).await;
    assert!(line.contains("needs a reader of format 9; this one knows format 1"), "{line}");
}

/// Nothing stands in for it: neither the snapshot before nor the segments since, which are all there and sound.
#[actix::test]
async fn a_snapshot_from_a_newer_format() {
    let dir = tempfile::tempdir().unwrap();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/plain-snapshots");
    let mut snapshots = Vec::new();
    for entry in fs::read_dir(golden).unwrap().map(|entry| entry.unwrap()) {
        let path = dir.path().join(entry.file_name());
        fs::copy(entry.path(), &path).unwrap();
        snapshots.extend(path.extension().is_some_and(|end| end == "snapshot").then_some(path));
    }
    assert_eq!(snapshots.len(), 2);
    on(dir.path()).start().await.unwrap().shutdown(Duration::ZERO).await.unwrap();
    let newest = snapshots.iter().max().unwrap();
    let mut bytes = fs::read(newest).unwrap();
    bytes[10] = 9;
    let checksum = crc32c::crc32c(&bytes[..124]);
    bytes[124..128].copy_from_slice(&checksum.to_le_bytes());
    fs::write(newest, bytes).unwrap();
    let (_, line) = refusal(dir.path(), on(dir.path())).await;
    assert!(line.contains("needs a reader of format 9; this one knows format 1"), "{line}");
}

#[actix::test]
async fn a_damaged_journal() {
    let dir = used().await;
    let dir = dir.path().join("jobs");
    let path = segment(&dir);
    let mut bytes = fs::read(&path).unwrap();
    // In the body of the first batch, which the seal behind it proves.
    bytes[170] ^= 1;
    fs::write(&path, bytes).unwrap();
    let (error, line) = refusal(&dir, on(&dir)).await;
    assert!(matches!(error, StartError::Journal { .. }) && line.contains("is damaged at byte 96: expected"), "{line}");
}

/// A change that makes the limits impossible, and what is said about it.
type Case = (fn(&mut Limits), &'static str);

#[actix::test]
async fn limits_that_contradict_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let cases: [Case; 9] = [
        (|l| l.capacity = 0, "capacity is 0"),
        (|l| l.worker_arbiters = 0, "worker_arbiters is 0"),
        (|l| l.pending = 0, "pending is 0"),
        (|l| l.batch_bytes = 1000, "batch_bytes (1000) cannot hold one record"),
        (|l| l.batch_bytes = (256 << 20) + 1, "batch_bytes is 268435457: it takes at most 268435456"),
        (|l| l.record_bytes = (16 << 20) + 1, "record_bytes is 16777217: it takes at most 16777216"),
        (|l| l.segment_bytes = 1 << 20, "segment_bytes (1048576) is less than batch_bytes"),
        (|l| l.journal_bytes = 1 << 20, "journal_bytes (1048576) is less than one segment"),
        (|l| l.record_bytes = 10, "record_bytes is 10"),
    ];
    for (change, expected) in cases {
        let mut limits = Limits::default();
        change(&mut limits);
        let (error, line) = refusal(dir.path(), on(dir.path()).limits(limits)).await;
        assert!(matches!(error, StartError::Limits(_)) && line.contains(expected), "{line}");
    }
    let (_, line) = refusal(dir.path(), on(dir.path()).capacity(0)).await;
    assert!(line.contains("capacity is 0: nothing could ever run"), "{line}");
}

#[actix::test]
async fn a_kind_registered_twice() {
    let dir = tempfile::tempdir().unwrap();
    let (_, line) = refusal(dir.path(), on(dir.path()).register::<Twin>()).await;
    assert_eq!(line, "kind nothing is registered twice");
}

#[actix::test]
async fn no_kind_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let none = Runner::open(dir.path()).context(|| async { Ok::<_, std::io::Error>(()) });
    let (_, line) = refusal(dir.path(), none).await;
    assert_eq!(line, "no job is registered: there is nothing that this runner could run");
}

#[actix::test]
async fn a_context_that_cannot_be_made() {
    let dir = used().await;
    let dir = dir.path().join("jobs");
    let failing = Runner::open(&dir).context(|| async { Err::<(), _>(std::io::Error::other("no route")) }).register::<Nothing>();
    let (_, line) = refusal(&dir, failing).await;
    assert_eq!(line, "the context of the jobs could not be made: no route");
    let panicking =
        Runner::open(&dir).context(|| async { if true { panic!("no luck") } else { Ok::<(), std::io::Error>(()) } }).register::<Nothing>();
    let (_, line) = refusal(&dir, panicking).await;
    assert!(line.contains("panicked"), "{line}");
    for _ in 0..20 {
        let failing = Runner::open(&dir).context(|| async { Err::<(), _>(std::io::Error::other("no route")) }).register::<Nothing>();
        assert!(matches!(failing.start().await, Err(StartError::Context(_))), "never a lock that the try before left");
    }
    on(&dir).start().await.expect("and the lock is free").shutdown(Duration::ZERO).await.unwrap();
}

#[actix::test]
async fn a_start_and_stop_that_does_nothing_leaves_the_files_as_they_were() {
    let dir = used().await;
    let dir = dir.path().join("jobs");
    let before = contents(&dir);
    on(&dir).start().await.unwrap().shutdown(Duration::ZERO).await.unwrap();
    assert_eq!(contents(&dir), before);
}

#[actix::test]
async fn two_runners_in_memory_run_beside_each_other_and_make_no_directory() {
    let start = || Runner::in_memory().register::<Nothing>().start();
    let runners = [start().await.unwrap(), start().await.unwrap()];
    for runner in &runners {
        let jobs = runner.jobs();
        jobs.enqueue(Nothing).await.unwrap();
        jobs.run_until_idle(Duration::from_secs(60)).await.unwrap();
        assert_eq!(jobs.stats().done, 1, "its own job");
    }
    for runner in runners {
        runner.shutdown(Duration::ZERO).await.unwrap();
    }
    assert!(!Path::new("in memory").exists());
}
