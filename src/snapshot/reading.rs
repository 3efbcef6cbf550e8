//! Reading a snapshot, in bounded steps: into a queue, or to see that it says what was to be written. Total: any bytes give a
//! queue or a typed error, and what is reserved is bounded by the bytes that are there. Changes nothing.

use super::draft::Finished;
use super::entry::{self, Entry};
use super::meta::{Meta, Start};
use super::{ChunkSource, STEP_BYTES, SnapshotError, SnapshotStore};
use crate::bugs::{self, Bug};
use crate::ids::{Seq, Ticket};
use crate::journal::Boundary;
use crate::payloads::PayloadError;
use crate::queue::{EndedKey, Phase, Queue};
use crate::room::Room;

/// A snapshot that was read in whole.
#[derive(Debug)]
pub struct Loaded {
    /// The state.
    pub queue: Queue,
    /// Where in the journal it stands.
    pub boundary: Boundary,
    /// The bytes of its chunks.
    pub bytes: u64,
}

/// A published snapshot that is being read into a queue.
pub struct Loading {
    entries: Entries,
    queue: Option<Queue>,
}

impl Loading {
    /// Opens the snapshot of this seq.
    ///
    /// # Errors
    /// [`SnapshotError`].
    pub fn begin(store: &dyn SnapshotStore, seq: Seq) -> Result<Self, SnapshotError> {
        let entries = Entries::open(store.name(seq), store.open(seq)?, seq)?;
        Ok(Self { entries, queue: None })
    }

    /// Reads some more. Answers how many bytes, and none when all has been read.
    ///
    /// # Errors
    /// [`SnapshotError`].
    pub fn step(&mut self) -> Result<Option<u64>, SnapshotError> {
        let (queue, seq) = (&mut self.queue, self.entries.meta.boundary.last);
        self.entries.step(&mut |entry| match (entry, queue.as_mut()) {
            (Entry::Facts(facts), None) if facts.last == seq => {
                *queue = Some(Queue::of_facts(facts));
                Ok(())
            }
            (Entry::Ticket(_, live), Some(_)) if matches!(live.phase(), Phase::Running { attempt } if attempt.0 > seq) => {
                Err("an attempt that had begun by then")
            }
            (Entry::Ticket(ticket, live), Some(queue)) => queue.take_in(ticket, live),
            (Entry::EndedKey(ended), Some(queue)) => queue.take_in_ended(ended),
            (Entry::Facts(_), _) | (_, None) => Err("the facts once, first, and of this record"),
        })
    }

    /// What has been read so far.
    pub(crate) const fn queue(&mut self) -> Option<&mut Queue> {
        self.queue.as_mut()
    }

    /// The state, when all has been read.
    ///
    /// # Errors
    /// [`SnapshotError`].
    pub fn finish(mut self) -> Result<Loaded, SnapshotError> {
        while self.step()?.is_some() {}
        let Entries { name, meta, .. } = self.entries;
        match self.queue.filter(Queue::is_whole) {
            Some(queue) => Ok(Loaded { queue, boundary: meta.boundary, bytes: meta.bytes }),
            None => Err(SnapshotError::damaged(name, "every ticket that was issued, living or counted as ended")),
        }
    }
}

/// A draft that is being read back and compared with what was to be written.
pub struct Verifying {
    entries: Entries,
    finished: Finished,
    next: Next,
}

/// What the draft must say next.
enum Next {
    Facts,
    Ticket(Ticket),
    EndedKey(Option<EndedKey>),
}

impl Verifying {
    pub(super) fn begin(store: &dyn SnapshotStore, finished: Finished) -> Result<Self, SnapshotError> {
        let seq = finished.seq();
        let entries = Entries::open(store.name(seq), store.open_draft(&finished)?, seq)?;
        if entries.meta != finished.meta {
            return Err(SnapshotError::damaged(entries.name, "the meta data that was written"));
        }
        Ok(Self { entries, finished, next: Next::Facts })
    }

    /// Reads some more and compares it with the queue, which must be the one that was written. Answers how many bytes, and none
    /// when all has been read.
    ///
    /// # Errors
    /// [`SnapshotError`].
    pub fn step(&mut self, queue: &Queue) -> Result<Option<u64>, SnapshotError> {
        self.step_within(queue, None)
    }

    /// The same with a queue whose payloads are in this room where they are not in memory.
    pub(crate) fn step_within(&mut self, queue: &Queue, mut room: Option<&mut Room>) -> Result<Option<u64>, SnapshotError> {
        self.entries.over |= bugs::on(Bug::NoVerifyBeforeDelete);
        let (next, mut lost) = (&mut self.next, None);
        let step = self.entries.step(&mut |entry| match next.is(entry, queue, room.as_deref_mut()) {
            Ok(true) => Ok(()),
            Ok(false) => Err("what was written"),
            Err(error) => {
                lost = Some(error);
                Err("what was written")
            }
        });
        lost.map_or(step, |error| Err(error.into()))
    }

    /// The proof that all of it was read and is what was written. What else the draft could hold has been counted.
    ///
    /// # Errors
    /// [`SnapshotError`].
    pub fn finish(mut self, queue: &Queue) -> Result<Verified, SnapshotError> {
        while self.step(queue)?.is_some() {}
        if self.entries.read.entries != queue.pieces() + 1 && !bugs::on(Bug::NoVerifyBeforeDelete) {
            return Err(SnapshotError::damaged(self.entries.name, "all tickets and keys"));
        }
        Ok(Verified { seq: self.finished.seq(), bytes: self.finished.bytes() })
    }
}

impl Next {
    /// Whether the entry is the next piece of the queue.
    fn is(&mut self, entry: Entry, queue: &Queue, room: Option<&mut Room>) -> Result<bool, PayloadError> {
        Ok(match entry {
            Entry::Facts(facts) => {
                let first = matches!(std::mem::replace(self, Self::Ticket(Ticket(0))), Self::Facts);
                first && facts == queue.facts()
            }
            Entry::Ticket(ticket, live) => {
                let Self::Ticket(last) = std::mem::replace(self, Self::Ticket(ticket)) else { return Ok(false) };
                match queue.tickets_after(last).next() {
                    Some((other, kept)) if kept.job.is_away() => {
                        let room = room.ok_or(PayloadError::Unknown(other))?;
                        let mut whole = kept.clone();
                        whole.job = room.whole(other, &whole.job)?;
                        (other, whole) == (ticket, live)
                    }
                    found => found == Some((ticket, &live)),
                }
            }
            Entry::EndedKey(ended) => {
                let last = match std::mem::replace(self, Self::EndedKey(Some(ended.clone()))) {
                    Self::EndedKey(last) => last,
                    Self::Ticket(last) if queue.tickets_after(last).next().is_none() => None,
                    Self::Ticket(_) | Self::Facts => return Ok(false),
                };
                queue.ended_keys_after(last.as_ref()).next() == Some(&ended)
            }
        })
    }
}

/// The proof that a draft was read back in whole and is what was to be written: what it takes to publish one.
#[derive(Debug)]
pub struct Verified {
    seq: Seq,
    bytes: u64,
}

impl Verified {
    /// The last record of the state in it.
    #[must_use]
    pub const fn seq(&self) -> Seq {
        self.seq
    }

    /// The bytes of its chunks.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// The entries of a snapshot, in their order.
struct Entries {
    name: String,
    source: Box<dyn ChunkSource>,
    meta: Meta,
    /// What has been read, to be compared with what the meta data say.
    read: Meta,
    /// The beginning of an entry whose end is in the next chunk.
    rest: Vec<u8>,
    over: bool,
}

impl Entries {
    fn open(name: String, mut source: Box<dyn ChunkSource>, seq: Seq) -> Result<Self, SnapshotError> {
        match Meta::read(&source.meta()?) {
            Start::Meta(meta) if meta.boundary.last == seq => {
                let read = Meta::begin(meta.boundary, meta.salt);
                Ok(Self { name, source, meta, read, rest: Vec::new(), over: false })
            }
            Start::Meta(meta) => Err(SnapshotError::damaged(name, format!("the snapshot of record {seq}, not of {}", meta.boundary.last))),
            Start::Newer(needs) => Err(SnapshotError::Newer { name, needs }),
            Start::Bad => Err(SnapshotError::damaged(name, "meta data with a right checksum")),
        }
    }

    fn step(&mut self, each: &mut dyn FnMut(Entry) -> Result<(), &'static str>) -> Result<Option<u64>, SnapshotError> {
        if self.over {
            return Ok(None);
        }
        let before = self.read.bytes;
        while self.read.bytes - before < STEP_BYTES as u64 {
            if self.read.chunks == self.meta.chunks {
                self.end()?;
                break;
            }
            self.chunk(each)?;
        }
        Ok(Some(self.read.bytes - before))
    }

    fn chunk(&mut self, each: &mut dyn FnMut(Entry) -> Result<(), &'static str>) -> Result<(), SnapshotError> {
        let Ok(index) = u32::try_from(self.read.chunks) else { return Err(self.damaged("fewer chunks")) };
        let Some(chunk) = self.source.chunk(index)? else { return Err(self.damaged(&format!("chunk {index} of {}", self.meta.chunks))) };
        let Some(body) = self.meta.unframe(index, &chunk) else {
            return Err(self.damaged(&format!("chunk {index} with a right checksum")));
        };
        self.rest.extend(body);
        self.read.count(&chunk);
        let mut rest = &self.rest[..];
        while let Some(entry) = entry::take(&mut rest) {
            self.read.entries += 1;
            let taken = entry.map_err(|malformed| malformed.to_string()).and_then(|entry| each(entry).map_err(str::to_owned));
            taken.map_err(|what| SnapshotError::damaged(&self.name, format!("sound entries in chunk {index}: {what}")))?;
        }
        let left = rest.len();
        self.rest.drain(..self.rest.len() - left);
        Ok(())
    }

    /// Nothing may be missing, and nothing left over.
    fn end(&mut self) -> Result<(), SnapshotError> {
        self.over = true;
        let behind = match u32::try_from(self.read.chunks) {
            Ok(index) => self.source.chunk(index)?,
            Err(_) => None,
        };
        if self.read != self.meta || !self.rest.is_empty() || behind.is_some() || self.read.entries == 0 {
            return Err(self.damaged("the counts and the digest that the meta data say"));
        }
        Ok(())
    }

    fn damaged(&self, expected: &str) -> SnapshotError {
        SnapshotError::damaged(&self.name, expected)
    }
}
