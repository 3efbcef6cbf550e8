//! What one bad job, one dead target or one dead actor does to all the others: nothing.

use std::fmt;
use std::time::Duration;

use journeyman::{Cx, Failure, Health, Job, JobResult, Policy, Runner};
use serde::{Deserialize, Serialize};

use super::{once, patient};
use crate::jobs::{HOUR, Log, MINUTE, SECOND, Step, runner, task, task_for, tasks};

/// apalis-sqlite#58, solid_queue#751: a worker stops fetching without a word, and the process looks healthy.
#[actix::test]
async fn b45_whatever_dies_work_goes_on_or_health_is_red() {
    let log = Log::default();
    let t = runner(&log).await;
    for actor in ["queue", "journal", "journal in front", "pool", "breaker", "compactor", "worker"] {
        // A breaker is there when it is needed.
        t.jobs().enqueue(task_for("t", "before", &[Step::Ok])).await.unwrap();
        t.settle().await;
        let done = t.jobs().stats().done;
        assert_eq!(t.actors(actor), 1, "{actor}");
        t.kill(actor).await;
        assert!(matches!(t.jobs().health(), Health::Red { .. }), "{actor}");
        t.advance(5 * SECOND).await;
        assert_eq!(t.jobs().health(), Health::Green, "{actor}");
        t.jobs().enqueue(task_for("t", "after", &[Step::Ok])).await.unwrap();
        t.settle().await;
        assert_eq!(t.jobs().stats().done, done + 1, "{actor}");
        // The next is not in its row.
        t.advance(2 * MINUTE).await;
    }
}

/// Panics when it is dropped, and leaves another of its kind in the panic, so many times.
struct Bomb(u32);

impl Drop for Bomb {
    fn drop(&mut self) {
        if self.0 > 0 && !std::thread::panicking() {
            std::panic::panic_any(Self(self.0 - 1));
        }
    }
}

#[derive(Debug)]
struct UnspeakableError;

impl fmt::Display for UnspeakableError {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("in the text of an error")
    }
}

impl std::error::Error for UnspeakableError {}

/// Panics somewhere.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Explosive {
    AtOnce,
    Later,
    InADrop,
    InTheTextOfItsError,
    WithABomb(u32),
    WithABombInADrop,
    InASection,
}

impl Job for Explosive {
    type Context = ();
    type Output = ();
    const KIND: &'static str = "explosive";

    async fn run(self, cx: Cx<()>) -> JobResult<()> {
        match self {
            Self::AtOnce => panic!("at once"),
            Self::Later => {
                cx.sleep(Duration::from_millis(5)).await;
                panic!("later")
            }
            Self::InADrop => {
                let _bomb = Bomb(1);
                cx.sleep(HOUR).await;
                Ok(())
            }
            Self::InTheTextOfItsError => Err(Failure::transient(UnspeakableError)),
            Self::WithABomb(more) => std::panic::panic_any(Bomb(more)),
            Self::WithABombInADrop => {
                let _bomb = Bomb(7);
                cx.sleep(HOUR).await;
                Ok(())
            }
            Self::InASection => cx.blocking(|| std::panic::panic_any(Bomb(3))).await,
        }
    }
}

/// fang#57, gotcha#40: a panic ends the worker, or the scheduler, without a trace.
#[actix::test]
async fn b46_a_thousand_panics_of_all_kinds_end_their_attempts_and_nothing_else() {
    let kinds = [
        Explosive::AtOnce,
        Explosive::Later,
        Explosive::InADrop,
        Explosive::InTheTextOfItsError,
        Explosive::WithABomb(1),
        Explosive::WithABomb(9),
        Explosive::WithABombInADrop,
        Explosive::InASection,
    ];
    let t = Runner::in_memory().register::<Explosive>().capacity(16).test().await.unwrap();
    let policy = Policy::default().attempts(5).base(SECOND).cap(SECOND).timeout(SECOND);
    for kind in kinds {
        let records = t.jobs().stats().records;
        for _ in 0..25 {
            t.jobs().enqueue(kind).policy(policy).await.unwrap();
        }
        t.run_until_idle(HOUR).await.unwrap();
        assert_eq!((t.jobs().health(), t.actors("worker"), t.free_units().await), (Health::Green, 1, 16), "{kind:?}");
        // One to store it, and two for each attempt.
        assert!(t.jobs().stats().records - records <= 25 * 11 + 1, "{kind:?}");
    }
    assert_eq!(t.jobs().stats().spent, 25 * kinds.len() as u64);
}

/// convoy#1926, mastodon#7053, nango#5061: one dead endpoint clogs the queue for all. A healthy target is given a job a second for
/// ten minutes each; the time in which all of them are done is what they lose.
#[actix::test]
async fn b47_a_dead_target_takes_less_than_a_tenth_of_the_others_rate() {
    let mut done = Vec::new();
    for with_a_dead_one in [false, true] {
        let log = Log::default();
        // Just enough for nine targets.
        let t = tasks(&log).capacity(16).test().await.unwrap();
        for second in 0..600 {
            let jobs = t.jobs();
            let healthy = (0..9).map(|n| jobs.enqueue(task_for(&format!("healthy {n}"), "ok", &[Step::Sleep(1_000)])));
            jobs.enqueue_all(healthy).await.unwrap();
            if with_a_dead_one {
                // It answers nothing, and its calls take ten seconds to find out.
                let name = format!("dead {second}");
                jobs.enqueue(task_for("dead", &name, &[Step::Hang])).policy(patient().timeout(10 * SECOND)).await.unwrap();
            }
            t.advance(SECOND).await;
        }
        done.push(t.jobs().stats().done);
    }
    println!("{} alone, {} beside a dead target", done[0], done[1]);
    assert!(done[1] * 10 >= done[0] * 9, "{done:?}");
}

/// A job that is fine beside one that is not.
#[actix::test]
async fn b46_the_panic_of_one_is_not_the_failure_of_another() {
    let log = Log::default();
    let t = tasks(&log).capacity(64).test().await.unwrap();
    for n in 0..500 {
        let step = if n % 2 == 0 { Step::PanicAfter(n % 7) } else { Step::Sleep(n % 7) };
        t.jobs().enqueue(task(&n.to_string(), &[step])).policy(once()).await.unwrap();
    }
    t.run_until_idle(HOUR).await.unwrap();
    assert_eq!((t.jobs().stats().done, t.jobs().stats().spent, log.total()), (250, 250, 500));
}
