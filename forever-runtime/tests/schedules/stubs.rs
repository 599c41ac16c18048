//! What the tasks of a runtime use and what is not tried here: a model of it, as small as can be.
//!
//! There is one function. It receives so many messages, each with a checkpoint, waits where there is none, and ends. It says when it is entered, polled
//! and dropped.
use std::sync::Arc;

use crate::clock::Clock;

#[derive(Debug, Clone, Default)]
pub(crate) struct Resources;

pub(crate) struct FiberContext {
    pub(crate) id: String,
    pub(crate) name: Arc<str>,
    pub(crate) resuming: bool,
    pub(crate) resources: Resources,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) run: Arc<frame::Run>,
}

pub(crate) mod drive {
    /// No code of these tests panics.
    #[allow(non_snake_case, reason = "it stands for a type")]
    pub(crate) mod Guarded {
        pub(crate) fn new<F>(code: F) -> F {
            code
        }
    }
}

pub(crate) mod events {
    use std::sync::Arc;
    use std::time::SystemTime;

    pub(crate) struct Event {
        pub(crate) fiber: Arc<str>,
        pub(crate) name: Arc<str>,
        pub(crate) time: SystemTime,
        pub(crate) kind: EventKind,
    }

    pub(crate) enum EventKind {
        Spawned,
        Woken,
        Started { resuming: bool },
        Waiting,
        Interrupted { reason: Arc<str> },
        Parked { reason: Arc<str> },
        Completed,
        Failed { reason: Arc<str> },
        Cancelled { reason: Arc<str> },
    }

    #[derive(Debug, Default)]
    pub(crate) struct Listeners;

    #[allow(clippy::unused_self, reason = "as in the runtime")]
    impl Listeners {
        pub(crate) fn tell(&self, event: impl FnOnce() -> Event) {
            drop(event());
        }

        pub(crate) fn close(&self) {}
    }
}

pub(crate) mod frame {
    use std::any::Any;
    use std::sync::Arc;
    use std::time::Duration;

    use super::op::ledger::Left;
    use crate::error::Result;
    use crate::future::BoxFuture;
    use crate::store::OpOutcome;

    pub(crate) const CHECK_TIMEOUT: Duration = Duration::from_secs(30);

    /// The store, as the function sees it.
    pub(crate) trait Sink: Send + Sync {
        fn receive(&self, number: u64) -> BoxFuture<'_, Result<bool>>;
        fn is_told_to_stop(&self) -> bool;
        /// The code begins, until what comes back is dropped.
        fn enters(&self) -> Box<dyn Any + Send>;
        fn is_polled(&self);
    }

    pub(crate) struct Run {
        pub(crate) ops: Ops,
        pub(crate) sink: Arc<dyn Sink>,
        /// Checkpoints made before.
        pub(crate) number: u64,
    }

    pub(crate) struct Ops;

    impl Run {
        pub(crate) fn first(_: &str, sink: Arc<dyn Sink>) -> Arc<Self> {
            Arc::new(Run { ops: Ops, sink, number: 0 })
        }

        pub(crate) fn again(_: &str, sink: Arc<dyn Sink>, Left { checkpoints, .. }: Left) -> Arc<Self> {
            Arc::new(Run { ops: Ops, sink, number: checkpoints })
        }
    }

    #[allow(clippy::unused_self, reason = "as in the runtime")]
    impl Ops {
        pub(crate) fn take_settled(&self) -> Vec<OpOutcome> {
            Vec::new()
        }

        pub(crate) fn ask_to_stop(&self) {}
    }
}

pub(crate) mod kinds {
    #[derive(Debug, Default)]
    pub(crate) struct Kinds {}
}

pub(crate) mod compatibility {
    #[derive(Debug, Default)]
    pub(crate) struct Compatibility;
}

pub(crate) mod layout {
    #[derive(Debug, Default)]
    pub(crate) struct LayoutRows {}
}

pub(crate) mod op {
    pub(crate) mod ledger {
        use std::collections::BTreeSet;

        use crate::store::LoadedFiber;

        pub(crate) struct Left {
            pub(crate) checkpoints: u64,
        }

        impl Left {
            pub(crate) fn of(stored: &mut LoadedFiber, _: &BTreeSet<u32>) -> Self {
                Left { checkpoints: stored.number }
            }
        }
    }
}

pub(crate) mod owner {
    use std::any::Any;
    use std::fmt;
    use std::sync::Arc;

    use crate::fiber::core::Core;
    use crate::future::BoxFuture;
    use crate::store::{AgentId, FiberState};

    pub(crate) struct EndedFiber {
        pub(crate) id: String,
        pub(crate) name: String,
        pub(crate) state: FiberState,
        pub(crate) text: Arc<str>,
    }

    pub(crate) trait Owners: Send + Sync + fmt::Debug {
        fn hold(&self, core: &Arc<Core>, agent: &AgentId) -> Box<dyn Any + Send>;
        fn ended<'a>(&'a self, core: &'a Arc<Core>, agent: &'a AgentId, fiber: EndedFiber) -> BoxFuture<'a, ()>;
    }

    /// There are no agents.
    #[derive(Debug)]
    pub(crate) struct Nobody;

    impl Owners for Nobody {
        fn hold(&self, _: &Arc<Core>, _: &AgentId) -> Box<dyn Any + Send> {
            Box::new(())
        }

        fn ended<'a>(&'a self, _: &'a Arc<Core>, _: &'a AgentId, _: EndedFiber) -> BoxFuture<'a, ()> {
            Box::pin(async {})
        }
    }
}

pub(crate) mod registry {
    use std::any::Any;
    use std::sync::{Arc, OnceLock};

    use super::FiberContext;
    use super::frame::Run;
    use crate::error::{Error, Result};
    use crate::future::BoxFuture;
    use crate::store::{End, LayoutRow, LoadedFiber, Wait};

    /// How many messages the function receives.
    pub(crate) const MESSAGES: u64 = 2;

    #[derive(Debug)]
    pub(crate) enum Outcome {
        Completed(String),
        Failed(String),
        Parked(String),
        #[allow(dead_code, reason = "the function has no `migrate` function")]
        Unreadable(u32, String),
        Interrupted(Error),
        Waiting(Wait),
        Ended(End),
        Lost,
    }

    pub(crate) enum Begin {
        Call(Box<dyn Any + Send>),
        Stored(Box<LoadedFiber>),
    }

    pub(crate) struct Machine {
        pub(crate) name: &'static str,
        pub(crate) max_recoveries: Option<u32>,
    }

    pub(crate) trait Known: Send + Sync {
        fn machine(&self) -> &'static Machine;
        fn row(&self) -> &Arc<LayoutRow>;
        fn prepare(&self, begin: Begin, ctx: FiberContext, run: Arc<Run>) -> Result<BoxFuture<'static, Outcome>, String>;
    }

    #[derive(Debug, Default)]
    pub(crate) struct Registry;

    #[allow(clippy::unnecessary_wraps, clippy::unused_self, reason = "as in the runtime")]
    impl Registry {
        pub(crate) fn get(&self, _: &str) -> Option<Arc<dyn Known>> {
            Some(Arc::new(Receives))
        }

        pub(crate) fn is_ours(&self, _: &str) -> bool {
            false
        }
    }

    /// The function.
    pub(crate) struct Receives;

    impl Known for Receives {
        fn machine(&self) -> &'static Machine {
            static MACHINE: Machine = Machine { name: "receives", max_recoveries: None };
            &MACHINE
        }

        fn row(&self) -> &Arc<LayoutRow> {
            static ROW: OnceLock<Arc<LayoutRow>> = OnceLock::new();
            ROW.get_or_init(|| Arc::new(LayoutRow { hash: String::new() }))
        }

        fn prepare(&self, _: Begin, ctx: FiberContext, run: Arc<Run>) -> Result<BoxFuture<'static, Outcome>, String> {
            let sink = Arc::clone(&run.sink);
            let mut code = Box::pin(async move {
                let _inside = run.sink.enters();
                for number in run.number + 1..=MESSAGES {
                    match run.sink.receive(number).await {
                        Ok(true) if run.sink.is_told_to_stop() => return Outcome::Interrupted(Error::closed()),
                        Ok(true) => {}
                        // Every second one waits for a time as well.
                        Ok(false) if ctx.id.ends_with("due") => {
                            return Outcome::Waiting(Wait { due_ms: Some(number.cast_signed() * 1000) });
                        }
                        Ok(false) => return Outcome::Waiting(Wait::default()),
                        Err(error) => return Outcome::Interrupted(error),
                    }
                }
                Outcome::Completed(MESSAGES.to_string())
            });
            Ok(Box::pin(std::future::poll_fn(move |cx| {
                sink.is_polled();
                let polled = code.as_mut().poll(cx);
                sink.is_polled();
                polled
            })))
        }
    }
}

pub(crate) mod retention {
    #[derive(Debug, Clone, Default)]
    pub(crate) struct Retention {}
}

pub(crate) mod sink {
    use std::any::Any;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, Weak};

    use tokio::sync::OwnedSemaphorePermit;

    use super::frame::Sink;
    use super::registry::Known;
    use crate::error::Result;
    use crate::fiber::core::Core;
    use crate::fiber::fence::Fence;
    use crate::fiber::live::{Alive, Control};
    use crate::future::BoxFuture;
    use crate::store::{AgentId, Claim};

    pub(crate) struct StoreSink {
        core: Arc<Core>,
        fence: Fence,
        control: Weak<Control>,
        pub(crate) progress: AtomicBool,
    }

    impl StoreSink {
        pub(crate) fn new(core: &Arc<Core>, _: &Arc<dyn Known>, claim: Claim, alive: &Alive, _: Option<AgentId>, _: bool) -> Self {
            StoreSink {
                core: Arc::clone(core),
                fence: Fence::new(claim, Some(&alive.control)),
                control: Arc::downgrade(&alive.control),
                progress: AtomicBool::default(),
            }
        }

        pub(crate) fn claimed(&self, claim: Claim) {
            self.fence.claimed(claim);
        }

        #[allow(clippy::unused_self, reason = "as in the runtime")]
        pub(crate) fn suspect(&self, permit: Option<OwnedSemaphorePermit>) {
            drop(permit);
        }

        #[allow(clippy::unused_self, reason = "as in the runtime")]
        pub(crate) async fn let_others_in<T>(&self, driven: impl Future<Output = T>) -> T {
            driven.await
        }
    }

    impl Sink for StoreSink {
        fn receive(&self, number: u64) -> BoxFuture<'_, Result<bool>> {
            Box::pin(async move {
                let received = self.fence.guard(self.core.store.receive(self.fence.claim(), number)).await?;
                self.progress.store(received, Ordering::Relaxed);
                Ok(received)
            })
        }

        fn is_told_to_stop(&self) -> bool {
            self.core.is_closing() || self.control.upgrade().is_some_and(|control| control.reason().is_some())
        }

        fn enters(&self) -> Box<dyn Any + Send> {
            self.core.store.database().enters(self.core.worker, self.fence.claim())
        }

        fn is_polled(&self) {
            self.core.store.database().is_polled(self.core.worker);
        }
    }
}
