//! Parses the bytes of an answer to events: the common part of the adaptors for responses.
//!
//! **Invariant:** the stream ends with [`ModelEvent::Finished`] or with an error, and neither comes
//! earlier. If the bytes end before the answer does, that is an error; bytes after its end are not
//! awaited.
use std::pin::Pin;

use futures_core::Stream;
use futures_util::{StreamExt, TryStreamExt, stream};
use serde_json::Value;

use crate::model::answer::Answer;
use crate::model::chat_model::{ModelError, ModelErrorKind, ModelEvent, ModelStream};
use crate::model::sse::{Event, EventReader};

/// Decoder for the events of one provider.
pub(super) trait Protocol: Send + 'static {
    /// Adds the content of an event to the answer. Unknown events add nothing.
    ///
    /// # Errors
    /// An error that ends the answer.
    fn event(&mut self, event: &Event, answer: &mut Answer) -> Result<(), ModelError>;

    /// The bytes have ended, or the connection was lost, before the answer has declared its end.
    /// The answer is complete all the same if nothing else is missing.
    fn end(&mut self, _answer: &mut Answer) {}
}

/// Reads an answer from its bytes.
pub(super) fn read<S, B>(bytes: S, protocol: impl Protocol) -> ModelStream
where
    S: Stream<Item = Result<B, ModelError>> + Send + 'static,
    B: AsRef<[u8]>,
{
    let reading =
        Reading { bytes: Some(Box::pin(bytes)), reader: EventReader::default(), protocol, answer: Answer::default(), failed: None };
    Box::pin(stream::unfold(reading, |mut reading| async move { Some((reading.next().await?, reading)) }))
}

struct Reading<S, P> {
    /// Dropped as soon as no more is needed, and the connection with it.
    bytes: Option<Pin<Box<S>>>,
    reader: EventReader,
    protocol: P,
    answer: Answer,
    failed: Option<ModelError>,
}

impl<S, B, P> Reading<S, P>
where
    S: Stream<Item = Result<B, ModelError>>,
    B: AsRef<[u8]>,
    P: Protocol,
{
    async fn next(&mut self) -> Option<Result<ModelEvent, ModelError>> {
        loop {
            if let Some(event) = self.answer.next() {
                return Some(Ok(event));
            }
            if let Some(error) = self.failed.take() {
                return Some(Err(error));
            }
            let read = self.bytes.as_mut()?.next().await;
            self.take(read);
            if self.failed.is_some() || self.answer.is_finished() {
                self.bytes = None;
            }
        }
    }

    fn take(&mut self, read: Option<Result<B, ModelError>>) {
        let (protocol, answer) = (&mut self.protocol, &mut self.answer);
        let lost = match read {
            Some(Ok(bytes)) => {
                let each = |event: Event| if answer.is_finished() { Ok(()) } else { protocol.event(&event, answer) };
                self.failed = self.reader.push(bytes.as_ref(), each).err().filter(|_| !answer.is_finished());
                return;
            }
            Some(Err(error)) => error,
            None => ModelError::new(ModelErrorKind::Transient, "the provider's answer was cut off"),
        };
        protocol.end(answer);
        if !answer.is_finished() {
            self.failed = Some(lost);
        }
    }
}

/// An answer that begins with a request.
pub(super) fn asked(asking: impl Future<Output = Result<ModelStream, ModelError>> + Send + 'static) -> ModelStream {
    Box::pin(stream::once(asking).try_flatten())
}

/// An answer without a request.
pub(super) fn given(events: Vec<ModelEvent>) -> ModelStream {
    Box::pin(stream::iter(events.into_iter().map(Ok)))
}

/// Parses the data of an event.
///
/// # Errors
/// If it is not JSON: a part of the answer would be missing, so it cannot continue.
pub(super) fn json(event: &Event) -> Result<Value, ModelError> {
    serde_json::from_str(&event.data)
        .map_err(|_| ModelError::new(ModelErrorKind::Transient, "the provider has sent an event that is not JSON"))
}
