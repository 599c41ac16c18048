//! Models of providers, against what their servers send: transcripts of each protocol in `recorded/`, made after its public documentation, cut
//! everywhere.
#![allow(clippy::string_slice, reason = "their texts are known")]
mod support;

mod cut;
mod errors;
mod looped;
mod protocols;
mod recovery;
mod requests;
mod sockets;
