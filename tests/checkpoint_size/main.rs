//! What a checkpoint writes: what has changed. And what a resumed fiber has: what its snapshot says, exactly.
#![allow(missing_docs, missing_debug_implementations, clippy::string_slice, reason = "tests")]
mod damage;
mod deep;
mod logs;
mod parts;
mod random;
mod size;
mod support;
