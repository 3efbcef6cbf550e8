//! strace around the program under test: which calls it makes on its directory, and one of them tampered with. A call is named by
//! what it is, the file it is about, and how often its thread has made it on that file: so the same one is met again in another run.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::program;

/// One call of the program on its directory.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Call {
    pub(crate) name: String,
    pub(crate) path: String,
    /// The first, the second ... of its thread.
    pub(crate) nth: u32,
}

/// What is done to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tamper {
    /// The process is killed as it enters the call.
    Kill,
    /// The call is not made, and fails with this.
    Fails(&'static str),
    /// The call is not made, and says that it has written or read so many bytes.
    Short(u64),
}

/// A role under strace, which writes what it saw of `calls` to `trace`.
pub(crate) fn watched(dir: &Path, options: &[&str], trace: &Path) -> Command {
    let mut strace = strace(trace);
    strace.arg("--trace").arg(CALLS.join(","));
    with_program(strace, dir, options)
}

/// The same with one call tampered with; only calls on its file are seen.
pub(crate) fn tampered(dir: &Path, options: &[&str], trace: &Path, call: &Call, tamper: Tamper) -> Command {
    let Call { name, path, nth } = call;
    let how = match tamper {
        Tamper::Kill => "signal=KILL".to_owned(),
        Tamper::Fails(error) => format!("error={error}"),
        Tamper::Short(bytes) => format!("retval={bytes}"),
    };
    let mut strace = strace(trace);
    // A signal is not delivered where the filter of the kernel stops the process.
    if tamper != Tamper::Kill {
        strace.arg("--seccomp-bpf");
    }
    strace.arg("--trace").arg(CALLS.join(",")).args(["-P", path, "-e", &format!("inject={name}:{how}:when={nth}")]);
    with_program(strace, dir, options)
}

fn strace(trace: &Path) -> Command {
    let mut strace = Command::new("strace");
    strace.args(["--follow-forks", "--quiet=all", "--decode-fds=path", "--string-limit=0", "--output"]).arg(trace);
    strace
}

fn with_program(mut strace: Command, dir: &Path, options: &[&str]) -> Command {
    strace.arg(program::own()).arg("load").arg(dir).args(options);
    strace
}

/// The calls on what is in `dir`, each thread's in their order, as the trace says.
pub(crate) fn calls(trace: &Path, dir: &Path) -> Vec<Call> {
    let mut counts: HashMap<(String, String, String), u32> = HashMap::new();
    let mut calls = Vec::new();
    for line in lines(trace) {
        let Some(Line { thread, name, path, .. }) = Line::read(&line, dir) else { continue };
        let nth = counts.entry((thread, name.clone(), path.clone())).or_default();
        *nth += 1;
        calls.push(Call { name, path, nth: *nth });
    }
    let mut seen = std::collections::HashSet::new();
    calls.retain(|call| seen.insert(call.clone()));
    calls
}

/// What a trace says of calls on one file, in their order.
pub(crate) fn lines(trace: &Path) -> Vec<String> {
    let text = fs::read_to_string(trace).unwrap_or_default();
    // What another thread interrupts is told in two lines: the first has what is needed, but for the answer.
    text.lines().map(str::to_owned).collect()
}

/// Whether the tampering took place.
pub(crate) fn was_hit(trace: &Path, tamper: Tamper) -> bool {
    match tamper {
        Tamper::Kill => lines(trace).iter().any(|line| line.contains("+++ killed by SIGKILL")),
        _ => lines(trace).iter().any(|line| line.contains("(INJECTED)")),
    }
}

/// A line of a trace that tells of a call on what is in a directory.
pub(crate) struct Line {
    pub(crate) thread: String,
    pub(crate) name: String,
    pub(crate) path: String,
}

impl Line {
    pub(crate) fn read(line: &str, dir: &Path) -> Option<Self> {
        let (thread, rest) = line.trim_start().split_once(' ')?;
        let (name, arguments) = rest.trim_start().split_once('(')?;
        if !CALLS.contains(&name) {
            return None;
        }
        let path = &arguments[arguments.find(&program::text(dir))?..];
        let path = path.split(['>', '"']).next()?;
        Some(Self { thread: thread.to_owned(), name: name.to_owned(), path: path.to_owned() })
    }
}

/// What a program does to files.
pub(crate) const CALLS: [&str; 20] = [
    "openat",
    "read",
    "pread64",
    "write",
    "pwrite64",
    "fdatasync",
    "fsync",
    "rename",
    "unlink",
    "unlinkat",
    "ftruncate",
    "mkdir",
    "rmdir",
    "getdents64",
    "copy_file_range",
    "sendfile",
    "flock",
    "fallocate",
    "sync_file_range",
    "chmod",
];
