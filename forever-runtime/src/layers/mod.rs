//! What a crate above the runtime sees of it, beyond the public API.
//!
//! Such a crate registers a [`Layer`](layer::Layer) with the builder. When the runtime opens, the
//! layer gets an [`Engine`](engine::Engine): the store, the clock, tasks, alarms and fibers. Its own
//! functions also use [`context`]: they may host other functions in their frame, and end an
//! activation with an [`Exit`](crate::runtime::exit::Exit).
//!
//! Nothing here is for programs.
pub(crate) mod agents;
pub(crate) mod context;
pub(crate) mod engine;
pub(crate) mod layer;
pub mod local;
