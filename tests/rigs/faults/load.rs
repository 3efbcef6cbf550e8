//! The program under test: this same executable, called as `load DIR [name=value ...]`. It opens the directory with a runner, enqueues,
//! cancels and runs jobs, and says on stdout what it asks, what it was told, and what its jobs do: one line each, written at once
//! and whole, so that whoever reads them knows what was acknowledged before any fault. It judges nothing; that is [`crate::books`].
//!
//! | line | it says |
//! |---|---|
//! | `open STORE` | the runner has started; snapshots are kept in `sled` or `plain` files |
//! | `ask HASH LIMIT` | a job of this payload is about to be asked for; it may be attempted so often |
//! | `batch HASH ...` | these are about to be asked for in one batch |
//! | `ack ID HASH` | it is on disk |
//! | `not HASH WHY` | it was not acknowledged; `Unknown`: it may be on disk all the same |
//! | `cancel ID`, `cancelled ID ANSWER` | it is about to be cancelled; it is |
//! | `run ID ATTEMPT` | the job says: this attempt begins |
//! | `did ID`, `failed ID`, `gave-up ID` | the job says: this attempt ends as done, to be retried, not to be retried |
//! | `cut ID` | the job was dropped in the middle |
//! | `end ID END` | the runner says: it has ended, and that is on disk |
//! | `compacted N` | that many compactions have been made |
//! | `listed ID`, `health HEALTH` | asked for by `list=true`: what it finds in the directory, and how it is |
//! | `child PID` | asked for by `spawn=SECONDS`: it has started a process that sleeps so long |
//! | `stopped` | the orderly end |
//! | `refused CLASS TEXT`, `over TEXT` | the runner did not start, with the exit status [`Refusal`]; it failed for good, with 3 |

// The rig of power cuts compiles this module for itself, and each uses its own part of it.
#![allow(dead_code)]

use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use journeyman::{
    CallError, Cx, EnqueueError, Event, EventFilter, Failure, Happened, Health, Job, JobId, JobResult, JobState, Jobs, Limits, Policy,
    Query, Runner, StartError,
};
use journeyman_core::Seq;
use journeyman_core::disk::{DirError, FileDisk};
use journeyman_core::journal::RecoverError;
use journeyman_core::snapshot::SnapshotError;
use journeyman_core::store::OpenError;
use rustix::process::{Resource, Rlimit, setrlimit};
use serde::{Deserialize, Serialize};

/// Says a line, whole and at once: it is in the pipe when this returns, whatever becomes of the process.
pub(crate) fn say(line: &str) {
    let mut stdout = std::io::stdout().lock();
    // Nobody listens any more: then nobody is misled either.
    let _ = stdout.write_all(format!("{line}\n").as_bytes()).and_then(|()| stdout.flush());
}

/// What a run of a job does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Plan {
    Done,
    /// Takes so many milliseconds.
    Slow(u64),
    /// Fails so often, then succeeds.
    Fails(u32),
    /// Fails as often as it may.
    Never,
    Rejected,
    /// Waits for an hour, so that it is there until it is cancelled.
    Far,
    Panics,
    /// Takes the process with it.
    Aborts,
    Overflows,
    Hangs,
}

impl Plan {
    /// How often it may be attempted. Kills spend attempts too.
    pub(crate) const fn limit(self) -> u32 {
        match self {
            Self::Never | Self::Panics | Self::Aborts | Self::Overflows | Self::Hangs => 3,
            _ => 1_000,
        }
    }
}

/// A job that does what its plan says, and says so.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Work {
    pub(crate) name: String,
    pub(crate) plan: Plan,
    pub(crate) fill: String,
}

impl Work {
    /// By which its payload is known again, here and in the directory.
    pub(crate) fn hash(&self) -> String {
        hash(&serde_json::to_vec(self).expect("plain fields"))
    }

    fn policy(&self) -> Policy {
        let ms = Duration::from_millis;
        Policy::default().attempts(self.plan.limit()).base(ms(5)).cap(ms(20)).timeout(ms(500))
    }
}

impl Job for Work {
    type Context = ();
    type Output = ();
    const KIND: &'static str = "work";

    async fn run(self, cx: Cx<()>) -> JobResult<()> {
        let id = cx.id();
        say(&format!("run {id} {}", cx.attempt()));
        let cut = Cut(Some(id));
        let failed = match self.plan {
            Plan::Done | Plan::Far => None,
            Plan::Slow(ms) => {
                cx.sleep(Duration::from_millis(ms)).await;
                None
            }
            Plan::Fails(times) => (cx.attempt() <= times).then(|| Failure::transient("told to fail")),
            Plan::Never => Some(Failure::transient("told to fail")),
            Plan::Rejected => Some(Failure::permanent("told to give up")),
            Plan::Panics => panic!("told to panic"),
            Plan::Aborts => std::process::abort(),
            Plan::Overflows => Some(Failure::transient(format!("{} levels", deeper(1)))),
            Plan::Hangs => std::future::pending().await,
        };
        cut.over();
        match failed {
            None => say(&format!("did {id}")),
            Some(_) if self.plan == Plan::Rejected => say(&format!("gave-up {id}")),
            Some(_) => say(&format!("failed {id}")),
        }
        failed.map_or(Ok(()), Err)
    }
}

/// Calls itself until the stack is used up; no compiler makes a loop of it.
fn deeper(level: u64) -> u64 {
    let room = std::hint::black_box([level; 512]);
    if level == u64::MAX { 0 } else { deeper(level + 1) + std::hint::black_box(room)[level as usize % 512] }
}

/// Says that its job was dropped in the middle, unless it came to its end.
struct Cut(Option<JobId>);

impl Cut {
    fn over(mut self) {
        self.0 = None;
    }
}

impl Drop for Cut {
    fn drop(&mut self) {
        if let Some(id) = self.0 {
            say(&format!("cut {id}"));
        }
    }
}

/// FNV-1a of 64 bits: the payloads are ours, and no checksum of the runner's own vouches for itself.
pub(crate) fn hash(bytes: &[u8]) -> String {
    let number = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    format!("{number:016x}")
}

/// What was asked of the program, by name.
pub(crate) struct Options {
    pub(crate) dir: PathBuf,
    named: HashMap<String, String>,
}

impl Options {
    pub(crate) fn read(mut args: impl Iterator<Item = String>) -> Self {
        let dir = PathBuf::from(args.next().expect("a directory"));
        let named = args.filter_map(|arg| arg.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()))).collect();
        Self { dir, named }
    }

    pub(crate) fn get<T: FromStr>(&self, name: &str, otherwise: T) -> T {
        let Some(text) = self.named.get(name) else { return otherwise };
        text.parse().unwrap_or_else(|_| panic!("{name}={text} cannot be read"))
    }

    /// What the system shall grant this process: `fsize` bytes to a file, `nofile` files.
    fn limit_the_process(&self) {
        for (name, resource) in [("fsize", Resource::Fsize), ("nofile", Resource::Nofile)] {
            let most = self.get(name, u64::MAX);
            if most != u64::MAX {
                setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) }).expect("less is always granted");
            }
        }
    }

    /// Small enough that segments and compactions come often.
    fn limits(&self) -> Limits {
        let mut limits = Limits::default();
        limits.capacity = self.get("capacity", 4);
        limits.record_bytes = 12 << 10;
        limits.batch_bytes = 16 << 10;
        limits.segment_bytes = self.get("segment_kib", 24) << 10;
        limits.journal_bytes = self.get("journal_kib", 192) << 10;
        limits.reopenings = self.get("reopenings", 8);
        limits.reopening_pause = Duration::from_millis(10);
        limits.events_kept = 1 << 16;
        limits.ends_remembered = 1_000_000;
        limits.interrupt_grace = Duration::from_millis(200);
        limits
    }
}

/// What the program does with its clients.
struct Load {
    jobs: Jobs,
    /// What the names of this run's jobs begin with.
    run: String,
    /// Jobs of each client; 0: until the process is ended.
    count: u64,
    fill: usize,
    /// Nothing but jobs that wait for an hour, one after the other.
    is_quiet: bool,
    /// What the first jobs do, one for each plan.
    first: Vec<Plan>,
}

/// The role `load`.
pub(crate) fn load(options: &Options) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    options.limit_the_process();
    runtime.block_on(async {
        let runner = match Runner::open(&options.dir).limits(options.limits()).register::<Work>().start().await {
            Ok(runner) => runner,
            Err(error) => {
                let class = Refusal::of(&error);
                say(&format!("refused {class:?} {error}"));
                return class.into();
            }
        };
        let jobs = runner.jobs();
        say(&format!("open {}", store_of(&options.dir)));
        let listening = tokio::spawn(listen(jobs.clone()));
        let drain = Duration::from_millis(options.get("drain_ms", 2_000));
        let ended = runner.run_until(work(options, jobs), drain).await;
        // It ends with the runner, and has then told everything.
        let _ = listening.await;
        match ended {
            Ok(_) => {
                say("stopped");
                ExitCode::SUCCESS
            }
            Err(failed) => {
                say(&format!("over {failed}"));
                ExitCode::from(OVER)
            }
        }
    })
}

async fn work(options: &Options, jobs: Jobs) {
    let load = Arc::new(Load {
        run: options.get("run", "r".to_owned()),
        count: options.get("count", 0),
        fill: options.get("fill", 1_500),
        is_quiet: options.get("quiet", false),
        first: options.named.get("first").map(|plans| serde_json::from_str(plans).expect("plans")).unwrap_or_default(),
        jobs: jobs.clone(),
    });
    if options.get("list", false) {
        list(&jobs).await;
    }
    let sleeps = options.get("spawn", 0);
    if sleeps > 0 {
        let (out, err) = (std::process::Stdio::null(), std::process::Stdio::null());
        let child = std::process::Command::new("sleep").arg(sleeps.to_string()).stdout(out).stderr(err).spawn();
        say(&format!("child {}", child.expect("a process").id()));
    }
    let clients: Vec<_> = (0..options.get("clients", 4)).map(|client| tokio::spawn(load.clone().client(client))).collect();
    for client in clients {
        let _ = client.await;
    }
    let compactions = options.get("compactions", 0);
    let mut more = 0;
    while jobs.stats().compactions < compactions && more < MOST_ADDED {
        load.one(&format!("{}-more-{more}", load.run), Plan::Far).await;
        more += 1;
        // So that a compaction begins at the same record each time.
        tokio::time::sleep(Duration::from_millis(options.get("pace_ms", 0))).await;
    }
    if compactions > 0 {
        say(&format!("compacted {}", jobs.stats().compactions));
    }
    if options.get("finish", false) {
        finish(&jobs).await;
    }
    tokio::time::sleep(Duration::from_millis(options.get("linger_ms", 0))).await;
}

impl Load {
    async fn client(self: Arc<Self>, client: u64) {
        let mut dice = fastrand::Rng::new();
        // What an earlier run has left to wait is this one's to take back.
        let mut mine = if client == 0 && !self.is_quiet { far(&self.jobs).await } else { Vec::new() };
        let mut number = 0;
        while self.count == 0 || number < self.count {
            let name = format!("{}-{client}-{number}", self.run);
            number += 1;
            if let Some(plan) = self.first.get(number as usize - 1).filter(|_| client == 0) {
                self.one(&name, *plan).await;
            } else if self.is_quiet {
                self.one(&name, Plan::Far).await;
            } else if dice.u8(..) < 32 {
                self.batch(&name, &mut dice).await;
            } else {
                let plan = plan_of(&mut dice);
                let id = self.one(&name, plan).await;
                mine.extend(id.filter(|_| plan == Plan::Far || dice.u8(..) < 16));
                if id.is_none() && matches!(self.jobs.health(), Health::Red { .. }) {
                    // It takes nothing for the time being: enough has been asked.
                    return;
                }
            }
            for _ in 0..4 {
                if mine.len() > MOST_WAITING {
                    cancel(&self.jobs, mine.swap_remove(dice.usize(..mine.len()))).await;
                }
            }
        }
    }

    fn make(&self, name: &str, plan: Plan) -> Work {
        let length = usize::from_str_radix(&hash(name.as_bytes())[..8], 16).unwrap_or(0) % (self.fill + 1);
        Work { name: name.to_owned(), plan, fill: "x".repeat(length) }
    }

    /// Asks for one, with its name as the key: again and again until it is told, so that an answer that was lost is made up for.
    async fn one(&self, name: &str, plan: Plan) -> Option<JobId> {
        let work = self.make(name, plan);
        let hash = work.hash();
        say(&format!("ask {hash} {}", plan.limit()));
        for _ in 0..MOST_TRIES {
            let asked = self.jobs.enqueue(work.clone()).policy(work.policy()).key(name);
            match if plan == Plan::Far { asked.delay(HOUR).await } else { asked.await } {
                Ok(receipt) => {
                    say(&format!("ack {} {hash}", receipt.id()));
                    return Some(receipt.id());
                }
                Err(why) => {
                    say(&format!("not {hash} {why:?}"));
                    if !may_pass(&why) {
                        return None;
                    }
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
        None
    }

    async fn batch(&self, name: &str, dice: &mut fastrand::Rng) {
        let works: Vec<Work> = (0..3).map(|n| self.make(&format!("{name}-{n}"), plan_of(dice))).collect();
        works.iter().for_each(|work| say(&format!("ask {} {}", work.hash(), work.plan.limit())));
        let hashes: Vec<String> = works.iter().map(Work::hash).collect();
        say(&format!("batch {}", hashes.join(" ")));
        let mut drafts = Vec::new();
        for work in &works {
            let draft = self.jobs.enqueue(work.clone()).policy(work.policy());
            drafts.push(if work.plan == Plan::Far { draft.delay(HOUR) } else { draft });
        }
        match self.jobs.enqueue_all(drafts).await {
            Ok(receipts) => receipts.iter().zip(&hashes).for_each(|(receipt, hash)| say(&format!("ack {} {hash}", receipt.id()))),
            Err(why) => {
                hashes.iter().for_each(|hash| say(&format!("not {hash} {why:?}")));
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn cancel(jobs: &Jobs, id: JobId) {
    say(&format!("cancel {id}"));
    for _ in 0..MOST_TRIES {
        match jobs.cancel(id).await {
            Ok(answer) => return say(&format!("cancelled {id} {answer:?}")),
            Err(CallError::ShuttingDown) => return,
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// Says what there is, and how the runner is.
async fn list(jobs: &Jobs) {
    let mut query = Query::default();
    loop {
        match jobs.list(query.clone()).await {
            Ok(page) => {
                page.jobs.iter().for_each(|info| say(&format!("listed {}", info.id)));
                let Some(next) = page.next else { break };
                query = query.after(next);
            }
            Err(error) => return say(&format!("not-listed {error:?}")),
        }
    }
    say(&format!("health {:?}", jobs.health()));
}

/// The jobs that wait for more than a minute.
async fn far(jobs: &Jobs) -> Vec<JobId> {
    let mut found = Vec::new();
    let mut query = Query::default();
    let soon = std::time::SystemTime::now() + Duration::from_secs(60);
    while let Ok(page) = jobs.list(query.clone()).await {
        let waits_long = |state| matches!(state, JobState::Pending { due } if due > soon);
        found.extend(page.jobs.iter().filter(|info| waits_long(info.state)).map(|info| info.id));
        let Some(next) = page.next else { break };
        query = query.after(next);
    }
    found
}

/// Takes back what waits for long, and waits until the rest is done.
async fn finish(jobs: &Jobs) {
    for id in far(jobs).await {
        cancel(jobs, id).await;
    }
    match jobs.run_until_idle(Duration::from_secs(60)).await {
        Ok(()) => say("idle"),
        Err(error) => say(&format!("not-idle {error}")),
    }
}

/// Says which jobs have ended.
async fn listen(jobs: Jobs) {
    let mut events = jobs.events(EventFilter::all());
    while let Some(event) = events.next().await {
        match event {
            Event::Job(job) => match job.what {
                Happened::Ended { end, .. } => say(&format!("end {} {end:?}", job.id)),
                Happened::Cancelled { .. } => say(&format!("end {} Cancelled", job.id)),
                _ => {}
            },
            Event::Lagged(lost) => say(&format!("lagged {lost}")),
            _ => {}
        }
    }
}

fn plan_of(dice: &mut fastrand::Rng) -> Plan {
    match dice.u8(..16) {
        0..6 => Plan::Done,
        6..9 => Plan::Slow(dice.u64(1..30)),
        9..11 => Plan::Fails(dice.u32(1..4)),
        11 => Plan::Never,
        12 => Plan::Rejected,
        _ => Plan::Far,
    }
}

fn may_pass(why: &EnqueueError) -> bool {
    matches!(why, EnqueueError::Unknown | EnqueueError::Unavailable | EnqueueError::ReadOnly | EnqueueError::Full(_))
}

/// `sled` or `plain`: as this build keeps snapshots.
fn store_of(dir: &Path) -> &'static str {
    let disk = Arc::new(journeyman_core::disk::MemDisk::default());
    if journeyman::snapshots::store(dir, disk).name(Seq(1)).ends_with(".sled") { "sled" } else { "plain" }
}

/// Why a directory was not opened, as the exit status says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Locked = 10,
    /// The disk refused: no sign of damage.
    Io = 11,
    Damaged = 12,
    Other = 13,
}

impl Refusal {
    pub(crate) fn of(error: &StartError) -> Self {
        match error {
            StartError::Directory(error) => Self::of_directory(error),
            StartError::Journal { source, .. } => Self::of_open(source),
            _ => Self::Other,
        }
    }

    fn of_directory(error: &DirError) -> Self {
        match error {
            DirError::Locked { .. } => Self::Locked,
            DirError::Io { .. } => Self::Io,
            _ => Self::Other,
        }
    }

    pub(crate) fn of_open(error: &OpenError) -> Self {
        match error {
            OpenError::Journal(RecoverError::Io { .. }) | OpenError::Snapshot(SnapshotError::Io { .. }) => Self::Io,
            OpenError::Journal(RecoverError::Newer { .. }) | OpenError::Snapshot(SnapshotError::Newer { .. }) => Self::Other,
            _ => Self::Damaged,
        }
    }
}

impl From<Refusal> for ExitCode {
    fn from(refusal: Refusal) -> Self {
        Self::from(refusal as u8)
    }
}

/// The role `audit`: what is in the directory, as a start would find it.
pub(crate) fn audit(options: &Options) -> ExitCode {
    let disk = match FileDisk::open(&options.dir) {
        Ok(disk) => Arc::new(disk),
        Err(error) => {
            say(&format!("refused {:?} {error}", Refusal::of_directory(&error)));
            return Refusal::of_directory(&error).into();
        }
    };
    match crate::books::Found::read(disk.clone(), &*journeyman::snapshots::store(&options.dir, disk)) {
        Ok(found) => {
            found.lines().iter().for_each(|line| say(line));
            ExitCode::SUCCESS
        }
        Err(error) => {
            say(&format!("refused {:?} {error}", Refusal::of_open(&error)));
            Refusal::of_open(&error).into()
        }
    }
}

/// The exit status of a runner that has failed for good.
pub(crate) const OVER: u8 = 3;
const HOUR: Duration = Duration::from_secs(3_600);
/// Between two tries of a call that was not answered.
const PAUSE: Duration = Duration::from_millis(5);
const MOST_TRIES: u32 = 100;
/// Jobs of one client that wait for an hour.
const MOST_WAITING: usize = 8;
/// Jobs that are added so that compactions become due.
const MOST_ADDED: u32 = 500;
