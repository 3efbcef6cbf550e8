//! A disk whose writes fail while a file is there: a network block device served on this machine by a server that makes errors on
//! demand, shown as a file, under a loop device. The kernel above it does what it does over any bad disk. Knows no journal.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::device::Kind;
use crate::place::{Result, bound, sparse, unmount};

/// The disk. Unmounted, and its two servers ended, when it is dropped; what is mounted from it has to go before.
pub(crate) struct Failing {
    shown: PathBuf,
    switch: PathBuf,
    // Ended in this order: the one that shows it, then the one that it asks.
    front: Option<Server>,
    _back: Server,
}

impl Failing {
    /// With an empty ext4 on it, and no errors yet.
    pub(crate) fn new(dir: &Path, bytes: u64) -> Result<Self> {
        let (image, socket, switch, shown) = (dir.join("behind"), dir.join("socket"), dir.join("switch"), dir.join("shown"));
        Kind::Ext4.make(&sparse(image.clone(), bytes)?)?;
        // That of the disk before.
        let _ = fs::remove_file(&socket);
        let mut back = bound("nbdkit");
        back.args(["--foreground", "--filter=error", "--unix"]).arg(&socket).arg("file").arg(image);
        for what in ["error-pwrite", "error-zero"] {
            back.arg(format!("{what}=EIO")).arg(format!("{what}-rate=100%")).arg(format!("{what}-file={}", switch.display()));
        }
        let back = Server::start(back, || socket.exists())?;
        fs::create_dir_all(&shown)?;
        let mut front = bound("nbdfuse");
        front.arg(&shown).arg("--unix").arg(&socket);
        let file = shown.join("nbd");
        let front = Server::start(front, || file.metadata().is_ok_and(|file| file.len() == bytes))?;
        Ok(Self { shown, switch, front: Some(front), _back: back })
    }

    /// The file to mount.
    pub(crate) fn image(&self) -> PathBuf {
        self.shown.join("nbd")
    }

    /// From now on every write fails.
    pub(crate) fn fail(&self) -> Result<()> {
        Ok(fs::write(&self.switch, "")?)
    }

    /// From now on none does.
    pub(crate) fn mend(&self) -> Result<()> {
        Ok(fs::remove_file(&self.switch)?)
    }
}

impl Drop for Failing {
    fn drop(&mut self) {
        if let Err(error) = unmount(&self.shown) {
            eprintln!("left to the end of the process: {error}");
        }
        self.front.take();
    }
}

/// A process that is killed when this value goes.
struct Server(Child);

impl Server {
    fn start(mut command: std::process::Command, ready: impl Fn() -> bool) -> Result<Self> {
        let mut server = Self(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?);
        let began = Instant::now();
        while !ready() {
            if let Some(status) = server.0.try_wait()? {
                return Err(format!("{command:?}: {status}").into());
            }
            if began.elapsed() > READY_AT_LAST {
                return Err(format!("{command:?}: not ready after {READY_AT_LAST:?}").into());
            }
            thread::sleep(Duration::from_millis(2));
        }
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended with its mount.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const READY_AT_LAST: Duration = Duration::from_secs(10);
