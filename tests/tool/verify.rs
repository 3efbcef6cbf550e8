//! What `verify` says: sound is sound, all damage is told with its place, and it agrees with what a start does.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use journeyman_core::disk::FileDisk;
use journeyman_core::store::Store;

use super::{Answer, Used, change, flip, json, name, tool, used};
use crate::kit::{Kind, kinds};

/// The answer, which must agree with a start: one that would end well, or would be refused with the same words.
fn verify(used: &Used) -> Answer {
    let answer = tool(used.path(), "verify", &[]);
    let said = json(&tool(used.path(), "verify", &["--json"]));
    let disk = Arc::new(FileDisk::open(used.path()).unwrap());
    match Store::open(disk.clone(), &*journeyman::snapshots::store(used.path(), disk)) {
        Ok(store) => {
            assert_eq!(said["start"]["last"], store.queue.last().0, "{answer:?}");
            assert!(store.passed_over.is_empty() || answer.status == 1, "{answer:?}");
        }
        Err(error) => {
            assert_eq!(said["start"]["refused"], error.to_string());
            assert_ne!(answer.status, 0, "{answer:?}");
        }
    }
    assert_eq!(said["sound"], answer.status == 0);
    answer
}

/// What it says when one thing is wrong.
fn wrong(used: &Used, status: u8, parts: &[&str]) {
    let answer = verify(used);
    assert_eq!(answer.status, status, "{answer:?}");
    let said: Vec<_> = answer.out.lines().filter(|line| parts.iter().all(|part| line.contains(part))).collect();
    assert_eq!(said.len(), 1, "{parts:?} in {}", answer.out);
}

fn findings(answer: &Answer) -> usize {
    answer.out.lines().filter(|line| line.starts_with("  damage")).count()
}

#[test]
fn a_sound_directory_is_called_sound_with_what_is_in_it() {
    for kind in kinds() {
        for compactions in 0..4 {
            let used = used(kind, compactions, 6);
            let answer = verify(&used);
            assert_eq!((answer.status, answer.err.as_str()), (0, ""), "{answer:?}");
            assert!(answer.out.starts_with("sound\n"), "{answer:?}");
            let said = json(&tool(used.path(), "verify", &["--json"]));
            assert_eq!(said["start"]["running"], used.last().running(), "{said}");
            assert_eq!(said["start"]["cancelled"], used.last().ends().cancelled);
            assert_eq!(said["snapshots"].as_array().unwrap().len() as u64, compactions.min(2));
            assert_eq!(said["findings"].as_array().unwrap().len(), 0, "{said}");
        }
    }
}

#[test]
fn a_directory_that_was_never_written_to_is_sound() {
    let dir = tempfile::tempdir().unwrap();
    drop(FileDisk::open(dir.path()).unwrap());
    let answer = tool(dir.path(), "verify", &[]);
    assert_eq!(answer.status, 0, "{answer:?}");
    assert!(answer.out.contains("records    none"), "{answer:?}");
}

#[test]
fn a_torn_tail_is_sound_and_said() {
    let used = used(Kind::Plain, 0, 6);
    let last = used.segments().pop().unwrap();
    change(&last, |bytes| bytes.truncate(bytes.len() - 110));
    let answer = verify(&used);
    assert_eq!((answer.status, findings(&answer)), (0, 0), "{answer:?}");
    assert!(answer.out.contains(&format!("note       {} at byte", name(&last))) && answer.out.contains("a torn tail"), "{answer:?}");
    change(&last, |bytes| bytes.truncate(40));
    assert_eq!(verify(&used).status, 0, "nor is a torn creation damage");
}

#[test]
fn a_flipped_bit_is_told_with_its_place_and_what_it_costs() {
    let used = used(Kind::Plain, 0, 6);
    let second = &used.segments()[1];
    flip(second, 96 + 64 + 3);
    wrong(
        &used,
        1,
        &["damage", &name(second), "at byte 96: expected a frame body with a right checksum", "cannot be read; no sound snapshot"],
    );
}

#[test]
fn all_damage_is_told_and_not_just_the_first() {
    let used = used(Kind::Plain, 0, 30);
    let segments = used.segments();
    assert!(segments.len() > 5);
    flip(&segments[0], 96 + 70);
    flip(&segments[1], 20);
    fs::remove_file(&segments[3]).unwrap();
    flip(segments.last().unwrap(), 96 + 8);
    let answer = verify(&used);
    assert_eq!((answer.status, findings(&answer)), (1, 4), "{}", answer.out);
    for at in [0, 1, 3, segments.len() - 1] {
        assert!(answer.out.contains(&format!("damage     {}", name(&segments[at]))), "{}", answer.out);
    }
}

#[test]
fn a_missing_segment_is_told() {
    let used = used(Kind::Plain, 0, 8);
    let segments = used.segments();
    fs::remove_file(&segments[1]).unwrap();
    wrong(&used, 1, &[&name(&segments[1]), "expected this segment, which", "it is missing", "cannot be read"]);
    let first = super::used(Kind::Plain, 0, 8);
    fs::remove_file(&first.segments()[0]).unwrap();
    wrong(&first, 1, &[&name(&segments[0]), "expected this segment, which", "it is missing"]);
}

#[test]
fn damage_that_a_start_makes_up_for_is_damage_all_the_same() {
    let newest = used(Kind::Plain, 2, 6);
    flip(&newest.snapshots()[1], 300);
    let answer = verify(&newest);
    assert_eq!(answer.status, 1);
    assert!(answer.out.starts_with("damaged, but a start would make up for it\n"), "{}", answer.out);
    wrong(&newest, 1, &["damage", &name(&newest.snapshots()[1]), "expected chunk 0 with a right checksum"]);

    // In the reserve: no open reads it while the newest snapshot is sound.
    let reserve = used(Kind::Plain, 2, 6);
    flip(&reserve.segments()[0], 96 + 8);
    wrong(&reserve, 1, &["damage", &name(&reserve.segments()[0]), "a snapshot stands for them"]);
    let older = used(Kind::Plain, 2, 6);
    flip(&older.snapshots()[0], 100);
    wrong(&older, 1, &["damage", &name(&older.snapshots()[0])]);
    let missing = used(Kind::Plain, 2, 10);
    let gone = missing.segments()[1].clone();
    fs::remove_file(&gone).unwrap();
    wrong(&missing, 1, &["damage", &name(&gone), "it is missing"]);
}

#[test]
fn when_all_snapshots_are_damaged_each_is_named() {
    let used = used(Kind::Plain, 2, 6);
    for path in used.snapshots() {
        flip(&path, 300);
    }
    let answer = verify(&used);
    assert_eq!(answer.status, 1);
    assert!(answer.out.starts_with("damaged\n") && answer.out.contains("a start    would refuse: no snapshot is sound"), "{}", answer.out);
    for path in used.snapshots() {
        assert!(answer.out.contains(&format!("damage     {}", name(&path))), "{}", answer.out);
    }
}

#[test]
fn a_snapshot_of_another_directory_is_none_of_this_journal() {
    let used = used(Kind::Plain, 1, 6);
    let other = super::used(Kind::Plain, 1, 7);
    let foreign = other.snapshots().pop().unwrap();
    fs::copy(&foreign, used.path().join(name(&foreign))).unwrap();
    let answer = verify(&used);
    assert_eq!(answer.status, 1, "{}", answer.out);
}

#[test]
fn one_snapshot_alone_is_sound_and_said_to_be_alone() {
    let used = used(Kind::Plain, 2, 6);
    fs::remove_file(&used.snapshots()[0]).unwrap();
    let answer = verify(&used);
    assert_eq!(answer.status, 0, "{answer:?}");
    assert!(answer.out.contains("the only snapshot"), "{answer:?}");
}

#[test]
fn what_a_crash_left_and_what_is_nobodys_is_noted() {
    let used = used(Kind::Plain, 1, 3);
    fs::write(used.path().join("00000000000000000009.segment.tmp"), "half").unwrap();
    fs::write(used.path().join("letters\u{1b}[2J\u{202e}.txt"), "mine").unwrap();
    let answer = verify(&used);
    assert_eq!(answer.status, 0, "{answer:?}");
    assert!(answer.out.contains("note       00000000000000000009.segment.tmp: a draft or a copy"), "{answer:?}");
    assert!(answer.out.contains("note       letters\\u{1b}[2J\\u{202e}.txt: not a file of the runner"), "{answer:?}");
}

#[test]
fn a_newer_segment_or_snapshot_is_not_judged() {
    let segment = used(Kind::Plain, 0, 3);
    change(&segment.segments()[0], |bytes| needs_a_newer_reader(bytes, 96));
    wrong(&segment, 5, &["newer", "needs a reader of format 9"]);
    let snapshot = used(Kind::Plain, 1, 3);
    change(&snapshot.snapshots()[0], |bytes| needs_a_newer_reader(bytes, 128));
    wrong(&snapshot, 5, &["newer", "needs a reader of format 9"]);
}

pub(crate) fn needs_a_newer_reader(bytes: &mut [u8], header: usize) {
    bytes[10] = 9;
    let checksum = crc32c::crc32c(&bytes[..header - 4]);
    bytes[header - 4..header].copy_from_slice(&checksum.to_le_bytes());
}

#[test]
fn a_kind_of_file_that_another_build_makes_is_not_judged() {
    let used = used(Kind::Plain, 1, 3);
    fs::create_dir(used.path().join("00000000000000000005.tree")).unwrap();
    wrong(&used, 5, &["newer", "00000000000000000005.tree: of a kind that this build cannot read"]);
}

#[test]
fn what_the_disk_refuses_is_not_called_damage() {
    let used = used(Kind::Plain, 0, 6);
    unread(&used.segments()[1]);
    wrong(&used, 3, &["unread", &name(&used.segments()[1]), "cannot be read"]);
}

/// Puts something there that no user, however mighty, can read as a file.
pub(crate) fn unread(path: &Path) {
    fs::remove_file(path).unwrap();
    fs::create_dir(path).unwrap();
}

#[test]
fn a_directory_without_its_lock_file_is_not_whole() {
    let used = used(Kind::Plain, 0, 3);
    fs::remove_file(used.path().join("journeyman.lock")).unwrap();
    let answer = tool(used.path(), "verify", &[]);
    assert_eq!(answer.status, 1);
    assert!(answer.out.contains("damage     journeyman.lock: expected this file"), "{answer:?}");
    assert_eq!(tool(used.path(), "dump", &[]).status, 0, "it can be read all the same");
}
