//! Bounding the disk by what is alive: the previous snapshot and the sealed segments behind it become the next snapshot; then what
//! two snapshots stand for is removed. Goes in bounded steps, beside a journal that is being written; knows no pace and no time.
//!
//! A failure at any step, and a drop, leave all published snapshots and all segments as they were; once the new snapshot stands,
//! all that is still needed.

use std::sync::Arc;

use crate::disk::Disk;
use crate::ids::Seq;
use crate::journal::{Boundary, RecoverError, Salt, Sealed, removable};
use crate::queue::Queue;
use crate::room::Room;
use crate::snapshot::{Draft, Finished, Loaded, Loading, SnapshotError, SnapshotStore, Verified, Verifying};
use crate::store::{FoldError, fold, fold_within, newest_first};

/// One compaction.
pub struct Compaction {
    disk: Arc<dyn Disk>,
    snapshots: Box<dyn SnapshotStore>,
    /// The segment that is being written: those before it are sealed.
    before: u64,
    salt: Salt,
    /// Where payloads are that are not to be in memory.
    room: Option<Room>,
    passed_over: Vec<SnapshotError>,
    stage: Stage,
}

/// What one step did.
#[derive(Debug)]
pub enum Progress {
    /// There is more to do.
    Working {
        /// What it was busy with.
        phase: Phase,
        /// Bytes that it read from the disk.
        read_bytes: u64,
        /// Bytes that it wrote: those of the snapshot, as that counts them (a store may take more for them), and of payloads that were put
        /// away.
        written_bytes: u64,
    },
    /// Everything sealed is in the newest snapshot already. Nothing was written and nothing removed.
    Nothing,
    /// A new snapshot stands.
    Done(Compacted),
}

/// What a compaction is busy with. In this order; loading repeats itself when a snapshot turns out to be damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Reading the previous snapshot.
    Loading,
    /// Folding the sealed segments behind it.
    Folding,
    /// Writing the next snapshot.
    Writing,
    /// Reading it back.
    Verifying,
    /// Giving it its name.
    Publishing,
    /// Removing what is no longer needed.
    Sweeping,
}

/// What a compaction came to.
#[derive(Debug)]
pub struct Compacted {
    /// The last record in the new snapshot.
    pub seq: Seq,
    /// The one that it was made from, which is kept in reserve with the segments since.
    pub base: Option<Seq>,
    /// The bytes of the new snapshot's chunks.
    pub snapshot_bytes: u64,
    /// Bytes of the segments that were removed: what [`Journal::release`](crate::journal::Journal::release) is to be told.
    pub removed_bytes: u64,
    /// Bytes of the sealed segments that are kept in reserve.
    pub kept_bytes: u64,
    /// Snapshots that were damaged: nothing is lost, but somebody should look.
    pub passed_over: Vec<SnapshotError>,
}

/// Why there is no new snapshot. Unless it failed while sweeping, nothing that was there before is gone.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompactionError {
    /// A segment cannot be read.
    #[error(transparent)]
    Journal(#[from] RecoverError<FoldError>),
    /// A snapshot cannot be read or written.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// What is no longer needed cannot be removed; the new snapshot stands, and the next compaction removes it.
    #[error("{file}: cannot be removed: {source}")]
    Sweep {
        /// The file, or `.` for the directory.
        file: String,
        /// Why.
        source: std::io::Error,
    },
    /// The compaction has ended before, well or not.
    #[error("this compaction is over")]
    Over,
}

enum Stage {
    Choosing { rest: std::vec::IntoIter<Seq> },
    Loading { rest: std::vec::IntoIter<Seq>, loading: Loading },
    Loaded { base: Option<Boundary>, queue: Queue },
    Folding { base: Option<Boundary>, queue: Queue, sealed: Sealed },
    Writing { base: Option<Boundary>, queue: Queue, draft: Draft, behind: u64 },
    Written { base: Option<Boundary>, queue: Queue, finished: Finished, behind: u64 },
    Verifying { base: Option<Boundary>, queue: Queue, verifying: Verifying, behind: u64 },
    Publishing { base: Option<Boundary>, verified: Verified, behind: u64 },
    Sweeping(Sweep),
    Over,
}

struct Sweep {
    snapshots: std::vec::IntoIter<Seq>,
    segments: std::vec::IntoIter<(String, u64)>,
    compacted: Compacted,
    /// Removed, but a crash may bring them back.
    unsynced: bool,
}

impl Compaction {
    /// Makes ready to compact all segments before the number `before`, which a journal
    /// [writes to](crate::journal::Journal::writes_to). `salt` must be drawn by chance.
    ///
    /// # Errors
    /// [`CompactionError`] when the snapshots cannot be listed.
    pub fn begin(disk: Arc<dyn Disk>, snapshots: Box<dyn SnapshotStore>, before: u64, salt: Salt) -> Result<Self, CompactionError> {
        let rest = newest_first(&*snapshots)?.into_iter();
        Ok(Self { disk, snapshots, before, salt, room: None, passed_over: Vec::new(), stage: Stage::Choosing { rest } })
    }

    /// The same with no more of the payloads in memory than there is room for. The others are where the room puts them, until it is over.
    #[must_use]
    pub fn within(mut self, room: Room) -> Self {
        self.room = Some(room);
        self
    }

    /// What the next step will be busy with; none when it is over.
    #[must_use]
    pub const fn phase(&self) -> Option<Phase> {
        match &self.stage {
            Stage::Choosing { .. } | Stage::Loading { .. } => Some(Phase::Loading),
            Stage::Loaded { .. } | Stage::Folding { .. } => Some(Phase::Folding),
            Stage::Writing { .. } => Some(Phase::Writing),
            Stage::Written { .. } | Stage::Verifying { .. } => Some(Phase::Verifying),
            Stage::Publishing { .. } => Some(Phase::Publishing),
            Stage::Sweeping(_) => Some(Phase::Sweeping),
            Stage::Over => None,
        }
    }

    /// Does a bounded piece of the work: about a mebibyte, or 4096 records. What a store does at one go (opening, publishing) is
    /// bounded by the store.
    ///
    /// # Errors
    /// [`CompactionError`]; then it is over.
    pub fn step(&mut self) -> Result<Progress, CompactionError> {
        // Over unless all of the step succeeds.
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Choosing { rest } => self.choose(rest),
            Stage::Loading { rest, loading } => self.load(rest, loading),
            Stage::Loaded { base, queue } => self.seek(base, queue),
            Stage::Folding { base, queue, sealed } => self.fold(base, queue, sealed),
            Stage::Writing { base, queue, draft, behind } => self.write(base, queue, draft, behind),
            Stage::Written { base, queue, finished, behind } => {
                let verifying = finished.verify(&*self.snapshots)?;
                self.stage = Stage::Verifying { base, queue, verifying, behind };
                Ok(working(Phase::Verifying, 0, 0))
            }
            Stage::Verifying { base, queue, verifying, behind } => self.verify(base, queue, verifying, behind),
            Stage::Publishing { base, verified, behind } => self.publish(base, verified, behind),
            Stage::Sweeping(sweep) => self.sweep(sweep),
            Stage::Over => Err(CompactionError::Over),
        }
    }

    fn choose(&mut self, mut rest: std::vec::IntoIter<Seq>) -> Result<Progress, CompactionError> {
        self.stage = match rest.next() {
            None => Stage::Loaded { base: None, queue: Queue::default() },
            Some(seq) => match Loading::begin(&*self.snapshots, seq) {
                Ok(loading) => Stage::Loading { rest, loading },
                Err(error) => self.pass_over(error, rest)?,
            },
        };
        Ok(working(Phase::Loading, 0, 0))
    }

    fn load(&mut self, rest: std::vec::IntoIter<Seq>, mut loading: Loading) -> Result<Progress, CompactionError> {
        let (mut read, before) = (0, self.put_away());
        self.stage = match loading.step() {
            Ok(Some(bytes)) => {
                read = bytes;
                if let (Some(room), Some(queue)) = (&mut self.room, loading.queue()) {
                    room.make(queue);
                }
                Stage::Loading { rest, loading }
            }
            Ok(None) => match loading.finish() {
                Ok(Loaded { queue, boundary, .. }) => Stage::Loaded { base: Some(boundary), queue },
                Err(error) => self.pass_over(error, rest)?,
            },
            Err(error) => self.pass_over(error, rest)?,
        };
        Ok(working(Phase::Loading, read, self.put_away() - before))
    }

    /// Bytes that were written to put payloads away.
    fn put_away(&self) -> u64 {
        self.room.as_ref().map_or(0, Room::written)
    }

    /// A damaged snapshot is no reason to stop as long as the segments before it are there: the next one takes its place.
    fn pass_over(&mut self, error: SnapshotError, rest: std::vec::IntoIter<Seq>) -> Result<Stage, CompactionError> {
        if !error.is_damage() {
            return Err(error.into());
        }
        self.passed_over.push(error);
        self.room.iter_mut().for_each(Room::clear);
        Ok(Stage::Choosing { rest })
    }

    fn seek(&mut self, base: Option<Boundary>, queue: Queue) -> Result<Progress, CompactionError> {
        let sealed = Sealed::find(self.disk.clone(), &base.unwrap_or(Boundary::START), self.before)?;
        if sealed.is_empty() {
            return Ok(Progress::Nothing);
        }
        self.stage = Stage::Folding { base, queue, sealed };
        Ok(working(Phase::Folding, 0, 0))
    }

    fn fold(&mut self, base: Option<Boundary>, mut queue: Queue, mut sealed: Sealed) -> Result<Progress, CompactionError> {
        let before = self.put_away();
        let room = &mut self.room;
        let read = sealed.step(STEP_BYTES, STEP_RECORDS, |batch| match room {
            Some(room) => fold_within(&mut queue, batch, room),
            None => fold(&mut queue, batch),
        })?;
        self.stage = match read {
            Some(_) => Stage::Folding { base, queue, sealed },
            None => {
                let draft = Draft::begin(&*self.snapshots, sealed.end(), self.salt)?;
                Stage::Writing { base, queue, draft, behind: sealed.bytes() }
            }
        };
        Ok(working(Phase::Folding, read.unwrap_or_default(), self.put_away() - before))
    }

    fn write(&mut self, base: Option<Boundary>, queue: Queue, mut draft: Draft, behind: u64) -> Result<Progress, CompactionError> {
        let written = draft.step_within(&queue, self.room.as_mut())?;
        self.stage = match written {
            Some(_) => Stage::Writing { base, queue, draft, behind },
            None => {
                let finished = draft.finish(&queue)?;
                Stage::Written { base, queue, finished, behind }
            }
        };
        Ok(working(Phase::Writing, 0, written.unwrap_or_default()))
    }

    fn verify(&mut self, base: Option<Boundary>, queue: Queue, mut verifying: Verifying, behind: u64) -> Result<Progress, CompactionError> {
        let read = verifying.step_within(&queue, self.room.as_mut())?;
        self.stage = match read {
            Some(_) => Stage::Verifying { base, queue, verifying, behind },
            None => Stage::Publishing { base, verified: verifying.finish(&queue)?, behind },
        };
        Ok(working(Phase::Verifying, read.unwrap_or_default(), 0))
    }

    fn publish(&mut self, base: Option<Boundary>, verified: Verified, behind: u64) -> Result<Progress, CompactionError> {
        let (seq, snapshot_bytes) = (verified.seq(), verified.bytes());
        self.snapshots.publish(verified)?;
        // From here on two snapshots stand for everything up to the older one, or one for nothing: its segments are the reserve.
        let mut snapshots = newest_first(&*self.snapshots)?;
        snapshots.retain(|other| *other != seq && Some(*other) != base.map(|base| base.last));
        snapshots.reverse();
        let segments = base.map_or_else(|| Ok(Vec::new()), |base| removable(&*self.disk, base.segment))?;
        let passed_over = std::mem::take(&mut self.passed_over);
        let base = base.map(|base| base.last);
        let compacted = Compacted { seq, base, snapshot_bytes, removed_bytes: 0, kept_bytes: behind, passed_over };
        self.stage =
            Stage::Sweeping(Sweep { snapshots: snapshots.into_iter(), segments: segments.into_iter(), compacted, unsynced: false });
        Ok(working(Phase::Publishing, 0, 0))
    }

    fn sweep(&mut self, mut sweep: Sweep) -> Result<Progress, CompactionError> {
        if let Some(seq) = sweep.snapshots.next() {
            self.snapshots.remove(seq)?;
        } else if let Some((file, bytes)) = sweep.segments.next() {
            self.disk.remove(&file).map_err(|source| CompactionError::Sweep { file, source })?;
            sweep.compacted.removed_bytes += bytes;
            sweep.unsynced = true;
        } else if sweep.unsynced {
            self.disk.sync_names().map_err(|source| CompactionError::Sweep { file: ".".to_owned(), source })?;
            sweep.unsynced = false;
        } else {
            return Ok(Progress::Done(sweep.compacted));
        }
        self.stage = Stage::Sweeping(sweep);
        Ok(working(Phase::Sweeping, 0, 0))
    }
}

impl Drop for Compaction {
    fn drop(&mut self) {
        self.room.iter_mut().for_each(Room::clear);
    }
}

const fn working(phase: Phase, read_bytes: u64, written_bytes: u64) -> Progress {
    Progress::Working { phase, read_bytes, written_bytes }
}

/// When a compaction is worth its writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactionLimits {
    /// Below so many bytes of journal it is not: a small directory need not be kept smaller.
    pub least_bytes: u64,
    /// So many bytes of journal for each 100 bytes alive. More compacts less often, and takes more of the disk.
    pub percent_of_live: u64,
    /// The limit of the journal's bytes, of which no more than a quarter may gather.
    pub journal_bytes: u64,
}

impl CompactionLimits {
    /// The usual ones for a journal of at most so many bytes. Of the eight times of what is alive that a directory may take, three
    /// snapshots in sled take less than five, and the segments behind the older one two.
    #[must_use]
    pub const fn of(journal_bytes: u64) -> Self {
        Self { least_bytes: 6 << 20, percent_of_live: 100, journal_bytes }
    }
}

/// Whether a compaction is due, when the journal has grown by so many bytes since the newest snapshot, and so many bytes
/// [live](Queue::live_bytes).
#[must_use]
pub fn is_due(since_snapshot_bytes: u64, live_bytes: u64, limits: &CompactionLimits) -> bool {
    let by_ratio = u128::from(live_bytes) * u128::from(limits.percent_of_live) / 100;
    let due = by_ratio.max(limits.least_bytes.into()).min(u128::from(limits.journal_bytes / 4));
    u128::from(since_snapshot_bytes) >= due.max(1)
}

/// What is read or written in one step, about.
const STEP_BYTES: usize = 1 << 20;
/// Records that are folded in one step, about: some milliseconds.
const STEP_RECORDS: u64 = 4096;
