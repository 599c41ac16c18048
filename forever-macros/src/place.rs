//! Places and plain borrows: expressions that mean the same when they are evaluated again.
use syn::punctuated::Punctuated;
use syn::visit_mut::{self, VisitMut};
use syn::{Expr, ExprLit, ExprReference, Lit, Pat};

use crate::pattern;

/// `x`, `x.field`, `x[3]`, `x[i]`, `x[i + 1..]`, `*x`: a place that can be named again without side
/// effects.
pub(crate) fn is_place(expr: &Expr) -> bool {
    is_place_with(expr, &is_index)
}

/// A place with indices of any form: each index has to be evaluated once.
fn is_computed_place(expr: &Expr) -> bool {
    is_place_with(expr, &|_| true)
}

fn is_place_with(expr: &Expr, is_index: &dyn Fn(&Expr) -> bool) -> bool {
    let is_place = |expr: &Expr| is_place_with(expr, is_index);
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
        // `map[&key]`: the key is only read, and may change after that.
        Expr::Reference(e) => e.mutability.is_none() && is_place(&e.expr),
        Expr::Range(range) => [&range.start, &range.end].into_iter().flatten().all(|e| is_index(e)),
        Expr::Binary(e) => is_arithmetic(e.op) && is_index(&e.left) && is_index(&e.right),
        Expr::Cast(e) => is_index(&e.expr),
        Expr::Paren(e) => is_index(&e.expr),
        other => is_place(other),
    }
}

fn is_arithmetic(op: syn::BinOp) -> bool {
    use syn::BinOp::{Add, Div, Mul, Rem, Sub};
    matches!(op, Add(_) | Sub(_) | Mul(_) | Div(_) | Rem(_))
}

/// The variables that a place reads as indices: they must not change.
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

/// The variables that an index is computed from.
fn variables(expr: &Expr) -> Vec<&syn::Ident> {
    match expr {
        Expr::Range(range) => [&range.start, &range.end].into_iter().flatten().flat_map(|e| variables(e)).collect(),
        Expr::Binary(e) => variables(&e.left).into_iter().chain(variables(&e.right)).collect(),
        Expr::Cast(e) => variables(&e.expr),
        Expr::Paren(e) => variables(&e.expr),
        other => root(other).into_iter().chain(index_variables(other)).collect(),
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

/// A literal or a constant whose value is made again on a resume: text, bytes, paths in capitals,
/// and lists of these.
pub(crate) fn is_constant(expr: &Expr) -> bool {
    constant(expr).is_some_and(|holds_text| holds_text)
}

/// A list of literals and constants, in an array or behind a borrow: it can be written again
/// anywhere.
fn is_constant_list(expr: &Expr) -> bool {
    match expr {
        Expr::Reference(e) if e.mutability.is_none() => constant(&e.expr).is_some(),
        Expr::Paren(e) => is_constant_list(&e.expr),
        Expr::Group(e) => is_constant_list(&e.expr),
        other => !matches!(other, Expr::Lit(_)) && is_constant(other),
    }
}

/// Whether an iteration by position takes the items themselves, not references to them.
pub(crate) fn is_by_value(items: &Expr) -> bool {
    match items {
        Expr::Paren(e) => is_by_value(&e.expr),
        Expr::Group(e) => is_by_value(&e.expr),
        Expr::Reference(_) | Expr::MethodCall(_) => false,
        other => is_place(other) || is_constant_list(other),
    }
}

/// Whether an expression has to be made again, if it consists of literals and constants alone. Text
/// and the values of constants cannot be saved as what they are; numbers can.
fn constant(expr: &Expr) -> Option<bool> {
    let all =
        |parts: &Punctuated<Expr, syn::Token![,]>| parts.iter().try_fold(false, |holds, part| constant(part).map(|part| holds | part));
    match expr {
        Expr::Lit(lit) => Some(matches!(lit.lit, Lit::Str(_) | Lit::ByteStr(_) | Lit::CStr(_))),
        Expr::Path(path) if path.path.get_ident().is_some_and(pattern::is_variable) => None,
        Expr::Path(path) => path.path.segments.last().is_some_and(|s| is_in_capitals(&s.ident)).then_some(true),
        Expr::Reference(e) if e.mutability.is_none() => constant(&e.expr),
        Expr::Unary(e) if matches!(e.op, syn::UnOp::Neg(_)) => constant(&e.expr).filter(|holds_text| !holds_text),
        Expr::Array(e) => all(&e.elems),
        Expr::Tuple(e) => all(&e.elems),
        Expr::Macro(e) if e.mac.path.is_ident("vec") => {
            let list = Punctuated::<Expr, syn::Token![,]>::parse_terminated;
            all(&e.mac.parse_body_with(list).ok()?)
        }
        Expr::Macro(e) => is_text_macro(&e.mac).then_some(true),
        Expr::Paren(e) => constant(&e.expr),
        Expr::Group(e) => constant(&e.expr),
        _ => None,
    }
}

fn is_in_capitals(ident: &syn::Ident) -> bool {
    let name = ident.to_string();
    name.len() > 1 && name.chars().all(|c| c.is_uppercase() || c.is_numeric() || c == '_') && name.chars().any(char::is_alphabetic)
}

/// Whether a macro is one of the standard library's that give constant text. One of the program may
/// have the name: it is no constant if it is given a variable, and otherwise
/// [`as_constants`] lets the compiler decide.
fn is_text_macro(mac: &syn::Macro) -> bool {
    let is_named = mac.path.segments.last().is_some_and(|s| TEXT_MACROS.iter().any(|name| s.ident == name));
    is_named && !pattern::names_a_variable(&mac.tokens)
}

/// A constant, to be made again: its text macros in `const` blocks, in which one of the program's
/// own has no effect, or does not compile.
pub(crate) fn as_constants(expr: &Expr) -> Expr {
    struct InConst;
    impl VisitMut for InConst {
        fn visit_expr_mut(&mut self, expr: &mut Expr) {
            match expr {
                Expr::Macro(e) if is_text_macro(&e.mac) => *expr = syn::parse_quote!(const { #e }),
                other => visit_mut::visit_expr_mut(self, other),
            }
        }
    }
    let mut expr = expr.clone();
    InConst.visit_expr_mut(&mut expr);
    expr
}

/// The parts of a tuple expression, each with the pattern that it is matched against.
pub(crate) fn tuple_parts<'a>(pat: &'a Pat, init: &'a Expr) -> Option<Vec<(&'a Pat, &'a Expr)>> {
    match (pat, init) {
        (Pat::Paren(p), _) => tuple_parts(&p.pat, init),
        (_, Expr::Paren(e)) => tuple_parts(pat, &e.expr),
        (_, Expr::Group(e)) => tuple_parts(pat, &e.expr),
        (Pat::Tuple(p), Expr::Tuple(e)) => {
            let whole = p.elems.len() == e.elems.len() && !p.elems.iter().any(|p| matches!(p, Pat::Rest(_)));
            whole.then(|| p.elems.iter().zip(&e.elems).collect())
        }
        _ => None,
    }
}

/// Parts of an expression that makes a `Retry` or a `Backoff`, if making it again gives an equal
/// one.
///
/// `Retry::times(n).backoff(..).when(|e| ..)`: literals, constants and variables whose values come
/// from elsewhere.
#[derive(Default)]
pub(crate) struct Policy<'e> {
    /// The variables that it names, which must not change.
    pub(crate) variables: Vec<&'e syn::Ident>,
    /// Conditions, which must not capture anything.
    pub(crate) closures: Vec<&'e syn::ExprClosure>,
}

impl<'e> Policy<'e> {
    pub(crate) fn of(expr: &'e Expr) -> Option<Self> {
        let mut policy = Policy::default();
        policy.is_whole(expr).then_some(policy)
    }

    fn is_whole(&mut self, expr: &'e Expr) -> bool {
        match expr {
            Expr::MethodCall(e) => {
                let known = ["backoff", "no_jitter", "when", "when_after"].iter().any(|name| e.method == name);
                known && self.is_whole(&e.receiver) && e.args.iter().all(|part| self.is_part(part))
            }
            Expr::Call(e) => is_constructor(&e.func) && e.args.iter().all(|part| self.is_part(part)),
            Expr::Paren(e) => self.is_whole(&e.expr),
            Expr::Group(e) => self.is_whole(&e.expr),
            _ => false,
        }
    }

    fn is_part(&mut self, expr: &'e Expr) -> bool {
        match expr {
            Expr::Lit(_) => true,
            Expr::Closure(e) => {
                self.closures.push(e);
                true
            }
            Expr::Path(path) if path.qself.is_none() => {
                self.variables.extend(path.path.get_ident());
                true
            }
            Expr::Field(e) => is_place(&e.base) && self.is_part(&e.base),
            Expr::Unary(e) => self.is_part(&e.expr),
            Expr::Cast(e) => self.is_part(&e.expr),
            Expr::Paren(e) => self.is_part(&e.expr),
            Expr::Group(e) => self.is_part(&e.expr),
            Expr::Binary(e) => !is_assignment(e.op) && self.is_part(&e.left) && self.is_part(&e.right),
            Expr::Call(e) if last_two(&e.func).is_some_and(|(of, _)| of == "Duration") => e.args.iter().all(|part| self.is_part(part)),
            other => self.is_whole(other),
        }
    }
}

fn is_constructor(func: &Expr) -> bool {
    last_two(func).is_some_and(|(of, name)| match &*of {
        "Retry" => name == "times",
        "Backoff" => ["exponential", "fixed", "none", "default"].contains(&&*name),
        _ => false,
    })
}

/// `Type` and `function` of `path::Type::function`.
pub(crate) fn last_two(func: &Expr) -> Option<(String, String)> {
    let Expr::Path(path) = func else { return None };
    let mut segments = path.path.segments.iter().rev();
    let (name, of) = (segments.next()?, segments.next()?);
    path.qself.is_none().then(|| (of.ident.to_string(), name.ident.to_string()))
}

/// Macros whose value is a constant text.
const TEXT_MACROS: &[&str] = &["concat", "stringify", "env", "file", "module_path", "include_str", "include_bytes"];

/// Whether an operand may be evaluated later than it is written without a difference.
pub(crate) fn is_timeless(expr: &Expr) -> bool {
    match expr {
        Expr::Lit(_) => true,
        // A path of several segments or in capitals is a constant, a unit struct or a function.
        Expr::Path(path) => path.path.get_ident().is_none_or(|i| i.to_string().starts_with(char::is_uppercase) && !pattern::is_variable(i)),
        Expr::Paren(e) => is_timeless(&e.expr),
        Expr::Group(e) => is_timeless(&e.expr),
        Expr::Unary(e) => is_timeless(&e.expr),
        Expr::Reference(e) => is_place(&e.expr) || is_timeless(&e.expr),
        Expr::Tuple(e) => e.elems.iter().all(is_timeless),
        _ => false,
    }
}

/// How a `for` loop with steps in it iterates.
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

pub(crate) const BORROWING: &[&str] = &[
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
/// Methods that return another view of the same place.
const VIEWS: &[&str] = &["as_slice", "as_str", "as_ref", "as_deref", "trim", "as_bytes"];

/// Classifies the expression after `in`; `is_borrow` tells whether a variable holds a borrow or a
/// constant list itself.
pub(crate) fn items(expr: &Expr, is_borrow: &dyn Fn(&syn::Ident) -> bool) -> Items {
    match expr {
        Expr::Paren(e) => items(&e.expr, is_borrow),
        Expr::Group(e) => items(&e.expr, is_borrow),
        Expr::Reference(e) if e.mutability.is_some() => Items::Mutable,
        Expr::Reference(_) => Items::Borrowed,
        constant if is_constant_list(constant) => Items::Borrowed,
        place if is_place(place) && root(place).is_some_and(is_borrow) => Items::Borrowed,
        Expr::MethodCall(call) => {
            let name = call.method.to_string();
            let arguments_are_plain = || call.args.iter().all(|a| is_argument(&name, a, is_borrow));
            if is_viewed_place(&call.receiver) {
                return match name.as_str() {
                    "iter_mut" | "values_mut" | "chunks_mut" => Items::Mutable,
                    _ if has_closure(call) && BORROWING.contains(&name.as_str()) => Items::WithClosure,
                    _ if BORROWING.contains(&name.as_str()) && arguments_are_plain() => Items::Borrowed,
                    _ if name == "into_iter" && (root(&call.receiver).is_some_and(is_borrow) || is_constant_list(&call.receiver)) => {
                        Items::Borrowed
                    }
                    _ => Items::Owned,
                };
            }
            match items(&call.receiver, is_borrow) {
                Items::Borrowed if ADAPTORS.contains(&name.as_str()) && arguments_are_plain() => Items::Borrowed,
                Items::Borrowed | Items::WithClosure if CLOSURE_ADAPTORS.contains(&name.as_str()) => Items::WithClosure,
                Items::WithClosure if ADAPTORS.contains(&name.as_str()) => Items::WithClosure,
                // The result of a method like `collect` on a borrowed iterator is a value.
                Items::Borrowed | Items::WithClosure => Items::Owned,
                // The items are references into a value that has no name yet.
                Items::Owned if REFERRING.contains(&name.as_str()) && !has_closure(call) => Items::Borrowed,
                other => other,
            }
        }
        _ => Items::Owned,
    }
}

/// Methods of a computed value whose items are references into it.
const REFERRING: &[&str] = &["iter", "keys", "values", "chunks", "chunks_exact", "windows"];

/// Whether an iteration by position can have this argument. What is joined to it must be an
/// iteration by position itself; anything else is a value that is computed once.
fn is_argument(method: &str, argument: &Expr, is_borrow: &dyn Fn(&syn::Ident) -> bool) -> bool {
    match method {
        "zip" | "chain" => {
            is_timeless(argument)
                || is_place(argument)
                || matches!(argument, Expr::Range(_))
                || items(argument, is_borrow) == Items::Borrowed
        }
        _ => !matches!(argument, Expr::Closure(_)),
    }
}

/// A borrow of a place, or another view of one.
pub(crate) fn is_borrowed(expr: &Expr) -> bool {
    match expr {
        Expr::MethodCall(call) => is_view(call) && is_viewed_place(&call.receiver),
        Expr::Paren(e) => is_borrowed(&e.expr),
        other => plain_borrow(other).is_some(),
    }
}

/// Whether the items of an iteration are copies of what its source contains.
pub(crate) fn copies(expr: &Expr) -> bool {
    match expr {
        Expr::MethodCall(call) => call.method == "copied" || call.method == "cloned" || copies(&call.receiver),
        Expr::Paren(e) => copies(&e.expr),
        Expr::Group(e) => copies(&e.expr),
        _ => false,
    }
}

/// An operand of an iteration by position, besides the place that it iterates over.
pub(crate) enum Part<'a> {
    /// The source of the items, if it has no name: a call, a literal that is not constant.
    Source(&'a mut Expr),
    /// An index, the end of a slice, the argument of an adaptor.
    Value(&'a mut Expr),
    /// An index that is computed by a call, and whose type may be one that indexing moves.
    Index(&'a mut Expr),
    /// The key of an index by reference: `&key` in `map[&key]`.
    Key(&'a mut Expr),
}

/// Visits the parts of an iteration by position in evaluation order.
pub(crate) fn parts(expr: &mut Expr, visit: &mut dyn FnMut(Part<'_>)) {
    match expr {
        Expr::Paren(e) => parts(&mut e.expr, visit),
        Expr::Group(e) => parts(&mut e.expr, visit),
        Expr::Reference(e) => parts(&mut e.expr, visit),
        constant if is_constant_list(constant) || constant_items(constant) => {}
        Expr::MethodCall(call) if is_view(call) => parts(&mut call.receiver, visit),
        Expr::MethodCall(call) if is_step_of_iteration(call) => {
            parts(&mut call.receiver, visit);
            let joins = call.method == "zip" || call.method == "chain";
            for argument in &mut call.args {
                match argument {
                    Expr::Range(range) => [&mut range.start, &mut range.end].into_iter().flatten().for_each(|end| visit(Part::Value(end))),
                    argument if joins => parts(argument, visit),
                    argument => visit(Part::Value(argument)),
                }
            }
        }
        place if is_computed_place(place) => indices(place, visit),
        // What is indexed is the source: a slice has no size that could be kept.
        Expr::Index(e) => {
            parts(&mut e.expr, visit);
            index(&mut e.index, visit);
        }
        other => visit(Part::Source(other)),
    }
}

/// The places that an iteration by position joins to its source: `b` in `a.iter().zip(b)`.
pub(crate) fn joined<'e>(expr: &'e Expr, found: &mut Vec<&'e Expr>) {
    match expr {
        Expr::Paren(e) => joined(&e.expr, found),
        Expr::Group(e) => joined(&e.expr, found),
        Expr::MethodCall(call) => {
            joined(&call.receiver, found);
            if call.method == "zip" || call.method == "chain" {
                for argument in &call.args {
                    let is_named =
                        is_place(argument) && root(argument).is_some_and(|name| !is_in_capitals(name) || pattern::is_variable(name));
                    if is_named { found.push(argument) } else { joined(argument, found) }
                }
            }
        }
        _ => {}
    }
}

fn constant_items(expr: &Expr) -> bool {
    constant(expr).is_some() || is_timeless(expr)
}

fn is_view(call: &syn::ExprMethodCall) -> bool {
    call.args.is_empty() && VIEWS.contains(&call.method.to_string().as_str())
}

fn is_step_of_iteration(call: &syn::ExprMethodCall) -> bool {
    let name = call.method.to_string();
    BORROWING.contains(&name.as_str()) || ADAPTORS.contains(&name.as_str())
}

/// The indices in a place.
fn indices(place: &mut Expr, visit: &mut dyn FnMut(Part<'_>)) {
    match place {
        Expr::Field(e) => indices(&mut e.base, visit),
        Expr::Unary(e) => indices(&mut e.expr, visit),
        Expr::Paren(e) => indices(&mut e.expr, visit),
        Expr::Group(e) => indices(&mut e.expr, visit),
        Expr::Index(e) => {
            indices(&mut e.expr, visit);
            index(&mut e.index, visit);
        }
        _ => {}
    }
}

fn index(index: &mut Expr, visit: &mut dyn FnMut(Part<'_>)) {
    match index {
        Expr::Lit(_) => {}
        Expr::Range(range) => [&mut range.start, &mut range.end].into_iter().flatten().for_each(|end| visit(Part::Value(end))),
        Expr::Reference(key) => visit(Part::Key(&mut key.expr)),
        index if is_index(index) => visit(Part::Value(index)),
        index => visit(Part::Index(index)),
    }
}

fn has_closure(call: &syn::ExprMethodCall) -> bool {
    call.args.iter().any(|a| matches!(a, Expr::Closure(_)))
}

fn is_viewed_place(expr: &Expr) -> bool {
    match expr {
        Expr::MethodCall(call) => is_view(call) && is_viewed_place(&call.receiver),
        Expr::Paren(e) => is_viewed_place(&e.expr),
        constant if is_constant(constant) => true,
        other => is_computed_place(other) || plain_borrow(other).is_some(),
    }
}

/// How the place at the root of an iteration by position is read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Root {
    Borrowed,
    /// `x.into_iter()`: what `x` holds is a borrow or a list of constants, and is copied.
    Value,
}

/// Wraps the place at the root of a borrowed iteration with `wrap`, which checks that it keeps its
/// order.
pub(crate) fn wrap_root(expr: &mut Expr, wrap: &dyn Fn(Root, &Expr) -> Expr) {
    match expr {
        Expr::MethodCall(call) => {
            for argument in &mut call.args {
                if matches!(argument, Expr::MethodCall(_)) || plain_borrow(argument).is_some() {
                    wrap_root(argument, wrap);
                }
            }
            let by_value = call.method == "into_iter";
            if by_value && is_constant_list(&call.receiver) {
                // A list of constants keeps its order, and its items are values.
            } else if by_value && is_computed_place(&call.receiver) {
                *call.receiver = wrap(Root::Value, &call.receiver);
            } else {
                wrap_root(&mut call.receiver, wrap);
            }
        }
        Expr::Paren(e) => wrap_root(&mut e.expr, wrap),
        Expr::Group(e) => wrap_root(&mut e.expr, wrap),
        Expr::Reference(e) => *expr = wrap(Root::Borrowed, &e.expr),
        Expr::Lit(_) => {}
        place => *place = wrap(Root::Borrowed, place),
    }
}

/// Whether an iterator takes its items from another iterator that is still in use.
pub(crate) fn drains_by_ref(expr: &Expr) -> bool {
    match expr {
        Expr::MethodCall(call) => call.method == "by_ref" || drains_by_ref(&call.receiver),
        Expr::Paren(e) => drains_by_ref(&e.expr),
        Expr::Group(e) => drains_by_ref(&e.expr),
        _ => false,
    }
}

/// The constants among which an expression chooses, if they are text: literals, and the ends of
/// `if` and `match`. A branch that diverges adds none.
pub(crate) fn constant_texts(expr: &Expr) -> Option<Vec<Expr>> {
    let mut found = Vec::new();
    let all = ends(expr, &mut found);
    let is_text = |e: &Expr| matches!(e, Expr::Lit(_) | Expr::Const(_));
    (all && found.iter().any(is_text)).then_some(found)
}

fn ends(expr: &Expr, found: &mut Vec<Expr>) -> bool {
    let block = |block: &syn::Block, found: &mut Vec<Expr>| match block.stmts.last() {
        Some(syn::Stmt::Expr(end, None)) => ends(end, found),
        Some(syn::Stmt::Expr(end, Some(_))) => is_jump(end),
        Some(syn::Stmt::Macro(mac)) => PANICS.iter().any(|name| mac.mac.path.is_ident(name)),
        _ => false,
    };
    match expr {
        Expr::If(e) => block(&e.then_branch, found) && e.else_branch.as_ref().is_some_and(|(_, e)| ends(e, found)),
        Expr::Match(e) => e.arms.iter().all(|a| ends(&a.body, found)),
        Expr::Block(e) if e.label.is_none() => block(&e.block, found),
        Expr::Paren(e) => ends(&e.expr, found),
        Expr::Group(e) => ends(&e.expr, found),
        Expr::Lit(ExprLit { lit: Lit::Str(_), .. }) => {
            found.push(expr.clone());
            true
        }
        Expr::Macro(e) if PANICS.iter().any(|name| e.mac.path.is_ident(name)) => true,
        Expr::Macro(e) if is_text_macro(&e.mac) => {
            found.push(as_constants(expr));
            true
        }
        Expr::Path(_) if is_constant(expr) => {
            found.push(expr.clone());
            true
        }
        other => is_jump(other),
    }
}

/// Whether an expression returns text that may borrow, and is not converted to owned text.
pub(crate) fn is_borrowed_text(expr: &Expr) -> bool {
    let lossy = |name: &syn::Ident| name == "from_utf8_lossy" || name == "to_string_lossy";
    match expr {
        Expr::Call(e) => matches!(&*e.func, Expr::Path(path) if path.path.segments.last().is_some_and(|s| lossy(&s.ident))),
        Expr::MethodCall(e) => lossy(&e.method),
        Expr::Paren(e) => is_borrowed_text(&e.expr),
        _ => false,
    }
}

fn is_jump(expr: &Expr) -> bool {
    matches!(expr, Expr::Return(_) | Expr::Break(_) | Expr::Continue(_))
}

const PANICS: &[&str] = &["panic", "bail", "unreachable", "todo", "unimplemented"];

/// Whether an operator compares, and so takes its operands by reference.
pub(crate) fn is_comparison(op: syn::BinOp) -> bool {
    use syn::BinOp::{Eq, Ge, Gt, Le, Lt, Ne};
    matches!(op, Eq(_) | Ne(_) | Lt(_) | Le(_) | Gt(_) | Ge(_))
}

/// Whether an operator is `+=` or another compound assignment.
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
