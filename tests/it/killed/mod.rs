//! Fibers whose processes die of SIGKILL: many at once, while they wait, between steps side by side, around the making of children.
//!
//! The test binary starts itself again as a worker, which plays a role over a database. What the workers do goes to a journal, a file
//! that is not the database; what was stored when a worker died is read from a copy of the database.
mod agents;
mod children;
mod many;
mod owners;
mod process;
mod waits;

use forever::Builder;

use process::Desk;

/// A runtime that knows all fibers and agents of these tests.
fn registered(builder: Builder, desk: Desk) -> Builder {
    let builder = builder.agent(move |me| agents::Clerk { me, desk: desk.clone() }).fiber::<agents::opening>();
    let builder = builder.fiber::<many::sums>().fiber::<many::killer>();
    let builder = builder.fiber::<waits::sleeper>().fiber::<waits::inbox>().fiber::<waits::boss>().fiber::<waits::side>();
    builder.fiber::<children::maker>().fiber::<children::made>().fiber::<children::top>().fiber::<children::below>()
}
