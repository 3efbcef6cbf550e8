//! A job as it is kept while it waits: what decides about it at hand, all else as the bytes of its record. Two small pieces of memory, one
//! of them shared with all jobs of its kind and target. The payload may be put away: where it is then, this does not know.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::bytes;
use crate::ids::{Kind, Target};
use crate::job::{Codec, Job, Options};
use crate::time::Span;

/// A job that was asked for, and what is stored of it. Never changes. Cheap to clone.
#[derive(Clone, PartialEq, Eq)]
pub struct Packed {
    route: Arc<Route>,
    body: Kept,
    weight: u32,
    version: u16,
    codec: Codec,
    priority: u8,
}

/// What is kept of options, meta and payload.
#[derive(Clone, PartialEq, Eq)]
enum Kept {
    /// All of them, as they stand at the end of its record.
    Whole(Arc<[u8]>),
    /// The payload is somewhere else. Options and meta, as they stand in front of it, when there are any.
    Away(Option<Arc<Rest>>),
}

/// In a piece of memory of its own, so that what points to it is no larger than it has to be: most have none.
#[derive(PartialEq, Eq)]
struct Rest(Box<[u8]>);

/// What a job is and whom it calls: the same for many jobs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Route {
    /// The job type.
    pub kind: Kind,
    /// What the job calls, and so whose breaker guards it.
    pub target: Option<Target>,
}

impl Route {
    /// That of jobs which call nothing.
    #[must_use]
    pub fn without_target(kind: Kind) -> Arc<Self> {
        Arc::new(Self { kind, target: None })
    }
}

/// What a job is beside its route: as in [`Job`].
#[derive(Clone, PartialEq, Eq)]
pub struct Fields {
    /// See [`Job::version`].
    pub version: u16,
    /// See [`Job::codec`].
    pub codec: Codec,
    /// See [`Job::priority`].
    pub priority: u8,
    /// See [`Job::options`].
    pub options: Options,
    /// See [`Job::meta`].
    pub meta: Vec<(String, String)>,
    /// See [`Job::payload`].
    pub payload: Vec<u8>,
}

impl Packed {
    /// What is kept of `job`.
    #[must_use]
    pub fn of(job: Job) -> Self {
        let Job { kind, version, codec, target, priority, options, meta, payload } = job;
        Self::along(Arc::new(Route { kind, target }), &Fields { version, codec, priority, options, meta, payload })
    }

    /// What is kept of a job that goes this way.
    #[must_use]
    pub fn along(route: Arc<Route>, fields: &Fields) -> Self {
        let Fields { version, codec, priority, options, meta, payload } = fields;
        let meta: Vec<_> = meta.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let weight = weight(&meta, payload);
        let body = Kept::Whole(Body { options: options.0.clone(), meta, payload }.in_one_piece());
        Self { route, body, weight, version: *version, codec: *codec, priority: *priority }
    }

    /// The job as it was given; without its payload while that is away.
    #[must_use]
    pub fn unpack(&self) -> Job {
        let Body { options, meta, payload } = self.body();
        Job {
            kind: self.kind().clone(),
            version: self.version,
            codec: self.codec,
            target: self.target().cloned(),
            priority: self.priority,
            options: Options(options),
            meta: owned(&meta),
            payload: payload.to_vec(),
        }
    }

    /// What it is and whom it calls.
    #[must_use]
    pub const fn route(&self) -> &Arc<Route> {
        &self.route
    }

    /// See [`Job::kind`].
    #[must_use]
    pub fn kind(&self) -> &Kind {
        &self.route.kind
    }

    /// See [`Job::target`].
    #[must_use]
    pub fn target(&self) -> Option<&Target> {
        self.route.target.as_ref()
    }

    /// See [`Job::version`].
    #[must_use]
    pub const fn version(&self) -> u16 {
        self.version
    }

    /// See [`Job::codec`].
    #[must_use]
    pub const fn codec(&self) -> Codec {
        self.codec
    }

    /// See [`Job::priority`].
    #[must_use]
    pub const fn priority(&self) -> u8 {
        self.priority
    }

    /// See [`Job::options`].
    #[must_use]
    pub fn options(&self) -> Options {
        if self.front().first().is_none_or(|count| *count == 0) { Options::default() } else { Options(self.body().options) }
    }

    /// See [`Job::meta`].
    #[must_use]
    pub fn meta(&self) -> Vec<(String, String)> {
        if self.is_short() { Vec::new() } else { owned(&self.body().meta) }
    }

    /// See [`Job::payload`]. None while it is away.
    #[must_use]
    pub fn payload(&self) -> Option<&[u8]> {
        let Kept::Whole(body) = &self.body else { return None };
        // All its weight, and the end of all.
        let begin = body.len().checked_sub(self.weight as usize).filter(|_| self.is_short());
        Some(begin.and_then(|begin| body.get(begin..)).unwrap_or_else(|| self.body().payload))
    }

    /// Whether the payload is somewhere else.
    #[must_use]
    pub const fn is_away(&self) -> bool {
        matches!(self.body, Kept::Away(_))
    }

    /// Bytes of the payload, wherever it is.
    #[must_use]
    pub fn payload_bytes(&self) -> u64 {
        let meta = if self.is_short() { 0 } else { weight(&self.body().meta, &[]) };
        self.weight.saturating_sub(meta).into()
    }

    /// The same without its payload, which whoever asks has put somewhere else.
    pub(crate) fn away(&self) -> Self {
        let body = match &self.body {
            Kept::Whole(_) if self.is_short() => Kept::Away(None),
            Kept::Whole(body) => {
                let front = body.len().saturating_sub(measured(self.payload_bytes()));
                Kept::Away(body.get(..front).map(|front| Arc::new(Rest(front.into()))))
            }
            Kept::Away(_) => self.body.clone(),
        };
        Self { body, ..self.clone() }
    }

    /// The same with its payload, which was away. None when that has another length than the one that it had.
    #[must_use]
    pub fn brought_back(&self, payload: &[u8]) -> Option<Self> {
        if payload.len() as u64 != self.payload_bytes() {
            return None;
        }
        let body = Body { payload, ..self.body() }.in_one_piece();
        Some(Self { body: Kept::Whole(body), ..self.clone() })
    }

    /// Whether it has neither options nor meta, as most have not.
    fn is_short(&self) -> bool {
        match &self.body {
            Kept::Whole(body) => body.starts_with(&[0, 0]),
            Kept::Away(rest) => rest.is_none(),
        }
    }

    /// The bytes of options and meta, and of what follows them if that is here.
    fn front(&self) -> &[u8] {
        match &self.body {
            Kept::Whole(body) => body,
            Kept::Away(rest) => rest.as_ref().map_or(&[], |rest| &rest.0),
        }
    }

    /// See [`Job::weight`].
    #[must_use]
    pub fn weight(&self) -> u64 {
        self.weight.into()
    }

    /// How long the job's key stays taken after its end.
    #[must_use]
    pub fn key_window(&self) -> Span {
        self.options().key_window()
    }

    /// Whether the due moves with the wall clock.
    #[must_use]
    pub fn due_is_absolute(&self) -> bool {
        self.options().due_is_absolute()
    }

    /// Makes it hold this route in the place of its own, which is equal to it; answers that one.
    pub fn share(&mut self, route: Arc<Route>) -> Arc<Route> {
        debug_assert_eq!(self.route, route, "another route makes it another job");
        std::mem::replace(&mut self.route, route)
    }

    /// The bytes of options, meta and payload. Whoever writes them has the payload: without it they are no body, and nobody reads them as one.
    pub(crate) fn body_bytes(&self) -> &[u8] {
        debug_assert!(!self.is_away(), "what is away is not written");
        self.front()
    }

    /// How many they are, wherever the payload is.
    pub(crate) fn body_len(&self) -> usize {
        match &self.body {
            Kept::Whole(body) => body.len(),
            Kept::Away(rest) => rest.as_ref().map_or(2, |rest| rest.0.len()) + measured(self.payload_bytes()),
        }
    }

    pub(crate) fn head(&self) -> Head<'_> {
        let target = self.target().map(Target::as_str);
        Head { priority: self.priority, kind: self.kind().as_str(), version: self.version, codec: self.codec, target }
    }

    /// The job of a head and of the body that begins at `bytes`; takes that off their front.
    /// None when there is no body. Shares `route` when it is the same.
    pub(crate) fn take(head: &Head<'_>, route: Option<&Arc<Route>>, bytes: &mut &[u8]) -> Option<Self> {
        let (fields, rest) = Body::take(bytes).ok()?;
        let (read, _) = bytes.split_at_checked(bytes.len() - rest.len())?;
        *bytes = rest;
        let weight = weight(&fields.meta, fields.payload);
        let route = route.filter(|route| head.goes_along(route)).cloned();
        let route = route.unwrap_or_else(|| Arc::new(Route { kind: head.kind.into(), target: head.target.map(Into::into) }));
        // One job has one spelling, whoever wrote its numbers.
        let body = if fields.is_short_in(read) { Arc::from(read) } else { fields.in_one_piece() };
        let body = Kept::Whole(body);
        Some(Self { route, body, weight, version: head.version, codec: head.codec, priority: head.priority })
    }

    fn body(&self) -> Body<'_> {
        let body = match &self.body {
            Kept::Whole(body) => postcard::from_bytes(body),
            Kept::Away(None) => Ok(Body::default()),
            Kept::Away(Some(rest)) => postcard::from_bytes(&rest.0).map(|(options, meta)| Body { options, meta, payload: &[] }),
        };
        debug_assert!(body.is_ok(), "it holds nothing but what was written as a body");
        body.unwrap_or_default()
    }
}

/// Payload, meta values and options may be private: this shows their sizes only.
impl fmt::Debug for Packed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.unpack().fmt(f)
    }
}

impl From<Job> for Packed {
    fn from(job: Job) -> Self {
        Self::of(job)
    }
}

/// See [`Job::weight`].
fn weight(meta: &[(&str, &str)], payload: &[u8]) -> u32 {
    let meta: usize = meta.iter().map(|(name, value)| name.len() + value.len()).sum();
    u32::try_from(payload.len() + meta).unwrap_or(u32::MAX)
}

/// So many bytes with their number in front of them.
const fn measured(bytes: u64) -> usize {
    bytes as usize + digits(bytes as usize)
}

/// What a number takes.
const fn digits(number: usize) -> usize {
    (if number == 0 { 0 } else { number.ilog2() as usize / 7 }) + 1
}

fn owned(meta: &[(&str, &str)]) -> Vec<(String, String)> {
    meta.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// The first fields of a job in records and in snapshots; its [`Body`] follows.
#[derive(Serialize, Deserialize)]
pub(crate) struct Head<'a> {
    priority: u8,
    kind: &'a str,
    version: u16,
    codec: Codec,
    target: Option<&'a str>,
}

impl Head<'_> {
    /// Appends the bytes that postcard writes of it.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.priority);
        bytes::text(out, self.kind);
        bytes::number(out, self.version.into());
        out.push(self.codec.0);
        bytes::optional(out, self.target);
    }

    fn goes_along(&self, route: &Route) -> bool {
        self.kind == route.kind.as_str() && self.target == route.target.as_ref().map(Target::as_str)
    }
}

/// The other fields.
#[derive(Default, Serialize, Deserialize)]
struct Body<'a> {
    options: Vec<(u32, u64)>,
    #[serde(borrow)]
    meta: Vec<(&'a str, &'a str)>,
    #[serde(borrow, with = "serde_bytes")]
    payload: &'a [u8],
}

impl<'a> Body<'a> {
    fn take(bytes: &'a [u8]) -> postcard::Result<(Self, &'a [u8])> {
        // Most have a payload only: nothing else is looked for there.
        let Some(behind) = bytes.strip_prefix(&[0, 0]) else { return postcard::take_from_bytes(bytes) };
        let (payload, rest): (&serde_bytes::Bytes, _) = postcard::take_from_bytes(behind)?;
        Ok((Self { payload, ..Self::default() }, rest))
    }

    /// Whether these bytes, from which it was read, are the shortest for a body that has a payload only.
    fn is_short_in(&self, read: &[u8]) -> bool {
        read.starts_with(&[0, 0]) && read.len() == 2 + digits(self.payload.len()) + self.payload.len()
    }

    fn in_one_piece(&self) -> Arc<[u8]> {
        if self.options.is_empty() && self.meta.is_empty() {
            return short(self.payload);
        }
        let mut bytes = Vec::with_capacity(self.payload.len() + SMALL);
        bytes::write(&mut bytes, self);
        bytes.into()
    }
}

/// The body of a job that has a payload only.
fn short(payload: &[u8]) -> Arc<[u8]> {
    // Most are small: no need to ask for memory twice.
    let mut small = [0; SMALL];
    // No options, no meta, and how many bytes follow.
    let length = small.get_mut(2..).and_then(|room| postcard::to_slice(&payload.len(), room).ok());
    let head = 2 + length.map_or(0, |length| length.len());
    let end = head + payload.len();
    if let Some(room) = small.get_mut(head..end) {
        room.copy_from_slice(payload);
    }
    let in_one_go = small.get(..end).map(Arc::from);
    in_one_go.unwrap_or_else(|| [small.get(..head).unwrap_or_default(), payload].concat().into())
}

/// A body of at most so many bytes is written on the stack first.
const SMALL: usize = 512;

#[cfg(test)]
mod tests {
    use quickcheck::quickcheck;

    use super::*;

    fn job(options: Vec<(u32, u64)>, meta: Vec<(String, String)>, payload: Vec<u8>) -> Job {
        let (kind, target) = (Kind::new("k"), Some(Target::new("t")));
        Job { kind, version: 3, codec: Codec::RAW, target, priority: 7, options: Options(options), meta, payload }
    }

    fn taken(packed: &Packed, body: &[u8], route: Option<&Arc<Route>>) -> Option<Packed> {
        let mut bytes = body;
        let taken = Packed::take(&packed.head(), route, &mut bytes)?;
        assert!(bytes.is_empty(), "all of it");
        Some(taken)
    }

    quickcheck! {
        fn what_was_packed_is_what_was_given(options: Vec<(u32, u64)>, meta: Vec<(String, String)>, payload: Vec<u8>, more: u16) -> () {
            // On both sides of what is written in one go.
            for payload in [payload.clone(), [payload, vec![7; more as usize % 1024]].concat()] {
                for (options, meta) in [(options.clone(), meta.clone()), (options.clone(), vec![]), (vec![], meta.clone()), (vec![], vec![])] {
                    let job = job(options, meta, payload.clone());
                    let packed = Packed::of(job.clone());
                    assert!(packed.unpack() == job);
                    assert_eq!((packed.options(), packed.meta(), packed.payload()), (job.options.clone(), job.meta.clone(), Some(&job.payload[..])));
                    assert_eq!(packed.weight(), job.weight());
                    let taken = taken(&packed, packed.body_bytes(), Some(packed.route()));
                    assert!(taken.is_some_and(|taken| taken == packed && Arc::ptr_eq(taken.route(), packed.route())));
                }
            }
        }

        fn what_was_put_away_comes_back_as_it_was(options: Vec<(u32, u64)>, meta: Vec<(String, String)>, payload: Vec<u8>, more: u16) -> () {
            let payload = [payload, vec![7; more as usize % 20_000]].concat();
            for (options, meta) in [(options.clone(), meta.clone()), (options.clone(), vec![]), (vec![], meta.clone()), (vec![], vec![])] {
                let job = job(options, meta, payload.clone());
                let packed = Packed::of(job.clone());
                let away = packed.away();
                assert!(away.is_away() && !packed.is_away() && away.away() == away);
                assert_eq!((away.options(), away.meta(), away.payload()), (job.options.clone(), job.meta.clone(), None));
                assert_eq!((away.weight(), away.payload_bytes()), (packed.weight(), payload.len() as u64));
                assert_eq!((away.body_len(), packed.payload_bytes()), (packed.body_bytes().len(), payload.len() as u64));
                assert!(away.brought_back(&payload) == Some(packed));
                assert_eq!(away.brought_back(&[&payload[..], &[0]].concat()), None);
                assert!(away.unpack() == Job { payload: vec![], ..job });
            }
        }
    }

    #[test]
    fn one_that_is_away_takes_no_more_than_one_that_is_here() {
        assert_eq!(size_of::<Kept>(), size_of::<Arc<[u8]>>());
        assert_eq!(size_of::<Packed>(), 32);
    }

    #[test]
    fn a_job_has_one_spelling() {
        let packed = Packed::of(job(vec![], vec![], vec![1, 2]));
        assert_eq!(packed.body_bytes(), [0, 0, 2, 1, 2]);
        // Numbers with zeros behind their last digit.
        for odd in [&[0, 0, 0x82, 0, 1, 2][..], &[0x80, 0, 0, 2, 1, 2], &[0, 0x80, 0, 2, 1, 2]] {
            assert_eq!(taken(&packed, odd, None), Some(packed.clone()), "{odd:?}");
        }
    }

    #[test]
    fn another_route_is_not_shared() {
        let packed = Packed::of(job(vec![], vec![], vec![]));
        let other = Arc::new(Route { kind: Kind::new("k"), target: None });
        assert_eq!(taken(&packed, packed.body_bytes(), Some(&other)), Some(packed));
    }
}
