//! SIGKILL at any moment (F1), and many times in a row while it starts (F21): a program under load is killed, started on the same
//! directory and killed again. What it acknowledged is there after each kill, what has ended stays away, attempts only rise.

use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::books::Books;
use crate::program::{self, Program};
use crate::support::figures::{figure, held};
use crate::{Held, Part};

pub(crate) const PART: Part = Part { name: "kills", run };

fn run(dir: &Path) -> Held {
    let mut dice = crate::dice();
    let mut round = Round { dir: dir.join("jobs"), books: Books::default(), number: 0 };
    let kills = figure(200, 2_000);
    let (mut compactions, mut running) = (0, 0);
    for _ in 0..kills {
        let found = round.kill(Duration::from_millis(dice.u64(20..=500)))?;
        compactions += u64::from(round.has_snapshot());
        running += found.live.values().filter(|job| job.is_running).count();
    }
    let acks = round.books.acks;
    round.finish()?;
    println!("  {acks} acknowledgements read, {running} attempts cut off, a snapshot there after {compactions} kills");
    held("F1", kills, "kills under load");
    if acks < kills || running == 0 || compactions == 0 {
        return Err("the load was too small to show anything".to_owned());
    }

    let rows = figure(5, 50);
    let mut round = Round { dir: dir.join("rows"), books: Books::default(), number: 0 };
    for _ in 0..rows {
        // Something to recover from.
        round.kill(Duration::from_millis(300))?;
        let before = program::audit(&round.dir)?.last;
        let mut after = before;
        for _ in 0..20 {
            after = round.kill(Duration::from_millis(dice.u64(5..=50)))?.last;
        }
        if after < before {
            return Err(format!("record {before} was there, and now only {after} are"));
        }
    }
    round.finish()?;
    held("F21", 20 * rows, "kills in rows of 20 at start");
    Ok(())
}

struct Round {
    dir: std::path::PathBuf,
    books: Books,
    number: u64,
}

impl Round {
    /// Starts the program, kills it after a while, and compares.
    fn kill(&mut self, after: Duration) -> Result<crate::books::Found, String> {
        self.number += 1;
        let name = format!("run=k{}", self.number);
        let program = Program::start(program::role("load", &self.dir, &[&name, ROOM]));
        thread::sleep(after);
        let ended = program.kill();
        self.compare(&ended.lines)?;
        if !ended.was_killed() {
            return Err(format!("it ended by itself: {:?} {:?} {}", ended.status, ended.lines.last(), ended.stderr));
        }
        if !self.dir.exists() {
            return Ok(Default::default());
        }
        let before = self.number.is_multiple_of(10).then(|| program::picture(&self.dir));
        let found = program::audit(&self.dir)?;
        if before.is_some_and(|before| before != program::picture(&self.dir)) {
            return Err("reading the directory has changed it".to_owned());
        }
        self.books.audit(&found);
        self.judge()?;
        Ok(found)
    }

    fn compare(&mut self, lines: &[String]) -> Result<(), String> {
        lines.iter().for_each(|line| self.books.hear(line));
        self.books.process_ended();
        self.judge()
    }

    fn judge(&self) -> Result<(), String> {
        self.books.judge().map_err(|broken| format!("after kill {}: {broken}", self.number))
    }

    /// The last start is not killed: everything ends.
    fn finish(&mut self) -> Result<(), String> {
        let options = ["run=last", "clients=1", "count=10", "finish=true", ROOM];
        let ended = Program::start(program::role("load", &self.dir, &options)).end();
        self.compare(&ended.lines)?;
        if !ended.status.success() || !ended.said("idle") || !ended.said("stopped") {
            return Err(format!("no orderly end: {:?} {:?} {}", ended.status, ended.lines.last(), ended.stderr));
        }
        let found = program::audit(&self.dir)?;
        self.books.audit(&found);
        self.judge()?;
        if found.live.is_empty() { Ok(()) } else { Err(format!("{} jobs are left", found.live.len())) }
    }

    fn has_snapshot(&self) -> bool {
        let names = std::fs::read_dir(&self.dir).into_iter().flatten().flatten();
        names.map(|entry| program::text(entry.file_name())).any(|name| name.ends_with(".sled") || name.ends_with(".snapshot"))
    }
}

/// Enough for some lives to pass until a compaction gets through.
const ROOM: &str = "journal_kib=1024";
