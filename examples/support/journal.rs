//! The journal: a text file, not the database, with a line for each start and each end of a step's
//! body.
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;

/// A line of the journal.
#[derive(Debug)]
pub(crate) enum Line {
    Started(String),
    Finished(String),
}

impl Line {
    fn parse(text: &str) -> Option<Line> {
        match text.split_once(' ')? {
            ("started", name) => Some(Line::Started(name.to_owned())),
            ("finished", name) => Some(Line::Finished(name.to_owned())),
            _ => None,
        }
    }

    /// The step, if this line is its end.
    pub(crate) fn finished(self) -> Option<String> {
        match self {
            Line::Finished(name) => Some(name),
            Line::Started(_) => None,
        }
    }
}

/// Writer of the journal, in a worker.
pub(crate) struct Journal(File);

impl Journal {
    /// Opens the journal, and returns the lines that it has.
    pub(crate) fn open(path: &Path) -> io::Result<(Self, Vec<Line>)> {
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        Ok((Journal(file), text.lines().filter_map(Line::parse).collect()))
    }

    /// Adds a line. The operating system has it when this returns, so no death of the process
    /// undoes it.
    pub(crate) fn write(&self, line: &Line) -> io::Result<()> {
        let text = match line {
            Line::Started(name) => format!("started {name}\n"),
            Line::Finished(name) => format!("finished {name}\n"),
        };
        (&self.0).write_all(text.as_bytes())
    }
}

/// Reader of the journal while it is written.
pub(crate) struct Reader {
    file: File,
    rest: String,
}

impl Reader {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
        Ok(Reader { file, rest: String::new() })
    }

    /// The lines since the last call.
    pub(crate) fn new_lines(&mut self) -> io::Result<Vec<Line>> {
        self.file.read_to_string(&mut self.rest)?;
        let whole = self.rest.rfind('\n').map_or(0, |end| end + 1);
        let lines = self.rest.split_at(whole).0.lines().filter_map(Line::parse).collect();
        self.rest.drain(..whole);
        Ok(lines)
    }
}
