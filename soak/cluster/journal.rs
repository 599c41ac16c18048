//! The log that survives every process: one line for each event, written with one system call at
//! the end of a file that all processes share.
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use forever::{Clock, SystemClock};

/// The writing end of the log.
#[derive(Debug)]
pub(crate) struct Journal {
    file: File,
    clock: SystemClock,
}

/// An event of the log.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    /// Microseconds since 1970.
    pub(crate) at_us: u64,
    /// The process that it happened in.
    pub(crate) process: u32,
    /// Kind of the event.
    pub(crate) what: String,
    /// The order, the worker or the process that it is about.
    pub(crate) about: String,
    /// What else there is to say.
    pub(crate) detail: String,
}

fn path(dir: &Path) -> PathBuf {
    dir.join("journal")
}

impl Journal {
    pub(crate) fn open(dir: &Path) -> anyhow::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).open(path(dir)).context("failed to open the log")?;
        Ok(Journal { file, clock: SystemClock::new() })
    }

    /// Writes an event. It is in the log when this returns, whatever happens to the process.
    pub(crate) fn write(&self, what: &str, about: &str, detail: impl std::fmt::Display) {
        let since = self.clock.now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let line = format!("{} {} {what} {about} {detail}\n", since.as_micros(), std::process::id());
        (&self.file).write_all(line.as_bytes()).expect("the log can be written");
    }
}

/// Reads the lines that were added since the last call.
#[derive(Debug)]
pub(crate) struct Reader {
    file: File,
    rest: String,
}

impl Reader {
    pub(crate) fn open(dir: &Path) -> anyhow::Result<Self> {
        Ok(Reader { file: File::open(path(dir)).context("failed to open the log")?, rest: String::new() })
    }

    pub(crate) fn next(&mut self) -> anyhow::Result<Vec<Line>> {
        self.file.read_to_string(&mut self.rest)?;
        let whole = self.rest.rfind('\n').map_or(0, |end| end + 1);
        let lines = self.rest.split_at(whole).0.lines().map(parse).collect::<anyhow::Result<_>>();
        self.rest.drain(..whole);
        lines
    }
}

fn parse(line: &str) -> anyhow::Result<Line> {
    let mut words = line.splitn(5, ' ');
    let mut next = || words.next().with_context(|| format!("a line of the log is damaged: `{line}`"));
    Ok(Line {
        at_us: next()?.parse()?,
        process: next()?.parse()?,
        what: next()?.to_owned(),
        about: next()?.to_owned(),
        detail: next()?.to_owned(),
    })
}
