//! What a status page shows; all of it is `Serialize`.
//!
//! [`FiberView`] is a fiber with its [position](PositionView) in the source and its
//! [locals](LocalView), by [`Forever::view`](crate::Forever::view). [`FunctionView`] is a
//! registered function with its cut points, by [`Forever::functions`](crate::Forever::functions), and
//! [`AgentView`] an agent with its schedules. [`ChatView`] is a chat with its
//! [turns](TurnView), by [`Forever::view_chat`](crate::Forever::view_chat). [`WorkerStatus`] is a worker that shares the
//! database, by [`Forever::workers`](crate::Forever::workers).

pub use crate::api::chat_views::{ChatMessageView, ChatView, PendingInteractionView, TurnView};
pub use crate::api::troubles::{ChildView, QueueView, TroubleKind, TroubleView};
pub use crate::api::view::{
    AgentView, CutView, FiberView, FrameView, FunctionView, LocalView, LoopRole, MessageView, PositionView, ScheduleView, SourceView,
    StreamView, ValueView,
};
pub use crate::api::workers::WorkerStatus;
pub use crate::exec::failed::FailedStep;
