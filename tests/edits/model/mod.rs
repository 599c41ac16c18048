//! Random fibers and edits of them, as data and as Rust source.
mod arms;
pub(crate) mod edit;
mod forms;
mod generate;
mod moves;
mod places;
pub(crate) mod program;
mod render;
mod repair;

use std::collections::BTreeSet;
use std::fmt::Write as _;

use edit::Edit;
use forever_testkit::prng::Prng;
use program::Program;

/// A program, and edits of it.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) program: Program,
    /// What was done, and the program after it.
    pub(crate) edits: Vec<(Vec<Edit>, Program)>,
}

/// How many edits each program has.
pub(crate) const EDITS_OF_EACH: usize = 4;

/// The cases of a seed, with so many edits in all. Every kind of edit is drawn in turn.
pub(crate) fn cases(seed: u64, edits: usize) -> Vec<Case> {
    cases_of(seed, &(0..edits).map(|at| Edit::ALL[at % Edit::ALL.len()]).collect::<Vec<_>>())
}

/// The cases of a seed with these edits.
pub(crate) fn cases_of(seed: u64, edits: &[Edit]) -> Vec<Case> {
    edits.chunks(EDITS_OF_EACH).enumerate().map(|(number, wanted)| case(seed, number, wanted)).collect()
}

fn case(seed: u64, number: usize, wanted: &[Edit]) -> Case {
    let needs: BTreeSet<&str> = wanted.iter().filter_map(|edit| edit.needs()).collect();
    for attempt in 0.. {
        let mut prng = Prng::of_case(seed, number as u64, attempt);
        let program = generate::program(&mut prng, number, &needs);
        let edited = |at: usize, edit: &Edit, prng: &mut Prng| {
            // What one edit adds has other ids than what another adds.
            let first = program.next + 1000 * u32::try_from(at + 1).expect("it is small");
            let program = Program { next: first, ..program.clone() };
            (0..20).find_map(|_| edit.apply(&program, prng))
        };
        let edited: Option<Vec<_>> = wanted.iter().enumerate().map(|(at, edit)| edited(at, edit, &mut prng)).collect();
        match edited {
            Some(edits) => return Case { program, edits },
            None => assert!(attempt < 3000, "no program allows the edits of case {number}"),
        }
    }
    unreachable!("the loop returns or panics")
}

/// The Rust source of the cases.
pub(crate) fn source(seed: u64, edits: usize) -> String {
    let mut out = format!("pub(crate) const SEED: u64 = {seed};\npub(crate) const EDITS: usize = {edits};\n");
    let mut table = String::from("pub(crate) fn versions() -> Vec<Vec<Version>> {\n    vec![\n");
    for (number, case) in cases(seed, edits).iter().enumerate() {
        table += "        vec![\n";
        for (version, program) in std::iter::once(&case.program).chain(case.edits.iter().map(|(_, program)| program)).enumerate() {
            let name = format!("case_{number}_{version}");
            if version > 0 {
                _ = writeln!(out, "// {:?}", case.edits[version - 1].0);
            }
            out += &render::module(&name, program);
            _ = writeln!(table, "            {},", render::entry(&name, program));
        }
        table += "        ],\n";
    }
    out + &table + "    ]\n}\n"
}
