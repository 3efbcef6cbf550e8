//! One attempt of one job, without a queue: what it answers, and nothing of what a runner would make of it.

use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use journeyman_core::{Attempt, Kind, Packed, Route, Seq, Ticket, Time};
use tokio::sync::watch;

use super::START;
use crate::clock::{Clock, VirtualClock};
use crate::cx::{Cx, Running, Surroundings};
use crate::draft::Draft;
use crate::job::{Job, JobResult};
use crate::jobs::Jobs;
use crate::ledger::Ledger;
use crate::registry::bring_back;

/// Runs a job once and answers what it answers. It goes through its codec first, as a stored one does; it runs as the first
/// attempt of job `0-1`; what it enqueues goes nowhere. Its clock is virtual, and moves on to whatever is next as soon
/// as the job does nothing more by itself.
///
/// ```
/// use std::time::Duration;
/// use journeyman::testing::perform;
/// # use journeyman::{Cx, Failure, Job, JobResult};
///
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct Double(u32);
///
/// impl Job for Double {
///     type Context = u32;
///     type Output = u32;
///     const KIND: &'static str = "double";
///
///     async fn run(self, cx: Cx<u32>) -> JobResult<u32> {
///         cx.sleep(Duration::from_secs(3600)).await;
///         if self.0 > *cx.context() { Err(Failure::permanent("too much")) } else { Ok(2 * self.0) }
///     }
/// }
///
/// # actix_rt::System::new().block_on(async {
/// assert_eq!(perform(Double(21), 100).await.unwrap(), 42);
/// assert!(perform(Double(101), 100).await.is_err());
/// # });
/// ```
///
/// # Panics
/// When the job would be refused when it is enqueued, and when it panics itself.
pub async fn perform<J: Job>(job: J, context: J::Context) -> JobResult<J::Output> {
    perform_with(job, context, Jobs::capture().0).await
}

/// The same with a handle of the caller's, for jobs that enqueue others: see [`Jobs::capture`].
///
/// # Panics
/// As [`perform`].
pub async fn perform_with<J: Job>(job: J, context: J::Context, jobs: Jobs) -> JobResult<J::Output> {
    let draft = Draft::of(Route::without_target(Kind::new(J::KIND)), &job).unwrap_or_else(|refused| panic!("{refused}"));
    let stored = Packed::along(draft.route, &draft.fields);
    drop(job);
    let job: J = bring_back(&stored).unwrap_or_else(|why| panic!("a stored {} does not come back: {why}", J::KIND));
    let clock = VirtualClock::new(START, 0);
    let draining = watch::channel(false).1;
    let surroundings = Surroundings { ledger: Ledger::default(), draining, clock: Clock::Virtual(clock.clone()), jobs };
    let running = Running::new((Ticket(1), Attempt(Seq(2))), 1, stored.meta(), surroundings.into());
    driven(job.run(Cx::new(Rc::new(context), running)), &clock).await
}

/// Moves the clock on when nothing else has happened for a while.
async fn driven<F: Future>(future: F, clock: &VirtualClock) -> F::Output {
    let mut future = pin!(future);
    let mut idle_rounds = 0;
    std::future::poll_fn(|task| {
        if let Poll::Ready(output) = future.as_mut().poll(task) {
            return Poll::Ready(output);
        }
        idle_rounds += 1;
        if idle_rounds > IDLE_ROUNDS {
            idle_rounds = 0;
            if !clock.move_to_next(Time(u64::MAX)) {
                // It waits for something else, which wakes it.
                return Poll::Pending;
            }
        }
        task.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}

/// Rounds in which a job may do something by itself before its clock moves on.
const IDLE_ROUNDS: u32 = 32;
