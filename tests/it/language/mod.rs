//! Every construct of the language: a body as fiber behaves as the plain function does, killed at every checkpoint.
// The bodies are odd on purpose: they are what people may write, not what they should.
#![allow(clippy::all, clippy::pedantic)]
#![allow(unused_braces, unused_imports, unused_must_use, for_loops_over_fallibles, dropping_copy_types, noop_method_call)]
mod basic;
mod harness;

mod borrows;
mod calls;
mod catch;
mod closures;
mod conditions;
mod diverging;
mod drops;
mod effects;
mod errors;
mod fresh;
mod generics;
mod held;
mod labels;
mod loops;
mod macros;
mod moves;
mod operands;
mod partly_moved;
mod patterns;
mod select;
mod set_later;
#[allow(non_snake_case)]
mod shadowing;
mod side;
mod snapshot;
// Its fibers say which of their lines is which.
#[rustfmt::skip]
mod spans;
mod steps;
mod texts;
mod waits;
