//! Proves on the simulated disk that no crash, no failing call and no full disk loses an acknowledged record, makes one up, or is
//! taken for damage: at every call of short scripts with every kind of what a crash may leave, in recoveries from crashes and in
//! recoveries from those, and in long runs by chance. `tests/support/sim.rs` says what a crash and a fault may do.

mod crashes;
mod faults;
mod kit;
mod runs;
