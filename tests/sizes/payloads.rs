//! The size of a job at the usual limit, at a small one and at the largest, from nothing to twice as much as it may be.

use std::collections::BTreeMap;

use crate::support::figures::held;
use journeyman::testing::TestRunner;
use journeyman::{Cx, EnqueueError, Job, JobResult, Limits, PayloadCodec, Runner};
use journeyman_core::disk::Disk;
use serde::{Deserialize, Serialize};

/// Bytes as they are.
#[derive(Serialize, Deserialize)]
struct Blob(Vec<u8>);

impl Job for Blob {
    type Context = ();
    type Output = ();
    const KIND: &'static str = "blob";
    const CODEC: PayloadCodec<Self> = PayloadCodec::raw(|blob| Ok(blob.0.clone()), |bytes| Ok(Self(bytes.to_vec())));

    async fn run(self, _: Cx<()>) -> JobResult<()> {
        Ok(())
    }
}

#[actix::test]
async fn a_job_at_the_limit_is_stored_and_one_byte_more_is_refused_before_the_journal() {
    let mut tried = 0;
    for record_bytes in [1_000, 1 << 20, 16 << 20] {
        let mut limits = Limits::default();
        limits.record_bytes = record_bytes;
        limits.batch_bytes = limits.batch_bytes.max(record_bytes + 1_000);
        let mut t = Runner::in_memory().register::<Blob>().limits(limits).test().await.unwrap();
        let jobs = t.jobs();
        let beside = match jobs.enqueue(Blob(vec![1; 17 << 20])).await {
            Err(EnqueueError::PayloadTooLarge { bytes, limit }) if limit == record_bytes => bytes - (17 << 20),
            other => panic!("{other:?}"),
        };
        let most = usize::try_from(record_bytes - beside).unwrap();
        let before = files(&t);
        for length in [most + 1, most + 2, 2 * most] {
            let refused = jobs.enqueue(Blob(vec![1; length])).await;
            let bytes = length as u64 + beside;
            assert_eq!(refused, Err(EnqueueError::PayloadTooLarge { bytes, limit: record_bytes }));
        }
        let mut tagged = jobs.enqueue(Blob(vec![1]));
        for tag in 0..100_000 {
            tagged = tagged.meta(format!("tag {tag}"), "");
        }
        assert!(matches!(tagged.await, Err(EnqueueError::TooLong { what: "its meta", limit: 4096, .. })));
        assert_eq!(jobs.stats().records, 0);
        assert!(files(&t) == before, "what is refused is nowhere");

        let delay = std::time::Duration::from_secs(60);
        for length in [0, 1, most - 1, most] {
            jobs.enqueue(Blob(vec![7; length])).delay(delay).await.unwrap_or_else(|error| panic!("{length} bytes: {error}"));
        }
        t.crash_and_reopen().await.unwrap();
        let stored: Vec<usize> = t.enqueued::<Blob>().await.iter().map(|blob| blob.0.len()).collect();
        assert_eq!(stored, [0, 1, most - 1, most]);
        t.advance(delay).await;
        assert_eq!(t.jobs().stats().done, 4);
        tried += 8;
    }
    held("F23", tried, "sizes of a job, from nothing to 2 times the limit, and 100,000 tags");
}

fn files(t: &TestRunner) -> BTreeMap<String, Vec<u8>> {
    let names = t.disk().list().unwrap();
    names.into_iter().map(|name| (name.clone(), t.disk().read(&name).unwrap())).collect()
}
