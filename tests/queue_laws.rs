//! Proves the laws of the state machine over random acts, times that jump both ways, and restarts: what a replay comes
//! to is what was live, and an act that does not fit changes nothing.

use std::collections::{BTreeMap, HashSet};

use journeyman_core::disk::MemDisk;
use journeyman_core::journal::{Batch, Journal, JournalLimits, RecoverError, Salt};
use journeyman_core::queue::{Change, Live, Misfit, Phase};
use journeyman_core::record::Malformed;
use journeyman_core::store::{FoldError, OpenError};
use journeyman_core::{Attempt, Cause, End, Epoch, Fault, Key, Op, Options, Packed, Queue, Record, Seq, Span, Ticket, Time, record};
use quickcheck::{Arbitrary, Gen};

use crate::support::{Act, Edgy, Pick, SALT, Step, WIDE, batch, every_step, history, holds, job, key_of, open, replay, segment};

const CASES: u64 = 300;

#[test]
fn what_a_replay_comes_to_is_what_was_live() {
    holds(CASES, |acts: Vec<Act>| {
        let mut life = Durable::begin(MemDisk::default());
        for act in &acts {
            life.act(act);
        }
        life.flush();
        let again = open(&life.disk).expect("the journal opens").queue;
        again.check();
        assert_eq!(again, life.queue);
    });
}

#[test]
fn the_state_at_any_seq_with_the_rest_behind_it_is_the_whole_replay() {
    holds(CASES, |(acts, at): (Vec<Act>, usize)| {
        let history = history(&acts);
        let (before, after) = history.split_at(at % (history.len() + 1));
        let snapshot = replay(Queue::default(), before).clone();
        assert_eq!(replay(snapshot, after), replay(Queue::default(), &history));
    });
}

#[test]
fn a_ticket_is_in_exactly_one_of_pending_running_and_gone() {
    holds(CASES, |acts: Vec<Act>| {
        let mut places = BTreeMap::new();
        every_step(&acts, |step| {
            match (step.answer, ticket_of(step.record)) {
                (Ok(Change::Enqueued(ticket)), _) => assert_eq!(places.insert(ticket, Place::Pending), None, "{ticket} is new"),
                (Ok(change), Some(ticket)) => {
                    let (from, to) = passage(change);
                    let was = places.insert(ticket, to).expect("only tickets that were given out");
                    assert!(from.contains(&was), "{change:?} from {was:?}");
                }
                (Ok(Change::Led) | Err(_), _) => {}
                (Ok(change), None) => panic!("{change:?} of no ticket"),
            }
            for (ticket, place) in &places {
                assert_eq!(place_of(step.after, *ticket), *place, "{ticket}");
                assert!(step.after.was_issued(*ticket));
                assert!(step.after.tickets_from(*ticket).eq(step.after.tickets().filter(|(other, _)| other >= ticket)));
            }
            for now in [0, 40, 1000, u64::MAX].map(Time) {
                let held = (0..3).filter(|n| step.after.holder(&key_of(*n), now).is_some());
                assert_eq!(step.after.keys_left_at(now, usize::MAX), held.count());
            }
            let number = |wanted| places.values().filter(|place| **place == wanted).count();
            assert_eq!(step.after.pending(), number(Place::Pending));
            assert_eq!(step.after.running(), number(Place::Running));
            assert_eq!(step.after.ends().total(), number(Place::Gone) as u64);
            assert!(!step.after.was_issued(Ticket(places.len() as u64 + 1)) && !step.after.was_issued(Ticket(0)));
        });
    });
}

#[test]
fn only_a_requeue_raises_failures() {
    holds(CASES, |acts: Vec<Act>| {
        every_step(&acts, |step| {
            for (ticket, live) in step.after.tickets() {
                let before = step.before.get(ticket).map_or(0, |live| live.failures());
                let failed = step.answer == Ok(Change::Requeued) && ticket_of(step.record) == Some(ticket);
                assert_eq!(live.failures(), before + u32::from(failed), "{ticket} after {:?}", step.record);
            }
        });
    });
}

#[test]
fn tickets_rise_over_the_whole_life_across_restarts() {
    holds(CASES, |acts: Vec<Act>| {
        let mut life = Durable::begin(MemDisk::default());
        for act in &acts {
            life.act(act);
        }
        life.flush();
        assert!(life.given.is_sorted_by(|one, next| one < next), "{:?}", life.given);
    });
}

#[test]
fn no_op_on_an_unknown_ticket_changes_anything() {
    holds(CASES, |(acts, unknown, due): (Vec<Act>, Edgy, Edgy)| {
        let mut queue = replay(Queue::default(), &history(&acts));
        let gone_or_never = if queue.get(Ticket(unknown.0)).is_some() { Ticket(u64::MAX) } else { Ticket(unknown.0) };
        let before = queue.clone();
        let attempts = [Attempt(queue.last()), Attempt(Seq(0)), Attempt(Seq(u64::MAX))];
        for op in attempts.into_iter().flat_map(|attempt| ops_on(gone_or_never, attempt, due.time())) {
            assert_eq!(queue.step(queue.last().next(), due.time(), &Record::Op(op)), Err(Misfit::Unknown));
            assert_eq!(queue, before);
        }
    });
}

#[test]
fn a_refused_step_changes_nothing_at_all() {
    holds(CASES, |acts: Vec<Act>| {
        every_step(&acts, |step| match step.answer {
            Ok(_) => assert_eq!(step.after.last(), step.before.last().next()),
            Err(_) => assert_eq!(step.after, step.before),
        });
    });
}

#[test]
fn a_record_that_is_not_the_next_one_is_refused() {
    holds(CASES, |(acts, act, seq): (Vec<Act>, Act, Edgy)| {
        let mut queue = replay(Queue::default(), &history(&acts));
        let before = queue.clone();
        let record = act.record(&queue, Time(1)).unwrap_or(Record::Lead { epoch: Epoch(u64::MAX) });
        for seq in [Seq(seq.0), queue.last(), Seq(0), queue.last().next().next()] {
            if seq != queue.last().next() {
                assert_eq!(queue.step(seq, Time(1), &record), Err(Misfit::OutOfOrder), "{seq} after {}", queue.last());
                assert_eq!(queue, before);
            }
        }
    });
}

#[test]
fn a_key_is_taken_while_its_ticket_lives_and_for_its_window() {
    holds(CASES, |acts: Vec<Act>| {
        let mut model = Keys::default();
        every_step(&acts, |step| {
            if let Record::Op(Op::Enqueue { now, key: Some(key), .. }) = step.record {
                match (model.holder(key, *now), step.answer) {
                    (Some(holder), answer) => assert_eq!(answer, Err(Misfit::Duplicate(holder))),
                    (None, answer) => assert!(matches!(answer, Ok(Change::Enqueued(_))), "{key:?} is free, but: {answer:?}"),
                }
            }
            model.follow(&step);
            let edges = model.0.values().filter_map(|claim| claim.until).flat_map(|until| [until.0.saturating_sub(1), until.0]);
            for time in edges.chain([0, step.now.0, u64::MAX]).map(Time) {
                for key in (0..3).map(key_of) {
                    assert_eq!(step.after.holder(&key, time), model.holder(&key, time), "{key:?} at {time:?}");
                }
            }
            assert_eq!(step.after.keys(), model.0.len());
        });
    });
}

/// The same without a model, for clocks that run forward only.
#[test]
fn a_key_is_free_from_the_very_end_of_its_window() {
    holds(CASES, |(window, end, gap, others): (Edgy, Edgy, Edgy, u8)| {
        let mut queue = Queue::default();
        let mut add = |record: Record, now| queue.step(queue.last().next(), now, &record);
        let enqueue = |now, key| {
            let job = Packed::from(job(1, Some(window.span())));
            Record::Op(Op::Enqueue { now, due: now, key: Some(key), job })
        };
        add(enqueue(Time(0), Key::new("k")), Time(0)).expect("the key is free");
        add(Record::Op(Op::Select { ticket: Ticket(1) }), Time(0)).expect("it is pending");
        let alive = add(enqueue(end.time(), Key::new("k")), end.time());
        assert_eq!(alive, Err(Misfit::Duplicate(Ticket(1))));
        let complete = Op::Complete { ticket: Ticket(1), attempt: Attempt(Seq(2)), end: End::Done, fault: None };
        add(Record::Op(complete), end.time()).expect("it runs");

        let later = end.time() + gap.span();
        for other in 0..others % 4 {
            add(enqueue(later, Key::new(format!("other {other}"))), later).expect("other keys are free");
        }
        let again = add(enqueue(later, Key::new("k")), later);
        if later < end.time() + window.span() {
            assert_eq!(again, Err(Misfit::Duplicate(Ticket(1))));
        } else {
            assert!(matches!(again, Ok(Change::Enqueued(_))), "{again:?}");
        }
    });
}

#[test]
fn a_deferred_ticket_keeps_all_but_its_due() {
    holds(CASES, |acts: Vec<Act>| {
        every_step(&acts, |step| {
            if let (Ok(Change::Deferred), Record::Op(Op::Defer { ticket, due, .. })) = (step.answer, step.record) {
                let before = step.before.get(*ticket).expect("it ran");
                let after = step.after.get(*ticket).expect("it is pending");
                assert_eq!(after.phase(), Phase::Pending { due: *due });
                assert_eq!(all_but_phase(after), all_but_phase(before));
            }
        });
    });
}

#[test]
fn a_requeued_ticket_takes_its_new_due_as_rank_and_keeps_its_start() {
    holds(CASES, |acts: Vec<Act>| {
        every_step(&acts, |step| {
            if let (Ok(Change::Requeued), Record::Op(Op::Requeue { ticket, due, fault, .. })) = (step.answer, step.record) {
                let (before, after) = (step.before.get(*ticket).expect("it ran"), step.after.get(*ticket).expect("it is pending"));
                assert_eq!(after.phase(), Phase::Pending { due: *due });
                let expected = (&before.job, before.key(), before.start(), *due, before.failures() + 1, Some(fault));
                assert_eq!(all_but_phase(after), expected);
            }
        });
    });
}

fn all_but_phase(live: &Live) -> (&Packed, Option<&Key>, Time, Time, u32, Option<&Fault>) {
    (&live.job, live.key(), live.start(), live.rank(), live.failures(), live.fault())
}

#[test]
fn an_outcome_counts_only_for_the_attempt_that_runs() {
    holds(CASES, |(acts, pick, attempt, due): (Vec<Act>, Pick, Edgy, Edgy)| {
        let mut queue = replay(Queue::default(), &history(&acts));
        let ticket = pick.of(&queue);
        let Some(live) = queue.get(ticket) else { return };
        let other = Attempt(Seq(attempt.0));
        if live.phase() == (Phase::Running { attempt: other }) {
            return;
        }
        let before = queue.clone();
        for op in outcomes_of(ticket, other, due.time()) {
            assert_eq!(queue.step(queue.last().next(), due.time(), &Record::Op(op)), Err(Misfit::Stale));
            assert_eq!(queue, before);
        }
    });
}

#[test]
fn after_a_cancel_no_outcome_of_the_running_attempt_counts() {
    holds(CASES, |(acts, due): (Vec<Act>, Edgy)| {
        let queue = replay(Queue::default(), &history(&acts));
        for (ticket, live) in queue.tickets() {
            let mut after = queue.clone();
            let change = after.step(queue.last().next(), due.time(), &Record::Op(Op::Cancel { ticket }));
            let Phase::Running { attempt } = live.phase() else {
                assert_eq!(change, Ok(Change::Cancelled { was_running: false }));
                continue;
            };
            assert_eq!(change, Ok(Change::Cancelled { was_running: true }));
            let cancelled = after.clone();
            for op in outcomes_of(ticket, attempt, due.time()) {
                assert_eq!(after.step(after.last().next(), due.time(), &Record::Op(op)), Err(Misfit::Unknown));
                assert_eq!(after, cancelled);
            }
        }
    });
}

#[test]
fn every_end_is_counted_once_under_its_own_name() {
    holds(CASES, |acts: Vec<Act>| {
        every_step(&acts, |step| {
            for end in End::ALL {
                let counted = u64::from(step.answer == Ok(Change::Completed(end)));
                assert_eq!(step.after.ends().of(end), step.before.ends().of(end) + counted, "{end:?}");
            }
            let cancelled = u64::from(matches!(step.answer, Ok(Change::Cancelled { .. })));
            assert_eq!(step.after.ends().cancelled, step.before.ends().cancelled + cancelled);
        });
    });
}

#[test]
fn an_epoch_only_rises_and_changes_nothing_else() {
    holds(CASES, |(acts, epoch): (Vec<Act>, Edgy)| {
        let mut queue = replay(Queue::default(), &history(&acts));
        let before = queue.clone();
        let answer = queue.step(queue.last().next(), Time(u64::MAX), &Record::Lead { epoch: Epoch(epoch.0) });
        if epoch.0 > before.epoch().0 {
            assert_eq!(answer, Ok(Change::Led));
            assert_eq!(queue.epoch(), Epoch(epoch.0));
            assert!(queue.tickets().eq(before.tickets()) && queue.ends() == before.ends() && queue.keys() == before.keys());
        } else {
            assert_eq!(answer, Err(Misfit::EpochNotRising));
            assert_eq!(queue, before);
        }
    });
}

/// Without this, the laws above might hold because nothing ever happens.
#[test]
fn random_acts_reach_every_change_and_every_misfit() {
    let mut source = Gen::from_size_and_seed(100, crate::support::seed());
    let mut seen = HashSet::new();
    for _ in 0..CASES {
        every_step(&Vec::arbitrary(&mut source), |step| {
            seen.insert(match step.answer {
                Ok(change) => variant_of(&format!("{change:?}")),
                Err(misfit) => variant_of(&format!("{misfit:?}")),
            });
        });
    }
    let changes = ["Enqueued", "Selected", "Completed", "Cancelled", "Requeued", "Deferred", "Led"];
    let misfits = ["Duplicate", "Unknown", "NotPending", "Stale", "EpochNotRising"];
    for name in changes.into_iter().chain(misfits) {
        assert!(seen.contains(name), "{name} was not among {seen:?}");
    }
}

#[test]
fn a_whole_batch_whose_records_do_not_fit_is_a_typed_error_with_their_seq() {
    let lead = Record::Lead { epoch: Epoch(1) };
    let select = Record::Op(Op::Select { ticket: Ticket(7) });
    assert_eq!(fold_error(2, &[&lead, &select], b""), FoldError::Diverged { seq: Seq(2), source: Misfit::Unknown });
    assert_eq!(fold_error(2, &[&lead, &lead], b""), FoldError::Diverged { seq: Seq(2), source: Misfit::EpochNotRising });
    assert_eq!(fold_error(2, &[&lead], b""), FoldError::Malformed { seq: Seq(2), source: Malformed::Fields });
    assert_eq!(fold_error(2, &[&lead], b"\x63"), FoldError::Malformed { seq: Seq(2), source: Malformed::Tag(0x63) });
    assert_eq!(fold_error(1, &[&lead], b"\0"), FoldError::Malformed { seq: Seq(2), source: Malformed::Fields }, "bytes left over");
}

/// What opening says of a journal whose one batch claims `count` records and holds these and some bytes.
fn fold_error(count: u32, records: &[&Record], rest: &[u8]) -> FoldError {
    let disk = MemDisk::default();
    let mut journal = open(&disk).expect("an empty disk opens").recovery.into_journal(WIDE, SALT);
    let mut body = Vec::new();
    records.iter().for_each(|record| record::encode(record, &mut body));
    body.extend(rest);
    journal.append(batch(1, count, body)).expect("a journal does not look into records");
    match open(&disk).map(|store| store.queue) {
        Err(OpenError::Journal(RecoverError::Fold { file, offset: 96, source })) if file == segment(1) => source,
        other => panic!("{other:?}"),
    }
}

/// The name of a variant, from how it is shown.
fn variant_of(shown: &str) -> String {
    shown.split(|c: char| !c.is_alphabetic()).next().unwrap_or_default().to_owned()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Pending,
    Running,
    Gone,
}

fn place_of(queue: &Queue, ticket: Ticket) -> Place {
    match queue.get(ticket).map(|live| live.phase()) {
        Some(Phase::Pending { .. }) => Place::Pending,
        Some(Phase::Running { .. }) => Place::Running,
        None => Place::Gone,
    }
}

/// Where a change takes a ticket from, and where to.
fn passage(change: Change) -> (&'static [Place], Place) {
    match change {
        Change::Selected(_) => (&[Place::Pending], Place::Running),
        Change::Completed(_) => (&[Place::Running], Place::Gone),
        Change::Cancelled { was_running: true } => (&[Place::Running], Place::Gone),
        Change::Cancelled { was_running: false } => (&[Place::Pending], Place::Gone),
        Change::Requeued | Change::Deferred => (&[Place::Running], Place::Pending),
        Change::Enqueued(_) | Change::Led => panic!("{change:?} moves no ticket that was there"),
    }
}

fn ticket_of(record: &Record) -> Option<Ticket> {
    match record {
        Record::Op(
            Op::Select { ticket }
            | Op::Complete { ticket, .. }
            | Op::Cancel { ticket }
            | Op::Requeue { ticket, .. }
            | Op::Defer { ticket, .. },
        ) => Some(*ticket),
        Record::Op(Op::Enqueue { .. }) | Record::Lead { .. } => None,
    }
}

/// All that can be said of a run of this ticket.
fn outcomes_of(ticket: Ticket, attempt: Attempt, due: Time) -> Vec<Op> {
    let fault = Fault::new(Cause::Failed, "late");
    let ends = End::ALL.map(|end| Op::Complete { ticket, attempt, end, fault: Some(fault.clone()) });
    let back = [Op::Requeue { ticket, attempt, due, fault }, Op::Defer { ticket, attempt, due }];
    ends.into_iter().chain(back).collect()
}

fn ops_on(ticket: Ticket, attempt: Attempt, due: Time) -> Vec<Op> {
    let mut ops = outcomes_of(ticket, attempt, due);
    ops.extend([Op::Select { ticket }, Op::Cancel { ticket }]);
    ops
}

/// What should be known of keys. A key whose window was over once, by the time of an accepted enqueue with a key, is
/// forgotten for good: a clock that is set back does not bring it back.
#[derive(Default)]
struct Keys(BTreeMap<Key, Claim>);

struct Claim {
    ticket: Ticket,
    window: Span,
    until: Option<Time>,
}

impl Keys {
    fn holder(&self, key: &Key, now: Time) -> Option<Ticket> {
        let claim = self.0.get(key)?;
        claim.until.is_none_or(|until| now < until).then_some(claim.ticket)
    }

    fn follow(&mut self, step: &Step<'_>) {
        match (step.answer, step.record) {
            (Ok(Change::Enqueued(ticket)), Record::Op(Op::Enqueue { now, key: Some(key), job, .. })) => {
                self.0.retain(|_, claim| claim.until.is_none_or(|until| *now < until));
                let window = job.options().get(Options::KEY_WINDOW).map_or(Span::from_secs(24 * 60 * 60), Span);
                self.0.insert(key.clone(), Claim { ticket, window, until: None });
            }
            (Ok(Change::Completed(_) | Change::Cancelled { .. }), record) => {
                let ended = ticket_of(record);
                for claim in self.0.values_mut().filter(|claim| Some(claim.ticket) == ended) {
                    claim.until = Some(step.now + claim.window);
                }
            }
            _ => {}
        }
    }
}

/// A queue with its journal on a disk in memory: decides, appends, and now and then dies.
struct Durable {
    disk: MemDisk,
    journal: Option<Journal>,
    queue: Queue,
    clock: Time,
    open: Vec<Record>,
    opened: Time,
    /// The tickets given out by the open batch.
    promised: Vec<Ticket>,
    /// The state that the last durable batch led to.
    safe: Queue,
    /// The tickets whose Enqueue is durable, in the order in which they were given out.
    given: Vec<Ticket>,
    lives: u128,
}

impl Durable {
    fn begin(disk: MemDisk) -> Self {
        let zero = Time(0);
        let (queue, safe) = (Queue::default(), Queue::default());
        let mut life =
            Self { disk, journal: None, queue, clock: zero, open: vec![], opened: zero, promised: vec![], safe, given: vec![], lives: 0 };
        life.lead();
        life
    }

    fn act(&mut self, act: &Act) {
        match act {
            Act::Clock(time) => self.clock = *time,
            Act::Flush => self.flush(),
            Act::Restart => self.restart(),
            _ => {
                let record = act.record(&self.queue, self.time()).expect("all others are records");
                self.write(record);
            }
        }
    }

    /// The time of the batch that the next record goes into: it is fixed when the batch opens.
    fn time(&self) -> Time {
        if self.open.is_empty() { self.clock } else { self.opened }
    }

    fn write(&mut self, record: Record) {
        let now = self.time();
        let Ok(change) = self.queue.step(self.queue.last().next(), now, &record) else { return };
        if let Change::Enqueued(ticket) = change {
            self.promised.push(ticket);
        }
        self.opened = now;
        self.open.push(record);
    }

    fn flush(&mut self) {
        let count = u32::try_from(self.open.len()).expect("few");
        if count == 0 {
            return;
        }
        let mut body = Vec::new();
        self.open.drain(..).for_each(|record| record::encode(&record, &mut body));
        let batch = Batch { epoch: self.queue.epoch(), first: self.safe.last().next(), count, time: self.opened, body };
        self.journal.as_mut().expect("it lives").append(batch).expect("memory takes it");
        self.given.append(&mut self.promised);
        self.safe = self.queue.clone();
    }

    /// In turn: a clean close, a crash with nothing in flight, a crash with a batch that never got to the disk.
    fn restart(&mut self) {
        let how = self.lives % 3;
        if how != 0 {
            self.flush();
        }
        let journal = self.journal.take().expect("it lives");
        if how == 1 {
            journal.seal().expect("memory takes it");
        }
        self.disk.crash();
        self.open.clear();
        self.promised.clear();
        self.lead();
    }

    /// Opens what is on the disk and begins a new reign.
    fn lead(&mut self) {
        let store = open(&self.disk).expect("what was synced opens");
        store.queue.check();
        assert_eq!(store.queue, self.safe, "the durable state, after life {}", self.lives);
        self.lives += 1;
        self.queue = store.queue;
        let limits = JournalLimits { segment_bytes: 8 << 10, batch_bytes: 1 << 20 };
        self.journal = Some(store.recovery.into_journal(limits, Salt(self.lives)));
        self.write(Record::Lead { epoch: self.queue.epoch().next() });
        self.flush();
    }
}
