//! What is printed: tables and lines for people, and JSON.
use std::io::{ErrorKind, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::failure::Failure;
use crate::text::{in_line, json_for_terminal};

/// A table of text.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(head: &[&str]) -> Self {
        Table { rows: vec![head.iter().map(|&name| name.to_uppercase()).collect()] }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().map(|cell| in_line(&cell)).collect());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.len() == 1
    }

    /// Prints it; the last column is cut off at the terminal's edge.
    pub(crate) fn print(&self) {
        let columns = self.rows[0].len();
        let mut widths = vec![0; columns];
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.chars().count().max(*width);
            }
        }
        let edge = edge();
        for row in &self.rows {
            let mut line = String::new();
            for (n, (cell, width)) in row.iter().zip(&widths).enumerate() {
                let pad = if n + 1 == columns { 0 } else { width + 2 - cell.chars().count() };
                line.push_str(cell);
                line.push_str(&" ".repeat(pad));
            }
            let line: String = line.trim_end().chars().take(edge).collect();
            say(&line);
        }
    }
}

/// Where lines end: at the terminal's edge if it says so, and nowhere in a file.
fn edge() -> usize {
    let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    if std::io::stdout().is_terminal() { columns.unwrap_or(200) } else { usize::MAX }
}

/// Whether the reader of what is printed has gone away, as `head` does.
static IS_CLOSED: AtomicBool = AtomicBool::new(false);

pub(crate) fn is_closed() -> bool {
    IS_CLOSED.load(Ordering::Relaxed)
}

/// Prints a line. What is stored makes no line of its own, and is not obeyed by a terminal.
pub(crate) fn say(line: &str) {
    print(in_line(line).as_bytes());
}

/// Prints a text of several lines, each behind `indent`.
pub(crate) fn say_lines(indent: &str, text: &str) {
    text.lines().for_each(|line| say(&format!("{indent}{line}")));
}

/// Prints a title, behind an empty line.
pub(crate) fn say_title(line: &str) {
    say("");
    say(line);
}

/// Prints JSON.
pub(crate) fn say_json(json: &str) {
    print(json_for_terminal(json).as_bytes());
}

/// Prints bytes and the end of a line. Where they cannot be written, the command has failed; where
/// the reader has gone away, it goes on in silence, and its exit code says what it has found.
pub(crate) fn print(bytes: &[u8]) {
    if is_closed() {
        return;
    }
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush()) {
        Ok(()) => {}
        Err(why) if why.kind() == ErrorKind::BrokenPipe => IS_CLOSED.store(true, Ordering::Relaxed),
        Err(why) => std::process::exit(Failure::refused(format!("what is printed cannot be written: {why}")).say().into()),
    }
}
