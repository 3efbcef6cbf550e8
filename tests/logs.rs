//! What is logged: stable targets, a span for each attempt, an event for each transition, and never, at any level, a
//! payload, a key or a meta value; nor do debug output and errors show one. Each test in a process of its own: whether anybody listens
//! is remembered for the whole process at each place that logs, and other tests there do not.

use std::io;
use std::sync::{Arc, Mutex};

use journeyman::{Cx, EnqueueError, Failure, Job, JobResult, Policy, Runner, Target};
use serde::{Deserialize, Serialize};
use tracing_subscriber::fmt::format::FmtSpan;

use crate::jobs::{HOUR, MINUTE, SECOND, touchy};
use crate::support::children::in_children;

const CANARY: &str = "c4n4ry-b1rd";

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    /// Everything at every level, from this thread, while the guard lives.
    fn capture(&self) -> tracing::subscriber::DefaultGuard {
        let lines = self.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::TRACE)
            .with_ansi(false)
            .with_span_events(FmtSpan::FULL)
            .with_writer(move || lines.clone())
            .finish();
        tracing::subscriber::set_default(subscriber)
    }
}

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Secret {
    secret: String,
    how: String,
}

impl Job for Secret {
    type Context = ();
    type Output = ();
    const KIND: &'static str = "secret";

    fn target(&self) -> Option<Target> {
        Some("there".into())
    }

    fn policy() -> Policy {
        Policy::default().attempts(2).base(SECOND).timeout(MINUTE)
    }

    async fn run(self, cx: Cx<()>) -> JobResult<()> {
        match self.how.as_str() {
            "ok" => Ok(()),
            "fail" => Err(Failure::transient(format!("failed on {self:?}"))),
            "reject" => Err(Failure::permanent(format!("refused {self:?}"))),
            "defer" => Err(Failure::defer(SECOND)),
            "panic" => panic!("panicked on {self:?} of {cx:?}"),
            _ => std::future::pending().await,
        }
    }
}

/// Cannot read what it wrote, and would say so with the data in hand.
#[derive(Serialize, Deserialize)]
struct Unreadable {
    #[serde(deserialize_with = "never")]
    secret: String,
}

fn never<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    Err(serde::de::Error::custom(format!("cannot read {text}")))
}

impl Job for Unreadable {
    type Context = ();
    type Output = ();
    const KIND: &'static str = "unreadable";

    async fn run(self, _: Cx<()>) -> JobResult<()> {
        Ok(())
    }
}

#[actix::test]
async fn no_line_at_any_level_shows_what_may_be_private() {
    if in_children("logs::no_line_at_any_level_shows_what_may_be_private", &["what may be private"]).is_none() {
        return;
    }
    std::panic::set_hook(Box::new(|_| {}));
    let lines = Lines::default();
    let guard = lines.capture();
    let mut t = Runner::in_memory().circuit(touchy()).register::<Secret>().register::<Unreadable>().test().await.unwrap();
    let mut shown = String::new();
    for (n, how) in ["ok", "fail", "reject", "defer", "panic", "hang", "fail", "fail"].into_iter().enumerate() {
        let jobs = t.jobs();
        let job = Secret { secret: CANARY.to_owned(), how: how.to_owned() };
        let call = jobs.enqueue(job).key(format!("{CANARY} {n}")).meta("trace", CANARY);
        shown += &format!("{call:?}");
        let receipt = call.await.unwrap();
        t.settle().await;
        shown += &format!("{receipt:?} {:?} {:?} {t:?}", t.jobs(), t.jobs().get(receipt.id()).await.unwrap());
    }
    let refused = t.jobs().enqueue(Unreadable { secret: CANARY.to_owned() }).await.unwrap_err();
    assert!(matches!(refused, EnqueueError::NotEncodable { .. }));
    shown += &format!("{refused:?} {refused}");
    t.jobs().cancel("0-6".parse().unwrap()).await.unwrap();
    t.advance(2 * MINUTE).await;
    t.stop_and_reopen(SECOND).await.unwrap();
    t.crash_and_reopen().await.unwrap();
    t.advance(HOUR).await;
    t.disk().fail_syncs(true);
    let lost = t.jobs().enqueue(Secret { secret: CANARY.to_owned(), how: "ok".to_owned() }).key(CANARY).await.unwrap_err();
    shown += &format!("{lost:?} {lost} {:?}", t.jobs().health());
    drop(guard);
    let _ = std::panic::take_hook();

    let text = lines.text();
    assert!(text.lines().count() > 100, "a lot was said: {text}");
    let leaks: Vec<_> = text.lines().chain(shown.lines()).filter(|line| line.contains(CANARY)).collect();
    assert_eq!(leaks, Vec::<&str>::new());
}

#[actix::test]
async fn each_transition_is_one_event_and_each_attempt_one_span() {
    if in_children("logs::each_transition_is_one_event_and_each_attempt_one_span", &["events and spans"]).is_none() {
        return;
    }
    std::panic::set_hook(Box::new(|_| {}));
    let lines = Lines::default();
    let guard = lines.capture();
    let t = Runner::in_memory().circuit(touchy()).register::<Secret>().test().await.unwrap();
    let secret = |how: &str| Secret { secret: String::new(), how: how.to_owned() };
    t.jobs().enqueue(secret("ok")).await.unwrap();
    t.jobs().enqueue(secret("fail")).await.unwrap();
    t.jobs().enqueue(secret("defer")).delay(10 * MINUTE).await.unwrap();
    t.jobs().cancel("0-3".parse().unwrap()).await.unwrap();
    t.run_until_idle(HOUR).await.unwrap();
    drop(guard);
    let _ = std::panic::take_hook();
    let text = lines.text();
    let count = |needle: &str| text.lines().filter(|line| line.contains(needle)).count();
    assert_eq!(count("journeyman::queue: enqueued"), 3, "{text}");
    assert_eq!(count("journeyman::queue: selected"), 3);
    assert_eq!(count("journeyman::queue: requeued"), 1);
    assert_eq!(count("journeyman::queue: cancelled"), 1);
    assert_eq!(count("journeyman::queue: completed"), 1);
    assert_eq!(count("WARN journeyman::queue: given up"), 1);
    assert_eq!(count("WARN journeyman::breaker: open: the target is down"), 1);
    assert_eq!(count("job.run{kind=secret id=0-2 attempt=2 target=there}: journeyman::worker: new"), 1);
    assert_eq!(count("journeyman::worker: new"), 3, "three attempts");
}
