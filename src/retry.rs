//! When a ticket may be tried, and what becomes of it after an attempt. Pure: `now` and the random number are
//! arguments. Knows neither the queue nor its ops: the answer is a plan, and others record it.

use std::time::Duration;

use crate::job::{End, Options};
use crate::time::{Span, Time};

/// How a kind is retried. Spans are whole milliseconds; everything saturates.
///
/// ```
/// use journeyman_core::Policy;
/// use std::time::Duration;
///
/// let policy = Policy::default().attempts(5).base(Duration::from_millis(100)).timeout(Duration::from_secs(5));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    attempts: u32,
    base: Span,
    cap: Span,
    deadline: Option<Span>,
    retry_after_cap: Span,
    timeout: Span,
}

impl Default for Policy {
    /// 20 attempts, 1 s doubling up to 10 min, no deadline, a retry-after of up to 1 h, a timeout of 10 min.
    fn default() -> Self {
        Self {
            attempts: 20,
            base: Span::from_secs(1),
            cap: Span::from_secs(600),
            deadline: None,
            retry_after_cap: Span::from_secs(3600),
            timeout: Span::from_secs(600),
        }
    }
}

impl Policy {
    /// How often a job is tried, the first time included. 0 is taken as 1. With 1, a job runs at most once, always.
    #[must_use]
    pub const fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = if attempts == 0 { 1 } else { attempts };
        self
    }

    /// The wait before the first retry; it doubles with each failure.
    #[must_use]
    pub fn base(mut self, base: Duration) -> Self {
        self.base = base.into();
        self
    }

    /// The longest wait between retries that nobody asked for.
    #[must_use]
    pub fn cap(mut self, cap: Duration) -> Self {
        self.cap = cap.into();
        self
    }

    /// From this long after the first due, no attempt starts. The longest span is no deadline.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        // The options of a job have the same number for both; so must this.
        self.deadline = Some(Span::from(deadline)).filter(|deadline| deadline.0 != Options::NONE);
        self
    }

    /// The longest wait that a target may ask for with its retry-after.
    #[must_use]
    pub fn retry_after_cap(mut self, cap: Duration) -> Self {
        self.retry_after_cap = cap.into();
        self
    }

    /// How long an attempt may run.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout.into();
        self
    }

    /// How long an attempt may run.
    #[must_use]
    pub const fn attempt_timeout(&self) -> Span {
        self.timeout
    }

    /// What is left for a ticket with `failures` behind it and its first due at `start`.
    #[must_use]
    pub fn budget(&self, failures: u32, start: Time) -> Budget {
        Budget { left: self.attempts.saturating_sub(failures), deadline: self.deadline.map(|deadline| start + deadline) }
    }

    /// The wait before the retry that follows `failures` earlier failures, without jitter: `base * 2^failures`, doubled
    /// stepwise and saturating, at most `cap`.
    #[must_use]
    pub fn backoff(&self, failures: u32) -> Span {
        let mut wait = self.base;
        for _ in 0..failures.min(u64::BITS) {
            wait = wait.doubled();
        }
        wait.min(self.cap)
    }

    /// The wait before the retry that follows `failures` earlier failures: what the target asked for, at most
    /// `retry_after_cap`; else the backoff with equal jitter, a value in `[d/2, d]` picked by `random`.
    #[must_use]
    pub fn wait(&self, failures: u32, retry_after: Option<Span>, random: u64) -> Span {
        match retry_after {
            Some(asked) => asked.min(self.retry_after_cap),
            None => equal_jitter(self.backoff(failures), random),
        }
    }

    /// What becomes of a ticket after an attempt of it. `failures` counts those before this attempt, `budget` is what
    /// admission left.
    #[must_use]
    pub fn plan(&self, outcome: Outcome, failures: u32, budget: Budget, now: Time, random: u64) -> Plan {
        match outcome {
            Outcome::Done => Plan::Complete(End::Done),
            Outcome::Rejected => Plan::Complete(End::Rejected),
            Outcome::Unsafe => Plan::Complete(End::Unsafe),
            Outcome::Transient { retry_after } => {
                let due = now + self.wait(failures, retry_after, random);
                if budget.left == 0 {
                    Plan::Complete(End::Spent)
                } else if budget.is_over(due) {
                    Plan::Complete(End::Late)
                } else {
                    Plan::Requeue { due }
                }
            }
            Outcome::Deferred { wait } => budget.defer_until(now + wait),
            Outcome::Interrupted { begun: true } if budget.left == 0 => Plan::Complete(End::Spent),
            Outcome::Interrupted { .. } => Plan::Defer { due: now },
        }
    }

    /// This policy with what the enqueue call overrode.
    #[must_use]
    pub fn with(mut self, options: &Options) -> Self {
        if options.0.is_empty() {
            return self;
        }
        let number = |tag| options.get(tag);
        if let Some(attempts) = number(Options::ATTEMPTS) {
            self = self.attempts(u32::try_from(attempts).unwrap_or(u32::MAX));
        }
        if let Some(deadline) = number(Options::DEADLINE) {
            self.deadline = (deadline != Options::NONE).then_some(Span(deadline));
        }
        self.base = number(Options::BASE).map_or(self.base, Span);
        self.cap = number(Options::CAP).map_or(self.cap, Span);
        self.retry_after_cap = number(Options::RETRY_AFTER_CAP).map_or(self.retry_after_cap, Span);
        self.timeout = number(Options::TIMEOUT).map_or(self.timeout, Span);
        self
    }

    /// Writes this policy into the options of a job, so that it overrides every other.
    pub fn store(&self, options: &mut Options) {
        options.set(Options::ATTEMPTS, self.attempts.into());
        options.set(Options::BASE, self.base.0);
        options.set(Options::CAP, self.cap.0);
        options.set(Options::DEADLINE, self.deadline.map_or(Options::NONE, |deadline| deadline.0));
        options.set(Options::RETRY_AFTER_CAP, self.retry_after_cap.0);
        options.set(Options::TIMEOUT, self.timeout.0);
    }
}

/// What is left of a policy for one ticket. Layers that share it charge one and the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    left: u32,
    deadline: Option<Time>,
}

impl Budget {
    /// Attempts left.
    #[must_use]
    pub const fn left(&self) -> u32 {
        self.left
    }

    /// Whether nothing may start at `now` any more.
    #[must_use]
    pub fn is_over(&self, now: Time) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }

    /// Judges whether an attempt may start, apart from the breaker. Charges nothing.
    ///
    /// # Errors
    /// [`End::Late`] first, then [`End::Spent`]: how the ticket ends instead.
    pub fn admit(&self, now: Time) -> Result<(), End> {
        if self.is_over(now) {
            Err(End::Late)
        } else if self.left == 0 {
            Err(End::Spent)
        } else {
            Ok(())
        }
    }

    /// Takes one attempt: to be called exactly when an attempt goes.
    #[must_use]
    pub const fn charged(mut self) -> Self {
        self.left = self.left.saturating_sub(1);
        self
    }

    /// Back in line without an attempt spent, until `until` or the deadline, whichever is first.
    #[must_use]
    pub fn defer_until(&self, until: Time) -> Plan {
        Plan::Defer { due: self.deadline.map_or(until, |deadline| until.min(deadline)) }
    }
}

/// How an attempt ended, as far as the policy cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It did what it was asked.
    Done,
    /// It was refused for good.
    Rejected,
    /// It failed and must not be repeated.
    Unsafe,
    /// It failed and may pass next time. A panic and a timeout are this.
    Transient {
        /// The wait that the target asked for.
        retry_after: Option<Span>,
    },
    /// It asked to be tried later.
    Deferred {
        /// How much later.
        wait: Span,
    },
    /// An orderly stop cut it short, or kept it from beginning.
    Interrupted {
        /// Whether the job had begun to run.
        begun: bool,
    },
}

/// What becomes of the ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// It ends.
    Complete(End),
    /// It goes back in line with a failure more.
    Requeue {
        /// When it may be tried again.
        due: Time,
    },
    /// It goes back in line and nothing is spent.
    Defer {
        /// When it may be tried again.
        due: Time,
    },
}

/// Equal jitter, from "Exponential Backoff And Jitter" (AWS Architecture Blog, 2015): half fixed, half random, so that
/// retries spread without ever coming at once.
const fn equal_jitter(span: Span, random: u64) -> Span {
    let least = span.0.div_ceil(2);
    let room = span.0 - least;
    let extra = if room == u64::MAX { random } else { random % (room + 1) };
    Span(least + extra)
}
