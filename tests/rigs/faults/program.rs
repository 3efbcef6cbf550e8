//! This executable as the program under test: started, listened to, killed, waited for. Never signals a process that it did not
//! start, and leaves none behind.

// The rig of power cuts compiles this module for itself, and each uses its own part of it.
#![allow(dead_code)]

use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use journeyman_core::disk::FileDisk;

use crate::books::Found;
use crate::load;

/// A call of this executable in a role.
pub(crate) fn role(role: &str, dir: &Path, options: &[&str]) -> Command {
    let mut command = Command::new(own());
    command.arg(role).arg(dir).args(options);
    command
}

/// The path of this executable.
pub(crate) fn own() -> PathBuf {
    std::env::current_exe().expect("a program has a path")
}

/// A process that is listened to.
pub(crate) struct Program {
    child: Child,
    lines: Receiver<String>,
    errors: Option<JoinHandle<String>>,
    heard: Vec<String>,
}

/// What came of a process.
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) lines: Vec<String>,
    pub(crate) stderr: String,
}

impl Program {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let (tell, lines) = channel();
        let stdout = BufReader::new(child.stdout.take().expect("it was asked for"));
        thread::spawn(move || {
            stdout.split(b'\n').map_while(Result::ok).try_for_each(|line| tell.send(String::from_utf8_lossy(&line).into_owned()))
        });
        let mut stderr = child.stderr.take().expect("it was asked for");
        let errors = thread::spawn(move || {
            let mut text = Vec::new();
            let _ = stderr.read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        });
        Self { child, lines, errors: Some(errors), heard: Vec::new() }
    }

    /// Listens until a line begins with `word`; false when the process ends or says nothing of the kind in time.
    pub(crate) fn until(&mut self, word: &str, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        loop {
            match self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    let is_it = line.starts_with(word);
                    self.heard.push(line);
                    if is_it {
                        return true;
                    }
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return false,
            }
        }
    }

    /// What has been heard until now.
    pub(crate) fn heard(&mut self) -> &[String] {
        self.heard.extend(self.lines.try_iter());
        &self.heard
    }

    /// Sends SIGKILL, and waits.
    pub(crate) fn kill(mut self) -> Ended {
        // It may have ended by itself: then there is nothing left to end.
        let _ = self.child.kill();
        self.wait_for(PATIENCE)
    }

    /// Waits until it ends by itself; one that does not is killed, and its status says so.
    pub(crate) fn end(self) -> Ended {
        self.wait_for(PATIENCE)
    }

    pub(crate) fn wait_for(mut self, patience: Duration) -> Ended {
        let until = Instant::now() + patience;
        let status = loop {
            match self.child.try_wait().expect("it is our child") {
                Some(status) => break status,
                None if Instant::now() > until => {
                    let _ = self.child.kill();
                    break self.child.wait().expect("it is our child");
                }
                None => thread::sleep(Duration::from_millis(1)),
            }
        };
        let mut lines = std::mem::take(&mut self.heard);
        lines.extend(self.lines.iter());
        let stderr = self.errors.take().and_then(|errors| errors.join().ok()).unwrap_or_default();
        Ended { status, lines, stderr }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Ended {
    pub(crate) fn was_killed(&self) -> bool {
        self.status.signal() == Some(9)
    }

    pub(crate) fn said(&self, word: &str) -> bool {
        self.lines.iter().any(|line| line.starts_with(word))
    }

    /// A panic that no job was told to have. Those of sled are caught, and count as its errors.
    pub(crate) fn panicked(&self) -> bool {
        let panics = self.stderr.lines().filter(|line| line.contains("panicked at") && !line.contains("/sled-"));
        panics.count() > self.stderr.matches("told to panic").count()
    }
}

/// What a message about it should have: not all that it said.
impl fmt::Debug for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last: Vec<&String> = self.lines.iter().rev().take(5).rev().collect();
        write!(f, "{}, {last:?}, {}", self.status, self.stderr.chars().take(600).collect::<String>())
    }
}

/// What the directory has, read by this process.
pub(crate) fn audit(dir: &Path) -> Result<Found, String> {
    let disk = Arc::new(FileDisk::open(dir).map_err(|error| error.to_string())?);
    Found::read(disk.clone(), &*journeyman::snapshots::store(dir, disk)).map_err(|error| error.to_string())
}

/// Every name below the directory, with the hash of what is there: equal exactly when nothing has changed.
pub(crate) fn picture(dir: &Path) -> Vec<(PathBuf, String)> {
    let mut seen = Vec::new();
    let mut left = vec![dir.to_owned()];
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                seen.push((path.clone(), "directory".to_owned()));
                left.push(path);
            } else {
                let bytes = fs::read(&path).unwrap_or_default();
                seen.push((path, load::hash(&bytes)));
            }
        }
    }
    seen.sort();
    seen
}

/// Copies the directory `from` with everything in it.
pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("room");
    for entry in fs::read_dir(from).expect("it is there").flatten() {
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::copy(&path, &target).expect("room");
        }
    }
}

/// Whether a program of this name is there; where not and the user may, it is installed from the Debian package.
pub(crate) fn is_installed(program: &str, package: &str) -> bool {
    let is_there = || std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).any(|dir| dir.join(program).is_file());
    if is_there() || !rustix::process::geteuid().is_root() {
        return is_there();
    }
    let run = |args: &[&str]| Command::new("apt-get").args(args).env("DEBIAN_FRONTEND", "noninteractive").stdout(Stdio::null()).status();
    let installed = |status: std::io::Result<ExitStatus>| status.is_ok_and(|status| status.success());
    if !installed(run(&["install", "--yes", "--no-install-recommends", package])) {
        let _ = run(&["update"]);
        installed(run(&["install", "--yes", "--no-install-recommends", package]));
    }
    is_there()
}

/// The argument as text, for command lines.
pub(crate) fn text(path: impl AsRef<OsStr>) -> String {
    path.as_ref().to_string_lossy().into_owned()
}

/// What a process that ends by itself may take.
const PATIENCE: Duration = Duration::from_secs(60);
