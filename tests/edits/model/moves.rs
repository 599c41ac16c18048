//! Edits that move steps, effects and transactions to where they are carried out at another time, or by other code.
use forever_testkit::prng::Prng;

use super::edit::{Edit, is_effect, is_plain_step, movable, some, take};
use super::places;
use super::program::{Branch, Id, Kind, Name, Node, Program, Type, Var, Wrap};

pub(super) fn change(edit: Edit, program: &mut Program, prng: &mut Prng) -> Option<()> {
    match edit {
        Edit::MovedIntoLoop | Edit::MovedIntoIf | Edit::MovedIntoArm => {
            let id = some(prng, &movable(program, works))?;
            let fits = |node: &&Node| match edit {
                Edit::MovedIntoLoop => matches!(node.kind, Kind::For { .. } | Kind::While { .. }),
                Edit::MovedIntoIf => matches!(node.kind, Kind::If { .. }),
                _ => matches!(node.kind, Kind::Select { .. }),
            };
            let around: Vec<Id> = program.work.nodes().into_iter().filter(fits).map(|node| node.id).collect();
            let around = some(prng, &around)?;
            let node = take(program, id);
            let mut blocks = places::node(&mut program.work, around).kind.blocks_mut();
            let number = prng.below(blocks.len());
            let block = &mut *blocks[number];
            let at = prng.below(block.len() + 1);
            block.insert(at, node);
        }
        Edit::MovedIntoSteps => {
            let single = |kind: &Kind| matches!(kind, Kind::Step { name, bind: Some(_), .. } if name.literal.is_some());
            let numbers: Vec<Id> = movable(program, single).into_iter().filter(|id| is_number(program, *id)).collect();
            let id = some(prng, &numbers)?;
            let steps = some(prng, &places::all(&program.work, |kind| matches!(kind, Kind::Steps { .. })))?;
            let Kind::Step { name, bind: Some(bind), label, input, effect, .. } = take(program, id).kind else { return None };
            let branch = Branch { id, name, bind, label: format!("~{label}"), input, effect };
            let Kind::Steps { branches, .. } = &mut places::node(&mut program.work, steps).kind else { return None };
            let at = prng.below(branches.len() + 1);
            branches.insert(at, branch);
        }
        Edit::MovedIntoHelper => {
            let id = some(prng, &movable(program, works))?;
            let helper = prng.below(program.helpers.len());
            let node = take(program, id);
            let body = &mut program.helpers[helper].body;
            let at = prng.below(body.len() + 1);
            body.insert(at, node);
        }
        Edit::TransactionMoved => {
            let id = some(prng, &movable(program, is_transaction))?;
            let node = take(program, id);
            let number = prng.below(places::blocks(&program.work.body));
            let block = places::block(&mut program.work.body, number);
            let at = (1 + prng.below(block.len().max(1))).min(block.len());
            block.insert(at, node);
        }
        Edit::TransactionReplaced => {
            let id = some(prng, &movable(program, is_transaction))?;
            let new = program.new_id();
            let Kind::Tx { tx, key, booked, .. } = &mut places::node(&mut program.work, id).kind else { return None };
            *tx = new;
            *booked = format!("b{new}");
            *key = key.map(|_| new);
        }
        Edit::TransactionRewritten => {
            let id = some(prng, &movable(program, is_transaction))?;
            let new = program.new_id();
            let node = places::node(&mut program.work, id);
            let Kind::Tx { key, label, booked, .. } = &mut node.kind else { return None };
            match prng.below(3) {
                // That a key was taken away is seen where the code comes to the transaction, and by no check.
                0 if key.is_none() => *key = Some(new),
                1 => booked.push('+'),
                _ => label.push('+'),
            }
        }
        Edit::StepBeforeTransaction => {
            let id = some(prng, &movable(program, is_transaction))?;
            let (new, added) = (program.new_id(), program.new_id());
            let (block, at) = places::of(&mut program.work.body, id)?;
            let mut other = block[at].clone();
            let Kind::Tx { name, bind, tx, booked, key, .. } = &mut other.kind else { return None };
            (*bind, *tx) = (added, new);
            *name = Name { literal: Some(format!("s{new}")), was: None };
            *booked = format!("b{new}");
            *key = key.map(|_| new);
            other.id = new;
            block.insert(at, other);
            let var = Var { name: format!("v{added}"), was: None, of: Type::Int, wrap: Wrap::None };
            program.vars.insert(added, var);
        }
        _ => return None,
    }
    Some(())
}

pub(super) fn is_transaction(kind: &Kind) -> bool {
    matches!(kind, Kind::Tx { .. })
}

fn works(kind: &Kind) -> bool {
    is_plain_step(kind) || is_effect(kind) || is_transaction(kind)
}

fn is_number(program: &mut Program, id: Id) -> bool {
    let binds = places::node(&mut program.work, id).kind.binds();
    binds.iter().all(|bind| program.vars[bind].of == Type::Int && program.vars[bind].wrap == Wrap::None)
}
