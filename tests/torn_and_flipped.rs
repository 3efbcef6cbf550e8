//! Proves that a journal of one unsealed segment of 64 KiB is read right however it was torn or rotted: cut at every byte
//! it gives exactly its whole batches, and with any one of its bits flipped it gives a typed error that names the place,
//! or a reported torn tail and all that was proved.

use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex};

use journeyman_core::Seq;
use journeyman_core::disk::{Disk, DiskFile, MemDisk};
use journeyman_core::journal::{Batch, RecoverError, Recovery};

use crate::support::figures::held;
use crate::support::{WIDE, batch, image, journal, segment};

#[test]
fn a_journal_cut_at_any_byte_is_its_longest_beginning_of_whole_batches() {
    let sound = Sound::new();
    let mut torn = 0;
    for cut in 0..=sound.bytes.len() {
        let disk = OneFile::new(&sound.bytes[..cut]);
        let whole = sound.ends.iter().filter(|end| **end <= cut).count();
        let end = sound.end_of(whole);
        let leftover = match cut {
            ..SEGMENT_HEADER => Some(0),
            _ => (end < cut && cut < sound.used()).then_some(end),
        };
        assert_eq!(sound.read(&disk), Found::Batches { number: whole, torn: leftover }, "cut at {cut}");
        torn += u32::from(leftover.is_some());
    }
    println!("{} cuts, {torn} of them leave a torn tail", sound.bytes.len() + 1);
    let boundaries = sound.ends.len() + 1;
    assert_eq!(torn as usize, sound.used() + 1 - boundaries, "all but those between frames and those in the zeros");
    held("F5", sound.bytes.len() as u64 + 1, "lengths of a journal of 64 KiB");
}

#[test]
fn any_bit_flipped_is_named_or_reported() {
    let sound = Sound::new();
    let (errors, reports) = std::thread::scope(|scope| {
        let sound = &sound;
        let halves = [0, 1].map(|half| scope.spawn(move || flip_all(sound, half)));
        halves.map(|half| half.join().expect("no flip panics")).into_iter().fold((0, 0), |sum, half| (sum.0 + half.0, sum.1 + half.1))
    });
    println!("{} flips: {errors} are errors, {reports} are torn tails", errors + reports);
    assert_eq!(errors + reports, 8 * sound.bytes.len());
    assert_eq!(errors, 8 * sound.end_of(sound.ends.len() - 1), "all that something behind it proves");
    held("F8", (errors + reports) as u64, "bits of a journal of 64 KiB flipped, one at a time");
}

/// Flips every bit of every second byte; answers how many are errors, and how many are reported as a torn tail.
fn flip_all(sound: &Sound, half: usize) -> (usize, usize) {
    let disk = OneFile::new(&sound.bytes);
    let (mut errors, mut reports) = (0, 0);
    let batches = sound.ends.len();
    for at in (half..sound.bytes.len()).step_by(2) {
        let frame = sound.ends.iter().filter(|end| **end <= at).count();
        let expected = match at {
            ..SEGMENT_HEADER => Found::Damage { offset: 0 },
            _ if frame + 1 < batches => Found::Damage { offset: sound.end_of(frame) },
            _ if frame < batches => Found::Batches { number: batches - 1, torn: Some(sound.end_of(batches - 1)) },
            _ => Found::Batches { number: batches, torn: Some(sound.used()) },
        };
        for bit in 0..8 {
            disk.change(|bytes| bytes[at] ^= 1 << bit);
            assert_eq!(sound.read(&disk), expected, "bit {bit} of byte {at}");
            disk.change(|bytes| bytes[at] ^= 1 << bit);
            match expected {
                Found::Damage { .. } => errors += 1,
                Found::Batches { .. } => reports += 1,
            }
        }
    }
    (errors, reports)
}

#[test]
fn a_sector_that_was_lost_or_garbled_is_named_or_reported() {
    let sound = Sound::new();
    let garbage: Vec<u8> = (0..4096_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24).to_le_bytes()[0]).collect();
    let mut sectors = 0;
    for length in [512, 1024, 4096] {
        for at in (0..sound.bytes.len()).step_by(length) {
            for content in [vec![0; length], garbage[..length].to_vec()] {
                let mut bytes = sound.bytes.clone();
                bytes[at..at + length].copy_from_slice(&content);
                let disk = OneFile::new(&bytes);
                assert_eq!(sound.read(&disk), sound.expected(&bytes), "{length} bytes at {at}");
                sectors += 1;
            }
        }
    }
    held("F8", sectors, "sectors of a journal lost or garbled");
}

/// A journal that nothing has happened to.
struct Sound {
    batches: Vec<Batch>,
    /// Where each frame ends.
    ends: Vec<usize>,
    bytes: Vec<u8>,
}

/// What reading comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// So many whole batches, exactly those that were appended first.
    Batches {
        number: usize,
        torn: Option<usize>,
    },
    Damage {
        offset: usize,
    },
}

impl Sound {
    fn new() -> Self {
        let disk = MemDisk::default();
        let mut writer = journal(disk.clone(), WIDE);
        let (mut batches, mut ends) = (Vec::new(), Vec::new());
        while ends.last().is_none_or(|end| *end < 40 << 10) {
            let first = batches.last().map_or(1, |batch: &Batch| batch.last().0 + 1);
            // From nothing to some 2 KiB, with bytes of every kind, zeros among them, and at its end.
            let length = first * first * 97 % 2311;
            let next = batch(first, u32::try_from(first % 4 + 1).expect("few"), (0..length).map(|n| (n * first % 251) as u8).collect());
            writer.append(next.clone()).expect("memory takes it");
            ends.push(usize::try_from(writer.counters().bytes).expect("small"));
            batches.push(next);
        }
        let mut bytes = image(&disk).remove(&segment(1)).expect("one segment");
        assert!(bytes[64 << 10..].iter().all(|byte| *byte == 0));
        bytes.truncate(64 << 10);
        Self { batches, ends, bytes }
    }

    /// Where the first `batches` of them end.
    fn end_of(&self, batches: usize) -> usize {
        batches.checked_sub(1).map_or(SEGMENT_HEADER, |last| self.ends[last])
    }

    fn used(&self) -> usize {
        self.end_of(self.ends.len())
    }

    fn read(&self, disk: &OneFile) -> Found {
        let mut number = 0;
        let mut same = true;
        let recovery = Recovery::read(Arc::new(disk.clone()), |batch| {
            same &= self.batches.get(number) == Some(batch);
            number += 1;
            Ok::<_, Infallible>(())
        });
        assert!(same, "another batch than was appended");
        match recovery {
            Ok(recovery) => {
                let last = number.checked_sub(1).map_or(Seq(0), |last| self.batches[last].last());
                assert_eq!(recovery.last(), last);
                let torn = recovery.torn().map(|torn| {
                    assert_eq!((&torn.file, torn.last), (&segment(1), last));
                    usize::try_from(torn.offset).expect("small")
                });
                Found::Batches { number, torn }
            }
            Err(RecoverError::Damaged { file, offset, .. }) => {
                assert_eq!(file, segment(1));
                Found::Damage { offset: usize::try_from(offset).expect("small") }
            }
            Err(other) => panic!("{other}"),
        }
    }

    /// What should be found in these bytes, by comparing them frame by frame with what they were.
    fn expected(&self, bytes: &[u8]) -> Found {
        let same = |from: usize, to: usize| bytes[from..to] == self.bytes[from..to];
        if !same(0, SEGMENT_HEADER) {
            return Found::Damage { offset: 0 };
        }
        let whole: Vec<_> = (0..self.ends.len()).map(|frame| same(self.end_of(frame), self.ends[frame])).collect();
        let number = whole.iter().take_while(|whole| **whole).count();
        let end = self.end_of(number);
        if whole[number..].contains(&true) {
            return Found::Damage { offset: end };
        }
        let leftover = bytes[end..].iter().any(|byte| *byte != 0);
        Found::Batches { number, torn: leftover.then_some(end) }
    }
}

/// A disk with one segment that can be changed between two readings.
#[derive(Clone)]
struct OneFile(Arc<Mutex<Vec<u8>>>);

impl OneFile {
    fn new(bytes: &[u8]) -> Self {
        Self(Arc::new(Mutex::new(bytes.to_vec())))
    }

    fn change(&self, change: impl FnOnce(&mut Vec<u8>)) {
        change(&mut self.0.lock().expect("nobody panics with it"));
    }
}

/// Reading is all that a recovery may do.
impl Disk for OneFile {
    fn free(&self) -> io::Result<u64> {
        Ok(u64::MAX)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(vec![segment(1)])
    }

    fn read(&self, _name: &str) -> io::Result<Vec<u8>> {
        Ok(self.0.lock().expect("nobody panics with it").clone())
    }

    fn read_at(&self, name: &str, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = self.read(name)?.split_off(usize::try_from(offset).expect("within the file"));
        bytes.truncate(length);
        Ok(bytes)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        panic!("an open created {name}")
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        panic!("an open renamed {from} to {to}")
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        panic!("an open removed {name}")
    }

    fn sync_names(&self) -> io::Result<()> {
        panic!("an open synced names")
    }
}

const SEGMENT_HEADER: usize = 96;
