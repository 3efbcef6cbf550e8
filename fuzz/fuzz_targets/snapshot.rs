//! A snapshot out of any bytes: a queue that holds together and comes back when it is written again, or a typed error.
#![no_main]

use std::sync::Arc;

use journeyman_core::disk::MemDisk;
use journeyman_core::journal::Salt;
use journeyman_core::snapshot::{Draft, Loaded, Loading, PlainStore, SnapshotStore};
use journeyman_core::{Queue, Seq};
use journeyman_fuzz::{Mode, mend_snapshot};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((mode, bytes)) = input.split_first() else { return };
    let mut bytes = bytes.to_vec();
    if Mode(*mode).mending() > 0 {
        mend_snapshot(&mut bytes, Mode(*mode).mending(), &Default::default());
    }
    let seq = Seq(bytes.get(32..40).map_or(0, |seq| u64::from_le_bytes(seq.try_into().expect("eight"))));
    let disk = MemDisk::default();
    let store = PlainStore::new(Arc::new(disk.clone()));
    disk.put(&store.name(seq), &bytes);
    let Ok(Loaded { queue, boundary, .. }) = Loading::begin(&store, seq).and_then(Loading::finish) else { return };
    queue.check();
    store.remove(seq).expect("it is there");
    let finished = Draft::begin(&store, boundary, Salt(1)).and_then(|draft| draft.finish(&queue)).expect("memory takes it");
    let verified = finished.verify(&store).and_then(|verifying| verifying.finish(&queue)).expect("it is what was written");
    store.publish(verified).expect("memory takes it");
    let again: Queue = Loading::begin(&store, seq).and_then(Loading::finish).expect("it is sound").queue;
    assert!(again == queue);
});
