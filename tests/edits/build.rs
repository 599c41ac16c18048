//! Writes the versions. What can be chosen is said in `tests/edits/main.rs`.
use std::error::Error;
use std::path::Path;
use std::{env, fs};

#[allow(dead_code, reason = "the test uses the rest")]
mod model;

use forever_testkit::sizes::{NIGHT, is_night};

/// How many in the gate, and in the night: there each kind of edit at least once.
const EDITS: [u64; 2] = [12, 68];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=model");
    println!("cargo:rerun-if-env-changed={NIGHT}");
    let seed = number("SEED")?.unwrap_or(1);
    let edits = usize::try_from(number("CASES")?.unwrap_or(EDITS[usize::from(is_night())]))?;
    let out = env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?;
    fs::write(Path::new(&out).join("versions.rs"), model::source(seed, edits))?;
    Ok(())
}

/// An environment variable that chooses something; one that is empty chooses nothing.
fn number(name: &str) -> Result<Option<u64>, Box<dyn Error>> {
    let name = format!("FOREVER_EDITS_{name}");
    println!("cargo:rerun-if-env-changed={name}");
    let value = env::var(&name).ok().filter(|value| !value.is_empty());
    value.map(|text| text.parse().map_err(|e| format!("{name}={text}: {e}").into())).transpose()
}
