//! Sizes at their limits, in the whole runner: what is just within one is stored and comes back as it was, what is a byte beyond
//! is refused with what it is and how large, and the journal is not touched by it. And sizes of nothing at all.

mod names;
mod payloads;
