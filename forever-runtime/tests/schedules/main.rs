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
#[allow(dead_code, unreachable_pub, reason = "the runtime uses all of it, and gives it to others")]
#[path = "../../src/error.rs"]
mod error;
mod lock;
mod support;
mod writer;

#[allow(unreachable_pub, reason = "the runtime gives it to others")]
#[path = "../../src/future.rs"]
mod future;

#[allow(dead_code, reason = "the runtime uses all of it")]
#[path = "../../src/fiber"]
mod fiber {
    pub(crate) mod core;
    pub(crate) mod detached;
    pub(crate) mod dispatch;
    pub(crate) mod fence;
    pub(crate) mod live;
    pub(crate) mod runner;
    #[path = "../../tests/schedules/stubs.rs"]
    mod stubs;
    #[path = "../../tests/schedules/tasks.rs"]
    pub(crate) mod sync;
    pub(crate) mod timer;

    pub(crate) use stubs::{FiberContext, Resources, compatibility, drive, events, frame, kinds, op, owner, registry, retention, sink};
}

#[allow(dead_code, reason = "the runtime uses all of it")]
#[path = "../../src/store"]
mod store {
    #[path = "../../tests/schedules/types.rs"]
    mod types;

    pub(crate) use types::*;

    #[path = "sqlite"]
    pub(crate) mod sqlite {
        pub(crate) mod batch;
        pub(crate) mod claims;
        pub(crate) mod file_guard;
        pub(crate) mod job;
        pub(crate) mod lock;
        #[cfg(target_os = "linux")]
        pub(crate) mod mounts;
        pub(crate) mod pace;
        #[path = "../../../tests/schedules/rows.rs"]
        pub(crate) mod rows;
        #[path = "../../../tests/schedules/sync.rs"]
        pub(crate) mod sync;
        pub(crate) mod worker;

        pub(crate) use super::types::Ownership;

        /// When the write-ahead log is copied is of no matter here, nor which commits sync: any may.
        pub(crate) mod log {
            pub(crate) struct Log;

            #[allow(clippy::unused_self, reason = "as in the runtime")]
            impl Log {
                pub(crate) fn commits(&self) -> std::sync::Arc<super::sync::atomic::AtomicBool> {
                    std::sync::Arc::default()
                }

                pub(crate) fn pages(&self) -> super::worker::Pages {
                    0
                }

                pub(crate) fn commits_without_sync(&self) -> bool {
                    use shuttle::rand::Rng;
                    shuttle::rand::thread_rng().gen_bool(0.75)
                }

                pub(crate) fn count(&mut self) {
                    super::sync::meet();
                }

                pub(crate) fn tidy(&mut self, _: &rusqlite::Connection) {
                    super::sync::meet();
                }
            }
        }
    }
}
