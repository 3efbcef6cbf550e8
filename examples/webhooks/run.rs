//! The parent: checks what it is given, opens the receivers, starts the child again after every kill, and at the end opens
//! the directory itself. Believes no number of the child that it can count itself.

use std::fmt::Display;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use actix_rt::time::sleep;
use journeyman::Stats;

use crate::child::Child;
use crate::delivery;
use crate::events::Events;
use crate::kills::Kills;
use crate::ledger::{Accepted, Counts, Ledger};
use crate::options::Options;
use crate::place::Place;
use crate::progress::Progress;
use crate::receiver::Receiver;
use crate::report::{Lives, Report};
use crate::servers::{Desk, PORTS, Server};
use crate::words::{LastWord, Order, Said};

/// Why there is no report.
#[derive(Debug)]
pub(crate) enum Failed {
    /// What was given cannot be used; nothing was changed.
    Input(String),
    /// Something went wrong on the way.
    Run(String),
}

/// Delivers everything, through all kills.
pub(crate) async fn run(options: Options) -> Result<Report, Failed> {
    let events = Events::new(options.input.as_deref(), options.seed).map_err(Failed::Input)?;
    let place = Place::prepare(options.dir.clone()).map_err(Failed::Input)?;
    let ledger = Arc::new(Ledger::new(options.jobs()));
    let servers = open(options.seed, &events.into(), &ledger).map_err(failed("the receivers"))?;
    let ports = servers.each_ref().map(Server::port);
    let jobs = options.jobs();
    let mut parent = Parent::new(options, place, ledger.clone(), ports);
    tokio::select! {
        report = parent.run() => report,
        error = outage(servers, &ledger, jobs) => Err(failed("the receiver that was down")(error)),
        _ = actix_rt::signal::ctrl_c() => Err(Failed::Run("interrupted".to_owned())),
    }
}

type Servers = [Server; Receiver::ALL.len()];

fn open(seed: u64, events: &Arc<Events>, ledger: &Arc<Ledger>) -> io::Result<Servers> {
    let mut port = fastrand::u16(PORTS);
    let mut servers = Vec::new();
    for receiver in Receiver::ALL {
        let server = Server::start(Desk { receiver, seed, events: events.clone(), ledger: ledger.clone() }, port)?;
        port = server.port() + 1;
        servers.push(server);
    }
    servers.try_into().map_err(|_| io::Error::other("not as many as there are"))
}

/// Takes one receiver down for the middle third. Ends only when it does not come back.
async fn outage(servers: Servers, ledger: &Ledger, jobs: usize) -> io::Error {
    let Some(down) = servers.into_iter().nth(Receiver::Down.number()) else { unreachable!("there is a server for each receiver") };
    ledger.until_settled(jobs / 3).await;
    match down.rest(ledger.until_settled(jobs * 2 / 3)).await {
        Ok(_back) => std::future::pending().await,
        Err(error) => error,
    }
}

/// The parent's side of the run.
struct Parent {
    options: Options,
    place: Place,
    ledger: Arc<Ledger>,
    ports: [u16; Receiver::ALL.len()],
    kills: Kills,
    progress: Progress,
    lives: Lives,
    watchdog: Watchdog,
    began: Instant,
}

/// How a life of the child ended.
#[derive(PartialEq, Eq)]
enum End {
    Killed,
    Finished,
}

impl Parent {
    fn new(options: Options, place: Place, ledger: Arc<Ledger>, ports: [u16; Receiver::ALL.len()]) -> Self {
        let kills = Kills::plan(options.kill, options.jobs(), options.seed);
        let progress = Progress::new(options.jobs());
        let (lives, watchdog, began) = (Lives::default(), Watchdog::new(), Instant::now());
        Self { options, place, ledger, ports, kills, progress, lives, watchdog, began }
    }

    async fn run(&mut self) -> Result<Report, Failed> {
        while self.live().await? == End::Killed {}
        self.progress.finish();
        let took = self.began.elapsed();
        let records = self.place.records().map_err(failed("opened again"))?;
        let queue = self.look().await?;
        Ok(Report::new(&self.options, &self.ledger, &self.lives, queue, records, took))
    }

    /// One life of the child.
    async fn live(&mut self) -> Result<End, Failed> {
        let mut child = self.start().await.map_err(failed("the child"))?;
        let mut moved = self.ledger.subscribe();
        loop {
            if self.kills.is_due(self.ledger.counts()) {
                return self.kill(child).await;
            }
            self.watchdog.look(self.ledger.counts())?;
            tokio::select! {
                said = child.next() => match said.map_err(failed("the child"))? {
                    Some(Said::Idle) if self.kills.hurry() => return self.kill(child).await,
                    Some(Said::Idle) => child.order(&Order::Finish).await.map_err(failed("the child"))?,
                    Some(Said::Last(LastWord::Closed)) => return finished(child).await,
                    Some(said) => self.hear(said)?,
                    None => return Err(ended_early(child).await),
                },
                _ = moved.changed() => {}
                () = sleep(LOOK) => {}
            }
        }
    }

    async fn start(&self) -> io::Result<Child> {
        let mut child = Child::start(&self.options, self.place.path())?;
        child.order(&Order::Begin { ports: self.ports, numbers: self.ledger.unacknowledged() }).await?;
        Ok(child)
    }

    fn hear(&mut self, said: Said) -> Result<(), Failed> {
        match said {
            Said::Accepted { n, ticket, is_new, micros } => {
                self.lives.existing += u32::from(!is_new);
                let accepted = Accepted { ticket, read: Instant::now(), latency: Duration::from_micros(micros) };
                self.ledger.accepted(n, accepted);
                Ok(())
            }
            Said::Stats(standing) => {
                self.progress.show(self.ledger.counts(), &standing);
                self.lives.stands(standing);
                Ok(())
            }
            Said::Last(LastWord::Refused(why)) if self.lives.kills == 0 => Err(Failed::Input(why)),
            Said::Last(LastWord::Refused(why) | LastWord::Failed(why)) => Err(Failed::Run(why)),
            Said::Idle | Said::Last(LastWord::Closed) => Ok(()),
        }
    }

    /// A word that was in the pipe counts: whoever wrote it knew.
    async fn kill(&mut self, child: Child) -> Result<End, Failed> {
        sleep(self.kills.pause()).await;
        for said in child.kill().await.map_err(failed("the child"))? {
            self.hear(said)?;
        }
        let missing = self.ledger.unacknowledged();
        self.lives.killed(!missing.is_empty());
        self.progress.note(&format!("kill {} of {}: never seen acknowledged: {}", self.lives.kills, self.options.kill, list(&missing)));
        Ok(End::Killed)
    }

    /// Opens the directory again: what does the queue itself say?
    async fn look(&self) -> Result<Stats, Failed> {
        let runner = delivery::runner(self.place.path(), self.options.capacity).start().await.map_err(failed("opened again"))?;
        let stats = runner.jobs().stats();
        runner.shutdown(Duration::ZERO).await.map_err(failed("opened again"))?;
        Ok(stats)
    }
}

async fn finished(child: Child) -> Result<End, Failed> {
    match child.end().await {
        Ok(status) if status.success() => Ok(End::Finished),
        Ok(status) => Err(Failed::Run(format!("the child closed its journal, and ended with {status}"))),
        Err(error) => Err(failed("the child")(error)),
    }
}

async fn ended_early(child: Child) -> Failed {
    match child.end().await {
        Ok(status) => Failed::Run(format!("the child ended by itself with {status}")),
        Err(error) => failed("the child")(error),
    }
}

/// Notices when nothing moves any more.
struct Watchdog {
    seen: Counts,
    since: Instant,
}

impl Watchdog {
    fn new() -> Self {
        Self { seen: Counts::default(), since: Instant::now() }
    }

    fn look(&mut self, counts: Counts) -> Result<(), Failed> {
        if counts != self.seen {
            *self = Self { seen: counts, since: Instant::now() };
        }
        match self.since.elapsed() {
            still if still > PATIENCE => Err(Failed::Run(format!("nothing has moved for {PATIENCE:?}, at {counts:?}"))),
            _ => Ok(()),
        }
    }
}

/// The numbers, as few as can be.
fn list(ranges: &[Range<usize>]) -> String {
    let total: usize = ranges.iter().map(ExactSizeIterator::len).sum();
    let named = ranges.iter().take(NAMED).map(|range| match range.len() {
        1 => range.start.to_string(),
        _ => format!("{}-{}", range.start, range.end - 1),
    });
    let more = ranges.len().saturating_sub(NAMED);
    let named: Vec<_> = named.chain((more > 0).then(|| format!("and {more} ranges more"))).collect();
    if total == 0 { "none".to_owned() } else { format!("{total} ({})", named.join(", ")) }
}

fn failed<E: Display>(what: &'static str) -> impl Fn(E) -> Failed {
    move |error| Failed::Run(format!("{what}: {error}"))
}

/// Ranges of numbers in one line.
const NAMED: usize = 6;
/// Between two looks at a child that says nothing.
const LOOK: Duration = Duration::from_secs(1);
/// Far longer than any backoff, cooldown or restart.
const PATIENCE: Duration = Duration::from_secs(60);
