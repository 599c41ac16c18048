//! A model of claim, lease, fence and takeover, of which every state is checked.
//!
//! The model has two workers, one fiber of two steps, and the database with its clock. A worker may
//! pause at any point, because nothing makes it act. It may crash, lose its session lock while it
//! lives, and stop waiting for a write that is still on its way. A write may arrive at any time
//! later, or never.
//!
//! Each [`Mutation`] leaves out one part of the protocol, and the model has to find what goes wrong
//! then. `scripts/mutants.list` has the same mutations of the code, with the tests that notice them.
//!
//! [`runs`] makes real runs, and replays what the database did by the rules of the model (`fence`).
mod fence;
mod runs;
mod trace;
mod world;

use std::collections::BTreeSet;

use forever_testkit::sizes::is_night;
use stateright::{Checker, HasDiscoveries, Model};

use world::{Action, Limits, Mutation, Protocol};

/// No limit.
const ANY: u8 = u8::MAX;

#[test]
fn protocol_keeps_its_promises_in_every_state() {
    let (cuts, gives_up, least) = if is_night() { (1, ANY, 100_000) } else { (0, 1, 1_000) };
    states(Limits { waits: 0, crashes: 1, cuts, results: 0, gives_up }, least);
}

#[test]
fn protocol_keeps_its_promises_for_fibers_that_wait() {
    let (crashes, gives_up, least) = if is_night() { (1, ANY, 10_000) } else { (0, 1, 1_000) };
    states(Limits { waits: 1, crashes, cuts: 0, results: 0, gives_up }, least);
}

#[test]
fn protocol_keeps_its_promises_for_fibers_that_store_results_and_wait() {
    let gives_up = if is_night() { ANY } else { 0 };
    states(Limits { waits: 1, crashes: 0, cuts: 0, results: 1, gives_up }, 1_000);
}

/// Checks every state within limits, which are narrower in the gate; there are so many states at least.
fn states(limits: Limits, least: usize) {
    let checked = Protocol { mutation: None, limits }.checker().threads(2).spawn_bfs().join();
    println!("{} states, {} of them different, depth {}", checked.state_count(), checked.unique_state_count(), checked.max_depth());
    checked.assert_properties();
    assert!(checked.unique_state_count() > least, "the model has {} states alone", checked.unique_state_count());
}

/// Checks that a mutation violates a property, and prints the shortest way to that.
fn violated(mutation: Mutation, property: &'static str) {
    violated_within(mutation, property, Limits { waits: 0, crashes: 1, cuts: 1, results: 0, gives_up: ANY });
}

/// As [`violated`], where so much happens at most; returns the shortest way.
fn violated_within(mutation: Mutation, property: &'static str, limits: Limits) -> Vec<Action> {
    let found = HasDiscoveries::AllOf(BTreeSet::from([property]));
    // One thread, so that the first path is the shortest.
    let checked = Protocol { mutation: Some(mutation), limits }.checker().threads(1).finish_when(found).spawn_bfs().join();
    let path = checked.discovery(property);
    let path = path.unwrap_or_else(|| panic!("{mutation:?} does not violate `{property}`: {:?}", checked.discoveries().keys()));
    let actions = path.into_actions();
    println!("{mutation:?}: {actions:?}");
    actions
}

#[test]
fn end_without_the_epoch_lets_two_activations_write() {
    violated(Mutation::EndWithoutEpoch, world::ONE_WRITER);
}

#[test]
fn claim_that_keeps_the_epoch_lets_two_activations_write() {
    violated(Mutation::ClaimKeepsEpoch, world::ONE_WRITER);
}

#[test]
fn lock_alone_lets_two_activations_write() {
    violated(Mutation::LockAlone, world::ONE_WRITER);
}

#[test]
fn lease_by_the_clock_of_the_worker_takes_from_the_living_and_leaves_to_the_dead() {
    violated(Mutation::LeaseByWorkersClock, world::LIVING_KEEP);
    violated(Mutation::LeaseByWorkersClock, world::NONE_LOST);
}

/// One worker loads the fiber while another one runs it, and claims it when that one has advanced,
/// has let it go, and it was woken.
#[test]
fn load_before_the_claim_runs_a_fiber_from_an_older_checkpoint() {
    let limits = Limits { waits: 1, crashes: 0, cuts: 0, results: 0, gives_up: 0 };
    let path = violated_within(Mutation::LoadBeforeClaimAndReleaseKeepsEpoch, world::FROM_THE_NEWEST, limits);
    assert!(matches!(path[..], [.., Action::SendWait(_), Action::Arrive(_), Action::Claim(_)]), "{path:?}");
}

/// The checkpoint stays the same: one worker loads the fiber, and another one stores the result of a
/// branch, an operation or a stash, and lets it go.
#[test]
fn load_before_the_claim_misses_results_of_the_same_checkpoint() {
    let limits = Limits { waits: 1, crashes: 0, cuts: 0, results: 1, gives_up: 0 };
    let path = violated_within(Mutation::LoadBeforeClaimAndReleaseKeepsEpoch, world::WITH_ALL_RESULTS, limits);
    assert!(path.iter().any(|action| matches!(action, Action::SendResult(_))), "{path:?}");
}

/// An epoch that each release raises is not enough: a worker that has given up a write may load its
/// own fiber before that write arrives.
#[test]
fn load_before_the_claim_misses_a_write_that_was_given_up() {
    let limits = Limits { waits: 0, crashes: 0, cuts: 0, results: 0, gives_up: 1 };
    violated_within(Mutation::LoadBeforeClaim, world::FROM_THE_NEWEST, limits);
}
