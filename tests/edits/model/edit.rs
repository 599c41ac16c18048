//! Edits as people make them between two deploys.
use forever_testkit::prng::Prng;

use super::generate::{expr_of, node};
use super::program::{Branch, Function, Id, Kind, Name, Node, Options, Over, Policy, Program, Type};
use super::repair::repair;
use super::{arms, forms, moves, places};

macro_rules! edits {
    ($($name:ident,)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum Edit { $($name,)* }

        impl Edit {
            pub(crate) const ALL: &[Edit] = &[$(Edit::$name,)*];
        }
    };
}

edits! {
    StepAdded, LocalAdded, NodeRemoved, NodeMoved, NeighboursExchanged, StepRenamed, StepRenamedWithWas, DerivedNamed, LocalRenamed,
    LocalRenamedWithWas, BodyChanged, TypeChanged, WrappedInIf, WrappedInFor, WrappedInWhile, Unwrapped, LoopReversed, ListAppended,
    ListInsertedInFront, ListItemRemoved, ListReordered, BranchesExchanged, BranchRemoved, BranchAdded, BranchRenamed, TopicChanged,
    CalleeEdited, CalleeReplaced, EffectMadePlain, PlainMadeEffect, EffectMoved, StepBeforeEffect, ArgumentAdded, ArgumentRemoved,
    LoopMadeBorrow, DerivedStepAdded, OptionsChanged, BranchMadePlain, BranchMadeEffect, ItemsMadePlain, ItemsMadeEffect, AnyAdded,
    MovedIntoLoop, MovedIntoIf, MovedIntoArm, MovedIntoSteps, MovedIntoHelper, TransactionMoved, TransactionReplaced, TransactionRewritten,
    StepBeforeTransaction, FormChanged, CatchAdded, CatchRemoved, LimitAdded, LimitRemoved, FieldAdded, FieldAddedWithDefault, FieldRemoved,
    FieldRenamed, FieldRenamedWithAlias, ArmsExchanged, ArmAdded, ArmRemoved, ArmRenamed, Two, TwoAdded,
}

impl Edit {
    /// The shape that a program must have for it.
    pub(super) fn needs(self) -> Option<&'static str> {
        match self {
            Edit::ListAppended | Edit::ListInsertedInFront | Edit::ListItemRemoved | Edit::ListReordered => Some("constant"),
            Edit::BranchesExchanged
            | Edit::BranchRemoved
            | Edit::BranchAdded
            | Edit::BranchRenamed
            | Edit::BranchMadeEffect
            | Edit::MovedIntoSteps => Some("steps"),
            Edit::TopicChanged | Edit::LimitAdded => Some("recv"),
            Edit::CalleeEdited | Edit::CalleeReplaced | Edit::MovedIntoHelper => Some("call"),
            Edit::EffectMadePlain | Edit::EffectMoved | Edit::StepBeforeEffect => Some("effect"),
            Edit::BranchMadePlain => Some("effects"),
            Edit::ItemsMadePlain => Some("effect for"),
            Edit::ItemsMadeEffect => Some("steps for"),
            Edit::LoopReversed | Edit::MovedIntoLoop => Some("range"),
            Edit::LoopMadeBorrow => Some("value"),
            Edit::DerivedNamed => Some("derived"),
            Edit::MovedIntoIf => Some("if"),
            Edit::MovedIntoArm | Edit::ArmsExchanged | Edit::ArmAdded | Edit::ArmRemoved => Some("select time"),
            Edit::ArmRenamed => Some("select"),
            Edit::TransactionMoved | Edit::TransactionReplaced | Edit::TransactionRewritten | Edit::StepBeforeTransaction => {
                Some("transaction")
            }
            Edit::FormChanged => Some("form"),
            Edit::CatchAdded | Edit::CatchRemoved => Some("caught"),
            Edit::LimitRemoved => Some("limit passes"),
            Edit::FieldAdded | Edit::FieldAddedWithDefault | Edit::FieldRemoved | Edit::FieldRenamed | Edit::FieldRenamedWithAlias => {
                Some("struct")
            }
            _ => None,
        }
    }

    /// Whether it is of the fields of a struct.
    pub(crate) fn is_of_fields(self) -> bool {
        let all = [Edit::FieldAdded, Edit::FieldAddedWithDefault, Edit::FieldRemoved, Edit::FieldRenamed, Edit::FieldRenamedWithAlias];
        all.contains(&self)
    }

    /// What was done, and the program after it; none if there is nothing to do it to.
    pub(crate) fn apply(self, program: &Program, prng: &mut Prng) -> Option<(Vec<Edit>, Program)> {
        let mut edited = program.clone();
        let mut done = vec![self];
        match self {
            Edit::Two => {
                for _ in 0..2 {
                    let edit = Edit::ALL[prng.below(Edit::Two as usize)];
                    let (inner, after) = edit.apply(&edited, prng)?;
                    done.extend(inner);
                    edited = after;
                }
            }
            Edit::TwoAdded => {
                for edit in [Edit::StepAdded, Edit::AnyAdded] {
                    change(edit, &mut edited, prng)?;
                }
            }
            Edit::CalleeEdited => {
                let called: Vec<usize> = called(&edited.work);
                let at = some(prng, &called)?;
                let inner = prng.one_of(&Edit::ALL[..Edit::Two as usize]);
                if matches!(
                    inner,
                    Edit::CalleeEdited | Edit::CalleeReplaced | Edit::ArgumentAdded | Edit::ArgumentRemoved | Edit::MovedIntoHelper
                ) {
                    return None;
                }
                done.push(inner);
                std::mem::swap(&mut edited.work, &mut edited.helpers[at]);
                let ok = change(inner, &mut edited, prng);
                std::mem::swap(&mut edited.work, &mut edited.helpers[at]);
                ok?;
            }
            _ => change(self, &mut edited, prng)?,
        }
        repair(&mut edited);
        let text = |program: &Program| format!("{:?}{:?}{:?}", program.work, program.helpers, program.structs);
        (text(&edited) != text(program) || edited.lists != program.lists || edited.vars != program.vars).then_some((done, edited))
    }
}

fn called(function: &Function) -> Vec<usize> {
    let helper = |node: &Node| if let Kind::Call { helper, .. } = node.kind { Some(helper) } else { None };
    function.nodes().into_iter().filter_map(helper).collect()
}

pub(super) fn some<T: Clone>(prng: &mut Prng, of: &[T]) -> Option<T> {
    if of.is_empty() { None } else { Some(prng.one_of(of)) }
}

/// Puts nodes at a random place of the body of `work`.
fn insert(program: &mut Program, prng: &mut Prng, nodes: Vec<Node>) {
    let number = prng.below(places::blocks(&program.work.body));
    let block = places::block(&mut program.work.body, number);
    let at = prng.below(block.len() + 1);
    block.splice(at..at, nodes);
}

/// The variables of `work`.
fn known(program: &Program) -> Vec<Id> {
    let binds = program.work.nodes().into_iter().flat_map(|node| node.kind.binds());
    program.work.args.iter().copied().chain(binds).collect()
}

fn is_top(program: &Program, id: Id) -> bool {
    program.work.body.first().is_some_and(|node| node.id == id)
}

/// All nodes but the first, which declares the sum.
pub(super) fn movable(program: &Program, fits: impl Fn(&Kind) -> bool) -> Vec<Id> {
    places::all(&program.work, fits).into_iter().filter(|id| !is_top(program, *id)).collect()
}

pub(super) fn take(program: &mut Program, id: Id) -> Node {
    let (block, at) = places::of(&mut program.work.body, id).expect("the node is in the function");
    block.remove(at)
}

fn step_name(kind: &mut Kind) -> Option<(&mut Name, Option<Id>)> {
    match kind {
        Kind::Step { name, bind, .. } => Some((name, *bind)),
        Kind::Call { name, bind, .. }
        | Kind::StepsFor { name, bind, .. }
        | Kind::Recv { name, bind, .. }
        | Kind::Select { name, bind, .. }
        | Kind::Tx { name, bind, .. }
        | Kind::Spawn { name, bind, .. }
        | Kind::Wait { name, bind, .. } => Some((name, Some(*bind))),
        Kind::Sleep { name } | Kind::Steps { name, .. } => Some((name, None)),
        _ => None,
    }
}

fn has_name(kind: &Kind, literal: bool) -> bool {
    step_name(&mut kind.clone()).is_some_and(|(name, _)| name.literal.is_some() == literal)
}

pub(super) fn is_plain_step(kind: &Kind) -> bool {
    matches!(kind, Kind::Step { effect: None, .. })
}

pub(super) fn is_effect(kind: &Kind) -> bool {
    matches!(kind, Kind::Step { effect: Some(_), .. })
}

/// One change of `work`.
#[allow(clippy::too_many_lines)]
fn change(edit: Edit, program: &mut Program, prng: &mut Prng) -> Option<()> {
    match edit {
        Edit::StepAdded | Edit::DerivedStepAdded | Edit::AnyAdded => {
            let shape = match edit {
                Edit::StepAdded => "step",
                Edit::DerivedStepAdded => prng.one_of(&["derived", "unnamed"]),
                _ => prng.one_of(&[
                    "steps",
                    "steps for",
                    "recv",
                    "sleep",
                    "spawn",
                    "value",
                    "constant",
                    "effect",
                    "checked",
                    "effects",
                    "effect for",
                    "if",
                    "select",
                    "select time",
                    "transaction",
                    "struct",
                    "form",
                ]),
            };
            let known = known(program);
            let nodes = node(program, prng, known, shape);
            insert(program, prng, nodes);
        }
        Edit::LocalAdded => {
            let known = known(program);
            let nodes = node(program, prng, known, "local");
            let added = nodes[0].kind.binds()[0];
            insert(program, prng, nodes);
            if prng.chance(60) {
                program.work.result.reads.push(added);
            }
        }
        Edit::NodeRemoved => {
            let id = some(prng, &movable(program, |_| true))?;
            take(program, id);
        }
        Edit::NodeMoved | Edit::EffectMoved => {
            let id = some(prng, &movable(program, |kind| edit == Edit::NodeMoved || is_effect(kind)))?;
            let node = take(program, id);
            let number = prng.below(places::blocks(&program.work.body));
            let block = places::block(&mut program.work.body, number);
            let at = 1 + prng.below(block.len().max(1));
            let at = at.min(block.len());
            block.insert(at, node);
        }
        Edit::NeighboursExchanged => {
            let number = prng.below(places::blocks(&program.work.body));
            let from = usize::from(number == 0);
            let block = places::block(&mut program.work.body, number);
            if block.len() < from + 2 {
                return None;
            }
            let at = from + prng.below(block.len() - from - 1);
            block.swap(at, at + 1);
        }
        Edit::StepRenamed | Edit::StepRenamedWithWas => {
            let id = some(prng, &movable(program, |kind| has_name(kind, true)))?;
            let new = program.new_id();
            let (name, _) = step_name(&mut places::node(&mut program.work, id).kind)?;
            let old = name.literal.replace(format!("x{new}"));
            if edit == Edit::StepRenamedWithWas {
                name.was = old;
            }
        }
        Edit::DerivedNamed => {
            let id = some(prng, &movable(program, |kind| has_name(kind, false)))?;
            let new = program.new_id();
            let vars = program.vars.clone();
            let (name, bind) = step_name(&mut places::node(&mut program.work, id).kind)?;
            let derived = bind.map(|bind| vars[&bind].name.clone());
            match prng.below(3) {
                0 if derived.is_some() => name.literal = derived,
                1 if derived.is_some() => *name = Name { literal: Some(format!("x{new}")), was: derived },
                _ => name.literal = Some(format!("x{new}")),
            }
        }
        Edit::LocalRenamed | Edit::LocalRenamedWithWas => {
            let binds = |kind: &Kind| !matches!(kind, Kind::For { .. } | Kind::Steps { .. }) && !kind.binds().is_empty();
            let all = places::all(&program.work, |kind| binds(kind) || edit == Edit::LocalRenamed && matches!(kind, Kind::For { .. }));
            let id = some(prng, &all)?;
            let new = program.new_id();
            let kind = &mut places::node(&mut program.work, id).kind;
            let var = kind.binds()[0];
            let old = std::mem::replace(&mut program.vars.get_mut(&var)?.name, format!("w{new}"));
            if edit == Edit::LocalRenamedWithWas {
                if let Some((name, Some(_))) = step_name(kind)
                    && name.literal.is_none()
                    && name.was.is_none()
                {
                    name.was = Some(old.clone());
                }
                let var = program.vars.get_mut(&var)?;
                var.was.get_or_insert(old);
            }
        }
        Edit::BodyChanged => {
            let id = some(prng, &movable(program, |kind| matches!(kind, Kind::Step { .. } | Kind::Steps { .. } | Kind::StepsFor { .. })))?;
            match &mut places::node(&mut program.work, id).kind {
                Kind::Step { label, .. } | Kind::StepsFor { label, .. } => label.push('+'),
                Kind::Steps { branches, .. } => {
                    let at = prng.below(branches.len());
                    branches[at].label.push('+');
                }
                _ => return None,
            }
        }
        Edit::WrappedInIf | Edit::WrappedInFor | Edit::WrappedInWhile => {
            let id = some(prng, &movable(program, |kind| !matches!(kind, Kind::Local { .. })))?;
            let (new, item) = (program.new_id(), program.new_var(Type::Int));
            let on = expr_of(i64::from(prng.below(4_u32)), &program.work.args);
            let (block, at) = places::of(&mut program.work.body, id)?;
            let body = vec![block.remove(at)];
            let kind = match edit {
                Edit::WrappedInIf => Kind::If { on, then: body, otherwise: Vec::new() },
                Edit::WrappedInFor => Kind::For { over: Over::Range(2), reversed: false, item, body },
                _ => Kind::While { counter: item, rounds: 2, body },
            };
            block.insert(at, Node { id: new, kind });
        }
        Edit::Unwrapped => {
            let id = some(prng, &places::all(&program.work, |kind| !kind.blocks().is_empty()))?;
            let (block, at) = places::of(&mut program.work.body, id)?;
            let mut node = block.remove(at);
            let inside: Vec<Node> = node.kind.blocks_mut().into_iter().flat_map(std::mem::take).collect();
            block.splice(at..at, inside);
        }
        Edit::LoopReversed => {
            let id = some(prng, &places::all(&program.work, |kind| matches!(kind, Kind::For { .. })))?;
            let Kind::For { reversed, .. } = &mut places::node(&mut program.work, id).kind else { return None };
            *reversed = !*reversed;
        }
        Edit::ListAppended | Edit::ListInsertedInFront | Edit::ListItemRemoved | Edit::ListReordered => {
            let used = |node: &Node| match node.kind {
                Kind::For { over: Over::Constant(list), .. } | Kind::StepsFor { list, .. } => Some(list),
                _ => None,
            };
            let lists: Vec<Id> = program.work.nodes().into_iter().filter_map(used).collect();
            let list = program.lists.get_mut(&some(prng, &lists)?)?;
            let at = prng.below(list.len());
            match edit {
                Edit::ListAppended => list.push(777),
                Edit::ListInsertedInFront => list.insert(0, 777),
                Edit::ListItemRemoved => drop(list.remove(at)),
                _ => {
                    let by = 1 + prng.below(list.len() - 1);
                    list.rotate_left(by);
                }
            }
        }
        Edit::BranchesExchanged | Edit::BranchRemoved | Edit::BranchAdded | Edit::BranchRenamed => {
            let id = some(prng, &places::all(&program.work, |kind| matches!(kind, Kind::Steps { .. })))?;
            let (new, bind) = (program.new_id(), program.new_var(Type::Int));
            let args = program.work.args.clone();
            let Kind::Steps { branches, .. } = &mut places::node(&mut program.work, id).kind else { return None };
            let at = prng.below(branches.len());
            match edit {
                Edit::BranchesExchanged => branches.rotate_left(1),
                Edit::BranchRemoved if branches.len() > 2 => drop(branches.remove(at)),
                Edit::BranchAdded => {
                    let literal = branches[0].name.literal.as_ref().map(|_| format!("b{new}"));
                    let name = Name { literal, was: None };
                    let effect = prng.chance(30).then(|| prng.one_of(&[Policy::Park, Policy::Check]));
                    branches.insert(at, Branch { id: new, name, bind, label: format!("~b{new}"), input: expr_of(1, &args), effect });
                }
                Edit::BranchRenamed => {
                    let old = branches[at].name.literal.replace(format!("x{new}"));
                    branches[at].name.was = old.filter(|_| prng.chance(50));
                }
                _ => return None,
            }
        }
        Edit::TopicChanged => {
            let id = some(prng, &places::all(&program.work, |kind| matches!(kind, Kind::Recv { .. })))?;
            let Kind::Recv { topic, .. } = &mut places::node(&mut program.work, id).kind else { return None };
            topic.push('x');
        }
        Edit::CalleeReplaced => {
            let id = some(prng, &places::all(&program.work, |kind| matches!(kind, Kind::Call { .. })))?;
            let Kind::Call { helper, .. } = &mut places::node(&mut program.work, id).kind else { return None };
            *helper = 1 - *helper;
        }
        Edit::EffectMadePlain | Edit::PlainMadeEffect => {
            let id = some(prng, &movable(program, if edit == Edit::EffectMadePlain { is_effect } else { is_plain_step }))?;
            let Kind::Step { effect, .. } = &mut places::node(&mut program.work, id).kind else { return None };
            *effect = if effect.is_some() { None } else { Some(prng.one_of(&[Policy::Park, Policy::Check])) };
        }
        Edit::BranchMadePlain | Edit::BranchMadeEffect => {
            let plain = edit == Edit::BranchMadeEffect;
            let has = |kind: &Kind| matches!(kind, Kind::Steps { branches, .. } if branches.iter().any(|branch| branch.effect.is_none() == plain));
            let id = some(prng, &places::all(&program.work, has))?;
            let Kind::Steps { branches, .. } = &mut places::node(&mut program.work, id).kind else { return None };
            let fit: Vec<usize> = (0..branches.len()).filter(|at| branches[*at].effect.is_none() == plain).collect();
            branches[prng.one_of(&fit)].effect = plain.then(|| prng.one_of(&[Policy::Park, Policy::Check]));
        }
        Edit::ItemsMadePlain | Edit::ItemsMadeEffect => {
            let plain = edit == Edit::ItemsMadeEffect;
            let has = |kind: &Kind| matches!(kind, Kind::StepsFor { effect, .. } if effect.is_none() == plain);
            let id = some(prng, &places::all(&program.work, has))?;
            let Kind::StepsFor { effect, .. } = &mut places::node(&mut program.work, id).kind else { return None };
            *effect = plain.then(|| prng.one_of(&[Policy::Park, Policy::Check]));
        }
        Edit::OptionsChanged => {
            let id = some(prng, &movable(program, |kind| matches!(kind, Kind::Step { .. })))?;
            let Kind::Step { options, .. } = &mut places::node(&mut program.work, id).kind else { return None };
            let both = [Options { retry: true, timeout: false }, Options { retry: false, timeout: true }];
            *options = if *options == Options::default() { prng.one_of(&both) } else { Options::default() };
        }
        Edit::StepBeforeEffect => {
            let id = some(prng, &movable(program, is_effect))?;
            let known = known(program);
            let shape = prng.one_of(&["step", "effect", "checked", "sleep", "spawn", "note", "steps", "effects", "transaction"]);
            let nodes = node(program, prng, known, shape);
            let (block, at) = places::of(&mut program.work.body, id)?;
            block.splice(at..at, nodes);
        }
        Edit::ArgumentAdded => {
            let added = program.new_var(Type::Int);
            program.work.args.push(added);
            let steps = places::all(&program.work, |kind| matches!(kind, Kind::Step { .. }));
            match some(prng, &steps) {
                Some(id) if prng.chance(60) => {
                    let Kind::Step { input, .. } = &mut places::node(&mut program.work, id).kind else { return None };
                    input.reads.push(added);
                }
                _ => program.work.result.reads.push(added),
            }
        }
        Edit::ArgumentRemoved => drop(program.work.args.pop()?),
        Edit::LoopMadeBorrow => {
            let lists = |kind: &Kind| matches!(kind, Kind::For { over: Over::Value { .. } | Over::Borrow(_), .. });
            let id = some(prng, &places::all(&program.work, lists))?;
            let Kind::For { over, .. } = &mut places::node(&mut program.work, id).kind else { return None };
            *over = match over {
                Over::Value { list, .. } => Over::Borrow(*list),
                Over::Borrow(list) => Over::Value { list: *list, cloned: false },
                _ => return None,
            };
        }
        Edit::ArmsExchanged | Edit::ArmAdded | Edit::ArmRemoved | Edit::ArmRenamed => arms::change(edit, program, prng)?,
        Edit::TypeChanged
        | Edit::FormChanged
        | Edit::CatchAdded
        | Edit::CatchRemoved
        | Edit::LimitAdded
        | Edit::LimitRemoved
        | Edit::FieldAdded
        | Edit::FieldAddedWithDefault
        | Edit::FieldRemoved
        | Edit::FieldRenamed
        | Edit::FieldRenamedWithAlias => forms::change(edit, program, prng)?,
        Edit::MovedIntoLoop
        | Edit::MovedIntoIf
        | Edit::MovedIntoArm
        | Edit::MovedIntoSteps
        | Edit::MovedIntoHelper
        | Edit::TransactionMoved
        | Edit::TransactionReplaced
        | Edit::TransactionRewritten
        | Edit::StepBeforeTransaction => moves::change(edit, program, prng)?,
        Edit::CalleeEdited | Edit::Two | Edit::TwoAdded => return None,
    }
    Some(())
}
