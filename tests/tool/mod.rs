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

use crate::used::{Used, ending, name, segments, used};

impl Used {
    fn segments(&self) -> Vec<PathBuf> {
        segments(self.path())
    }

    /// The snapshots in plain files, oldest first.
    fn snapshots(&self) -> Vec<PathBuf> {
        ending(self.path(), "snapshot")
    }
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
