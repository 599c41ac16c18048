//! Functions that compile without a warning, and run. They are left as they are written: where a
//! semicolon is, or a brace, is part of the case.
#[rustfmt::skip]
mod borrows;
#[rustfmt::skip]
mod branches;
#[rustfmt::skip]
mod calls;
#[rustfmt::skip]
mod caught_steps;
#[rustfmt::skip]
mod effects;
#[rustfmt::skip]
mod fresh_of_other_locals;
#[rustfmt::skip]
mod generics;
#[rustfmt::skip]
mod guards;
#[rustfmt::skip]
mod items_in_the_body;
#[rustfmt::skip]
mod loops;
#[rustfmt::skip]
mod macros_that_use_locals;
#[rustfmt::skip]
mod names_of_ones_own;
#[rustfmt::skip]
mod operands;
#[rustfmt::skip]
mod question_marks_and_own_errors;
#[rustfmt::skip]
mod resources;
#[rustfmt::skip]
mod sealed_bodies;
#[rustfmt::skip]
mod select;
#[rustfmt::skip]
mod set_later;
#[rustfmt::skip]
mod shadowing;
#[rustfmt::skip]
mod shared_policies;
#[rustfmt::skip]
mod step_options;
#[rustfmt::skip]
mod steps_side_by_side;
#[rustfmt::skip]
mod straight_line;
#[rustfmt::skip]
mod waits;

#[test]
fn good_bodies_give_no_warnings() {
    borrows::main();
    branches::main();
    calls::main();
    caught_steps::main();
    effects::main();
    fresh_of_other_locals::main();
    generics::main();
    guards::main();
    items_in_the_body::main();
    loops::main();
    macros_that_use_locals::main();
    names_of_ones_own::main();
    operands::main();
    question_marks_and_own_errors::main();
    resources::main();
    sealed_bodies::main();
    select::main();
    set_later::main();
    shadowing::main();
    shared_policies::main();
    step_options::main();
    steps_side_by_side::main();
    straight_line::main();
    waits::main();
}

#[test]
fn every_case_refuses_warnings() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("pass");
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(path.ends_with("mod.rs") || text.contains("#![deny(warnings)]\n"), "{}", path.display());
    }
}
