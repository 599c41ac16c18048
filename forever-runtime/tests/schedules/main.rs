//! The threads of the store under a scheduler that tries thousands of orders: the code of `src`, with other locks and threads in the place of its
//! [`sync`](store::sqlite::sync), and real databases.
//!
//! `FOREVER_SCHEDULES` says how many orders each test tries, `FOREVER_SCHEDULES_SEED` which ones.
#![allow(missing_docs, missing_debug_implementations, reason = "tests")]
#[allow(dead_code, unreachable_pub, reason = "the runtime uses all of it, and gives it to others")]
#[path = "../../src/error.rs"]
mod error;
mod lock;
mod support;
mod writer;

mod fiber {
    pub(crate) mod frame {
        pub(crate) type BoxFuture<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>;
    }
}

#[allow(dead_code, reason = "the runtime uses all of it")]
#[path = "../../src/store"]
mod store {
    #[path = "sqlite"]
    pub(crate) mod sqlite {
        pub(crate) mod lock;
        #[cfg(target_os = "linux")]
        pub(crate) mod mounts;
        #[path = "../../../tests/schedules/sync.rs"]
        pub(crate) mod sync;
        pub(crate) mod worker;

        /// When the write-ahead log is copied is of no matter here.
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

                pub(crate) fn tidy(&mut self, _: &rusqlite::Connection) {
                    super::sync::meet();
                }
            }
        }
    }
}
