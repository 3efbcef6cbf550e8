//! S6: one canary in payload, key, meta, fault, panic and failure text, led through the whole life of jobs, and a search for it in all that was said.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use futures_util::FutureExt;
use journeyman::protocol;
use journeyman::testing::{Syncs, perform};
use journeyman::{Cx, EnqueueError, EventFilter, Failure, Job, JobResult, Limits, PayloadCodec, Policy, Query, Runner, Stored, Target};
use journeyman_core::disk::{Disk, MemDisk};
use journeyman_core::{Attempt, Cause, Codec, End, Fault, Key, Op, Options, Packed, Queue, Record, Seq, Ticket, Time};
use metrics::{Counter, Gauge, Histogram, Key as MetricKey, KeyName, Metadata, Recorder, SharedString, Unit};
use serde::{Deserialize, Serialize};
use tracing_subscriber::fmt::format::FmtSpan;

use crate::jobs::{DAY, HOUR, MINUTE, SECOND, touchy};
use crate::kit::{Life, Rig, has_sled};
use crate::support::children::in_children;
use crate::support::figures::held;
use crate::support::{SALT, disk_of, image, read};

const CANARY: &str = "c4n4ry-b1rd";

/// At its lowest level, and only there, sled 0.34 shows the very bytes that it is given, chunks of snapshots among them; and what it logs cannot be kept from
/// it but for the whole program. A program that passes the lines of `log` on has to leave `sled` at debug: the operations page says so.
static LINES_OF_SLED: AtomicU64 = AtomicU64::new(0);

/// The ways in which bytes are shown: as text, and as what `{:?}`, `{:#?}`, `{:x?}` and `{:02x}` make of a list of bytes.
fn shapes() -> Vec<String> {
    let list = |show: fn(&u8) -> String| CANARY.bytes().map(|byte| show(&byte)).collect::<Vec<_>>();
    let of = |show: fn(&u8) -> String| [list(show).join(","), list(show).concat()];
    let mut shapes = vec![CANARY.to_owned()];
    shapes.extend(of(|byte| byte.to_string()));
    shapes.extend(of(|byte| format!("{byte:x}")));
    shapes.extend(of(|byte| format!("{byte:X}")));
    shapes
}

/// The lines that show the canary, in any shape, over any white space.
fn leaks(text: &str) -> Vec<String> {
    let shapes = shapes();
    let dense: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    let mut found = Vec::new();
    for shape in shapes.iter().filter(|shape| dense.contains(*shape)) {
        let line = text.lines().find(|line| line.contains(CANARY)).unwrap_or("over several lines, or as bytes");
        found.push(format!("{shape}: {line}"));
    }
    found
}

/// All that was said, by whatever means.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<u8>>>);

impl Heard {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().expect("nobody panics with it")).into_owned()
    }

    fn say(&self, text: &str) {
        self.0.lock().expect("nobody panics with it").extend(text.bytes().chain([b'\n']));
    }

    /// What debug output makes of it.
    fn show(&self, value: &impl std::fmt::Debug) {
        self.say(&format!("{value:?} {value:#?} {value:x?}"));
    }

    /// Everything at every level, of this process and for good: events, the lines of crates that log without events, metrics.
    fn everything() -> Self {
        static HEARD: OnceLock<Heard> = OnceLock::new();
        let heard = HEARD.get_or_init(Self::default);
        let lines = heard.clone();
        let events = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::TRACE)
            .with_ansi(false)
            .with_span_events(FmtSpan::FULL)
            .with_writer(move || lines.clone())
            .finish();
        tracing::subscriber::set_global_default(events).expect("nobody else has");
        log::set_logger(heard).expect("nobody else has");
        log::set_max_level(log::LevelFilter::Trace);
        metrics::set_global_recorder(heard.clone()).expect("nobody else has");
        heard.clone()
    }
}

impl io::Write for Heard {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("nobody panics with it").extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl log::Log for Heard {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        if record.level() == log::Level::Trace && record.target().starts_with("sled") {
            LINES_OF_SLED.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.say(&format!("{} {}: {}", record.level(), record.target(), record.args()));
    }

    fn flush(&self) {}
}

impl Recorder for Heard {
    fn describe_counter(&self, name: KeyName, _: Option<Unit>, text: SharedString) {
        self.say(&format!("metric {name:?} {text}"));
    }

    fn describe_gauge(&self, name: KeyName, _: Option<Unit>, text: SharedString) {
        self.say(&format!("metric {name:?} {text}"));
    }

    fn describe_histogram(&self, name: KeyName, _: Option<Unit>, text: SharedString) {
        self.say(&format!("metric {name:?} {text}"));
    }

    fn register_counter(&self, key: &MetricKey, _: &Metadata<'_>) -> Counter {
        self.say(&format!("metric {key:?}"));
        Counter::noop()
    }

    fn register_gauge(&self, key: &MetricKey, _: &Metadata<'_>) -> Gauge {
        self.say(&format!("metric {key:?}"));
        Gauge::noop()
    }

    fn register_histogram(&self, key: &MetricKey, _: &Metadata<'_>) -> Histogram {
        self.say(&format!("metric {key:?}"));
        Histogram::noop()
    }
}

/// Shows its fields wherever a job can.
#[derive(Debug, Serialize, Deserialize)]
struct Secret {
    secret: String,
    how: String,
}

fn secret(how: &str) -> Secret {
    Secret { secret: format!("{CANARY} {}", "x".repeat(300)), how: how.to_owned() }
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
            "unsafe" => Err(Failure::transient(format!("half done {self:?}")).do_not_repeat()),
            "defer" => Err(Failure::defer(SECOND)),
            "panic" => panic!("panicked on {self:?} of {cx:?}"),
            _ => std::future::pending().await,
        }
    }
}

/// The same kind in a later build, which does not understand what is stored.
#[derive(Serialize, Deserialize)]
struct Changed {
    secret: u32,
}

impl Job for Changed {
    type Context = ();
    type Output = ();
    const KIND: &'static str = "secret";

    async fn run(self, _: Cx<()>) -> JobResult<()> {
        Ok(())
    }
}

/// The same kind in a build whose upgrade shows what it could not read.
#[derive(Serialize, Deserialize)]
struct Upgraded {
    secret: String,
}

impl Job for Upgraded {
    type Context = ();
    type Output = ();
    const KIND: &'static str = "secret";
    const VERSION: u16 = 2;

    fn upgrade(_: u16, stored: Stored<'_>) -> Result<Self, Box<dyn std::error::Error>> {
        Err(format!("cannot upgrade {:?}, which is {}", stored, String::from_utf8_lossy(stored.bytes())).into())
    }

    async fn run(self, _: Cx<()>) -> JobResult<()> {
        Ok(())
    }
}

/// Cannot read what it wrote, and would say so with the data in hand.
#[derive(Serialize, Deserialize)]
struct Unreadable<const POSTCARD: bool> {
    #[serde(deserialize_with = "never")]
    secret: String,
}

fn never<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    Err(serde::de::Error::custom(format!("cannot read {text}")))
}

impl<const POSTCARD: bool> Job for Unreadable<POSTCARD> {
    type Context = ();
    type Output = ();
    const KIND: &'static str = if POSTCARD { "unreadable.postcard" } else { "unreadable.json" };
    const CODEC: PayloadCodec<Self> = if POSTCARD { PayloadCodec::postcard() } else { PayloadCodec::json() };

    async fn run(self, _: Cx<()>) -> JobResult<()> {
        Ok(())
    }
}

macro_rules! show {
    ($heard:expr, $($value:expr),+ $(,)?) => {
        $($heard.show(&$value);)+
    };
}

#[test]
fn s6_a_canary_in_payload_key_and_meta_is_shown_nowhere() {
    let name = "security::secrets::s6_a_canary_in_payload_key_and_meta_is_shown_nowhere";
    // The loggers are those of a whole process.
    if in_children(name, &["the life of jobs"]).is_none() {
        return;
    }
    std::panic::set_hook(Box::new(|_| {}));
    let heard = Heard::everything();
    actix_rt::System::new().block_on(a_whole_life(&heard));
    actix_rt::System::new().block_on(on_a_real_directory(&heard));

    let text = heard.text();
    let lines = text.lines().count();
    assert!(lines > 1000, "a lot was said: {lines} lines");
    for source in ["journeyman::queue", "journeyman::worker", "journeyman::journal", "metric", "journeyman::runner"] {
        assert!(text.contains(source), "{source} was heard");
    }
    assert_eq!(leaks(&text), Vec::<String>::new());
    assert!(!has_sled() || LINES_OF_SLED.load(Ordering::Relaxed) > 100, "sled was at work, and was heard");

    // Whoever had said it would have been heard, on each way and in each shape.
    let before = text.len();
    tracing::trace!("an event of {CANARY}");
    log::trace!("a line of {CANARY}");
    metrics::counter!("a_metric", "of" => CANARY).increment(1);
    assert_eq!(heard.text()[before..].matches(CANARY).count(), 3, "{}", &heard.text()[before..]);
    for shown in [
        CANARY.to_owned(),
        format!("{:?}", CANARY.as_bytes()),
        format!("{:#?}", CANARY.as_bytes()),
        format!("{:x?}", CANARY.as_bytes()),
        CANARY.bytes().map(|byte| format!("{byte:02X}")).collect(),
    ] {
        assert!(!leaks(&format!("before\n{shown}\nbehind")).is_empty(), "{shown}");
    }
    held("S6", lines as u64, "lines that were said");
}

/// Every way that a job can go, with all that can be asked about it.
async fn a_whole_life(heard: &Heard) {
    let kinds = || Runner::in_memory().circuit(touchy()).register::<Unreadable<false>>().register::<Unreadable<true>>();
    let mut t = kinds().register::<Secret>().test().await.unwrap();
    let mut events = t.jobs().events(EventFilter::all());
    let actor = t.jobs().start_actor();
    for (n, how) in ["ok", "fail", "reject", "unsafe", "defer", "panic", "hang", "fail", "fail"].into_iter().enumerate() {
        let jobs = t.jobs();
        let call = jobs.enqueue(secret(how)).key(format!("{CANARY} {n}")).meta(CANARY, CANARY).meta("trace", CANARY);
        show!(heard, call);
        let receipt = call.await.unwrap();
        t.settle().await;
        show!(heard, receipt, jobs, t, jobs.get(receipt.id()).await, jobs.find(receipt.id()).await, jobs.list(Query::new()).await);
        let again = protocol::Enqueue::of(secret(how)).key(format!("{CANARY} {n}")).meta("trace", CANARY);
        show!(heard, again);
        show!(heard, actor.send(again).await);
    }
    let all = protocol::EnqueueAll(vec![protocol::Enqueue::of(secret("ok")).key(CANARY).meta(CANARY, CANARY)]);
    show!(heard, all);
    show!(heard, actor.send(all).await);

    // What is refused.
    let jobs = t.jobs();
    let long = format!("{CANARY}{}", "y".repeat(5_000));
    for call in [
        jobs.enqueue(Unreadable::<false> { secret: CANARY.to_owned() }),
        jobs.enqueue(Unreadable::<true> { secret: CANARY.to_owned() }),
        jobs.enqueue(secret("ok")).key(long.clone()),
        jobs.enqueue(secret("ok")).meta(long.clone(), long.clone()),
        jobs.enqueue(Secret { secret: CANARY.repeat(100_000), how: "ok".to_owned() }),
    ] {
        show!(heard, call);
        let refused = call.await.unwrap_err();
        heard.say(&refused.to_string());
        show!(heard, refused);
    }
    let together = jobs.enqueue_all((0..8).map(|_| jobs.enqueue(Secret { secret: CANARY.repeat(90_000), how: "ok".to_owned() })));
    let refused = together.await.unwrap_err();
    heard.say(&refused.to_string());
    assert!(matches!(refused, EnqueueError::BatchTooLarge { .. }));

    // What comes back later, ends late, is cancelled, crashes, and is lost.
    show!(heard, jobs.cancel("0-7".parse().unwrap()).await);
    t.advance(2 * MINUTE).await;
    show!(heard, t.stop_and_reopen(SECOND).await, t.jobs().targets().await, t.jobs().stats(), t.jobs().health());
    t.jobs().enqueue(secret("hang")).key(format!("{CANARY} crash")).await.unwrap();
    t.advance(SECOND).await;
    t.crash_and_reopen().await.unwrap();
    t.advance(HOUR).await;
    for id in 1..=12 {
        show!(heard, t.jobs().find(format!("0-{id}").parse().unwrap()).await);
    }
    for actor in ["queue", "journal", "worker", "breaker", "pool"] {
        let jobs = t.jobs();
        let mut waits = Box::pin(jobs.enqueue(secret("hang")).key(format!("{CANARY} {actor}")).into_future());
        t.set_syncs(Syncs::WhenTold);
        assert!(t.drive(&mut waits, SECOND).await.is_none());
        t.kill(actor).await;
        show!(heard, waits.await, t.jobs().health(), t);
        t.set_syncs(Syncs::AtOnce);
        while t.release_sync().await {}
        t.advance(MINUTE).await;
    }
    t.disk().fail_syncs(true);
    let lost = t.jobs().enqueue(secret("ok")).key(format!("{CANARY} lost")).await;
    show!(heard, lost, t.jobs().health());
    t.advance(SECOND).await;
    t.disk().fail_syncs(false);
    t.advance(MINUTE).await;
    t.jobs().enqueue(secret("fail")).key(format!("{CANARY} last")).delay(DAY).meta("trace", CANARY).await.unwrap();
    while let Some(Some(event)) = events.next().now_or_never() {
        show!(heard, event);
        heard.say(&serde_json::to_string(&event).unwrap());
    }
    show!(heard, t.shutdown(SECOND).await);
    let disk = t.disk().clone();
    drop(t);

    // What another build makes of it.
    let t = Runner::in_memory().register::<Changed>().test_with(disk.clone(), 0).await.unwrap();
    t.advance(2 * DAY).await;
    assert!(t.jobs().stats().held > 0);
    show!(heard, t.jobs().list(Query::new()).await, t.jobs().stats());
    t.shutdown(SECOND).await.unwrap();
    let t = Runner::in_memory().register::<Upgraded>().test_with(disk.clone(), 0).await.unwrap();
    t.advance(2 * DAY).await;
    assert!(t.jobs().stats().held > 0);
    show!(heard, t.jobs().list(Query::new()).await);
    drop(t);

    // And what is said of a directory that is damaged.
    show!(heard, disk);
    let mut files = image(&disk);
    files.values_mut().for_each(|bytes| bytes.truncate(bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 100)));
    for (file, bytes) in &files {
        for at in (0..bytes.len()).step_by(101).take(40) {
            let spoilt = disk_of(&files);
            let mut bytes = bytes.clone();
            bytes[at] ^= 8;
            spoilt.put(file, &bytes);
            if let Err(error) = Runner::in_memory().register::<Changed>().test_with(spoilt, 0).await {
                heard.say(&error.to_string());
                show!(heard, error);
            }
        }
    }

    // The test kit.
    let (captures, captured) = journeyman::Jobs::capture();
    let call = captures.enqueue(secret("ok")).key(CANARY).meta(CANARY, CANARY);
    show!(heard, call);
    call.await.unwrap();
    show!(heard, captures, captured, captures.list(Query::new()).await);
    for how in ["fail", "reject", "unsafe", "defer"] {
        let failure = perform(secret(how), ()).await.unwrap_err();
        assert!(how == "defer" || failure.text().contains(CANARY), "who asks for the text gets it");
        show!(heard, failure);
    }
}

/// With sled, whose own lines are heard as well.
async fn on_a_real_directory(heard: &Heard) {
    let dir = tempfile::tempdir().unwrap();
    let mut limits = Limits::default();
    limits.capacity = 4;
    limits.record_bytes = 16 << 10;
    limits.batch_bytes = 64 << 10;
    limits.segment_bytes = 64 << 10;
    limits.journal_bytes = 512 << 10;
    for life in 0..2 {
        let runner = Runner::open(dir.path()).limits(limits.clone()).circuit(touchy()).register::<Secret>().start().await.unwrap();
        let jobs = runner.jobs();
        show!(heard, runner);
        for n in 0..60 {
            let call = jobs.enqueue(secret("ok")).key(format!("{CANARY} {life} {n}")).meta("trace", CANARY.repeat(100));
            call.delay(if n % 3 == 0 { Duration::from_secs(3600) } else { Duration::ZERO }).await.unwrap();
        }
        // At most a minute, by the clock of the machine: a compaction takes milliseconds.
        for _ in 0..6_000 {
            if jobs.stats().compactions > 0 {
                break;
            }
            jobs.enqueue(secret("ok")).meta("trace", CANARY.repeat(100)).await.unwrap();
            actix_rt::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(jobs.stats().compactions > 0, "{:?}", jobs.stats());
        show!(heard, jobs.stats(), runner.shutdown(Duration::ZERO).await);
    }
}

/// Of each public type that can hold it, by itself.
#[test]
fn s6_no_public_type_shows_it() {
    let heard = Heard::default();
    let job = journeyman_core::Job {
        kind: "kind".into(),
        version: 1,
        codec: Codec::JSON,
        target: None,
        priority: 1,
        options: Options::default(),
        meta: vec![(CANARY.to_owned(), CANARY.to_owned())],
        payload: CANARY.as_bytes().to_vec(),
    };
    let fault = Fault::new(Cause::Failed, CANARY);
    let (ticket, attempt, now) = (Ticket(1), Attempt(Seq(2)), Time(1));
    let job = Packed::from(job);
    let ops = [
        Op::Enqueue { now, due: now, key: Some(Key::new(CANARY)), job: job.clone() },
        Op::Select { ticket },
        Op::Requeue { ticket, attempt, due: now, fault: fault.clone() },
    ];
    let disk = MemDisk::default();
    let mut life = Life::begin(&Rig::plain(disk.clone()));
    let mut queue = Queue::default();
    for op in ops {
        let record = Record::Op(op);
        show!(heard, record);
        queue.step(queue.last().next(), now, &record).expect("it fits");
        show!(heard, queue);
    }
    let live = queue.get(ticket).expect("it lives");
    assert!(!live.is_running());
    show!(heard, job, fault, live, Key::new(CANARY), Op::Complete { ticket, attempt, end: End::Late, fault: Some(fault.clone()) });
    life.write(&[Record::Op(Op::Enqueue { now, due: now, key: Some(Key::new(CANARY)), job })]).expect("memory takes it");
    let (batches, recovery) = read(disk.clone()).expect("it is sound");
    show!(heard, disk, batches);
    let journal = recovery.into_journal(crate::kit::LIMITS, SALT);
    show!(heard, journal.counters());
    let compacted = life.compact();
    show!(heard, compacted, disk, disk.list());
    let mut loading = journeyman_core::snapshot::Loading::begin(&*life.rig.snapshots(), compacted.seq).expect("it is there");
    while loading.step().expect("it is sound").is_some() {}
    show!(heard, loading.finish().expect("it is sound"));
    for end in [journeyman::JobEnd::Rejected(fault.clone()), journeyman::JobEnd::Spent(Some(fault))] {
        show!(heard, end);
    }
    show!(heard, Failure::transient(CANARY), Failure::permanent(CANARY).not_the_target());
    assert!(heard.text().len() > 10_000, "a lot was said");
    assert_eq!(leaks(&heard.text()), Vec::<String>::new());
}
