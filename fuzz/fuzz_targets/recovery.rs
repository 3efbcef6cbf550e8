//! A directory out of any bytes: an open gives a state or a typed error and changes no file; what it gave goes on, over an append,
//! a compaction and a crash, to the state that it must be.
#![no_main]

use std::convert::Infallible;
use std::sync::Arc;

use journeyman_core::compaction::{Compaction, Progress};
use journeyman_core::disk::{Disk, MemDisk};
use journeyman_core::journal::{Batch, JournalLimits, Recovery, Salt};
use journeyman_core::snapshot::PlainStore;
use journeyman_core::store::Store;
use journeyman_core::{Epoch, Record, Time, record};
use journeyman_fuzz::{disk_of, image, open, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((mode, files)) = parse(input) else { return };
    let disk = disk_of(&files);
    // Whatever the records are.
    let _ = Recovery::read(Arc::new(disk.clone()), |_| Ok::<_, Infallible>(()));
    let found = open(&disk);
    assert!(image(&disk) == files, "an open changes nothing");
    if let Ok(store) = found {
        store.queue.check();
        if mode.goes_on() {
            go_on(&disk, store);
        }
    }
});

fn go_on(disk: &MemDisk, store: Store) {
    let mut queue = store.queue;
    let seq = queue.last().next();
    // An input may be at the end of all numbers.
    let record = Record::Lead { epoch: Epoch(u64::MAX - 1) };
    if queue.step(seq, Time(1), &record).is_err() {
        return;
    }
    let mut body = Vec::new();
    record::encode(&record, &mut body);
    let mut journal = store.recovery.into_journal(JournalLimits { segment_bytes: 4096, batch_bytes: 1 << 20 }, Salt(9));
    if journal.append(Batch { epoch: queue.epoch(), first: seq, count: 1, time: Time(1), body }).is_err() {
        return;
    }
    let holds = |what: &str| {
        let store = open(disk).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(store.queue == queue, "{what}");
    };
    holds("after an append");
    let is_last = journal.writes_to() == Some(u64::MAX - 1);
    match journal.rotate() {
        // No segment can follow it.
        Err(_) if is_last => return holds("in the last segment that there can be"),
        rotated => drop(rotated.expect("memory takes it")),
    }
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let snapshots = Box::new(PlainStore::new(shared.clone()));
    let before = journal.writes_to().expect("it writes");
    let mut compaction = Compaction::begin(shared, snapshots, before, Salt(7)).expect("memory lists");
    while let Ok(Progress::Working { .. }) = compaction.step() {}
    holds("after a compaction");
    disk.crash();
    holds("after a crash");
}
