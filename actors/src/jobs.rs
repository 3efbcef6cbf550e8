//! The handle that users hold: enqueue, cancel, ask. Checks what can be checked before a message exists, and knows nothing
//! of how the queue decides.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use journeyman_core::{JobId, Kind, Route};

use crate::admission::{Admission, Room};
use crate::answers::{Cancelled, Found, JobEnd, JobInfo, Receipt, TargetInfo};
use crate::clock::Clock;
use crate::config::{Limits, RECORD_OVERHEAD};
use crate::draft::Draft;
use crate::error::{CallError, EnqueueError, IdleError};
use crate::feed::{EventFilter, Events};
use crate::job::Job;
use crate::line::Line;
use crate::listing::{Page, Query};
use crate::messages::{self, Few, NewJob, Reply};
use crate::registry::Policies;
use crate::status::{Health, Stats, Status};
#[cfg(feature = "testing")]
use crate::testing::Capture;

/// A handle to a runner. Cheap to clone, `Send` and `Sync`, works from any thread and any runtime, and fits `web::Data`.
///
/// Every change has happened on disk when its future returns `Ok`.
#[derive(Clone)]
pub struct Jobs(Arc<Shared>);

struct Shared {
    line: Line,
    policies: Arc<Policies>,
    limits: Limits,
    admission: Admission,
    status: Arc<Status>,
    clock: Clock,
    /// What answers in the place of a queue.
    #[cfg(feature = "testing")]
    capture: Option<Arc<Capture>>,
}

/// A captured handle answers by itself; without the test kit there is none.
macro_rules! or_captured {
    ($jobs:ident, $capture:ident => $answer:expr) => {
        #[cfg(feature = "testing")]
        if let Some($capture) = &$jobs.0.capture {
            return $answer;
        }
    };
}

impl Jobs {
    pub(crate) fn new(line: Line, policies: Arc<Policies>, limits: Limits, status: Arc<Status>, clock: Clock) -> Self {
        let admission = Admission::new(limits.calls, limits.call_bytes);
        Self(Arc::new(Shared {
            line,
            policies,
            limits,
            admission,
            status,
            clock,
            #[cfg(feature = "testing")]
            capture: None,
        }))
    }

    /// Calls that wait for an answer.
    pub(crate) fn waiting_calls(&self) -> u64 {
        self.0.admission.calls()
    }

    /// Waits for a call while none waits for an answer.
    pub(crate) async fn called(&self) {
        self.0.admission.awake().await;
    }

    /// A handle that is answered by `capture`: its queue was never there.
    #[cfg(feature = "testing")]
    pub(crate) fn captured(capture: Arc<Capture>, status: Arc<Status>, clock: Clock) -> Self {
        let limits = Limits::default();
        let (line, admission) = (Line::default(), Admission::new(limits.calls, limits.call_bytes));
        Self(Arc::new(Shared { line, policies: Arc::default(), limits, admission, status, clock, capture: Some(capture) }))
    }

    /// Prepares to store a job; nothing happens until the result is awaited. The answer comes when the job is on disk:
    /// no crash loses it any more.
    ///
    /// Dropped before its answer, the call leaves the job stored or not, never half. With a key, asking again is harmless.
    ///
    /// ```no_run
    /// # use journeyman::{Cx, Job, JobResult, Jobs};
    /// # #[derive(serde::Serialize, serde::Deserialize)] struct Mail { to: String }
    /// # impl Job for Mail {
    /// #     type Context = (); type Output = (); const KIND: &'static str = "mail";
    /// #     async fn run(self, _: Cx<()>) -> JobResult<()> { Ok(()) }
    /// # }
    /// # async fn example(jobs: Jobs) -> Result<(), journeyman::EnqueueError> {
    /// let receipt = jobs.enqueue(Mail { to: "a@example.org".into() }).key("welcome-17").await?;
    /// println!("{} is on disk", receipt.id());
    /// # Ok(()) }
    /// ```
    pub fn enqueue<J: Job>(&self, job: J) -> Enqueue<'_> {
        // Said first: a kind that is not known here may have any codec.
        let draft = self.route(J::KIND).and_then(|route| Draft::of(route, &job));
        Enqueue { jobs: self, draft }
    }

    /// Stores all of these in one batch, or none of them. Their receipts are in the same order.
    ///
    /// # Errors
    /// [`EnqueueError::BatchTooLarge`] when they do not fit into one batch; else as for one.
    pub async fn enqueue_all<'a>(&self, all: impl IntoIterator<Item = Enqueue<'a>>) -> Result<Vec<Receipt>, EnqueueError> {
        let drafts = all.into_iter().map(|one| {
            // Each handle knows the kinds of its own runner.
            if Arc::ptr_eq(&one.jobs.0, &self.0) { one.draft } else { self.among_kinds(one.draft) }
        });
        self.store_drafts(drafts).await
    }

    /// Takes a job back. A running attempt may finish, but changes nothing any more and is told so.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn cancel(&self, id: JobId) -> Result<Cancelled, CallError> {
        if id.partition() != 0 {
            return Ok(Cancelled::NotFound);
        }
        or_captured!(self, capture => Ok(capture.cancel(id.ticket())));
        let room = self.room(0).map_err(|_| CallError::Full)?;
        self.ask(|line, reply| line.send(messages::Cancel { ticket: id.ticket(), room, reply })).await?
    }

    /// What is known of a job; none when it has ended or never was. [`Jobs::find`] tells these two apart.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn get(&self, id: JobId) -> Result<Option<JobInfo>, CallError> {
        Ok(match self.find(id).await? {
            Found::Live(info) => Some(info),
            Found::Gone(_) => None,
        })
    }

    /// What is known of a job, or how it ended, as long as that is remembered: see `Limits::ends_remembered`.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn find(&self, id: JobId) -> Result<Found, CallError> {
        if id.partition() != 0 {
            return Ok(Found::Gone(JobEnd::NotFound));
        }
        or_captured!(self, capture => Ok(capture.find(id.ticket())));
        let room = self.room(0).map_err(|_| CallError::Full)?;
        self.ask(|line, reply| line.send(messages::Get { ticket: id.ticket(), room, reply })).await?
    }

    /// Waits until a job has ended, and answers how: at once when it has ended before and that is remembered. Waits as long as
    /// it takes, also over a failure that the runner reopens from; dropped, it gives back its place among the calls that wait.
    ///
    /// # Errors
    /// [`CallError`]; `ShuttingDown` when the runner closes first.
    pub async fn outcome(&self, id: JobId) -> Result<JobEnd, CallError> {
        if id.partition() != 0 {
            return Ok(JobEnd::NotFound);
        }
        or_captured!(self, capture => capture.outcome(id.ticket()));
        // Kept here, not sent along: a caller who goes away gives it back at once.
        let _room = self.room(0).map_err(|_| CallError::Full)?;
        loop {
            match self.ask(|line, reply| line.send(messages::Outcome { ticket: id.ticket(), reply })).await {
                // Asking again is harmless: the next queue knows, or goes on with the job.
                Err(CallError::Unknown | CallError::Unavailable) if self.reopened().await => {}
                answer => return answer?,
            }
        }
    }

    /// Jobs that have not ended, page by page, in the order of their numbers. Jobs may come and go between two pages: one
    /// that lives all the while, as it was asked for, is on exactly one of them.
    ///
    /// One call looks at no more than 10,000 jobs, so that a page may be short, even empty, with more behind it:
    /// go on until [`Page::next`] is none.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn list(&self, query: Query) -> Result<Page, CallError> {
        if query.after.is_some_and(|after| after.partition() != 0) {
            return Ok(Page::empty());
        }
        or_captured!(self, capture => Ok(capture.list(&query)));
        let room = self.room(0).map_err(|_| CallError::Full)?;
        self.ask(|line, reply| line.send(messages::List { query, room, reply })).await?
    }

    /// Every target that was called lately, with its breaker.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn targets(&self) -> Result<Vec<TargetInfo>, CallError> {
        or_captured!(self, _capture => Ok(Vec::new()));
        let room = self.room(0).map_err(|_| CallError::Full)?;
        self.ask(|line, reply| line.send(messages::Targets { room, reply })).await?
    }

    /// What happens from now on: facts that are on disk, moves of breakers, changes of health. A listener that falls more than
    /// `Limits::events_kept` behind loses the oldest and hears how many: nobody waits for it.
    ///
    /// ```no_run
    /// # async fn example(jobs: journeyman::Jobs) {
    /// use journeyman::{Event, EventFilter};
    ///
    /// let mut events = jobs.events(EventFilter::all().kind("mail.send"));
    /// while let Some(event) = events.next().await {
    ///     match event {
    ///         Event::Job(job) => println!("{}: {:?}", job.id, job.what),
    ///         Event::Lagged(lost) => println!("{lost} events are lost"),
    ///         _ => {}
    ///     }
    /// }
    /// # }
    /// ```
    pub fn events(&self, filter: EventFilter) -> Events {
        self.0.status.feed.listen(filter, self.0.limits.events_kept)
    }

    /// Waits until nothing is pending or running, for at most `patience` by the runner's clock. A runner that reopens by itself
    /// meanwhile goes on with the wait.
    ///
    /// # Errors
    /// [`IdleError::WorkLeft`] when there was work left; it goes on.
    pub async fn run_until_idle(&self, patience: Duration) -> Result<(), IdleError> {
        or_captured!(self, capture => capture.is_idle());
        let clock = &self.0.clock;
        let until = clock.now().steady + patience.into();
        loop {
            let room = self.room(0).map_err(|_| CallError::Full)?;
            let patience = until.since(clock.now().steady);
            let lost = match self.ask(|line, reply| line.send(messages::UntilIdle { patience, room, reply })).await {
                Err(lost @ (CallError::Unknown | CallError::Unavailable)) => lost,
                answer => return answer?,
            };
            tokio::select! {
                reopened = self.reopened() => if !reopened { return Err(lost.into()) },
                () = clock.sleep_until(until) => return Err(lost.into()),
            }
        }
    }

    /// Waits until a runner that has failed answers again. False when it never will.
    async fn reopened(&self) -> bool {
        self.0.status.settled().await.answers()
    }

    /// Runs a call of this handle to its end on this thread, for programs and threads without a runtime:
    ///
    /// ```no_run
    /// # fn example(jobs: journeyman::Jobs, id: journeyman::JobId) {
    /// let end = jobs.wait(jobs.outcome(id));
    /// # drop(end);
    /// # }
    /// ```
    ///
    /// In an async program, use it where blocking is allowed, as within `spawn_blocking`, `web::block` or `Cx::blocking`.
    ///
    /// # Panics
    /// On a thread that runs a tokio or actix runtime, at once and before anything is asked: blocked, that runtime might never
    /// bring the answer. Runtimes of another make are not noticed.
    pub fn wait<T>(&self, call: impl IntoFuture<Output = T>) -> T {
        let waiting = tokio::runtime::Builder::new_current_thread().enable_time().build();
        waiting.expect("a runtime of one thread needs nothing of the system").block_on(call.into_future())
    }

    /// Counters, at once: of what is on disk, without asking the queue.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.0.status.stats()
    }

    /// How the runner is, at once.
    #[must_use]
    pub fn health(&self) -> Health {
        self.0.status.health()
    }

    /// The kinds that can be enqueued; none when all can.
    fn kinds(&self) -> Option<&Policies> {
        or_captured!(self, _capture => None);
        Some(&self.0.policies)
    }

    fn route(&self, kind: &'static str) -> Result<Arc<Route>, EnqueueError> {
        let Some(kinds) = self.kinds() else { return Ok(Route::without_target(Kind::new(kind))) };
        kinds.get(kind).map(|known| known.route.clone()).ok_or_else(|| EnqueueError::UnknownKind(Kind::new(kind)))
    }

    pub(crate) fn among_kinds(&self, draft: Result<Draft, EnqueueError>) -> Result<Draft, EnqueueError> {
        match self.kinds() {
            Some(kinds) => draft?.among(kinds),
            None => draft,
        }
    }

    /// Stores drafts, whoever made them, when all of them are of kinds that can be enqueued and within the bounds.
    pub(crate) async fn store_all(
        &self,
        drafts: impl IntoIterator<Item = Result<Draft, EnqueueError>>,
    ) -> Result<Vec<Receipt>, EnqueueError> {
        self.store_drafts(drafts.into_iter().map(|draft| self.among_kinds(draft))).await
    }

    /// Stores drafts of kinds that can be enqueued, when all of them are within the bounds.
    async fn store_drafts(&self, drafts: impl IntoIterator<Item = Result<Draft, EnqueueError>>) -> Result<Vec<Receipt>, EnqueueError> {
        let jobs: Result<Few<NewJob>, EnqueueError> = drafts.into_iter().map(|draft| self.checked(draft)).collect();
        self.store(jobs?).await.map(Few::into_vec)
    }

    pub(crate) async fn store_one(&self, job: NewJob) -> Result<Receipt, EnqueueError> {
        self.store([job].into()).await?.pop().ok_or(EnqueueError::Unknown)
    }

    /// What can be stored of a draft that is within the bounds.
    pub(crate) fn checked(&self, draft: Result<Draft, EnqueueError>) -> Result<NewJob, EnqueueError> {
        draft?.check(&self.0.limits)
    }

    async fn store(&self, jobs: Few<NewJob>) -> Result<Few<Receipt>, EnqueueError> {
        let bytes: u64 = jobs.iter().map(|job| job.bytes).sum();
        let limit = self.0.limits.batch_bytes - RECORD_OVERHEAD;
        if bytes > limit {
            return Err(EnqueueError::BatchTooLarge { bytes, limit });
        }
        if jobs.is_empty() {
            return Ok(Few::new());
        }
        or_captured!(self, capture => Ok(capture.store(jobs)));
        let room = self.room(bytes).map_err(EnqueueError::Full)?;
        self.ask(|line, reply| line.enqueue(messages::Enqueue { jobs, room, reply })).await?
    }

    fn room(&self, bytes: u64) -> Result<Room, &'static str> {
        self.0.admission.enter(bytes)
    }

    /// Asks the queue, by what puts the question on the line. An answer that is lost on the way is unknown: the queue may have acted on
    /// the question.
    async fn ask<T>(&self, question: impl FnOnce(&Line, Reply<T>) -> bool) -> Result<T, CallError> {
        if self.0.status.is_closed() {
            return Err(CallError::ShuttingDown);
        }
        let (reply, answer) = Reply::new();
        // The line takes every question: the bound is the place at the edge that the call has taken.
        if !self.0.status.answers() || !question(&self.0.line, reply) {
            return Err(CallError::Unavailable);
        }
        tokio::select! {
            // An answer that is there counts, whatever happened since.
            biased;
            answer = answer => answer.map_err(|_| CallError::Unknown),
            // A queue that is stuck drops nothing.
            _ = self.0.status.failed() => Err(CallError::Unknown),
        }
    }
}

impl fmt::Debug for Jobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jobs").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

/// A job that is about to be stored: add what it needs, then await it.
#[must_use = "nothing is stored until this is awaited"]
pub struct Enqueue<'a> {
    jobs: &'a Jobs,
    draft: Result<Draft, EnqueueError>,
}

impl Enqueue<'_> {
    crate::draft::options!();

    /// Stores it from a plain thread, as [`Jobs::wait`] does.
    ///
    /// # Errors
    /// [`EnqueueError`].
    ///
    /// # Panics
    /// As [`Jobs::wait`].
    pub fn wait(self) -> Result<Receipt, EnqueueError> {
        self.jobs.wait(self)
    }
}

impl<'a> IntoFuture for Enqueue<'a> {
    type Output = Result<Receipt, EnqueueError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        let Self { jobs, draft } = self;
        // Made ready here: the future that is on its way for long is small.
        let job = jobs.checked(draft);
        Box::pin(async move { jobs.store_one(job?).await })
    }
}

impl fmt::Debug for Enqueue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Enqueue").field("job", &self.draft).finish_non_exhaustive()
    }
}
