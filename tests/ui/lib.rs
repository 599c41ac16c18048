//! What the compiler says: the tests are in `main.rs`, the cases in `fail` and `pass`.
