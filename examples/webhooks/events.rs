//! What is delivered: events with their payloads as JSON text, from a file or made from a seed. Never changes a payload:
//! receivers of webhooks check signatures over its bytes.

use std::fs;
use std::path::Path;

use journeyman::Limits;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// The events, never none.
pub(crate) struct Events(Vec<Event>);

/// One event. A line of the input is one.
#[derive(Deserialize)]
pub(crate) struct Event {
    #[serde(rename = "event")]
    pub name: String,
    pub payload: Box<RawValue>,
}

impl Events {
    /// The events of the file, or those of the seed.
    ///
    /// # Errors
    /// In one line: the file, the number of the line, and what is wrong with it.
    pub(crate) fn new(input: Option<&Path>, seed: u64) -> Result<Self, String> {
        input.map_or_else(|| Ok(Self::invent(seed)), Self::read)
    }

    /// The event of job `n`.
    pub(crate) fn of(&self, n: usize) -> &Event {
        &self.0[n % self.0.len()]
    }

    fn read(path: &Path) -> Result<Self, String> {
        let bytes = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let text = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
        if text.is_empty() {
            return Err(format!("{}: it holds no event", path.display()));
        }
        let parse = |(at, line)| parse(line).map_err(|why| format!("{}: line {}: {why}", path.display(), at + 1));
        text.split(|byte| *byte == b'\n').enumerate().map(parse).collect::<Result<_, _>>().map(Self)
    }

    fn invent(seed: u64) -> Self {
        let mut dice = fastrand::Rng::with_seed(seed);
        Self((0..INVENTED).map(|number| invent(&mut dice, number)).collect())
    }
}

fn parse(line: &[u8]) -> Result<Event, String> {
    if !line.trim_ascii_start().starts_with(b"{") {
        return Err("expected an object {event, payload}".to_owned());
    }
    let event: Event = serde_json::from_slice(line).map_err(|error| explain(&error))?;
    let limit = usize::try_from(Limits::default().record_bytes).unwrap_or(usize::MAX) - ROOM_BESIDE;
    match event.name.len() + event.payload.get().len() {
        bytes if bytes > limit => Err(format!("the event takes {bytes} bytes, beyond the limit of {limit}")),
        _ => Ok(event),
    }
}

/// The parser counts lines within what it was given: one. That number would only mislead.
fn explain(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let what = text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what);
    format!("{what} (column {})", error.column())
}

/// An order of a shop, 1 to 30 KiB of it.
fn invent(dice: &mut fastrand::Rng, number: usize) -> Event {
    let lines: Vec<_> = (0..dice.usize(10..280)).map(|_| line(dice)).collect();
    let payload = json!({ "order": number, "lines": lines }).to_string();
    let name = ["order.placed", "order.paid", "order.sent"][number % 3].to_owned();
    Event { name, payload: RawValue::from_string(payload).expect("the text of a JSON value is JSON") }
}

fn line(dice: &mut fastrand::Rng) -> Value {
    let article = format!("{:012x}", dice.u64(..1 << 48));
    json!({ "article": article, "pieces": dice.u8(1..9), "price_cents": dice.u32(99..99_999), "note": word(dice) })
}

fn word(dice: &mut fastrand::Rng) -> String {
    (0..dice.usize(8..40)).map(|_| dice.lowercase()).collect()
}

/// As many as a busy day has kinds of payload; more would only take longer to make.
const INVENTED: usize = 200;
/// What a job has beside its event: names, a key, an address.
const ROOM_BESIDE: usize = 4096;
