//! What the clients know, what the notebook has, and what the directory says: compared after each round. Reads only.

use std::collections::{HashMap, HashSet};
use std::error::Error;
use std::fmt;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;

use journeyman_core::JobId;
use journeyman_core::disk::{Disk, FileDisk};
use journeyman_core::store::Store;

use crate::clients::Acknowledged;

#[derive(Default)]
pub(crate) struct Books {
    /// By id, the key that it was acknowledged for.
    known: HashMap<JobId, String>,
    /// Those of the known that are not in the notebook yet.
    open: HashSet<JobId>,
    /// Ids and keys that are in the notebook.
    ids: HashSet<JobId>,
    keys: HashSet<String>,
    read: u64,
    tally: Tally,
}

/// What is to be told in the end, summed over the rounds.
#[derive(Default)]
struct Tally {
    found_done: u64,
    found_waiting: u64,
    /// All of these must be none.
    lost: u64,
    written_twice: u64,
    written_in_a_later_attempt: u64,
    waiting_with_a_failure: u64,
    left_running: u64,
    done_and_waiting: u64,
}

impl Books {
    pub(crate) fn round(&mut self, dir: &Path, acknowledged: Vec<Acknowledged>) -> Result<(), Box<dyn Error>> {
        self.read_the_notebook(dir)?;
        for Acknowledged { key, id } in acknowledged {
            self.open.insert(id);
            self.known.insert(id, key);
        }
        let waiting = self.read_the_directory(dir)?;
        let (ids, tally) = (&self.ids, &mut self.tally);
        self.open.retain(|id| match (ids.contains(id), waiting.contains(id)) {
            (true, _) => {
                tally.found_done += 1;
                false
            }
            (false, true) => {
                tally.found_waiting += 1;
                true
            }
            (false, false) => {
                tally.lost += 1;
                false
            }
        });
        Ok(())
    }

    /// In the end nothing waits: everything that was acknowledged is in the notebook, under its own key.
    pub(crate) fn close(&mut self, dir: &Path) -> Result<(), Box<dyn Error>> {
        self.round(dir, Vec::new())?;
        self.tally.lost += self.known.values().filter(|key| !self.keys.contains(*key)).count() as u64;
        self.tally.lost += self.open.len() as u64;
        Ok(())
    }

    pub(crate) const fn broken(&self) -> bool {
        let Tally { lost, written_twice, written_in_a_later_attempt, waiting_with_a_failure, left_running, done_and_waiting, .. } =
            self.tally;
        lost + written_twice + written_in_a_later_attempt + waiting_with_a_failure + left_running + done_and_waiting > 0
    }

    /// What was written since the last time: `0-1 in attempt 1: KEY`.
    fn read_the_notebook(&mut self, dir: &Path) -> Result<(), Box<dyn Error>> {
        let mut file = File::open(dir.join("notebook.txt"))?;
        file.seek(SeekFrom::Start(self.read))?;
        let mut text = String::new();
        self.read += file.read_to_string(&mut text)? as u64;
        for line in text.lines() {
            let (id, rest) = line.split_once(" in attempt ").ok_or("a note says who wrote it")?;
            let (attempt, key) = rest.split_once(": ").ok_or("a note has a text")?;
            self.tally.written_in_a_later_attempt += u64::from(attempt != "1");
            let is_new = (self.ids.insert(id.parse()?), self.keys.insert(key.to_owned()));
            self.tally.written_twice += u64::from(is_new != (true, true));
        }
        Ok(())
    }

    /// The jobs that wait, as a start would find them.
    fn read_the_directory(&mut self, dir: &Path) -> Result<HashSet<JobId>, Box<dyn Error>> {
        let dir = dir.join("jobs");
        let disk: Arc<dyn Disk> = Arc::new(FileDisk::open(&dir)?);
        let store = Store::open(disk.clone(), &*journeyman::snapshots::store(&dir, disk))?;
        let mut waiting = HashSet::new();
        for (ticket, live) in store.queue.tickets() {
            let id = JobId::of(ticket);
            self.tally.left_running += u64::from(live.is_running());
            self.tally.waiting_with_a_failure += u64::from(live.failures() > 0);
            self.tally.done_and_waiting += u64::from(self.ids.contains(&id));
            waiting.insert(id);
        }
        Ok(waiting)
    }
}

impl fmt::Display for Books {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tally { found_done, found_waiting, lost, written_twice, .. } = self.tally;
        let Tally { written_in_a_later_attempt, waiting_with_a_failure, left_running, done_and_waiting, .. } = self.tally;
        writeln!(f, "after each stop: found done {found_done} in all, found waiting {found_waiting} times; lost {lost} (at most 0)")?;
        write!(f, "written twice {written_twice}, in a later attempt {written_in_a_later_attempt}, waiting with a failure ")?;
        write!(f, "{waiting_with_a_failure}, left running {left_running}, done and waiting {done_and_waiting} (each at most 0)")
    }
}
