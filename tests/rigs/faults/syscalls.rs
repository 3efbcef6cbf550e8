//! The program killed as it enters its k-th call, and each of its calls failing once (F2, F11, F12, F15, F16): by strace, over scripts
//! that each do one thing. Whatever happens, what was acknowledged is there and the next start goes on; a call that failed is
//! never believed later: no sync is tried again on a journal file after one that failed, and nothing is acknowledged behind it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::books::Books;
use crate::load::Refusal;
use crate::mounts::Mount;
use crate::program::{self, Ended, Program};
use crate::support::figures::{figure, held};
use crate::tracing::{self, Call, Tamper};
use crate::{Held, Part};

pub(crate) const PART: Part = Part { name: "syscalls", run };

/// One thing that the program does.
struct Script {
    name: &'static str,
    options: &'static [&'static str],
    /// What it begins with: a directory, and what was said of it.
    template: PathBuf,
    books: Books,
}

/// A try: a script, with one call tampered with.
struct Case<'a> {
    script: &'a Script,
    call: Call,
    tamper: Tamper,
    /// The runner may reopen by itself, as it does unless told otherwise.
    reopens: bool,
}

fn run(dir: &Path) -> Held {
    if !crate::is_given("strace", "strace")? {
        return Ok(());
    }
    // In memory, where a sync takes no time: it is the calls that count here.
    let place = dir.join("place");
    let _mount = if rustix::process::geteuid().is_root() { Some(Mount::memory(&place, 1 << 20)?) } else { None };
    let dir = &place;
    let scripts = scripts(dir)?;
    let mut cases = Vec::new();
    for script in &scripts {
        let calls = script.calls(dir)?;
        let count = calls.len();
        let planned = plan(script, calls);
        println!("  {}: {count} calls on its files, {} cases", script.name, planned.len());
        cases.extend(planned);
    }
    let tally = Mutex::new(BTreeMap::<&str, u64>::new());
    let broken = Mutex::new(Vec::new());
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for worker in 0..WORKERS {
            let (cases, tally, broken, next) = (&cases, &tally, &broken, &next);
            scope.spawn(move || {
                let place = dir.join(format!("worker-{worker}"));
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match case.run(&place) {
                        Ok(rows) => rows.iter().for_each(|row| *tally.lock().expect("no case panics").entry(row).or_default() += 1),
                        Err(why) => broken
                            .lock()
                            .expect("no case panics")
                            .push(format!("{}: {:?} {:?}: {why}", case.script.name, case.tamper, case.call)),
                    }
                }
            });
        }
    });
    let broken = broken.into_inner().expect("no case panics");
    if !broken.is_empty() {
        broken.iter().for_each(|why| eprintln!("  {why}"));
        return Err(format!("{} of {} cases do not hold", broken.len(), cases.len()));
    }
    let tally = tally.into_inner().expect("no case panics");
    let missed = tally.get("missed").copied().unwrap_or(0) as usize;
    if 5 * missed > cases.len() {
        return Err(format!("{missed} of {} calls were not met again: too little is shown", cases.len()));
    }
    for (row, what) in ROWS {
        let tries = tally.get(row).copied().unwrap_or(0);
        if tries == 0 {
            return Err(format!("no try was made for {row}: nothing is shown"));
        }
        if row.starts_with('F') {
            held(row, tries, what);
        } else {
            println!("  {tries} {what}");
        }
    }
    Ok(())
}

const ROWS: [(&str, &str); 7] = [
    ("F2", "kills at a call of six scripts"),
    ("F11", "failed syncs"),
    ("F12", "failed syncs of names, renames, removals and opens"),
    ("F13", "calls that found no room"),
    ("F15", "failed reads at open"),
    ("F16", "interrupted calls and short writes"),
    ("missed", "calls were not met again, as threads took another turn"),
];

fn scripts(dir: &Path) -> Result<Vec<Script>, String> {
    let mut scripts = Vec::new();
    let mut script = |name, options, prepared: &[&[&str]], is_torn| {
        let mut script = Script { name, options, template: dir.join(format!("template-{name}")), books: Books::default() };
        for options in prepared {
            script.prepare(options)?;
        }
        if is_torn {
            tear(&script.template)?;
        }
        scripts.push(script);
        Ok::<(), String>(())
    };
    const FEW: &[&str] = &["quiet=true", "clients=1", "count=3", "run=few"];
    const COMPACTED: &[&str] = &["quiet=true", "clients=1", "count=1", "fill=11000", "pace_ms=2", "compactions=1", "run=compacted"];
    const MIXED: &[&str] = &["clients=4", "run=mixed", "kill=400"];
    script("open", &["quiet=true", "clients=1", "count=1"], &[], false)?;
    script("append", &["quiet=true", "clients=1", "count=10", "fill=100"], &[FEW], false)?;
    script("rotation", &["quiet=true", "clients=1", "count=12", "fill=11000"], &[FEW], false)?;
    script("snapshot", &["quiet=true", "clients=1", "count=1", "fill=11000", "pace_ms=2", "compactions=1"], &[FEW], false)?;
    script("deletion", &["quiet=true", "clients=1", "count=1", "fill=11000", "pace_ms=2", "compactions=1"], &[COMPACTED], false)?;
    script("recovery", &["quiet=true", "clients=1", "count=1"], &[COMPACTED, MIXED], true)?;
    Ok(scripts)
}

impl Script {
    /// Lets the program make what the script begins with.
    fn prepare(&mut self, options: &[&str]) -> Held {
        let program = Program::start(program::role("load", &self.template, options));
        let ended = match options.iter().find_map(|option| option.strip_prefix("kill=")) {
            Some(ms) => {
                thread::sleep(Duration::from_millis(ms.parse().map_err(|_| "a number of milliseconds")?));
                program.kill()
            }
            None => program.end(),
        };
        ended.lines.iter().for_each(|line| self.books.hear(line));
        self.books.audit(&program::audit(&self.template)?);
        if self.books.acks == 0 { Err(format!("{} has nothing to begin with: {ended:?}", self.name)) } else { self.books.judge() }
    }

    /// The calls that it makes when nothing is in its way.
    fn calls(&self, dir: &Path) -> Result<Vec<Call>, String> {
        let (place, trace) = (dir.join("plain/jobs"), dir.join("plain.trace"));
        self.lay(&place);
        let ended = Program::start(tracing::watched(&place, self.options, &trace)).end();
        if !ended.status.success() || !ended.said("stopped") {
            return Err(format!("{} does not run as it is: {ended:?}", self.name));
        }
        let calls = tracing::calls(&trace, &place);
        let at = program::text(&place);
        Ok(calls.into_iter().map(|call| Call { path: call.path.replacen(&at, "", 1), ..call }).collect())
    }

    fn lay(&self, place: &Path) {
        let _ = fs::remove_dir_all(place);
        fs::create_dir_all(place.parent().expect("it is in a directory")).expect("room");
        if self.template.exists() {
            program::copy(&self.template, place);
        }
    }
}

/// Leaves half a frame behind the last one, as a crash does.
fn tear(dir: &Path) -> Held {
    let names = fs::read_dir(dir).map_err(|error| error.to_string())?.flatten().map(|entry| entry.path());
    let last = names.filter(|path| path.extension().is_some_and(|end| end == "segment")).max().ok_or("no segment")?;
    let mut bytes = fs::read(&last).map_err(|error| error.to_string())?;
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    // A frame's last bytes may be zeros: well behind it all the same.
    let junk = b"JYFR\x01\0\0\0half a frame";
    let at = end + 16;
    bytes.resize(bytes.len().max(at + junk.len()), 0);
    bytes[at..at + junk.len()].copy_from_slice(junk);
    fs::write(&last, bytes).map_err(|error| error.to_string())
}

/// Which cases are tried: every kind of tampering on every kind of call; where there are too many of one kind, evenly chosen ones.
fn plan(script: &Script, calls: Vec<Call>) -> Vec<Case<'_>> {
    let most = usize::try_from(figure(8, 1_000)).unwrap_or(usize::MAX);
    let mut by_name: BTreeMap<String, Vec<Call>> = BTreeMap::new();
    for call in calls {
        by_name.entry(call.name.clone()).or_default().push(call);
    }
    let mut cases = Vec::new();
    for (name, calls) in &by_name {
        for (tamper, share) in tampers(name) {
            // What a write said to have written and has not is damage to a compaction, which then never ends.
            if matches!(tamper, Tamper::Short(_)) && script.options.iter().any(|option| option.starts_with("compactions")) {
                continue;
            }
            for call in evenly(calls, (most / share).max(2)) {
                cases.push(Case { script, call: call.clone(), tamper, reopens: false });
                if tamper == Tamper::Fails("EIO") && WRITING.contains(&name.as_str()) && script.books.acks > 0 {
                    cases.push(Case { script, call: call.clone(), tamper, reopens: true });
                }
            }
        }
    }
    cases
}

/// What is done to calls of this name, and to how many of them: one in so many of the usual number.
fn tampers(name: &str) -> Vec<(Tamper, usize)> {
    use Tamper::{Fails, Kill, Short};
    match name {
        "fdatasync" => vec![(Kill, 1), (Fails("EIO"), 1), (Fails("EINTR"), 4)],
        "fsync" => vec![(Kill, 1), (Fails("EIO"), 1)],
        "pwrite64" => vec![(Kill, 1), (Fails("EIO"), 1), (Fails("ENOSPC"), 1), (Fails("EINTR"), 2), (Short(1), 2), (Short(0), 4)],
        "write" => vec![(Kill, 1), (Fails("ENOSPC"), 2), (Fails("EINTR"), 4)],
        "openat" => vec![(Kill, 1), (Fails("EIO"), 1), (Fails("EINTR"), 4), (Fails("EMFILE"), 4)],
        "read" | "pread64" => vec![(Kill, 2), (Fails("EIO"), 1), (Fails("EINTR"), 4)],
        "rename" | "unlink" | "unlinkat" => vec![(Kill, 1), (Fails("EIO"), 1)],
        "mkdir" | "ftruncate" | "copy_file_range" | "sendfile" => vec![(Kill, 1), (Fails("EIO"), 2), (Fails("ENOSPC"), 2)],
        _ => vec![(Kill, 2), (Fails("EIO"), 2)],
    }
}

fn evenly<T>(all: &[T], most: usize) -> impl Iterator<Item = &T> {
    let taken = all.len().min(most);
    (0..taken).map(move |n| &all[n * all.len() / taken])
}

impl Case<'_> {
    /// Tries it, and answers the rows that it counts for.
    fn run(&self, place: &Path) -> Result<Vec<&'static str>, String> {
        let (dir, trace) = (place.join("jobs"), place.join("trace"));
        self.script.lay(&dir);
        let before = program::picture(&dir);
        let call = Call { path: format!("{}{}", program::text(&dir), self.call.path), ..self.call.clone() };
        // One failure is the end, so that nothing that comes later hides it; or it is made up for.
        let reopenings = if self.reopens { "reopenings=2" } else { "reopenings=0" };
        let options: Vec<&str> = self.script.options.iter().copied().chain([reopenings]).collect();
        let ended = Program::start(tracing::tampered(&dir, &options, &trace, &call, self.tamper)).end();
        if !tracing::was_hit(&trace, self.tamper) {
            return if ended.status.success() { Ok(vec!["missed"]) } else { Err(format!("not met, and yet: {ended:?}")) };
        }
        let mut books = self.script.books.clone();
        ended.lines.iter().for_each(|line| books.hear(line));
        self.judge_the_end(&ended, &dir, &before)?;
        self.judge_the_trace(&trace, &dir)?;
        if matches!(self.tamper, Tamper::Short(_)) {
            // What the call said to have written it has not: nothing can be expected of the bytes.
            return Ok(self.rows(&ended));
        }
        let found = program::audit(&dir)?;
        books.audit(&found);
        books.judge()?;
        // The next start goes on.
        let next = Program::start(program::role("load", &dir, &["quiet=true", "clients=1", "count=1", "run=next"])).end();
        next.lines.iter().for_each(|line| books.hear(line));
        if !next.status.success() || !next.said("ack") {
            return Err(format!("the next start does not go on: {next:?}"));
        }
        books.audit(&program::audit(&dir)?);
        books.judge()?;
        Ok(self.rows(&ended))
    }

    fn judge_the_end(&self, ended: &Ended, dir: &Path, before: &[(PathBuf, String)]) -> Held {
        let code = ended.status.code();
        let is_typed = match self.tamper {
            Tamper::Kill => ended.was_killed(),
            _ => code.is_some_and(|code| {
                code == 0 || code == i32::from(crate::load::OVER) || code == Refusal::Io as i32 || code == Refusal::Other as i32
            }),
        };
        if !is_typed || ended.panicked() {
            return Err(format!("no typed end: {ended:?}"));
        }
        if self.tamper == Tamper::Fails("EINTR")
            && RETRIED.contains(&self.call.name.as_str())
            && (code != Some(0) || ended.lines.iter().any(|line| is_lost(line)))
        {
            return Err(format!("an interruption is no failure: {ended:?}"));
        }
        // What opening only reads is as it was, when it could not be read.
        if ended.said("refused")
            && self.script.template.exists()
            && without_scratch(program::picture(dir)) != without_scratch(before.to_vec())
        {
            return Err("it did not start, and changed its directory".to_owned());
        }
        // There is one client, and it asks one thing at a time.
        let lost = ended.lines.iter().position(|line| is_lost(line));
        if !self.reopens && lost.is_some_and(|lost| ended.lines[lost..].iter().any(|line| line.starts_with("ack "))) {
            return Err(format!("acknowledged after a failure: {ended:?}"));
        }
        // Asked again with its key, each is stored in the end; unless the journal is full while a compaction waits for its next try.
        let count = |word: &str| ended.lines.iter().filter(|line| line.starts_with(word)).count();
        let is_full = ended.lines.iter().any(|line| line.starts_with("not ") && !is_lost(line));
        if self.reopens && code == Some(0) && !is_full && count("ask ") != count("ack ") {
            return Err(format!("not all that was asked for was stored: {ended:?}"));
        }
        Ok(())
    }

    /// After a failure nothing more is written to that segment, nor synced; after a short write the rest is written.
    fn judge_the_trace(&self, trace: &Path, dir: &Path) -> Held {
        let lines = tracing::lines(trace);
        let Some(at) = lines.iter().position(|line| line.contains("(INJECTED)")) else { return Ok(()) };
        let behind = lines[at + 1..].iter().filter_map(|line| Some((tracing::Line::read(line, dir)?, line)));
        let is_journal = self.call.path.contains(".segment");
        match (&*self.call.name, self.tamper) {
            ("fdatasync" | "pwrite64", Tamper::Fails("EIO" | "ENOSPC") | Tamper::Short(0)) if is_journal => {
                // A draft that failed may be made anew, from nothing.
                let made_anew = |(seen, line): &(tracing::Line, &String)| seen.name == "openat" && line.contains("O_TRUNC");
                let again =
                    behind.take_while(|seen| !made_anew(seen)).find(|(seen, _)| matches!(&*seen.name, "fdatasync" | "fsync" | "pwrite64"));
                again.map_or(Ok(()), |(_, line)| Err(format!("used after it failed: {line}")))
            }
            ("pwrite64", Tamper::Short(1)) => {
                let written = |line: &str| {
                    let numbers = line.split(')').next()?.rsplit(", ").take(2).map(|number| number.parse::<u64>().ok());
                    let numbers: Option<Vec<u64>> = numbers.collect();
                    numbers.map(|numbers| (numbers[0], numbers[1]))
                };
                // Told in two lines: then nothing can be read from it.
                let Some((offset, count)) = written(&lines[at]) else { return Ok(()) };
                // By the same thread, which writes nothing between; another one may.
                let Some(short) = tracing::Line::read(&lines[at], dir) else { return Ok(()) };
                let is_next = |seen: &tracing::Line| seen.name == "pwrite64" && seen.thread == short.thread && seen.path == short.path;
                let next = { behind }.find(|(seen, _)| is_next(seen)).map(|(_, line)| line);
                // Told in two lines as well, it cannot be compared.
                let is_the_rest = |line: &String| written(line).is_none_or(|rest| rest == (offset + 1, count - 1));
                if count == 1 || next.is_some_and(is_the_rest) {
                    Ok(())
                } else {
                    Err(format!("the rest is not written: {}, {next:?}", lines[at]))
                }
            }
            _ => Ok(()),
        }
    }

    fn rows(&self, ended: &Ended) -> Vec<&'static str> {
        match (self.tamper, &*self.call.name) {
            (Tamper::Kill, _) => vec!["F2"],
            (Tamper::Fails("EINTR") | Tamper::Short(_), _) => vec!["F16"],
            (Tamper::Fails("ENOSPC"), _) => vec!["F13"],
            (Tamper::Fails(_), "fdatasync" | "pwrite64") => vec!["F11"],
            (Tamper::Fails(_), "read" | "pread64" | "getdents64" | "copy_file_range" | "sendfile") if ended.said("refused") => vec!["F15"],
            (Tamper::Fails(_), _) => vec!["F12"],
        }
    }
}

/// Whether a call was not answered. A refusal, as of a journal that is full, is an answer.
fn is_lost(line: &str) -> bool {
    line.starts_with("not ") && !line.contains(" Full(")
}

/// Without the copies that sled reads: what is left of one is swept away by the next snapshot.
fn without_scratch(picture: Vec<(PathBuf, String)>) -> Vec<(PathBuf, String)> {
    picture.into_iter().filter(|(path, _)| !program::text(path).contains(".open")).collect()
}

/// Calls by which the journal reaches the disk.
const WRITING: [&str; 4] = ["fdatasync", "pwrite64", "rename", "fsync"];
/// Calls that are made again when they were interrupted. To open a directory is not among them: that is then an error of the disk.
const RETRIED: [&str; 5] = ["read", "write", "pwrite64", "fdatasync", "fsync"];
/// More than cores, as what fails is waited for before it is tried again.
const WORKERS: usize = 6;
