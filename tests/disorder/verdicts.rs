//! A verdict that was won under an earlier generation of its breaker, before it last opened or closed, changes nothing.

use std::time::Duration;

use journeyman::BreakerState;

use super::{all_is_there, breaker, once, runner, runner_with, store, trip};
use crate::jobs::{Log, MINUTE, SECOND, Step, touchy};

#[actix::test]
async fn a_success_from_before_the_opening_closes_nothing() {
    let log = Log::default();
    let t = runner(&log).await;
    store(&t, "slow", &[Step::Sleep(30_000)], once()).await;
    t.settle().await;
    trip(&t).await;
    store(&t, "waiting", &[Step::Ok], once()).await;
    t.advance(59 * SECOND).await;
    assert_eq!((t.jobs().stats().done, log.runs_of("waiting")), (1, 0));
    assert_eq!(breaker(&t).await.breaker, BreakerState::Open);
    t.advance(SECOND).await;
    assert_eq!(log.runs_of("waiting"), 1, "at its time, not earlier and not later");
    all_is_there(&t, 1).await;
}

#[actix::test]
async fn a_failure_from_before_the_opening_counts_for_nothing_after_the_closing() {
    let log = Log::default();
    let t = runner(&log).await;
    store(&t, "slow", &[Step::FailAfter(90_000)], once()).await;
    t.settle().await;
    trip(&t).await;
    store(&t, "probe", &[Step::Ok], once()).await;
    t.advance(MINUTE).await;
    assert_eq!(breaker(&t).await.breaker, BreakerState::Closed);
    t.advance(30 * SECOND).await;
    assert_eq!(t.jobs().stats().spent, 3, "it has failed by now");
    store(&t, "another", &[Step::Fail], once()).await;
    t.settle().await;
    let info = breaker(&t).await;
    assert_eq!((info.breaker, info.openings), (BreakerState::Closed, 1), "one failure of two");
    all_is_there(&t, 1).await;
}

#[actix::test]
async fn a_failure_from_before_the_opening_is_not_the_verdict_of_the_probe() {
    let log = Log::default();
    let t = runner(&log).await;
    store(&t, "slow", &[Step::FailAfter(90_000)], once()).await;
    t.settle().await;
    trip(&t).await;
    store(&t, "probe", &[Step::Sleep(60_000)], once()).await;
    t.settle().await;
    store(&t, "waiting", &[Step::Ok], once()).await;
    t.advance(119 * SECOND).await;
    let info = breaker(&t).await;
    assert_eq!((info.breaker, info.openings, log.runs_of("waiting")), (BreakerState::HalfOpen, 1, 0));
    t.advance(SECOND).await;
    assert_eq!((breaker(&t).await.breaker, log.runs_of("waiting")), (BreakerState::Closed, 1), "the probe itself has the word");
    all_is_there(&t, 1).await;
}

#[actix::test]
async fn a_success_of_a_probe_whose_companion_failed_closes_nothing() {
    let log = Log::default();
    let t = runner_with(&log, touchy().probes(2)).await;
    trip(&t).await;
    store(&t, "one", &[Step::Sleep(10_000)], once()).await;
    store(&t, "other", &[Step::FailAfter(5_000)], once()).await;
    t.advance(65 * SECOND).await;
    assert_eq!((breaker(&t).await.breaker, breaker(&t).await.openings), (BreakerState::Open, 2));
    t.advance(5 * SECOND).await;
    assert_eq!((t.jobs().stats().done, breaker(&t).await.breaker), (1, BreakerState::Open));
    all_is_there(&t, 2).await;
}

#[actix::test]
async fn a_probe_of_an_earlier_round_that_comes_back_without_a_verdict_makes_no_room() {
    let log = Log::default();
    let t = runner_with(&log, touchy().probes(2)).await;
    trip(&t).await;
    store(&t, "earlier", &[Step::PanicAfter(100_000)], once()).await;
    store(&t, "failing", &[Step::FailAfter(5_000)], once()).await;
    t.advance(65 * SECOND).await;
    for _ in 0..3 {
        store(&t, "later", &[Step::Sleep(60_000)], once()).await;
    }
    t.advance(MINUTE).await;
    assert_eq!((breaker(&t).await.breaker, log.runs_of("later")), (BreakerState::HalfOpen, 2));
    t.advance(50 * SECOND).await;
    assert_eq!(t.jobs().stats().running, 2, "the earlier one has panicked by now");
    assert_eq!(log.runs_of("later"), 2, "its place is not one of this round");
    t.advance(10 * SECOND).await;
    assert_eq!(log.runs_of("later"), 3);
    all_is_there(&t, 2).await;
}

#[actix::test]
async fn verdicts_that_come_to_a_breaker_that_is_no_more_harm_nobody() {
    let log = Log::default();
    let t = runner(&log).await;
    for n in 0..6 {
        let step = if n % 2 == 0 { Step::FailAfter(10_000) } else { Step::Sleep(10_000) };
        store(&t, "old", &[step], once()).await;
    }
    t.settle().await;
    t.kill("breaker").await;
    t.advance(SECOND).await;
    assert_eq!(t.jobs().stats().running, 6, "the attempts went on");
    store(&t, "new", &[Step::Ok], once()).await;
    t.advance(Duration::from_secs(20)).await;
    let info = breaker(&t).await;
    assert_eq!((info.breaker, info.openings), (BreakerState::Closed, 0), "the new breaker never sent them out");
    assert_eq!((t.jobs().stats().done, t.jobs().stats().spent), (4, 3));
    all_is_there(&t, 1).await;
}
