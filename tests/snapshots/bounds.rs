//! However long it goes on, the disk holds what is alive, not what has been; and a compaction comes when it is worth it.

use std::sync::Arc;
use std::time::Instant;

use journeyman_core::compaction::{CompactionLimits, Progress, is_due};
use journeyman_core::journal::JournalLimits;
use journeyman_core::{Op, Record, Time};

use crate::kit::{Life, Place, kinds, run};
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

/// No step holds up whoever waits for it, and each says what it did.
#[test]
fn steps_are_bounded_and_tell_their_bytes() {
    for kind in kinds() {
        let place = Place::new(kind);
        let mut life = Life::with(&place.rig(), JournalLimits { segment_bytes: 64 << 20, batch_bytes: 4 << 20 });
        for _ in 0..40 {
            let jobs = (0..500u64).map(|n| Arc::new(job((200 + n % 50) as u8, None)));
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
