//! Looking at a whole directory: is it sound, and if not, what exactly is wrong; and the history that its records tell. For tools.
//! Reads everything, what an open leaves alone too; changes nothing and prints nothing.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::sync::Arc;

use crate::disk::{self, Disk};
use crate::ids::{Epoch, Escaped, Seq, Ticket};
use crate::journal::{Batch, Boundary, RecoverError, Sight, survey};
use crate::op::{Op, Record};
use crate::queue::{Ends, Queue};
use crate::record::{self, Malformed};
use crate::snapshot::{Loaded, Loading, SnapshotError, SnapshotStore};
use crate::store::{Store, fold, newest_first};
use crate::time::Time;

/// What was found in a directory.
#[derive(Debug)]
pub struct Inspection {
    /// What is wrong, and what is worth knowing, in the order in which it was found.
    pub findings: Vec<Finding>,
    /// The records that were read.
    pub records: u64,
    /// The first of them; none when there are none.
    pub first: Option<Seq>,
    /// The last record that is known of, in a segment or a snapshot.
    pub last: Seq,
    /// When the last batch was written.
    pub written: Option<Time>,
    /// The segments with a sound header, and their bytes without the zeros behind the last frames.
    pub segments: (u64, u64),
    /// The snapshots, newest first.
    pub snapshots: Vec<Kept>,
    /// What a start would find; or why it would refuse.
    pub start: Result<Standing, String>,
}

/// A snapshot that is there.
#[derive(Debug)]
pub struct Kept {
    /// The last record in it.
    pub seq: Seq,
    /// Its file or directory.
    pub name: String,
    /// The bytes of its chunks; none when it is not sound.
    pub bytes: Option<u64>,
}

/// What a directory comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The snapshot that a start would begin with.
    pub snapshot: Option<Seq>,
    /// The last record.
    pub last: Seq,
    /// The epoch of its last writer.
    pub epoch: Epoch,
    /// Jobs that wait.
    pub pending: usize,
    /// Jobs that ran when it was last written to.
    pub running: usize,
    /// How jobs ended, since the directory is in use.
    pub ends: Ends,
}

impl Standing {
    pub(crate) fn of(queue: &Queue, snapshot: Option<Seq>) -> Self {
        let (last, epoch) = (queue.last(), queue.epoch());
        Self { snapshot, last, epoch, pending: queue.pending(), running: queue.running(), ends: queue.ends() }
    }
}

/// One thing that was found. Shown as one line; names are escaped in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub sort: Sort,
    /// The file or directory.
    pub file: String,
    /// Where in the file.
    pub offset: Option<u64>,
    /// What should be there, or what is known of it.
    pub what: String,
    /// What it means.
    pub means: String,
}

/// How bad something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sort {
    /// Nothing is wrong: it is good to know.
    Note,
    /// It is not what was written.
    Damage,
    /// A newer release wrote it, or a build with more features: this one cannot judge it.
    Newer,
    /// The disk refused: it may be sound or not.
    Unread,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Escaped(&self.file))?;
        if let Some(offset) = self.offset {
            write!(f, " at byte {offset}")?;
        }
        write!(f, ": {}", Escaped(&self.what))?;
        if self.means.is_empty() { Ok(()) } else { write!(f, "; {}", Escaped(&self.means)) }
    }
}

impl Finding {
    fn new(sort: Sort, file: impl Into<String>, offset: Option<u64>, what: impl Into<String>) -> Self {
        Self { sort, file: file.into(), offset, what: what.into(), means: String::new() }
    }

    fn meaning(self, means: impl Into<String>) -> Self {
        Self { means: means.into(), ..self }
    }

    pub(crate) fn of_journal<E: fmt::Display>(error: &RecoverError<E>) -> Self {
        match error {
            RecoverError::Io { file, source } => Self::new(Sort::Unread, file, None, format!("cannot be read: {source}")),
            RecoverError::Damaged { file, offset, expected } => {
                Self::new(Sort::Damage, file, Some(*offset), format!("expected {expected}"))
            }
            RecoverError::Newer { file, needs } => Self::new(Sort::Newer, file, None, format!("needs a reader of format {needs}")),
            RecoverError::Fold { file, offset, source } => {
                Self::new(Sort::Damage, file, Some(*offset), format!("the batch here: {source}"))
            }
        }
    }

    pub(crate) fn of_snapshot(error: &SnapshotError) -> Self {
        match error {
            SnapshotError::Io { name, source } => Self::new(Sort::Unread, name, None, format!("cannot be read: {source}")),
            SnapshotError::Damaged { name, expected } => Self::new(Sort::Damage, name, None, format!("expected {expected}")),
            SnapshotError::Newer { name, needs } => Self::new(Sort::Newer, name, None, format!("needs a reader of format {needs}")),
            // Of one that is being written, which nobody inspects.
            SnapshotError::Payload(error) => Self::new(Sort::Unread, ".", None, error.to_string()),
        }
    }
}

impl Inspection {
    /// Reads everything.
    ///
    /// # Errors
    /// When the directory cannot be listed. Whatever else the disk refuses is a finding.
    pub fn of(disk: &Arc<dyn Disk>, snapshots: &dyn SnapshotStore) -> io::Result<Self> {
        let start = match Store::open(disk.clone(), snapshots) {
            Ok(store) => Ok(Standing::of(&store.queue, store.snapshot)),
            Err(error) => Err(error.to_string()),
        };
        let mut look = Look::begin(snapshots, true)?;
        survey(&**disk, &mut |sight| {
            look.at(sight);
            true
        })?;
        let mut found = look.end(start);
        found.findings.extend(others(&disk.list()?, &found.snapshots));
        // Whatever this look has missed, a start has the last word.
        if let Err(why) = &found.start
            && found.sort() == Sort::Note
        {
            found.findings.push(Finding::new(Sort::Damage, ".", None, why.clone()));
        }
        Ok(found)
    }

    /// The worst that was found.
    #[must_use]
    pub fn sort(&self) -> Sort {
        self.findings.iter().map(|finding| finding.sort).max().unwrap_or(Sort::Note)
    }

    /// Whether all is what was written. A torn tail is: nobody ever heard that it was durable.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.sort() == Sort::Note
    }
}

/// What of a directory is neither a segment nor a snapshot.
fn others(names: &[String], snapshots: &[Kept]) -> Vec<Finding> {
    let is_other = |name: &&String| {
        *name != disk::LOCK && disk::number_of(name, SEGMENT).is_none() && snapshots.iter().all(|kept| kept.name != **name)
    };
    let is_double = |name: &str| snapshots.iter().any(|kept| name.starts_with(&disk::numbered(kept.seq.0, ".")));
    let found = names.iter().filter(is_other).map(|name| {
        if is_ours(name) && is_double(name) {
            Finding::new(Sort::Note, name, None, "another snapshot of the same record")
                .meaning("the one that is named above stands in its place")
        } else if is_ours(name) {
            let finding = Finding::new(Sort::Newer, name, None, "of a kind that this build cannot read");
            finding.meaning("a newer release wrote it, or a build with more features")
        } else if is_leftover(name) {
            let note = Finding::new(Sort::Note, name, None, "a draft or a copy that a crash has left");
            note.meaning("it is without meaning, and swept away in time")
        } else {
            Finding::new(Sort::Note, name, None, "not a file of the runner").meaning("it is left alone")
        }
    });
    found.collect()
}

fn is_leftover(name: &str) -> bool {
    [".tmp", ".open"]
        .iter()
        .any(|end| name.rsplit_once(end).is_some_and(|(name, behind)| is_ours(name) && behind.bytes().all(|byte| byte.is_ascii_digit())))
}

/// Whether a file of this name is one that a runner makes, of this or of any other build; drafts and leftovers not counted.
#[must_use]
pub fn is_ours(name: &str) -> bool {
    let is_kind = |kind: &str| !kind.is_empty() && kind.bytes().all(|byte| byte.is_ascii_lowercase());
    name.split_once('.').is_some_and(|(number, kind)| is_kind(kind) && disk::number_of(number, "").is_some())
}

const SEGMENT: &str = ".segment";

/// A look at everything, while it goes on.
struct Look<'a> {
    store: &'a dyn SnapshotStore,
    /// The sound snapshots, each with where it stands; oldest first.
    sound: Vec<Boundary>,
    /// Those of them behind which a segment was seen to begin.
    met: BTreeSet<Seq>,
    /// What the records so far come to; none behind damage, up to the next snapshot.
    state: Option<Queue>,
    /// Whether records are applied; else they are only decoded.
    folds: bool,
    /// The segment that is being looked at.
    file: String,
    /// The finding that tells of the last damage, if there was one.
    last_damage: Option<usize>,
    found: Inspection,
}

impl<'a> Look<'a> {
    /// Reads every snapshot.
    fn begin(store: &'a dyn SnapshotStore, folds: bool) -> io::Result<Self> {
        let found = Inspection {
            findings: Vec::new(),
            records: 0,
            first: None,
            last: Seq(0),
            written: None,
            segments: (0, 0),
            snapshots: Vec::new(),
            start: Err(String::new()),
        };
        let mut look =
            Self { store, sound: Vec::new(), met: BTreeSet::new(), state: None, folds, file: String::new(), last_damage: None, found };
        let seqs = newest_first(store).map_err(io::Error::other)?;
        for seq in seqs {
            let name = store.name(seq);
            let bytes = match Loading::begin(store, seq).and_then(Loading::finish) {
                Ok(Loaded { boundary, bytes, .. }) => {
                    look.sound.insert(0, boundary);
                    Some(bytes)
                }
                Err(error) => {
                    look.found.findings.push(Finding::of_snapshot(&error));
                    None
                }
            };
            look.found.last = look.found.last.max(seq);
            look.found.snapshots.push(Kept { seq, name, bytes });
        }
        Ok(look)
    }

    fn at(&mut self, sight: Sight<'_>) {
        match sight {
            Sight::Segment { file, behind, follows, .. } => self.segment(file, &behind, follows),
            Sight::Batch { batch, offset, end: _ } => self.batch(batch, offset),
            Sight::End(end) => self.found.segments.1 += end,
            Sight::Missing { number, by } => self.missing(number, by),
            Sight::Wrong(error) => {
                self.state = None;
                self.damaged(Finding::of_journal(&error));
            }
            Sight::Unreadable { from, to } => self.unreadable(from, to),
            Sight::Torn { file, offset } => {
                let note = Finding::new(Sort::Note, file, Some(offset), "a torn tail");
                self.found
                    .findings
                    .push(note.meaning("a crash cut off a write here that nobody ever heard to be durable; it is left behind"));
            }
        }
    }

    /// A segment may begin where a snapshot stands, and then the two must agree.
    fn segment(&mut self, file: &str, behind: &Boundary, follows: bool) {
        self.found.segments.0 += 1;
        file.clone_into(&mut self.file);
        if !follows {
            self.state = None;
        } else if behind.segment == 0 && self.folds {
            self.state = Some(Queue::default());
        }
        let here = |snapshot: &&Boundary| snapshot.last == behind.last;
        let Some(snapshot) = self.sound.iter().find(here).copied() else { return };
        self.met.insert(snapshot.last);
        if (snapshot.segment, snapshot.length, snapshot.checksum) != (behind.segment, behind.length, behind.checksum) {
            let finding = Finding::new(Sort::Damage, file, Some(0), "expected a segment that follows the frame where the snapshot ends");
            self.found.findings.push(finding.meaning(format!("it and {} are not of one journal", self.store.name(snapshot.last))));
            return;
        }
        if !self.folds {
            return;
        }
        match Loading::begin(self.store, snapshot.last).and_then(Loading::finish) {
            Ok(Loaded { queue, .. }) => match &self.state {
                Some(state) if *state != queue => {
                    let finding = Finding::new(
                        Sort::Damage,
                        self.store.name(snapshot.last),
                        None,
                        "expected the state that the records before it come to",
                    );
                    self.found.findings.push(finding.meaning("this is no damage of the disk: please report it"));
                }
                Some(_) => {}
                None => self.state = Some(queue),
            },
            // It was sound a moment ago.
            Err(error) => self.found.findings.push(Finding::of_snapshot(&error)),
        }
    }

    fn batch(&mut self, batch: &Batch, offset: u64) {
        let found = &mut self.found;
        found.records += u64::from(batch.count);
        found.first.get_or_insert(batch.first);
        found.last = found.last.max(batch.last());
        found.written = Some(batch.time);
        let wrong = match &mut self.state {
            Some(state) => fold(state, batch).err().map(|error| error.to_string()),
            None => entries(batch).find_map(|entry| entry.err().map(|(seq, error)| format!("record {seq} cannot be decoded: {error}"))),
        };
        if let Some(wrong) = wrong {
            self.state = None;
            let finding = Finding::new(Sort::Damage, &self.file, Some(offset), wrong);
            found.findings.push(finding.meaning("its checksum is right: a bug or a newer release wrote this"));
        }
    }

    /// What is missing before the oldest sound snapshot was removed on purpose.
    fn missing(&mut self, number: u64, by: &str) {
        self.state = None;
        self.last_damage = None;
        let floor = self.sound.first().map_or(0, |snapshot| snapshot.segment);
        if number > floor {
            let expected = format!("expected this segment, which {by} follows");
            self.damaged(Finding::new(Sort::Damage, disk::numbered(number, SEGMENT), None, expected).meaning("it is missing"));
        }
    }

    fn damaged(&mut self, finding: Finding) {
        self.last_damage = Some(self.found.findings.len());
        self.found.findings.push(finding);
    }

    fn unreadable(&mut self, from: Seq, to: Seq) {
        let whose = if self.sound.iter().any(|snapshot| snapshot.last >= to) { "a" } else { "no sound" };
        let means = format!("{} cannot be read; {whose} snapshot stands for them", records(from, to));
        if let Some(last) = self.last_damage.take().and_then(|at| self.found.findings.get_mut(at)) {
            last.means = if last.means.is_empty() { means } else { format!("{}; {means}", last.means) };
        }
    }

    fn end(mut self, start: Result<Standing, String>) -> Inspection {
        let found = &mut self.found;
        // Behind a snapshot there is always a segment that begins there, and names it.
        for snapshot in &self.sound {
            let is_seen = self.met.contains(&snapshot.last) || found.first.is_some_and(|first| snapshot.last.next() < first);
            if !is_seen && found.sort() == Sort::Note {
                let expected = format!("expected a segment that begins at record {}, behind it", snapshot.last.next());
                found.findings.push(Finding::new(Sort::Damage, self.store.name(snapshot.last), None, expected));
            }
        }
        if self.sound.len() == 1 && found.first.is_some_and(|first| first > Seq(1)) && found.sort() == Sort::Note {
            let finding =
                Finding::new(Sort::Note, self.store.name(self.sound.first().map_or(Seq(0), |kept| kept.last)), None, "the only snapshot");
            found.findings.push(finding.meaning("the segments do not reach back to record 1, so that damage of it would lose what it holds; the next compaction makes another"));
        }
        found.start = start;
        self.found
    }
}

/// Some records by their numbers.
pub(crate) fn records(from: Seq, to: Seq) -> String {
    if from == to { format!("record {from}") } else { format!("records {from} to {to}") }
}

/// The records of a batch, each with its number, up to the first that cannot be decoded.
pub(crate) fn entries(batch: &Batch) -> impl Iterator<Item = Result<(Seq, Record), (Seq, Malformed)>> {
    let mut rest = &batch.body[..];
    let mut left = batch.count;
    let mut seq = batch.first;
    std::iter::from_fn(move || {
        if left == 0 {
            let is_over = rest.is_empty();
            rest = &[];
            return (!is_over).then_some(Err((seq, Malformed::Fields)));
        }
        left -= 1;
        let here = seq;
        seq = seq.next();
        Some(match record::decode(&mut rest) {
            Ok(record) => Ok((here, record)),
            Err(malformed) => {
                (left, rest) = (0, &[]);
                Err((here, malformed))
            }
        })
    })
}

/// A record as a part of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its number.
    pub seq: Seq,
    /// The time of its batch.
    pub time: Time,
    /// The epoch of its batch.
    pub epoch: Epoch,
    /// The ticket that an Enqueue gave out; none for other records, and when too much is missing before it to know.
    pub issued: Option<Ticket>,
    /// What it says.
    pub record: Record,
}

/// Shows every record that can be read, in order, until `see` answers that this is enough. Answers what is wrong with the segments and
/// with the snapshots.
///
/// # Errors
/// When the directory cannot be listed. Whatever else the disk refuses is a finding.
pub fn history(disk: &Arc<dyn Disk>, snapshots: &dyn SnapshotStore, see: &mut dyn FnMut(Event) -> bool) -> io::Result<Vec<Finding>> {
    let mut look = Look::begin(snapshots, false)?;
    let mut issued = None;
    survey(&**disk, &mut |sight| {
        let mut goes_on = true;
        match &sight {
            Sight::Batch { batch, .. } => {
                for (seq, record) in entries(batch).map_while(Result::ok) {
                    let issued = count_ticket(&mut issued, &record);
                    goes_on = goes_on && see(Event { seq, time: batch.time, epoch: batch.epoch, issued, record });
                }
            }
            Sight::Segment { behind, follows, .. } => issued = issued.filter(|_| *follows).or_else(|| look.issued_before(behind, *follows)),
            Sight::Wrong(_) => issued = None,
            Sight::Missing { .. } | Sight::Unreadable { .. } | Sight::End(_) | Sight::Torn { .. } => {}
        }
        look.at(sight);
        goes_on
    })?;
    Ok(look.found.findings)
}

/// The ticket that a record gives out, when it is known how many were given out before.
fn count_ticket(issued: &mut Option<u64>, record: &Record) -> Option<Ticket> {
    let Record::Op(Op::Enqueue { .. }) = record else { return None };
    *issued = issued.and_then(|count| count.checked_add(1));
    issued.map(Ticket)
}

impl Look<'_> {
    /// How many tickets were given out before a segment; none when that is not known.
    fn issued_before(&self, behind: &Boundary, follows: bool) -> Option<u64> {
        if follows && behind.segment == 0 {
            return Some(0);
        }
        let snapshot = self.sound.iter().find(|snapshot| snapshot.last == behind.last && snapshot.checksum == behind.checksum)?;
        let Loaded { queue, .. } = Loading::begin(self.store, snapshot.last).and_then(Loading::finish).ok()?;
        Some(queue.ends().total() + (queue.pending() + queue.running()) as u64)
    }
}
