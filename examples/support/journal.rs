//! The journal: a text file, not the database, to which the body of each step adds a line when it
//! starts and one when it ends.
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;

/// One line of it.
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

    /// The step, if this is its end.
    pub(crate) fn finished(self) -> Option<String> {
        match self {
            Line::Finished(name) => Some(name),
            Line::Started(_) => None,
        }
    }
}

/// The end at which a worker writes.
pub(crate) struct Journal(File);

impl Journal {
    /// Opens the journal; gives the lines that are there.
    pub(crate) fn open(path: &Path) -> io::Result<(Self, Vec<Line>)> {
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        Ok((Journal(file), text.lines().filter_map(Line::parse).collect()))
    }

    /// Adds a line. A death of the process does not undo it: it is the operating system's when this
    /// returns.
    pub(crate) fn write(&self, line: &Line) -> io::Result<()> {
        let text = match line {
            Line::Started(name) => format!("started {name}\n"),
            Line::Finished(name) => format!("finished {name}\n"),
        };
        (&self.0).write_all(text.as_bytes())
    }
}

/// The end at which the lines are read while they are written.
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
        let lines = self.rest[..whole].lines().filter_map(Line::parse).collect();
        self.rest.drain(..whole);
        Ok(lines)
    }
}
