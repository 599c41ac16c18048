//! The runtime as its users hold it: opened by a builder, asked for fibers, closed.

pub(crate) mod admin;
pub(crate) mod builder;
pub(crate) mod chat_views;
pub(crate) mod client;
mod copies;
pub(crate) mod edit;
pub(crate) mod export;
pub(crate) mod forever;
pub(crate) mod fork;
mod history;
mod redact;
mod secrecy;
pub(crate) mod troubles;
pub(crate) mod upper;
pub(crate) mod view;
pub(crate) mod workers;
