//! A state that is read, or compacted, with little of its payloads in memory is the same as with all of them.

use std::sync::Arc;

use journeyman_core::compaction::{Compaction, CompactionError, Phase, Progress};
use journeyman_core::disk::{Disk, MemDisk};
use journeyman_core::journal::Salt;
use journeyman_core::payloads::Payloads;
use journeyman_core::room::Room;
use journeyman_core::snapshot::SnapshotError;
use journeyman_core::store::Store;
use journeyman_core::{Packed, Queue, Record, Ticket};

use super::kit::{Life, Rig, run, run_to};
use crate::support::{Act, disk_of, holds, image};

fn payloads(disk: &MemDisk) -> Payloads {
    // Small files, so that some of them are emptied and some have survivors.
    Payloads::with_files_of(Arc::new(disk.clone()), Default::default(), 1 << 10)
}

fn scratch(disk: &MemDisk) -> Vec<String> {
    disk.list().unwrap().into_iter().filter(|name| name.ends_with(".payloads.tmp")).collect()
}

/// The state with all of its payloads.
fn whole(queue: &Queue, payloads: &Payloads) -> Vec<(Ticket, String, Packed)> {
    let job_of = |ticket, job: &Packed| {
        let mut found = job.clone();
        if job.is_away() {
            payloads.read(&[ticket], |_, payload| found = job.brought_back(payload).unwrap()).unwrap();
        }
        found
    };
    queue.tickets().map(|(ticket, live)| (ticket, format!("{:?} {:?}", live.phase(), live.key()), job_of(ticket, &live.job))).collect()
}

fn is_the_same_in_little_memory(disk: &MemDisk) {
    let rig = Rig::plain(disk.clone());
    let all = rig.open().unwrap();
    let names = rig.names();
    for memory in [0, 200, 2_000, u64::MAX] {
        let mut room = Room::new(payloads(disk), memory);
        let store = Store::open_within(rig.disk.clone(), &*rig.snapshots(), &mut room).unwrap();
        let put_away = room.into_payloads();
        store.queue.check();
        assert_eq!(whole(&store.queue, &put_away), whole(&all.queue, &payloads(disk)), "{memory}");
        assert_eq!((store.queue.weight(), store.queue.live_bytes()), (all.queue.weight(), all.queue.live_bytes()));
        assert!(store.queue.weight_in_memory() <= memory.saturating_add(meta_of(&all.queue)), "{memory}");
        let away = store.queue.tickets().filter(|(_, live)| live.job.is_away()).count();
        assert_eq!(put_away.is_empty(), away == 0, "nothing is kept of those that ended");
        assert_eq!(Payloads::sweep(disk).unwrap() > 0, put_away.bytes_of_files().1 > 0);
        assert_eq!(rig.names(), names, "all else is as it was");
    }
}

fn meta_of(queue: &Queue) -> u64 {
    queue.tickets().map(|(_, live)| live.job.weight() - live.job.payload_bytes()).sum()
}

#[test]
fn what_is_read_in_little_memory_is_the_same() {
    holds(60, |(acts, rounds): (Vec<Act>, u8)| {
        let disk = MemDisk::default();
        let mut life = Life::begin(&Rig::plain(disk.clone()));
        for (at, act) in acts.iter().enumerate() {
            let fits = |record: &Record| life.queue.clone().step(life.queue.last().next(), life.now, record).is_ok();
            if let Some(record) = act.record(&life.queue, life.now).filter(fits) {
                life.write(&[record]).unwrap();
            }
            if at % 40 == 39 {
                life.compact();
            }
        }
        life.busy(u64::from(rounds % 30));
        is_the_same_in_little_memory(&disk);
    });
}

/// A snapshot that turns out to be damaged when a part of it has been put away leaves nothing of itself.
#[test]
fn what_a_damaged_snapshot_had_is_forgotten() {
    let disk = MemDisk::default();
    let mut life = Life::begin(&Rig::plain(disk.clone()));
    for _ in 0..2 {
        life.busy(400);
        life.compact();
    }
    life.busy(3);
    let newest = Rig::plain(disk.clone()).names().into_iter().rfind(|name| name.ends_with(".snapshot")).unwrap();
    let mut bytes = disk.read(&newest).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    disk.put(&newest, &bytes);
    is_the_same_in_little_memory(&disk);
}

/// Of what is sealed.
fn compaction(life: &Life, disk: &MemDisk, memory: Option<u64>) -> Compaction {
    let rig = Rig::plain(disk.clone());
    let before = life.journal.writes_to().unwrap();
    let compaction = Compaction::begin(rig.disk.clone(), rig.snapshots(), before, Salt(7)).unwrap();
    match memory {
        Some(memory) => compaction.within(Room::new(payloads(disk), memory)),
        None => compaction,
    }
}

#[test]
fn a_compaction_in_little_memory_writes_the_same_bytes() {
    let disk = MemDisk::default();
    let mut life = Life::begin(&Rig::plain(disk.clone()));
    for round in 0..4 {
        life.busy(120);
        life.journal.rotate().unwrap();
        let before = image(&disk);
        let mut images = Vec::new();
        for memory in [None, Some(0), Some(5_000)] {
            let copy = disk_of(&before);
            let mut compaction = compaction(&life, &copy, memory);
            let mut written = 0;
            while compaction.phase() != Some(Phase::Writing) {
                let Ok(Progress::Working { written_bytes, .. }) = compaction.step() else { panic!("it goes on") };
                written += written_bytes;
            }
            assert_eq!(written > 0, !scratch(&copy).is_empty(), "what it puts away counts for its pace");
            run_to(&mut compaction, Phase::Verifying);
            assert!(scratch(&copy).is_empty() == (memory != Some(0)) || memory == Some(5_000), "round {round}, {memory:?}");
            assert!(matches!(run(&mut compaction).unwrap(), Progress::Done(_)));
            drop(compaction);
            assert!(scratch(&copy).is_empty(), "nothing is left of what it put away");
            images.push(image(&copy));
        }
        assert!(images[0] == images[1] && images[0] == images[2], "round {round}");
        life.compact();
    }
}

#[test]
fn a_compaction_whose_payloads_do_not_come_back_changes_nothing() {
    let disk = MemDisk::default();
    let mut life = Life::begin(&Rig::plain(disk.clone()));
    life.busy(200);
    life.compact();
    life.busy(200);
    for phase in [Phase::Writing, Phase::Verifying] {
        life.journal.rotate().unwrap();
        let mut compaction = compaction(&life, &disk, Some(0));
        run_to(&mut compaction, phase);
        let files = scratch(&disk);
        assert!(!files.is_empty());
        for name in &files {
            let bytes: Vec<u8> = disk.read(name).unwrap().iter().map(|byte| byte ^ 4).collect();
            disk.put(name, &bytes);
        }
        let failed = run(&mut compaction);
        assert!(matches!(failed, Err(CompactionError::Snapshot(SnapshotError::Payload(_)))), "{phase:?}: {failed:?}");
        drop(compaction);
        assert!(scratch(&disk).is_empty());
        assert_eq!(Rig::plain(disk.clone()).queue(), life.queue);
    }
    assert!(matches!(run(&mut compaction(&life, &disk, Some(0))), Ok(Progress::Done(_))), "the next one gets through");
    assert_eq!(Rig::plain(disk.clone()).queue(), life.queue);
}
