//! How much a generated test does: a sample in the gate, all of it in the night.
//!
//! The gate is `cargo test --workspace`, which has to take minutes. The night is
//! `scripts/nightly`, which sets [`NIGHT`]. Each test has both sizes beside its generator, and a
//! variable of its own that overrides them.

/// Variable that is set in the night.
pub const NIGHT: &str = "FOREVER_NIGHT";

/// Whether this is a run of the night.
#[must_use]
pub fn is_night() -> bool {
    std::env::var_os(NIGHT).is_some_and(|value| !value.is_empty() && value != "0")
}

/// The size that the variable `name` sets: `gate` or `night` if it is not set or empty.
///
/// # Panics
///
/// If the variable is no number.
#[must_use]
pub fn size(name: &str, gate: u64, night: u64) -> u64 {
    match std::env::var(name).ok().filter(|text| !text.is_empty()) {
        Some(text) => text.parse().unwrap_or_else(|_| panic!("`{name}` is not a number: {text}")),
        None if is_night() => night,
        None => gate,
    }
}

/// Whether to run a test that only the night runs; prints that `what` is left out if not.
#[must_use]
pub fn runs_at_night(what: &str) -> bool {
    if !is_night() {
        eprintln!("{what}: left out, `scripts/nightly` runs it");
    }
    is_night()
}

/// The distance between the places that a test tries: 1 in the night, and `gate` otherwise.
#[must_use]
pub fn stride(gate: usize) -> usize {
    if is_night() { 1 } else { gate }
}

/// The limit of a test in the gate; in the night it has none.
#[must_use]
pub fn at_most(gate: usize) -> usize {
    if is_night() { usize::MAX } else { gate }
}

/// Number of random runs with deaths: `at_night`, a fifth of it in the gate, and `FOREVER_CRASHES`
/// times as many if that is set.
///
/// # Panics
///
/// If the variable is no number.
#[must_use]
pub fn crashes(at_night: u32) -> u32 {
    let wider = u32::try_from(size("FOREVER_CRASHES", 1, 1)).expect("`FOREVER_CRASHES`");
    wider * at_night / if is_night() { 1 } else { 5 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_without_its_variable_is_that_of_the_gate_or_of_the_night() {
        let expected = if is_night() { 300 } else { 30 };
        assert_eq!(size("FOREVER_A_VARIABLE_THAT_IS_NOT_SET", 30, 300), expected);
    }
}
