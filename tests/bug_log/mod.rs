//! The bug log: what other queues, logs and stores were reported to have done, each tried on this one. A test bears the number of its
//! row. What another test shows in full is named here; the tests of these files are short ones that fail for the same reason.
//!
//! | row | the report | shown here, and in full |
//! |---|---|---|
//! | 1 | spacejam/sled#1533: a snapshot's file empty after a hard stop | `d1_`; `snapshots/damage.rs` |
//! | 2 | spacejam/sled#1077: the tail synced, the length not | `d2_`; the power cuts on real file systems |
//! | 3 | spacejam/sled#1189: a kill, and no root at the next open | `d3_`; the kills of the real program |
//! | 4 | spacejam/sled#1387: an open that panics over damage | `d4_`; the fuzzing of whole directories |
//! | 5 | spacejam/sled#1333, zshipko/rust-kv#25: what was deleted takes room for ever | `d5_`; the rig `soak` |
//! | 6 | cberner/redb#620: a full disk, and an open that panics later | `d6_`; the small file systems of the real program |
//! | 7 | cberner/redb#1334: a damaged byte that a read does not see | `d7_`; `torn_and_flipped.rs` |
//! | 8 | cberner/redb#888: the repair itself crashes | `d8_`; the fuzzing of whole directories |
//! | 10 | tikv/raft-engine#319: a tail whose body was never synced is believed | `d10_` |
//! | 11 | tikv/raft-engine#219: a bad header before good records counts as a harmless tail | `d11_` |
//! | 12 | tikv/tikv#14304: damage in an older file | `d12_` |
//! | 13 | khonsulabs/okaywal#1: the last number is forgotten with the last record | `d13_` |
//! | 14 | tokahuke/yaque#23: a lock that outlives its owner | `d14_`; `file_disk.rs`, with a killed process |
//! | 16 | beanstalkd/beanstalkd#43, #573: one old job keeps every later file | `d16_`; `snapshots/bounds.rs` |
//! | 17 | beanstalkd/beanstalkd#364: a file of zeros after a power cut | `d17_` |
//! | 18 | etcd-io/etcd#6515, #11488: zeros within the last batch | `d18_` |
//! | 19 | etcd-io/etcd#5230: torn at the boundary of a page | `d19_`; `torn_and_flipped.rs`, at every byte |
//! | 21 | etcd-io/etcd#6368, #22340: a rename that nobody makes durable | `d21_` |
//! | 22 | etcd-io/etcd#2819: a full disk, and a repair that needs room | `d22_` |
//! | 23 | etcd-io/etcd#14098: a length that nobody wrote | `d23_` |
//! | 24 | etcd-io/etcd#3498: an empty snapshot | `d24_` |
//! | 25 | nats-io/nats-server#7549: one bit, and all behind it is dropped in silence | `d25_`; `torn_and_flipped.rs`, each bit |
//! | 26 | nats-io/nats-server#7564: acknowledged long before the sync | `d26_`; `walk.rs` |
//! | 30 | nats-io/nats-server#7704: the only file cut short, and the next write fails | `d30_` |
//! | 31 | prometheus/prometheus#18552: damage that only the compaction meets, for ever | `d31_`; `compacting.rs`, with health and pauses |
//! | 33 | prometheus/prometheus#13152: a repair that deletes all that is newer | `d33_` |
//! | 34 | prometheus-junkyard/tsdb#524: a reader that never ends | `d34_` |
//! | 35 | grafana/loki#12583: damage, and a start that is tried for ever | `d35_` |
//! | 37 | grafana/loki#3974: applied twice, from the snapshot and from the log | `d37_`; `snapshots/crashes.rs` |
//! | 38 | VictoriaMetrics/VictoriaMetrics#11192: some bytes of the tail missing, and all is thrown away | `d38_` |
//! | 39 | influxdata/influxdb#26556, #27654: an empty file | `d39_` |
//! | 40 | influxdata/influxdb_iox#6222, oxia-db/oxia#1257: lengths near the largest | `d40_` |
//! | 41 | etcd-io/bbolt#325, boltdb/bolt#348: a power cut, and a store that cannot be opened | the power cuts on real file systems; `d2_`, `d24_` |
//! | 42 | dgraph-io/badger#1353, #744, #434: a kill needs a flag, or rot is cut | `d42_` |
//! | 43 | facebook/rocksdb#12918, cockroachdb/pebble#567, #580: old frames replayed, gaps unseen | `d43_` |
//! | 44 | facebook/rocksdb#3603: one buffer written twice | `d44_` |
//! | 45 | tursodatabase/turso#2091, acid-state/acid-state#175: after a failed sync memory says one thing and the disk another | `d45_` |
//! | 47 | fjall-rs/fjall#68: a decoder that panics | `d47_`; the fuzzing of the decoders |
//! | 49 | valkey-io/valkey#1148, redis/redis#4066: zeros behind the end; a write beyond 2 GiB | `d49_`; short writes under the real program |
//! | 51 | VertebrateResequencing/wr#595: any error of an open taken for damage | `d51_` |
//! | 53 | rabbitmq/ra#190, rabbitmq-server#4512: restarts without end | `d53_`; `reopening.rs` |
//! | 54 | actix/actix#301, #158, #111, actix/actix-net#80: a panic, and the rest runs on unaware | `d54_`; `fail_stop.rs`, `reopening.rs` |
//! | 55 | actix/actix#60, near/nearcore#3380: a mailbox without a bound | `d55_`; `security/`, with a million |
//! | 56 | sidekiq/sidekiq#6829, contribsys/faktory#453: running jobs vanish with a kill | `d56_` |
//! | 58 | Log2n-io/Typhon#938: a file that cannot be opened is skipped, and then deleted | `d58_` |
//! | 59 | jamesmunns/postcard#135, facet-rs/facet#1285: a length that the bytes do not pay for | `d59_` |
//!
//! All rows of the log are about things that exist here. Of three a part is not in these tests: the exit status of 35 is that of the
//! program that reads directories offline, the 2 GiB of 49 need a disk of that size (no batch is larger than `batch_bytes`, and short
//! writes are tried under the real program), and 41 has no smaller form than 2 and 24.

mod files;
mod runners;
mod snapshots;
mod tails;

use journeyman_core::disk::{Disk, MemDisk};
use journeyman_core::journal::JournalLimits;
use journeyman_core::store::{OpenError, Store};
use journeyman_core::{Queue, record};

use crate::kit::{Life, Rig};
use crate::support::{Image, disk_of, image, segment};

/// Several segments, some dozen batches in each.
const LIMITS: JournalLimits = JournalLimits { segment_bytes: 8 << 10, batch_bytes: 1 << 20 };

/// Bytes of the header of a segment, and of a frame.
const SEGMENT_HEADER: usize = 96;
const FRAME_HEADER: usize = 64;

/// A partition without snapshots that was killed, and what it held.
fn killed() -> (Image, Queue) {
    let disk = MemDisk::default();
    let mut life = Life::with(&Rig::plain(disk.clone()), LIMITS);
    life.busy(40);
    let files = short(image(&disk));
    assert!(files.len() >= 3, "{} segments", files.len());
    (files, life.queue)
}

/// Of the megabyte of zeros behind the last frames a page says the same.
fn short(mut files: Image) -> Image {
    for bytes in files.values_mut() {
        let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        bytes.truncate(used + 4096);
    }
    files
}

fn open(files: &Image) -> Result<Store, OpenError> {
    crate::support::open(&disk_of(files))
}

/// What the error says, when it does not open. The files are as they were.
fn refused(files: &Image) -> String {
    let disk = disk_of(files);
    let answer = crate::support::open(&disk).map(|store| store.queue.last());
    assert!(image(&disk) == *files, "an open touches nothing");
    match answer {
        Err(error) => error.to_string(),
        Ok(last) => panic!("it opened, up to record {last}"),
    }
}

/// The state after each batch, the empty one first.
fn states(files: &Image) -> Vec<Queue> {
    let mut states = vec![Queue::default()];
    for batch in crate::support::read(disk_of(files)).expect("it is sound").0 {
        let mut queue = states.last().cloned().unwrap_or_default();
        let mut rest = &batch.body[..];
        while !rest.is_empty() {
            let record = record::decode(&mut rest).expect("it is sound");
            queue.step(queue.last().next(), batch.time, &record).expect("it fits");
        }
        states.push(queue);
    }
    states
}

/// Where the frames of a segment are, each with its header.
fn frames(bytes: &[u8]) -> Vec<std::ops::Range<usize>> {
    let mut frames = Vec::new();
    let mut at = SEGMENT_HEADER;
    while bytes.get(at..at + 4) == Some(b"JYFR") {
        let body = u32::from_le_bytes(bytes[at + 8..at + 12].try_into().expect("four bytes"));
        let end = at + FRAME_HEADER + body as usize;
        frames.push(at..end);
        at = end;
    }
    frames
}

/// The last segment: its name and its frames.
fn last_of(files: &Image) -> (String, Vec<std::ops::Range<usize>>) {
    let (name, bytes) = files.iter().next_back().expect("there is one");
    (name.clone(), frames(bytes))
}

fn with(files: &Image, name: &str, change: impl FnOnce(&mut Vec<u8>)) -> Image {
    let mut files = files.clone();
    change(files.get_mut(name).expect("there is such a file"));
    files
}

/// The partition goes on: it is written to, and holds all that it held.
fn goes_on(disk: impl Disk + 'static, before: &Queue) {
    let rig = Rig::plain(disk);
    let mut life = Life::begin(&rig);
    let issued = before.ends().total() + (before.pending() + before.running()) as u64;
    let ticket = life.enqueue(Some("a new key"), 9);
    assert_eq!(ticket.0, issued + 1, "numbers go on");
    let held = before.tickets().all(|(ticket, live)| life.queue.get(ticket) == Some(live));
    assert!(held, "what lived lives");
    assert_eq!(rig.queue(), life.queue);
}
