//! The simulated disk: what is durable, kept apart from what was written and renamed since, so that a crash can keep any part of
//! the latter; and faults at any call. What chance decides comes from a seed, so that a failure is a number.
//!
//! What a crash may do here: of every write that was not synced each sector of 512 bytes, at its place in the file, is there or not,
//! whatever became of the writes before and behind it; a file may have grown without what was written into it; each change of a
//! name that was not synced is there or not, whatever became of the others. What it may not: change what was synced, tear a sector,
//! or leave half a rename. A sync that fails may have done none, all or any part of its work, and what it has not done may be
//! marked clean: it can be read until the crash and is gone then, and no later sync says so.

mod wreck;

use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard};

use fastrand::Rng;
use journeyman_core::disk::{Disk, DiskFile};
use wreck::{Change, Names, Write, lay};
pub(crate) use wreck::{Files, Wreck};

/// A directory in memory. Clones share it.
#[derive(Clone)]
pub(crate) struct SimDisk(Arc<Mutex<State>>);

struct State {
    seen: Vec<Vec<u8>>,
    /// How long the files would be with all the zeros that were laid ahead.
    lengths: Vec<u64>,
    seen_names: Names,
    wreck: Wreck,
    plan: Plan,
    /// Bytes by which files may still grow.
    room: Option<u64>,
    calls: u64,
    syncs: u64,
    refused: u64,
    first_refused: Option<usize>,
    points: Option<Vec<Wreck>>,
    trace: Option<Vec<String>>,
}

/// The kinds of calls, as a plan tells them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kind {
    List,
    Read,
    Create,
    Write,
    Sync,
    Rename,
    Remove,
    SyncNames,
}

/// What becomes of a call that does not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// As the system numbers errors.
    pub(crate) errno: i32,
    pub(crate) work: Work,
}

/// How much of its work a failed call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    Nothing,
    /// Of a write the first byte, the first half, or all but the last byte.
    First,
    Half,
    AllButLast,
    /// All of it: only the answer is wrong.
    All,
    /// Of a sync nothing, and what it was to write counts as clean: readable until the crash, and lost by it.
    MarkedClean,
    /// Of a sync every second sector; the rest counts as clean.
    HalfMarkedClean,
}

/// Which calls fail.
#[derive(Clone)]
pub(crate) enum Plan {
    Nothing,
    /// The n-th call of these kinds from here, counted from 1, and only that one.
    Once {
        kinds: &'static [Kind],
        left: u64,
        fault: Fault,
    },
    /// The n-th call of these kinds and all that follow.
    From {
        kinds: &'static [Kind],
        left: u64,
        fault: Fault,
    },
    /// Of a thousand calls that change something so many, with a fault by chance; of those that only read half as many.
    Chance {
        per_mille: u32,
        dice: Rng,
    },
}

pub(crate) const EIO: i32 = 5;
pub(crate) const EINTR: i32 = 4;
pub(crate) const ENOSPC: i32 = 28;

pub(crate) const ANY: &[Kind] =
    &[Kind::List, Kind::Read, Kind::Create, Kind::Write, Kind::Sync, Kind::Rename, Kind::Remove, Kind::SyncNames];
pub(crate) const READING: &[Kind] = &[Kind::List, Kind::Read];

/// Of zeros that are laid ahead by the megabyte a part says the same, and makes a hundred thousand directories small. Tests that
/// enumerate keep their segments below it.
const ZEROS_KEPT: usize = 8 << 10;
impl Default for SimDisk {
    fn default() -> Self {
        Self::on(&Files::new())
    }
}

impl SimDisk {
    /// Begins with these files, all of them synced.
    pub(crate) fn on(files: &Files) -> Self {
        let mut state = State {
            seen: Vec::new(),
            lengths: Vec::new(),
            seen_names: Names::new(),
            wreck: Wreck::default(),
            plan: Plan::Nothing,
            room: None,
            calls: 0,
            syncs: 0,
            refused: 0,
            first_refused: None,
            points: None,
            trace: None,
        };
        state.lay(files);
        Self(Arc::new(Mutex::new(state)))
    }

    pub(crate) fn set_plan(&self, plan: Plan) {
        self.state().plan = plan;
    }

    /// The n-th call of these kinds fails, counted from here and from 1.
    pub(crate) fn fail_once(&self, kinds: &'static [Kind], n: u64, fault: Fault) {
        self.set_plan(Plan::Once { kinds, left: n, fault });
    }

    /// Lets files grow by so many bytes, as is counted on a disk: also by zeros.
    pub(crate) fn set_room(&self, room: Option<u64>) {
        self.state().room = room;
    }

    /// Calls so far, those that failed among them.
    pub(crate) fn calls(&self) -> u64 {
        self.state().calls
    }

    /// Calls so far that synced a file, or failed to.
    pub(crate) fn syncs(&self) -> u64 {
        self.state().syncs
    }

    /// Calls so far that were made to fail.
    pub(crate) fn refused(&self) -> u64 {
        self.state().refused
    }

    /// How many points had been recorded when a call was first made to fail.
    pub(crate) fn first_refused(&self) -> Option<usize> {
        self.state().first_refused
    }

    /// From now on keeps, for each call that changes something, what a crash right behind it may leave. The first is of now.
    pub(crate) fn record(&self) {
        let mut state = self.state();
        state.points = Some(vec![state.wreck.clone()]);
    }

    /// How many of them there are.
    pub(crate) fn points(&self) -> usize {
        self.state().points.as_ref().map_or(0, Vec::len)
    }

    /// What was recorded, and no more of it.
    pub(crate) fn recorded(&self) -> Vec<Wreck> {
        self.state().points.take().unwrap_or_default()
    }

    /// What a crash may leave now.
    pub(crate) fn wreck(&self) -> Wreck {
        self.state().wreck.clone()
    }

    /// From now on keeps a line for each call.
    pub(crate) fn trace(&self) {
        self.state().trace = Some(Vec::new());
    }

    /// What was traced, and no more of it.
    pub(crate) fn traced(&self) -> Vec<String> {
        self.state().trace.take().unwrap_or_default()
    }

    /// Adds a line of the test's own to what is traced.
    pub(crate) fn note(&self, line: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.state().trace {
            trace.push(line());
        }
    }

    /// The files as they can be read now.
    pub(crate) fn files(&self) -> Files {
        let state = self.state();
        state.seen_names.iter().map(|(name, file)| (name.clone(), Arc::new(state.seen[*file].clone()))).collect()
    }

    /// Cuts the power: what is left are these files.
    pub(crate) fn crash_to(&self, files: &Files) {
        self.state().lay(files);
    }

    /// Cuts the power, and chance decides what is left of what was not synced.
    pub(crate) fn crash_by(&self, dice: &mut Rng) {
        let mut state = self.state();
        let files = state.wreck.image(&state.wreck.by_chance(dice));
        state.lay(&files);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("nobody panics with it")
    }

    fn reading<T>(&self, kind: Kind, name: &str, read: impl FnOnce(&State) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.state();
        let answer = match state.begin(kind) {
            None => read(&state),
            Some(fault) => Err(io::Error::from_raw_os_error(fault.errno)),
        };
        state.say(kind, || name.to_owned(), &answer);
        answer
    }

    fn changing<T>(&self, kind: Kind, text: impl FnOnce() -> String, act: impl FnOnce(&mut State, Work) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.state();
        let answer = match state.begin(kind) {
            None => act(&mut state, Work::All),
            Some(fault) => {
                if fault.work != Work::Nothing {
                    // What it has done is done; what it says is that it failed.
                    let _ = act(&mut state, fault.work);
                }
                Err(io::Error::from_raw_os_error(fault.errno))
            }
        };
        state.say(kind, text, &answer);
        if state.points.is_some() {
            let wreck = state.wreck.clone();
            state.points.iter_mut().for_each(|points| points.push(wreck.clone()));
        }
        answer
    }
}

impl State {
    fn lay(&mut self, files: &Files) {
        self.wreck = Wreck::default();
        self.seen = files.values().map(|bytes| bytes.to_vec()).collect();
        self.lengths = self.seen.iter().map(|bytes| bytes.len() as u64).collect();
        self.wreck.files = files.values().cloned().collect();
        self.seen_names = files.keys().cloned().zip(0..).collect();
        self.wreck.names = self.seen_names.clone();
    }

    /// Counts the call, and says how it fails.
    fn begin(&mut self, kind: Kind) -> Option<Fault> {
        self.calls += 1;
        self.syncs += u64::from(kind == Kind::Sync);
        let fault = self.plan.next(kind);
        if fault.is_some() {
            self.refused += 1;
            let points = self.points.as_ref().map_or(0, Vec::len);
            self.first_refused.get_or_insert(points);
        }
        fault
    }

    fn say<T>(&mut self, kind: Kind, text: impl FnOnce() -> String, answer: &io::Result<T>) {
        if let Some(trace) = &mut self.trace {
            let answer = answer.as_ref().map_or_else(ToString::to_string, |_| "ok".to_owned());
            trace.push(format!("{kind:?} {}: {answer}", text()));
        }
    }

    fn file(&self, name: &str) -> io::Result<&Vec<u8>> {
        let file = self.seen_names.get(name).ok_or(ErrorKind::NotFound)?;
        Ok(&self.seen[*file])
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.seen_names);
        self.wreck.changes.push(change);
    }

    fn write(&mut self, file: usize, offset: usize, bytes: &[u8]) -> io::Result<()> {
        let length = &mut self.lengths[file];
        // A hole takes no room.
        let grows = ((offset + bytes.len()) as u64).saturating_sub(*length).min(bytes.len() as u64);
        let missing = self.room.map_or(0, |room| grows.saturating_sub(room));
        let bytes = &bytes[..bytes.len() - usize::try_from(missing).expect("less than what is written")];
        if !bytes.is_empty() {
            *length = (*length).max((offset + bytes.len()) as u64);
        }
        self.room.iter_mut().for_each(|room| *room -= grows - missing);
        // All else begins with a mark. To look at the whole of each mebibyte would be most of what a hundred thousand runs do.
        let is_zeros = bytes.len() > ZEROS_KEPT && bytes.starts_with(&[0; 64]);
        let kept = if is_zeros { &bytes[..ZEROS_KEPT] } else { bytes };
        lay(&mut self.seen[file], offset, kept);
        self.wreck.writes.push(Write { file, offset, bytes: kept.into() });
        if missing > 0 { Err(io::Error::from_raw_os_error(ENOSPC)) } else { Ok(()) }
    }

    fn sync(&mut self, file: usize, work: Work) {
        let survives = |sector: usize| match work {
            Work::All => Some(true),
            Work::MarkedClean => Some(false),
            Work::HalfMarkedClean => Some(sector.is_multiple_of(2)),
            _ => None,
        };
        if survives(0).is_none() {
            return;
        }
        let (done, rest) = std::mem::take(&mut self.wreck.writes).into_iter().partition(|write| write.file == file);
        self.wreck.writes = rest;
        let done: Vec<Write> = done;
        if done.is_empty() {
            return;
        }
        let durable = Arc::make_mut(&mut self.wreck.files[file]);
        for write in &done {
            write.lay(durable, |sector| survives(sector) == Some(true));
        }
    }
}

impl Plan {
    fn next(&mut self, kind: Kind) -> Option<Fault> {
        match self {
            Self::Nothing => None,
            Self::Once { kinds, left, fault } => {
                if *left == 0 || !kinds.contains(&kind) {
                    return None;
                }
                *left -= 1;
                (*left == 0).then_some(*fault)
            }
            Self::From { kinds, left, fault } => {
                if !kinds.contains(&kind) {
                    return None;
                }
                *left = left.saturating_sub(1);
                (*left == 0).then_some(*fault)
            }
            Self::Chance { per_mille, dice } => {
                let odds = if READING.contains(&kind) { *per_mille / 2 } else { *per_mille };
                (dice.u32(..1000) < odds).then(|| fault_of(kind, dice))
            }
        }
    }
}

/// Any fault that a call of this kind may have.
fn fault_of(kind: Kind, dice: &mut Rng) -> Fault {
    let works: &[Work] = match kind {
        Kind::Write => &[Work::Nothing, Work::First, Work::Half, Work::AllButLast, Work::All],
        Kind::Sync => &[Work::Nothing, Work::MarkedClean, Work::HalfMarkedClean, Work::All],
        Kind::List | Kind::Read => &[Work::Nothing],
        Kind::Create | Kind::Rename | Kind::Remove | Kind::SyncNames => &[Work::Nothing, Work::All],
    };
    let errno = [EIO, EIO, ENOSPC, EINTR][dice.usize(..4)];
    Fault { errno, work: works[dice.usize(..works.len())] }
}

impl Disk for SimDisk {
    fn free(&self) -> io::Result<u64> {
        Ok(self.state().room.unwrap_or(u64::MAX))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.reading(Kind::List, "", |state| Ok(state.seen_names.keys().cloned().collect()))
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        self.reading(Kind::Read, name, |state| state.file(name).cloned())
    }

    fn read_at(&self, name: &str, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        self.reading(Kind::Read, name, |state| Ok(part_of(state.file(name)?, offset, length)))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let text = || name.to_owned();
        let file = self.changing(Kind::Create, text, |state, _| {
            let file = state.seen.len();
            state.seen.push(Vec::new());
            state.lengths.push(0);
            state.wreck.files.push(Arc::default());
            state.change(Change::Create { name: name.to_owned(), file });
            Ok(file)
        })?;
        Ok(Box::new(SimFile { disk: self.clone(), file }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let text = || format!("{from} to {to}");
        self.changing(Kind::Rename, text, |state, _| {
            let file = *state.seen_names.get(from).ok_or(ErrorKind::NotFound)?;
            state.change(Change::Rename { from: from.to_owned(), to: to.to_owned(), file });
            Ok(())
        })
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let text = || name.to_owned();
        self.changing(Kind::Remove, text, |state, _| {
            let file = *state.seen_names.get(name).ok_or(ErrorKind::NotFound)?;
            let length = std::mem::take(&mut state.lengths[file]);
            state.room.iter_mut().for_each(|room| *room += length);
            state.change(Change::Remove { name: name.to_owned() });
            Ok(())
        })
    }

    /// One that fails leaves the changes as they were, or has made them durable: a journal of a file system that cannot be written
    /// ends the file system, and none forgets a name that it has shown.
    fn sync_names(&self) -> io::Result<()> {
        self.changing(Kind::SyncNames, String::new, |state, _| {
            state.wreck.changes.clear();
            state.wreck.names.clone_from(&state.seen_names);
            Ok(())
        })
    }
}

struct SimFile {
    disk: SimDisk,
    file: usize,
}

impl DiskFile for SimFile {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let at = usize::try_from(offset).map_err(|_| ErrorKind::FileTooLarge)?;
        let text = || format!("file {}, {} bytes at {offset}, sum {:08x}", self.file, bytes.len(), crc32c::crc32c(bytes));
        self.disk.changing(Kind::Write, text, |state, work| {
            let part = match work {
                Work::First => 1.min(bytes.len()),
                Work::Half => bytes.len() / 2,
                Work::AllButLast => bytes.len().saturating_sub(1),
                _ => bytes.len(),
            };
            state.write(self.file, at, &bytes[..part])
        })
    }

    fn sync(&mut self) -> io::Result<()> {
        let text = || format!("file {}", self.file);
        self.disk.changing(Kind::Sync, text, |state, work| {
            state.sync(self.file, work);
            Ok(())
        })
    }
}

/// Files that can be read and not changed: whoever only opens may do no more.
#[derive(Clone)]
pub(crate) struct Still(pub(crate) Arc<Files>);

impl Still {
    pub(crate) fn of(files: Files) -> Self {
        Self(Arc::new(files))
    }

    fn file(&self, name: &str) -> io::Result<&Vec<u8>> {
        Ok(self.0.get(name).ok_or(ErrorKind::NotFound)?)
    }
}

impl Disk for Still {
    fn free(&self) -> io::Result<u64> {
        Ok(u64::MAX)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.0.keys().cloned().collect())
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        self.file(name).cloned()
    }

    fn read_at(&self, name: &str, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        Ok(part_of(self.file(name)?, offset, length))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        panic!("an open created {name}")
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        panic!("an open renamed {from} to {to}")
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        panic!("an open removed {name}")
    }

    fn sync_names(&self) -> io::Result<()> {
        panic!("an open synced names")
    }
}

fn part_of(bytes: &[u8], offset: u64, length: usize) -> Vec<u8> {
    let start = usize::try_from(offset).map_or(bytes.len(), |offset| offset.min(bytes.len()));
    bytes[start..start.saturating_add(length).min(bytes.len())].to_vec()
}
