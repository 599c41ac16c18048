//! What all fibers of one open runtime share.

pub(crate) mod active;
pub(crate) mod cluster;
pub(crate) mod commands;
pub(crate) mod database;
pub(crate) mod detached;
pub(crate) mod event_json;
pub(crate) mod events;
pub(crate) mod exit;
pub(crate) mod exits;
pub(crate) mod fence;
#[cfg(feature = "testing")]
pub(crate) mod gate;
pub(crate) mod handle;
pub(crate) mod link;
pub(crate) mod messages;
pub(crate) mod published;
pub(crate) mod race;
pub(crate) mod rounds;
pub(crate) mod settings;
pub(crate) mod state;
pub(crate) mod sync;
pub(crate) mod timer;
pub(crate) mod type_checks;
