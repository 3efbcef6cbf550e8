//! A rig, not a test, as it takes minutes: how fast it is, against gates that hold on a busy machine. Counters first, then CPU time per
//! job, then ratios of slices that alternate with a probe of the disk in the same seconds; no gate is an absolute time of the real
//! disk. Where callers have to wait for one another's syncs, the disk is memory with a pause of 1 ms for each sync.
//!
//! Run it with `cargo bench --bench targets`, with names of rows to run only those; it ends with status 1 when a gate is missed. What
//! the rows mean is in docs/benchmarks.md.

mod compaction;
mod disk;
mod load;
mod memory;
mod rows;
mod waiting;

use std::process::ExitCode;

/// One line of the table.
pub(crate) struct Line {
    pub target: &'static str,
    pub figure: f64,
    pub unit: &'static str,
    pub bound: Bound,
}

/// What a figure is held against. The second number is what to go for.
#[derive(Clone, Copy)]
pub(crate) enum Bound {
    AtLeast(f64, f64),
    AtMost(f64, f64),
    /// Told, and never a reason to fail.
    Report,
}

impl Line {
    fn holds(&self) -> bool {
        match self.bound {
            Bound::AtLeast(gate, _) => self.figure >= gate,
            Bound::AtMost(gate, _) => self.figure <= gate,
            Bound::Report => true,
        }
    }

    fn reaches_its_goal(&self) -> bool {
        match self.bound {
            Bound::AtLeast(_, goal) => self.figure >= goal,
            Bound::AtMost(_, goal) => self.figure <= goal,
            Bound::Report => false,
        }
    }

    fn print(&self, row: &str) {
        let target = match self.bound {
            Bound::AtLeast(gate, goal) => format!(">= {gate}, go for {goal}"),
            Bound::AtMost(gate, goal) => format!("<= {gate}, go for {goal}"),
            Bound::Report => "report".to_owned(),
        };
        let verdict = match (self.holds(), self.reaches_its_goal()) {
            (false, _) => "FAIL",
            (true, true) => "pass, goal reached",
            (true, false) if matches!(self.bound, Bound::Report) => "",
            (true, false) => "pass",
        };
        println!("{row:4} {:62} {:>12} {:14} {target:28} {verdict}", self.target, number(self.figure), self.unit);
    }
}

fn number(figure: f64) -> String {
    if figure >= 1000.0 { format!("{figure:.0}") } else { format!("{figure:.2}") }
}

type Row = (&'static str, fn() -> Vec<Line>);

const ROWS: [Row; 17] = [
    ("1", rows::records_per_sync),
    ("2", rows::syncs_per_job),
    ("3", rows::enqueue_64),
    ("4", rows::enqueue_many),
    ("5", rows::enqueue_alone),
    ("6", rows::end_to_end),
    ("7", rows::end_to_end_simulated),
    ("8", rows::against_strict),
    ("9", rows::cpu_per_job),
    ("10", rows::replay),
    ("11", memory::per_waiting_job),
    ("12", waiting::due_rate),
    ("13", rows::flood),
    ("14", compaction::latency),
    ("15", compaction::longest_turn),
    ("16", rows::wakes),
    ("17", rows::bytes_per_job),
];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    if let Some(("role", role)) = words.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        memory::play(role);
        return ExitCode::SUCCESS;
    }
    if let Some(other) = words.iter().find(|word| ROWS.iter().all(|(name, _)| name != word)) {
        eprintln!("there is no row {other}: 1 to {}", ROWS.len());
        return ExitCode::from(2);
    }
    let (mut missed, mut reached, mut gates) = (0, 0, 0);
    for (row, measure) in ROWS.iter().filter(|(name, _)| words.is_empty() || words.iter().any(|word| word == name)) {
        for line in measure() {
            line.print(row);
            missed += u32::from(!line.holds());
            reached += u32::from(line.reaches_its_goal());
            gates += u32::from(!matches!(line.bound, Bound::Report));
        }
    }
    println!("{gates} gates, {missed} missed; {reached} goals reached");
    if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
