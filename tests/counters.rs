//! What the disk is asked to do, counted on a virtual disk that takes a millisecond for each sync: how well callers share
//! a sync, and how many a lone job needs.

use std::future::IntoFuture;
use std::time::Duration;

use futures_util::future::join_all;
use journeyman::testing::Syncs;

use crate::jobs::{DAY, HOUR, Log, SECOND, Step, runner, task};

#[actix::test]
async fn sixty_four_producers_share_their_syncs() {
    let log = Log::default();
    let t = runner(&log).await;
    t.set_syncs(Syncs::After(Duration::from_millis(1)));
    let jobs = t.jobs();
    let producers = (0..64).map(|n| {
        let jobs = jobs.clone();
        actix_rt::spawn(async move {
            for _ in 0..100 {
                jobs.enqueue(task(&n.to_string(), &[Step::Ok])).delay(DAY).await.unwrap();
            }
        })
    });
    assert!(t.drive(join_all(producers), HOUR).await.is_some());
    let stats = jobs.stats();
    let per_sync = stats.records as f64 / stats.syncs as f64;
    println!("64 producers: {} records in {} syncs, {per_sync:.1} records per sync", stats.records, stats.syncs);
    assert_eq!(stats.pending, 6400);
    assert!(per_sync >= 28.0, "{per_sync}");
}

#[actix::test]
async fn a_lone_job_needs_two_syncs() {
    let log = Log::default();
    let t = runner(&log).await;
    t.set_syncs(Syncs::After(Duration::from_millis(1)));
    let jobs = t.jobs();
    let mut before = None;
    for n in 0..101 {
        t.drive(jobs.enqueue(task("a", &[Step::Ok])).into_future(), SECOND).await.unwrap().unwrap();
        t.run_until_idle(SECOND).await.unwrap();
        if n == 0 {
            println!("the first job: {} syncs", jobs.stats().syncs);
            assert!(jobs.stats().syncs <= 3, "the first permit comes from the pool");
            before = Some(jobs.stats().syncs);
        }
    }
    let syncs = (jobs.stats().syncs - before.unwrap()) as f64 / 100.0;
    println!("with the permit cached: {syncs} syncs per job");
    assert!(syncs <= 2.0);
    assert_eq!(jobs.stats().done, 101);
}
