//! What the compiler says: every message of the macro, and bodies that it has nothing to say about.
//!
//! `TRYBUILD=overwrite cargo test -p forever-ui` writes the `.stderr` files anew; read what changed as a user would.
#[rustfmt::skip]
mod pass;

use std::collections::BTreeSet;
use std::path::Path;

#[test]
fn messages_are_as_written_down() {
    // Without a case that passes, dependencies are checked and not built.
    trybuild::TestCases::new().compile_fail("fail/*.rs");
}

#[test]
fn the_table_of_messages_has_every_case() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let names = std::fs::read_dir(folder.join("fail")).unwrap().map(|entry| entry.unwrap().path());
    let cases: BTreeSet<String> =
        names.filter(|p| p.extension().is_some_and(|e| e == "rs")).map(|p| p.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    let text = std::fs::read_to_string(folder.join("../../docs/guide/src/reference/diagnostics.md")).unwrap();
    let (_, tables) = text.split_once("## Every message").unwrap();
    let last_column = |row: &str| row.trim_end_matches('|').rsplit('|').next().unwrap_or_default().to_owned();
    let rows: Vec<String> = tables.lines().filter(|l| l.starts_with('|')).map(last_column).collect();
    let listed: BTreeSet<String> = rows.iter().flat_map(|row| row.split('`').skip(1).step_by(2)).map(str::to_owned).collect();
    assert_eq!(cases.difference(&listed).collect::<Vec<_>>(), Vec::<&String>::new(), "not in docs/guide/src/reference/diagnostics.md");
    assert_eq!(listed.difference(&cases).collect::<Vec<_>>(), Vec::<&String>::new(), "listed, but no such case");
}

/// Parts of names that only generated code and the library's insides have.
const INTERNAL: &[&str] = &[
    "__",
    "forever_runtime",
    "::drive",
    "_::<impl",
    "Savable",
    "Released",
    "Destructor",
    "OwnsText",
    "OnlyCopied",
    "Witness",
    "Machine",
    "Locals",
    "Remaining",
    "keep_",
    "hold_",
    "text_value",
    "copied_",
];

/// Notes of the compiler about a function of the library that has the bound, which it adds to an error that is worded by us.
/// It has no way to leave them out. Each is listed by its function.
const BOUNDS: &[&str] = &[
    "forever_runtime::frame::iter::AnySource::<I>::rest",
    "forever::fiber::Fiber::Output",
    "forever::__private::collected",
    "forever::__private::timeout",
    "forever::__private::Attempts::<E>::run_within",
    "forever_runtime::frame::call::<impl forever::__private::Frame>::call",
    "forever_runtime::frame::waits::<impl forever::__private::Frame>::spawn",
    "forever_runtime::frame::waits::<impl forever::__private::Frame>::awaited",
];

/// Other lines in which the compiler names a trait of the library, by case.
const NAMED: &[(&str, &str)] = &[
    ("await_of_a_fiber", "forever::__private::Awaitable"),
    ("head_error_is_no_error", "forever_runtime::frame::fiber::Failure"),
    ("head_returns_no_result", "forever::__private::IsResult"),
];

#[test]
fn no_message_names_what_is_not_the_users() {
    let mut found = Vec::new();
    let mut unused: BTreeSet<&str> = BOUNDS.iter().copied().collect();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fail");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    for file in files.iter().filter(|file| file.extension().is_some_and(|e| e == "stderr")) {
        let case = file.file_stem().unwrap().to_str().unwrap();
        let text = std::fs::read_to_string(file).unwrap();
        // A line of code is shown behind a bar.
        let is_code = |line: &str| line.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ').starts_with('|');
        for line in text.lines().filter(|line| !is_code(line) && !line.trim_start().starts_with("-->")) {
            let of_bound =
                line.strip_prefix("note: required by a bound in ").and_then(|of| BOUNDS.iter().find(|bound| of == format!("`{bound}`")));
            if let Some(bound) = of_bound {
                unused.remove(bound);
                continue;
            }
            if NAMED.iter().any(|(of, text)| *of == case && line.contains(text)) {
                continue;
            }
            let internal = INTERNAL.iter().filter(|part| line.contains(**part));
            found.extend(internal.map(|part| format!("{case}: `{part}` in `{}`", line.trim())));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
    assert!(unused.is_empty(), "these are not named any more: {unused:?}");
}
