//! Several versions of one fiber, and the world that their steps see.
use std::sync::Arc;

use tokio::sync::watch;

/// What the steps do: kept in order. One of them can be told never to finish.
#[derive(Clone, Debug)]
pub(super) struct World(Arc<watch::Sender<Seen>>);

#[derive(Debug, Default)]
struct Seen {
    log: Vec<String>,
    never: Option<String>,
    /// Whether the step that never finishes was begun.
    reached: bool,
}

impl World {
    /// A world in which the step `never` does not finish.
    pub(super) fn without(never: Option<&str>) -> Self {
        World(Arc::new(watch::Sender::new(Seen { never: never.map(str::to_owned), ..Seen::default() })))
    }

    /// The body of a step: gives its argument back.
    pub(super) async fn did<T>(&self, what: impl Into<String>, value: T) -> anyhow::Result<T> {
        let what = what.into();
        let never = self.0.borrow().never.as_deref() == Some(&what);
        if never {
            self.0.send_modify(|seen| seen.reached = true);
            std::future::pending::<()>().await;
        }
        self.0.send_modify(|seen| seen.log.push(what));
        Ok(value)
    }

    /// The steps that have finished.
    pub(super) fn log(&self) -> Vec<String> {
        self.0.borrow().log.clone()
    }

    /// Ready when the step that never finishes was begun.
    pub(super) async fn reached(&self) {
        self.0.subscribe().wait_for(|seen| seen.reached).await.expect("the world outlives its watchers");
    }
}

/// Modules with a version each of the fiber `work`; what is in parentheses before a body are the options of `#[fiber]`.
macro_rules! versions {
    ($($version:ident $([$($option:tt)*])? ($io:ident $(, $arg:ident: $ty:ty)* $(,)?) -> $output:ty { $($body:tt)* })*) => {$(
        #[allow(dead_code, unused_imports, unused_variables, clippy::unnecessary_wraps)]
        mod $version {
            use super::*;

            #[forever::fiber($($($option)*)?)]
            pub(super) async fn work($io: forever::fiber::Res<$crate::drift::World> $(, $arg: $ty)*) -> anyhow::Result<$output> { $($body)* }
        }
    )*};
}
pub(super) use versions;
