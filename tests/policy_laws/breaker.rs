//! The laws of the circuit breaker: it makes the moves of its diagram and no other, and lets no more probes through than
//! it may.

use std::time::Duration;

use journeyman_core::breaker::{Breaker, Pass, Position, Refused, Verdict};
use journeyman_core::{Circuit, Span, Time};
use quickcheck::{Arbitrary, Gen};

use super::CASES;
use crate::support::{Edgy, holds};

/// Opens at 3 failures within 100 ms, for 50 ms, with 2 probes.
fn circuit() -> Circuit {
    Circuit::default().threshold(3).window(Duration::from_millis(100)).cooldown(Duration::from_millis(50)).probes(2)
}

fn closed() -> Breaker {
    Breaker::new(circuit())
}

/// Opened at 1000, so that it refuses until 1050.
fn opened() -> Breaker {
    let mut breaker = closed();
    assert!([(); 3].map(|()| attempt(&mut breaker, Verdict::Failure, 1000))[2], "the third opens it");
    breaker
}

/// Half-open at 1050, with its first probe out.
fn probing() -> (Breaker, Pass) {
    let mut breaker = opened();
    let probe = breaker.admit(Time(1050)).expect("its time has come");
    (breaker, probe)
}

/// One attempt that takes no time; answers whether the state changed.
fn attempt(breaker: &mut Breaker, verdict: Verdict, at: u64) -> bool {
    let pass = breaker.admit(Time(at)).expect("it lets this through");
    breaker.settle(pass, verdict, Time(at))
}

#[test]
fn a_closed_one_stays_closed_below_the_threshold() {
    let mut breaker = closed();
    assert!(!attempt(&mut breaker, Verdict::Failure, 0));
    assert!(!attempt(&mut breaker, Verdict::Failure, 0));
    assert_eq!((breaker.position(), breaker.openings()), (Position::Closed, 0));
}

#[test]
fn a_closed_one_opens_at_the_threshold_for_the_cooldown() {
    let mut breaker = closed();
    attempt(&mut breaker, Verdict::Failure, 0);
    attempt(&mut breaker, Verdict::Failure, 50);
    assert!(attempt(&mut breaker, Verdict::Failure, 99));
    assert_eq!((breaker.position(), breaker.openings()), (Position::Open { until: Time(149) }, 1));
}

#[test]
fn a_failure_as_old_as_the_window_counts_no_more() {
    let mut breaker = closed();
    attempt(&mut breaker, Verdict::Failure, 0);
    attempt(&mut breaker, Verdict::Failure, 50);
    assert!(!attempt(&mut breaker, Verdict::Failure, 100), "the first is 100 ms old");
    assert!(attempt(&mut breaker, Verdict::Failure, 149), "the second is 99 ms old");
}

#[test]
fn a_success_clears_the_failures() {
    let mut breaker = closed();
    attempt(&mut breaker, Verdict::Failure, 0);
    attempt(&mut breaker, Verdict::Failure, 0);
    assert!(!attempt(&mut breaker, Verdict::Success, 0));
    assert!(!attempt(&mut breaker, Verdict::Failure, 0));
    assert!(!attempt(&mut breaker, Verdict::Failure, 0));
    assert_eq!(breaker.position(), Position::Closed);
}

#[test]
fn a_pass_without_a_verdict_changes_nothing_in_a_closed_one() {
    let mut breaker = closed();
    attempt(&mut breaker, Verdict::Failure, 0);
    let before = breaker.clone();
    assert!(!attempt(&mut breaker, Verdict::None, 0));
    assert_eq!(breaker, before);
}

#[test]
fn an_open_one_refuses_until_its_time_and_says_when() {
    let mut breaker = opened();
    for now in [0, 1000, 1049] {
        assert_eq!(breaker.admit(Time(now)), Err(Refused { until: Time(1050) }));
    }
    assert_eq!(breaker.position(), Position::Open { until: Time(1050) });
}

#[test]
fn an_open_one_is_half_open_from_its_time() {
    let (breaker, _probe) = probing();
    assert_eq!((breaker.position(), breaker.probes_out()), (Position::HalfOpen, 1));
}

#[test]
fn a_half_open_one_lets_no_more_than_its_probes_through_and_is_worth_asking_after_a_cooldown() {
    let (mut breaker, _probe) = probing();
    let _second = breaker.admit(Time(1060)).expect("two probes");
    assert_eq!(breaker.admit(Time(1070)), Err(Refused { until: Time(1120) }));
    assert_eq!(breaker.probes_out(), 2);
}

#[test]
fn a_probe_that_succeeds_closes_it() {
    let (mut breaker, probe) = probing();
    assert!(breaker.settle(probe, Verdict::Success, Time(1060)));
    assert_eq!(breaker.position(), Position::Closed);
    assert!(!attempt(&mut breaker, Verdict::Failure, 1060), "the old failures are forgotten");
    assert!(!attempt(&mut breaker, Verdict::Failure, 1060), "the old failures are forgotten");
}

#[test]
fn a_probe_that_fails_opens_it_again_for_the_cooldown() {
    let (mut breaker, probe) = probing();
    assert!(breaker.settle(probe, Verdict::Failure, Time(1060)));
    assert_eq!((breaker.position(), breaker.openings()), (Position::Open { until: Time(1110) }, 2));
}

#[test]
fn a_probe_without_a_verdict_gives_its_place_back() {
    let (mut breaker, probe) = probing();
    let _second = breaker.admit(Time(1060)).expect("two probes");
    assert!(!breaker.settle(probe, Verdict::None, Time(1060)));
    assert_eq!((breaker.position(), breaker.probes_out()), (Position::HalfOpen, 1));
    assert!(breaker.admit(Time(1060)).is_ok());
}

#[test]
fn a_pass_from_before_the_last_change_of_state_changes_nothing() {
    for verdict in [Verdict::Success, Verdict::Failure, Verdict::None] {
        let mut breaker = closed();
        let mut old: Vec<_> = (0..4).map(|_| breaker.admit(Time(0)).expect("closed")).collect();
        assert!([(); 3].map(|()| attempt(&mut breaker, Verdict::Failure, 1000))[2], "the third opens it");
        no_effect(&mut breaker, old.pop(), verdict, "open");
        let probe = breaker.admit(Time(1050)).expect("its time has come");
        let late = breaker.admit(Time(1050)).expect("two probes");
        no_effect(&mut breaker, old.pop(), verdict, "half-open");
        assert!(breaker.settle(probe, Verdict::Success, Time(1060)));
        no_effect(&mut breaker, old.pop(), verdict, "closed again");
        no_effect(&mut breaker, Some(late), verdict, "closed again, from half-open");
    }
}

fn no_effect(breaker: &mut Breaker, pass: Option<Pass>, verdict: Verdict, state: &str) {
    let before = breaker.clone();
    assert!(!breaker.settle(pass.expect("one is left"), verdict, Time(1060)), "{verdict:?}, {state}");
    assert_eq!(*breaker, before, "{verdict:?}, {state}");
}

#[test]
fn zero_is_taken_as_one() {
    assert_eq!(Circuit::default().threshold(0).probes(0), Circuit::default().threshold(1).probes(1));
}

#[test]
fn the_default_circuit_is_the_one_of_the_page() {
    let page = Circuit::default().threshold(5).window(Duration::from_secs(60)).cooldown(Duration::from_secs(30)).probes(1);
    assert_eq!(Circuit::default(), page);
    assert_eq!((page.probes_at_once(), page.failure_window()), (1, Span::from_secs(60)));
}

/// Under any sequence of calls at any times: what is let through, what changes, and what is counted.
#[test]
fn whatever_is_asked_it_lets_through_what_its_position_says() {
    holds(CASES, |(edges, asks): (Edges, Vec<Ask>)| {
        let mut breaker = Breaker::new(edges.circuit());
        let (mut changes, mut openings) = (0, 0);
        let mut out: Vec<(Pass, u32)> = Vec::new();
        for ask in asks {
            let before = breaker.clone();
            let now = ask.now.time();
            if let Some((pass, of)) = ask.settles.filter(|_| !out.is_empty()).map(|n| out.swap_remove(usize::from(n) % out.len())) {
                let changed = breaker.settle(pass, ask.verdict, now);
                assert_eq!(changed, breaker.position() != before.position(), "{:?}", ask.verdict);
                assert!(of == changes || breaker == before, "a stale pass changes nothing");
                changes += u32::from(changed);
                openings += u64::from(changed && matches!(breaker.position(), Position::Open { .. }));
            } else {
                let answer = breaker.admit(now);
                let half_opens = matches!(before.position(), Position::Open { until } if until <= now);
                changes += u32::from(half_opens);
                let probes = out.iter().filter(|(_, of)| *of == changes).count();
                let expected = match before.position() {
                    Position::Closed => Ok(()),
                    Position::Open { until } if now < until => Err(Refused { until }),
                    _ if probes < edges.probes.max(1) as usize => Ok(()),
                    _ => Err(Refused { until: now + edges.cooldown }),
                };
                assert_eq!(answer.as_ref().map(|_| ()).map_err(|refused| *refused), expected);
                out.extend(answer.ok().map(|pass| (pass, changes)));
            }
            let probes = out.iter().filter(|(_, of)| *of == changes).count();
            match breaker.position() {
                Position::HalfOpen => {
                    assert_eq!(breaker.probes_out() as usize, probes);
                    assert!(breaker.probes_out() <= edges.probes.max(1));
                }
                Position::Open { .. } => assert_eq!((breaker.probes_out(), probes), (0, 0)),
                Position::Closed => assert_eq!(breaker.probes_out(), 0),
            }
            assert_eq!(breaker.openings(), openings);
        }
    });
}

/// Against a list of all failures since the last success, for a clock that runs forward.
#[test]
fn it_opens_exactly_when_the_failures_within_the_window_number_the_threshold() {
    holds(CASES, |(edges, verdicts): (Edges, Vec<(u8, bool)>)| {
        let mut breaker = Breaker::new(edges.circuit());
        let mut failures: Vec<Time> = Vec::new();
        let mut now = Time(0);
        for (gap, fails) in verdicts {
            now = now + Span(u64::from(gap) % 8);
            if !fails {
                failures.clear();
                assert!(!attempt(&mut breaker, Verdict::Success, now.0));
                continue;
            }
            let young = failures.iter().filter(|at| now.since(**at) < edges.window).count();
            failures.push(now);
            let opens = young + 1 >= edges.threshold.max(1) as usize;
            assert_eq!(attempt(&mut breaker, Verdict::Failure, now.0), opens, "{failures:?} at {now:?}");
            if opens {
                assert_eq!(breaker.position(), Position::Open { until: now + edges.cooldown });
                return;
            }
        }
    });
}

#[derive(Clone, Copy, Debug)]
struct Edges {
    threshold: u32,
    window: Span,
    cooldown: Span,
    probes: u32,
}

impl Edges {
    fn circuit(&self) -> Circuit {
        let circuit = Circuit::default().threshold(self.threshold).probes(self.probes);
        circuit.window(self.window.into()).cooldown(self.cooldown.into())
    }
}

impl Arbitrary for Edges {
    fn arbitrary(g: &mut Gen) -> Self {
        let few = [0, 1, 2, 3, 5, u32::MAX];
        let (threshold, probes) = (*g.choose(&few).expect("one"), *g.choose(&few).expect("one"));
        Self { threshold, window: Edgy::arbitrary(g).span(), cooldown: Edgy::arbitrary(g).span(), probes }
    }
}

/// One call: a pass asked for, or one given back.
#[derive(Clone, Debug)]
struct Ask {
    now: Edgy,
    settles: Option<u8>,
    verdict: Verdict,
}

impl Arbitrary for Ask {
    fn arbitrary(g: &mut Gen) -> Self {
        let verdict = *g.choose(&[Verdict::Success, Verdict::Failure, Verdict::Failure, Verdict::None]).expect("one");
        Self { now: Edgy::arbitrary(g), settles: Option::arbitrary(g), verdict }
    }
}
