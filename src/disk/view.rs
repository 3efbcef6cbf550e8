//! A directory of the file system that is only looked at: for tools. Every change is refused, the lock file is not even opened for
//! writing, and no runner can open the directory meanwhile.

use std::fs::{File, TryLockError};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::{DirError, Disk, DiskFile, LOCK, names_in, open_regular, part, whole};

/// A directory that stays as it is. Its lock is shared: several may look at once, and whoever wants to write is kept out, or keeps
/// this one out.
#[derive(Debug)]
pub struct DiskView {
    dir: PathBuf,
    /// Holds the lock; none when the directory has no lock file.
    lock: Option<File>,
}

impl DiskView {
    /// Looks at the directory `dir`, which must be there and hold something of a runner by its name: a lock file, or one of the
    /// others that `is_ours` knows.
    ///
    /// # Errors
    /// [`DirError`].
    pub fn open(dir: impl AsRef<Path>, is_ours: impl Fn(&str) -> bool) -> Result<Self, DirError> {
        let dir = dir.as_ref().to_owned();
        let failed = |what| {
            let dir = dir.clone();
            move |source| DirError::Io { dir, what, source }
        };
        let found = dir.metadata().map_err(failed("look at the directory"))?;
        if !found.is_dir() {
            return Err(DirError::NotADirectory { dir });
        }
        let names = names_in(&dir).map_err(failed("list the directory"))?;
        if !names.iter().any(|name| name == LOCK || is_ours(name)) {
            return Err(names
                .into_iter()
                .next()
                .map_or_else(|| DirError::Empty { dir: dir.clone() }, |name| DirError::Foreign { dir: dir.clone(), name }));
        }
        if !names.iter().any(|name| name == LOCK) {
            return Ok(Self { dir, lock: None });
        }
        let lock = open_regular(&dir.join(LOCK)).map_err(failed("open the lock file"))?;
        match lock.try_lock_shared() {
            Ok(()) => Ok(Self { dir, lock: Some(lock) }),
            Err(TryLockError::WouldBlock) => Err(DirError::Locked { dir }),
            Err(TryLockError::Error(error)) => Err(failed("lock the directory")(error)),
        }
    }

    /// Whether it has a lock file, without which a start takes it for somebody else's.
    #[must_use]
    pub const fn has_lock(&self) -> bool {
        self.lock.is_some()
    }

    /// Whether `path` is this directory or would be within it.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn would_hold(&self, path: &Path) -> io::Result<bool> {
        let dir = self.dir.canonicalize()?;
        // What is not there yet comes to lie in the nearest of its parents that is.
        let there = path.ancestors().map(|path| if path.as_os_str().is_empty() { Path::new(".") } else { path }).find(|path| path.exists());
        Ok(there.map(Path::canonicalize).transpose()?.is_some_and(|there| there.starts_with(dir)))
    }
}

impl Drop for DiskView {
    fn drop(&mut self) {
        // As with the lock of a runner: a process that is just being started may have a copy of the file.
        if let Some(lock) = &self.lock {
            let _ = lock.unlock();
        }
    }
}

impl Disk for DiskView {
    fn list(&self) -> io::Result<Vec<String>> {
        names_in(&self.dir)
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        whole(&self.dir.join(name))
    }

    fn read_at(&self, name: &str, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        part(&self.dir.join(name), offset, length)
    }

    fn create(&self, _: &str) -> io::Result<Box<dyn DiskFile>> {
        Err(ErrorKind::ReadOnlyFilesystem.into())
    }

    fn rename(&self, _: &str, _: &str) -> io::Result<()> {
        Err(ErrorKind::ReadOnlyFilesystem.into())
    }

    fn free(&self) -> io::Result<u64> {
        Ok(0)
    }

    fn remove(&self, _: &str) -> io::Result<()> {
        Err(ErrorKind::ReadOnlyFilesystem.into())
    }

    fn sync_names(&self) -> io::Result<()> {
        Err(ErrorKind::ReadOnlyFilesystem.into())
    }
}
