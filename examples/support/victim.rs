//! This program as a second process, which is killed in the middle of its work.
#![allow(dead_code, reason = "each program uses its part of this")]
use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};

/// Interval at which the process is checked.
const LOOK: Duration = Duration::from_millis(5);

/// Process that ends with this value and with this process, because it ends when its standard input
/// does.
pub(crate) struct Victim(Child);

impl Victim {
    pub(crate) fn start(args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> anyhow::Result<Self> {
        Self::spawn(Command::new(std::env::current_exe()?).args(args))
    }

    /// As [`start`](Self::start), in a folder, with a file there for its errors, and with more
    /// environment variables.
    pub(crate) fn start_in(
        dir: &Path,
        errors: &Path,
        environment: impl IntoIterator<Item = (impl AsRef<OsStr>, impl AsRef<OsStr>)>,
        args: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> anyhow::Result<Self> {
        let errors = OpenOptions::new().append(true).create(true).open(errors)?;
        Self::spawn(Command::new(std::env::current_exe()?).args(args).envs(environment).current_dir(dir).stderr(errors))
    }

    /// As [`start`](Self::start), with its output.
    pub(crate) fn start_talking(args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> anyhow::Result<(Self, ChildStdout)> {
        let mut victim = Self::spawn_with(Command::new(std::env::current_exe()?).args(args), Stdio::piped())?;
        let output = victim.0.stdout.take().context("the worker has no output")?;
        Ok((victim, output))
    }

    fn spawn(command: &mut Command) -> anyhow::Result<Self> {
        Self::spawn_with(command, Stdio::null())
    }

    fn spawn_with(command: &mut Command, output: Stdio) -> anyhow::Result<Self> {
        let child = command.stdin(Stdio::piped()).stdout(output).spawn().context("failed to start a worker")?;
        Ok(Victim(child))
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// Exit status, if it has ended.
    pub(crate) fn look(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        Ok(self.0.try_wait()?)
    }

    /// Waits until it ends by itself; returns its exit status.
    pub(crate) async fn ended(&mut self) -> anyhow::Result<ExitStatus> {
        loop {
            if let Some(status) = self.look()? {
                return Ok(status);
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// As [`ended`](Self::ended), for a thread.
    pub(crate) fn wait(&mut self) -> anyhow::Result<ExitStatus> {
        Ok(self.0.wait()?)
    }

    /// Sends SIGKILL, and waits until the process is gone.
    pub(crate) fn kill(&mut self) -> anyhow::Result<()> {
        let status = self.end()?;
        ensure!(was_killed(status), "worker {} was to die of SIGKILL, but ended with {status}", self.id());
        Ok(())
    }

    /// As [`kill`](Self::kill), for a process that may have ended by itself; returns its exit
    /// status.
    pub(crate) fn end(&mut self) -> anyhow::Result<ExitStatus> {
        self.0.kill()?;
        Ok(self.0.wait()?)
    }

    /// Stops it with SIGSTOP, and waits until it is stopped.
    pub(crate) fn stop(&self) -> anyhow::Result<()> {
        self.signal("STOP")?;
        loop {
            let state = Command::new("ps").args(["-o", "stat=", "-p", &self.id().to_string()]).output().context("failed to run `ps`")?;
            // Stopped, or dead before it could be.
            if matches!(state.stdout.first(), Some(b'T' | b'Z') | None) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Lets a stopped process continue.
    pub(crate) fn go_on(&self) -> anyhow::Result<()> {
        self.signal("CONT")
    }

    /// Asks it to end, with SIGTERM.
    pub(crate) fn terminate(&self) -> anyhow::Result<()> {
        self.signal("TERM")
    }

    /// Waits until it ends by itself, for a thread; its input stays open. Returns its exit status.
    pub(crate) fn closed(&mut self) -> anyhow::Result<ExitStatus> {
        loop {
            if let Some(status) = self.look()? {
                return Ok(status);
            }
            std::thread::sleep(LOOK);
        }
    }

    fn signal(&self, name: &str) -> anyhow::Result<()> {
        let status = Command::new("kill").args([&format!("-{name}"), &self.id().to_string()]).status().context("failed to run `kill`")?;
        ensure!(status.success(), "worker {} cannot be sent SIG{name}", self.id());
        Ok(())
    }
}

#[cfg(unix)]
fn was_killed(status: ExitStatus) -> bool {
    const SIGKILL: i32 = 9;
    std::os::unix::process::ExitStatusExt::signal(&status) == Some(SIGKILL)
}

#[cfg(not(unix))]
fn was_killed(status: ExitStatus) -> bool {
    !status.success()
}

impl Drop for Victim {
    fn drop(&mut self) {
        // Fails if it is gone, as it should be.
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

/// In the second process: ends it when the first one is gone.
pub(crate) fn end_with_the_first() {
    std::thread::spawn(|| {
        // Nothing is written to this pipe. It ends with the process that started this one.
        let _ = std::io::Read::read(&mut std::io::stdin(), &mut [0]);
        std::process::exit(1);
    });
}
