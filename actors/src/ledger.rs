//! Live attempts by (ticket, attempt), outside every actor: their outcomes and their units survive the queue that they are for,
//! and wait here for the next one. An entry leaves when the record that ends its attempt is durable and its unit is free. Decides
//! nothing.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry::{Occupied, Vacant};
use std::collections::btree_map::OccupiedEntry;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use actix::Recipient;
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
    /// In their order, so that what is decided of several does not hang on chance: a test run replays.
    entries: BTreeMap<(Ticket, Attempt), Entry>,
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
    /// Whether the attempt or a blocking section of it still runs.
    is_occupied: bool,
    /// The unit of the pool that it occupies; none when a new pool had none to spare.
    units: Option<Units>,
}

enum Progress {
    Live {
        /// Its ticket was cancelled: it may finish, but need not.
        cancelled: CancellationToken,
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
        for entry in book.entries.values_mut() {
            // On its way, perhaps on a thread that is stuck: it never will begin, as it is asked once more before it does.
            if matches!(entry.progress, Progress::Live { begun: false, .. }) {
                *entry = Entry { progress: Progress::Ended(Ended::NeverBegan), is_occupied: false, units: None };
            }
            if entry.is_occupied {
                entry.units = pool.reserve(1).map(|permit| Units::new(permit, home.clone()));
            }
        }
        let standing = |(name, entry): (&(Ticket, Attempt), &Entry)| Standing {
            ticket: name.0,
            attempt: name.1,
            stage: entry.progress.stage(),
            is_occupied: entry.is_occupied,
        };
        (Reign(book.reigns), book.entries.iter().map(standing).collect())
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

    /// Notes an attempt that is about to begin and occupies `unit`; what it gets tells it that its ticket was cancelled. Gives the
    /// unit back when another queue is in office.
    pub(crate) fn begin(&self, reign: Reign, ticket: Ticket, attempt: Attempt, unit: Units) -> Result<CancellationToken, Units> {
        let mut book = self.book();
        if !book.is_in_office(reign) {
            return Err(unit);
        }
        let cancelled = CancellationToken::new();
        let progress = Progress::Live { cancelled: cancelled.clone(), begun: false };
        book.entries.insert((ticket, attempt), Entry { progress, is_occupied: true, units: Some(unit) });
        Ok(cancelled)
    }

    /// Notes an end of which no attempt tells.
    pub(crate) fn note(&self, ticket: Ticket, attempt: Attempt, ended: Ended) {
        self.book().note(ticket, attempt, ended);
    }

    /// An attempt tells how it ended; its unit comes with the news, unless a blocking section still occupies it.
    pub(crate) fn end(&self, ticket: Ticket, attempt: Attempt, ended: Ended, is_empty: bool) {
        let mut book = self.book();
        let units = match book.entries.entry((ticket, attempt)) {
            // One that was found on its way by a new queue may be history by now.
            Vacant(_) => None,
            Occupied(mut entry) => {
                entry.get_mut().note(ended);
                if is_empty { vacate(entry) } else { None }
            }
        };
        let seat = if is_empty { Returns::Now(units) } else { Returns::WithItsLastSection };
        book.tell(Over { ticket, attempt, seat });
    }

    /// What is over since it was last asked; nothing for a queue that is not in office any more, as it is its successor's.
    pub(crate) fn take_over(&self, reign: Reign) -> Vec<Over> {
        let mut book = self.book();
        if book.is_in_office(reign) { mem::take(&mut book.over) } else { Vec::new() }
    }

    /// Tells the queue of an end that no attempt has told.
    #[cfg(feature = "testing")]
    pub(crate) fn stray(&self, ticket: Ticket, attempt: Attempt) {
        self.book().tell(Over { ticket, attempt, seat: Returns::Now(None) });
    }

    /// The last blocking section of an attempt has ended, later than the attempt itself.
    pub(crate) fn free(&self, ticket: Ticket, attempt: Attempt) {
        let mut book = self.book();
        let units = match book.entries.entry((ticket, attempt)) {
            Vacant(_) => None,
            Occupied(entry) => vacate(entry),
        };
        if let Some(office) = &book.office {
            office.freed.do_send(Freed { ticket, units });
        }
    }

    /// How it ended.
    pub(crate) fn ended(&self, ticket: Ticket, attempt: Attempt) -> Option<Ended> {
        match &self.book().entries.get(&(ticket, attempt))?.progress {
            Progress::Ended(ended) => Some(ended.clone()),
            Progress::Live { .. } | Progress::Settled => None,
        }
    }

    /// Whether something of it still runs.
    pub(crate) fn is_occupied(&self, ticket: Ticket, attempt: Attempt) -> bool {
        self.book().entries.get(&(ticket, attempt)).is_some_and(|entry| entry.is_occupied)
    }

    /// The record that ends it is durable.
    pub(crate) fn forget(&self, ticket: Ticket, attempt: Attempt) {
        if let Occupied(mut entry) = self.book().entries.entry((ticket, attempt)) {
            entry.get_mut().progress = Progress::Settled;
            if !entry.get().is_occupied {
                entry.remove();
            }
        }
    }

    /// Tells a live attempt that its ticket was cancelled.
    pub(crate) fn cancel(&self, ticket: Ticket, attempt: Attempt) {
        if let Some(Progress::Live { cancelled, .. }) = self.book().entries.get(&(ticket, attempt)).map(|entry| &entry.progress) {
            cancelled.cancel();
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
            Some(Progress::Live { begun, .. }) if !self.0.interrupted.is_cancelled() => {
                *begun = true;
                true
            }
            _ => false,
        }
    }

    /// Attempts that have not ended, and whether their jobs have begun to run.
    pub(crate) fn live(&self) -> Vec<(Ticket, Attempt, bool)> {
        let live = |(name, entry): (&(Ticket, Attempt), &Entry)| match entry.progress {
            Progress::Live { begun, .. } => Some((name.0, name.1, begun)),
            Progress::Ended(_) | Progress::Settled => None,
        };
        self.book().entries.iter().filter_map(live).collect()
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Book {
    const fn is_in_office(&self, reign: Reign) -> bool {
        self.office.is_some() && self.reigns == reign.0
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
                place.insert(Entry { progress: Progress::Ended(ended), is_occupied: false, units: None });
            }
        }
    }
}

impl Entry {
    /// The first word counts: one that was given up cannot end again.
    fn note(&mut self, ended: Ended) {
        match (&self.progress, ended) {
            // Lost on its way: nothing of it has run.
            (Progress::Live { begun: false, .. }, Ended::Lost) => self.progress = Progress::Ended(Ended::NeverBegan),
            (Progress::Live { .. }, ended) => self.progress = Progress::Ended(ended),
            (Progress::Ended(_) | Progress::Settled, _) => {}
        }
    }
}

/// Nothing of the attempt runs any more: its unit is free.
fn vacate(mut entry: OccupiedEntry<'_, (Ticket, Attempt), Entry>) -> Option<Units> {
    entry.get_mut().is_occupied = false;
    let units = entry.get_mut().units.take();
    if matches!(entry.get().progress, Progress::Settled) {
        entry.remove();
    }
    units
}

impl Progress {
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
        assert!(ledger.begin(reign, NAME.0, NAME.1, unit).is_ok());
        reign
    }

    fn ended(ledger: &Ledger) -> Option<Ended> {
        ledger.ended(NAME.0, NAME.1)
    }

    #[actix::test]
    async fn an_attempt_that_is_lost_on_its_way_has_never_begun() {
        let ledger = Ledger::default();
        begin(&ledger);
        ledger.end(NAME.0, NAME.1, Ended::Lost, true);
        assert!(matches!(ended(&ledger), Some(Ended::NeverBegan)));
    }

    #[actix::test]
    async fn one_that_is_lost_while_it_runs_may_have_done_anything() {
        let ledger = Ledger::default();
        begin(&ledger);
        assert!(ledger.may_run(NAME.0, NAME.1));
        ledger.end(NAME.0, NAME.1, Ended::Lost, true);
        assert!(matches!(ended(&ledger), Some(Ended::Lost)));
    }

    #[actix::test]
    async fn a_new_queue_keeps_what_runs_and_takes_back_what_is_on_its_way() {
        let ledger = Ledger::default();
        begin(&ledger);
        let (_, pool, _, standings) = take_office(&ledger);
        assert_eq!((standings[0].stage, standings[0].is_occupied, pool.available()), (Stage::Ended, false, 4));
        assert!(!ledger.may_run(NAME.0, NAME.1), "wherever it is by now");
        ledger.end(NAME.0, NAME.1, Ended::NeverBegan, true);
        ledger.forget(NAME.0, NAME.1);
        ledger.end(NAME.0, NAME.1, Ended::Lost, true);
        assert!(ended(&ledger).is_none() && ledger.live().is_empty(), "an echo leaves no trace");

        let ledger = Ledger::default();
        let old = begin(&ledger);
        assert!(ledger.may_run(NAME.0, NAME.1));
        let (new, mut pool, home, standings) = take_office(&ledger);
        assert_eq!((standings[0].stage, standings[0].is_occupied, pool.available()), (Stage::Live, true, 3));
        assert!(ledger.is_in_office(new) && !ledger.is_in_office(old));
        let unit = Units::new(pool.reserve(1).expect("a unit"), home);
        assert!(ledger.begin(old, Ticket(7), Attempt(Seq(8)), unit).is_err(), "a queue that was replaced starts nothing");
    }

    #[actix::test]
    async fn a_queue_that_was_replaced_takes_nothing_of_its_successor() {
        let ledger = Ledger::default();
        let old = begin(&ledger);
        assert!(ledger.may_run(NAME.0, NAME.1));
        let (new, ..) = take_office(&ledger);
        ledger.end(NAME.0, NAME.1, Ended::Lost, true);
        assert_eq!((ledger.take_over(old).len(), ledger.take_over(new).len(), ledger.take_over(new).len()), (0, 1, 0));
    }

    #[actix::test]
    async fn an_entry_stays_until_its_record_is_durable_and_nothing_of_it_runs() {
        let ledger = Ledger::default();
        begin(&ledger);
        assert!(ledger.may_run(NAME.0, NAME.1));
        ledger.end(NAME.0, NAME.1, Ended::Denied(End::Late), false);
        ledger.forget(NAME.0, NAME.1);
        assert!(ledger.is_occupied(NAME.0, NAME.1), "a blocking section goes on");
        ledger.free(NAME.0, NAME.1);
        assert!(!ledger.is_occupied(NAME.0, NAME.1) && take_office(&ledger).3.is_empty());
    }
}
