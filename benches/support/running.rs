//! A child that runs until it is killed.
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command};
use std::time::Instant;

use anyhow::{Context, ensure};

use crate::numbers::ms;

/// Child process that runs until it is killed.
pub(crate) struct Running {
    child: Child,
    begun: Instant,
    words: BufReader<ChildStdout>,
}

impl Running {
    #[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
    pub(crate) fn start(command: &mut Command) -> anyhow::Result<Self> {
        let begun = Instant::now();
        let mut child = command.spawn()?;
        let words = BufReader::new(child.stdout.take().context("it was asked for")?);
        Ok(Running { child, begun, words })
    }

    /// Waits until the child prints a word; returns the milliseconds since its start.
    pub(crate) fn wait_for(&mut self, word: &str) -> anyhow::Result<f64> {
        let mut line = String::new();
        self.words.read_line(&mut line)?;
        let taken = self.begun.elapsed();
        ensure!(line.trim_end() == word, "expected `{word}`, got `{line}`");
        Ok(ms(taken))
    }

    /// Kills the child, by SIGKILL on Unix.
    pub(crate) fn kill(mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

/// Kills a child that printed something unexpected.
impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
