//! Proves what the offline tool says of a directory, and that it changes nothing in it: a sound one is called sound, all damage is told
//! with its place, what is saved of a damaged one is exactly what was sound, and no bytes make it panic.

mod dump;
mod flips;
mod salvage;
mod usage;
mod verify;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use journeyman_core::Queue;
use tempfile::TempDir;

use crate::kit::{Kind, Life, Place};

/// A directory that a runner has used and closed.
struct Used {
    dir: TempDir,
    /// What it comes to after each batch that was written; the first of all is empty.
    states: Vec<Queue>,
}

/// How often to compact, and how often to do some of everything behind each compaction.
fn used(kind: Kind, compactions: u64, rounds: u64) -> Used {
    let place = Place::new(kind);
    let mut life = Life::with(&place.rig(), journeyman_core::journal::JournalLimits { segment_bytes: 1500, batch_bytes: 1 << 20 });
    let mut states = vec![Queue::default(), life.queue.clone()];
    for compaction in 0..=compactions {
        for _ in 0..rounds {
            let (key, before) = (format!("key {}", life.queue.last()), life.queue.last());
            let kept = life.enqueue(Some(&key), 5);
            states.push(life.queue.clone());
            let done = life.enqueue(None, 2);
            states.push(life.queue.clone());
            life.select(done);
            states.push(life.queue.clone());
            life.op(journeyman_core::Op::Cancel { ticket: done });
            states.push(life.queue.clone());
            life.select(kept);
            states.push(life.queue.clone());
            assert!(life.queue.last() > before);
        }
        if compaction < compactions {
            life.compact();
        }
    }
    drop(life);
    let Place { dir, disk, .. } = place;
    drop(disk);
    for path in segments(dir.path()) {
        // Of the mebibyte of zeros behind the last frame a few bytes say the same.
        let bytes = fs::read(&path).unwrap();
        let end = bytes.iter().rposition(|byte| *byte != 0).map_or(96, |last| last + 1);
        fs::write(&path, &bytes[..(end + 100).min(bytes.len())]).unwrap();
    }
    Used { dir, states }
}

impl Used {
    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn segments(&self) -> Vec<PathBuf> {
        segments(self.path())
    }

    /// The snapshots in plain files, oldest first.
    fn snapshots(&self) -> Vec<PathBuf> {
        ending(self.path(), "snapshot")
    }

    fn last(&self) -> &Queue {
        self.states.last().expect("there is one")
    }

    /// The state after a record; none when no batch ended there.
    fn after(&self, last: u64) -> Option<&Queue> {
        self.states.iter().find(|state| state.last().0 == last)
    }
}

fn segments(dir: &Path) -> Vec<PathBuf> {
    ending(dir, "segment")
}

fn ending(dir: &Path, end: &str) -> Vec<PathBuf> {
    let mut paths: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|found| found == end));
    paths.sort();
    paths
}

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_str().unwrap().to_owned()
}

/// Changes a file.
fn change(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).unwrap();
    change(&mut bytes);
    fs::write(path, bytes).unwrap();
}

fn flip(path: &Path, at: usize) {
    change(path, |bytes| bytes[at] ^= 1);
}

/// What the tool answers.
#[derive(Debug)]
struct Answer {
    status: u8,
    out: String,
    err: String,
}

/// Asks the tool about a directory, and looks that nothing in it has changed: no byte, no name, no time, and no number of links.
fn tool(dir: &Path, command: &str, more: &[&str]) -> Answer {
    let before = all_of(dir);
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let arguments = ["journeyman", command, dir.to_str().unwrap()].into_iter().chain(more.iter().copied()).map(Into::into);
    let status = journeyman::cli::run(arguments, &mut out, &mut err);
    assert!(all_of(dir) == before, "{command} has changed something");
    let answer = Answer { status, out: String::from_utf8(out).unwrap(), err: String::from_utf8(err).unwrap() };
    for line in answer.out.lines().chain(answer.err.lines()) {
        assert!(!line.contains(|c: char| c.is_control() || "\u{202e}\u{2028}\u{feff}".contains(c)), "{line:?}");
    }
    answer
}

type Everything = BTreeMap<PathBuf, (Vec<u8>, [i64; 6])>;

fn all_of(dir: &Path) -> Everything {
    let mut all: Everything =
        crate::kit::below(dir).into_iter().map(|path| (path.clone(), (fs::read(&path).unwrap(), about(&path)))).collect();
    all.insert(dir.to_owned(), (Vec::new(), about(dir)));
    all
}

fn about(path: &Path) -> [i64; 6] {
    let about = fs::metadata(path).unwrap();
    let number = |number: u64| i64::try_from(number).unwrap();
    [about.mtime_nsec(), about.mtime(), about.ctime_nsec(), about.ctime(), number(about.nlink()), number(about.mode().into())]
}

fn json(answer: &Answer) -> serde_json::Value {
    assert!(answer.out.is_ascii());
    serde_json::from_str(&answer.out).unwrap()
}
