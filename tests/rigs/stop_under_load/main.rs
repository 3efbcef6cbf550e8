//! A rig, not a test, as it takes real time and processes: the example `web`, stopped by SIGTERM at random instants under a
//! load of HTTP clients, round after round on one directory. Proves that a stop loses nothing that was acknowledged,
//! spends no attempt, ends in time and with status 0; and that in the end every note is written once.
//!
//! ```text
//! cargo build --release --example web && cargo bench --bench stop_under_load
//! ```
//!
//! `JOURNEYMAN_ROUNDS` and `JOURNEYMAN_SEED` change how many rounds and which. It ends with status 1 when a claim is broken.

mod books;
mod clients;
mod service;

use std::error::Error;
use std::ops::Range;
use std::path::Path;
use std::process::ExitCode;
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};

use books::Books;
use clients::Clients;
use service::Service;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let (rounds, seed) = (variable("JOURNEYMAN_ROUNDS", 100), variable("JOURNEYMAN_SEED", 0));
    let began = Instant::now();
    let dir = tempfile::tempdir()?;
    let mut rig =
        Rig { dice: fastrand::Rng::with_seed(seed), clients: Clients::default(), books: Books::default(), slowest: Duration::ZERO };
    for round in 0..rounds {
        rig.round(dir.path(), round).map_err(|error| format!("JOURNEYMAN_SEED={seed}, round {round}: {error}"))?;
    }
    rig.write_the_rest(dir.path())?;
    println!(
        "{rounds} rounds in {:.0} s, JOURNEYMAN_SEED={seed}; the slowest stop took {:.2?}",
        began.elapsed().as_secs_f64(),
        rig.slowest
    );
    println!("{}", rig.clients);
    println!("{}", rig.books);
    Ok(if rig.books.broken() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

struct Rig {
    dice: fastrand::Rng,
    clients: Clients,
    books: Books,
    slowest: Duration,
}

impl Rig {
    fn round(&mut self, dir: &Path, round: u64) -> Result<(), Box<dyn Error>> {
        let job_ms = if round % 12 == 9 { LONGER_THAN_THE_DRAIN_MS } else { JOB_MS[self.dice.usize(..JOB_MS.len())] };
        let drain = if round.is_multiple_of(6) { ENOUGH_FOR_HTTP } else { SHORT };
        let mut service = Service::start(dir, job_ms, drain)?;
        let load = Duration::from_millis(self.dice.u64(LOAD_MS));
        let latest = SECOND_SIGNAL_MICROS[self.dice.usize(..SECOND_SIGNAL_MICROS.len())];
        let second = (!round.is_multiple_of(3)).then(|| Duration::from_micros(self.dice.u64(..latest)));
        let (took, acknowledged) = self.clients.while_they_ask(service.address(), round, || {
            thread::sleep(load);
            service.stop(second)
        });
        let took = took?;
        self.slowest = self.slowest.max(took);
        if took > drain + GRACE {
            return Err(format!("the stop took {took:.2?}, with a second signal after {second:?}").into());
        }
        self.books.round(dir, acknowledged)
    }

    /// Starts once more, without clients, until nothing is left to do.
    fn write_the_rest(&mut self, dir: &Path) -> Result<(), Box<dyn Error>> {
        let mut service = Service::start(dir, 0, SHORT)?;
        service.wait_until_idle()?;
        service.stop(None)?;
        self.books.close(dir)
    }
}

fn variable<T: FromStr>(name: &str, otherwise: T) -> T {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// What a job takes: from less than a sync to most of a round. And, now and then, what a single signal has to cut short.
const JOB_MS: [u64; 5] = [0, 1, 5, 20, 200];
const LONGER_THAN_THE_DRAIN_MS: u64 = 1500;
/// What the service is given to drain: actix-web looks once a second whether its connections are gone, so that it is left behind
/// in the shorter one.
const SHORT: Duration = Duration::from_secs(1);
const ENOUGH_FOR_HTTP: Duration = Duration::from_secs(2);
/// From the first request to the signal.
const LOAD_MS: Range<u64> = 100..200;
/// Until which a second signal comes, in some rounds: while requests are under way, or also after the end of the HTTP server.
const SECOND_SIGNAL_MICROS: [u64; 2] = [3_000, 400_000];
/// What a stop may take beside the drain.
const GRACE: Duration = Duration::from_secs(2);
