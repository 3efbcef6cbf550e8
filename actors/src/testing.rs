//! The test kit: a runner on a virtual clock and a memory disk, all on the test's own thread. Time moves only when told, a
//! crash is a call, and nothing needs a sleep.
//!
//! ```
//! use std::time::Duration;
//! use journeyman::{Cx, Failure, Job, JobResult, JobState, Runner};
//!
//! #[derive(serde::Serialize, serde::Deserialize)]
//! struct Flaky;
//! impl Job for Flaky {
//!     type Context = ();
//!     type Output = ();
//!     const KIND: &'static str = "flaky";
//!     async fn run(self, cx: Cx<()>) -> JobResult<()> {
//!         if cx.attempt() < 3 { Err(Failure::transient("not yet")) } else { Ok(()) }
//!     }
//! }
//!
//! # actix_rt::System::new().block_on(async {
//! let mut t = Runner::in_memory().register::<Flaky>().test().await.unwrap();
//! let id = t.jobs().enqueue(Flaky).await.unwrap().id();
//! t.settle().await;
//! assert_eq!(t.jobs().get(id).await.unwrap().unwrap().failures, 1);
//! t.crash_and_reopen().await.unwrap();
//! t.advance(Duration::from_secs(60)).await;
//! assert_eq!(t.jobs().stats().done, 1);
//! # });
//! ```

mod capture;
mod perform;

use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, ready};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use actix::{Actor, ActorFutureExt, Addr, AsyncContext, Context, Handler, Recipient, WrapFuture};
use futures_util::future::{Either, select};
use journeyman_core::disk::{Disk, MemDisk};
use journeyman_core::payloads::Numbers;
use journeyman_core::{Attempt, JobId, Seq, Time};
use tokio::task::AbortHandle;

use crate::answers::ShutdownReport;
use crate::base::Base;
use crate::clock::{Clock, VirtualClock};
use crate::compactor::Turnstile;
use crate::error::{IdleError, RunnerFailed, StartError};
use crate::job::Job;
use crate::jobs::Jobs;
use crate::keeper::{Ground, Keeper, Place};
use crate::messages::{Append, AppendReply, Seal};
use crate::payloads::Show;
use crate::pool::Available;
use crate::queue::{Spare, Stall, Turn, Waiting};
use crate::runner::{Builder, Configured, Runner, launch};
use crate::snapshots::{self, Snapshots};
use crate::supervisor::Supervisor;
use crate::wiring::Blueprint;
pub(crate) use capture::Capture;
pub use capture::Captured;
pub use perform::{perform, perform_with};

impl Runner {
    /// Begins to build a runner for a test: see [`Configured::test`]. One that is [started](Configured::start) instead is a real runner,
    /// with threads and time as they are, on a memory disk of its own.
    pub fn in_memory() -> Builder {
        Self::open("in memory").on_a_memory_disk()
    }
}

impl<C: 'static> Configured<C> {
    /// Starts the runner on a virtual clock and a memory disk, on this thread. Must be awaited in an actix runtime, as
    /// `#[actix::test]` gives.
    ///
    /// # Errors
    /// [`StartError`], as a real start.
    pub async fn test(self) -> Result<TestRunner<C>, StartError> {
        self.test_with(MemDisk::default(), 0).await
    }

    /// The same on a disk that may hold something already, with a seed for the runner's dice.
    ///
    /// # Errors
    /// [`StartError`], as a real start.
    pub async fn test_with(self, disk: MemDisk, seed: u64) -> Result<TestRunner<C>, StartError> {
        self.test_on(disk, seed).await
    }

    /// The same on a disk of your own making: one that fails, say, or that keeps more of what was not synced than it must.
    ///
    /// # Errors
    /// [`StartError`], as a real start.
    pub async fn test_on<D: TestDisk>(self, disk: D, seed: u64) -> Result<TestRunner<C, D>, StartError> {
        if !actix_rt::System::is_registered() {
            return Err(StartError::NoActixRuntime);
        }
        let (_, blueprint) = self.check()?;
        let clock = VirtualClock::new(START, seed);
        let control = Arc::new(Mutex::new(Control { syncs: Syncs::AtOnce, held: VecDeque::new() }));
        let process = Process::start(&blueprint, &disk, &clock, &control).await?;
        Ok(TestRunner { blueprint, disk, clock, control, process })
    }
}

impl<C: 'static> Configured<C> {
    /// Starts a real runner, with threads and time as they are, on a disk of your own making: one that is slow, say. Its snapshots are
    /// in plain files. Nothing is locked: one runner at a time is yours to see to.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn start_on(self, disk: impl Disk + 'static) -> Result<Runner, StartError> {
        let (dir, blueprint) = self.check()?;
        let disk: Arc<dyn Disk> = Arc::new(disk);
        let its = disk.clone();
        let snapshots: Snapshots = Arc::new(move || snapshots::plain(its.clone()));
        launch(blueprint, move |_| ready(Ok(Ground { dir, disk, snapshots, turnstile: Turnstile::default(), numbers: Numbers::default() })))
            .await
    }
}

/// A disk whose plug can be pulled. Clones share it.
pub trait TestDisk: Disk + Clone + 'static {
    /// Cuts the power: what was synced is there, and of the rest whatever this disk keeps.
    fn crash(&self);
}

impl TestDisk for MemDisk {
    fn crash(&self) {
        Self::crash(self);
    }
}

/// A runner for tests. Everything that it does happens while the test awaits one of its methods, or anything else.
pub struct TestRunner<C: 'static = (), D = MemDisk> {
    blueprint: Blueprint<C>,
    disk: D,
    clock: VirtualClock,
    control: Arc<Mutex<Control>>,
    process: Process,
}

/// What a crash ends.
struct Process {
    base: Base,
    keeper: AbortHandle,
}

/// When the memory disk says that a batch is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Syncs {
    /// At once.
    AtOnce,
    /// After so much virtual time: a disk that takes that long for each sync.
    After(Duration),
    /// Only when told, by [`TestRunner::release_sync`].
    WhenTold,
    /// The batch is written, but its answer is lost on the way: nobody knows.
    Unheard,
}

impl<C: 'static, D: TestDisk> TestRunner<C, D> {
    /// The handle to enqueue with. After a crash, take a new one.
    #[must_use]
    pub fn jobs(&self) -> Jobs {
        self.process.base.jobs.clone()
    }

    /// What the wall clock shows.
    #[must_use]
    pub fn now(&self) -> SystemTime {
        self.clock.now().wall.into()
    }

    /// Lets happen whatever needs no time. What runs on other threads is not waited for; blocking sections run in place.
    pub async fn settle(&self) {
        let mut quiet = 0;
        let mut seen = self.clock.stirred();
        while quiet < QUIET_ROUNDS {
            tokio::task::yield_now().await;
            let stirred = self.clock.stirred();
            quiet = if stirred == seen { quiet + 1 } else { 0 };
            seen = stirred;
        }
    }

    /// Moves time on by `duration`, stopping wherever something is to happen; returns when nothing is left to do.
    pub async fn advance(&self, duration: Duration) {
        let until = self.clock.now().steady + duration.into();
        loop {
            self.settle().await;
            if !self.clock.move_to_next(until) {
                break;
            }
        }
        self.clock.move_to(until);
        self.settle().await;
    }

    /// Awaits `future` while time moves on to whatever is next, for at most `patience`; none when that was not enough.
    pub async fn drive<F: Future>(&self, future: F, patience: Duration) -> Option<F::Output> {
        let until = self.clock.now().steady + patience.into();
        let mut future = pin!(future);
        loop {
            let settled = pin!(self.settle());
            match select(future, settled).await {
                Either::Left((output, _)) => return Some(output),
                Either::Right(((), unready)) => future = unready,
            }
            if !self.clock.move_to_next(until) {
                return None;
            }
        }
    }

    /// Moves time on until nothing is pending or running.
    ///
    /// # Errors
    /// [`IdleError::WorkLeft`] when there was work left after `patience`.
    pub async fn run_until_idle(&self, patience: Duration) -> Result<(), IdleError> {
        let jobs = self.jobs();
        let answer = jobs.run_until_idle(patience);
        self.drive(answer, patience + Duration::from_millis(1)).await.unwrap_or_else(|| Err(crate::error::CallError::Unknown.into()))
    }

    /// Pulls the plug: what was not synced is gone, every attempt is cut off, and a new process opens what is left.
    ///
    /// # Errors
    /// [`StartError`] when it cannot be opened.
    pub async fn crash_and_reopen(&mut self) -> Result<(), StartError> {
        self.process.end("the process crashed");
        self.settle().await;
        self.disk.crash();
        self.reopen().await
    }

    /// The same, with the wall clock set to `instant` before the new process starts.
    ///
    /// # Errors
    /// [`StartError`] when it cannot be opened.
    pub async fn crash_and_reopen_at(&mut self, instant: SystemTime) -> Result<(), StartError> {
        self.process.end("the process crashed");
        self.settle().await;
        self.disk.crash();
        self.clock.set_wall(instant.into());
        self.reopen().await
    }

    /// Stops in order, as [`Runner::shutdown`] does, and opens again.
    ///
    /// # Errors
    /// [`StartError`] when it cannot be opened.
    pub async fn stop_and_reopen(&mut self, drain: Duration) -> Result<ShutdownReport, StartError> {
        let report = self.shutdown(drain).await.map_err(|failed| StartError::Thread(failed.to_string()))?;
        self.process.end("the process has ended");
        self.settle().await;
        self.reopen().await?;
        Ok(report)
    }

    /// Stops in order, as [`Runner::shutdown`] does. The handle says `ShuttingDown` from then on.
    ///
    /// # Errors
    /// [`RunnerFailed`] when the runner has failed.
    pub async fn shutdown(&self, drain: Duration) -> Result<ShutdownReport, RunnerFailed> {
        let answer = self.process.base.drain(drain.into());
        let patience = drain + self.blueprint.limits.interrupt_grace + Duration::from_secs(60);
        let failed = || Err(RunnerFailed { reason: "the queue gave no report".to_owned() });
        let report = self.drive(answer, patience).await.unwrap_or_else(failed)?;
        if let Some(core) = self.process.base.core() {
            // What was sealed is as durable as before, whatever the disk says.
            let _ = core.journal.send(Seal).await;
        }
        Ok(report)
    }

    /// Sets when the disk says that a batch is durable.
    pub fn set_syncs(&self, syncs: Syncs) {
        self.control().syncs = syncs;
    }

    /// Lets the batch through that waits for [`Syncs::WhenTold`]. Answers whether there was one.
    pub async fn release_sync(&self) -> bool {
        let held = self.control().held.pop_front();
        let found = held.is_some();
        if let Some((journal, append)) = held {
            journal.do_send(append);
        }
        self.settle().await;
        found
    }

    /// Sets the wall clock, forward or back, as an operator or a time server does.
    pub async fn set_wall_clock(&self, instant: SystemTime) {
        self.clock.set_wall(instant.into());
        if let Some(queue) = self.process.base.line.queue() {
            queue.do_send(Turn);
        }
        self.settle().await;
    }

    /// The disk, to look at or to damage.
    #[must_use]
    pub const fn disk(&self) -> &D {
        &self.disk
    }

    /// Lets the actors of this name panic: `queue`, `journal`, `pool`, `breaker`, `payloads` or `worker`. The
    /// runner reopens after its pause: move the time on for that.
    pub async fn kill(&self, actor: &str) {
        self.process.base.kill(actor);
        self.settle().await;
    }

    /// Tells the queue that an attempt is over, as a message does that comes early, late or twice, or for an attempt that never
    /// was. An attempt goes by the record of its Select: see [`JobEvent::seq`](crate::JobEvent::seq).
    pub async fn stray_outcome(&self, id: JobId, attempt: Seq) {
        self.process.base.ledger.stray(id.ticket(), Attempt(attempt));
        self.settle().await;
    }

    /// How many actors of this name live; see [`TestRunner::kill`] for the names.
    #[must_use]
    pub fn actors(&self, name: &str) -> usize {
        self.process.base.supervisors().map(|supervisor| supervisor.count(name)).sum()
    }

    /// Units of the pool that no attempt occupies.
    pub async fn free_units(&self) -> u32 {
        let (Some(core), Some(queue)) = (self.process.base.core(), self.process.base.line.queue()) else { return 0 };
        core.pool.send(Available).await.unwrap_or(0) + queue.send(Spare).await.unwrap_or(0)
    }

    /// The jobs of this type that wait for their time, their turn or a retry, in the order in which they were enqueued; those
    /// under its aliases too. What was asked for but is not yet on disk is among them.
    ///
    /// ```
    /// # use journeyman::{Cx, Job, JobResult, Runner};
    /// # use std::time::Duration;
    /// # #[derive(serde::Serialize, serde::Deserialize)] struct Mail { to: String }
    /// # impl Job for Mail {
    /// #     type Context = (); type Output = (); const KIND: &'static str = "mail";
    /// #     async fn run(self, _: Cx<()>) -> JobResult<()> { Ok(()) }
    /// # }
    /// # actix_rt::System::new().block_on(async {
    /// let t = Runner::in_memory().register::<Mail>().test().await.unwrap();
    /// t.jobs().enqueue(Mail { to: "a@example.org".into() }).delay(Duration::from_secs(60)).await.unwrap();
    /// assert_eq!(t.enqueued::<Mail>().await[0].to, "a@example.org");
    /// t.advance(Duration::from_secs(60)).await;
    /// assert!(t.enqueued::<Mail>().await.is_empty());
    /// # });
    /// ```
    ///
    /// # Panics
    /// When one of them does not come back.
    pub async fn enqueued<J: Job>(&self) -> Vec<J> {
        let Some(queue) = self.process.base.line.queue() else { return Vec::new() };
        let waiting = queue.send(Waiting).await.unwrap_or_default();
        let Some(core) = self.process.base.core() else { return Vec::new() };
        let waiting = core.payloads.send(Show(waiting)).await.unwrap_or_default();
        capture::decoded(waiting.iter())
    }

    async fn reopen(&mut self) -> Result<(), StartError> {
        self.clock.level();
        *self.control() = Control { syncs: Syncs::AtOnce, held: VecDeque::new() };
        self.process = Process::start(&self.blueprint, &self.disk, &self.clock, &self.control).await?;
        self.settle().await;
        Ok(())
    }

    fn control(&self) -> MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C: 'static, D> Drop for TestRunner<C, D> {
    fn drop(&mut self) {
        self.process.end("the runner was dropped");
    }
}

impl<C: 'static, D> fmt::Debug for TestRunner<C, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestRunner").field("now", &self.clock.now()).field("jobs", &self.process.base.jobs).finish_non_exhaustive()
    }
}

impl Process {
    async fn start<C: 'static>(
        blueprint: &Blueprint<C>,
        disk: &impl TestDisk,
        clock: &VirtualClock,
        control: &Arc<Mutex<Control>>,
    ) -> Result<Self, StartError> {
        let clock = Clock::Virtual(clock.clone());
        let (control, time) = (control.clone(), clock.clone());
        let place = Place::Together(Arc::new(move |supervisor, journal| {
            let front = FrontJournal { journal, control: control.clone(), clock: time.clone() };
            let front: Addr<FrontJournal> = supervisor.launch("journal in front", |_| front);
            front.recipient()
        }));
        let base = Base::new(blueprint, clock);
        let disk: Arc<dyn Disk> = Arc::new(disk.clone());
        let its = disk.clone();
        let ground = Ground {
            dir: "in memory".into(),
            disk,
            snapshots: Arc::new(move || snapshots::plain(its.clone())),
            turnstile: Turnstile::default(),
            numbers: Numbers::default(),
        };
        let mut keeper = Keeper::new(blueprint.clone(), base.clone(), ground, place);
        keeper.open().await?;
        let keeper = actix_rt::spawn(async move { keeper.keep().await }).abort_handle();
        Ok(Self { base, keeper })
    }

    /// Ends everything where it stands.
    fn end(&self, why: &str) {
        self.base.status.give_up(why);
        self.keeper.abort();
        self.base.ledger.leave_office();
        self.base.line.cut();
        self.base.supervisors().for_each(|supervisor| supervisor.end());
    }
}

impl Base {
    fn supervisors(&self) -> impl Iterator<Item = Supervisor> {
        self.core().map(|core| core.supervisor).into_iter().chain([self.staff.clone()])
    }

    fn kill(&self, actor: &str) {
        self.supervisors().for_each(|supervisor| supervisor.kill(actor));
    }
}

/// For tests of what happens to a runner on real threads and a real disk.
impl Runner {
    /// Lets the actors of this name panic; see [`TestRunner::kill`] for the names.
    pub fn kill(&self, actor: &str) {
        self.base().kill(actor);
    }

    /// Runs `section` inside the queue, which takes no turn before it ends.
    pub fn stall(&self, section: impl FnOnce() + Send + 'static) {
        if let Some(queue) = self.base().line.queue() {
            queue.do_send(Stall(Box::new(section)));
        }
    }
}

/// Stands between the queue and its journal, and decides when the queue hears that a batch is durable.
struct FrontJournal {
    journal: Recipient<Append>,
    control: Arc<Mutex<Control>>,
    clock: Clock,
}

struct Control {
    syncs: Syncs,
    held: VecDeque<(Recipient<Append>, Append)>,
}

impl Actor for FrontJournal {
    type Context = Context<Self>;
}

impl Handler<Append> for FrontJournal {
    type Result = ();

    fn handle(&mut self, append: Append, ctx: &mut Context<Self>) {
        self.clock.stir();
        let journal = self.journal.clone();
        let mut control = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        match control.syncs {
            Syncs::AtOnce => journal.do_send(append),
            Syncs::After(duration) => {
                let (clock, until) = (self.clock.clone(), self.clock.now().steady + duration.into());
                let sync = async move { clock.sleep_until(until).await }.into_actor(self);
                ctx.spawn(sync.map(move |(), _, _| journal.do_send(append)));
            }
            Syncs::WhenTold => control.held.push_back((journal, append)),
            Syncs::Unheard => journal.do_send(Append { batch: append.batch.clone(), reply: AppendReply::nowhere() }),
        }
    }
}

/// 2026-01-01, so that no test begins at the epoch by accident.
const START: Time = Time(1_767_225_600_000);
/// Rounds in which nothing happened before nothing will. Every message of the runner is noticed, so this only has to cover
/// what a job does by itself between two of them.
const QUIET_ROUNDS: u32 = 32;
