//! Bindings of every kind of pattern, live across steps.
use serde::{Deserialize, Serialize};

use super::harness::{plain_step as step, same, twin};

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Point {
    x: i32,
    y: i32,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Wrapped(String, u32);

#[derive(Clone, Debug, Serialize, Deserialize)]
enum Shape {
    Dot,
    At(Point),
    Named { name: String, points: Vec<Point> },
    Pair(Wrapped, Box<Shape>),
}

fn shapes() -> [Shape; 5] {
    let at = |x, y| Point { x, y };
    [
        Shape::Dot,
        Shape::At(at(1, 2)),
        Shape::Named { name: "line".into(), points: vec![at(0, 0), at(3, 4)] },
        Shape::Named { name: "none".into(), points: vec![] },
        Shape::Pair(Wrapped("w".into(), 7), Box::new(Shape::Dot)),
    ]
}

twin! {
    async fn destructured(io, p: Point, w: Wrapped) -> anyhow::Result<String> {
        let Point { x, y: why } = p;
        let Wrapped(ref text, mut count) = w;
        let (a, (b, ..), [c, .., d]) = step!("nested", io.did("nested", (1, (2, 3, 4), [5, 6, 7])).await?);
        count += 1;
        step!("after", io.did(format!("after {text}"), ()).await?);
        let _ignored = 5;
        let _ = step!("dropped", io.did("dropped", 9).await?);
        Ok(format!("{x} {why} {text} {count} {a} {b} {c} {d}"))
    }
}

#[test]
fn let_takes_structs_tuples_and_arrays_apart() {
    let seen = same(|| destructured(Point { x: 1, y: 2 }, Wrapped("t".into(), 8)));
    assert_eq!(seen.outcome, r#"Completed("1 2 t 9 1 2 5 7")"#);
}

twin! {
    async fn owned_match(io, shape: Shape) -> anyhow::Result<String> {
        Ok(match shape {
            Shape::Dot => "dot".to_owned(),
            Shape::At(Point { x: px @ 0..=9, y }) => {
                let sum = step!(io.did("sum", px + y).await?);
                format!("{px},{y}={sum}")
            }
            Shape::At(p) => format!("{p:?}"),
            Shape::Named { name, points } if points.is_empty() => {
                step!("empty", io.did(&name, ()).await?);
                name
            }
            Shape::Named { name, mut points } => {
                let last = points.pop();
                step!("named", io.did("named", ()).await?);
                format!("{name} {last:?} {}", points.len())
            }
            Shape::Pair(Wrapped(text, n), boxed) => {
                step!("pair", io.did("pair", ()).await?);
                let Shape::Dot = *boxed else { anyhow::bail!("not a dot") };
                format!("{text}{n}")
            }
        })
    }
}

#[test]
fn the_bindings_of_an_owned_match_live_across_steps() {
    let ends: Vec<_> = shapes().into_iter().map(|s| same(|| owned_match(s.clone())).outcome).collect();
    assert_eq!(
        ends,
        [
            r#"Completed("dot")"#,
            r#"Completed("1,2=3")"#,
            r#"Completed("line Some(Point { x: 3, y: 4 }) 1")"#,
            r#"Completed("none")"#,
            r#"Completed("w7")"#
        ]
    );
}

twin! {
    async fn borrowed_match(io, shape: Shape) -> anyhow::Result<String> {
        let text = match &shape {
            Shape::Dot => String::new(),
            Shape::At(Point { x, .. }) => {
                step!("x", io.did(format!("x {x}"), ()).await?);
                format!("x{x}")
            }
            Shape::Named { name, points } => match points.as_slice() {
                [] => name.clone(),
                [first, rest @ ..] => format!("{name}{}{}", first.x, rest.len()),
            },
            Shape::Pair(w @ Wrapped(text, _), inner) => {
                let n = step!(io.did("n", w.1).await?);
                match &**inner {
                    Shape::Dot => {
                        step!("dot", io.did(format!("dot {text}"), ()).await?);
                        format!("{}{n}{text}", w.0)
                    }
                    other => format!("{other:?}"),
                }
            }
        };
        step!("end", io.did("end", ()).await?);
        Ok(format!("{text} {shape:?}"))
    }
}

#[test]
fn the_bindings_of_a_match_on_a_borrow_are_taken_again() {
    let ends: Vec<_> = shapes().into_iter().map(|s| same(|| borrowed_match(s.clone())).outcome).collect();
    assert_eq!(ends[4], r#"Completed("w7w Pair(Wrapped(\"w\", 7), Dot)")"#);
    assert_eq!(ends[1], r#"Completed("x1 At(Point { x: 1, y: 2 })")"#);
}

twin! {
    async fn nested_borrowed(io, v: Vec<Shape>) -> anyhow::Result<Vec<String>> {
        let mut out = Vec::new();
        for shape in &v {
            match shape {
                Shape::Named { name, points } => {
                    for (i, point) in points.iter().enumerate() {
                        let Point { x, y } = point;
                        let d = step!(io.did(format!("d {i}"), x * x + y * y).await?);
                        out.push(format!("{name}{i}:{d} {x} {y} {}", points.len()));
                    }
                    if let Some(p) = &points.first() { out.push(format!("{}", p.x)); }
                }
                Shape::Pair(Wrapped(text, _), _) if text.len() == 1 => {
                    step!("pair", io.did(text.clone(), ()).await?);
                    out.push(text.clone());
                }
                _ => {}
            }
        }
        Ok(out)
    }
}

#[test]
fn a_match_on_the_item_of_a_borrowed_loop_binds_borrows() {
    let seen = same(|| nested_borrowed(shapes().into()));
    assert_eq!(seen.outcome, r#"Completed(["line0:0 0 0 2", "line1:25 3 4 2", "0", "w"])"#);
}

twin! {
    async fn if_let_borrow(io, o: Option<Wrapped>, v: Vec<u32>) -> anyhow::Result<String> {
        let mut out = String::new();
        if let Some(w) = &o {
            step!("some", io.did("some", ()).await?);
            out += &w.0;
        }
        if let Some(Wrapped(text, n)) = &o && *n > 3 {
            step!("big", io.did(format!("big {n}"), ()).await?);
            out += text;
        }
        if let [first, middle @ .., last] = &v[..] {
            step!("slice", io.did("slice", ()).await?);
            out += &format!("{first}{middle:?}{last}");
        }
        let Some(w) = &o else { return Ok(out) };
        step!("end", io.did("end", ()).await?);
        out += &w.1.to_string();
        Ok(out)
    }
}

#[test]
fn if_let_and_let_else_on_borrows_bind_across_steps() {
    let seen = same(|| if_let_borrow(Some(Wrapped("w".into(), 4)), vec![1, 2, 3, 4]));
    assert_eq!(seen.outcome, r#"Completed("ww1[2, 3]44")"#);
    assert_eq!(same(|| if_let_borrow(None, vec![])).outcome, r#"Completed("")"#);
}

twin! {
    async fn let_else_everywhere(io, items: Vec<Option<Result<u32, String>>>) -> anyhow::Result<u32> {
        let mut sum = 0;
        'items: for item in items {
            loop {
                let Some(result) = item else {
                    step!("skip", io.did("skip", ()).await?);
                    continue 'items;
                };
                let Ok(n) = step!("check", io.did("check", result).await?) else {
                    if step!("stop", io.did("stop", sum > 2).await?) { break 'items }
                    break;
                };
                let [a, b] = step!("split", io.did("split", vec![n, n + 1]).await?)[..] else { unreachable!() };
                sum += a + b;
                break;
            }
            step!("next", io.did("next", ()).await?);
        }
        let Some(half) = sum.checked_div(2) else { return Ok(0) };
        Ok(half)
    }
}

#[test]
fn let_else_with_steps_on_both_sides_continues_and_breaks_outer_loops() {
    let seen = same(|| let_else_everywhere(vec![None, Some(Err("e".into())), Some(Ok(1)), Some(Err("f".into())), Some(Ok(9))]));
    assert_eq!(seen.outcome, "Completed(1)");
    let seen = same(|| let_else_everywhere(vec![Some(Ok(4)), Some(Err("f".into())), Some(Ok(9))]));
    assert_eq!(seen.outcome, "Completed(4)");
}

twin! {
    async fn or_patterns(io, n: Result<u32, i64>) -> anyhow::Result<String> {
        let word = match n {
            Ok(0 | 1) => "few".to_owned(),
            Ok(n @ (2 | 3)) => { step!("some", io.did("some", ()).await?); format!("some {n}") }
            Ok(4..) | Err(..=-1) => { step!("edge", io.did("edge", ()).await?); "edge".into() }
            Err(e @ 0) | Err(e) => step!("e", io.did("e", format!("error {e}")).await?),
        };
        Ok(word)
    }
}

#[test]
fn or_range_and_at_patterns_choose_the_same_arm() {
    let ends: Vec<_> = [Ok(1), Ok(3), Ok(9), Err(-4), Err(0), Err(6)].map(|n| same(|| or_patterns(n)).outcome).into();
    let want = ["few", "some 3", "edge", "edge", "error 0", "error 6"].map(|w| format!("Completed({w:?})"));
    assert_eq!(ends, want);
}

const LIMIT: u32 = 5;

twin! {
    async fn constants(io, n: u32) -> anyhow::Result<String> {
        const LOCAL: u32 = 6;
        let name = "ada";
        let limit = LIMIT;
        let r = match step!("n", io.did("n", n).await?) {
            LIMIT => format!("{name} limit"),
            LOCAL => { step!("local", io.did("local", ()).await?); format!("{name} local {limit}") }
            u32::MAX => "max".into(),
            _ => step!("other", io.did(name, name.to_owned()).await?),
        };
        step!("end", io.did("end", ()).await?);
        Ok(format!("{r} {name} {limit}"))
    }
}

#[test]
fn constants_in_patterns_are_no_bindings() {
    let ends: Vec<_> = [5, 6, u32::MAX, 0].map(|n| same(|| constants(n)).outcome).into();
    let want = ["ada limit ada 5", "ada local 5 ada 5", "max ada 5", "ada ada 5"].map(|w| format!("Completed({w:?})"));
    assert_eq!(ends, want);
}

twin! {
    async fn refs(io, o: Option<String>, pair: (String, u32)) -> anyhow::Result<String> {
        let Some(ref text) = o else { return Ok("none".into()) };
        step!("one", io.did(text.as_str(), ()).await?);
        let (ref name, n) = pair;
        step!("two", io.did(format!("{text}{name}"), ()).await?);
        match pair {
            (ref inner, 3) => {
                step!("three", io.did(format!("{inner}"), ()).await?);
                Ok(format!("{text}{name}{n}{inner}"))
            }
            _ => Ok(format!("{text}{name}{n}")),
        }
    }
}

#[test]
fn ref_bindings_are_borrows_that_are_taken_again() {
    assert_eq!(same(|| refs(Some("a".into()), ("b".into(), 3))).outcome, r#"Completed("ab3b")"#);
    assert_eq!(same(|| refs(Some("a".into()), ("b".into(), 4))).outcome, r#"Completed("ab4")"#);
}

twin! {
    async fn typed(io, text: String, list: Option<Vec<u32>>) -> anyhow::Result<u32> {
        let Some(first): Option<u32> = step!("first", io.did("first", text.parse().ok()).await?) else {
            step!("none", io.did("none", ()).await?);
            return Ok(0);
        };
        let Ok(second): Result<u32, std::num::ParseIntError> = text.repeat(2).parse() else {
            return Ok(step!("too long", io.did("too long", 1).await?));
        };
        let Some(ref all): Option<Vec<u32>> = list else {
            return Ok(step!("no list", io.did("no list", first).await?));
        };
        let [a, ..]: &[u32] = &all[..] else {
            return Ok(step!("empty", io.did("empty", second).await?));
        };
        step!("last", io.did(format!("{a} {all:?}"), ()).await?);
        Ok(first + second + *a)
    }
}

#[test]
fn a_let_else_may_say_its_type() {
    assert_eq!(same(|| typed("x".into(), None)).outcome, "Completed(0)");
    assert_eq!(same(|| typed("123456".into(), None)).outcome, "Completed(1)");
    assert_eq!(same(|| typed("7".into(), None)).outcome, "Completed(7)");
    assert_eq!(same(|| typed("7".into(), Some(vec![]))).outcome, "Completed(77)");
    assert_eq!(same(|| typed("7".into(), Some(vec![1]))).outcome, "Completed(85)");
}

twin! {
    async fn beside_a_change(io, n: i32) -> anyhow::Result<i32> {
        let mut p = Point { x: 0, y: n };
        let mut sum = match p {
            Point { x: 0, ref y } => {
                p.x = 7;
                step!("match", io.did("match", ()).await?);
                *y
            }
            _ => 0,
        };
        if let Point { x: 7, y: ref five @ 1.. } = p {
            p.x = 8;
            step!("if let", io.did("if let", ()).await?);
            sum += *five;
        }
        let mut pair = (Some(2), vec![n], 0);
        while let (Some(left), ref list, _) = pair {
            pair.0 = if left > 1 { Some(left - 1) } else { None };
            step!("while let", io.did("while let", left).await?);
            sum += list[0] * left;
        }
        let (None, ref list, 0) = pair else { return Ok(0) };
        pair.2 = 9;
        step!("let else", io.did("let else", ()).await?);
        sum += list[0];
        Ok(sum + pair.2 + p.x)
    }
}

#[test]
fn a_borrow_under_a_pattern_outlives_a_change_of_what_was_matched_beside_it() {
    let seen = same(|| beside_a_change(5));
    assert_eq!(seen.outcome, "Completed(47)");
}
