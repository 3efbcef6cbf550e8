//! The numbers and names that travel through the system, each a type of its own so that no two can be mixed up.
//! Nothing here decides anything.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};

macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name(pub u64);

        impl $name {
            /// The number after this one; stays at the largest.
            #[must_use]
            pub const fn next(self) -> Self {
                Self(self.0.saturating_add(1))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number! {
    /// The queue's number of one enqueued job. Counts from 1 and is never used twice, not even across restarts.
    Ticket
}

number! {
    /// The number of a record in its journal. Contiguous from 1; given by the fold, not by the file.
    Seq
}

number! {
    /// The reign of one writer of a journal. Rises with every `Lead` record.
    Epoch
}

/// One run of a ticket, named by the seq of the Select that began it. An outcome counts only when both agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attempt(pub Seq);

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What users hold of a job: its partition (0 for now) and its ticket. Reads `0-123`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct JobId {
    partition: u32,
    ticket: Ticket,
}

impl JobId {
    /// The id of a ticket of partition 0.
    #[must_use]
    pub const fn of(ticket: Ticket) -> Self {
        Self { partition: 0, ticket }
    }

    /// The queue's number of the job.
    #[must_use]
    pub const fn ticket(self) -> Ticket {
        self.ticket
    }

    /// The partition that holds the job.
    #[must_use]
    pub const fn partition(self) -> u32 {
        self.partition
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.partition, self.ticket)
    }
}

/// The text is no job id: two numbers with a dash between them, as in `0-123`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a job id: expected two numbers with a dash between them, as in 0-123")]
pub struct NotAJobId;

impl From<JobId> for String {
    fn from(id: JobId) -> Self {
        id.to_string()
    }
}

impl TryFrom<String> for JobId {
    type Error = NotAJobId;

    fn try_from(text: String) -> Result<Self, NotAJobId> {
        text.parse()
    }
}

impl FromStr for JobId {
    type Err = NotAJobId;

    fn from_str(text: &str) -> Result<Self, NotAJobId> {
        let (partition, ticket) = text.split_once('-').ok_or(NotAJobId)?;
        let id = Self { partition: partition.parse().map_err(|_| NotAJobId)?, ticket: Ticket(ticket.parse().map_err(|_| NotAJobId)?) };
        // One id has one spelling, so that ids can be compared as text.
        if id.to_string() == text { Ok(id) } else { Err(NotAJobId) }
    }
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Makes the name from its text. Any text is a name; its length is judged where it enters the queue.
            pub fn new(text: impl AsRef<str>) -> Self {
                Self(text.as_ref().into())
            }

            /// The text of the name.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self::new(text)
            }
        }

        impl From<$name> for Arc<str> {
            fn from(name: $name) -> Self {
                name.0
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text.into())
            }
        }
    };
}

macro_rules! shown {
    ($name:ident) => {
        // Names are data from outside: control characters would let them write into a terminal or forge a log line.
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                Escaped(&self.0).fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }
    };
}

/// Text from outside as it may be shown: what would move the cursor, begin a line, turn the direction of writing or be seen by nobody
/// is escaped.
///
/// ```
/// use journeyman_core::ids::Escaped;
///
/// assert_eq!(Escaped("a\r\n\u{202e}b").to_string(), "a\\r\\n\\u{202e}b");
/// ```
#[derive(Clone, Copy)]
pub struct Escaped<'a>(pub &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| if is_shown(c) { write!(f, "{c}") } else { write!(f, "{}", c.escape_default()) })
    }
}

/// Whether a character takes its place in a line and changes nothing around it.
fn is_shown(c: char) -> bool {
    let is_unseen = matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{feff}');
    // Zero width and marks of direction, ends of lines and paragraphs, turned and isolated text, notes between lines, tags.
    let turns = matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}');
    let tags = matches!(c, '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}');
    !(c.is_control() || is_unseen || turns || tags)
}

name! {
    /// The stable name of a job type. Its policy lives in code, never in the journal.
    Kind
}

name! {
    /// The thing that can be down: a host, an API, a printer. The key of a circuit breaker.
    Target
}

name! {
    /// What makes a job unique while it lives and for a window after its end. May be private: `Debug` hides it.
    Key
}

shown!(Kind);
shown!(Target);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({} bytes)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_id_reads_back_what_it_prints() {
        let id = JobId::of(Ticket(123));
        assert_eq!(id.to_string(), "0-123");
        assert_eq!("0-123".parse(), Ok(id));
        assert_eq!((String::from(id), JobId::try_from("0-123".to_owned())), ("0-123".to_owned(), Ok(id)));
    }

    #[test]
    fn an_id_has_one_spelling() {
        for text in ["", "0", "0-", "-1", "0-1-2", "0-x", "00-1", "0-+1", " 0-1", "0-99999999999999999999"] {
            assert_eq!(text.parse::<JobId>(), Err(NotAJobId), "{text:?}");
        }
    }

    #[test]
    fn names_cannot_write_into_a_terminal() {
        assert_eq!(Target::new("a\u{1b}[2J\r\nb").to_string(), "a\\u{1b}[2J\\r\\nb");
        assert_eq!(Kind::new("\u{202e}gnp.exe\u{2066}\u{85}").to_string(), "\\u{202e}gnp.exe\\u{2066}\\u{85}");
        assert_eq!(Kind::new("mail.größe \\ 🦀").to_string(), "mail.größe \\ 🦀");
    }

    #[test]
    fn a_key_is_not_shown() {
        assert_eq!(format!("{:?}", Key::new("secret")), "Key(6 bytes)");
    }
}
