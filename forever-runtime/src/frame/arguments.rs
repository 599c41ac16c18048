//! The arguments of an invocation, as stored JSON.
use crate::frame::fiber::Fiber;
use crate::frame::locals::{Locals, OnRenamedField, Save, UnreadKeys, Unreadable};
use crate::secret::plain_arguments;

/// What is done with the arguments of an invocation.
#[doc(hidden)]
#[derive(Debug)]
pub enum Arguments<'a, 'out, F> {
    Save(&'a F, &'a mut Save<'out>),
    Load(&'a mut Locals),
}

/// The arguments of an invocation as one JSON object.
pub fn save_arguments<F: Fiber>(invocation: &F) -> Result<String, String> {
    let mut text = String::from("{");
    let mut out = Save { text: &mut text, step: "", first: true, error: None, apart: None };
    let saved = F::arguments(Arguments::Save(invocation, &mut out));
    match (out.error, saved) {
        (Some(why), _) | (None, Err(Unreadable(why))) => Err(why),
        (None, Ok(_)) => Ok(text + "}"),
    }
}

/// Reads the invocation that [`save_arguments`] wrote, and what the types of its arguments do not
/// read.
pub(crate) fn load_arguments<F: Fiber>(text: &str, on_renamed_field: OnRenamedField) -> Result<(F, UnreadKeys), String> {
    let values = serde_json::from_str(&plain_arguments(text)).map_err(|e| format!("the stored arguments are not a JSON object: {e}"))?;
    let mut locals = Locals { values, on_renamed_field, ..Locals::default() };
    let invocation = F::arguments(Arguments::Load(&mut locals)).map_err(|Unreadable(why)| why)?;
    invocation.map(|invocation| (invocation, locals.unread)).ok_or_else(|| "the arguments were not read".to_owned())
}
