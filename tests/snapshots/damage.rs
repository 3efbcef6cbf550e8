//! Damage of a snapshot is never "no jobs" and never passed over unseen: an older snapshot and the segments since stand in, or the
//! error says what is wrong.

use std::fs;
use std::path::Path;

use journeyman_core::compaction::CompactionError;
use journeyman_core::disk::MemDisk;
use journeyman_core::journal::{JournalLimits, RecoverError};
use journeyman_core::snapshot::SnapshotError;
use journeyman_core::store::OpenError;
use journeyman_core::{Queue, Seq};

use super::kit::{Kind, Life, Place, Rig, kinds, run};
use crate::support::disks::Failing;
use crate::support::figures::{figure, held};
use crate::support::{image, seed, segment};

#[test]
fn damage_anywhere_in_the_newest_is_told_and_the_one_before_stands_in() {
    let mut dice = fastrand::Rng::with_seed(seed());
    let mut tried = 0;
    for kind in kinds() {
        let (place, queue) = two_snapshots(kind);
        let (older, newest) = seqs(&place);
        let files = place.files_of(newest);
        for path in &files {
            let sound = fs::read(path).expect("it reads");
            for damage in [Damage::Gone, Damage::Zeroed, Damage::Halved, Damage::Emptied] {
                // Zeros in the place of zeros, and half of nothing, are no damage.
                if damage.of(&sound).is_some_and(|bytes| bytes == sound) || kind == Kind::Plain && matches!(damage, Damage::Gone) {
                    continue;
                }
                damage.apply(path, &sound);
                stands_in(&place, &queue, older, &format!("{kind:?}, {damage:?} {}", path.display()));
                tried += 1;
                fs::write(path, &sound).expect("it writes");
            }
        }
        let flips = figure(200, 2000);
        for flip in 0..flips {
            let path = dice.choice(&files).expect("there are files");
            let sound = fs::read(path).expect("it reads");
            let mut bytes = sound.clone();
            let bit = dice.usize(..bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            fs::write(path, &bytes).expect("it writes");
            stands_in(&place, &queue, older, &format!("{kind:?}, flip {flip}: bit {bit} of {}", path.display()));
            fs::write(path, &sound).expect("it writes");
        }
        tried += flips;
        let store = place.rig().open().expect("it is mended");
        assert_eq!((store.snapshot, store.passed_over.len()), (Some(newest), 0));
    }
    held("F20", tried, "damages of the newest snapshot in each store: files gone, zeroed, halved, emptied, bits flipped");
}

#[test]
fn a_snapshot_that_is_gone_is_stood_in_for() {
    for kind in kinds() {
        let (place, queue) = two_snapshots(kind);
        let (older, newest) = seqs(&place);
        remove(&place.dir.path().join(place.rig().snapshots().name(newest)));
        let store = place.rig().open().expect("the older one is there");
        assert_eq!((store.queue, store.snapshot), (queue, Some(older)));
    }
}

#[test]
fn the_next_compaction_takes_the_place_of_a_damaged_snapshot() {
    for kind in kinds() {
        let (place, queue) = two_snapshots(kind);
        let (older, newest) = seqs(&place);
        spoil(&place, newest);
        let rig = place.rig();
        let mut life = Life::quiet(&rig, super::kit::LIMITS);
        assert_eq!(life.queue, queue);
        life.lead().expect("the disk takes it");
        let compacted = life.compact();
        assert_eq!((compacted.base, compacted.passed_over.len()), (Some(older), 1), "{kind:?}");
        assert_eq!(rig.seqs(), [older, compacted.seq]);
        assert_eq!(rig.queue(), life.queue);
    }
}

#[test]
fn when_both_are_damaged_the_error_names_each_unless_all_segments_are_there() {
    for kind in kinds() {
        let (place, _) = two_snapshots(kind);
        let (older, newest) = seqs(&place);
        spoil(&place, older);
        spoil(&place, newest);
        let files = place.files();
        let rig = place.rig();
        let error = rig.open().err().expect("both are damaged");
        let said = error.to_string();
        assert!([newest, older].iter().all(|seq| said.contains(&rig.snapshots().name(*seq))), "{said}");
        let OpenError::NoSnapshot { damaged, source: RecoverError::Damaged { .. } } = error else { panic!("{kind:?}") };
        let named: Vec<_> = damaged.iter().map(ToString::to_string).collect();
        for (error, seq) in named.iter().zip([newest, older]) {
            assert!(error.contains(&rig.snapshots().name(seq)), "{error}");
        }
        assert!(place.files() == files, "{kind:?}: an open that fails touches nothing");

        let place = Place::new(kind);
        let mut life = Life::begin(&place.rig());
        life.busy(10);
        spoil(&place, life.compact().seq);
        let store = place.rig().open().expect("all segments are there");
        assert_eq!((store.snapshot, store.passed_over.len()), (None, 1));
        assert_eq!(store.queue, life.queue);
    }
}

#[test]
fn no_snapshot_and_no_beginning_is_an_error_and_never_an_empty_queue() {
    for kind in kinds() {
        let (place, _) = two_snapshots(kind);
        for seq in place.rig().seqs() {
            remove(&place.dir.path().join(place.rig().snapshots().name(seq)));
        }
        assert!(matches!(place.rig().open(), Err(OpenError::Journal(RecoverError::Damaged { .. }))));
    }
}

#[test]
fn snapshots_without_their_segments_are_an_error() {
    for kind in kinds() {
        let (place, _) = two_snapshots(kind);
        let (older, newest) = seqs(&place);
        for name in place.rig().names().into_iter().filter(|name| name.ends_with(".segment")) {
            place.disk.remove(&name).expect("it is there");
        }
        let Err(OpenError::Journal(RecoverError::Damaged { file, expected, .. })) = place.rig().open() else { panic!("{kind:?}") };
        assert!(file.ends_with(".segment") && expected.contains(&newest.next().to_string()), "{file}: {expected}");
        spoil(&place, older);
        spoil(&place, newest);
        assert!(matches!(place.rig().open(), Err(OpenError::NoSnapshot { .. })), "{kind:?}");
    }
}

#[test]
fn segments_before_the_newest_snapshot_are_not_read() {
    for kind in kinds() {
        let (place, queue) = two_snapshots(kind);
        let names: Vec<_> = place.rig().names().into_iter().filter(|name| name.ends_with(".segment")).collect();
        let (_, reserve) = names.split_last().expect("there are some");
        for name in reserve {
            fs::write(place.dir.path().join(name), b"rot").expect("it writes");
        }
        assert_eq!(place.rig().queue(), queue);
    }
}

#[test]
fn a_snapshot_of_a_newer_release_is_refused_and_nothing_stands_in() {
    let (place, _) = two_snapshots(Kind::Plain);
    let (_, newest) = seqs(&place);
    let path = place.files_of(newest).remove(0);
    let mut bytes = fs::read(&path).expect("it reads");
    bytes[10] = 9;
    let sum = crc32c::crc32c(&bytes[..124]);
    bytes[124..128].copy_from_slice(&sum.to_le_bytes());
    fs::write(&path, &bytes).expect("it writes");
    assert!(matches!(place.rig().open(), Err(OpenError::Snapshot(SnapshotError::Newer { needs: 9, .. }))));
    let mut compaction = place.rig().compaction(99).expect("it lists");
    assert!(matches!(run(&mut compaction), Err(CompactionError::Snapshot(SnapshotError::Newer { .. }))));
}

#[test]
fn a_list_of_sled_files_of_a_newer_release_is_refused_and_nothing_stands_in() {
    for kind in kinds().filter(|kind| *kind == Kind::Sled) {
        let (place, _) = two_snapshots(kind);
        let (_, newest) = seqs(&place);
        let path = place.files_of(newest).into_iter().find(|path| path.ends_with("journeyman.files")).expect("there is a list");
        let text = fs::read_to_string(&path).expect("it reads").replacen("sled, 1\n", "sled, 2\n", 1);
        let (said, _) = text.trim_end().rsplit_once('\n').expect("it has lines");
        fs::write(&path, format!("{said}\n{:08x}\n", crc32c::crc32c(format!("{said}\n").as_bytes()))).expect("it writes");
        assert!(matches!(place.rig().open(), Err(OpenError::Snapshot(SnapshotError::Newer { needs: 2, .. }))));
    }
}

#[test]
fn an_error_of_the_disk_is_no_damage_and_nothing_stands_in() {
    let disk = MemDisk::default();
    let mut life = Life::begin(&Rig::plain(disk.clone()));
    for _ in 0..3 {
        life.busy(5);
        life.compact();
    }
    let mut failures = 0;
    for at in 1.. {
        let failing = Failing::on(&disk);
        failing.arm(at);
        let opened = Rig::plain(failing.clone()).open();
        if failing.calls() < at {
            break;
        }
        failures += 1;
        match opened {
            Err(OpenError::Snapshot(SnapshotError::Io { .. }) | OpenError::Journal(RecoverError::Io { .. })) => {}
            // Heads of segments in reserve are looked at only to count their bytes.
            Ok(store) => assert!(store.queue == life.queue && store.passed_over.is_empty(), "call {at}"),
            Err(other) => panic!("call {at}: {other}"),
        }
    }
    assert!(failures >= 6, "{failures}");
}

#[test]
fn an_error_of_the_disk_behind_a_damaged_snapshot_is_still_none_of_the_journal() {
    let disk = MemDisk::default();
    let mut life = Life::begin(&Rig::plain(disk.clone()));
    for _ in 0..2 {
        life.busy(5);
        life.compact();
    }
    let newest = Rig::plain(disk.clone()).snapshots().name(life.queue.last());
    let mut bytes = image(&disk)[&newest].clone();
    bytes[200] ^= 1;
    disk.put(&newest, &bytes);
    let (mut failures, mut of_the_journal) = (0, 0);
    for at in 1.. {
        let failing = Failing::on(&disk);
        failing.arm(at);
        let opened = Rig::plain(failing.clone()).open();
        if failing.calls() < at {
            break;
        }
        failures += 1;
        match opened {
            Err(OpenError::Journal(RecoverError::Io { .. })) => of_the_journal += 1,
            Err(OpenError::Snapshot(SnapshotError::Io { .. })) => {}
            Ok(store) => assert!(store.queue == life.queue && store.passed_over.len() == 1, "call {at}"),
            Err(other) => panic!("call {at}: {other}"),
        }
    }
    assert!(failures >= 8 && of_the_journal >= 3, "{failures}, {of_the_journal} of the journal");
}

/// A segment of the right number, that goes on from somewhere else.
#[test]
fn the_segment_behind_a_snapshot_must_begin_where_that_ends() {
    let disk = MemDisk::default();
    let mut life = Life::begin(&Rig::plain(disk.clone()));
    life.busy(5);
    life.compact();
    let next = segment(life.journal.writes_to().expect("it writes"));
    let sound = image(&disk)[&next].clone();
    // Its first record; the length and the checksum of the segment before.
    for (offset, expected) in [(40, "begins at record"), (56, "where the snapshot ends"), (12, "where the snapshot ends")] {
        let mut bytes = sound.clone();
        bytes[offset] ^= 1;
        let sum = crc32c::crc32c(&bytes[..92]);
        bytes[92..96].copy_from_slice(&sum.to_le_bytes());
        disk.put(&next, &bytes);
        match Rig::plain(disk.clone()).open().err() {
            Some(OpenError::Journal(error @ RecoverError::Damaged { .. })) => {
                let said = error.to_string();
                assert!(said.contains(&next) && said.contains(expected), "{said}");
            }
            other => panic!("byte {offset}: {other:?}"),
        }
    }
    disk.put(&next, &sound);
    assert_eq!(Rig::plain(disk).queue(), life.queue);
}

#[test]
fn a_segment_that_rots_under_a_compaction_ends_it_and_nothing_is_deleted() {
    let disk = MemDisk::default();
    let rig = Rig::plain(disk.clone());
    let mut life = Life::with(&rig, JournalLimits { segment_bytes: 4096, ..super::kit::LIMITS });
    life.busy(20);
    life.compact();
    life.busy(20);
    life.journal.rotate().expect("memory takes it");
    let newest = life.journal.writes_to().expect("it writes");
    for number in [newest - 1, newest - 2] {
        let files = image(&disk);
        let mut bytes = files[&segment(number)].clone();
        let last = bytes.iter().rposition(|byte| *byte != 0).expect("something is written");
        bytes[last] ^= 1;
        disk.put(&segment(number), &bytes);
        let before = image(&disk);
        for _ in 0..2 {
            let mut compaction = rig.compaction(newest).expect("it lists");
            let Err(CompactionError::Journal(RecoverError::Damaged { file, .. })) = run(&mut compaction) else { panic!("{number}") };
            assert_eq!(file, segment(number));
        }
        assert!(image(&disk) == before);
        disk.put(&segment(number), &files[&segment(number)]);
    }
    life.compact();
    assert_eq!(rig.queue(), life.queue);
}

#[test]
fn a_segment_that_is_cut_under_a_compaction_ends_it() {
    let disk = MemDisk::default();
    let rig = Rig::plain(disk.clone());
    let mut life = Life::begin(&rig);
    life.busy(5);
    life.journal.rotate().expect("memory takes it");
    assert_eq!(life.journal.writes_to(), Some(2));
    let sound = image(&disk)[&segment(1)].clone();
    let used = sound.iter().rposition(|byte| *byte != 0).expect("it is written") + 1;
    for cut in [0, 95, 96, 97, 1000, used / 2, used - 1] {
        disk.put(&segment(1), &sound[..cut]);
        let mut compaction = rig.compaction(2).expect("it lists");
        let Err(CompactionError::Journal(RecoverError::Damaged { file, .. })) = run(&mut compaction) else { panic!("cut at {cut}") };
        assert_eq!(file, segment(1));
    }
    disk.put(&segment(1), &sound[..used]);
    life.compact();
    assert_eq!(rig.queue(), life.queue);
    let mut late = rig.compaction(9).expect("it lists");
    let Err(CompactionError::Journal(RecoverError::Damaged { file, .. })) = run(&mut late) else { panic!("no such segment") };
    assert_eq!(file, segment(9));
}

#[derive(Clone, Copy, Debug)]
enum Damage {
    Gone,
    Zeroed,
    Halved,
    Emptied,
}

impl Damage {
    fn of(self, sound: &[u8]) -> Option<Vec<u8>> {
        match self {
            Self::Gone => None,
            Self::Zeroed => Some(vec![0; sound.len()]),
            Self::Halved => Some(sound[..sound.len() / 2].to_vec()),
            Self::Emptied => Some(Vec::new()),
        }
    }

    fn apply(self, path: &Path, sound: &[u8]) {
        match self.of(sound) {
            None => fs::remove_file(path).expect("it is there"),
            Some(bytes) => fs::write(path, bytes).expect("it writes"),
        }
    }
}

fn stands_in(place: &Place, queue: &Queue, older: Seq, context: &str) {
    let store = place.rig().open().unwrap_or_else(|error| panic!("{context}: {error}"));
    assert_eq!((store.snapshot, store.passed_over.len()), (Some(older), 1), "{context}");
    assert!(store.queue == *queue, "{context}");
}

/// A place with two snapshots, and records behind them.
fn two_snapshots(kind: Kind) -> (Place, Queue) {
    let place = Place::new(kind);
    let mut life = Life::begin(&place.rig());
    for _ in 0..3 {
        life.busy(25);
        life.compact();
    }
    life.busy(3);
    let Life { queue, .. } = life;
    (place, queue)
}

fn seqs(place: &Place) -> (Seq, Seq) {
    let seqs = place.rig().seqs();
    assert_eq!(seqs.len(), 2);
    (seqs[0], seqs[1])
}

fn spoil(place: &Place, seq: Seq) {
    let path = place.files_of(seq).into_iter().max_by_key(|path| fs::metadata(path).expect("it is there").len()).expect("some");
    let mut bytes = fs::read(&path).expect("it reads");
    bytes[200] ^= 1;
    fs::write(path, bytes).expect("it writes");
}

fn remove(path: &Path) {
    if path.is_dir() { fs::remove_dir_all(path).expect("it is there") } else { fs::remove_file(path).expect("it is there") }
}
