//! Bugs that are sown on purpose, to see whether the tests find them: each leaves out one step that keeps what was acknowledged.
//! In every ordinary build [`on`] is a constant no, and nothing of a bug is in the program. `.ci/seeded-bugs` builds with them and
//! chooses one at a time.

/// One step that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A sync of a file does nothing.
    NoDataSync,
    /// A sync of a directory does nothing.
    NoDirectorySync,
    /// The checksums of frames are not salted.
    NoSaltCheck,
    /// Damage is a torn tail, whatever follows it.
    NoBatchRule,
    /// The header of a frame is believed whatever its checksum.
    NoHeaderCrc,
    /// A journal goes on after a write that failed.
    NoPoison,
    /// Segments are removed without reading back the snapshot that stands for them.
    NoVerifyBeforeDelete,
    /// The numbers of tickets begin anew when all have ended and been compacted away.
    NoSeqPersistence,
    /// A directory is open as often as anybody likes.
    NoLock,
    /// Waits go by the wall clock.
    NoMonotonicWait,
    /// A batch is acknowledged before the journal has asked for a sync.
    NoBatchSync,
    /// A segment is used before the journal has asked for its name to be durable.
    NoNameSync,
    /// Snapshots in sled are as durable as sled makes them.
    NoSnapshotSync,
}

/// Whether this bug is in the program.
#[cfg(not(seeded_bugs))]
#[must_use]
pub const fn on(_: Bug) -> bool {
    false
}

/// Whether this bug is the one that the variable `JOURNEYMAN_BUG` names. A name that is none ends the process: a test that fails would
/// look as if it had found something.
#[cfg(seeded_bugs)]
#[must_use]
pub fn on(bug: Bug) -> bool {
    static CHOSEN: std::sync::LazyLock<Option<Bug>> = std::sync::LazyLock::new(|| {
        let name = std::env::var("JOURNEYMAN_BUG").ok().filter(|name| !name.is_empty())?;
        let known = NAMES.into_iter().find(|(known, _)| *known == name).map(|(_, bug)| bug);
        Some(known.unwrap_or_else(|| std::process::exit(3)))
    });
    *CHOSEN == Some(bug)
}

#[cfg(seeded_bugs)]
const NAMES: [(&str, Bug); 13] = [
    ("no_data_sync", Bug::NoDataSync),
    ("no_directory_sync", Bug::NoDirectorySync),
    ("no_salt_check", Bug::NoSaltCheck),
    ("no_batch_rule", Bug::NoBatchRule),
    ("no_header_crc", Bug::NoHeaderCrc),
    ("no_poison", Bug::NoPoison),
    ("no_verify_before_delete", Bug::NoVerifyBeforeDelete),
    ("no_seq_persistence", Bug::NoSeqPersistence),
    ("no_lock", Bug::NoLock),
    ("no_monotonic_wait", Bug::NoMonotonicWait),
    ("no_batch_sync", Bug::NoBatchSync),
    ("no_name_sync", Bug::NoNameSync),
    ("no_snapshot_sync", Bug::NoSnapshotSync),
];
