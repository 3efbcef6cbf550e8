//! Live attempts by (ticket, attempt), outside every actor: their outcomes and their units survive the queue that they are for,
//! and wait here for the next one. An entry leaves when the record that ends its attempt is durable and its unit is free. Decides
//! nothing.

use std::collections::hash_map::Entry::{Occupied, Vacant};
use std::collections::hash_map::OccupiedEntry;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use actix::Recipient;
use foldhash::HashMap;
use journeyman_core::pool::Pool;
use journeyman_core::retry::Outcome;
use journeyman_core::{Attempt, End, Fault, Seq, Ticket, Time};
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};

use crate::messages::{Finished, Freed, Over, Returned, Returns, Units};

/// The attempts of one process. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Ledger(Arc<Inner>);

#[derive(Default)]
struct Inner {
    book: Mutex<Book>,
    /// The number of the queue in office, or 0, to be read without the book: before each thing that a queue does.
    in_office: AtomicU64,
    /// Cut off is cut off: no attempt of this process begins afterwards.
    interrupted: CancellationToken,
}

#[derive(Default)]
struct Book {
    entries: HashMap<(Ticket, Attempt), Entry>,
    /// The queue in office; none between two.
    office: Option<Office>,
    reigns: u64,
    /// What is over and the queue in office has not taken yet. It has been told when there is something.
    over: Vec<Over>,
    /// The first record that this process wrote: an attempt from there on was selected by it.
    first: Option<Seq>,
}

/// Who hears of an end, and who may begin an attempt.
pub(crate) struct Office {
    pub finished: Recipient<Finished>,
    pub freed: Recipient<Freed>,
}

/// The number of a queue in office. A queue that was replaced and does not know it yet has an old one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reign(u64);

/// How an attempt ended.
#[derive(Clone, Debug)]
pub(crate) enum Ended {
    /// The job began, and this came of it.
    Ran { outcome: Outcome, fault: Option<Fault> },
    /// The budget does not admit it: the ticket ends.
    Denied(End),
    /// The breaker refuses until then, by the steady clock.
    Open { until: Time },
    /// This build cannot decode the payload.
    Unreadable { why: String },
    /// The stop came before the job began, or whoever had it was gone before.
    NeverBegan,
    /// Whoever had it is gone without a word, and it had begun; nobody knows how far it came.
    Lost,
    /// The process that ran it died.
    Crashed,
}

/// An entry as a new queue finds it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    pub ticket: Ticket,
    pub attempt: Attempt,
    pub stage: Stage,
    /// Whether something of it still runs.
    pub is_occupied: bool,
}

/// How far an attempt has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Live,
    /// How, [`Ledger::ended`] tells.
    Ended,
    /// Its record is durable; a blocking section of it goes on.
    Settled,
}

struct Entry {
    progress: Progress,
    /// Says that its ticket was cancelled: it may finish, but need not. Made when somebody wants to know or to tell.
    cancelled: Option<CancellationToken>,
    /// The attempt while it runs, and each blocking section of it.
    occupants: u32,
    /// The unit of the pool that they occupy; none when a new pool had none to spare.
    units: Option<Units>,
}

enum Progress {
    Live {
        /// Whether the job has begun to run.
        begun: bool,
    },
    Ended(Ended),
    Settled,
}

impl Ledger {
    /// A new queue takes over. Units that attempts occupy are taken from the new pool in the place of those of the old one.
    /// What ends from now on is told to `office`; what ended before stands in the answer.
    pub(crate) fn take_office(&self, office: Office, pool: &mut Pool, home: &Arc<Recipient<Returned>>) -> (Reign, Vec<Standing>) {
        let mut book = self.book();
        book.reigns += 1;
        // The entries tell as much.
        book.over.clear();
        book.office = Some(office);
        self.0.in_office.store(book.reigns, Ordering::Release);
        let mut names: Vec<_> = book.entries.keys().copied().collect();
        names.sort_unstable();
        for name in names {
            let Some(entry) = book.entries.get_mut(&name) else { continue };
            // On its way, perhaps on a thread that is stuck: it never will begin, as it is asked once more before it does.
            if matches!(entry.progress, Progress::Live { begun: false }) {
                *entry = Entry { progress: Progress::Ended(Ended::NeverBegan), cancelled: None, occupants: 0, units: None };
            }
            if entry.occupants > 0 {
                entry.units = pool.reserve(1).map(|permit| Units::new(permit, home.clone()));
            }
        }
        let standing = |(name, entry): (&(Ticket, Attempt), &Entry)| Standing {
            ticket: name.0,
            attempt: name.1,
            stage: entry.progress.stage(),
            is_occupied: entry.occupants > 0,
        };
        (Reign(book.reigns), book.in_order().map(standing).collect())
    }

    /// Nobody is in office any more: no attempt begins, and what ends waits here.
    pub(crate) fn leave_office(&self) {
        self.0.in_office.store(0, Ordering::Release);
        self.book().office = None;
    }

    pub(crate) fn is_in_office(&self, reign: Reign) -> bool {
        self.0.in_office.load(Ordering::Acquire) == reign.0
    }

    /// Whether no other queue has taken office since.
    pub(crate) fn is_latest(&self, reign: Reign) -> bool {
        self.book().reigns == reign.0
    }

    /// The first record that this process writes, now or before.
    pub(crate) fn first_record(&self, seq: Seq) {
        self.book().first.get_or_insert(seq);
    }

    /// Whether this process selected the attempt.
    pub(crate) fn selected_here(&self, attempt: Attempt) -> bool {
        self.book().first.is_some_and(|first| attempt.0 >= first)
    }

    /// Notes attempts that are about to begin, each with the unit that it occupies. False when another queue is in office: then none begins,
    /// and the units go back.
    pub(crate) fn begin(&self, reign: Reign, attempts: Vec<(Ticket, Attempt, Units)>) -> bool {
        let mut book = self.book();
        if !book.is_in_office(reign) {
            return false;
        }
        let entry = |unit| Entry { progress: Progress::Live { begun: false }, cancelled: None, occupants: 1, units: Some(unit) };
        book.entries.extend(attempts.into_iter().map(|(ticket, attempt, unit)| ((ticket, attempt), entry(unit))));
        true
    }

    /// What says that the ticket of an attempt was cancelled, as long as it is noted here: afterwards nobody is told.
    pub(crate) fn cancelled(&self, ticket: Ticket, attempt: Attempt) -> CancellationToken {
        let mut book = self.book();
        let entry = book.entries.get_mut(&(ticket, attempt));
        entry.map_or_else(CancellationToken::new, |entry| entry.cancelled.get_or_insert_default().clone())
    }

    /// Notes an end of which no attempt tells.
    pub(crate) fn note(&self, ticket: Ticket, attempt: Attempt, ended: Ended) {
        self.book().note(ticket, attempt, ended);
    }

    /// An attempt tells how it ended; its unit comes with the news, unless a blocking section still occupies it.
    pub(crate) fn end(&self, ticket: Ticket, attempt: Attempt, ended: Ended) {
        let mut book = self.book();
        let (unit, ended) = match book.entries.entry((ticket, attempt)) {
            // One that was found on its way by a new queue may be history by now.
            Vacant(_) => (Returns::Now(None), None),
            Occupied(mut entry) => {
                entry.get_mut().note(ended);
                let ended = entry.get().progress.ended();
                (leave(entry), ended)
            }
        };
        book.tell(Over { ticket, attempt, unit, ended });
    }

    /// What is over since it was last asked; nothing for a queue that is not in office any more, as it is its successor's.
    pub(crate) fn take_over(&self, reign: Reign) -> Vec<Over> {
        let mut book = self.book();
        if book.is_in_office(reign) { mem::take(&mut book.over) } else { Vec::new() }
    }

    /// Tells the queue of an end that no attempt has told.
    #[cfg(feature = "testing")]
    pub(crate) fn stray(&self, ticket: Ticket, attempt: Attempt) {
        self.book().tell(Over { ticket, attempt, unit: Returns::Now(None), ended: None });
    }

    /// A blocking section of the attempt begins; none when nothing of the attempt runs any more.
    pub(crate) fn enter(&self, ticket: Ticket, attempt: Attempt) -> Option<Section> {
        let mut book = self.book();
        let entry = book.entries.get_mut(&(ticket, attempt)).filter(|entry| entry.occupants > 0)?;
        entry.occupants = entry.occupants.saturating_add(1);
        Some(Section { ledger: self.clone(), ticket, attempt })
    }

    /// How it ended.
    pub(crate) fn ended(&self, ticket: Ticket, attempt: Attempt) -> Option<Ended> {
        self.book().entries.get(&(ticket, attempt))?.progress.ended()
    }

    /// Whether something of it still runs.
    pub(crate) fn is_occupied(&self, ticket: Ticket, attempt: Attempt) -> bool {
        self.book().entries.get(&(ticket, attempt)).is_some_and(|entry| entry.occupants > 0)
    }

    /// The records that end them are durable.
    pub(crate) fn forget(&self, attempts: &[(Ticket, Attempt)]) {
        let mut book = self.book();
        for name in attempts {
            if let Occupied(mut entry) = book.entries.entry(*name) {
                entry.get_mut().progress = Progress::Settled;
                if entry.get().occupants == 0 {
                    entry.remove();
                }
            }
        }
    }

    /// Tells a live attempt that its ticket was cancelled.
    pub(crate) fn cancel(&self, ticket: Ticket, attempt: Attempt) {
        let mut book = self.book();
        if let Some(entry) = book.entries.get_mut(&(ticket, attempt)).filter(|entry| matches!(entry.progress, Progress::Live { .. })) {
            entry.cancelled.get_or_insert_default().cancel();
        }
    }

    /// Cuts off every live attempt, and whatever would become one.
    pub(crate) fn interrupt_all(&self) {
        self.0.interrupted.cancel();
    }

    /// Waits until every attempt is cut off: the drain is over, and each is dropped at its next await.
    pub(crate) fn interrupted(&self) -> WaitForCancellationFuture<'_> {
        self.0.interrupted.cancelled()
    }

    /// The job begins to run, unless it was cut off or given up before.
    pub(crate) fn may_run(&self, ticket: Ticket, attempt: Attempt) -> bool {
        match self.book().entries.get_mut(&(ticket, attempt)).map(|entry| &mut entry.progress) {
            Some(Progress::Live { begun }) if !self.0.interrupted.is_cancelled() => {
                *begun = true;
                true
            }
            _ => false,
        }
    }

    /// Attempts that have not ended, and whether their jobs have begun to run.
    pub(crate) fn live(&self) -> Vec<(Ticket, Attempt, bool)> {
        let live = |(name, entry): (&(Ticket, Attempt), &Entry)| match entry.progress {
            Progress::Live { begun } => Some((name.0, name.1, begun)),
            Progress::Ended(_) | Progress::Settled => None,
        };
        self.book().in_order().filter_map(live).collect()
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Book {
    const fn is_in_office(&self, reign: Reign) -> bool {
        self.office.is_some() && self.reigns == reign.0
    }

    /// So that what is decided of several does not hang on chance: a test run replays.
    fn in_order(&self) -> impl Iterator<Item = (&(Ticket, Attempt), &Entry)> {
        let mut entries: Vec<_> = self.entries.iter().collect();
        entries.sort_unstable_by_key(|(name, _)| **name);
        entries.into_iter()
    }

    fn tell(&mut self, over: Over) {
        let Some(office) = &self.office else { return };
        if self.over.is_empty() {
            office.finished.do_send(Finished);
        }
        self.over.push(over);
    }

    fn note(&mut self, ticket: Ticket, attempt: Attempt, ended: Ended) {
        match self.entries.entry((ticket, attempt)) {
            Occupied(mut entry) => entry.get_mut().note(ended),
            Vacant(place) => {
                place.insert(Entry { progress: Progress::Ended(ended), cancelled: None, occupants: 0, units: None });
            }
        }
    }
}

impl Entry {
    /// The first word counts: one that was given up cannot end again.
    fn note(&mut self, ended: Ended) {
        match (&self.progress, ended) {
            // Lost on its way: nothing of it has run.
            (Progress::Live { begun: false }, Ended::Lost) => self.progress = Progress::Ended(Ended::NeverBegan),
            (Progress::Live { .. }, ended) => self.progress = Progress::Ended(ended),
            (Progress::Ended(_) | Progress::Settled, _) => {}
        }
    }
}

/// The attempt or a section of it runs no more. With the last of them its unit is free.
fn leave(mut entry: OccupiedEntry<'_, (Ticket, Attempt), Entry>) -> Returns {
    entry.get_mut().occupants = entry.get().occupants.saturating_sub(1);
    if entry.get().occupants > 0 {
        return Returns::WithItsLastSection;
    }
    let units = entry.get_mut().units.take();
    if matches!(entry.get().progress, Progress::Settled) {
        entry.remove();
    }
    Returns::Now(units)
}

/// A blocking section of an attempt: it occupies the attempt's unit, beyond the end of the attempt if need be.
pub(crate) struct Section {
    ledger: Ledger,
    ticket: Ticket,
    attempt: Attempt,
}

impl Drop for Section {
    fn drop(&mut self) {
        let mut book = self.ledger.book();
        // The last one, later than the attempt itself, brings the unit.
        if let Occupied(entry) = book.entries.entry((self.ticket, self.attempt))
            && let Returns::Now(units) = leave(entry)
            && let Some(office) = &book.office
        {
            office.freed.do_send(Freed { ticket: self.ticket, units });
        }
    }
}

impl Progress {
    fn ended(&self) -> Option<Ended> {
        match self {
            Self::Ended(ended) => Some(ended.clone()),
            Self::Live { .. } | Self::Settled => None,
        }
    }

    const fn stage(&self) -> Stage {
        match self {
            Self::Live { .. } => Stage::Live,
            Self::Ended(_) => Stage::Ended,
            Self::Settled => Stage::Settled,
        }
    }
}

#[cfg(test)]
mod tests {
    use actix::{Actor, Context, Handler};

    use super::*;

    /// Where all reports go.
    struct Home;

    impl Actor for Home {
        type Context = Context<Self>;
    }

    macro_rules! hears {
        ($($message:ty),*) => {
            $(impl Handler<$message> for Home {
                type Result = ();

                fn handle(&mut self, _: $message, _: &mut Context<Self>) {}
            })*
        };
    }

    hears!(Finished, Freed, Returned);

    const NAME: (Ticket, Attempt) = (Ticket(1), Attempt(Seq(2)));

    fn take_office(ledger: &Ledger) -> (Reign, Pool, Arc<Recipient<Returned>>, Vec<Standing>) {
        let home = Home.start();
        let mut pool = Pool::new(4);
        let office = Office { finished: home.clone().recipient(), freed: home.clone().recipient() };
        let (reign, standings) = ledger.take_office(office, &mut pool, &Arc::new(home.clone().recipient()));
        (reign, pool, Arc::new(home.recipient()), standings)
    }

    fn begin(ledger: &Ledger) -> Reign {
        let (reign, mut pool, home, _) = take_office(ledger);
        let unit = Units::new(pool.reserve(1).expect("a unit"), home);
        assert!(ledger.begin(reign, vec![(NAME.0, NAME.1, unit)]));
        reign
    }

    fn ended(ledger: &Ledger) -> Option<Ended> {
        ledger.ended(NAME.0, NAME.1)
    }

    #[actix::test]
    async fn an_attempt_that_is_lost_on_its_way_has_never_begun() {
        let ledger = Ledger::default();
        begin(&ledger);
        ledger.end(NAME.0, NAME.1, Ended::Lost);
        assert!(matches!(ended(&ledger), Some(Ended::NeverBegan)));
    }

    #[actix::test]
    async fn one_that_is_lost_while_it_runs_may_have_done_anything() {
        let ledger = Ledger::default();
        begin(&ledger);
        assert!(ledger.may_run(NAME.0, NAME.1));
        ledger.end(NAME.0, NAME.1, Ended::Lost);
        assert!(matches!(ended(&ledger), Some(Ended::Lost)));
    }

    #[actix::test]
    async fn a_new_queue_keeps_what_runs_and_takes_back_what_is_on_its_way() {
        let ledger = Ledger::default();
        begin(&ledger);
        let (_, pool, _, standings) = take_office(&ledger);
        assert_eq!((standings[0].stage, standings[0].is_occupied, pool.available()), (Stage::Ended, false, 4));
        assert!(!ledger.may_run(NAME.0, NAME.1), "wherever it is by now");
        ledger.end(NAME.0, NAME.1, Ended::NeverBegan);
        ledger.forget(&[NAME]);
        ledger.end(NAME.0, NAME.1, Ended::Lost);
        assert!(ended(&ledger).is_none() && ledger.live().is_empty(), "an echo leaves no trace");

        let ledger = Ledger::default();
        let old = begin(&ledger);
        assert!(ledger.may_run(NAME.0, NAME.1));
        let (new, mut pool, home, standings) = take_office(&ledger);
        assert_eq!((standings[0].stage, standings[0].is_occupied, pool.available()), (Stage::Live, true, 3));
        assert!(ledger.is_in_office(new) && !ledger.is_in_office(old));
        let unit = Units::new(pool.reserve(1).expect("a unit"), home);
        assert!(!ledger.begin(old, vec![(Ticket(7), Attempt(Seq(8)), unit)]), "a queue that was replaced starts nothing");
    }

    #[actix::test]
    async fn a_queue_that_was_replaced_takes_nothing_of_its_successor() {
        let ledger = Ledger::default();
        let old = begin(&ledger);
        assert!(ledger.may_run(NAME.0, NAME.1));
        let (new, ..) = take_office(&ledger);
        ledger.end(NAME.0, NAME.1, Ended::Lost);
        assert_eq!((ledger.take_over(old).len(), ledger.take_over(new).len(), ledger.take_over(new).len()), (0, 1, 0));
    }

    #[actix::test]
    async fn an_entry_stays_until_its_record_is_durable_and_nothing_of_it_runs() {
        let ledger = Ledger::default();
        begin(&ledger);
        assert!(ledger.may_run(NAME.0, NAME.1));
        let section = ledger.enter(NAME.0, NAME.1);
        ledger.end(NAME.0, NAME.1, Ended::Denied(End::Late));
        ledger.forget(&[NAME]);
        assert!(ledger.is_occupied(NAME.0, NAME.1), "a blocking section goes on");
        let another = ledger.enter(NAME.0, NAME.1);
        assert!(another.is_some(), "it may ask for one more");
        drop(section);
        assert!(ledger.is_occupied(NAME.0, NAME.1), "the other goes on");
        drop(another);
        assert!(ledger.enter(NAME.0, NAME.1).is_none(), "nothing is left that could ask");
        assert!(!ledger.is_occupied(NAME.0, NAME.1) && take_office(&ledger).3.is_empty());
    }
}
