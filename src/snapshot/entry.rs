//! The pieces of a queue as bytes: a length, a numeric tag, then the fields in postcard. The decoder is total.

use serde::{Deserialize, Serialize};

use crate::ids::{Attempt, Epoch, Key, Seq, Ticket};
use crate::packed::{Head, Packed};
use crate::queue::{EndedKey, Ends, Facts, Live, Phase};
use crate::record::{self, Malformed};
use crate::time::Time;

/// One piece of a queue. The facts come first, then the tickets in the order of their numbers, then the keys of ended tickets in
/// the order in which their windows end.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Entry {
    Facts(Facts),
    Ticket(Ticket, Live),
    EndedKey(EndedKey),
}

pub(super) fn put_facts(out: &mut Vec<u8>, facts: &Facts) {
    let Ends { done, rejected, unsafe_to_repeat, spent, late, cancelled } = facts.ends;
    let ends = [done, rejected, unsafe_to_repeat, spent, late, cancelled];
    measured(out, |out| record::put(out, FACTS, &(facts.last, facts.epoch, facts.issued, ends)));
}

/// `job` is that of `live`, with its payload.
pub(super) fn put_ticket(out: &mut Vec<u8>, ticket: Ticket, live: &Live, job: &Packed) {
    let (tag, phase) = match live.phase() {
        Phase::Pending { due } => (PENDING, due.0),
        Phase::Running { attempt } => (RUNNING, attempt.0.0),
    };
    let fields = TicketFields {
        ticket,
        start: live.start(),
        rank: live.rank(),
        phase,
        failures: live.failures(),
        fault: live.fault().map(|fault| (fault.cause().tag(), fault.text())),
        key: live.key().map(Key::as_str),
        head: job.head(),
    };
    measured(out, |out| {
        record::put(out, tag, &fields);
        out.extend_from_slice(job.body_bytes());
    });
}

pub(super) fn put_ended_key(out: &mut Vec<u8>, (until, ticket, key): &EndedKey) {
    measured(out, |out| record::put(out, ENDED_KEY, &(until, ticket, key.as_str())));
}

/// Takes the first entry off the front of `bytes`; none when the rest of it is still to come.
pub(super) fn take(bytes: &mut &[u8]) -> Option<Result<Entry, Malformed>> {
    let (length, behind) = bytes.split_first_chunk()?;
    let (fields, rest) = behind.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?)?;
    *bytes = rest;
    Some(decode(fields))
}

fn decode(mut bytes: &[u8]) -> Result<Entry, Malformed> {
    let tag: u32 = record::take(&mut bytes)?;
    match tag {
        FACTS => {
            let (last, epoch, issued, ends): (Seq, Epoch, Ticket, [u64; 6]) = take_whole(bytes)?;
            let [done, rejected, unsafe_to_repeat, spent, late, cancelled] = ends;
            let ends = Ends { done, rejected, unsafe_to_repeat, spent, late, cancelled };
            Ok(Entry::Facts(Facts { last, epoch, issued, ends }))
        }
        PENDING => take_ticket(bytes, |due| Phase::Pending { due: Time(due) }),
        RUNNING => take_ticket(bytes, |seq| Phase::Running { attempt: Attempt(Seq(seq)) }),
        ENDED_KEY => {
            let (until, ticket, key): (Time, Ticket, &str) = take_whole(bytes)?;
            Ok(Entry::EndedKey((until, ticket, Key::new(key))))
        }
        unknown => Err(Malformed::Tag(unknown)),
    }
}

fn take_ticket(bytes: &[u8], phase: impl FnOnce(u64) -> Phase) -> Result<Entry, Malformed> {
    let (fields, mut body): (TicketFields<'_>, _) = postcard::take_from_bytes(bytes).map_err(|_| Malformed::Fields)?;
    let job = Packed::take(&fields.head, None, &mut body).ok_or(Malformed::Fields)?;
    if !body.is_empty() {
        return Err(Malformed::Fields);
    }
    let fault = fields.fault.map(|(cause, text)| record::fault_of(cause, text.to_owned())).transpose()?;
    let live = Live::restored(job, fields.start, phase(fields.phase), |history| {
        (history.rank, history.failures) = (fields.rank, fields.failures);
        (history.fault, history.key) = (fault, fields.key.map(Key::new));
    });
    Ok(Entry::Ticket(fields.ticket, live.ok_or(Malformed::Fields)?))
}

fn take_whole<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Malformed> {
    let (value, rest) = postcard::take_from_bytes(bytes).map_err(|_| Malformed::Fields)?;
    if rest.is_empty() { Ok(value) } else { Err(Malformed::Fields) }
}

/// Puts the length of what `put` writes in front of it.
fn measured(out: &mut Vec<u8>, put: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend([0; LENGTH]);
    put(out);
    // A record has a limit far below 4 GiB; a longer one would be refused when it is read back, before it is published.
    let length = u32::try_from(out.len() - start - LENGTH).unwrap_or(u32::MAX);
    if let Some(place) = out.get_mut(start..start + LENGTH) {
        place.copy_from_slice(&length.to_le_bytes());
    }
}

#[derive(Serialize, Deserialize)]
struct TicketFields<'a> {
    ticket: Ticket,
    start: Time,
    rank: Time,
    /// The due of a pending ticket, the attempt of a running one.
    phase: u64,
    failures: u32,
    #[serde(borrow)]
    fault: Option<(u8, &'a str)>,
    key: Option<&'a str>,
    #[serde(borrow)]
    head: Head<'a>,
}

const LENGTH: usize = 4;
const FACTS: u32 = 1;
const PENDING: u32 = 2;
const RUNNING: u32 = 3;
const ENDED_KEY: u32 = 4;
