//! Instants and spans in whole milliseconds, saturating at both ends.
//! There is no way to ask "now" here: time is an argument everywhere in this crate.

use std::fmt;
use std::ops::Add;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// Whole milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Time(pub u64);

/// A length of time in whole milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Span(pub u64);

/// One reading of both clocks. The wall clock may jump; the steady one starts level with it and never does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// What is written into records.
    pub wall: Time,
    /// What waits are measured by.
    pub steady: Time,
}

impl Time {
    /// How long ago `earlier` was; zero when it is still to come.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }

    /// This instant moved by `skew_ms`, which may be negative.
    #[must_use]
    pub const fn shifted(self, skew_ms: i64) -> Self {
        Self(self.0.saturating_add_signed(skew_ms))
    }

    /// How far this instant lies from `other`, signed: positive when it is later.
    #[must_use]
    pub fn skew_ms(self, other: Self) -> i64 {
        let ahead = i64::try_from(self.since(other).0).unwrap_or(i64::MAX);
        let behind = i64::try_from(other.since(self).0).unwrap_or(i64::MAX);
        ahead - behind
    }
}

impl Span {
    /// A span of whole milliseconds.
    #[must_use]
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms)
    }

    /// A span of whole seconds.
    #[must_use]
    pub const fn from_secs(seconds: u64) -> Self {
        Self(seconds.saturating_mul(1000))
    }

    /// Twice as long.
    #[must_use]
    pub const fn doubled(self) -> Self {
        Self(self.0.saturating_mul(2))
    }
}

impl Add<Span> for Time {
    type Output = Self;

    fn add(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

/// Rounds up: whoever asks for a wait gets one.
impl From<Duration> for Span {
    fn from(duration: Duration) -> Self {
        let ms = duration.as_nanos().div_ceil(1_000_000);
        Self(u64::try_from(ms).unwrap_or(u64::MAX))
    }
}

impl From<Span> for Duration {
    fn from(span: Span) -> Self {
        Self::from_millis(span.0)
    }
}

/// Instants before the epoch become the epoch.
impl From<SystemTime> for Time {
    fn from(instant: SystemTime) -> Self {
        Self::default() + instant.duration_since(UNIX_EPOCH).unwrap_or_default().into()
    }
}

/// Instants beyond what the system can express become the latest that it can, in whole years after the epoch.
impl From<Time> for SystemTime {
    fn from(time: Time) -> Self {
        UNIX_EPOCH.checked_add(Duration::from_millis(time.0)).unwrap_or(UNIX_EPOCH + LATEST)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", Duration::from(*self))
    }
}

/// Some 290,000 years: below what every supported platform's `SystemTime` can hold.
const LATEST: Duration = Duration::from_secs(9_200_000_000_000);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_saturates_at_both_ends() {
        assert_eq!(Time(u64::MAX) + Span(1), Time(u64::MAX));
        assert_eq!(Time(1).since(Time(2)), Span(0));
        assert_eq!(Time(5).shifted(-9), Time(0));
        assert_eq!(Time(u64::MAX).skew_ms(Time(0)), i64::MAX);
        assert_eq!(Time(0).skew_ms(Time(u64::MAX)), -i64::MAX);
        let _ = SystemTime::from(Time(u64::MAX));
    }

    #[test]
    fn a_span_is_never_shorter_than_the_duration_it_is_made_from() {
        assert_eq!(Span::from(Duration::from_micros(1)), Span(1));
        assert_eq!(Span::from(Duration::from_micros(1500)), Span(2));
        assert_eq!(Span::from(Duration::MAX), Span(u64::MAX));
    }

    #[test]
    fn instants_before_the_epoch_become_the_epoch() {
        assert_eq!(Time::from(UNIX_EPOCH - Duration::from_secs(9)), Time(0));
    }
}
