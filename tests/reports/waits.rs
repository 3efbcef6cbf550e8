//! How long a retry waits: never before now, never beyond its cap, and as its policy says.

use std::time::Duration;

use journeyman::{JobEnd, JobState, Policy};
use journeyman_core::retry::{Outcome, Plan};
use journeyman_core::{Span, Time};

use crate::jobs::{HOUR, Log, MINUTE, SECOND, Step, runner, task};

/// river#698: an overflow from attempt 310 on; others raise to a power without a look.
#[test]
fn b25_no_attempt_number_and_no_base_comes_to_an_overflow() {
    let longest = Duration::from_millis(u64::MAX);
    let spans = [Duration::ZERO, Duration::from_millis(1), SECOND, HOUR, longest / 2, longest, Duration::MAX];
    let attempts = (0..400).chain((9..=32).map(|bits| u32::MAX >> (32 - bits)));
    let mut tries = 0;
    for failures in attempts {
        for base in spans {
            for cap in spans {
                for now in [0, 1, 1 << 62, u64::MAX] {
                    for random in [0, 1, u64::MAX / 2, u64::MAX] {
                        let policy = Policy::default().attempts(u32::MAX).base(base).cap(cap);
                        let (now, budget) = (Time(now), policy.budget(0, Time(0)));
                        let Plan::Requeue { due } = policy.plan(Outcome::Transient { retry_after: None }, failures, budget, now, random)
                        else {
                            panic!("it is to be tried again")
                        };
                        assert!(now <= due && due <= now + Span::from(cap), "{failures} failures, {base:?}, {cap:?}: {due:?}");
                        tries += 1;
                    }
                }
            }
        }
    }
    assert!(tries > 300_000);
}

/// temporal#185, sdk-go#120: the last retry is planned for the deadline, and a "timeout" hides the real error.
#[actix::test]
async fn b26_a_retry_that_could_not_start_in_time_is_not_waited_for_and_the_real_error_stays() {
    let log = Log::default();
    let t = runner(&log).await;
    let policy = Policy::default().deadline(10 * SECOND).base(8 * SECOND).cap(8 * SECOND).timeout(HOUR);
    let id = t.jobs().enqueue(task("a", &[Step::FailAfter(500), Step::FailAfter(500)])).policy(policy).await.unwrap().id();
    t.advance(SECOND).await;
    assert_eq!(log.total(), 1);
    t.advance(8 * SECOND).await;
    let end = t.drive(t.jobs().outcome(id), Duration::ZERO).await.expect("at nine seconds, not at ten").unwrap();
    assert!(matches!(&end, JobEnd::Late(Some(fault)) if fault.text() == "told to fail"), "{end:?}");
    assert_eq!(log.total(), 2);
}

/// temporal#1675, #7515: all waits are the longest one, or some are far too short.
#[actix::test]
async fn b27_the_gaps_between_sixty_failures_follow_the_policy() {
    let log = Log::default();
    let t = runner(&log).await;
    let policy = Policy::default().attempts(61).base(SECOND).cap(HOUR);
    let id = t.jobs().enqueue(task("a", &[Step::Fail])).policy(policy).await.unwrap().id();
    t.settle().await;
    let mut different = std::collections::HashSet::new();
    for failures in 1..=60u32 {
        let info = t.jobs().get(id).await.unwrap().unwrap();
        assert_eq!(info.failures, failures);
        let JobState::Pending { due } = info.state else { panic!("{:?}", info.state) };
        let wait = due.duration_since(t.now()).unwrap();
        let backoff = SECOND.saturating_mul(1u32.checked_shl(failures - 1).unwrap_or(u32::MAX)).min(HOUR);
        assert!(backoff / 2 <= wait && wait <= backoff, "after {failures} failures: {wait:?} of {backoff:?}");
        if backoff == HOUR {
            different.insert(wait);
        }
        t.advance(wait - Duration::from_millis(1)).await;
        assert_eq!(log.total(), failures as usize, "not before");
        t.advance(Duration::from_millis(1)).await;
        assert_eq!(log.total(), failures as usize + 1, "and not after");
    }
    assert!(different.len() > 40, "jitter differs each time");
    assert_eq!(t.jobs().stats().spent, 1);
}

/// sidekiq#7003: the part below a second is lost in the sum of the deadline.
#[actix::test]
async fn b28_a_deadline_is_exact_to_the_millisecond() {
    for (wait, runs) in [(1_400, 2), (1_499, 2), (1_500, 1), (1_600, 1)] {
        let log = Log::default();
        let t = runner(&log).await;
        let policy = Policy::default().deadline(Duration::from_millis(1_500));
        t.jobs().enqueue(task("a", &[Step::RetryAfter(wait), Step::Ok])).policy(policy).await.unwrap();
        t.advance(MINUTE).await;
        assert_eq!((log.total(), t.jobs().stats().late), (runs, u64::from(runs == 1)), "after {wait} ms");
    }
}
