//! What a cut point keeps.
use crate::ids::VarId;

/// Role of a kept value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Value,
    /// The remaining items of a `for` loop by value.
    Items,
    /// The position of a `for` loop by borrow.
    Position,
}

/// A value that a cut point keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) var: VarId,
    /// The stored name.
    pub(crate) key: String,
    /// Number of stored values that share the name before `#`.
    pub(crate) of: usize,
    /// Its earlier stored name.
    pub(crate) was: Option<String>,
    /// Whether it is the cut point's own value.
    pub(crate) result: bool,
    /// Its role in a `for` loop.
    pub(crate) role: Role,
    /// Why it is kept, for messages.
    pub(crate) why: String,
}
