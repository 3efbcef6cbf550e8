//! Who receives, and what each answers. Every answer follows from the seed, the job and the attempt; no state, no clock.

use std::time::Duration;

/// A receiver: the target of the jobs for it, with a breaker of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Receiver {
    HealthyA,
    HealthyB,
    /// Takes its time.
    Slow,
    /// Has no time for a fifth of the requests, and says when to come back for half of those.
    Flaky,
    /// Refuses connections for a third of the run.
    Down,
    /// Refuses a tenth of its jobs for good.
    Picky,
}

/// What a receiver says to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Taken,
    Busy { come_back: Option<Duration> },
    Gone,
}

impl Receiver {
    /// All of them, in the order of their numbers.
    pub(crate) const ALL: [Self; 6] = [Self::HealthyA, Self::HealthyB, Self::Slow, Self::Flaky, Self::Down, Self::Picky];

    /// Who gets job `n`.
    pub(crate) const fn of(n: usize) -> Self {
        Self::ALL[n % Self::ALL.len()]
    }

    /// The place in [`Receiver::ALL`].
    pub(crate) const fn number(self) -> usize {
        self as usize
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::HealthyA => "healthy-a",
            Self::HealthyB => "healthy-b",
            Self::Slow => "slow",
            Self::Flaky => "flaky",
            Self::Down => "down",
            Self::Picky => "picky",
        }
    }

    /// How long it thinks before it answers.
    pub(crate) const fn pause(self) -> Duration {
        Duration::from_millis(if matches!(self, Self::Slow) { 50 } else { 0 })
    }

    /// What it says to this attempt of job `n`. Who refuses for good says the same each time.
    pub(crate) fn answer(self, seed: u64, n: usize, attempt: u32) -> Answer {
        match self {
            Self::Flaky => match roll(seed, n, attempt) % 10 {
                0 => Answer::Busy { come_back: Some(COME_BACK) },
                1 => Answer::Busy { come_back: None },
                _ => Answer::Taken,
            },
            Self::Picky if roll(seed, n, 0).is_multiple_of(10) => Answer::Gone,
            Self::HealthyA | Self::HealthyB | Self::Slow | Self::Down | Self::Picky => Answer::Taken,
        }
    }
}

fn roll(seed: u64, n: usize, attempt: u32) -> u64 {
    fastrand::Rng::with_seed(seed ^ (n as u64) << 32 ^ u64::from(attempt)).u64(..)
}

/// What the flaky receiver asks for.
const COME_BACK: Duration = Duration::from_secs(1);
