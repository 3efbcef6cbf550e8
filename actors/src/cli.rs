//! The offline tool as a function: what the program `journeyman` (feature `cli`) does with its arguments. Looks at a directory that
//! no runner has open, and changes nothing in it, ever.
//!
//! ```text
//! journeyman verify DIR               is it sound, and if not, what exactly is wrong
//! journeyman dump DIR                 the history of the queue, one record a line
//! journeyman salvage DIR --to NEW     what is sound, into a new directory
//! ```
//!
//! `docs/operations.md` says when to use which.

mod dump;
mod salvage;
mod text;
mod verify;

use std::ffi::OsString;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, Parser, Subcommand};
use journeyman_core::disk::{DirError, Disk, DiskView};
use journeyman_core::ids::Escaped;
use journeyman_core::inspect::{Sort, is_ours};
use journeyman_core::snapshot::SnapshotStore;

use crate::snapshots;

/// Looks at the directory of a runner that is not running, and changes nothing in it.
#[derive(Debug, Parser)]
#[command(name = "journeyman", version, after_help = STATUSES, disable_help_subcommand = true, arg_required_else_help = false)]
struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Reads everything: says that the directory is sound, or all that is wrong with it
    Verify(Place),
    /// Shows the records that can be read, one a line: the history of the queue
    Dump(dump::Options),
    /// Copies what is sound into a new directory, and says what was left behind
    Salvage(salvage::Options),
}

#[derive(Debug, Args)]
struct Place {
    /// The directory of a runner
    dir: PathBuf,

    /// JSON for programs instead of text for people
    #[arg(long)]
    json: bool,
}

const STATUSES: &str = "Status: 0 sound, 1 damaged, 2 wrong arguments or not a directory of a runner, 3 the disk refused, \
                        4 a runner has it open, 5 a newer release or another build is needed to read it.";

/// All is as it should be. A torn tail, which every crash may leave, is.
pub const SOUND: u8 = 0;
/// Something is not what was written, or something was left behind.
pub const DAMAGED: u8 = 1;
/// The arguments are wrong, or the directory is none of a runner.
pub const USAGE: u8 = 2;
/// The disk refused: what is there may be sound or not.
pub const REFUSED: u8 = 3;
/// A runner has the directory open. Nothing was read: it changes while one looks.
pub const LOCKED: u8 = 4;
/// A newer release wrote it, or a build with more features.
pub const NEWER: u8 = 5;

/// Does what the arguments say, the first of which is the program's name. What was found goes to `out`, what is wrong with the question
/// to `err`, each in lines without control characters. Answers the status of the process; see the constants.
pub fn run(arguments: impl IntoIterator<Item = OsString>, out: &mut dyn Write, err: &mut dyn Write) -> u8 {
    let mut out = BufWriter::new(out);
    let done = parse(arguments).and_then(|options| match options.command {
        Command::Verify(place) => verify::run(&place, &mut out, err),
        Command::Dump(options) => dump::run(&options, &mut out, err),
        Command::Salvage(options) => salvage::run(&options, &mut out, err),
    });
    let (status, said) = match done {
        Ok(status) => (status, Ok(())),
        Err(End::Said(text)) => (SOUND, out.write_all(text.as_bytes())),
        Err(End::Failed(status, why)) => (status, writeln!(err, "journeyman: {}", Escaped(&why))),
        // What was found stands, whether anybody hears all of it or not.
        Err(End::Unheard(status, error)) if error.kind() == ErrorKind::BrokenPipe => (status, Ok(())),
        Err(End::Unheard(_, error)) => (REFUSED, writeln!(err, "journeyman: cannot write the answer: {error}")),
    };
    match said.and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => REFUSED,
        _ => status,
    }
}

/// Why a command ended early.
enum End {
    /// The arguments asked for a text.
    Said(String),
    /// With this status, for this reason.
    Failed(u8, String),
    /// The answer could not be written; up to there it had this status.
    Unheard(u8, io::Error),
}

fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Options, End> {
    Options::try_parse_from(arguments).map_err(|error| {
        let text = error.to_string();
        if error.use_stderr() { End::Failed(USAGE, one_line(&text)) } else { End::Said(text) }
    })
}

/// What is wrong, without the usage below it.
fn one_line(text: &str) -> String {
    let said = text.split("\n\nUsage").next().unwrap_or(text);
    let lines: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.join(" ").trim_start_matches("error: ").to_owned()
}

/// A directory, locked against runners as long as it is looked at.
struct Looked {
    view: Arc<DiskView>,
    disk: Arc<dyn Disk>,
    snapshots: Box<dyn SnapshotStore>,
}

impl Looked {
    fn at(dir: &Path) -> Result<Self, End> {
        let view = Arc::new(DiskView::open(dir, is_ours).map_err(|error| End::Failed(status_of(&error), error.to_string()))?);
        let disk: Arc<dyn Disk> = view.clone();
        Ok(Self { snapshots: snapshots::reader(dir, disk.clone()), view, disk })
    }
}

fn status_of(error: &DirError) -> u8 {
    match error {
        DirError::Locked { .. } => LOCKED,
        DirError::Io { source, .. } if source.kind() != ErrorKind::NotFound => REFUSED,
        _ => USAGE,
    }
}

const fn status_for(worst: Sort) -> u8 {
    match worst {
        Sort::Note => SOUND,
        Sort::Damage => DAMAGED,
        Sort::Newer => NEWER,
        Sort::Unread => REFUSED,
    }
}

fn refused(error: &io::Error) -> End {
    End::Failed(REFUSED, format!("the directory cannot be read: {error}"))
}
