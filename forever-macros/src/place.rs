//! Places and plain borrows: expressions that can be evaluated again and mean the same.
use syn::{Expr, ExprReference, Lit};

/// `x`, `x.field`, `x[3]`, `x[i]`, `x[1..]`, `*x`: a place that can be named again without doing anything.
pub(crate) fn is_place(expr: &Expr) -> bool {
    match expr {
        Expr::Path(path) => path.qself.is_none() && path.path.get_ident().is_some(),
        Expr::Field(field) => is_place(&field.base),
        Expr::Index(index) => is_place(&index.expr) && is_index(&index.index),
        Expr::Unary(unary) => matches!(unary.op, syn::UnOp::Deref(_)) && is_place(&unary.expr),
        Expr::Paren(paren) => is_place(&paren.expr),
        Expr::Group(group) => is_place(&group.expr),
        _ => false,
    }
}

fn is_index(expr: &Expr) -> bool {
    match expr {
        Expr::Lit(_) => true,
        Expr::Range(range) => [&range.start, &range.end].into_iter().flatten().all(|e| is_index(e)),
        other => is_place(other),
    }
}

/// A place that has to be read through an index that is a variable: the index must not change.
pub(crate) fn index_variables(expr: &Expr) -> Vec<&syn::Ident> {
    match expr {
        Expr::Field(e) => index_variables(&e.base),
        Expr::Unary(e) => index_variables(&e.expr),
        Expr::Paren(e) => index_variables(&e.expr),
        Expr::Group(e) => index_variables(&e.expr),
        Expr::Reference(e) => index_variables(&e.expr),
        Expr::Index(e) => {
            let mut found = index_variables(&e.expr);
            found.extend(variables(&e.index));
            found
        }
        _ => Vec::new(),
    }
}

fn variables(expr: &Expr) -> Vec<&syn::Ident> {
    match expr {
        Expr::Path(path) => path.path.get_ident().into_iter().collect(),
        Expr::Field(e) => variables(&e.base),
        Expr::Range(range) => [&range.start, &range.end].into_iter().flatten().flat_map(|e| variables(e)).collect(),
        Expr::Paren(e) => variables(&e.expr),
        _ => Vec::new(),
    }
}

/// The variable at the root of a place.
pub(crate) fn root(expr: &Expr) -> Option<&syn::Ident> {
    match expr {
        Expr::Path(path) => path.path.get_ident(),
        Expr::Field(e) => root(&e.base),
        Expr::Index(e) => root(&e.expr),
        Expr::Unary(e) => root(&e.expr),
        Expr::Paren(e) => root(&e.expr),
        Expr::Group(e) => root(&e.expr),
        Expr::Reference(e) => root(&e.expr),
        _ => None,
    }
}

/// `&place` or `&mut place`, through parentheses.
pub(crate) fn plain_borrow(expr: &Expr) -> Option<&ExprReference> {
    match expr {
        Expr::Reference(reference) if is_place(&reference.expr) => Some(reference),
        Expr::Paren(e) => plain_borrow(&e.expr),
        Expr::Group(e) => plain_borrow(&e.expr),
        _ => None,
    }
}

/// A literal or a constant whose value is made again on a resume: text, bytes, and paths in capitals.
pub(crate) fn is_constant(expr: &Expr) -> bool {
    match expr {
        Expr::Lit(lit) => matches!(lit.lit, Lit::Str(_) | Lit::ByteStr(_) | Lit::CStr(_)),
        Expr::Path(path) => path.path.segments.last().is_some_and(|s| {
            let name = s.ident.to_string();
            name.len() > 1 && name.chars().all(|c| c.is_uppercase() || c.is_numeric() || c == '_') && name.chars().any(char::is_alphabetic)
        }),
        Expr::Reference(e) if e.mutability.is_none() => is_constant(&e.expr),
        Expr::Macro(e) => e.mac.path.segments.last().is_some_and(|s| TEXT_MACROS.iter().any(|name| s.ident == name)),
        Expr::Paren(e) => is_constant(&e.expr),
        _ => false,
    }
}

/// Macros whose value is a constant text.
const TEXT_MACROS: &[&str] = &["concat", "stringify", "env", "file", "module_path", "include_str", "include_bytes"];

/// Whether an operand may be evaluated later than it is written without anybody noticing.
pub(crate) fn is_timeless(expr: &Expr) -> bool {
    match expr {
        Expr::Lit(_) => true,
        // A path of several segments or in capitals is a constant, a unit struct or a function.
        Expr::Path(path) => path.path.get_ident().is_none_or(|i| i.to_string().starts_with(char::is_uppercase)),
        Expr::Paren(e) => is_timeless(&e.expr),
        Expr::Group(e) => is_timeless(&e.expr),
        Expr::Unary(e) => is_timeless(&e.expr),
        Expr::Reference(e) => is_place(&e.expr) || is_timeless(&e.expr),
        Expr::Tuple(e) => e.elems.iter().all(is_timeless),
        _ => false,
    }
}

/// How a `for` loop with steps in it goes over its items.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Items {
    /// By value: the remaining items are kept.
    Owned,
    /// By position, over something borrowed from a place.
    Borrowed,
    /// `&mut place`, `iter_mut()`.
    Mutable,
    /// A borrowing iterator with a closure.
    WithClosure,
}

const BORROWING: &[&str] = &[
    "iter",
    "chars",
    "char_indices",
    "bytes",
    "lines",
    "split_whitespace",
    "split_ascii_whitespace",
    "keys",
    "values",
    "chunks",
    "chunks_exact",
    "windows",
    "split",
    "rsplit",
    "split_terminator",
    "split_inclusive",
    "splitn",
];
const ADAPTORS: &[&str] = &[
    "enumerate",
    "rev",
    "skip",
    "take",
    "zip",
    "chain",
    "copied",
    "cloned",
    "step_by",
    "peekable",
    "fuse",
    "flatten",
    "into_iter",
    "iter",
    "cycle",
];
/// Adaptors that take a closure.
const CLOSURE_ADAPTORS: &[&str] = &["map", "filter", "filter_map", "flat_map", "take_while", "skip_while", "map_while", "inspect", "scan"];
/// Methods that give another view of the same place.
const VIEWS: &[&str] = &["as_slice", "as_str", "as_ref", "as_deref", "trim", "as_bytes"];

/// Classifies the expression after `in`; `is_borrow` says whether a variable holds a borrow itself.
pub(crate) fn items(expr: &Expr, is_borrow: &dyn Fn(&syn::Ident) -> bool) -> Items {
    match expr {
        Expr::Paren(e) => items(&e.expr, is_borrow),
        Expr::Group(e) => items(&e.expr, is_borrow),
        Expr::Reference(e) if is_place(&e.expr) => {
            if e.mutability.is_some() {
                Items::Mutable
            } else {
                Items::Borrowed
            }
        }
        place if is_place(place) && root(place).is_some_and(is_borrow) => Items::Borrowed,
        Expr::MethodCall(call) => {
            let name = call.method.to_string();
            let arguments_are_plain = || call.args.iter().all(|a| is_timeless(a) || is_place(a) || items(a, is_borrow) == Items::Borrowed);
            if is_viewed_place(&call.receiver) {
                return match name.as_str() {
                    "iter_mut" | "values_mut" | "chunks_mut" => Items::Mutable,
                    _ if has_closure(call) && BORROWING.contains(&name.as_str()) => Items::WithClosure,
                    _ if BORROWING.contains(&name.as_str()) && arguments_are_plain() => Items::Borrowed,
                    _ if name == "into_iter" && root(&call.receiver).is_some_and(is_borrow) => Items::Borrowed,
                    _ => Items::Owned,
                };
            }
            match items(&call.receiver, is_borrow) {
                Items::Borrowed if ADAPTORS.contains(&name.as_str()) && arguments_are_plain() => Items::Borrowed,
                Items::Borrowed | Items::WithClosure if CLOSURE_ADAPTORS.contains(&name.as_str()) => Items::WithClosure,
                Items::WithClosure if ADAPTORS.contains(&name.as_str()) => Items::WithClosure,
                // What a method like `collect` makes of a borrowed iterator is a value.
                Items::Borrowed | Items::WithClosure => Items::Owned,
                other => other,
            }
        }
        _ => Items::Owned,
    }
}

fn has_closure(call: &syn::ExprMethodCall) -> bool {
    call.args.iter().any(|a| matches!(a, Expr::Closure(_)))
}

fn is_viewed_place(expr: &Expr) -> bool {
    match expr {
        Expr::MethodCall(call) => {
            VIEWS.contains(&call.method.to_string().as_str()) && call.args.is_empty() && is_viewed_place(&call.receiver)
        }
        Expr::Paren(e) => is_viewed_place(&e.expr),
        Expr::Lit(lit) => matches!(lit.lit, Lit::Str(_)),
        other => is_place(other) || plain_borrow(other).is_some(),
    }
}

/// Wraps the place at the root of a borrowed iteration with `wrap`, which checks that it keeps its order.
pub(crate) fn wrap_root(expr: &mut Expr, wrap: &dyn Fn(&Expr) -> Expr) {
    match expr {
        Expr::MethodCall(call) => {
            for argument in &mut call.args {
                if matches!(argument, Expr::MethodCall(_)) || plain_borrow(argument).is_some() {
                    wrap_root(argument, wrap);
                }
            }
            wrap_root(&mut call.receiver, wrap);
        }
        Expr::Paren(e) => wrap_root(&mut e.expr, wrap),
        Expr::Group(e) => wrap_root(&mut e.expr, wrap),
        Expr::Reference(e) => *expr = wrap(&e.expr),
        Expr::Lit(_) => {}
        place => *place = wrap(place),
    }
}

/// Whether an iterator takes its items from one that somebody else still holds.
pub(crate) fn drains_by_ref(expr: &Expr) -> bool {
    match expr {
        Expr::MethodCall(call) => call.method == "by_ref" || drains_by_ref(&call.receiver),
        Expr::Paren(e) => drains_by_ref(&e.expr),
        Expr::Group(e) => drains_by_ref(&e.expr),
        _ => false,
    }
}

/// Whether an expression is one of several literal texts, by `if` or `match`.
pub(crate) fn is_chosen_text(expr: &Expr) -> bool {
    let block = |block: &syn::Block| matches!(block.stmts.last(), Some(syn::Stmt::Expr(tail, None)) if is_text(tail));
    match expr {
        Expr::If(e) => block(&e.then_branch) && e.else_branch.as_ref().is_some_and(|(_, e)| is_text(e)),
        Expr::Match(e) => e.arms.iter().any(|a| is_text(&a.body)),
        Expr::Block(e) => block(&e.block),
        Expr::Paren(e) => is_chosen_text(&e.expr),
        _ => false,
    }
}

/// Whether an expression gives text that borrows where it can, and is not asked to own it.
pub(crate) fn is_borrowed_text(expr: &Expr) -> bool {
    let lossy = |name: &syn::Ident| name == "from_utf8_lossy" || name == "to_string_lossy";
    match expr {
        Expr::Call(e) => matches!(&*e.func, Expr::Path(path) if path.path.segments.last().is_some_and(|s| lossy(&s.ident))),
        Expr::MethodCall(e) => lossy(&e.method),
        Expr::Paren(e) => is_borrowed_text(&e.expr),
        _ => false,
    }
}

fn is_text(expr: &Expr) -> bool {
    matches!(expr, Expr::Lit(lit) if matches!(lit.lit, Lit::Str(_))) || is_chosen_text(expr)
}

/// `+=` and its like.
pub(crate) fn is_assignment(op: syn::BinOp) -> bool {
    use syn::BinOp::{
        AddAssign, BitAndAssign, BitOrAssign, BitXorAssign, DivAssign, MulAssign, RemAssign, ShlAssign, ShrAssign, SubAssign,
    };
    matches!(
        op,
        AddAssign(_)
            | SubAssign(_)
            | MulAssign(_)
            | DivAssign(_)
            | RemAssign(_)
            | BitXorAssign(_)
            | BitAndAssign(_)
            | BitOrAssign(_)
            | ShlAssign(_)
            | ShrAssign(_)
    )
}
