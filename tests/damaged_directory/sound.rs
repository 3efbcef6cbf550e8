//! A directory with two snapshots, the reserve between them and segments behind them, which frames are where, how their checksums are
//! made right again, and what may come of damage at each place. Proves nothing by itself.

// Two test files use a part of it each.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::sync::Arc;

use journeyman_core::disk::Disk;
use journeyman_core::journal::RecoverError;
use journeyman_core::snapshot::PlainStore;
use journeyman_core::store::{OpenError, Store};
use journeyman_core::{Queue, Seq};

use crate::support::program::{Known, Program, Step};
use crate::support::sim::{Files, SimDisk, Still};

use Step::{Append, Compact};

/// A directory that nothing has happened to.
pub(crate) struct Sound {
    pub(crate) files: Files,
    /// The state behind each batch, by its last record.
    pub(crate) states: BTreeMap<Seq, Arc<Queue>>,
    pub(crate) last: Seq,
    /// The newest snapshot, and the segments behind it, in order: all that an open reads.
    pub(crate) snapshot: String,
    pub(crate) live: Vec<String>,
    /// Of the last segment: where each frame begins and ends, and the record before it.
    pub(crate) frames: Vec<(usize, usize, Seq)>,
}

impl Sound {
    /// With jobs of about so many bytes.
    pub(crate) fn of(bytes: usize, made: u64) -> Self {
        let disk = SimDisk::default();
        let mut program = Program::begin(&disk, Known::default(), made);
        for _ in 0..3 {
            program.live(&[Append(bytes), Append(bytes / 2), Append(bytes), Append(bytes * 2), Compact]);
        }
        program.live(&[Append(bytes), Append(bytes * 2), Append(bytes * 2), Append(40), Step::Open]);
        program.live(&[Append(bytes / 2), Append(7), Append(bytes / 3), Append(30), Append(bytes / 4)]);
        assert_eq!((program.failures, program.compactions), (0, 3));
        let mut files = disk.files();
        for bytes in files.values_mut() {
            // Of the zeros that were laid ahead a part says the same.
            let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
            Arc::make_mut(bytes).truncate(used + 64);
        }
        files.insert("journeyman.lock".to_owned(), Arc::default());
        let states: BTreeMap<_, _> = program.history.iter().map(|(_, known)| (known.acked.last(), known.acked.clone())).collect();
        let last = program.known.acked.last();
        let snapshot = files.keys().rfind(|name| name.ends_with(".snapshot")).expect("there are some").clone();
        let boundary = u64::from_le_bytes(files[&snapshot][48..56].try_into().expect("8 bytes"));
        let live: Vec<_> = files.keys().filter(|name| name.ends_with(".segment") && number(name) > boundary).cloned().collect();
        let frames = frames(&files[live.last().expect("there are some")]);
        assert!(live.len() >= 2 && frames.len() >= 4, "{} segments, {} frames in the last", live.len(), frames.len());
        Self { files, states, last, snapshot, live, frames }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.files.values().map(|bytes| bytes.len()).sum()
    }

    pub(crate) fn with(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) -> Files {
        let mut files = self.files.clone();
        change(Arc::make_mut(files.get_mut(name).expect("there is such a file")));
        files
    }

    /// Opens it with this file changed from `from` to `to`, and checks that what comes of it is what must.
    pub(crate) fn judge(&self, name: &str, files: Files, from: usize, to: usize, context: &str) -> Outcome {
        let opened = open(files);
        if name == self.snapshot {
            let store = opened.unwrap_or_else(|error| panic!("{context}: {error}"));
            assert_eq!(store.passed_over.len(), 1, "{context}");
            assert!(store.queue == *self.states[&self.last], "{context}");
            return Outcome::StoodIn;
        }
        let Some(at) = self.live.iter().position(|live| live == name) else {
            let store = opened.unwrap_or_else(|error| panic!("{context}, which nobody reads: {error}"));
            assert!(store.queue == *self.states[&self.last] && store.passed_over.is_empty(), "{context}");
            return Outcome::NotRead;
        };
        let is_last = at + 1 == self.live.len();
        let touched = |frame: &&(usize, usize, Seq)| frame.0 < to && from < frame.1;
        let first = self.frames.iter().position(|frame| touched(&frame));
        let only_to_the_end = first.is_none_or(|first| self.frames[first..].iter().all(|frame| touched(&frame)));
        match opened {
            Err(OpenError::Journal(RecoverError::Damaged { file, .. })) => {
                assert_eq!(file, name, "{context}");
                assert!(!is_last || from < HEADER || !only_to_the_end, "{context}: only the end was damaged");
                Outcome::Named
            }
            Err(other) => panic!("{context}: {other}"),
            Ok(store) => {
                assert!(store.passed_over.is_empty(), "{context}");
                let untouched = !is_last && from >= self.proved_of(at);
                assert!(is_last && from >= HEADER && only_to_the_end || untouched, "{context}: damage was passed over");
                let last = first.filter(|_| is_last).map_or(self.last, |first| self.frames[first].2);
                assert_eq!(store.queue.last(), last, "{context}");
                assert!(store.queue == *self.states[&last], "{context}");
                if store.recovery.torn().is_some() { Outcome::Torn } else { Outcome::NotRead }
            }
        }
    }

    /// How much of a segment its successor says is there.
    fn proved_of(&self, at: usize) -> usize {
        let next = &self.files[&self.live[at + 1]];
        u64::from_le_bytes(next[56..64].try_into().expect("8 bytes")).try_into().expect("small")
    }
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outcome {
    /// An error names the file.
    Named,
    /// The end of the last segment is reported as torn.
    Torn,
    /// Another snapshot and the segments since stand in.
    StoodIn,
    /// Nobody reads it: the reserve, older snapshots, zeros behind the end of a segment.
    NotRead,
}

pub(crate) fn open(files: Files) -> Result<Store, OpenError> {
    let still: Arc<dyn Disk> = Arc::new(Still::of(files));
    Store::open(still.clone(), &PlainStore::new(still))
}

/// The frames of a segment, as its headers say: where each begins and ends, and the record before it.
pub(crate) fn frames(bytes: &[u8]) -> Vec<(usize, usize, Seq)> {
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
    let mut found: Vec<(usize, usize, Seq)> = Vec::new();
    let mut at = HEADER;
    while bytes[at..].starts_with(b"JYFR") {
        let end = at + 64 + word(at + 8) as usize;
        let first = u64::from_le_bytes(bytes[at + 24..at + 32].try_into().expect("8 bytes"));
        found.push((at, end, Seq(first - 1)));
        at = end;
    }
    found
}

fn number(name: &str) -> u64 {
    name.split('.').next().and_then(|number| number.parse().ok()).expect("a number")
}

fn salted(bytes: &[u8]) -> u32 {
    crc32c::crc32c(&bytes[16..32])
}

/// Makes the checksum of a frame header right.
pub(crate) fn seal_frame(bytes: &mut [u8], at: usize) {
    let sum = crc32c::crc32c_append(salted(bytes), &bytes[at..at + 60]);
    bytes[at + 60..][..4].copy_from_slice(&sum.to_le_bytes());
}

/// Makes the checksum of a frame's body right, but not that of the header with it.
pub(crate) fn seal_body(bytes: &mut [u8], at: usize) {
    let length = u32::from_le_bytes(bytes[at + 8..at + 12].try_into().expect("4 bytes")) as usize;
    let sum = crc32c::crc32c_append(salted(bytes), &bytes[at + 64..at + 64 + length]);
    bytes[at + 52..][..4].copy_from_slice(&sum.to_le_bytes());
}

/// Makes the frames behind this one name those before them.
pub(crate) fn relink(bytes: &mut [u8], changed: usize) {
    let all = frames(bytes);
    for pair in all.windows(2).filter(|pair| pair[0].0 >= changed) {
        let sum = bytes[pair[0].0 + 60..][..4].to_vec();
        bytes[pair[1].0 + 48..][..4].copy_from_slice(&sum);
        seal_frame(bytes, pair[1].0);
    }
}

pub(crate) fn seal_meta(bytes: &mut [u8]) {
    let sum = crc32c::crc32c(&bytes[..124]);
    bytes[124..128].copy_from_slice(&sum.to_le_bytes());
}

/// Makes the checksums of the only chunk of a snapshot right, and of its meta data.
pub(crate) fn seal_chunk(bytes: &mut [u8]) {
    let salt = crc32c::crc32c_append(salted(bytes), &bytes[32..40]);
    let sum = crc32c::crc32c_append(crc32c::crc32c_append(salt, &bytes[128..140]), &bytes[144..]);
    bytes[140..144].copy_from_slice(&sum.to_le_bytes());
    let digest = crc32c::crc32c_append(salted(bytes), &bytes[128..]);
    bytes[88..96].copy_from_slice(&u64::from(digest).to_le_bytes());
    seal_meta(bytes);
}

pub(crate) const HEADER: usize = 96;
