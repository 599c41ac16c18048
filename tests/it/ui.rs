//! What the compiler says: every message of the macro, and bodies that it has nothing to say about.
//!
//! `TRYBUILD=overwrite cargo test --test it ui` writes the `.stderr` files anew; read what changed as a user would.
use std::collections::BTreeSet;
use std::path::Path;

#[test]
fn messages_are_as_written_down_and_good_bodies_give_no_warnings() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/ui/fail/*.rs");
    cases.pass("tests/ui/pass/*.rs");
}

#[test]
fn the_table_of_messages_has_every_case() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let names = std::fs::read_dir(root.join("tests/ui/fail")).unwrap().map(|entry| entry.unwrap().path());
    let cases: BTreeSet<String> =
        names.filter(|p| p.extension().is_some_and(|e| e == "rs")).map(|p| p.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    let text = std::fs::read_to_string(root.join("docs/guide/src/reference/diagnostics.md")).unwrap();
    let (_, tables) = text.split_once("## Every message").unwrap();
    let last_column = |row: &str| row.trim_end_matches('|').rsplit('|').next().unwrap_or_default().to_owned();
    let rows: Vec<String> = tables.lines().filter(|l| l.starts_with('|')).map(last_column).collect();
    let listed: BTreeSet<String> = rows.iter().flat_map(|row| row.split('`').skip(1).step_by(2)).map(str::to_owned).collect();
    assert_eq!(cases.difference(&listed).collect::<Vec<_>>(), Vec::<&String>::new(), "not in docs/guide/src/reference/diagnostics.md");
    assert_eq!(listed.difference(&cases).collect::<Vec<_>>(), Vec::<&String>::new(), "listed, but no such case");
}
