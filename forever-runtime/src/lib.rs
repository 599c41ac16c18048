//! The runtime of `forever`; use it through the `forever` crate.
//!
//! Layers, each knowing only the ones below it: `forever` (opening, asking) over `agent` (state, keep-alive, schedules) over `fiber`
//! (context, frames, steps, recovery) over `store`. `exact` is the JSON that gives back exactly what was saved.

mod agent;
pub mod chat;
mod clock;
mod error;
mod exact;
mod fanout;
mod fiber;
mod forever;
mod future;
mod ide;
#[cfg(feature = "server")]
pub mod serve;
pub mod store;
#[cfg(feature = "testing")]
pub mod testing;

pub use agent::{
    Agent, AgentHandle, Awake, BoxError, Connection, Due, KeepAlive, Message, NewSchedule, Pushed, Schedule, ScheduleKind, When,
};
pub use clock::{Clock, SystemClock};
pub use error::{Error, ErrorKind, Result};
pub use fiber::closure::{RunFiber, stash};
pub use fiber::compatibility::{Compatibility, CompatibilityEntry, OnIncompatible, Verdict};
pub use fiber::events::{Event, EventKind, Events, Told};
pub use fiber::handle::{FiberError, FiberErrorKind, FiberHandle, FiberStatus, RetryStatus};
pub use fiber::layout::layout;
pub use fiber::log::Log;
pub use fiber::managed::{Cursor, FiberFilter, Fibers, Page};
pub use fiber::messages::SendMessage;
pub use fiber::op::by_hand::OpCall;
pub use fiber::op::log::OpLog;
pub use fiber::op::resolve::{OpStatus, Resolution};
pub use fiber::op::transaction::TransactionCall;
pub use fiber::op::unknown::{Answer, OnUnknown};
pub use fiber::owner::{EndedFiber, RecoveredFiber, Recovery};
pub use fiber::retention::Retention;
pub use fiber::spawn::Spawn;
pub use fiber::step_error::StepError;
pub use fiber::{Backoff, Drift, EagerIterator, Fiber, FiberContext, KeepsOrder, Layout, Op, Problem, Res, Retry, Snapshot};
pub use forever::{Builder, Close, Forever};
#[doc(inline)]
pub use store::{Durability, FiberState, OpState, Tx};

/// What derives the JSON schema of a tool's input, for [`Tool::typed`](chat::Tool::typed).
#[cfg(feature = "schemars")]
pub use schemars;

/// What of `rusqlite` a closure with a [`Tx`] needs: use it in place of a dependency of your own, so that the two are one version. A new
/// version of it is a breaking change of this library.
// Not all of it: its `fallible_iterator` has an `Iterator` and an `Option`, and with them in sight the compiler spells out those of `std` in
// every message.
pub mod rusqlite {
    pub use ::rusqlite::{
        CachedStatement, Connection, Error, ErrorCode, MappedRows, OptionalExtension, Params, Result, Row, Rows, Statement, ToSql,
        named_params, params, params_from_iter, types,
    };
}

/// Layouts as a whole program has them.
pub mod layout {
    #[doc(inline)]
    pub use crate::__forever_layout_check as check;
}

/// Compares the layouts of all functions that a builder has registered with those in `forever.layouts.json`, in the folder of the crate's
/// `Cargo.toml`, and panics with the difference: for a test, so that a change that concerns running fibers is seen in review.
///
/// The panic says of each function that has changed whether its fibers resume, and if not, where they would be parked and what to write.
/// `FOREVER_LAYOUTS=accept cargo test` writes the file. A second argument is another path, from the crate's folder.
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

/// What the code written by `#[fiber]` names. Not for people; it changes without notice.
#[doc(hidden)]
pub mod __private {
    pub use crate::fiber::borrows::SharedBorrows;
    pub use crate::fiber::frame::Frame;
    pub use crate::fiber::held::{Data, Held, NoDestructor, OwnsNoText, TextOwner, held};
    pub use crate::fiber::iter::{Remaining, Source, collected};
    pub use crate::fiber::keeps_order::{in_order, in_order_value, joined};
    pub use crate::fiber::locals::{Locals, Save, Unreadable};
    pub use crate::fiber::machine::{BranchSpec, COMPUTED_TOPIC, Cut, CutKind, END, Local, LocalRole, Machine};
    pub use crate::fiber::op::effect::{Effect, Gives, Key, Next, Stored, key};
    pub use crate::fiber::op::unknown::{Made, NotMade, OnUnknown, Probe};
    pub use crate::fiber::position::{LoopCursor, LoopItem, LoopPosition};
    pub use crate::fiber::retry::policy;
    pub use crate::fiber::saved::{Saved, carried, none_like, start, take, text};
    pub use crate::fiber::select::{ArmNames, Either, Last, on_end, on_message, on_message_until, on_time};
    pub use crate::fiber::side::{Branch, Branches, ByJson, ByPlace, Each, Item, ItemPlace, Side, item, places};
    pub use crate::fiber::step::{Attempt, Attempts};
    pub use crate::fiber::step_error::StepError;
    pub use crate::fiber::topics::{FixedTopic, FixedTopics, topics};
    pub use crate::fiber::waits::Deadline;
    pub use crate::fiber::{Awaitable, Fiber, FiberContext, IsResult, Needs, Never};
    pub use serde;
    pub use std::marker::PhantomData;

    pub use crate::__forever_attempts as attempts;
    pub use crate::__forever_effect as effect;
    pub use crate::__forever_hold as hold;
    pub use crate::__forever_keep as keep;
    pub use crate::__forever_keep_items as keep_items;
    pub use crate::__forever_made as made;
    pub use crate::__forever_text as text_owner;

    /// What is left of a variable after fields of it were moved out.
    pub mod remains {
        pub use crate::fiber::remains::{Copied, Evidence, Fields, Moved, Nothing, Seen, Whole, evidence, seen};
    }

    /// What the cut-point macros are to editors, which see the body as it was written.
    pub mod ide {
        pub use crate::__forever_ide_call as call;
        pub use crate::__forever_ide_recv as recv;
        pub use crate::__forever_ide_select as select;
        pub use crate::__forever_ide_sleep as sleep;
        pub use crate::__forever_ide_sleep_until as sleep_until;
        pub use crate::__forever_ide_spawn as spawn;
        pub use crate::__forever_ide_step as step;
        pub use crate::__forever_ide_steps as steps;
        pub use crate::__forever_ide_wait as wait;
        pub use crate::__forever_ide_wait_all as wait_all;
    }
}
