//! CompactorActor: drives compactions on an arbiter of its own, one at a time, step by step, and writes no faster than told. After
//! a failure it tries again, later each time, and says so until it succeeds. What a step does is its twin's.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use actix::{Actor, ActorFutureExt, AsyncContext, Context, Handler, Message, Recipient, WrapFuture};
use journeyman_core::Span;
use journeyman_core::compaction::{Compacted, Compaction, Progress};
use journeyman_core::disk::Disk;
use journeyman_core::journal::Salt;
use journeyman_core::payloads::{Numbers, Payloads};
use journeyman_core::room::Room;

use crate::clock::Clock;
use crate::config::{COMPACTION_PAUSE, LONGEST_COMPACTION_PAUSE};
use crate::events;
use crate::messages::{Compact, Release, Rotate, Rotated};
use crate::snapshots::Snapshots;
use crate::status::{Concern, Status};

pub(crate) struct CompactorActor {
    disk: Arc<dyn Disk>,
    snapshots: Snapshots,
    turnstile: Turnstile,
    journal: Journal,
    status: Arc<Status>,
    clock: Clock,
    means: Means,
    work: Work,
    /// Failures since the last success.
    failures: u32,
}

/// What it may take.
pub(crate) struct Means {
    /// The most bytes that it writes in a second.
    pub rate: u64,
    /// Bytes of payload and meta that it has in memory; the others wait in files of its own.
    pub memory: u64,
    /// Of those files.
    pub numbers: Numbers,
}

/// What it says to the journal.
pub(crate) struct Journal {
    pub rotate: Recipient<Rotate>,
    pub release: Recipient<Release>,
}

enum Work {
    Idle,
    /// The journal is beginning a new segment, or the pause after a failure is not over.
    Waiting,
    Steps {
        compaction: Box<Compaction>,
        // Given back behind it.
        _turn: Turn,
    },
}

/// Lets one compaction of a directory through at a time, also when the compactor of an earlier reign hangs in the disk. Clones
/// share it.
#[derive(Clone, Default)]
pub(crate) struct Turnstile(Arc<AtomicBool>);

/// Leave to compact; given back on drop.
pub(crate) struct Turn(Turnstile);

impl Turnstile {
    pub(crate) fn enter(&self) -> Option<Turn> {
        (!self.0.swap(true, Ordering::AcqRel)).then(|| Turn(self.clone()))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.0.store(false, Ordering::Release);
    }
}

impl CompactorActor {
    pub(crate) const fn new(
        disk: Arc<dyn Disk>,
        snapshots: Snapshots,
        turnstile: Turnstile,
        journal: Journal,
        status: Arc<Status>,
        clock: Clock,
        means: Means,
    ) -> Self {
        Self { disk, snapshots, turnstile, journal, status, clock, means, work: Work::Idle, failures: 0 }
    }

    fn turn_to(&mut self, work: Work) {
        self.status.compacting.store(matches!(work, Work::Steps { .. }), Ordering::Relaxed);
        self.work = work;
    }

    fn begin(&mut self, ctx: &Context<Self>) {
        self.turn_to(Work::Waiting);
        self.journal.rotate.do_send(Rotate { reply: ctx.address().recipient() });
    }

    fn enter(&self, number: u64, salt: Salt) -> Result<Work, String> {
        let turn = self.turnstile.enter().ok_or("an earlier one has not come to an end")?;
        let compaction = Compaction::begin(self.disk.clone(), (self.snapshots)(), number, salt).map_err(|error| error.to_string())?;
        let room = Room::new(Payloads::new(self.disk.clone(), self.means.numbers.clone()), self.means.memory);
        Ok(Work::Steps { compaction: Box::new(compaction.within(room)), _turn: turn })
    }

    fn step(&mut self, ctx: &mut Context<Self>) {
        let Work::Steps { compaction, .. } = &mut self.work else { return };
        // Damage that makes sled or us panic is no reason to end the runner over and over.
        let step = catch_unwind(AssertUnwindSafe(|| compaction.step()));
        let Ok(step) = step else { return self.failed("it panicked", ctx) };
        match step {
            Ok(Progress::Working { written_bytes, .. }) => {
                let pause = Span(written_bytes.saturating_mul(1_000) / self.means.rate.max(1));
                self.after(pause, ctx, |_, ctx| ctx.notify(Step));
            }
            Ok(Progress::Nothing) => self.end(None),
            Ok(Progress::Done(compacted)) => self.end(Some(compacted)),
            Err(error) => self.failed(&error.to_string(), ctx),
        }
    }

    fn end(&mut self, compacted: Option<Compacted>) {
        self.turn_to(Work::Idle);
        self.failures = 0;
        self.status.concern(Concern::Compaction, None);
        if let Some(compacted) = &compacted {
            compacted.passed_over.iter().for_each(|damage| events::snapshot_passed_over(&damage.to_string()));
            // What was damaged has been replaced and swept away.
            self.status.concern(Concern::Snapshot, None);
            self.status.compacted(compacted.snapshot_bytes);
            events::compacted(compacted);
        }
        self.journal.release.do_send(Release { removed: compacted.map_or(0, |compacted| compacted.removed_bytes) });
    }

    fn failed(&mut self, why: &str, ctx: &mut Context<Self>) {
        let pause = Span(COMPACTION_PAUSE.0.checked_shl(self.failures).unwrap_or(u64::MAX).min(LONGEST_COMPACTION_PAUSE.0));
        self.failures += 1;
        self.turn_to(Work::Waiting);
        self.status.concern(Concern::Compaction, Some(format!("the journal is not being compacted: {why}")));
        events::compaction_failed(why, self.failures, pause);
        // What it wrote is of no use, and the disk may be full of it; unless it is another's, who is still at it.
        let swept = self.turnstile.enter().map_or(Ok(()), |_turn| (self.snapshots)().sweep());
        if let Err(error) = swept {
            events::sweep_failed(&error.to_string());
        }
        self.after(pause, ctx, |actor, ctx| actor.begin(ctx));
    }

    fn after(&self, pause: Span, ctx: &mut Context<Self>, then: impl FnOnce(&mut Self, &mut Context<Self>) + 'static) {
        let (clock, until) = (self.clock.clone(), self.clock.now().steady + pause);
        let pause = async move {
            // Even without a pause, whatever else lives on this thread gets its turn.
            tokio::task::yield_now().await;
            clock.sleep_until(until).await;
        };
        ctx.spawn(pause.into_actor(self).map(move |(), actor, ctx| then(actor, ctx)));
    }
}

impl Drop for CompactorActor {
    fn drop(&mut self) {
        self.turn_to(Work::Idle);
    }
}

impl Actor for CompactorActor {
    type Context = Context<Self>;
}

impl Handler<Compact> for CompactorActor {
    type Result = ();

    fn handle(&mut self, _: Compact, ctx: &mut Context<Self>) {
        self.clock.stir();
        if matches!(self.work, Work::Idle) {
            self.begin(ctx);
        }
    }
}

impl Handler<Rotated> for CompactorActor {
    type Result = ();

    fn handle(&mut self, rotated: Rotated, ctx: &mut Context<Self>) {
        self.clock.stir();
        let salt = Salt(u128::from(self.clock.random()) << 64 | u128::from(self.clock.random()));
        let begun = match rotated {
            Rotated::To(number) => self.enter(number, salt),
            Rotated::NothingWritten => Err("nothing has been written since it was opened".to_owned()),
            Rotated::Failed { why } => Err(why),
        };
        match begun {
            Ok(work) => {
                self.turn_to(work);
                ctx.notify(Step);
            }
            Err(why) => self.failed(&why, ctx),
        }
    }
}

/// Time for the next step.
#[derive(Message)]
#[rtype(result = "()")]
struct Step;

impl Handler<Step> for CompactorActor {
    type Result = ();

    fn handle(&mut self, _: Step, ctx: &mut Context<Self>) {
        self.clock.stir();
        self.step(ctx);
    }
}
