//! Permits and passes: after ten thousand attempts that end in every possible way, pool and breakers are back to full.

use std::time::Duration;

use journeyman::{BreakerState, Limits, Policy};

use crate::jobs::{DAY, HOUR, Log, MINUTE, SECOND, Step, seed, task, task_for, tasks, touchy};
use crate::panics::silence;

const ENDS: [Step; 12] = [
    Step::Ok,
    Step::Fail,
    Step::NotTheTarget,
    Step::Reject,
    Step::Unsafe,
    Step::RetryAfter(300),
    Step::Defer(200),
    Step::Panic,
    Step::PanicOnDrop,
    Step::Hang,
    Step::Sleep(700),
    Step::UntilCancelled,
];

#[actix::test]
async fn a_permit_and_a_pass_never_leak() {
    never_leak(Limits::default()).await;
}

#[actix::test]
async fn nor_do_they_when_no_payload_is_kept_in_memory() {
    let mut limits = Limits::default();
    limits.payload_memory = 0;
    never_leak(limits).await;
}

async fn never_leak(limits: Limits) {
    let log = Log::default();
    let seed = seed();
    let mut dice = fastrand::Rng::with_seed(seed);
    let mut t =
        tasks(&log).limits(limits).capacity(16).circuit(touchy().cooldown(5 * SECOND)).test_with(Default::default(), seed).await.unwrap();
    let policy = Policy::default().attempts(3).base(SECOND).timeout(2 * SECOND).deadline(MINUTE);
    let (mut cancels, mut stops, mut round) = (0, 0, 0);
    // Without a panic's report for each of thousands.
    let silence = silence(|_| true);
    while log.total() < 10_000 {
        round += 1;
        let jobs = t.jobs();
        let mut ids = Vec::new();
        for n in 0..40 {
            let script: Vec<Step> = (0..3).map(|_| ENDS[dice.usize(..ENDS.len())]).collect();
            let name = format!("{round}-{n}");
            let job = match dice.u8(..4) {
                0 => task(&name, &script),
                which => task_for(&format!("target {which}"), &name, &script),
            };
            ids.push(jobs.enqueue(job).policy(policy).await.unwrap().id());
        }
        for id in ids {
            t.advance(Duration::from_millis(dice.u64(..60))).await;
            if dice.u8(..5) == 0 {
                jobs.cancel(id).await.unwrap();
                cancels += 1;
            }
        }
        if round % 10 == 0 {
            t.stop_and_reopen(Duration::from_millis(dice.u64(..3000))).await.unwrap();
            stops += 1;
        }
    }
    drop(silence);
    t.run_until_idle(DAY).await.unwrap();
    let stats = t.jobs().stats();
    println!("{} attempts of {} jobs, {cancels} cancels, {stops} stops: {stats:?}", log.total(), round * 40);
    assert_eq!(t.free_units().await, 16);
    let ends = [stats.done, stats.rejected, stats.unsafe_to_repeat, stats.spent, stats.late, stats.cancelled];
    assert_eq!(ends.iter().sum::<u64>(), round * 40, "each job ended once");
    assert!(ends.iter().all(|count| *count > 0), "every end was walked");
    assert!(log.most_live() <= 16);

    // Every breaker lets its probe through, and closes: no place is missing.
    t.advance(HOUR).await;
    for target in t.jobs().targets().await.unwrap() {
        t.jobs().enqueue(task_for(target.target.as_str(), "last", &[Step::Ok])).await.unwrap();
    }
    t.run_until_idle(MINUTE).await.unwrap();
    let targets = t.jobs().targets().await.unwrap();
    assert!(!targets.is_empty() && targets.iter().all(|info| info.breaker == BreakerState::Closed && info.held == 0), "{targets:?}");
    assert_eq!(t.jobs().stats().done, stats.done + targets.len() as u64);
    assert_eq!(t.free_units().await, 16);
}
