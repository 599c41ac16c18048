//! Any shape of serde's data model, written by hand-made calls and read by asking for the same shape.
use std::fmt;

use proptest::prelude::*;
use serde::de::{DeserializeSeed, EnumAccess, Error as _, MapAccess, SeqAccess, VariantAccess, Visitor};
use serde::ser::{
    SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple, SerializeTupleStruct, SerializeTupleVariant,
};
use serde::{Deserializer, Serialize, Serializer};

use super::super::error::Error;
use super::super::read::Reader;
use super::{same, to_string, unordered};

#[derive(Debug, Clone, PartialEq)]
enum Model {
    Unit,
    UnitStruct,
    Bool(bool),
    I8(i8),
    I16(i16),
    I32(i32),
    I64(i64),
    I128(i128),
    U8(u8),
    U16(u16),
    U32(u32),
    U64(u64),
    U128(u128),
    /// Floats by their bits.
    F32(u32),
    F64(u64),
    Char(char),
    Str(String),
    Bytes(Vec<u8>),
    None,
    Some(Box<Model>),
    Newtype(Box<Model>),
    Seq(Vec<Model>),
    Tuple(Vec<Model>),
    TupleStruct(Vec<Model>),
    Map(Vec<(Model, Model)>),
    Struct(Vec<(&'static str, Model)>),
    UnitVariant(&'static str),
    NewtypeVariant(&'static str, Box<Model>),
    TupleVariant(&'static str, Vec<Model>),
    StructVariant(&'static str, Vec<(&'static str, Model)>),
}

impl Serialize for Model {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        macro_rules! all {
            ($compound:expr, $method:ident, $items:expr) => {{
                let mut compound = $compound?;
                for item in $items {
                    compound.$method(item)?;
                }
                compound.end()
            }};
        }
        macro_rules! fields {
            ($compound:expr, $fields:expr) => {{
                let mut compound = $compound?;
                for (name, value) in $fields {
                    compound.serialize_field(name, value)?;
                }
                compound.end()
            }};
        }
        match self {
            Model::Unit => s.serialize_unit(),
            Model::UnitStruct => s.serialize_unit_struct("U"),
            Model::Bool(v) => s.serialize_bool(*v),
            Model::I8(v) => s.serialize_i8(*v),
            Model::I16(v) => s.serialize_i16(*v),
            Model::I32(v) => s.serialize_i32(*v),
            Model::I64(v) => s.serialize_i64(*v),
            Model::I128(v) => s.serialize_i128(*v),
            Model::U8(v) => s.serialize_u8(*v),
            Model::U16(v) => s.serialize_u16(*v),
            Model::U32(v) => s.serialize_u32(*v),
            Model::U64(v) => s.serialize_u64(*v),
            Model::U128(v) => s.serialize_u128(*v),
            Model::F32(v) => s.serialize_f32(f32::from_bits(*v)),
            Model::F64(v) => s.serialize_f64(f64::from_bits(*v)),
            Model::Char(v) => s.serialize_char(*v),
            // By way of `Display`, which must come to the same.
            Model::Str(v) if v.len() % 2 == 1 => s.collect_str(v),
            Model::Str(v) => s.serialize_str(v),
            Model::Bytes(v) => s.serialize_bytes(v),
            Model::None => s.serialize_none(),
            Model::Some(v) => s.serialize_some(v),
            Model::Newtype(v) => s.serialize_newtype_struct("N", v),
            Model::Seq(v) => all!(s.serialize_seq(None), serialize_element, v),
            Model::Tuple(v) => all!(s.serialize_tuple(v.len()), serialize_element, v),
            Model::TupleStruct(v) => all!(s.serialize_tuple_struct("T", v.len()), serialize_field, v),
            Model::Map(v) => {
                let mut map = s.serialize_map(None)?;
                for (key, value) in v {
                    map.serialize_entry(key, value)?;
                }
                map.end()
            }
            Model::Struct(v) => fields!(s.serialize_struct("S", v.len()), v),
            Model::UnitVariant(name) => s.serialize_unit_variant("E", 0, name),
            Model::NewtypeVariant(name, v) => s.serialize_newtype_variant("E", 1, name, v),
            Model::TupleVariant(name, v) => all!(s.serialize_tuple_variant("E", 2, name, v.len()), serialize_field, v),
            Model::StructVariant(name, v) => fields!(s.serialize_struct_variant("E", 3, name, v.len()), v),
        }
    }
}

/// Asks for the shape of a model, as a type of that shape would.
#[derive(Clone, Copy)]
struct Expect<'m>(&'m Model);

impl<'de> DeserializeSeed<'de> for Expect<'_> {
    type Value = Model;

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<Model, D::Error> {
        match self.0 {
            Model::Unit => d.deserialize_unit(self),
            Model::UnitStruct => d.deserialize_unit_struct("U", self),
            Model::Bool(_) => d.deserialize_bool(self),
            Model::I8(_) => d.deserialize_i8(self),
            Model::I16(_) => d.deserialize_i16(self),
            Model::I32(_) => d.deserialize_i32(self),
            Model::I64(_) => d.deserialize_i64(self),
            Model::I128(_) => d.deserialize_i128(self),
            Model::U8(_) => d.deserialize_u8(self),
            Model::U16(_) => d.deserialize_u16(self),
            Model::U32(_) => d.deserialize_u32(self),
            Model::U64(_) => d.deserialize_u64(self),
            Model::U128(_) => d.deserialize_u128(self),
            Model::F32(_) => d.deserialize_f32(self),
            Model::F64(_) => d.deserialize_f64(self),
            Model::Char(_) => d.deserialize_char(self),
            Model::Str(_) => d.deserialize_str(self),
            Model::Bytes(_) => d.deserialize_bytes(self),
            Model::None | Model::Some(_) => d.deserialize_option(self),
            Model::Newtype(_) => d.deserialize_newtype_struct("N", self),
            Model::Seq(_) => d.deserialize_seq(self),
            Model::Tuple(v) => d.deserialize_tuple(v.len(), self),
            Model::TupleStruct(v) => d.deserialize_tuple_struct("T", v.len(), self),
            Model::Map(_) => d.deserialize_map(self),
            Model::Struct(_) => d.deserialize_struct("S", &[], self),
            Model::UnitVariant(_) | Model::NewtypeVariant(..) | Model::TupleVariant(..) | Model::StructVariant(..) => {
                d.deserialize_enum("E", &[], self)
            }
        }
    }
}

/// The integer type asked for, out of any that it may come as.
macro_rules! integer {
    ($self:ident, $v:ident, $($variant:ident)*) => {
        match $self.0 {
            $(Model::$variant(_) => $v.try_into().map(Model::$variant).map_err(|_| E::custom("out of range")),)*
            _ => Err(E::custom("an integer")),
        }
    };
}

fn items<'de, A: SeqAccess<'de>>(models: &[Model], mut seq: A) -> Result<Vec<Model>, A::Error> {
    let mut items = Vec::new();
    for model in models {
        items.push(seq.next_element_seed(Expect(model))?.ok_or_else(|| A::Error::custom("too few items"))?);
    }
    Ok(items)
}

fn fields<'de, A: MapAccess<'de>>(models: &[(&'static str, Model)], mut map: A) -> Result<Vec<(&'static str, Model)>, A::Error> {
    let mut fields = Vec::new();
    for (name, model) in models {
        if map.next_key::<String>()?.as_deref() != Some(name) {
            return Err(A::Error::custom("another field"));
        }
        fields.push((*name, map.next_value_seed(Expect(model))?));
    }
    Ok(fields)
}

impl<'de> Visitor<'de> for Expect<'_> {
    type Value = Model;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }

    fn visit_unit<E>(self) -> Result<Model, E> {
        Ok(if matches!(self.0, Model::UnitStruct) { Model::UnitStruct } else { Model::Unit })
    }

    fn visit_bool<E>(self, v: bool) -> Result<Model, E> {
        Ok(Model::Bool(v))
    }

    fn visit_i64<E: serde::de::Error>(self, v: i64) -> Result<Model, E> {
        integer!(self, v, I8 I16 I32 I64 I128 U8 U16 U32 U64 U128)
    }

    fn visit_u64<E: serde::de::Error>(self, v: u64) -> Result<Model, E> {
        integer!(self, v, I8 I16 I32 I64 I128 U8 U16 U32 U64 U128)
    }

    fn visit_i128<E: serde::de::Error>(self, v: i128) -> Result<Model, E> {
        integer!(self, v, I128)
    }

    fn visit_u128<E: serde::de::Error>(self, v: u128) -> Result<Model, E> {
        integer!(self, v, U128)
    }

    fn visit_f32<E>(self, v: f32) -> Result<Model, E> {
        Ok(Model::F32(v.to_bits()))
    }

    fn visit_f64<E>(self, v: f64) -> Result<Model, E> {
        Ok(Model::F64(v.to_bits()))
    }

    fn visit_str<E: serde::de::Error>(self, v: &str) -> Result<Model, E> {
        match self.0 {
            Model::Char(_) => v.parse().map(Model::Char).map_err(E::custom),
            Model::Str(_) => Ok(Model::Str(v.to_owned())),
            _ => Err(E::custom("a string")),
        }
    }

    fn visit_bytes<E>(self, v: &[u8]) -> Result<Model, E> {
        Ok(Model::Bytes(v.to_owned()))
    }

    fn visit_none<E>(self) -> Result<Model, E> {
        Ok(Model::None)
    }

    fn visit_some<D: Deserializer<'de>>(self, d: D) -> Result<Model, D::Error> {
        match self.0 {
            Model::Some(v) => Ok(Model::Some(Box::new(Expect(v).deserialize(d)?))),
            _ => Err(D::Error::custom("a `Some`")),
        }
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, d: D) -> Result<Model, D::Error> {
        match self.0 {
            Model::Newtype(v) => Ok(Model::Newtype(Box::new(Expect(v).deserialize(d)?))),
            _ => Err(D::Error::custom("a newtype")),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Model, A::Error> {
        match self.0 {
            Model::Seq(v) => items(v, seq).map(Model::Seq),
            Model::Tuple(v) => items(v, seq).map(Model::Tuple),
            Model::TupleStruct(v) => items(v, seq).map(Model::TupleStruct),
            Model::TupleVariant(name, v) => Ok(Model::TupleVariant(name, items(v, seq)?)),
            _ => Err(A::Error::custom("a sequence")),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Model, A::Error> {
        match self.0 {
            Model::Struct(v) => fields(v, map).map(Model::Struct),
            Model::StructVariant(name, v) => Ok(Model::StructVariant(name, fields(v, map)?)),
            Model::Map(v) => {
                let mut entries = Vec::new();
                for (key, value) in v {
                    let key = map.next_key_seed(Expect(key))?.ok_or_else(|| A::Error::custom("too few entries"))?;
                    entries.push((key, map.next_value_seed(Expect(value))?));
                }
                match map.next_key::<serde::de::IgnoredAny>()? {
                    None => Ok(Model::Map(entries)),
                    Some(_) => Err(A::Error::custom("too many entries")),
                }
            }
            _ => Err(A::Error::custom("a map")),
        }
    }

    fn visit_enum<A: EnumAccess<'de>>(self, data: A) -> Result<Model, A::Error> {
        let (found, payload) = data.variant::<String>()?;
        match self.0 {
            Model::UnitVariant(name) if found == *name => payload.unit_variant().map(|()| Model::UnitVariant(name)),
            Model::NewtypeVariant(name, v) if found == *name => {
                payload.newtype_variant_seed(Expect(v)).map(|v| Model::NewtypeVariant(name, Box::new(v)))
            }
            Model::TupleVariant(name, v) if found == *name => payload.tuple_variant(v.len(), self),
            Model::StructVariant(name, _) if found == *name => payload.struct_variant(&[], self),
            _ => Err(A::Error::custom("another variant")),
        }
    }
}

fn read(text: &str, model: &Model) -> Result<Model, Error> {
    let mut reader = Reader::new(text);
    let value = Expect(model).deserialize(&mut reader)?;
    reader.end()?;
    Ok(value)
}

const NAMES: [&str; 14] = ["a", "b", "type", "", "$", "$$", "$some", "$map", "$f64", "$raw", "$what", "x y", "\"\\\0\u{2028}", "null"];

fn text() -> impl Strategy<Value = String> {
    let pieces = prop_oneof![
        proptest::sample::select(NAMES.to_vec()).prop_map(str::to_owned),
        proptest::sample::select(vec!["\\ud800", "\u{7f}", "\u{e9}", "\u{10ffff}", "{\"$some\":null}", "\t\r\n\u{1f}"])
            .prop_map(str::to_owned),
        any::<String>(),
    ];
    proptest::collection::vec(pieces, 0..3).prop_map(|pieces| pieces.concat())
}

fn leaf() -> impl Strategy<Value = Model> {
    let odd32 =
        vec![0, 0x8000_0000, 1, 0x7f80_0000, 0xff80_0000, 0x7fc0_0000, 0xffc0_0000, 0x7f80_0001, 0x15ae_43fd, 0x7f7f_ffff, 0x3f80_0000];
    let odd64 = vec![
        0,
        1 << 63,
        1,
        0x7ff << 52,
        0xfff << 52,
        0x7ff8 << 48,
        0xfff8 << 48,
        (0x7ff << 52) + 1,
        0x3ff0 << 48,
        (0x7ff << 52) - 1,
        0x4340 << 48,
    ];
    prop_oneof![
        8 => prop_oneof![Just(Model::Unit), Just(Model::UnitStruct), Just(Model::None)],
        1 => any::<bool>().prop_map(Model::Bool),
        3 => prop_oneof![
            any::<i8>().prop_map(Model::I8),
            any::<i16>().prop_map(Model::I16),
            any::<i32>().prop_map(Model::I32),
            any::<i64>().prop_map(Model::I64),
            any::<u8>().prop_map(Model::U8),
            any::<u16>().prop_map(Model::U16),
            any::<u32>().prop_map(Model::U32),
            any::<u64>().prop_map(Model::U64),
        ],
        3 => prop_oneof![
            prop_oneof![any::<i128>(), (-2..=2_i128).prop_map(|n| i128::from(i64::MIN) + n), (-2..=2_i128).prop_map(|n| i128::from(u64::MAX) + n)]
                .prop_map(Model::I128),
            prop_oneof![any::<u128>(), Just(u128::MAX), (0..=4_u128).prop_map(|n| u128::from(u64::MAX) - 2 + n)].prop_map(Model::U128),
        ],
        3 => prop_oneof![any::<u32>(), proptest::sample::select(odd32)].prop_map(Model::F32),
        3 => prop_oneof![any::<u64>(), proptest::sample::select(odd64)].prop_map(Model::F64),
        1 => any::<char>().prop_map(Model::Char),
        4 => text().prop_map(Model::Str),
        2 => any::<Vec<u8>>().prop_map(Model::Bytes),
        2 => proptest::sample::select(NAMES.to_vec()).prop_map(Model::UnitVariant),
    ]
}

fn model() -> impl Strategy<Value = Model> {
    let name = || proptest::sample::select(NAMES.to_vec());
    leaf().prop_recursive(10, 60, 5, move |of| {
        let list = proptest::collection::vec(of.clone(), 0..5);
        let fields = proptest::collection::vec((name(), of.clone()), 0..4);
        prop_oneof![
            8 => of.clone().prop_map(|v| Model::Some(Box::new(v))),
            3 => of.clone().prop_map(|v| Model::Newtype(Box::new(v))),
            2 => list.clone().prop_map(Model::Seq),
            2 => list.clone().prop_map(Model::Tuple),
            1 => list.clone().prop_map(Model::TupleStruct),
            6 => proptest::collection::vec((of.clone(), of.clone()), 0..5).prop_map(Model::Map),
            3 => proptest::collection::vec((text().prop_map(Model::Str), of.clone()), 0..5).prop_map(Model::Map),
            2 => fields.clone().prop_map(Model::Struct),
            2 => (name(), of).prop_map(|(name, v)| Model::NewtypeVariant(name, Box::new(v))),
            1 => (name(), list).prop_map(|(name, v)| Model::TupleVariant(name, v)),
            1 => (name(), fields).prop_map(|(name, v)| Model::StructVariant(name, v)),
        ]
    })
}

/// The same value with the entries of every map and the items of every sequence the other way round.
fn reversed(model: &Model) -> Model {
    let all = |models: &[Model]| models.iter().map(reversed).collect::<Vec<_>>();
    match model {
        Model::Some(v) => Model::Some(Box::new(reversed(v))),
        Model::Newtype(v) => Model::Newtype(Box::new(reversed(v))),
        Model::Seq(v) => Model::Seq(all(v).into_iter().rev().collect()),
        Model::Tuple(v) => Model::Tuple(all(v)),
        Model::Map(v) => Model::Map(v.iter().rev().map(|(k, v)| (reversed(k), reversed(v))).collect()),
        other => other.clone(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.max(2000)))]

    #[test]
    fn every_shape_comes_back(value in model()) {
        let text = to_string(&value).unwrap();
        prop_assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok(), "not JSON: {text}");
        let again = read(&text, &value);
        prop_assert_eq!(again.as_ref().ok(), Some(&value), "{}: {:?}", text, again);
        prop_assert_eq!(to_string(&value).unwrap(), text);
    }

    #[test]
    fn order_does_not_change_what_is_the_same(value in model()) {
        let (a, b) = (to_string(&value).unwrap(), to_string(&reversed(&value)).unwrap());
        prop_assert!(same(&a, &b), "{a} {b}");
        prop_assert_eq!(unordered(&a).unwrap(), unordered(&b).unwrap(), "{} {}", a, b);
    }
}
