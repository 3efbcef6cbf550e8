//! Directories that a runner has used and closed, with every state that they came to.

use std::fs;
use std::path::{Path, PathBuf};

use journeyman_core::Queue;
use tempfile::TempDir;

use crate::kit::{Kind, Life, Place};

/// A directory that a runner has used and closed.
pub(crate) struct Used {
    pub(crate) dir: TempDir,
    /// What it comes to after each batch that was written; the first of all is empty.
    pub(crate) states: Vec<Queue>,
}

/// How often to compact, and how often to do some of everything behind each compaction.
pub(crate) fn used(kind: Kind, compactions: u64, rounds: u64) -> Used {
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
    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn last(&self) -> &Queue {
        self.states.last().expect("there is one")
    }

    /// The state after a record; none when no batch ended there.
    pub(crate) fn after(&self, last: u64) -> Option<&Queue> {
        self.states.iter().find(|state| state.last().0 == last)
    }
}

pub(crate) fn segments(dir: &Path) -> Vec<PathBuf> {
    ending(dir, "segment")
}

pub(crate) fn ending(dir: &Path, end: &str) -> Vec<PathBuf> {
    let mut paths: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|found| found == end));
    paths.sort();
    paths
}

pub(crate) fn name(path: &Path) -> String {
    path.file_name().unwrap().to_str().unwrap().to_owned()
}
