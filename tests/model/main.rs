//! Random sequences of operations on a real runtime and on a model of it: after each, what is stored and what the runtime says is what the model is.
//!
//! `FOREVER_MODEL_CASES` says how many sequences (of each kind), `FOREVER_MODEL_LENGTH` how long they are at most, `FOREVER_MODEL_SEED` which ones.
#![allow(missing_docs, missing_debug_implementations, reason = "tests")]
mod driver;
mod model;
mod once;
mod ops;
mod real;
mod requests;
mod rows;

use std::cell::{Cell, RefCell};
use std::time::Duration;

use proptest::collection::vec;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

use forever_testkit::database::is_in_postgres;
use forever_testkit::sizes::size;
use real::{Pair, Seen};

fn number(name: &str, usually: u32) -> u32 {
    std::env::var(name).map_or(usually, |text| text.parse().expect(name))
}

/// So few sequences do not come to everything.
const SAMPLE: u32 = 79;

fn cases() -> u32 {
    u32::try_from(size("FOREVER_MODEL_CASES", 30, if is_in_postgres() { 80 } else { 300 })).unwrap()
}

/// Runs sequences, and shows the shortest that goes wrong.
fn sequences_agree(die: bool) -> Seen {
    let cases = cases();
    let longest = number("FOREVER_MODEL_LENGTH", 40) as usize;
    let seed = number("FOREVER_MODEL_SEED", 1);
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 2000, max_shrink_time: 20_000, ..Config::default() };
    let mut key = [0; 32];
    key[..4].copy_from_slice(&seed.to_le_bytes());
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &key));
    let all = RefCell::new(Seen::default());
    // Only a sequence that has failed is waited for; its shorter forms need not be waited for as long.
    let patience = Cell::new(Duration::from_secs(10));
    let sequences = (vec(ops::op(), 1..=longest), vec(ops::life(die), 1..6));
    let ran = runner.run(&sequences, |(ops, lives)| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let mut pair = Pair::new(patience.get());
        let ran = runtime.block_on(pair.run(&ops, &lives));
        all.borrow_mut().add(&pair.seen);
        ran.map_err(|why| {
            patience.set(Duration::from_millis(500));
            TestCaseError::fail(why)
        })
    });
    match ran {
        Ok(()) => all.into_inner(),
        Err(TestError::Fail(why, _)) => panic!("the runtime is not what the model is (FOREVER_MODEL_SEED={seed}), {why}"),
        Err(TestError::Abort(why)) => panic!("{why}"),
    }
}

#[test]
fn whatever_is_asked_of_a_runtime_it_stands_as_the_model_does() {
    sequences_agree(false).is_enough(cases() <= SAMPLE);
}

#[test]
fn wherever_its_process_dies_a_runtime_leaves_what_the_model_says() {
    let seen = sequences_agree(true);
    seen.is_enough(cases() <= SAMPLE);
    assert!(seen.half_way > 0 && seen.deaths_at_writes > seen.half_way, "{seen:?}");
}
