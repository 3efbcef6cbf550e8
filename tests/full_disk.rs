//! A real disk that fills up amid work: the runner fails and says so, whoever waits for its end hears it, the directory is
//! free at once, and with space again everything acknowledged is there. Needs root, to mount a small file system.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use journeyman::{Cx, EnqueueError, Health, Job, JobResult, Runner};
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
async fn a_disk_that_fills_up_ends_the_runner_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().as_os_str();
    if !mount(&["mount".as_ref(), "-t".as_ref(), "tmpfs".as_ref(), "-o".as_ref(), "size=4m".as_ref(), "none".as_ref(), path]) {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "a small file system must be mounted here");
        println!("skipped: this user cannot mount a small file system");
        return;
    }
    let _mounted = Mounted(dir.path());
    let runner = Runner::open(dir.path().join("jobs")).register::<Bulky>().start().await.unwrap();
    let jobs = runner.jobs();
    let end = actix_rt::spawn(runner.run_until(std::future::pending::<()>(), Duration::ZERO));
    let mut stored = 0;
    let lost = loop {
        match jobs.enqueue(Bulky("x".repeat(100_000))).delay(Duration::from_secs(3600)).await {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(lost, EnqueueError::Unknown);
    assert_eq!(jobs.enqueue(Bulky(String::new())).await, Err(EnqueueError::Unavailable));
    assert!(matches!(jobs.health(), Health::Red { .. }));
    let failed = end.await.unwrap().unwrap_err();
    assert!(failed.reason.contains("No space left on device"), "{failed}");

    assert!(mount(&["mount".as_ref(), "-o".as_ref(), "remount,size=16m".as_ref(), path]));
    let runner = Runner::open(dir.path().join("jobs")).register::<Bulky>().start().await.expect("without any repair");
    let pending = runner.jobs().stats().pending;
    assert!(pending == stored || pending == stored + 1, "{pending} of {stored}: what was unknown may be there or not");
    assert!(stored > 10);
    runner.jobs().enqueue(Bulky(String::new())).await.unwrap();
    runner.shutdown(Duration::ZERO).await.unwrap();
}
