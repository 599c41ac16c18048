//! Functions that compile without a warning, and run. They are left as they are written: where a
//! semicolon is, or a brace, is part of the case.
mod borrows;
mod branches;
mod calls;
mod caught_steps;
mod effects;
mod fresh_of_other_locals;
mod generics;
mod guards;
mod items_in_the_body;
mod loops;
mod macros_that_use_locals;
mod names_of_ones_own;
mod operands;
mod question_marks_and_own_errors;
mod resources;
mod sealed_bodies;
mod select;
mod set_later;
mod shadowing;
mod shared_policies;
mod step_options;
mod steps_side_by_side;
mod straight_line;
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
