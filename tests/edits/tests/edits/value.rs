//! Values of variables, and which type reads a value of another one as what.
use std::collections::BTreeMap;

use forever_edits::{Number as _, json_of, list_of, maybe_of, mix, pair_of, text_of, wide_of};
use serde_json::json;

use crate::model::program::{Field, Id, Program, Type, Var, Wrap};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Int(i64),
    Text(String),
    List(Vec<i64>),
    /// A child, with the argument that it was given.
    Handle(i64),
    Float(i64),
    Maybe(Option<i64>),
    Pair(i64, i64),
    Json(serde_json::Value),
    Struct(Fields),
    Caught(Box<Value>),
    /// None if the limit has passed.
    Limited(Option<Box<Value>>),
}

/// All fields that are stored of a struct, also those that the present code does not know.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Fields {
    /// With the name by which each is stored.
    pub(crate) stored: BTreeMap<Id, (String, Option<i64>)>,
    /// Whether one took its default beside another one that was not read: it may have been renamed.
    pub(crate) unclear: bool,
}

impl Fields {
    /// What the code reads and writes back: fields that are not stored take their defaults.
    fn read_by(&mut self, fields: &[Field]) {
        let is_unread = self.stored.keys().any(|id| !fields.iter().any(|field| field.id == *id));
        for field in fields {
            if let Some((name, _)) = self.stored.get_mut(&field.id) {
                name.clone_from(&field.name);
            } else if field.default || field.maybe {
                self.stored.insert(field.id, (field.name.clone(), (!field.maybe).then_some(0)));
                self.unclear |= is_unread;
            }
        }
    }
}

/// What the code of a program makes of the values that are stored.
pub(crate) fn restored(values: &BTreeMap<Id, Value>, program: &Program) -> BTreeMap<Id, Value> {
    let mut values = values.clone();
    for (var, value) in &mut values {
        if let (Value::Struct(stored), Some(Var { of: Type::Struct(of), .. })) = (value, program.vars.get(var)) {
            stored.read_by(&program.structs[of]);
        }
    }
    values
}

/// The value that a variable is given.
#[allow(clippy::match_same_arms, reason = "an arm for each type")]
pub(crate) fn made(program: &Program, var: Id, number: i64) -> Value {
    let Var { of, wrap, .. } = &program.vars[&var];
    let value = match of {
        Type::Text => Value::Text(text_of(number)),
        Type::List => Value::List(list_of(number)),
        Type::Int | Type::Handle => Value::Int(number),
        Type::Wide => Value::Int(wide_of(number)),
        Type::Float => Value::Float(number),
        Type::Maybe => Value::Maybe(maybe_of(number)),
        Type::Pair => Value::Pair(pair_of(number).0, pair_of(number).1),
        Type::Json => Value::Json(json_of(number)),
        Type::Either if number % 2 == 0 => Value::Int(number),
        Type::Either => Value::Text(text_of(number)),
        Type::Struct(of) => {
            let field = |field: &Field| {
                let value = mix(i64::from(field.id), &[number]);
                (field.id, (field.name.clone(), if field.maybe { maybe_of(value) } else { Some(value) }))
            };
            Value::Struct(Fields { stored: program.structs[of].iter().map(field).collect(), unclear: false })
        }
    };
    if *wrap == Wrap::Caught { Value::Caught(Box::new(value)) } else { value }
}

/// The value as one of the type that its variable has now.
pub(crate) fn read_as(value: &Value, var: &Var) -> Result<Value, &'static str> {
    match (value, var.wrap) {
        (Value::Caught(inner), Wrap::Caught) => Ok(Value::Caught(Box::new(form(inner, var.of)?))),
        (Value::Caught(_), _) => Err("what was caught is a value now"),
        (_, Wrap::Caught) => Err("a value is one that was caught now"),
        (Value::Limited(None), Wrap::Limited) => Ok(Value::Limited(None)),
        (Value::Limited(None), Wrap::None) => Err("a limit that has passed is a value now"),
        (Value::Limited(Some(inner)), Wrap::None) => form(inner, var.of),
        (Value::Limited(Some(inner)), Wrap::Limited) => Ok(Value::Limited(Some(Box::new(form(inner, var.of)?)))),
        (value, Wrap::Limited) => Ok(Value::Limited(Some(Box::new(form(value, var.of)?)))),
        (value, Wrap::None) => form(value, var.of),
    }
}

#[allow(clippy::match_same_arms, reason = "an arm for each pair of types")]
fn form(value: &Value, of: Type) -> Result<Value, &'static str> {
    const OTHER: &str = "a value is of another type";
    Ok(match (value, of) {
        (Value::Int(_), Type::Int | Type::Wide | Type::Either)
        | (Value::Text(_), Type::Text | Type::Either)
        | (Value::List(_), Type::List)
        | (Value::Handle(_), Type::Handle)
        | (Value::Float(_), Type::Float)
        | (Value::Maybe(_), Type::Maybe)
        | (Value::Pair(..), Type::Pair)
        | (Value::Json(_), Type::Json)
        | (Value::Struct(_), Type::Struct(_)) => value.clone(),
        (Value::Int(number), Type::Float) if is_float(*number) => Value::Float(*number),
        (Value::Int(number), Type::Maybe) => Value::Maybe(Some(*number)),
        (Value::Maybe(Some(number)), Type::Int | Type::Wide | Type::Either) => Value::Int(*number),
        (Value::Maybe(Some(number)), Type::Float) if is_float(*number) => Value::Float(*number),
        (Value::Pair(a, b), Type::List) => Value::List(vec![*a, *b]),
        (Value::List(items), Type::Pair) if items.len() == 2 => Value::Pair(items[0], items[1]),
        (value, Type::Json) => Value::Json(json_form(value).ok_or(OTHER)?),
        (Value::Json(json), of) => {
            let numbers = || json.as_array().and_then(|items| items.iter().map(serde_json::Value::as_i64).collect::<Option<Vec<_>>>());
            let value = json.as_i64().map(Value::Int).or_else(|| json.as_str().map(|text| Value::Text(text.to_owned())));
            let value = value.or_else(|| numbers().map(Value::List)).or_else(|| json.is_null().then_some(Value::Maybe(None)));
            form(&value.ok_or(OTHER)?, of)?
        }
        _ => return Err(OTHER),
    })
}

fn json_form(value: &Value) -> Option<serde_json::Value> {
    Some(match value {
        Value::Int(number) => json!(number),
        Value::Text(text) => json!(text),
        Value::List(items) => json!(items),
        Value::Float(number) => json!(forever_edits::float_of(*number)),
        Value::Maybe(number) => json!(number),
        Value::Pair(a, b) => json!([a, b]),
        Value::Json(json) => json.clone(),
        Value::Handle(_) | Value::Struct(_) | Value::Caught(_) | Value::Limited(_) => return None,
    })
}

fn is_float(number: i64) -> bool {
    number.abs() <= 1 << 53 || number % 2 == 0
}

/// What the value of a variable counts as.
pub(crate) fn number(value: &Value, program: &Program, of: Type) -> Result<i64, &'static str> {
    Ok(match value {
        Value::Int(number) | Value::Float(number) => *number,
        Value::Text(text) => text.number(),
        Value::List(items) => items.number(),
        Value::Maybe(number) => number.number(),
        Value::Pair(a, b) => (*a, *b).number(),
        Value::Json(json) => json.number(),
        Value::Caught(inner) => Ok::<_, ()>(number(inner, program, of)?).number(),
        Value::Limited(inner) => inner.as_ref().map(|inner| number(inner, program, of)).transpose()?.number(),
        Value::Handle(_) => return Err("a handle is read"),
        Value::Struct(fields) => {
            let Type::Struct(of) = of else { return Err("a value is of another type") };
            if fields.unclear {
                return Err("a field may have been renamed");
            }
            let mut numbers = Vec::new();
            for field in &program.structs[&of] {
                let Some((_, stored)) = fields.stored.get(&field.id) else { return Err("a field is missing") };
                numbers.push(match (field.maybe, stored) {
                    (true, stored) => stored.number(),
                    (false, Some(number)) => *number,
                    (false, None) => return Err("a field is none"),
                });
            }
            mix(17, &numbers)
        }
    })
}
