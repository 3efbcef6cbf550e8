//! Short scripts of all that a program does with its partition, and how they are played. Proves nothing by itself.

use crate::support::program::{Known, Program, Step};
use crate::support::sim::{SimDisk, Wreck};

use Step::{Append, Compact, Open, Rotate, Seal};

/// What a short script begins with, and the script.
pub(crate) struct Script {
    pub(crate) name: &'static str,
    pub(crate) before: &'static [Step],
    pub(crate) steps: &'static [Step],
}

pub(crate) const SCRIPTS: [Script; 11] = [
    Script { name: "first open", before: &[], steps: &[Open, Append(10), Append(700)] },
    Script { name: "append", before: &[Append(10)], steps: &[Append(1), Append(513), Append(1100), Append(4)] },
    Script { name: "append across a page", before: &[Append(1500)], steps: &[Append(2500), Append(30)] },
    Script { name: "rotation", before: &[Append(1500)], steps: &[Append(1400), Append(900), Rotate, Append(20)] },
    Script { name: "a batch larger than a segment", before: &[Append(10)], steps: &[Append(5000), Append(10)] },
    Script { name: "first snapshot", before: &[Append(700), Append(900), Append(200)], steps: &[Compact, Append(9)] },
    Script {
        name: "compaction and deletion of segments",
        before: &[Append(1800), Append(1900), Compact, Append(1700), Append(1600), Compact, Append(1500), Append(100)],
        steps: &[Compact, Append(9)],
    },
    Script { name: "recovery", before: &[Append(200), Append(600), Open], steps: &[Append(20), Append(700)] },
    Script { name: "recovery of a recovery", before: &[Append(300), Open, Append(10)], steps: &[Open, Append(40), Open, Append(50), Open] },
    Script { name: "seal", before: &[Append(300)], steps: &[Seal, Open, Append(20), Seal, Open, Open, Append(8)] },
    Script {
        name: "recovery behind a snapshot, and a compaction",
        before: &[Append(1800), Compact, Append(900), Open],
        steps: &[Append(300), Compact, Open, Append(10), Compact],
    },
];

/// Plays a script: what a crash may leave after each of its calls, and what is known there.
pub(crate) fn play(script: &Script) -> Played {
    let disk = SimDisk::default();
    let mut program = Program::begin(&disk, Known::default(), 0);
    program.live(script.before);
    disk.record();
    program.history = vec![(0, program.known.clone())];
    program.live(script.steps);
    assert_eq!(program.failures, 0, "{}", script.name);
    Played { wrecks: disk.recorded(), history: program.history, made: program.made }
}

pub(crate) struct Played {
    pub(crate) wrecks: Vec<Wreck>,
    pub(crate) history: Vec<(usize, Known)>,
    pub(crate) made: u64,
}
