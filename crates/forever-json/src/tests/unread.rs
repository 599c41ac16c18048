//! What a type does not read goes back into its text.
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::super::{from_str_with_unread, to_string};

/// The type as code of before knows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Plan {
    n: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

fn plan(n: u32) -> Plan {
    Plan { n, note: None }
}

/// The text after `change`, and whether everything that was not read is in it.
fn written_back<T: Serialize + Deserialize<'static>>(text: &str, change: impl FnOnce(&mut T)) -> (String, bool) {
    let (mut value, unread) = from_str_with_unread::<T>(text, None).unwrap();
    let unread = unread.expect("there is something that is not read");
    assert!(unread.renamed().is_none(), "{:?}", unread.renamed());
    change(&mut value);
    unread.write_back(&to_string(&value).unwrap()).unwrap()
}

fn is_whole<T: Serialize + Deserialize<'static>>(text: &str, change: impl FnOnce(&mut T), expected: &str) {
    assert_eq!(written_back(text, change), (expected.to_owned(), true));
}

#[test]
fn keys_of_an_object_stay_beside_those_that_change() {
    is_whole(r#"{"budget":7,"n":1}"#, |plan: &mut Plan| plan.n = 2, r#"{"n":2,"budget":7}"#);
    is_whole(r#"{"n":1,"a":{"b":[1,{}]},"$$c":"é"}"#, |_: &mut Plan| {}, r#"{"n":1,"a":{"b":[1,{}]},"$$c":"é"}"#);
    // A field that is written only now is no other type.
    is_whole(r#"{"n":1,"x":0}"#, |plan: &mut Plan| plan.note = Some(String::new()), r#"{"n":1,"note":"","x":0}"#);
    is_whole(r#"{"n":1,"note":"a","x":0}"#, |plan: &mut Plan| plan.note = None, r#"{"n":1,"x":0}"#);
    assert!(from_str_with_unread::<Plan>(r#"{"n":1}"#, None).unwrap().1.is_none());
}

#[test]
fn keys_below_others_stay_where_these_are() {
    type Plans = BTreeMap<String, Option<(u8, Plan)>>;
    let change = |plans: &mut Plans| {
        plans.get_mut("a").unwrap().as_mut().unwrap().1.n = 5;
        plans.remove("b");
        plans.insert("c".to_owned(), Some((1, plan(1))));
    };
    is_whole::<Plans>(r#"{"a":[1,{"n":1,"x":"a"}],"b":[1,{"n":1,"x":"b"}]}"#, change, r#"{"a":[1,{"n":5,"x":"a"}],"c":[1,{"n":1}]}"#);
}

#[test]
fn another_variant_gets_nothing_of_the_one_before() {
    #[derive(Debug, Serialize, Deserialize)]
    enum State {
        Open { n: u32 },
        Shut { n: u32, m: u32 },
        Done(u32),
    }
    #[derive(Debug, Serialize, Deserialize)]
    struct Each {
        of: Either,
    }
    #[derive(Debug, Serialize)]
    #[serde(untagged)]
    enum Either {
        One(Plan),
        Other { m: u32 },
    }
    impl<'de> Deserialize<'de> for Either {
        fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            Plan::deserialize(deserializer).map(Either::One)
        }
    }
    let text = r#"{"Open":{"n":1,"x":2}}"#;
    is_whole(text, |state: &mut State| *state = State::Open { n: 3 }, r#"{"Open":{"n":3,"x":2}}"#);
    is_whole(text, |state: &mut State| *state = State::Shut { n: 1, m: 2 }, r#"{"Shut":{"n":1,"m":2}}"#);
    is_whole(text, |state: &mut State| *state = State::Done(1), r#"{"Done":1}"#);
    // Without a tag: by their keys.
    is_whole(r#"{"of":{"n":1,"x":2}}"#, |each: &mut Each| each.of = Either::Other { m: 1 }, r#"{"of":{"m":1}}"#);
}

#[test]
fn items_of_a_list_keep_theirs() {
    let text = r#"[{"n":1,"x":"a"},{"n":2,"x":"b"},{"n":2,"x":"c"},{"n":3}]"#;
    let texts = |list: &[(u32, &str)]| {
        let item = |(n, x): &(u32, &str)| if x.is_empty() { format!(r#"{{"n":{n}}}"#) } else { format!(r#"{{"n":{n},"x":"{x}"}}"#) };
        format!("[{}]", list.iter().map(item).collect::<Vec<_>>().join(","))
    };
    let check = |change: fn(&mut Vec<Plan>), expected: &[(u32, &str)]| is_whole(text, change, &texts(expected));
    check(|_| {}, &[(1, "a"), (2, "b"), (2, "c"), (3, "")]);
    // Equal ones at their places.
    check(|all| all[0].n = 2, &[(2, "a"), (2, "b"), (2, "c"), (3, "")]);
    check(|all| all.iter_mut().for_each(|item| item.n += 10), &[(11, "a"), (12, "b"), (12, "c"), (13, "")]);
    check(|all| all.push(plan(1)), &[(1, "a"), (2, "b"), (2, "c"), (3, ""), (1, "")]);
    // Unchanged ones wherever they are.
    check(|all| all.reverse(), &[(3, ""), (2, "b"), (2, "c"), (1, "a")]);
    check(|all| drop(all.remove(0)), &[(2, "c"), (2, "b"), (3, "")]);
    check(|all| all.retain(|item| item.n == 3), &[(3, "")]);
    check(Vec::clear, &[]);
    // Which of two a changed one was, is not known.
    let shorter = |all: &mut Vec<Plan>| {
        all.remove(0);
        all[0].n = 7;
    };
    assert_eq!(written_back(text, shorter), (texts(&[(7, ""), (2, "b"), (3, "")]), false));
}

#[test]
fn one_key_that_is_not_read_beside_one_that_is_not_stored_was_renamed() {
    #[derive(Debug, Serialize, Deserialize)]
    struct Order {
        #[serde(alias = "count")]
        n: u32,
        #[serde(default)]
        limit: u32,
        #[serde(default)]
        plans: Vec<Plan>,
    }
    let renamed = |text: &str| {
        let (_, unread) = from_str_with_unread::<Vec<Order>>(text, None).unwrap();
        unread.and_then(|unread| unread.renamed().map(ToString::to_string))
    };
    let said = renamed(r#"[{"n":1,"max":5,"plans":[]}]"#);
    assert_eq!(said.as_deref(), Some(r#"at `[0]`: "max" is stored and not read, and "limit" is not stored"#));
    // Below an alias as well.
    let said = renamed(r#"[{"count":1,"max":5,"plans":[]}]"#);
    assert_eq!(said.as_deref(), Some(r#"at `[0]`: "max" is stored and not read, and "limit" is not stored"#));
    // One of both alone is a field that was taken away, or added.
    assert_eq!(renamed(r#"[{"n":1,"limit":1,"max":5,"plans":[]},{"n":1}]"#), None);
    assert_eq!(renamed(r#"[{"count":1,"limit":1,"max":5,"plans":[]}]"#), None);
    // A field that is left out when it is empty is not missed.
    assert_eq!(renamed(r#"[{"n":1,"limit":1,"plans":[{"n":1,"x":1}]}]"#), None);
}

#[test]
fn a_key_that_is_read_under_another_name_has_what_is_below_it() {
    #[derive(Debug, Serialize, Deserialize)]
    struct Order {
        #[serde(alias = "first")]
        plan: Plan,
    }
    is_whole(r#"{"first":{"n":1,"x":2}}"#, |order: &mut Order| order.plan.n = 2, r#"{"plan":{"n":2,"x":2}}"#);
}

#[test]
fn keys_of_what_serde_buffers_stay_unless_another_may_have_taken_their_place() {
    #[derive(Debug, Serialize, Deserialize)]
    #[serde(tag = "kind")]
    enum Tagged {
        Open { n: u32, plan: Plan },
        Shut { n: u32 },
    }
    #[derive(Debug, Serialize, Deserialize)]
    #[serde(untagged)]
    enum Untagged {
        Plan(Plan),
        Text(String),
    }
    #[derive(Debug, Serialize, Deserialize)]
    struct Flat {
        id: u32,
        #[serde(flatten)]
        plan: Plan,
    }
    #[derive(Debug, Serialize, Deserialize)]
    #[serde(tag = "kind")]
    enum Renamed {
        Open {
            #[serde(alias = "count")]
            n: u32,
        },
    }
    let more = |tagged: &mut Tagged| match tagged {
        Tagged::Open { n, plan } => (*n, plan.n) = (5, 6),
        Tagged::Shut { n } => *n = 7,
    };
    let open = r#"{"kind":"Open","n":1,"plan":{"n":2,"x":3},"y":4}"#;
    is_whole(open, more, r#"{"kind":"Open","n":5,"plan":{"n":6,"x":3},"y":4}"#);
    is_whole(r#"[{"kind":"Shut","n":1,"y":{"z":4}}]"#, |all: &mut Vec<Tagged>| more(&mut all[0]), r#"[{"kind":"Shut","n":7,"y":{"z":4}}]"#);
    let other = |tagged: &mut Tagged| *tagged = Tagged::Shut { n: 1 };
    is_whole(open, other, r#"{"kind":"Shut","n":1}"#);
    is_whole(r#"{"n":1,"x":2}"#, |it: &mut Untagged| *it = Untagged::Plan(plan(3)), r#"{"n":3,"x":2}"#);
    is_whole(r#"{"n":1,"x":2}"#, |it: &mut Untagged| *it = Untagged::Text("a".to_owned()), r#""a""#);
    let flat = r#"{"id":1,"n":2,"x":{"y":3}}"#;
    is_whole(flat, |flat: &mut Flat| flat.plan.n = 5, r#"{"id":1,"n":5,"x":{"y":3}}"#);
    // All keys of a map are its own.
    for text in [r#"{"n":1,"x":2}"#, r#"{"a":{"b":[{"c":null}]}}"#] {
        assert!(from_str_with_unread::<serde_json::Value>(text, None).unwrap().1.is_none());
        assert!(from_str_with_unread::<BTreeMap<String, serde_json::Value>>(text, None).unwrap().1.is_none());
    }
    // It may be a field of another name.
    assert!(from_str_with_unread::<Renamed>(r#"{"kind":"Open","count":1}"#, None).unwrap().1.is_none());
}
