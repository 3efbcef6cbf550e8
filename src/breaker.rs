//! A circuit breaker: keeps attempts away from a target that is down, and finds out when it is back. Pure: `now` is an
//! argument. The pattern is Michael Nygard's ("Release It!", 2007).
//!
//! ```text
//!              threshold failures within window
//!   [closed] ------------------------------------> [open until now + cooldown]
//!      ^                                              |            ^
//!      | a probe succeeds                    its time |            | a probe fails
//!      |                                              v            |
//!      +------------------------------------- [half-open: at most `probes` at once]
//! ```

use std::collections::VecDeque;
use std::time::Duration;

use crate::time::{Span, Time};

/// When a breaker opens and how it closes again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Circuit {
    threshold: u32,
    window: Span,
    cooldown: Span,
    probes: u32,
}

impl Default for Circuit {
    /// Opens at 5 failures within 60 s, for 30 s, and probes one at a time.
    fn default() -> Self {
        Self { threshold: 5, window: Span::from_secs(60), cooldown: Span::from_secs(30), probes: 1 }
    }
}

impl Circuit {
    /// Failures within the window that open the breaker. 0 is taken as 1.
    #[must_use]
    pub const fn threshold(mut self, threshold: u32) -> Self {
        self.threshold = at_least_one(threshold);
        self
    }

    /// How long a failure counts.
    #[must_use]
    pub fn window(mut self, window: Duration) -> Self {
        self.window = window.into();
        self
    }

    /// How long an open breaker refuses.
    #[must_use]
    pub fn cooldown(mut self, cooldown: Duration) -> Self {
        self.cooldown = cooldown.into();
        self
    }

    /// Attempts that may try a half-open target at once. 0 is taken as 1.
    #[must_use]
    pub const fn probes(mut self, probes: u32) -> Self {
        self.probes = at_least_one(probes);
        self
    }

    /// Attempts that may try a half-open target at once.
    #[must_use]
    pub const fn probes_at_once(&self) -> u32 {
        self.probes
    }

    /// How long an open breaker refuses.
    #[must_use]
    pub const fn cooldown_span(&self) -> Span {
        self.cooldown
    }

    /// How long a failure counts.
    #[must_use]
    pub const fn failure_window(&self) -> Span {
        self.window
    }
}

/// The state of one target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breaker {
    circuit: Circuit,
    state: State,
    generation: u64,
    openings: u64,
}

impl Breaker {
    /// A closed breaker.
    #[must_use]
    pub const fn new(circuit: Circuit) -> Self {
        Self { circuit, state: State::Closed { failures: VecDeque::new() }, generation: 0, openings: 0 }
    }

    /// Asks for leave to make one attempt.
    ///
    /// # Errors
    /// [`Refused`] while the breaker is open, or half-open with all its probes out.
    pub fn admit(&mut self, now: Time) -> Result<Pass, Refused> {
        if let State::Open { until } = self.state
            && until <= now
        {
            self.enter(State::HalfOpen { out: 0 });
        }
        match &mut self.state {
            State::Closed { .. } => Ok(Pass { generation: self.generation }),
            State::Open { until } => Err(Refused { until: *until }),
            State::HalfOpen { out } if *out < self.circuit.probes => {
                *out += 1;
                Ok(Pass { generation: self.generation })
            }
            State::HalfOpen { .. } => Err(Refused { until: now + self.circuit.cooldown }),
        }
    }

    /// Takes a pass back with what the attempt found. A pass from before the last change of state changes nothing.
    /// Answers whether the state changed.
    #[must_use]
    pub fn settle(&mut self, pass: Pass, verdict: Verdict, now: Time) -> bool {
        if pass.generation != self.generation {
            return false;
        }
        match (&mut self.state, verdict) {
            (State::Closed { failures }, Verdict::Success) => {
                failures.clear();
                false
            }
            (State::Closed { failures }, Verdict::Failure) => {
                failures.retain(|at| now.since(*at) < self.circuit.window);
                failures.push_back(now);
                let opens = failures.len() >= self.circuit.threshold as usize;
                if opens {
                    self.open(now);
                }
                opens
            }
            (State::HalfOpen { .. }, Verdict::Success) => {
                self.enter(State::Closed { failures: VecDeque::new() });
                true
            }
            (State::HalfOpen { .. }, Verdict::Failure) => {
                self.open(now);
                true
            }
            (State::HalfOpen { out }, Verdict::None) => {
                *out = out.saturating_sub(1);
                false
            }
            // An open breaker has no passes of its generation out.
            (State::Closed { .. }, Verdict::None) | (State::Open { .. }, _) => false,
        }
    }

    /// What the breaker says now.
    #[must_use]
    pub const fn position(&self) -> Position {
        match self.state {
            State::Closed { .. } => Position::Closed,
            State::Open { until } => Position::Open { until },
            State::HalfOpen { .. } => Position::HalfOpen,
        }
    }

    /// How often it has opened.
    #[must_use]
    pub const fn openings(&self) -> u64 {
        self.openings
    }

    /// Probes that are out; 0 unless half-open.
    #[must_use]
    pub const fn probes_out(&self) -> u32 {
        match self.state {
            State::HalfOpen { out } => out,
            State::Closed { .. } | State::Open { .. } => 0,
        }
    }

    fn open(&mut self, now: Time) {
        self.openings += 1;
        self.enter(State::Open { until: now + self.circuit.cooldown });
    }

    fn enter(&mut self, state: State) {
        self.generation += 1;
        self.state = state;
    }
}

/// Leave to make one attempt. Goes back to the breaker that gave it, with or without a verdict.
#[derive(Debug, PartialEq, Eq)]
pub struct Pass {
    generation: u64,
}

/// The breaker lets nothing through for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// When it is worth asking again.
    pub until: Time,
}

/// What an attempt says of its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The target answered.
    Success,
    /// The target is to blame.
    Failure,
    /// Nothing was learnt: the pass just gives its place back.
    None,
}

/// Where a breaker stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// Lets everything through.
    Closed,
    /// Lets nothing through until its time.
    Open {
        /// When it becomes half-open.
        until: Time,
    },
    /// Lets a few through to find out.
    HalfOpen,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// The failures of the window, oldest first; fewer than the threshold.
    Closed {
        failures: VecDeque<Time>,
    },
    Open {
        until: Time,
    },
    HalfOpen {
        out: u32,
    },
}

const fn at_least_one(n: u32) -> u32 {
    if n == 0 { 1 } else { n }
}
