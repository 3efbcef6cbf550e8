//! How the golden directories were made. Every kind of record, end, cause and file is in one of them.

use std::fs;
use std::path::Path;

use journeyman_core::journal::{Batch, JournalLimits};
use journeyman_core::{Cause, Codec, End, Epoch, Fault, Job, Key, Kind, Op, Options, Packed, Record, Target, Ticket, Time, record};

use crate::kit::{self, Life, Place};

pub(crate) fn all(root: &Path) {
    let cut = |name: &str, kind: kit::Kind, limits: JournalLimits, live: &dyn Fn(&Place, JournalLimits)| {
        let place = Place::new(kind);
        live(&place, limits);
        keep(place.dir.path(), &root.join(name));
    };
    let wide = JournalLimits { segment_bytes: 1 << 20, batch_bytes: 1 << 20 };
    let narrow = JournalLimits { segment_bytes: 2000, batch_bytes: 1 << 20 };
    cut("unused", kit::Kind::Plain, wide, &|_, _| ());
    cut("fresh", kit::Kind::Plain, wide, &|place, limits| {
        Life::with(&place.rig(), limits).enqueue(None, 1);
    });
    cut("every-op", kit::Kind::Plain, wide, &|place, limits| every_op(&mut Life::with(&place.rig(), limits)));
    cut("rotated", kit::Kind::Plain, narrow, &rotated);
    cut("torn", kit::Kind::Plain, wide, &|place, limits| Life::with(&place.rig(), limits).busy(3));
    tear(&root.join("torn"));
    cut("sealed", kit::Kind::Plain, wide, &|place, limits| {
        let mut life = Life::with(&place.rig(), limits);
        life.busy(3);
        life.journal.seal().expect("there is room");
    });
    cut("plain-snapshots", kit::Kind::Plain, narrow, &|place, limits| compacted(place, limits, 2));
    if kit::has_sled() {
        // Of the first compaction, so that all segments are there too: sled's own files are nobody's to describe.
        cut("sled-snapshot", kit::Kind::Sled, narrow, &|place, limits| compacted(place, limits, 1));
    }
}

/// Two lives; the second carries the last batch of the first, which nothing proved, into a segment of its own.
fn rotated(place: &Place, limits: JournalLimits) {
    Life::with(&place.rig(), limits).busy(8);
    Life::with(&place.rig(), limits).busy(6);
}

fn compacted(place: &Place, limits: JournalLimits, times: u64) {
    let mut life = Life::with(&place.rig(), limits);
    for round in 0..times {
        life.busy(12 + round);
        life.compact();
    }
    life.busy(4);
}

/// Every op, every end, every cause, every option, and what may stand in a field.
fn every_op(life: &mut Life) {
    let epoch = life.queue.epoch();
    let plain = |kind: &str| Job {
        kind: Kind::new(kind),
        version: 1,
        codec: Codec::JSON,
        target: None,
        priority: Job::DEFAULT_PRIORITY,
        options: Options::default(),
        meta: Vec::new(),
        payload: b"{\"to\":\"a\"}".to_vec(),
    };
    let mut rich = plain("\u{1b}[2J\r\n\u{202e}é🦀");
    rich.target = Some(Target::new("host \u{7f}\u{9b}\"\\"));
    (rich.version, rich.codec, rich.priority) = (u16::MAX, Codec(200), u8::MAX);
    for tag in 1..=8 {
        rich.options.set(tag, if tag == Options::DUE_IS_ABSOLUTE { 1 } else { 1000 * u64::from(tag) });
    }
    rich.options.set(Options::DEADLINE, Options::NONE);
    rich.options.set(4_000_000_000, u64::MAX);
    rich.meta = vec![("trace".to_owned(), "\u{2028}".to_owned()), (String::new(), "é".repeat(200))];
    rich.payload = (0..=255).collect();
    let mut raw = plain("raw");
    (raw.codec, raw.payload, raw.priority) = (Codec::RAW, Vec::new(), 0);
    let mut packed = plain("packed");
    (packed.codec, packed.payload) = (Codec::POSTCARD, vec![0; 300]);

    enqueue(life, Some("key \u{202e}"), Time(u64::MAX), rich);
    enqueue(life, None, Time(0), raw);
    enqueue(life, Some(""), Time(5), packed);
    for end in End::ALL {
        for fault in [None, Some(Fault::new(Cause::TimedOut, "é".repeat(300)))] {
            let ticket = enqueue(life, None, Time(1000), plain(end.as_str()));
            let attempt = life.select(ticket);
            life.op(Op::Complete { ticket, attempt, end, fault });
        }
    }
    for cause in [Cause::Failed, Cause::Panicked, Cause::TimedOut, Cause::Crashed, Cause::Interrupted, Cause::Other(255)] {
        let ticket = enqueue(life, None, Time(1000), plain("fails"));
        let attempt = life.select(ticket);
        life.op(Op::Requeue { ticket, attempt, due: Time(1 << 40), fault: Fault::new(cause, "\u{1b}]0;title\u{7}") });
    }
    let deferred = enqueue(life, None, Time(1000), plain("deferred"));
    let attempt = life.select(deferred);
    life.op(Op::Defer { ticket: deferred, attempt, due: Time(2000) });
    life.op(Op::Cancel { ticket: deferred });
    let running = enqueue(life, Some("cancelled"), Time(1000), plain("running"));
    life.select(running);
    life.op(Op::Cancel { ticket: running });
    let running = enqueue(life, Some("runs"), Time(1000), plain("running"));
    life.select(running);
    // Several in one batch, by the same writer and by the next.
    many(life, epoch);
}

fn enqueue(life: &mut Life, key: Option<&str>, due: Time, job: Job) -> Ticket {
    let issued = life.queue.ends().total() + (life.queue.pending() + life.queue.running()) as u64;
    life.op(Op::Enqueue { now: Time(1_764_590_400_000), due, key: key.map(Key::new), job: Packed::from(job) });
    Ticket(issued + 1)
}

/// A batch of several records, the first of which is the Lead of a later epoch.
fn many(life: &mut Life, epoch: Epoch) {
    let job = Packed::from(crate::support::job(7, None));
    let op = |key: &str| Record::Op(Op::Enqueue { now: Time(3), due: Time(4), key: Some(Key::new(key)), job: job.clone() });
    let records = [Record::Lead { epoch: Epoch(epoch.0 + 300) }, op("one"), op("two"), op("three")];
    let mut body = Vec::new();
    records.iter().for_each(|record| record::encode(record, &mut body));
    let (first, count) = (life.queue.last().next(), u32::try_from(records.len()).expect("few"));
    let batch = Batch { epoch: Epoch(epoch.0 + 300), first, count, time: Time(1_764_590_400_123), body };
    life.journal.append(batch).expect("there is room");
}

/// Takes the files over, without most of the zeros.
fn keep(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    for path in kit::below(from) {
        let place = to.join(path.strip_prefix(from).expect("it is within"));
        fs::create_dir_all(place.parent().expect("it has one")).expect("there is room");
        let mut bytes = fs::read(&path).expect("it reads");
        if path.extension().is_some_and(|end| end == "segment") {
            let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            bytes.truncate(end.max(96) + 64);
        }
        fs::write(place, bytes).expect("there is room");
    }
}

/// The last frame loses its end, as in a crash.
fn tear(dir: &Path) {
    let path = dir.join(crate::support::segment(1));
    let mut bytes = fs::read(&path).expect("it was cut");
    bytes.truncate(bytes.len() - 64 - 5);
    bytes.resize(bytes.len() + 64, 0);
    fs::write(path, bytes).expect("there is room");
}
