//! The tests that need the actors, and those of the repository itself. One program, so that it is linked once; each file of it says what
//! it proves. What a process has one of, as its signals, limits and loggers, is tried in a process of its own by `support/children.rs`.

#[path = "support/gated.rs"]
mod gated;
#[path = "support/runner.rs"]
mod jobs;
#[path = "snapshots/kit.rs"]
mod kit;
#[path = "support/panics.rs"]
mod panics;
mod support;
#[path = "support/used.rs"]
mod used;

mod actor_faults;
mod blocking;
mod bounds;
mod breakers;
mod bug_log;
mod capture;
mod clock;
mod codecs;
mod compacting;
mod counters;
mod disorder;
mod embedding;
mod ends;
mod event_stream;
mod fail_stop;
mod file_size;
mod full_disk;
mod golden;
mod held;
mod kinds_that_change;
mod leaks;
mod listing;
mod logs;
mod lone_callers;
mod machine;
mod messages;
mod metrics;
mod outcomes;
mod pace;
mod payloads_away;
mod payloads_stuck;
mod reopening;
mod reports;
mod security;
mod shutdown;
mod signals;
mod sizes;
mod start;
mod tidy;
mod tool;
mod walk;
