//! The lowered body of a fiber: blocks of statements in which a cut point is always a statement of
//! its own.
//!
//! Plain statements are the user's own tokens and contain no cut point. Everything that contains
//! one is taken apart, down to the cut points, which are numbered in source order: those inside any
//! one node are a contiguous range.
use std::ops::RangeInclusive;

use proc_macro2::Span;
use syn::{Attribute, Expr, Ident, Label, Pat};

use crate::cut::{CutBody, CutKind};
use crate::flow::Flow;
use crate::ids::{ArmId, CutId, JumpId, PointId, VarId};

/// A lowered function body.
pub(crate) struct Body {
    pub(crate) block: Block,
    pub(crate) cuts: Vec<Cut>,
    /// Checks of types, whose messages name what the user wrote.
    pub(crate) checks: proc_macro2::TokenStream,
}

/// One cut point.
pub(crate) struct Cut {
    pub(crate) body: CutBody,
    /// Name without number: literal, `let` name, callee or `step`.
    pub(crate) base: String,
    pub(crate) explicit: bool,
    /// Place of its name, if it is written.
    pub(crate) named_at: Option<Span>,
    /// Its earlier name.
    pub(crate) was: Option<String>,
    /// The macro that it is, or is part of.
    pub(crate) kind: CutKind,
    /// Text that distinguishes it from others of the same derived name.
    pub(crate) text: String,
    /// Place of the macro.
    pub(crate) span: Span,
    /// Place of its last token.
    pub(crate) end: Span,
}

/// Name prefix of the variables with the remaining items of `for` loops by value.
pub(crate) const REST: &str = "__rest_";

/// Name prefix of the variables for temporaries that live as long as a statement.
pub(crate) const LASTING: &str = "__lasting_";

/// As [`LASTING`], of those in a block of their own, at whose end their statement ends.
pub(crate) const LASTING_IN_BLOCK: &str = "__lasting_of_";

/// Suffix of the stored name of a loop's remaining items, after the name of their source.
pub(crate) const LEFT: &str = " left";

/// Suffix of the name of the cut point before a wait, after the name of the wait.
pub(crate) const PENDING: &str = " pending";

/// The name of the cut point before a wait of this stored name: `sleep pending#2` before `sleep#2`.
pub(crate) fn pending_of(wait: &str) -> String {
    with_number(wait, PENDING)
}

/// A stored name with a suffix before its number.
pub(crate) fn with_number(name: &str, behind: &str) -> String {
    match name.rsplit_once('#') {
        Some((base, number)) => format!("{base}{behind}#{number}"),
        None => format!("{name}{behind}"),
    }
}

impl Cut {
    /// The name without number, for messages: that of the macro as a whole.
    pub(crate) fn title(&self) -> &str {
        match self.body {
            CutBody::Pending(_) => self.base.strip_suffix(PENDING).unwrap_or(&self.base),
            _ => &self.base,
        }
    }

    /// `step!(search)`, for messages; `name` is the stored name.
    pub(crate) fn shown(&self, name: &str) -> String {
        let name = match self.body {
            CutBody::Pending(_) => name.replacen(PENDING, "", 1),
            _ => name.to_owned(),
        };
        format!("{}({name})", self.kind.written())
    }
}

pub(crate) struct Block {
    pub(crate) stmts: Vec<Stmt>,
    /// The point after the last statement.
    pub(crate) end: PointId,
}

impl Block {
    /// The cut points in it.
    pub(crate) fn cuts(&self) -> Option<RangeInclusive<CutId>> {
        let first = self.stmts.iter().find_map(|s| s.cuts.as_ref().map(|c| *c.start()))?;
        let last = self.stmts.iter().rev().find_map(|s| s.cuts.as_ref().map(|c| *c.end()))?;
        Some(first..=last)
    }
}

pub(crate) struct Stmt {
    pub(crate) kind: StmtKind,
    /// The variables that it declares for the rest of the block.
    pub(crate) declares: Vec<VarId>,
    /// Its effect on variables: of a plain statement, or of the parts of another that are evaluated
    /// before its blocks.
    pub(crate) flow: Flow,
    /// The point before anything of it is evaluated.
    pub(crate) start: PointId,
    /// The point just before it; for a control or cut statement, after its operands.
    pub(crate) before: PointId,
    /// The point just after it.
    pub(crate) after: PointId,
    /// The cut points in it, if any.
    pub(crate) cuts: Option<RangeInclusive<CutId>>,
    /// Variables that it declares for the remaining fields of others: after the value of a cut
    /// point, or as the whole effect of a plain statement.
    pub(crate) remainders: Vec<Remainder>,
}

/// A variable of the same name that holds the fields which are used after another field was moved
/// out.
#[derive(Clone)]
pub(crate) struct Remainder {
    pub(crate) ident: Ident,
    pub(crate) mutable: bool,
    /// The fields, as places of the variable that was moved out of.
    pub(crate) fields: Vec<Expr>,
    /// The `let`.
    pub(crate) code: proc_macro2::TokenStream,
}

pub(crate) enum StmtKind {
    /// No cut point inside. A block's value is a last `Stmt::Expr(_, None)`.
    Plain(syn::Stmt),
    Cut {
        bind: Bind,
        cut: CutId,
    },
    Control {
        bind: Bind,
        control: Control,
    },
}

/// Target of the value of a cut point or of a control construct.
pub(crate) enum Bind {
    /// Nowhere.
    Discard,
    /// `let PAT = ..`.
    Let { attrs: Vec<Attribute>, pat: Pat },
    /// The value of the block.
    Tail,
}

pub(crate) enum Control {
    /// `if`, `match` and `let .. else`: one of several blocks is entered.
    Branch(Branch),
    Loop {
        label: Option<Label>,
        id: JumpId,
        body: Block,
    },
    /// `for` by position over a source that keeps its order.
    For(Box<For>),
    /// A block, labelled or `unsafe`.
    Scope {
        label: Option<Label>,
        id: JumpId,
        is_unsafe: bool,
        body: Block,
    },
}

pub(crate) struct Branch {
    pub(crate) head: Head,
    pub(crate) arms: Vec<Arm>,
}

impl Branch {
    /// The patterns that bind the variables of an arm.
    pub(crate) fn patterns<'b>(&'b self, arm: &'b Arm) -> Vec<&'b Pat> {
        fn conditions<'b>(cond: &'b Expr, found: &mut Vec<&'b Pat>) {
            match cond {
                Expr::Let(binding) => found.push(&binding.pat),
                Expr::Binary(both) => [&both.left, &both.right].into_iter().for_each(|cond| conditions(cond, found)),
                _ => {}
            }
        }
        let mut found: Vec<&Pat> = arm.pat.iter().collect();
        if let Head::If { cond, .. } = &self.head {
            conditions(cond, &mut found);
        }
        found
    }
}

/// What decides which arm is entered.
pub(crate) enum Head {
    /// Arms: then, else.
    If {
        cond: Expr,
        attrs: Vec<Attribute>,
    },
    Match {
        scrutinee: Expr,
        attrs: Vec<Attribute>,
    },
    /// Arms: the implicit one that binds, else. The pattern's variables are those of the statement.
    LetElse {
        pat: Pat,
        init: Expr,
        /// Place of the block after `else`.
        otherwise: Span,
    },
}

pub(crate) struct Arm {
    /// None if it is not in the source: the missing `else`, the bound side of `let .. else`.
    pub(crate) id: Option<ArmId>,
    pub(crate) attrs: Vec<Attribute>,
    /// For `match` only; a guard is part of it.
    pub(crate) pat: Option<Pat>,
    /// The variables that its pattern binds.
    pub(crate) declares: Vec<VarId>,
    /// Its bindings and its guard.
    pub(crate) enter: Flow,
    pub(crate) block: Block,
    pub(crate) cuts: Option<RangeInclusive<CutId>>,
}

pub(crate) struct For {
    pub(crate) label: Option<Label>,
    pub(crate) id: JumpId,
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) pat: Pat,
    /// The variables that its pattern binds.
    pub(crate) declares: Vec<VarId>,
    /// The iterator expression. Operands that are evaluated once are already in variables.
    pub(crate) items: Expr,
    /// The stored name of its position: the iterator expression as it was written, because a
    /// position means nothing in another.
    pub(crate) key: String,
    /// The generated variable that holds the position.
    pub(crate) position: Ident,
    pub(crate) position_var: Option<VarId>,
    /// Variables that the iteration borrows from.
    pub(crate) bases: Vec<VarId>,
    pub(crate) body: Block,
}
