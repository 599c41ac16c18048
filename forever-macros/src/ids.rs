//! Numbers of variables, cut points, jumps and points of a body.

/// A variable of the function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct VarId(pub(crate) usize);

/// Number of a cut point: its index in [`Body::cuts`](crate::hir::Body::cuts).
pub(crate) type CutId = usize;

/// An arm of a branch in the source, in the order of lowering.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ArmId(pub(crate) usize);

/// A loop or labelled block, target of `break` and `continue`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct JumpId(pub(crate) u32);

impl JumpId {
    /// First number of the loops inside plain statements, which the lowered tree does not number.
    pub(crate) const FIRST_PLAIN: u32 = 1_000_000;

    /// Whether it is a loop or block of the lowered tree.
    pub(crate) fn is_lowered(self) -> bool {
        self.0 < Self::FIRST_PLAIN
    }
}

/// A point between two statements, at which the needed variables are computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PointId(pub(crate) u32);

impl PointId {
    /// Before names are resolved.
    pub(crate) const UNSET: PointId = PointId(u32::MAX);
}
