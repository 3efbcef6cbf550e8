//! A program that speaks in actix messages only: its actor knows the address of the runner's actor and nothing else. It
//! subscribes to what happens, enqueues, takes a job back, and acts on what it hears.
//!
//! `cargo run --example messages`

use std::error::Error;
use std::time::Duration;

use actix::prelude::*;
use journeyman::protocol::{Cancel, Enqueue, Get, JobsActor, Stats, Subscribe};
use journeyman::{Cx, Event, EventFilter, Found, Happened, Job, JobEvent, JobId, JobResult, Runner};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

#[derive(Serialize, Deserialize)]
struct Dish {
    name: String,
}

impl Job for Dish {
    type Context = ();
    type Output = ();
    const KIND: &'static str = "dish.cook";

    async fn run(self, _: Cx<()>) -> JobResult<()> {
        Ok(())
    }
}

/// Orders soup; when that is done, a roast; and changes its mind about the roast.
struct Guest {
    jobs: Addr<JobsActor>,
    leaves: Option<oneshot::Sender<()>>,
}

impl Actor for Guest {
    type Context = Context<Self>;

    /// Messages are handled in the order in which they are sent: nothing of the soup is missed.
    fn started(&mut self, ctx: &mut Context<Self>) {
        self.jobs.do_send(Subscribe { to: ctx.address().recipient(), filter: EventFilter::all().kind(Dish::KIND) });
        self.order("soup", Duration::ZERO, ctx);
    }
}

impl Guest {
    /// Sends the order; its answer comes when the job is on disk, or says why it is not.
    fn order(&self, name: &str, delay: Duration, ctx: &mut Context<Self>) {
        let order = self.jobs.send(Enqueue::of(Dish { name: name.to_owned() }).key(name).delay(delay));
        let heard = order.into_actor(self).map(|answer, guest, _| {
            let refused = match answer {
                Ok(Ok(_)) => return,
                Ok(Err(error)) => error.to_string(),
                Err(error) => error.to_string(),
            };
            println!("no dish: {refused}");
            guest.leave();
        });
        ctx.spawn(heard);
    }

    fn take_back(&self, id: JobId, ctx: &mut Context<Self>) {
        let answer = self.jobs.send(Cancel { id }).into_actor(self);
        ctx.spawn(answer.map(|answer, guest, _| {
            if !matches!(answer, Ok(Ok(_))) {
                println!("it is not taken back: {answer:?}");
                guest.leave();
            }
        }));
    }

    fn ask_and_leave(&self, id: JobId, ctx: &mut Context<Self>) {
        let (found, stats) = (self.jobs.send(Get { id }), self.jobs.send(Stats));
        let both = async move { (found.await, stats.await) }.into_actor(self);
        ctx.spawn(both.map(move |both, guest, _| {
            if let (Ok(Ok(Found::Gone(end))), Ok(stats)) = both {
                println!("asked: job {id} is {end:?}; in all {} done, {} cancelled", stats.done, stats.cancelled);
            }
            guest.leave();
        }));
    }

    fn leave(&mut self) {
        if let Some(leaves) = self.leaves.take() {
            // Nobody waits for a guest who has left already.
            let _ = leaves.send(());
        }
    }
}

impl Handler<Event> for Guest {
    type Result = ();

    fn handle(&mut self, event: Event, ctx: &mut Context<Self>) {
        let Event::Job(JobEvent { id, what, .. }) = event else { return };
        println!("heard: job {id}: {what:?}");
        let is_roast = id.ticket().0 == 2;
        match what {
            Happened::Ended { .. } => self.order("roast", Duration::from_secs(3600), ctx),
            Happened::Enqueued if is_roast => self.take_back(id, ctx),
            Happened::Cancelled { .. } => self.ask_and_leave(id, ctx),
            _ => {}
        }
    }
}

#[actix::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let fresh = tempfile::tempdir()?;
    let runner = Runner::open(fresh.path().join("jobs")).register::<Dish>().start().await?;
    let (leaves, left) = oneshot::channel();
    let guest = Guest { jobs: runner.jobs().start_actor(), leaves: Some(leaves) }.start();
    left.await?;
    drop(guest);
    let report = runner.shutdown(Duration::from_secs(10)).await?;
    println!("left for the next start: {}", report.pending);
    Ok(())
}
