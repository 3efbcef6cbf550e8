//! The keeper: opens the directory, has the actors wired, and when they fail replaces them by others that go on from the journal.
//! A bounded number of times in a row, with growing pauses; then the runner is over, and says so. Touches no ticket.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use actix::Recipient;
use actix_rt::Arbiter;
use journeyman_core::disk::Disk;
use journeyman_core::journal::ROOM_TO_BEGIN;
use journeyman_core::payloads::{Numbers, Payloads};
use journeyman_core::room::Room;
use journeyman_core::store::Store;
use journeyman_core::{Span, Time};

use crate::base::Base;
use crate::compactor::Turnstile;
use crate::config::{LONGEST_PAUSE, RECHECK_MS, STEADY_REIGN_MS};
use crate::error::StartError;
use crate::events;
use crate::journal::Pen;
use crate::messages::{Beat, Seal, Start};
use crate::snapshots::Snapshots;
use crate::status::{Concern, Condition};
use crate::threads;
use crate::wiring::{self, Beginning, Between, Blocking, Blueprint};
use crate::worker::Workers;

pub(crate) struct Keeper<C: 'static> {
    blueprint: Blueprint<C>,
    base: Base,
    ground: Ground,
    place: Place,
    /// The threads of this reign; none between two.
    threads: Threads,
    workers: Vec<Worker>,
    row: Row,
}

/// What a runner stands on, from its start to its end.
#[derive(Clone)]
pub(crate) struct Ground {
    pub dir: PathBuf,
    pub disk: Arc<dyn Disk>,
    pub snapshots: Snapshots,
    pub turnstile: Turnstile,
    /// Of the files of payloads.
    pub numbers: Numbers,
}

/// Where the actors live.
pub(crate) enum Place {
    /// On arbiters of their own: the journal blocks, workers run what users wrote, and the keeper must be able to give up a queue
    /// that is stuck.
    Apart,
    /// All on this thread: tests.
    #[cfg_attr(not(feature = "testing"), expect(dead_code, reason = "only the test kit does"))]
    Together(Between),
}

#[derive(Default)]
struct Threads {
    queue: Option<Arbiter>,
    journal: Option<Arbiter>,
    compactor: Option<Arbiter>,
    payloads: Option<Arbiter>,
}

struct Worker {
    thread: Option<Arbiter>,
    address: Recipient<Start>,
}

/// Reopenings that followed each other quickly.
#[derive(Default)]
struct Row {
    tries: u32,
    opened: Time,
}

impl<C: 'static> Keeper<C> {
    pub(crate) fn new(blueprint: Blueprint<C>, base: Base, ground: Ground, place: Place) -> Self {
        Self { blueprint, base, ground, place, threads: Threads::default(), workers: Vec::new(), row: Row::default() }
    }

    /// Reads the journal and starts the actors on it. One that fails is to be followed by [`Keeper::close`].
    pub(crate) async fn open(&mut self) -> Result<(), StartError> {
        self.base.status.opening();
        let Ground { dir, disk, snapshots, turnstile, numbers } = self.ground.clone();
        self.sweep_payloads();
        let mut room = Room::new(Payloads::new(disk.clone(), numbers.clone()), self.blueprint.limits.payload_memory);
        let store = Store::open_within(disk.clone(), &*snapshots(), &mut room)
            .map_err(|source| StartError::Journal { dir: dir.clone(), source })?;
        let payloads = room.into_payloads();
        self.tell(&store);
        if !self.has_room(ROOM_TO_BEGIN) {
            // Drafts that a crash has left may be what fills the disk. When they cannot go, the runner is read-only all the same.
            let swept = turnstile.enter().map(|_turn| snapshots().sweep());
            swept.and_then(Result::err).into_iter().for_each(|error| events::sweep_failed(&error.to_string()));
        }
        let is_read_only = !self.has_room(ROOM_TO_BEGIN);
        let workers = self.hire().await?;
        let (blueprint, base) = (self.blueprint.clone(), self.base.clone());
        let begin = |blocking| Beginning { store, payloads, is_read_only, workers, disk, snapshots, turnstile, numbers, blocking };
        let core = match &self.place {
            Place::Apart => {
                let queue = self.threads.queue.insert(arbiter()?).handle();
                let journal = self.threads.journal.insert(arbiter()?).handle();
                let compactor = self.threads.compactor.insert(arbiter()?).handle();
                let payloads = self.threads.payloads.insert(arbiter()?).handle();
                let beginning = begin(Blocking::On { journal, compactor, payloads });
                threads::on(&queue, move || wiring::wire(blueprint, base, beginning)).await.flatten()
            }
            Place::Together(between) => wiring::wire(blueprint, base, begin(Blocking::Here(between.clone()))).await,
        };
        let core = core.ok_or_else(|| StartError::Thread("an actor panicked as it was started".to_owned()))?;
        self.base.set_core(core);
        self.row.opened = self.base.clock.now().steady;
        if is_read_only {
            events::read_only();
        }
        // One of them may have failed meanwhile: then that stands, and is seen at once.
        self.base.status.opened(is_read_only.then(|| READ_ONLY.to_owned()));
        Ok(())
    }

    /// Says what was found.
    fn tell(&self, store: &Store) {
        if let Some(torn) = store.recovery.torn() {
            events::torn(torn);
        }
        for damage in &store.passed_over {
            events::snapshot_passed_over(&damage.to_string());
        }
        let worst = store.passed_over.first().map(|damage| format!("a snapshot is damaged, and was passed over: {damage}"));
        self.base.status.concern(Concern::Snapshot, worst);
        let queue = &store.queue;
        events::opened(&self.ground.dir, queue.pending(), queue.running(), queue.last());
    }

    /// Replaces the actors whenever they fail, until the runner is over.
    pub(crate) async fn keep(&mut self) {
        loop {
            let status = self.base.status.clone();
            tokio::select! {
                () = status.failed() => {}
                () = self.stuck() => {}
                () = self.room() => {}
            }
            self.base.clock.stir();
            let condition = status.condition().borrow().clone();
            let reopened = match condition {
                Condition::Over(_) => return,
                Condition::Open | Condition::Opening { .. } => continue,
                Condition::ReadOnly { .. } => self.replace().await,
                Condition::Failed { why } => {
                    self.row.reign_ended(self.base.clock.now().steady);
                    self.reopen(why).await
                }
            };
            if let Err(reason) = reopened {
                if status.give_up(&reason) {
                    events::given_up(&reason);
                }
                self.base.ledger.interrupt_all();
                return;
            }
        }
    }

    /// There is room again: the actors of a read-only reign make way for those of a whole one.
    async fn replace(&mut self) -> Result<(), String> {
        self.row.reign_ended(self.base.clock.now().steady);
        self.base.status.fail("there is room again, and the journal is being reopened");
        self.tear_down().await?;
        match self.open().await {
            Ok(()) => Ok(()),
            Err(error) => self.reopen(error.to_string()).await,
        }
    }

    async fn reopen(&mut self, mut why: String) -> Result<(), String> {
        let clock = self.base.clock.clone();
        loop {
            self.tear_down().await?;
            let limits = &self.blueprint.limits;
            let Some(pause) = self.row.pause(limits.reopenings, limits.reopening_pause.into()) else {
                let tries = self.row.tries;
                return Err(if tries == 0 { why } else { format!("{why} (after {tries} reopenings in a row)") });
            };
            clock.sleep(pause).await;
            clock.stir();
            match self.open().await {
                Ok(()) => {
                    if self.base.status.answers() {
                        events::reopened(self.row.tries);
                    }
                    return Ok(());
                }
                Err(error) => why = error.to_string(),
            }
            events::reopening_failed(&why);
        }
    }

    /// Ends the actors of this reign. Nothing is read again before the old journal cannot write any more.
    async fn tear_down(&mut self) -> Result<(), String> {
        let Base { ledger, line, clock, .. } = self.base.clone();
        ledger.leave_office();
        line.cut();
        let core = self.base.take_core();
        if let Some(core) = &core {
            core.supervisor.end();
        }
        let limits = &self.blueprint.limits;
        let (patience, grace) = (limits.append_timeout.into(), limits.interrupt_grace.into());
        if let Some(core) = &core
            && !self.take_away(&core.pen, clock.now().steady + patience).await
        {
            return Err("the thread of the old journal hangs in the disk".to_owned());
        }
        let Threads { queue, journal, compactor, payloads } = std::mem::take(&mut self.threads);
        if let Some(journal) = journal
            && !threads::stop(journal, clock.sleep(patience)).await
        {
            return Err("the thread of the old journal hangs in the disk".to_owned());
        }
        if let Some(compactor) = compactor {
            // Its step, when it takes long, ends when it can: no other compaction begins before.
            threads::stop(compactor, clock.sleep(grace)).await;
        }
        if let Some(payloads) = payloads {
            // One that hangs in the disk does so in files that no other touches.
            threads::stop(payloads, clock.sleep(grace)).await;
        }
        if let Some(queue) = queue
            && !threads::stop(queue, clock.sleep(grace)).await
        {
            // It decides nothing any more, and finds out when it comes back.
            events::abandoned();
        }
        while let (Place::Together(_), Some(core)) = (&self.place, &core) {
            if core.supervisor.has_ended() {
                break;
            }
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// A clean close: the next open knows that everything is durable.
    pub(crate) async fn seal(&self, patience: Span) -> io::Result<()> {
        let Some(journal) = self.base.core().map(|core| core.journal) else { return Ok(()) };
        let clock = &self.base.clock;
        tokio::select! {
            sealed = journal.send(Seal) => sealed.map_err(io::Error::other).flatten(),
            () = clock.sleep(patience) => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    /// Ends everything: the actors of this reign and the workers. These are waited for no longer than a cut-off attempt gets; the disk
    /// gets the time of an append, so that the directory is free when this returns.
    pub(crate) async fn close(mut self) {
        let clock = self.base.clock.clone();
        self.base.ledger.interrupt_all();
        self.base.ledger.leave_office();
        self.base.staff.end();
        let core = self.base.take_core();
        if let Some(core) = &core {
            core.supervisor.end();
        }
        // Calls that came too late for the queue are on the line, and hear that their answers are lost.
        self.base.line.cut();
        let limits = &self.blueprint.limits;
        let (until, patience) = (clock.now().steady + limits.interrupt_grace.into(), limits.append_timeout.into());
        let workers = self.workers.drain(..).filter_map(|worker| worker.thread);
        for thread in workers.chain(self.threads.queue.take()) {
            threads::stop(thread, clock.sleep_until(until)).await;
        }
        let until = clock.now().steady + patience;
        let Threads { journal, compactor, payloads, .. } = std::mem::take(&mut self.threads);
        for thread in [journal, compactor, payloads].into_iter().flatten() {
            threads::stop(thread, clock.sleep_until(until)).await;
        }
        if let Some(core) = core {
            self.take_away(&core.pen, until).await;
        }
        self.sweep_payloads();
    }

    /// Has nobody write any more, and waits until then for who is at it. Answers whether it could.
    async fn take_away(&self, pen: &Pen, until: Time) -> bool {
        let clock = &self.base.clock;
        while !pen.take_away() {
            if clock.now().steady >= until {
                return false;
            }
            clock.sleep(Span(PEN_LOOK_MS)).await;
        }
        true
    }

    /// Removes the files of payloads that nobody has any more: what is in them is in the journal.
    fn sweep_payloads(&self) {
        if let Err(error) = Payloads::sweep(&*self.ground.disk) {
            events::payloads_not_swept(&error.to_string());
        }
    }

    /// As many workers as there are to be; one that died is replaced.
    async fn hire(&mut self) -> Result<Workers, StartError> {
        let gone = self.workers.extract_if(.., |worker| !worker.address.connected());
        gone.filter_map(|worker| worker.thread).for_each(|thread| _ = thread.stop());
        let wanted = if matches!(self.place, Place::Apart) { self.blueprint.limits.worker_arbiters } else { 1 };
        while self.workers.len() < wanted {
            let (blueprint, base) = (self.blueprint.clone(), self.base.clone());
            let make = move || wiring::worker(blueprint, base);
            let worker = match self.place {
                Place::Apart => {
                    let thread = arbiter()?;
                    let panicked = || Err(StartError::Context("it panicked while it was made".to_owned()));
                    match threads::on(&thread.handle(), make).await.unwrap_or_else(panicked) {
                        Ok(address) => Worker { thread: Some(thread), address },
                        Err(error) => {
                            thread.stop();
                            return Err(error);
                        }
                    }
                }
                Place::Together(_) => Worker { thread: None, address: make().await? },
            };
            self.workers.push(worker);
        }
        Ok(Workers::new(self.workers.iter().map(|worker| worker.address.clone()).collect()))
    }

    /// Whether the disk has room for so many bytes. One that does not say counts as having it: the journal will find out.
    fn has_room(&self, bytes: u64) -> bool {
        self.ground.disk.free().map_or(true, |free| free >= bytes)
    }

    /// Waits until a runner that had no room has some again.
    async fn room(&self) {
        let (status, clock) = (&self.base.status, &self.base.clock);
        let is_read_only = || matches!(&*status.condition().borrow(), Condition::ReadOnly { .. });
        if !is_read_only() {
            return std::future::pending().await;
        }
        // Twice what it takes: it is not to run full again at once.
        while !self.has_room(2 * ROOM_TO_BEGIN) {
            clock.sleep(Span(RECHECK_MS)).await;
        }
    }

    /// Since when the queue's own thread has been waiting for the disk.
    fn waits_for_disk(&self) -> Option<Time> {
        Some(Time(self.base.status.blocked.get())).filter(|since| *since > Time(0))
    }

    /// Waits until the queue takes no turn although there is work. Looks often while there is, and seldom otherwise.
    async fn stuck(&self) {
        let Base { status, line, jobs, clock, .. } = &self.base;
        // The test's own thread cannot watch itself.
        if clock.is_virtual() {
            return std::future::pending().await;
        }
        let limits = &self.blueprint.limits;
        let slice = Span(Span::from(limits.stuck_after).0 / LOOKS);
        loop {
            let is_idle = status.running.get() == 0 && jobs.waiting_calls() == 0;
            tokio::select! {
                () = jobs.called(), if is_idle => clock.sleep(slice).await,
                // While nobody calls, something may become due.
                () = clock.sleep(if is_idle { Span(IDLE_LOOK_MS) } else { slice }) => {}
            }
            let Some(queue) = line.queue() else { continue };
            let sent = clock.now().steady;
            queue.do_send(Beat);
            let mut looks = 1;
            while status.pulse.get() < sent.0 && looks < LOOKS {
                let before = clock.now().steady;
                clock.sleep_until(before + slice).await;
                let now = clock.now().steady;
                // A process that was frozen as a whole finds everything overdue: such a look does not count.
                looks += u64::from(now.since(before) < slice.doubled());
                // The disk is waited for as long as if it were waited for elsewhere.
                if self.waits_for_disk().is_some_and(|since| now < since + limits.append_timeout.into()) {
                    looks = 1;
                }
            }
            if status.pulse.get() < sent.0 {
                if self.waits_for_disk().is_some() {
                    let why = format!("the journal gave no answer for {:?}", limits.append_timeout);
                    if status.fail(&why) {
                        events::journal_failed(&why);
                    }
                } else {
                    let why = format!("the queue has taken no turn for {:?}", limits.stuck_after);
                    if status.fail(&why) {
                        events::stuck(&why);
                    }
                }
                return;
            }
        }
    }
}

fn arbiter() -> Result<Arbiter, StartError> {
    Arbiter::try_new().map_err(|error| StartError::Thread(error.to_string()))
}

impl Row {
    /// A reign that lasted ends the row.
    fn reign_ended(&mut self, now: Time) {
        if now.since(self.opened) >= Span(STEADY_REIGN_MS) {
            self.tries = 0;
        }
    }

    /// How long to wait before the next reopening; none when there were enough.
    fn pause(&mut self, most: u32, first: Span) -> Option<Span> {
        if self.tries >= most {
            return None;
        }
        let factor = 1u64.checked_shl(self.tries).map_or(LONGEST_PAUSE, |factor| factor.min(LONGEST_PAUSE));
        self.tries += 1;
        Some(Span(first.0.saturating_mul(factor)))
    }
}

const READ_ONLY: &str = "the disk is full: questions are answered, and nothing is taken until there is room again";
/// Slices of the time after which a queue counts as stuck: one until the beat is sent, the others until it must have been felt.
const LOOKS: u64 = 4;
/// Between two looks whether a write is over that must end first.
const PEN_LOOK_MS: u64 = 2;
/// How often a keeper looks while nobody calls and nothing runs: something may become due.
const IDLE_LOOK_MS: u64 = 10_000;
