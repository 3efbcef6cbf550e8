//! Syncs that fail (F11, F14), on the real kernel: it marks the pages that it could not write as clean, so that a second sync says that
//! all is well and a reader finds the bytes, until the cache is dropped. What was acknowledged has to be on the disk itself; and a
//! file whose sync failed is never synced again.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::books::Books;
use crate::cuts::{LARGE, keep};
use crate::device::{Device, Kind};
use crate::failing::Failing;
use crate::place::{Result, bound, run, sparse, unmount};
use crate::program::{self, Program};
use crate::trace::{self, Trace};

/// Errors that come once and pass: the runner reopens beside them and goes on.
pub(crate) fn passing(place: &Path, tally: &mut Tally) -> Result<()> {
    let failing = Failing::new(place, BYTES)?;
    let mut device = Device::over(failing.image(), place)?;
    // No commit of the file system's own in between: it would take the file system down, and with it what is to be seen.
    device.mount("loop,commit=600")?;
    let mut life = Life::new(&device, place);
    let mut program = life.start("run=passing")?;
    wait("acknowledgements", || Ok(acks(&mut program)? >= 50))?;
    failing.fail()?;
    let failed = wait("a failed sync", || Ok(life.trace()?.failed().count() > 0));
    failing.mend()?;
    failed?;
    let before = acks(&mut program)?;
    // A file system that has lost its own log is read-only until it is mounted again.
    let goes_on = wait("more acknowledgements", || Ok(acks(&mut program)? >= before + 50)).is_ok();
    tally.went_on += u64::from(goes_on);
    life.end(program, tally)?;
    life.judge("with the cache dropped")?;
    device.unmount()?;
    device.mount("loop")?;
    life.judge("mounted again")?;
    life.goes_on()
}

/// Errors that stay: after them there is no acknowledgement.
pub(crate) fn lasting(place: &Path, tally: &mut Tally) -> Result<()> {
    let failing = Failing::new(place, BYTES)?;
    let mut device = Device::over(failing.image(), place)?;
    device.mount("loop,commit=600")?;
    let mut life = Life::new(&device, place);
    let mut program = life.start("run=lasting")?;
    wait("acknowledgements", || Ok(acks(&mut program)? >= 50))?;
    failing.fail()?;
    let silent = life.is_silent_after_failure(&mut program);
    failing.mend()?;
    silent?;
    life.end(program, tally)?;
    device.unmount()?;
    device.mount("loop")?;
    life.judge("mounted again")?;
    life.goes_on()
}

/// A disk that promised more room than it has: that there is none is heard when a file is synced, long after the write.
pub(crate) fn full(place: &Path, tally: &mut Tally) -> Result<()> {
    let thin = Thin::new(place)?;
    let mut device = Device::over(thin.image(), place)?;
    device.mount("loop")?;
    let mut life = Life::new(&device, place);
    let mut program = life.start("run=full")?;
    wait("acknowledgements", || Ok(acks(&mut program)? >= 50))?;
    thin.fill()?;
    life.is_silent_after_failure(&mut program)?;
    thin.make_room()?;
    life.end(program, tally)?;
    device.unmount()?;
    device.mount("loop")?;
    life.judge("mounted again")?;
    life.goes_on()
}

/// What the failures came upon.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) failed_syncs: u64,
    pub(crate) went_on: u64,
    pub(crate) acks: u64,
    pub(crate) errors: std::collections::BTreeSet<String>,
}

/// One directory on a disk with its failures.
struct Life {
    dir: PathBuf,
    traced: PathBuf,
    books: Books,
}

impl Life {
    fn new(device: &Device, place: &Path) -> Self {
        let traced = place.join("trace");
        // That of the life before.
        let _ = fs::remove_file(&traced);
        Self { dir: device.at().join("jobs"), traced, books: Books::default() }
    }

    fn start(&self, run: &str) -> Result<Program> {
        let mut command = bound("strace");
        // With -D the program is our child, and the one who watches goes when it does.
        command.arg("-D").args(trace::arguments(&self.traced)).arg("--").arg(program::own()).arg("load").arg(&self.dir);
        command.arg(run).args(LARGE);
        Ok(Program::start(command))
    }

    fn trace(&self) -> Result<Trace> {
        Trace::read(&self.traced)
    }

    /// Waits for the first failed sync, lets what was on its way come out, and sees that nothing is acknowledged from then on.
    fn is_silent_after_failure(&self, program: &mut Program) -> Result<()> {
        wait("a failed sync", || Ok(self.trace()?.failed().count() > 0))?;
        thread::sleep(ON_ITS_WAY);
        let before = acks(program)?;
        thread::sleep(SILENCE);
        match acks(program)? - before {
            0 => Ok(()),
            more => Err(format!("{more} acknowledgements after the sync had failed").into()),
        }
    }

    /// Ends the program, takes down all that it said, looks at its syncs, and drops what the kernel remembers of the disk.
    fn end(&mut self, program: Program, tally: &mut Tally) -> Result<()> {
        let ended = program.kill();
        ended.lines.iter().for_each(|line| self.books.hear(line));
        let trace = self.trace()?;
        if let Some(file) = trace.retried() {
            return Err(format!("{} was synced again after its sync had failed", file.display()).into());
        }
        tally.failed_syncs += trace.failed().count() as u64;
        tally.errors.extend(trace.failed().filter_map(|sync| sync.error.clone()));
        tally.acks += self.books.acks;
        Ok(fs::write("/proc/sys/vm/drop_caches", "3")?)
    }

    fn judge(&mut self, when: &str) -> Result<()> {
        let kept = || keep(&self.dir);
        let found =
            program::audit(&self.dir).map_err(|error| format!("{when} it cannot be opened: {error}; the files are in {}", kept()))?;
        self.books.audit(&found);
        Ok(self.books.judge().map_err(|wrong| format!("{when}: {wrong}; the files are in {}", kept()))?)
    }

    /// Nobody has to mend anything: the next start goes on to the end of all jobs.
    fn goes_on(mut self) -> Result<()> {
        let mut command = Command::new(program::own());
        command.arg("load").arg(&self.dir).args(LARGE).args(["run=last", "clients=1", "count=5", "finish=true"]);
        let ended = Program::start(command).end();
        ended.lines.iter().for_each(|line| self.books.hear(line));
        if !ended.status.success() || !ended.said("idle") || !ended.said("stopped") {
            return Err(format!("no orderly end: {:?} {:?} {}", ended.status, ended.lines.last(), ended.stderr).into());
        }
        self.judge("in the end")
    }
}

/// A file system on an image in a place that is too small for it.
struct Thin {
    dir: PathBuf,
}

impl Thin {
    fn new(place: &Path) -> Result<Self> {
        let dir = place.join("thin");
        fs::create_dir_all(&dir)?;
        run("mount", ["-t".as_ref(), "tmpfs".as_ref(), "-o".as_ref(), "size=32m".as_ref(), "thin".as_ref(), dir.as_os_str()])?;
        let thin = Self { dir };
        Kind::Ext4.make(&sparse(thin.image(), BYTES)?)?;
        Ok(thin)
    }

    fn image(&self) -> PathBuf {
        self.dir.join("image")
    }

    /// Takes all the room that is left.
    fn fill(&self) -> Result<()> {
        let room = rustix::fs::statvfs(&self.dir)?;
        let room = usize::try_from(room.f_bavail * room.f_frsize)?;
        // The image may take some of it meanwhile: it is full all the same.
        let _ = fs::write(self.filler(), vec![1; room]);
        Ok(())
    }

    fn make_room(&self) -> Result<()> {
        Ok(fs::remove_file(self.filler())?)
    }

    fn filler(&self) -> PathBuf {
        self.dir.join("filler")
    }
}

impl Drop for Thin {
    fn drop(&mut self) {
        if let Err(error) = unmount(&self.dir) {
            eprintln!("left to the end of the process: {error}");
        }
    }
}

fn acks(program: &mut Program) -> Result<usize> {
    Ok(program.heard().iter().filter(|line| line.starts_with("ack ")).count())
}

/// Waits for something that has to come.
fn wait(what: &str, mut is_there: impl FnMut() -> Result<bool>) -> Result<()> {
    let began = Instant::now();
    while !is_there()? {
        if began.elapsed() > PATIENCE {
            return Err(format!("no {what} in {PATIENCE:?}").into());
        }
        thread::sleep(LOOK);
    }
    Ok(())
}

/// Of the disks that fail.
const BYTES: u64 = 64 << 20;
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(2);
/// What was durable before the failure may take so long to be heard.
const ON_ITS_WAY: Duration = Duration::from_millis(300);
const SILENCE: Duration = Duration::from_millis(700);
