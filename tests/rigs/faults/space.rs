//! No room (F13): small file systems in memory that are full from the start, or run full amid appends, rotations and snapshots; and a
//! limit to the size of a file. Nothing acknowledged is lost, a full disk can still be opened and asked, and with room again a
//! mere restart goes on.

use std::path::Path;

use crate::books::Books;
use crate::load::OVER;
use crate::mounts::Mount;
use crate::program::{self, Ended, Program};
use crate::support::figures::{figure, held};
use crate::{Held, Part};

pub(crate) const PART: Part = Part { name: "space", run };

fn run(dir: &Path) -> Held {
    let limits = file_sizes(dir)?;
    held("F13", limits, "limits to the size of a file");
    if !rustix::process::geteuid().is_root() {
        return crate::passed_over("small file systems", "root");
    }
    let mut full = 0;
    for kib in [64, 128, 256, 512, 1024] {
        new_on(&dir.join("new"), kib).map_err(|why| format!("a new directory on {kib} KiB: {why}"))?;
        left_with(&dir.join("left"), kib).map_err(|why| format!("a directory with {kib} KiB left: {why}"))?;
        full += 2;
    }
    held("F13", full, "directories opened on a full file system of 64 KiB to 1 MiB");
    let sizes = figure(12, 120);
    let mut ran_full = 0;
    for n in 0..sizes {
        // From what takes the first segment to what takes a few compactions, never at the same page.
        let kib = 2_052 + 6_000 * n / sizes / 4 * 4;
        ran_full += u64::from(amid_work(&dir.join("amid"), kib, n)?);
    }
    if ran_full == 0 {
        return Err("no file system ran full".to_owned());
    }
    println!("  {ran_full} of {sizes} file systems ran full amid work");
    held("F13", sizes, "small file systems under load");
    Ok(())
}

/// Nothing fits from the start: it says so, and begins when there is room.
fn new_on(at: &Path, kib: u64) -> Held {
    let mount = Mount::memory(at, kib)?;
    let dir = at.join("jobs");
    let ended = start(&dir, &[]);
    if !ended.status.success() || !is_read_only(&ended) || ended.said("ack") {
        return Err(format!("{ended:?}"));
    }
    mount.resize(64 << 10)?;
    goes_on(&dir, &mut Books::default())
}

/// So much is left to a directory that has jobs: they are all there, and there they stay.
fn left_with(at: &Path, kib: u64) -> Held {
    let mount = Mount::memory(at, 64 << 10)?;
    let dir = at.join("jobs");
    let mut books = Books::default();
    let mut program = Program::start(program::role("load", &dir, &["quiet=true", "clients=1", "count=20", "linger_ms=60000"]));
    for _ in 0..20 {
        program.until("ack", std::time::Duration::from_secs(10));
    }
    let ended = program.kill();
    ended.lines.iter().for_each(|line| books.hear(line));
    let space = rustix::fs::statvfs(at).map_err(|error| error.to_string())?;
    mount.resize((space.f_blocks - space.f_bfree) * space.f_frsize / 1024 + kib)?;
    let ended = start(&dir, &["run=full"]);
    ended.lines.iter().for_each(|line| books.hear(line));
    if !ended.status.success() || !is_read_only(&ended) || listed(&ended) != 20 {
        return Err(format!("{ended:?}"));
    }
    books.audit(&program::audit(&dir)?);
    books.judge()?;
    mount.resize(64 << 10)?;
    goes_on(&dir, &mut books)
}

/// It runs full, or not, amid work of all kinds; answers whether it did.
fn amid_work(at: &Path, kib: u64, n: u64) -> Result<bool, String> {
    let failed = |why: String| format!("{kib} KiB: {why}");
    let mount = Mount::memory(at, kib)?;
    let dir = at.join("jobs");
    let mut books = Books::default();
    let mut ran_full = false;
    for run in ["run=one", "run=two"] {
        // With few and with many segments, with and without snapshots amid them.
        let journal = if n.is_multiple_of(2) { "journal_kib=192" } else { "journal_kib=65536" };
        let ended =
            Program::start(program::role("load", &dir, &["count=60", "fill=8000", "reopenings=3", "drain_ms=300", journal, run])).end();
        ended.lines.iter().for_each(|line| books.hear(line));
        let is_over = ended.status.code() == Some(i32::from(OVER));
        ran_full |= is_over || ended.lines.iter().any(|line| line.starts_with("not ") && line.ends_with(" ReadOnly"));
        if !(ended.status.success() || is_over) || ended.panicked() {
            return Err(failed(format!("{:?} {:?} {}", ended.status, ended.lines.last(), ended.stderr)));
        }
        books.audit(&program::audit(&dir).map_err(failed)?);
        books.judge().map_err(failed)?;
    }
    mount.resize(64 << 10)?;
    let ended =
        Program::start(program::role("load", &dir, &["run=last", "clients=1", "count=1", "finish=true", "journal_kib=65536"])).end();
    ended.lines.iter().for_each(|line| books.hear(line));
    let found = program::audit(&dir).map_err(failed)?;
    books.audit(&found);
    books.judge().map_err(failed)?;
    if !ended.said("idle") || !found.live.is_empty() {
        return Err(failed(format!("with room again it does not go on: {:?} {:?} {}", ended.status, ended.lines.last(), ended.stderr)));
    }
    Ok(ran_full)
}

/// No file may grow beyond a limit: the write that crosses it is cut there. Needs no privileges.
fn file_sizes(dir: &Path) -> Result<u64, String> {
    let template = dir.join("limited-template");
    let mut template_books = Books::default();
    let ended = Program::start(program::role("load", &template, &["quiet=true", "clients=1", "count=5"])).end();
    ended.lines.iter().for_each(|line| template_books.hear(line));
    template_books.audit(&program::audit(&template)?);
    template_books.judge()?;

    let mut tries = 0;
    let steps = figure(64, 8_192);
    let small = (0..=steps).map(|step| (step * 8_192 / steps, &["reopenings=1"][..]));
    // Beyond the first mebibyte of a segment.
    let long = &["reopenings=1", "segment_kib=4096", "journal_kib=65536", "fill=11000", "count=400"][..];
    let large = (0..figure(8, 64)).map(|step| ((1 << 20) + step * 601, long));
    for (limit, more) in small.chain(large) {
        let at = dir.join("limited");
        let _ = std::fs::remove_dir_all(&at);
        program::copy(&template, &at);
        let mut books = template_books.clone();
        let fsize = format!("fsize={limit}");
        let ended = start(&at, &[&[fsize.as_str(), "run=limited"], more].concat());
        ended.lines.iter().for_each(|line| books.hear(line));
        let is_typed = ended.status.code().is_some_and(|code| code == 0 || code == i32::from(OVER));
        if !is_typed || ended.panicked() || !ended.said("not") || listed(&ended) != 5 {
            return Err(format!("at most {limit} bytes to a file: {ended:?}"));
        }
        books.audit(&program::audit(&at)?);
        books.judge()?;
        if limit % 512 == 0 {
            goes_on(&at, &mut books)?;
        }
        tries += 1;
    }
    Ok(tries)
}

/// Lists what is there, then asks for one job more.
fn start(dir: &Path, options: &[&str]) -> Ended {
    Program::start(program::role("load", dir, &[&["quiet=true", "clients=1", "count=1", "list=true"], options].concat())).end()
}

fn is_read_only(ended: &Ended) -> bool {
    ended.said("health Red") && ended.lines.iter().any(|line| line.starts_with("not ") && line.ends_with(" ReadOnly"))
}

fn listed(ended: &Ended) -> usize {
    ended.lines.iter().filter(|line| line.starts_with("listed ")).count()
}

/// A restart, and nothing else.
fn goes_on(dir: &Path, books: &mut Books) -> Held {
    let ended = start(dir, &["run=on", "journal_kib=65536"]);
    ended.lines.iter().for_each(|line| books.hear(line));
    if !ended.status.success() || !ended.said("ack") {
        return Err(format!("with room again it does not go on: {ended:?}"));
    }
    books.audit(&program::audit(dir)?);
    books.judge()
}
