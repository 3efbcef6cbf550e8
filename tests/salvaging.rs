//! No byte that is not what it was makes what looks at a directory panic, change a file, or say that all is well; and whatever is saved is a state that
//! once was, and at least all that lies before the damage.

use std::sync::Arc;

use journeyman_core::disk::{Disk, MemDisk};
use journeyman_core::inspect::{Inspection, Sort, history};
use journeyman_core::journal::Salt;
use journeyman_core::salvage::{Salvage, SalvageError};
use journeyman_core::snapshot::PlainStore;
use journeyman_core::store::Store;

use crate::kit::Kind;
use crate::support::figures::{figure, held};
use crate::support::{Image, disk_of, image};
use crate::used::{Used, name, used};

fn image_of(used: &Used) -> Image {
    let files = crate::kit::below(used.path());
    files.into_iter().map(|path| (name(&path), std::fs::read(&path).unwrap())).collect()
}

fn inspect(disk: &MemDisk) -> Inspection {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Inspection::of(&disk, &PlainStore::new(disk.clone())).expect("memory lists")
}

/// What is saved of a disk, if anything: its last record.
fn save(disk: &MemDisk, used: &Used) -> Option<u64> {
    let old: Arc<dyn Disk> = Arc::new(disk.clone());
    let old_store = PlainStore::new(old.clone());
    let salvage = match Salvage::plan(&old, &old_store) {
        Ok(salvage) => salvage,
        Err(SalvageError::Nothing | SalvageError::Unjudged(_)) => return None,
        Err(other) => panic!("{other}"),
    };
    let copy = MemDisk::default();
    let new: Arc<dyn Disk> = Arc::new(copy.clone());
    let new_store = PlainStore::new(new.clone());
    salvage.write((&old, &old_store), (&new, &new_store), Salt(9)).expect("memory takes it");
    copy.crash();
    let store = Store::open(new, &new_store).expect("what was saved opens, also after a crash");
    assert!(store.passed_over.is_empty() && inspect(&copy).is_sound());
    assert_eq!(Some(&store.queue), used.after(store.queue.last().0), "a state that once was");
    Some(store.queue.last().0)
}

/// Shows the history; answers how many records it has.
fn shown(disk: &MemDisk) -> usize {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let mut seqs = Vec::new();
    history(&disk, &PlainStore::new(disk.clone()), &mut |event| {
        seqs.push(event.seq);
        true
    })
    .expect("memory lists");
    assert!(seqs.is_sorted_by(|one, next| one < next), "each once, in order");
    seqs.len()
}

fn flip_every_byte(compactions: u64) -> u64 {
    let used = used(Kind::Plain, compactions, 4);
    let files = image_of(&used);
    let sound = disk_of(&files);
    assert!(inspect(&sound).is_sound());
    let (all, last) = (shown(&sound), used.last().last().0);
    assert_eq!(save(&sound, &used), Some(last));
    let mut tries = 0;
    let step = usize::try_from(figure(5, 1)).expect("small");
    for (name, bytes) in files.iter().filter(|(_, bytes)| !bytes.is_empty()) {
        for at in (0..bytes.len()).step_by(step) {
            let mut changed = files.clone();
            changed.get_mut(name).expect("it is there")[at] ^= 1 << (at % 8);
            let disk = disk_of(&changed);
            let found = inspect(&disk);
            // What nothing behind it proves may be taken for a torn tail; everything else is named.
            let is_last = name == files.keys().rfind(|name| name.ends_with(".segment")).expect("there is one");
            if !is_last && name.ends_with(".segment") && at >= bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1) {
                assert!(found.is_sound(), "what lies behind the length that the next segment names is not read");
                continue;
            }
            let told = found.findings.iter().any(|finding| finding.file == *name && (finding.sort != Sort::Note || is_last));
            assert!(told, "byte {at} of {name}: {:?}", found.findings);
            assert!(shown(&disk) + 40 > all, "byte {at} of {name}: most can be shown");
            if found.start.as_ref().is_ok_and(|standing| standing.last.0 == last) && found.sort() <= Sort::Damage {
                assert_eq!(save(&disk, &used), Some(last), "byte {at} of {name}: what a start makes up for, a salvage does");
            } else {
                save(&disk, &used);
            }
            assert!(image(&disk) == changed, "byte {at} of {name}: nothing is changed");
            tries += 1;
        }
    }
    tries
}

#[test]
fn no_flipped_byte_makes_the_tool_panic_change_a_file_or_save_what_never_was() {
    let tries = (0..3).map(flip_every_byte).sum();
    held("F8", tries, "bytes flipped under verify, dump and salvage");
}

/// One byte costs no more than the batch that it is in: what can be read behind it is found again, and counted.
#[test]
fn what_can_be_read_behind_damage_is_counted() {
    let used = used(Kind::Plain, 0, 4);
    let (files, last) = (image_of(&used), used.last().last().0);
    let mut tries = 0;
    for (name, bytes) in files.iter().filter(|(name, _)| name.ends_with(".segment")) {
        let end = bytes.iter().rposition(|byte| *byte != 0).expect("it has a header");
        for at in (SEGMENT_HEADER..end).step_by(7) {
            let mut changed = files.clone();
            changed.get_mut(name).expect("it is there")[at] ^= 1;
            let disk = disk_of(&changed);
            let old: Arc<dyn Disk> = Arc::new(disk.clone());
            let Ok(Salvage { left, found, .. }) = Salvage::plan(&old, &PlainStore::new(old.clone())) else {
                assert!(save(&disk, &used).is_none(), "nothing is sound before the first record");
                continue;
            };
            assert!(left.unreadable <= LARGEST_BATCH, "byte {at} of {name}: {left:?}");
            if found.sort() == Sort::Note {
                // What nothing behind it proves is a torn tail.
                continue;
            }
            let saved = save(&disk, &used).expect("it was planned");
            assert_eq!(saved + left.records + left.unreadable, last, "byte {at} of {name}: {saved} saved, {left:?}");
            tries += 1;
        }
    }
    assert!(tries > 200, "{tries}");
    held("F8", tries, "bytes flipped with everything behind them counted");
}

/// One more thing that happens to a directory.
fn hurt(files: &mut Image, dice: &mut fastrand::Rng) {
    let names: Vec<String> = files.keys().cloned().collect();
    if names.len() < 2 {
        return;
    }
    let (name, other) = (dice.choice(&names).expect("there are some"), dice.choice(&names).expect("there are some"));
    let mut bytes = files[name].clone();
    let at = dice.usize(0..=bytes.len());
    match dice.u8(0..8) {
        0 => drop(files.remove(name)),
        1 => drop(files.insert(name.clone(), files[other].clone())),
        2 => {
            bytes.truncate(at);
            files.insert(name.clone(), bytes);
        }
        3 => {
            bytes.extend((0..dice.usize(0..300)).map(|_| dice.u8(..)));
            files.insert(name.clone(), bytes);
        }
        4 => {
            let (from, length) = (dice.usize(0..=files[other].len()), bytes.len());
            let piece = &files[other][from..(from + 300).min(files[other].len())];
            let end = (at + piece.len()).min(length);
            bytes[at..end].copy_from_slice(&piece[..end - at]);
            files.insert(name.clone(), bytes);
        }
        5 => {
            let end = (at + 512).min(bytes.len());
            bytes[at..end].fill(0);
            files.insert(name.clone(), bytes);
        }
        _ => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << dice.u8(0..8);
            }
            files.insert(name.clone(), bytes);
        }
    }
}

#[test]
fn much_damage_at_once_makes_nothing_panic_and_nothing_is_saved_that_never_was() {
    let mut dice = fastrand::Rng::with_seed(crate::support::seed());
    let tries = figure(300, 30_000);
    let all: Vec<_> = (0..3).map(|compactions| used(Kind::Plain, compactions, 8)).collect();
    let (mut saved, mut sound) = (0, 0);
    for _ in 0..tries {
        let used = dice.choice(&all).expect("there are three");
        let mut files = image_of(used);
        (0..dice.u8(1..6)).for_each(|_| hurt(&mut files, &mut dice));
        let disk = disk_of(&files);
        let found = inspect(&disk);
        if let Ok(standing) = found.start {
            assert!(used.after(standing.last.0).is_some(), "a start finds a state that once was");
        }
        assert!(!found.is_sound() || found.start.is_ok());
        shown(&disk);
        sound += u64::from(found.is_sound());
        saved += u64::from(save(&disk, used).is_some());
        assert!(image(&disk) == files, "nothing is changed");
    }
    println!("of {tries} directories {sound} were still sound, and of {saved} something could be saved");
    assert!(saved > tries / 2 && sound < tries / 2);
    held("F8", tries, "directories with much damage under verify, dump and salvage");
}

/// Where the frames of a segment begin.
const SEGMENT_HEADER: usize = 96;
/// Records of the largest batch in a used directory: the first of a life, behind its Lead.
const LARGEST_BATCH: u64 = 2;
