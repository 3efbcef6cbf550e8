//! `dump`: the history of the queue, one record a line. What jobs brought with them is shown only on request.

use std::io::{self, Write};

use clap::Args;
use journeyman_core::ids::Escaped;
use journeyman_core::inspect::{Event, Sort, history};
use journeyman_core::{Cause, Fault, Job, Key, Op, Record, Seq};

use super::text::{Object, date, hex};
use super::{End, Looked, Place, refused, status_for};

#[derive(Debug, Args)]
pub(super) struct Options {
    #[command(flatten)]
    place: Place,

    /// Only records from this number on
    #[arg(long, value_name = "SEQ", default_value_t = 1)]
    from: u64,

    /// Shows what jobs brought with them too: payloads, keys, values of meta, and the texts of their faults
    #[arg(long)]
    payloads: bool,
}

pub(super) fn run(options: &Options, out: &mut dyn Write, err: &mut dyn Write) -> Result<u8, End> {
    let looked = Looked::at(&options.place.dir)?;
    let mut said = Ok(());
    let findings = history(&looked.disk, &*looked.snapshots, &mut |event| {
        if event.seq >= Seq(options.from) {
            said =
                if options.place.json { writeln!(out, "{}", json(&event, options.payloads)) } else { line(&event, options.payloads, out) };
        }
        said.is_ok()
    });
    let findings = findings.map_err(|error| refused(&error))?;
    let status = status_for(findings.iter().map(|finding| finding.sort).max().unwrap_or(Sort::Note));
    said.and_then(|()| out.flush()).map_err(|error| End::Unheard(status, error))?;
    for finding in findings {
        // The records are the answer: that somebody cannot hear this changes nothing.
        let _ = writeln!(err, "journeyman: {finding}");
    }
    Ok(status)
}

fn line(event: &Event, contents: bool, out: &mut dyn Write) -> io::Result<()> {
    let ticket = ticket_of(event).map_or_else(|| "-".to_owned(), |ticket| ticket.to_string());
    let (op, details) = details(&event.record, contents);
    writeln!(out, "{:>8}  {}  {op:<8}  {ticket:>8}  {details}", event.seq, date(event.time))
}

fn ticket_of(event: &Event) -> Option<u64> {
    match &event.record {
        Record::Op(Op::Enqueue { .. }) => event.issued.map(|ticket| ticket.0),
        Record::Op(
            Op::Select { ticket }
            | Op::Complete { ticket, .. }
            | Op::Cancel { ticket }
            | Op::Requeue { ticket, .. }
            | Op::Defer { ticket, .. },
        ) => Some(ticket.0),
        Record::Lead { .. } => None,
    }
}

const fn name_of(record: &Record) -> &'static str {
    match record {
        Record::Lead { .. } => "lead",
        Record::Op(Op::Enqueue { .. }) => "enqueue",
        Record::Op(Op::Select { .. }) => "select",
        Record::Op(Op::Complete { .. }) => "complete",
        Record::Op(Op::Cancel { .. }) => "cancel",
        Record::Op(Op::Requeue { .. }) => "requeue",
        Record::Op(Op::Defer { .. }) => "defer",
    }
}

fn details(record: &Record, contents: bool) -> (&'static str, String) {
    let details = match record {
        Record::Lead { epoch } => format!("epoch={epoch}"),
        Record::Op(Op::Enqueue { due, key, job, .. }) => {
            format!("{} due={}", job_details(&job.unpack(), key.as_ref(), contents), date(*due))
        }
        Record::Op(Op::Select { .. } | Op::Cancel { .. }) => String::new(),
        Record::Op(Op::Complete { attempt, end, fault, .. }) => {
            format!(
                "attempt={attempt} end={}{}",
                end.as_str(),
                fault.as_ref().map_or_else(String::new, |fault| fault_details(fault, contents))
            )
        }
        Record::Op(Op::Requeue { attempt, due, fault, .. }) => {
            format!("attempt={attempt} due={}{}", date(*due), fault_details(fault, contents))
        }
        Record::Op(Op::Defer { attempt, due, .. }) => format!("attempt={attempt} due={}", date(*due)),
    };
    (name_of(record), details)
}

fn job_details(job: &Job, key: Option<&Key>, contents: bool) -> String {
    let mut text = format!("kind={}", job.kind);
    if let Some(target) = &job.target {
        text += &format!(" target={target}");
    }
    text += &format!(" priority={} version={} codec={}", job.priority, job.version, job.codec.0);
    for (option, number) in &job.options.0 {
        text += &format!(" option{option}={number}");
    }
    let Some(payload) = contents.then(|| text_or_hex(&job.payload)) else {
        let (key, meta) = (key.map_or(0, |key| key.as_str().len()), job.meta.len());
        return format!("{text} key={key} bytes meta={meta} pairs payload={} bytes", job.payload.len());
    };
    if let Some(key) = key {
        text += &format!(" key={}", Escaped(key.as_str()));
    }
    for (name, value) in &job.meta {
        text += &format!(" meta.{}={}", Escaped(name), Escaped(value));
    }
    format!("{text} payload={payload}")
}

fn text_or_hex(bytes: &[u8]) -> String {
    std::str::from_utf8(bytes).map_or_else(|_| format!("hex:{}", hex(bytes)), |text| Escaped(text).to_string())
}

fn fault_details(fault: &Fault, contents: bool) -> String {
    let text = if contents { Escaped(fault.text()).to_string() } else { format!("{} bytes", fault.text().len()) };
    format!(" cause={} text={text}", cause_name(fault.cause()))
}

fn cause_name(cause: Cause) -> String {
    if let Cause::Other(number) = cause { number.to_string() } else { cause.as_str().to_owned() }
}

/// One object a line. `docs/operations.md` names its fields, and a reader that was written from the page of the format prints the same.
fn json(event: &Event, contents: bool) -> String {
    let mut object = Object::default();
    object.put("seq", &event.seq).put("time", &event.time).put("epoch", &event.epoch).put("op", &name_of(&event.record));
    match &event.record {
        Record::Lead { .. } => {}
        Record::Op(op) => {
            object.put("ticket", &ticket_of(event));
            put_op(&mut object, op, contents);
        }
    }
    object.end()
}

fn put_op(object: &mut Object, op: &Op, contents: bool) {
    match op {
        Op::Enqueue { now, due, key, job } => {
            object.put("now", now).put("due", due);
            put_job(object, &job.unpack(), key.as_ref(), contents);
        }
        Op::Select { .. } | Op::Cancel { .. } => {}
        Op::Complete { attempt, end, fault, .. } => {
            object.put("attempt", &attempt.0).put("end", &end.as_str());
            if let Some(fault) = fault {
                put_fault(object, fault, contents);
            }
        }
        Op::Requeue { attempt, due, fault, .. } => {
            object.put("attempt", &attempt.0).put("due", due);
            put_fault(object, fault, contents);
        }
        Op::Defer { attempt, due, .. } => {
            object.put("attempt", &attempt.0).put("due", due);
        }
    }
}

fn put_job(object: &mut Object, job: &Job, key: Option<&Key>, contents: bool) {
    object.put("kind", &job.kind).put("version", &job.version).put("codec", &job.codec.0).put("target", &job.target);
    object.put("priority", &job.priority).put("options", &job.options.0);
    object.put("key_bytes", &key.map(|key| key.as_str().len()));
    object.put("meta_pairs", &job.meta.len()).put("payload_bytes", &job.payload.len());
    if contents {
        object.put("key", &key.map(Key::as_str)).put("meta", &job.meta);
        match std::str::from_utf8(&job.payload) {
            Ok(text) => object.put("payload", &text),
            Err(_) => object.put("payload_hex", &hex(&job.payload)),
        };
    }
}

fn put_fault(object: &mut Object, fault: &Fault, contents: bool) {
    object.put("cause", &fault.cause().tag()).put("text_bytes", &fault.text().len());
    if contents {
        object.put("text", &fault.text());
    }
}
