//! Keys, targets, meta, kinds, and batches: what is just within the limit, and what is one beyond it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use journeyman::testing::TestRunner;
use journeyman::{Configured, Cx, EnqueueError, Job, JobResult, Limits, PayloadCodec, Runner, StartError, Target};
use serde::{Deserialize, Serialize};

use crate::support::figures::held;

const MIB: usize = 1 << 20;
const HOUR: Duration = Duration::from_secs(3600);
/// What a record takes beside the payload and the names, by its own reckoning.
const OVERHEAD: usize = 256;

/// The payload and the meta of what ran.
type Seen = (Vec<u8>, Vec<(String, String)>);
type Ran = Arc<Mutex<Vec<Seen>>>;

thread_local! {
    static TARGET: std::cell::RefCell<Option<String>> = const { std::cell::RefCell::new(None) };
}

/// Bytes, for the target that the thread names.
#[derive(Serialize, Deserialize)]
struct Blob(Vec<u8>);

impl Job for Blob {
    type Context = Ran;
    type Output = ();
    const KIND: &'static str = "blob";
    const CODEC: PayloadCodec<Self> = PayloadCodec::raw(|blob| Ok(blob.0.clone()), |bytes| Ok(Self(bytes.to_vec())));

    fn target(&self) -> Option<Target> {
        TARGET.with_borrow(|target| target.as_deref().map(Target::new))
    }

    async fn run(self, cx: Cx<Ran>) -> JobResult<()> {
        cx.context().lock().unwrap().push((self.0, cx.meta().to_vec()));
        Ok(())
    }
}

/// The largest payload that a record of so many bytes has room for.
const fn largest(record: usize) -> usize {
    record - OVERHEAD - Blob::KIND.len()
}

fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|n| (n * 7 + n / 251) as u8).collect()
}

fn blobs(ran: &Ran, limits: Limits) -> Configured<Ran> {
    let ran = ran.clone();
    let context = move || std::future::ready(Ok::<_, std::convert::Infallible>(ran.clone()));
    Runner::in_memory().limits(limits).context(context).register::<Blob>()
}

/// Nothing was written, and nothing is there after a crash either.
async fn untouched(t: &mut TestRunner<Ran>) {
    assert_eq!((t.jobs().stats().records, t.jobs().stats().pending), (0, 0));
    t.crash_and_reopen().await.unwrap();
    assert_eq!(t.jobs().stats().pending, 0);
}

#[actix::test]
async fn a_record_at_its_limit_is_stored_and_comes_back_and_one_of_a_byte_more_is_refused() {
    let mut tries = 0;
    // The limit unless set, one that is small, and the largest of any use.
    for record in [MIB, 4_096, 16 * MIB] {
        let mut limits = Limits::default();
        limits.record_bytes = record as u64;
        limits.batch_bytes = limits.batch_bytes.max(record as u64 + 4_096);
        let ran = Ran::default();
        let mut t = blobs(&ran, limits).test().await.unwrap();
        for more in [1, 2, 1_000] {
            let refused = t.jobs().enqueue(Blob(bytes(largest(record) + more))).await;
            let expected = EnqueueError::PayloadTooLarge { bytes: (record + more) as u64, limit: record as u64 };
            assert_eq!(refused, Err(expected));
            tries += 1;
        }
        untouched(&mut t).await;
        for less in [0, 1] {
            let payload = bytes(largest(record) - less);
            t.jobs().enqueue(Blob(payload.clone())).delay(HOUR).await.unwrap();
            t.crash_and_reopen().await.unwrap();
            t.advance(HOUR).await;
            assert!(ran.lock().unwrap().pop().is_some_and(|(seen, _)| seen == payload), "as it was, {less} below {record}");
            tries += 1;
        }
    }
    held("F23", tries, "records at their limit");
}

#[actix::test]
async fn a_payload_of_no_bytes_with_empty_names_is_a_job_like_any_other() {
    let ran = Ran::default();
    let mut t = blobs(&ran, Limits::default()).test().await.unwrap();
    TARGET.set(Some(String::new()));
    let receipt = t.jobs().enqueue(Blob(Vec::new())).key("").meta("", "").delay(HOUR).await.unwrap();
    t.crash_and_reopen().await.unwrap();
    assert!(!t.jobs().enqueue(Blob(Vec::new())).key("").await.unwrap().is_new(), "an empty key is a key");
    let info = t.jobs().get(receipt.id()).await.unwrap().unwrap();
    assert_eq!(info.target.unwrap().as_str(), "", "and an empty target a target");
    t.advance(HOUR).await;
    assert_eq!(*ran.lock().unwrap(), [(Vec::new(), vec![(String::new(), String::new())])]);
    assert_eq!(t.jobs().targets().await.unwrap().len(), 1);
    TARGET.set(None);
}

#[actix::test]
async fn keys_targets_and_meta_at_their_limits() {
    let (ran, limits) = (Ran::default(), Limits::default());
    let mut t = blobs(&ran, limits.clone()).test().await.unwrap();
    let too_long = |what, bytes, limit| Err(EnqueueError::TooLong { what, bytes, limit });
    // By bytes, not by characters.
    for character in ["x", "é", "🦀"] {
        let name = |bytes: usize| character.repeat(bytes / character.len());
        let longer = limits.key_bytes + character.len();
        assert_eq!(t.jobs().enqueue(Blob(Vec::new())).key(name(longer)).await, too_long("its key", longer, 256));
        TARGET.set(Some(name(longer)));
        assert_eq!(t.jobs().enqueue(Blob(Vec::new())).await, too_long("its target", longer, 256));
        TARGET.set(None);
        // Each pair takes eight bytes more.
        let meta = t.jobs().enqueue(Blob(Vec::new())).meta(name(8), name(4_096 - 8 - 8)).meta("", "").await;
        assert_eq!(meta, too_long("its meta", 4_096 + 8, 4_096));
    }
    let jobs = t.jobs();
    let pairs = (0..100_000).fold(jobs.enqueue(Blob(Vec::new())), |call, _| call.meta("", ""));
    assert_eq!(pairs.await, too_long("its meta", 800_000, 4_096), "pairs of nothing take room too");
    untouched(&mut t).await;
    for character in ["x", "é", "🦀"] {
        let name = |bytes: usize| character.repeat(bytes / character.len());
        TARGET.set(Some(name(limits.target_bytes)));
        let (first, second) = (name(8), name(limits.meta_bytes - 16));
        t.jobs().enqueue(Blob(Vec::new())).key(name(limits.key_bytes)).meta(first.clone(), second.clone()).delay(HOUR).await.unwrap();
        t.crash_and_reopen().await.unwrap();
        assert!(!t.jobs().enqueue(Blob(Vec::new())).key(name(limits.key_bytes)).await.unwrap().is_new());
        t.advance(HOUR).await;
        assert!(ran.lock().unwrap().pop().is_some_and(|(_, meta)| meta == [(first, second)]));
        assert!(t.jobs().targets().await.unwrap().iter().any(|info| info.target.as_str() == name(256)));
    }
    TARGET.set(None);
}

macro_rules! kind {
    ($name:ident, $kind:expr) => {
        #[derive(Serialize, Deserialize)]
        struct $name;

        impl Job for $name {
            type Context = ();
            type Output = ();
            const KIND: &'static str = $kind;

            async fn run(self, _: Cx<()>) -> JobResult<()> {
                Ok(())
            }
        }
    };
}

/// 128 bytes.
const LONGEST_KIND: &str = concat!(
    "kind-kind-kind-kind-kind-kind-ki",
    "kind-kind-kind-kind-kind-kind-ki",
    "kind-kind-kind-kind-kind-kind-ki",
    "kind-kind-kind-kind-kind-kind-ki"
);

kind!(Longest, LONGEST_KIND);
kind!(
    Longer,
    concat!(
        "kind-kind-kind-kind-kind-kind-ki",
        "kind-kind-kind-kind-kind-kind-ki",
        "kind-kind-kind-kind-kind-kind-ki",
        "kind-kind-kind-kind-kind-kind-kin"
    )
);
kind!(Nameless, "");

#[actix::test]
async fn the_names_of_kinds_at_their_limits() {
    let mut t = Runner::in_memory().register::<Longest>().test().await.unwrap();
    assert_eq!(Longest::KIND.len(), 128);
    t.jobs().enqueue(Longest).delay(HOUR).await.unwrap();
    t.crash_and_reopen().await.unwrap();
    t.advance(HOUR).await;
    assert_eq!(t.jobs().stats().done, 1);
    let longer = Runner::in_memory().register::<Longer>().test().await.unwrap_err();
    assert!(matches!(longer, StartError::KindName { bytes: 129, limit: 128 }), "{longer}");
    let nameless = Runner::in_memory().register::<Nameless>().test().await.unwrap_err();
    assert!(matches!(nameless, StartError::KindName { bytes: 0, limit: 128 }), "{nameless}");
}

#[actix::test]
async fn a_batch_at_its_limit_is_stored_whole_and_one_of_a_byte_more_not_at_all() {
    let ran = Ran::default();
    let mut t = blobs(&ran, Limits::default()).test().await.unwrap();
    let limit = 4 * MIB - OVERHEAD;
    // Three records at their limit, and a fourth that fills the batch to the byte.
    let payloads = |more: usize| {
        let last = limit - 3 * MIB + more;
        [largest(MIB), largest(MIB), largest(MIB), largest(last)].map(|count| Blob(bytes(count)))
    };
    let jobs = t.jobs();
    let refused = jobs.enqueue_all(payloads(1).map(|blob| jobs.enqueue(blob))).await;
    assert_eq!(refused, Err(EnqueueError::BatchTooLarge { bytes: limit as u64 + 1, limit: limit as u64 }));
    untouched(&mut t).await;
    let jobs = t.jobs();
    let receipts = jobs.enqueue_all(payloads(0).map(|blob| jobs.enqueue(blob).delay(HOUR))).await.unwrap();
    assert_eq!((receipts.len(), jobs.stats().syncs), (4, 1));
    t.crash_and_reopen().await.unwrap();
    t.advance(HOUR).await;
    assert_eq!(t.jobs().stats().done, 4);
    let ran = ran.lock().unwrap();
    assert!(ran.iter().zip(payloads(0)).all(|((seen, _), sent)| *seen == sent.0), "each as it was");
}
