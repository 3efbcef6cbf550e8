//! What happened, told to whoever listens: a bounded stream of facts that are on disk. It never slows the queue, as a listener
//! that falls behind loses the oldest and hears how many; and it costs nothing while nobody listens.

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use actix::Message;
use futures_util::Stream;
use journeyman_core::{Cause, End, JobId, Kind, Route, Seq, Target, Ticket};
use serde::Serialize;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::broadcast::{Receiver, Sender, channel};
use tokio_util::sync::ReusableBoxFuture;

use crate::answers::BreakerState;
use crate::status::Health;

/// What happened. Nothing private is in it: no payload, key, meta or text of a fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Message)]
#[rtype(result = "()")]
#[non_exhaustive]
pub enum Event {
    /// Something happened to a job, and is on disk.
    Job(JobEvent),
    /// The breaker of a target moved.
    Breaker {
        /// The target.
        target: Target,
        /// Where its breaker stands now.
        state: BreakerState,
        /// How often it has opened since the runner started, or since it was last forgotten.
        openings: u64,
    },
    /// The health of the runner changed.
    Health(Health),
    /// The listener fell behind: so many events, of whatever kind, are lost to it.
    Lagged(u64),
}

/// Something that happened to a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct JobEvent {
    /// The job.
    pub id: JobId,
    /// Its type, by the name it was stored under.
    pub kind: Kind,
    /// What it calls.
    pub target: Option<Target>,
    /// The record of the journal that says so.
    pub seq: Seq,
    /// What happened.
    pub what: Happened,
}

/// What happened to a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub enum Happened {
    /// It was stored.
    Enqueued,
    /// It was taken out of the line for an attempt. Its breaker may still refuse.
    Selected,
    /// An attempt failed, and another will follow.
    Requeued {
        /// The class of what went wrong.
        #[serde(serialize_with = "cause_as_word")]
        cause: Cause,
    },
    /// It is back in line, and no attempt is spent.
    Deferred,
    /// It has ended by itself.
    Ended {
        /// How.
        #[serde(serialize_with = "end_as_word")]
        end: End,
        /// The class of what went wrong last.
        #[serde(serialize_with = "maybe_cause_as_word")]
        cause: Option<Cause>,
    },
    /// It was cancelled.
    Cancelled {
        /// Whether an attempt of it ran, which may still finish.
        was_running: bool,
    },
}

/// Which events to hear: those that have everything that is named. A filter that names nothing lets everything through;
/// changes of health have no names, and only such a filter hears them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct EventFilter {
    id: Option<JobId>,
    kind: Option<Kind>,
    target: Option<Target>,
}

impl EventFilter {
    /// All events.
    pub const fn all() -> Self {
        Self { id: None, kind: None, target: None }
    }

    /// Only those of this job.
    pub fn id(self, id: JobId) -> Self {
        Self { id: Some(id), ..self }
    }

    /// Only those of jobs that were stored under this kind.
    pub fn kind(self, kind: impl Into<Kind>) -> Self {
        Self { kind: Some(kind.into()), ..self }
    }

    /// Only those of this target: of its jobs and of its breaker.
    pub fn target(self, target: impl Into<Target>) -> Self {
        Self { target: Some(target.into()), ..self }
    }

    fn wants(&self, event: &Event) -> bool {
        match event {
            Event::Job(job) => {
                let id = self.id.is_none_or(|id| id == job.id);
                let kind = self.kind.as_ref().is_none_or(|kind| *kind == job.kind);
                id && kind && (self.target.is_none() || self.target == job.target)
            }
            Event::Breaker { target, .. } => {
                self.id.is_none() && self.kind.is_none() && self.target.as_ref().is_none_or(|wanted| wanted == target)
            }
            Event::Health(_) => *self == Self::all(),
            Event::Lagged(_) => true,
        }
    }
}

/// The events that a listener asked for, as they come. Ends with the runner. Also a [`Stream`].
#[must_use = "events are heard only while this is asked for them"]
pub struct Events {
    filter: EventFilter,
    /// None when the runner had ended before.
    next: Option<ReusableBoxFuture<'static, Heard>>,
}

impl Events {
    /// The next event; none when the runner has ended and everything has been heard. Dropped before its answer, it loses nothing.
    pub async fn next(&mut self) -> Option<Event> {
        std::future::poll_fn(|task| self.poll(task)).await
    }

    fn poll(&mut self, task: &mut Context<'_>) -> Poll<Option<Event>> {
        loop {
            let Some(next) = &mut self.next else { return Poll::Ready(None) };
            let (heard, receiver) = ready!(next.poll(task));
            next.set(hear(receiver));
            match heard {
                Ok(event) if self.filter.wants(&event) => return Poll::Ready(Some(event)),
                Ok(_) => {}
                Err(RecvError::Lagged(lost)) => return Poll::Ready(Some(Event::Lagged(lost))),
                Err(RecvError::Closed) => self.next = None,
            }
        }
    }
}

/// What was heard, and where to hear the next.
type Heard = (Result<Event, RecvError>, Receiver<Event>);

async fn hear(mut receiver: Receiver<Event>) -> Heard {
    let heard = receiver.recv().await;
    (heard, receiver)
}

impl Stream for Events {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Event>> {
        self.poll(task)
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").field("filter", &self.filter).finish_non_exhaustive()
    }
}

/// Where events come in. Outlives the queue.
#[derive(Debug, Default)]
pub(crate) struct Feed {
    /// Whether anybody may be listening: asked for every event, so it is all that an event costs when nobody does.
    is_heard: AtomicBool,
    line: Mutex<Line>,
}

#[derive(Debug, Default)]
enum Line {
    #[default]
    Silent,
    Open(Sender<Event>),
    Closed,
}

impl Feed {
    /// A listener's place. `kept` events wait for the slowest one.
    pub(crate) fn listen(&self, filter: EventFilter, kept: usize) -> Events {
        let mut line = self.line();
        let receiver = match &*line {
            Line::Closed => None,
            Line::Open(sender) => Some(sender.subscribe()),
            Line::Silent => {
                let (sender, receiver) = channel(kept);
                *line = Line::Open(sender);
                Some(receiver)
            }
        };
        self.is_heard.store(receiver.is_some(), Ordering::Relaxed);
        Events { filter, next: receiver.map(|receiver| ReusableBoxFuture::new(hear(receiver))) }
    }

    /// Tells what happened, if anybody listens.
    pub(crate) fn tell(&self, event: impl FnOnce() -> Event) {
        if !self.is_heard.load(Ordering::Relaxed) {
            return;
        }
        let mut line = self.line();
        if let Line::Open(sender) = &*line
            && sender.send(event()).is_err()
        {
            // The last listener has gone.
            *line = Line::Silent;
            self.is_heard.store(false, Ordering::Relaxed);
        }
    }

    pub(crate) fn tell_job(&self, ticket: Ticket, route: &Route, seq: Seq, what: Happened) {
        self.tell(|| Event::Job(JobEvent { id: JobId::of(ticket), kind: route.kind.clone(), target: route.target.clone(), seq, what }));
    }

    /// Nothing more will happen: listeners hear what there is, and then the end.
    pub(crate) fn close(&self) {
        *self.line() = Line::Closed;
        self.is_heard.store(false, Ordering::Relaxed);
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn cause_as_word<S: serde::Serializer>(cause: &Cause, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(cause.as_str())
}

fn maybe_cause_as_word<S: serde::Serializer>(cause: &Option<Cause>, serializer: S) -> Result<S::Ok, S::Error> {
    cause.map(Cause::as_str).serialize(serializer)
}

fn end_as_word<S: serde::Serializer>(end: &End, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(end.as_str())
}
