//! S17: a copy of a stopped directory is a backup; so is a snapshot with the segments behind it. What was restored goes on, under
//! an epoch of its own.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use journeyman_core::disk::FileDisk;
use journeyman_core::queue::Phase;
use journeyman_core::{Attempt, End, Op, Queue, Record, Seq};
use tempfile::{TempDir, tempdir};

use crate::kit::{Kind, Life, Place, Rig, kinds};

/// As `cp -a` does.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("the directory is ours");
    fs::set_permissions(to, fs::metadata(from).expect("it is there").permissions()).expect("it is ours");
    for entry in fs::read_dir(from).expect("it lists") {
        let entry = entry.expect("it lists");
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), &to).expect("it copies");
        }
    }
}

fn restored(kind: Kind, backup: &Path) -> (TempDir, Rig) {
    let dir = tempdir().expect("a directory for this test");
    let place = dir.path().join("restored");
    copy(backup, &place);
    let disk = std::sync::Arc::new(FileDisk::open(&place).expect("it is ours"));
    let its = disk.clone();
    let rig = Rig::new(disk, move || match kind {
        Kind::Plain => journeyman::snapshots::plain(its.clone()),
        Kind::Sled => journeyman::snapshots::store(&place, its.clone()),
    });
    (dir, rig)
}

/// A partition with two snapshots, something behind them, and one job that runs.
fn lived(kind: Kind) -> (Place, Life) {
    let place = Place::new(kind);
    let mut life = Life::begin(&place.rig());
    for _ in 0..2 {
        life.busy(20);
        life.compact();
    }
    life.busy(5);
    (place, life)
}

#[test]
fn s17_a_copy_of_a_stopped_directory_restores_all_of_it() {
    for kind in kinds() {
        let (place, life) = lived(kind);
        let before = life.queue.clone();
        life.journal.seal().expect("the disk takes it");
        let backup = tempdir().expect("a directory for this test");
        copy(place.dir.path(), backup.path());
        for file in crate::kit::below(backup.path()) {
            assert_eq!(fs::metadata(&file).expect("it is there").permissions().mode() & 0o777, 0o600, "{}", file.display());
        }
        // The directory goes on, and is lost.
        let mut lost = Life::begin(&place.rig());
        lost.busy(20);
        lost.compact();
        let (_dir, rig) = restored(kind, backup.path());
        assert_eq!(rig.queue(), before, "{kind:?}");
        goes_on_under_its_own_epoch(&rig, &before);
    }
}

#[test]
fn s17_a_snapshot_and_the_segments_behind_it_restore_all_of_it() {
    for kind in kinds() {
        let (place, life) = lived(kind);
        let before = life.queue.clone();
        life.journal.seal().expect("the disk takes it");
        let backup = tempdir().expect("a directory for this test");
        copy(place.dir.path(), backup.path());
        let rig = place.rig();
        let newest = *rig.seqs().last().expect("there are two");
        for seq in rig.seqs().into_iter().filter(|seq| *seq != newest) {
            let reserve = backup.path().join(rig.snapshots().name(seq));
            if reserve.is_dir() { fs::remove_dir_all(reserve) } else { fs::remove_file(reserve) }.expect("it is ours");
        }
        let mut segments = 0;
        for file in crate::kit::below(backup.path()) {
            if file.extension().is_some_and(|end| end == "segment") {
                let bytes = fs::read(&file).expect("it reads");
                let first = u64::from_le_bytes(bytes[40..48].try_into().expect("eight bytes"));
                if first <= newest.0 {
                    fs::remove_file(&file).expect("it is ours");
                    segments += 1;
                }
            }
        }
        assert!(segments > 0, "{kind:?}: there was a reserve");
        let (_dir, rig) = restored(kind, backup.path());
        assert_eq!(rig.queue(), before, "{kind:?}");
        goes_on_under_its_own_epoch(&rig, &before);
    }
}

/// Attempts of before count for nothing: neither by their number nor by the epoch of a batch.
fn goes_on_under_its_own_epoch(rig: &Rig, before: &Queue) {
    let running: Vec<_> = before.tickets().filter(|(_, live)| live.is_running()).map(|(ticket, _)| ticket).collect();
    let mut life = Life::begin(rig);
    assert!(life.queue.epoch() > before.epoch(), "a new writer leads");
    let (ticket, epoch) = (running[0], life.queue.epoch());
    let Some(Phase::Running { attempt }) = life.queue.get(ticket).map(|live| live.phase()) else { panic!("it runs") };
    life.op(Op::Defer { ticket, attempt, due: journeyman_core::Time(1) });
    let renewed = life.select(ticket);
    for old in [attempt, Attempt(Seq(renewed.0.0 - 1)), Attempt(Seq(renewed.0.0 + 1))] {
        let late = Record::Op(Op::Complete { ticket, attempt: old, end: End::Done, fault: None });
        let mut queue = life.queue.clone();
        assert!(queue.step(queue.last().next(), journeyman_core::Time(9), &late).is_err(), "the outcome of another attempt");
        assert_eq!(queue, life.queue);
    }
    let stale = journeyman_core::journal::Batch {
        epoch: before.epoch(),
        first: life.queue.last().next(),
        count: 1,
        time: journeyman_core::Time(9),
        body: vec![3, 1],
    };
    assert!(life.journal.append(stale).is_err(), "a writer of before is fenced");
    assert_eq!((rig.queue().epoch(), rig.queue().last()), (epoch, life.queue.last()));
}
