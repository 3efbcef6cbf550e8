//! What is left of a simulated disk when the power goes: what was durable, and any part of what was not.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use fastrand::Rng;

/// Files and their bytes; what did not change is shared.
pub(crate) type Files = BTreeMap<String, Arc<Vec<u8>>>;
pub(super) type Names = BTreeMap<String, usize>;

/// What is durable, and what might be: all that is left when the power goes.
#[derive(Clone, Default)]
pub(crate) struct Wreck {
    pub(super) files: Vec<Arc<Vec<u8>>>,
    pub(super) names: Names,
    /// Not synced, oldest first.
    pub(super) changes: Vec<Change>,
    pub(super) writes: Vec<Write>,
}

#[derive(Clone)]
pub(super) enum Change {
    Create { name: String, file: usize },
    Rename { from: String, to: String, file: usize },
    Remove { name: String },
}

#[derive(Clone)]
pub(super) struct Write {
    pub(super) file: usize,
    pub(super) offset: usize,
    pub(super) bytes: Arc<[u8]>,
}

impl Change {
    pub(super) fn apply(&self, names: &mut Names) {
        match self {
            Self::Create { name, file } => drop(names.insert(name.clone(), *file)),
            Self::Rename { from, to, file } => {
                // The old name may be another file's by now, when what came between has not survived.
                if names.get(from) == Some(file) {
                    names.remove(from);
                }
                names.insert(to.clone(), *file);
            }
            Self::Remove { name } => drop(names.remove(name)),
        }
    }
}

impl Write {
    /// The sectors of the file that it touches.
    fn sectors(&self) -> std::ops::Range<usize> {
        self.offset / SECTOR..(self.offset + self.bytes.len()).div_ceil(SECTOR)
    }

    /// Lays those of its sectors that survive, by their number in it.
    pub(super) fn lay(&self, file: &mut Vec<u8>, survives: impl Fn(usize) -> bool) {
        for (_, sector) in self.sectors().enumerate().filter(|(number, _)| survives(*number)) {
            let from = (sector * SECTOR).max(self.offset);
            let to = ((sector + 1) * SECTOR).min(self.offset + self.bytes.len());
            lay(file, from, &self.bytes[from - self.offset..to - self.offset]);
        }
    }
}

pub(super) fn lay(file: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    let end = offset + bytes.len();
    file.resize(file.len().max(end), 0);
    file[offset..end].copy_from_slice(bytes);
}

/// What of the unsynced survives.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Survivors {
    changes: Vec<bool>,
    sectors: Vec<Vec<bool>>,
    /// Whether files have the length that all writes together gave them, with zeros in the place of what is lost.
    grown: bool,
}

impl Wreck {
    /// The files that these survivors make.
    pub(crate) fn image(&self, survivors: &Survivors) -> Files {
        let mut names = self.names.clone();
        self.changes.iter().zip(&survivors.changes).filter(|(_, kept)| **kept).for_each(|(change, _)| change.apply(&mut names));
        let mut files = self.files.clone();
        for (write, kept) in self.writes.iter().zip(&survivors.sectors) {
            if survivors.grown {
                let end = write.offset + write.bytes.len();
                if files[write.file].len() < end {
                    Arc::make_mut(&mut files[write.file]).resize(end, 0);
                }
            }
            if kept.contains(&true) {
                write.lay(Arc::make_mut(&mut files[write.file]), |sector| kept[sector]);
            }
        }
        names.into_iter().map(|(name, file)| (name, files[file].clone())).collect()
    }

    fn all(&self, changes: bool, sectors: bool) -> Survivors {
        Survivors {
            changes: vec![changes; self.changes.len()],
            sectors: self.writes.iter().map(|write| vec![sectors; write.sectors().len()]).collect(),
            grown: false,
        }
    }

    /// What was not synced is gone.
    pub(crate) fn nothing(&self) -> Survivors {
        self.all(false, false)
    }

    /// Everything got there.
    pub(crate) fn everything(&self) -> Survivors {
        self.all(true, true)
    }

    pub(crate) fn by_chance(&self, dice: &mut Rng) -> Survivors {
        let mut survivors = self.nothing();
        // Each sector by itself is one way in which things get lost; whole writes are another.
        let coarse = dice.bool();
        for kept in &mut survivors.sectors {
            let whole = dice.bool();
            kept.iter_mut().for_each(|kept| *kept = if coarse { whole } else { dice.bool() });
        }
        survivors.changes.iter_mut().for_each(|kept| *kept = dice.bool());
        survivors.grown = dice.bool();
        survivors
    }

    /// What may survive: of the names every subset (of many: none, all, each beginning, each alone, each alone missing); with each
    /// of these, of the writes nothing, all, the last one alone, all but the last one, all but each page, all but each sector, the
    /// last one torn at each sector from either side, nothing in files that have grown, and so many subsets by chance. Each once.
    pub(crate) fn states(&self, by_chance: u64, dice: &mut Rng) -> Vec<Survivors> {
        let mut found = Distinct::default();
        for changes in self.subsets_of_changes() {
            let mut add = |mut survivors: Survivors| {
                survivors.changes.clone_from(&changes);
                found.add(survivors);
            };
            self.states_of_writes().into_iter().for_each(&mut add);
            if self.writes.is_empty() {
                continue;
            }
            (0..by_chance).for_each(|_| add(self.by_chance(dice)));
        }
        found.states
    }

    /// The coarse ones of them: nothing, everything, and so many by chance.
    pub(crate) fn few_states(&self, by_chance: u64, dice: &mut Rng) -> Vec<Survivors> {
        let mut found = Distinct::default();
        found.add(self.nothing());
        found.add(self.everything());
        (0..by_chance).for_each(|_| found.add(self.by_chance(dice)));
        found.states
    }

    fn subsets_of_changes(&self) -> Vec<Vec<bool>> {
        let many = self.changes.len();
        if many <= 5 {
            return (0..1_usize << many).map(|mask| (0..many).map(|n| mask & (1 << n) != 0).collect()).collect();
        }
        let mut subsets = vec![vec![false; many]];
        for n in 0..many {
            subsets.push((0..many).map(|other| other <= n).collect());
            subsets.push((0..many).map(|other| other == n).collect());
            subsets.push((0..many).map(|other| other != n).collect());
        }
        subsets
    }

    fn states_of_writes(&self) -> Vec<Survivors> {
        let (nothing, everything) = (self.nothing(), self.everything());
        let Some(last) = self.writes.len().checked_sub(1) else { return vec![nothing] };
        let mut states = vec![nothing.clone(), everything.clone(), Survivors { grown: true, ..nothing.clone() }];
        let mut only_last = nothing.clone();
        only_last.sectors[last].fill(true);
        let mut all_but_last = everything.clone();
        all_but_last.sectors[last].fill(false);
        states.push(only_last);
        for torn in 0..everything.sectors[last].len() {
            let mut beginning = all_but_last.clone();
            beginning.sectors[last][..torn].fill(true);
            let mut end = all_but_last.clone();
            end.sectors[last][torn..].fill(true);
            states.extend([beginning, end]);
        }
        states.push(all_but_last);
        let mut lost = HashSet::new();
        for (write, kept) in self.writes.iter().zip(&everything.sectors) {
            for (sector, _) in write.sectors().zip(kept) {
                for length in [SECTOR, PAGE] {
                    let first = sector * SECTOR / length * (length / SECTOR);
                    if lost.insert((write.file, first, length)) {
                        states.push(self.without(&everything, write.file, first..first + length / SECTOR));
                    }
                }
            }
        }
        states
    }

    /// All but what was to be written to these sectors of a file.
    fn without(&self, everything: &Survivors, file: usize, lost: std::ops::Range<usize>) -> Survivors {
        let mut survivors = everything.clone();
        for (write, kept) in self.writes.iter().zip(&mut survivors.sectors).filter(|(write, _)| write.file == file) {
            write.sectors().zip(kept).for_each(|(sector, kept)| *kept = !lost.contains(&sector));
        }
        survivors
    }
}

#[derive(Default)]
struct Distinct {
    seen: HashSet<Survivors>,
    states: Vec<Survivors>,
}

impl Distinct {
    fn add(&mut self, survivors: Survivors) {
        if self.seen.insert(survivors.clone()) {
            self.states.push(survivors);
        }
    }
}

const SECTOR: usize = 512;
const PAGE: usize = 4096;
