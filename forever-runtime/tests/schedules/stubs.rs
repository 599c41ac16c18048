//! What the tasks of a runtime use and what is not tried here: a model of it, as small as can be.
//!
//! There is one function. It receives so many messages, each with a checkpoint, waits where there is none, and ends. It says when it is entered, polled
//! and dropped.
pub(crate) mod runtime {
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
            Recovered { deaths: u32 },
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

    /// There is one kind of store.
    pub(crate) mod database {
        use std::sync::Arc;

        use crate::store::{Ownership, Sqlite};

        #[derive(Debug)]
        pub(crate) struct Database(pub(crate) Arc<Sqlite>);

        impl Database {
            #[allow(clippy::unnecessary_wraps, reason = "as in the runtime")]
            pub(crate) fn ownership(&self) -> Option<Ownership> {
                Some(self.0.ownership())
            }
        }
    }

    /// There is one worker.
    pub(crate) mod cluster {
        use std::sync::Arc;

        use crate::error::Result;
        use crate::future::BoxFuture;
        use crate::runtime::state::Runtime;
        use crate::store::{Claim, DeclineResult, Lease, WorkerId};

        #[derive(Debug, Default)]
        pub(crate) struct Watchers {}

        pub(crate) enum NoCluster {}

        impl NoCluster {
            pub(crate) fn lease(&self) -> Option<&dyn Lease> {
                match *self {}
            }

            pub(crate) fn decline(&self, _: Claim, _: WorkerId, _: String, _: bool, _: i64) -> BoxFuture<'_, Result<DeclineResult>> {
                match *self {}
            }
        }

        #[allow(clippy::unused_self, reason = "as in the runtime")]
        impl Runtime {
            pub(crate) fn cluster(&self) -> Option<&NoCluster> {
                None
            }
        }

        pub(crate) fn run<R: Future, A: Future>(_: Arc<Runtime>, _: impl Fn() -> R, _: impl Fn() -> A, _: bool) -> std::future::Ready<()> {
            std::future::ready(())
        }
    }

    pub(crate) mod type_checks {
        #[derive(Debug, Default)]
        pub(crate) struct Kinds {}
    }
}

pub(crate) mod frame {
    pub(crate) mod backend {
        use std::any::Any;

        use crate::error::Result;
        use crate::future::BoxFuture;

        /// The store, as the function sees it.
        pub(crate) trait RunBackend: Send + Sync {
            fn receive(&self, number: u64) -> BoxFuture<'_, Result<bool>>;
            fn is_told_to_stop(&self) -> bool;
            /// The code begins, until what comes back is dropped.
            fn enters(&self) -> Box<dyn Any + Send>;
            fn is_polled(&self);
        }
    }

    pub(crate) mod run {
        use std::sync::Arc;

        use super::backend::RunBackend;
        use crate::ops::known::Left;
        use crate::runtime::exit::Exit;
        use crate::store::{OpOutcome, StreamAppend};

        pub(crate) struct Run {
            pub(crate) ops: Ops,
            pub(crate) outputs: Outputs,
            pub(crate) secrets: RunSecrets,
            pub(crate) tx_position: TxPosition,
            pub(crate) backend: Arc<dyn RunBackend>,
            /// Checkpoints made before.
            pub(crate) number: u64,
        }

        pub(crate) struct Ops;

        pub(crate) struct Outputs;

        pub(crate) struct TxPosition;

        #[allow(clippy::unused_self, reason = "as in the runtime")]
        impl TxPosition {
            pub(crate) fn step(&self) -> Option<(&'static str, &'static str)> {
                None
            }
        }

        pub(crate) struct RunSecrets;

        #[allow(clippy::unused_self, reason = "as in the runtime")]
        impl RunSecrets {
            pub(crate) fn exit(&self, exit: Exit) -> Exit {
                exit
            }
        }

        #[allow(clippy::unused_self, reason = "as in the runtime")]
        impl Outputs {
            pub(crate) fn take(&self) -> Vec<StreamAppend> {
                Vec::new()
            }
        }

        impl Run {
            pub(crate) fn first(_: &str, backend: Arc<dyn RunBackend>, _: bool) -> Arc<Self> {
                Arc::new(Run { ops: Ops, outputs: Outputs, secrets: RunSecrets, tx_position: TxPosition, backend, number: 0 })
            }

            pub(crate) fn again(_: &str, backend: Arc<dyn RunBackend>, Left { checkpoints, .. }: Left) -> Arc<Self> {
                Arc::new(Run { ops: Ops, outputs: Outputs, secrets: RunSecrets, tx_position: TxPosition, backend, number: checkpoints })
            }
        }

        #[allow(clippy::unused_self, reason = "as in the runtime")]
        impl Ops {
            pub(crate) fn take_settled(&self) -> Vec<OpOutcome> {
                Vec::new()
            }

            pub(crate) fn cancel(&self) {}

            pub(crate) fn close(&self) {}
        }
    }

    pub(crate) mod machine {
        pub(crate) use crate::stubs::exec::registry::{COMPUTED_TOPIC, Machine, PENDING};
    }

    pub(crate) mod context {
        use std::sync::Arc;

        use super::resources::Resources;
        use super::run::Run;
        use crate::clock::Clock;

        pub(crate) struct FiberContext {
            pub(crate) id: String,
            pub(crate) name: Arc<str>,
            pub(crate) resuming: bool,
            pub(crate) resources: Resources,
            pub(crate) clock: Arc<dyn Clock>,
            pub(crate) run: Arc<Run>,
            pub(crate) interrupted: bool,
            pub(crate) handed_over: Option<Arc<dyn std::any::Any + Send + Sync>>,
            pub(crate) host: Option<Arc<dyn std::any::Any + Send + Sync>>,
        }
    }

    pub(crate) mod poll {
        /// No code of these tests panics.
        #[allow(non_snake_case, reason = "it stands for a type")]
        pub(crate) mod Guarded {
            pub(crate) fn new<F>(code: F) -> F {
                code
            }
        }
    }

    pub(crate) mod resources {
        #[derive(Debug, Clone, Default)]
        pub(crate) struct Resources;
    }
}

pub(crate) mod layout {
    pub(crate) mod rows {
        use std::sync::{Arc, OnceLock};

        use crate::frame::machine::Machine;
        use crate::store::LayoutRow;

        pub(crate) fn machines() -> Vec<&'static Machine> {
            Vec::new()
        }

        pub(crate) fn row_of(_: &'static Machine) -> Arc<LayoutRow> {
            static ROW: OnceLock<Arc<LayoutRow>> = OnceLock::new();
            Arc::clone(ROW.get_or_init(Arc::default))
        }
    }

    pub(crate) mod spec {
        use crate::store::LayoutRow;

        /// No function was left under other code.
        pub(crate) struct Layout;

        impl Layout {
            #[allow(clippy::unnecessary_wraps, reason = "as in the runtime")]
            pub(crate) fn read(_: &LayoutRow) -> Result<Layout, String> {
                Ok(Layout)
            }

            #[allow(clippy::unused_self, reason = "as in the runtime")]
            pub(crate) fn receives(&self, _: &str) -> bool {
                false
            }
        }
    }
}

/// None is kept.
pub(crate) mod history {
    #[derive(Debug, Clone, Copy, Default)]
    pub(crate) struct History {}

    pub(crate) struct Recorder;

    #[allow(clippy::unused_self, reason = "as in the runtime")]
    impl Recorder {
        pub(crate) fn resume<T>(&mut self, _: &T) {}
    }
}

pub(crate) mod ops {
    pub(crate) mod known {
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

pub(crate) mod exec {
    pub(crate) mod failed {
        use crate::store::StreamAppend;

        pub(crate) fn record(_: &str, _: &str) -> StreamAppend {
            StreamAppend
        }
    }

    pub(crate) mod agent_hooks {
        use std::any::Any;
        use std::fmt;
        use std::sync::Arc;

        use crate::future::BoxFuture;
        use crate::runtime::state::Runtime;
        use crate::store::{AgentId, FiberState};

        pub(crate) struct EndedFiber {
            pub(crate) id: String,
            pub(crate) name: String,
            pub(crate) state: FiberState,
            pub(crate) text: Arc<str>,
        }

        impl EndedFiber {
            pub(crate) fn new(id: String, name: String, state: FiberState, text: Arc<str>) -> Self {
                EndedFiber { id, name, state, text }
            }
        }

        pub(crate) trait AgentHooks: Send + Sync + fmt::Debug {
            fn hold(&self, runtime: &Arc<Runtime>, agent: &AgentId) -> Box<dyn Any + Send>;
            fn ended<'a>(&'a self, runtime: &'a Arc<Runtime>, agent: &'a AgentId, fiber: EndedFiber) -> BoxFuture<'a, ()>;
        }

        /// There are no agents.
        #[derive(Debug)]
        pub(crate) struct NoAgents;

        impl AgentHooks for NoAgents {
            fn hold(&self, _: &Arc<Runtime>, _: &AgentId) -> Box<dyn Any + Send> {
                Box::new(())
            }

            fn ended<'a>(&'a self, _: &'a Arc<Runtime>, _: &'a AgentId, _: EndedFiber) -> BoxFuture<'a, ()> {
                Box::pin(async {})
            }
        }
    }

    pub(crate) mod backend {
        use std::any::Any;
        use std::sync::atomic::{AtomicBool, Ordering};
        use std::sync::{Arc, Weak};

        use tokio::sync::OwnedSemaphorePermit;

        use super::registry::Known;
        use crate::error::Result;
        use crate::exec::entry_order::Standing;
        use crate::exec::executor::Executor;
        use crate::frame::backend::RunBackend;
        use crate::future::BoxFuture;
        use crate::history::Recorder;
        use crate::runtime::active::{ActiveGuard, Control};
        use crate::runtime::fence::Fence;
        use crate::store::{AgentId, Claim};

        pub(crate) struct StoreBackend {
            exec: Arc<Executor>,
            fence: Fence,
            control: Weak<Control>,
            pub(crate) progress: AtomicBool,
        }

        impl StoreBackend {
            pub(crate) fn new(
                exec: &Arc<Executor>,
                _: &Arc<Known>,
                claim: Claim,
                alive: &ActiveGuard,
                _: Option<AgentId>,
                _: bool,
            ) -> Self {
                StoreBackend {
                    exec: Arc::clone(exec),
                    fence: Fence::new(claim, Some(&alive.control)),
                    control: Arc::downgrade(&alive.control),
                    progress: AtomicBool::default(),
                }
            }

            #[allow(clippy::unused_self, reason = "as in the runtime")]
            pub(crate) fn history(&self) -> Option<Recorder> {
                None
            }

            #[allow(clippy::unused_self, reason = "as in the runtime")]
            pub(crate) fn hold_until_progress(&self, suspect: Option<OwnedSemaphorePermit>, standing: Option<Standing>) {
                drop((suspect, standing));
            }

            #[allow(clippy::unused_self, reason = "as in the runtime")]
            pub(crate) fn set_earlier_lease(&self, _: Option<i64>) {}

            #[allow(clippy::unused_self, reason = "as in the runtime")]
            pub(crate) async fn let_others_in<T>(&self, driven: impl Future<Output = T>) -> T {
                driven.await
            }
        }

        impl RunBackend for StoreBackend {
            fn receive(&self, number: u64) -> BoxFuture<'_, Result<bool>> {
                Box::pin(async move {
                    let received = self.fence.guard(self.exec.runtime.store.receive(self.fence.claim(), number)).await?;
                    self.progress.store(received, Ordering::Relaxed);
                    Ok(received)
                })
            }

            fn is_told_to_stop(&self) -> bool {
                self.exec.runtime.is_closing() || self.control.upgrade().is_some_and(|control| control.reason().is_some())
            }

            fn enters(&self) -> Box<dyn Any + Send> {
                self.exec.runtime.store.database().enters(self.exec.runtime.worker, self.fence.claim())
            }

            fn is_polled(&self) {
                self.exec.runtime.store.database().is_polled(self.exec.runtime.worker);
            }
        }
    }

    /// There are no agents.
    pub(crate) mod recovery {
        use std::sync::Arc;

        use crate::exec::executor::Executor;
        use crate::store::{AgentId, Runnable};

        pub(crate) fn ask_hook(_: &Arc<Executor>, _: AgentId, _: &Runnable) -> bool {
            unreachable!("a fiber has an agent")
        }
    }

    pub(crate) mod compatibility {
        use std::sync::Arc;

        use crate::exec::executor::Executor;

        #[derive(Debug, Default)]
        pub(crate) struct Compatibility;

        pub(crate) fn not_registered(name: &str) -> String {
            format!("fiber `{name}` is not registered")
        }

        pub(crate) fn compare_again(_: Arc<Executor>) -> std::future::Ready<bool> {
            std::future::ready(true)
        }
    }

    pub(crate) mod registry {
        use std::any::Any;
        use std::sync::{Arc, OnceLock};

        use crate::error::Error;
        use crate::frame::context::FiberContext;
        use crate::frame::run::Run;
        use crate::future::BoxFuture;
        use crate::runtime::exit::Exit;
        use crate::store::{LayoutRow, LoadedFiber, Wait};

        /// How many messages the function receives.
        pub(crate) const MESSAGES: u64 = 2;

        pub(crate) enum Begin {
            Call(Box<dyn Any + Send>),
            Stored(Box<LoadedFiber>),
        }

        pub(crate) const COMPUTED_TOPIC: &str = "";
        pub(crate) const PENDING: &str = " pending";

        #[derive(Debug)]
        pub(crate) struct Machine {
            pub(crate) name: &'static str,
            pub(crate) topics: &'static [&'static str],
            pub(crate) max_recoveries: Option<u32>,
            pub(crate) secrets: &'static [&'static str],
        }

        #[allow(clippy::unused_self, reason = "as in the runtime")]
        impl Machine {
            pub(crate) fn calls(&self) -> bool {
                false
            }

            pub(crate) fn wait_of(&self, _: &str) -> Option<&'static str> {
                None
            }
        }

        #[derive(Debug, Default)]
        pub(crate) struct Registry;

        #[allow(clippy::unnecessary_wraps, clippy::unused_self, reason = "as in the runtime")]
        impl Registry {
            pub(crate) fn get(&self, _: &str) -> Option<Arc<Known>> {
                Some(Arc::new(Known::receives()))
            }

            pub(crate) fn machines(&self) -> impl Iterator<Item = &'static Machine> + use<> {
                std::iter::empty()
            }

            pub(crate) fn is_ours(&self, _: &str) -> bool {
                false
            }
        }

        /// The function.
        pub(crate) struct Known {
            pub(crate) machine: &'static Machine,
        }

        #[allow(clippy::unused_self, clippy::unnecessary_wraps, reason = "as in the runtime")]
        impl Known {
            pub(crate) fn receives() -> Self {
                static MACHINE: Machine = Machine { name: "receives", topics: &[COMPUTED_TOPIC], max_recoveries: None, secrets: &[] };
                Known { machine: &MACHINE }
            }

            pub(crate) fn row(&self) -> &Arc<LayoutRow> {
                static ROW: OnceLock<Arc<LayoutRow>> = OnceLock::new();
                ROW.get_or_init(Arc::default)
            }

            pub(crate) fn prepare(&self, _: Begin, ctx: FiberContext, run: Arc<Run>) -> Result<BoxFuture<'static, Exit>, String> {
                let backend = Arc::clone(&run.backend);
                let mut code = Box::pin(async move {
                    let _inside = run.backend.enters();
                    for number in run.number + 1..=MESSAGES {
                        match run.backend.receive(number).await {
                            Ok(true) if run.backend.is_told_to_stop() => return Exit::interrupted(Error::closed()),
                            Ok(true) => {}
                            // Every second one waits for a time as well.
                            Ok(false) if ctx.id.ends_with("due") => {
                                return Exit::Waiting(Wait { due_ms: Some(number.cast_signed() * 1000) });
                            }
                            Ok(false) => return Exit::Waiting(Wait::default()),
                            Err(error) => return Exit::interrupted(error),
                        }
                    }
                    Exit::Completed(MESSAGES.to_string().into())
                });
                Ok(Box::pin(std::future::poll_fn(move |cx| {
                    backend.is_polled();
                    let polled = code.as_mut().poll(cx);
                    backend.is_polled();
                    polled
                })))
            }
        }
    }
}

/// No poll is counted here.
pub(crate) mod testing {
    pub(crate) mod fuse {
        #[derive(Debug, Clone)]
        pub(crate) struct Fuse;

        impl Fuse {
            pub(crate) async fn count_polls<T>(_: Option<&Fuse>, _: impl Fn() -> bool, driven: impl Future<Output = T>) -> T {
                driven.await
            }
        }
    }
}
