//! S5: what is in the directory is its owner's alone, however it came there, and nothing in it leads out.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use journeyman::{Limits, Runner};
use journeyman_core::disk::{DirError, Disk, FileDisk};
use journeyman_core::journal::{AppendError, RecoverError};
use journeyman_core::store::OpenError;
use rustix::fs::{CWD, FileType, Mode};
use tempfile::tempdir;

use crate::jobs::{Log, Step, Task, task};
use crate::kit::{Kind, LIMITS, Life, Place, kinds};
use crate::support::children::in_children;
use crate::support::figures::held;
use crate::support::{batch, journal, read, segment};

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).expect("it is there").permissions().mode() & 0o7777
}

/// Everything below the directory, itself included.
fn all_below(dir: &Path) -> Vec<PathBuf> {
    let mut found = vec![dir.to_owned()];
    for entry in fs::read_dir(dir).expect("it lists") {
        let path = entry.expect("it lists").path();
        if path.is_dir() { found.extend(all_below(&path)) } else { found.push(path) }
    }
    found
}

/// A whole run with compactions, under the umasks that give all and nothing: the umask is one for the whole process.
#[test]
fn s5_every_file_of_a_full_run_is_its_owners_alone_whatever_the_umask() {
    let name = "security::places::s5_every_file_of_a_full_run_is_its_owners_alone_whatever_the_umask";
    let Some(mask) = in_children(name, &["0", "18", "63"]) else { return };
    let dir = tempdir().expect("a directory for this test");
    rustix::process::umask(Mode::from_raw_mode(mask.parse().expect("a number")));
    let jobs_dir = dir.path().join("jobs");
    let mut limits = Limits::default();
    limits.capacity = 4;
    limits.record_bytes = 16 << 10;
    limits.batch_bytes = 64 << 10;
    limits.segment_bytes = 64 << 10;
    limits.journal_bytes = 512 << 10;
    actix_rt::System::new().block_on(async {
        for _ in 0..2 {
            let context = || async { Ok::<_, std::convert::Infallible>(Log::default()) };
            let runner =
                Runner::open(&jobs_dir).limits(limits.clone()).context(context).register::<Task>().start().await.expect("it starts");
            let jobs = runner.jobs();
            // At most a minute: a compaction takes milliseconds.
            for _ in 0..6_000 {
                let payload = "x".repeat(8_000);
                jobs.enqueue(task(&payload, &[Step::Ok])).await.expect("there is room");
                if jobs.stats().compactions > 2 {
                    break;
                }
                actix_rt::time::sleep(Duration::from_millis(10)).await;
            }
            assert!(jobs.stats().compactions > 0, "{:?}", jobs.stats());
            runner.shutdown(Duration::ZERO).await.expect("it stops");
        }
    });
    let found = all_below(&jobs_dir);
    for path in &found {
        assert_eq!(mode(path), if path.is_dir() { 0o700 } else { 0o600 }, "{}, umask {mask}", path.display());
    }
    for end in [".segment", "journeyman.lock"] {
        assert!(found.iter().any(|path| path.to_string_lossy().ends_with(end)), "there is {end}: {found:?}");
    }
    let snapshots = found.iter().filter(|path| path.components().any(|part| part.as_os_str().to_string_lossy().ends_with(".sled"))).count();
    assert!(!crate::kit::has_sled() || snapshots > 3, "the files of sled are among them: {found:?}");
    held("S5", found.len() as u64, &format!("files and directories, umask {mask}"));
}

/// What somebody could put in the place of a file.
const PLANTED: [&str; 4] = ["a link to a file", "a link to a directory", "a link to nothing", "a pipe"];

/// Puts it there, with `secret` at the other end of a link.
fn plant(what: &str, at: &Path, elsewhere: &Path) {
    if at.is_dir() && !at.is_symlink() {
        fs::remove_dir_all(at).expect("it is ours");
    } else if fs::symlink_metadata(at).is_ok() {
        fs::remove_file(at).expect("it is ours");
    }
    match what {
        "a link to a file" => symlink(elsewhere.join("secret"), at).expect("the directory is ours"),
        "a link to a directory" => symlink(elsewhere, at).expect("the directory is ours"),
        "a link to nothing" => symlink(elsewhere.join("nothing"), at).expect("the directory is ours"),
        _ => rustix::fs::mknodat(CWD, at, FileType::Fifo, Mode::from_raw_mode(0o600), 0).expect("the directory is ours"),
    }
}

/// A directory somewhere else with a file that is none of our business.
fn elsewhere() -> (tempfile::TempDir, impl Fn()) {
    let elsewhere = tempdir().expect("a directory for this test");
    let secret = elsewhere.path().join("secret");
    fs::write(&secret, "nobody's business").expect("it is ours");
    fs::set_permissions(&secret, Permissions::from_mode(0o644)).expect("it is ours");
    let dir = elsewhere.path().to_owned();
    let is_untouched = move || {
        assert_eq!(fs::read(&secret).expect("it is there"), b"nobody's business");
        assert_eq!(mode(&secret), 0o644);
        assert_eq!(fs::read_dir(&dir).expect("it lists").count(), 1, "nothing was made there");
    };
    (elsewhere, is_untouched)
}

#[test]
fn s5_nothing_in_the_place_of_a_segment_a_draft_or_the_lock_is_followed_or_waited_for() {
    for what in PLANTED {
        let (elsewhere, is_untouched) = elsewhere();
        let dir = tempdir().expect("a directory for this test");
        let disk = FileDisk::open(dir.path()).expect("it is empty");
        plant(what, &dir.path().join(segment(1)), elsewhere.path());
        assert!(disk.read(&segment(1)).is_err() && disk.read_at(&segment(1), 0, 9).is_err(), "{what}");
        assert!(disk.create(&segment(1)).is_err(), "{what}");
        match read(disk).map(|(found, _)| found.len()) {
            Err(RecoverError::Io { file, .. }) => assert_eq!(file, segment(1), "{what}"),
            other => panic!("{what}: {other:?}"),
        }
        fs::remove_file(dir.path().join(segment(1))).expect("it is ours");

        plant(what, &dir.path().join(format!("{}.tmp", segment(1))), elsewhere.path());
        let refused = journal(FileDisk::open(dir.path()).expect("it is ours"), LIMITS).append(batch(1, 1, vec![1]));
        assert!(matches!(refused, Err(AppendError::Failed(_))), "{what}: {refused:?}");

        plant(what, &dir.path().join("journeyman.lock"), elsewhere.path());
        assert!(matches!(FileDisk::open(dir.path()), Err(DirError::Io { .. })), "{what}");
        is_untouched();
    }
}

#[test]
fn s5_nothing_in_the_place_of_a_snapshot_is_followed_or_waited_for() {
    for (kind, what) in kinds().flat_map(|kind| PLANTED.map(|what| (kind, what))) {
        let (elsewhere, is_untouched) = elsewhere();
        let place = Place::new(kind);
        let mut life = Life::begin(&place.rig());
        for _ in 0..2 {
            life.busy(30);
            life.compact();
        }
        let newest = *place.rig().seqs().last().expect("there are two");
        let at = place.dir.path().join(place.rig().snapshots().name(newest));
        plant(what, &at, elsewhere.path());
        not_read(&place, &life, &format!("{kind:?}: {what} in the place of the snapshot"));
        // A link that leads to the very files that were there is a link as well.
        is_untouched();
    }
}

#[test]
fn s5_a_link_to_the_snapshot_itself_is_not_followed_either() {
    for kind in kinds() {
        let place = Place::new(kind);
        let mut life = Life::begin(&place.rig());
        for _ in 0..2 {
            life.busy(30);
            life.compact();
        }
        let newest = *place.rig().seqs().last().expect("there are two");
        let at = place.dir.path().join(place.rig().snapshots().name(newest));
        let moved = place.dir.path().join("moved");
        fs::rename(&at, &moved).expect("it is ours");
        symlink(&moved, &at).expect("it is ours");
        not_read(&place, &life, &format!("{kind:?}"));
        fs::remove_file(&at).expect("it is ours");
        fs::rename(&moved, &at).expect("it is ours");
        if kind == Kind::Sled {
            for file in place.files_of(newest) {
                fs::rename(&file, &moved).expect("it is ours");
                symlink(&moved, &file).expect("it is ours");
                not_read(&place, &life, &format!("a link at {}", file.display()));
                fs::remove_file(&file).expect("it is ours");
                fs::rename(&moved, &file).expect("it is ours");
            }
        }
        assert_eq!(place.rig().queue(), life.queue, "all is in its place again");
    }
}

/// The snapshot is damaged or cannot be read: whichever it is, it is told, and the state is never another one.
fn not_read(place: &Place, life: &Life, why: &str) {
    match place.rig().open() {
        Ok(store) => assert_eq!((store.queue == life.queue, store.passed_over.len()), (true, 1), "{why}"),
        Err(OpenError::Snapshot(_)) => {}
        Err(other) => panic!("{why}: {other}"),
    }
}

#[test]
fn s5_nothing_in_the_place_of_a_snapshots_draft_is_written_through() {
    for (kind, what) in kinds().flat_map(|kind| PLANTED.map(|what| (kind, what))) {
        let (elsewhere, is_untouched) = elsewhere();
        let place = Place::new(kind);
        let mut life = Life::begin(&place.rig());
        life.busy(30);
        let name = format!("{}.tmp", place.rig().snapshots().name(life.queue.last()));
        plant(what, &place.dir.path().join(name), elsewhere.path());
        // Whether it is swept away or in the way, it is not followed.
        let compacted = life.try_to_compact();
        is_untouched();
        println!("{kind:?}, {what}: {}", compacted.map_or_else(|error| error, |_| "swept away".to_owned()));
        assert_eq!(place.rig().queue(), life.queue);
    }
}

#[test]
fn s5_a_directory_that_everybody_may_write_to_is_refused() {
    let dir = tempdir().expect("a directory for this test");
    drop(FileDisk::open(dir.path()).expect("it is empty"));
    for (set, refused) in
        [(0o777, true), (0o1777, true), (0o702, true), (0o2772, true), (0o755, false), (0o700, false), (0o770, false), (0o2770, false)]
    {
        fs::set_permissions(dir.path(), Permissions::from_mode(set)).expect("it is ours");
        match FileDisk::open(dir.path()) {
            Err(error @ DirError::Shared { .. }) => {
                assert!(refused, "{set:o}: {error}");
                assert!(error.to_string().contains("everybody may write to it"), "{error}");
            }
            Ok(disk) => assert!(!refused && disk.is_group_writable() == (set & 0o020 != 0), "{set:o}"),
            Err(other) => panic!("{set:o}: {other}"),
        }
        assert_eq!(mode(dir.path()), set, "and left as it is");
    }
}

#[test]
fn s5_a_directory_of_another_user_is_refused() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can give a directory away");
        return;
    }
    let dir = tempdir().expect("a directory for this test");
    drop(FileDisk::open(dir.path()).expect("it is empty"));
    std::os::unix::fs::chown(dir.path(), Some(12_345), None).expect("root may");
    match FileDisk::open(dir.path()) {
        Err(error @ DirError::Shared { .. }) => assert!(error.to_string().contains("12345"), "{error}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(fs::metadata(dir.path()).expect("it is there").uid(), 12_345);
    std::os::unix::fs::chown(dir.path(), Some(0), None).expect("root may");
    drop(FileDisk::open(dir.path()).expect("it is ours again"));
}
