//! What the compiler says: every message of the macro, and bodies that it has nothing to say about.
//!
//! `TRYBUILD=overwrite cargo test -p forever-ui` writes the `.stderr` files anew; read what changed as a user would.
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
