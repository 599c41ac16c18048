//! Tables in Markdown.
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

/// A figure with the significant digits only, and spaces between thousands.
pub(crate) fn short(value: f64) -> String {
    if value.abs() < 9.95 {
        return format!("{value:.1}");
    }
    let digits = format!("{value:.0}");
    match digits.len() {
        ..4 => digits,
        length => format!("{} {}", &digits[..length - 3], &digits[length - 3..]),
    }
}
