//! Proves that snapshots bound the disk and lose nothing: not by a kill or a failed call in the middle of a compaction, not by damage,
//! and not by going on for long. One suite for the plain files and for sled.

mod bounds;
mod crashes;
mod damage;
mod entries;
mod faulty;
pub(crate) mod kit;
mod room;
mod round_trips;
