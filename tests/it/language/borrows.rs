//! Plain borrows live across steps: not kept, taken again.
use serde::{Deserialize, Serialize};

use super::harness::{names, plain_step as step, same, twin};

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Plan {
    name: String,
    inner: Inner,
    list: Vec<Inner>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Inner {
    items: Vec<u32>,
    tag: Option<String>,
}

fn plan() -> Plan {
    let inner = |n| Inner { items: vec![n, n + 1], tag: (n > 1).then(|| format!("t{n}")) };
    Plan { name: "plan".into(), inner: inner(1), list: vec![inner(2), inner(3)] }
}

twin! {
    async fn shared(io, plan: Plan) -> anyhow::Result<String> {
        let i = 1;
        let a = &plan;
        let b = &plan.inner.items;
        let c = &plan.list[0];
        let d = &plan.list[1..];
        let e = &plan.list[i].items[i];
        let f = &a.inner;
        let g = &*f;
        let h: &str = &plan.name;
        step!("one", io.did(format!("{} {}", b.len(), h), ()).await?);
        let x = &c.items;
        step!("two", io.did(format!("{} {}", x.len(), d.len()), ()).await?);
        Ok(format!("{} {b:?} {x:?} {e} {:?} {}", a.name, g.tag, f.items.len()))
    }
}

#[test]
fn borrows_of_places_are_taken_again() {
    let seen = same(|| shared(plan()));
    assert_eq!(seen.outcome, r#"Completed("plan [1, 2] [2, 3] 4 None 2")"#);
    assert_eq!(seen.log, ["2 plan", "2 1"]);
    for snapshot in &seen.snapshots {
        assert_eq!(names(snapshot), ["i", "plan"], "{snapshot}");
    }
}

twin! {
    async fn shadowed_owner(io, text: String) -> anyhow::Result<String> {
        let y = &text;
        let text = format!("other {text}");
        step!("one", io.did("one", ()).await?);
        let z = &text;
        step!("two", io.did("two", ()).await?);
        Ok(format!("{y} {z} {text}"))
    }
}

#[test]
fn a_borrow_outlives_the_shadowing_of_its_owner() {
    assert_eq!(same(|| shadowed_owner("t".into())).outcome, r#"Completed("t other t other t")"#);
}

twin! {
    async fn mutable(io, plan: Plan) -> anyhow::Result<String> {
        let mut plan = plan;
        let y = &mut plan.inner.items;
        y.push(7);
        let n = step!(io.did("n", y.len()).await?);
        y.push(8);
        step!("again", io.did(format!("{y:?}"), ()).await?);
        y[0] = n as u32;
        *y.last_mut().unwrap() += 1;
        let tag = &mut plan.inner.tag;
        *tag = Some("set".to_owned());
        step!("tag", io.did("tag", ()).await?);
        if let Some(t) = tag { t.push('!'); }
        Ok(format!("{plan:?}"))
    }
}

#[test]
fn a_mutable_borrow_ends_at_a_step_and_is_taken_again() {
    let seen = same(|| mutable(plan()));
    assert_eq!(seen.log, ["n", "[1, 2, 7, 8]", "tag"]);
    assert!(seen.outcome.contains("items: [3, 2, 7, 9], tag: Some(\\\"set!\\\")"), "{}", seen.outcome);
}

twin! {
    async fn mutable_in_a_loop(io, v: Vec<u32>) -> anyhow::Result<Vec<u32>> {
        let mut v = v;
        let last = &mut v;
        for i in 0..3 {
            last.push(i);
            if step!("swap", io.did("swap", i == 1).await?) {
                last.swap(0, 1);
            }
            let first = &mut last[0];
            *first += 10;
            step!("first", io.did("first", ()).await?);
            *first += 100;
        }
        Ok(v)
    }
}

#[test]
fn mutable_borrows_are_taken_again_in_each_round() {
    assert_eq!(same(|| mutable_in_a_loop(vec![5])).outcome, "Completed([220, 115, 1, 2])");
}

twin! {
    async fn number_through_a_borrow(io, n: u32) -> anyhow::Result<u32> {
        let mut total = n;
        let t = &mut total;
        *t += step!("a", io.did("a", 1).await?);
        *t += step!("b", io.did("b", *t).await?);
        let seen = &*t;
        step!("c", io.did(format!("{seen}"), ()).await?);
        Ok(*seen + total)
    }
}

#[test]
fn compound_assignment_through_a_mutable_borrow() {
    let seen = same(|| number_through_a_borrow(4));
    assert_eq!((seen.outcome.as_str(), seen.log[2].as_str()), ("Completed(20)", "10"));
}

twin! {
    async fn borrow_of_a_binding(io, grid: Vec<Vec<(String, u32)>>) -> anyhow::Result<Vec<String>> {
        let mut out = vec![];
        for row in &grid {
            let first = &row[0];
            let (name, n) = first;
            for cell in row {
                let text = &cell.0;
                step!("cell", io.did(format!("{text} {name}"), ()).await?);
                out.push(format!("{text}{name}{n}{}", cell.1));
            }
            step!("row", io.did(name.clone(), ()).await?);
            out.push(first.0.clone());
        }
        Ok(out)
    }
}

#[test]
fn a_binding_out_of_a_borrow_counts_as_a_borrow() {
    let seen = same(|| borrow_of_a_binding(vec![vec![("a".into(), 1), ("b".into(), 2)], vec![("c".into(), 3)]]));
    assert_eq!(seen.outcome, r#"Completed(["aa11", "ba12", "a", "cc33", "c"])"#);
}

twin! {
    async fn conditionally(io, plan: Plan, n: u32) -> anyhow::Result<usize> {
        let mut len = 0;
        if n > 1 {
            let list = &plan.list;
            step!("in", io.did("in", ()).await?);
            len += list.len();
            if n > 2 {
                let deep = &list[0].items;
                step!("deep", io.did("deep", ()).await?);
                len += deep.len();
            }
        }
        step!("out", io.did("out", ()).await?);
        Ok(len + plan.name.len())
    }
}

#[test]
fn borrows_inside_branches_are_taken_again_there() {
    assert_eq!(same(|| conditionally(plan(), 1)).outcome, "Completed(4)");
    assert_eq!(same(|| conditionally(plan(), 2)).outcome, "Completed(6)");
    assert_eq!(same(|| conditionally(plan(), 3)).outcome, "Completed(8)");
}

const GREETING: &str = "hello";
static WORDS: [&str; 2] = ["a", "b"];

twin! {
    async fn constant_borrows(io, n: u32) -> anyhow::Result<String> {
        let name = "ada";
        let greeting = GREETING;
        let words = &WORDS;
        let bytes = b"xyz";
        step!("a", io.did(name, n).await?);
        for w in WORDS.iter() { step!("w", io.did(*w, ()).await?); }
        Ok(format!("{name} {greeting} {words:?} {}", bytes.len()))
    }
}

#[test]
fn literals_and_constants_are_made_again() {
    let seen = same(|| constant_borrows(1));
    assert_eq!(seen.outcome, r#"Completed("ada hello [\"a\", \"b\"] 3")"#);
    assert_eq!(names(&seen.snapshots[0]), Vec::<String>::new());
}

twin! {
    async fn match_then_use(io, o: Option<Plan>) -> anyhow::Result<String> {
        let text = match &o {
            Some(Plan { name, inner: Inner { items, tag: None }, .. }) if items.len() > 1 => {
                let n = step!(io.did(format!("n {name}"), items.len()).await?);
                let Some(first) = items.first().copied() else { unreachable!() };
                step!("first", io.did(format!("{first}"), ()).await?);
                format!("{name} {n} {first} {items:?}")
            }
            Some(plan) => { step!("some", io.did("some", ()).await?); plan.name.clone() }
            None => step!("none", io.did("none", "none".to_owned()).await?),
        };
        step!("end", io.did("end", ()).await?);
        Ok(format!("{text} {}", o.is_some()))
    }
}

#[test]
fn a_match_on_a_borrow_with_a_guard_goes_on_in_its_arm() {
    assert_eq!(same(|| match_then_use(Some(plan()))).outcome, r#"Completed("plan 2 1 [1, 2] true")"#);
    let tagged = Plan { inner: Inner { items: vec![], tag: None }, ..plan() };
    assert_eq!(same(|| match_then_use(Some(tagged.clone()))).outcome, r#"Completed("plan true")"#);
    assert_eq!(same(|| match_then_use(None)).outcome, r#"Completed("none false")"#);
}

twin! {
    async fn changed_after_the_match(io, n: Option<u32>) -> anyhow::Result<u32> {
        let mut state = n;
        let mut sum = 0;
        while let Some(x) = state {
            sum += x;
            state = step!("state", io.did("state", x.checked_sub(1)).await?);
            sum += x;
        }
        match &state { None => { state = Some(9); step!("none", io.did("none", ()).await?); } Some(_) => {} }
        step!("end", io.did("end", ()).await?);
        Ok(sum + state.unwrap_or(0))
    }
}

#[test]
fn what_a_condition_looked_at_may_change_in_its_branch() {
    assert_eq!(same(|| changed_after_the_match(Some(3))).outcome, "Completed(21)");
}

twin! {
    async fn shadowed_twice(io, text: String) -> anyhow::Result<String> {
        let y = &text;
        let text = format!("other {text}");
        step!("one", io.did("one", ()).await?);
        let z = &text;
        let text = 5;
        step!("two", io.did("two", text).await?);
        Ok(format!("{y} {z} {text}"))
    }
}

#[test]
fn three_variables_of_one_name_are_three_variables() {
    assert_eq!(same(|| shadowed_twice("t".into())).outcome, r#"Completed("t other t 5")"#);
}

twin! {
    async fn operands_that_are_references(io, pair: (u32, String)) -> anyhow::Result<String> {
        let (1 | 2, text) = &pair else {
            return Ok(String::new());
        };
        let both = joined(text, step!("step", io.did("step", text.len()).await?));
        let again = joined(text, { let n = step!("block", io.did("block", 1).await?); n + text.len() });
        Ok(both + &again)
    }
}

fn joined(text: &str, n: usize) -> String {
    format!("{text}{n}")
}

#[test]
fn a_reference_that_stands_before_a_step_and_in_it_is_taken_again() {
    assert_eq!(same(|| operands_that_are_references((1, "a".into()))).outcome, r#"Completed("a1a2")"#);
}

twin! {
    async fn copied_out_of_a_borrow(io, pair: (u32, Option<u32>)) -> anyhow::Result<String> {
        let mut pair = pair;
        let seen = &pair;
        let first = seen.0;
        let whole = *seen;
        let Some(second) = seen.1 else { return Ok(String::new()) };
        pair = (pair.0 + 10, Some(20));
        step!("step", io.did("step", ()).await?);
        pair.0 += 100;
        step!("other", io.did("other", ()).await?);
        Ok(format!("{first} {second} {whole:?} {pair:?}"))
    }
}

#[test]
fn what_was_copied_out_of_a_borrow_stays_what_it_was() {
    assert_eq!(same(|| copied_out_of_a_borrow((1, Some(2)))).outcome, r#"Completed("1 2 (1, Some(2)) (111, Some(20))")"#);
}

twin! {
    async fn copied_under_a_reference_pattern(io, n: u32) -> anyhow::Result<String> {
        let mut n = n;
        let mut opt = Some(5);
        let mut pair = (1u8, "text".to_owned());
        let mut row = [1u32, 2, 3];
        let &before = &n;
        n += 10;
        let &(small, _) = &pair;
        let (&a, b) = (&row[0], row[1]);
        let &[first, .., last] = &row;
        row = [7, 8, 9];
        pair.0 = 9;
        step!("one", io.did(format!("one {before} {small}"), ()).await?);
        let held = match &opt {
            &Some(n) => { opt = Some(n + 100); step!("two", io.did("two", ()).await?); n }
            &None => 0,
        };
        if let &Some(x) = &opt {
            opt = None;
            step!("three", io.did(format!("three {x}"), ()).await?);
            n += x;
        }
        let Some(&tail) = row.iter().last() else { anyhow::bail!("empty") };
        let list = vec![Some(1u32), None, Some(3)];
        for &item in &list {
            let Some(x) = item else { continue };
            step!("four", io.did(format!("four {x}"), ()).await?);
            n += x;
        }
        Ok(format!("{before} {small} {a} {b} {first} {last} {held} {n} {tail} {opt:?} {pair:?} {row:?}"))
    }
}

#[test]
fn what_is_copied_under_a_reference_pattern_stays_as_it_was() {
    let seen = same(|| copied_under_a_reference_pattern(5));
    assert!(seen.outcome.contains("5 1 1 2 1 3 5 "), "{}", seen.outcome);
}

twin! {
    async fn changed_item(io, nums: Vec<u32>, words: Vec<String>) -> anyhow::Result<String> {
        let mut out = Vec::new();
        for &(mut n) in &nums {
            n += 1;
            step!("one", io.did(format!("one {n}"), ()).await?);
            n *= 2;
            step!("two", io.did(format!("two {n}"), ()).await?);
            out.push(n);
        }
        for (i, mut n) in nums.iter().copied().enumerate() {
            n += 10;
            let word = &words[i];
            step!("three", io.did(format!("three {n} {word}"), ()).await?);
            out.push(n);
        }
        Ok(format!("{out:?}"))
    }
}

#[test]
fn an_item_that_is_changed_keeps_its_change() {
    same(|| changed_item(vec![1, 2, 3], vec!["a".into(), "b".into(), "c".into()]));
}

twin! {
    async fn index_through_a_borrow(io, v: Vec<String>) -> anyhow::Result<String> {
        let i = 1usize;
        let at = &i;
        let x = &v[*at];
        step!("one", io.did(format!("one {x}"), ()).await?);
        Ok(x.clone())
    }
}

#[test]
fn an_index_may_be_read_through_a_borrow() {
    same(|| index_through_a_borrow(vec!["a".into(), "b".into()]));
}

twin! {
    async fn tuples_of_borrows(io, host: Option<String>, port: Option<u16>, names: Vec<String>) -> anyhow::Result<String> {
        let mut port = port;
        let text = match (&host, port, names.as_slice()) {
            (Some(host), None, _) => {
                let found = step!("scan", io.did(format!("scan {host}"), 80u16).await?);
                port = Some(found);
                format!("{host}:{found}")
            }
            (Some(host), Some(p), [first, ..]) if p > 9 => {
                let first = first.clone();
                step!("both", io.did(format!("{host} {p} {first}"), ()).await?);
                port = None;
                format!("{host} {p} {first}")
            }
            (host, Some(p), _) => {
                step!("port", io.did(format!("{p}"), ()).await?);
                format!("{host:?} {p}")
            }
            (None, None, _) => step!("none", io.did("none", "none".to_owned()).await?),
        };
        let mut count = 1;
        if let ((Some(host), n), all) = ((&host, count), &names) {
            count += 10;
            step!("nested", io.did(format!("{host} {n} {}", all.len()), ()).await?);
            for name in all.iter() {
                count += step!("name", io.did(format!("{host} {name}"), n).await?);
            }
        }
        let (before, all) = (count, &names);
        count += 100;
        step!("copied", io.did("copied", ()).await?);
        Ok(format!("{text} {port:?} {count} {before} {}", all.len()))
    }
}

#[test]
fn what_is_matched_out_of_a_tuple_of_borrows_is_taken_again() {
    let names = || vec!["a".to_owned(), "b".to_owned()];
    for (host, port) in [(Some("h"), None), (Some("h"), Some(80)), (Some("h"), Some(1)), (None, Some(1)), (None, None)] {
        same(|| tuples_of_borrows(host.map(str::to_owned), port, names()));
    }
}
