//! Proves the laws of the three policies for every input, the extremes included. One file for each policy, as they know
//! nothing of each other.

mod breaker;
mod pool;
mod retry;

const CASES: u64 = 2000;
