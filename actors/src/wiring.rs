//! Which actor talks to which, and on which thread each lives: the only place that names them all.

use std::sync::Arc;

use actix::{Addr, AsyncContext, Context, Recipient};
use actix_rt::ArbiterHandle;
use futures_util::future::LocalBoxFuture;
use journeyman_core::Circuit;
use journeyman_core::disk::Disk;
use journeyman_core::journal::{JournalLimits, Salt};
use journeyman_core::payloads::{Numbers, Payloads};
use journeyman_core::pool::Pool;
use journeyman_core::store::Store;

use crate::base::Base;
use crate::breaker::BreakerActor;
use crate::clock::Clock;
use crate::compactor::{self, CompactorActor, Means, Turnstile};
use crate::config::Limits;
use crate::cx::Surroundings;
use crate::error::StartError;
use crate::journal::{JournalActor, Pen};
use crate::ledger;
use crate::line::Calls;
use crate::messages::{Append, Compact, Quiet, Returned, Seal, Start};
use crate::payloads::{self, PayloadsActor};
use crate::pool::PoolActor;
use crate::queue::{Links, Office, QueueActor, Rules, StartBreaker};
use crate::registry::Registry;
use crate::snapshots::Snapshots;
use crate::supervisor::Supervisor;
use crate::threads;
use crate::worker::{Shared, WorkerActor, Workers};
use crate::writer::{Journals, Writer};

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

/// The actors of one reign. All of them are replaced together; workers are not among them, as their attempts go on.
#[derive(Clone)]
pub(crate) struct Core {
    pub journal: Recipient<Seal>,
    pub pen: Pen,
    #[cfg_attr(not(feature = "testing"), expect(dead_code, reason = "only the test kit counts its units"))]
    pub pool: Addr<PoolActor>,
    #[cfg(feature = "testing")]
    pub payloads: Recipient<payloads::Show>,
    pub supervisor: Supervisor,
}

/// What a reign begins with.
pub(crate) struct Beginning {
    pub store: Store,
    /// Those that were put away as it was read.
    pub payloads: Payloads,
    /// Whether there is no room for a single record.
    pub is_read_only: bool,
    pub workers: Workers,
    pub disk: Arc<dyn Disk>,
    pub snapshots: Snapshots,
    pub turnstile: Turnstile,
    pub numbers: Numbers,
    pub blocking: Blocking,
}

/// Where those live that block: the journal, the compactor, who keeps the payloads.
pub(crate) enum Blocking {
    /// Each on an arbiter of its own.
    On { journal: ArbiterHandle, compactor: ArbiterHandle, payloads: ArbiterHandle },
    /// Here, with something between the queue and the journal: tests.
    Here(Between),
}

/// Puts something between the queue and its journal.
pub(crate) type Between = Arc<dyn Fn(&Supervisor, Recipient<Append>) -> Recipient<Append> + Send + Sync>;

/// Starts the actors of a reign on this thread, the journal where it is to live. None when that place is gone.
pub(crate) async fn wire<C: 'static>(blueprint: Blueprint<C>, base: Base, beginning: Beginning) -> Option<Core> {
    let Beginning { store, payloads, is_read_only, workers, disk, snapshots, turnstile, numbers, blocking } = beginning;
    let Store { queue: state, recovery, .. } = store;
    let Blueprint { registry, limits, circuit, .. } = blueprint;
    let clock = base.clock.clone();
    let supervisor = Supervisor::new(base.status.clone());
    base.status.recovered(&state, recovery.bytes(), recovery.bytes_since_snapshot());
    let salt = Salt(u128::from(clock.random()) << 64 | u128::from(clock.random()));
    let proved = recovery.proved();
    let written = recovery.into_journal(JournalLimits { segment_bytes: limits.segment_bytes, batch_bytes: limits.batch_bytes }, salt);

    let context = Context::<QueueActor>::new();
    let queue = context.address();
    let pen = Pen::new(written);
    let journal = JournalActor::new(pen.clone(), queue.clone().recipient(), base.status.clone(), clock.clone());
    let compactor = {
        let means = Means { rate: limits.compaction_rate, memory: limits.payload_memory, numbers };
        let (status, clock) = (base.status.clone(), clock.clone());
        move |journal| CompactorActor::new(disk, snapshots, turnstile, journal, status, clock, means)
    };
    let told = payloads::Queue { went: queue.clone().recipient(), fetched: queue.clone().recipient() };
    let payloads = PayloadsActor::new(payloads, told, base.status.clone(), clock.clone());
    let disks = start_on_disk(&supervisor, journal, compactor, payloads, blocking).await?;
    let desk = Context::<PoolActor>::new();
    let pool = desk.address();
    let home = Arc::new(pool.clone().recipient::<Returned>());
    let mut units = Pool::new(limits.capacity);
    let (reign, standings) = base.ledger.take_office(
        ledger::Office { finished: queue.clone().recipient(), freed: queue.clone().recipient() },
        &mut units,
        &home,
    );
    base.status.recent.found(state.last(), limits.ends_remembered);
    supervisor.start("pool", desk, PoolActor::new(units, home, queue.clone().recipient(), clock.clone()));
    let calls = Calls::default();
    let links = Links {
        calls: calls.clone(),
        pool: pool.clone().recipient(),
        workers: workers.clone(),
        breakers: breakers(supervisor.clone(), circuit, workers, queue.clone(), clock.clone()),
        compactor: disks.compact,
        payloads: disks.payloads,
    };
    let journals = Journals { far: disks.append, near: disks.append_near };
    let writer = Writer::new(state, proved, limits.batch_bytes, journals, queue.clone().recipient());
    let skews = base.skews.clone();
    let office = Office { ledger: base.ledger.clone(), reign, standings, skews, is_read_only, is_draining: *base.draining.borrow() };
    let rules = Rules { limits, policies: registry.policies(), circuit };
    supervisor.start("queue", context, QueueActor::new(writer, links, rules, office, base.status.clone(), clock));
    base.line.connect(queue.clone(), calls);
    if *base.draining.borrow() {
        // It may have been said while nobody could be reached.
        queue.do_send(Quiet);
    }
    Some(Core {
        journal: disks.seal,
        pen,
        pool,
        #[cfg(feature = "testing")]
        payloads: disks.show,
        supervisor,
    })
}

/// What reaches the actors that work on the disk.
struct Disks {
    append: Recipient<Append>,
    append_near: Option<Recipient<Append>>,
    seal: Recipient<Seal>,
    compact: Recipient<Compact>,
    payloads: payloads::Desk,
    #[cfg(feature = "testing")]
    show: Recipient<payloads::Show>,
}

async fn start_on_disk(
    supervisor: &Supervisor,
    journal: JournalActor,
    compactor: impl FnOnce(compactor::Journal) -> CompactorActor + Send + 'static,
    payloads: PayloadsActor,
    blocking: Blocking,
) -> Option<Disks> {
    let told =
        |journal: &Addr<JournalActor>| compactor::Journal { rotate: journal.clone().recipient(), release: journal.clone().recipient() };
    let (journal, compactor, payloads, append, append_near) = match blocking {
        Blocking::On { journal: place, compactor: own_place, payloads: third_place } => {
            let near = supervisor.launch("journal", |_| journal.near());
            let watcher = supervisor.clone();
            let journal = threads::on(&place, move || async move { watcher.launch("journal", |_| journal) }).await?;
            let (watcher, told) = (supervisor.clone(), told(&journal));
            let compactor = threads::on(&own_place, move || async move { watcher.launch("compactor", |_| compactor(told)) }).await?;
            let watcher = supervisor.clone();
            let payloads = threads::on(&third_place, move || async move { watcher.launch("payloads", |_| payloads) }).await?;
            let append = journal.clone().recipient();
            (journal, compactor, payloads, append, Some(near.recipient()))
        }
        Blocking::Here(between) => {
            let journal = supervisor.launch("journal", |_| journal);
            let compactor = supervisor.launch("compactor", |_| compactor(told(&journal)));
            let payloads = supervisor.launch("payloads", |_| payloads);
            let append = between(supervisor, journal.clone().recipient());
            (journal, compactor, payloads, append, None)
        }
    };
    Some(Disks {
        append,
        append_near,
        seal: journal.recipient(),
        compact: compactor.recipient(),
        #[cfg(feature = "testing")]
        show: payloads.clone().recipient(),
        payloads: payloads::Desk { put: payloads.clone().recipient(), fetch: payloads.clone().recipient(), forget: payloads.recipient() },
    })
}

/// Starts the breaker of a target beside the queue.
fn breakers(supervisor: Supervisor, circuit: Circuit, workers: Workers, queue: Addr<QueueActor>, clock: Clock) -> StartBreaker {
    Box::new(move |target| {
        let breaker = supervisor
            .launch("breaker", |_| BreakerActor::new(target.clone(), circuit, workers.clone(), queue.clone().recipient(), clock.clone()));
        breaker.recipient()
    })
}

/// Makes the context of the jobs and starts a worker, on this thread.
pub(crate) async fn worker<C: 'static>(blueprint: Blueprint<C>, base: Base) -> Result<Recipient<Start>, StartError> {
    let context = (blueprint.factory)().await.map_err(StartError::Context)?;
    let draining = base.draining.subscribe();
    let surroundings = Surroundings { ledger: base.ledger, draining, jobs: base.jobs, clock: base.clock };
    let (registry, surroundings) = (blueprint.registry, surroundings.into());
    let shared = Shared { context: context.into(), registry, surroundings, meters: Default::default() };
    Ok(base.staff.launch("worker", |_| WorkerActor::new(shared)).recipient())
}
