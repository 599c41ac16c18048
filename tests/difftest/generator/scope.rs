//! What the generator knows of the locals at the place it is writing: which are in scope, set, moved or borrowed.
//!
//! A local is known by its index here, which stays the same for as long as it is in scope. A borrow counts as live until the
//! local that holds it goes out of scope, which is longer than rustc asks for.
use super::types::Ty;

pub(crate) type VarId = usize;

/// How a local holds its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hold {
    Owned,
    Shared,
    Exclusive,
}

/// A local.
#[derive(Debug, Clone)]
pub(crate) struct Var {
    /// Empty for a borrow that has no name, such as that of a `for` loop.
    pub(crate) name: String,
    pub(crate) ty: Ty,
    pub(crate) hold: Hold,
    pub(crate) mutable: bool,
    /// Neither unset nor moved out, on any path.
    pub(crate) set: bool,
    /// How many loops it was declared in: a round must not move what an earlier round left.
    loops: usize,
    /// The locals that it borrows from.
    borrows: Vec<VarId>,
}

impl Var {
    pub(crate) fn owned(name: String, ty: Ty) -> Self {
        Var { name, ty, hold: Hold::Owned, mutable: false, set: true, loops: 0, borrows: Vec::new() }
    }

    pub(crate) fn mutable(self) -> Self {
        Var { mutable: true, ..self }
    }

    pub(crate) fn unset(self) -> Self {
        Var { set: false, ..self }
    }

    pub(crate) fn borrowing(self, hold: Hold, borrows: &[VarId]) -> Self {
        Var { hold, borrows: borrows.to_vec(), ..self }
    }
}

/// The locals in scope, outermost first.
#[derive(Debug, Default)]
pub(crate) struct Scope {
    vars: Vec<Var>,
    loops: usize,
    /// Locals borrowed by an expression that is not complete yet.
    pins: Vec<VarId>,
    /// Whether what borrows exclusively may not be read either.
    pub(crate) shared_only: bool,
    /// Whether nothing may be moved that was declared before so many locals.
    pub(crate) moves_from: VarId,
}

impl Scope {
    pub(crate) fn push(&mut self, mut var: Var) -> VarId {
        var.loops = self.loops;
        self.vars.push(var);
        self.vars.len() - 1
    }

    pub(crate) fn var(&self, id: VarId) -> &Var {
        &self.vars[id]
    }

    pub(crate) fn len(&self) -> usize {
        self.vars.len()
    }

    /// Leaves a block that was entered when there were so many locals.
    pub(crate) fn leave(&mut self, len: usize) {
        self.vars.truncate(len);
    }

    pub(crate) fn enter_loop(&mut self) {
        self.loops += 1;
    }

    pub(crate) fn leave_loop(&mut self) {
        self.loops -= 1;
    }

    pub(crate) fn pin(&mut self, id: VarId) {
        self.pins.push(id);
    }

    pub(crate) fn unpin(&mut self) {
        self.pins.pop();
    }

    pub(crate) fn set(&mut self, id: VarId, set: bool) {
        self.vars[id].set = set;
    }

    fn visible(&self, id: VarId) -> bool {
        let name = &self.vars[id].name;
        !name.is_empty() && self.vars[id + 1..].iter().all(|later| later.name != *name)
    }

    fn borrowed(&self, id: VarId) -> bool {
        self.pins.contains(&id) || self.vars.iter().any(|v| v.borrows.contains(&id))
    }

    pub(crate) fn readable(&self, id: VarId) -> bool {
        let exclusively = |v: &Var| v.hold == Hold::Exclusive && v.borrows.contains(&id);
        let held = self.shared_only && self.vars[id].hold == Hold::Exclusive;
        self.vars[id].set && !held && self.visible(id) && !self.vars.iter().any(exclusively)
    }

    pub(crate) fn movable(&self, id: VarId) -> bool {
        id >= self.moves_from
            && self.readable(id)
            && self.vars[id].hold == Hold::Owned
            && !self.borrowed(id)
            && self.vars[id].loops == self.loops
    }

    /// Whether it may be changed in place.
    pub(crate) fn writable(&self, id: VarId) -> bool {
        let var = &self.vars[id];
        let may_change = var.hold == Hold::Exclusive || (var.hold == Hold::Owned && var.mutable);
        may_change && self.readable(id) && !self.borrowed(id)
    }

    /// Whether a whole new value may be given to it, also when it holds none now.
    pub(crate) fn assignable(&self, id: VarId) -> bool {
        let var = &self.vars[id];
        var.hold == Hold::Owned && var.mutable && self.visible(id) && !self.borrowed(id)
    }

    pub(crate) fn is_borrowed(&self, id: VarId) -> bool {
        self.borrowed(id)
    }

    /// Declared outside of the innermost loop.
    pub(crate) fn outside_loop(&self, id: VarId) -> bool {
        self.vars[id].loops < self.loops
    }

    /// Declared in so many loops.
    pub(crate) fn loops_of(&self, id: VarId) -> usize {
        self.vars[id].loops
    }

    pub(crate) fn loops(&self) -> usize {
        self.loops
    }

    /// The locals for which `wanted` holds.
    pub(crate) fn find(&self, wanted: impl Fn(&Scope, VarId, &Var) -> bool) -> Vec<VarId> {
        (0..self.vars.len()).filter(|id| wanted(self, *id, &self.vars[*id])).collect()
    }

    fn states(&self) -> Vec<bool> {
        self.vars.iter().map(|v| v.set).collect()
    }

    fn restore(&mut self, states: &[bool]) {
        for (var, set) in self.vars.iter_mut().zip(states) {
            var.set = *set;
        }
    }
}

/// Brings paths together: after it, a local is set only if every path that gets there leaves it set.
#[derive(Debug)]
pub(crate) struct Join {
    before: Vec<bool>,
    after: Option<Vec<bool>>,
}

impl Join {
    pub(crate) fn new(scope: &Scope) -> Self {
        Join { before: scope.states(), after: None }
    }

    /// Ends a path and goes back to where it began.
    pub(crate) fn path(&mut self, scope: &mut Scope, diverged: bool) {
        if !diverged {
            self.arrive(scope);
        }
        scope.restore(&self.before);
    }

    /// A path gets here from the present place, which may be deeper inside.
    pub(crate) fn arrive(&mut self, scope: &Scope) {
        let states = scope.states();
        let after = self.after.get_or_insert_with(|| states.clone());
        for (all, this) in after.iter_mut().zip(&states) {
            *all &= this;
        }
        after.truncate(self.before.len());
    }

    /// Carries on where the paths meet; whether none gets there.
    pub(crate) fn meet(self, scope: &mut Scope) -> bool {
        match self.after {
            Some(after) => {
                scope.restore(&after);
                false
            }
            None => true,
        }
    }
}
