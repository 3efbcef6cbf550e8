//! A snapshot gives back the state that went in, and with the records behind it the state that a whole replay gives.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use journeyman_core::compaction::{Phase, Progress};
use journeyman_core::disk::MemDisk;
use journeyman_core::journal::{AppendError, Batch, Boundary, RotateError, Rotated, Salt};
use journeyman_core::snapshot::{Draft, Loading, PlainStore, SnapshotError, SnapshotStore};
use journeyman_core::{Epoch, Op, Options, Packed, Queue, Record, Time};

use super::kit::{Kind, LIMITS, Life, Place, Rig, has_sled, kinds, run, run_to};
use crate::support::disks::Failing;
use crate::support::{Act, history, holds, image, job, replay};

#[test]
fn a_snapshot_at_any_seq_with_the_rest_behind_it_is_the_whole_replay() {
    holds(300, |(acts, at): (Vec<Act>, usize)| {
        let history = history(&acts);
        let (before, after) = history.split_at(at % (history.len() + 1));
        let state = replay(Queue::default(), before);
        let loaded = through_a_file(&state);
        loaded.check();
        assert_eq!(loaded, state);
        assert_eq!(replay(loaded, after), replay(Queue::default(), &history));
    });
}

#[test]
fn a_job_larger_than_many_chunks_comes_back_whole_and_its_size_is_foretold() {
    let mut queue = Queue::default();
    for n in 0..40u8 {
        let mut job = job(n, None);
        job.payload = (0..usize::from(n) * 30_000).map(|at| (at % 251) as u8).collect();
        job.options.set(Options::ATTEMPTS, 3);
        let enqueue = Op::Enqueue { now: Time(1), due: Time(2), key: None, job: Packed::from(job) };
        queue.step(queue.last().next(), Time(1), &Record::Op(enqueue)).expect("it fits");
    }
    assert_eq!(through_a_file(&queue), queue);
    let disk = MemDisk::default();
    let bytes = write(&PlainStore::new(Arc::new(disk)), &queue);
    let foretold = queue.live_bytes();
    assert!(bytes.abs_diff(foretold) * 10 < foretold, "{bytes} bytes, {foretold} foretold");
}

#[test]
fn what_was_compacted_opens_to_the_same_state_and_goes_on() {
    for kind in kinds() {
        let place = Place::new(kind);
        let rig = place.rig();
        let mut life = Life::begin(&rig);
        let mut removed = 0;
        for round in 0..5 {
            life.busy(20);
            let compacted = life.compact();
            assert_eq!((compacted.seq, compacted.base.is_some()), (life.queue.last(), round > 0), "{kind:?}");
            removed += compacted.removed_bytes;
            life.busy(3);
            let store = rig.open().expect("it opens");
            assert_eq!(store.snapshot, Some(compacted.seq));
            if round <= 2 {
                // Later the tail that was carried into the next segment counts twice, until both are removed.
                assert_eq!(store.recovery.bytes(), life.journal.counters().bytes, "{kind:?}, round {round}");
            }
            let (bytes, since) = (store.recovery.bytes(), store.recovery.bytes_since_snapshot());
            assert_eq!(bytes, compacted.kept_bytes + since, "{kind:?}, round {round}: the reserve, and what is behind the snapshot");
            assert_eq!(store.queue, life.queue, "{kind:?}");
            assert_eq!(store.recovery.into_journal(LIMITS, Salt(1)).counters().bytes, bytes, "{kind:?}, round {round}");
            if round == 2 {
                life = Life::begin(&rig);
            }
        }
        assert!(removed > 0);
        assert_eq!(rig.seqs().len(), 2);
    }
}

#[test]
fn an_open_changes_no_byte_and_no_name() {
    for kind in kinds() {
        let place = Place::new(kind);
        let rig = place.rig();
        let mut life = Life::begin(&rig);
        life.busy(200);
        life.compact();
        life.busy(20);
        let mut killed = life.compaction();
        run_to(&mut killed, Phase::Verifying);
        drop(killed);
        let files = place.files();
        for _ in 0..3 {
            assert_eq!(rig.queue(), life.queue);
            assert!(place.files() == files, "{kind:?}: drafts of a crash are left as they are");
        }
    }
}

/// A process that is killed while sled has its copy open leaves it there, and the next process counts from the start.
#[test]
fn the_copy_that_a_killed_process_has_left_is_in_nobodys_way() {
    if !has_sled() {
        println!("skipped: this build has no sled");
        return;
    }
    let place = Place::new(Kind::Sled);
    let rig = place.rig();
    let mut life = Life::begin(&rig);
    life.busy(30);
    let seq = life.compact().seq;
    let open = rig.snapshots().open(seq).expect("it is sound");
    let copy = rig.names().into_iter().find(|name| name.contains(".open")).expect("sled opens a copy");
    drop(open);
    let (name, number) = copy.rsplit_once(".open").expect("it has a number");
    let number: u64 = number.parse().expect("it has a number");
    // Whatever this process, whose other tests count too, will call its next copy.
    for next in number + 1..number + 500 {
        let left = place.dir.path().join(format!("{name}.open{next}"));
        fs::create_dir_all(left.join("blobs")).expect("room");
        fs::write(left.join("db"), "half a copy").expect("room");
    }
    for _ in 0..3 {
        assert_eq!(rig.queue(), life.queue);
    }
}

#[test]
fn snapshots_are_private_whatever_the_umask() {
    for kind in kinds() {
        let place = Place::new(kind);
        let mut life = Life::begin(&place.rig());
        life.busy(100);
        let seq = life.compact().seq;
        let files = place.files_of(seq);
        let dirs: BTreeSet<_> = files.iter().filter_map(|file| file.parent()).filter(|dir| *dir != place.dir.path()).collect();
        for (path, mode) in files.iter().map(|file| (file.as_path(), 0o600)).chain(dirs.into_iter().map(|dir| (dir, 0o700))) {
            assert_eq!(fs::metadata(path).expect("it is there").permissions().mode() & 0o777, mode, "{}", path.display());
        }
    }
}

#[test]
fn ids_rise_when_all_has_ended_and_been_compacted_away() {
    // With the keys of ended tickets still remembered, and with nothing left at all.
    for (kind, keyed) in kinds().flat_map(|kind| [(kind, true), (kind, false)]) {
        let place = Place::new(kind);
        let rig = place.rig();
        let mut life = Life::begin(&rig);
        if keyed {
            life.busy(10);
        } else {
            for n in 0..10 {
                life.enqueue(None, n);
            }
        }
        life.complete_all();
        for _ in 0..3 {
            life.compact();
            life.lead().expect("the disk takes it");
        }
        let (last, issued) = (life.queue.last(), life.queue.ends().total());
        assert_eq!(life.queue.pending() + life.queue.running(), 0);
        drop(life);
        let mut life = Life::begin(&rig);
        assert!(life.queue.last() > last);
        assert_eq!(life.enqueue(None, 1).0, issued + 1, "{kind:?}, keyed: {keyed}");
    }
}

/// The segment behind it holds no batch that would tell.
#[test]
fn a_snapshot_knows_who_led() {
    let rig = Rig::plain(MemDisk::default());
    let mut life = Life::begin(&rig);
    for _ in 0..2 {
        (0..3).for_each(|_| life.lead().expect("memory takes it"));
        life.compact();
        let mut next = Life::quiet(&rig, LIMITS);
        let led = life.queue.epoch();
        let late = Batch { epoch: Epoch(led.0 - 1), first: life.queue.last().next(), count: 1, time: Time(1), body: vec![] };
        assert!(matches!(next.journal.append(late), Err(AppendError::Fenced { led: found, .. }) if found == led));
    }
}

/// Another crate of the program may switch the feature on.
#[test]
fn a_build_with_sled_goes_on_from_plain_files() {
    if !has_sled() {
        println!("skipped: this build has no sled");
        return;
    }
    let place = Place::new(Kind::Plain);
    let mut life = Life::begin(&place.rig());
    life.busy(5);
    let first = life.compact().seq;
    life.busy(5);
    let second = life.compact().seq;
    let Place { dir, disk, .. } = place;
    let place = Place { dir, disk, kind: Kind::Sled };
    let rig = place.rig();
    let mut life = Life::begin(&rig);
    assert_eq!(rig.seqs(), [first, second]);
    let third = life.compact();
    assert_eq!((third.base, rig.seqs()), (Some(second), vec![second, third.seq]));
    life.busy(5);
    let fourth = life.compact();
    assert_eq!((fourth.base, rig.seqs()), (Some(third.seq), vec![third.seq, fourth.seq]));
    assert!(!rig.names().iter().any(|name| name.ends_with(".snapshot")));
    assert_eq!(rig.queue(), life.queue);
}

#[test]
fn what_is_in_a_snapshot_already_is_not_compacted_again() {
    let place = Place::new(Kind::Plain);
    let rig = place.rig();
    let mut life = Life::begin(&rig);
    life.busy(5);
    life.compact();
    let files = place.files();
    assert_eq!(life.journal.rotate().expect("the disk takes it"), Rotated::Nothing);
    let mut compaction = rig.compaction(life.journal.writes_to().expect("it writes")).expect("it lists");
    assert!(matches!(run(&mut compaction), Ok(Progress::Nothing)));
    assert!(compaction.step().is_err() && compaction.phase().is_none());
    assert!(place.files() == files);
}

#[test]
fn a_rotation_seals_all_before_it_and_an_empty_segment_recovers() {
    let disk = MemDisk::default();
    let rig = Rig::plain(disk.clone());
    let mut life = Life::quiet(&rig, LIMITS);
    assert_eq!((life.journal.rotate().expect("it is sound"), life.journal.writes_to()), (Rotated::Nothing, None));
    life.lead().expect("memory takes it");
    assert_eq!(life.journal.writes_to(), Some(1));
    assert_eq!(life.journal.rotate().expect("memory takes it"), Rotated::Began(2));
    disk.crash();
    assert_eq!(rig.queue(), life.queue);
    assert_eq!(life.journal.rotate().expect("it is sound"), Rotated::Nothing);
    let mut next = Life::begin(&rig);
    next.busy(2);
    assert_eq!(rig.queue(), next.queue);
}

#[test]
fn a_rotation_that_fails_before_the_name_leaves_the_journal_as_it_was() {
    let (mut usable, mut poisoned) = (0, 0);
    for at in 1.. {
        let disk = MemDisk::default();
        let failing = Failing::on(&disk);
        let rig = Rig::plain(failing.clone());
        let mut life = Life::begin(&rig);
        failing.arm(at);
        match life.journal.rotate() {
            Ok(_) => break,
            Err(RotateError::Draft(_)) => {
                usable += 1;
                life.busy(1);
                assert!(matches!(life.journal.rotate(), Ok(Rotated::Began(2))));
                life.busy(1);
            }
            Err(RotateError::Failed(_)) => {
                poisoned += 1;
                assert!(life.lead().is_err() && matches!(life.journal.rotate(), Err(RotateError::Poisoned)));
            }
            Err(other) => panic!("{other}"),
        }
        failing.arm(0);
        assert_eq!(rig.queue(), life.queue);
        disk.crash();
        assert_eq!(rig.queue(), life.queue);
    }
    assert_eq!((usable, poisoned), (4, 2));
}

/// With sound checksums around it, the decoder sees whatever there is.
#[test]
fn any_entries_give_a_queue_that_holds_together_or_an_error() {
    holds(300, |(acts, places, values): (Vec<Act>, Vec<usize>, Vec<u8>)| {
        let state = replay(Queue::default(), &history(&acts));
        let disk = MemDisk::default();
        write(&PlainStore::new(Arc::new(disk.clone())), &state);
        let name = image(&disk).into_keys().next().expect("one file");
        let mut bytes = image(&disk).remove(&name).expect("one file");
        for (place, value) in places.iter().zip(&values).take(4) {
            let at = META + CHUNK + place % (bytes.len() - META - CHUNK);
            bytes[at] = *value;
        }
        sum_up(&mut bytes);
        let disk = MemDisk::default();
        disk.put(&name, &bytes);
        match Loading::begin(&PlainStore::new(Arc::new(disk)), state.last()).and_then(Loading::finish) {
            Ok(loaded) => loaded.queue.check(),
            Err(error) => assert!(error.is_damage(), "{error}"),
        }
    });
}

#[test]
fn any_bit_of_a_snapshot_that_flips_is_found() {
    let disk = MemDisk::default();
    let rig = Rig::plain(disk.clone());
    let mut life = Life::begin(&rig);
    life.busy(2);
    let store = PlainStore::new(Arc::new(disk.clone()));
    write(&store, &life.queue);
    let name = store.name(life.queue.last());
    let sound = image(&disk).remove(&name).expect("it is there");
    for bit in 0..sound.len() * 8 {
        let mut bytes = sound.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        disk.put(&name, &bytes);
        let error = Loading::begin(&store, life.queue.last()).and_then(Loading::finish).expect_err("it is damaged");
        assert!(matches!(error, SnapshotError::Damaged { .. }), "bit {bit}: {error}");
    }
    for length in 0..sound.len() {
        disk.put(&name, &sound[..length]);
        assert!(Loading::begin(&store, life.queue.last()).and_then(Loading::finish).is_err(), "cut at {length}");
    }
    disk.put(&name, &[&sound[..], &[0]].concat());
    assert!(Loading::begin(&store, life.queue.last()).and_then(Loading::finish).is_err(), "a byte behind the end");
}

#[test]
fn a_draft_that_is_not_what_was_written_is_not_published() {
    let disk = MemDisk::default();
    let store = PlainStore::new(Arc::new(disk.clone()));
    let mut life = Life::begin(&Rig::plain(disk.clone()));
    life.busy(3);
    let other = life.queue.clone();
    life.busy(1);
    let boundary = Boundary { last: other.last(), ..Boundary::START };
    let finished = Draft::begin(&store, boundary, Salt(1)).and_then(|draft| draft.finish(&other)).expect("memory takes it");
    let verifying = finished.verify(&store).expect("it reads");
    assert!(verifying.finish(&life.queue).expect_err("another state").is_damage());
    assert!(store.list().expect("it lists").is_empty());
}

fn through_a_file(queue: &Queue) -> Queue {
    let store = PlainStore::new(Arc::new(MemDisk::default()));
    write(&store, queue);
    Loading::begin(&store, queue.last()).and_then(Loading::finish).expect("it is sound").queue
}

/// Publishes the snapshot of a queue and answers its bytes.
pub(crate) fn write(store: &dyn SnapshotStore, queue: &Queue) -> u64 {
    let boundary = Boundary { last: queue.last(), ..Boundary::START };
    let finished = Draft::begin(store, boundary, Salt(7)).and_then(|draft| draft.finish(queue)).expect("the disk takes it");
    let verified = finished.verify(store).and_then(|verifying| verifying.finish(queue)).expect("it is what was written");
    let bytes = verified.bytes();
    store.publish(verified).expect("the disk takes it");
    bytes
}

/// Mends the checksums of a snapshot of one chunk, as docs/journal-format.md says.
pub(crate) fn sum_up(bytes: &mut [u8]) {
    let (meta, chunk) = bytes.split_at_mut(META);
    let salted = |parts: &[&[u8]]| parts.iter().fold(crc32c::crc32c(&meta[16..32]), |sum, part| crc32c::crc32c_append(sum, part));
    let sum = salted(&[&meta[32..40], &chunk[..12], &chunk[16..]]);
    chunk[12..16].copy_from_slice(&sum.to_le_bytes());
    let digest = u64::from(salted(&[chunk]));
    meta[88..96].copy_from_slice(&digest.to_le_bytes());
    let sum = crc32c::crc32c(&meta[..META - 4]);
    meta[META - 4..].copy_from_slice(&sum.to_le_bytes());
}

pub(crate) const META: usize = 128;
pub(crate) const CHUNK: usize = 16;
