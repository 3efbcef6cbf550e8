//! Decide, then append: the queue's state as decided, the batch being filled, and the one at the journal. A decided record
//! has its seq at once and its effect leaves later, when the journal has said that it is durable. Knows no ticket's story.

use actix::Recipient;
use journeyman_core::journal::Batch;
use journeyman_core::queue::{Change, Misfit};
use journeyman_core::{Epoch, Now, Queue, Record, Seq, Ticket, Time, record};

use crate::messages::{Append, AppendReply, Appended};

pub(crate) struct Writer {
    queue: Queue,
    /// The epoch of this process, once its Lead is decided.
    lead: Option<Epoch>,
    filling: Option<Batch>,
    /// The last record of the batch at the journal, and when it went there.
    in_flight: Option<(Seq, Time)>,
    in_flight_bytes: u64,
    /// Bytes of the last batch that set out, up to a bound: the next one takes about as many.
    usual_bytes: usize,
    durable: Seq,
    written: bool,
    batch_bytes: u64,
    journals: Journals,
    me: Recipient<Appended>,
}

/// Who makes batches durable.
pub(crate) struct Journals {
    /// On a thread of its own.
    pub far: Recipient<Append>,
    /// On this thread, which stands still meanwhile.
    pub near: Option<Recipient<Append>>,
}

impl Writer {
    /// `durable` is how far the recovered records are proved to be on disk.
    pub(crate) const fn new(queue: Queue, durable: Seq, batch_bytes: u64, journals: Journals, me: Recipient<Appended>) -> Self {
        Self {
            queue,
            lead: None,
            filling: None,
            in_flight: None,
            in_flight_bytes: 0,
            usual_bytes: 0,
            durable,
            written: false,
            batch_bytes,
            journals,
            me,
        }
    }

    /// The state as decided; what it says may not be on disk yet.
    pub(crate) const fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Lets go of the payload of a ticket, which is on disk somewhere else. Answers false when no such ticket lives.
    pub(crate) fn let_go(&mut self, ticket: Ticket) -> bool {
        self.queue.let_go(ticket)
    }

    /// Everything up to here is on disk.
    pub(crate) const fn durable(&self) -> Seq {
        self.durable
    }

    /// Whether a record of at most so many bytes goes into the batch that is being filled.
    pub(crate) fn fits(&self, bytes: u64) -> bool {
        self.filling_bytes() + bytes + LEAD_BYTES <= self.batch_bytes
    }

    /// Bytes decided and not yet counted by the journal.
    pub(crate) fn unwritten_bytes(&self) -> u64 {
        self.filling_bytes() + self.in_flight_bytes
    }

    /// Decides a record: the state moves, and the record is in the batch. The first one of a process is led by its Lead.
    pub(crate) fn decide(&mut self, now: Now, record: &Record) -> Result<(Seq, Change), Misfit> {
        if self.lead.is_none() {
            self.lead(now)?;
        }
        self.push(now, record)
    }

    fn lead(&mut self, now: Now) -> Result<(), Misfit> {
        let epoch = self.queue.epoch().next();
        self.lead = Some(epoch);
        self.push(now, &Record::Lead { epoch }).map(drop)
    }

    /// What was recovered may not be proved to be on disk, and then no answer may tell of it. An append proves it, so when
    /// somebody waits and nothing else is to be appended, the bare Lead is.
    pub(crate) fn prove(&mut self, now: Now) {
        if self.lead.is_none() && !self.is_settled() {
            let led = self.lead(now);
            debug_assert!(led.is_ok(), "a higher epoch always leads");
        }
    }

    /// Sees to it that something is appended: what is on its way, or else one more Lead, which changes nothing.
    pub(crate) fn begin_anew(&mut self, now: Now) {
        if self.is_flushed() {
            let led = self.lead(now);
            debug_assert!(led.is_ok(), "a higher epoch always leads");
        }
    }

    fn push(&mut self, now: Now, record: &Record) -> Result<(Seq, Change), Misfit> {
        let seq = self.queue.last().next();
        let epoch = self.lead.unwrap_or_default();
        let time = self.filling.as_ref().map_or(now.wall, |batch| batch.time);
        // Refused, it leaves no batch behind that would wait for records.
        let change = self.queue.step(seq, time, record)?;
        let usual = self.usual_bytes;
        let batch = self.filling.get_or_insert_with(|| Batch { epoch, first: seq, count: 0, time, body: Vec::with_capacity(usual) });
        record::encode(record, &mut batch.body);
        batch.count += 1;
        Ok((seq, change))
    }

    /// Whether the journal has taken something of this process.
    pub(crate) fn has_written(&self) -> bool {
        self.written
    }

    /// Sends what has been decided to the journal, to the one on this thread if `near` and if there is one; unless a batch is there already.
    /// Answers whether it did.
    pub(crate) fn flush(&mut self, now: Now, near: bool) -> bool {
        if self.in_flight.is_some() {
            return false;
        }
        let Some(batch) = self.filling.take_if(|batch| batch.count > 0) else { return false };
        self.in_flight = Some((batch.last(), now.steady));
        self.in_flight_bytes = batch.body.len() as u64;
        self.usual_bytes = batch.body.len().min(MOST_RESERVED);
        let journal = self.journals.near.as_ref().filter(|_| near).unwrap_or(&self.journals.far);
        journal.do_send(Append { batch, reply: AppendReply::to(self.me.clone()) });
        true
    }

    /// The journal has said so.
    pub(crate) fn is_durable(&mut self, upto: Seq) {
        self.durable = self.durable.max(upto);
        self.written = true;
        if self.in_flight.is_some_and(|(last, _)| last <= upto) {
            self.in_flight = None;
            self.in_flight_bytes = 0;
        }
    }

    /// Since when the journal has a batch.
    pub(crate) fn waiting_since(&self) -> Option<Time> {
        self.in_flight.map(|(_, since)| since)
    }

    /// Whether the batch that is being filled holds nothing yet.
    pub(crate) const fn is_empty(&self) -> bool {
        self.filling.is_none()
    }

    /// Whether nothing that this process decided is still on its way.
    pub(crate) const fn is_flushed(&self) -> bool {
        self.filling.is_none() && self.in_flight.is_none()
    }

    /// Whether everything that was decided, now or before, is on disk.
    pub(crate) fn is_settled(&self) -> bool {
        self.durable == self.queue.last()
    }

    fn filling_bytes(&self) -> u64 {
        self.filling.as_ref().map_or(0, |batch| batch.body.len() as u64)
    }
}

/// Room that is made for a batch before its first record is there.
const MOST_RESERVED: usize = 64 << 10;
/// The most that a Lead takes: a tag and a number.
const LEAD_BYTES: u64 = 16;
