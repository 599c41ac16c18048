//! Whether the judge finds faults: it is shown what a runtime would come to that tells things by their places, or by what they look like.
use std::collections::BTreeMap;

use forever_testkit::sizes::is_night;

use crate::counts::listed;
use crate::deploy::End;
use crate::judge::Expected;
use crate::model;
use crate::model::edit::Edit;
use crate::model::program::{Function, Id, Kind, Program, Type};
use crate::oracle::run;
use crate::state::State;
use crate::value::Value;

/// The code and the state as the runtime with the fault takes them, where that is of interest.
type Fault = fn(&Program, &Program, &State) -> Option<(Program, State)>;

const FAULTS: [(&str, Fault); 8] = [
    ("moved steps are carried out where they are now", |old, new, state| {
        Expected::of(old, new, state).moved.then(|| (new.clone(), state.clone()))
    }),
    ("arms are told by their places", arms_by_place),
    ("transactions are told by their places", transactions_by_place),
    ("a caught value is the value", |_, new, state| {
        Some((new.clone(), with_values(state, |value| if let Value::Caught(inner) = value { Some((**inner).clone()) } else { None })?))
    }),
    ("a limit that has passed is a message", |_, new, state| {
        let null = |value: &Value| (*value == Value::Limited(None)).then_some(Value::Json(serde_json::Value::Null));
        Some((new.clone(), with_values(state, null)?))
    }),
    ("a wide number is rounded", |old, new, state| {
        let is_float =
            |id: &Id| new.vars.get(id).is_some_and(|var| var.of == Type::Float) && old.vars.get(id).is_some_and(|var| var.of == Type::Wide);
        let mut rounded = state.clone();
        let values = rounded.frames.iter_mut().flat_map(|frame| &mut frame.values).filter(|(id, _)| is_float(id));
        values.for_each(|(_, value)| {
            if let Value::Int(number) = value {
                *number &= !1;
            }
        });
        (format!("{rounded:?}") != format!("{state:?}")).then(|| (new.clone(), rounded))
    }),
    ("a renamed field takes its default", fields_by_name),
    ("fields that are not read are lost", without_unread),
];

/// The edits behind which the faults show.
const EDITS: [Edit; 20] = [
    Edit::MovedIntoLoop,
    Edit::MovedIntoIf,
    Edit::MovedIntoArm,
    Edit::EffectMoved,
    Edit::TransactionMoved,
    Edit::TransactionReplaced,
    Edit::StepBeforeTransaction,
    Edit::ArmsExchanged,
    Edit::CatchAdded,
    Edit::CatchRemoved,
    Edit::LimitRemoved,
    Edit::LimitRemoved,
    Edit::LimitRemoved,
    Edit::FormChanged,
    Edit::FormChanged,
    Edit::FormChanged,
    Edit::FormChanged,
    Edit::FieldAddedWithDefault,
    Edit::FieldRemoved,
    Edit::FieldRenamed,
];
/// How many of each, in the gate and in the night: there each fault shows.
const OF_EACH: [usize; 2] = [1, 8];

#[test]
fn judge_finds_planted_faults() {
    let mut found: BTreeMap<&str, usize> = FAULTS.iter().map(|(what, _)| (*what, 0)).collect();
    for case in model::cases_of(7, &EDITS.repeat(OF_EACH[usize::from(is_night())])) {
        for (_, edited) in &case.edits {
            for (old, new) in [(&case.program, edited), (edited, &case.program)] {
                let mut states: Vec<State> = run(old, &State::default()).stops.into_iter().map(|stop| stop.state).collect();
                // What the other code has written first.
                let there = run(new, &State::default()).stops.into_iter().filter(|stop| stop.state.frames.len() == 1);
                states.extend(there.flat_map(|stop| run(old, &stop.state).stops).take(20).map(|stop| stop.state));
                for state in states {
                    for (what, fault) in FAULTS {
                        let Some((program, taken)) = fault(old, new, &state) else { continue };
                        let Ok((result, log)) = run(&program, &taken).end else { continue };
                        let expected = Expected::of(old, new, &state);
                        *found.entry(what).or_default() += usize::from(expected.wrong(&End::Completed(result), &log).is_some());
                    }
                }
            }
        }
    }
    println!("{}", listed(&found));
    let is_found = |found: &usize| *found > 0;
    assert!(found.values().any(is_found) && (!is_night() || found.values().all(is_found)), "{found:?}");
}

fn with_values(state: &State, change: impl Fn(&Value) -> Option<Value>) -> Option<State> {
    let mut changed = state.clone();
    let mut is_other = false;
    for value in changed.frames.iter_mut().flat_map(|frame| frame.values.values_mut()) {
        if let Some(other) = change(value) {
            *value = other;
            is_other = true;
        }
    }
    is_other.then_some(changed)
}

fn kinds(function: &mut Function, change: &mut impl FnMut(&mut Id, &mut Kind)) {
    fn block(nodes: &mut [crate::model::program::Node], change: &mut impl FnMut(&mut Id, &mut Kind)) {
        for node in nodes {
            change(&mut node.id, &mut node.kind);
            node.kind.blocks_mut().into_iter().for_each(|inner| block(inner, change));
        }
    }
    block(&mut function.body, change);
}

fn arms_by_place(old: &Program, new: &Program, state: &State) -> Option<(Program, State)> {
    let mut taken = new.clone();
    let mut is_other = false;
    kinds(&mut taken.work, &mut |id, kind| {
        let then = old.work.nodes().into_iter().find(|node| node.id == *id).map(|node| &node.kind);
        if let (Kind::Select { arms, .. }, Some(Kind::Select { arms: then, .. })) = (kind, then) {
            for (now, then) in arms.iter_mut().zip(then) {
                is_other |= now.id != then.id;
                (now.id, now.on) = (then.id, then.on.clone());
            }
        }
    });
    is_other.then(|| (taken, state.clone()))
}

fn transactions_by_place(old: &Program, new: &Program, state: &State) -> Option<(Program, State)> {
    let tx = |node: &crate::model::program::Node| if let Kind::Tx { tx, .. } = node.kind { Some(tx) } else { None };
    let then: Vec<Id> = old.work.nodes().into_iter().filter_map(tx).collect();
    let (mut taken, mut at, mut is_other) = (new.clone(), 0, false);
    kinds(&mut taken.work, &mut |_, kind| {
        if let Kind::Tx { tx, .. } = kind {
            if let Some(then) = then.get(at) {
                is_other |= *tx != *then;
                *tx = *then;
            }
            at += 1;
        }
    });
    (is_other && !state.booked.is_empty()).then(|| (taken, state.clone()))
}

/// Of the fields that are stored, those are left that a code knows.
fn only_known(state: &State, is_known: impl Fn(Id, &str) -> bool) -> Option<State> {
    with_values(state, |value| {
        let Value::Struct(fields) = value else { return None };
        let mut left = fields.clone();
        left.stored.retain(|id, (name, _)| is_known(*id, name));
        (left != *fields).then_some(Value::Struct(left))
    })
}

fn fields_by_name(_: &Program, new: &Program, state: &State) -> Option<(Program, State)> {
    let fields: Vec<_> = new.structs.values().flatten().collect();
    let is_known = |id: Id, name: &str| fields.iter().all(|field| field.id != id || field.name == name);
    Some((new.clone(), only_known(state, is_known)?))
}

fn without_unread(old: &Program, new: &Program, state: &State) -> Option<(Program, State)> {
    let is_known = |id: Id, _: &str| old.structs.values().flatten().any(|field| field.id == id);
    Some((new.clone(), only_known(state, is_known)?))
}
