//! Decides what each cut point keeps, and how each variable gets from one stretch of code to the
//! next.
//!
//! A fiber's code is cut into stretches that run only when the function is not resuming to a cut
//! point further down. A variable that is needed beyond its stretch is *plain* if it is needed at
//! the end of every stretch in its scope: then it stays an ordinary variable, set by running or by
//! restoring. Otherwise it is *carried*: between stretches it is in an `Option` that is empty where
//! the variable is not needed, and each stretch that mentions it takes it out and puts it back.
use std::collections::{BTreeMap, BTreeSet};
#[cfg(test)]
use std::fmt;

#[cfg(test)]
use crate::cut::CutBody;
use crate::flow::{Assigned, Flow, Live, Needed, assigned, solve, successors};
use crate::held::{Found, held};
use crate::hir::{Arm, Block, Body, Branch, Control, Head, Stmt, StmtKind};
use crate::ids::{CutId, JumpId, VarId};
use crate::kept::{Kept, Role};
use crate::names::{Table, VarKind, VarOrigin, assign_all};

/// How a variable gets from one stretch to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Storage {
    /// Not at all: it is used only in the stretch that declares it.
    Local,
    Plain,
    Carried,
}

/// The plan of a function.
pub(crate) struct Plan {
    pub(crate) needed: Needed,
    pub(crate) storage: BTreeMap<VarId, Storage>,
    /// Variables that are hidden by another one of their name where generated code may need them.
    pub(crate) aliased: BTreeSet<VarId>,
    /// The kept values of each cut point, in order of declaration.
    pub(crate) kept: Vec<Vec<Kept>>,
    /// Locals that are held across a cut point which does not keep them, with the first such cut
    /// point.
    pub(crate) held: BTreeMap<VarId, CutId>,
    /// As `held`, of locals that are used.
    pub(crate) held_and_used: BTreeMap<VarId, CutId>,
    /// Those of them that are held at a cut point at which the fiber may leave memory.
    pub(crate) held_over_wait: BTreeSet<VarId>,
    /// By the first variable of a `let`, the first cut point over which values that it borrows are
    /// held.
    pub(crate) lending: BTreeMap<VarId, CutId>,
    /// The cut points that keep each variable.
    kept_at: BTreeMap<VarId, Vec<CutId>>,
    /// Carried variables that share their stored name with their remaining fields at other cut
    /// points.
    pub(crate) shares_key: BTreeSet<VarId>,
    /// Kept locals that may hold text of another variable, with the first cut point that keeps
    /// each.
    pub(crate) texts: BTreeMap<VarId, CutId>,
    /// Locals that hold a lock's guard.
    pub(crate) guards: BTreeSet<VarId>,
    /// The expressions of temporaries, by the names that they were given.
    pub(crate) temporaries: BTreeMap<String, String>,
    /// By cut point: its stored name, and the number of cut points that share the name before `#`.
    pub(crate) names: Vec<(String, usize)>,
    pub(crate) next: Vec<Vec<Option<CutId>>>,
    pub(crate) first: Vec<Option<CutId>>,
}

impl Plan {
    /// The cut points that keep a variable, in their order.
    pub(crate) fn kept_at(&self, var: VarId) -> &[CutId] {
        self.kept_at.get(&var).map_or(&[], Vec::as_slice)
    }

    /// The stored name of a variable, if any cut point keeps it.
    pub(crate) fn key_of(&self, var: VarId) -> Option<&str> {
        let first = *self.kept_at(var).first()?;
        self.kept[first].iter().find(|kept| kept.var == var).map(|kept| &*kept.key)
    }

    /// Every kept variable with the first cut point that keeps it, in the order of the cut points.
    pub(crate) fn first_kept(&self) -> impl Iterator<Item = (VarId, CutId)> {
        let is_first = |(var, cut): &(VarId, CutId)| self.kept_at(*var).first() == Some(cut);
        self.kept.iter().enumerate().flat_map(|(cut, kept)| kept.iter().map(move |kept| (kept.var, cut))).filter(is_first)
    }

    /// The cut points after which a variable is needed.
    pub(crate) fn needed_at(&self, var: VarId) -> impl Iterator<Item = CutId> {
        self.needed.at_cut.iter().filter(move |(_, live)| live.contains(&var)).map(|(cut, _)| *cut)
    }
}

/// The flow of a whole block, cut points included.
pub(crate) fn flow_of(block: &Block, table: &Table) -> Flow {
    let mut flow = Flow::Nothing;
    for stmt in &block.stmts {
        flow.push(Flow::Point(stmt.start));
        flow.push(flow_of_stmt(stmt, table));
        flow.push(Flow::Point(stmt.after));
    }
    // In the order of execution, the end comes first: what was lent is needed up to there.
    for &var in table.lent_until.get(&block.end).into_iter().flatten() {
        flow.push(Flow::Use(var));
    }
    flow.push(Flow::Point(block.end));
    flow
}

fn flow_of_stmt(stmt: &Stmt, table: &Table) -> Flow {
    let mut flow = stmt.flow.clone();
    match &stmt.kind {
        StmtKind::Plain(_) => {}
        StmtKind::Cut { cut, .. } => {
            flow.push(Flow::Point(stmt.before));
            flow.push(assign_all(&stmt.declares));
            flow.push(Flow::Cut(*cut, table.forced[*cut].clone()));
        }
        StmtKind::Control { control, .. } => {
            flow.push(Flow::Point(stmt.before));
            flow.push(match control {
                Control::Branch(branch) => branch_flow(branch, stmt, table),
                Control::Loop { id, body, .. } => Flow::Loop(*id, Box::new(flow_of(body, table))),
                Control::Scope { id, body, .. } => Flow::Labelled(*id, Box::new(flow_of(body, table))),
                Control::For(for_loop) => {
                    let mut round = Flow::Nothing;
                    for &base in &for_loop.bases {
                        round.push(Flow::Use(base));
                    }
                    round.push(Flow::Either(vec![Flow::Break(for_loop.id), flow_of(&for_loop.body, table)]));
                    let mut flow = Flow::Loop(for_loop.id, Box::new(round));
                    if let Some(position) = for_loop.position_var {
                        // The position is set when the loop begins; no round needs an earlier one.
                        flow = Flow::Seq(vec![Flow::Assign(position), flow]);
                    }
                    flow
                }
            });
            let is_let_else = matches!(control, Control::Branch(Branch { head: Head::LetElse { .. }, .. }));
            if !is_let_else {
                flow.push(assign_all(&stmt.declares));
            }
        }
    }
    flow
}

fn branch_flow(branch: &Branch, stmt: &Stmt, table: &Table) -> Flow {
    let arms = branch.arms.iter().map(|arm| {
        let mut flow = arm.enter.clone();
        flow.push(flow_of(&arm.block, table));
        if arm.id.is_none() {
            flow.push(assign_all(&stmt.declares));
        } else if matches!(branch.head, Head::LetElse { .. }) {
            // The compiler checks that control does not reach the end of this block, so any ending
            // will do.
            flow.push(Flow::Return);
        }
        flow
    });
    Flow::Either(arms.collect())
}

/// The variables that generated code may need where their name means another one.
fn aliased(table: &Table, needed: &Needed, held_over_wait: &BTreeSet<VarId>) -> BTreeSet<VarId> {
    let mut found = table.hidden_at_jumps.clone();
    let hidden = |var: &&VarId| table.hidden.values().flatten().any(|(hidden, _)| hidden == *var);
    found.extend(held_over_wait.iter().filter(hidden));
    for (point, live) in &needed.at_point {
        let hidden = table.hidden.get(point).into_iter().flatten().map(|(hidden, _)| *hidden);
        found.extend(hidden.filter(|v| live.contains(v)));
    }
    found
}

pub(crate) fn plan(body: &Body, table: &Table) -> Plan {
    let flow = flow_of(&body.block, table);
    let assigned = assigned(&flow);
    let needed = needed(&flow, &assigned, table);
    let (mut after, first) = successors(&flow);
    let mut storage = Classify { needed: &needed, table, storage: BTreeMap::new() };
    storage.block(&body.block, &[]);
    let storage = storage.storage;
    let kept = kept(body, table, &needed);
    let kept_at = kept_at(&kept);
    let shares_key = shares_key(table, &kept_at, &storage);
    let texts = kept_at.iter().filter(|(var, _)| table.var(**var).text_of.is_some()).map(|(var, cuts)| (*var, cuts[0])).collect();
    let next = (0..body.cuts.len()).map(|cut| after.remove(&cut).unwrap_or_default().into_iter().collect()).collect();
    let Found { held, used: held_and_used, over_wait: held_over_wait, lending, guards, temporaries, .. } =
        held(body, table, &needed, &assigned, &kept);
    let aliased = aliased(table, &needed, &held_over_wait);
    Plan {
        needed,
        storage,
        aliased,
        kept,
        held,
        held_and_used,
        held_over_wait,
        lending,
        kept_at,
        shares_key,
        texts,
        guards,
        temporaries,
        names: step_names(body),
        next,
        first: first.into_iter().collect(),
    }
}

/// The cut points that keep each variable.
fn kept_at(kept: &[Vec<Kept>]) -> BTreeMap<VarId, Vec<CutId>> {
    let mut found: BTreeMap<VarId, Vec<CutId>> = BTreeMap::new();
    for (cut, kept) in kept.iter().enumerate() {
        kept.iter().for_each(|kept| found.entry(kept.var).or_default().push(cut));
    }
    found
}

/// The carried variables that share their stored name with their remaining fields.
fn shares_key(table: &Table, kept_at: &BTreeMap<VarId, Vec<CutId>>, storage: &BTreeMap<VarId, Storage>) -> BTreeSet<VarId> {
    let is_carried = |var: &VarId| storage.get(var) == Some(&Storage::Carried);
    let shares = |var: VarId| kept_at.keys().any(|other| *other != var && table.origin(*other) == table.origin(var));
    storage.keys().copied().filter(|var| is_carried(var) && shares(*var)).collect()
}

/// Computes which variables are needed at which point.
pub(crate) fn needed(flow: &Flow, assigned: &Assigned, table: &Table) -> Needed {
    let mut needed = solve(flow);
    without_unset(&mut needed, assigned, table);
    needed
}

/// Removes variables that cannot have a value yet. The compiler lets no path use a variable that it
/// has not set; where such a path seems to exist, code diverges in a way that only the compiler
/// sees.
fn without_unset(needed: &mut Needed, assigned: &Assigned, table: &Table) {
    let clear = |live: &mut Live, assigned: Option<&Live>| {
        live.retain(|var| !table.unset.contains(var) || assigned.is_none_or(|set| set.contains(var)));
    };
    for (point, live) in &mut needed.at_point {
        clear(live, assigned.at_point.get(point));
    }
    for (cut, live) in &mut needed.at_cut {
        clear(live, assigned.at_cut.get(cut));
    }
    for (id, live) in &mut needed.at_continue {
        clear(live, assigned.at_continue.get(id));
    }
}

struct Classify<'a> {
    needed: &'a Needed,
    table: &'a Table,
    storage: BTreeMap<VarId, Storage>,
}

impl Classify<'_> {
    /// `entering`: variables declared on entering the block.
    fn block(&mut self, block: &Block, entering: &[VarId]) {
        self.declared(entering, &block.stmts, None);
        for (place, stmt) in block.stmts.iter().enumerate() {
            let later = &block.stmts[place + 1..];
            // The variables that a cut point or a control construct declares leave it at once.
            let own = match &stmt.kind {
                StmtKind::Cut { cut, .. } => self.needed.at_cut.get(cut),
                StmtKind::Control { .. } if later.iter().any(|s| s.cuts.is_some()) => self.needed.at_point.get(&stmt.after),
                _ => None,
            };
            self.declared(&stmt.declares, later, own);
            if let StmtKind::Control { control, .. } = &stmt.kind {
                match control {
                    Control::Branch(branch) => branch.arms.iter().for_each(|arm| self.block(&arm.block, &arm.declares)),
                    Control::Loop { body, .. } | Control::Scope { body, .. } => self.block(body, &[]),
                    Control::For(for_loop) => self.block(&for_loop.body, &[]),
                }
            }
        }
    }

    fn declared(&mut self, declares: &[VarId], later: &[Stmt], own: Option<&Live>) {
        if declares.is_empty() {
            return;
        }
        let exits = self.exits(own, later);
        // Everything up to the first cut point or control construct is one stretch.
        let end =
            if own.is_some() { 0 } else { later.iter().position(|s| !matches!(s.kind, StmtKind::Plain(_))).map_or(later.len(), |p| p + 1) };
        let mut beyond = BTreeSet::new();
        for stmt in &later[end..] {
            mentions(stmt, &mut beyond);
        }
        if let Some(last) = end.checked_sub(1).and_then(|last| later.get(last)) {
            mentions_after_head(last, &mut beyond);
        }
        for &var in declares {
            let live_somewhere = exits.iter().any(|live| live.contains(&var));
            let storage = if exits.is_empty() || !(live_somewhere || beyond.contains(&var)) {
                Storage::Local
            } else if exits.iter().all(|live| live.contains(&var)) {
                Storage::Plain
            } else {
                Storage::Carried
            };
            // A variable that is made again wherever it is needed is not stored.
            let storage = match self.table.var(var).kind {
                VarKind::Reborrow(_) | VarKind::Given | VarKind::Item(_) | VarKind::Position => Storage::Local,
                _ => storage,
            };
            self.storage.insert(var, storage);
        }
    }

    /// The needed variables at the ends of the stretches, from a declaration to the end of its
    /// block.
    fn exits(&self, own: Option<&Live>, later: &[Stmt]) -> Vec<Live> {
        let mut exits: Vec<Live> = own.into_iter().cloned().collect();
        stretches(later, None, self.needed, &mut exits);
        exits
    }
}

/// The needed variables at the end of each stretch among `stmts`: at cut points, before loops,
/// after arms, and at jumps within them. `again` is the loop whose next round counts as inside.
pub(crate) fn stretches(stmts: &[Stmt], again: Option<JumpId>, needed: &Needed, exits: &mut Vec<Live>) {
    let mut inside = BTreeSet::new();
    targets(stmts, &mut inside);
    Stretches { needed, inside, again, exits }.stmts(stmts);
}

/// The loops and labelled blocks among `stmts`.
fn targets(stmts: &[Stmt], found: &mut BTreeSet<JumpId>) {
    for stmt in stmts {
        let StmtKind::Control { control, .. } = &stmt.kind else { continue };
        match control {
            Control::Branch(branch) => branch.arms.iter().for_each(|arm| targets(&arm.block.stmts, found)),
            Control::Loop { id, body, .. } | Control::Scope { id, body, .. } => {
                found.insert(*id);
                targets(&body.stmts, found);
            }
            Control::For(for_loop) => {
                found.insert(for_loop.id);
                targets(&for_loop.body.stmts, found);
            }
        }
    }
}

struct Stretches<'a> {
    needed: &'a Needed,
    inside: BTreeSet<JumpId>,
    again: Option<JumpId>,
    exits: &'a mut Vec<Live>,
}

impl Stretches<'_> {
    fn stmts(&mut self, stmts: &[Stmt]) {
        let needed = self.needed;
        let at = |point| needed.at_point.get(&point).cloned().unwrap_or_default();
        for stmt in stmts {
            match &stmt.kind {
                StmtKind::Plain(_) => self.jumps(&stmt.flow),
                StmtKind::Cut { cut, .. } => {
                    self.jumps(&stmt.flow);
                    self.exits.extend(needed.at_cut.get(cut).cloned());
                    self.exits.push(at(stmt.before));
                }
                StmtKind::Control { control, .. } => {
                    self.jumps(&stmt.flow);
                    match control {
                        Control::Branch(branch) => {
                            for arm in &branch.arms {
                                if arm.cuts.is_none() && !diverges(arm) {
                                    self.exits.push(at(arm.block.end));
                                }
                                self.stmts(&arm.block.stmts);
                            }
                        }
                        Control::Loop { body, .. } | Control::Scope { body, .. } => {
                            self.exits.push(at(stmt.before));
                            self.stmts(&body.stmts);
                        }
                        Control::For(for_loop) => {
                            self.exits.push(at(stmt.before));
                            self.stmts(&for_loop.body.stmts);
                        }
                    }
                }
            }
        }
    }

    /// Adds the needed variables at the targets of a plain statement's jumps.
    fn jumps(&mut self, flow: &Flow) {
        let mut targets = Vec::new();
        jump_targets(flow, &mut targets);
        for (id, again) in targets {
            let map = if again { &self.needed.at_continue } else { &self.needed.at_break };
            if self.inside.contains(&id) || again && self.again == Some(id) {
                self.exits.extend(map.get(&id).cloned());
            }
        }
    }
}

/// The loops of the lowered tree that a plain statement jumps to; `true` for `continue`.
fn jump_targets(flow: &Flow, found: &mut Vec<(JumpId, bool)>) {
    match flow {
        Flow::Break(id) if id.is_lowered() => found.push((*id, false)),
        Flow::Continue(id) if id.is_lowered() => found.push((*id, true)),
        Flow::Seq(items) | Flow::Either(items) => items.iter().for_each(|f| jump_targets(f, found)),
        Flow::Loop(_, body) | Flow::Labelled(_, body) => jump_targets(body, found),
        _ => {}
    }
}

/// Whether an arm without cut points diverges, as far as the source shows.
pub(crate) fn diverges(arm: &Arm) -> bool {
    arm.block.stmts.iter().any(|stmt| !stmt.flow.completes())
}

pub(crate) fn mentions(stmt: &Stmt, found: &mut BTreeSet<VarId>) {
    stmt.flow.mentioned(found);
    if let StmtKind::Control { control, .. } = &stmt.kind {
        mentions_inside(control, found);
    }
}

pub(crate) fn mentions_inside(control: &Control, found: &mut BTreeSet<VarId>) {
    let block = |block: &Block, found: &mut BTreeSet<VarId>| block.stmts.iter().for_each(|s| mentions(s, found));
    match control {
        Control::Branch(branch) => {
            for arm in &branch.arms {
                arm.enter.mentioned(found);
                block(&arm.block, found);
            }
        }
        Control::Loop { body, .. } | Control::Scope { body, .. } => block(body, found),
        Control::For(for_loop) => {
            found.extend(for_loop.bases.iter().copied());
            block(&for_loop.body, found);
        }
    }
}

/// The variables that a statement mentions after the stretch that leads into it.
fn mentions_after_head(stmt: &Stmt, found: &mut BTreeSet<VarId>) {
    match &stmt.kind {
        StmtKind::Control { control: Control::Branch(branch), .. } => {
            for stmts in branch.arms.iter().filter(|a| a.cuts.is_some()).map(|a| &a.block.stmts) {
                let end = stmts.iter().position(|s| !matches!(s.kind, StmtKind::Plain(_))).unwrap_or(stmts.len());
                if let Some(last) = stmts.get(end) {
                    mentions_after_head(last, found);
                }
                stmts.iter().skip(end + 1).for_each(|s| mentions(s, found));
            }
        }
        StmtKind::Control { control, .. } => mentions_inside(control, found),
        _ => {}
    }
}

/// The kept values of each cut point, with their stored names.
fn kept(body: &Body, table: &Table, needed: &Needed) -> Vec<Vec<Kept>> {
    let is_kept = |var: &VarId| matches!(table.var(*var).kind, VarKind::Value | VarKind::Position);
    let all: BTreeSet<VarId> = needed.at_cut.values().flatten().copied().filter(|v| is_kept(v)).collect();
    let base = |var: VarId| {
        let var = table.var(var);
        var.key.clone().unwrap_or_else(|| var.ident.to_string().trim_start_matches("r#").to_owned())
    };
    // The remaining fields of a variable take its place in the snapshot.
    let origins: BTreeSet<VarId> = all.iter().map(|var| table.origin(*var)).collect();
    let (keys, count) = numbered(&origins, &base);
    let results = results(&body.block, body.cuts.len());
    (0..body.cuts.len())
        .map(|cut| {
            let mut live: Vec<VarId> = needed.at_cut.get(&cut).into_iter().flatten().copied().filter(is_kept).collect();
            live.sort_by_key(|var| table.origin(*var));
            live.into_iter()
                .map(|var| Kept {
                    var,
                    key: keys[&table.origin(var)].clone(),
                    of: count[&base(table.origin(var))],
                    was: table.var(table.origin(var)).was.clone(),
                    result: results[cut].contains(&var) && table.var(var).remainder_of.is_none(),
                    role: role(table, table.origin(var)),
                    why: why(table, var, cut),
                })
                .collect()
        })
        .collect()
}

/// The stored names of variables, numbered where several share a name, and the number of variables
/// for each name.
fn numbered(vars: &BTreeSet<VarId>, base: &dyn Fn(VarId) -> String) -> (BTreeMap<VarId, String>, BTreeMap<String, usize>) {
    let mut keys = BTreeMap::new();
    let mut count: BTreeMap<String, usize> = BTreeMap::new();
    for &var in vars {
        let n = count.entry(base(var)).or_default();
        *n += 1;
        keys.insert(var, if *n == 1 { base(var) } else { format!("{}#{n}", base(var)) });
    }
    (keys, count)
}

fn role(table: &Table, var: VarId) -> Role {
    let var = table.var(var);
    match var.kind {
        VarKind::Position => Role::Position,
        _ if var.origin() == VarOrigin::Rest => Role::Items,
        _ => Role::Value,
    }
}

/// Why a cut point keeps a variable: its first use after it, or in the next round of a loop.
fn why(table: &Table, var: VarId, cut: CutId) -> String {
    let uses = || table.uses.iter().enumerate().filter(|(_, u)| u.var == var);
    let next = uses().find(|(place, _)| *place >= table.uses_before[cut]).or_else(|| uses().next());
    match (next, &table.var(var).kind) {
        (_, VarKind::Position) => "the position of a `for` loop".to_owned(),
        (Some((_, next)), _) => next.by.to_string(),
        (None, _) => "what is left of a `for` loop".to_owned(),
    }
}

/// The variables that each cut point's value is bound to.
fn results(block: &Block, count: usize) -> Vec<BTreeSet<VarId>> {
    fn walk(block: &Block, results: &mut Vec<BTreeSet<VarId>>) {
        for stmt in &block.stmts {
            match &stmt.kind {
                StmtKind::Plain(_) => {}
                StmtKind::Cut { cut, .. } => results[*cut] = stmt.declares.iter().copied().collect(),
                StmtKind::Control { control, .. } => match control {
                    Control::Branch(branch) => branch.arms.iter().for_each(|arm| walk(&arm.block, results)),
                    Control::Loop { body, .. } | Control::Scope { body, .. } => walk(body, results),
                    Control::For(for_loop) => walk(&for_loop.body, results),
                },
            }
        }
    }
    let mut results = vec![BTreeSet::new(); count];
    walk(block, &mut results);
    results
}

/// The stored names of the cut points. Literals are taken as they are, and derived names are
/// numbered around them.
pub(crate) fn step_names(body: &Body) -> Vec<(String, usize)> {
    let mut taken: BTreeSet<String> = body.cuts.iter().filter(|c| c.explicit).map(|c| c.base.clone()).collect();
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    let of = |base: &str| body.cuts.iter().filter(|c| !c.explicit && c.base == base).count();
    body.cuts
        .iter()
        .map(|cut| {
            if cut.explicit {
                return (cut.base.clone(), 1);
            }
            loop {
                let n = seen.entry(&cut.base).or_default();
                *n += 1;
                let name = if *n == 1 { cut.base.clone() } else { format!("{}#{n}", cut.base) };
                if taken.insert(name.clone()) {
                    return (name, of(&cut.base));
                }
            }
        })
        .collect()
}

/// The plan as a table, for tests.
#[cfg(test)]
pub(crate) struct Shown<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) body: &'a Body,
    pub(crate) table: &'a Table,
}

#[cfg(test)]
impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (cut, (name, _)) in self.plan.names.iter().enumerate() {
            let cut_point = &self.body.cuts[cut];
            let kind = match cut_point.body {
                CutBody::Pending(_) => format!("before {}", cut_point.kind.written()),
                _ => cut_point.kind.written().to_owned(),
            };
            writeln!(f, "{cut} {name} ({kind})")?;
            for kept in &self.plan.kept[cut] {
                let how = match self.plan.storage.get(&kept.var) {
                    Some(Storage::Plain) => "plain",
                    Some(Storage::Carried) => "carried",
                    _ => "local",
                };
                let result = if kept.result { ", its value" } else { "" };
                writeln!(f, "    keeps {} ({how}{result})", kept.key)?;
            }
            let next: Vec<String> =
                self.plan.next[cut].iter().map(|n| n.map_or("end".to_owned(), |n| self.plan.names[n].0.clone())).collect();
            writeln!(f, "    then {}", next.join(", "))?;
        }
        let again = self.table.vars.iter().filter(|v| matches!(v.kind, VarKind::Reborrow(_) | VarKind::Fresh(_)));
        let again: Vec<String> = again.map(|v| v.ident.to_string()).collect();
        if !again.is_empty() {
            writeln!(f, "made again: {}", again.join(", "))?;
        }
        Ok(())
    }
}
