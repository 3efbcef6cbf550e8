//! Records as bytes: a numeric tag, then the fields in postcard. The decoder is total: any bytes give a record or an
//! error, and what it reserves is bounded by the bytes that are left.
//!
//! The bytes are frozen: a tag keeps its number and its fields for good, `Enqueue` and what `packed.rs` writes of a job among them. What
//! is to be new: for a job, an option (unknown ones are kept, and read by who knows them); for anything else, a new tag. The steps are in
//! `op.rs`.

use std::sync::Arc;

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::bytes::{number, optional, text, write};
use crate::ids::{Attempt, Epoch, Key, Seq, Ticket};
use crate::job::{Cause, End, Fault};
use crate::op::{Op, Record};
use crate::packed::{Head, Packed, Route};
use crate::time::Time;

/// Appends the bytes of `record` to `out`.
pub fn encode(record: &Record, out: &mut Vec<u8>) {
    match record {
        Record::Lead { epoch } => numbers(out, [LEAD.into(), epoch.0]),
        Record::Op(Op::Enqueue { now, due, key, job }) => {
            numbers(out, [ENQUEUE.into(), now.0, due.0]);
            optional(out, key.as_ref().map(Key::as_str));
            job.head().encode(out);
            out.extend_from_slice(job.body_bytes());
        }
        Record::Op(Op::Select { ticket }) => numbers(out, [SELECT.into(), ticket.0]),
        Record::Op(Op::Complete { ticket, attempt, end, fault: None }) => {
            numbers(out, [COMPLETE.into(), ticket.0, attempt.0.0]);
            out.push(tag_of_end(*end));
        }
        Record::Op(Op::Complete { ticket, attempt, end, fault: Some(fault) }) => {
            numbers(out, [COMPLETE_WITH_FAULT.into(), ticket.0, attempt.0.0]);
            out.push(tag_of_end(*end));
            put_fault(out, fault);
        }
        Record::Op(Op::Cancel { ticket }) => numbers(out, [CANCEL.into(), ticket.0]),
        Record::Op(Op::Requeue { ticket, attempt, due, fault }) => {
            numbers(out, [REQUEUE.into(), ticket.0, attempt.0.0, due.0]);
            put_fault(out, fault);
        }
        Record::Op(Op::Defer { ticket, attempt, due }) => numbers(out, [DEFER.into(), ticket.0, attempt.0.0, due.0]),
    }
}

fn numbers<const N: usize>(out: &mut Vec<u8>, numbers: [u64; N]) {
    numbers.into_iter().for_each(|one| number(out, one));
}

fn put_fault(out: &mut Vec<u8>, fault: &Fault) {
    out.push(fault.cause().tag());
    text(out, fault.text());
}

/// Takes the next record off the front of `bytes`.
///
/// # Errors
/// [`Malformed`] when the bytes are not what [`encode`] writes; `bytes` is then of no further use.
pub fn decode(bytes: &mut &[u8]) -> Result<Record, Malformed> {
    decode_like(bytes, None)
}

/// The same; a job of this route shares it.
pub(crate) fn decode_like(bytes: &mut &[u8], route: Option<&Arc<Route>>) -> Result<Record, Malformed> {
    let tag: u32 = take(bytes)?;
    let op = match tag {
        LEAD => return Ok(Record::Lead { epoch: Epoch(take(bytes)?) }),
        ENQUEUE => take_enqueue(bytes, route)?,
        SELECT => Op::Select { ticket: take(bytes)? },
        COMPLETE => {
            let (ticket, attempt, end): (Ticket, Seq, u8) = take(bytes)?;
            Op::Complete { ticket, attempt: Attempt(attempt), end: end_of_tag(end)?, fault: None }
        }
        COMPLETE_WITH_FAULT => {
            let (ticket, attempt, end, cause, text): (Ticket, Seq, u8, u8, String) = take(bytes)?;
            let fault = Some(fault_of(cause, text)?);
            Op::Complete { ticket, attempt: Attempt(attempt), end: end_of_tag(end)?, fault }
        }
        CANCEL => Op::Cancel { ticket: take(bytes)? },
        REQUEUE => {
            let (ticket, attempt, due, cause, text): (Ticket, Seq, Time, u8, String) = take(bytes)?;
            Op::Requeue { ticket, attempt: Attempt(attempt), due, fault: fault_of(cause, text)? }
        }
        DEFER => {
            let (ticket, attempt, due): (Ticket, Seq, Time) = take(bytes)?;
            Op::Defer { ticket, attempt: Attempt(attempt), due }
        }
        unknown => return Err(Malformed::Tag(unknown)),
    };
    Ok(Record::Op(op))
}

/// The bytes are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// A tag that this release does not know.
    #[error("unknown record tag {0}")]
    Tag(u32),
    /// The fields end too early, or are not what the tag asks for.
    #[error("the fields are not what the tag asks for")]
    Fields,
}

/// The most bytes that a record which ends an attempt can take: tags, numbers and a whole fault.
pub const LARGEST_END: u64 = Fault::TEXT_LIMIT as u64 + 64;

#[derive(Deserialize)]
struct Enqueue<'a> {
    now: Time,
    due: Time,
    key: Option<&'a str>,
    #[serde(borrow)]
    head: Head<'a>,
}

fn take_enqueue(bytes: &mut &[u8], route: Option<&Arc<Route>>) -> Result<Op, Malformed> {
    let (Enqueue { now, due, key, head }, mut rest) = postcard::take_from_bytes(bytes).map_err(|_| Malformed::Fields)?;
    let job = Packed::take(&head, route, &mut rest).ok_or(Malformed::Fields)?;
    *bytes = rest;
    Ok(Op::Enqueue { now, due, key: key.map(Key::from), job })
}

pub(crate) fn put(out: &mut Vec<u8>, tag: u32, fields: &impl Serialize) {
    write(out, &tag);
    write(out, fields);
}

pub(crate) fn take<T: DeserializeOwned>(bytes: &mut &[u8]) -> Result<T, Malformed> {
    let (value, rest) = postcard::take_from_bytes(bytes).map_err(|_| Malformed::Fields)?;
    *bytes = rest;
    Ok(value)
}

const fn tag_of_end(end: End) -> u8 {
    match end {
        End::Done => 0,
        End::Rejected => 1,
        End::Unsafe => 2,
        End::Spent => 3,
        End::Late => 4,
    }
}

fn end_of_tag(tag: u8) -> Result<End, Malformed> {
    End::ALL.into_iter().find(|end| tag_of_end(*end) == tag).ok_or(Malformed::Fields)
}

pub(crate) fn fault_of(cause: u8, text: String) -> Result<Fault, Malformed> {
    if text.len() > Fault::TEXT_LIMIT {
        return Err(Malformed::Fields);
    }
    Ok(Fault::new(Cause::of_tag(cause), text))
}

const ENQUEUE: u32 = 1;
const SELECT: u32 = 2;
const COMPLETE: u32 = 3;
const CANCEL: u32 = 4;
const REQUEUE: u32 = 5;
const DEFER: u32 = 6;
const LEAD: u32 = 7;
const COMPLETE_WITH_FAULT: u32 = 8;
