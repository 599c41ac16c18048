//! Fibers: what their functions use, and what programs do with fibers from outside.
//!
//! In a function: [`FiberContext`] and [`Res`] are arguments, [`Retry`] with its [`Backoff`] and
//! [`StepError`] are for steps that fail, [`Log`] is a local to which a loop appends, and
//! [`StreamWriter`] sends items to readers outside, each with a [`StreamReader`].
//!
//! One fiber: [`Spawn`] starts it under a key or an id, and its [`FiberHandle`] waits for the
//! result, cancels, resumes, restarts or [resolves](Resolution) it. [`FiberStatus`] is what a
//! status endpoint returns, [`FiberError`] why there is no result. [`SendMessage`] sends it a
//! message. [`Edit`] changes the [locals](LocalsMut) of one that has stopped, [`Fork`] starts a
//! second one where it stands or stood, and a [`FiberExport`] takes it to another database.
//!
//! Many fibers: [`Fibers`] are lists, [`FiberFilter`] chooses those to delete, and [`Events`] is
//! the stream of what happens to all. [`History`] keeps the checkpoints of each.
//!
//! ```
//! # use forever_runtime as forever;
//! use forever::Forever;
//! use forever::fiber::{FiberFilter, FiberState};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> forever::Result<()> {
//! let forever = Forever::builder().in_memory().open().await?;
//! let failed = forever.fibers().state(FiberState::Failed).limit(20).await?;
//! for fiber in &failed.fibers {
//!     println!("{} of {} failed: {:?}", fiber.id, fiber.name, fiber.reason);
//! }
//! let deleted = forever.delete(FiberFilter::new().state(FiberState::Completed)).await?;
//! # assert_eq!(deleted, 0);
//! # Ok(())
//! # }
//! ```

pub use crate::api::admin::{Cursor, FiberFilter, Fibers, Page};
pub use crate::api::edit::{Edit, LocalsMut};
pub use crate::api::export::{FiberExport, Import};
pub use crate::api::fork::Fork;
pub use crate::exec::closure::{SpawnClosure, stash};
pub use crate::exec::spawn::Spawn;
pub use crate::frame::context::FiberContext;
pub use crate::frame::eager::EagerIterator;
pub use crate::frame::fiber::Fiber;
pub use crate::frame::keeps_order::KeepsOrder;
pub use crate::frame::log::Log;
pub use crate::frame::resources::Res;
pub use crate::frame::retry::{Backoff, Retry};
pub use crate::frame::snapshot::Snapshot;
pub use crate::frame::step_error::StepError;
pub use crate::frame::stream_writer::StreamWriter;
pub use crate::history::{ChangedValue, History, HistoryEntry, HistoryOrigin};
pub use crate::runtime::commands::Resolution;
pub use crate::runtime::events::{Event, EventItem, EventKind, Events};
pub use crate::runtime::handle::{FiberError, FiberErrorKind, FiberHandle, FiberStatus, RetryStatus, StepStatus, WaitStatus};
pub use crate::runtime::messages::{MessageStatus, SendMessage, Unread};
pub use crate::runtime::stream_reader::{StreamItem, StreamReader};
pub use crate::runtime::unread::UnreadTopic;
#[doc(inline)]
pub use crate::store::{FiberCount, FiberState};
