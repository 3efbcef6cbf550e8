//! A real disk that fills up amid work: the runner answers questions and takes nothing, so does the next one, and with space again it
//! goes on by itself with everything acknowledged. Needs root, to mount a small file system.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use journeyman::{Cx, EnqueueError, Health, Job, JobResult, Jobs, Query, Runner};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Bulky(String);

impl Job for Bulky {
    type Context = ();
    type Output = ();
    const KIND: &'static str = "bulky";

    async fn run(self, _: Cx<()>) -> JobResult<()> {
        Ok(())
    }
}

struct Mounted<'a>(&'a Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        mount(&["umount".as_ref(), self.0.as_ref()]);
    }
}

fn mount(words: &[&std::ffi::OsStr]) -> bool {
    Command::new(words[0]).args(&words[1..]).status().is_ok_and(|status| status.success())
}

#[actix::test]
async fn a_disk_that_fills_up_leaves_a_runner_that_answers_questions_and_goes_on_when_there_is_room() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().as_os_str();
    if !mount(&["mount".as_ref(), "-t".as_ref(), "tmpfs".as_ref(), "-o".as_ref(), "size=4m,mode=0700".as_ref(), "none".as_ref(), path]) {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "a small file system must be mounted here");
        println!("skipped: this user cannot mount a small file system");
        return;
    }
    let _mounted = Mounted(dir.path());
    let start = || Runner::open(dir.path().join("jobs")).register::<Bulky>().start();
    let runner = start().await.unwrap();
    let jobs = runner.jobs();
    let mut stored = Vec::new();
    let lost = loop {
        match jobs.enqueue(Bulky("x".repeat(100_000))).delay(Duration::from_secs(3600)).await {
            Ok(receipt) => stored.push(receipt.id()),
            Err(error) => break error,
        }
    };
    assert_eq!(lost, EnqueueError::Unknown);
    assert!(stored.len() > 10);
    until(&jobs, |health| matches!(health, Health::Red { why } if why.contains("the disk is full"))).await;
    assert_eq!(jobs.enqueue(Bulky(String::new())).await, Err(EnqueueError::ReadOnly));
    assert!(jobs.get(stored[0]).await.unwrap().is_some(), "what was accepted can be asked for");

    // The next process finds the same: it starts, and says so.
    runner.shutdown(Duration::ZERO).await.unwrap();
    let runner = start().await.expect("a full disk is no reason not to start");
    let jobs = runner.jobs();
    assert!(matches!(jobs.health(), Health::Red { .. }));
    let listed = jobs.list(Query::new()).await.unwrap().jobs;
    assert!(stored.iter().all(|id| listed.iter().any(|job| job.id == *id)), "all that was accepted is listed");

    assert!(mount(&["mount".as_ref(), "-o".as_ref(), "remount,size=16m".as_ref(), path]));
    until(&jobs, |health| *health == Health::Green).await;
    let pending = jobs.stats().pending;
    assert!(pending == stored.len() as u64 || pending == stored.len() as u64 + 1, "what was unknown may be there or not");
    jobs.enqueue(Bulky(String::new())).await.unwrap();
    runner.shutdown(Duration::ZERO).await.unwrap();
}

async fn until(jobs: &Jobs, is_so: impl Fn(&Health) -> bool) {
    let comes = async {
        while !is_so(&jobs.health()) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), comes).await.unwrap_or_else(|_| panic!("still {:?}", jobs.health()));
}
