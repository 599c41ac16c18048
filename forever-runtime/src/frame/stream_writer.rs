//! `StreamWriter`: the side of an output stream that a fiber writes to.
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};
use crate::exact;
use crate::frame::context::FiberContext;
use crate::frame::current;
use crate::frame::run::Run;
use crate::runtime::messages::LONGEST_ID;

/// Output stream of a running fiber, for writing.
///
/// Made by [`FiberContext::stream`], and read by [`Forever::stream`](crate::Forever::stream). A local
/// of this type is kept at each cut point by its name.
///
/// ```
/// # use forever_runtime as forever;
/// use forever::fiber::{FiberContext, StreamWriter};
///
/// // In a fiber: let found: StreamWriter<String> = ctx.stream("found");
/// async fn search(found: &StreamWriter<String>, pages: &[&str]) -> forever::Result<()> {
///     for page in pages {
///         found.send(&page.to_uppercase())?;
///     }
///     // Readers have them now, and not only after the next checkpoint.
///     found.flush().await
/// }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), forever::BoxError> {
/// # let forever = forever::Forever::builder().in_memory().open().await?;
/// # let job = |ctx: FiberContext| async move { search(&ctx.stream("found"), &["a", "b"]).await };
/// # let handle = forever.spawn_closure("search", job).start().await?;
/// # assert_eq!(handle.stream::<String>("found", 1).next().await?.unwrap().value, "B");
/// # forever.close().await?;
/// # Ok(())
/// # }
/// ```
pub struct StreamWriter<T> {
    /// The run that it writes for; `None` if it was not read in one.
    run: Option<Arc<Run>>,
    name: String,
    items: PhantomData<fn(&T)>,
}

impl<T: Serialize> StreamWriter<T> {
    /// Adds an item. It is stored with the next checkpoint, in the same transaction.
    ///
    /// So a reader sees each item once, whatever the process dies of: a step that was not completed
    /// has sent nothing, and sends when it runs again, as an attempt that has failed has sent
    /// nothing. In a `steps!`, the items of a branch are stored with its result. What the last step
    /// of a failed fiber has sent stays, and if it is resumed the step sends again. Send what
    /// belongs to a [transaction](FiberContext::transaction) after it.
    ///
    /// # Errors
    /// [`Value`](ErrorKind::Value) if the item cannot be saved as JSON, or the name of the stream
    /// is empty or too long; [`Setup`](ErrorKind::Setup) if the writer was read outside of a fiber.
    pub fn send(&self, item: &T) -> Result<()> {
        let refused = |why: String| Error::new(ErrorKind::Value, format!("failed to send to stream `{}`: {why}", self.name));
        check_stream_name(&self.name).map_err(refused)?;
        let item = exact::to_string(item).map_err(|why| refused(format!("the item cannot be saved: {why}")))?;
        let run = self.run()?;
        run.outputs.send(&self.name, item, run.tx_position.branch());
        Ok(())
    }

    /// Stores what this run has sent to all its streams, before the next checkpoint.
    ///
    /// For a long step whose readers should see how it gets on. If the process dies before the step
    /// ends, it runs again and sends again: these items are there twice.
    ///
    /// # Cancel safety
    /// If the future is dropped, the items may be stored or not.
    ///
    /// # Errors
    /// When the store fails, or the claim of the fiber is lost.
    pub async fn flush(&self) -> Result<()> {
        self.run()?.flush().await
    }

    fn run(&self) -> Result<&Run> {
        let why = || Error::new(ErrorKind::Setup, format!("stream `{}` can be written to only in the fiber that it belongs to", self.name));
        self.run.as_deref().ok_or_else(why)
    }
}

/// Checks the name of an output stream.
pub(crate) fn check_stream_name(name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err("its name must not be empty".to_owned());
    }
    if name.len() > LONGEST_ID {
        return Err(format!("its name has {} bytes, more than the {LONGEST_ID} that are allowed", name.len()));
    }
    Ok(())
}

impl<T> Clone for StreamWriter<T> {
    fn clone(&self) -> Self {
        StreamWriter { run: self.run.clone(), name: self.name.clone(), items: PhantomData }
    }
}

/// Form in which a local is kept.
#[derive(Serialize, Deserialize)]
struct SavedStream<'a> {
    stream: Cow<'a, str>,
}

impl<T> Serialize for StreamWriter<T> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        SavedStream { stream: Cow::Borrowed(&self.name) }.serialize(serializer)
    }
}

/// In a fiber it is that fiber's stream; read anywhere else it cannot be written to.
impl<'de, T> Deserialize<'de> for StreamWriter<T> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let SavedStream { stream } = SavedStream::deserialize(deserializer)?;
        Ok(StreamWriter { run: current::run(), name: stream.into_owned(), items: PhantomData })
    }
}

impl<T> fmt::Debug for StreamWriter<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamWriter").field("name", &self.name).finish_non_exhaustive()
    }
}

impl FiberContext {
    /// An output stream of the fiber: items for readers outside of it, such as partial results.
    ///
    /// It is kept for as long as the fiber is stored, and read from any process by
    /// [`Forever::stream`](crate::Forever::stream). A stream of this name may be written to by
    /// several functions of the fiber.
    ///
    /// ```
    /// # use forever_runtime as forever;
    /// use forever::fiber::FiberContext;
    ///
    /// # async fn search(ctx: &FiberContext) -> forever::Result<()> {
    /// let found = ctx.stream::<String>("found");
    /// found.send(&"a first page".to_owned())?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn stream<T: Serialize>(&self, name: impl Into<String>) -> StreamWriter<T> {
        StreamWriter { run: Some(Arc::clone(&self.run)), name: name.into(), items: PhantomData }
    }

    /// Sets what [`FiberStatus::progress`](crate::fiber::FiberStatus::progress) shows: any value,
    /// such as a count or a sentence.
    ///
    /// In this process it is seen at once. It is stored with the next checkpoint, for other
    /// processes, and stays when the fiber has ended.
    ///
    /// # Errors
    /// [`Value`](ErrorKind::Value) if it cannot be saved as JSON.
    pub fn set_progress<T: Serialize + ?Sized>(&self, progress: &T) -> Result<()> {
        let text = exact::to_string(progress)
            .map_err(|why| Error::new(ErrorKind::Value, format!("failed to set the progress: it cannot be saved: {why}")))?;
        self.run.backend.set_progress(&text);
        self.run.outputs.set_progress(text);
        Ok(())
    }
}
