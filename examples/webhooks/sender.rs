//! The child: embeds journeyman, enqueues what it is told with many callers at once, and says what is acknowledged.
//! It may be killed at any moment, and keeps nothing but what journeyman keeps.

use std::cell::RefCell;
use std::io::{self, BufRead, Write};
use std::ops::Range;
use std::path::PathBuf;
use std::process::{self, ExitCode};
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use actix_rt::time::sleep;
use journeyman::{EnqueueError, Health, Jobs};
use tokio::sync::oneshot;

use crate::delivery::{self, Delivery};
use crate::events::Events;
use crate::options::Options;
use crate::receiver::Receiver;
use crate::words::{Breaker, LastWord, Order, Said, Standing};

/// Runs until it is told to finish, or to no end when its parent is gone.
pub(crate) fn main(options: &Options) -> ExitCode {
    let worked = begin(options).and_then(|sender| actix_rt::System::new().block_on(sender.work()));
    let (last_word, code) = worked.map_or_else(|why| (why, ExitCode::FAILURE), |()| (LastWord::Closed, ExitCode::SUCCESS));
    say(&Said::Last(last_word));
    code
}

/// Reads the first order, and what the options name.
fn begin(options: &Options) -> Result<Sender, LastWord> {
    let Some(Order::Begin { ports, numbers }) = next_order() else { return Err(failed("the first order is to begin")) };
    let events = Events::new(options.input.as_deref(), options.seed).map_err(failed)?;
    if options.log {
        tracing_subscriber::fmt().with_ansi(false).with_writer(io::stderr).init();
    }
    let dir = options.dir.clone().ok_or_else(|| failed("no directory"))?;
    Ok(Sender { dir, capacity: options.capacity, ports, numbers, events: events.into() })
}

struct Sender {
    dir: PathBuf,
    capacity: u32,
    ports: [u16; Receiver::ALL.len()],
    numbers: Vec<Range<usize>>,
    events: Rc<Events>,
}

impl Sender {
    async fn work(self) -> Result<(), LastWord> {
        let runner = delivery::runner(&self.dir, self.capacity).start().await;
        let runner = runner.map_err(|error| LastWord::Refused(error.to_string()))?;
        let finish = listen();
        let jobs = runner.jobs();
        let reporter = actix_rt::spawn(report(jobs.clone()));

        self.enqueue(&jobs).await?;
        jobs.run_until_idle(NO_END).await.map_err(failed)?;
        say(&Said::Idle);
        // The parent that went away without the order has ended this process.
        let _ = finish.await;

        reporter.abort();
        tell(&jobs).await;
        runner.shutdown(DRAIN).await.map_err(failed)?;
        Ok(())
    }

    /// Shares the jobs among the callers, and waits for the last answer.
    async fn enqueue(self, jobs: &Jobs) -> Result<(), LastWord> {
        let numbers = Rc::new(RefCell::new(self.numbers.into_iter().flatten()));
        let callers: Vec<_> = (0..CALLERS)
            .map(|_| {
                let caller = Caller { jobs: jobs.clone(), ports: self.ports, events: self.events.clone() };
                actix_rt::spawn(caller.enqueue(numbers.clone()))
            })
            .collect();
        for caller in callers {
            caller.await.map_err(failed)??;
        }
        Ok(())
    }
}

/// One of many who enqueue, each with one call at a time.
struct Caller {
    jobs: Jobs,
    ports: [u16; Receiver::ALL.len()],
    events: Rc<Events>,
}

impl Caller {
    async fn enqueue(self, numbers: Rc<RefCell<impl Iterator<Item = usize>>>) -> Result<(), LastWord> {
        while let Some(n) = next(&numbers) {
            self.enqueue_one(n).await?;
        }
        Ok(())
    }

    /// Asks until there is an answer. The key makes it harmless to ask again, here as after a kill.
    async fn enqueue_one(&self, n: usize) -> Result<(), LastWord> {
        let port = self.ports[Receiver::of(n).number()];
        let began = Instant::now();
        loop {
            match self.jobs.enqueue(Delivery::new(n, port, &self.events)).key(n.to_string()).await {
                Ok(receipt) => {
                    let micros = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
                    say(&Said::Accepted { n, ticket: receipt.id(), is_new: receipt.is_new(), micros });
                    return Ok(());
                }
                Err(EnqueueError::Full(_) | EnqueueError::Unknown) => sleep(PAUSE).await,
                Err(error) => return Err(failed(error)),
            }
        }
    }
}

fn next(numbers: &RefCell<impl Iterator<Item = usize>>) -> Option<usize> {
    numbers.borrow_mut().next()
}

/// Says how it goes, until it goes no more.
async fn report(jobs: Jobs) {
    loop {
        if let Health::Red { why } = jobs.health() {
            say(&Said::Last(failed(why)));
            process::exit(1);
        }
        tell(&jobs).await;
        sleep(PAUSE).await;
    }
}

async fn tell(jobs: &Jobs) {
    if let Some(standing) = standing(jobs).await {
        say(&Said::Stats(standing));
    }
}

async fn standing(jobs: &Jobs) -> Option<Standing> {
    let targets = jobs.targets().await.ok()?;
    let stats = jobs.stats();
    let breakers = Receiver::ALL.map(|receiver| {
        let info = targets.iter().find(|info| info.target.as_str() == receiver.name());
        info.map_or_else(Breaker::default, |info| Breaker { state: info.breaker.to_string(), openings: info.openings })
    });
    Some(Standing { records: stats.records, syncs: stats.syncs, breakers })
}

/// Hears the order to finish. When the parent is gone instead, this process has nobody to work for: it ends at once, as if
/// it were killed, and loses nothing by it.
fn listen() -> oneshot::Receiver<()> {
    let (finish, finished) = oneshot::channel();
    thread::spawn(move || match next_order() {
        Some(Order::Finish) => drop(finish.send(())),
        Some(Order::Begin { .. }) | None => process::exit(1),
    });
    finished
}

fn next_order() -> Option<Order> {
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line).ok()?;
    serde_json::from_str(&line).ok()
}

/// One write for each line: a kill may tear the last one, never two.
fn say(said: &Said) {
    let mut line = serde_json::to_vec(said).unwrap_or_default();
    line.push(b'\n');
    let mut stdout = io::stdout().lock();
    if stdout.write_all(&line).and_then(|()| stdout.flush()).is_err() {
        process::exit(1);
    }
}

fn failed(why: impl ToString) -> LastWord {
    LastWord::Failed(why.to_string())
}

/// Calls that wait for an answer at once: as many as share a sync.
const CALLERS: usize = 64;
/// Between two reports, and before asking again.
const PAUSE: Duration = Duration::from_millis(100);
/// The parent knows when it has waited too long.
const NO_END: Duration = Duration::from_secs(24 * 60 * 60);
const DRAIN: Duration = Duration::from_secs(20);
