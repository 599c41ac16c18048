//! Random bodies, each compiled as a plain `async fn` and as a fiber. The fiber is killed after every checkpoint and resumed
//! from the snapshot's text: it must give the result of the plain function, and the log of its calls must be the same, so that
//! every step that had finished ran once over both processes.
//!
//! Chosen by environment variables when the tests are built:
//!
//! | variable | means | default |
//! |---|---|---|
//! | `FOREVER_DIFFTEST_SEED` | other bodies | 1 |
//! | `FOREVER_DIFFTEST_CASES` | how many | 20, in the night 200 |
//! | `FOREVER_DIFFTEST_FIRST` | the number of the first | 0 |
//! | `FOREVER_DIFFTEST_STATEMENTS` | how many statements a body has at most | 26 |
//! | `FOREVER_DIFFTEST_ONLY` | this case alone, and its text is printed | all |
//! | `FOREVER_DIFFTEST_SKIP` | cases to leave out, by number, with commas between | none |
//! | `FOREVER_DIFFTEST_WITHOUT` | constructs that no body may contain, by name, with commas between | none |
//! | `FOREVER_DIFFTEST_PLAIN` | if set, the plain functions alone | both |
//!
//! The number of a case, the seed, the number of statements and the constructs left out determine its text; how many cases there
//! are does not.

#[allow(warnings, clippy::all, clippy::pedantic)]
mod cases;
mod run;
