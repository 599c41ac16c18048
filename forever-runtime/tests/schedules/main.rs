//! The threads of the store and the tasks of a runtime under a scheduler that tries thousands of orders: the code of `src`, with other locks,
//! threads and tasks in the place of its [`sync`](store::sqlite::sync), and real databases. What of the tasks is real code and what is a model is
//! in [`dispatch`].
//!
//! `FOREVER_SCHEDULES` says how many orders each test tries, `FOREVER_SCHEDULES_SEED` which ones.
#![allow(missing_docs, missing_debug_implementations, reason = "tests")]
#[allow(dead_code, unreachable_pub, reason = "the runtime uses all of it, and gives it to others")]
#[path = "../../src/clock.rs"]
mod clock;
mod dispatch;
mod lock;
mod rounds;
mod support;
mod writer;

#[allow(unreachable_pub, reason = "the runtime gives it to others")]
#[path = "../../src/error.rs"]
mod error;
#[path = "../../src/future.rs"]
mod future;
#[allow(dead_code, unreachable_pub, reason = "the store gives it to the runtime")]
#[path = "../../../crates/forever-store/src/witness.rs"]
mod witness;

mod secret {
    pub(crate) fn shown(text: &str) -> &str {
        text
    }
}

#[allow(dead_code, unreachable_pub, reason = "the runtime uses all of it, and gives it to others")]
#[path = "../../src/runtime"]
mod runtime {
    pub(crate) mod active;
    pub(crate) mod detached;
    pub(crate) mod exit;
    pub(crate) mod exits;
    pub(crate) mod fence;
    #[cfg(feature = "testing")]
    pub(crate) mod gate;
    pub(crate) mod link;
    pub(crate) mod race;
    pub(crate) mod rounds;
    pub(crate) mod settings;
    pub(crate) mod state;
    #[path = "../../tests/schedules/tasks.rs"]
    pub(crate) mod sync;
    pub(crate) mod timer;
    pub(crate) mod timings;

    pub(crate) use crate::stubs::runtime::{cluster, database, events, type_checks};
}

#[allow(dead_code, reason = "the runtime uses all of it")]
#[path = "../../src/exec"]
mod exec {
    pub(crate) mod activation;
    pub(crate) mod dispatch;
    pub(crate) mod entry_order;
    pub(crate) mod executor;
    pub(crate) mod lease;

    pub(crate) use crate::stubs::exec::{agent_hooks, backend, compatibility, failed, recovery, registry};
}

#[allow(dead_code, reason = "as in the runtime")]
mod stubs;

#[cfg(feature = "testing")]
pub(crate) use stubs::testing;
pub(crate) use stubs::{frame, history, layout, ops};

/// As the files of `forever-store` name what is in the root of their crate.
use store::{Claim, ClaimResult, CommitNotices, End, FiberState, LoadedFiber, Seq, StoredClaim, WorkerId};

#[allow(dead_code, unreachable_pub, reason = "the store uses all of it, and gives it to others")]
#[path = "../../../crates/forever-store/src"]
mod store {
    #[path = "../../../forever-runtime/tests/schedules/types.rs"]
    mod types;

    pub(crate) use types::*;

    #[path = "sqlite"]
    pub(crate) mod sqlite {
        pub(crate) mod answers;
        pub(crate) mod batch;
        pub(crate) mod claims;
        pub(crate) mod conn;
        pub(crate) mod file_guard;
        pub(crate) mod job;
        pub(crate) mod lock;
        #[cfg(target_os = "linux")]
        pub(crate) mod mounts;
        pub(crate) mod pace;
        pub(crate) mod private;
        #[path = "../../../../forever-runtime/tests/schedules/rows.rs"]
        pub(crate) mod rows;
        #[path = "../../../../forever-runtime/tests/schedules/sync.rs"]
        pub(crate) mod sync;
        pub(crate) mod worker;

        /// No fiber has a history here.
        pub(crate) mod histories {
            #[derive(Default)]
            pub(crate) struct Histories;

            #[derive(Default, Clone, Copy)]
            pub(crate) struct Mark(());

            #[allow(clippy::unused_self, clippy::unnecessary_wraps, reason = "as in the store")]
            impl Histories {
                pub(crate) fn load(_: &rusqlite::Connection) -> rusqlite::Result<Self> {
                    Ok(Histories)
                }

                pub(crate) fn mark(&self) -> Mark {
                    Mark(())
                }

                pub(crate) fn undo(&mut self, _: Mark) {}

                pub(crate) fn write(&mut self, _: &rusqlite::Connection) -> rusqlite::Result<()> {
                    Ok(())
                }

                pub(crate) fn committed(&mut self) {}
            }
        }

        /// No fiber has effects here.
        pub(crate) mod recent_ops {
            #[allow(clippy::unnecessary_wraps, reason = "as in the store")]
            pub(crate) fn fold_readable(_: &rusqlite::Connection, _: crate::store::Seq) -> rusqlite::Result<()> {
                Ok(())
            }
        }

        pub(crate) use super::types::Ownership;

        /// When the write-ahead log is copied is of no matter here, nor which commits sync: any may.
        pub(crate) mod log {
            pub(crate) struct Log;

            #[allow(clippy::unused_self, reason = "as in the runtime")]
            impl Log {
                pub(crate) fn commits(&self) -> std::sync::Arc<super::sync::atomic::AtomicBool> {
                    std::sync::Arc::default()
                }

                pub(crate) fn pages(&self) -> crate::witness::Pages {
                    0
                }

                pub(crate) fn earlier_header(&self) -> Option<u64> {
                    None
                }

                pub(crate) fn commits_without_sync(&self) -> bool {
                    use shuttle::rand::Rng;
                    shuttle::rand::thread_rng().gen_bool(0.75)
                }

                pub(crate) fn count(&mut self) {
                    super::sync::meet();
                }

                #[allow(clippy::unused_self, reason = "as in the runtime")]
                pub(crate) fn settle(&self) {}

                pub(crate) fn tidy(&mut self, _: &rusqlite::Connection) {
                    super::sync::meet();
                }
            }
        }
    }
}
