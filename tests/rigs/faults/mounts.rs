//! File systems that are mounted for a while, and always unmounted: a small one in memory, and a read-only view of a directory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Something mounted; unmounted when it is dropped.
pub(crate) struct Mount {
    at: PathBuf,
}

impl Mount {
    /// A file system in memory of so many KiB.
    pub(crate) fn memory(at: &Path, kib: u64) -> Result<Self, String> {
        fs::create_dir_all(at).map_err(|error| error.to_string())?;
        mount(&["-t", "tmpfs", "-o", &format!("size={kib}k,mode=0755"), "tmpfs"], at)?;
        Ok(Self { at: at.to_owned() })
    }

    /// Changes its size, also while it is in use.
    pub(crate) fn resize(&self, kib: u64) -> Result<(), String> {
        mount(&["-o", &format!("remount,size={kib}k")], &self.at)
    }

    /// What is in `dir`, seen at `at`, where nothing can be changed.
    pub(crate) fn read_only(dir: &Path, at: &Path) -> Result<Self, String> {
        fs::create_dir_all(at).map_err(|error| error.to_string())?;
        mount(&["--bind", &dir.to_string_lossy()], at)?;
        let mounted = Self { at: at.to_owned() };
        mount(&["-o", "remount,ro,bind"], at)?;
        Ok(mounted)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let umount = |args: &[&str]| Command::new("umount").args(args).arg(&self.at).status().is_ok_and(|status| status.success());
        // One that is still in use goes when it no longer is.
        if !umount(&[]) && !umount(&["--lazy"]) {
            eprintln!("{} could not be unmounted", self.at.display());
        }
    }
}

fn mount(args: &[&str], at: &Path) -> Result<(), String> {
    let output = Command::new("mount").args(args).arg(at).output().map_err(|error| error.to_string())?;
    if output.status.success() { Ok(()) } else { Err(format!("mount {args:?}: {}", String::from_utf8_lossy(&output.stderr))) }
}
