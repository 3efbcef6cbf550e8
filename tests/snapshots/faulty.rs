//! A store around another one, whose calls fail when they are told to, or that a newer release has written. What every store must bear,
//! whatever it is made of.

use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use journeyman_core::Seq;
use journeyman_core::compaction::Progress;
use journeyman_core::snapshot::{ChunkSink, ChunkSource, Finished, SnapshotError, SnapshotStore, Verified};
use journeyman_core::store::OpenError;

use super::kit::{Life, Place, Rig, kinds};

#[test]
fn after_any_call_of_the_store_that_failed_once_nothing_is_lost_and_the_next_try_succeeds() {
    for kind in kinds() {
        let mut failures = 0;
        for at in 1.. {
            let place = Place::new(kind);
            let fault = Fault::default();
            let rig = around(&place, &fault);
            let mut life = Life::begin(&rig);
            for _ in 0..2 {
                life.busy(4);
                life.compact();
            }
            life.busy(4);
            fault.arm(at);
            let answer = life.try_to_compact();
            if fault.calls() < at {
                assert!(matches!(answer, Ok(Progress::Done(_))));
                break;
            }
            fault.arm(0);
            failures += 1;
            assert!(answer.is_err(), "{kind:?}, call {at}");
            assert_eq!(rig.queue(), life.queue, "{kind:?}, call {at}");
            life.busy(1);
            assert!(matches!(life.try_to_compact(), Ok(Progress::Done(_))), "{kind:?}, call {at}");
            assert_eq!((rig.queue(), rig.seqs().len()), (life.queue, 2), "{kind:?}, call {at}");
        }
        println!("{kind:?}: {failures} calls failed");
        assert!(failures >= 12, "{failures}");
    }
}

#[test]
fn a_newer_snapshot_of_either_store_is_refused_as_such() {
    for kind in kinds() {
        let place = Place::new(kind);
        let fault = Fault::default();
        let rig = around(&place, &fault);
        let mut life = Life::begin(&rig);
        for _ in 0..2 {
            life.busy(4);
            life.compact();
        }
        fault.newer.store(7, Ordering::Relaxed);
        let Err(OpenError::Snapshot(SnapshotError::Newer { name, needs: 7 })) = rig.open() else { panic!("{kind:?}") };
        assert_eq!(name, rig.snapshots().name(life.queue.last()));
    }
}

#[test]
fn a_draft_that_was_garbled_on_its_way_is_not_published_and_nothing_is_removed() {
    for kind in kinds() {
        let place = Place::new(kind);
        let fault = Fault::default();
        let rig = around(&place, &fault);
        let mut life = Life::begin(&rig);
        for _ in 0..2 {
            life.busy(4);
            life.compact();
        }
        life.busy(4);
        life.journal.rotate().expect("the disk takes it");
        let (seqs, segments) = (rig.seqs(), segments_of(&rig));
        fault.garbles.store(1, Ordering::Relaxed);
        let answer = life.try_to_compact();
        assert!(answer.as_ref().is_err_and(|said| said.contains("damaged")), "{kind:?}: {answer:?}");
        assert_eq!((rig.seqs(), segments_of(&rig)), (seqs, segments), "{kind:?}");
        fault.garbles.store(0, Ordering::Relaxed);
        assert_eq!(rig.queue(), life.queue, "{kind:?}");
        assert!(matches!(life.try_to_compact(), Ok(Progress::Done(_))), "{kind:?}");
        assert_eq!(rig.queue(), life.queue, "{kind:?}");
    }
}

fn segments_of(rig: &Rig) -> Vec<String> {
    rig.names().into_iter().filter(|name| name.ends_with(".segment")).collect()
}

/// Something that is no draft bears the name of one: a file that should be a directory goes; a directory that should be a file stays.
#[test]
fn what_is_in_the_place_of_a_draft_is_swept_away_or_is_an_error_of_the_disk() {
    for kind in kinds() {
        let place = Place::new(kind);
        let mut life = Life::begin(&place.rig());
        life.busy(4);
        let store = place.rig().snapshots();
        let draft = place.dir.path().join(store.name(life.queue.last()) + ".tmp");
        let in_the_way = if kind == super::kit::Kind::Sled { fs::write(&draft, b"") } else { fs::create_dir(&draft) };
        in_the_way.expect("it is made");
        let answer = life.try_to_compact();
        assert_eq!(answer.is_ok(), kind == super::kit::Kind::Sled, "{kind:?}: {answer:?}");
        assert_eq!(draft.exists(), kind == super::kit::Kind::Plain);
        assert_eq!(place.rig().queue(), life.queue);
    }
}

fn around(place: &Place, fault: &Fault) -> Rig {
    let (rig, fault) = (place.rig(), fault.clone());
    Rig::new(rig.disk.clone(), move || Box::new(Faulty { inner: rig.snapshots(), fault: fault.clone() }))
}

/// The n-th call fails, and only that one.
#[derive(Clone, Default)]
struct Fault {
    calls: Arc<AtomicU64>,
    at: Arc<AtomicU64>,
    /// Whether a bit of what is written is another than was asked for.
    garbles: Arc<AtomicU64>,
    /// The least format that the meta data ask for; 0 when they say what was written.
    newer: Arc<AtomicU64>,
}

impl Fault {
    fn arm(&self, at: u64) {
        self.calls.store(0, Ordering::Relaxed);
        self.at.store(at, Ordering::Relaxed);
    }

    fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    fn call(&self) -> Result<(), SnapshotError> {
        let number = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        if number != self.at.load(Ordering::Relaxed) {
            return Ok(());
        }
        Err(SnapshotError::io("a snapshot")(io::Error::other("a call that was told to fail")))
    }
}

struct Faulty {
    inner: Box<dyn SnapshotStore>,
    fault: Fault,
}

impl Faulty {
    fn source(&self, inner: Box<dyn ChunkSource>) -> Box<dyn ChunkSource> {
        Box::new(FaultySource { inner, fault: self.fault.clone() })
    }
}

impl SnapshotStore for Faulty {
    fn name(&self, seq: Seq) -> String {
        self.inner.name(seq)
    }

    fn list(&self) -> Result<Vec<Seq>, SnapshotError> {
        self.fault.call()?;
        self.inner.list()
    }

    fn sweep(&self) -> Result<(), SnapshotError> {
        self.fault.call()?;
        self.inner.sweep()
    }

    fn begin(&self, seq: Seq) -> Result<Box<dyn ChunkSink>, SnapshotError> {
        self.fault.call()?;
        Ok(Box::new(FaultySink { inner: self.inner.begin(seq)?, fault: self.fault.clone() }))
    }

    fn open(&self, seq: Seq) -> Result<Box<dyn ChunkSource>, SnapshotError> {
        self.fault.call()?;
        self.inner.open(seq).map(|source| self.source(source))
    }

    fn open_draft(&self, draft: &Finished) -> Result<Box<dyn ChunkSource>, SnapshotError> {
        self.fault.call()?;
        self.inner.open_draft(draft).map(|source| self.source(source))
    }

    /// It fails when it has done its work: nobody knows whether it is published.
    fn publish(&self, draft: Verified) -> Result<(), SnapshotError> {
        self.inner.publish(draft)?;
        self.fault.call()
    }

    fn remove(&self, seq: Seq) -> Result<(), SnapshotError> {
        self.fault.call()?;
        self.inner.remove(seq)
    }
}

struct FaultySink {
    inner: Box<dyn ChunkSink>,
    fault: Fault,
}

impl ChunkSink for FaultySink {
    fn put(&mut self, chunk: &[u8]) -> Result<(), SnapshotError> {
        self.fault.call()?;
        let mut chunk = chunk.to_vec();
        chunk[100] ^= u8::try_from(self.fault.garbles.load(Ordering::Relaxed)).expect("a bit");
        self.inner.put(&chunk)
    }

    fn sync(&mut self) -> Result<(), SnapshotError> {
        self.fault.call()?;
        self.inner.sync()
    }

    fn finish(self: Box<Self>, meta: &[u8]) -> Result<(), SnapshotError> {
        self.fault.call()?;
        self.inner.finish(meta)
    }
}

struct FaultySource {
    inner: Box<dyn ChunkSource>,
    fault: Fault,
}

impl ChunkSource for FaultySource {
    fn meta(&mut self) -> Result<Vec<u8>, SnapshotError> {
        self.fault.call()?;
        let mut meta = self.inner.meta()?;
        let newer = self.fault.newer.load(Ordering::Relaxed);
        if newer > 0 {
            meta[10] = u8::try_from(newer).expect("small");
            let sum = crc32c::crc32c(&meta[..124]);
            meta[124..].copy_from_slice(&sum.to_le_bytes());
        }
        Ok(meta)
    }

    fn chunk(&mut self, index: u32) -> Result<Option<Vec<u8>>, SnapshotError> {
        self.fault.call()?;
        self.inner.chunk(index)
    }
}
