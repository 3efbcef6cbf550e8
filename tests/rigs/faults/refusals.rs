//! Directories that cannot be used (F17): no file handles left, no permission, a read-only file system, something else in the place of a
//! directory or a file. Each is a typed refusal that changes nothing, or a snapshot for which others stand in; none looks like an empty
//! directory to begin anew in.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::books::Books;
use crate::load::{OVER, Refusal};
use crate::mounts::Mount;
use crate::program::{self, Ended, Program};
use crate::support::figures::held;
use crate::{Held, Part};

pub(crate) const PART: Part = Part { name: "refusals", run };

fn run(dir: &Path) -> Held {
    let sound = Sound::make(&dir.join("sound"))?;
    let mut tries = handles(dir, &sound)?;
    tries += in_the_way(dir, &sound)?;
    if rustix::process::geteuid().is_root() {
        tries += permissions(dir, &sound)?;
        tries += read_only(dir, &sound)?;
    } else {
        crate::passed_over("permissions and read-only mounts", "root")?;
    }
    held("F17", tries, "directories that could not be used");
    Ok(())
}

/// A directory with jobs that wait, segments and a snapshot.
struct Sound {
    dir: PathBuf,
    jobs: usize,
    books: Books,
}

impl Sound {
    fn make(dir: &Path) -> Result<Self, String> {
        let options = ["quiet=true", "clients=1", "count=1", "fill=11000", "compactions=1"];
        let ended = Program::start(program::role("load", dir, &options)).end();
        let mut books = Books::default();
        ended.lines.iter().for_each(|line| books.hear(line));
        let found = program::audit(dir)?;
        books.audit(&found);
        books.judge()?;
        if !ended.status.success() || found.live.is_empty() {
            return Err(format!("nothing to begin with: {ended:?}"));
        }
        Ok(Self { dir: dir.to_owned(), jobs: found.live.len(), books })
    }

    fn copy(&self, to: &Path) -> PathBuf {
        let _ = fs::remove_dir_all(to);
        program::copy(&self.dir, to);
        to.to_owned()
    }

    /// Whether it is all there.
    fn is_whole(&self, dir: &Path) -> Held {
        let mut books = self.books.clone();
        books.audit(&program::audit(dir)?);
        books.judge()
    }

    fn file(&self, end: &str) -> String {
        let names = fs::read_dir(&self.dir).into_iter().flatten().flatten().map(|entry| program::text(entry.file_name()));
        names.filter(|name| name.ends_with(end)).max().unwrap_or_else(|| panic!("there is no {end}"))
    }

    fn snapshot(&self) -> String {
        let names = fs::read_dir(&self.dir).into_iter().flatten().flatten().map(|entry| program::text(entry.file_name()));
        names.filter(|name| name.ends_with(".sled") || name.ends_with(".snapshot")).max().expect("a snapshot")
    }
}

/// Every number of file handles from none to enough.
fn handles(dir: &Path, sound: &Sound) -> Result<u64, String> {
    let (mut tries, mut refused) = (0, 0);
    for nofile in (3..MOST_HANDLES).step_by(2) {
        let dir = sound.copy(&dir.join("handles"));
        let before = program::picture(&dir);
        let limit = format!("nofile={nofile}");
        let ended = Program::start(program::role(
            "load",
            &dir,
            &["quiet=true", "clients=1", "count=1", "list=true", "reopenings=0", "run=few", &limit],
        ))
        .end();
        tries += 1;
        let code = ended.status.code();
        let is_typed =
            code.is_some_and(|code| code == 0 || code == i32::from(OVER) || code == Refusal::Io as i32 || code == Refusal::Other as i32);
        if !is_typed {
            return Err(format!("with {nofile} handles: {ended:?}"));
        }
        if ended.said("refused") {
            refused += 1;
            if before != program::picture(&dir) {
                return Err(format!("with {nofile} handles it did not start, and changed its directory"));
            }
        } else if listed(&ended) != sound.jobs && !ended.said("not-listed") {
            return Err(format!("with {nofile} handles it finds {} of {} jobs", listed(&ended), sound.jobs));
        }
        let mut books = sound.books.clone();
        ended.lines.iter().for_each(|line| books.hear(line));
        books.audit(&program::audit(&dir)?);
        books.judge()?;
    }
    println!("  {refused} of {tries} numbers of handles were too few to start");
    if refused == 0 || refused == tries { Err("that shows nothing".to_owned()) } else { Ok(tries) }
}

/// Something else where a directory or a file is expected.
fn in_the_way(dir: &Path, sound: &Sound) -> Result<u64, String> {
    let at = dir.join("in-the-way");
    let (segment, snapshot) = (sound.file(".segment"), sound.snapshot());
    let replaced = |name: &str, by: fn(&Path)| {
        let place = sound.copy(&at).join(name);
        let _ = if place.is_dir() { fs::remove_dir_all(&place) } else { fs::remove_file(&place) };
        by(&place);
    };
    let directory: fn(&Path) = |place| fs::create_dir(place).expect("a free name");
    let link: fn(&Path) = |place| symlink("/etc/hostname", place).expect("a free name");
    let file: fn(&Path) = |place| fs::write(place, "a file").expect("a free name");

    let mut tries = 0;
    for (name, by) in [(segment.as_str(), directory), (&segment, link), ("journeyman.lock", directory), ("journeyman.lock", link)] {
        replaced(name, by);
        refuses(&at, &at, &[]).map_err(|why| format!("{name} is something else: {why}"))?;
        tries += 1;
    }
    // What is no snapshot is a damaged one: all segments are still there to stand in for it.
    for by in [file, link] {
        replaced(&snapshot, by);
        let found = program::audit(&at)?;
        if found.passed_over.is_empty() {
            return Err(format!("{snapshot} is something else, and nobody says so"));
        }
        let mut books = sound.books.clone();
        books.audit(&found);
        books.judge().map_err(|why| format!("{snapshot} is something else: {why}"))?;
        tries += 1;
    }
    // A path that is none, and one that leads through a file.
    let _ = fs::remove_dir_all(&at);
    file(&at);
    refuses(&at, &at, &[])?;
    refuses(&at.join("jobs"), &at, &[])?;
    fs::remove_file(&at).map_err(|error| error.to_string())?;
    // A directory of somebody else.
    fs::create_dir(&at).map_err(|error| error.to_string())?;
    file(&at.join("letter.txt"));
    refuses(&at, &at, &[])?;
    Ok(tries + 3)
}

/// As an ordinary user, who may not do all that root may.
fn permissions(dir: &Path, sound: &Sound) -> Result<u64, String> {
    fs::set_permissions(dir, Permissions::from_mode(0o755)).map_err(|error| error.to_string())?;
    let at = dir.join("permissions");
    // Root's own build directory need not be open to others.
    let program = dir.join("program");
    fs::copy(program::own(), &program).map_err(|error| error.to_string())?;
    let cases: [(&str, &str, u32, u32); 8] = [
        // Whose, and with which mode: the directory, then everything in it.
        ("the directory of another, closed", "", 0, 0o700),
        ("the directory of another, readable", "", 0, 0o755),
        ("its own directory, closed", "", NOBODY, 0o000),
        ("its own directory, not to be written to", "", NOBODY, 0o500),
        ("its own directory, not to be entered", "", NOBODY, 0o600),
        ("a segment of another", "segment", 0, 0o600),
        ("a lock of another", "lock", 0, 0o600),
        ("a snapshot of another", "snapshot", 0, 0o700),
    ];
    for (what, which, owner, mode) in cases {
        let at = sound.copy(&at);
        give(&at, NOBODY);
        let place = match which {
            "segment" => at.join(sound.file(".segment")),
            "lock" => at.join("journeyman.lock"),
            "snapshot" => at.join(sound.snapshot()),
            _ => at.clone(),
        };
        chown(&place, Some(owner), Some(owner)).map_err(|error| error.to_string())?;
        let mode = if which == "snapshot" && !place.is_dir() { 0o600 } else { mode };
        fs::set_permissions(&place, Permissions::from_mode(mode)).map_err(|error| error.to_string())?;
        let before = program::picture(&at);
        let mut command = Command::new(&program);
        command.arg("load").arg(&at).args(["quiet=true", "clients=1", "count=1"]).uid(NOBODY).gid(NOBODY);
        let ended = Program::start(command).end();
        let code = ended.status.code();
        if !ended.said("refused") || !(code == Some(Refusal::Io as i32) || code == Some(Refusal::Other as i32)) {
            return Err(format!("{what}: {ended:?}"));
        }
        if before != program::picture(&at) {
            return Err(format!("{what}: it was refused, and has changed"));
        }
        fs::set_permissions(&place, Permissions::from_mode(0o700)).map_err(|error| error.to_string())?;
        // A directory of somebody else is not opened, and here it is root who looks.
        give(&at, ROOT);
        sound.is_whole(&at).map_err(|why| format!("{what}: {why}"))?;
    }
    Ok(cases.len() as u64)
}

fn read_only(dir: &Path, sound: &Sound) -> Result<u64, String> {
    let (at, seen) = (sound.copy(&dir.join("written")), dir.join("read-only"));
    let mount = Mount::read_only(&at, &seen)?;
    refuses(&seen, &seen, &[])?;
    // Nor is anything made where nothing can be made.
    refuses(&seen.join("new"), &seen, &[])?;
    drop(mount);
    sound.is_whole(&at)?;
    Ok(2)
}

/// It does not start in `dir`, says why, and changes nothing below `watched`.
fn refuses(dir: &Path, watched: &Path, options: &[&str]) -> Held {
    let before = program::picture(watched);
    let ended = Program::start(program::role("load", dir, &[&["quiet=true", "clients=1", "count=1"], options].concat())).end();
    let is_typed = ended.status.code().is_some_and(|code| (Refusal::Io as i32..=Refusal::Other as i32).contains(&code));
    if !ended.said("refused") || !is_typed || ended.panicked() {
        return Err(format!("{}: {ended:?}", dir.display()));
    }
    if before == program::picture(watched) { Ok(()) } else { Err(format!("{}: it was refused, and has changed", dir.display())) }
}

fn listed(ended: &Ended) -> usize {
    ended.lines.iter().filter(|line| line.starts_with("listed ")).count()
}

fn give(dir: &Path, to: u32) {
    for (path, _) in program::picture(dir) {
        chown(path, Some(to), Some(to)).expect("root may");
    }
    chown(dir, Some(to), Some(to)).expect("root may");
}

const ROOT: u32 = 0;
const NOBODY: u32 = 65_534;
/// More than enough for a runner, its threads and a snapshot in sled.
const MOST_HANDLES: u32 = 64;
