//! Proves that every format that was ever released is read: directories that were written once, and stay in the repository as they are,
//! open to exactly the state and the history that stand beside them, and the reader in Python, which was written from the page of the
//! format, reads the same.
//!
//! A new directory, and until 0.1.0 is released a deliberate change of the format, is cut by `JOURNEYMAN_GOLDEN=cut cargo test --test
//! runner golden::`; the changelog says why. Of the mebibyte of zeros behind the last frame of a segment only a few bytes are kept.

mod cut;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use journeyman::{Cx, Job, JobResult, Runner};
use journeyman_core::Queue;
use journeyman_core::disk::FileDisk;
use journeyman_core::queue::Phase;
use journeyman_core::store::Store;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use crate::support::figures::held;

/// The directories, each for what is in it.
const NAMES: [&str; 8] = ["unused", "fresh", "every-op", "rotated", "torn", "sealed", "plain-snapshots", "sled-snapshot"];

#[test]
fn every_golden_directory_opens_to_the_state_beside_it() {
    let mut opened = 0;
    for (name, copy) in copies() {
        let before = crate::kit::below(copy.path()).into_iter().map(|path| fs::read(path).expect("it reads")).collect::<Vec<_>>();
        let disk = Arc::new(FileDisk::open(copy.path()).expect("it is ours"));
        let store = Store::open(disk.clone(), &*journeyman::snapshots::store(copy.path(), disk)).expect("it opens");
        assert!(store.passed_over.is_empty(), "{name}: {:?}", store.passed_over);
        store.queue.check();
        let after = crate::kit::below(copy.path()).into_iter().map(|path| fs::read(path).expect("it reads")).collect::<Vec<_>>();
        assert!(before == after, "{name}: opening changes nothing");
        let state = format!("snapshot {:?}, torn {}\n{}", store.snapshot, store.recovery.torn().is_some(), state(&store.queue));
        expected(&name, "state.txt", &state);
        opened += 1;
    }
    held("F24", opened, "golden directories");
}

#[test]
fn every_golden_directory_has_the_history_beside_it() {
    for (name, copy) in copies() {
        assert_eq!(tool(&["verify", &path_of(&copy)]).0, 0, "{name} is sound");
        let (status, history) = tool(&["dump", &path_of(&copy), "--json", "--payloads"]);
        assert_eq!(status, 0, "{name}");
        expected(&name, "dump.jsonl", &history);
    }
}

/// Written from `docs/journal-format.md` alone, so that the page is known to say all that it takes.
#[test]
fn a_reader_written_from_the_page_of_the_format_reads_the_same() {
    if Command::new("python3").arg("--version").output().is_err() {
        println!("skipped: there is no python3 here");
        return;
    }
    for name in NAMES {
        let read = Command::new("python3").arg("-B").arg(root().join("reader.py")).arg(root().join(name)).output().expect("it runs");
        assert!(read.status.success(), "{name}: {}", String::from_utf8_lossy(&read.stderr));
        expected(name, "dump.jsonl", &String::from_utf8(read.stdout).expect("it prints ASCII"));
    }
}

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

#[actix::test]
async fn a_runner_goes_on_from_every_golden_directory() {
    for (name, copy) in copies() {
        let runner = Runner::open(copy.path()).register::<Nothing>().start().await.expect("it starts");
        let id = runner.jobs().enqueue(Nothing).await.expect("it takes jobs").id();
        runner.jobs().outcome(id).await.expect("it runs them");
        runner.shutdown(Duration::ZERO).await.expect("it stops");
        assert_eq!(tool(&["verify", &path_of(&copy)]).0, 0, "{name} is sound afterwards");
    }
}

/// A copy of each directory that this build can read; cut anew first, when that is asked for.
fn copies() -> Vec<(String, TempDir)> {
    static CUT: std::sync::Once = std::sync::Once::new();
    CUT.call_once(|| match std::env::var("JOURNEYMAN_GOLDEN").as_deref() {
        Ok("cut") => cut::all(&root()),
        Ok(other) => panic!("JOURNEYMAN_GOLDEN is {other:?}, not \"cut\""),
        Err(_) => {}
    });
    let readable = NAMES.into_iter().filter(|name| crate::kit::has_sled() || !name.starts_with("sled"));
    readable.map(|name| (name.to_owned(), copy(&root().join(name)))).collect()
}

fn copy(from: &Path) -> TempDir {
    let to = tempfile::tempdir().expect("there is a place for temporary files");
    for path in crate::kit::below(from) {
        let place = to.path().join(path.strip_prefix(from).expect("it is within"));
        fs::create_dir_all(place.parent().expect("it has one")).expect("there is room");
        fs::copy(&path, place).expect("there is room");
    }
    to
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn path_of(dir: &TempDir) -> String {
    dir.path().to_str().expect("paths here are text").to_owned()
}

/// What the offline tool answers: its status, and what it prints.
fn tool(arguments: &[&str]) -> (u8, String) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let arguments = std::iter::once("journeyman").chain(arguments.iter().copied()).map(Into::into);
    let status = journeyman::cli::run(arguments, &mut out, &mut err);
    print!("{}", String::from_utf8_lossy(&err));
    (status, String::from_utf8(out).expect("it prints text"))
}

/// Compares with what stands beside the directory; writes that when it is being cut.
fn expected(name: &str, what: &str, found: &str) {
    let path = root().join(format!("{name}.{what}"));
    if std::env::var_os("JOURNEYMAN_GOLDEN").is_some() {
        fs::write(&path, found).expect("there is room");
    }
    let said = fs::read_to_string(&path).expect("it stands beside the directory");
    for (number, (said, found)) in said.lines().zip(found.lines()).enumerate() {
        assert_eq!(said, found, "{name}, line {}", number + 1);
    }
    assert_eq!(said.lines().count(), found.lines().count(), "{name}: as many lines");
}

/// All that can be seen of a queue, as text.
fn state(queue: &Queue) -> String {
    let mut text = String::new();
    let mut line = |said: String| writeln!(text, "{}", said.escape_default()).expect("a text takes all");
    line(format!("last {} of epoch {}, {:?}", queue.last(), queue.epoch(), queue.ends()));
    line(format!("{} pending, {} running, {} keys, weight {}", queue.pending(), queue.running(), queue.keys(), queue.weight()));
    for (ticket, live) in queue.tickets() {
        let phase = match live.phase() {
            Phase::Pending { due } => format!("pending until {}", due.0),
            Phase::Running { attempt } => format!("running by {attempt}"),
        };
        let fault = live.fault().map(|fault| (fault.cause(), fault.text().to_owned()));
        let key = live.key().map(|key| key.as_str().to_owned());
        line(format!(
            "ticket {ticket} {phase}, start {}, rank {}, {} failures, {fault:?}, {key:?}",
            live.start().0,
            live.rank().0,
            live.failures()
        ));
        let job = live.job.unpack();
        let fields: BTreeMap<&str, String> = BTreeMap::from([
            ("kind", job.kind.as_str().to_owned()),
            ("target", format!("{:?}", job.target.as_ref().map(|target| target.as_str().to_owned()))),
            ("version", job.version.to_string()),
            ("codec", job.codec.0.to_string()),
            ("priority", job.priority.to_string()),
            ("options", format!("{:?}", job.options.0)),
            ("meta", format!("{:?}", job.meta)),
            ("payload", format!("{:?}", job.payload)),
        ]);
        line(format!("  {fields:?}"));
    }
    text
}
