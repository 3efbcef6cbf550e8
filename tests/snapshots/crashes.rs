//! A compaction that is killed or whose disk fails, at any call and at any step, loses nothing, and the next one gets through.

use std::ops::Range;

use journeyman_core::Queue;
use journeyman_core::compaction::Progress;
use journeyman_core::disk::MemDisk;
use journeyman_core::journal::JournalLimits;

use super::kit::{Life, PHASES, Place, Rig, kinds, run_to};
use crate::support::disks::{Crashed, Failing, Recorded};
use crate::support::{Image, disk_of, image};

#[test]
fn one_killed_in_any_phase_loses_nothing_and_the_next_gets_through() {
    for kind in kinds() {
        for phase in PHASES {
            let place = Place::new(kind);
            let rig = place.rig();
            let mut life = Life::begin(&rig);
            for _ in 0..2 {
                life.busy(30);
                life.compact();
            }
            life.busy(30);
            let mut killed = life.compaction();
            run_to(&mut killed, phase);
            drop(killed);
            assert_eq!(rig.queue(), life.queue, "{kind:?}, killed before {phase:?}");
            drop(life);
            let mut life = Life::begin(&rig);
            life.busy(1);
            assert_eq!(life.compact().seq, life.queue.last());
            assert_eq!(rig.queue(), life.queue);
            let odd: Vec<_> = rig.names().into_iter().filter(|name| name.contains(".tmp") || name.contains(".open")).collect();
            assert!(odd.is_empty() && rig.seqs().len() == 2, "{kind:?}, {phase:?}: {odd:?}");
        }
    }
}

#[test]
fn whatever_survives_a_crash_after_any_call_of_a_compaction_holds_everything() {
    let (recorded, from, queue) = compacted();
    let mut states = 0;
    for calls in from..=recorded.calls() {
        for files in every_cut(&recorded.crashed_after(calls)) {
            assert_eq!(Rig::plain(disk_of(&files)).queue(), queue, "after call {calls}");
            states += 1;
        }
    }
    println!("{states} states after a crash");
    assert!(states > 70, "{states}");
}

#[test]
fn a_crash_in_the_life_after_a_crash_loses_nothing_either() {
    let (recorded, from, queue) = compacted();
    let mut states = 0;
    for calls in (from..=recorded.calls()).step_by(2) {
        for files in nothing_and_all(&recorded.crashed_after(calls)) {
            let again = Recorded::on(files);
            let mut life = Life::quiet(&Rig::plain(again.clone()), SMALL);
            assert_eq!(life.queue, queue);
            life.lead().expect("memory takes it");
            let led = again.calls();
            life.compact();
            for calls in (0..=again.calls()).step_by(3) {
                for files in nothing_and_all(&again.crashed_after(calls)) {
                    let found = Rig::plain(disk_of(&files)).queue();
                    assert!(found == life.queue || calls < led && found == queue, "after call {calls}");
                    states += 1;
                }
            }
        }
    }
    println!("{states} states after a second crash");
    assert!(states > 400, "{states}");
}

#[test]
fn after_any_call_that_failed_once_nothing_is_lost_and_the_next_try_succeeds() {
    let (mut failures, mut told) = (0, 0);
    for at in 1.. {
        let disk = MemDisk::default();
        let failing = Failing::on(&disk);
        let rig = Rig::plain(failing.clone());
        let mut life = Life::begin(&rig);
        life.busy(8);
        life.compact();
        life.busy(8);
        failing.arm(at);
        let answer = life.try_to_compact();
        if failing.calls() < at {
            break;
        }
        failing.arm(0);
        failures += 1;
        told += u64::from(answer.is_err());
        assert_eq!(rig.queue(), life.queue, "after the failure of call {at}");
        let poisoned = life.journal.writes_to().is_none();
        if !poisoned {
            life.busy(1);
            assert!(life.try_to_compact().is_ok(), "after the failure of call {at}");
            assert_eq!(rig.queue(), life.queue);
        }
        disk.crash();
        assert_eq!(rig.queue(), life.queue, "after the failure of call {at} and a crash");
        let mut next = Life::begin(&rig);
        assert!(matches!(next.try_to_compact(), Ok(Progress::Done(_))));
        assert_eq!(rig.queue(), next.queue);
    }
    println!("{failures} calls failed, {told} of them were told");
    // Not told: that the size of what is removed could not be looked up.
    assert!(failures > 25 && told + 2 >= failures, "{told} of {failures}");
}

/// Several segments for each compaction.
const SMALL: JournalLimits = JournalLimits { segment_bytes: 1024, batch_bytes: 1 << 20 };

/// The third compaction of a life, the number of calls before it, and the state that must be there all along.
fn compacted() -> (Recorded, usize, Queue) {
    let recorded = Recorded::on(Image::new());
    let mut life = Life::with(&Rig::plain(recorded.clone()), SMALL);
    life.busy(9);
    life.compact();
    life.busy(9);
    life.compact();
    life.busy(9);
    let from = recorded.calls();
    life.compact();
    (recorded, from, life.queue)
}

/// Of what was not synced: the first changes of names, any number of them; of the writes nothing, all, or the first half of each.
fn every_cut(crashed: &Crashed) -> Vec<Image> {
    let mut images = Vec::new();
    for renames in 0..=crashed.renames.len() {
        images.push(crashed.image(renames, |_, _| vec![]));
        if !crashed.writes.is_empty() {
            images.push(crashed.image(renames, |_, bytes| only(0..bytes.len())));
            images.push(crashed.image(renames, |_, bytes| only(0..bytes.len() / 2)));
            images.push(crashed.image(renames, |_, bytes| only(bytes.len() / 3..bytes.len())));
            images.push(crashed.image(renames, |number, bytes| if number % 2 == 0 { only(0..bytes.len()) } else { vec![] }));
        }
    }
    images
}

fn nothing_and_all(crashed: &Crashed) -> [Image; 2] {
    [crashed.image(0, |_, _| vec![]), crashed.image(crashed.renames.len(), |_, bytes| only(0..bytes.len()))]
}

fn only(part: Range<usize>) -> Vec<Range<usize>> {
    vec![part]
}

#[test]
fn a_drop_in_the_middle_leaves_segments_and_snapshots_as_they_were() {
    let disk = MemDisk::default();
    let rig = Rig::plain(disk.clone());
    let mut life = Life::begin(&rig);
    life.busy(10);
    life.compact();
    life.busy(10);
    for phase in &PHASES[..5] {
        let mut killed = life.compaction();
        let files = kept(&disk);
        run_to(&mut killed, *phase);
        drop(killed);
        assert!(kept(&disk) == files, "{phase:?}");
    }
}

/// All but drafts.
fn kept(disk: &MemDisk) -> Image {
    image(disk).into_iter().filter(|(name, _)| !name.ends_with(".tmp")).collect()
}
