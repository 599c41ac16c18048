//! The program as a second process, which is killed.
use std::path::{Path, PathBuf};

use forever_testkit::args::Args;
use forever_testkit::process::{Process, this_program};

/// Worker process. Its output is printed after its number.
pub(crate) struct Worker {
    number: u32,
    process: Process,
}

impl Worker {
    /// Starts this program as a worker on a folder.
    pub(crate) fn start(dir: &Path, number: u32) -> anyhow::Result<Self> {
        let number_as_text = number.to_string();
        let args = ["--worker".as_ref(), dir.as_os_str(), "--number".as_ref(), number_as_text.as_ref()];
        Ok(Worker { number, process: Process::start(this_program()?.args(args))? })
    }

    /// The folder and number of this process, if it was started as a worker.
    pub(crate) fn role(args: &mut Args) -> Option<(PathBuf, u32)> {
        let dir = args.value("--worker", "a folder", |_| true);
        let number = args.value("--number", "a number", |_| true);
        dir.zip(number)
    }

    /// Prints and returns the worker's lines up to one that ends with `last`.
    pub(crate) fn lines_until(&mut self, last: &str) -> anyhow::Result<Vec<String>> {
        let mut lines = Vec::new();
        while let Some(line) = self.line()? {
            lines.push(line);
            if lines.last().is_some_and(|line| line.ends_with(last)) {
                return Ok(lines);
            }
        }
        anyhow::bail!("worker {} has ended without saying `{last}`", self.number)
    }

    /// Prints and returns the worker's lines until it ends.
    pub(crate) fn lines_to_its_end(&mut self) -> anyhow::Result<Vec<String>> {
        let mut lines = Vec::new();
        while let Some(line) = self.line()? {
            lines.push(line);
        }
        let status = self.process.wait()?;
        anyhow::ensure!(status.success(), "worker {}: {status}", self.number);
        Ok(lines)
    }

    fn line(&mut self) -> anyhow::Result<Option<String>> {
        let line = self.process.line()?;
        if let Some(line) = &line {
            println!("worker {}: {line}", self.number);
        }
        Ok(line)
    }

    /// Kills it, on Unix with SIGKILL; prints and returns its last lines.
    pub(crate) fn kill(&mut self) -> anyhow::Result<Vec<String>> {
        self.process.kill()?;
        std::iter::from_fn(|| self.line().transpose()).collect()
    }
}

/// In a worker: prints a line.
pub(crate) fn say(line: &str) {
    println!("{line}");
}
