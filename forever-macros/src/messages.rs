//! The constant texts of errors; docs/guide/src/reference/diagnostics.md says how they are worded.
use crate::sealed::Sealed;

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

pub(crate) fn key_that_changes(name: &str) -> String {
    format!(
        "what is looked up by `{name}`, which is `mut`, cannot be looked up again after a resume: bind the key first, `let key = {name}.clone();`"
    )
}

pub(crate) const ATTRIBUTE_ABOVE: &str = "an attribute above `#[fiber]` has put the body into an `async` block, in which no step can be resumed: remove that attribute and put what it does into the body (a span into a step: `step!(\"..\", work().instrument(span).await?)`)";

pub(crate) fn attribute_below(attribute: &str, name: &str) -> String {
    format!(
        "`#[{attribute}]` would wrap what makes the invocation of `{name}`, not its body: remove it and put what it does into the body (a span into a step: `step!(\"..\", work().instrument(span).await?)`)"
    )
}

pub(crate) const EFFECT_STORED: &str = "derive `serde::Serialize` and `serde::Deserialize` for the type, or end the body with what is needed later: `{ charge(op.id()).await?; }` gives nothing";
pub(crate) const BRANCH_STORED: &str =
    "derive `serde::Serialize` and `serde::Deserialize` for the type, or end the branch with what is needed later";
pub(crate) const MESSAGE_STORED: &str =
    "derive `serde::Serialize` and `serde::Deserialize` for the type; it must also be `Send` and hold no references";

pub(crate) fn effect_stored(step: &str) -> String {
    format!("the value of `{step}` is stored as its result, but its type `{{Self}}` cannot be saved")
}

pub(crate) fn branch_stored(steps: &str) -> String {
    format!("the value of each branch of `{steps}` is stored when it arrives, but the type `{{Self}}` cannot be saved")
}

pub(crate) fn message_stored(cut: &str) -> String {
    format!("what `{cut}` receives is stored, but its type `{{Self}}` cannot be saved")
}

pub(crate) fn received_nowhere(topic: &syn::Expr) -> String {
    let topic = crate::text::compact(topic);
    format!(
        "nothing says what `recv!` receives: bind it by its type, `let answer: Answer = recv!({topic});`, or `let () = recv!({topic});`"
    )
}

pub(crate) fn tried_nowhere(topic: &syn::Expr) -> String {
    let topic = crate::text::compact(topic);
    format!("nothing says what `try_recv!` receives: bind it by its type, `let answer: Option<Answer> = try_recv!({topic});`")
}

pub(crate) fn handed_over_nowhere(topic: &syn::Expr) -> String {
    let topic = crate::text::compact(topic);
    format!("nothing says what `close!` hands over: bind it by its type, `let unread: Vec<Answer> = close!({topic});`")
}

pub(crate) fn received_nowhere_in_an_arm(topic: &syn::Expr) -> String {
    let topic = crate::text::compact(topic);
    format!(
        "nothing says what `recv!` receives: write the type in the arm, `answer: Answer = recv!({topic}) => ..`, or `() = recv!({topic}) => ..`"
    )
}

pub(crate) fn changed_in_sealed(name: &str, sealed: Sealed) -> String {
    let (place, why, of) = match sealed {
        Sealed::Branch => ("a branch of `steps!`", "does not run again once its result is stored", "branch"),
        Sealed::Effect => ("the body of an `effect`", "does not run again once its outcome is known", "step"),
        Sealed::Retry => ("the body of a step with `retry`", "runs again at each attempt", "step"),
    };
    format!("`{name}` is changed in {place}, which {why}: give the {of} a value, and change `{name}` after it")
}

pub(crate) fn exclusive_in_sealed(name: &str, sealed: Sealed) -> String {
    let (what, of) = match sealed {
        Sealed::Branch => ("a branch of `steps!` changes is not changed again when its result is stored already", "branch"),
        Sealed::Effect => ("the body of an `effect` changes is not changed again when its outcome is known already", "step"),
        Sealed::Retry => ("the body of a step with `retry` changes is changed again at each attempt", "step"),
    };
    format!("`{name}` borrows exclusively, and what {what}: give the {of} a value, and change `{name}` after it")
}

pub(crate) fn same_name(name: &str) -> String {
    format!("two steps are named `{name}`: a step is found by its name when the fiber resumes, so give this one another")
}

pub(crate) fn exclusive(name: &str, step: &str) -> String {
    format!(
        "`{name}` borrows exclusively and is needed after `{step}`, where it cannot be taken again: take the value out and put it back, or match again after the step"
    )
}

pub(crate) fn moved_before_step(name: &str, field: &str, step: &str) -> String {
    format!("`{field}` is moved out of `{name}` before `{step}`, which keeps `{name}`")
}

pub(crate) fn moved_beside_step(name: &str, field: &str, step: &str) -> String {
    format!("`{field}` is moved out of `{name}` in a block beside `{step}`, and `{name}` is needed behind that block")
}

/// The suggestion for a partial move: `let Plan { title, .. } = plan;`
pub(crate) fn take_apart(name: &str, path: &[String]) -> String {
    let field = path.first().map_or("", String::as_str);
    if field.starts_with(|c: char| c.is_ascii_digit()) {
        return format!("take `{name}` apart before, and use the parts: `let (a, b) = {name};`");
    }
    format!("take `{name}` apart before, and use the parts: `let TheType {{ {field}, other }} = {name};`")
}

pub(crate) fn joined(name: &str, step: &str) -> String {
    format!(
        "`zip` and `chain` would move `{name}` into a loop that goes on by position after `{step}`: borrow it, `&{name}`, or take everything by value, `a.into_iter().zip({name})`"
    )
}

pub(crate) fn reference(name: &str, step: &str) -> String {
    format!(
        "`{name}` is kept across `{step}`, but it is a reference, which cannot be saved: keep an owned value (`String` for `&str`), or borrow again after the step"
    )
}

/// `what` is in backticks, or names an expression.
pub(crate) fn leaves_a_block(what: &str, owner: &str) -> String {
    format!(
        "{what} borrows from `{owner}` out of a block with a step, and `{owner}` does not stay there until it is used: give an owned value, `.clone()` or `.to_owned()`, or an index"
    )
}

pub(crate) fn closure_of_a_hidden_name(closure: &str, name: &str) -> String {
    format!(
        "`{closure}` is made again after a resume, and names `{name}` in a macro, where another `{name}` would be taken: give one of the two another name"
    )
}

pub(crate) fn set_later(names: &[String]) -> String {
    let lets: Vec<String> = names.iter().map(|name| format!("let {name};")).collect();
    format!(
        "a pattern whose variables get their values later cannot be followed across a step: declare each by itself, with its type where it needs one, `{}`",
        lets.join(" ")
    )
}

pub(crate) fn macro_rules(name: &str) -> String {
    format!(
        "a `macro_rules!` in the body of a fiber cannot use its locals (`{name}`) across a step: define it outside of the function and pass what it needs"
    )
}

/// `{Self}` is the variable's type, which the compiler fills in.
pub(crate) fn held(name: &str, step: &str) -> String {
    format!(
        "`{name}` is still held at `{step}`, but its type `{{Self}}` cannot be saved: end it before, `drop({name});`, or take it inside the step"
    )
}

/// As [`held`], for a local that is used, and that would be held if it could be declared earlier.
pub(crate) fn held_and_used(name: &str, step: &str) -> String {
    format!(
        "`{name}` would be dropped early, at `{step}`, and its type `{{Self}}` cannot be saved: end it before, `drop({name});`, or bind it with a `let` of its own, under a name that nothing else has"
    )
}

/// As [`held`], for a value that a `let` borrows.
pub(crate) fn held_value(value: &str, step: &str) -> String {
    format!(
        "`{value}` is held to the end of its block, and so at `{step}`, but its type `{{Self}}` cannot be saved: bind it first, with a `let` of its own"
    )
}

/// As [`held`], for a temporary.
pub(crate) fn held_temporary(value: &str, step: &str) -> String {
    format!(
        "`{value}` is held to the end of its statement, and so at `{step}`, but its type `{{Self}}` cannot be saved: bind what is needed of it before, `let value = ..;`"
    )
}

/// `what` is in backticks, or names an expression.
pub(crate) fn borrowed_from(what: &str, step: &str, owner: &str) -> String {
    format!(
        "{what} is kept across `{step}`, but it is text of `{owner}`, and a reference cannot be saved: make it text of its own, `.to_owned()`, or `.map(str::to_owned)` in an `Option` and before `.collect()`"
    )
}

pub(crate) fn borrowed_text(name: &str, step: &str) -> String {
    format!(
        "`{name}` is kept across `{step}`, but it may borrow from the bytes that it was made of, and cannot be saved: end it with `.into_owned()`"
    )
}
