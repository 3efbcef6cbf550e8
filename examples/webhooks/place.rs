//! The directory that the jobs are kept in: one that was given and stays, or a temporary one. Never one that another run
//! has used.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use journeyman_core::disk::{Disk, FileDisk};
use journeyman_core::store::Store;
use tempfile::TempDir;

/// Where the jobs are kept.
pub(crate) enum Place {
    Given(PathBuf),
    /// Removed when it is dropped.
    Temporary(TempDir),
}

impl Place {
    /// # Errors
    /// In one line; nothing on disk has changed.
    pub(crate) fn prepare(given: Option<PathBuf>) -> Result<Self, String> {
        match given {
            Some(dir) => check(&dir).map(|()| Self::Given(dir)),
            None => TempDir::with_prefix("webhooks-").map(Self::Temporary).map_err(|error| format!("a temporary directory: {error}")),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::Given(dir) => dir,
            Self::Temporary(dir) => dir.path(),
        }
    }

    /// How many records its journal has.
    ///
    /// # Errors
    /// In one line; nothing on disk has changed.
    pub(crate) fn records(&self) -> Result<u64, String> {
        records(self.path())
    }
}

/// The directory can be used and never had a job. A run counts what its directory counts, and its keys must be free.
fn check(dir: &Path) -> Result<(), String> {
    match records(dir)? {
        0 => Ok(()),
        records => Err(format!("{} holds the {records} records of another run: give a new directory", dir.display())),
    }
}

/// Only reads, where a runner would begin to deliver what another run left.
fn records(dir: &Path) -> Result<u64, String> {
    let disk = FileDisk::open(dir).map_err(|error| error.to_string())?;
    let disk: Arc<dyn Disk> = Arc::new(disk);
    let store =
        Store::open(disk.clone(), &*journeyman::snapshots::store(dir, disk)).map_err(|error| format!("{}: {error}", dir.display()))?;
    Ok(store.queue.last().0)
}
