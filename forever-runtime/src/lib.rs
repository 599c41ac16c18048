//! The runtime of `forever`; use it through the `forever` crate.
//!
//! Layers, each of which knows only those below it: `api` (opening, asking) over `layers` (what the
//! crates above use) over `agent` (state, keep-alive, schedules) over `exec` (claims, activations,
//! recovery) over `ops` and `frame` (one activation of a function) over `runtime` (what all fibers
//! share), over the crates `forever-store` and `forever-json`.
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod agent;
mod api;
mod clock;
mod error;
mod exact;
mod exec;
mod fanout;
pub mod fiber;
mod frame;
mod future;
mod guard;
mod history;
mod ide;
mod layers;
pub mod layout;
pub mod ops;
mod runtime;
mod secret;
pub mod store;
#[cfg(feature = "testing")]
#[cfg_attr(docsrs, doc(cfg(feature = "testing")))]
pub mod testing;
mod text;
pub mod view;

pub use agent::class::BoxError;
pub use api::builder::Builder;
pub use api::client::Client;
pub use api::forever::{Close, Forever};
pub use clock::{Clock, SystemClock};
pub use error::{Error, ErrorKind, Result};
#[cfg(feature = "postgres")]
#[cfg_attr(docsrs, doc(cfg(feature = "postgres")))]
#[doc(inline)]
pub use forever_postgres::tokio_postgres;
#[doc(inline)]
pub use forever_store::rusqlite;
pub use runtime::settings::Retention;
#[doc(inline)]
pub use store::Durability;

/// Bounds of stored values: the traits that compiler messages name where a type does not fit.
///
/// | trait | of | implemented for |
/// |---|---|---|
/// | [`Saved`](bounds::Saved) | a local that is used after a cut point | what serde can write and read |
/// | [`ReturnValue`](bounds::ReturnValue) | the result of a fiber | the same, if it is `Send` and holds no references |
/// | [`Value`](bounds::Value) | results of closures and operations | the same |
/// | [`Key`](bounds::Key) | the `key` of an effect | what serde can write |
/// | [`IntoTopics`](bounds::IntoTopics) | the topics of `recv!` | texts, and lists of them |
/// | [`Gives`](bounds::Gives) | the value of a step with `on_unknown` | the type that its policy names |
/// | [`FromLibraryError`](bounds::FromLibraryError) | the fiber's error, for a `timeout` | what is `From<forever::Error>` |
///
/// None is implemented by hand. The macros require them, so only generic code names one:
///
/// ```
/// # use forever_runtime as forever;
/// use forever::bounds::ReturnValue;
/// use forever::fiber::FiberHandle;
///
/// async fn result_or_default<T: ReturnValue + Default>(handle: &FiberHandle<T>) -> T {
///     handle.wait().await.unwrap_or_default()
/// }
/// ```
pub mod bounds {
    pub use crate::frame::fiber::Value;
    pub use crate::frame::saved::{ReturnValue, Saved};
    pub use crate::frame::step_error::FromLibraryError;
    pub use crate::frame::topics::IntoTopics;
    pub use crate::ops::effect::{Gives, Key};
}

/// Compares the layouts of all functions that a builder has registered with those in
/// `forever.layouts.json`, in the folder of the crate's `Cargo.toml`, and panics with the
/// difference: for a test, so that a change that concerns running fibers is seen in review.
///
/// The panic says of each function that has changed whether its fibers resume, and if not, where
/// they would be parked and what to write. A layout has no types: whether a value can be read, only
/// `Builder::check` says. `FOREVER_LAYOUTS=accept cargo test` writes the file. A second argument is
/// another path, from the crate's folder.
///
/// ```no_run
/// # use forever_runtime as forever;
/// # fn builder() -> forever::Builder { forever::Forever::builder() }
/// # #[allow(clippy::test_attr_in_doctest)]
/// #[test]
/// fn running_fibers_survive_the_next_deploy() {
///     forever::layout::check!(builder());
/// }
/// ```
#[macro_export]
#[doc(hidden)]
macro_rules! __forever_layout_check {
    ($builder:expr $(,)?) => {
        $crate::layout::check!($builder, "forever.layouts.json")
    };
    ($builder:expr, $path:expr $(,)?) => {{
        let path = ::std::path::Path::new(::core::env!("CARGO_MANIFEST_DIR")).join($path);
        if let ::core::result::Result::Err(why) = $crate::Builder::__check_layouts($builder, &path) {
            ::core::panic!("{why}");
        }
    }};
}

#[doc(hidden)]
pub use ide::{
    __forever_ide_call, __forever_ide_given, __forever_ide_recv, __forever_ide_spawn, __forever_ide_wait, __forever_ide_wait_all,
};

/// What the crates above the runtime name: `forever-chat` and `forever-serve`. Not for programs; it
/// changes without notice.
#[doc(hidden)]
pub mod __layers {
    pub use crate::api::upper::{engine_link, layer, weak_agent};
    pub use crate::clock::{from_ms, ms};
    pub use crate::error::chain;
    pub use crate::exec::agent_hooks::check_name;
    pub use crate::exec::slots::Slot;
    pub use crate::frame::arguments::save_arguments;
    pub use crate::frame::locals::Save;
    pub use crate::frame::poll::exit_of;
    pub use crate::frame::saved::{text_to_keep, unreadable};
    pub use crate::guard::{guarded_text, panic_text};
    pub use crate::layers::agents::{EngineAgents, HandleOfLayer, HeldAgent};
    pub use crate::layers::context::{ContextOfLayer, FrameOfLayer};
    pub use crate::layers::engine::{ClusterWatcher, Engine, EngineLink, WeakEngine, not_started};
    pub use crate::layers::layer::{Functions, Layer};
    pub use crate::layers::local;
    pub use crate::runtime::exit::Exit;
    pub use crate::runtime::fence::Fence;
    pub use crate::runtime::race::{Race, race};
    pub use crate::runtime::timer::SET_BACK_MS;

    /// Texts that may repeat a value marked `#[secret]`.
    pub mod secret {
        pub use crate::frame::current::told;
        pub use crate::secret::{is_marked, plain, shown};
    }

    /// A broadcast channel that uses memory only for values that wait in it.
    pub mod fanout {
        pub use crate::fanout::{Receiver, Sender, Taken};
    }
}

/// What the code written by `#[fiber]` names. Not for people; it changes without notice.
#[doc(hidden)]
pub mod __private {
    pub use std::marker::PhantomData;

    pub use serde;

    pub use crate::__forever_attempts as attempts;
    pub use crate::__forever_effect as effect;
    pub use crate::__forever_hold as hold;
    pub use crate::__forever_joined as joined;
    pub use crate::__forever_keep as keep;
    pub use crate::__forever_keep_items as keep_items;
    pub use crate::__forever_made as made;
    pub use crate::__forever_receive as receive;
    pub use crate::__forever_store as store;
    pub use crate::__forever_text as text_owner;
    pub use crate::frame::activation::Frame;
    pub use crate::frame::arguments::Arguments;
    pub use crate::frame::borrows::SharedBorrows;
    pub use crate::frame::branches::{Branch, Branches, ByJson, ByPlace, Each, Item, ItemPlace, Side, item, places};
    pub use crate::frame::codec::Codec;
    pub use crate::frame::context::FiberContext;
    pub use crate::frame::fiber::{Awaitable, Fiber, IsResult, Never, Value};
    pub use crate::frame::held::{
        Data, Destructor, Held, Holding, IsSaved, IsUnsaved, NoDestructor, NoOwner, OnItsWay, Owner, OwnsNoText, TextOwner, held,
    };
    pub use crate::frame::iter::{Remaining, Source, collected};
    pub use crate::frame::keeps_order::KeepsOrder;
    pub use crate::frame::locals::{Locals, Save, Unreadable};
    pub use crate::frame::machine::{BranchSpec, COMPUTED_TOPIC, Cut, CutKind, END, Local, LocalRole, Machine, SourceSpec};
    pub use crate::frame::position::{LoopCursor, LoopItem, LoopPosition};
    pub use crate::frame::resources::Needs;
    pub use crate::frame::retry::policy;
    pub use crate::frame::saved::{Saved, TypeWitness, carried, none_like, start, take, text};
    pub use crate::frame::select::{ArmNames, Choice, Either, Last, on_end, on_message, on_message_until, on_time};
    pub use crate::frame::step::{Attempt, Attempts};
    pub use crate::frame::step_error::StepError;
    pub use crate::frame::topics::{FixedTopic, FixedTopics, IntoTopics};
    pub use crate::frame::waits::Deadline;
    pub use crate::ops::effect::{Effect, Gives, Key, Next, timeout};
    pub use crate::ops::on_unknown::{Made, NotMade, OnUnknown, Probe};

    /// What is left of a variable after fields of it were moved out.
    pub mod remains {
        pub use crate::frame::remains::{Copied, Evidence, Fields, Moved, Nothing, Seen, Whole, evidence, seen};
    }

    /// What the cut-point macros are to editors, which see the body as it was written.
    pub mod ide {
        pub use crate::{
            __forever_ide_call as call, __forever_ide_close as close, __forever_ide_recv as recv, __forever_ide_select as select,
            __forever_ide_sleep as sleep, __forever_ide_sleep_until as sleep_until, __forever_ide_spawn as spawn,
            __forever_ide_step as step, __forever_ide_steps as steps, __forever_ide_try_recv as try_recv, __forever_ide_wait as wait,
            __forever_ide_wait_all as wait_all,
        };
    }
}
