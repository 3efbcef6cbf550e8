//! Which actor talks to which, and on which thread each lives: the only place that names them all.

use std::sync::Arc;

use actix::{Addr, AsyncContext, Context, Recipient};
use actix_rt::{Arbiter, ArbiterHandle};
use futures_util::future::LocalBoxFuture;
use journeyman_core::Circuit;
use journeyman_core::journal::{JournalLimits, Salt};
use journeyman_core::store::Store;
use tokio::sync::{oneshot, watch};

use crate::breaker::BreakerActor;
use crate::clock::Clock;
use crate::config::Limits;
use crate::error::StartError;
use crate::jobs::Jobs;
use crate::journal::JournalActor;
use crate::ledger::Ledger;
use crate::messages::{Admitted, Append, Seal};
use crate::pool::PoolActor;
use crate::queue::{Links, QueueActor, Rules, StartBreaker};
use crate::registry::Registry;
use crate::status::Status;
use crate::supervisor::Supervisor;
use crate::worker::{Shared, WorkerActor, Workers};
use crate::writer::Writer;

/// What a runner is made of, before it is started. Can be started again.
pub(crate) struct Blueprint<C> {
    pub registry: Arc<Registry<C>>,
    pub factory: Factory<C>,
    pub limits: Limits,
    pub circuit: Circuit,
}

/// Makes the context of a worker, on the worker's own thread.
pub(crate) type Factory<C> = Arc<dyn Fn() -> LocalBoxFuture<'static, Result<C, String>> + Send + Sync>;

impl<C> Clone for Blueprint<C> {
    fn clone(&self) -> Self {
        Self { registry: self.registry.clone(), factory: self.factory.clone(), limits: self.limits.clone(), circuit: self.circuit }
    }
}

/// A runner's actors, running.
pub(crate) struct Core {
    pub jobs: Jobs,
    pub queue: Addr<QueueActor>,
    pub journal: Recipient<Seal>,
    #[cfg_attr(not(feature = "testing"), expect(dead_code, reason = "only the test kit counts its units"))]
    pub pool: Addr<PoolActor>,
    pub status: Arc<Status>,
    #[cfg_attr(not(feature = "testing"), expect(dead_code, reason = "only the test kit pulls the plug"))]
    pub supervisor: Supervisor,
}

/// Where the journal and the workers live.
pub(crate) enum Place {
    /// On arbiters of their own, as one blocks and the others run what users wrote.
    Apart,
    /// All on this arbiter, with something between the queue and its journal: tests.
    #[cfg_attr(not(feature = "testing"), expect(dead_code, reason = "only the test kit does"))]
    Together(Between),
}

/// Puts something between the queue and its journal.
pub(crate) type Between = Box<dyn FnOnce(&Supervisor, Recipient<Append>) -> Recipient<Append>>;

/// The arbiters of a runner.
#[derive(Default)]
pub(crate) struct Threads {
    pub journal: Option<Arbiter>,
    pub workers: Vec<Arbiter>,
}

/// Starts every actor on what was opened; on threads that are noted in `threads` even when it fails.
pub(crate) async fn wire<C: 'static>(
    blueprint: &Blueprint<C>,
    store: Store,
    clock: Clock,
    place: Place,
    threads: &mut Threads,
) -> Result<Core, StartError> {
    let Store { queue: state, recovery, .. } = store;
    let limits = &blueprint.limits;
    let status = Status::new(state.pending(), state.running(), state.ends(), recovery.bytes());
    let salt = Salt(u128::from(clock.random()) << 64 | u128::from(clock.random()));
    let proved = recovery.proved();
    let journal = recovery.into_journal(JournalLimits { segment_bytes: limits.segment_bytes, batch_bytes: limits.batch_bytes }, salt);
    let context = Context::<QueueActor>::new();
    let queue = context.address();
    let policies = blueprint.registry.policies();
    let supervisor = Supervisor::new(status.clone(), queue.clone().recipient());
    let jobs = Jobs::new(queue.clone(), policies.clone(), limits.clone(), status.clone());
    let (draining, drains) = watch::channel(false);
    let pool = supervisor
        .launch("pool", |me: Addr<PoolActor>| PoolActor::new(limits.capacity, me.recipient(), queue.clone().recipient(), clock.clone()));

    let journal = JournalActor::new(journal, status.clone(), clock.clone());
    let staff = Staff { blueprint: blueprint.clone(), drains, jobs: jobs.clone(), clock: clock.clone(), supervisor: supervisor.clone() };
    let (append, seal, workers) = match place {
        Place::Apart => {
            let arbiter = threads.journal.insert(Arbiter::new()).handle();
            let address = start_on(&arbiter, supervisor.clone(), "journal", journal).await?;
            let mut workers = Vec::new();
            for _ in 0..limits.worker_arbiters {
                let arbiter = Arbiter::new();
                let handle = arbiter.handle();
                threads.workers.push(arbiter);
                workers.push(staff.clone().worker_on(&handle).await?);
            }
            (address.clone().recipient(), address.recipient(), workers)
        }
        Place::Together(between) => {
            let address = supervisor.launch("journal", |_| journal);
            let append = between(&supervisor, address.clone().recipient());
            (append, address.recipient(), vec![staff.worker().await?])
        }
    };
    let workers = Workers::new(workers);

    let links = Links {
        pool: pool.clone().recipient(),
        workers: workers.clone(),
        breakers: breakers(supervisor.clone(), blueprint.circuit, workers, queue.clone(), clock.clone()),
        finished: queue.clone().recipient(),
        freed: queue.clone().recipient(),
        draining,
    };
    let writer = Writer::new(state, proved, limits.batch_bytes, append, queue.clone().recipient());
    let rules = Rules { limits: limits.clone(), policies, circuit: blueprint.circuit };
    supervisor.start("queue", context, QueueActor::new(writer, links, rules, Ledger::default(), status.clone(), clock));
    Ok(Core { jobs, queue, journal: seal, pool, status, supervisor })
}

/// Starts the breaker of a target beside the queue.
fn breakers(supervisor: Supervisor, circuit: Circuit, workers: Workers, queue: Addr<QueueActor>, clock: Clock) -> StartBreaker {
    Box::new(move |target| {
        let breaker = supervisor
            .launch("breaker", |_| BreakerActor::new(target.clone(), circuit, workers.clone(), queue.clone().recipient(), clock.clone()));
        breaker.recipient()
    })
}

/// What a worker needs to start, wherever that is.
struct Staff<C> {
    blueprint: Blueprint<C>,
    drains: watch::Receiver<bool>,
    jobs: Jobs,
    clock: Clock,
    supervisor: Supervisor,
}

impl<C> Clone for Staff<C> {
    fn clone(&self) -> Self {
        Self {
            blueprint: self.blueprint.clone(),
            drains: self.drains.clone(),
            jobs: self.jobs.clone(),
            clock: self.clock.clone(),
            supervisor: self.supervisor.clone(),
        }
    }
}

impl<C: 'static> Staff<C> {
    /// Makes the context and starts the worker, on this arbiter.
    async fn worker(self) -> Result<Recipient<Admitted>, StartError> {
        let context = (self.blueprint.factory)().await.map_err(StartError::Context)?;
        let shared = Shared {
            context: context.into(),
            registry: self.blueprint.registry,
            draining: self.drains,
            jobs: self.jobs,
            clock: self.clock,
        };
        Ok(self.supervisor.launch("worker", |_| WorkerActor::new(shared)).recipient())
    }

    async fn worker_on(self, arbiter: &ArbiterHandle) -> Result<Recipient<Admitted>, StartError> {
        let (tell, told) = oneshot::channel();
        arbiter.spawn_fn(move || {
            actix_rt::spawn(async move {
                // Whoever asked may have gone: then nobody wants this worker.
                let _ = tell.send(self.worker().await);
            });
        });
        told.await.unwrap_or_else(|_| Err(StartError::Context("it panicked while it was made".to_owned())))
    }
}

async fn start_on(
    arbiter: &ArbiterHandle,
    supervisor: Supervisor,
    name: &'static str,
    actor: JournalActor,
) -> Result<Addr<JournalActor>, StartError> {
    let (tell, told) = oneshot::channel();
    arbiter.spawn_fn(move || {
        let _ = tell.send(supervisor.launch(name, |_| actor));
    });
    told.await.map_err(|_| StartError::Thread(format!("the thread of the {name} ended at once")))
}
