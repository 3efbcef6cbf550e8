//! Proves the stories that `tests/scripts/*.txt` tell: ops in, answers and the state out, in plain text. A script says what
//! is expected and is itself the whole of the test: the runner makes the text again and compares.
//!
//! A line is an op and what the queue answers to it. `at` sets the time of the records that follow, `holder` asks who
//! holds a key, and `state` shows everything, in lines that begin with a space. To write a new story, write its ops and
//! run it: the failure prints the whole text as the queue would have it.

use std::fmt::{Display, Write};
use std::fs;
use std::path::Path;
use std::str::SplitWhitespace;

use journeyman_core::queue::{Change, Phase};
use journeyman_core::{
    Attempt, Cause, Codec, End, Epoch, Fault, Job, Key, Kind, Op, Options, Packed, Queue, Record, Seq, Target, Ticket, Time,
};

#[test]
fn every_script_tells_what_happens() {
    let mut wrong = Vec::new();
    let mut scripts = 0;
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts")).expect("the scripts are there") {
        let path = entry.expect("it can be listed").path();
        let expected = fs::read_to_string(&path).expect("a script is text");
        let actual = play(&expected);
        if actual != expected {
            println!("{}: the queue would have it like this:\n\n{actual}", path.display());
            wrong.push(path);
        }
        scripts += 1;
    }
    assert!(scripts >= 8, "only {scripts} scripts were found");
    assert_eq!(wrong, [] as [&Path; 0], "printed above");
}

#[test]
fn a_script_that_expects_something_else_fails() {
    assert_eq!(play("select 1   -> attempt 1\n"), "select 1   -> refused: no such ticket lives\n");
    assert_eq!(play("state\n  nonsense\n"), format!("state\n{}", show(&Queue::default())));
}

/// The text with the answers and states as they are.
fn play(script: &str) -> String {
    let mut text = String::new();
    let mut queue = Queue::default();
    let mut now = Time(0);
    for line in script.lines().filter(|line| !line.starts_with(' ')) {
        let (asked, expected) = line.split_once("->").map_or((line, None), |(asked, answer)| (asked, Some(answer)));
        let mut words = asked.split_whitespace();
        let answer = match words.next() {
            None | Some("#") => None,
            Some("state") => Some(format!("\n{}", show(&queue).trim_end())),
            Some("at") => {
                now = Time(number(&mut words));
                None
            }
            Some("holder") => {
                let key = Key::new(words.next().expect("a key"));
                Some(queue.holder(&key, now).map_or_else(|| "nobody".to_owned(), |ticket| format!("ticket {ticket}")))
            }
            Some("record") => {
                let seq = Seq(number(&mut words));
                let op = words.next().expect("an op");
                Some(step(&mut queue, seq, now, op, &mut words))
            }
            Some(op) => {
                let seq = queue.last().next();
                Some(step(&mut queue, seq, now, op, &mut words))
            }
        };
        assert_eq!(words.next().filter(|_| !line.starts_with('#')), None, "words left over: {line}");
        match answer {
            None => writeln!(text, "{line}"),
            Some(state) if state.starts_with('\n') => writeln!(text, "{line}{state}"),
            Some(answer) if expected.is_some() => writeln!(text, "{asked}-> {answer}"),
            Some(answer) => writeln!(text, "{asked} -> {answer}"),
        }
        .expect("a string takes all");
    }
    text
}

fn step(queue: &mut Queue, seq: Seq, now: Time, op: &str, words: &mut SplitWhitespace<'_>) -> String {
    match queue.step(seq, now, &record(op, words, now)) {
        Err(misfit) => format!("refused: {misfit}"),
        Ok(Change::Enqueued(ticket)) => format!("ticket {ticket}"),
        Ok(Change::Selected(attempt)) => format!("attempt {attempt}"),
        Ok(Change::Completed(end)) => format!("gone: {}", end.as_str()),
        Ok(Change::Cancelled { was_running: true }) => "gone: cancelled while it ran".to_owned(),
        Ok(Change::Cancelled { was_running: false }) => "gone: cancelled".to_owned(),
        Ok(Change::Requeued) => "pending, one failure more".to_owned(),
        Ok(Change::Deferred) => "pending".to_owned(),
        Ok(Change::Led) => "leads".to_owned(),
    }
}

/// The record that the words ask for. Each op takes its ticket first, and what else it needs by name.
fn record(op: &str, words: &mut SplitWhitespace<'_>, now: Time) -> Record {
    if op == "lead" {
        return Record::Lead { epoch: Epoch(number(words)) };
    }
    if op == "enqueue" {
        return Record::Op(enqueue(words, now));
    }
    let ticket = Ticket(number(words));
    let mut named = Named::read(words);
    let op = match op {
        "select" => Op::Select { ticket },
        "cancel" => Op::Cancel { ticket },
        "complete" => {
            let word = named.take("as").expect("an end");
            let end = End::ALL.into_iter().find(|end| end.as_str() == word).expect("one of the ends");
            let fault = named.take("fault").map(|text| Fault::new(Cause::Failed, text));
            Op::Complete { ticket, attempt: named.attempt(), end, fault }
        }
        "requeue" => {
            let fault = Fault::new(Cause::Failed, named.take("fault").expect("a fault"));
            Op::Requeue { ticket, attempt: named.attempt(), due: named.time("due").expect("a due"), fault }
        }
        "defer" => Op::Defer { ticket, attempt: named.attempt(), due: named.time("due").expect("a due") },
        other => panic!("no such op: {other}"),
    };
    named.end();
    Record::Op(op)
}

fn enqueue(words: &mut SplitWhitespace<'_>, now: Time) -> Op {
    let kind = Kind::new(words.next().expect("a kind"));
    let mut named = Named::read(words);
    let mut options = Options::default();
    if let Some(Time(window)) = named.time("window") {
        options.set(Options::KEY_WINDOW, window);
    }
    let job = Job {
        kind,
        version: 1,
        codec: Codec::JSON,
        target: named.take("to").map(Target::new),
        priority: named.take("priority").map_or(Job::DEFAULT_PRIORITY, |text| text.parse().expect("a priority")),
        options,
        meta: Vec::new(),
        payload: named.take("payload").unwrap_or_default().as_bytes().to_vec(),
    };
    let (due, key) = (named.time("due").unwrap_or(now), named.take("key").map(Key::new));
    named.end();
    Op::Enqueue { now, due, key, job: Packed::from(job) }
}

/// What stands behind an op: pairs of a name and a word.
struct Named<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Named<'a> {
    fn read(words: &mut SplitWhitespace<'a>) -> Self {
        let mut pairs = Vec::new();
        while let Some(name) = words.next() {
            pairs.push((name, words.next().unwrap_or_else(|| panic!("nothing behind {name}"))));
        }
        Self(pairs)
    }

    fn take(&mut self, name: &str) -> Option<&'a str> {
        let at = self.0.iter().position(|(other, _)| *other == name)?;
        Some(self.0.remove(at).1)
    }

    fn time(&mut self, name: &str) -> Option<Time> {
        self.take(name).map(|text| Time(text.parse().expect("a time")))
    }

    fn attempt(&mut self) -> Attempt {
        Attempt(Seq(self.time("attempt").expect("an attempt").0))
    }

    fn end(&self) {
        assert_eq!(self.0, [], "words that mean nothing here");
    }
}

fn number(words: &mut SplitWhitespace<'_>) -> u64 {
    words.next().and_then(|word| word.parse().ok()).expect("a number")
}

/// Everything that a queue says of itself.
fn show(queue: &Queue) -> String {
    let mut text = String::new();
    let mut line = |line: &dyn Display| writeln!(text, "  {line}").expect("a string takes all");
    for (ticket, live) in queue.tickets() {
        let phase = match live.phase() {
            Phase::Pending { due } => format!("pending, due {}", due.0),
            Phase::Running { attempt } => format!("running, attempt {attempt}"),
        };
        let job = live.job.unpack();
        let target = job.target.as_ref().map(|target| format!(" to {target}")).unwrap_or_default();
        let key = live.key().map(|key| format!(", key {}", key.as_str())).unwrap_or_default();
        let fault = live.fault().map(|fault| format!(", last fault: {}", fault.text())).unwrap_or_default();
        let place = format!("priority {}, rank {}, start {}", job.priority, live.rank().0, live.start().0);
        line(&format_args!("ticket {ticket}: {}{target}, {phase}, {place}, failures {}{key}{fault}", job.kind, live.failures()));
    }
    let ends = queue.ends();
    let ended = End::ALL.map(|end| (ends.of(end), end.as_str())).into_iter().chain([(ends.cancelled, "cancelled")]);
    let ended: Vec<_> = ended.filter(|(number, _)| *number > 0).map(|(number, end)| format!("{number} {end}")).collect();
    let ended = if ended.is_empty() { "none".to_owned() } else { ended.join(", ") };
    let (pending, running, keys, weight) = (queue.pending(), queue.running(), queue.keys(), queue.weight());
    line(&format_args!("{pending} pending, {running} running, ended: {ended}; {keys} keys, {weight} bytes"));
    line(&format_args!("record {}, epoch {}", queue.last(), queue.epoch()));
    text
}
