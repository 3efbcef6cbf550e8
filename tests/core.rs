//! The tests that need the core alone, and of the crate `journeyman` no more than its snapshots. One program, so that it is linked once;
//! each file of it says what it proves. `.ci/core-alone` builds this one without the actors.

mod support;
#[path = "support/used.rs"]
mod used;

mod damaged_directory;
mod expired_keys;
mod file_disk;
mod journal_crashes;
mod journal_recovery;
mod memory_disk;
mod payload_files;
mod pieces;
mod policy_laws;
mod queue_laws;
mod record_codec;
mod salvaging;
mod schedule_laws;
mod scripts;
mod simulation;
mod snapshots;
mod torn_and_flipped;

use snapshots::kit;
