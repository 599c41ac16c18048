//! What the compiler says: every message of the macro, and bodies that it has nothing to say about.
//!
//! `TRYBUILD=overwrite cargo test --test it ui` writes the `.stderr` files anew; read what changed as a user would.

#[test]
fn messages_are_as_written_down_and_good_bodies_give_no_warnings() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/ui/fail/*.rs");
    cases.pass("tests/ui/pass/*.rs");
}
