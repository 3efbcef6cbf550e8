//! A rig, not a test, as it kills processes, mounts file systems and takes minutes: real faults on a real program, which is this same
//! executable in another role ([`load`]). Run it with `cargo bench --bench faults`, or one part with `-- kills` and so on; it ends
//! with status 1 when a promise is broken. `JOURNEYMAN_FIGURES=release` asks for the counts that are shown before a release.
//!
//! What needs root, strace or faketime says so and is passed over for an ordinary user; where `CI` is set in the environment it
//! fails instead. The Debian packages are installed when root runs it.

mod books;
mod clocks;
#[path = "../../support/figures.rs"]
mod figures;
mod kills;
mod load;
mod mounts;
mod openers;
mod poison;
mod program;
mod refusals;
mod space;
mod syscalls;
mod tracing;

mod support {
    pub(crate) use crate::figures;
}

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

/// What a part comes to: nothing, or the first thing that did not hold.
type Held = Result<(), String>;

/// A part of the rig.
struct Part {
    name: &'static str,
    /// Goes through it in an empty directory.
    run: fn(&Path) -> Held,
}

const PARTS: [Part; 7] = [kills::PART, syscalls::PART, space::PART, refusals::PART, openers::PART, clocks::PART, poison::PART];

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    match args.next().as_deref() {
        Some("load") => return load::load(&load::Options::read(args)),
        Some("waits") => return clocks::role(&load::Options::read(args)),
        Some("audit") => return load::audit(&load::Options::read(args)),
        _ => {}
    }
    let wanted: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    if let Some(other) = wanted.iter().find(|name| PARTS.iter().all(|part| part.name != **name)) {
        eprintln!("there is no part {other}: {}", PARTS.map(|part| part.name).join(" "));
        return ExitCode::from(2);
    }
    let mut holds = true;
    for part in PARTS.iter().filter(|part| wanted.is_empty() || wanted.iter().any(|name| name == part.name)) {
        println!("{}", part.name);
        let dir = tempfile::tempdir().expect("a temporary directory");
        let began = Instant::now();
        if let Err(broken) = (part.run)(dir.path()) {
            println!("  BROKEN: {broken}");
            holds = false;
            let kept = dir.keep();
            println!("  its files are in {}", kept.display());
        }
        println!("  {} took {:.1} s", part.name, began.elapsed().as_secs_f64());
    }
    if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Whether this program is there; where it is not, says that its part is passed over, or fails where all has to be tried.
fn is_given(program: &str, package: &str) -> Result<bool, String> {
    if program::is_installed(program, package) {
        return Ok(true);
    }
    passed_over(&format!("what needs {program}"), &format!("the Debian package {package}"))?;
    Ok(false)
}

/// Says what is not tried for want of what; where `CI` is set, that is a failure.
fn passed_over(what: &str, wanting: &str) -> Held {
    if std::env::var_os("CI").is_some() {
        return Err(format!("{what} cannot be tried without {wanting}"));
    }
    println!("  passed over: {what}, for want of {wanting}");
    Ok(())
}

/// Chance, from a seed that is printed.
fn dice() -> fastrand::Rng {
    let seed = std::env::var("JOURNEYMAN_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| fastrand::u64(..));
    println!("  to see this again: JOURNEYMAN_SEED={seed}");
    fastrand::Rng::with_seed(seed)
}
