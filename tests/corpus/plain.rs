//! The cut points of the plain functions: what the harness of `tests/it` has, and on top of it `catch`, options in any order,
//! branches with options, and children.
use std::fmt;

use crate::language::harness::Twin;

/// `step!` in a plain function. `retry = Retry::times(n)..` and `catch` do what they do in a fiber, without the pauses.
/// All other options do nothing.
macro_rules! plain_step {
    (@ $times:tt $catch:tt $name:literal, $($rest:tt)+) => { $crate::plain::plain_step!(@ $times $catch $($rest)+) };
    (@ $times:tt $catch:tt effect, $($rest:tt)+) => { $crate::plain::plain_step!(@ $times $catch $($rest)+) };
    (@ $times:tt $catch:tt catch, $($rest:tt)+) => { $crate::plain::plain_step!(@ $times caught $($rest)+) };
    (@ $times:tt $catch:tt retry = Retry::times($n:expr) $(. $method:ident ($($arg:tt)*))*, $($rest:tt)+) => {
        $crate::plain::plain_step!(@ (Some($n)) $catch $($rest)+)
    };
    (@ $times:tt $catch:tt $option:ident = $value:expr, $($rest:tt)+) => { $crate::plain::plain_step!(@ $times $catch $($rest)+) };
    (@ no no |$op:pat_param| $body:expr) => {{
        let $op = &$crate::language::harness::PlainOp { attempt: 1 };
        $body
    }};
    (@ no no $body:expr) => { $body };
    (@ $times:tt no |$op:pat_param| $body:expr) => {
        match $crate::plain::plain_step!(attempts $times |$op| $body) {
            Ok(value) => value,
            Err((_, error)) => return Err(error),
        }
    };
    (@ $times:tt caught |$op:pat_param| $body:expr) => {
        $crate::plain::plain_step!(attempts $times |$op| $body).map_err(|(attempts, error)| $crate::plain::PlainError { attempts, error })
    };
    (@ $times:tt $catch:tt $body:expr) => { $crate::plain::plain_step!(@ $times $catch |_op| $body) };
    (attempts no $($rest:tt)+) => { $crate::plain::plain_step!(attempts (None) $($rest)+) };
    (attempts $times:tt |$op:pat_param| $body:expr) => {{
        let times: Option<u32> = $times;
        let mut attempt = 1;
        loop {
            let $op = &$crate::language::harness::PlainOp { attempt };
            match async { Ok::<_, anyhow::Error>($body) }.await {
                Ok(value) => break Ok::<_, (u32, anyhow::Error)>(value),
                Err(error) if attempt > times.unwrap_or(0) => break Err((attempt, error)),
                Err(_) => attempt += 1,
            }
        }
    }};
    ($($rest:tt)+) => { $crate::plain::plain_step!(@ no no $($rest)+) };
}
pub(crate) use plain_step;

/// `steps!` in a plain function: one after the other.
macro_rules! plain_steps {
    (for $item:pat in $items:expr, limit = $limit:expr, $($rest:tt)+) => {{
        let _: usize = $limit;
        $crate::plain::plain_steps!(for $item in $items, $($rest)+)
    }};
    (for $item:pat in $items:expr, $($rest:tt)+) => {{
        let mut values = Vec::new();
        for $item in $items {
            values.push($crate::plain::plain_step!($($rest)+));
        }
        values
    }};
    ($($branch:expr),+ $(,)?) => { ($($branch,)+) };
}
pub(crate) use plain_steps;

/// The error of a plain `step!(catch, ..)`, in place of `StepError`.
#[derive(Debug)]
pub(crate) struct PlainError {
    pub(crate) attempts: u32,
    pub(crate) error: anyhow::Error,
}

impl PlainError {
    pub(crate) fn attempts(&self) -> u32 {
        self.attempts
    }

    pub(crate) fn is_timeout(&self) -> bool {
        false
    }

    pub(crate) fn causes(&self) -> impl Iterator<Item = String> + '_ {
        self.error.chain().skip(1).map(ToString::to_string)
    }
}

impl fmt::Display for PlainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for PlainError {}

/// The handle of a plain child, which has ended when it is there.
#[derive(Clone, Debug)]
pub(crate) struct PlainHandle<T>(Result<T, PlainEnd>);

/// The error of a plain child, in place of `FiberError`.
#[derive(Clone, Debug)]
pub(crate) struct PlainEnd(String);

impl PlainEnd {
    pub(crate) fn is_failed(&self) -> bool {
        true
    }

    pub(crate) fn reason(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PlainEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for PlainEnd {}

pub(crate) async fn spawned<F: Twin>(call: F) -> PlainHandle<F::Output>
where
    F::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    PlainHandle(Box::pin(call.plain()).await.map_err(|error| PlainEnd(error.into().to_string())))
}

/// What a plain `wait!` takes.
pub(crate) trait Waited {
    type Output;
    fn end(self) -> Result<Self::Output, PlainEnd>;
}

impl<T> Waited for PlainHandle<T> {
    type Output = T;
    fn end(self) -> Result<T, PlainEnd> {
        self.0
    }
}

impl<T: Clone> Waited for &PlainHandle<T> {
    type Output = T;
    fn end(self) -> Result<T, PlainEnd> {
        self.0.clone()
    }
}

/// `spawn!`, `wait!` and `wait_all!` in a plain function: a child runs to its end at once.
macro_rules! plain_spawn {
    ($call:expr) => {
        $crate::plain::spawned($call).await
    };
}
macro_rules! plain_wait {
    ($handle:expr) => {
        $crate::plain::Waited::end($handle)
    };
}
macro_rules! plain_wait_all {
    ($handles:expr) => {
        $handles.into_iter().map($crate::plain::Waited::end).collect::<Vec<_>>()
    };
}
pub(crate) use {plain_spawn, plain_wait, plain_wait_all};
