//! A rig, not a test, as it needs root and takes minutes: power cuts, and disks whose syncs fail, with the real kernel under a real program,
//! which is this same executable in the role `load`. It ends with status 1 when something that was acknowledged is lost.
//!
//! ```text
//! cargo bench --bench power_cuts
//! RUSTC_WORKSPACE_WRAPPER=.ci/with-bugs cargo bench --bench power_cuts -- control
//! ```
//!
//! | part | it shows |
//! |---|---|
//! | `ext4`, `xfs` | power cuts (F3): all that was acknowledged is there, with journal and snapshots in every state |
//! | `device` | a disk that fails for a while or for good (F11) |
//! | `full` | a disk that is full, as a sync finds out (F14) |
//! | `control` | that the cuts find a journal without its sync, and a snapshot without its own: in a build that can be told to have these bugs |
//!
//! All but `control` are run when none is named. Everything is mounted in a namespace of this process, and gone with it. Without root it
//! says why it does nothing; where `CI` is set in the environment that is a failure. `JOURNEYMAN_FIGURES=release` asks for the counts
//! that are shown before a release, `JOURNEYMAN_SEED` for the choices of another run.

#[path = "../faults/books.rs"]
mod books;
mod cuts;
mod device;
mod failing;
#[path = "../../support/figures.rs"]
mod figures;
#[path = "../faults/load.rs"]
mod load;
mod place;
#[path = "../faults/program.rs"]
mod program;
mod syncs;
mod trace;

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use cuts::Moment;
use device::Kind;
use figures::{figure, held};
use place::{Place, Result};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    match arguments.next().as_deref() {
        Some("load") => return load::load(&load::Options::read(arguments)),
        Some(MARK) => {}
        _ => return enter(),
    }
    let wanted: Vec<String> = arguments.filter(|argument| !argument.starts_with("--")).collect();
    if let Some(other) = wanted.iter().find(|name| PARTS.iter().all(|part| part.name != **name)) {
        eprintln!("there is no part {other}: {}", PARTS.map(|part| part.name).join(" "));
        return ExitCode::from(2);
    }
    let is_wanted = |part: &&Part| if wanted.is_empty() { part.name != CONTROL } else { wanted.iter().any(|name| name == part.name) };
    let mut holds = true;
    for part in PARTS.iter().filter(is_wanted) {
        println!("{}", part.name);
        let began = Instant::now();
        if let Err(broken) = Place::new().and_then(|place| (part.run)(place.dir())) {
            println!("  BROKEN: {broken}");
            holds = false;
        }
        println!("  {} took {:.1} s", part.name, began.elapsed().as_secs_f64());
    }
    if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Goes on in a place of its own, if it can run here at all.
fn enter() -> ExitCode {
    match place::missing() {
        None => {
            eprintln!("{}", place::enter(MARK));
            ExitCode::FAILURE
        }
        Some(why) if std::env::var_os("CI").is_some() => {
            eprintln!("the rig power_cuts cannot run: {why}");
            ExitCode::FAILURE
        }
        Some(why) => {
            println!("the rig power_cuts does nothing here: {why}");
            ExitCode::SUCCESS
        }
    }
}

struct Part {
    name: &'static str,
    /// Goes through it in an empty directory.
    run: fn(&Path) -> Result<()>,
}

const PARTS: [Part; 5] = [
    Part { name: "ext4", run: |dir| power_cuts(dir, Kind::Ext4, figure(60, 500)) },
    Part { name: "xfs", run: |dir| power_cuts(dir, Kind::Xfs, figure(20, 100)) },
    Part { name: "device", run: device_fails },
    Part { name: "full", run: device_is_full },
    Part { name: CONTROL, run: control },
];

fn power_cuts(dir: &Path, kind: Kind, count: u64) -> Result<()> {
    let seen = cuts::cuts(dir, kind, count, &mut dice())?;
    println!("  {seen}");
    if !seen.is_enough() {
        return Err("the cuts did not come upon all that they are for".into());
    }
    held("F3", count, &format!("power cuts of {}", kind.name()));
    Ok(())
}

fn device_fails(dir: &Path) -> Result<()> {
    let (passing, lasting) = (figure(4, 20), figure(3, 15));
    let mut tally = syncs::Tally::default();
    for _ in 0..passing {
        syncs::passing(dir, &mut tally)?;
    }
    for _ in 0..lasting {
        syncs::lasting(dir, &mut tally)?;
    }
    println!(
        "  {} acknowledgements, {} failed syncs ({:?}), {} runners went on",
        tally.acks, tally.failed_syncs, tally.errors, tally.went_on
    );
    if tally.went_on == 0 {
        return Err("no runner went on after a failure that passed".into());
    }
    held("F11", passing + lasting, "disks that fail, caches dropped");
    Ok(())
}

fn device_is_full(dir: &Path) -> Result<()> {
    let count = figure(3, 15);
    let mut tally = syncs::Tally::default();
    for _ in 0..count {
        syncs::full(dir, &mut tally)?;
    }
    println!("  {} acknowledgements, {} failed syncs ({:?})", tally.acks, tally.failed_syncs, tally.errors);
    held("F14", count, "disks without room, as a sync finds out");
    Ok(())
}

/// That the cuts would find what they are for: each bug loses something in half of them at least.
fn control(dir: &Path) -> Result<()> {
    if !cfg!(seeded_bugs) {
        return Err("this build cannot be told to have bugs: RUSTC_WORKSPACE_WRAPPER=.ci/with-bugs".into());
    }
    let (count, mut dice) = (figure(10, 50), dice());
    let soon = |dice: &mut fastrand::Rng| Moment::Acks(dice.usize(20..200));
    // By then the segments that the first snapshots stand for are gone.
    let compacted = |_: &mut fastrand::Rng| Moment::Published(4, Duration::from_millis(5));
    let unsynced = cuts::with_bug(dir, "no_data_sync", soon, count, &mut dice)?;
    let unsealed = cuts::with_bug(dir, "no_snapshot_sync", compacted, count, &mut dice)?;
    let sound = cuts::with_bug(dir, "", compacted, count, &mut dice)?;
    println!(
        "  lost in {unsynced} of {count} cuts without the sync of the journal, in {unsealed} without that of snapshots, in {sound} with both"
    );
    if 2 * unsynced.min(unsealed) < count || sound > 0 {
        return Err("a bug that loses jobs was not found".into());
    }
    println!("F3: {} cuts with seeded bugs, {} found", 2 * count, unsynced + unsealed);
    Ok(())
}

/// Chance, from a seed that is printed. Processes and disks have their own, so that a seed gives the same choices and not the same run.
fn dice() -> fastrand::Rng {
    let seed = std::env::var("JOURNEYMAN_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| fastrand::u64(..));
    println!("  choices as in JOURNEYMAN_SEED={seed}");
    fastrand::Rng::with_seed(seed)
}

/// The first argument of this program when it is where it works.
const MARK: &str = "--in-its-own-place";
const CONTROL: &str = "control";
