//! A file system on a loop device that can lose its power: everything that it has not made durable is gone at that instant, as the
//! kernel's emergency shutdown writes neither data nor its own log any more. Knows no journal.

use std::path::{Path, PathBuf};

use crate::place::{Result, run, sparse, unmount};

/// A kind of file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Ext4,
    Xfs,
}

impl Kind {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "XFS",
        }
    }

    /// Large enough for the load; XFS refuses less.
    const fn bytes(self) -> u64 {
        match self {
            Self::Ext4 => 128 << 20,
            Self::Xfs => 320 << 20,
        }
    }

    pub(crate) fn make(self, image: &Path) -> Result<()> {
        let made = match self {
            Self::Ext4 => run("mkfs.ext4", ["-q".as_ref(), "-F".as_ref(), image.as_os_str()]),
            Self::Xfs => run("mkfs.xfs", ["-q".as_ref(), "-f".as_ref(), image.as_os_str()]),
        };
        made.map(drop)
    }
}

/// An image with a file system, and where it is mounted. The loop device is the mount's own and goes with it.
pub(crate) struct Device {
    image: PathBuf,
    at: PathBuf,
    mounted: bool,
}

impl Device {
    /// A new, empty file system, mounted below `dir`.
    pub(crate) fn new(kind: Kind, dir: &Path) -> Result<Self> {
        let image = sparse(dir.join("image"), kind.bytes())?;
        kind.make(&image)?;
        let mut device = Self::over(image, dir)?;
        device.mount("loop")?;
        Ok(device)
    }

    /// What is on this image already; not yet mounted.
    pub(crate) fn over(image: PathBuf, dir: &Path) -> Result<Self> {
        let at = dir.join("disk");
        std::fs::create_dir_all(&at)?;
        Ok(Self { image, at, mounted: false })
    }

    pub(crate) fn mount(&mut self, options: &str) -> Result<()> {
        run("mount", ["-o".as_ref(), options.as_ref(), self.image.as_os_str(), self.at.as_os_str()])?;
        self.mounted = true;
        Ok(())
    }

    pub(crate) fn unmount(&mut self) -> Result<()> {
        unmount(&self.at)?;
        self.mounted = false;
        Ok(())
    }

    /// Where it is mounted.
    pub(crate) fn at(&self) -> &Path {
        &self.at
    }

    /// Cuts the power: what is not on the device now never gets there. Completed transactions of the file system's log that are
    /// still in memory are lost too, which is what `-f` would save.
    pub(crate) fn cut(&self) -> Result<()> {
        run("xfs_io", ["-x".as_ref(), "-c".as_ref(), "shutdown".as_ref(), self.at.as_os_str()]).map(drop)
    }

    /// The power is back: the file system is read from the device again.
    pub(crate) fn restart(&mut self) -> Result<()> {
        self.unmount()?;
        self.mount("loop")
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if self.mounted
            && let Err(error) = self.unmount()
        {
            eprintln!("left to the end of the process: {error}");
        }
        // Memory that the next device takes; when it fails, it goes with the place.
        let _ = std::fs::remove_file(&self.image);
    }
}
