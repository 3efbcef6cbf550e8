//! What a list of jobs is asked for by, and what it answers: one page, and where the next one begins. Never decides how far the
//! queue looks.

use journeyman_core::queue::Live;
use journeyman_core::{JobId, Kind, Route, Target, Ticket};
use serde::Serialize;

use crate::answers::{JobInfo, JobState};
use crate::config;

/// Which jobs to list. Made with everything in it, then narrowed:
///
/// ```
/// use journeyman::{Query, StateFilter};
///
/// let query = Query::new().kind("mail.send").state(StateFilter::Held).limit(20);
/// # drop(query);
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Query {
    kind: Option<Kind>,
    target: Option<Target>,
    state: Option<StateFilter>,
    pub(crate) after: Option<JobId>,
    limit: usize,
}

/// Where a listed job is to stand; see [`JobState`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StateFilter {
    /// It waits for its time or its turn.
    Pending,
    /// Something holds it back.
    Held,
    /// It runs.
    Running,
}

/// A part of a list, in the order of the jobs' numbers.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Page {
    /// The jobs; may be fewer than the limit, even none, though there are more behind.
    pub jobs: Vec<JobInfo>,
    /// For [`Query::after`], to get the next page; none when this was the last.
    pub next: Option<JobId>,
}

impl Query {
    /// All jobs that have not ended, 100 on a page.
    pub const fn new() -> Self {
        Self { kind: None, target: None, state: None, after: None, limit: config::PAGE_LIMIT }
    }

    /// Only jobs that were stored under this kind. One that an alias brings back has its old kind.
    pub fn kind(self, kind: impl Into<Kind>) -> Self {
        Self { kind: Some(kind.into()), ..self }
    }

    /// Only jobs that call this target.
    pub fn target(self, target: impl Into<Target>) -> Self {
        Self { target: Some(target.into()), ..self }
    }

    /// Only jobs that stand there.
    pub fn state(self, state: StateFilter) -> Self {
        Self { state: Some(state), ..self }
    }

    /// Only jobs with a higher number than this one, whether it still lives or not: a [`Page::next`].
    pub fn after(self, id: JobId) -> Self {
        Self { after: Some(id), ..self }
    }

    /// At most so many jobs on the page: 1 to 1,000. A number outside counts as the nearest inside.
    pub fn limit(self, limit: usize) -> Self {
        Self { limit: limit.clamp(1, config::PAGE_LIMIT_MOST), ..self }
    }

    /// The least ticket to look at.
    pub(crate) fn first(&self) -> Ticket {
        self.after.map_or(Ticket(0), |after| after.ticket().next())
    }

    pub(crate) const fn most(&self) -> usize {
        self.limit
    }

    /// Whether the job's names are asked for.
    pub(crate) fn wants(&self, route: &Route) -> bool {
        let kind = self.kind.as_ref().is_none_or(|kind| *kind == route.kind);
        kind && (self.target.is_none() || self.target == route.target)
    }

    /// Whether jobs that stand there are asked for.
    pub(crate) fn wants_state(&self, state: JobState) -> bool {
        self.state.is_none_or(|wanted| match state {
            JobState::Pending { .. } => wanted == StateFilter::Pending,
            JobState::Held { .. } => wanted == StateFilter::Held,
            JobState::Running => wanted == StateFilter::Running,
        })
    }
}

impl Default for Query {
    fn default() -> Self {
        Self::new()
    }
}

impl Page {
    pub(crate) const fn empty() -> Self {
        Self { jobs: Vec::new(), next: None }
    }

    /// Goes through live tickets, the least first, until the page is full or enough have been looked at.
    pub(crate) fn of<'a>(
        query: &Query,
        tickets: impl Iterator<Item = (Ticket, &'a Live)>,
        info: impl Fn(Ticket, &'a Live) -> JobInfo,
    ) -> Self {
        let mut page = Self::empty();
        let mut last = None;
        for (looked_at, (ticket, live)) in tickets.enumerate() {
            if looked_at == config::PAGE_LOOKS || page.jobs.len() == query.most() {
                page.next = last;
                return page;
            }
            last = Some(JobId::of(ticket));
            if query.wants(live.job.route()) {
                page.jobs.extend(Some(info(ticket, live)).filter(|info| query.wants_state(info.state)));
            }
        }
        page
    }
}
