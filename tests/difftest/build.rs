//! Writes the cases. What can be chosen is said in `tests/differential/main.rs`.
use std::error::Error;
use std::path::Path;
use std::{env, fs};

mod generator;

use forever_testkit::sizes::{NIGHT, is_night};
use generator::Options;

const SEED: u64 = 1;
/// How many in the gate, and in the night.
const CASES: [u64; 2] = [20, 200];
const STATEMENTS: usize = 26;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=generator");
    println!("cargo:rerun-if-env-changed={NIGHT}");
    println!("cargo:rustc-check-cfg=cfg(difftest_plain)");
    let options = Options {
        seed: number("SEED")?.unwrap_or(SEED),
        first: number("FIRST")?.unwrap_or(0),
        cases: number("CASES")?.unwrap_or(CASES[usize::from(is_night())]),
        statements: number("STATEMENTS")?.map_or(Ok(STATEMENTS), usize::try_from)?,
        only: number("ONLY")?,
        plain: option("PLAIN").is_some(),
        skip: list("SKIP").iter().map(|text| text.parse()).collect::<Result<_, _>>()?,
        without: list("WITHOUT"),
    };
    if options.plain {
        println!("cargo:rustc-cfg=difftest_plain");
    }
    let out = env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?;
    fs::write(Path::new(&out).join("cases.rs"), generator::generate(&options)?)?;
    Ok(())
}

/// An environment variable that chooses something; one that is empty chooses nothing.
fn option(name: &str) -> Option<String> {
    let name = format!("FOREVER_DIFFTEST_{name}");
    println!("cargo:rerun-if-env-changed={name}");
    env::var(name).ok().filter(|value| !value.is_empty())
}

fn number(name: &str) -> Result<Option<u64>, Box<dyn Error>> {
    let parse = |text: String| text.parse().map_err(|e| format!("FOREVER_DIFFTEST_{name}={text}: {e}").into());
    option(name).map(parse).transpose()
}

/// Several of them, with commas between.
fn list(name: &str) -> Vec<String> {
    let text = option(name).unwrap_or_default();
    text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
}
