//! PayloadsActor: puts payloads away and brings them back, on an arbiter of its own as it blocks there, and keeps their files small
//! while nobody asks. What is wanted and when, the queue decides; what a file holds, its twin knows.

use std::sync::Arc;

use actix::{Actor, AsyncContext, Context, Handler, Message, Recipient};
use journeyman_core::payloads::{PayloadError, Payloads, Put, TidyError};
use journeyman_core::{Attempt, Packed, Ticket};

use crate::clock::Clock;
use crate::events;
use crate::messages::{Fetch, Fetched, Forget, PutAway, WentAway};
use crate::status::{Concern, Status};

pub(crate) struct PayloadsActor {
    payloads: Payloads,
    queue: Queue,
    status: Arc<Status>,
    clock: Clock,
    /// Whether the next step of tidying is on its way.
    is_tidying: bool,
}

/// What it says to the queue.
pub(crate) struct Queue {
    pub went: Recipient<WentAway>,
    pub fetched: Recipient<Fetched>,
}

/// What the queue says to it.
pub(crate) struct Desk {
    pub put: Recipient<PutAway>,
    pub fetch: Recipient<Fetch>,
    pub forget: Recipient<Forget>,
}

impl PayloadsActor {
    pub(crate) const fn new(payloads: Payloads, queue: Queue, status: Arc<Status>, clock: Clock) -> Self {
        Self { payloads, queue, status, clock, is_tidying: false }
    }

    fn tidy(&mut self, ctx: &mut Context<Self>) {
        self.status.payload_files.set(self.payloads.bytes_of_files().1);
        if !self.is_tidying && self.payloads.is_untidy() {
            self.is_tidying = true;
            ctx.notify(Tidy);
        }
    }

    fn bring_back(&self, mut jobs: Vec<(Ticket, Attempt, Packed)>) -> Result<Vec<(Ticket, Attempt, Packed)>, PayloadError> {
        let tickets: Vec<Ticket> = jobs.iter().map(|(ticket, ..)| *ticket).collect();
        self.payloads.read(&tickets, |at, payload| {
            if let Some((.., job)) = jobs.get_mut(at)
                && let Some(whole) = job.brought_back(payload)
            {
                *job = whole;
            }
        })?;
        let missing = jobs.iter().find(|(.., job)| job.is_away());
        missing.map_or(Ok(()), |(ticket, ..)| Err(PayloadError::Unknown(*ticket)))?;
        Ok(jobs)
    }

    fn lost(&self, why: &str) {
        self.queue.fetched.do_send(Fetched(Err(format!("a payload did not come back from disk: {why}"))));
    }
}

impl Actor for PayloadsActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        self.tidy(ctx);
    }
}

impl Handler<PutAway> for PayloadsActor {
    type Result = ();

    fn handle(&mut self, PutAway(jobs): PutAway, ctx: &mut Context<Self>) {
        self.clock.stir();
        let Put { away, failed } = self.payloads.put(jobs.iter().filter_map(|(ticket, job)| Some((*ticket, job.payload()?))));
        // So that what the queue lets go is free at once.
        drop(jobs);
        let is_full = failed.is_some();
        if let Some(why) = failed {
            let text = format!("payloads cannot be put on disk, and stay in memory: {why}");
            if self.status.concern(Concern::Payloads, Some(text)) {
                events::not_put_away(&why.to_string());
            }
        } else {
            self.status.concern(Concern::Payloads, None);
        }
        self.queue.went.do_send(WentAway { tickets: away, is_full });
        self.tidy(ctx);
    }
}

impl Handler<Fetch> for PayloadsActor {
    type Result = ();

    fn handle(&mut self, Fetch(jobs): Fetch, _: &mut Context<Self>) {
        self.clock.stir();
        match self.bring_back(jobs) {
            Ok(jobs) => self.queue.fetched.do_send(Fetched(Ok(jobs))),
            Err(why) => self.lost(&why.to_string()),
        }
    }
}

impl Handler<Forget> for PayloadsActor {
    type Result = ();

    fn handle(&mut self, Forget(tickets): Forget, ctx: &mut Context<Self>) {
        self.clock.stir();
        tickets.into_iter().for_each(|ticket| self.payloads.forget(ticket));
        self.tidy(ctx);
    }
}

/// The same jobs with their payloads; for tests.
#[cfg(feature = "testing")]
#[derive(Message)]
#[rtype(result = "Vec<Packed>")]
pub(crate) struct Show(pub Vec<(Ticket, Packed)>);

#[cfg(feature = "testing")]
impl Handler<Show> for PayloadsActor {
    type Result = actix::MessageResult<Show>;

    fn handle(&mut self, Show(jobs): Show, _: &mut Context<Self>) -> Self::Result {
        let whole = |(ticket, job): (Ticket, Packed)| {
            let mut found = job.clone();
            if job.is_away() {
                // One that does not come back shows itself to whoever reads it.
                let _ = self.payloads.read(&[ticket], |_, payload| found = job.brought_back(payload).unwrap_or_else(|| job.clone()));
            }
            found
        };
        actix::MessageResult(jobs.into_iter().map(whole).collect())
    }
}

/// Time for the next step.
#[derive(Message)]
#[rtype(result = "()")]
struct Tidy;

impl Handler<Tidy> for PayloadsActor {
    type Result = ();

    fn handle(&mut self, _: Tidy, ctx: &mut Context<Self>) {
        self.clock.stir();
        self.is_tidying = false;
        match self.payloads.tidy() {
            Ok(_) => self.tidy(ctx),
            // With the next payload that comes or goes it is tried again.
            Err(TidyError::Full(_)) => {}
            Err(why) => self.lost(&why.to_string()),
        }
    }
}
