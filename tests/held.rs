//! Jobs that this build cannot run: of a kind that nobody registered, or with a payload that no longer decodes. They are
//! held and visible, can be cancelled, never end by themselves, never block others, and run once a build understands them.

use journeyman::{Cancelled, Cx, EnqueueError, Job, JobResult, JobState, PayloadCodec, Runner};
use journeyman_core::disk::MemDisk;
use serde::{Deserialize, Serialize};

use crate::jobs::{DAY, HOUR, MINUTE, SECOND};

macro_rules! job {
    ($name:ident, $kind:literal, $version:literal, $codec:expr, {$($field:ident: $type:ty),*}) => {
        #[derive(Serialize, Deserialize)]
        struct $name { $($field: $type),* }

        impl Job for $name {
            type Context = ();
            type Output = ();
            const KIND: &'static str = $kind;
            const VERSION: u16 = $version;
            const CODEC: PayloadCodec<Self> = $codec;

            async fn run(self, _: Cx<()>) -> JobResult<()> {
                Ok(())
            }
        }
    };
}

job!(Old, "letter", 1, PayloadCodec::json(), { to: String });
job!(Changed, "letter", 1, PayloadCodec::json(), { to: u32 });
job!(Grown, "letter", 1, PayloadCodec::json(), { to: String, cc: Option<String> });
job!(Newer, "letter", 2, PayloadCodec::json(), { to: String });
job!(Packed, "letter", 1, PayloadCodec::postcard(), { to: String });
job!(Other, "other", 1, PayloadCodec::json(), { n: u32 });

/// Stores one letter that is not run yet, and gives the disk.
async fn stored(letter: impl Fn() -> Old) -> (MemDisk, journeyman::JobId) {
    let t = Runner::in_memory().register::<Old>().test().await.unwrap();
    let id = t.jobs().enqueue(letter()).delay(SECOND).await.unwrap().id();
    t.shutdown(SECOND).await.unwrap();
    (t.disk().clone(), id)
}

fn letter() -> Old {
    Old { to: "canary".to_owned() }
}

#[actix::test]
async fn a_kind_that_nobody_registered_is_held_until_somebody_does() {
    let (disk, id) = stored(letter).await;
    let t = Runner::in_memory().register::<Other>().test_with(disk.clone(), 0).await.unwrap();
    t.jobs().enqueue(Other { n: 1 }).await.unwrap();
    t.advance(DAY).await;
    let info = t.jobs().get(id).await.unwrap().unwrap();
    assert_eq!(info.state, JobState::Held { why: "its kind is not registered here" });
    let stats = t.jobs().stats();
    assert_eq!((stats.held, stats.pending, stats.done), (1, 1, 1), "others are not disturbed");
    t.shutdown(SECOND).await.unwrap();
    let t = Runner::in_memory().register::<Old>().test_with(disk, 0).await.unwrap();
    t.advance(MINUTE).await;
    assert_eq!(t.jobs().stats().done, 2);
}

#[actix::test]
async fn a_payload_that_no_longer_decodes_is_held_without_a_trace_of_it() {
    let (disk, id) = stored(letter).await;
    let mut t = Runner::in_memory().register::<Changed>().test_with(disk, 0).await.unwrap();
    t.jobs().enqueue(Changed { to: 1 }).await.unwrap();
    t.advance(DAY).await;
    let info = t.jobs().get(id).await.unwrap().unwrap();
    assert_eq!(info.state, JobState::Held { why: "its payload cannot be decoded by this build" });
    assert_eq!(info.failures, 0, "nothing is spent");
    assert!(!format!("{info:?}").contains("canary"));
    let records = t.jobs().stats().records;
    t.advance(DAY).await;
    assert_eq!(t.jobs().stats().records, records, "and nothing is tried over and over");
    assert_eq!(t.free_units().await, 64);
    t.crash_and_reopen().await.unwrap();
    assert_eq!((t.jobs().stats().held, t.jobs().stats().done), (1, 1));
    let disk = t.disk().clone();
    drop(t);
    let t = Runner::in_memory().register::<Grown>().test_with(disk, 0).await.unwrap();
    t.advance(3 * DAY).await;
    assert_eq!(t.jobs().stats().done, 2, "a build that understands it runs it");
}

#[actix::test]
async fn a_held_job_can_be_cancelled() {
    let (disk, id) = stored(letter).await;
    let t = Runner::in_memory().register::<Changed>().test_with(disk, 0).await.unwrap();
    t.advance(HOUR).await;
    assert_eq!(t.jobs().stats().held, 1);
    assert_eq!(t.jobs().cancel(id).await.unwrap(), Cancelled::Cancelled);
    t.settle().await;
    assert_eq!((t.jobs().stats().held, t.jobs().stats().pending), (0, 0));
}

#[actix::test]
async fn a_payload_of_a_newer_version_is_held_and_one_of_an_older_runs() {
    let t = Runner::in_memory().register::<Newer>().test().await.unwrap();
    t.jobs().enqueue(Newer { to: "x".to_owned() }).delay(SECOND).await.unwrap();
    t.shutdown(SECOND).await.unwrap();
    let disk = t.disk().clone();
    let t = Runner::in_memory().register::<Old>().test_with(disk.clone(), 0).await.unwrap();
    t.jobs().enqueue(letter()).delay(HOUR).await.unwrap();
    t.advance(MINUTE).await;
    assert_eq!((t.jobs().stats().held, t.jobs().stats().done), (1, 0));
    t.shutdown(SECOND).await.unwrap();
    let t = Runner::in_memory().register::<Newer>().test_with(disk, 0).await.unwrap();
    t.advance(DAY).await;
    assert_eq!(t.jobs().stats().done, 2);
}

#[actix::test]
async fn a_codec_may_change_while_jobs_wait() {
    let (disk, _) = stored(letter).await;
    let t = Runner::in_memory().register::<Packed>().test_with(disk, 0).await.unwrap();
    t.jobs().enqueue(Packed { to: "x".to_owned() }).await.unwrap();
    t.advance(MINUTE).await;
    assert_eq!(t.jobs().stats().done, 2, "JSON that waited, and postcard from now on");
}

#[derive(Serialize, Deserialize)]
struct Blob(Vec<u8>);

impl Job for Blob {
    type Context = ();
    type Output = ();
    const KIND: &'static str = "blob";
    const CODEC: PayloadCodec<Self> = PayloadCodec::raw(|blob| Ok(blob.0.clone()), |bytes| Ok(Self(bytes.to_vec())));

    async fn run(self, _: Cx<()>) -> JobResult<()> {
        if self.0 == [0, 255, 1] { Ok(()) } else { Err("other bytes".into()) }
    }
}

#[actix::test]
async fn raw_bytes_come_back_as_they_were() {
    let mut t = Runner::in_memory().register::<Blob>().test().await.unwrap();
    t.jobs().enqueue(Blob(vec![0, 255, 1])).delay(SECOND).await.unwrap();
    t.crash_and_reopen().await.unwrap();
    t.advance(SECOND).await;
    assert_eq!(t.jobs().stats().done, 1);
}

/// Writes a field that it cannot read again.
#[derive(Serialize, Deserialize)]
struct OneWay {
    #[serde(serialize_with = "as_text")]
    n: u32,
}

fn as_text<S: serde::Serializer>(n: &u32, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&format!("canary {n}"))
}

impl Job for OneWay {
    type Context = ();
    type Output = ();
    const KIND: &'static str = "one way";

    async fn run(self, _: Cx<()>) -> JobResult<()> {
        Ok(())
    }
}

#[actix::test]
async fn a_payload_that_would_not_come_back_is_refused_at_the_door() {
    let t = Runner::in_memory().register::<OneWay>().test().await.unwrap();
    let refused = t.jobs().enqueue(OneWay { n: 1 }).await.unwrap_err();
    assert!(matches!(&refused, EnqueueError::NotEncodable { kind, .. } if kind.as_str() == "one way"));
    assert!(!refused.to_string().contains("canary"), "{refused}");
    assert!(matches!(t.jobs().enqueue(letter()).await, Err(EnqueueError::UnknownKind(_))));
    assert_eq!(t.jobs().stats().records, 0);
}
