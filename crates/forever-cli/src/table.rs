//! Tables for people.
use std::io::{IsTerminal, Write};

use crate::text::clean;

/// A table of text.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(head: &[&str]) -> Self {
        Table { rows: vec![head.iter().map(|&name| name.to_uppercase()).collect()] }
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells.into_iter().map(|cell| clean(&cell).replace('\n', " ")).collect());
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

/// Prints a line; a reader that has gone away, as `head` does, ends the command.
pub(crate) fn say(line: &str) {
    if writeln!(std::io::stdout(), "{line}").is_err() {
        std::process::exit(0);
    }
}
