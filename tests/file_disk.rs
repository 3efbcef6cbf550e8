//! Proves what the real disk promises of its directory: private, locked while it is open and no longer, never somebody
//! else's, never through a link, and the very bytes that the disk in memory has.

use std::env;
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, ErrorKind};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use journeyman_core::disk::{DirError, Disk, DiskFile, FileDisk, MemDisk};
use journeyman_core::journal::{JournalLimits, RecoverError};
use tempfile::{TempDir, tempdir};

use crate::support::children::in_children;
use crate::support::{batch, image, journal, pipe, read, segment};

const LOCK: &str = "journeyman.lock";
const LIMITS: JournalLimits = JournalLimits { segment_bytes: 2000, batch_bytes: 1 << 20 };

#[test]
fn a_journal_in_a_directory_has_the_bytes_of_one_in_memory() {
    let dir = temp();
    let memory = MemDisk::default();
    for life in 0..3 {
        let mut real = journal(opened(dir.path()), LIMITS);
        let mut unreal = journal(memory.clone(), LIMITS);
        for first in life * 4 + 1..=life * 4 + 4 {
            let next = batch(first, 1, vec![7; 100 * usize::try_from(first).expect("few")]);
            real.append(next.clone()).expect("the disk takes it");
            unreal.append(next).expect("memory takes it");
        }
        if life == 1 {
            real.seal().expect("the disk takes it");
            unreal.seal().expect("memory takes it");
        }
    }
    let (found, recovery) = read(opened(dir.path())).expect("a sound journal");
    assert_eq!((found.len(), recovery.torn()), (12, None));
    drop(recovery);
    let files = files_in(dir.path()).into_iter().filter(|(name, _)| name != LOCK).collect();
    assert!(image(&memory) == files);
}

#[test]
fn the_head_of_a_file_is_as_long_as_asked_or_as_the_file_is() {
    let dir = temp();
    let disk = opened(dir.path());
    let mut file = disk.create("a").expect("the disk takes it");
    file.write_at(3, b"def").expect("the disk takes it");
    file.write_at(0, b"abc").expect("the disk takes it");
    file.sync().expect("the disk takes it");
    disk.rename("a", "b").expect("the disk takes it");
    disk.sync_names().expect("the disk takes it");
    file.write_at(6, b"g").expect("open files stay open");
    assert_eq!(disk.read_at("b", 0, 2).expect("it is there"), b"ab");
    assert_eq!(disk.read_at("b", 5, 99).expect("it is there"), b"fg");
    assert_eq!(disk.read_at("b", 99, 5).expect("it is there"), b"");
    assert_eq!(disk.read("b").expect("it is there"), b"abcdefg");
    assert!(disk.read("a").is_err());
    let mut names = disk.list().expect("it lists");
    names.sort();
    assert_eq!(names, ["b", LOCK]);
    disk.remove("b").expect("it is there");
    assert!(disk.read("b").is_err() && disk.remove("b").is_err());
    drop(disk.create("b").expect("in the place of what was there"));
    assert_eq!(disk.read("b").expect("it is there"), b"");
}

#[test]
fn a_sync_gets_as_far_as_the_kernel_and_its_refusal_is_told() {
    let dir = temp();
    let (path, moved) = (dir.path().join("here"), dir.path().join("elsewhere"));
    let disk = opened(&path);
    let refused = DiskFile::sync(&mut pipe(&path.join("a"))).expect_err("a pipe cannot be synced");
    assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{refused}");

    disk.sync_names().expect("it is a directory");
    fs::rename(&path, &moved).expect("it is ours");
    let _pipe = pipe(&path);
    let refused = disk.sync_names().expect_err("a pipe cannot be synced");
    assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{refused}");
}

/// The umask is one for the whole process, so each is tried in a process of its own.
#[test]
fn directories_and_files_are_private_whatever_the_umask() {
    let name = "file_disk::directories_and_files_are_private_whatever_the_umask";
    let Some(mask) = in_children(name, &["0", "18", "63"]) else { return };
    let dir = temp();
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(mask.parse().expect("a number")));
    let path = dir.path().join("made/on/the/way");
    journal(opened(&path), LIMITS).append(batch(1, 1, vec![])).expect("the disk takes it");
    for made in ["made", "made/on", "made/on/the", "made/on/the/way"] {
        assert_eq!(mode(&dir.path().join(made)), 0o700, "{made}, umask {mask}");
    }
    for name in [LOCK, &segment(1)] {
        assert_eq!(mode(&path.join(name)), 0o600, "{name}, umask {mask}");
    }
}

#[test]
fn a_lock_file_that_others_could_read_is_made_private() {
    let dir = temp();
    fs::write(dir.path().join(LOCK), "").expect("the directory is ours");
    fs::set_permissions(dir.path().join(LOCK), Permissions::from_mode(0o644)).expect("the file is ours");
    let _disk = opened(dir.path());
    assert_eq!(mode(&dir.path().join(LOCK)), 0o600);
}

#[test]
fn a_directory_is_open_once_in_a_process() {
    let dir = temp();
    let first = opened(dir.path());
    for _ in 0..3 {
        assert!(matches!(FileDisk::open(dir.path()), Err(DirError::Locked { dir: locked }) if locked == dir.path()));
    }
    drop(first);
    drop(opened(dir.path()));
    let recovery = read(opened(dir.path())).expect("an empty journal").1;
    assert!(matches!(FileDisk::open(dir.path()), Err(DirError::Locked { .. })), "a recovery keeps it");
    let writer = recovery.into_journal(LIMITS, crate::support::SALT);
    assert!(matches!(FileDisk::open(dir.path()), Err(DirError::Locked { .. })), "a journal keeps it");
    writer.seal().expect("there is nothing to seal");
    drop(opened(dir.path()));
}

/// A process that was just started holds copies of all open files until it runs its own program. They must not keep the
/// lock of a directory that was closed meanwhile.
#[test]
fn a_closed_directory_is_free_at_once_while_other_threads_start_processes() {
    let dir = temp();
    let starting = AtomicBool::new(true);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..100 {
                Command::new("true").status().expect("it starts");
            }
            starting.store(false, Ordering::Relaxed);
        });
        while starting.load(Ordering::Relaxed) {
            drop(opened(dir.path()));
        }
    });
}

#[test]
fn a_directory_is_open_in_one_process_and_a_killed_one_leaves_no_lock() {
    let name = "file_disk::a_directory_is_open_in_one_process_and_a_killed_one_leaves_no_lock";
    let variable = "JOURNEYMAN_TEST_LOCK";
    if let Ok(order) = env::var(variable) {
        let (order, path) = order.split_once(' ').expect("what to do, and where");
        match (order, FileDisk::open(path)) {
            ("refused", Err(DirError::Locked { .. })) | ("opened", Ok(_)) => {}
            ("keep", Ok(_disk)) => {
                println!("it is open");
                // Until the end of input, which does not come: this process is killed.
                std::io::stdin().lines().for_each(drop);
            }
            (order, answer) => panic!("{order}: {answer:?}"),
        }
        return;
    }
    let dir = temp();
    let order = |what| format!("{what} {}", dir.path().display());
    let disk = opened(dir.path());
    passed(&myself(name, variable, &order("refused")));
    drop(disk);
    passed(&myself(name, variable, &order("opened")));

    let mut keeper = command(name, variable, &order("keep")).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    let said = BufReader::new(keeper.stdout.take().expect("a pipe")).lines().map_while(Result::ok).any(|line| line.contains("it is open"));
    assert!(said, "the other process could not open it");
    assert!(matches!(FileDisk::open(dir.path()), Err(DirError::Locked { .. })));
    keeper.kill().expect("it is ours");
    keeper.wait().expect("it is ours");
    drop(opened(dir.path()));
}

#[test]
fn a_directory_of_somebody_else_is_named_and_left_alone() {
    let dir = temp();
    fs::write(dir.path().join("thesis.txt"), "all of it").expect("the directory is ours");
    let before = files_in(dir.path());
    match FileDisk::open(dir.path()) {
        Err(error @ DirError::Foreign { .. }) => assert!(error.to_string().contains("thesis.txt"), "{error}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(files_in(dir.path()), before);
}

#[test]
fn what_is_no_directory_is_not_made_one() {
    let dir = temp();
    let (file, below, link) = (dir.path().join("file"), dir.path().join("file/below"), dir.path().join("link"));
    fs::write(&file, "a file").expect("the directory is ours");
    symlink("nowhere", &link).expect("the directory is ours");
    for path in [&file, &below, &link] {
        assert!(matches!(FileDisk::open(path), Err(DirError::NotADirectory { dir }) if dir == *path), "{}", path.display());
    }
    assert_eq!(fs::read(&file).expect("it is there"), b"a file");
    assert!(!dir.path().join("nowhere").exists());
}

#[test]
fn no_link_is_followed_to_a_file() {
    let (dir, elsewhere) = (temp(), temp());
    let secret = elsewhere.path().join("secret");
    fs::write(&secret, "nobody's business").expect("the directory is ours");
    fs::set_permissions(&secret, Permissions::from_mode(0o640)).expect("the file is ours");

    let disk = opened(dir.path());
    symlink(&secret, dir.path().join(segment(1))).expect("the directory is ours");
    assert!(disk.read(&segment(1)).is_err() && disk.read_at(&segment(1), 0, 10).is_err());
    match read(disk).map(|(found, _)| found) {
        Err(RecoverError::Io { file, .. }) => assert_eq!(file, segment(1)),
        other => panic!("{other:?}"),
    }

    fs::remove_file(dir.path().join(segment(1))).expect("the directory is ours");
    symlink(&secret, dir.path().join(format!("{}.tmp", segment(1)))).expect("the directory is ours");
    assert!(journal(opened(dir.path()), LIMITS).append(batch(1, 1, vec![])).is_err(), "nor is one written through");

    fs::remove_file(dir.path().join(LOCK)).expect("the directory is ours");
    symlink(&secret, dir.path().join(LOCK)).expect("the directory is ours");
    assert!(matches!(FileDisk::open(dir.path()), Err(DirError::Io { .. })));

    assert_eq!(fs::read(&secret).expect("it is there"), b"nobody's business");
    assert_eq!(mode(&secret), 0o640);
}

#[test]
fn a_directory_in_the_place_of_a_segment_is_no_empty_journal() {
    let dir = temp();
    let disk = opened(dir.path());
    fs::create_dir(dir.path().join(segment(1))).expect("the directory is ours");
    match read(disk).map(|(found, _)| found) {
        Err(RecoverError::Io { file, .. }) => assert_eq!(file, segment(1)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_cannot_be_written_to_says_so_and_stays_as_it_is() {
    let dir = temp();
    let root = rustix::process::geteuid().is_root();
    let mount = |options: &[&str]| {
        let answer = Command::new("mount").args(options).arg(dir.path()).output();
        answer.is_ok_and(|output| output.status.success())
    };
    if root && !mount(&["-t", "tmpfs", "-o", "size=16m,mode=0700", "tmpfs"]) {
        assert!(env::var("CI").as_deref() != Ok("true"), "root cannot mount here, and this must be tried");
        println!("skipped: for root only a read-only mount cannot be written to, and this root cannot mount");
        return;
    }
    let _mounted = root.then(|| Mounted(&dir));
    journal(opened(dir.path()), LIMITS).append(batch(1, 1, vec![1; 10])).expect("it can still be written to");
    let before = files_in(dir.path());
    if root {
        assert!(mount(&["-o", "remount,ro"]), "what was mounted can be mounted again");
    } else {
        fs::set_permissions(dir.path(), Permissions::from_mode(0o500)).expect("the directory is ours");
    }
    let answer = FileDisk::open(dir.path());
    let after = files_in(dir.path());
    if !root {
        fs::set_permissions(dir.path(), Permissions::from_mode(0o700)).expect("the directory is ours");
    }
    assert!(matches!(answer, Err(DirError::ReadOnly { dir: named }) if named == dir.path()));
    assert!(after == before);
}

struct Mounted<'a>(&'a TempDir);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(self.0.path()).status();
        assert!(unmounted.is_ok_and(|status| status.success()) || std::thread::panicking(), "what was mounted can be unmounted");
    }
}

fn temp() -> TempDir {
    tempdir().expect("a directory for this test")
}

fn opened(path: &Path) -> FileDisk {
    FileDisk::open(path).expect("the directory is ours and free")
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).expect("it is there").permissions().mode() & 0o7777
}

fn files_in(dir: &Path) -> crate::support::Image {
    let entries = fs::read_dir(dir).expect("it lists").map(|entry| entry.expect("it lists"));
    entries.map(|entry| (entry.file_name().into_string().expect("text"), fs::read(entry.path()).expect("a file"))).collect()
}

/// This program again, with one test and one variable.
fn command(test: &str, variable: &str, value: &str) -> Command {
    let mut command = Command::new(env::current_exe().expect("this program"));
    command.args(["--exact", test, "--nocapture"]).env(variable, value);
    command
}

fn myself(test: &str, variable: &str, value: &str) -> Output {
    command(test, variable, value).output().expect("it starts")
}

/// The other process ran its test, and it passed.
fn passed(child: &Output) {
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success() && said.contains("1 passed"), "{said}\n{}", String::from_utf8_lossy(&child.stderr));
}
