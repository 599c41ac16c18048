//! Tests of the store, each over a schema of its own in one server.
mod cluster;
mod conforms;
