//! A rig, not a test, as it takes real time and measures: seven workloads that other durable job runners are measured by as well,
//! with the same payload, the same command line and the same lines of JSON, so that the figures can stand side by side.
//!
//! ```text
//! cargo bench --bench workloads                                    # all of them in short, in a temporary directory
//! cargo bench --bench workloads -- w2 --dir DIR --secs 3           # one
//! cargo bench --bench workloads -- w6load w7reopen w6run --dir DIR --n 1000000 --keep
//! tests/rigs/workloads/beside-peers PEERS_DIR                      # ours and theirs on one disk
//! ```
//!
//! One process: the runner has its own threads, and the producers are tasks of a runtime of one thread beside it, as those of an actix
//! program are (`--threads` makes them more). Jobs are of 100 bytes by a raw codec, and do nothing but note that they ran.
//! All defaults of the runner stand, but for the bounds that ten million waiting jobs would reach, and the capacity. Where workers are not to run yet, the capacity is taken up by jobs that wait at a gate.
//!
//! A directory on a memory file system measures nothing: where the temporary directory is one, give `--dir`. Everything is in
//! `DIR/jobs` and a few files beside it; without `--keep` they are removed at the start. It ends with status 1 when a count is
//! wrong: a job that was lost, or ran twice without a crash.

mod asked;
mod backlog;
mod books;
mod child;
mod crashes;
mod disk;
mod enqueueing;
mod line;
mod payload;
mod process;
mod producers;
mod running;
mod shop;

use std::process::ExitCode;

use asked::{Asked, Workload};
use clap::Parser;

type Fallible<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> ExitCode {
    payload::nanos();
    let asked = Asked::parse();
    let told = tracing_subscriber::fmt().with_max_level(tracing::Level::WARN).with_writer(std::io::stderr);
    told.init();
    match run(&asked) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("workloads: {error}");
            ExitCode::FAILURE
        }
    }
}

/// One workload in this process; several each in one of its own, as memory and what was noted are of the process.
fn run(asked: &Asked) -> Fallible<()> {
    let dir = asked.place()?;
    let asked = Asked { dir: Some(dir.path().to_owned()), ..asked.clone() };
    match asked.workloads[..] {
        [] => IN_SHORT.iter().try_for_each(|(workload, options)| child::to_the_end(*workload, &asked, options)),
        [workload] => one(workload, &asked),
        _ => asked.workloads.iter().try_for_each(|workload| child::to_the_end(*workload, &asked, &[])),
    }
}

fn one(workload: Workload, asked: &Asked) -> Fallible<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(asked.threads).enable_all().build()?;
    runtime.block_on(async {
        match workload {
            Workload::W1 | Workload::W2 | Workload::W3 => enqueueing::measure(workload, asked).await,
            Workload::W4 => running::preloaded(asked).await,
            Workload::W5 | Workload::W5lat => running::end_to_end(workload, asked).await,
            Workload::W6load => backlog::load(asked).await,
            Workload::W6run => backlog::run_beside(asked).await,
            Workload::W6compact => backlog::compact(asked).await,
            Workload::W7reopen => backlog::reopen(asked),
            Workload::W7crash => crashes::with_running(asked),
            Workload::W7ack => crashes::with_acknowledged(asked),
            Workload::LeaveOne => backlog::leave_one(asked).await,
            Workload::StartFirst => backlog::start_first(asked).await,
            Workload::Hold => crashes::hold(asked).await,
            Workload::Recover => crashes::recover(asked).await,
            Workload::Acknowledge => crashes::acknowledge(asked).await,
            Workload::Count => crashes::count(asked).await,
        }
    })
}

/// All of them in less than two minutes.
const IN_SHORT: [(Workload, &[&str]); 13] = [
    (Workload::W1, &["--secs", "1"]),
    (Workload::W2, &["--secs", "1"]),
    (Workload::W3, &["--secs", "1"]),
    (Workload::W4, &["--n", "20000"]),
    (Workload::W5, &["--secs", "1"]),
    (Workload::W5lat, &["--secs", "2"]),
    (Workload::W6run, &["--n", "10000"]),
    (Workload::W6load, &["--n", "200000"]),
    (Workload::W7reopen, &["--keep"]),
    (Workload::W6run, &["--n", "10000", "--keep"]),
    (Workload::W6compact, &["--keep"]),
    (Workload::W7crash, &[]),
    (Workload::W7ack, &["--secs", "1"]),
];
