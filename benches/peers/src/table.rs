//! Tables for people, in Markdown.
use std::fmt;

pub(crate) struct Table {
    pub(crate) title: String,
    pub(crate) head: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n", self.title)?;
        let lines = || std::iter::once(&self.head).chain(&self.rows);
        let width = |column: usize| lines().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0);
        for (number, line) in lines().enumerate() {
            for (column, cell) in line.iter().enumerate() {
                write!(f, "| {cell:<width$} ", width = width(column))?;
            }
            writeln!(f, "|")?;
            if number == 0 {
                writeln!(f, "{}|", "|---".repeat(line.len()))?;
            }
        }
        Ok(())
    }
}

/// With thin spaces between thousands, as few digits as say something.
pub(crate) fn short(value: f64) -> String {
    match value.abs() {
        ..10.0 => format!("{value:.1}"),
        ..1000.0 => format!("{value:.0}"),
        _ => {
            let digits = format!("{value:.0}");
            let (thousands, rest) = digits.split_at(digits.len() - 3);
            format!("{thousands} {rest}")
        }
    }
}
