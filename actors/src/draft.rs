//! A job on its way to the door: its fields as bytes, and what is to be stored beside them. It knows no runner; whether a
//! runner takes it is judged when it gets there.

use std::fmt;
use std::sync::Arc;

use journeyman_core::packed::Fields;
use journeyman_core::{Key, Options, Packed, Route, Span};

use crate::config::{Limits, RECORD_OVERHEAD};
use crate::error::EnqueueError;
use crate::job::Job;
use crate::messages::{Due, NewJob};
use crate::registry::Policies;

/// What can be asked for with a job, for every type that carries a `draft: Result<Draft, EnqueueError>`.
macro_rules! options {
    () => {
        /// Not before this long after it is accepted. A change of the wall clock does not move it while this process lives.
        pub fn delay(self, delay: std::time::Duration) -> Self {
            self.with(|draft| draft.due = crate::messages::Due::After(delay.into()))
        }

        /// Not before this instant of the wall clock, wherever that clock is moved to.
        pub fn at(self, instant: std::time::SystemTime) -> Self {
            self.with(|draft| draft.due = crate::messages::Due::At(instant.into()))
        }

        /// Unique: while a job with this key lives, and for a window after its end, no other is stored; the receipt then names
        /// the existing one. Keys are shared by all kinds. At most 256 bytes.
        pub fn key(self, key: impl Into<journeyman_core::Key>) -> Self {
            self.with(|draft| draft.key = Some(key.into()))
        }

        /// How long the key stays taken after the job's end; 24 hours unless set.
        pub fn key_window(self, window: std::time::Duration) -> Self {
            let window = journeyman_core::Span::from(window).0;
            self.with(|draft| draft.fields.options.set(journeyman_core::Options::KEY_WINDOW, window))
        }

        /// Least first; 100 unless set. Among equals, the one that has been due longest.
        pub fn priority(self, priority: u8) -> Self {
            self.with(|draft| draft.fields.priority = priority)
        }

        /// Overrides the policies of the registration and of the kind, for this job.
        pub fn policy(self, policy: journeyman_core::Policy) -> Self {
            self.with(|draft| policy.store(&mut draft.fields.options))
        }

        /// Stores a pair beside the job, for `Cx::meta` to read: trace context, a tenant. All pairs together take at most 4 KiB.
        pub fn meta(self, name: impl Into<String>, value: impl Into<String>) -> Self {
            self.with(|draft| draft.fields.meta.push((name.into(), value.into())))
        }

        fn with(mut self, change: impl FnOnce(&mut crate::draft::Draft)) -> Self {
            if let Ok(draft) = &mut self.draft {
                change(draft);
            }
            self
        }
    };
}
pub(crate) use options;

/// A job that no runner has judged yet.
pub(crate) struct Draft {
    pub route: Arc<Route>,
    pub fields: Fields,
    pub key: Option<Key>,
    pub due: Due,
}

impl Draft {
    /// Writes the fields down, and checks that they would come back. Goes along `route`, which is that of a kind, and from there to
    /// the job's target.
    pub(crate) fn of<J: Job>(route: Arc<Route>, job: &J) -> Result<Self, EnqueueError> {
        let payload = J::CODEC.encode(job).map_err(|why| EnqueueError::NotEncodable { kind: route.kind.clone(), why })?;
        let route = match job.target() {
            None => route,
            target => Arc::new(Route { kind: route.kind.clone(), target }),
        };
        let fields = Fields {
            version: J::VERSION,
            codec: J::CODEC.tag,
            priority: journeyman_core::Job::DEFAULT_PRIORITY,
            options: Options::default(),
            meta: Vec::new(),
            payload,
        };
        Ok(Self { route, fields, key: None, due: Due::After(Span(0)) })
    }

    /// Refuses what is of none of these kinds, before it gets near the journal.
    pub(crate) fn among(self, kinds: &Policies) -> Result<Self, EnqueueError> {
        if kinds.contains_key(&self.route.kind) { Ok(self) } else { Err(EnqueueError::UnknownKind(self.route.kind.clone())) }
    }

    /// Refuses what is over a limit, before it gets near the journal.
    pub(crate) fn check(self, limits: &Limits) -> Result<NewJob, EnqueueError> {
        let Self { route, mut fields, key, due } = self;
        // Here, as the last that was said of the due counts.
        if let Due::At(_) = due {
            fields.options.set(Options::DUE_IS_ABSOLUTE, 1);
        }
        let meta: usize = fields.meta.iter().map(|(name, value)| name.len() + value.len() + PAIR_OVERHEAD).sum();
        let key_bytes = key.as_ref().map_or(0, |key| key.as_str().len());
        let target = route.target.as_ref().map_or(0, |target| target.as_str().len());
        let lengths =
            [("its key", key_bytes, limits.key_bytes), ("its target", target, limits.target_bytes), ("its meta", meta, limits.meta_bytes)];
        if let Some((what, bytes, limit)) = lengths.into_iter().find(|(_, bytes, limit)| bytes > limit) {
            return Err(EnqueueError::TooLong { what, bytes, limit });
        }
        let bytes = (route.kind.as_str().len() + key_bytes + target + meta + fields.payload.len()) as u64 + RECORD_OVERHEAD;
        if bytes > limits.record_bytes {
            return Err(EnqueueError::PayloadTooLarge { bytes, limit: limits.record_bytes });
        }
        Ok(NewJob { job: Packed::along(route, &fields), key, due, bytes })
    }
}

impl fmt::Debug for Draft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Packed::along(self.route.clone(), &self.fields).fmt(f)
    }
}

/// Lengths of a pair's two strings.
const PAIR_OVERHEAD: usize = 8;
