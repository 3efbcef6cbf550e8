//! `verify`: all that is there, and all that is wrong with it.

use std::io::{self, Write};

use journeyman_core::End as JobEnd;
use journeyman_core::ids::Escaped;
use journeyman_core::inspect::{Finding, Inspection, Sort, Standing};

use super::text::{Object, array, date, plural};
use super::{End, Looked, Place, refused, status_for};

pub(super) fn run(place: &Place, out: &mut dyn Write, _: &mut dyn Write) -> Result<u8, End> {
    let looked = Looked::at(&place.dir)?;
    let mut found = Inspection::of(&looked.disk, &*looked.snapshots).map_err(|error| refused(&error))?;
    if !looked.view.has_lock() {
        found.findings.push(Finding {
            sort: Sort::Damage,
            file: "journeyman.lock".to_owned(),
            offset: None,
            what: "expected this file".to_owned(),
            means: "a start takes a directory without it for somebody else's; an empty file of this name will do".to_owned(),
        });
    }
    let status = status_for(found.sort());
    let said = if place.json { writeln!(out, "{}", json(&found)) } else { table(&found, out) };
    said.and_then(|()| out.flush()).map_err(|error| End::Unheard(status, error))?;
    Ok(status)
}

fn table(found: &Inspection, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}", verdict(found))?;
    let range = match found.first {
        Some(first) => format!("{}, from {first} to {}", plural(found.records, "record"), found.last),
        None => format!("none; the last one known is {}", found.last),
    };
    writeln!(out, "  records    {range}{}", found.written.map_or_else(String::new, |time| format!(", written until {}", date(time))))?;
    writeln!(out, "  segments   {} with {} bytes", found.segments.0, found.segments.1)?;
    for kept in &found.snapshots {
        let state = kept.bytes.map_or_else(|| "not sound".to_owned(), |bytes| format!("sound, {bytes} bytes"));
        writeln!(out, "  snapshot   {}: {state}", Escaped(&kept.name))?;
    }
    match &found.start {
        Ok(standing) => standing_table(standing, out)?,
        Err(why) => writeln!(out, "  a start    would refuse: {}", Escaped(why))?,
    }
    for finding in &found.findings {
        writeln!(out, "  {:<9}  {finding}", word(finding.sort))?;
    }
    Ok(())
}

fn verdict(found: &Inspection) -> &'static str {
    match (found.sort(), &found.start) {
        (Sort::Note, _) => "sound",
        (Sort::Damage, Ok(_)) => "damaged, but a start would make up for it",
        (Sort::Damage, Err(_)) => "damaged",
        (Sort::Newer, _) => "of a newer release, or of another build: not judged",
        (Sort::Unread, _) => "not judged: the disk refused to read",
    }
}

const fn word(sort: Sort) -> &'static str {
    match sort {
        Sort::Note => "note",
        Sort::Damage => "damage",
        Sort::Newer => "newer",
        Sort::Unread => "unread",
    }
}

/// What a directory comes to, for people.
pub(super) fn standing_table(standing: &Standing, out: &mut dyn Write) -> io::Result<()> {
    let from = standing.snapshot.map_or_else(|| "the first record".to_owned(), |seq| format!("the snapshot of record {seq}"));
    writeln!(out, "  a start    would begin with {from} and end at record {} of epoch {}", standing.last, standing.epoch)?;
    let Standing { pending, running, ends, .. } = standing;
    write!(out, "  jobs       {pending} pending, {running} running, {} ended", ends.total())?;
    let counts = JobEnd::ALL.map(|end| (end.as_str(), ends.of(end))).into_iter().chain([("cancelled", ends.cancelled)]);
    let counts: Vec<String> = counts.filter(|(_, count)| *count > 0).map(|(end, count)| format!("{count} {end}")).collect();
    writeln!(out, "{}", if counts.is_empty() { String::new() } else { format!(": {}", counts.join(", ")) })
}

fn json(found: &Inspection) -> String {
    let mut object = Object::default();
    object.put("sound", &found.is_sound()).put("verdict", &verdict(found));
    object.put("records", &found.records).put("first", &found.first).put("last", &found.last).put("written", &found.written);
    object.put("segments", &found.segments.0).put("segment_bytes", &found.segments.1);
    let snapshots: Vec<String> = found
        .snapshots
        .iter()
        .map(|kept| Object::default().put("seq", &kept.seq).put("name", &kept.name).put("bytes", &kept.bytes).end())
        .collect();
    object.put_json("snapshots", &array(&snapshots));
    match &found.start {
        Ok(standing) => object.put_json("start", &standing_json(standing)),
        Err(why) => object.put_json("start", &Object::default().put("refused", why).end()),
    };
    object.put_json("findings", &findings_json(&found.findings)).end()
}

/// What a directory comes to, for programs.
pub(super) fn standing_json(standing: &Standing) -> String {
    let Standing { snapshot, last, epoch, pending, running, ends } = standing;
    let mut object = Object::default();
    object.put("snapshot", snapshot).put("last", last).put("epoch", epoch).put("pending", pending).put("running", running);
    for end in JobEnd::ALL {
        object.put(end.as_str(), &ends.of(end));
    }
    object.put("cancelled", &ends.cancelled).end()
}

pub(super) fn findings_json(findings: &[Finding]) -> String {
    let one = |finding: &Finding| {
        let mut object = Object::default();
        object.put("sort", &word(finding.sort)).put("file", &finding.file).put("offset", &finding.offset);
        object.put("what", &finding.what).put("means", &finding.means).end()
    };
    array(&findings.iter().map(one).collect::<Vec<_>>())
}
