//! The texts of errors that have no values in them; docs/diagnostics.md says how they are worded.

pub(crate) const FOR_MUTABLE: &str = "a `for` loop with a step in it cannot hold a mutable borrow over the step: loop over an index, `for i in 0..items.len() { let item = &mut items[i]; .. }`";
pub(crate) const FOR_CLOSURE: &str = "a borrowed iterator with a closure cannot be taken up again after a step: collect first, `let items: Vec<_> = ...collect(); for item in items { .. }`";
pub(crate) const ASSIGN_PLACE: &str = "a step cannot stand in the place that is assigned to, nor behind one that is computed: bind what the step gives first, `let value = step!(..);`, then assign";
pub(crate) const UNKNOWN_PLACE: &str = "a step cannot stand in this kind of expression: bind it first, `let value = step!(..);`";
pub(crate) const HIDDEN_JUMP: &str =
    "`break` and `continue` in the arguments of a macro cannot be followed across a step: write the jump outside of the macro";
pub(crate) const CFG_LOCAL: &str = "`#[cfg]` on a local that is kept across a step would change what can be resumed: move the condition into the value, `if cfg!(..) { a } else { b }`";
pub(crate) const BY_REF: &str = "a `for` loop with a step in it keeps the items that are left, which would empty the iterator behind `by_ref()`: collect the items first";
pub(crate) const IN_AN_IMPL: &str =
    "a fiber is a free function, not one of an `impl` or a `trait`: move it out, and write the type's name for `Self`";
pub(crate) const WAS_LOCAL: &str = "`#[was]` takes the old name of the variable as text: `#[was = \"hits\"] let found = ..;`";
pub(crate) const WAS_OF_SEVERAL: &str = "`#[was]` renames one variable: give each a `let` of its own, `#[was = \"hits\"] let found = ..;`";
pub(crate) const STEPS_MUTABLE: &str =
    "`steps!` cannot hold a mutable borrow while it waits: go over the items by value, or over their indices, and change them after";
pub(crate) const STEPS_CLOSURE: &str = "a borrowed iterator with a closure cannot be taken up again after a step: collect first, `let items: Vec<_> = ...collect();`, then `steps!(for item in items, ..)`";

pub(crate) fn received_nowhere(topic: &syn::Expr) -> String {
    let topic = crate::text::compact(topic);
    format!(
        "nothing says what `recv!` receives: bind it by its type, `let answer: Answer = recv!({topic});`, or `let () = recv!({topic});`"
    )
}

pub(crate) fn received_nowhere_in_an_arm(topic: &syn::Expr) -> String {
    let topic = crate::text::compact(topic);
    format!(
        "nothing says what `recv!` receives: write the type in the arm, `answer: Answer = recv!({topic}) => ..`, or `() = recv!({topic}) => ..`"
    )
}

pub(crate) fn changed_in_a_branch(name: &str) -> String {
    format!(
        "`{name}` is changed in a branch of `steps!`, which does not run again once its result is stored: give the branch a value, and change `{name}` after it"
    )
}

pub(crate) fn exclusive_in_a_branch(name: &str) -> String {
    format!(
        "`{name}` borrows exclusively, and what a branch of `steps!` changes is not changed again when its result is stored already: give the branch a value, and change `{name}` after it"
    )
}

pub(crate) fn same_name(name: &str) -> String {
    format!("two steps are named `{name}`: a step is found by its name when the fiber resumes, so give this one another")
}

pub(crate) fn exclusive(name: &str, step: &str) -> String {
    format!(
        "`{name}` borrows exclusively and is needed after `{step}`, where it cannot be taken again: take the value out and put it back, or match again after the step"
    )
}

pub(crate) fn partly_moved(name: &str, field: &str) -> String {
    format!(
        "`{name}` is used here after `{field}` was moved out of it by a `for` loop with a step in it: destructure it before the loop (`let TheType {{ a, b }} = {name};`) and use the parts"
    )
}

pub(crate) fn reference(name: &str, step: &str) -> String {
    format!(
        "`{name}` is kept across `{step}`, but it is a reference, which cannot be saved: keep an owned value (`String` for `&str`), or borrow again after the step"
    )
}

pub(crate) fn macro_rules(name: &str) -> String {
    format!(
        "a `macro_rules!` in the body of a fiber cannot use its locals (`{name}`) across a step: define it outside of the function and pass what it needs"
    )
}

pub(crate) fn guard(name: &str, method: &str, step: &str) -> String {
    format!(
        "`{name}` is what `{method}()` gave back and is still held at `{step}`: a lock cannot be kept across a step; end it before, `drop({name});`, or lock inside the step"
    )
}

pub(crate) fn borrowed_text(name: &str, step: &str) -> String {
    format!(
        "`{name}` is kept across `{step}`, but it may borrow from the bytes that it was made of, and cannot be saved: end it with `.into_owned()`"
    )
}

pub(crate) fn chosen_text(name: &str, step: &str) -> String {
    format!(
        "`{name}` is kept across `{step}`, but text that is chosen at run time cannot be saved as `&str`: make it a `String`, `\"..\".to_owned()`"
    )
}
