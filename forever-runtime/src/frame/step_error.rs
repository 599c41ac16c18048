//! The error of a step as a value: what `step!(.., catch, ..)` returns in place of the fiber's own
//! error type.
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind};
use crate::frame::fiber::Failure;

/// Error of a step with the option `catch`, after its retries and its timeout.
///
/// It holds the texts of the error that ended the last attempt, so it can be saved like any value:
/// a resumed fiber sees the same error and takes the same branch. The type of the error is lost; to
/// decide by it, match inside the body and return a value.
///
/// ```ignore
/// match step!("ask", retry = Retry::times(3), catch, model.ask(&question).await?) {
///     Ok(answer) => answer,
///     Err(error) if error.is_timeout() => step!("fall back", small.ask(&question).await?),
///     Err(error) => return Err(error.into()),
/// }
/// ```
///
/// Its `Display` is the message; with `{:#}` the causes follow. As an [`Error`](std::error::Error)
/// it has the causes as its sources, so `?` works where the fiber's error type can be made from it,
/// as with `anyhow`.
///
/// ```
/// # use forever_runtime as forever;
/// use forever::fiber::StepError;
///
/// fn note(error: &StepError) -> String {
///     format!("{error:#} (attempt {})", error.attempts())
/// }
/// # let stored = r#"{"message":"no answer","causes":["connection reset"],"attempts":4}"#;
/// # let error: StepError = serde_json::from_str(stored).unwrap();
/// assert_eq!(note(&error), "no answer: connection reset (attempt 4)");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Stored", into = "Stored")]
pub struct StepError {
    message: String,
    cause: Option<Box<Cause>>,
    attempts: u32,
    reason: Reason,
}

/// A cause of an error.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Cause {
    message: String,
    cause: Option<Box<Cause>>,
}

/// Why there is no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Reason {
    /// The body ended in an error.
    #[default]
    Failed,
    /// The last attempt took longer than the step's `timeout`.
    Timeout,
    /// The operation may have been carried out.
    OpUnknown,
}

/// The stored form.
#[derive(Serialize, Deserialize)]
struct Stored {
    message: String,
    #[serde(default)]
    causes: Vec<String>,
    #[serde(default)]
    attempts: u32,
    #[serde(default)]
    reason: Reason,
}

impl StepError {
    fn new(error: &(dyn std::error::Error + 'static), attempts: u32, reason: Reason) -> Self {
        let mut causes = Vec::new();
        let mut next = error.source();
        while let Some(cause) = next {
            causes.push(cause.to_string());
            next = cause.source();
        }
        StepError { message: error.to_string(), cause: linked(causes), attempts, reason }
    }

    /// Number of attempts, from 1, including those before a restart of the process.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Whether the last attempt took longer than the step's `timeout`.
    pub fn is_timeout(&self) -> bool {
        self.reason == Reason::Timeout
    }

    /// Whether the step is an `effect` in doubt: it may have been carried out, and its `on_unknown`
    /// is [`OnUnknown::Fail`](crate::ops::OnUnknown::Fail).
    pub fn is_op_unknown(&self) -> bool {
        self.reason == Reason::OpUnknown
    }

    /// The messages of the causes, the nearest first.
    pub fn causes(&self) -> impl Iterator<Item = &str> {
        std::iter::successors(self.cause.as_deref(), |cause| cause.cause.as_deref()).map(|cause| &*cause.message)
    }
}

impl fmt::Display for StepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if f.alternate() {
            for cause in self.causes() {
                write!(f, ": {cause}")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for StepError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.as_deref().map(|cause| cause as _)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Cause {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.as_deref().map(|cause| cause as _)
    }
}

fn linked(causes: Vec<String>) -> Option<Box<Cause>> {
    causes.into_iter().rev().fold(None, |cause, message| Some(Box::new(Cause { message, cause })))
}

impl From<Stored> for StepError {
    fn from(stored: Stored) -> Self {
        let Stored { message, causes, attempts, reason } = stored;
        StepError { message, cause: linked(causes), attempts, reason }
    }
}

impl From<StepError> for Stored {
    fn from(error: StepError) -> Self {
        let causes = error.causes().map(ToOwned::to_owned).collect();
        Stored { message: error.message, causes, attempts: error.attempts, reason: error.reason }
    }
}

/// Conversion of an error of the library to the fiber's error type.
pub(crate) type Make<E> = fn(Error) -> E;

/// An error type of a fiber that can hold errors of the library: those with `From<Error>`.
///
/// ```
/// # use forever_runtime as forever;
/// /// Error of a fiber with a step that has a `timeout`.
/// #[derive(Debug)]
/// enum OrderError {
///     Refused,
///     Library(forever::Error),
/// }
///
/// impl From<forever::Error> for OrderError {
///     fn from(error: forever::Error) -> Self {
///         OrderError::Library(error)
///     }
/// }
/// # fn check<E: forever::bounds::FromLibraryError>() {}
/// # check::<OrderError>();
/// ```
#[diagnostic::on_unimplemented(
    message = "this option of a step gives an error of the library, but the fiber's error type `{Self}` cannot be made of one",
    label = "gives an error of the library",
    note = "implement `From<forever::Error>` for `{Self}`, return `anyhow::Result<..>`, or take the error as a value, `step!(catch, ..)`"
)]
pub trait FromLibraryError: Sized {
    #[doc(hidden)]
    fn __made_of(error: Error) -> Self;
}

#[diagnostic::do_not_recommend]
impl<E: From<Error>> FromLibraryError for E {
    fn __made_of(error: Error) -> E {
        error.into()
    }
}

/// Why an attempt has no value.
#[derive(Debug)]
pub(crate) enum Trouble<E> {
    /// The error of the body.
    Body(E),
    /// An error of the library.
    Library(Error),
}

impl<E> Trouble<E> {
    /// The error as the fiber's own type, or as the library's where it cannot be converted.
    pub(crate) fn own(self, make: Option<Make<E>>) -> Result<E, Error> {
        match (self, make) {
            (Trouble::Body(error), _) => Ok(error),
            (Trouble::Library(error), Some(make)) => Ok(make(error)),
            (Trouble::Library(error), None) => Err(error),
        }
    }

    /// The error as a value of the step.
    pub(crate) fn caught(self, attempts: u32) -> StepError
    where
        E: Failure,
    {
        match self {
            Trouble::Body(error) => StepError::new(&*error.into(), attempts, Reason::Failed),
            Trouble::Library(error) => {
                let reason = match error.kind() {
                    ErrorKind::Timeout => Reason::Timeout,
                    ErrorKind::OpUnknown => Reason::OpUnknown,
                    _ => Reason::Failed,
                };
                StepError::new(&error, attempts, reason)
            }
        }
    }
}

impl<E: fmt::Display> fmt::Display for Trouble<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::Body(error) => error.fmt(f),
            Trouble::Library(error) => error.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;
    use crate::exact;

    fn of_disk() -> StepError {
        let disk = Error::new(ErrorKind::Store, "no space");
        let write = Error::new(ErrorKind::Store, "write failed").with_source(disk);
        Trouble::<Error>::Body(Error::new(ErrorKind::Store, "upload failed").with_source(write)).caught(4)
    }

    #[test]
    fn a_step_error_has_the_texts_of_the_whole_chain() {
        let error = of_disk();
        assert_eq!((error.to_string(), error.attempts()), ("upload failed".to_owned(), 4));
        assert_eq!(error.causes().collect::<Vec<_>>(), ["write failed", "no space"]);
        assert_eq!(format!("{error:#}"), "upload failed: write failed: no space");
        assert_eq!(error.source().unwrap().source().unwrap().to_string(), "no space");
    }

    #[test]
    fn a_step_error_comes_back_from_its_stored_form_as_it_was() {
        let error = of_disk();
        let text = exact::to_string(&error).unwrap();
        assert_eq!(text, r#"{"message":"upload failed","causes":["write failed","no space"],"attempts":4,"reason":"failed"}"#);
        assert_eq!(exact::from_str::<StepError>(&text).unwrap(), error);
    }

    #[test]
    fn only_an_error_of_the_library_is_a_timeout_of_the_step() {
        let late = || Error::new(ErrorKind::Timeout, "late");
        assert!(Trouble::<Error>::Library(late()).caught(1).is_timeout());
        assert!(!Trouble::<Error>::Body(late()).caught(1).is_timeout());
        assert!(Trouble::<Error>::Library(Error::new(ErrorKind::OpUnknown, "?")).caught(1).is_op_unknown());
    }
}
