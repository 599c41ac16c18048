//! Values that hold a `&'static str`: they come back as constants, and nothing else becomes one.
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::super::{constants, from_str_with, to_string};

fn comes_back<T: Serialize + Deserialize<'static> + PartialEq + Debug>(value: &T) {
    let text = to_string(value).unwrap();
    assert_eq!(from_str_with::<T>(&text, None).unwrap(), *value, "{text}");
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Borrows<'a> {
    #[serde(borrow)]
    name: &'a str,
    list: Vec<(String, Option<&'a str>)>,
    owned: Cow<'a, str>,
    path: &'a Path,
}

#[test]
fn constants_come_back_wherever_they_stand() {
    comes_back(&"plain");
    comes_back(&"with \"escapes\"\n and $signs");
    comes_back(&Some("x"));
    comes_back(&BTreeMap::from([("a", 1), ("$b", 2)]));
    comes_back(&BTreeMap::from([((1, "a"), "x")]));
    comes_back(&(&b"bytes"[..], vec![&[1u8, 2][..]]));
    comes_back(&Borrows {
        name: "n\\",
        list: vec![("o".into(), Some("c")), (String::new(), None)],
        owned: "w".into(),
        path: Path::new("/p"),
    });
}

#[test]
fn equal_constants_are_one() {
    let [a, b]: [&'static str; 2] = from_str_with(r#"["only once","only\u0020once"]"#, None).unwrap();
    assert!(std::ptr::eq(a, b));
}

#[test]
fn owned_text_is_no_constant() {
    let _: (String, Cow<'static, str>) = from_str_with(r#"["kept by its owner","and this"]"#, None).unwrap();
    assert!(!constants::has("kept by its owner") && !constants::has("and this"));
}

#[test]
fn what_is_no_text_is_an_error_of_the_first_reading() {
    let error = from_str_with::<(&'static str, u8)>(r#"["a",true]"#, None).unwrap_err().to_string();
    assert!(error.contains("[0]") || error.contains("string"), "{error}");
    from_str_with::<&'static str>("7", None).unwrap_err();
}
