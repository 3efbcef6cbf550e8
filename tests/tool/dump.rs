//! What `dump` shows: every record that can be read, in order, past damage too; what jobs brought with them on request only; and nothing
//! that could write into a terminal.

use std::fs;

use journeyman_core::journal::JournalLimits;
use journeyman_core::{Cause, Codec, Fault, Job, Key, Kind as JobKind, Op, Options, Packed, Target, Ticket, Time};

use super::{Answer, flip, name, tool, used};
use crate::kit::{Kind, Life, Place, kinds};

fn seqs(answer: &Answer) -> Vec<u64> {
    answer.out.lines().map(|line| line.split_whitespace().next().unwrap().parse().unwrap()).collect()
}

#[test]
fn every_record_is_one_line_in_order() {
    let used = used(Kind::Plain, 0, 6);
    let answer = tool(used.path(), "dump", &[]);
    assert_eq!((answer.status, answer.err.as_str()), (0, ""));
    let last = used.last().last().0;
    assert_eq!(seqs(&answer), (1..=last).collect::<Vec<_>>());
    let lines: Vec<_> = answer.out.lines().take(4).collect();
    assert!(lines[0].contains("1970-01-01T00:00:01.000Z  lead             -  epoch=1"), "{}", lines[0]);
    assert!(lines[1].contains("enqueue          1  kind=kind 2 target=target 0 priority=5"), "{}", lines[1]);
    assert!(lines[3].contains("select           2  "), "{}", lines[3]);
    let from = tool(used.path(), "dump", &["--from", "20"]);
    assert_eq!(seqs(&from), (20..=last).collect::<Vec<_>>());
    let json = tool(used.path(), "dump", &["--json"]);
    for (line, seq) in json.out.lines().zip(1..) {
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(event["seq"], seq);
    }
}

#[test]
fn tickets_are_counted_on_from_a_snapshot() {
    for kind in kinds() {
        let used = used(kind, 2, 6);
        let answer = tool(used.path(), "dump", &["--json"]);
        assert_eq!(answer.status, 0, "{}", answer.err);
        let events: Vec<serde_json::Value> = answer.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(events[0]["seq"].as_u64().unwrap() > 1, "the beginning was compacted away");
        let issued: Vec<_> =
            events.iter().filter(|event| event["op"] == "enqueue").map(|event| event["ticket"].as_u64().unwrap()).collect();
        let last = used.last().tickets().last().unwrap().0.0 + 1;
        assert_eq!(issued, (last + 1 - issued.len() as u64..=last).collect::<Vec<_>>());
    }
}

#[test]
fn what_can_be_read_behind_damage_is_shown_and_the_damage_is_told() {
    let used = used(Kind::Plain, 0, 30);
    let segments = used.segments();
    flip(&segments[1], 96 + 70);
    fs::remove_file(&segments[3]).unwrap();
    let answer = tool(used.path(), "dump", &["--json"]);
    assert_eq!((answer.status, answer.err.lines().count()), (1, 2), "{}", answer.err);
    assert!(answer.err.contains(&name(&segments[1])) && answer.err.contains(&name(&segments[3])), "{}", answer.err);
    let events: Vec<serde_json::Value> = answer.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let seqs: Vec<_> = events.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert!(seqs.is_sorted() && *seqs.last().unwrap() == used.last().last().0);
    let missing = (1..=used.last().last().0).filter(|seq| !seqs.contains(seq)).collect::<Vec<_>>();
    assert!(missing.len() > 3, "one batch and a segment: {missing:?}");
    for event in events.iter().filter(|event| event["op"] == "enqueue") {
        let known = event["ticket"].as_u64().is_some();
        assert_eq!(known, event["seq"].as_u64().unwrap() < missing[0], "a ticket that cannot be known is not guessed: {event}");
    }
}

/// A directory in which everything that comes from outside says the same.
fn said(text: &str) -> Place {
    let place = Place::new(Kind::Plain);
    let mut life = Life::with(&place.rig(), JournalLimits { segment_bytes: 1 << 20, batch_bytes: 1 << 20 });
    let job = Job {
        kind: JobKind::new(format!("kind{text}")),
        version: 1,
        codec: Codec::JSON,
        target: Some(Target::new(format!("target{text}"))),
        priority: 1,
        options: Options::default(),
        meta: vec![(format!("canary name{text}"), format!("canary value{text}"))],
        payload: format!("canary payload{text}").into_bytes(),
    };
    life.op(Op::Enqueue { now: Time(1), due: Time(2), key: Some(Key::new(format!("canary key{text}"))), job: Packed::from(job) });
    let attempt = life.select(Ticket(1));
    life.op(Op::Requeue { ticket: Ticket(1), attempt, due: Time(3), fault: Fault::new(Cause::Failed, format!("canary fault{text}")) });
    place
}

#[test]
fn what_jobs_brought_with_them_is_shown_on_request_only() {
    let Place { dir, disk, .. } = said("");
    drop(disk);
    for (command, more) in [("dump", &[][..]), ("dump", &["--json"]), ("verify", &[]), ("verify", &["--json"])] {
        let answer = tool(dir.path(), command, more);
        assert!(!answer.out.contains("canary") && !answer.err.contains("canary"), "{answer:?}");
    }
    for more in [&["--payloads"][..], &["--payloads", "--json"]] {
        let answer = tool(dir.path(), "dump", more);
        for part in ["payload", "name", "value", "key", "fault"] {
            assert!(answer.out.contains(&format!("canary {part}")), "{part} in {answer:?}");
        }
    }
}

/// The tool itself refuses to print a line with a control character: see `tool`.
#[test]
fn no_text_from_outside_can_write_into_a_terminal() {
    let Place { dir, disk, .. } = said("\u{1b}[2J\r\n\u{202e}\u{85}\u{2028}é🦀");
    drop(disk);
    let answer = tool(dir.path(), "dump", &["--payloads"]);
    assert_eq!(answer.out.lines().count(), 4, "one line a record: {}", answer.out);
    for part in ["kind", "target", "canary name", "canary value", "canary key", "canary payload", "canary fault"] {
        assert!(answer.out.contains(&format!("{part}\\u{{1b}}[2J\\r\\n\\u{{202e}}\\u{{85}}\\u{{2028}}é🦀")), "{part} in {}", answer.out);
    }
    let json = tool(dir.path(), "dump", &["--payloads", "--json"]);
    assert!(json.out.is_ascii());
    let event: serde_json::Value = serde_json::from_str(json.out.lines().nth(1).unwrap()).unwrap();
    assert_eq!(event["payload"], "canary payload\u{1b}[2J\r\n\u{202e}\u{85}\u{2028}é🦀", "and means the same");
    assert_eq!(tool(dir.path(), "verify", &[]).status, 0);
}
