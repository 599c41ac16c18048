//! The program, started again as another process that can be killed.
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context, ensure};

const SIGKILL: i32 = 9;

/// A worker process. It does not outlive this value, nor this process: it ends with the pipe that is its input.
pub(crate) struct Worker {
    process: Child,
    out: BufReader<ChildStdout>,
}

impl Worker {
    /// Starts this program with other arguments.
    pub(crate) fn start(arguments: &[&str]) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        let started = command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut process = started.context("failed to start a worker")?;
        let out = BufReader::new(process.stdout.take().context("its output is a pipe")?);
        Ok(Worker { process, out })
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// The next line that it prints; `None` when it has ended.
    pub(crate) fn line(&mut self) -> anyhow::Result<Option<String>> {
        let mut line = String::new();
        let read = self.out.read_line(&mut line)?;
        Ok((read > 0).then(|| line.trim_end().to_owned()))
    }

    /// Sends SIGKILL, and waits until the process is gone; gives what it had printed until then.
    pub(crate) fn kill(mut self) -> anyhow::Result<Vec<String>> {
        self.process.kill()?;
        let status = self.process.wait()?;
        ensure!(status.signal() == Some(SIGKILL), "worker {} was to die of SIGKILL, but ended with {status}", self.id());
        std::iter::from_fn(|| self.line().transpose()).collect()
    }

    /// Waits for its end, which must be a good one.
    pub(crate) fn end(mut self) -> anyhow::Result<()> {
        let status = self.process.wait()?;
        ensure!(status.success(), "worker {} ended with {status}", self.id());
        Ok(())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Fails when it is gone, as it should be.
        let _ = self.process.kill().and_then(|()| self.process.wait());
    }
}

/// Makes this process end with the one that started it.
pub(crate) fn end_with_parent() {
    std::thread::spawn(|| {
        // Nothing comes on this pipe. It ends when the process at its other end is gone.
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(1);
    });
}
