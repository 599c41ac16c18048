//! This program started again as a second process that is killed in the middle of its work.
use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};

const SIGKILL: i32 = 9;
/// How often it is looked at whether it still lives.
const LOOK: Duration = Duration::from_millis(5);

/// A process that does not outlive this value, nor this process: it ends with the pipe that is its input.
pub(crate) struct Victim(Child);

impl Victim {
    pub(crate) fn start(args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        let child = command.args(args).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().context("failed to start a worker")?;
        Ok(Victim(child))
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// How it ended by itself.
    pub(crate) async fn ended(&mut self) -> anyhow::Result<ExitStatus> {
        loop {
            if let Some(status) = self.0.try_wait()? {
                return Ok(status);
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Sends SIGKILL, and waits until the process is gone.
    pub(crate) fn kill(mut self) -> anyhow::Result<()> {
        let id = self.id();
        self.0.kill()?;
        let status = self.0.wait()?;
        ensure!(status.signal() == Some(SIGKILL), "worker {id} was to die of SIGKILL, but ended with {status}");
        Ok(())
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        // Fails when it is gone, as it should be.
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

/// In the second process: ends it when the first one is gone.
pub(crate) fn end_with_the_first() {
    std::thread::spawn(|| {
        // Nothing comes on this pipe. It ends when the process that started this one does.
        let _ = std::io::Read::read(&mut std::io::stdin(), &mut [0]);
        std::process::exit(1);
    });
}
