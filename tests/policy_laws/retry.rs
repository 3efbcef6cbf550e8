//! The laws of retries: a budget is neither lost nor found, nothing starts at or after its deadline, and waits stay
//! within their bounds.

use std::time::Duration;

use journeyman_core::retry::{Budget, Outcome, Plan};
use journeyman_core::{End, Options, Policy, Span, Time};
use quickcheck::{Arbitrary, Gen};

use super::CASES;
use crate::support::{Edgy, holds};

#[test]
fn attempts_charged_and_attempts_left_are_the_attempts_given() {
    holds(CASES, |(given, failures, charges): (Given, Edgy, u8)| {
        let whole = given.policy().budget(failures.number(), Time(0));
        assert_eq!(whole.left(), given.attempts.max(1).saturating_sub(failures.number()));
        let rest = (0..charges).fold(whole, |budget, _| budget.charged());
        assert_eq!(rest.left(), whole.left().saturating_sub(charges.into()));
    });
}

#[test]
fn no_trace_of_outcomes_loses_or_finds_an_attempt() {
    holds(CASES, |(given, start, outcomes): (Given, Edgy, Vec<Ran>)| {
        let life = live(&given, start.time(), &outcomes);
        let left = given.policy().budget(life.failures, start.time()).left();
        assert_eq!(left + life.failures, given.attempts.max(1), "failures are charged, all else is left");
        assert_eq!(life.charged, life.failures + life.given_back + u32::from(life.ended_by_a_run), "every run has one fate");
        assert!(life.failures + u32::from(life.ended_by_a_run) <= given.attempts.max(1));
    });
}

#[test]
fn nested_layers_share_one_budget() {
    // A layer tries the layer below as often as it is let; the lowest one makes the attempts.
    fn layer(depth: u8, patience: u8, budget: Budget, now: Time, made: &mut u32) -> Budget {
        (0..patience).fold(budget, |budget, _| match budget.admit(now) {
            Err(_) => budget,
            Ok(()) if depth > 0 => layer(depth - 1, patience, budget, now, made),
            Ok(()) => {
                *made += 1;
                budget.charged()
            }
        })
    }
    holds(CASES, |(given, depth, patience): (Given, u8, u8)| {
        let (depth, patience) = (depth % 4, patience % 5);
        let whole = given.policy().budget(0, Time(0));
        let mut made = 0;
        let rest = layer(depth, patience, whole, Time(0), &mut made);
        assert_eq!(made + rest.left(), whole.left());
        let wanted = u32::from(patience).pow(u32::from(depth) + 1);
        let expected = if given.deadline == Some(Span(0)) { 0 } else { wanted.min(whole.left()) };
        assert_eq!(made, expected, "layers multiply wishes, not attempts");
    });
}

#[test]
fn none_starts_at_or_after_the_deadline_and_one_does_just_before() {
    holds(CASES, |(given, start, now): (Given, Edgy, Edgy)| {
        let given = Given { deadline: Some(given.deadline.unwrap_or(Span(1000))), ..given };
        let deadline = start.time() + given.deadline.expect("just set");
        let budget = given.policy().budget(0, start.time());
        assert_eq!(budget.admit(deadline), Err(End::Late));
        assert_eq!(budget.admit(deadline + Span(1)), Err(End::Late));
        assert_eq!(budget.admit(Time(u64::MAX)), Err(End::Late));
        if let Some(just_before) = deadline.0.checked_sub(1) {
            assert_eq!(budget.admit(Time(just_before)), Ok(()));
        }
        assert_eq!(budget.is_over(now.time()), deadline <= now.time());
        let endless = Given { deadline: None, ..given }.policy().budget(0, start.time());
        assert_eq!(endless.admit(now.time()), Ok(()));
    });
}

#[test]
fn the_longest_deadline_is_none() {
    assert_eq!(Policy::default().deadline(Duration::MAX), Policy::default());
    let almost = Policy::default().deadline(Duration::from_millis(u64::MAX - 1));
    assert_eq!(almost.budget(0, Time(0)).admit(Time(u64::MAX - 1)), Err(End::Late));
}

#[test]
fn late_is_judged_before_spent() {
    holds(CASES, |(given, start, now): (Given, Edgy, Edgy)| {
        let spent = given.policy().budget(u32::MAX, start.time());
        let late = given.deadline.is_some_and(|deadline| start.time() + deadline <= now.time());
        assert_eq!(spent.admit(now.time()), Err(if late { End::Late } else { End::Spent }));
    });
}

#[test]
fn backoff_doubles_with_each_failure_and_stops_at_the_cap() {
    holds(CASES, |(given, failures): (Given, Edgy)| {
        let policy = given.policy();
        for failures in [failures.number(), failures.number().saturating_add(1), 0, 1, 63, 64, 65, u32::MAX] {
            let exact = u128::from(given.base.0) << failures.min(64);
            assert_eq!(u128::from(policy.backoff(failures).0), exact.min(given.cap.0.into()), "after {failures}");
            assert!(policy.backoff(failures) <= policy.backoff(failures.saturating_add(1)));
        }
    });
}

#[test]
fn a_wait_nobody_asked_for_is_between_half_the_backoff_and_all_of_it() {
    holds(CASES, |(given, failures, random): (Given, Edgy, Edgy)| {
        let policy = given.policy();
        let full = policy.backoff(failures.number());
        let half = full.0.div_ceil(2);
        for random in [random.0, 0, 1, u64::MAX] {
            let wait = policy.wait(failures.number(), None, random);
            assert!(half <= wait.0 && wait <= full && wait <= given.cap, "{wait} of {full}");
        }
        assert_eq!(policy.wait(failures.number(), None, 0), Span(half), "both ends can be had");
        assert_eq!(policy.wait(failures.number(), None, full.0 - half), full, "both ends can be had");
    });
}

#[test]
fn a_wait_the_target_asked_for_is_cut_by_its_own_cap_and_no_other() {
    holds(CASES, |(given, failures, asked, random): (Given, Edgy, Edgy, u64)| {
        let wait = given.policy().wait(failures.number(), Some(asked.span()), random);
        assert_eq!(wait, asked.span().min(given.retry_after_cap));
    });
}

#[test]
fn what_is_settled_never_comes_back() {
    holds(CASES, |(given, failures, start, now, random): (Given, Edgy, Edgy, Edgy, u64)| {
        let budget = given.policy().budget(failures.number(), start.time());
        for (outcome, end) in [(Outcome::Done, End::Done), (Outcome::Rejected, End::Rejected), (Outcome::Unsafe, End::Unsafe)] {
            let plan = given.policy().plan(outcome, failures.number(), budget, now.time(), random);
            assert_eq!(plan, Plan::Complete(end));
        }
    });
}

#[test]
fn a_failure_comes_back_in_time_for_another_attempt_or_not_at_all() {
    holds(CASES, |(given, failures, start, now, (random, asked)): (Given, Edgy, Edgy, Edgy, (u64, Option<Edgy>))| {
        let policy = given.policy();
        let retry_after = asked.map(Edgy::span);
        let budget = policy.budget(failures.number(), start.time());
        let due = now.time() + policy.wait(failures.number(), retry_after, random);
        let late = given.deadline.is_some_and(|deadline| start.time() + deadline <= due);
        let plan = policy.plan(Outcome::Transient { retry_after }, failures.number(), budget, now.time(), random);
        let expected = match budget.left() {
            0 => Plan::Complete(End::Spent),
            _ if late => Plan::Complete(End::Late),
            _ => Plan::Requeue { due },
        };
        assert_eq!(plan, expected);
        if let Plan::Requeue { due } = plan {
            assert_eq!(budget.admit(due), Ok(()), "what is put back can start when it is due");
        }
    });
}

#[test]
fn a_deferral_spends_nothing_and_ends_at_the_deadline_at_the_latest() {
    holds(CASES, |(given, failures, start, now, (wait, random)): (Given, Edgy, Edgy, Edgy, (Edgy, u64))| {
        let policy = given.policy();
        let budget = policy.budget(failures.number(), start.time());
        let until = now.time() + wait.span();
        let expected = given.deadline.map_or(until, |deadline| until.min(start.time() + deadline));
        let plan = policy.plan(Outcome::Deferred { wait: wait.span() }, failures.number(), budget, now.time(), random);
        assert_eq!(plan, Plan::Defer { due: expected });
        assert_eq!(budget.defer_until(until), plan);
    });
}

#[test]
fn an_orderly_stop_spends_nothing_unless_the_last_attempt_had_begun() {
    holds(CASES, |(given, failures, now, random): (Given, Edgy, Edgy, u64)| {
        let policy = given.policy();
        let budget = policy.budget(failures.number(), Time(0));
        let plan = |begun| policy.plan(Outcome::Interrupted { begun }, failures.number(), budget, now.time(), random);
        let back = Plan::Defer { due: now.time() };
        assert_eq!(plan(false), back);
        assert_eq!(plan(true), if budget.left() == 0 { Plan::Complete(End::Spent) } else { back });
    });
}

#[test]
fn one_attempt_is_at_most_one_run() {
    holds(CASES, |(given, start, outcomes, none): (Given, Edgy, Vec<Ran>, bool)| {
        let given = Given { attempts: u32::from(!none), ..given };
        let runs = |ran: &&Ran| !matches!(ran.outcome, Outcome::Deferred { .. } | Outcome::Interrupted { begun: false });
        let outcomes: Vec<_> = outcomes.iter().filter(runs).cloned().collect();
        assert!(live(&given, start.time(), &outcomes).charged <= 1);
    });
}

#[test]
fn a_policy_written_into_options_overrides_every_other_and_reads_back() {
    holds(CASES, |(given, other, mut options): (Given, Given, Pairs)| {
        given.policy().store(&mut options.0);
        assert_eq!(other.policy().with(&options.0), given.policy());
    });
}

#[test]
fn an_option_overrides_its_own_number_and_no_other() {
    holds(CASES, |(given, number): (Given, Edgy)| {
        let with = |tag| given.policy().with(&Options(vec![(tag, number.0)]));
        let span = number.span();
        assert_eq!(with(Options::ATTEMPTS), Given { attempts: number.number(), ..given }.policy());
        assert_eq!(with(Options::BASE), Given { base: span, ..given }.policy());
        assert_eq!(with(Options::CAP), Given { cap: span, ..given }.policy());
        assert_eq!(with(Options::RETRY_AFTER_CAP), Given { retry_after_cap: span, ..given }.policy());
        assert_eq!(with(Options::TIMEOUT), Given { timeout: span, ..given }.policy());
        let deadline = (number.0 != Options::NONE).then_some(span);
        assert_eq!(with(Options::DEADLINE), Given { deadline, ..given }.policy());
        for foreign in [0, Options::KEY_WINDOW, Options::DUE_IS_ABSOLUTE, 99, u32::MAX] {
            assert_eq!(with(foreign), given.policy());
        }
        assert_eq!(given.policy().attempt_timeout(), given.timeout);
    });
}

#[test]
fn the_default_policy_is_the_one_of_the_page() {
    let (second, minute) = (Duration::from_secs(1), Duration::from_secs(60));
    let page = Policy::default().attempts(20).base(second).cap(10 * minute).retry_after_cap(60 * minute).timeout(10 * minute);
    assert_eq!(Policy::default(), page);
    assert_eq!(Policy::default().budget(0, Time(0)).admit(Time(u64::MAX)), Ok(()), "no deadline");
}

/// The numbers of a policy, as a test sees them.
#[derive(Clone, Copy, Debug)]
struct Given {
    attempts: u32,
    base: Span,
    cap: Span,
    deadline: Option<Span>,
    retry_after_cap: Span,
    timeout: Span,
}

impl Given {
    fn policy(&self) -> Policy {
        let policy = Policy::default()
            .attempts(self.attempts)
            .base(self.base.into())
            .cap(self.cap.into())
            .retry_after_cap(self.retry_after_cap.into())
            .timeout(self.timeout.into());
        self.deadline.map_or(policy, |deadline| policy.deadline(deadline.into()))
    }
}

impl Arbitrary for Given {
    fn arbitrary(g: &mut Gen) -> Self {
        Self {
            attempts: Edgy::arbitrary(g).number(),
            base: Edgy::arbitrary(g).span(),
            cap: Edgy::arbitrary(g).span(),
            // The longest one is none: a test of its own.
            deadline: bool::arbitrary(g).then(|| Edgy::arbitrary(g).span()).filter(|deadline| deadline.0 != u64::MAX),
            retry_after_cap: Edgy::arbitrary(g).span(),
            timeout: Edgy::arbitrary(g).span(),
        }
    }
}

/// One run of a job: how long it took, and what came of it.
#[derive(Clone, Debug)]
struct Ran {
    took: Span,
    outcome: Outcome,
    random: u64,
}

impl Arbitrary for Ran {
    fn arbitrary(g: &mut Gen) -> Self {
        let wait = Edgy::arbitrary(g).span();
        let retry_after = bool::arbitrary(g).then_some(wait);
        let outcome = match u8::arbitrary(g) % 16 {
            0 => Outcome::Done,
            1 => Outcome::Rejected,
            2 => Outcome::Unsafe,
            3..=9 => Outcome::Transient { retry_after },
            10..=12 => Outcome::Deferred { wait },
            _ => Outcome::Interrupted { begun: bool::arbitrary(g) },
        };
        Self { took: Edgy::arbitrary(g).span(), outcome, random: u64::arbitrary(g) }
    }
}

/// Pairs that were in the options before.
#[derive(Clone, Debug)]
struct Pairs(Options);

impl Arbitrary for Pairs {
    fn arbitrary(g: &mut Gen) -> Self {
        Self(Options(Vec::<(u8, u64)>::arbitrary(g).into_iter().map(|(tag, number)| (u32::from(tag % 12), number)).collect()))
    }
}

#[derive(Default)]
struct Life {
    charged: u32,
    failures: u32,
    given_back: u32,
    ended_by_a_run: bool,
}

/// What becomes of a ticket: it is admitted, runs, and is put back or ends, in that order and again.
fn live(given: &Given, start: Time, outcomes: &[Ran]) -> Life {
    let policy = given.policy();
    let mut life = Life::default();
    let mut now = start;
    for Ran { took, outcome, random } in outcomes {
        let budget = policy.budget(life.failures, start);
        if budget.admit(now).is_err() {
            break;
        }
        life.charged += 1;
        match policy.plan(*outcome, life.failures, budget.charged(), now + *took, *random) {
            Plan::Complete(_) => {
                life.ended_by_a_run = true;
                break;
            }
            Plan::Requeue { due } => {
                life.failures += 1;
                now = due;
            }
            Plan::Defer { due } => {
                life.given_back += 1;
                now = due;
            }
        }
    }
    life
}
