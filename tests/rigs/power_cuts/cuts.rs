//! Power cuts (F3, and the snapshots of sled with it): the program works on a file system that loses its power at a chosen moment,
//! is started again on what the device has, and so on. Every line that was read before a cut binds; what was read after it began
//! need not be true, and only tells what was tried.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;

use crate::books::{Books, Found};
use crate::device::{Device, Kind};
use crate::place::{Result, bound, run};
use crate::program::{self, Program};

/// So many cuts of this kind of file system, on a few devices one after the other.
pub(crate) fn cuts(dir: &Path, kind: Kind, cuts: u64, dice: &mut Rng) -> Result<Seen> {
    let mut seen = Seen::default();
    let mut done = 0;
    while done < cuts {
        let small = done / CUTS_OF_ONE_DEVICE % 4 < 3;
        let mut round = Round::new(kind, dir, if small { &SMALL } else { &LARGE }, None)?;
        for number in done..cuts.min(done + CUTS_OF_ONE_DEVICE) {
            let moment = draw(small, number, dice);
            let found = round.cut(&moment, &mut seen)?;
            let judged = round.judge(found, &mut seen);
            judged.map_err(|error| format!("{moment:?}: {error}; the files are in {}", keep(&round.dir)))?;
        }
        done += CUTS_OF_ONE_DEVICE;
        round.finish()?;
    }
    match seen.damaged {
        0 => Ok(seen),
        // Nothing is lost by them, but luck kept the ones before.
        damaged => Err(format!("{damaged} snapshots had their names before they were on the device").into()),
    }
}

/// So many cuts, each on a device of its own, of a program with this bug: how often something was lost.
pub(crate) fn with_bug(dir: &Path, bug: &str, moment: impl Fn(&mut Rng) -> Moment, cuts: u64, dice: &mut Rng) -> Result<u64> {
    let mut seen = Seen::default();
    let mut lost = 0;
    for _ in 0..cuts {
        let mut round = Round::new(Kind::Ext4, dir, &SMALL, Some(bug.to_owned()))?;
        let found = round.cut(&moment(dice), &mut seen)?;
        lost += u64::from(round.judge(found, &mut Seen::default()).is_err());
    }
    if seen.acks < cuts {
        return Err("the load was too small to show anything".into());
    }
    Ok(lost)
}

/// When the power goes.
#[derive(Clone, Debug)]
pub(crate) enum Moment {
    /// So long after the start of the process: while it opens the directory, mostly.
    Started(Duration),
    /// When so many acknowledgements have been read.
    Acks(usize),
    /// So long after a draft of a snapshot was seen.
    Draft(Duration),
    /// So long after so many snapshots have got their names since the start.
    Published(usize, Duration),
    /// So long after a segment was removed.
    Swept(Duration),
}

/// What the cuts came upon.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) acks: u64,
    opening: u64,
    drafts: u64,
    snapshots: u64,
    swept: u64,
    torn: u64,
    damaged: u64,
}

impl std::fmt::Display for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { acks, opening, drafts, snapshots, swept, torn, damaged: _ } = self;
        write!(
            f,
            "{acks} acknowledgements read before the cuts; {opening} cuts before the first, {drafts} while a snapshot was being written, \
             {snapshots} with a snapshot, {swept} with segments removed; {torn} torn tails found"
        )
    }
}

impl Seen {
    /// That the cuts came upon all that they are for.
    pub(crate) fn is_enough(&self) -> bool {
        [self.opening, self.drafts, self.snapshots, self.swept].iter().all(|count| *count > 0)
    }
}

/// What is in a directory, or why that cannot be told.
type Audit = std::result::Result<Found, String>;

/// The life of one device.
struct Round {
    device: Device,
    dir: PathBuf,
    limits: &'static [&'static str],
    books: Books,
    acked: HashSet<String>,
    bug: Option<String>,
    starts: u64,
}

impl Round {
    fn new(kind: Kind, place: &Path, limits: &'static [&'static str], bug: Option<String>) -> Result<Self> {
        let device = Device::new(kind, place)?;
        let dir = device.at().join("jobs");
        Ok(Self { device, dir, limits, books: Books::default(), acked: HashSet::new(), bug, starts: 0 })
    }

    fn start(&mut self, options: &[&str]) -> Result<Program> {
        self.starts += 1;
        let mut command = bound(program::own());
        command.arg("load").arg(&self.dir).arg(format!("run=c{}", self.starts)).args(self.limits).args(options);
        if let Some(bug) = &self.bug {
            command.env("JOURNEYMAN_BUG", bug);
        }
        Ok(Program::start(command))
    }

    /// Starts the program, cuts the power, and reads what the device has when the power is back.
    fn cut(&mut self, moment: &Moment, seen: &mut Seen) -> Result<Audit> {
        let before = Names::in_dir(&self.dir);
        let mut program = self.start(&[])?;
        let names = wait_for(moment, &before, &mut program, &self.dir);
        let heard: Vec<String> = program.heard().to_vec();
        self.device.cut()?;
        let ended = program.kill();
        if let Some(over) = heard.iter().find(|line| ["refused", "over"].iter().any(|word| line.starts_with(word))) {
            return Err(format!("before the cut it said {over:?}").into());
        }
        let acks = self.books.acks;
        heard.iter().for_each(|line| self.books.hear(line));
        self.acked.extend(heard.iter().filter_map(|line| line.strip_prefix("ack ")?.split(' ').next()).map(str::to_owned));
        ended.lines[heard.len()..].iter().for_each(|line| self.hear_too_late(line));
        seen.acks += self.books.acks - acks;
        seen.opening += u64::from(self.books.acks == acks);
        seen.drafts += u64::from(names.drafts > 0);
        seen.snapshots += u64::from(names.snapshots > 0);
        seen.swept += u64::from(names.first_segment > 1);
        self.device.restart()?;
        Ok(if self.dir.exists() { program::audit(&self.dir) } else { Ok(Found::default()) })
    }

    /// Takes down what was read after the cut had begun. An attempt may have been unmade by it, and then comes again; a ticket that
    /// was not acknowledged may have been unmade too, and then its number is given to another.
    fn hear_too_late(&mut self, line: &str) {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["run", id, _] if self.acked.contains(id) => {
                self.books.hear_too_late(line);
                self.books.hear_too_late(&format!("cut {id}"));
            }
            ["run" | "cut", ..] => {}
            _ => self.books.hear_too_late(line),
        }
    }

    /// Compares what was heard with what is there.
    fn judge(&mut self, found: Audit, seen: &mut Seen) -> Result<()> {
        let found = found.map_err(|error| format!("it cannot be opened: {error}"))?;
        seen.torn += u64::from(found.torn.is_some());
        self.books.audit(&found);
        seen.damaged += found.passed_over.len() as u64;
        Ok(self.books.judge().map_err(|wrong| format!("after {} starts: {wrong}", self.starts))?)
    }

    /// The last start is not cut short: everything comes to its end.
    fn finish(mut self) -> Result<()> {
        let ended = self.start(&["clients=1", "count=5", "finish=true"])?.end();
        ended.lines.iter().for_each(|line| self.books.hear(line));
        if !ended.status.success() || !ended.said("idle") || !ended.said("stopped") {
            let last = ended.lines.last();
            return Err(
                format!("no orderly end: {:?} {last:?} {}; the files are in {}", ended.status, ended.stderr, keep(&self.dir)).into()
            );
        }
        let found = program::audit(&self.dir);
        self.judge(found, &mut Seen::default())
    }
}

/// Waits for the moment, or until it can no longer be hoped for; what is there then.
fn wait_for(moment: &Moment, before: &Names, program: &mut Program, dir: &Path) -> Names {
    let began = Instant::now();
    let mut last = before.clone();
    let mut published = 0;
    let pause = loop {
        let names = Names::in_dir(dir);
        published += usize::from(names.newest_snapshot > last.newest_snapshot);
        last = names;
        let pause = match moment {
            Moment::Started(pause) => Some(*pause),
            Moment::Acks(count) => (acks(program) >= *count).then_some(Duration::ZERO),
            Moment::Draft(pause) => (last.drafts > before.drafts).then_some(*pause),
            Moment::Published(count, pause) => (published >= *count).then_some(*pause),
            Moment::Swept(pause) => (last.first_segment > before.first_segment.max(1)).then_some(*pause),
        };
        if let Some(pause) = pause {
            break pause;
        }
        if began.elapsed() > PATIENCE {
            break Duration::ZERO;
        }
        thread::sleep(LOOK);
    };
    thread::sleep(pause);
    Names::in_dir(dir)
}

fn acks(program: &mut Program) -> usize {
    program.heard().iter().filter(|line| line.starts_with("ack ")).count()
}

/// What the names in the directory tell.
#[derive(Clone, Debug, Default)]
struct Names {
    first_segment: u64,
    snapshots: usize,
    newest_snapshot: u64,
    drafts: usize,
}

impl Names {
    fn in_dir(dir: &Path) -> Self {
        let mut names = Self::default();
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            let name = program::text(entry.file_name());
            let Some((number, what)) = name.split_once('.').and_then(|(number, what)| Some((number.parse().ok()?, what))) else { continue };
            match what {
                "segment" if names.first_segment == 0 => names.first_segment = number,
                "segment" => names.first_segment = names.first_segment.min(number),
                "sled" | "snapshot" => {
                    names.snapshots += 1;
                    names.newest_snapshot = names.newest_snapshot.max(number);
                }
                "sled.tmp" | "snapshot.tmp" => names.drafts += 1,
                _ => {}
            }
        }
        names
    }
}

/// When the power goes the next time: of all kinds in turn, as long as the device has snapshots.
fn draw(small: bool, number: u64, dice: &mut Rng) -> Moment {
    let mut ms = |most: u64| Duration::from_micros(dice.u64(..most * 1_000));
    let (opening, soon, later, at_once) = (ms(40), ms(15), ms(60), ms(5));
    match number % 7 {
        0 | 1 => Moment::Started(opening),
        2.. if !small => Moment::Acks(dice.usize(1..400)),
        2 => Moment::Acks(dice.usize(1..400)),
        3 => Moment::Draft(soon),
        4 => Moment::Draft(later),
        5 => Moment::Published(1, at_once),
        _ => Moment::Swept(at_once),
    }
}

/// The directory, for whoever looks into a violation.
pub(crate) fn keep(dir: &Path) -> String {
    let kept = std::env::temp_dir().join(format!("power-cuts-{}", std::process::id()));
    match run("cp", ["-r".as_ref(), dir.as_os_str(), kept.as_os_str()]) {
        Ok(_) => kept.display().to_string(),
        Err(error) => format!("no place: {error}"),
    }
}

/// Rotation, snapshots and compaction all the time.
const SMALL: [&str; 2] = ["segment_kib=24", "journal_kib=192"];
/// One segment that grows.
pub(crate) const LARGE: [&str; 2] = ["segment_kib=65536", "journal_kib=1048576"];
/// Before the next file system is made.
const CUTS_OF_ONE_DEVICE: u64 = 5;
/// After which a moment that does not come is waited for no longer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often the directory is looked at.
const LOOK: Duration = Duration::from_micros(300);
