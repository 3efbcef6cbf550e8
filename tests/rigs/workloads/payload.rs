//! The hundred bytes of a job: its number, when it was made, and letters by chance. Knows no queue.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// The next in line.
pub(crate) fn next() -> Vec<u8> {
    numbered(NEXT.fetch_add(1, Ordering::Relaxed))
}

/// The number of the next one.
pub(crate) fn take_number() -> u64 {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

pub(crate) fn numbers_from(number: u64) {
    NEXT.store(number, Ordering::Relaxed);
}

pub(crate) fn numbered(number: u64) -> Vec<u8> {
    let mut bytes = format!("{number:016x}{:016x}", nanos()).into_bytes();
    bytes.resize_with(BYTES, || fastrand::alphanumeric() as u8);
    bytes
}

/// The number of a job and when it was made; zeros when these are not the bytes of one.
pub(crate) fn read(bytes: &[u8]) -> (u64, u64) {
    let number = |part: Option<&[u8]>| {
        let text = part.and_then(|part| std::str::from_utf8(part).ok());
        text.and_then(|text| u64::from_str_radix(text, 16).ok()).unwrap_or(0)
    };
    (number(bytes.get(..16)), number(bytes.get(16..32)))
}

/// Nanoseconds since this was asked for the first time, at the start of the process.
pub(crate) fn nanos() -> u64 {
    let began = *BEGAN.get_or_init(Instant::now);
    u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

static BEGAN: OnceLock<Instant> = OnceLock::new();
static NEXT: AtomicU64 = AtomicU64::new(1);
const BYTES: usize = 100;
