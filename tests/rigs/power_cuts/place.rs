//! Where the rig works: a mount namespace of its own with a file system in memory, so that every mount, image and loop device goes
//! with the process, however it ends. Also the tools it needs, and how they are run. Knows no journal.

use std::env;
use std::error::Error;
use std::ffi::OsStr;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Why the rig cannot run here, if it cannot. Root gets the missing tools from Debian.
pub(crate) fn missing() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("it mounts file systems, which only root may".to_owned());
    }
    let absent = |(tool, _): &&(&str, &str)| !exists(tool);
    let packages: Vec<&str> = TOOLS.iter().filter(absent).map(|(_, package)| *package).collect();
    if packages.is_empty() {
        return None;
    }
    let installed = run("apt-get", ["update"]).and_then(|_| run("apt-get", INSTALL.iter().chain(&packages)));
    let tools: Vec<&str> = TOOLS.iter().filter(absent).map(|(tool, _)| *tool).collect();
    let why = installed.err().map(|error| format!(": {error}")).unwrap_or_default();
    (!tools.is_empty()).then(|| format!("it needs {}{why}", tools.join(", ")))
}

/// Becomes the same program in a mount namespace of its own. Returns only when that fails.
pub(crate) fn enter(mark: &str) -> Box<dyn Error> {
    let own = match env::current_exe() {
        Ok(own) => own,
        Err(error) => return error.into(),
    };
    let failed = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "--"])
        .arg(own)
        .arg(mark)
        .args(env::args_os().skip(1).filter(|argument| argument != "--bench"))
        .exec();
    format!("unshare: {failed}").into()
}

/// A directory in memory, unmounted when it is dropped.
pub(crate) struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    pub(crate) fn new() -> Result<Self> {
        let dir = tempfile::tempdir()?;
        run("mount", ["-t".as_ref(), "tmpfs".as_ref(), "-o".as_ref(), SIZE.as_ref(), "power-cuts".as_ref(), dir.path().as_os_str()])?;
        Ok(Self { dir })
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Err(error) = unmount(self.dir.path()) {
            eprintln!("left to the end of the process: {error}");
        }
    }
}

/// Unmounts; what still has a file open there has just been killed, so it is tried for a while.
pub(crate) fn unmount(at: &Path) -> Result<()> {
    let mut tries = 0..UNMOUNT_TRIES;
    loop {
        match run("umount", [at]) {
            Ok(_) => return Ok(()),
            Err(error) if tries.next().is_none() => return Err(error),
            Err(_) => std::thread::sleep(UNMOUNT_PAUSE),
        }
    }
}

/// Runs a tool to its end; what it printed.
pub(crate) fn run(tool: &str, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Result<String> {
    let mut command = Command::new(tool);
    command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive").env("LC_ALL", "C");
    let output = command.output().map_err(|error| format!("{tool}: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(format!("{command:?}: {}: {said}", output.status).into());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A command that is killed when the rig is, however that comes about.
pub(crate) fn bound(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

/// A sparse file.
pub(crate) fn sparse(path: PathBuf, bytes: u64) -> io::Result<PathBuf> {
    std::fs::File::create(&path)?.set_len(bytes)?;
    Ok(path)
}

fn exists(tool: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).chain([PathBuf::from("/usr/sbin"), PathBuf::from("/sbin")]).any(|dir| dir.join(tool).is_file())
}

/// What is run, and the package of Debian that has it.
const TOOLS: [(&str, &str); 10] = [
    ("unshare", "util-linux"),
    ("setpriv", "util-linux"),
    ("mount", "mount"),
    ("mkfs.ext4", "e2fsprogs"),
    ("mkfs.xfs", "xfsprogs"),
    ("xfs_io", "xfsprogs"),
    ("nbdkit", "nbdkit"),
    ("nbdfuse", "libnbd-bin"),
    ("fusermount3", "fuse3"),
    ("strace", "strace"),
];
const INSTALL: [&str; 4] = ["install", "--yes", "--quiet", "--no-install-recommends"];
/// Sparse: what is really written is a tenth of it.
const SIZE: &str = "size=1g,mode=700";
const UNMOUNT_TRIES: u32 = 100;
const UNMOUNT_PAUSE: std::time::Duration = std::time::Duration::from_millis(20);
