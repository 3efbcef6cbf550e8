//! The rows about the end of the journal: what a crash may leave there is no damage, and costs no more than itself.

use journeyman_core::disk::MemDisk;
use journeyman_core::{Job, Op, Packed, Seq, Time};

use super::{LIMITS, SEGMENT_HEADER, frames, goes_on, killed, last_of, open, segment, short, states, with};
use crate::kit::{Life, Rig};
use crate::support::{disk_of, image, job};

#[test]
fn d10_a_tail_whose_middle_was_never_synced_is_not_believed() {
    let disk = MemDisk::default();
    let mut life = Life::with(&Rig::plain(disk.clone()), crate::kit::LIMITS);
    life.busy(5);
    let before = life.queue.clone();
    let large = Job { payload: vec![7; 20_000], ..job(1, None) };
    let now = Time(9);
    life.op(Op::Enqueue { now, due: now, key: None, job: Packed::from(large) });
    let files = short(image(&disk));
    let (name, frames) = last_of(&files);
    let last = frames.last().expect("there is one").clone();
    let pages = (last.start / 4096 + 1)..(last.end / 4096);
    assert!(pages.len() >= 3);
    for page in pages {
        let torn = with(&files, &name, |bytes| bytes[page * 4096..(page + 1) * 4096].fill(0));
        let store = open(&torn).expect("a torn tail is no damage");
        assert_eq!(store.recovery.torn().map(|torn| torn.offset), Some(last.start as u64));
        assert_eq!(store.queue, before);
    }
}

#[test]
fn d18_zeros_within_or_behind_the_last_batch_are_a_torn_tail() {
    let (files, _) = killed();
    let states = states(&files);
    let (name, frames) = last_of(&files);
    let last = frames.last().expect("there is one").clone();
    for hole in last.clone().step_by(8) {
        let end = (hole + 8).min(last.end);
        if files[&name][hole..end].iter().all(|byte| *byte == 0) {
            continue;
        }
        let torn = with(&files, &name, |bytes| bytes[hole..end].fill(0));
        let store = open(&torn).expect("a torn tail is no damage");
        assert_eq!(store.queue, states[states.len() - 2], "a hole at {hole}");
        goes_on(disk_of(&torn), &store.queue);
    }
    for behind in [1, 511, 512, 4096, 1 << 20] {
        let padded = with(&files, &name, |bytes| bytes.resize(last.end + behind, 0));
        assert_eq!(open(&padded).expect("zeros are the end").queue, states[states.len() - 1]);
    }
}

#[test]
fn d19_a_batch_torn_at_the_boundary_of_a_page_or_a_sector_is_a_torn_tail() {
    let disk = MemDisk::default();
    let mut life = Life::with(&Rig::plain(disk.clone()), crate::kit::LIMITS);
    life.busy(3);
    let before = life.queue.clone();
    let large = Job { payload: (1..=250).cycle().take(30_000).collect(), ..job(1, None) };
    let now = Time(9);
    life.op(Op::Enqueue { now, due: now, key: None, job: Packed::from(large) });
    let files = image(&disk);
    let (name, frames) = last_of(&files);
    let last = frames.last().expect("there is one").clone();
    let mut torn = 0;
    for boundary in (0..last.end).step_by(512).filter(|at| *at > last.start) {
        // What comes behind it in the file are the zeros that were laid ahead.
        let files = with(&files, &name, |bytes| bytes[boundary..last.end].fill(0));
        let store = open(&files).expect("a torn tail is no damage");
        assert_eq!((store.recovery.torn().map(|torn| torn.offset), store.queue), (Some(last.start as u64), before.clone()));
        torn += 1;
    }
    assert!(torn > 50);
}

#[test]
fn d30_an_only_segment_cut_short_anywhere_takes_the_next_write() {
    let disk = MemDisk::default();
    let mut life = Life::with(&Rig::plain(disk.clone()), LIMITS);
    life.busy(2);
    let files = short(image(&disk));
    assert_eq!(files.len(), 1);
    let states = states(&files);
    let ends = frames(&files[&segment(1)]);
    for cut in (0..SEGMENT_HEADER + 1).chain(ends.iter().flat_map(|frame| [frame.start + 1, frame.end - 1, frame.end])) {
        let cut_short = with(&files, &segment(1), |bytes| bytes.truncate(cut));
        let whole = ends.iter().filter(|frame| frame.end <= cut).count();
        let store = open(&cut_short).expect("a torn tail is no damage");
        assert_eq!(store.queue, states[whole], "cut at {cut}");
        goes_on(disk_of(&cut_short), &states[whole]);
    }
}

#[test]
fn d38_some_bytes_missing_at_the_tail_cost_the_tail_alone() {
    let disk = MemDisk::default();
    let rig = Rig::plain(disk.clone());
    let mut life = Life::with(&rig, crate::kit::LIMITS);
    life.busy(30);
    life.compact();
    let snapshot = life.queue.clone();
    life.busy(20);
    let files = short(image(&disk));
    let segments = files.iter().filter(|(name, _)| name.ends_with(".segment"));
    let (last, bytes) = segments.max_by_key(|(name, _)| (*name).clone()).expect("there is one");
    let used = frames(bytes).last().expect("there is one").end;
    let (first, mut cuts) = (u64::from_le_bytes(bytes[40..48].try_into().expect("eight bytes")), 0);
    for missing in (1..=4096).filter(|missing| used - missing > SEGMENT_HEADER) {
        let cut = with(&files, last, |bytes| bytes.truncate(used - missing));
        let store = open(&cut).expect("a torn tail is no damage");
        let whole = frames(&bytes[..used]).iter().filter(|frame| frame.end <= used - missing).count() as u64;
        assert!(store.queue.last() >= Seq((first - 1).max(snapshot.last().0)), "only the last segment is shorter");
        assert_eq!(store.queue.last().0, first - 1 + whole, "{missing} bytes are missing");
        cuts += 1;
    }
    assert!(cuts > 1000);
}

#[test]
fn d49_zeros_behind_the_end_are_the_end_however_many() {
    let (files, queue) = killed();
    let (name, _) = last_of(&files);
    for zeros in [1, 63, 64, 65, 4095, 4096, 1 << 20, 16 << 20] {
        let padded = with(&files, &name, |bytes| bytes.resize(bytes.len() + zeros, 0));
        let store = open(&padded).expect("zeros are the end");
        assert_eq!((store.queue, store.recovery.torn()), (queue.clone(), None));
    }
}
