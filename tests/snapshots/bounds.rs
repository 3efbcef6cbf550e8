//! However long it goes on, the disk holds what is alive, not what has been; and a compaction comes when it is worth it.

use std::sync::Arc;
use std::time::Instant;

use journeyman_core::compaction::{CompactionLimits, Phase, Progress, is_due};
use journeyman_core::disk::MemDisk;
use journeyman_core::journal::JournalLimits;
use journeyman_core::snapshot::PlainStore;
use journeyman_core::{Op, Packed, Queue, Record, Time};

use super::kit::{Life, Place, Rig, kinds, run};
use super::round_trips::write;
use crate::support::job;

/// beanstalkd#43: one old ticket that never ends kept every later file.
#[test]
fn one_old_ticket_does_not_keep_the_history() {
    for kind in kinds() {
        let place = Place::new(kind);
        let rig = place.rig();
        let limits = JournalLimits { segment_bytes: 64 << 10, batch_bytes: 1 << 20 };
        let due = CompactionLimits { least_bytes: 128 << 10, percent_of_live: 100, journal_bytes: 1 << 30 };
        let mut life = Life::with(&rig, limits);
        let old = life.enqueue(Some("old"), 9);
        let (mut since, mut before, mut compactions, mut most) = (0, life.journal.counters().bytes, 0, 0);
        while compactions < 12 {
            let ticket = life.enqueue(None, 200);
            life.complete(ticket);
            let bytes = life.journal.counters().bytes;
            since += bytes - before;
            before = bytes;
            if is_due(since, life.queue.live_bytes(), &due) {
                life.compact();
                compactions += 1;
                (since, before) = (0, life.journal.counters().bytes);
            }
            most = most.max(life.journal.counters().bytes);
        }
        assert!(most < 3 * due.least_bytes, "{kind:?}: {most}");
        let on_disk: usize = place.files().values().map(Vec::len).sum();
        let segments = rig.names().iter().filter(|name| name.ends_with(".segment")).count();
        // Of each segment a whole mebibyte is laid down, and an almost empty tree takes half a one.
        assert!(segments <= 8 && on_disk < 10 << 20, "{kind:?}: {segments} segments, {on_disk} bytes");
        assert!(rig.queue().get(old).is_some());
    }
}

/// To a thread that does nothing else.
fn can_be_sent<T: Send>(value: T) -> T {
    value
}

#[test]
fn a_compaction_is_due_by_ratio_within_its_bounds() {
    let limits = CompactionLimits::of(8 << 30);
    for (since, live, due) in [
        (0, 0, false),
        ((6 << 20) - 1, 0, false),
        (6 << 20, 0, true),
        (100 << 20, 101 << 20, false),
        (101 << 20, 101 << 20, true),
        ((2 << 30) - 1, 5 << 30, false),
        (2 << 30, 5 << 30, true),
        (u64::MAX, u64::MAX, true),
    ] {
        assert_eq!(is_due(since, live, &limits), due, "{since} since, {live} live");
    }
    assert!(!is_due(0, 0, &CompactionLimits::of(0)), "nothing is never due");
}

/// Each a step of its own, or whoever waits for the disk or the thread waits for all of them.
#[test]
fn small_records_and_small_tickets_are_gone_through_in_portions() {
    let steps = |portions: u64| {
        let mut life = Life::with(&Rig::plain(MemDisk::default()), JournalLimits { segment_bytes: 64 << 20, batch_bytes: 4 << 20 });
        let small = Packed::from(job(0, None));
        let records: Vec<_> =
            (0..512).map(|_| Record::Op(Op::Enqueue { now: Time(0), due: Time(0), key: None, job: small.clone() })).collect();
        (0..portions * 8).for_each(|_| life.write(&records).expect("memory takes it"));
        let mut compaction = life.compaction();
        let (mut folding, mut writing) = (0, 0);
        while let Progress::Working { phase, .. } = compaction.step().expect("memory takes it") {
            folding += u64::from(phase == Phase::Folding);
            writing += u64::from(phase == Phase::Writing);
        }
        (folding, writing)
    };
    let ((folding, writing), (more_folding, more_writing)) = (steps(1), steps(4));
    assert!(more_folding >= folding + 3 && more_writing >= writing + 3, "{folding} and {more_folding}, {writing} and {more_writing}");
}

#[test]
fn a_batch_that_is_larger_than_a_step_is_folded_whole() {
    let mut life = Life::with(&Rig::plain(MemDisk::default()), JournalLimits { segment_bytes: 64 << 20, batch_bytes: 4 << 20 });
    let mut large = job(1, None);
    large.payload = vec![7; 700 << 10];
    let large = Packed::from(large);
    let records: Vec<_> = (0..5).map(|_| Record::Op(Op::Enqueue { now: Time(0), due: Time(0), key: None, job: large.clone() })).collect();
    life.write(&records).expect("memory takes it");
    life.busy(1);
    life.compact();
    assert_eq!(life.rig.queue(), life.queue);
}

#[test]
fn a_large_draft_is_synced_on_the_way() {
    let disk = MemDisk::default();
    let mut queue = Queue::default();
    let mut large = job(1, None);
    large.payload = vec![7; 50 << 10];
    let large = Packed::from(large);
    for _ in 0..100 {
        let record = Record::Op(Op::Enqueue { now: Time(0), due: Time(0), key: None, job: large.clone() });
        queue.step(queue.last().next(), Time(0), &record).expect("it fits");
    }
    let bytes = write(&PlainStore::new(Arc::new(disk.clone())), &queue);
    let at_least = bytes >> 21;
    assert!(disk.syncs() >= 2 + at_least && disk.syncs() <= 3 + (bytes >> 20), "{} syncs for {bytes} bytes", disk.syncs());
}

/// No step holds up whoever waits for it, and each says what it did.
#[test]
fn steps_are_bounded_and_tell_their_bytes() {
    for kind in kinds() {
        let place = Place::new(kind);
        let mut life = Life::with(&place.rig(), JournalLimits { segment_bytes: 64 << 20, batch_bytes: 4 << 20 });
        for _ in 0..40 {
            let jobs = (0..500u64).map(|n| Packed::from(job((200 + n % 50) as u8, None)));
            let due = Time(0);
            let records: Vec<_> = jobs.map(|job| Record::Op(Op::Enqueue { now: due, due, key: None, job })).collect();
            life.write(&records).expect("the disk takes it");
        }
        let mut compaction = can_be_sent(life.compaction());
        let (mut read, mut written, mut steps) = (0, 0, 0);
        let begun = Instant::now();
        let compacted = loop {
            match compaction.step().expect("the disk takes it") {
                Progress::Working { read_bytes, written_bytes, .. } => {
                    assert!(read_bytes <= 2 << 20 && written_bytes <= 2 << 20, "{read_bytes}, {written_bytes}");
                    (read, written, steps) = (read + read_bytes, written + written_bytes, steps + 1);
                }
                Progress::Done(compacted) => break compacted,
                Progress::Nothing => panic!("there is something"),
            }
        };
        let compacting = begun.elapsed();
        assert_eq!(written, compacted.snapshot_bytes);
        assert!(steps > 20 && read > written, "{steps} steps");
        let on_disk: usize = place.files_of(compacted.seq).iter().map(|path| std::fs::read(path).expect("it reads").len()).sum();
        let begun = Instant::now();
        assert_eq!(place.rig().queue(), life.queue);
        println!(
            "{kind:?}: {written} bytes, {on_disk} on disk, {} foretold; compacted in {compacting:?}, opened in {:?}",
            life.queue.live_bytes(),
            begun.elapsed()
        );
        assert!(matches!(
            run(&mut place.rig().compaction(life.journal.writes_to().expect("it writes")).expect("it lists")),
            Ok(Progress::Nothing)
        ));
    }
}
