//! The file of cases: a module for each and a table of them.
use std::collections::BTreeSet;
use std::fmt::Write;

use forever_testkit::prng::Prng;

use super::Function;
use super::code::Flavour;
use super::coverage::Construct;

/// What to write.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) seed: u64,
    /// Number of the first case.
    pub(crate) first: u64,
    pub(crate) cases: u64,
    /// How many statements a body has at most.
    pub(crate) statements: usize,
    /// One case instead of all.
    pub(crate) only: Option<u64>,
    /// Cases to leave out.
    pub(crate) skip: BTreeSet<u64>,
    /// Leaves the fibers out.
    pub(crate) plain: bool,
    /// Constructs that no body may contain.
    pub(crate) without: Vec<String>,
}

/// The cases as a Rust file; `Err` says which option cannot be followed.
pub(crate) fn generate(options: &Options) -> Result<String, String> {
    let without: BTreeSet<Construct> = options.without.iter().map(|text| named(text)).collect::<Result<_, _>>()?;
    let numbers = options.only.map_or(options.first..options.first + options.cases, |only| only..only + 1);
    let mut modules = String::new();
    let mut table = String::new();
    for number in numbers.filter(|number| !options.skip.contains(number)) {
        let function = choose(options, number, &without)?;
        write_case(&function, number, options, &mut modules, &mut table);
    }
    let names: Vec<&str> = Construct::ALL.iter().map(|c| c.text()).collect();
    let whole = options.only.is_none()
        && without.is_empty()
        && options.skip.is_empty()
        && options.cases >= 300
        && options.statements >= crate::STATEMENTS;
    let Options { seed, statements, without, .. } = options;
    let mut chosen = format!("FOREVER_DIFFTEST_SEED={seed} FOREVER_DIFFTEST_STATEMENTS={statements}");
    if !without.is_empty() {
        write!(chosen, " FOREVER_DIFFTEST_WITHOUT='{}'", without.join(",")).expect("a string takes everything");
    }
    Ok(format!(
        "/// Whether there are enough cases to ask for every construct.\npub(crate) const WHOLE: bool = {whole};\n\
         /// What chooses these texts, without the numbers of the cases.\npub(crate) const CHOSEN: &str = {chosen:?};\n\
         pub(crate) static CONSTRUCTS: &[&str] = &{names:?};\n\
         pub(crate) static CASES: &[Case] = &[\n{table}];\n{modules}"
    ))
}

fn named(text: &str) -> Result<Construct, String> {
    let known = || Construct::ALL.iter().map(|c| c.text()).collect::<Vec<_>>().join(", ");
    Construct::ALL.iter().copied().find(|c| c.text() == text).ok_or_else(|| format!("no construct is called `{text}`; known: {}", known()))
}

/// The first function of a case that has none of the unwanted constructs.
fn choose(options: &Options, number: u64, without: &BTreeSet<Construct>) -> Result<Function, String> {
    (0..2000)
        .map(|attempt| Function::random(Prng::of_case(options.seed, number, attempt), options.statements))
        .find(|function| function.steps > 0 && function.constructs.is_disjoint(without))
        .ok_or_else(|| format!("no body for case {number} is without {without:?}"))
}

fn write_case(function: &Function, number: u64, options: &Options, modules: &mut String, table: &mut String) {
    let fiber = format!("fiber_{number}");
    let fiber_text = function.print(Flavour::Fiber, &fiber);
    let arguments = function.arguments();
    let with_io = [&["io"], arguments.as_slice()].concat().join(", ");
    let arguments = arguments.join(", ");
    let constructs: Vec<usize> =
        Construct::ALL.iter().enumerate().filter(|(_, c)| function.constructs.contains(c)).map(|(i, _)| i).collect();
    let calls = function.calls;
    let mut out = |text: String| table.push_str(&text);
    out(format!("Case {{ number: {number}, calls: {calls}, constructs: &{constructs:?}, source: {fiber_text:?}, "));
    out(format!("plain: |io| run_plain(case_{number}::plain({with_io})), "));
    if !options.plain {
        out(format!("fiber: |stage, from, kill| run(stage, from, kill, || case_{number}::{fiber}({arguments})), "));
    }
    out("},\n".to_owned());
    let plain = function.print(Flavour::Plain, "plain");
    let fiber_text = if options.plain { "" } else { &fiber_text };
    writeln!(modules, "mod case_{number} {{\nuse super::*;\n{plain}{fiber_text}}}").expect("a string takes everything");
}
