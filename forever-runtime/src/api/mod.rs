//! The runtime as its users hold it: opened by a builder, asked for fibers, closed.

pub(crate) mod admin;
pub(crate) mod builder;
pub(crate) mod forever;
mod history;
mod redact;
pub(crate) mod upper;
pub(crate) mod view;
pub(crate) mod workers;
