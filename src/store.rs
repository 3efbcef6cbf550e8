//! Opening what is on disk: the newest good snapshot, and the records after it. Reads only; what was damaged and could be
//! passed over is told, never mended. Payloads that the memory is not to hold are put away as they are read.

use std::sync::Arc;

use crate::disk::Disk;
use crate::ids::{Seq, Ticket};
use crate::journal::{Batch, Boundary, RecoverError, Recovery};
use crate::op::{Op, Record};
use crate::payloads::Payloads;
use crate::queue::{Change, Misfit, Queue};
use crate::record::{self, Malformed};
use crate::room::Room;
use crate::snapshot::{Loaded, Loading, SnapshotError, SnapshotStore};

/// A partition that has been read.
pub struct Store {
    /// What its records come to.
    pub queue: Queue,
    /// The journal, not yet written to.
    pub recovery: Recovery,
    /// The last record in the snapshot that it was read from; none when it was read from the first record on.
    pub snapshot: Option<Seq>,
    /// Newer snapshots that are damaged. Nothing is lost, but the next damage may not be survived: somebody should look.
    pub passed_over: Vec<SnapshotError>,
}

/// Why a partition cannot be opened. No file has changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The journal, or what of it follows the snapshot, cannot be read.
    #[error(transparent)]
    Journal(#[from] RecoverError<FoldError>),
    /// A snapshot cannot be read, for a reason that an older one must not hide: the disk refused, or it is of a newer release.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// Every snapshot is damaged, and the segments do not reach back to the first record or not up to the snapshots.
    #[error("no snapshot is sound ({}), and the journal alone is not whole: {source}", said(damaged))]
    NoSnapshot {
        /// What is wrong with each of them, newest first.
        damaged: Vec<SnapshotError>,
        /// What is wrong with the journal.
        source: RecoverError<FoldError>,
    },
}

/// A batch whose checksums hold, but whose records cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FoldError {
    /// A record does not decode, or bytes are left over.
    #[error("record {seq} cannot be decoded: {source}")]
    Malformed {
        /// The record.
        seq: Seq,
        /// Why.
        source: Malformed,
    },
    /// A record does not fit the state: this build folds the journal to another history than the one that wrote it.
    #[error("record {seq} does not fit what came before: {source}")]
    Diverged {
        /// The record.
        seq: Seq,
        /// Why.
        source: Misfit,
    },
}

impl Store {
    /// Reads what `disk` and `snapshots` have: the newest snapshot that is sound, and the segments behind it.
    ///
    /// # Errors
    /// [`OpenError`]; no file has changed.
    pub fn open(disk: Arc<dyn Disk>, snapshots: &dyn SnapshotStore) -> Result<Self, OpenError> {
        // Nothing is more than that.
        let mut room = Room::new(Payloads::new(disk.clone(), Default::default()), u64::MAX);
        Self::open_within(disk, snapshots, &mut room)
    }

    /// The same with no more of the payloads in memory than there is room for: others are put away as they are read.
    ///
    /// # Errors
    /// [`OpenError`]; no file that is read here has changed.
    pub fn open_within(disk: Arc<dyn Disk>, snapshots: &dyn SnapshotStore, room: &mut Room) -> Result<Self, OpenError> {
        let Newest { loaded, passed_over, newest } = Newest::find(snapshots, room)?;
        let snapshot = loaded.as_ref().map(|loaded| loaded.boundary.last);
        let (mut queue, boundary) = loaded.map_or_else(Default::default, |Loaded { queue, boundary, .. }| (queue, boundary));
        match recover(disk, &boundary, newest, &mut queue, room) {
            Ok(recovery) => Ok(Self { queue, recovery, snapshot, passed_over }),
            Err(source) if passed_over.is_empty() => Err(source.into()),
            // An error of the disk is none of the journal: it says nothing of what is there.
            Err(source @ RecoverError::Io { .. }) => Err(source.into()),
            Err(source) => Err(OpenError::NoSnapshot { damaged: passed_over, source }),
        }
    }
}

fn recover(
    disk: Arc<dyn Disk>,
    from: &Boundary,
    newest: Seq,
    queue: &mut Queue,
    room: &mut Room,
) -> Result<Recovery, RecoverError<FoldError>> {
    let recovery = Recovery::read_from(disk, from, |batch| fold_within(queue, batch, room))?;
    if recovery.last() < newest {
        // A snapshot is of durable records: those that it had and nobody else has are lost.
        let expected = format!("all records up to {newest}, which a damaged snapshot had; the last one is {}", recovery.last());
        return Err(RecoverError::Damaged { file: ".".to_owned(), offset: 0, expected });
    }
    Ok(recovery)
}

/// The newest snapshot that is sound.
struct Newest {
    loaded: Option<Loaded>,
    passed_over: Vec<SnapshotError>,
    /// The seq of the newest one, sound or not.
    newest: Seq,
}

impl Newest {
    fn find(snapshots: &dyn SnapshotStore, room: &mut Room) -> Result<Self, SnapshotError> {
        let seqs = newest_first(snapshots)?;
        let mut found = Self { loaded: None, passed_over: Vec::new(), newest: seqs.first().copied().unwrap_or_default() };
        for seq in seqs {
            match Loading::begin(snapshots, seq).and_then(|loading| load(loading, room)) {
                Ok(loaded) => {
                    found.loaded = Some(loaded);
                    break;
                }
                Err(damage) if damage.is_damage() => {
                    room.clear();
                    found.passed_over.push(damage);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }
}

fn load(mut loading: Loading, room: &mut Room) -> Result<Loaded, SnapshotError> {
    while loading.step()?.is_some() {
        loading.queue().into_iter().for_each(|queue| room.make(queue));
    }
    loading.finish()
}

/// The seqs of the published snapshots.
pub(crate) fn newest_first(snapshots: &dyn SnapshotStore) -> Result<Vec<Seq>, SnapshotError> {
    let mut seqs = snapshots.list()?;
    seqs.sort_unstable_by(|one, other| other.cmp(one));
    Ok(seqs)
}

/// Applies every record of a batch.
pub(crate) fn fold(queue: &mut Queue, batch: &Batch) -> Result<(), FoldError> {
    fold_and_tell(queue, batch, |_| {})
}

/// The same with no more payloads in memory afterwards than there is room for.
pub(crate) fn fold_within(queue: &mut Queue, batch: &Batch, room: &mut Room) -> Result<(), FoldError> {
    fold_and_tell(queue, batch, |ended| room.forget(ended))?;
    room.make(queue);
    Ok(())
}

/// The same, and tells each ticket that ended.
fn fold_and_tell(queue: &mut Queue, batch: &Batch, mut ended: impl FnMut(Ticket)) -> Result<(), FoldError> {
    let mut rest = &batch.body[..];
    let mut seq = batch.first;
    for _ in 0..batch.count {
        let record = record::decode_like(&mut rest, queue.last_route()).map_err(|source| FoldError::Malformed { seq, source })?;
        let change = queue.step(seq, batch.time, &record).map_err(|source| FoldError::Diverged { seq, source })?;
        if let (Change::Completed(_) | Change::Cancelled { .. }, Record::Op(Op::Complete { ticket, .. } | Op::Cancel { ticket })) =
            (change, &record)
        {
            ended(*ticket);
        }
        seq = seq.next();
    }
    if rest.is_empty() { Ok(()) } else { Err(FoldError::Malformed { seq, source: Malformed::Fields }) }
}

fn said(errors: &[SnapshotError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
