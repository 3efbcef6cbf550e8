//! What `salvage` saves: exactly what is sound, into a directory that is sound and that a runner goes on from; and it says what it left.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use journeyman::{Cx, Job, JobResult, Runner};
use journeyman_core::Queue;
use journeyman_core::disk::FileDisk;
use journeyman_core::store::Store;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use super::verify::{needs_a_newer_reader, unread};
use super::{Answer, Used, change, flip, json, name, tool, used};
use crate::kit::{Kind, kinds};

/// What was saved, where the rest of it lies, and what was said.
struct Saved {
    queue: Queue,
    dir: TempDir,
    json: serde_json::Value,
}

impl Saved {
    fn path(&self) -> PathBuf {
        self.dir.path().join("new")
    }
}

/// Salvages twice, for people and for programs; what comes of it is sound and is a state that once was.
fn salvage(used: &Used, status: u8) -> Saved {
    let dir = tempfile::tempdir().unwrap();
    let people = dir.path().join("people");
    let answer = tool(used.path(), "salvage", &["--to", people.to_str().unwrap()]);
    assert_eq!((answer.status, answer.err.as_str()), (status, ""), "{answer:?}");
    let path = dir.path().join("new");
    let answer = tool(used.path(), "salvage", &["--to", path.to_str().unwrap(), "--json"]);
    assert_eq!(answer.status, status);
    let sound = tool(&path, "verify", &[]);
    assert_eq!(sound.status, 0, "{sound:?}");
    let disk = Arc::new(FileDisk::open(&path).unwrap());
    let store = Store::open(disk.clone(), &*journeyman::snapshots::store(&path, disk)).unwrap();
    assert!(store.passed_over.is_empty() && store.recovery.torn().is_none());
    assert_eq!(Some(&store.queue), used.after(store.queue.last().0), "a state that once was");
    Saved { queue: store.queue, dir, json: json(&answer) }
}

/// What it says when it saves nothing: one line, and no directory.
fn nothing(used: &Used, status: u8, part: &str) {
    let dir = tempfile::tempdir().unwrap();
    let new = dir.path().join("new");
    let answer: Answer = tool(used.path(), "salvage", &["--to", new.to_str().unwrap()]);
    assert_eq!((answer.status, answer.err.lines().count(), answer.out.as_str()), (status, 1, ""), "{answer:?}");
    assert!(answer.err.contains(part), "{answer:?}");
    assert!(!new.exists());
}

#[test]
fn of_a_sound_directory_all_is_saved() {
    for kind in kinds() {
        for compactions in 0..3 {
            let used = used(kind, compactions, 6);
            let saved = salvage(&used, 0);
            assert_eq!(saved.queue, *used.last());
            assert_eq!(saved.json["all"], true);
            assert_eq!(saved.json["left"]["records"], 0);
        }
    }
}

#[test]
fn a_torn_tail_is_left_and_all_that_was_durable_is_saved() {
    let used = used(Kind::Plain, 0, 6);
    let last = used.segments().pop().unwrap();
    change(&last, |bytes| bytes.truncate(bytes.len() - 110));
    let saved = salvage(&used, 0);
    assert_eq!((saved.queue.last().0, &saved.json["all"]), (used.last().last().0 - 1, &true.into()));
}

#[test]
fn what_lies_behind_damage_is_left_and_counted() {
    let used = used(Kind::Plain, 0, 10);
    flip(&used.segments()[2], 96 + 70);
    let saved = salvage(&used, 1);
    let (last, all) = (saved.queue.last().0, used.last().last().0);
    let left = &saved.json["left"];
    assert_eq!(left["after"], last);
    assert_eq!(left["unreadable"], 1, "one batch of one record: {left}");
    assert_eq!(left["records"], all - last - 1);
    let shown = tool(used.path(), "dump", &["--from", &(last + 1).to_string()]);
    assert_eq!(shown.out.lines().count() as u64, all - last - 1, "the way to see them");
    assert_eq!(left["ended"], shown.out.lines().filter(|line| line.contains("  cancel ")).count());
    assert_eq!(left["enqueued"], shown.out.lines().filter(|line| line.contains("  enqueue ")).count());
}

#[test]
fn a_missing_segment_ends_what_can_be_saved() {
    let used = used(Kind::Plain, 0, 10);
    let gone = used.segments().remove(2);
    fs::remove_file(&gone).unwrap();
    let saved = salvage(&used, 1);
    assert!(saved.json["left"]["unreadable"].as_u64().unwrap() > 1);
    assert!(saved.json.to_string().contains(&name(&gone)));
    assert!(!saved.path().join(name(&gone)).exists() && saved.path().join(name(&used.segments()[1])).exists());
}

#[test]
fn the_newest_sound_snapshot_is_what_the_rest_is_built_on() {
    for kind in kinds() {
        let used = used(kind, 2, 6);
        // Damage right behind the newest snapshot: it is all there is.
        let newest = json(&tool(used.path(), "verify", &["--json"]))["start"]["snapshot"].as_u64().unwrap();
        let behind = used.segments().into_iter().find(|path| first_of(path) == newest + 1).unwrap();
        flip(&behind, 3);
        let saved = salvage(&used, 1);
        assert_eq!((saved.queue.last().0, &saved.json["saved"]["snapshot"]), (newest, &newest.into()));
    }
}

fn first_of(path: &std::path::Path) -> u64 {
    u64::from_le_bytes(fs::read(path).unwrap()[40..48].try_into().unwrap())
}

#[test]
fn a_damaged_snapshot_is_made_up_for_by_the_one_before() {
    let used = used(Kind::Plain, 2, 6);
    flip(&used.snapshots()[1], 200);
    let saved = salvage(&used, 1);
    assert_eq!((&saved.queue, &saved.json["all"]), (used.last(), &true.into()), "damage, and nothing lost");
}

#[test]
fn damage_before_the_newest_snapshot_costs_nothing() {
    let used = used(Kind::Plain, 2, 6);
    flip(&used.segments()[0], 96 + 70);
    flip(&used.snapshots()[0], 200);
    assert_eq!(salvage(&used, 1).queue, *used.last());
}

#[test]
fn where_nothing_is_sound_nothing_is_made() {
    let snapshots = used(Kind::Plain, 2, 6);
    snapshots.snapshots().iter().for_each(|path| flip(path, 200));
    nothing(&snapshots, 1, "nothing is sound");
    let first = used(Kind::Plain, 0, 6);
    flip(&first.segments()[0], 1);
    nothing(&first, 1, "nothing is sound");
}

#[test]
fn what_another_build_or_a_healthy_disk_could_read_is_not_left_out() {
    let newer = used(Kind::Plain, 0, 6);
    change(newer.segments().last().unwrap(), |bytes| needs_a_newer_reader(bytes, 96));
    nothing(&newer, 5, "needs a reader of format 9; nothing is saved while that is so");
    let refused = used(Kind::Plain, 0, 6);
    unread(refused.segments().last().unwrap());
    nothing(&refused, 3, "nothing is saved while that is so");
}

#[test]
fn the_new_directory_is_new_and_elsewhere() {
    let used = used(Kind::Plain, 0, 3);
    let other = tempfile::tempdir().unwrap();
    fs::write(other.path().join("letters.txt"), "mine").unwrap();
    let within = used.path().join("a/b");
    for (to, part) in
        [(used.path(), "is within the old directory"), (&within, "is within the old directory"), (other.path(), "is not empty")]
    {
        let answer = tool(used.path(), "salvage", &["--to", to.to_str().unwrap()]);
        assert!(answer.status == 2 && answer.err.contains(part), "{answer:?}");
    }
    assert_eq!(fs::read_dir(other.path()).unwrap().count(), 1);
}

#[derive(Serialize, Deserialize)]
struct Nothing;

impl Job for Nothing {
    type Context = ();
    type Output = ();
    const KIND: &'static str = "nothing";

    async fn run(self, _: Cx<()>) -> JobResult<()> {
        Ok(())
    }
}

#[actix::test]
async fn a_runner_goes_on_from_what_was_saved() {
    for kind in kinds() {
        for compactions in 0..3 {
            let used = used(kind, compactions, 8);
            flip(&used.segments()[2], 96 + 70);
            if compactions == 2 {
                flip(used.segments().last().unwrap(), 96 + 70);
            }
            let saved = salvage(&used, 1);
            let runner = Runner::open(saved.path()).register::<Nothing>().start().await.expect("it starts");
            let id = runner.jobs().enqueue(Nothing).await.unwrap().id();
            runner.jobs().outcome(id).await.expect("it runs jobs");
            runner.shutdown(Duration::ZERO).await.unwrap();
            assert_eq!(tool(&saved.path(), "verify", &[]).status, 0);
        }
    }
}
