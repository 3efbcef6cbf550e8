//! Writing a snapshot: a queue that does not change meanwhile, in bounded steps. Publishes nothing.

use super::meta::{self, Meta};
use super::reading::Verifying;
use super::{ChunkSink, STEP_BYTES, STEP_ENTRIES, SnapshotError, SnapshotStore, entry};
use crate::ids::{Seq, Ticket};
use crate::journal::{Boundary, Salt};
use crate::payloads::PayloadError;
use crate::queue::{EndedKey, Queue};
use crate::room::Room;

/// A snapshot that is being written.
pub struct Draft {
    sink: Box<dyn ChunkSink>,
    meta: Meta,
    cursor: Cursor,
    /// Entries that do not fill a chunk yet.
    rest: Vec<u8>,
    unsynced: usize,
}

/// What has been written.
enum Cursor {
    Nothing,
    TicketsTo(Ticket),
    KeysTo(Option<EndedKey>),
    All,
}

impl Draft {
    /// Begins the snapshot of a queue whose last record is the last one before `boundary`. `salt` must be drawn by chance.
    ///
    /// # Errors
    /// [`SnapshotError`]; what is published is as it was.
    pub fn begin(store: &dyn SnapshotStore, boundary: Boundary, salt: Salt) -> Result<Self, SnapshotError> {
        let sink = store.begin(boundary.last)?;
        Ok(Self { sink, meta: Meta::begin(boundary, salt), cursor: Cursor::Nothing, rest: Vec::new(), unsynced: 0 })
    }

    /// Writes some more of the queue, which must be the same in every step. Answers how many bytes were written, and none when all
    /// of it has been.
    ///
    /// # Errors
    /// [`SnapshotError`]; what is published is as it was.
    pub fn step(&mut self, queue: &Queue) -> Result<Option<u64>, SnapshotError> {
        self.step_within(queue, None)
    }

    /// The same of a queue whose payloads are in this room where they are not in memory.
    pub(crate) fn step_within(&mut self, queue: &Queue, room: Option<&mut Room>) -> Result<Option<u64>, SnapshotError> {
        if matches!(self.cursor, Cursor::All) {
            return Ok(None);
        }
        let before = self.meta.bytes;
        self.fill(queue, room)?;
        let mut rest = &self.rest[..];
        while let Some((body, behind)) = rest.split_at_checked(meta::BODY) {
            put(&mut *self.sink, &mut self.meta, body)?;
            rest = behind;
        }
        if matches!(self.cursor, Cursor::All) && !rest.is_empty() {
            put(&mut *self.sink, &mut self.meta, rest)?;
            rest = &[];
        }
        self.rest = rest.to_vec();
        let written = self.meta.bytes - before;
        self.unsynced += usize::try_from(written).unwrap_or(usize::MAX);
        if self.unsynced >= STEP_BYTES {
            // All of it at the end would keep the journal's syncs waiting.
            self.sink.sync()?;
            self.unsynced = 0;
        }
        Ok(Some(written))
    }

    /// Writes what is left, and the meta data last. When this returns, every byte is durable.
    ///
    /// # Errors
    /// [`SnapshotError`]; what is published is as it was.
    pub fn finish(mut self, queue: &Queue) -> Result<Finished, SnapshotError> {
        while self.step(queue)?.is_some() {}
        self.sink.finish(&self.meta.encode())?;
        Ok(Finished { meta: self.meta })
    }

    /// Makes entries until there are enough of them for one step.
    fn fill(&mut self, queue: &Queue, mut room: Option<&mut Room>) -> Result<(), SnapshotError> {
        let mut made = 0;
        let enough = |rest: &Vec<u8>, made: usize| rest.len() >= STEP_BYTES || made >= STEP_ENTRIES;
        if let Cursor::Nothing = self.cursor {
            entry::put_facts(&mut self.rest, &queue.facts());
            made += 1;
            self.cursor = Cursor::TicketsTo(Ticket(0));
        }
        if let Cursor::TicketsTo(last) = self.cursor {
            let mut tickets = queue.tickets_after(last);
            while !enough(&self.rest, made) {
                let Some((ticket, live)) = tickets.next() else {
                    self.cursor = Cursor::KeysTo(None);
                    break;
                };
                if live.job.is_away() {
                    let room = room.as_mut().ok_or(PayloadError::Unknown(ticket))?;
                    entry::put_ticket(&mut self.rest, ticket, live, &room.whole(ticket, &live.job)?);
                } else {
                    entry::put_ticket(&mut self.rest, ticket, live, &live.job);
                }
                made += 1;
                self.cursor = Cursor::TicketsTo(ticket);
            }
        }
        if let Cursor::KeysTo(reached) = &mut self.cursor {
            let mut reached = reached.take();
            let from = reached.clone();
            let mut keys = queue.ended_keys_after(from.as_ref());
            let over = loop {
                if enough(&self.rest, made) {
                    break false;
                }
                let Some(key) = keys.next() else { break true };
                entry::put_ended_key(&mut self.rest, key);
                made += 1;
                reached = Some(key.clone());
            };
            self.cursor = if over { Cursor::All } else { Cursor::KeysTo(reached) };
        }
        self.meta.entries += made as u64;
        Ok(())
    }
}

fn put(sink: &mut dyn ChunkSink, meta: &mut Meta, body: &[u8]) -> Result<(), SnapshotError> {
    let chunk = meta.frame(body);
    sink.put(&chunk)
}

/// A draft that is written and durable, and that nobody has read yet.
#[derive(Debug)]
pub struct Finished {
    pub(super) meta: Meta,
}

impl Finished {
    /// The last record of the state in it.
    #[must_use]
    pub const fn seq(&self) -> Seq {
        self.meta.boundary.last
    }

    /// The bytes of its chunks.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.meta.bytes
    }

    /// Begins to read it back.
    ///
    /// # Errors
    /// [`SnapshotError`]; what is published is as it was.
    pub fn verify(self, store: &dyn SnapshotStore) -> Result<Verifying, SnapshotError> {
        Verifying::begin(store, self)
    }
}
