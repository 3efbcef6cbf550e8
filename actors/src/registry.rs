//! The job types that a runner knows: by kind, how to begin one from stored bytes, and its policy.

use std::cmp::Ordering;
use std::sync::Arc;

use futures_util::future::LocalBoxFuture;
use journeyman_core::{Kind, Packed, Policy, Route};

use crate::codec::{Stored, Unreadable};
use crate::cx::Cx;
use crate::error::StartError;
use crate::job::{Job, JobResult};

/// What the queue and the edge know of each kind.
pub(crate) type Policies = foldhash::HashMap<Kind, Known>;

pub(crate) struct Known {
    pub policy: Policy,
    /// Where its jobs go that call nothing: one for all of them.
    pub route: Arc<Route>,
}

/// Everything that is registered, for jobs with the context `C`.
pub(crate) struct Registry<C> {
    entries: foldhash::HashMap<Kind, Entry<C>>,
    twice: Option<Kind>,
}

struct Entry<C> {
    policy: Policy,
    begin: Begin<C>,
}

/// Decodes stored bytes and makes the future of the attempt; or says why this build cannot.
type Begin<C> = fn(&Packed, Cx<C>) -> Result<LocalBoxFuture<'static, JobResult<()>>, String>;

impl<C: 'static> Registry<C> {
    pub(crate) fn new() -> Self {
        Self { entries: foldhash::HashMap::default(), twice: None }
    }

    pub(crate) fn add<J: Job<Context = C>>(&mut self, policy: Policy) {
        for name in std::iter::once(J::KIND).chain(J::ALIASES.iter().copied()) {
            let kind = Kind::new(name);
            if self.entries.insert(kind.clone(), Entry { policy, begin: begin::<J> }).is_some() {
                self.twice = Some(kind);
            }
        }
    }

    /// Refuses what could not be a compile error.
    pub(crate) fn check(&self, longest: usize) -> Result<(), StartError> {
        if let Some(kind) = &self.twice {
            return Err(StartError::DuplicateKind(kind.clone()));
        }
        if self.entries.is_empty() {
            return Err(StartError::NoKinds);
        }
        let wrong = self.entries.keys().map(|kind| kind.as_str().len()).find(|bytes| *bytes == 0 || *bytes > longest);
        wrong.map_or(Ok(()), |bytes| Err(StartError::KindName { bytes, limit: longest }))
    }

    pub(crate) fn policies(&self) -> Arc<Policies> {
        let known = |kind: &Kind, policy| Known { policy, route: Route::without_target(kind.clone()) };
        Arc::new(self.entries.iter().map(|(kind, entry)| (kind.clone(), known(kind, entry.policy))).collect())
    }

    pub(crate) fn begin(&self, job: &Packed, cx: Cx<C>) -> Result<LocalBoxFuture<'static, JobResult<()>>, String> {
        let entry = self.entries.get(job.kind()).ok_or_else(|| "its kind is not registered".to_owned())?;
        (entry.begin)(job, cx)
    }
}

fn begin<J: Job>(job: &Packed, cx: Cx<J::Context>) -> Result<LocalBoxFuture<'static, JobResult<()>>, String> {
    let job = bring_back::<J>(job)?;
    Ok(Box::pin(async move { job.run(cx).await.map(drop) }))
}

/// The job of stored bytes, of this version or of one before it.
pub(crate) fn bring_back<J: Job>(job: &Packed) -> Result<J, String> {
    let payload = job.payload().ok_or_else(|| "its payload is on disk".to_owned())?;
    match job.version().cmp(&J::VERSION) {
        Ordering::Equal => J::CODEC.decode(job.codec(), payload),
        Ordering::Greater => Err(format!("it was written as version {}, this build knows {}", job.version(), J::VERSION)),
        Ordering::Less => J::upgrade(job.version(), Stored::new(job.codec(), payload)).map_err(|error| {
            let why = error.downcast_ref::<Unreadable>().map_or_else(|| "its error may show the data".to_owned(), Unreadable::to_string);
            format!("it was written as version {}, and its upgrade failed: {why}", job.version())
        }),
    }
}
