//! The runtime as its users hold it: opened by a builder, asked for fibers, closed.

pub(crate) mod admin;
pub(crate) mod builder;
mod chat;
pub(crate) mod forever;
pub(crate) mod messages;
pub(crate) mod workers;
