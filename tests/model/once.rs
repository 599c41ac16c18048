//! Sequences that are to be gone through each time.
use std::time::Duration;

use crate::driver::{Answer, Order};
use crate::model::Process;
use crate::real::Pair;
use crate::requests::{Asked, How, Named};

fn agree(all: Vec<Asked>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut pair = Pair::new(Duration::from_secs(10));
    for asked in all {
        runtime.block_on(pair.ask(asked)).unwrap_or_else(|why| panic!("{why}"));
    }
}

fn open(guests: bool) -> Asked {
    Asked::Open { process: Process { guests, answer: Answer::Resume }, dies: None }
}

fn spawn(name: &str) -> Asked {
    Asked::Spawn { name: name.to_owned(), how: Named::Id, guest: true, agent: None }
}

fn cancel(name: &str) -> Asked {
    Asked::Cancel { name: name.to_owned(), reason: "enough".to_owned() }
}

#[test]
fn a_fiber_that_was_told_to_end_does_so_although_its_function_is_not_registered() {
    let resume = || Asked::Resume { name: "i0".to_owned() };
    agree(vec![open(true), spawn("i0"), cancel("i0"), Asked::Kill, open(false), resume(), Asked::Close, open(true)]);
}

#[test]
fn a_fiber_that_was_told_to_end_does_so_although_its_operation_is_in_doubt() {
    let tell = |order| Asked::Tell { name: "i0".to_owned(), order };
    let resolve = Asked::ResolveOp { name: "i0".to_owned(), number: 1, how: How::NotExecuted };
    let acts = vec![open(true), spawn("i0"), tell(Order::Act), cancel("i0"), Asked::Kill];
    agree([acts, vec![open(false), resolve, Asked::Close, open(true)]].concat());
}
