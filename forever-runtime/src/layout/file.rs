//! The file with the layouts of a program, reviewed with its code:
//! `forever::layout::check!(builder)`.
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::layout::spec::Layout;

/// Environment variable that makes the test write the file, and its value.
const ACCEPT: (&str, &str) = ("FOREVER_LAYOUTS", "accept");

/// Content of the file.
#[derive(Serialize, Deserialize)]
struct Stored {
    layouts: BTreeMap<String, Layout>,
}

/// Compares the layouts of a program with those in the file at `path`; the error is the message of
/// the failed test.
pub(crate) fn check(now: Vec<Layout>, path: &Path, accept: bool) -> Result<(), String> {
    let now: BTreeMap<String, Layout> = now.into_iter().map(|layout| (layout.fiber.clone(), layout.without_reasons())).collect();
    let text = match std::fs::read_to_string(path) {
        Ok(text) => Some(text),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
        Err(e) => return Err(format!("`{}` cannot be read: {e}", path.display())),
    };
    let before = match &text {
        Some(text) => serde_json::from_str::<Stored>(text).map_err(|e| format!("`{}` cannot be read: {e}", path.display()))?.layouts,
        None => BTreeMap::new(),
    };
    if text.is_some() && before == now {
        return Ok(());
    }
    if accept {
        // Names and numbers can always be written as JSON.
        let text = serde_json::to_string_pretty(&Stored { layouts: now }).unwrap_or_default() + "\n";
        return std::fs::write(path, text).map_err(|e| format!("`{}` cannot be written: {e}", path.display()));
    }
    let mut said = match text {
        Some(_) => format!("the layouts of fibers are not those in `{}`", path.display()),
        None => format!("there is no file `{}`", path.display()),
    };
    let names: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
    for name in names {
        said += &difference(name, before.get(name), now.get(name));
    }
    let (variable, value) = ACCEPT;
    let _ = write!(said, "\n\nIf this is what you want, run the test with {variable}={value}, and commit the file.");
    Err(said)
}

/// Whether to write the file.
pub(crate) fn accepts() -> bool {
    std::env::var_os(ACCEPT.0).is_some_and(|value| value == ACCEPT.1)
}

/// Change of one function, with the verdict on its fibers.
fn difference(name: &str, before: Option<&Layout>, now: Option<&Layout>) -> String {
    let (Some(before), Some(now)) = (before, now) else {
        return match (before, now) {
            (None, Some(_)) => format!("\n\n`{name}` is new."),
            (Some(_), None) => format!("\n\n`{name}` is gone: its fibers will be parked. Register it until all of them have ended."),
            _ => String::new(),
        };
    };
    if before == now {
        return String::new();
    }
    let verdict = match now.can_resume(before) {
        Ok(()) => "safe, if the types of its values are as before: `Builder::check` reads those that are stored".to_owned(),
        Err(drift) if now.version != before.version => format!("its fibers need `migrate`: {}", sentences(&drift)),
        Err(drift) => format!("fibers that stand there will be parked: {}", sentences(&drift)),
    };
    format!("\n\n`{name}` has changed; {verdict}\n{}", lines(&before.to_string(), &now.to_string()))
}

fn sentences(drift: &crate::layout::drift::Drift) -> String {
    drift.problems().iter().fold(String::new(), |mut text, problem| {
        let _ = write!(text, "\n  {problem}");
        text
    })
}

/// A line diff of two texts.
fn lines(before: &str, now: &str) -> String {
    let (before, now): (Vec<&str>, Vec<&str>) = (before.lines().collect(), now.lines().collect());
    // common[i][j]: length of the longest common subsequence of the lines from i and from j on.
    let mut common = vec![vec![0_usize; now.len() + 1]; before.len() + 1];
    for i in (0..before.len()).rev() {
        for j in (0..now.len()).rev() {
            common[i][j] = if before[i] == now[j] { common[i + 1][j + 1] + 1 } else { common[i + 1][j].max(common[i][j + 1]) };
        }
    }
    let (mut i, mut j, mut text) = (0, 0, String::new());
    while i < before.len() || j < now.len() {
        let (mark, line) = if i < before.len() && j < now.len() && before[i] == now[j] {
            (i, j) = (i + 1, j + 1);
            (' ', before[i - 1])
        } else if j == now.len() || i < before.len() && common[i + 1][j] >= common[i][j + 1] {
            i += 1;
            ('-', before[i - 1])
        } else {
            j += 1;
            ('+', now[j - 1])
        };
        let _ = write!(text, "\n{mark} {line}");
    }
    text
}

impl Layout {
    /// The layout without the reasons, which change with every edit and concern no snapshot.
    fn without_reasons(mut self) -> Self {
        self.steps.iter_mut().flat_map(|step| &mut step.keeps).for_each(|kept| kept.why.clear());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_shows_the_lines_of_one_side_alone() {
        assert_eq!(lines("a\nb\nc", "a\nx\nc\nd"), "\n  a\n- b\n+ x\n  c\n+ d");
        assert_eq!(lines("", "a"), "\n+ a");
    }
}
