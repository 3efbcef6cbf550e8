//! SIGTERM to this very process, which is one of its own, as a signal is heard by all tests of it.

use std::time::Duration;

use journeyman::{Cx, Job, JobResult, Runner, stop_signal};
use rustix::process::{Signal, getpid, kill_process};
use serde::{Deserialize, Serialize};

use crate::support::children::in_children;

#[derive(Serialize, Deserialize)]
struct Idle;

impl Job for Idle {
    type Context = ();
    type Output = ();
    const KIND: &'static str = "idle";

    async fn run(self, _: Cx<()>) -> JobResult<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_signal_that_comes_during_the_start_is_an_orderly_stop() {
    if in_children("signals::a_signal_that_comes_during_the_start_is_an_orderly_stop", &["SIGTERM"]).is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let stop = stop_signal();
    kill_process(getpid(), Signal::TERM).unwrap();
    let runner = Runner::open(dir.path().join("jobs")).register::<Idle>().start().await.unwrap();
    runner.jobs().enqueue(Idle).delay(Duration::from_secs(60)).await.unwrap();
    let report = runner.run_until(stop, Duration::from_secs(10)).await.unwrap();
    assert_eq!(report.pending, 1);
}
