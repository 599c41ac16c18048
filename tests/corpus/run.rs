//! How the bodies are run: see the harness for what is compared.
use std::error::Error;
use std::fmt::Debug;

use crate::language::harness::{HASHED, Io, Letters, Twin, same_with};

/// The tests of a file, one for each body under the body's name, and the list of the bodies.
macro_rules! corpus {
    ($($name:ident => $($run:expr),+;)+) => {
        pub(crate) const BODIES: &[&str] = &[$(stringify!($name)),+];

        mod runs {
            $(mod $name {
                use super::super::*;

                #[test]
                fn is_the_same_when_killed() {
                    $($run;)+
                }
            })+
        }
    };
}
pub(crate) use corpus;

/// A body that makes checkpoints and completes.
#[track_caller]
pub(crate) fn completes<F: Twin>(make: impl Fn() -> F)
where
    F::Output: Debug,
    F::Error: Into<Box<dyn Error + Send + Sync>>,
{
    completes_with(Letters::default(), make);
}

/// [`completes`], for a body that keeps a `HashMap` or a `HashSet`: of its snapshots the order of lists is not compared.
#[track_caller]
pub(crate) fn completes_hashed<F: Twin>(make: impl Fn() -> F)
where
    F::Output: Debug,
    F::Error: Into<Box<dyn Error + Send + Sync>>,
{
    HASHED.set(true);
    completes(make);
}

/// [`completes`], with messages that are there from the beginning.
#[track_caller]
pub(crate) fn completes_with<F: Twin>(letters: Letters, make: impl Fn() -> F)
where
    F::Output: Debug,
    F::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let seen = same_with(letters, make);
    assert!(seen.outcome.starts_with("Completed("), "{}", seen.outcome);
    assert!(seen.snapshots.len() > 1, "a body with a single checkpoint shows little");
}

/// A body that fails with a text that contains this.
#[track_caller]
pub(crate) fn fails<F: Twin>(why: &str, make: impl Fn() -> F)
where
    F::Output: Debug,
    F::Error: Into<Box<dyn Error + Send + Sync>>,
{
    fails_with(Letters::default(), why, make);
}

/// [`fails`], with messages that are there from the beginning.
#[track_caller]
pub(crate) fn fails_with<F: Twin>(letters: Letters, why: &str, make: impl Fn() -> F)
where
    F::Output: Debug,
    F::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let seen = same_with(letters, make);
    assert!(seen.outcome.starts_with("Failed(") && seen.outcome.contains(why), "{}", seen.outcome);
}

/// The work of a branch of `steps!`, done at once, so that branches are done in the order of the plain function.
pub(crate) async fn now<T>(io: &Io, what: impl Into<String>, value: T) -> anyhow::Result<T> {
    io.log(what);
    Ok(value)
}
