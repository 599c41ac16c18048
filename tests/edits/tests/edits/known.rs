//! Whether new code has to go on: names and values tell it everything that the interpreter knows by ids.
use std::collections::{BTreeMap, BTreeSet};

use crate::model::program::{Function, Id, Kind, Name, Node, Over, Program, Type, Var};
use crate::state::{Frame, Phase, State};
use crate::value::Value;

/// Whether everything that the new program needs of the state has a name that can mean one thing only. The interpreter must
/// have found that the state determines how it goes on.
pub(crate) fn must_resume(old: &Program, new: &Program, state: &State) -> bool {
    if state.frames.is_empty() {
        let args = |program: &Program| program.work.args.iter().map(|arg| program.vars[arg].name.clone()).collect::<Vec<_>>();
        return args(old) == args(new) && doubt_is_known(old, new, state) && booked_is_known(old, new, state);
    }
    doubt_is_known(old, new, state)
        && booked_is_known(old, new, state)
        && state.frames.iter().all(|frame| frame_is_known(old, new, frame, state))
}

fn function<'a>(program: &'a Program, name: &str) -> Option<&'a Function> {
    program.functions().find(|function| function.name == name)
}

fn node(function: &Function, id: Id) -> Option<&Node> {
    function.nodes().into_iter().find(|node| node.id == id)
}

fn name(kind: &Kind) -> Option<&Name> {
    match kind {
        Kind::Step { name, .. }
        | Kind::Call { name, .. }
        | Kind::Steps { name, .. }
        | Kind::StepsFor { name, .. }
        | Kind::Recv { name, .. }
        | Kind::Select { name, .. }
        | Kind::Tx { name, .. }
        | Kind::Sleep { name }
        | Kind::Spawn { name, .. }
        | Kind::Wait { name, .. } => Some(name),
        _ => None,
    }
}

/// Whether a written name is that of the old code, or says by `was` that it is.
fn is_same(old: &Name, new: &Name) -> bool {
    match (&old.literal, &new.literal) {
        (Some(then), Some(now)) if then == now => true,
        (Some(then), Some(_)) => old.was.is_none() && new.was.as_ref() == Some(then),
        _ => false,
    }
}

/// All cut points whose names are derived, with all that their names and bodies are made of.
fn derived(program: &Program, function: &Function) -> Vec<String> {
    let mut all = Vec::new();
    for node in function.nodes() {
        let Some(name) = name(&node.kind) else { continue };
        let names: Vec<_> = node.kind.binds().iter().map(|var| &program.vars[var]).collect();
        if name.literal.is_none() {
            all.push(format!("{node:?} {names:?}"));
        } else if name.literal.as_ref().is_some_and(|literal| program.vars.values().any(|var| var.name == *literal)) {
            all.push(format!("{name:?}"));
        }
    }
    all
}

fn doubt_is_known(old: &Program, new: &Program, state: &State) -> bool {
    state.in_doubt.iter().all(|doubt| one_doubt_is_known(old, new, doubt.node, doubt.branch))
}

/// Whether the text of the step of each committed transaction is the same.
fn booked_is_known(old: &Program, new: &Program, state: &State) -> bool {
    let text = |program: &Program, id: &Id| {
        let all = program.functions().flat_map(|function| function.nodes().into_iter().map(move |node| (function, node)));
        let (function, step) = all.into_iter().find(|(_, node)| matches!(&node.kind, Kind::Tx { tx, .. } if tx == id))?;
        let Kind::Tx { bind, input, .. } = &step.kind else { return None };
        let vars: Vec<_> = input.reads.iter().chain([bind]).map(|var| program.vars[var].clone()).collect();
        Some(format!("{} {step:?} {vars:?} {:?}", function.name, derived(program, function)))
    };
    state.booked.keys().all(|id| text(old, id).is_some_and(|then| Some(then) == text(new, id)))
}

fn one_doubt_is_known(old: &Program, new: &Program, id: Id, branch: Option<i64>) -> bool {
    let found = |program: &Program| {
        let function = program.functions().find(|function| node(function, id).is_some())?;
        let kind = &node(function, id)?.kind;
        // The branch's own name, or the items that there are.
        let within = branch.map(|branch| match kind {
            Kind::Steps { branches, .. } => {
                branches.iter().find(|one| i64::from(one.id) == branch).map(|one| (one.name.clone(), Vec::new()))
            }
            Kind::StepsFor { list, .. } => Some((Name::default(), program.lists[list].clone())),
            _ => None,
        });
        Some((derived(program, function), name(kind)?.clone(), within.unwrap_or_default()))
    };
    let (Some((derived_then, then, in_then)), Some((derived_now, now, in_now))) = (found(old), found(new)) else { return false };
    let untouched = derived_then == derived_now;
    let branch = match (in_then, in_now) {
        (Some((then, items)), Some((now, items_now))) => (is_same(&then, &now) || then == now && untouched) && items == items_now,
        (then, now) => branch.is_none() && then.is_none() && now.is_none(),
    };
    branch && (is_same(&then, &now) || then == now && untouched)
}

fn frame_is_known(old: &Program, new: &Program, frame: &Frame, state: &State) -> bool {
    let (Some(before), Some(after)) = (function(old, &frame.function), function(new, &frame.function)) else { return false };
    let (Some(then), Some(now)) = (node(before, frame.at), node(after, frame.at)) else { return false };
    let (Some(name_then), Some(name_now)) = (name(&then.kind), name(&now.kind)) else { return false };
    let (places_then, places_now) = (places_of(before, frame), places_of(after, frame));
    if places_then.iter().any(|(id, place)| places_now.get(id).is_some_and(|now| now != place)) || derived_replaced(before, after) {
        return false;
    }
    let untouched = name_then == name_now && derived(old, before) == derived(new, after);
    if !(is_same(name_then, name_now) || untouched) {
        return false;
    }
    if frame.phase == Phase::Pending && !wait_is_known(&then.kind, &now.kind, state) {
        return false;
    }
    let wraps = |program: &Program, kind: &Kind| kind.binds().iter().map(|var| program.vars[var].wrap).collect::<Vec<_>>();
    if !arms_are_known(&then.kind, &now.kind) || frame.phase == Phase::Pending && wraps(old, &then.kind) != wraps(new, &now.kind) {
        return false;
    }
    // A change of value and kind: an effect that was a step leaves the same.
    let loops = |program: &Program, function: &Function| {
        let mut all: Vec<String> = Vec::new();
        for node in function.nodes().into_iter().filter(|node| node.has(frame.at) && node.id != frame.at) {
            if let Kind::For { over, reversed, item, .. } = &node.kind {
                all.push(format!("{} {over:?} {reversed} {:?} {:?}", node.id, program.vars[item], source(program, over)));
            }
        }
        all
    };
    if loops(old, before) != loops(new, after) || sources(old, before) != sources(new, after) {
        return false;
    }
    let needed = |function: &Function| {
        let mut at = BTreeMap::new();
        flow(&function.body, function.result.reads.iter().copied().collect(), &mut at);
        let (before, after) = at.remove(&frame.at).expect("the cut point is in the function");
        let binds = node(function, frame.at).expect("it is there").kind.binds();
        match frame.phase {
            Phase::Done => after,
            Phase::Pending => before,
            Phase::Inside => after.into_iter().filter(|var| !binds.contains(var)).collect(),
        }
    };
    let kept: BTreeSet<Id> = needed(before);
    needed(after).iter().all(|var| {
        let (then, now) = (&old.vars.get(var), &new.vars[var]);
        let Some(then) = then else { return false };
        let same = then.name == now.name || then.was.is_none() && now.was.as_ref() == Some(&then.name);
        kept.contains(var) && then.of == now.of && then.wrap == now.wrap && same && fields_are_known(frame.values.get(var), now, new)
    })
}

/// Whether every field of a struct is stored under its name, or under that of its alias, or may take its default: nothing that is stored
/// may be a field of before.
fn fields_are_known(value: Option<&Value>, var: &Var, program: &Program) -> bool {
    let (Some(Value::Struct(fields)), Type::Struct(of)) = (value, var.of) else { return true };
    let now = &program.structs[&of];
    let is_unread = fields.stored.keys().any(|id| !now.iter().any(|field| field.id == *id));
    now.iter().all(|field| match fields.stored.get(&field.id) {
        Some((name, _)) => *name == field.name || field.alias.as_ref() == Some(name),
        None => (field.default || field.maybe) && !is_unread,
    })
}

/// Whether a `select!` has the arms that it had.
fn arms_are_known(then: &Kind, now: &Kind) -> bool {
    let (Kind::Select { arms: then, .. }, Kind::Select { arms: now, .. }) = (then, now) else { return true };
    let arms = |arms: &[crate::model::program::Arm]| arms.iter().map(|arm| (arm.id, arm.on.clone())).collect::<Vec<_>>();
    arms(then) == arms(now)
}

/// Where a cut point stands, as seen from another one, and how many loops are around both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    side: Side,
    loops: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Before,
    After,
    Neither,
}

/// A step with a written name that the state has passed, and to which the new code may come again; or one that it has not passed, and to
/// which the new code does not come.
pub(crate) fn moved(old: &Program, new: &Program, state: &State) -> Option<Id> {
    state.frames.iter().find_map(|frame| {
        let (before, after) = (function(old, &frame.function)?, function(new, &frame.function)?);
        node(after, frame.at)?;
        let (then, now) = (places_of(before, frame), places_of(after, frame));
        then.into_iter().find_map(|(id, then)| {
            let now = now.get(&id)?;
            (then.has_moved(*now) && is_same(&name_in(before, id)?, &name_in(after, id)?)).then_some(id)
        })
    })
}

/// As [`moved`], for a step that was moved into a function that the new code calls, or out of one.
pub(crate) fn moved_between(old: &Program, new: &Program, state: &State) -> Option<Id> {
    let [frame] = &state.frames[..] else { return None };
    node(&new.work, frame.at)?;
    let seen = |program: &Program| {
        let mut seen: BTreeMap<Id, (usize, Place, Name)> = BTreeMap::new();
        let work = &program.work;
        let places = places_of(work, frame);
        for (id, place) in &places {
            seen.extend(name_in(work, *id).map(|name| (*id, (0, *place, name))));
        }
        let calls = work.nodes().into_iter().filter_map(|node| match node.kind {
            Kind::Call { helper, .. } => Some((helper, *places.get(&node.id)?)),
            _ => None,
        });
        let calls: Vec<_> = calls.collect();
        for (helper, place) in calls.iter().filter(|(helper, _)| calls.iter().filter(|(other, _)| other == helper).count() == 1) {
            let function = &program.helpers[*helper];
            for node in function.nodes() {
                seen.extend(name(&node.kind).map(|name| (node.id, (1 + helper, *place, name.clone()))));
            }
        }
        seen
    };
    let (then, now) = (seen(old), seen(new));
    then.into_iter().find_map(|(id, (function, then, name))| {
        let (function_now, now, name_now) = now.get(&id)?;
        (function != *function_now && then.has_moved(*now) && is_same(&name, name_now)).then_some(id)
    })
}

impl Place {
    fn has_moved(self, now: Place) -> bool {
        matches!((self.side, now.side), (Side::Before, Side::After) | (Side::After, Side::Before))
            || self.side == Side::Before && self.loops == 0 && now.loops > 0
    }
}

fn name_in(function: &Function, id: Id) -> Option<Name> {
    if let Some(node) = node(function, id) {
        return name(&node.kind).cloned();
    }
    function.nodes().into_iter().find_map(|node| match &node.kind {
        Kind::Steps { branches, .. } => branches.iter().find(|branch| branch.id == id).map(|branch| branch.name.clone()),
        _ => None,
    })
}

/// The places of all cut points and branches, as seen from that of a frame.
fn places_of(function: &Function, frame: &Frame) -> BTreeMap<Id, Place> {
    let mut places = places(function, frame.at);
    for node in function.nodes() {
        let Kind::Steps { branches, .. } = &node.kind else { continue };
        let here = Place { side: if frame.phase == Phase::Done { Side::Before } else { Side::After }, loops: 0 };
        let place = if node.id == frame.at { Some(here) } else { places.get(&node.id).copied() };
        places.extend(branches.iter().filter_map(|branch| Some((branch.id, place?))));
    }
    places
}

/// The places of all cut points of a function as seen from that of a node.
fn places(function: &Function, at: Id) -> BTreeMap<Id, Place> {
    let mut found = BTreeMap::new();
    for other in function.nodes().into_iter().filter(|node| node.id != at && name(&node.kind).is_some()) {
        let loops = function
            .nodes()
            .into_iter()
            .filter(|node| matches!(node.kind, Kind::For { .. } | Kind::While { .. }) && node.has(at) && node.has(other.id));
        let side =
            if function.nodes().into_iter().any(|node| parts(node, at, other.id)) { Side::Neither } else { side(function, at, other.id) };
        found.insert(other.id, Place { side, loops: loops.count() });
    }
    found
}

/// Whether two nodes are on different paths of an `if`, or in different arms of a `select!`.
fn parts(node: &Node, a: Id, b: Id) -> bool {
    if !matches!(node.kind, Kind::If { .. } | Kind::Select { .. }) {
        return false;
    }
    let blocks = node.kind.blocks();
    let of = |id: Id| blocks.iter().position(|block| block.iter().any(|node| node.has(id)));
    of(a).zip(of(b)).is_some_and(|(a, b)| a != b)
}

fn side(function: &Function, at: Id, other: Id) -> Side {
    let place = |id: Id| function.nodes().into_iter().position(|node| node.id == id);
    if place(other) < place(at) { Side::Before } else { Side::After }
}

/// Whether a cut point with a derived name is gone and another one is new: they may have one name.
fn derived_replaced(old: &Function, new: &Function) -> bool {
    let unnamed = |function: &Function| -> BTreeSet<Id> {
        let is_unnamed = |node: &&Node| name(&node.kind).is_some_and(|name| name.literal.is_none());
        function.nodes().into_iter().filter(is_unnamed).map(|node| node.id).collect()
    };
    let ids = |function: &Function| -> BTreeSet<Id> { function.nodes().into_iter().map(|node| node.id).collect() };
    !unnamed(old).is_subset(&ids(new)) && !unnamed(new).is_subset(&ids(old))
}

fn source(program: &Program, over: &Over) -> String {
    match over {
        Over::Value { list, .. } | Over::Borrow(list) => program.vars[list].name.clone(),
        Over::Constant(list) => format!("{:?}", program.lists[list]),
        Over::Range(end) => end.to_string(),
    }
}

/// What the loops over variables go over: their places have names that are derived from it.
fn sources(program: &Program, function: &Function) -> Vec<String> {
    let mut all = Vec::new();
    for node in function.nodes().into_iter().filter(|node| has_cut(node)) {
        if let Kind::For { over: over @ (Over::Value { .. } | Over::Borrow(_) | Over::Constant(_)), .. } = &node.kind {
            all.push(format!("{over:?} {}", source(program, over)));
        }
    }
    all.sort();
    all
}

fn has_cut(node: &Node) -> bool {
    let mut found = false;
    node.walk(&mut |node| found |= name(&node.kind).is_some());
    found
}

fn wait_is_known(then: &Kind, now: &Kind, state: &State) -> bool {
    match (then, now) {
        (Kind::Steps { branches: then, .. }, Kind::Steps { branches: now, .. }) => {
            let bodies = |of: &[crate::model::program::Branch]| format!("{of:?}");
            bodies(then) == bodies(now)
                || then
                    .iter()
                    .filter(|branch| state.results.contains_key(&i64::from(branch.id)))
                    .all(|branch| now.iter().any(|other| other.id == branch.id && is_same(&branch.name, &other.name)))
        }
        _ => true,
    }
}

type Vars = BTreeSet<Id>;

/// What is needed before nodes of which `after` is needed behind; and before and behind each cut point.
fn flow(nodes: &[Node], after: Vars, at: &mut BTreeMap<Id, (Vars, Vars)>) -> Vars {
    nodes.iter().rev().fold(after, |after, node| {
        let before = flow_node(node, &after, at);
        // The arms come behind the choice.
        let behind = if matches!(node.kind, Kind::Select { .. }) { before.clone() } else { after };
        at.insert(node.id, (before.clone(), behind));
        before
    })
}

fn flow_node(node: &Node, after: &Vars, at: &mut BTreeMap<Id, (Vars, Vars)>) -> Vars {
    let mut before = after.clone();
    match &node.kind {
        Kind::Local { to: input, .. }
        | Kind::Step { input, .. }
        | Kind::Call { input, .. }
        | Kind::Spawn { input, .. }
        | Kind::Tx { input, .. }
        | Kind::Note { input, .. } => {
            node.kind.binds().iter().for_each(|bind| _ = before.remove(bind));
            before.extend(&input.reads);
        }
        Kind::Set { var, to } => {
            before.remove(var);
            before.extend(&to.reads);
        }
        Kind::SetField { var, to, .. } => {
            before.insert(*var);
            before.extend(&to.reads);
        }
        Kind::Select { bind, arms, .. } => {
            let mut behind = after.clone();
            behind.remove(bind);
            before.clear();
            for arm in arms {
                let mut inside = behind.clone();
                inside.extend(&arm.value.reads);
                let mut inside = flow(&arm.body, inside, at);
                inside.remove(&arm.bind);
                before.extend(inside);
            }
        }
        Kind::Steps { branches, .. } => {
            for branch in branches {
                before.remove(&branch.bind);
            }
            for branch in branches {
                before.extend(&branch.input.reads);
            }
        }
        Kind::StepsFor { bind, .. } | Kind::Recv { bind, .. } => _ = before.remove(bind),
        Kind::Wait { bind, handle, .. } => {
            before.remove(bind);
            before.insert(*handle);
        }
        Kind::Sleep { .. } => {}
        Kind::If { on, then, otherwise } => {
            before = flow(then, after.clone(), at);
            before.extend(flow(otherwise, after.clone(), at));
            before.extend(&on.reads);
        }
        Kind::For { over, item, body, .. } => {
            let list = if let Over::Borrow(list) = over { Some(*list) } else { None };
            for _ in 0..2 {
                before.extend(list);
                let mut inside = flow(body, before.clone(), at);
                inside.remove(item);
                before.extend(inside);
            }
            if let Over::Value { list, .. } = over {
                before.insert(*list);
            }
        }
        Kind::While { counter, body, .. } => {
            before.insert(*counter);
            for _ in 0..2 {
                let inside = flow(body, before.clone(), at);
                before.extend(inside);
            }
            before.remove(counter);
        }
    }
    before
}
