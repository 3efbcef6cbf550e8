//! Proves that segments which are larger than what is read of them at once are read right: all their batches when they are sound, and the
//! frame that is named when they are not, wherever the pieces meet.

use journeyman_core::journal::{JournalLimits, RecoverError};

use crate::support::{batch, disk_of, image, journal, read, segment};

/// Frames of many sizes, one of them larger than a piece.
const SIZES: [usize; 7] = [300_000, 1, 700_000, 47_000, 1_600_000, 0, 500_000];
const LIMITS: JournalLimits = JournalLimits { segment_bytes: 3 << 20, batch_bytes: 1 << 21 };
/// What is read at once.
const PIECE: usize = 1 << 20;

/// Two segments and more, as they are on disk, and their batches.
fn sound() -> (crate::support::Image, Vec<journeyman_core::journal::Batch>) {
    let disk = journeyman_core::disk::MemDisk::default();
    let mut journal = journal(disk.clone(), LIMITS);
    let batches: Vec<_> = (1..).zip(SIZES.iter().cycle().take(14)).map(|(n, size)| batch(n, 1, vec![n as u8; *size])).collect();
    for batch in &batches {
        journal.append(batch.clone()).expect("memory takes it");
    }
    drop(journal);
    (image(&disk), batches)
}

#[test]
fn a_segment_of_several_pieces_is_read_whole() {
    let (files, batches) = sound();
    assert!(files.len() > 2, "several segments: {:?}", files.keys());
    assert!(files[&segment(1)].len() > 2 * PIECE);
    assert!(read(disk_of(&files)).expect("it is sound").0 == batches);
}

#[test]
fn damage_is_named_wherever_the_pieces_meet() {
    let (files, _) = sound();
    let first = segment(1);
    let places = (1..=3).flat_map(|n| [n * PIECE - 65, n * PIECE - 64, n * PIECE - 1, n * PIECE, n * PIECE + 1, n * PIECE + 63]);
    let used = files[&first].iter().rposition(|byte| *byte != 0).expect("it holds something");
    for at in places.filter(|at| *at <= used) {
        for cut in [true, false] {
            let mut broken = files.clone();
            let bytes = broken.get_mut(&first).expect("it is there");
            if cut {
                bytes.truncate(at);
            } else {
                bytes[at] ^= 1;
            }
            let found = read(disk_of(&broken)).map(|(batches, _)| batches.len());
            let Err(RecoverError::Damaged { file, offset, .. }) = found else { panic!("byte {at}, cut {cut}: {found:?}") };
            assert!(file == first && offset <= at as u64, "byte {at}, cut {cut}: {file} at {offset}");
        }
    }
}
