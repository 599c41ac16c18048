//! Macros for frequent parts of generated code: the checks that name a variable, and the attempts
//! of a step.
//!
//! They keep expansions short: one line instead of twenty. Tokens that an error can point at are
//! passed in by the caller with the span of the user's code, as `tt`: an `ident` would have the
//! span of this file.

/// Checks that a kept variable can be saved: a module with a trait whose message names the variable
/// and the step.
///
/// The compiler names the trait in its errors, so its name is chosen by the caller. What needs it
/// is its own function, and it requires no other trait: otherwise the compiler would show a
/// function of ours, or one error more.
#[doc(hidden)]
#[macro_export]
macro_rules! __forever_keep {
    ($name:tt: $savable:tt, $message:tt $(, $way:tt)*) => {
        $crate::__forever_savable! {
            $name: $savable, $crate::__private::Saved,
            {
                message = $message,
                label = "needed later, but cannot be saved",
                $(note = $way,)*
                note = "derive `serde::Serialize` and `serde::Deserialize` for the type, make the value anew after a resume with `#[fresh] let`, or take it as a resource (`Res<T>`); keep an array of more than 32 items as a `Vec`",
                note = "a value that holds a reference cannot be kept: clone it, or keep the index or key instead; nor one that is not `Send`: `Arc` for `Rc`"
            }
        }
    };
}

/// As [`__forever_keep`], for the value of a cut point that is stored whether it is needed later or
/// not.
#[doc(hidden)]
#[macro_export]
macro_rules! __forever_store {
    ($name:tt: $savable:tt, $message:tt, $way:tt) => {
        $crate::__forever_savable! {
            $name: $savable, $crate::__private::Saved,
            { message = $message, label = "gives a value that cannot be saved", note = $way }
        }
    };
}

/// As [`__forever_store`], for a message.
#[doc(hidden)]
#[macro_export]
macro_rules! __forever_receive {
    ($name:tt: $savable:tt, $message:tt, $way:tt) => {
        $crate::__forever_savable! {
            $name: $savable, $crate::__private::Value,
            { message = $message, label = "receives what cannot be saved", note = $way }
        }
    };
}

/// The module of the three, by what a type needs and the texts of the error.
///
/// There is one for every kept variable, and each function in it is compiled again: so it has one,
/// and what can be done with a value are methods of its codec.
#[doc(hidden)]
#[macro_export]
macro_rules! __forever_savable {
    ($name:tt: $savable:tt, $needed:path, { $($text:tt)* }) => {
        mod $name {
            #[diagnostic::on_unimplemented($($text)*)]
            #[allow(non_camel_case_types)]
            pub(super) trait $savable: Sized {
                fn codec() -> $crate::__private::Codec<Self>;
            }
            #[diagnostic::do_not_recommend]
            impl<T: $needed + ::core::marker::Send> $savable for T {
                fn codec() -> $crate::__private::Codec<Self> {
                    $crate::__private::Codec::new()
                }
            }
            pub(super) use $savable as Savable;
        }
    };
}

/// As [`__forever_keep`], for the remaining items of a `for` loop by value.
#[doc(hidden)]
#[macro_export]
macro_rules! __forever_keep_items {
    ($name:tt: $savable:tt, $message:tt $(, $way:tt)*) => {
        mod $name {
            #[diagnostic::on_unimplemented(
                message = $message,
                label = "gives items that are needed later, but cannot be saved",
                $(note = $way,)*
                note = "derive `serde::Serialize` and `serde::Deserialize` for the type of the items"
            )]
            #[allow(non_camel_case_types)]
            pub(super) trait $savable: Sized {
                fn codec<R: $crate::__private::Remaining<Item = Self>>() -> $crate::__private::Codec<R>;
            }
            #[diagnostic::do_not_recommend]
            impl<T: $crate::__private::serde::Serialize + $crate::__private::serde::Deserialize<'static>> $savable for T {
                fn codec<R: $crate::__private::Remaining<Item = Self>>() -> $crate::__private::Codec<R> {
                    R::codec()
                }
            }
            pub(super) use $savable as Savable;
        }
    };
}

/// Trait that decides whether a variable may be dropped at a cut point that does not keep it.
#[doc(hidden)]
#[macro_export]
macro_rules! __forever_hold {
    ($name:tt: $released:tt, $message:tt, $label:tt) => {
        mod $name {
            #[diagnostic::on_unimplemented(
                message = $message,
                label = $label,
                note = "a local that nothing needs later is dropped at the step, and with it what it holds; where it need not be held at all, `let _ = ..` drops it at once"
            )]
            #[allow(non_camel_case_types)]
            pub(super) trait $released {
                #[allow(dead_code)]
                fn may_be_dropped(&self) {}
            }
            #[diagnostic::do_not_recommend]
            impl<T: $crate::__private::Data> $released for T {}
            pub(super) use $released as Released;
        }
    };
}

/// Trait that decides whether a place owns the text that a kept variable borrows from it.
#[doc(hidden)]
#[macro_export]
macro_rules! __forever_text {
    ($name:tt: $kept:tt, $message:tt, $label:tt) => {
        mod $name {
            #[diagnostic::on_unimplemented(message = $message, label = $label)]
            #[allow(non_camel_case_types)]
            pub(super) trait $kept {
                #[allow(dead_code)]
                fn may_be_kept(&self) {}
            }
            #[diagnostic::do_not_recommend]
            impl<T: $crate::__private::OwnsNoText + ?Sized> $kept for T {}
            pub(super) use $kept as Kept;
        }
    };
}

/// Trait that decides whether what is joined to an iteration by position stays where it is.
#[doc(hidden)]
#[macro_export]
macro_rules! __forever_joined {
    ($name:tt: $stays:tt, $message:tt) => {
        mod $name {
            #[diagnostic::on_unimplemented(message = $message, label = "would be moved into the loop")]
            #[allow(non_camel_case_types)]
            pub(super) trait $stays {
                fn stays(&self) {}
            }
            #[diagnostic::do_not_recommend]
            impl<T: ::core::marker::Copy> $stays for T {}
            pub(super) use $stays as Stays;
        }
    };
}

/// Converts an error of the library to the function's error type, if possible.
#[doc(hidden)]
#[macro_export]
macro_rules! __forever_made {
    ($error:ty) => {{
        #[allow(unused_imports)]
        use $crate::__private::{Made as _, NotMade as _};
        (&$crate::__private::Probe::<$error>::new()).made()
    }};
}

/// End of a step: a value leaves the expression, or the loop around it; an error leaves the
/// function, unless it is caught.
#[doc(hidden)]
#[macro_export]
macro_rules! __forever_end {
    (once, $value:expr) => {
        $value
    };
    (again, $value:expr) => {
        break $value
    };
    (once caught, $value:expr) => {
        ::core::result::Result::Ok::<_, $crate::__private::StepError>($value)
    };
    (again caught, $value:expr) => {
        break ::core::result::Result::Ok::<_, $crate::__private::StepError>($value)
    };
    (once error, $error:expr) => {
        return ::core::result::Result::Err($error)
    };
    (again error, $error:expr) => {
        return ::core::result::Result::Err($error)
    };
    (once caught error, $error:expr) => {
        ::core::result::Result::Err($error)
    };
    (again caught error, $error:expr) => {
        break ::core::result::Result::Err($error)
    };
}

/// The value of a step with attempts: `once` if its body may move what it uses, `again` if it may
/// run more than once. `$pause` leaves memory until the time `$until`.
#[doc(hidden)]
#[macro_export]
macro_rules! __forever_attempts {
    (once $($caught:ident)?, $attempts:expr, |$it:ident| $attempt:expr) => {{
        let mut $it = $attempts;
        match $attempt {
            $crate::__private::Attempt::Done(value) => $crate::__forever_end!(once $($caught)?, value),
            $crate::__private::Attempt::Failed(error) => $crate::__forever_end!(once $($caught)? error, error),
            $crate::__private::Attempt::Again => ::core::unreachable!(),
        }
    }};
    (again $($caught:ident)?, $attempts:expr, |$it:ident| $attempt:expr $(, |$until:ident| $pause:expr)?) => {{
        let mut $it = $attempts;
        loop {
            $(if let ::core::option::Option::Some($until) = $it.pauses_until() { $pause; })?
            match $attempt {
                $crate::__private::Attempt::Done(value) => $crate::__forever_end!(again $($caught)?, value),
                $crate::__private::Attempt::Failed(error) => $crate::__forever_end!(again $($caught)? error, error),
                $crate::__private::Attempt::Again => {}
            }
        }
    }};
}

/// End of an attempt whose outcome is unknown and that is not repeated.
#[doc(hidden)]
#[macro_export]
macro_rules! __forever_unsure {
    ($effect:ident) => {
        return ::core::result::Result::Err($effect.unsure().await)
    };
    (caught $effect:ident) => {
        ::core::result::Result::Err($effect.unsure_caught().await)
    };
}

/// The value of an effect. First its `on_unknown` is evaluated, then its body runs if it has to;
/// before that, `$pause` leaves memory until the time `$until`.
#[doc(hidden)]
#[macro_export]
macro_rules! __forever_effect {
    ([once $($caught:ident)?] $error:ty, |$it:ident, $asked:ident| $begin:expr, $on_unknown:expr, $next:expr, |$value:ident| $known:expr, { $($op:tt)* } $run:expr) => {{
        let mut $it = $begin;
        let next = {
            let mut $asked: $crate::__private::OnUnknown<'_, _, $error> = $on_unknown;
            $next
        };
        match next {
            $crate::__private::Next::Value($value) => $crate::__forever_end!(once $($caught)?, $known),
            $crate::__private::Next::Error(error) => $crate::__forever_end!(once $($caught)? error, error),
            $crate::__private::Next::Run => {
                $($op)*
                match $run {
                    $crate::__private::Attempt::Done(value) => $crate::__forever_end!(once $($caught)?, value),
                    $crate::__private::Attempt::Failed(error) => $crate::__forever_end!(once $($caught)? error, error),
                    $crate::__private::Attempt::Again => $crate::__forever_unsure!($($caught)? $it),
                }
            }
        }
    }};
    ([again $($caught:ident)?] $error:ty, |$it:ident, $asked:ident| $begin:expr, $on_unknown:expr, $next:expr, |$value:ident| $known:expr, { $($op:tt)* } $run:expr $(, |$until:ident| $pause:expr)?) => {{
        let mut $it = $begin;
        let mut $asked: $crate::__private::OnUnknown<'_, _, $error> = $on_unknown;
        loop {
            match $next {
                $crate::__private::Next::Value($value) => $crate::__forever_end!(again $($caught)?, $known),
                $crate::__private::Next::Error(error) => $crate::__forever_end!(again $($caught)? error, error),
                $crate::__private::Next::Run => {}
            }
            $(if let ::core::option::Option::Some($until) = $it.pauses_until() {
                $pause;
                continue;
            })?
            $($op)*
            match $run {
                $crate::__private::Attempt::Done(value) => $crate::__forever_end!(again $($caught)?, value),
                $crate::__private::Attempt::Failed(error) => $crate::__forever_end!(again $($caught)? error, error),
                $crate::__private::Attempt::Again => {}
            }
        }
    }};
}
