//! This program once more, as a process that can be killed, or that has its own memory and its own books.

use std::io::{BufRead, BufReader, Read};
use std::process::{ChildStdout, Command, Stdio};
use std::thread::JoinHandle;

use crate::Fallible;
use crate::asked::{Asked, Workload};

/// One that says something to us. It is killed when nobody waits for its end.
pub(crate) struct Child {
    process: std::process::Child,
    says: Option<BufReader<ChildStdout>>,
}

impl Child {
    pub(crate) fn start(workload: Workload, asked: &Asked) -> Fallible<Self> {
        let mut process = command(workload, asked)?.arg("--keep").stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let says = process.stdout.take().map(BufReader::new);
        Ok(Self { process, says })
    }

    /// So many numbers, on the next line that it says.
    pub(crate) fn numbers(&mut self, count: usize) -> Fallible<Vec<f64>> {
        let mut line = String::new();
        self.says.as_mut().ok_or("its output was given away")?.read_line(&mut line)?;
        let numbers: Vec<f64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        if numbers.len() == count { Ok(numbers) } else { Err(format!("a process said {line:?}").into()) }
    }

    /// Reads everything that it says until its end.
    pub(crate) fn reads_on(&mut self) -> JoinHandle<std::io::Result<Vec<u8>>> {
        let says = self.says.take();
        std::thread::spawn(move || {
            let mut all = Vec::new();
            says.map_or(Ok(0), |mut says| says.read_to_end(&mut all))?;
            Ok(all)
        })
    }

    /// By SIGKILL.
    pub(crate) fn kill(&mut self) -> Fallible<()> {
        self.process.kill()?;
        self.process.wait()?;
        Ok(())
    }

    pub(crate) fn wait(&mut self) -> Fallible<()> {
        let status = self.process.wait()?;
        if status.success() { Ok(()) } else { Err(format!("a process ended with {status}").into()) }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

/// Runs a workload in a process of its own, which prints its line itself. What the options say comes last and counts.
pub(crate) fn to_the_end(workload: Workload, asked: &Asked, options: &[&str]) -> Fallible<()> {
    let mut command = command(workload, asked)?;
    if asked.keep && !options.contains(&"--keep") {
        command.arg("--keep");
    }
    let status = command.args(options).status()?;
    if status.success() { Ok(()) } else { Err(format!("{} ended with {status}", workload.name()).into()) }
}

fn command(workload: Workload, asked: &Asked) -> Fallible<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(workload.name()).args(asked.options());
    Ok(command)
}
