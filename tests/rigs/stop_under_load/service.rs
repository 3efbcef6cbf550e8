//! The example `web` as a process: started, asked, told to stop, waited for. Never signals a process it did not start.

use std::error::Error;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::clients::Connection;

pub(crate) struct Service {
    child: Child,
    stdout: BufReader<ChildStdout>,
    address: SocketAddr,
}

impl Service {
    /// Starts it, and waits until it listens.
    pub(crate) fn start(dir: &Path, job_ms: u64, drain: Duration) -> Result<Self, Box<dyn Error>> {
        let (drain, job_ms) = (drain.as_secs().to_string(), job_ms.to_string());
        let mut command = Command::new(program()?);
        command.arg("--serve").arg("--dir").arg(dir).args(["--drain-seconds", &drain, "--job-ms", &job_ms]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let mut stdout = BufReader::new(child.stdout.take().ok_or("it has no stdout")?);
        let mut line = String::new();
        stdout.read_line(&mut line)?;
        let address = line.trim().strip_prefix("listening on http://").ok_or("it does not listen")?.parse()?;
        Ok(Self { child, stdout, address })
    }

    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sends SIGTERM, and another one after a while if so asked; answers how long the process took to end, in order.
    pub(crate) fn stop(&mut self, second: Option<Duration>) -> Result<Duration, String> {
        let began = Instant::now();
        self.signal()?;
        if let Some(pause) = second {
            thread::sleep(pause);
            self.signal()?;
        }
        let status = loop {
            match self.child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if began.elapsed() > HOPELESS => return Err(format!("it has not stopped for {HOPELESS:?}")),
                Ok(None) => thread::sleep(Duration::from_millis(2)),
                Err(error) => return Err(error.to_string()),
            }
        };
        let took = began.elapsed();
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).map_err(|error| error.to_string())?;
        if !status.success() || !rest.starts_with("stopped: ") {
            return Err(format!("{status}, and its last words are {rest:?}"));
        }
        Ok(took)
    }

    pub(crate) fn wait_until_idle(&self) -> Result<(), Box<dyn Error>> {
        let mut connection = Connection::open(self.address)?;
        let began = Instant::now();
        loop {
            let (_, body) = connection.ask("GET", "/stats", "", "")?;
            if body.contains(r#""pending":0,"running":0,"#) {
                return Ok(());
            }
            if began.elapsed() > IDLE_AT_LAST {
                return Err(format!("work is left: {body}").into());
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// The process is this one's child and not yet waited for, so its number is nobody else's.
    fn signal(&self) -> Result<(), String> {
        kill_process(Pid::from_child(&self.child), Signal::TERM).map_err(|error| error.to_string())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // After an orderly stop there is nothing left to end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Cargo puts examples beside the directory of this rig.
fn program() -> Result<PathBuf, Box<dyn Error>> {
    let own = std::env::current_exe()?;
    let program = own.ancestors().nth(2).map(|target| target.join("examples/web")).filter(|program| program.is_file());
    program.ok_or_else(|| "the example is not built: cargo build --release --example web".into())
}

/// After which a process that does not stop is given up.
const HOPELESS: Duration = Duration::from_secs(20);
/// What the work that is left in the end may take.
const IDLE_AT_LAST: Duration = Duration::from_secs(120);
