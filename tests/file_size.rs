//! A limit to the size of files, as `ulimit -f` or `LimitFSIZE=` set it, is an error of the disk and not the end of the process. In
//! a process of its own, as the limit is of the whole process.

use std::time::Duration;

use journeyman::{Cx, EnqueueError, Job, JobResult, Runner};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
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
async fn a_file_that_may_not_grow_fails_the_journal_and_not_the_process() {
    if in_children("file_size::a_file_that_may_not_grow_fails_the_journal_and_not_the_process", &["a limit"]).is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let runner = Runner::open(dir.path().join("jobs")).register::<Idle>().start().await.unwrap();
    let jobs = runner.jobs();
    let before = getrlimit(Resource::Fsize);
    // In the middle of the first segment.
    setrlimit(Resource::Fsize, Rlimit { current: Some(4_000), ..before }).unwrap();
    let refused = jobs.enqueue(Idle).delay(HOUR).await;
    setrlimit(Resource::Fsize, before).unwrap();
    assert_eq!(refused, Err(EnqueueError::Unknown));
    // The runner reopens by itself; what was not acknowledged may be there or not, but not half.
    let accepted = loop {
        match jobs.enqueue(Idle).delay(HOUR).key("again").await {
            Err(EnqueueError::Unavailable | EnqueueError::Unknown) => tokio::time::sleep(Duration::from_millis(20)).await,
            accepted => break accepted,
        }
    };
    accepted.unwrap();
    assert!((1..=2).contains(&jobs.stats().pending), "{:?}", jobs.stats());
    runner.shutdown(Duration::from_secs(5)).await.unwrap();
}

const HOUR: Duration = Duration::from_secs(3_600);
