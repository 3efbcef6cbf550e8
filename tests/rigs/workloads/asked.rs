//! What is asked for on the command line, which is that of the peers' programs. It measures nothing.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Parser, ValueEnum};

use crate::Fallible;

/// Measures journeyman by the workloads of its peers, one line of JSON for each measurement.
#[derive(Clone, Parser)]
#[command(name = "workloads", args_override_self = true)]
pub(crate) struct Asked {
    /// What to measure, each in a process of its own; nothing: a short version of everything.
    #[arg(value_enum)]
    pub(crate) workloads: Vec<Workload>,
    /// Where to, on the disk that is to be measured; a temporary directory unless given.
    #[arg(long)]
    pub(crate) dir: Option<PathBuf>,
    /// There is but one.
    #[arg(long, default_value = "default", value_parser = ["default"])]
    pub(crate) mode: String,
    /// How long to enqueue.
    #[arg(long, default_value_t = 3.0)]
    pub(crate) secs: f64,
    /// Jobs of a workload that has a number of them.
    #[arg(long, default_value_t = 20_000)]
    pub(crate) n: usize,
    /// Callers that enqueue at once.
    #[arg(long, default_value_t = 64)]
    pub(crate) producers: usize,
    /// Jobs that run at once.
    #[arg(long, default_value_t = 64)]
    pub(crate) conc: u32,
    /// The number of this repetition.
    #[arg(long, default_value_t = 0)]
    pub(crate) rep: u64,
    /// Seconds after which a queue is filled no further.
    #[arg(long, default_value_t = 60.0)]
    pub(crate) budget: f64,
    /// Seconds after which nothing more is waited for.
    #[arg(long, default_value_t = 40.0)]
    pub(crate) cap: f64,
    /// Jobs a second of w5lat.
    #[arg(long, default_value_t = 300.0)]
    pub(crate) rate: f64,
    /// Leaves what is in the directory.
    #[arg(long)]
    pub(crate) keep: bool,
    /// Threads of the producers' runtime.
    #[arg(long, default_value_t = 1)]
    pub(crate) threads: usize,
    /// Said by cargo.
    #[arg(long, hide = true)]
    pub(crate) bench: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "kebab-case")]
pub(crate) enum Workload {
    /// One producer, each acknowledgement awaited
    W1,
    /// Many producers, each acknowledgement awaited
    W2,
    /// A thousand jobs a call, one caller
    W3,
    /// A queue that was filled before, then the workers
    W4,
    /// Producers and workers together
    W5,
    /// The same at a fixed rate
    W5lat,
    /// Fills a backlog of jobs that are due in a week
    W6load,
    /// Due jobs beside the backlog that is there
    W6run,
    /// Enqueues at a fixed rate while the journal of that backlog is compacted, and when it is
    W6compact,
    /// From the start of a process to that of its first job, with that backlog
    W7reopen,
    /// A kill with jobs in their handlers
    W7crash,
    /// A kill under producers
    W7ack,
    #[value(hide = true)]
    LeaveOne,
    #[value(hide = true)]
    StartFirst,
    #[value(hide = true)]
    Hold,
    #[value(hide = true)]
    Recover,
    #[value(hide = true)]
    Acknowledge,
    #[value(hide = true)]
    Count,
}

impl Asked {
    /// The directory that was given, or one that is removed in the end.
    pub(crate) fn place(&self) -> Fallible<Place> {
        match &self.dir {
            Some(dir) => {
                fs::create_dir_all(dir)?;
                Ok(Place::Given(dir.clone()))
            }
            None => Ok(Place::Temporary(tempfile::tempdir()?)),
        }
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.as_deref().unwrap_or_else(|| Path::new("."))
    }

    /// The runner's own directory.
    pub(crate) fn jobs(&self) -> PathBuf {
        self.dir().join("jobs")
    }

    /// How many jobs of a backlog are in it.
    pub(crate) fn backlog_file(&self) -> PathBuf {
        self.dir().join("backlog.count")
    }

    pub(crate) fn backlog(&self) -> u64 {
        fs::read_to_string(self.backlog_file()).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
    }

    /// Removes what an earlier measurement has left, unless it is to be kept.
    pub(crate) fn clear(&self) -> Fallible<()> {
        if self.keep {
            return Ok(());
        }
        if self.jobs().exists() {
            fs::remove_dir_all(self.jobs())?;
        }
        if self.backlog_file().exists() {
            fs::remove_file(self.backlog_file())?;
        }
        Ok(())
    }

    /// Everything but the workloads and `--keep`, for another process.
    pub(crate) fn options(&self) -> Vec<String> {
        let Self { secs, n, producers, conc, rep, budget, cap, rate, threads, .. } = self;
        let text = format!(
            "--secs {secs} --n {n} --producers {producers} --conc {conc} --rep {rep} --budget {budget} --cap {cap} --rate {rate} --threads {threads}"
        );
        text.split(' ').map(str::to_owned).chain(["--dir".to_owned(), self.dir().display().to_string()]).collect()
    }
}

impl Workload {
    /// As it is asked for.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

pub(crate) enum Place {
    Given(PathBuf),
    Temporary(tempfile::TempDir),
}

impl Place {
    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::Given(dir) => dir,
            Self::Temporary(dir) => dir.path(),
        }
    }
}
