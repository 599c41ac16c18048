//! The texts of errors that have no values in them; docs/diagnostics.md says how they are worded.

pub(crate) const FOR_MUTABLE: &str = "a `for` loop with a step in it cannot hold a mutable borrow over the step: loop over an index, `for i in 0..items.len() { let item = &mut items[i]; .. }`";
pub(crate) const FOR_CLOSURE: &str = "a borrowed iterator with a closure cannot be taken up again after a step: collect first, `let items: Vec<_> = ...collect(); for item in items { .. }`";
pub(crate) const ASSIGN_PLACE: &str =
    "the place that is assigned to has to be evaluated around a step: bind the value first, `let value = step!(..);`, then assign it";
pub(crate) const UNKNOWN_PLACE: &str = "a step cannot stand in this kind of expression: bind it first, `let value = step!(..);`";
pub(crate) const HIDDEN_JUMP: &str =
    "`break` and `continue` in the arguments of a macro cannot be followed across a step: write the jump outside of the macro";
