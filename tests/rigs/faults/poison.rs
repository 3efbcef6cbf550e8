//! Jobs that are poison (S18, F28): one that takes the process with it, by an abort or by using up the stack, is begun anew by each start until
//! its attempts are spent, and no longer; so is one that panics and one that never ends, within one process. The others go on.

use std::path::Path;

use crate::books::Books;
use crate::program::{self, Program};
use crate::support::figures::held;
use crate::{Held, Part};

pub(crate) const PART: Part = Part { name: "poison", run };

fn run(dir: &Path) -> Held {
    for (name, plan) in [("abort", r#"["Aborts"]"#), ("overflow", r#"["Overflows"]"#)] {
        let deaths = deadly(&dir.join(name), plan)?;
        println!("  {name}: {deaths} processes died of it");
    }
    held("S18", 2, "jobs that killed their process, each parked after its 3 attempts");
    let jobs = within_a_process(&dir.join("within"))?;
    held("F28", jobs + 2, "poison jobs (abort, stack overflow, panic, no end) that ended as spent beside others that were done");
    Ok(())
}

/// Starts again until no process dies any more; answers how many did.
fn deadly(dir: &Path, plan: &str) -> Result<u32, String> {
    let mut books = Books::default();
    let first = format!("first={plan}");
    for start in 0..=ATTEMPTS + 1 {
        let run = format!("run=p{start}");
        let mut options = vec!["clients=2", "count=20", "finish=true", "fill=100", &run];
        if start == 0 {
            options.push(&first);
        }
        let ended = Program::start(program::role("load", dir, &options)).end();
        ended.lines.iter().for_each(|line| books.hear(line));
        books.process_ended();
        books.judge()?;
        if !ended.status.success() {
            if start >= ATTEMPTS {
                return Err(format!("it kills the process in start {} still: {ended:?}", start + 1));
            }
            books.audit(&program::audit(dir)?);
            books.judge()?;
            continue;
        }
        let found = program::audit(dir)?;
        books.audit(&found);
        books.judge()?;
        let poison = ended.lines.iter().filter(|line| line.ends_with(" Spent")).count();
        return match (found.live.len(), start, ended.said("idle")) {
            (0, ATTEMPTS, true) if poison > 0 && found.ends.done > 0 => Ok(start),
            _ => Err(format!("after {start} deaths: {found:?} {:?}", ended.lines)),
        };
    }
    Err("every start was the last".to_owned())
}

/// Those that harm nobody but themselves.
fn within_a_process(dir: &Path) -> Result<u64, String> {
    let mut books = Books::default();
    let options = ["clients=2", "count=20", "finish=true", "fill=100", r#"first=["Panics","Hangs","Panics","Hangs"]"#];
    let ended = Program::start(program::role("load", dir, &options)).end();
    ended.lines.iter().for_each(|line| books.hear(line));
    let found = program::audit(dir)?;
    books.audit(&found);
    books.judge()?;
    let runs = |id: &str| ended.lines.iter().filter(|line| line.starts_with(&format!("run {id} "))).count() as u32;
    // The first four acknowledgements of the first client are somewhere among the first tickets.
    let spent: Vec<&str> = ended.lines.iter().filter_map(|line| line.strip_prefix("end ")?.strip_suffix(" Spent")).collect();
    if !ended.status.success() || !ended.said("idle") || !found.live.is_empty() || spent.len() < 4 || found.ends.done == 0 {
        return Err(format!("{} spent, {:?}: {ended:?}", spent.len(), found.ends));
    }
    if let Some(id) = spent.iter().find(|id| runs(id) != ATTEMPTS) {
        return Err(format!("{id} ended as spent after {} attempts", runs(id)));
    }
    let panics = ended.stderr.matches("told to panic").count();
    if panics < 6 { Err(format!("{panics} panics: {}", ended.stderr)) } else { Ok(4) }
}

/// What a poison job may be attempted: [`crate::load::Plan::limit`].
const ATTEMPTS: u32 = 3;
