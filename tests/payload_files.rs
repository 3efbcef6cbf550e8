//! Laws of payloads that were put away: each comes back as it was, the books agree with the disk, and what is not wanted takes no more room
//! than is promised.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::Arc;

use journeyman_core::Ticket;
use journeyman_core::disk::{Disk, MemDisk};
use journeyman_core::payloads::{Numbers, PayloadError, Payloads, Put, TidyError};
use quickcheck::quickcheck;

/// Small enough that a few payloads fill it.
const SMALL_FILE: u64 = 200;
/// In front of each payload: checksum, length, ticket.
const HEADER: u64 = 16;
/// What is left to the journal.
const ROOM_LEFT: u64 = 64 << 20;

fn payloads(disk: &MemDisk) -> Payloads {
    Payloads::with_files_of(Arc::new(disk.clone()), Numbers::default(), SMALL_FILE)
}

fn put(payloads: &mut Payloads, pieces: &[(Ticket, Vec<u8>)]) -> Put {
    payloads.put(pieces.iter().map(|(ticket, payload)| (*ticket, &payload[..])))
}

fn all(payloads: &Payloads, tickets: &[Ticket]) -> Result<Vec<Vec<u8>>, PayloadError> {
    let mut found = vec![Vec::new(); tickets.len()];
    payloads.read(tickets, |at, payload| found[at] = payload.to_vec()).map(|()| found)
}

fn bytes_on(disk: &MemDisk) -> u64 {
    let names = disk.list().expect("memory lists");
    names.iter().map(|name| disk.read(name).expect("memory reads").len() as u64).sum()
}

quickcheck! {
    fn what_was_put_away_comes_back_and_takes_no_more_than_is_promised(moves: Vec<(u8, u8, u16)>) -> () {
        let disk = MemDisk::default();
        let (mut stored, mut model, mut next) = (payloads(&disk), BTreeMap::new(), 1u64);
        for (what, which, length) in moves {
            let live: Vec<Ticket> = model.keys().copied().collect();
            let one = live.get(usize::from(which) % live.len().max(1)).copied();
            match (what % 8, one) {
                (0..4, _) => {
                    let pieces: Vec<(Ticket, Vec<u8>)> = (0..u64::from(which % 5))
                        .map(|n| (Ticket(next + n), vec![which ^ n as u8; usize::from(length % 300) + n as usize]))
                        .collect();
                    next += pieces.len() as u64;
                    let put = put(&mut stored, &pieces);
                    assert!(put.failed.is_none() && put.away.iter().eq(pieces.iter().map(|(ticket, _)| ticket)));
                    model.extend(pieces);
                }
                (4 | 5, Some(ticket)) => {
                    stored.forget(ticket);
                    model.remove(&ticket);
                }
                (6, Some(ticket)) => {
                    // A second time changes nothing.
                    let put = put(&mut stored, &[(ticket, model[&ticket].clone())]);
                    assert!(put.failed.is_none() && put.away == [ticket]);
                }
                _ => while stored.tidy().expect("sound") {},
            }
            let (wanted, files) = stored.bytes_of_files();
            assert_eq!(files, bytes_on(&disk), "what the books say is what is there");
            assert_eq!(wanted, model.values().map(|payload| HEADER + payload.len() as u64).sum::<u64>());
            assert!(stored.is_untidy() || files <= 2 * wanted + SMALL_FILE, "{files} bytes for {wanted}, and nothing to do");
            // In any order.
            let mut tickets: Vec<Ticket> = model.keys().copied().collect();
            let by = usize::from(which) % tickets.len().max(1);
            tickets.rotate_left(by);
            let expected: Vec<Vec<u8>> = tickets.iter().map(|ticket| model[ticket].clone()).collect();
            assert!(all(&stored, &tickets).expect("sound") == expected);
        }
        while stored.tidy().expect("sound") {}
        let (wanted, files) = stored.bytes_of_files();
        assert!(files <= 2 * wanted + SMALL_FILE, "{files} bytes for {wanted}");
        model.keys().for_each(|ticket| stored.forget(*ticket));
        assert!(stored.is_empty() && stored.bytes_of_files().1 <= SMALL_FILE, "no more than the file that is being written");
    }

    fn what_was_changed_on_disk_is_an_error_and_never_another_payload(lengths: Vec<u8>, at: u16, with: u8) -> () {
        let disk = MemDisk::default();
        let mut stored = payloads(&disk);
        let pieces: Vec<_> = lengths.iter().zip(1..).map(|(length, n)| (Ticket(n), vec![n as u8; usize::from(*length)])).collect();
        put(&mut stored, &pieces);
        for name in disk.list().expect("memory lists") {
            let mut bytes = disk.read(&name).expect("memory reads");
            let at = usize::from(at) % bytes.len();
            bytes[at] ^= with.max(1);
            disk.put(&name, &bytes);
            let mut damaged = 0;
            for (ticket, payload) in &pieces {
                match all(&stored, &[*ticket]) {
                    Ok(found) => assert!(found == [payload.clone()]),
                    Err(PayloadError::Damaged { file, .. }) => {
                        assert_eq!(file, name);
                        damaged += 1;
                    }
                    Err(other) => panic!("{other}"),
                }
            }
            assert_eq!(damaged, 1, "the one that it hit");
            bytes[at] ^= with.max(1);
            disk.put(&name, &bytes);
        }
    }
}

#[test]
fn a_file_that_is_cut_or_gone_is_an_error() {
    let disk = MemDisk::default();
    let mut stored = payloads(&disk);
    put(&mut stored, &[(Ticket(1), vec![1; 20]), (Ticket(2), vec![2; 20])]);
    let name = disk.list().expect("memory lists").remove(0);
    let bytes = disk.read(&name).expect("memory reads");
    for length in 0..bytes.len() {
        disk.put(&name, &bytes[..length]);
        assert!(matches!(all(&stored, &[Ticket(2)]), Err(PayloadError::Damaged { .. })), "{length}");
        assert_eq!(all(&stored, &[Ticket(1)]).is_ok(), length >= 36);
    }
    disk.remove(&name).expect("it is there");
    assert!(matches!(all(&stored, &[Ticket(1)]), Err(PayloadError::Io { .. })));
    assert!(matches!(all(&stored, &[Ticket(3)]), Err(PayloadError::Unknown(Ticket(3)))));
}

#[test]
fn what_is_damaged_is_not_moved() {
    let disk = MemDisk::default();
    let mut stored = payloads(&disk);
    let pieces: Vec<_> = (1..=40).map(|n| (Ticket(n), vec![n as u8; 30])).collect();
    put(&mut stored, &pieces);
    for name in disk.list().expect("memory lists") {
        let mut bytes = disk.read(&name).expect("memory reads");
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        disk.put(&name, &bytes);
    }
    (1..=40).filter(|n| n % 5 != 0).for_each(|n| stored.forget(Ticket(n)));
    let tidied = std::iter::repeat_with(|| stored.tidy()).take(100).find(|tidied| !matches!(tidied, Ok(true)));
    assert!(matches!(tidied, Some(Err(TidyError::Lost(PayloadError::Damaged { .. })))), "{tidied:?}");
}

#[test]
fn only_its_own_leftovers_are_swept() {
    let disk = MemDisk::default();
    put(&mut payloads(&disk), &[(Ticket(1), vec![1; 20])]);
    let others = ["journeyman.lock", "00000000000000000001.segment", "00000000000000000001.segment.tmp", "1.payloads.tmp", "notes"];
    others.iter().for_each(|name| disk.put(name, b"x"));
    assert_eq!(Payloads::sweep(&disk).expect("memory sweeps"), 1);
    let mut names = disk.list().expect("memory lists");
    names.sort();
    let mut expected = others.map(str::to_owned);
    expected.sort();
    assert_eq!(names, expected);
    assert_eq!(Payloads::sweep(&disk).expect("memory sweeps"), 0);
}

#[test]
fn the_journal_keeps_its_room() {
    let disk = MemDisk::default();
    let mut stored = payloads(&disk);
    disk.set_free(Some(ROOM_LEFT));
    let refused = put(&mut stored, &[(Ticket(1), vec![1; 20])]);
    assert!(refused.away.is_empty() && refused.failed.is_some_and(|error| error.kind() == ErrorKind::StorageFull));
    assert!(disk.list().expect("memory lists").is_empty(), "not even a name");
    disk.set_free(Some(ROOM_LEFT + SMALL_FILE));
    assert_eq!(put(&mut stored, &[(Ticket(1), vec![1; 20])]).away, [Ticket(1)]);
}

#[test]
fn two_reigns_of_a_process_are_not_in_each_others_way() {
    let (disk, numbers) = (MemDisk::default(), Numbers::default());
    let mut old = Payloads::with_files_of(Arc::new(disk.clone()), numbers.clone(), SMALL_FILE);
    put(&mut old, &[(Ticket(1), vec![1; 20])]);
    Payloads::sweep(&disk).expect("memory sweeps");
    let mut new = Payloads::with_files_of(Arc::new(disk.clone()), numbers, SMALL_FILE);
    put(&mut new, &[(Ticket(1), vec![2; 20])]);
    // The old one is stuck no more, and goes on.
    put(&mut old, &(2..20).map(|n| (Ticket(n), vec![3; 100])).collect::<Vec<_>>());
    (1..20).for_each(|n| old.forget(Ticket(n)));
    assert!(all(&new, &[Ticket(1)]).expect("untouched") == [vec![2; 20]]);
}
