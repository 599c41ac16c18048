//! What tests of fibers need: time that the test drives, and fibers that run without a database.
mod clock;
mod stage;

pub use clock::VirtualClock;
pub use stage::{From, Outcome, Played, Stage};
