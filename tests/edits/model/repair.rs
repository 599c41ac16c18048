//! Makes a program that was put together or edited one that compiles: what reads a variable that is not there reads it no more.
use std::collections::{BTreeMap, BTreeSet};

use super::program::{Expr, Function, Id, Kind, Node, Over, Program, Type, Var, Wrap};

/// Variables in scope, with the depth of the loops in which each was declared.
type Scope = BTreeMap<Id, usize>;

pub(crate) fn repair(program: &mut Program) {
    let mut work = program.work.clone();
    function(&mut work, &program.vars);
    program.work = work;
    let structs = program.structs.clone();
    for function in std::iter::once(&mut program.work).chain(&mut program.helpers) {
        let known = |var: &Id, field: &Id| {
            let Var { of: Type::Struct(of), wrap: Wrap::None, .. } = &program.vars[var] else { return false };
            structs[of].iter().any(|there| there.id == *field)
        };
        fields(&mut function.body, &known);
    }
    for helper in &mut program.helpers {
        function(helper, &program.vars);
    }
}

fn function(function: &mut Function, vars: &BTreeMap<Id, Var>) {
    let mutable = function.nodes().into_iter().filter(|node| matches!(node.kind, Kind::Local { .. } | Kind::While { .. }));
    let mutable: BTreeSet<Id> = mutable.flat_map(|node| node.kind.binds()).collect();
    assigned(&mut function.body, &mutable);
    let mut scope: Scope = function.args.iter().map(|arg| (*arg, 0)).collect();
    block(&mut function.body, &mut scope, 0, vars);
    expr(&mut function.result, &scope, vars);
}

/// Leaves assignments to fields that are there.
fn fields(nodes: &mut Vec<Node>, known: &impl Fn(&Id, &Id) -> bool) {
    nodes.retain(|node| !matches!(&node.kind, Kind::SetField { var, field, .. } if !known(var, field)));
    for node in nodes {
        node.kind.blocks_mut().into_iter().for_each(|inner| fields(inner, known));
    }
}

/// Leaves assignments to variables that are declared with `mut`.
fn assigned(nodes: &mut Vec<Node>, mutable: &BTreeSet<Id>) {
    nodes.retain(|node| !matches!(&node.kind, Kind::Set { var, .. } if !mutable.contains(var)));
    for node in nodes {
        node.kind.blocks_mut().into_iter().for_each(|inner| assigned(inner, mutable));
    }
}

/// Leaves in `scope` what is declared in the block.
fn block(nodes: &mut Vec<Node>, scope: &mut Scope, loops: usize, vars: &BTreeMap<Id, Var>) {
    nodes.retain_mut(|node| keeps(node, scope, loops, vars));
}

/// A block of its own scope: what it moves is gone behind it.
fn inner(nodes: &mut Vec<Node>, scope: &mut Scope, loops: usize, vars: &BTreeMap<Id, Var>) {
    let mut inside = scope.clone();
    block(nodes, &mut inside, loops, vars);
    scope.retain(|var, _| inside.contains_key(var));
}

fn keeps(node: &mut Node, scope: &mut Scope, loops: usize, vars: &BTreeMap<Id, Var>) -> bool {
    match &mut node.kind {
        Kind::Local { to: input, .. }
        | Kind::Step { input, .. }
        | Kind::Call { input, .. }
        | Kind::Spawn { input, .. }
        | Kind::Tx { input, .. }
        | Kind::Note { input, .. } => expr(input, scope, vars),
        Kind::Set { var, to } => {
            expr(to, scope, vars);
            if !scope.contains_key(var) || vars[var].of != Type::Int {
                return false;
            }
        }
        Kind::SetField { var, to, .. } => {
            expr(to, scope, vars);
            if !scope.contains_key(var) {
                return false;
            }
        }
        Kind::Select { arms, .. } => {
            let before = scope.clone();
            for arm in arms {
                let mut inside = before.clone();
                inside.insert(arm.bind, loops);
                block(&mut arm.body, &mut inside, loops, vars);
                expr(&mut arm.value, &inside, vars);
                scope.retain(|var, _| inside.contains_key(var));
            }
        }
        Kind::Steps { branches, .. } => branches.iter_mut().for_each(|branch| expr(&mut branch.input, scope, vars)),
        Kind::Wait { handle, .. } => {
            if !scope.contains_key(handle) {
                return false;
            }
        }
        Kind::If { on, then, otherwise } => {
            expr(on, scope, vars);
            let before = scope.clone();
            inner(then, scope, loops, vars);
            let mut other = before;
            inner(otherwise, &mut other, loops, vars);
            scope.retain(|var, _| other.contains_key(var));
        }
        Kind::For { over, item, body, .. } => {
            if let Over::Value { list, .. } | Over::Borrow(list) = over
                && !(scope.contains_key(list) && vars[list].of == Type::List && vars[list].wrap == Wrap::None)
            {
                *over = Over::Range(2);
            }
            if let Over::Value { list, cloned } = over {
                *cloned = scope[list] < loops;
                if !*cloned {
                    scope.remove(list);
                }
            }
            let mut inside = scope.clone();
            inside.insert(*item, loops + 1);
            block(body, &mut inside, loops + 1, vars);
        }
        Kind::While { counter, body, .. } => {
            scope.insert(*counter, loops);
            let mut inside = scope.clone();
            block(body, &mut inside, loops + 1, vars);
        }
        Kind::StepsFor { .. } | Kind::Recv { .. } | Kind::Sleep { .. } => {}
    }
    if !matches!(node.kind, Kind::For { .. }) {
        scope.extend(node.kind.binds().into_iter().map(|var| (var, loops)));
    }
    true
}

fn expr(expr: &mut Expr, scope: &Scope, vars: &BTreeMap<Id, Var>) {
    expr.reads.retain(|var| scope.contains_key(var) && vars[var].of != Type::Handle);
}
