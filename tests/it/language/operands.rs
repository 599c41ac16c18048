//! Steps among operands: evaluated once, in order, the values before them kept.
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::harness::{names, plain_step as step, same, twin};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Report {
    title: String,
    count: u32,
    notes: Vec<String>,
    extra: Option<Box<Report>>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Pair(u32, String);

fn three(a: u32, b: u32, c: u32) -> u32 {
    a * 100 + b * 10 + c
}

fn count(log: &mut Vec<&'static str>, name: &'static str, value: u32) -> u32 {
    log.push(name);
    value
}

twin! {
    async fn arguments(io, n: u32) -> anyhow::Result<u32> {
        let mut log = 0;
        let mut next = || { log += 1; log + n };
        let direct = three(next(), next(), next());
        let seed = direct;
        let mixed = three(seed % 7, step!("two", io.did("two", 2).await?), step!("three", io.did("three", 3).await?));
        let last = three(step!("a", io.did("a", 1).await?), seed % 10, step!("b", io.did("b", mixed % 10).await?) + seed % 3);
        Ok(three(direct, mixed, last))
    }
}

#[test]
fn arguments_before_a_step_are_evaluated_once_and_in_order() {
    let seen = same(|| arguments(1));
    assert_eq!(seen.log, ["two", "three", "a", "b"]);
    assert_eq!(seen.outcome, format!("Completed({})", 234 * 100 + (300 + 20 + 3) * 10 + (100 + 40 + 3)));
}

twin! {
    async fn order(io, n: u32) -> anyhow::Result<Vec<u32>> {
        let mut x = n;
        let v = vec![0];
        let sum = { x += 1; x } + step!("s", io.did("s", x * 10).await?) + { x += 1; x };
        let t = (x, { x *= 2; x }, step!("t", io.did("t", x + 1).await?), x);
        let a = [x, step!("u", io.did("u", x).await?), { x -= 1; x }, x];
        let m = std::cmp::max({ x += 5; x }, step!("m", io.did("m", 0).await?));
        Ok([&v[..], &[sum, t.0, t.1, t.2, t.3], &a, &[m, x]].concat())
    }
}

#[test]
fn operands_with_effects_run_in_the_order_of_plain_rust() {
    let seen = same(|| order(1));
    assert_eq!(seen.outcome, "Completed([0, 25, 3, 6, 7, 6, 6, 6, 5, 5, 10, 10])");
}

twin! {
    async fn reads_before_a_change(io, n: u32) -> anyhow::Result<(u32, u32, u32)> {
        let mut x = n;
        let a = x + { x = 10; step!("a", io.did("a", x).await?) };
        let b = x - step!("b", io.did("b", { x += 1; 4 }).await?);
        let c = three(x, { x = 1; 0 }, step!("c", io.did("c", x).await?));
        Ok((a, b, c))
    }
}

#[test]
fn an_operand_that_is_changed_later_has_its_earlier_value() {
    assert_eq!(same(|| reads_before_a_change(3)).outcome, "Completed((13, 6, 1101))");
}

twin! {
    async fn sums(io, n: u32) -> anyhow::Result<u64> {
        let s = step!("one", io.did("one", n).await?) + step!("two", io.did("two", n * 2).await?) * step!("three", io.did("three", 3).await?) - n;
        let cast = step!("cast", io.did("cast", 300u32).await?) as u8 as u64 + (step!("paren", io.did("paren", 1).await?)) as u64;
        let shifted = 1u64 << step!("shift", io.did("shift", 4).await?);
        let cmp = step!("lt", io.did("lt", s).await?) < step!("rt", io.did("rt", 100).await?);
        Ok(u64::from(s) + cast + shifted + u64::from(cmp))
    }
}

#[test]
fn arithmetic_takes_several_steps() {
    assert_eq!(same(|| sums(2)).outcome, "Completed(74)");
}

twin! {
    async fn literals(io, title: String) -> anyhow::Result<(Report, [u32; 3], (u32, String), Pair)> {
        let base = Report { count: 7, notes: vec!["kept".into()], ..Default::default() };
        let count = 3;
        let report = Report {
            title,
            extra: Some(Box::new(Report { title: step!("inner", io.did("inner", "in".to_owned()).await?), ..Report::default() })),
            count,
            ..step!("rest", io.did("rest", base).await?)
        };
        let other = Report { title: step!("title", io.did("title", "t".to_owned()).await?), ..report.clone() };
        anyhow::ensure!(other.extra == report.extra);
        let array = [step!("x", io.did("x", 1).await?), report.count, step!("y", io.did("y", 2).await?)];
        let repeated = [step!("r", io.did("r", 5u32).await?); 3];
        let tuple = (step!("t1", io.did("t1", 8).await?), step!("t2", io.did("t2", report.title.clone()).await?));
        let pair = Pair(repeated.iter().sum(), step!("p", io.did("p", other.title).await?));
        Ok((report, array, tuple, pair))
    }
}

#[test]
fn struct_tuple_and_array_literals_hold_steps() {
    let seen = same(|| literals("top".into()));
    assert_eq!(
        seen.outcome,
        r#"Completed((Report { title: "top", count: 3, notes: ["kept"], extra: Some(Report { title: "in", count: 0, notes: [], extra: None }) }, [1, 3, 2], (8, "top"), Pair(15, "t")))"#
    );
    assert_eq!(seen.log, ["inner", "rest", "title", "x", "y", "r", "t1", "t2", "p"]);
}

twin! {
    async fn assigns(io, n: u32) -> anyhow::Result<String> {
        let mut x = n;
        let mut v = vec![1, 2, 3];
        let mut report = Report::default();
        let mut map = BTreeMap::new();
        let i = 1;
        x += step!("a", io.did("a", 1).await?);
        x <<= step!("b", io.did("b", 2).await?);
        v[i] = step!("c", io.did("c", x).await?);
        v[0] += step!("d", io.did("d", 5).await?);
        v[(i + 1) as usize] = 9;
        report.title = step!("e", io.did("e", "t".to_owned()).await?);
        report.notes.push(step!("f", io.did("f", report.title.clone()).await?));
        report.count -= step!("zero", io.did("zero", 0).await?);
        report.extra = Some(Box::default());
        report.extra.as_mut().unwrap().count = 4;
        map.insert(step!("k", io.did("k", "key".to_owned()).await?), step!("v", io.did("v", 1).await?));
        *map.entry("key".into()).or_insert(0) += 10;
        let y;
        y = step!("late", io.did("late", x + 1).await?);
        let (p, q);
        (p, q) = step!("both", io.did("both", (1, 2)).await?);
        _ = step!("ignored", io.did("ignored", ()).await?);
        Ok(format!("{x} {v:?} {report:?} {map:?} {y} {p}{q}"))
    }
}

#[test]
fn assignments_and_compound_assignments_take_steps() {
    let seen = same(|| assigns(1));
    assert_eq!(
        seen.outcome,
        r#"Completed("8 [6, 8, 9] Report { title: \"t\", count: 0, notes: [\"t\"], extra: Some(Report { title: \"\", count: 4, notes: [], extra: None }) } {\"key\": 11} 9 12")"#
    );
}

twin! {
    async fn chains(io, text: String) -> anyhow::Result<String> {
        let a = step!("trim", io.did("trim", format!("  {text} ")).await?).trim().to_owned();
        let b = step!("opt", io.did("opt", Some(3)).await?).map(|x| x + 1).unwrap_or_default();
        let c = step!("list", io.did("list", vec![3, 1, 2]).await?).iter().map(|x| x * b).filter(|x| *x > 4).collect::<Vec<u32>>();
        let d = step!("tuple", io.did("tuple", (1, "two".to_owned())).await?).1;
        let e = step!("index", io.did("index", vec!["x".to_owned(), "y".into()]).await?)[1].clone();
        let f = a.replace(&step!("from", io.did("from", "a".to_owned()).await?), &step!("to", io.did("to", "b".to_owned()).await?));
        let g = "abc".len() + step!("len", io.did("len", 1).await?);
        let h = text.clone() + &step!("h", io.did("h", "!".to_owned()).await?);
        let r = *&step!("deref", io.did("deref", 5).await?);
        Ok(format!("{a} {b} {c:?} {d} {e} {f} {g} {h} {r}"))
    }
}

#[test]
fn methods_fields_and_indexes_apply_to_steps() {
    assert_eq!(same(|| chains("aa".into())).outcome, r#"Completed("aa 4 [12, 8] two y bb 4 aa! 5")"#);
}

twin! {
    async fn questions(io, text: String) -> anyhow::Result<u32> {
        let n = step!("parse", io.did("parse", text.parse::<u32>().map_err(|e| e.to_string())).await?).map_err(anyhow::Error::msg)?;
        let m = step!("check", io.did("check", n.checked_sub(2)).await?).ok_or_else(|| anyhow::anyhow!("{n} is too small"))?;
        Ok(three(m, step!("inner", io.get("inner", Ok::<u32, String>(n)).await).map_err(anyhow::Error::msg)?, n))
    }
}

#[test]
fn a_question_mark_after_a_step_leaves_the_function() {
    assert_eq!(same(|| questions("5".into())).outcome, "Completed(355)");
    assert_eq!(same(|| questions("1".into())).outcome, "Failed(\"1 is too small\")");
    assert_eq!(same(|| questions("x".into())).outcome, "Failed(\"invalid digit found in string\")");
    assert_eq!(same(|| questions("x".into())).log, ["parse"]);
}

twin! {
    async fn returns(io, n: u32) -> Result<u32, String> {
        if n == 1 { return Ok(step!("one", io.get("one", 10).await)) }
        if n == 2 { return step!("two", io.get("two", Err("two".to_owned())).await) }
        let x = loop { if n == 3 { break step!("three", io.get("three", 30).await) } else { return Ok(step!("four", io.get("four", 40).await)) } };
        return Ok(x + step!("end", io.get("end", 1).await));
    }
}

#[test]
fn return_and_break_take_steps() {
    let ends: Vec<_> = (1..5).map(|n| same(|| returns(n)).outcome).collect();
    assert_eq!(ends, ["Completed(10)", "Failed(\"two\")", "Completed(31)", "Completed(40)"]);
}

twin! {
    async fn nested(io, n: u32) -> anyhow::Result<u32> {
        let counted = &mut Vec::new();
        let plain = three(count(counted, "a", 1), count(counted, "b", 2), count(counted, "c", n));
        let total = three(
            three(n, step!("1", io.did("1", 1).await?), n + 1),
            { let k = step!(io.did("k", n).await?); if k > 1 { three(1, k, step!("deep", io.did("deep", 2).await?)) } else { k } },
            loop { break step!("2", io.did("2", 2).await?) + match n { 1 => step!("3", io.did("3", 3).await?), other => other } },
        );
        Ok(total + plain)
    }
}

#[test]
fn calls_blocks_loops_and_matches_nest_as_arguments() {
    assert_eq!(same(|| nested(1)).outcome, format!("Completed({})", (100 + 10 + 2) * 100 + 10 + 5 + 121));
    assert_eq!(same(|| nested(2)).outcome, format!("Completed({})", (200 + 10 + 3) * 100 + (100 + 20 + 2) * 10 + 4 + 122));
}

twin! {
    async fn borrowed_operands(io, v: Vec<u32>, text: String) -> anyhow::Result<bool> {
        let same = v.contains(&step!("x", io.did("x", 2).await?));
        let r = &v;
        let more = std::cmp::max(r, &step!("y", io.did("y", vec![0]).await?)).len();
        let starts = text.starts_with(step!("z", io.did("z", 'a').await?)) && text[step!("from", io.did("from", 1).await?)..].len() == more;
        Ok(same && starts)
    }
}

#[test]
fn borrows_before_a_step_are_taken_again() {
    assert_eq!(same(|| borrowed_operands(vec![1, 2, 3], "abcd".into())).outcome, "Completed(true)");
}

twin! {
    async fn kept_operands(io, n: u32) -> anyhow::Result<u32> {
        Ok(three(n + 1, n + 2, step!("s", io.did("s", 3).await?)))
    }
}

#[test]
fn the_operands_before_a_step_are_in_its_snapshot() {
    let seen = same(|| kept_operands(1));
    assert_eq!(names(&seen.snapshots[0]), ["n+1", "n+2", "s()"]);
}

twin! {
    async fn late_integers(io, n: u8) -> anyhow::Result<u64> {
        let mut total = 250;
        let big = 5_000_000_000;
        let shift = 1 << step!("bits", io.did("bits", 40).await?);
        for _ in 0..n {
            total += step!("more", io.did("more", 250).await?);
        }
        let out: u64 = total + big + shift;
        Ok(out)
    }
}

#[test]
fn the_type_of_an_integer_is_inferred_from_later_uses() {
    assert_eq!(same(|| late_integers(3)).outcome, format!("Completed({})", 1000 + 5_000_000_000u64 + (1 << 40)));
}
