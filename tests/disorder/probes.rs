//! Probes that never come back, or come back with nothing to say: whatever becomes of one, its place is there for the next,
//! at once where the target is not to blame and after the cooldown where it is.

use std::cell::Cell;
use std::time::Duration;

use journeyman::testing::TestRunner;
use journeyman::{BreakerState, Cx, Job, JobResult, JobState, PayloadCodec, Policy, Target};
use serde::{Deserialize, Serialize};

use super::{CAPACITY, all_is_there, breaker, once, runner, store, trip};
use crate::jobs::{DAY, HOUR, Log, MINUTE, SECOND, Step, task_for, tasks, touchy};

/// When the next job is let through, counted from when the probe is over.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Next {
    AtOnce,
    AfterTheCooldown,
}

#[derive(Clone, Copy, Debug)]
enum Way {
    /// The script has it.
    ByItself(Step, Duration, Next),
    /// It is cancelled, and comes back.
    Cancelled,
    /// It is cancelled, and does not care before its timeout, which is an hour.
    CancelledInVain,
    /// This actor dies while it is out.
    Killed(&'static str),
    Stopped,
    Crashed,
}

const WAYS: [Way; 14] = [
    Way::ByItself(Step::Hang, HOUR, Next::AfterTheCooldown),
    Way::ByItself(Step::PanicOnDrop, HOUR, Next::AtOnce),
    Way::ByItself(Step::Panic, Duration::ZERO, Next::AtOnce),
    Way::ByItself(Step::Defer(86_400_000), Duration::ZERO, Next::AtOnce),
    Way::ByItself(Step::NotTheTarget, Duration::ZERO, Next::AtOnce),
    Way::ByItself(Step::Reject, Duration::ZERO, Next::AtOnce),
    Way::ByItself(Step::Unsafe, Duration::ZERO, Next::AfterTheCooldown),
    Way::Cancelled,
    Way::CancelledInVain,
    Way::Killed("queue"),
    Way::Killed("breaker"),
    Way::Killed("worker"),
    Way::Stopped,
    Way::Crashed,
];

#[actix::test]
async fn whatever_becomes_of_a_probe_its_place_is_there_for_the_next() {
    for way in WAYS {
        let log = Log::default();
        let mut t = runner(&log).await;
        trip(&t).await;
        let step = match way {
            Way::ByItself(step, ..) => step,
            Way::Cancelled => Step::UntilCancelled,
            _ => Step::Hang,
        };
        let policy = Policy::default().attempts(1).timeout(HOUR);
        let probe = t.jobs().enqueue(task_for("t", "probe", &[step, Step::Ok])).priority(1).policy(policy).await.unwrap().id();
        store(&t, "next", &[Step::Ok], once()).await;
        t.advance(MINUTE).await;
        assert_eq!(log.runs_of("probe"), 1, "{way:?}");
        let next = match way {
            Way::ByItself(_, lasts, next) => {
                if lasts > Duration::ZERO {
                    t.advance(lasts - Duration::from_millis(1)).await;
                    assert_eq!(log.runs_of("next"), 0, "{way:?} is still out");
                    t.advance(Duration::from_millis(1)).await;
                }
                next
            }
            Way::Cancelled => {
                t.jobs().cancel(probe).await.unwrap();
                t.settle().await;
                Next::AtOnce
            }
            Way::CancelledInVain => {
                t.jobs().cancel(probe).await.unwrap();
                t.advance(HOUR).await;
                Next::AfterTheCooldown
            }
            Way::Killed(actor) => {
                t.kill(actor).await;
                // The pause before a reopening. What comes of it is another breaker.
                t.advance(SECOND).await;
                Next::AtOnce
            }
            Way::Stopped => {
                t.stop_and_reopen(SECOND).await.unwrap();
                Next::AtOnce
            }
            Way::Crashed => {
                t.crash_and_reopen().await.unwrap();
                Next::AtOnce
            }
        };
        assert_eq!(log.runs_of("next") == 1, next == Next::AtOnce, "{way:?}");
        t.advance(MINUTE).await;
        assert_eq!(log.runs_of("next"), 1, "{way:?}");
        t.jobs().cancel(probe).await.unwrap();
        if let Way::Killed(_) = way {
            // It went on in spite of it, and has its unit until its timeout.
            t.advance(HOUR).await;
        }
        all_is_there(&t, 1).await;
    }
}

/// Twenty probes that say nothing follow each other at once, and the target stays half-open.
#[actix::test]
async fn any_number_of_probes_may_say_nothing() {
    let log = Log::default();
    let t = runner(&log).await;
    trip(&t).await;
    for _ in 0..20 {
        store(&t, "silent", &[Step::NotTheTarget], once()).await;
    }
    t.advance(MINUTE).await;
    assert_eq!(log.runs_of("silent"), 20);
    assert_eq!((breaker(&t).await.breaker, breaker(&t).await.openings), (BreakerState::HalfOpen, 1));
    all_is_there(&t, 1).await;
}

thread_local! {
    static IS_UNREADABLE: Cell<bool> = const { Cell::new(false) };
}

/// Does not decode in some moods.
#[derive(Serialize, Deserialize)]
struct Moody;

impl Job for Moody {
    type Context = Log;
    type Output = ();
    const KIND: &'static str = "moody";
    const CODEC: PayloadCodec<Self> =
        PayloadCodec::raw(|_| Ok(Vec::new()), |_| if IS_UNREADABLE.get() { Err("not in the mood".to_owned()) } else { Ok(Self) });

    fn target(&self) -> Option<Target> {
        Some("t".into())
    }

    async fn run(self, _: Cx<Log>) -> JobResult<()> {
        Ok(())
    }
}

#[actix::test]
async fn a_probe_that_cannot_be_decoded_is_held_and_makes_room() {
    let log = Log::default();
    let mut t: TestRunner<Log> = tasks(&log).register::<Moody>().capacity(CAPACITY).circuit(touchy()).test().await.unwrap();
    trip(&t).await;
    let moody = t.jobs().enqueue(Moody).priority(1).await.unwrap().id();
    IS_UNREADABLE.set(true);
    store(&t, "next", &[Step::Ok], once()).await;
    t.advance(MINUTE).await;
    assert_eq!((log.runs_of("next"), breaker(&t).await.breaker), (1, BreakerState::Closed));
    let state = t.jobs().get(moody).await.unwrap().unwrap().state;
    assert_eq!(state, JobState::Held { why: "its payload cannot be decoded by this build" });
    IS_UNREADABLE.set(false);
    t.crash_and_reopen().await.unwrap();
    all_is_there(&t, 1).await;
}

#[actix::test]
async fn a_probe_that_its_deadline_overtakes_on_the_way_makes_room() {
    let log = Log::default();
    let t = runner(&log).await;
    trip(&t).await;
    for n in 0..5 {
        store(&t, &n.to_string(), &[Step::Ok], once().deadline(MINUTE)).await;
    }
    store(&t, "next", &[Step::Ok], once()).await;
    t.advance(MINUTE).await;
    assert_eq!((t.jobs().stats().late, log.runs_of("next")), (5, 1), "its time is their deadline");
    all_is_there(&t, 1).await;
}

#[actix::test]
async fn probes_that_fail_for_a_day_cost_one_attempt_each_cooldown_and_then_all_goes_on() {
    let log = Log::default();
    let t = runner(&log).await;
    trip(&t).await;
    let before = t.jobs().stats().spent;
    for n in 0..2_000 {
        store(&t, if n < 1_440 { "dead" } else { "alive" }, &[if n < 1_440 { Step::Fail } else { Step::Ok }], once()).await;
    }
    t.advance(DAY).await;
    assert_eq!((t.jobs().stats().spent - before, log.runs_of("alive")), (1_440, 0));
    t.advance(MINUTE).await;
    assert_eq!(log.runs_of("alive"), 560);
    all_is_there(&t, 1).await;
}
