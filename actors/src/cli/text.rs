//! How things are shown: times, numbers, and JSON in which every character outside of ASCII is escaped, so that no text from outside
//! can do anything to a terminal. Decides nothing.

use std::fmt::Write;

use journeyman_core::Time;
use serde::Serialize;

/// An instant as a date in UTC, to the millisecond; beyond the year 9999 as a number.
pub(super) fn date(time: Time) -> String {
    let (days, ms) = (time.0 / DAY_MS, time.0 % DAY_MS);
    let Some((year, month, day)) = civil(days) else { return format!("{} ms", time.0) };
    let (hours, minutes, seconds) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}.{:03}Z", ms % 1000)
}

/// The date that is so many days behind 1970-01-01: years of 365.2425 days that begin in March, so that the day too many comes last.
fn civil(days: u64) -> Option<(u64, u64, u64)> {
    let days = days.checked_add(719_468)?;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    (year <= 9999).then_some((year, month, day))
}

/// One of them, or many.
pub(super) fn plural(count: u64, one: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {one}s") }
}

/// A JSON object whose fields stay in the order in which they are put.
#[derive(Default)]
pub(super) struct Object(String);

impl Object {
    pub(super) fn put(&mut self, name: &str, value: &impl Serialize) -> &mut Self {
        // None of our values can fail: they have text for keys and no numbers beyond JSON's.
        let value = serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned());
        self.put_json(name, &ascii(&value))
    }

    /// The same with what is JSON already.
    pub(super) fn put_json(&mut self, name: &str, json: &str) -> &mut Self {
        self.0.push(if self.0.is_empty() { '{' } else { ',' });
        self.0.push('"');
        self.0.push_str(name);
        self.0.push_str("\":");
        self.0.push_str(json);
        self
    }

    pub(super) fn end(&self) -> String {
        if self.0.is_empty() { "{}".to_owned() } else { format!("{}}}", self.0) }
    }
}

/// JSON values as an array.
pub(super) fn array(values: &[String]) -> String {
    format!("[{}]", values.join(","))
}

/// Outside of ASCII, JSON has characters in texts only.
fn ascii(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        if c.is_ascii() && c != '\u{7f}' {
            text.push(c);
        } else {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing to a text cannot fail.
                let _ = write!(text, "\\u{unit:04x}");
            }
        }
    }
    text
}

/// Bytes as they may be shown: text where they are text.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let cases = [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_709_164_800_000, "2024-02-29T00:00:00.000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
            (253_402_300_800_000, "253402300800000 ms"),
            (u64::MAX, "18446744073709551615 ms"),
        ];
        for (ms, shown) in cases {
            assert_eq!(date(Time(ms)), shown);
        }
    }

    #[test]
    fn json_is_ascii_and_means_the_same() {
        let hostile = "\u{1b}[2J\r\n\u{7f}\u{9b}\u{202e}é🦀\"\\";
        let mut object = Object::default();
        let json = object.put("a", &hostile).put("b", &7).end();
        assert!(json.bytes().all(|byte| (b' '..0x7f).contains(&byte)), "{json}");
        let back: serde_json::Value = serde_json::from_str(&json).expect("it is JSON");
        assert_eq!((back["a"].as_str(), back["b"].as_u64()), (Some(hostile), Some(7)));
    }
}
