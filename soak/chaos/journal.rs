//! The log of effects: a file beside the database, with a line for everything that happens outside
//! of the database.
//!
//! A line has the process that wrote it and some words, and is written by one call. All lines have
//! one length, which divides a page, so that a process that is killed while it writes leaves a
//! whole line or none.
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;

/// Length of a line in bytes, with its end.
pub(crate) const WIDTH: usize = 128;

/// Path of the log in the folder of a round.
pub(crate) fn path(dir: &Path) -> PathBuf {
    dir.join("effects.log")
}

/// Writer of the log.
pub(crate) struct Journal(File);

impl Journal {
    pub(crate) fn open(dir: &Path) -> io::Result<Self> {
        Ok(Journal(OpenOptions::new().append(true).create(true).open(path(dir))?))
    }

    /// Adds a line, truncated to the length of one. The operating system has it when this returns,
    /// so no death of the process undoes it.
    pub(crate) fn write(&self, words: &str) {
        let mut text = format!("{} {}", std::process::id(), words.replace('\n', " "));
        let mut end = text.len().min(WIDTH - 1);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        while text.len() < WIDTH - 1 {
            text.push(' ');
        }
        text.push('\n');
        // A program that cannot record what it does must not do it.
        (&self.0).write_all(text.as_bytes()).expect("the log of effects can be written");
    }
}

/// A line of the log.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    /// From 1.
    pub(crate) number: usize,
    pub(crate) process: u32,
    pub(crate) text: String,
}

impl Line {
    /// The words after the process; empty where there are fewer.
    pub(crate) fn words<const N: usize>(&self) -> [&str; N] {
        let mut words = self.text.splitn(N, ' ');
        std::array::from_fn(|_| words.next().unwrap_or_default())
    }
}

/// Reader of the log while it is written.
pub(crate) struct Reader {
    file: File,
    lines: usize,
}

impl Reader {
    pub(crate) fn open(dir: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).append(true).create(true).open(path(dir))?;
        Ok(Reader { file, lines: 0 })
    }

    /// Number of lines, without reading them.
    pub(crate) fn count(&self) -> io::Result<usize> {
        Ok(usize::try_from(self.file.metadata()?.len()).unwrap_or(usize::MAX) / WIDTH)
    }

    /// The lines since the last call.
    pub(crate) fn new_lines(&mut self) -> anyhow::Result<Vec<Line>> {
        let new = self.count()? - self.lines;
        let mut bytes = vec![0; new * WIDTH];
        self.file.read_exact(&mut bytes)?;
        let mut lines = Vec::with_capacity(new);
        for text in bytes.chunks(WIDTH) {
            self.lines += 1;
            let text = std::str::from_utf8(text).ok().filter(|text| text.ends_with('\n'));
            let parts = text.and_then(|text| text.trim_end().split_once(' '));
            let line = parts.and_then(|(process, text)| Some((process.parse().ok()?, text.to_owned())));
            let (process, text) = line.with_context(|| format!("line {} of the log of effects is damaged", self.lines))?;
            lines.push(Line { number: self.lines, process, text });
        }
        Ok(lines)
    }
}

/// Reads all lines.
pub(crate) fn read(dir: &Path) -> anyhow::Result<Vec<Line>> {
    Reader::open(dir)?.new_lines()
}
