//! Bodies that must not change the variables around them.

/// A body that may be skipped or run again while the variables around it are not, so that it must
/// not change them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sealed {
    /// A branch of `steps!`: skipped once its result is stored.
    Branch,
    /// The body of an `effect`: skipped once its outcome is known.
    Effect,
    /// The body of a step with `retry`: may run again.
    Retry,
}
