//! What a snapshot says, with sound checksums around it: the state that was written, or damage that is told. And what it takes is
//! foretold, piece by piece.

use std::sync::Arc;

use journeyman_core::disk::{Disk, MemDisk};
use journeyman_core::journal::{Boundary, Salt};
use journeyman_core::queue::Misfit;
use journeyman_core::snapshot::{Draft, Loading, PlainStore, SnapshotError, SnapshotStore};
use journeyman_core::{Attempt, Cause, Codec, End, Fault, Job, Key, Op, Options, Packed, Queue, Record, Seq, Span, Ticket, Time};

use super::kit::{Life, Rig};
use super::round_trips::{CHUNK, META, sum_up, write};
use crate::support::image;

#[test]
fn entries_that_cannot_be_are_damage_however_sound_their_checksums() {
    let queue = queue();
    let sound = Snapshot::of(&queue);
    assert_eq!(sound.entries.len(), 6);
    assert_eq!(sound.load().expect("nothing was changed"), queue);
    let cases: [(&str, Change); 34] = [
        ("nothing", |s| s.entries.clear()),
        ("no facts", |s| drop(s.entries.remove(0))),
        ("facts twice", |s| s.entries.insert(1, s.entries[0].clone())),
        ("facts behind a ticket", |s| s.entries.swap(0, 1)),
        ("facts of an earlier record", |s| s.entries[0][LAST] -= 1),
        ("facts of a later record", |s| s.entries[0][LAST] += 1),
        ("more issued than lives or has ended", |s| s.entries[0][ISSUED] += 1),
        ("less issued", |s| s.entries[0][ISSUED] -= 1),
        ("more ended", |s| s.entries[0][CANCELLED] += 1),
        ("a ticket is missing", |s| drop(s.entries.remove(2))),
        ("a ticket twice", |s| s.entries.insert(2, s.entries[1].clone())),
        ("tickets fall", |s| s.entries.swap(1, 2)),
        ("ticket 0", |s| s.entries[1][TICKET] = 0),
        ("a ticket that was never issued", |s| s.entries[3][TICKET] = 9),
        ("a key of two tickets", |s| s.entries[2][KEY] = b'a'),
        ("an attempt later than all records", |s| s.entries[2][PHASE] = 10),
        ("a ticket behind the keys", |s| s.entries.swap(3, 4)),
        ("keys fall", |s| s.entries.swap(4, 5)),
        ("an ended key twice", |s| s.entries.push(s.entries[5].clone())),
        ("an ended key of nobody", |s| s.entries[4][ENDED_TICKET] = 0),
        ("an ended key of a ticket that was never issued", |s| s.entries[4][ENDED_TICKET] = 9),
        ("an ended key of a ticket that lives", |s| s.entries[4][ENDED_TICKET] = 1),
        ("an ended key that a ticket holds", |s| s.entries[4][ENDED_KEY] = b'a'),
        ("an unknown tag", |s| s.entries[5][TAG] = 5),
        ("no tag", |s| s.entries[5] = vec![0; 4]),
        ("bytes left over", |s| s.change(1, |fields| fields.push(0))),
        ("bytes missing", |s| s.change(1, |fields| fields.truncate(fields.len() - 1))),
        ("a fault beyond the limit", |s| s.change(2, |fields| drop(fields.splice(FAULT - 4..=FAULT - 4, fault(8193))))),
        ("half an entry at the end", |s| s.entries.push(vec![9, 0, 0, 0, 1])),
        ("half a length at the end", |s| s.entries.push(vec![9, 0])),
        ("more entries in the meta data", |s| s.off = Some(80)),
        ("more chunks in the meta data", |s| s.off = Some(64)),
        ("more bytes in the meta data", |s| s.off = Some(72)),
        ("another digest in the meta data", |s| s.off = Some(88)),
    ];
    for (what, change) in cases {
        let mut snapshot = Snapshot::of(&queue);
        change(&mut snapshot);
        match snapshot.load() {
            Err(error) => assert!(error.is_damage(), "{what}: {error}"),
            Ok(loaded) => panic!("{what}: {loaded:?}"),
        }
    }
    let mut snapshot = Snapshot::of(&queue);
    snapshot.entries[2][PHASE] = 9;
    assert!(snapshot.load().is_ok(), "the attempt of the last record");
    snapshot.change(2, |fields| drop(fields.splice(FAULT - 4..=FAULT - 4, fault(8192))));
    assert!(snapshot.load().is_ok(), "the longest text of a fault");
}

#[test]
fn a_draft_that_says_as_much_but_something_else_is_not_published() {
    let sound = queue();
    let others: [fn(&mut Vec<Op>); 4] = [
        |ops| ops[0] = enqueue(1, "a", 9),
        |ops| ops[1] = enqueue(1, "x", 2),
        |ops| ops[4] = Op::Select { ticket: Ticket(1) },
        |ops| ops[2] = enqueue(1, "x", 3),
    ];
    for (number, change) in others.into_iter().enumerate() {
        let mut ops = ops();
        change(&mut ops);
        let other = after(&ops);
        assert!(other != sound && other.last() == sound.last() && other.ends() == sound.ends());
        let disk = MemDisk::default();
        let store = PlainStore::new(Arc::new(disk));
        let boundary = Boundary { last: sound.last(), ..Boundary::START };
        let draft = |queue: &Queue| Draft::begin(&store, boundary, Salt(1)).and_then(|draft| draft.finish(queue));
        let verifying = draft(&other).and_then(|finished| finished.verify(&store)).expect("memory takes it");
        assert!(verifying.finish(&sound).expect_err("something else").is_damage(), "{number}");
        let mut verifying = draft(&other).and_then(|finished| finished.verify(&store)).expect("memory takes it");
        assert!(verifying.step(&sound).expect_err("something else").is_damage(), "{number}: at once");
    }
}

#[test]
fn a_draft_that_says_less_or_that_somebody_else_has_written_is_not_published() {
    let (sound, disk) = (queue(), MemDisk::default());
    let store = PlainStore::new(Arc::new(disk.clone()));
    let boundary = Boundary { last: sound.last(), ..Boundary::START };
    let finished = |queue: &Queue, salt| Draft::begin(&store, boundary, salt).and_then(|draft| draft.finish(queue));
    let mut ops = ops();
    ops[3] = enqueue_job(None, job(4));
    let less = after(&ops);
    assert_eq!((less.ends(), less.pending(), less.keys()), (sound.ends(), sound.pending(), sound.keys() - 1));
    let verifying = finished(&less, Salt(1)).and_then(|finished| finished.verify(&store)).expect("memory takes it");
    assert!(verifying.finish(&sound).expect_err("a key is missing").is_damage());

    let ours = finished(&sound, Salt(1)).expect("memory takes it");
    finished(&sound, Salt(2)).expect("memory takes it");
    assert!(ours.verify(&store).err().expect("another draft in its place").is_damage());
    assert!(store.list().expect("memory lists").is_empty());
}

#[test]
fn a_snapshot_under_the_name_of_another_is_damage() {
    let (queue, disk) = (queue(), MemDisk::default());
    let store = PlainStore::new(Arc::new(disk.clone()));
    write(&store, &queue);
    let other = queue.last().next();
    disk.rename(&store.name(queue.last()), &store.name(other)).expect("it is there");
    assert!(Loading::begin(&store, other).err().expect("not that of its name").is_damage());
}

#[test]
fn a_snapshot_in_which_a_ticket_is_missing_is_passed_over_by_a_compaction() {
    let disk = MemDisk::default();
    let mut life = Life::begin(&Rig::plain(disk.clone()));
    life.busy(1);
    life.compact();
    let name = PlainStore::new(Arc::new(disk.clone())).name(life.queue.last());
    let mut snapshot = Snapshot::read(life.queue.last(), &image(&disk)[&name]);
    snapshot.entries[0][ISSUED] += 1;
    disk.put(&name, &snapshot.bytes());
    life.busy(1);
    let compacted = life.compact();
    assert_eq!((compacted.passed_over.len(), compacted.base), (1, None));
    assert_eq!(life.rig.queue(), life.queue);
}

#[test]
fn more_ended_keys_than_are_written_in_one_step_come_back() {
    let ops = (0..5000_u64).flat_map(|n| {
        let enqueue = enqueue_job(Some(&n.to_string()), Job { options: window(1 << 41), ..job(1) });
        [enqueue, Op::Cancel { ticket: Ticket(n + 1) }]
    });
    let queue = after(&ops.collect::<Vec<_>>());
    assert_eq!(queue.keys(), 5000);
    let store = PlainStore::new(Arc::new(MemDisk::default()));
    write(&store, &queue);
    assert_eq!(Loading::begin(&store, queue.last()).and_then(Loading::finish).expect("it is sound").queue, queue);
}

/// It decides when a compaction is due.
#[test]
fn what_each_piece_takes_is_foretold() {
    let plain = || vec![enqueue_job(None, Job { payload: vec![7; 10], ..job(1) })];
    let with = |change: fn(&mut Job)| {
        let mut job = Job { payload: vec![7; 10], ..job(1) };
        change(&mut job);
        vec![enqueue_job(None, job)]
    };
    let long = "x".repeat(300);
    let failed = |text: &str| {
        let fault = Fault::new(Cause::Failed, text);
        let mut ops = plain();
        ops.push(Op::Select { ticket: Ticket(1) });
        ops.push(Op::Requeue { ticket: Ticket(1), attempt: Attempt(Seq(2)), due: NOW, fault });
        ops
    };
    let ended = |keys: u64| {
        let mut ops = plain();
        for n in 0..keys {
            ops.push(enqueue_job(Some(&format!("{n:100}")), Job { options: window(1 << 41), ..job(1) }));
            ops.push(Op::Cancel { ticket: Ticket(n + 2) });
        }
        ops
    };
    let many = |tickets: u64| {
        (0..tickets).map(|_| enqueue_job(None, Job { kind: "k".into(), options: Options::default(), ..job(1) })).collect::<Vec<_>>()
    };
    let cases = [
        ("a kind", plain(), with(|job| job.kind = "x".repeat(300).into())),
        ("a target", plain(), with(|job| job.target = Some("x".repeat(300).into()))),
        ("a key", plain(), vec![enqueue_job(Some(&long), Job { payload: vec![7; 10], ..job(1) })]),
        ("a payload", plain(), with(|job| job.payload = vec![7; 310])),
        ("options", plain(), with(|job| (8..108).for_each(|tag| job.options.set(tag, 1 << 30)))),
        ("meta", plain(), with(|job| job.meta = vec![("n".to_owned(), "v".to_owned()); 100])),
        ("a fault", failed(""), failed(&long)),
        ("ended keys", ended(0), ended(100)),
        ("tickets", many(1), many(101)),
    ];
    for (what, less, more) in cases {
        let (less, more) = (after(&less), after(&more));
        let size = |queue: &Queue| write(&PlainStore::new(Arc::new(MemDisk::default())), queue);
        let (taken, foretold) = (size(&more) - size(&less), more.live_bytes() - less.live_bytes());
        assert!(taken >= 290 && taken.abs_diff(foretold) * 7 <= taken, "{what}: {taken}, {foretold} foretold");
    }
}

/// Two tickets that wait, one that runs, and two keys of ended ones; every number in a byte.
fn queue() -> Queue {
    after(&ops())
}

fn ops() -> Vec<Op> {
    vec![
        enqueue(1, "a", 1),
        enqueue(1, "b", 2),
        enqueue(1, "c", 3),
        enqueue(1, "d", 4),
        Op::Select { ticket: Ticket(2) },
        Op::Cancel { ticket: Ticket(3) },
        Op::Select { ticket: Ticket(4) },
        Op::Complete { ticket: Ticket(4), attempt: Attempt(Seq(7)), end: End::Done, fault: None },
        enqueue(1, "e", 5),
    ]
}

fn enqueue(now: u64, key: &str, n: u8) -> Op {
    Op::Enqueue { now: Time(now), due: Time(2), key: Some(Key::new(key)), job: Packed::from(job(n)) }
}

fn enqueue_job(key: Option<&str>, job: Job) -> Op {
    Op::Enqueue { now: NOW, due: NOW, key: key.map(Key::new), job: Packed::from(job) }
}

fn job(n: u8) -> Job {
    Job {
        kind: "kind".into(),
        version: 1,
        codec: Codec(0),
        target: None,
        priority: n,
        options: window(10),
        meta: Vec::new(),
        payload: Vec::new(),
    }
}

fn window(span: u64) -> Options {
    let mut options = Options::default();
    options.set(Options::KEY_WINDOW, Span(span).0);
    options
}

/// Each op a record; the time is that of its number.
fn after(ops: &[Op]) -> Queue {
    let mut queue = Queue::default();
    for op in ops {
        let seq = queue.last().next();
        queue.step(seq, Time(seq.0), &Record::Op(op.clone())).expect("it fits");
    }
    queue.check();
    queue
}

/// Makes a snapshot say something else.
type Change = fn(&mut Snapshot);

#[test]
fn when_all_tickets_have_been_issued_none_is_issued_twice() {
    let mut snapshot = Snapshot::of(&after(&[enqueue_job(None, job(1)), Op::Cancel { ticket: Ticket(1) }]));
    assert_eq!(snapshot.entries.len(), 1, "facts alone");
    let largest = [[0xff; 9].as_slice(), &[1]].concat();
    // The tag, the last record and the epoch stay: as many were issued as there are numbers, and all were cancelled.
    snapshot.change(0, |fields| *fields = [&fields[..3], &largest, &[0; 5], &largest].concat());
    let mut queue = snapshot.load().expect("the counts agree");
    let before = queue.clone();
    let next = Record::Op(enqueue_job(None, job(1)));
    assert_eq!(queue.step(queue.last().next(), Time(1), &next), Err(Misfit::UsedUp));
    assert_eq!(queue, before);
}

/// A snapshot taken apart.
struct Snapshot {
    last: Seq,
    meta: Vec<u8>,
    chunk: Vec<u8>,
    /// Each with its length in front.
    entries: Vec<Vec<u8>>,
    /// Where the meta data say one more than there is.
    off: Option<usize>,
}

impl Snapshot {
    fn of(queue: &Queue) -> Self {
        let disk = MemDisk::default();
        write(&PlainStore::new(Arc::new(disk.clone())), queue);
        Self::read(queue.last(), &image(&disk).into_values().next().expect("one file"))
    }

    fn read(last: Seq, bytes: &[u8]) -> Self {
        let mut entries = Vec::new();
        let mut rest = &bytes[META + CHUNK..];
        while let Some((length, _)) = rest.split_first_chunk::<4>() {
            let (entry, behind) = rest.split_at(4 + u32::from_le_bytes(*length) as usize);
            entries.push(entry.to_vec());
            rest = behind;
        }
        Self { last, meta: bytes[..META].to_vec(), chunk: bytes[META..META + CHUNK].to_vec(), entries, off: None }
    }

    /// Changes the fields of an entry, and its length with them.
    fn change(&mut self, entry: usize, change: impl FnOnce(&mut Vec<u8>)) {
        let mut fields = self.entries[entry].split_off(4);
        change(&mut fields);
        self.entries[entry] = [&u32::try_from(fields.len()).expect("small").to_le_bytes()[..], &fields].concat();
    }

    fn load(&self) -> Result<Queue, SnapshotError> {
        let disk = MemDisk::default();
        let store = PlainStore::new(Arc::new(disk.clone()));
        disk.put(&store.name(self.last), &self.bytes());
        Loading::begin(&store, self.last).and_then(Loading::finish).map(|loaded| loaded.queue)
    }

    /// Put together, with sound checksums, and counts unless they are to be off.
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = [&self.meta[..], &self.chunk].concat();
        self.entries.iter().for_each(|entry| bytes.extend(entry));
        let body = u32::try_from(bytes.len() - META - CHUNK).expect("small");
        bytes[META + 8..META + 12].copy_from_slice(&body.to_le_bytes());
        let whole =
            self.entries.iter().filter(|entry| entry.len() >= 4 && entry.len() - 4 == usize::from(entry[0]) + 256 * usize::from(entry[1]));
        for (offset, number) in [(72, bytes.len() - META), (80, whole.count())] {
            bytes[offset..offset + 8].copy_from_slice(&(number as u64).to_le_bytes());
        }
        sum_up(&mut bytes);
        if let Some(offset) = self.off {
            bytes[offset] = bytes[offset].wrapping_add(1);
            let sum = crc32c::crc32c(&bytes[..META - 4]);
            bytes[META - 4..META].copy_from_slice(&sum.to_le_bytes());
        }
        bytes
    }
}

/// The bytes of a fault of so many letters: it is there, its cause, its length, its text.
fn fault(letters: u16) -> Vec<u8> {
    let length = [(letters % 128) as u8 | 128, (letters / 128) as u8];
    [&[1, 0][..], &length, &vec![b'x'; letters.into()]].concat()
}

const NOW: Time = Time(1_700_000_000_000);
/// Where the fields are, as `docs/journal-format.md` has them: each takes one byte here.
const TAG: usize = 4;
const LAST: usize = 5;
const ISSUED: usize = 7;
const CANCELLED: usize = 13;
const TICKET: usize = 5;
const PHASE: usize = 8;
const FAULT: usize = 10;
const KEY: usize = 13;
const ENDED_TICKET: usize = 6;
const ENDED_KEY: usize = 8;
