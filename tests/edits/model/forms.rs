//! Edits of what values are: their types, what is around them, their fields.
use forever_testkit::prng::Prng;

use super::edit::{Edit, movable, some};
use super::generate;
use super::places;
use super::program::{Field, Id, Kind, Program, Type, Wrap};

pub(super) fn change(edit: Edit, program: &mut Program, prng: &mut Prng) -> Option<()> {
    match edit {
        Edit::TypeChanged | Edit::FormChanged => {
            let typed = |kind: &Kind| matches!(kind, Kind::Local { .. } | Kind::Step { bind: Some(_), .. });
            let vars: Vec<Id> = movable(program, typed).into_iter().map(|id| places::node(&mut program.work, id).kind.binds()[0]).collect();
            let fits = |var: &Id| match (edit, program.vars[var].of) {
                (_, Type::Struct(_) | Type::Handle) => false,
                (Edit::FormChanged, of) => !readers(of).is_empty(),
                _ => true,
            };
            let mut vars: Vec<Id> = vars.into_iter().filter(fits).collect();
            if edit == Edit::FormChanged && vars.iter().any(|var| program.vars[var].of != Type::Int) && prng.chance(80) {
                vars.retain(|var| program.vars[var].of != Type::Int);
            }
            let var = program.vars.get_mut(&some(prng, &vars)?)?;
            let others: Vec<Type> = match edit {
                Edit::FormChanged => readers(var.of).to_vec(),
                _ => Type::VALUES.into_iter().filter(|of| *of != var.of).collect(),
            };
            var.of = prng.one_of(&others);
        }
        Edit::CatchAdded | Edit::CatchRemoved => {
            let (from, to) = if edit == Edit::CatchAdded { (Wrap::None, Wrap::Caught) } else { (Wrap::Caught, Wrap::None) };
            let steps = movable(program, |kind| matches!(kind, Kind::Step { bind: Some(_), .. }));
            wrap(program, prng, &steps, from, to)?;
        }
        Edit::LimitAdded | Edit::LimitRemoved => {
            let (from, to) = if edit == Edit::LimitAdded { (Wrap::None, Wrap::Limited) } else { (Wrap::Limited, Wrap::None) };
            let receives = places::all(&program.work, |kind| matches!(kind, Kind::Recv { .. }));
            wrap(program, prng, &receives, from, to)?;
        }
        Edit::FieldAdded | Edit::FieldAddedWithDefault => {
            let mut field = generate::field(program, prng);
            (field.default, field.maybe) = match edit {
                Edit::FieldAdded => (false, false),
                _ => prng.one_of(&[(true, false), (true, true), (false, true)]),
            };
            let fields = fields(program, prng)?;
            let at = prng.below(fields.len() + 1);
            fields.insert(at, field);
        }
        Edit::FieldRemoved => {
            let fields = fields(program, prng)?;
            if fields.len() < 2 {
                return None;
            }
            let at = prng.below(fields.len());
            fields.remove(at);
        }
        Edit::FieldRenamed | Edit::FieldRenamedWithAlias => {
            let new = program.new_id();
            let fields = fields(program, prng)?;
            let at = prng.below(fields.len());
            let old = std::mem::replace(&mut fields[at].name, format!("g{new}"));
            if edit == Edit::FieldRenamedWithAlias {
                fields[at].alias = Some(old);
            }
        }
        _ => return None,
    }
    Some(())
}

/// The types that can read some values of one.
fn readers(of: Type) -> &'static [Type] {
    match of {
        Type::Int => &[Type::Float, Type::Maybe, Type::Json, Type::Either, Type::Wide],
        Type::Wide => &[Type::Float, Type::Float, Type::Int, Type::Json, Type::Maybe],
        Type::Float => &[Type::Json, Type::Int, Type::Either],
        Type::Maybe => &[Type::Int, Type::Json, Type::Float],
        Type::Pair => &[Type::List, Type::Json],
        Type::List => &[Type::Pair, Type::Json],
        Type::Text => &[Type::Either, Type::Json],
        Type::Either => &[Type::Text, Type::Int, Type::Json],
        Type::Json => &[Type::Int, Type::Maybe],
        Type::Handle | Type::Struct(_) => &[],
    }
}

fn wrap(program: &mut Program, prng: &mut Prng, nodes: &[Id], from: Wrap, to: Wrap) -> Option<()> {
    let binds: Vec<Id> = nodes.iter().map(|id| places::node(&mut program.work, *id).kind.binds()[0]).collect();
    let fit: Vec<Id> = binds.into_iter().filter(|bind| program.vars[bind].wrap == from).collect();
    program.vars.get_mut(&some(prng, &fit)?)?.wrap = to;
    Some(())
}

/// The fields of a struct that the function has values of.
fn fields<'a>(program: &'a mut Program, prng: &mut Prng) -> Option<&'a mut Vec<Field>> {
    let binds = program.work.nodes().into_iter().flat_map(|node| node.kind.binds());
    let structs: Vec<Id> = binds.filter_map(|bind| if let Type::Struct(of) = program.vars[&bind].of { Some(of) } else { None }).collect();
    program.structs.get_mut(&some(prng, &structs)?)
}
