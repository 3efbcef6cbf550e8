//! Building, starting and stopping a runner. It lives on a thread of its own, in an actix system of its own: the HTTP
//! server's way of handling a signal stops every arbiter of *its* system, and must not reach ours.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
#[cfg(feature = "testing")]
use journeyman_core::disk::MemDisk;
use journeyman_core::disk::{DirError, Disk, FileDisk};
use journeyman_core::payloads::Numbers;
use journeyman_core::{Circuit, Policy};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use crate::answers::ShutdownReport;
use crate::base::Base;
use crate::clock::Clock;
use crate::compactor::Turnstile;
use crate::config::Limits;
use crate::error::{RunnerFailed, StartError};
use crate::events;
use crate::job::Job;
use crate::jobs::Jobs;
use crate::keeper::{Ground, Keeper, Place};
use crate::registry::Registry;
use crate::snapshots;
use crate::threads::Host;
use crate::wiring::{Blueprint, Factory};

/// A runner that has been started. Ends with [`Runner::serve`], [`Runner::run_until`] or [`Runner::shutdown`]; dropped, it
/// cuts its attempts off as a crash would, and says so in the log.
#[must_use = "a runner that is dropped stops at once"]
pub struct Runner {
    base: Base,
    /// The thread that it lives on, and how to end it.
    host: Option<(Host, oneshot::Sender<()>)>,
}

impl Runner {
    /// Begins to build a runner on a directory, which is made when it is not there. One runner at a time has it.
    ///
    /// ```no_run
    /// # use journeyman::{Cx, Job, JobResult, Runner};
    /// # #[derive(serde::Serialize, serde::Deserialize)] struct Mail { to: String }
    /// # impl Job for Mail {
    /// #     type Context = String; type Output = (); const KIND: &'static str = "mail";
    /// #     async fn run(self, _: Cx<String>) -> JobResult<()> { Ok(()) }
    /// # }
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let runner = Runner::open("jobs.d")
    ///     .context(|| async { Ok::<_, std::io::Error>("smtp.example.org".to_owned()) })
    ///     .register::<Mail>()
    ///     .start()
    ///     .await?;
    /// # Ok(()) }
    /// ```
    pub fn open(dir: impl Into<PathBuf>) -> Builder {
        Builder { dir: dir.into(), settings: Settings::default() }
    }

    /// The handle to enqueue with. Clone it as you like.
    #[must_use]
    pub fn jobs(&self) -> Jobs {
        self.base.jobs.clone()
    }

    /// Runs until the server ends: by itself, or by SIGTERM or SIGINT, which the server is expected to hear as well (actix-web's
    /// does; one that does not is left after `drain`). At the signal no new attempt starts; handlers may enqueue while the
    /// server drains; then running attempts get `drain` to end, and what is left is deferred without spending an attempt.
    /// A second signal skips the wait and loses nothing. The whole stop takes at most twice `drain`, with
    /// `interrupt_grace` twice more for attempts that come to no await, and `append_timeout` for a disk that hangs.
    ///
    /// Must be awaited in a tokio or actix runtime.
    ///
    /// # Errors
    /// The server's, after an orderly stop; or [`RunnerFailed`] as an `io::Error`, at once when it happens.
    pub async fn serve(mut self, server: impl Future<Output = io::Result<()>>, drain: Duration) -> io::Result<ShutdownReport> {
        let mut signals = Signals::listen()?;
        let mut server = pin!(server);
        let served = tokio::select! {
            // The signal first: the server may have heard the same one, and then it is not the second.
            biased;
            () = signals.next() => {
                self.base.quiet();
                let clock = self.base.clock.clone();
                tokio::select! {
                    served = &mut server => served,
                    _ = self.base.status.over() => return Err(self.end().await.into()),
                    () = signals.next() => return Ok(self.shutdown(Duration::ZERO).await?),
                    () = clock.sleep(drain.into()) => Ok(()),
                }
            }
            served = &mut server => served,
            _ = self.base.status.over() => return Err(self.end().await.into()),
        };
        let report = self.shutdown_unless(signals, drain).await?;
        served.map(|()| report)
    }

    /// Runs until `stop` is ready, then as [`Runner::shutdown`]. SIGTERM or SIGINT during the drain skips the wait.
    ///
    /// Must be awaited in a tokio or actix runtime.
    ///
    /// # Errors
    /// [`RunnerFailed`], at once when it happens.
    pub async fn run_until(mut self, stop: impl Future, drain: Duration) -> Result<ShutdownReport, RunnerFailed> {
        tokio::select! {
            _ = stop => {}
            _ = self.base.status.over() => return Err(self.end().await),
        }
        match Signals::listen() {
            Ok(signals) => self.shutdown_unless(signals, drain).await,
            Err(_) => self.shutdown(drain).await,
        }
    }

    /// Stops in order: nothing new is selected, running attempts get `drain` to end, what is left is deferred without
    /// spending an attempt, the journal is sealed and closed. Jobs may be enqueued until the last attempt has ended.
    ///
    /// # Errors
    /// [`RunnerFailed`] when the runner has failed, now or before.
    pub async fn shutdown(mut self, drain: Duration) -> Result<ShutdownReport, RunnerFailed> {
        let report = self.base.drain(drain.into()).await;
        match report {
            Ok(_) => self.stop_host().await,
            Err(_) => drop(self.end().await),
        }
        report
    }

    #[cfg(feature = "testing")]
    pub(crate) const fn base(&self) -> &Base {
        &self.base
    }

    async fn shutdown_unless(self, mut signals: Signals, drain: Duration) -> Result<ShutdownReport, RunnerFailed> {
        let base = self.base.clone();
        let mut shutdown = pin!(self.shutdown(drain));
        tokio::select! {
            report = &mut shutdown => return report,
            () = signals.next() => {}
        }
        tokio::select! {
            report = &mut shutdown => return report,
            _ = base.drain(journeyman_core::Span(0)) => {}
        }
        shutdown.await
    }

    /// The end of a runner that is over.
    async fn end(&mut self) -> RunnerFailed {
        let failed = self.base.status.over().await;
        self.stop_host().await;
        failed
    }

    async fn stop_host(&mut self) {
        let Some((host, stop)) = self.host.take() else { return };
        // The thread may have ended by itself: then nobody listens, and it is gone all the same.
        let _ = stop.send(());
        host.join().await;
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        if self.host.is_some() && self.base.status.give_up("the runner was dropped") {
            events::dropped();
        }
    }
}

impl fmt::Debug for Runner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runner").field("jobs", &self.base.jobs).finish_non_exhaustive()
    }
}

/// A runner that has no job type yet.
#[must_use = "a builder does nothing until it is started"]
pub struct Builder {
    dir: PathBuf,
    settings: Settings,
}

/// What both builders set.
#[derive(Clone, Default)]
struct Settings {
    limits: Limits,
    circuit: Circuit,
    allow_abort: bool,
    #[cfg(feature = "testing")]
    in_memory: bool,
}

macro_rules! settings {
    () => {
        /// How many attempts run at once; 64 unless set.
        pub fn capacity(mut self, capacity: u32) -> Self {
            self.settings.limits.capacity = capacity;
            self
        }

        /// Sets all bounds, the capacity among them.
        pub fn limits(mut self, limits: Limits) -> Self {
            self.settings.limits = limits;
            self
        }

        /// How the breakers of all targets behave.
        pub fn circuit(mut self, circuit: Circuit) -> Self {
            self.settings.circuit = circuit;
            self
        }

        /// How long to wait for another runner to let go of the directory, as in a rolling restart; not at all unless set.
        pub fn wait_for_lock(mut self, patience: Duration) -> Self {
            self.settings.limits.wait_for_lock = patience;
            self
        }

        /// Starts although the program is built with `panic = "abort"`: a job that panics then takes the process with it.
        pub fn allow_abort_on_panic(mut self) -> Self {
            self.settings.allow_abort = true;
            self
        }
    };
}

impl Builder {
    settings!();

    #[cfg(feature = "testing")]
    pub(crate) const fn on_a_memory_disk(mut self) -> Self {
        self.settings.in_memory = true;
        self
    }

    /// Sets how the context of the jobs is made: once per worker, on the worker's thread. The context need not be `Send`. All jobs of
    /// a runner share its type. One that cannot fail is made by `|| async { Ok::<_, std::convert::Infallible>(value) }`.
    pub fn context<C, E, F>(self, factory: impl Fn() -> F + Send + Sync + 'static) -> Configured<C>
    where
        C: 'static,
        E: Into<Box<dyn Error>>,
        F: Future<Output = Result<C, E>> + 'static,
    {
        let factory: Factory<C> = Arc::new(move || factory().map(|made| made.map_err(|error| error.into().to_string())).boxed_local());
        Configured { dir: self.dir, settings: self.settings, factory, registry: Registry::new() }
    }

    /// Registers a job type that needs no context. One that has a context wants [`Builder::context`] first.
    pub fn register<J: Job<Context = ()>>(self) -> Configured<()> {
        self.context(|| async { Ok::<_, std::convert::Infallible>(()) }).register::<J>()
    }

    /// Registers a job type that needs no context, with another policy than its own.
    pub fn register_with<J: Job<Context = ()>>(self, policy: Policy) -> Configured<()> {
        self.context(|| async { Ok::<_, std::convert::Infallible>(()) }).register_with::<J>(policy)
    }
}

/// A runner whose jobs have the context `C`.
#[must_use = "a builder does nothing until it is started"]
pub struct Configured<C> {
    dir: PathBuf,
    settings: Settings,
    factory: Factory<C>,
    registry: Registry<C>,
}

impl<C: 'static> Configured<C> {
    settings!();

    /// Registers a job type. Stored jobs of other kinds are held until a build registers theirs.
    pub fn register<J: Job<Context = C>>(self) -> Self {
        self.register_with::<J>(J::policy())
    }

    /// Registers a job type with another policy than its own.
    pub fn register_with<J: Job<Context = C>>(mut self, policy: Policy) -> Self {
        self.registry.add::<J>(policy);
        self
    }

    /// Locks the directory, reads its journal, makes the contexts and starts to run what is due.
    ///
    /// # Errors
    /// [`StartError`]; a directory that was there is as it was.
    pub async fn start(self) -> Result<Runner, StartError> {
        #[cfg(feature = "testing")]
        if self.settings.in_memory {
            return self.start_on(MemDisk::default()).await;
        }
        let (dir, blueprint) = self.check()?;
        let patience = blueprint.limits.wait_for_lock;
        launch(blueprint, move |clock| async move {
            let disk = lock(&dir, patience, &clock).await?;
            if disk.is_group_writable() {
                events::group_writable(&dir);
            }
            Ok(ground(dir, disk))
        })
        .await
    }

    /// Refuses what could not be a compile error.
    pub(crate) fn check(self) -> Result<(PathBuf, Blueprint<C>), StartError> {
        let Settings { limits, circuit, allow_abort, .. } = self.settings;
        if let Some(contradiction) = limits.contradiction() {
            return Err(StartError::Limits(contradiction));
        }
        self.registry.check(limits.kind_bytes)?;
        if cfg!(panic = "abort") && !allow_abort {
            return Err(StartError::AbortsOnPanic);
        }
        Ok((self.dir, Blueprint { registry: Arc::new(self.registry), factory: self.factory, limits, circuit }))
    }
}

/// Starts a runner on a thread of its own, over the disk that `find` finds there.
pub(crate) async fn launch<C: 'static, F>(
    blueprint: Blueprint<C>,
    find: impl FnOnce(Clock) -> F + Send + 'static,
) -> Result<Runner, StartError>
where
    F: Future<Output = Result<Ground, StartError>>,
{
    let (tell, told) = oneshot::channel();
    let (stop, stopping) = oneshot::channel();
    let host = Host::start(move || live(blueprint, find, tell, stopping)).map_err(|error| StartError::Thread(error.to_string()))?;
    let base = told.await.unwrap_or_else(|_| Err(StartError::Thread("it panicked".to_owned())))?;
    Ok(Runner { base, host: Some((host, stop)) })
}

/// The life of the runner's own thread.
async fn live<C: 'static, F>(
    blueprint: Blueprint<C>,
    find: impl FnOnce(Clock) -> F,
    tell: oneshot::Sender<Result<Base, StartError>>,
    stopping: oneshot::Receiver<()>,
) where
    F: Future<Output = Result<Ground, StartError>>,
{
    let clock = Clock::system();
    let ground = match find(clock.clone()).await {
        Ok(ground) => ground,
        Err(error) => return drop(tell.send(Err(error))),
    };
    // A write beyond the limit to a file's size is to be an error of the disk like any other, not the end of the process: it no
    // longer is once somebody listens to the signal that comes with it. Where nobody can, all stays as it was.
    let _ = signal(SignalKind::from_raw(FILE_TOO_LARGE));
    let base = Base::new(&blueprint, clock);
    let _guard = Guard(base.clone());
    let patience = blueprint.limits.append_timeout;
    let mut keeper = Keeper::new(blueprint, base.clone(), ground, Place::Apart);
    if let Err(error) = keeper.open().await {
        // Whoever hears of it may try again at once: the directory is free by then.
        keeper.close().await;
        return drop(tell.send(Err(error)));
    }
    if tell.send(Ok(base.clone())).is_ok() {
        let mut stopping = stopping;
        tokio::select! {
            // An error says that the runner was dropped: that is a stop as well.
            _ = &mut stopping => {}
            () = keeper.keep() => drop(stopping.await),
        }
    }
    if base.status.is_closed() {
        if let Err(why) = keeper.seal(patience.into()).await {
            events::seal_failed(&why.to_string());
        }
    } else {
        base.status.give_up("the runner was dropped");
    }
    keeper.close().await;
}

/// A runner whose own thread panics is over, and says so: nobody else would.
struct Guard(Base);

impl Drop for Guard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.status.give_up("the thread of the runner panicked");
            self.0.ledger.interrupt_all();
        }
    }
}

fn ground(dir: PathBuf, disk: FileDisk) -> Ground {
    let disk: Arc<dyn Disk> = Arc::new(disk);
    let (place, its) = (dir.clone(), disk.clone());
    Ground {
        dir,
        disk,
        snapshots: Arc::new(move || snapshots::store(&place, its.clone())),
        turnstile: Turnstile::default(),
        numbers: Numbers::default(),
    }
}

async fn lock(dir: &std::path::Path, patience: Duration, clock: &Clock) -> Result<FileDisk, DirError> {
    let until = clock.now().steady + patience.into();
    let mut told = false;
    loop {
        match FileDisk::open(dir) {
            Err(DirError::Locked { .. }) if clock.now().steady < until => {
                if !std::mem::replace(&mut told, true) {
                    events::waiting_for_lock(dir, patience);
                }
                clock.sleep(LOCK_PAUSE).await;
            }
            opened => return opened,
        }
    }
}

/// Waits for SIGTERM or SIGINT: for the server beside [`Runner::serve`], or as the end of [`Runner::run_until`]. A signal counts
/// from this call on, not only from the first await: called before the runner is started, it makes an orderly stop of one that
/// comes during the start. Never ends where signals cannot be listened to.
///
/// # Panics
/// Outside a tokio or actix runtime.
pub fn stop_signal() -> impl Future<Output = ()> + Send + 'static {
    let signals = Signals::listen();
    async move {
        match signals {
            Ok(mut signals) => signals.next().await,
            Err(_) => std::future::pending().await,
        }
    }
}

/// The signals that ask a process to end.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn listen() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// SIGXFSZ, by its number on all Linux but that of MIPS, where the number means SIGCONT and listening to it does nothing.
const FILE_TOO_LARGE: i32 = 25;
/// Between two looks at a lock that another runner holds: short against a restart.
const LOCK_PAUSE: journeyman_core::Span = journeyman_core::Span(20);
