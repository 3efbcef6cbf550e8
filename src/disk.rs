//! The seam between the journal and where its files live, and the real one: a directory of the file system.
//! The only place that names `std::fs`. Never decides what to write, and never retries.

mod memory;
mod view;

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, OFlags};

use crate::bugs::{self, Bug};

pub use memory::MemDisk;
pub use view::DiskView;

/// One directory of files, with what a crash leaves of it. Shared: a compaction reads and removes old files while the
/// journal writes new ones.
pub trait Disk: Send + Sync {
    /// The names in it, in any order.
    ///
    /// # Errors
    /// Those of the disk.
    fn list(&self) -> io::Result<Vec<String>>;

    /// The whole of a file.
    ///
    /// # Errors
    /// Those of the disk.
    fn read(&self, name: &str) -> io::Result<Vec<u8>>;

    /// The `length` bytes of a file from `offset` on, or as many of them as it has.
    ///
    /// # Errors
    /// Those of the disk.
    fn read_at(&self, name: &str, offset: u64, length: usize) -> io::Result<Vec<u8>>;

    /// A new, empty file in the place of what had that name. It is there after a crash only once
    /// [`Disk::sync_names`] has returned.
    ///
    /// # Errors
    /// Those of the disk.
    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;

    /// Gives a file another name, in the place of what had it. Open files stay open.
    ///
    /// # Errors
    /// Those of the disk.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Bytes that may still be written to the disk, by somebody without privileges.
    ///
    /// # Errors
    /// Those of the disk.
    fn free(&self) -> io::Result<u64>;

    /// Takes a file away. A crash may bring it back until [`Disk::sync_names`] has returned.
    ///
    /// # Errors
    /// Those of the disk.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes the names durable.
    ///
    /// # Errors
    /// Those of the disk. After one, nothing is known of the names.
    fn sync_names(&self) -> io::Result<()>;
}

/// A file that is being written.
pub trait DiskFile: Send {
    /// Writes all of `bytes` at `offset`, over what was there or beyond the end.
    ///
    /// # Errors
    /// Those of the disk. After one, any part of the bytes may have been written.
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes everything written so far durable.
    ///
    /// # Errors
    /// Those of the disk. After one, nothing written since the last success may be believed, whatever a later call says.
    fn sync(&mut self) -> io::Result<()>;
}

/// A directory of the file system, locked while this value lives. The lock is the operating system's: a killed owner
/// leaves none behind.
#[derive(Debug)]
pub struct FileDisk {
    dir: PathBuf,
    is_group_writable: bool,
    /// Holds the lock; also how an owned directory is told from a foreign one.
    lock: File,
}

impl FileDisk {
    /// Opens the directory `dir` and locks it; makes it, readable by its owner alone, when it is not there.
    ///
    /// # Errors
    /// [`DirError`]; nothing in the directory has changed.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self, DirError> {
        let dir = dir.as_ref().to_owned();
        let failed = |what| {
            let dir = dir.clone();
            move |source| DirError::Io { dir, what, source }
        };
        match fs::symlink_metadata(&dir) {
            Ok(_) if !dir.is_dir() => return Err(DirError::NotADirectory { dir }),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => make_dir(&dir).map_err(failed("make the directory"))?,
            Err(error) if error.kind() == ErrorKind::NotADirectory => return Err(DirError::NotADirectory { dir }),
            Err(error) => return Err(failed("look at the directory")(error)),
        }
        let names = names_in(&dir).map_err(failed("list the directory"))?;
        let ours = names.iter().any(|name| name == LOCK);
        if !ours && let Some(name) = names.into_iter().next() {
            return Err(DirError::Foreign { dir, name });
        }
        rustix::fs::access(&dir, Access::WRITE_OK | Access::EXEC_OK).map_err(|error| match error {
            rustix::io::Errno::ROFS | rustix::io::Errno::ACCESS => DirError::ReadOnly { dir: dir.clone() },
            other => failed("check the directory")(other.into()),
        })?;
        let mode = check_private(&dir)?;
        let lock = open_private(&dir.join(LOCK), OpenOptions::new().write(true).create(true)).map_err(failed("open the lock file"))?;
        let locked = if bugs::on(Bug::NoLock) { Ok(()) } else { lock.try_lock() };
        match locked {
            Ok(()) => Ok(Self { dir, is_group_writable: mode & GROUP_WRITES != 0, lock }),
            Err(TryLockError::WouldBlock) => Err(DirError::Locked { dir }),
            Err(TryLockError::Error(error)) => Err(failed("lock the directory")(error)),
        }
    }

    /// The same for a directory that is not there yet, or is empty.
    ///
    /// # Errors
    /// [`DirError`]; nothing has changed.
    pub fn create(dir: impl AsRef<Path>) -> Result<Self, DirError> {
        let dir = dir.as_ref();
        match names_in(dir) {
            Ok(names) => match names.into_iter().next() {
                Some(name) => Err(DirError::NotEmpty { dir: dir.to_owned(), name }),
                None => Self::open(dir),
            },
            // Whatever it is, opening it says so.
            Err(_) => Self::open(dir),
        }
    }

    /// Whether the group of the directory may put files into it, and take some away. Not refused, as there are places where this is
    /// how a volume is handed out; but whoever owns the machine should know.
    #[must_use]
    pub const fn is_group_writable(&self) -> bool {
        self.is_group_writable
    }
}

impl Drop for FileDisk {
    fn drop(&mut self) {
        // Closing the file is not enough: a process that another thread is just starting has a copy of it, and with it
        // the lock, until it runs its own program. When this fails, the lock goes with the last copy.
        let _ = self.lock.unlock();
    }
}

impl Disk for FileDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        names_in(&self.dir)
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        whole(&self.dir.join(name))
    }

    fn read_at(&self, name: &str, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        part(&self.dir.join(name), offset, length)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let file = open_private(&self.dir.join(name), OpenOptions::new().write(true).create(true).truncate(true))?;
        Ok(Box::new(file))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.dir.join(from), self.dir.join(to))
    }

    fn free(&self) -> io::Result<u64> {
        let space = rustix::fs::statvfs(&self.dir)?;
        Ok(space.f_bavail.saturating_mul(space.f_frsize))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.dir.join(name))
    }

    fn sync_names(&self) -> io::Result<()> {
        if bugs::on(Bug::NoDirectorySync) { Ok(()) } else { File::open(&self.dir)?.sync_all() }
    }
}

impl DiskFile for File {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn sync(&mut self) -> io::Result<()> {
        if bugs::on(Bug::NoDataSync) { Ok(()) } else { self.sync_data() }
    }
}

/// Why a directory cannot be used. Nothing in it has changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DirError {
    /// Another runner, of this process or another, has it open.
    #[error("{} is locked: another runner has it open", dir.display())]
    Locked {
        /// The directory.
        dir: PathBuf,
    },
    /// There are files in it, but none of them is ours.
    #[error("{} is not a directory of this runner: it holds {name:?} but no {LOCK}", dir.display())]
    Foreign {
        /// The directory.
        dir: PathBuf,
        /// One of the files in it.
        name: String,
    },
    /// There is something else of that name.
    #[error("{} is not a directory", dir.display())]
    NotADirectory {
        /// The path.
        dir: PathBuf,
    },
    /// There is nothing in it, where something is to be read.
    #[error("{} is not a directory of a runner: it is empty", dir.display())]
    Empty {
        /// The directory.
        dir: PathBuf,
    },
    /// There is something in it, where something new is to be made.
    #[error("{} is not empty: it holds {name:?}", dir.display())]
    NotEmpty {
        /// The directory.
        dir: PathBuf,
        /// One of the files in it.
        name: String,
    },
    /// Somebody else can change what is in it, and so forge jobs or take some away.
    #[error("{} is not private: {why}. Take a directory of your own, such as one within it", dir.display())]
    Shared {
        /// The directory.
        dir: PathBuf,
        /// Who can.
        why: String,
    },
    /// Nothing can be written into it.
    #[error("{} cannot be written to: it, or its file system, is read-only", dir.display())]
    ReadOnly {
        /// The directory.
        dir: PathBuf,
    },
    /// The system refused something else.
    #[error("{}: cannot {what}: {source}", dir.display())]
    Io {
        /// The directory.
        dir: PathBuf,
        /// What was refused.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
}

/// Makes the directory, and its parents where needed, each with its name durable.
fn make_dir(dir: &Path) -> io::Result<()> {
    let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    if !parent.exists() {
        make_dir(parent)?;
    }
    fs::DirBuilder::new().mode(0o700).create(dir)?;
    fs::set_permissions(dir, Permissions::from_mode(0o700))?;
    File::open(parent)?.sync_all()
}

/// Refuses a directory that is not its owner's alone to change, and answers with its mode.
fn check_private(dir: &Path) -> Result<u32, DirError> {
    let shared = |why| Err(DirError::Shared { dir: dir.to_owned(), why });
    let failed = |source| DirError::Io { dir: dir.to_owned(), what: "look at the directory", source };
    let found = fs::metadata(dir).map_err(failed)?;
    let (owner, us) = (found.uid(), rustix::process::geteuid().as_raw());
    if found.mode() & EVERYBODY_WRITES != 0 {
        return shared(format!("everybody may write to it (mode {:o})", found.mode() & 0o7777));
    }
    // What root owns is as safe as the machine.
    if owner != us && owner != 0 {
        return shared(format!("it belongs to user {owner}, and this is user {us}"));
    }
    Ok(found.mode())
}

/// Opens a file to read, through no link; and nothing else that bears its name: a pipe would make the reader wait for ever.
///
/// # Errors
/// Those of the system; `InvalidInput` for what is no regular file.
pub fn open_regular(path: &Path) -> io::Result<File> {
    regular(OpenOptions::new().read(true).custom_flags(NO_LINKS).open(path)?)
}

fn whole(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn part(path: &Path, offset: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut file = open_regular(path)?;
    let there = usize::try_from(file.metadata()?.len().saturating_sub(offset)).unwrap_or(usize::MAX);
    file.seek(SeekFrom::Start(offset))?;
    let mut bytes = Vec::with_capacity(length.min(there));
    file.take(length as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn regular(file: File) -> io::Result<File> {
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::new(ErrorKind::InvalidInput, "it is no regular file")) }
}

/// Opens a file that only its owner may read, whatever the umask, and follows no link to it.
fn open_private(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let file = regular(options.mode(0o600).custom_flags(NO_LINKS).open(path)?)?;
    if file.metadata()?.permissions().mode() & 0o777 != 0o600 {
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    Ok(file)
}

fn names_in(dir: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir)? {
        names.push(OsStr::to_string_lossy(&entry?.file_name()).into_owned());
    }
    Ok(names)
}

/// The name of a numbered file; such names sort like their numbers.
#[must_use]
pub fn numbered(number: u64, suffix: &str) -> String {
    format!("{number:020}{suffix}")
}

/// The number in the name of a numbered file; none when the name is of something else.
#[must_use]
pub fn number_of(name: &str, suffix: &str) -> Option<u64> {
    let number = name.strip_suffix(suffix)?.parse().ok()?;
    // One number has one name: "+1" is a number too.
    (name == numbered(number, suffix)).then_some(number)
}

/// Its name.
pub(crate) const LOCK: &str = "journeyman.lock";
/// A regular file does not know the second of them; a pipe is opened at once because of it, to be refused.
const NO_LINKS: i32 = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).bits().cast_signed();
const EVERYBODY_WRITES: u32 = 0o002;
const GROUP_WRITES: u32 = 0o020;
