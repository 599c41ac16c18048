//! Values that can be kept across a cut point: those that serde can write and read again.
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::sync::{Mutex, PoisonError};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind};
use crate::exact;
use crate::exact::Unread;
use crate::exact::logs;
use crate::exact::logs::{Logs, StoredLogs};

/// A value that a snapshot can hold.
///
/// Implemented for every type that is `Serialize` and `Deserialize`, and for no other. A
/// `&'static str` is restored as a constant of the same text; text that is borrowed from another
/// local is refused by the macro's checks.
///
/// See [`bounds`](crate::bounds) for when a program names it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be saved",
    label = "cannot be saved",
    note = "derive `serde::Serialize` and `serde::Deserialize` for it, make it again after a resume with `#[fresh] let`, or take it as a resource (`Res<T>`)"
)]
pub trait Saved {
    /// Stored text of the value, or the reason why it has none.
    #[doc(hidden)]
    fn save(&self) -> Result<String, String>;

    /// Text in a snapshot, with the items of logs stored apart.
    #[doc(hidden)]
    fn save_with(&self, logs: &mut Logs) -> Result<String, String>;

    /// Whether it is an inclusive range of which the last item is known to be taken or not.
    #[doc(hidden)]
    fn is_range_with_its_end(&self) -> bool;

    /// Reads the text back and writes it again; an error describes the difference.
    #[doc(hidden)]
    fn check(&self, text: &str) -> Result<(), String>;

    /// Reads text that `save` wrote, or `save_with`, with the items of the logs. With what the text
    /// has that the type does not read.
    #[doc(hidden)]
    fn restore(text: &str, logs: Option<&StoredLogs>) -> Result<(Self, Option<Unread>), String>
    where
        Self: Sized;
}

#[diagnostic::do_not_recommend]
impl<T: Serialize + Deserialize<'static>> Saved for T {
    fn save(&self) -> Result<String, String> {
        exact::to_string(self).map_err(|e| e.to_string())
    }

    fn save_with(&self, logs: &mut Logs) -> Result<String, String> {
        exact::to_string_with(self, logs).map_err(|e| e.to_string())
    }

    fn is_range_with_its_end(&self) -> bool {
        super::codec::is_range_with_its_end(std::any::type_name::<T>())
    }

    fn check(&self, text: &str) -> Result<(), String> {
        if super::codec::is_shared_and_changes(std::any::type_name::<T>()) {
            return Err("it is shared, and would come back as a value of its own beside that of the other handles: \
                        keep the value itself, or take what is shared as a resource (`Res<T>`)"
                .to_owned());
        }
        // If it refers to logs: the whole text, with all their items.
        if std::mem::needs_drop::<T>() && !may_forget::<T>(text) {
            return Ok(());
        }
        let whole = if text.contains(logs::PLACEHOLDER) { Some(self.save()?) } else { None };
        let text = whole.as_deref().unwrap_or(text);
        let again: T = exact::from_str_with(text, None).map_err(|e| format!("it was written but cannot be read back: {e}"))?;
        // The copy is forgotten: its drop may have an effect, which must not happen twice.
        let again = ManuallyDrop::new(again);
        let second = exact::to_string(&*again).map_err(|e| format!("it was read back but cannot be written again: {e}"))?;
        if exact::same(text, &second) {
            return Ok(());
        }
        Err(format!("it does not come back as it was: saved as {}, restored as {}", clip(text), clip(&second)))
    }

    fn restore(text: &str, logs: Option<&StoredLogs>) -> Result<(Self, Option<Unread>), String> {
        exact::from_str_with_unread(text, logs).map_err(|e| e.to_string())
    }
}

/// A value that a fiber can return: serde can write and read it, it is `Send`, and it holds no
/// references.
///
/// Implemented for every type that has all three. It requires no trait of serde, so that
/// the compiler reports a type without one by this trait alone.
///
/// See [`bounds`](crate::bounds) for an example.
#[diagnostic::on_unimplemented(
    message = "the result of a fiber is stored, but its type `{Self}` cannot be saved",
    label = "gives a result that cannot be saved",
    note = "derive `serde::Serialize` and `serde::Deserialize` for `{Self}`, or return what is needed of it; a result must also be `Send` and hold no references"
)]
pub trait ReturnValue: Send + 'static {
    #[doc(hidden)]
    fn __saved(&self) -> &dyn Saved;

    #[doc(hidden)]
    fn __restore(text: &str) -> Result<Self, String>
    where
        Self: Sized;
}

#[diagnostic::do_not_recommend]
impl<T: Serialize + DeserializeOwned + Send + 'static> ReturnValue for T {
    fn __saved(&self) -> &dyn Saved {
        self
    }

    fn __restore(text: &str) -> Result<Self, String> {
        T::restore(text, None).map(|(value, _)| value)
    }
}

/// Length in bytes of the texts whose copies [`Saved::check`] has forgotten in this process, by
/// type.
static FORGOTTEN: Mutex<BTreeMap<&str, usize>> = Mutex::new(BTreeMap::new());

/// Length from which on values of a type are not read back: it was checked by then, and a debug
/// build that runs for days must not run out of memory.
const MOST_FORGOTTEN: usize = 1 << 20;

/// Whether one more copy of a value may be forgotten, which has a destructor.
fn may_forget<T>(text: &str) -> bool {
    let mut forgotten = FORGOTTEN.lock().unwrap_or_else(PoisonError::into_inner);
    let length = forgotten.entry(std::any::type_name::<T>()).or_default();
    let may = *length < MOST_FORGOTTEN;
    *length = length.saturating_add(text.len());
    may
}

/// The stored text of a value; debug builds verify that it can be read back.
pub(crate) fn checked<V: Saved + ?Sized>(value: &V, text: Result<String, String>) -> Result<String, String> {
    let text = text?;
    if cfg!(debug_assertions) {
        value.check(&text)?;
    }
    Ok(text)
}

/// Maximum length in bytes of the text of a stashed or sent value.
pub(crate) const LONGEST_TEXT: usize = 16 << 20;

/// Text of a stashed or sent value; an error continues after "the value".
pub fn text_to_keep<V: Serialize + ?Sized>(value: &V) -> Result<String, String> {
    let text = exact::to_string(value).map_err(|why| format!("cannot be saved: {why}"))?;
    if text.len() > LONGEST_TEXT {
        return Err(format!("takes {} bytes, more than the {LONGEST_TEXT} that are allowed", text.len()));
    }
    Ok(text)
}

/// A result supplied by a person, as JSON.
pub(crate) fn result_as_json<T: Serialize + ?Sized>(result: &T) -> Result<serde_json::Value, Error> {
    let unsaved = |why: String| Error::new(ErrorKind::Value, format!("the result cannot be saved: {why}"));
    let text = exact::to_string(result).map_err(|e| unsaved(e.to_string()))?;
    serde_json::from_str(&text).map_err(|e| unsaved(e.to_string()))
}

/// Why a text is not a `T`, to follow "the value".
pub fn unreadable<T>(why: impl std::fmt::Display) -> String {
    let name = std::any::type_name::<T>();
    // A loop is saved as internal types, whose names mean nothing to its author.
    if name.starts_with(ITEMS) {
        return format!("cannot be read as what is left of this `for` loop, which goes over something else now: {why}");
    }
    format!("cannot be read as `{}`: {why}", short_name(name))
}

/// The module of the types as which `for` loops by value are saved.
const ITEMS: &str = "forever_runtime::frame::iter::";

/// Name of a type as written in code, without its modules: `Option<String>`.
fn short_name(full: &str) -> String {
    let is_in_word = |c: char| c.is_alphanumeric() || c == '_';
    // A word before `::` is a module; text before that word is kept.
    let before_module = |path: &'_ str| path.trim_end_matches(is_in_word).to_owned();
    full.split_inclusive("::").map(|part| part.strip_suffix("::").map_or_else(|| part.to_owned(), before_module)).collect()
}

/// A variable in its slot between two stretches of code, where the macro knows that it has a value.
#[doc(hidden)]
pub fn carried<T>(place: &Option<T>) -> &T {
    place.as_ref().expect("a variable that is needed has a value")
}

/// As [`carried`], moved out of its slot.
#[doc(hidden)]
pub fn take<T>(place: &mut Option<T>) -> T {
    place.take().expect("a variable that is needed has a value")
}

/// The arguments of a fiber that does not resume.
#[doc(hidden)]
pub fn start<F>(invocation: Option<F>) -> F {
    invocation.expect("a fiber that does not resume has its arguments")
}

/// A constant text as it is saved: by its content, to be found among the constants of the code.
#[doc(hidden)]
#[must_use]
pub fn text(value: &&str) -> String {
    (*value).to_owned()
}

/// An empty slot for a variable of the same type.
#[doc(hidden)]
pub fn none_like<T>(_: &T) -> Option<T> {
    None
}

/// Type of a variable, before the compiler has inferred it.
#[doc(hidden)]
#[derive(Debug)]
pub struct TypeWitness<T>(PhantomData<fn() -> T>);

#[doc(hidden)]
impl<T> TypeWitness<T> {
    #[must_use]
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Self {
        TypeWitness(PhantomData)
    }

    /// The value, which has this type.
    pub fn of(&self, value: T) -> T {
        value
    }
}

/// Start of a long text, for a message.
fn clip(text: &str) -> String {
    match text.char_indices().nth(200).and_then(|(end, _)| text.get(..end)) {
        Some(start) => format!("{start}.."),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_named_as_people_write_them() {
        let of = |full| short_name(full);
        assert_eq!(of("alloc::string::String"), "String");
        assert_eq!(of("core::option::Option<alloc::vec::Vec<app::plan::Plan>>"), "Option<Vec<Plan>>");
        assert_eq!(of("(u32, &[app::Plan], [alloc::string::String; 3])"), "(u32, &[Plan], [String; 3])");
        assert_eq!(of("u8"), "u8");
    }

    #[test]
    fn a_loop_is_not_named_by_a_type_of_ours() {
        use crate::frame::iter::{Items, RangeRest};

        let expected = "cannot be read as what is left of this `for` loop, which goes over something else now: why";
        assert_eq!([unreadable::<RangeRest<u8>>("why"), unreadable::<Items<u8>>("why")], [expected, expected]);
        assert_eq!(unreadable::<u8>("why"), "cannot be read as `u8`: why");
    }
}
