//! S2, S3, S4, S14, S18: what somebody can ask for has a bound, is judged before anything is decoded or kept, and is never more
//! than data.

use std::collections::BTreeMap;
use std::future::{IntoFuture, poll_fn};
use std::task::Poll;

use futures_util::future::join_all;
use journeyman::testing::Syncs;
use journeyman::{Cx, EnqueueError, Job, JobResult, JobState, Limits, PayloadCodec, Policy, Query, Runner, StartError};
use journeyman_core::disk::MemDisk;
use journeyman_core::{Cause, Codec, Fault, Key, Op, Options, Packed, Queue, Record, Time};
use serde::{Deserialize, Serialize};

use crate::jobs::{DAY, HOUR, Log, MINUTE, Step, task, task_for, tasks};
use crate::kit::{Life, Rig};
use crate::panics::silence;
use crate::support::children::in_children;
use crate::support::figures::{figure, held};

/// A list in a list in a list, in JSON or in postcard.
#[derive(Serialize, Deserialize)]
struct Nested<const POSTCARD: bool> {
    inner: Option<Box<Self>>,
}

impl<const POSTCARD: bool> Nested<POSTCARD> {
    fn of(levels: usize) -> Self {
        (1..levels).fold(Self { inner: None }, |inner, _| Self { inner: Some(Box::new(inner)) })
    }
}

impl<const POSTCARD: bool> Job for Nested<POSTCARD> {
    type Context = ();
    type Output = ();
    const KIND: &'static str = if POSTCARD { "nested.postcard" } else { "nested.json" };
    const CODEC: PayloadCodec<Self> = if POSTCARD { PayloadCodec::postcard() } else { PayloadCodec::json() };

    async fn run(self, _: Cx<()>) -> JobResult<()> {
        Ok(())
    }
}

#[actix::test]
async fn s2_what_is_nested_too_deep_is_refused_at_the_door_and_says_so() {
    let t = Runner::in_memory().register::<Nested<false>>().register::<Nested<true>>().test().await.unwrap();
    let jobs = t.jobs();
    jobs.enqueue(Nested::<false>::of(127)).await.unwrap();
    jobs.enqueue(Nested::<true>::of(127)).await.unwrap();
    for levels in [128, 200, 1_000] {
        for refused in [jobs.enqueue(Nested::<false>::of(levels)).await, jobs.enqueue(Nested::<true>::of(levels)).await] {
            let said = refused.unwrap_err().to_string();
            assert!(said.ends_with("it is nested deeper than 127 levels"), "{said}");
        }
    }
    t.run_until_idle(HOUR).await.unwrap();
    assert_eq!((jobs.stats().done, jobs.stats().pending), (2, 0));
}

/// A partition that holds one job, written as some other build may have.
fn holding(kind: &str, codec: Codec, payload: Vec<u8>) -> MemDisk {
    let disk = MemDisk::default();
    let mut life = Life::begin(&Rig::plain(disk.clone()));
    let job = journeyman_core::Job {
        kind: kind.into(),
        version: 1,
        codec,
        target: None,
        priority: 100,
        options: Options::default(),
        meta: Vec::new(),
        payload,
    };
    let now = Time(1);
    life.write(&[Record::Op(Op::Enqueue { now, due: now, key: None, job: Packed::from(job) })]).expect("memory takes it");
    disk
}

#[actix::test]
async fn s2_a_stored_payload_that_is_nested_too_deep_is_held() {
    for levels in [128, 200, 90_000] {
        let deep = [r#"{"inner":"#.repeat(levels), "null".to_owned(), "}".repeat(levels)].concat();
        let disk = holding("nested.json", Codec::JSON, deep.into_bytes());
        let t = Runner::in_memory().register::<Nested<false>>().test_with(disk, 0).await.unwrap();
        t.advance(DAY).await;
        let info = t.jobs().get("0-1".parse().unwrap()).await.unwrap().unwrap();
        assert_eq!(info.state, JobState::Held { why: "its payload cannot be decoded by this build" });
        assert_eq!(info.failures, 0);
    }
}

#[actix::test]
async fn s2_every_size_is_judged_before_anything_is_stored() {
    let log = Log::default();
    let t = tasks(&log).test().await.unwrap();
    let jobs = t.jobs();
    let long = |bytes: usize| "x".repeat(bytes);
    let refused = [
        (jobs.enqueue(task("a", &[Step::Ok])).key(long(257)).await, "its key takes 257 bytes"),
        (jobs.enqueue(task_for(&long(257), "a", &[Step::Ok])).await, "its target takes 257 bytes"),
        (jobs.enqueue(task("a", &[Step::Ok])).meta("n", long(4_096)).await, "its meta takes 4105 bytes"),
        (jobs.enqueue(task(&long(1 << 20), &[Step::Ok])).await, "beyond the limit of 1048576"),
    ];
    for (answer, said) in refused {
        let error = answer.unwrap_err().to_string();
        assert!(error.starts_with("nothing is stored: ") && error.contains(said), "{error}");
    }
    let pairs = (0..100_000).fold(jobs.enqueue(task("a", &[Step::Ok])), |call, n| call.meta(n.to_string(), ""));
    assert!(matches!(pairs.await, Err(EnqueueError::TooLong { what: "its meta", .. })), "a hundred thousand tags");
    assert_eq!(jobs.stats().records, 0, "nothing came near the journal");
    jobs.enqueue(task_for(&long(256), "a", &[Step::Ok])).key(long(256)).meta("n", long(4_087)).await.unwrap();
}

const LONG_NAME: &str =
    "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef!";

#[derive(Serialize, Deserialize)]
struct LongNamed;

impl Job for LongNamed {
    type Context = ();
    type Output = ();
    const KIND: &'static str = LONG_NAME;

    async fn run(self, _: Cx<()>) -> JobResult<()> {
        Ok(())
    }
}

#[actix::test]
async fn s2_the_name_of_a_kind_has_a_bound() {
    assert_eq!(LONG_NAME.len(), 129);
    let refused = Runner::in_memory().register::<LongNamed>().test().await.unwrap_err();
    assert!(matches!(refused, StartError::KindName { bytes: 129, limit: 128 }), "{refused}");
}

/// Fails with a text of a megabyte, and panics with one.
#[derive(Serialize, Deserialize)]
struct Talkative(bool);

impl Job for Talkative {
    type Context = ();
    type Output = ();
    const KIND: &'static str = "talkative";

    fn policy() -> Policy {
        Policy::default().attempts(2).base(DAY)
    }

    async fn run(self, _: Cx<()>) -> JobResult<()> {
        let text = "é".repeat(1 << 19);
        if self.0 { panic!("{text}") } else { Err(text.into()) }
    }
}

#[actix::test]
async fn s2_the_text_of_a_fault_is_cut_and_what_is_stored_of_it_is_bounded() {
    let silence = silence(|_| true);
    let mut t = Runner::in_memory().register::<Talkative>().test().await.unwrap();
    for panics in [false, true] {
        let id = t.jobs().enqueue(Talkative(panics)).await.unwrap().id();
        t.settle().await;
        for _ in 0..2 {
            let fault = t.jobs().get(id).await.unwrap().unwrap().last_fault.unwrap();
            assert_eq!(fault.text().len(), 8 * 1024, "whole characters, and no more");
            t.crash_and_reopen().await.unwrap();
        }
    }
    drop(silence);
    let fault = Fault::new(Cause::Failed, "x".repeat(1 << 20));
    let mut bytes = Vec::new();
    let op =
        Op::Requeue { ticket: journeyman_core::Ticket(1), attempt: journeyman_core::Attempt(journeyman_core::Seq(1)), due: Time(1), fault };
    journeyman_core::record::encode(&Record::Op(op), &mut bytes);
    assert!(bytes.len() as u64 <= journeyman_core::record::LARGEST_END, "{} bytes", bytes.len());
}

/// Names that would be something else, were they ever more than a key into what is registered.
const NAMES: [&str; 9] =
    ["/bin/sh", "../../../../bin/sh", "$(reboot)", "`id`", "task\0", "TASK", "task ", "std::process::Command", "\u{1b}[2Jtask"];

#[actix::test]
async fn s3_a_type_that_nobody_registered_is_parked_and_visible_whatever_its_name() {
    for name in NAMES {
        let log = Log::default();
        let payload = serde_json::to_vec(&task("never", &[Step::Ok])).unwrap();
        let disk = holding(name, Codec::JSON, payload);
        let t = tasks(&log).test_with(disk, 0).await.unwrap();
        t.jobs().enqueue(task("others", &[Step::Ok])).await.unwrap();
        t.advance(DAY).await;
        let page = t.jobs().list(Query::new()).await.unwrap();
        assert_eq!(page.jobs.len(), 1);
        assert_eq!(page.jobs[0].kind.as_str(), name);
        assert_eq!(page.jobs[0].state, JobState::Held { why: "its kind is not registered here" });
        assert!(page.jobs[0].kind.to_string().chars().all(|c| !c.is_control()), "and is shown without its control characters");
        assert_eq!(log.names(), ["others"], "{name:?} runs nothing and stops nobody");
    }
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").expect("Linux says");
    let pages: u64 = status.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a number");
    pages * 4096
}

#[test]
fn s4_a_flood_against_a_disk_that_stands_still_is_bounded_in_memory_and_answered_with_a_type() {
    let name = "security::bounds::s4_a_flood_against_a_disk_that_stands_still_is_bounded_in_memory_and_answered_with_a_type";
    // Memory is that of a whole process.
    if in_children(name, &["a flood"]).is_some() {
        actix_rt::System::new().block_on(flood());
    }
}

async fn flood() {
    let log = Log::default();
    let mut limits = Limits::default();
    limits.calls = 1_000;
    limits.call_bytes = 1 << 20;
    let t = tasks(&log).limits(limits).test().await.unwrap();
    t.set_syncs(Syncs::WhenTold);
    let jobs = t.jobs();
    let floods = figure(20, 100);
    let before = resident_bytes();
    let mut waiting = Vec::new();
    let mut refusals: BTreeMap<&str, u64> = BTreeMap::new();
    for flood in 0..floods {
        for n in 0..10_000 {
            let mut call = jobs.enqueue(task(&format!("{flood}-{n}"), &[Step::Ok])).delay(DAY).into_future();
            match poll_fn(|task| Poll::Ready(call.as_mut().poll(task))).await {
                Poll::Pending => waiting.push(call),
                Poll::Ready(Err(EnqueueError::Full(what))) => *refusals.entry(what).or_default() += 1,
                Poll::Ready(other) => panic!("{other:?}"),
            }
        }
        t.settle().await;
    }
    let grown = resident_bytes().saturating_sub(before);
    assert!(waiting.len() <= 1_000, "{} calls wait", waiting.len());
    assert_eq!(refusals.values().sum::<u64>() + waiting.len() as u64, floods * 10_000, "{refusals:?}");
    assert!(grown < 64 << 20, "{grown} bytes more");
    t.set_syncs(Syncs::AtOnce);
    while t.release_sync().await {}
    let stored = join_all(waiting).await.into_iter().filter(Result::is_ok).count() as u64;
    assert_eq!(jobs.stats().pending, stored, "what was refused is not there");
    held("S4", floods * 10_000, "calls against a journal that stands still");
}

/// Sets a limit to fifty or less, and what it is called when it is reached.
type Bound = (fn(&mut Limits), &'static str);

#[actix::test]
async fn s4_a_queue_is_bounded_by_jobs_by_bytes_by_keys_and_by_targets() {
    let bounds: [Bound; 4] = [
        (|l| l.pending = 50, "pending tickets"),
        (|l| l.pending_bytes = 2_000, "payload bytes of pending tickets"),
        (|l| l.keys = 50, "keys"),
        (|l| l.targets = 50, "targets"),
    ];
    for (bound, what) in bounds {
        let log = Log::default();
        let mut limits = Limits::default();
        bound(&mut limits);
        let t = tasks(&log).limits(limits).test().await.unwrap();
        let mut stored = 0;
        let refused = loop {
            let n = stored.to_string();
            match t.jobs().enqueue(task_for(&n, &n, &[Step::Ok])).key(n.clone()).delay(HOUR).await {
                Ok(_) => stored += 1,
                Err(refused) => break refused,
            }
            assert!(stored <= 50, "{what}");
        };
        assert_eq!(refused, EnqueueError::Full(what));
        t.advance(2 * DAY).await;
        assert_eq!(t.jobs().stats().done, stored, "what was taken is done");
    }
}

/// The well-known hash of short texts: its collisions are easily made.
fn djb2(text: &str) -> u64 {
    text.bytes().fold(5381, |hash: u64, byte| hash.wrapping_mul(33).wrapping_add(u64::from(byte)))
}

/// What fxhash makes of a text of whole words.
fn fx(text: &str) -> u64 {
    let words = text.as_bytes().chunks(8).map(|word| u64::from_le_bytes(word.try_into().expect("whole words")));
    words.fold(0, |hash: u64, word| (hash.rotate_left(5) ^ word).wrapping_mul(0x51_7c_c1_b7_27_22_0a_95))
}

/// Texts that one of the usual hashes takes for the same.
fn colliding() -> Vec<Vec<String>> {
    // In djb2 "ab" and "bA" are the same: 33 x 'a' + 'b' = 33 x 'b' + 'A'.
    let of_two = |n: u32| (0..8).map(|bit| if n >> bit & 1 == 0 { "ab" } else { "bA" }).collect::<String>();
    let by_djb2: Vec<String> = (0..256).map(of_two).collect();
    assert!(by_djb2.iter().all(|text| djb2(text) == djb2(&by_djb2[0])));

    // CRC-32C is linear: of enough texts some must agree.
    let mut by_crc: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    for n in 0..200_000_u32 {
        let text = format!("key {}", n.wrapping_mul(2_654_435_761));
        by_crc.entry(crc32c::crc32c(text.as_bytes())).or_default().push(text);
    }
    let pairs = by_crc.into_values().filter(|texts| texts.len() > 1);
    let mut all: Vec<Vec<String>> = pairs.collect();
    assert!(!all.is_empty());

    // fxhash turns and multiplies: what one word changes in the sum, the next can take back.
    let (first, second) = ("00000000", "aaaaaaaa");
    let word = |text: &str| u64::from_le_bytes(text.as_bytes().try_into().expect("eight bytes"));
    let after = |text: &str| fx(text).rotate_left(5);
    let mended = |other: &str| String::from_utf8((word(second) ^ after(first) ^ after(other)).to_le_bytes().to_vec()).ok();
    let found = (1..100_000).map(|n| format!("{n:08}")).find_map(|other| Some(format!("{other}{}", mended(&other)?)));
    let by_fx = vec![format!("{first}{second}"), found.expect("one of so many is text")];
    assert_eq!(fx(&by_fx[0]), fx(&by_fx[1]));
    all.push(by_fx);
    all.push(by_djb2);
    // And what differs only where somebody may not look.
    all.push(vec![format!("{}a", "x".repeat(255)), format!("{}b", "x".repeat(255)), "x".repeat(255)]);
    all.push(["a", "A", "a ", " a", "a\0", "\u{e1}", "a\u{301}"].map(str::to_owned).to_vec());
    all
}

#[test]
fn s14_keys_that_agree_in_a_hash_are_different_keys() {
    let mut queue = Queue::default();
    let mut tickets = BTreeMap::new();
    let job = Packed::from(crate::support::job(1, None));
    let texts: std::collections::BTreeSet<String> = colliding().into_iter().flatten().collect();
    let step = |queue: &mut Queue, text: &str| {
        let op = Op::Enqueue { now: Time(1), due: Time(1), key: Some(Key::new(text)), job: job.clone() };
        queue.step(queue.last().next(), Time(1), &Record::Op(op))
    };
    for text in &texts {
        match step(&mut queue, text) {
            Ok(journeyman_core::queue::Change::Enqueued(ticket)) => assert!(tickets.insert(text, ticket).is_none()),
            other => panic!("{text:?}: {other:?}"),
        }
    }
    for (text, ticket) in &tickets {
        assert_eq!(step(&mut queue, text), Err(journeyman_core::queue::Misfit::Duplicate(*ticket)), "{text:?}");
        assert_eq!(queue.holder(&Key::new(text), Time(1)), Some(*ticket));
    }
    queue.check();
    held("S14", texts.len() as u64, "keys that agree in some hash");
}

#[actix::test]
async fn s14_so_they_are_to_callers_before_and_after_a_restart() {
    let log = Log::default();
    let mut t = tasks(&log).test().await.unwrap();
    let texts: Vec<String> = colliding().into_iter().rev().take(3).flatten().collect();
    let mut ids = Vec::new();
    for text in &texts {
        let receipt = t.jobs().enqueue(task(text, &[Step::Ok])).key(text.clone()).delay(DAY).await.unwrap();
        assert!(receipt.is_new(), "{text:?}");
        ids.push(receipt.id());
    }
    t.crash_and_reopen().await.unwrap();
    for (text, id) in texts.iter().zip(&ids) {
        let again = t.jobs().enqueue(task(text, &[Step::Ok])).key(text.clone()).await.unwrap();
        assert_eq!((again.id(), again.is_new()), (*id, false), "{text:?}");
    }
}

#[actix::test]
async fn s18_a_job_that_kills_its_process_ends_when_its_attempts_are_spent() {
    let log = Log::default();
    let mut t = tasks(&log).test().await.unwrap();
    let poison = t.jobs().enqueue(task("poison", &[Step::Hang])).policy(Policy::default().attempts(3).timeout(DAY)).await.unwrap();
    t.jobs().enqueue(task("behind it", &[Step::Ok])).delay(MINUTE).await.unwrap();
    let mut deaths = 0;
    while t.jobs().get(poison.id()).await.unwrap().is_some() {
        t.settle().await;
        assert_eq!(log.runs_of("poison"), deaths + 1, "the attempt is on disk before it begins");
        // It takes the process with it.
        t.crash_and_reopen().await.unwrap();
        deaths += 1;
        assert!(deaths <= 3);
    }
    assert_eq!((deaths, t.jobs().stats().spent), (3, 1));
    t.run_until_idle(HOUR).await.unwrap();
    assert_eq!(log.runs_of("behind it"), 1);
    assert_eq!(log.runs_of("poison"), 3, "and it never runs again");
}
