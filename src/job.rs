//! A job as the machine knows it: opaque payload bytes and what must be stored beside them.
//! Nothing here looks into a payload, and no `Debug` shows one.

use std::fmt;

use serde::ser::SerializeStruct;
use serde::{Deserialize, Serialize, Serializer};

use crate::ids::{Kind, Target};
use crate::time::Span;

/// What was asked for. Stored whole in the Enqueue record and never changed after.
#[derive(Clone, PartialEq, Eq)]
pub struct Job {
    /// The job type.
    pub kind: Kind,
    /// The version of the payload's schema.
    pub version: u16,
    /// How the payload is encoded.
    pub codec: Codec,
    /// What the job calls, and so whose breaker guards it.
    pub target: Option<Target>,
    /// Least first; [`Job::DEFAULT_PRIORITY`] unless asked otherwise.
    pub priority: u8,
    /// What was resolved at enqueue.
    pub options: Options,
    /// Ordered pairs that travel with the job, trace context among them.
    pub meta: Vec<(String, String)>,
    /// The encoded arguments. Opaque: no record, no fold, no log ever looks inside.
    pub payload: Vec<u8>,
}

impl Job {
    /// The priority of a job that asked for none: room above and below.
    pub const DEFAULT_PRIORITY: u8 = 100;

    /// The bytes that this job is charged against the limit of held bytes.
    #[must_use]
    pub fn weight(&self) -> u64 {
        let meta: usize = self.meta.iter().map(|(name, value)| name.len() + value.len()).sum();
        (self.payload.len() + meta) as u64
    }
}

/// Payload, meta values and options may be private: this shows their sizes only.
impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job")
            .field("kind", &self.kind)
            .field("version", &self.version)
            .field("codec", &self.codec)
            .field("target", &self.target)
            .field("priority", &self.priority)
            .field("meta", &format_args!("{} pairs", self.meta.len()))
            .field("payload", &format_args!("{} bytes", self.payload.len()))
            .finish_non_exhaustive()
    }
}

/// How a payload is encoded. A number this build does not know is kept as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Codec(pub u8);

impl Codec {
    /// JSON text: people can read stored payloads, and types can grow fields.
    pub const JSON: Self = Self(0);
    /// postcard: small and fast, but every field counts, in order.
    pub const POSTCARD: Self = Self(1);
    /// Bytes as they are.
    pub const RAW: Self = Self(2);
}

/// What was resolved at enqueue, as pairs of tag and number. Pairs with unknown tags are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options(pub Vec<(u32, u64)>);

impl Options {
    /// Overrides the policy's attempts.
    pub const ATTEMPTS: u32 = 1;
    /// Overrides the policy's base, in milliseconds.
    pub const BASE: u32 = 2;
    /// Overrides the policy's cap, in milliseconds.
    pub const CAP: u32 = 3;
    /// Overrides the policy's deadline, in milliseconds after the first due; [`Options::NONE`] for no deadline.
    pub const DEADLINE: u32 = 4;
    /// Overrides the policy's cap on a target's retry-after, in milliseconds.
    pub const RETRY_AFTER_CAP: u32 = 5;
    /// Overrides the policy's timeout of an attempt, in milliseconds.
    pub const TIMEOUT: u32 = 6;
    /// How long the key stays taken after the job's end, in milliseconds. Absent: [`DEFAULT_KEY_WINDOW`].
    pub const KEY_WINDOW: u32 = 7;
    /// 1 when the due was asked for as an instant: it moves with the wall clock.
    pub const DUE_IS_ABSOLUTE: u32 = 8;
    /// The number that stands for "none" where an option can be switched off.
    pub const NONE: u64 = u64::MAX;

    /// The number stored under `tag`; the first one when there are several.
    #[must_use]
    pub fn get(&self, tag: u32) -> Option<u64> {
        self.0.iter().find(|(t, _)| *t == tag).map(|(_, number)| *number)
    }

    /// Stores `number` under `tag`, in the place of what was there.
    pub fn set(&mut self, tag: u32, number: u64) {
        self.0.retain(|(t, _)| *t != tag);
        self.0.push((tag, number));
    }

    /// How long the job's key stays taken after its end.
    #[must_use]
    pub fn key_window(&self) -> Span {
        self.get(Self::KEY_WINDOW).map_or(DEFAULT_KEY_WINDOW, Span)
    }

    /// Whether the due moves with the wall clock.
    #[must_use]
    pub fn due_is_absolute(&self) -> bool {
        self.get(Self::DUE_IS_ABSOLUTE) == Some(1)
    }
}

/// How a ticket ended by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum End {
    /// The job did what it was asked.
    Done,
    /// The job or its target refused for good: a retry cannot help.
    Rejected,
    /// The job failed in a way that might pass, but must not be repeated.
    Unsafe,
    /// The job failed and no attempt is left.
    Spent,
    /// The deadline came first.
    Late,
}

impl End {
    /// Every end, in the order of their tags, which is that of their numbers.
    pub const ALL: [Self; 5] = [Self::Done, Self::Rejected, Self::Unsafe, Self::Spent, Self::Late];

    /// The word for logs and tables.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Rejected => "rejected",
            Self::Unsafe => "unsafe",
            Self::Spent => "spent",
            Self::Late => "late",
        }
    }
}

/// What went wrong in an attempt: data about the job, not an error of the runner.
#[derive(Clone, PartialEq, Eq)]
pub struct Fault {
    cause: Cause,
    text: String,
}

impl Fault {
    /// Bytes of text that are kept; enough for an error and its sources, small enough that capacity times this is little.
    pub const TEXT_LIMIT: usize = 8 * 1024;

    /// A fault with the text cut at [`Fault::TEXT_LIMIT`], at the boundary of a character.
    pub fn new(cause: Cause, text: impl Into<String>) -> Self {
        let mut text = text.into();
        let boundary = (0..=Self::TEXT_LIMIT.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
        text.truncate(boundary.unwrap_or(0));
        // One cause has one spelling, so that what is replayed is what was.
        Self { cause: Cause::of_tag(cause.tag()), text }
    }

    /// The class of it, safe to log.
    #[must_use]
    pub const fn cause(&self) -> Cause {
        self.cause
    }

    /// The text that the job gave, at most [`Fault::TEXT_LIMIT`] bytes. May be private: `Debug` hides it.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// As `{cause, text}`: whoever writes a fault out asks for its text.
impl Serialize for Fault {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fault = serializer.serialize_struct("Fault", 2)?;
        fault.serialize_field("cause", self.cause.as_str())?;
        fault.serialize_field("text", &self.text)?;
        fault.end()
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fault({}, {} bytes of text)", self.cause.as_str(), self.text.len())
    }
}

/// The class of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The job answered with a failure.
    Failed,
    /// The job panicked.
    Panicked,
    /// The attempt ran longer than its timeout.
    TimedOut,
    /// The process died while the attempt ran.
    Crashed,
    /// An orderly stop cut the attempt short.
    Interrupted,
    /// A cause written by a later release.
    Other(u8),
}

impl Cause {
    /// Its number in the journal.
    #[must_use]
    pub const fn tag(self) -> u8 {
        match self {
            Self::Failed => 0,
            Self::Panicked => 1,
            Self::TimedOut => 2,
            Self::Crashed => 3,
            Self::Interrupted => 4,
            Self::Other(tag) => tag,
        }
    }

    /// The cause of a number. Causes are for people to read, so one from a later release is kept as its number.
    #[must_use]
    pub const fn of_tag(tag: u8) -> Self {
        match tag {
            0 => Self::Failed,
            1 => Self::Panicked,
            2 => Self::TimedOut,
            3 => Self::Crashed,
            4 => Self::Interrupted,
            other => Self::Other(other),
        }
    }

    /// The word for logs and tables.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Panicked => "panicked",
            Self::TimedOut => "timed out",
            Self::Crashed => "crashed",
            Self::Interrupted => "interrupted",
            Self::Other(_) => "other",
        }
    }
}

/// How long a key stays taken after its job's end: a day outlives the retries of most callers.
pub const DEFAULT_KEY_WINDOW: Span = Span::from_secs(24 * 60 * 60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_keeps_whole_characters() {
        let fault = Fault::new(Cause::Failed, "é".repeat(Fault::TEXT_LIMIT));
        assert_eq!(fault.text.len(), Fault::TEXT_LIMIT);
        assert_eq!(Fault::new(Cause::Failed, format!("x{}", "é".repeat(9000))).text.len(), Fault::TEXT_LIMIT - 1);
    }

    #[test]
    fn debug_shows_neither_payload_nor_meta_nor_fault_text() {
        let job = Job {
            kind: Kind::new("k"),
            version: 1,
            codec: Codec::RAW,
            target: None,
            priority: 1,
            options: Options::default(),
            meta: vec![("canary".into(), "canary".into())],
            payload: b"canary".to_vec(),
        };
        let shown = format!("{job:?} {:?}", Fault::new(Cause::Failed, "canary"));
        assert!(!shown.contains("canary") && !shown.contains("99, 97"), "{shown}");
    }

    #[test]
    fn an_end_is_found_by_its_number() {
        assert!(End::ALL.iter().enumerate().all(|(at, end)| *end as usize == at));
    }

    #[test]
    fn an_option_set_twice_has_the_last_number() {
        let mut options = Options::default();
        options.set(Options::ATTEMPTS, 1);
        options.set(Options::ATTEMPTS, 2);
        assert_eq!(options.get(Options::ATTEMPTS), Some(2));
        assert_eq!(options.0.len(), 1);
    }
}
