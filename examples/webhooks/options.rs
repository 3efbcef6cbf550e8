//! What the command line says. Opens nothing.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Parser;

/// Delivers webhooks through kills, and counts every one of them.
#[derive(Clone, Debug, Parser)]
#[command(name = "webhooks")]
pub(crate) struct Options {
    /// JSON lines, one object {event, payload} each; without it, events are made from the seed
    #[arg(long, value_name = "FILE")]
    pub input: Option<PathBuf>,

    /// How many jobs are enqueued; job n takes line n modulo the lines
    #[arg(long, value_name = "N", default_value_t = 5000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub jobs: u64,

    /// How often the child is killed
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=10_000))]
    pub kill: u32,

    /// Where the jobs are kept: a new or empty directory, or one of journeyman's that never had a job; it stays. Without it,
    /// a temporary one that is removed at the end
    #[arg(long)]
    pub dir: Option<PathBuf>,

    /// How many deliveries run at once
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub capacity: u32,

    /// Decides when to kill, which requests the receivers refuse, and the events when there is no input
    #[arg(long, default_value_t = 1)]
    pub seed: u64,

    /// The child's log on stderr
    #[arg(long)]
    pub log: bool,

    /// Be the child; orders come on stdin
    #[arg(long, hide = true)]
    pub sender: bool,
}

impl Options {
    /// How many jobs, as a length.
    pub(crate) fn jobs(&self) -> usize {
        usize::try_from(self.jobs).unwrap_or(usize::MAX)
    }

    /// The arguments that make the same program the child of this one.
    pub(crate) fn for_the_sender(&self, dir: &Path) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = vec!["--sender".into(), "--dir".into(), dir.into()];
        for (flag, number) in [("--jobs", self.jobs), ("--capacity", self.capacity.into()), ("--seed", self.seed)] {
            arguments.extend([flag.into(), number.to_string().into()]);
        }
        arguments.extend(self.input.iter().flat_map(|path| ["--input".into(), path.into()]));
        arguments.extend(self.log.then(|| "--log".into()));
        arguments
    }
}
