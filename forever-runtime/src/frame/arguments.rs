//! The arguments of an invocation, as stored JSON.
use std::sync::Arc;

use crate::frame::fiber::Fiber;
use crate::frame::locals::{Locals, Save, Unreadable};

/// The arguments of an invocation as one JSON object.
pub(crate) fn save_arguments<F: Fiber>(invocation: &F) -> Result<String, String> {
    let mut text = String::from("{");
    let mut out = Save { text: &mut text, step: "", first: true, error: None, apart: None };
    invocation.save(&mut out);
    match out.error {
        Some(why) => Err(why),
        None => Ok(text + "}"),
    }
}

/// Reads the invocation that [`save_arguments`] wrote.
pub(crate) fn load_arguments<F: Fiber>(text: &str) -> Result<F, String> {
    let values = serde_json::from_str(text).map_err(|e| format!("the stored arguments are not a JSON object: {e}"))?;
    F::load(&mut Locals { step: "", values, logs: Arc::default() }).map_err(|Unreadable(why)| why)
}
