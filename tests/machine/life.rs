//! One long run: what the world does to a runner, what the runner has said, and whether both fit.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use fastrand::Rng;
use journeyman::testing::{Syncs, TestDisk, TestRunner};
use journeyman::{
    Cancelled, Circuit, Configured, EnqueueError, Event, EventFilter, Events, Found, Happened, Health, JobEnd, JobId, Limits, Runner,
};
use journeyman_core::disk::{Disk, DiskFile};

use super::PATIENCE;
use super::book::{ATTEMPTS, Act, Book, Errand};
use crate::support::sim::{Plan, SimDisk};

/// The simulated disk, and what decides what it keeps at a crash.
#[derive(Clone)]
struct Plug {
    disk: SimDisk,
    dice: Arc<Mutex<Rng>>,
}

impl TestDisk for Plug {
    fn crash(&self) {
        self.disk.set_plan(Plan::Nothing);
        self.disk.crash_by(&mut self.dice.lock().expect("nobody panics with it"));
    }
}

impl Disk for Plug {
    fn list(&self) -> std::io::Result<Vec<String>> {
        self.disk.list()
    }

    fn read(&self, name: &str) -> std::io::Result<Vec<u8>> {
        self.disk.read(name)
    }

    fn read_at(&self, name: &str, offset: u64, length: usize) -> std::io::Result<Vec<u8>> {
        self.disk.read_at(name, offset, length)
    }

    fn create(&self, name: &str) -> std::io::Result<Box<dyn DiskFile>> {
        self.disk.create(name)
    }

    fn rename(&self, from: &str, to: &str) -> std::io::Result<()> {
        self.disk.rename(from, to)
    }

    fn free(&self) -> std::io::Result<u64> {
        self.disk.free()
    }

    fn remove(&self, name: &str) -> std::io::Result<()> {
        self.disk.remove(name)
    }

    fn sync_names(&self) -> std::io::Result<()> {
        self.disk.sync_names()
    }
}

/// How much of everything there was.
#[derive(Debug, Default)]
pub(crate) struct Told {
    pub(crate) acked: u64,
    pub(crate) unknown: u64,
    pub(crate) refused: u64,
    pub(crate) crashes: u64,
    pub(crate) stops: u64,
    pub(crate) faults: u64,
    pub(crate) full: u64,
    pub(crate) jumps: u64,
    pub(crate) cancels: u64,
    pub(crate) compactions: u64,
    pub(crate) ended: u64,
    pub(crate) runs: u64,
}

impl Told {
    pub(crate) fn add(&mut self, other: &Self) {
        self.acked += other.acked;
        self.unknown += other.unknown;
        self.refused += other.refused;
        self.crashes += other.crashes;
        self.stops += other.stops;
        self.faults += other.faults;
        self.full += other.full;
        self.jumps += other.jumps;
        self.cancels += other.cancels;
        self.compactions += other.compactions;
        self.ended += other.ended;
        self.runs += other.runs;
    }
}

/// What the runner has said of an errand.
#[derive(Default)]
struct Said {
    id: Option<JobId>,
    key: Option<String>,
    /// Asked for, with or without an answer.
    cancel: bool,
    /// How it ended, and how often it had run by then.
    end: Option<(JobEnd, usize)>,
    /// Processes that were over when it was asked for.
    since: u64,
}

pub(crate) struct Life {
    number: u64,
    dice: Rng,
    disk: SimDisk,
    runner: TestRunner<Book, Plug>,
    events: Events,
    book: Book,
    said: BTreeMap<u64, Said>,
    /// The highest id and the highest attempt token that were ever told.
    last_id: Option<JobId>,
    last_token: u64,
    compactions: u64,
    /// The latest that the wall clock ever showed: delays are waited by it after a restart.
    latest: SystemTime,
    told: Told,
}

impl Life {
    /// A run of so many turns.
    pub(crate) async fn run(number: u64, turns: u32) -> Told {
        let mut life = Self::begin(number, SimDisk::default()).await;
        for _ in 0..turns {
            life.turn().await;
        }
        life.end().await
    }

    /// A run, and every call of its disk with what the run itself has to say.
    pub(crate) async fn traced(number: u64, turns: u32) -> Vec<String> {
        let disk = SimDisk::default();
        disk.trace();
        let mut life = Self::begin(number, disk.clone()).await;
        for _ in 0..turns {
            life.turn().await;
        }
        life.end().await;
        disk.traced()
    }

    async fn begin(number: u64, disk: SimDisk) -> Self {
        let mut dice = Rng::with_seed(number);
        let book = Book::default();
        let plug = Plug { disk: disk.clone(), dice: Arc::new(Mutex::new(dice.fork())) };
        let runner = configured(&book, number).test_on(plug, number).await.expect("an empty disk opens");
        let events = runner.jobs().events(EventFilter::all());
        let latest = runner.now();
        Self {
            number,
            dice,
            disk,
            runner,
            events,
            book,
            said: BTreeMap::new(),
            last_id: None,
            last_token: 0,
            compactions: 0,
            latest,
            told: Told::default(),
        }
    }

    async fn turn(&mut self) {
        match self.dice.u32(..100) {
            0..=34 => self.enqueue().await,
            35..=62 => {
                let ms = [1, 20, 300, 2_000, 30_000, 600_000][self.dice.usize(..6)];
                self.runner.advance(Duration::from_millis(self.dice.u64(..ms) + 1)).await;
            }
            63..=69 => self.cancel().await,
            70..=75 => self.crash().await,
            76..=78 => self.stop().await,
            79..=84 => self.make_faults(),
            85..=86 => {
                self.disk.set_room(Some(self.dice.u64(..3 << 20)));
                self.told.full += 1;
            }
            87..=88 => self.disk.set_room(None),
            89..=91 => self.disk.set_plan(Plan::Nothing),
            92..=94 => self.jump().await,
            95 => self.runner.set_syncs(Syncs::After(Duration::from_millis(self.dice.u64(1..200)))),
            96 => self.runner.set_syncs(Syncs::Unheard),
            _ => self.runner.set_syncs(Syncs::AtOnce),
        }
        self.latest = self.latest.max(self.runner.now());
        self.listen().await;
        self.look().await;
        self.fits();
    }

    async fn enqueue(&mut self) {
        for _ in 0..self.dice.u32(1..6) {
            let errand = self.errand();
            let number = errand.number;
            let key = (self.dice.u8(..4) == 0).then(|| format!("key {}", self.dice.u8(..5)));
            let delay = Duration::from_millis([0, 0, 0, 500, 20_000][self.dice.usize(..5)]);
            let deadline = (self.dice.u8(..12) == 0).then(|| Duration::from_secs(self.dice.u64(1..300)));
            let lives = self.holder(key.as_deref()).await;
            self.book.pages().asked.insert(number, errand.clone());
            let since = self.book.pages().process;
            let mut said = Said { key: key.clone(), since, ..Said::default() };
            // A deadline ends a job that nobody has run.
            said.cancel = deadline.is_some();
            self.said.insert(number, said);
            let jobs = self.runner.jobs();
            let mut call = jobs.enqueue(errand).delay(delay);
            if let Some(key) = key {
                call = call.key(key).key_window(Duration::from_secs(self.dice.u64(..100)));
            }
            if let Some(deadline) = deadline {
                let policy = <Errand as journeyman::Job>::policy().deadline(deadline);
                call = call.policy(policy);
            }
            let answer = self.runner.drive(call.into_future(), Duration::from_secs(60)).await;
            self.disk.note(|| format!("errand {number}: {answer:?}"));
            match answer {
                Some(Ok(receipt)) => {
                    if receipt.is_new() {
                        assert!(self.last_id.is_none_or(|last| last < receipt.id()), "{}: id {} again", self.number, receipt.id());
                        if let Some(holder) = lives {
                            let found = self.runner.drive(self.runner.jobs().find(holder), Duration::from_secs(1)).await;
                            assert!(!matches!(found, Some(Ok(Found::Live(_)))), "{}: a second job for the key of {holder}", self.number);
                        }
                        self.last_id = Some(receipt.id());
                        self.said.get_mut(&number).expect("it was put there").id = Some(receipt.id());
                        self.told.acked += 1;
                    } else {
                        assert!(lives.is_none_or(|lives| lives == receipt.id()), "{}: the key of another job", self.number);
                    }
                }
                Some(Err(EnqueueError::Unknown)) | None => self.told.unknown += 1,
                Some(Err(_)) => self.told.refused += 1,
            }
        }
    }

    /// The job that has this key and is known to live.
    async fn holder(&self, key: Option<&str>) -> Option<JobId> {
        let key = key?;
        let holders = self.said.values().filter(|said| said.key.as_deref() == Some(key) && said.end.is_none());
        for id in holders.filter_map(|said| said.id) {
            let found = self.runner.drive(self.runner.jobs().find(id), Duration::from_secs(1)).await;
            if let Some(Ok(Found::Live(_))) = found {
                return Some(id);
            }
        }
        None
    }

    fn errand(&mut self) -> Errand {
        let number = self.said.len() as u64;
        let dice = &mut self.dice;
        let mut script: Vec<Act> = (0..dice.usize(1..5)).map(|_| act(dice)).collect();
        if let Some(Act::Defer(_)) = script.last() {
            // The last step repeats, and this one would without end.
            script.push(Act::Ok);
        }
        let target = dice.bool().then(|| format!("target {}", dice.u8(..3)));
        let most = [4, 100, 500][dice.usize(..3)];
        let ballast = format!("{number:08x}").repeat(dice.usize(..most));
        Errand { number, target, script, ballast }
    }

    async fn cancel(&mut self) {
        let living: Vec<u64> = self.said.iter().filter(|(_, said)| said.id.is_some() && said.end.is_none()).map(|(n, _)| *n).collect();
        let Some(number) = self.dice.choice(living) else { return };
        let said = self.said.get_mut(&number).expect("it is there");
        said.cancel = true;
        let id = said.id.expect("acknowledged");
        let jobs = self.runner.jobs();
        let answer = self.runner.drive(jobs.cancel(id), Duration::from_secs(60)).await;
        self.disk.note(|| format!("cancel of errand {number}: {answer:?}"));
        match answer {
            Some(Ok(Cancelled::NotFound)) => panic!("{}: {id} was acknowledged and never was", self.number),
            Some(Ok(Cancelled::Cancelled)) => {
                self.told.cancels += 1;
                self.ends(number, JobEnd::Cancelled);
            }
            Some(Ok(_)) => self.told.cancels += 1,
            _ => self.told.unknown += 1,
        }
    }

    async fn crash(&mut self) {
        self.listen().await;
        self.compactions();
        self.told.crashes += 1;
        self.book.pages().process += 1;
        for _ in 0..100 {
            match self.runner.crash_and_reopen().await {
                Ok(()) => break,
                // Only a disk that refuses keeps it from opening.
                Err(error) => {
                    assert!(!error.to_string().contains("damaged"), "{}: {error}", self.number);
                    self.disk.set_plan(Plan::Nothing);
                }
            }
        }
        self.events = self.runner.jobs().events(EventFilter::all());
    }

    async fn stop(&mut self) {
        self.listen().await;
        self.compactions();
        let drain = Duration::from_millis(self.dice.u64(..5_000));
        self.book.pages().process += 1;
        let stopped = self.runner.stop_and_reopen(drain).await;
        self.disk.note(|| format!("stop: {stopped:?}"));
        match stopped {
            Ok(_) => {
                self.told.stops += 1;
                self.events = self.runner.jobs().events(EventFilter::all());
            }
            Err(error) => {
                assert!(!error.to_string().contains("damaged"), "{}: {error}", self.number);
                self.crash().await;
            }
        }
    }

    fn make_faults(&mut self) {
        let per_mille = [5, 30, 200][self.dice.usize(..3)];
        self.disk.set_plan(Plan::Chance { per_mille, dice: self.dice.fork() });
        self.told.faults += 1;
    }

    async fn jump(&mut self) {
        let hour = Duration::from_secs(3600);
        let by = [hour, 24 * 3650 * hour, Duration::from_secs(self.dice.u64(..100))][self.dice.usize(..3)];
        let now = self.runner.now();
        let to = if self.dice.bool() { now.checked_add(by) } else { now.checked_sub(by) };
        self.runner.set_wall_clock(to.filter(|to| *to > SystemTime::UNIX_EPOCH).unwrap_or(now)).await;
        self.latest = self.latest.max(self.runner.now());
        self.told.jumps += 1;
    }

    /// What was told of jobs: seqs rise, also over crashes, as only what is on disk is told.
    async fn listen(&mut self) {
        let mut ended = Vec::new();
        while let Some(Some(event)) = self.runner.drive(self.events.next(), Duration::ZERO).await {
            let Event::Job(job) = event else { continue };
            match job.what {
                Happened::Selected => {
                    assert!(job.seq.0 > self.last_token, "{}: attempt {} after {}", self.number, job.seq, self.last_token);
                    self.last_token = job.seq.0;
                }
                Happened::Ended { .. } => ended.push(job.id),
                _ => {}
            }
        }
        for id in ended {
            let number = self.said.iter().find(|(_, said)| said.id == Some(id)).map(|(number, _)| *number);
            number.into_iter().for_each(|number| self.ends(number, JobEnd::Forgotten));
        }
    }

    /// Asks for some jobs that were acknowledged.
    async fn look(&mut self) {
        let living: Vec<(u64, JobId)> =
            self.said.iter().filter(|(_, said)| said.end.is_none()).filter_map(|(n, said)| Some((*n, said.id?))).collect();
        for (number, id) in self.dice.choose_multiple(living, 6) {
            self.ask(number, id).await;
        }
    }

    async fn ask(&mut self, number: u64, id: JobId) {
        let jobs = self.runner.jobs();
        let answer = self.runner.drive(jobs.find(id), Duration::from_secs(1)).await;
        if matches!(jobs.health(), Health::Red { .. }) {
            // One that is read-only tells what it has read, proved or not.
            return;
        }
        match answer {
            Some(Ok(Found::Gone(JobEnd::NotFound))) => panic!("{}: {id}, errand {number}, was acknowledged and is lost", self.number),
            Some(Ok(Found::Gone(end))) => self.ends(number, end),
            _ => {}
        }
    }

    /// An end was told: it must have a reason.
    fn ends(&mut self, number: u64, end: JobEnd) {
        let said = self.said.get_mut(&number).expect("it is there");
        let pages = self.book.pages();
        let runs = pages.runs.get(&number).map_or(&[][..], |runs| runs);
        let did = |wanted: &[Act]| {
            runs.iter()
                .any(|run| run.did.is_some_and(|did| wanted.iter().any(|one| std::mem::discriminant(one) == std::mem::discriminant(&did))))
        };
        // Each process may have cut off one attempt before it began to run.
        let counted = runs.len() as u64 + (pages.process - said.since);
        let has_reason = match &end {
            JobEnd::Done => did(&[Act::Ok, Act::Sleep(0)]),
            JobEnd::Rejected(_) => did(&[Act::Reject]),
            JobEnd::Unsafe(_) => did(&[Act::Unsafe]),
            JobEnd::Spent(_) => counted >= u64::from(ATTEMPTS),
            JobEnd::Late(_) | JobEnd::Cancelled => said.cancel,
            _ => said.cancel || counted >= u64::from(ATTEMPTS) || runs.iter().any(|run| run.did.is_some_and(Act::is_last)),
        };
        assert!(has_reason, "{}: errand {number} ended as {end:?} after {runs:?}", self.number);
        if said.end.is_none() {
            said.end = Some((end, runs.len()));
            self.told.ended += 1;
        }
    }

    /// Nothing ran that must not.
    fn fits(&self) {
        let pages = self.book.pages();
        assert!(pages.wrong.is_empty(), "{}: {:#?}", self.number, pages.wrong);
        for (number, said) in &self.said {
            if let Some((end, runs)) = &said.end {
                let now = pages.runs.get(number).map_or(0, Vec::len);
                assert!(now == *runs, "{}: errand {number} ran again after its end was told: {end:?}", self.number);
            }
        }
    }

    fn compactions(&mut self) {
        self.compactions += self.runner.jobs().stats().compactions;
    }

    /// The disk works again, and all that is left is done.
    async fn end(mut self) -> Told {
        self.disk.set_plan(Plan::Nothing);
        self.disk.set_room(None);
        self.runner.set_syncs(Syncs::AtOnce);
        self.runner.set_wall_clock(self.latest + Duration::from_secs(3600)).await;
        self.crash().await;
        // Errands that hang do so until their timeout, in every attempt; breakers open and close.
        let idle = self.runner.run_until_idle(PATIENCE).await;
        assert!(idle.is_ok(), "{}: {idle:?}", self.number);
        self.listen().await;
        for (number, id) in self.said.iter().filter_map(|(number, said)| Some((*number, said.id?))).collect::<Vec<_>>() {
            self.ask(number, id).await;
            assert!(self.said[&number].end.is_some(), "{}: errand {number} neither lives nor has ended", self.number);
        }
        self.fits();
        self.compactions();
        let stats = self.runner.jobs().stats();
        let ends = stats.done + stats.rejected + stats.unsafe_to_repeat + stats.spent + stats.late + stats.cancelled;
        assert_eq!((stats.pending, stats.running), (0, 0), "{}", self.number);
        assert!(ends >= self.told.acked, "{}: {ends} ends of {} jobs", self.number, self.told.acked);
        assert!(ends <= self.said.len() as u64, "{}: {ends} ends, and {} were asked for", self.number, self.said.len());
        assert_eq!(self.runner.free_units().await, CAPACITY, "{}", self.number);
        self.told.runs = self.book.pages().runs.values().map(|runs| runs.len() as u64).sum();
        Told { compactions: self.compactions, ..self.told }
    }
}

fn act(dice: &mut Rng) -> Act {
    match dice.u8(..16) {
        0..=4 => Act::Ok,
        5..=7 => Act::Fail,
        8 => Act::NotTheTarget,
        9 => Act::Reject,
        10 => Act::Unsafe,
        11 => Act::Defer(dice.u64(..5_000)),
        12 => Act::Panic,
        13 => Act::Hang,
        _ => Act::Sleep(dice.u64(..20_000)),
    }
}

fn configured(book: &Book, number: u64) -> Configured<Book> {
    let mut limits = Limits::default();
    // Of three runs one keeps no payload in memory, and one a few.
    limits.payload_memory = [limits.payload_memory, 0, 2 << 10][number as usize % 3];
    limits.record_bytes = 16 << 10;
    limits.batch_bytes = 32 << 10;
    limits.segment_bytes = 32 << 10;
    limits.journal_bytes = 256 << 10;
    // A run must go on whatever the disk does; that a row has an end is shown elsewhere.
    limits.reopenings = 1_000_000;
    let book = book.clone();
    let circuit = Circuit::default().threshold(3).cooldown(Duration::from_secs(20));
    Runner::in_memory()
        .context(move || std::future::ready(Ok::<_, Infallible>(book.clone())))
        .register::<Errand>()
        .limits(limits)
        .capacity(CAPACITY)
        .circuit(circuit)
}

const CAPACITY: u32 = 4;
