//! Proves that the disk in memory forgets at a crash exactly what was not synced: the other crash tests stand on it.

use std::collections::BTreeMap;

use journeyman_core::disk::{Disk, DiskFile, MemDisk};
use quickcheck::{Arbitrary, Gen};

use crate::support::{Image, holds, image};

#[test]
fn a_crash_leaves_what_was_synced_and_nothing_else() {
    holds(500, |calls: Vec<Call>| {
        let disk = MemDisk::default();
        let mut naive = Naive::default();
        let mut open: Vec<Box<dyn DiskFile>> = Vec::new();
        for call in &calls {
            match *call {
                Call::Create(name) => open.push(disk.create(&name_of(name)).expect("memory takes it")),
                Call::Write(n, offset, length) if !open.is_empty() => {
                    let file = usize::from(n) % open.len();
                    open[file].write_at(offset.into(), &vec![n | 1; length.into()]).expect("memory takes it");
                }
                Call::Sync(n) if !open.is_empty() => {
                    let file = usize::from(n) % open.len();
                    open[file].sync().expect("memory takes it");
                }
                Call::Rename(from, to) => {
                    let there = naive.names.contains_key(&name_of(from));
                    assert_eq!(disk.rename(&name_of(from), &name_of(to)).is_ok(), there);
                }
                Call::Remove(name) => {
                    let there = naive.names.contains_key(&name_of(name));
                    assert_eq!(disk.remove(&name_of(name)).is_ok(), there);
                }
                Call::SyncNames => disk.sync_names().expect("memory takes it"),
                Call::Crash => disk.crash(),
                Call::Write(..) | Call::Sync(_) => {}
            }
            naive.follow(call);
            assert_eq!(image(&disk), naive.image());
        }
    });
}

#[test]
fn a_sync_that_fails_makes_nothing_durable_however_often() {
    let disk = MemDisk::default();
    let mut file = disk.create("a").expect("memory takes it");
    disk.sync_names().expect("memory takes it");
    file.write_at(0, b"kept").expect("memory takes it");
    file.sync().expect("memory takes it");
    disk.fail_syncs(true);
    file.write_at(2, b"lost").expect("memory takes it");
    disk.rename("a", "b").expect("memory takes it");
    assert!(file.sync().is_err() && file.sync().is_err() && disk.sync_names().is_err());
    assert_eq!(disk.syncs(), 3, "failed ones are counted");
    assert_eq!(disk.read("b").expect("it can still be read"), b"kelost");
    disk.crash();
    assert_eq!(image(&disk), Image::from([("a".to_owned(), b"kept".to_vec())]));
}

/// The same disk, with a whole copy of everything at each sync.
#[derive(Default)]
struct Naive {
    /// Each file as it is, and as it was at its last sync.
    files: Vec<(Vec<u8>, Vec<u8>)>,
    names: BTreeMap<String, usize>,
    synced: BTreeMap<String, usize>,
}

impl Naive {
    fn follow(&mut self, call: &Call) {
        let count = self.files.len();
        match *call {
            Call::Create(name) => {
                self.files.push(Default::default());
                self.names.insert(name_of(name), count);
            }
            Call::Write(..) | Call::Sync(_) if count == 0 => {}
            Call::Write(n, offset, length) => {
                let (now, _) = &mut self.files[usize::from(n) % count];
                let end = usize::from(offset) + usize::from(length);
                now.resize(now.len().max(end), 0);
                now[offset.into()..end].fill(n | 1);
            }
            Call::Sync(n) => {
                let (now, safe) = &mut self.files[usize::from(n) % count];
                safe.clone_from(now);
            }
            Call::Rename(from, to) => {
                if let Some(file) = self.names.remove(&name_of(from)) {
                    self.names.insert(name_of(to), file);
                }
            }
            Call::Remove(name) => drop(self.names.remove(&name_of(name))),
            Call::SyncNames => self.synced.clone_from(&self.names),
            Call::Crash => {
                self.names.clone_from(&self.synced);
                self.files.iter_mut().for_each(|(now, safe)| now.clone_from(safe));
            }
        }
    }

    fn image(&self) -> Image {
        self.names.iter().map(|(name, file)| (name.clone(), self.files[*file].0.clone())).collect()
    }
}

#[derive(Clone, Copy, Debug)]
enum Call {
    Create(u8),
    Write(u8, u8, u8),
    Sync(u8),
    Rename(u8, u8),
    Remove(u8),
    SyncNames,
    Crash,
}

impl Arbitrary for Call {
    fn arbitrary(g: &mut Gen) -> Self {
        let (n, offset, length) = (u8::arbitrary(g), u8::arbitrary(g) % 40, u8::arbitrary(g) % 20);
        match u8::arbitrary(g) % 16 {
            0..=2 => Self::Create(n),
            3..=8 => Self::Write(n, offset, length),
            9..=10 => Self::Sync(n),
            11 => Self::Rename(n, offset),
            12 => Self::Remove(n),
            13..=14 => Self::SyncNames,
            _ => Self::Crash,
        }
    }
}

fn name_of(n: u8) -> String {
    format!("file {}", n % 4)
}
