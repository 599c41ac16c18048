//! Generates code from the plan: the user's control flow, with each stretch either run or skipped.
//!
//! A block becomes a sequence of stretches. A stretch ends at a cut point, or where a control
//! construct with cut points begins, and reads
//! `let (kept..) = if fiber.running() { the user's code } else { restored };`. For a branch, the
//! decision and the start of each arm up to its first cut point are part of the stretch. The
//! decision leaves the stretch as a value of a local enum whose types the compiler infers, and the
//! rest of each arm follows in a `match` on it.
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, format_ident};

use crate::cut::CutBody;
use crate::flow::Live;
use crate::hir::{Bind, Block, Body, Branch, Control, Head, Stmt, StmtKind};
use crate::ids::{CutId, JumpId, PointId, VarId};
use crate::lower::Crowded;
use crate::names::{Table, VarKind, is_ours};
use crate::plan::{Plan, Storage};
use crate::report::Report;

/// `quote!` with mixed-site hygiene: its names are invisible to the user's code, and the user's to
/// it.
macro_rules! emit {
    ($($tokens:tt)*) => { ::quote::quote_spanned!(::proc_macro2::Span::mixed_site()=> $($tokens)*) };
}

mod alias;
mod branch;
mod branches;
mod cut;
mod for_loop;
mod held;
mod jumps;
pub(crate) mod machine;
mod savable;
mod sealed;
mod step;
mod stored;
mod stretch;
mod waits;

/// What the emitter knows of the function.
pub(crate) struct Context<'a> {
    pub(crate) body: &'a Body,
    pub(crate) table: &'a Table,
    pub(crate) plan: &'a Plan,
    /// `::forever::__private`.
    pub(crate) private: &'a syn::Path,
    /// Name of the function's context.
    pub(crate) ctx: &'a Ident,
    /// The function's error type.
    pub(crate) error: &'a TokenStream,
}

/// The code of a function.
#[derive(Default)]
pub(crate) struct Code {
    /// The local items that the statements use.
    pub(crate) items: TokenStream,
    pub(crate) stmts: TokenStream,
    /// The arms that have to begin a stretch of their own.
    pub(crate) crowded: Crowded,
}

pub(crate) fn emit(context: &Context<'_>, report: &mut Report) -> Code {
    let mut emit = Emit {
        cx: context,
        report,
        fiber: Ident::new("fiber", Span::mixed_site()),
        open: BTreeSet::new(),
        taken: Vec::new(),
        outside: None,
        stretch: 0,
        witnessed: BTreeSet::new(),
        made_from: made_from(context),
        mentioned: BTreeSet::new(),
        used: BTreeSet::new(),
        declared: BTreeSet::new(),
        returned: BTreeSet::new(),
        outliving: BTreeSet::new(),
        through: BTreeSet::new(),
        crowded: Crowded::new(),
        holding: BTreeSet::new(),
        ending: BTreeSet::new(),
        begun: BTreeSet::new(),
        given: BTreeSet::new(),
        living: BTreeSet::new(),
        released: RefCell::default(),
        witness_assigns: false,
        jumps: Vec::new(),
        items: TokenStream::new(),
        stored_by: stored::stored_by(context.body),
    };
    crate::plan::flow_of(&context.body.block, context.table).used(&mut emit.used);
    let given: Vec<VarId> = context.table.given().collect();
    let (aliases, body) = (emit.alias_declared(&given), emit.block(&context.body.block, &[]));
    let types = emit.types();
    let checks = emit.checks();
    let (items, crowded) = (emit.items, emit.crowded);
    Code { items: emit!(#checks #items), stmts: emit!(#types #aliases #body), crowded }
}

struct Emit<'a> {
    cx: &'a Context<'a>,
    report: &'a mut Report,
    fiber: Ident,
    /// Variables that are in scope under their own names here.
    open: BTreeSet<VarId>,
    /// Carried variables that are taken out of their places, innermost last.
    taken: Vec<VarId>,
    /// During a stretch: the variables that are in scope under their own names outside of it, and
    /// so on a resume too.
    outside: Option<BTreeSet<VarId>>,
    /// Length of `taken` at the start of the current stretch.
    stretch: usize,
    /// Variables that leave the stretch without a value; they give the types of their places.
    witnessed: BTreeSet<VarId>,
    /// Stored variables that a `#[fresh]` value is made from: their types must be known where it is
    /// made again.
    made_from: BTreeSet<VarId>,
    /// Variables that the stretch mentions.
    mentioned: BTreeSet<VarId>,
    /// Variables that the function uses anywhere.
    used: BTreeSet<VarId>,
    /// Variables that the current block declares.
    declared: BTreeSet<VarId>,
    /// Carried variables of outer blocks that nothing needs any more, and that live on there.
    returned: BTreeSet<VarId>,
    /// Variables of the stretch that are declared before it, as they live on after it.
    outliving: BTreeSet<VarId>,
    /// Those whose values name what they hide.
    through: BTreeSet<VarId>,
    /// The arms that have to begin a stretch of their own.
    crowded: Crowded,
    /// Variables of which it is said in scope here whether they keep the fiber in memory.
    holding: BTreeSet<VarId>,
    /// Variables that end with the scope of the stretch, or later, and keep the fiber in memory.
    ending: BTreeSet<VarId>,
    /// Those that have their values at this place of the stretch.
    begun: BTreeSet<VarId>,
    /// Variables to which the stretch gives a value, as far as its code stands.
    given: BTreeSet<VarId>,
    /// Those of its variables that live on.
    living: BTreeSet<VarId>,
    /// Variables whose types are asked whether they may be dropped at a cut point, with it.
    released: RefCell<BTreeMap<VarId, CutId>>,
    /// Whether the places exist already, so that they are assigned.
    witness_assigns: bool,
    jumps: Vec<Target>,
    items: TokenStream,
    /// Variables that their own cut point stores as well.
    stored_by: BTreeMap<VarId, stored::StoredBy>,
}

/// A loop or labelled block that code may jump to.
struct Target {
    label: Option<String>,
    id: JumpId,
    is_loop: bool,
    /// Length of `taken` outside of it.
    taken: usize,
}

/// The stored variables that `#[fresh]` values are made from, also through borrows.
fn made_from(context: &Context<'_>) -> BTreeSet<VarId> {
    let Context { table, plan, .. } = context;
    let is_fresh = |var: &&VarId| matches!(table.var(**var).kind, VarKind::Fresh(_));
    let mut open: Vec<VarId> = plan.storage.keys().filter(is_fresh).copied().collect();
    let (mut seen, mut found) = (BTreeSet::new(), BTreeSet::new());
    while let Some(var) = open.pop() {
        match table.var(var).kind {
            VarKind::Fresh(id) | VarKind::Reborrow(id) if seen.insert(var) => open.extend(&table.reborrows[id.0].bases),
            VarKind::Value if plan.storage.get(&var).is_some_and(|s| *s != Storage::Local) => drop(found.insert(var)),
            _ => {}
        }
    }
    found
}

/// The stretch that leads to a statement with cut points.
struct Lead {
    before: TokenStream,
    /// What stands in a block with the value of the statement, at whose end values are dropped.
    inside: TokenStream,
}

impl Lead {
    fn flat(before: TokenStream) -> Self {
        Lead { before, inside: TokenStream::new() }
    }
}

/// Name of an exported value before it is put into its variable.
fn out_name(var: VarId) -> Ident {
    format_ident!("out_{}", var.0, span = Span::mixed_site())
}

/// Start of a statement with cut points: the code that runs up to the first of them.
struct Start {
    /// Statements and a value, for a fiber that is running.
    run: TokenStream,
    /// Expression of the same type, for a fiber that is resuming.
    resume: TokenStream,
    /// Pattern of that value.
    pat: TokenStream,
}

impl Emit<'_> {
    fn block(&mut self, block: &Block, entering: &[VarId]) -> TokenStream {
        let (open, holding) = (self.open.clone(), self.holding.clone());
        self.open_values(entering);
        let entered = self.holdings(&self.carried(entering));
        let items = items(&block.stmts);
        let outer = std::mem::replace(&mut self.declared, declared(block, entering));
        let tokens = self.stmts(&block.stmts, block.end);
        self.declared = outer;
        (self.open, self.holding) = (open, holding);
        emit!(#entered #items #tokens)
    }

    /// Emits the statements of a block from the beginning of a stretch on.
    fn stmts(&mut self, stmts: &[Stmt], end: PointId) -> TokenStream {
        let first = stmts.iter().position(|s| !matches!(s.kind, StmtKind::Plain(_)));
        let Some(first) = first else { return self.last_stretch(stmts, end) };
        let (plain, rest) = stmts.split_at(first);
        let (stmt, later) = rest.split_first().expect("the position is inside");
        let mut tokens = items_of_arms(stmt);
        let lead = self.lead(plain, stmt, later.iter().any(|s| s.cuts.is_some()));
        tokens.extend(lead.before);
        tokens.extend(self.rest(stmt, later, &lead.inside));
        tokens.extend(self.stmts(later, end));
        tokens
    }

    /// Emits the stretch that leads to a statement with cut points.
    fn lead(&mut self, plain: &[Stmt], stmt: &Stmt, later_cuts: bool) -> Lead {
        let fiber = self.fiber.clone();
        let mentioned = self.head_mentions(plain, stmt);
        let declared = declared_in_head(plain, stmt);
        let taken = self.taken.len();
        let stretch = std::mem::replace(&mut self.stretch, taken);
        let open = self.open.clone();
        let start = plain.first().unwrap_or(stmt).start;
        // Those that are used for the last time, and are not saved, live on too.
        let (returned, last_used) =
            self.last_used(&mentioned, &declared, start, stmt).into_iter().partition(|v| self.goes_back(*v, plain, stmt));
        let outer_returned = std::mem::replace(&mut self.returned, returned);
        let (last_used, returned): (BTreeSet<VarId>, BTreeSet<VarId>) = (last_used, self.returned.clone());
        let outer_outliving = std::mem::replace(&mut self.outliving, last_used.clone());
        let mut opening = self.open_stretch(&mentioned, &declared, start);
        let ends_here = &last_used - &self.declared;
        opening.extend(self.may_end_here(&(&ends_here & &self.live(start))));
        self.outliving = outer_outliving;
        let outer = std::mem::replace(&mut self.mentioned, mentioned);
        self.outside = Some(open.clone());
        let mut outliving = self.outliving(plain, stmt);
        let exports = self.start_exports(plain, stmt);
        let movable: BTreeSet<VarId> = exports.iter().copied().filter(|v| self.may_be_declared_before(*v, plain)).collect();
        let is_enclosed = !outliving.statement.is_empty() && movable.len() == exports.len();
        if !is_enclosed {
            outliving.statement.clear();
        }
        self.note_crowded(stmt, &outliving);
        let outer_outliving = std::mem::replace(&mut self.outliving, &outliving.block | &outliving.statement);
        self.through.extend(&outliving.through);
        // What goes back to an outer block is held there.
        let (flat, enclosed) = (self.holdings(&(&last_used | &outliving.block)), self.holdings(&outliving.statement));
        let used_last = &last_used | &returned;
        self.living = &self.outliving | &(&used_last - &ends_here);
        self.ending = &(&self.outliving | &used_last) & &self.holding;
        self.begun = &used_last & &self.ending;
        let Start { run, resume, pat } = self.start(plain, stmt, later_cuts);
        (self.ending, self.begun, self.given, self.living) = Default::default();
        self.outliving = outer_outliving;
        self.returned = outer_returned;
        self.outside = None;
        self.mentioned = outer;
        self.taken.truncate(taken);
        self.stretch = stretch;
        self.open = open;
        self.open_declared(plain, stmt);
        self.open.extend(outliving.block.iter().filter(|v| self.cx.table.unset.contains(v)));
        let point = self.binding_point(stmt);
        // Variables that are declared before those that live on are dropped after them.
        let last = outliving.block.last().copied();
        let is_before = |v: &VarId| is_enclosed || last.is_some_and(|last| *v < last) && movable.contains(v);
        let before: BTreeSet<VarId> = exports.iter().copied().filter(is_before).collect();
        let carried = self.holdings(&self.carried(&exports));
        let mut tokens = emit!(#flat #carried);
        for var in last_used {
            let ident = self.ident(var);
            tokens.extend(emit!(let mut #ident;));
        }
        for var in &before | &outliving.block {
            if before.contains(&var) {
                let name = self.export_name(var, point);
                tokens.extend(emit!(let #name;));
            } else {
                if outliving.through.contains(&var) {
                    tokens.extend(self.hidden_alias(var));
                }
                tokens.extend(self.declarations(&BTreeSet::from([var])));
            }
        }
        let value = if pat.is_empty() && run.is_empty() && opening.is_empty() {
            // A cut point without a checkpoint is still a place to resume at.
            if resume.is_empty() { resume } else { emit!(if !#fiber.running() { #resume }) }
        } else if resume.is_empty() && pat.is_empty() {
            emit!(if #fiber.running() { #opening #run })
        } else {
            emit!(if #fiber.running() { #opening #run } else { #resume })
        };
        let held = self.declarations(&outliving.statement);
        let held = emit!(#enclosed #held);
        if pat.is_empty() {
            return if is_enclosed { Lead { before: tokens, inside: emit!(#held #value) } } else { Lead::flat(emit!(#tokens #value)) };
        }
        let pat = if before.is_empty() { pat } else { self.pattern_of_start(stmt, &exports, &before) };
        let set = before.iter().map(|v| {
            let (name, out) = (self.bound_name(*v, point), out_name(*v));
            emit!(#name = #out;)
        });
        let set: TokenStream = set.collect();
        let aliases = self.alias_exports(&exports, point);
        if is_enclosed {
            let outside = self.alias_bound(&self.not_carried(&exports), point);
            return Lead { before: emit!(#tokens #outside), inside: emit!(#held let #pat = #value; #set #aliases) };
        }
        Lead::flat(emit!(#tokens let #pat = #value; #set #aliases))
    }

    /// The pattern of a start, in which variables that are declared already have other names.
    fn pattern_of_start(&self, stmt: &Stmt, exports: &[VarId], before: &BTreeSet<VarId>) -> TokenStream {
        let point = self.binding_point(stmt);
        let names = exports.iter().map(|v| if before.contains(v) { out_name(*v).to_token_stream() } else { self.export_name(*v, point) });
        let last = self.start_value(stmt);
        emit!((#(#names,)* #last))
    }

    /// Marks as open what a stretch declared and what keeps its own name after it.
    fn open_declared(&mut self, plain: &[Stmt], stmt: &Stmt) {
        let own: &[VarId] = if matches!(stmt.kind, StmtKind::Cut { .. }) { &stmt.declares } else { &[] };
        let declared: Vec<VarId> = plain.iter().flat_map(|s| &s.declares).chain(own).copied().collect();
        for var in declared {
            if self.storage(var) == Storage::Plain {
                self.open.insert(var);
            }
        }
    }

    /// Whether a cut point is the call of another fiber, which is emitted in two parts.
    fn is_call(&self, cut: usize) -> bool {
        matches!(self.cx.body.cuts[cut].body, CutBody::Call { .. })
    }

    /// The point at which the variables are bound that the start of a statement exports: after a
    /// cut point's own value.
    fn binding_point(&self, stmt: &Stmt) -> PointId {
        match &stmt.kind {
            StmtKind::Cut { cut, .. } if !self.is_call(*cut) => stmt.after,
            _ => stmt.start,
        }
    }

    /// The variables that the start of a statement exports.
    fn start_exports(&self, plain: &[Stmt], stmt: &Stmt) -> Vec<VarId> {
        match &stmt.kind {
            StmtKind::Cut { cut, .. } if !self.is_call(*cut) => self.exports(plain, Some(stmt)),
            _ => self.exports(plain, None),
        }
    }

    /// Emits the code up to the first cut points, and its counterpart on a resume.
    fn start(&mut self, plain: &[Stmt], stmt: &Stmt, later_cuts: bool) -> Start {
        match &stmt.kind {
            StmtKind::Plain(_) => unreachable!("plain statements start nothing"),
            StmtKind::Cut { bind, cut } => match &self.cx.body.cuts[*cut].body {
                CutBody::Call { invocation, .. } => self.start_call(plain, stmt, *cut, invocation),
                body => self.start_cut(plain, stmt, bind, *cut, body),
            },
            StmtKind::Control { control: Control::Branch(branch), bind } => self.start_branch(plain, stmt, bind, branch, later_cuts),
            StmtKind::Control { .. } => self.start_plain(plain, stmt),
        }
    }

    /// Emits the code after the start of a statement: the rest of its arms, the loop, the call.
    /// `inside`: what belongs to the same block as the value.
    fn rest(&mut self, stmt: &Stmt, later: &[Stmt], inside: &TokenStream) -> TokenStream {
        let later_cuts = later.iter().any(|s| s.cuts.is_some());
        match &stmt.kind {
            StmtKind::Plain(_) => TokenStream::new(),
            StmtKind::Cut { bind, cut } => match &self.cx.body.cuts[*cut].body {
                CutBody::Call { question, .. } => self.rest_call(stmt, bind, *cut, *question),
                _ => TokenStream::new(),
            },
            StmtKind::Control { control, bind } => {
                let (before, value, after) = match control {
                    Control::Branch(branch) => (TokenStream::new(), self.rest_branch(branch, stmt, bind, later_cuts), TokenStream::new()),
                    Control::Loop { label, id, body } => self.loop_(stmt, label.as_ref(), *id, body),
                    Control::Scope { label, id, is_unsafe, body } => {
                        (TokenStream::new(), self.scope(label.as_ref(), *id, *is_unsafe, body), TokenStream::new())
                    }
                    Control::For(for_loop) => self.for_(stmt, for_loop),
                };
                self.bound(stmt, bind, control, (before, value, after), (inside, later_cuts))
            }
        }
    }

    /// Binds the value of a control construct, and skips the construct when the resume leads past
    /// it.
    fn bound(
        &mut self,
        stmt: &Stmt,
        bind: &Bind,
        control: &Control,
        parts: (TokenStream, TokenStream, TokenStream),
        (inside, later_cuts): (&TokenStream, bool),
    ) -> TokenStream {
        self.check_lent(&stmt.declares);
        let enclosed = |tokens: TokenStream| if inside.is_empty() { tokens } else { emit!({ #inside #tokens }) };
        let (before, value, after) = parts;
        let fiber = self.fiber.clone();
        let last = number(stmt.cuts.as_ref().map_or(0, |c| *c.end()));
        let is_branch = matches!(control, Control::Branch(_));
        let end = branch::has_value(control).then(|| emit!(;));
        let pat = match (bind, control) {
            (Bind::Let { pat, .. }, _) => pat.to_token_stream(),
            (_, Control::Branch(Branch { head: Head::LetElse { .. }, .. })) => self.values_pattern(&stmt.declares),
            (Bind::Tail, _) => {
                return enclosed(match after.is_empty() {
                    true => emit!(#before #value),
                    false => emit!(#before let value = #value; #after value),
                });
            }
            (Bind::Discard, Control::Branch(branch)) if branch::wants_value(branch, bind) => {
                return enclosed(if later_cuts { emit!(if !#fiber.past(#last) { #value; }) } else { emit!(#value;) });
            }
            (Bind::Discard, _) if later_cuts && !is_branch => {
                return enclosed(emit!(if !#fiber.past(#last) { #before #value #end #after }));
            }
            (Bind::Discard, _) => return enclosed(emit!(#before #value #end #after)),
        };
        let attrs: Vec<_> = if let Bind::Let { attrs, .. } = bind { attrs.iter().filter(|a| !is_ours(a)).collect() } else { Vec::new() };
        let mut declared = self.alias_declared(&stmt.declares);
        declared.extend(self.may_be_dropped(&stmt.declares));
        if !later_cuts {
            self.open_values(&stmt.declares);
            let value = enclosed(value);
            return emit!(#before #(#attrs)* let #pat = #value; #declared #after);
        }
        let exports = self.exported(&stmt.declares);
        let holdings = self.holdings(&self.carried(&exports));
        let live = self.live(stmt.after);
        let values: Vec<_> = exports.iter().map(|v| self.export_value(*v, &live)).collect();
        let kept = self.export_pattern(&exports, stmt.after);
        let restored = self.restore(&exports, None);
        self.open_values(&stmt.declares);
        let aliases = self.alias_exports(&exports, stmt.after);
        let value = enclosed(emit! {
            if #fiber.past(#last) { #restored } else {
                #before #(#attrs)* let #pat = #value; #declared #after
                (#(#values,)*)
            }
        });
        emit!(#holdings let #kept = #value; #aliases)
    }

    /// Reports a value that borrows from a variable which does not stay where it is.
    fn check_lent(&mut self, declares: &[VarId]) {
        let table = self.cx.table;
        for (var, owners) in declares.iter().filter_map(|var| Some((*var, table.lent.get(var)?))) {
            if let Some(owner) = owners.iter().find(|owner| owner.is_certain && !self.open.contains(&owner.var)) {
                let message = crate::messages::leaves_a_block(&self.what(var), &self.ident(owner.var).to_string());
                self.report.at(self.ident(var).span(), message);
            }
        }
    }

    fn open_values(&mut self, declares: &[VarId]) {
        for &var in declares {
            if self.storage(var) != Storage::Carried && !self.made_again(var) {
                self.open.insert(var);
            }
        }
    }

    /// Mentions borrows that only later code uses, so that the compiler does not warn that they are
    /// unused where they are first made.
    fn touch(&self, vars: &[VarId]) -> TokenStream {
        let touched = vars.iter().filter(|v| self.made_again(**v) && self.used.contains(v)).map(|v| self.ident(*v));
        emit!(#(let _ = #touched;)*)
    }

    fn storage(&self, var: VarId) -> Storage {
        self.cx.plan.storage.get(&var).copied().unwrap_or(Storage::Local)
    }

    fn made_again(&self, var: VarId) -> bool {
        matches!(self.cx.table.var(var).kind, VarKind::Reborrow(_))
    }

    fn live(&self, point: PointId) -> Live {
        self.cx.plan.needed.at_point.get(&point).cloned().unwrap_or_default()
    }

    fn ident(&self, var: VarId) -> &Ident {
        &self.cx.table.var(var).ident
    }

    /// Name of a carried variable's place between stretches.
    fn place(&self, var: VarId) -> Ident {
        let ident = self.ident(var);
        let name = ident.to_string();
        // The name is not shortened: two variables must not share a place.
        let shared = self.cx.table.vars.iter().take(var.0).filter(|v| v.ident == *ident).count();
        let span = Span::mixed_site().located_at(ident.span());
        match shared {
            0 => format_ident!("kept_{}", name.trim_start_matches("r#"), span = span),
            n => format_ident!("kept{}_{}", n + 1, name.trim_start_matches("r#"), span = span),
        }
    }
}

/// A cut point's number as a literal.
fn number(cut: usize) -> TokenStream {
    proc_macro2::Literal::usize_unsuffixed(cut).to_token_stream()
}

/// The variables of a block.
fn declared(block: &Block, entering: &[VarId]) -> BTreeSet<VarId> {
    block.stmts.iter().flat_map(|stmt| &stmt.declares).chain(entering).copied().collect()
}

/// All variables that the start of a statement declares, in any arm.
fn declared_in_head(plain: &[Stmt], stmt: &Stmt) -> BTreeSet<VarId> {
    let mut declared: BTreeSet<VarId> = plain.iter().flat_map(|s| &s.declares).copied().collect();
    match &stmt.kind {
        StmtKind::Cut { .. } => declared.extend(&stmt.declares),
        StmtKind::Control { control: Control::Branch(branch), .. } => {
            if matches!(branch.head, Head::LetElse { .. }) {
                declared.extend(&stmt.declares);
            }
            for arm in &branch.arms {
                declared.extend(&arm.declares);
                let first = arm.block.stmts.iter().position(|s| !matches!(s.kind, StmtKind::Plain(_)));
                let end = first.unwrap_or(arm.block.stmts.len());
                match arm.block.stmts.get(end) {
                    Some(next) => declared.extend(declared_in_head(&arm.block.stmts[..end], next)),
                    None => declared.extend(arm.block.stmts.iter().flat_map(|s| &s.declares)),
                }
            }
        }
        _ => {}
    }
    declared
}

/// The items among statements. They are visible in the whole block, so they are emitted before its
/// stretches.
fn items(stmts: &[Stmt]) -> TokenStream {
    stmts.iter().filter(|s| matches!(s.kind, StmtKind::Plain(syn::Stmt::Item(_)))).map(plain_tokens).collect()
}

fn plain_tokens(stmt: &Stmt) -> TokenStream {
    match &stmt.kind {
        StmtKind::Plain(syntax) => syntax.to_token_stream(),
        _ => TokenStream::new(),
    }
}

/// The items of arms whose code is emitted partly before the arm and partly in it.
fn items_of_arms(stmt: &Stmt) -> TokenStream {
    let StmtKind::Control { control: Control::Branch(branch), .. } = &stmt.kind else { return TokenStream::new() };
    let mut tokens = TokenStream::new();
    for arm in branch.arms.iter().filter(|a| a.cuts.is_some()) {
        tokens.extend(items(&arm.block.stmts));
        if let Some(first) = arm.block.stmts.iter().find(|s| !matches!(s.kind, StmtKind::Plain(_))) {
            tokens.extend(items_of_arms(first));
        }
    }
    tokens
}
