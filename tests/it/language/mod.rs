//! Every construct of the language: a body as fiber behaves as the plain function does, killed at every checkpoint.
mod basic;
mod harness;
