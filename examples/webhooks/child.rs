//! The child as its parent holds it: started, ordered, listened to, killed. Knows nothing of what is said.

use std::io;
use std::path::Path;
use std::process::{ExitStatus, Stdio};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{self, ChildStdin, ChildStdout, Command};

use crate::options::Options;
use crate::words::{Order, Said};

/// A child that runs. Dropped, it is killed.
pub(crate) struct Child {
    process: process::Child,
    orders: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Child {
    /// Starts this program again, as the sender.
    pub(crate) fn start(options: &Options, dir: &Path) -> io::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(options.for_the_sender(dir)).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn()?;
        let (orders, words) = process.stdin.take().zip(process.stdout.take()).ok_or_else(|| io::Error::other("no pipes"))?;
        Ok(Self { process, orders, lines: BufReader::new(words).lines() })
    }

    pub(crate) async fn order(&mut self, order: &Order) -> io::Result<()> {
        let mut line = serde_json::to_vec(order)?;
        line.push(b'\n');
        self.orders.write_all(&line).await
    }

    /// What it says next; none when it has ended. May be dropped and asked again without missing a word.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Said>> {
        match self.lines.next_line().await? {
            Some(line) => Ok(Some(serde_json::from_str(&line)?)),
            None => Ok(None),
        }
    }

    /// Kills it with SIGKILL, waits until it is gone, and answers what was still in the pipe. A line that the kill tore
    /// was not said.
    pub(crate) async fn kill(mut self) -> io::Result<Vec<Said>> {
        self.process.kill().await?;
        let mut rest = Vec::new();
        while let Some(line) = self.lines.next_line().await? {
            rest.extend(serde_json::from_str(&line).ok());
        }
        Ok(rest)
    }

    /// Waits for its end.
    pub(crate) async fn end(mut self) -> io::Result<ExitStatus> {
        self.process.wait().await
    }
}
