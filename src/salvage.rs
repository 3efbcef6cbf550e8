//! Saving what is sound of a damaged directory into a new one: a snapshot, and the records behind it without a gap up to the first
//! that cannot be had. Never changes the old one, never joins what was not joined, and never guesses.
//!
//! Why no more than that: a record behind damage cannot be applied, as nobody knows what the lost ones said of its job. What was
//! enqueued there may have ended, been cancelled, or be running; what ended there may have been another's. So those records are
//! counted and told, and what becomes of them is for somebody to decide who knows the jobs.

use std::io;
use std::sync::Arc;

use crate::disk::Disk;
use crate::ids::Seq;
use crate::inspect::{Finding, Inspection, Sort, Standing, entries};
use crate::journal::{Boundary, Salt, Sight, begin_behind, survey};
use crate::op::{Op, Record};
use crate::queue::Queue;
use crate::snapshot::{Draft, Loaded, Loading, SnapshotError, SnapshotStore};
use crate::store::{Store, fold};

/// What can be saved of a directory, and what cannot.
#[derive(Debug)]
pub struct Salvage {
    base: Base,
    run: Run,
    queue: Queue,
    /// What was found in the directory.
    pub found: Inspection,
    /// What is not saved.
    pub left: Left,
}

/// What is not saved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// Records behind the last one that is saved which can be read.
    pub records: u64,
    /// Jobs enqueued by those.
    pub enqueued: u64,
    /// Jobs that those say have ended: they were done, given up or cancelled, and may run again.
    pub ended: u64,
    /// Records behind the last one that is saved which cannot be read, or are known of only by a snapshot that cannot be read.
    pub unreadable: u64,
}

/// Why nothing is saved. The old directory is as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SalvageError {
    /// The old directory cannot be read as it is: nothing is left out of a new one because the disk refused it, or because another
    /// build is needed to read it.
    #[error("{0}; nothing is saved while that is so")]
    Unjudged(Finding),
    /// There is neither a sound snapshot nor a sound beginning.
    #[error("nothing is sound: no snapshot can be read, and the first record neither")]
    Nothing,
    /// The disk refused.
    #[error("{file}: {source}")]
    Io {
        /// The file, or `.` for the directory.
        file: String,
        /// Why.
        source: io::Error,
    },
    /// The new snapshot cannot be written.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// The new directory was read back, and is not what was to be saved.
    #[error("the new directory was read back and is not what was saved: {0}")]
    Unlike(String),
}

/// What a run of records begins behind.
#[derive(Clone, Copy, Debug)]
enum Base {
    Beginning,
    Snapshot(Boundary),
}

/// Segments that are read without a gap.
#[derive(Debug, Default)]
struct Run {
    /// Their names, and how much of each is sound.
    files: Vec<(String, u64)>,
}

impl Salvage {
    /// Looks for what can be saved: of all sound snapshots and the very beginning, the one from which the most records can be read
    /// without a gap; the newest of those with the same end.
    ///
    /// # Errors
    /// [`SalvageError`].
    pub fn plan(disk: &Arc<dyn Disk>, snapshots: &dyn SnapshotStore) -> Result<Self, SalvageError> {
        let found = Inspection::of(disk, snapshots).map_err(failed("."))?;
        if let Some(finding) = found.findings.iter().find(|finding| finding.sort > Sort::Damage) {
            return Err(SalvageError::Unjudged(finding.clone()));
        }
        let mut best: Option<(Base, Run, Queue)> = None;
        for kept in found.snapshots.iter().filter(|kept| kept.bytes.is_some()) {
            let Loaded { queue, boundary, .. } = Loading::begin(snapshots, kept.seq).and_then(Loading::finish)?;
            let base = Base::Snapshot(boundary);
            better(&mut best, try_from(disk, base, queue)?.map(|(run, queue)| (base, run, queue)));
        }
        // A first segment without a sound record is not worth a directory.
        let begun = try_from(disk, Base::Beginning, Queue::default())?.filter(|(_, queue)| queue.last() > Seq(0));
        better(&mut best, begun.map(|(run, queue)| (Base::Beginning, run, queue)));
        let Some((base, run, queue)) = best else { return Err(SalvageError::Nothing) };
        let left = Left::behind(disk, queue.last(), found.last)?;
        Ok(Self { base, run, queue, found, left })
    }

    /// What the new directory will come to.
    #[must_use]
    pub fn standing(&self) -> Standing {
        let snapshot = match self.base {
            Base::Beginning => None,
            Base::Snapshot(boundary) => Some(boundary.last),
        };
        Standing::of(&self.queue, snapshot)
    }

    /// Whether all is saved that was ever known to be durable.
    #[must_use]
    pub fn is_all(&self) -> bool {
        self.left == Left::default()
    }

    /// Writes it into a new, empty directory and reads that back. Answers the bytes of the segments there. Whatever the moment of a
    /// crash, the new directory holds all of it or does not open. `salt` must be drawn by chance.
    ///
    /// # Errors
    /// [`SalvageError`]; the new directory is then without meaning.
    pub fn write(
        &self,
        (from, from_snapshots): (&Arc<dyn Disk>, &dyn SnapshotStore),
        (to, to_snapshots): (&Arc<dyn Disk>, &dyn SnapshotStore),
        salt: Salt,
    ) -> Result<u64, SalvageError> {
        let mut bytes = 0;
        for (name, length) in &self.run.files {
            copy(&**from, &**to, name, *length).map_err(failed(name))?;
            bytes += length;
        }
        if let Base::Snapshot(boundary) = self.base {
            let Loaded { queue, .. } = Loading::begin(from_snapshots, boundary.last).and_then(Loading::finish)?;
            let draft = Draft::begin(to_snapshots, boundary, salt)?;
            let verified = draft.finish(&queue)?.verify(to_snapshots)?.finish(&queue)?;
            to_snapshots.publish(verified)?;
            if self.run.files.is_empty() {
                bytes += begin_behind(&**to, &boundary, salt).map_err(failed("."))?;
            }
        }
        // From the last to the first: until the first is there, none of them follows anything, and no open takes them for all there is.
        for (name, _) in self.run.files.iter().rev() {
            to.rename(&draft(name), name).and_then(|()| to.sync_names()).map_err(failed(name))?;
        }
        let store = Store::open(to.clone(), to_snapshots).map_err(|error| SalvageError::Unlike(error.to_string()))?;
        if store.queue != self.queue {
            return Err(SalvageError::Unlike(format!("it ends at record {}, not {}", store.queue.last(), self.queue.last())));
        }
        Ok(bytes)
    }
}

fn better(best: &mut Option<(Base, Run, Queue)>, other: Option<(Base, Run, Queue)>) {
    let Some(other) = other else { return };
    if best.as_ref().is_none_or(|(.., queue)| queue.last() < other.2.last()) {
        *best = Some(other);
    }
}

/// Reads on from a base as far as it goes. None when the segments say that the base is none of theirs.
fn try_from(disk: &Arc<dyn Disk>, base: Base, mut queue: Queue) -> Result<Option<(Run, Queue)>, SalvageError> {
    let from = match base {
        Base::Beginning => Boundary::START,
        Base::Snapshot(boundary) => boundary,
    };
    let mut run = Run::default();
    let mut stage = Stage::Before;
    survey(&**disk, &mut |sight| {
        stage = match (sight, stage) {
            (Sight::Segment { file, behind, follows, start }, Stage::Before) if behind.segment == from.segment => {
                let agrees = (behind.last, behind.length, behind.checksum) == (from.last, from.length, from.checksum);
                // The first of all follows nothing, and says so.
                let begins = agrees && (from.segment != 0 || follows);
                if begins {
                    run.files.push((file.to_owned(), start));
                }
                if begins { Stage::Within } else { Stage::Foreign }
            }
            // One that says to begin elsewhere is wrong, and shown so next.
            (Sight::Segment { file, behind, follows: true, start }, Stage::Within) if behind.last == queue.last() => {
                run.reach(behind.length);
                run.files.push((file.to_owned(), start));
                Stage::Within
            }
            (Sight::Batch { batch, end, .. }, Stage::Within) => match fold(&mut queue, batch) {
                Ok(()) => {
                    run.reach(end);
                    Stage::Within
                }
                Err(_) => Stage::Over,
            },
            (Sight::End(end), Stage::Within) => {
                run.reach(end);
                Stage::Within
            }
            (Sight::Torn { .. }, stage) => stage,
            (_, Stage::Within) => Stage::Over,
            (_, stage) => stage,
        };
        true
    })
    .map_err(failed("."))?;
    Ok((!matches!(stage, Stage::Foreign)).then_some((run, queue)))
}

/// Where a reading stands.
#[derive(Clone, Copy)]
enum Stage {
    Before,
    Within,
    Over,
    /// The segment behind the base belongs to another journal.
    Foreign,
}

impl Run {
    fn reach(&mut self, end: u64) {
        if let Some((_, length)) = self.files.last_mut() {
            *length = end;
        }
    }
}

impl Left {
    fn behind(disk: &Arc<dyn Disk>, last: Seq, known: Seq) -> Result<Self, SalvageError> {
        let mut left = Self::default();
        survey(&**disk, &mut |sight| {
            if let Sight::Batch { batch, .. } = sight {
                for (_, record) in entries(batch).map_while(Result::ok).filter(|(seq, _)| *seq > last) {
                    left.records += 1;
                    match record {
                        Record::Op(Op::Enqueue { .. }) => left.enqueued += 1,
                        Record::Op(Op::Complete { .. } | Op::Cancel { .. }) => left.ended += 1,
                        Record::Op(Op::Select { .. } | Op::Requeue { .. } | Op::Defer { .. }) | Record::Lead { .. } => {}
                    }
                }
            }
            true
        })
        .map_err(failed("."))?;
        left.unreadable = known.0.saturating_sub(last.0).saturating_sub(left.records);
        Ok(left)
    }
}

/// The beginning of a file, durable under the name of a draft.
fn copy(from: &dyn Disk, to: &dyn Disk, name: &str, length: u64) -> io::Result<()> {
    let mut file = to.create(&draft(name))?;
    let mut at = 0;
    while at < length {
        let ask = usize::try_from(length - at).unwrap_or(PIECE).min(PIECE);
        let piece = from.read_at(name, at, ask)?;
        if piece.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        file.write_at(at, &piece)?;
        at += piece.len() as u64;
    }
    file.sync()
}

fn draft(name: &str) -> String {
    format!("{name}.tmp")
}

fn failed(file: &str) -> impl FnOnce(io::Error) -> SalvageError {
    let file = file.to_owned();
    move |source| SalvageError::Io { file, source }
}

/// What is copied at one go.
const PIECE: usize = 1 << 20;
