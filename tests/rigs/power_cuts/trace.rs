//! What strace saw of the syncs of a process: reads its lines while they are being written. Judges what a failed sync allows.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::place::Result;

/// The syncs of one run, in their order.
#[derive(Default)]
pub(crate) struct Trace {
    pub(crate) syncs: Vec<Sync>,
}

/// One call of fdatasync or fsync.
pub(crate) struct Sync {
    pub(crate) file: PathBuf,
    /// The name of the error, if it failed.
    pub(crate) error: Option<String>,
}

/// The arguments of strace for this trace.
pub(crate) fn arguments(into: &Path) -> Vec<String> {
    let fixed = ["-f", "-y", "-q", "--seccomp-bpf", "-e", "trace=fdatasync,fsync", "-e", "signal=none", "-o"];
    fixed.into_iter().map(str::to_owned).chain([into.display().to_string()]).collect()
}

impl Trace {
    /// What has been written so far; a last line that is not whole is left out.
    pub(crate) fn read(from: &Path) -> Result<Self> {
        let text = fs::read_to_string(from)?;
        let mut open: BTreeMap<&str, PathBuf> = BTreeMap::new();
        let mut trace = Self::default();
        for line in text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
            let (thread, call) = line.trim().split_once(' ').ok_or_else(|| format!("strace says {line:?}"))?;
            let called = call.find('<').filter(|_| call.contains("sync(")).and_then(|at| call[at + 1..].split_once('>'));
            match (called, call.rsplit_once(" = ")) {
                (Some((file, _)), Some((_, result))) => trace.add(file.into(), result),
                (Some((file, _)), None) => drop(open.insert(thread, file.into())),
                // The second half of a call that another thread's line came between.
                (None, Some((_, result))) if call.contains("resumed>") => {
                    if let Some(file) = open.remove(thread) {
                        trace.add(file, result);
                    }
                }
                _ => {}
            }
        }
        Ok(trace)
    }

    fn add(&mut self, file: PathBuf, result: &str) {
        let error = result.trim().strip_prefix("-1 ").and_then(|error| error.split(' ').next()).map(str::to_owned);
        self.syncs.push(Sync { file, error });
    }

    /// The segments of which a sync failed.
    pub(crate) fn failed(&self) -> impl Iterator<Item = &Sync> {
        self.syncs.iter().filter(|sync| sync.error.is_some() && is_segment(&sync.file))
    }

    /// A segment that was synced again although its sync had failed.
    pub(crate) fn retried(&self) -> Option<&Path> {
        let again = |(at, sync): (usize, &Sync)| self.syncs[at + 1..].iter().any(|later| later.file == sync.file);
        let failed = |(_, sync): &(usize, &Sync)| sync.error.is_some() && is_segment(&sync.file);
        self.syncs.iter().enumerate().filter(failed).find(|sync| again(*sync)).map(|(_, sync)| &*sync.file)
    }
}

/// A draft is none: it is begun anew, empty, under its old name.
fn is_segment(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "segment")
}
