//! The cut-point macros as editors see them: the body of a fiber as written, with its types.
use std::borrow::Borrow;

use crate::fiber::{Fiber, FiberError, FiberHandle};

#[doc(hidden)]
#[macro_export]
macro_rules! __forever_ide_step {
    ($name:literal, $($rest:tt)+) => { $crate::__forever_ide_step!($($rest)+) };
    (effect, $($rest:tt)+) => { $crate::__forever_ide_step!($($rest)+) };
    ($option:ident = $value:expr, $($rest:tt)+) => {{ let _ = $value; $crate::__forever_ide_step!($($rest)+) }};
    (|$op:ident: $ty:ty| $body:expr $(,)?) => {{ let $op: $ty = $crate::__forever_ide_given(); $body }};
    (|$op:pat_param| $body:expr $(,)?) => {{ let $op: &$crate::ops::Op = $crate::__forever_ide_given(); $body }};
    ($body:expr $(,)?) => { $body };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __forever_ide_call {
    ($($rest:tt)+) => { $crate::__forever_ide_call($crate::__forever_ide_named!($($rest)+)).await };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __forever_ide_spawn {
    ($($rest:tt)+) => { $crate::__forever_ide_spawn($crate::__forever_ide_named!($($rest)+)).await };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __forever_ide_sleep {
    ($($rest:tt)+) => {{ let _: ::std::time::Duration = $crate::__forever_ide_named!($($rest)+); }};
}

#[doc(hidden)]
#[macro_export]
macro_rules! __forever_ide_sleep_until {
    ($($rest:tt)+) => {{ let _: ::std::time::SystemTime = ::core::convert::Into::into($crate::__forever_ide_named!($($rest)+)); }};
}

#[doc(hidden)]
#[macro_export]
macro_rules! __forever_ide_recv {
    ($topic:expr, name = $name:literal $(, $($rest:tt)*)?) => { $crate::__forever_ide_recv!($topic $(, $($rest)*)?) };
    ($topic:expr, was = $was:literal $(, $($rest:tt)*)?) => { $crate::__forever_ide_recv!($topic $(, $($rest)*)?) };
    ($topic:expr, timeout = $timeout:expr $(, $($rest:tt)*)?) => {{
        let _: ::std::time::Duration = $timeout;
        ::core::option::Option::Some($crate::__forever_ide_recv!($topic $(, $($rest)*)?))
    }};
    ($topic:expr $(,)?) => {
        $crate::__forever_ide_recv(&$topic).await
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __forever_ide_try_recv {
    ($($rest:tt)+) => { ::core::option::Option::Some($crate::__forever_ide_recv!($($rest)+)) };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __forever_ide_close {
    ($($rest:tt)+) => { ::std::vec::Vec::from([$crate::__forever_ide_recv!($($rest)+)]) };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __forever_ide_wait {
    ($($rest:tt)+) => { $crate::__forever_ide_wait($crate::__forever_ide_named!($($rest)+)).await };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __forever_ide_wait_all {
    ($($rest:tt)+) => { $crate::__forever_ide_wait_all($crate::__forever_ide_named!($($rest)+)).await };
}

/// The operand of a macro that also takes a name and `was`.
#[doc(hidden)]
#[macro_export]
macro_rules! __forever_ide_named {
    (was = $was:literal, $($rest:tt)+) => { $crate::__forever_ide_named!($($rest)+) };
    ($name:literal, was = $was:literal, $value:expr $(,)?) => { $value };
    ($value:expr, was = $was:literal $(,)?) => { $value };
    ($name:literal, $value:expr $(, was = $was:literal)? $(,)?) => { $value };
    ($value:expr $(,)?) => { $value };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __forever_ide_select {
    ($name:literal, $($rest:tt)+) => { $crate::__forever_ide_select!($($rest)+) };
    (was = $was:literal, $($rest:tt)+) => { $crate::__forever_ide_select!($($rest)+) };
    (@ [$($arms:tt)*]) => { match 0_usize { $($arms)* _ => ::core::unreachable!() } };
    (@ [$($arms:tt)*] $pat:ident: $ty:ty = $wait:expr => $body:block $(, $($rest:tt)*)?) => {
        $crate::__forever_ide_select!(@ [$($arms)* 0 => { let $pat: $ty = $wait; $body }] $($($rest)*)?)
    };
    (@ [$($arms:tt)*] $pat:ident: $ty:ty = $wait:expr => $body:expr $(, $($rest:tt)*)?) => {
        $crate::__forever_ide_select!(@ [$($arms)* 0 => { let $pat: $ty = $wait; $body }] $($($rest)*)?)
    };
    (@ [$($arms:tt)*] $pat:pat = $wait:expr => $body:block $($rest:tt)*) => {
        $crate::__forever_ide_select!(@ [$($arms)* 0 => { let $pat = $wait; $body }] $($rest)*)
    };
    (@ [$($arms:tt)*] $pat:pat = $wait:expr => $body:expr $(, $($rest:tt)*)?) => {
        $crate::__forever_ide_select!(@ [$($arms)* 0 => { let $pat = $wait; $body }] $($($rest)*)?)
    };
    (@ [$($arms:tt)*] , $($rest:tt)*) => { $crate::__forever_ide_select!(@ [$($arms)*] $($rest)*) };
    ($($rest:tt)+) => { $crate::__forever_ide_select!(@ [] $($rest)+) };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __forever_ide_steps {
    ($name:literal, $($rest:tt)+) => { $crate::__forever_ide_steps!($($rest)+) };
    (was = $was:literal, $($rest:tt)+) => { $crate::__forever_ide_steps!($($rest)+) };
    (for $item:pat in $items:expr, limit = $limit:expr, $body:expr $(,)?) => {{
        let _: usize = $limit;
        $crate::__forever_ide_steps!(for $item in $items, $body)
    }};
    (for $item:pat in $items:expr, $body:expr $(,)?) => {{
        let mut values = ::std::vec::Vec::new();
        for $item in $items {
            values.push($body);
        }
        values
    }};
    ($($branch:expr),+ $(,)?) => { ($($branch,)+) };
}

const ONLY: &str = "only editors see this";

/// The `Op` of a step, for editors.
#[doc(hidden)]
pub fn __forever_ide_given<T>() -> T {
    unimplemented!("{ONLY}")
}

/// The type of a `call!` for editors.
#[doc(hidden)]
pub async fn __forever_ide_call<F: Fiber>(_: F) -> Result<F::Output, F::Error> {
    unimplemented!("{ONLY}")
}

/// The type of a `spawn!` for editors.
#[doc(hidden)]
pub async fn __forever_ide_spawn<F: Fiber>(_: F) -> FiberHandle<F::Output> {
    unimplemented!("{ONLY}")
}

/// The type of a `recv!` for editors.
#[doc(hidden)]
pub async fn __forever_ide_recv<K: ?Sized, T>(_: &K) -> T {
    unimplemented!("{ONLY}")
}

/// The type of a `wait!` for editors.
#[doc(hidden)]
pub async fn __forever_ide_wait<T>(_: impl Borrow<FiberHandle<T>>) -> Result<T, FiberError> {
    unimplemented!("{ONLY}")
}

/// The type of a `wait_all!` for editors.
#[doc(hidden)]
pub async fn __forever_ide_wait_all<T, H: Borrow<FiberHandle<T>>>(_: impl IntoIterator<Item = H>) -> Vec<Result<T, FiberError>> {
    unimplemented!("{ONLY}")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::fiber::Retry;
    use crate::ops::{OnUnknown, Op};
    use crate::{__forever_ide_step as step, Error};

    #[test]
    fn editors_see_the_body_of_a_step_behind_options_in_any_order() {
        type Policy<'a> = OnUnknown<'a, u32, Error>;
        let (retry, limit) = (|| Retry::<Error>::times(1), Duration::from_secs(1));
        assert_eq!(step!(5), 5);
        assert_eq!(step!("a", 5,), 5);
        assert_eq!(step!("a", effect, key = (1, "b"), on_unknown = Policy::Retry, retry = retry(), timeout = limit, was = "b", 5), 5);
        assert_eq!(step!(was = "b", timeout = limit, retry = retry(), on_unknown = Policy::Park, key = 1, effect, 5), 5);
        // Never called: there is no op to be had.
        let _ = || step!("a", effect, on_unknown = Policy::Fail, |op| op.attempt());
        let _ = || step!(key = 1, effect, |op: &Op| op.attempt());
    }
}
