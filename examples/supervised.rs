//! A long-running process under systemd (`Type=notify`): says when it is ready and when it stops, and feeds the watchdog only
//! after a record of its own has gone all the way through queue and disk. Without a supervisor it says nothing, and works the same.
//!
//! ```text
//! cargo run --example supervised                     # plays the supervisor itself, and prints what it hears
//! cargo run --example supervised -- --dir letters.d  # the process; the unit file is in docs/operations.md
//! ```

use std::error::Error;
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};
use std::time::Duration;

use actix_rt::time::sleep;
use clap::Parser;
use journeyman::{Cx, EnqueueError, Health, Job, JobResult, Jobs, Runner, stop_signal};
use rustix::process::{Pid, Signal, kill_process};
use sd_notify::NotifyState;
use serde::{Deserialize, Serialize};

/// Writes letters until it is told to stop.
#[derive(Parser)]
#[command(name = "supervised")]
struct Options {
    /// Where the jobs are kept; without it, this is a supervisor that starts such a process and stops it again
    #[arg(long)]
    dir: Option<PathBuf>,
}

#[derive(Serialize, Deserialize)]
struct Letter;

impl Job for Letter {
    type Context = ();
    type Output = ();
    const KIND: &'static str = "letter.write";

    async fn run(self, cx: Cx<()>) -> JobResult<()> {
        cx.sleep(Duration::from_millis(600)).await;
        Ok(())
    }
}

/// Is stored and taken back, to see that it can be. One that a crash left behind does nothing a day later.
#[derive(Serialize, Deserialize)]
struct Beat;

impl Job for Beat {
    type Context = ();
    type Output = ();
    const KIND: &'static str = "beat";

    async fn run(self, _: Cx<()>) -> JobResult<()> {
        Ok(())
    }
}

fn main() -> ExitCode {
    let played = match Options::parse().dir {
        Some(dir) => actix_rt::System::new().block_on(service(&dir)),
        None => supervisor(),
    };
    match played {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("supervised: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn service(dir: &Path) -> Played {
    // Heard from here on: a stop during the start is a stop as well.
    let stop = stop_signal();
    say(&[NotifyState::Status("reading the journal")]);
    let runner = Runner::open(dir).register::<Letter>().register::<Beat>().start().await?;
    let jobs = runner.jobs();
    say(&[NotifyState::Ready, NotifyState::Status(&format!("working: {} jobs were waiting", jobs.stats().pending))]);
    if let Some(patience) = sd_notify::watchdog_enabled() {
        actix_rt::spawn(feed_the_watchdog(jobs.clone(), patience));
    }
    jobs.enqueue(Letter).await?;

    let stopping = async {
        stop.await;
        let whole_stop = u32::try_from((DRAIN + GRACE).as_micros()).unwrap_or(u32::MAX);
        say(&[NotifyState::Stopping, NotifyState::Status("stopping"), NotifyState::ExtendTimeoutUsec(whole_stop)]);
    };
    // A runner that fails for good ends here with an error, and the process with a status that asks for a restart.
    let report = runner.run_until(stopping, DRAIN).await?;
    say(&[NotifyState::Status(&format!("stopped: {} cut short, {} left", report.interrupted, report.pending))]);
    Ok(())
}

/// Says each half of the supervisor's patience that all is well. While it is not, it says nothing and looks again soon; a round
/// trip that hangs says nothing either. To judge that is the supervisor's part.
async fn feed_the_watchdog(jobs: Jobs, patience: Duration) {
    loop {
        let next = sleep(patience / 2);
        while !is_well(&jobs).await {
            sleep(patience / 16).await;
        }
        say(&[NotifyState::Watchdog]);
        next.await;
    }
}

/// A round trip: the queue decides, the disk syncs, the answer comes back; twice.
async fn is_well(jobs: &Jobs) -> bool {
    if matches!(jobs.health(), Health::Red { .. }) {
        return false;
    }
    match jobs.enqueue(Beat).delay(DAY).await {
        Ok(receipt) => jobs.cancel(receipt.id()).await.is_ok(),
        // A restart would find it as full as it is: what runs makes room.
        Err(EnqueueError::Full(_)) => true,
        Err(_) => false,
    }
}

/// Nobody may be listening, and a supervisor that does not hear is no reason to stop.
fn say(states: &[NotifyState]) {
    if let Err(error) = sd_notify::notify(states) {
        eprintln!("supervised: the supervisor does not hear: {error}");
    }
}

/// Starts the service as systemd would, listens, and stops it after some beats.
fn supervisor() -> Played {
    let fresh = tempfile::tempdir()?;
    let socket = fresh.path().join("notify");
    let ear = UnixDatagram::bind(&socket)?;
    ear.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("--dir").arg(fresh.path().join("letters.d"));
    command.env("NOTIFY_SOCKET", &socket).env("WATCHDOG_USEC", "100000").env_remove("WATCHDOG_PID");
    let mut service = Service(command.spawn()?);

    hear_until(&ear, "READY=1")?;
    for _ in 0..3 {
        hear_until(&ear, "WATCHDOG=1")?;
    }
    println!("the supervisor sends SIGTERM");
    kill_process(Pid::from_child(&service.0), Signal::TERM)?;
    hear_until(&ear, "STOPPING=1")?;
    hear_until(&ear, "STATUS=stopped")?;
    println!("the process ends with {}", service.0.wait()?);
    Ok(())
}

/// Prints what comes up to `wanted`. How many beats come in between is a matter of time: only one that is wanted is printed.
fn hear_until(ear: &UnixDatagram, wanted: &str) -> io::Result<()> {
    loop {
        let mut buffer = [0; 4096];
        let length = ear.recv(&mut buffer)?;
        let heard = String::from_utf8_lossy(&buffer[..length]);
        if wanted.starts_with("WATCHDOG") || !heard.starts_with("WATCHDOG") {
            heard.lines().for_each(|line| println!("    {line}"));
        }
        if heard.starts_with(wanted) {
            return Ok(());
        }
    }
}

/// Ends with its supervisor.
struct Service(Child);

impl Drop for Service {
    fn drop(&mut self) {
        // One that has ended in order is no longer there.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

type Played = Result<(), Box<dyn Error>>;

const DRAIN: Duration = Duration::from_secs(20);
/// What a stop takes beside the drain.
const GRACE: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
