//! What this process takes of memory and processors, as the system counts it.

use std::fs;

/// Bytes of memory in use.
pub(crate) fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// Microseconds of processor time of all its threads, in steps of ten milliseconds.
pub(crate) fn processor_micros() -> u64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name of the program stands in brackets and may hold anything. User and system time are 12 and 13 fields behind it.
    let fields = stat.rsplit_once(')').map_or("", |(_, behind)| behind).split_whitespace();
    fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum::<u64>() * TICK
}

/// Linux shows ticks of a hundredth of a second to programs.
const TICK: u64 = 10_000;
