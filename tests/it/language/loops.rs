//! `for` over everything: ranges, vectors by value and by borrow, maps, iterators with and without adaptors, steps as items.
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use super::harness::{plain_step as step, same, twin};

twin! {
    async fn step_bounds(io, n: u32) -> anyhow::Result<Vec<u32>> {
        let mut out = vec![];
        for i in 0..step!("end", io.did("end", n).await?) {
            out.push(step!("i", io.did(format!("i {i}"), i).await?));
        }
        for i in step!("from", io.did("from", 1).await?)..=step!("to", io.did("to", n).await?) {
            if i == 2 { continue }
            out.push(step!("j", io.did(format!("j {i}"), i * 10).await?));
        }
        for i in (0..n).rev().step_by(2) {
            step!("k", io.did("k", ()).await?);
            out.push(i);
        }
        Ok(out)
    }
}

#[test]
fn ranges_take_their_bounds_from_steps() {
    assert_eq!(same(|| step_bounds(3)).outcome, "Completed([0, 1, 2, 10, 30, 2, 0])");
    assert_eq!(same(|| step_bounds(0)).outcome, "Completed([])");
}

twin! {
    async fn over_a_step(io, n: u32) -> anyhow::Result<String> {
        let mut out = String::new();
        for word in step!("list", io.did("list", vec!["a".to_owned(), "b".to_owned()]).await?) {
            out.push_str(&step!("up", io.did("up", word.to_uppercase()).await?));
            out.push_str(&word);
        }
        for c in step!("text", io.did("text", "xyz".repeat(n as usize)).await?).chars() {
            out.push(c);
            step!("char", io.did("char", ()).await?);
        }
        Ok(out)
    }
}

#[test]
fn a_for_goes_over_the_value_of_a_step() {
    assert_eq!(same(|| over_a_step(1)).outcome, "Completed(\"AaBbxyz\")");
}

twin! {
    async fn over_a_borrowed_step(io, n: u32) -> anyhow::Result<u32> {
        let mut sum = n;
        for x in &step!("list", io.did("list", vec![1, 2, 3]).await?) {
            sum += step!("add", io.did("add", *x).await?);
            sum += x;
        }
        Ok(sum)
    }
}

#[test]
fn a_for_goes_over_a_borrow_of_a_step() {
    let seen = same(|| over_a_borrowed_step(1));
    assert_eq!(seen.outcome, "Completed(13)");
    assert_eq!(seen.log, ["list", "add", "add", "add"]);
}

twin! {
    async fn borrowed(io, v: Vec<String>, m: BTreeMap<String, u32>) -> anyhow::Result<Vec<String>> {
        let mut out = Vec::new();
        for (i, s) in v.iter().enumerate().skip(1) {
            out.push(step!("a", io.did("a", format!("{i}{s}")).await?));
        }
        for s in v.iter().rev().take(2) {
            step!("b", io.did("b", ()).await?);
            out.push(s.clone());
        }
        for (a, b) in v.iter().zip(m.keys()) {
            step!("c", io.did("c", ()).await?);
            out.push(format!("{a}{b}"));
        }
        for (k, n) in &m {
            let n = step!(io.did("n", n + 1).await?);
            out.push(format!("{k}={n}"));
        }
        for x in m.values().copied().chain(m.values().cloned()) {
            step!("d", io.did("d", ()).await?);
            out.push(x.to_string());
        }
        for c in v[0].chars() {
            step!("e", io.did("e", ()).await?);
            out.push(c.to_string());
        }
        for pair in v.windows(2) {
            step!("f", io.did("f", ()).await?);
            out.push(pair.join("+"));
        }
        for pair in v.chunks(2) {
            step!("g", io.did("g", ()).await?);
            out.push(pair.concat());
        }
        for s in &v[1..] {
            step!("h", io.did("h", ()).await?);
            out.push(s.clone());
        }
        Ok(out)
    }
}

#[test]
fn borrowed_iterators_go_on_by_position() {
    let seen = same(|| borrowed(vec!["xy".into(), "b".into(), "c".into()], BTreeMap::from([("k".into(), 1), ("l".into(), 2)])));
    assert_eq!(
        seen.outcome,
        format!(
            "Completed({:?})",
            ["1b", "2c", "c", "b", "xyk", "bl", "k=2", "l=3", "1", "2", "1", "2", "x", "y", "xy+b", "b+c", "xyb", "c", "b", "c"]
        )
    );
}

twin! {
    async fn borrowed_nested(io, grid: Vec<Vec<u32>>) -> anyhow::Result<u32> {
        let mut sum = 0;
        for row in &grid {
            for cell in row {
                sum += step!("cell", io.did(format!("cell {cell}"), *cell).await?);
            }
            for cell in row.iter().rev() {
                step!("back", io.did(format!("back {cell}"), ()).await?);
                sum += cell;
            }
            step!("row", io.did(format!("row {}", row.len()), ()).await?);
            sum += row.len() as u32;
        }
        Ok(sum)
    }
}

#[test]
fn a_borrowed_loop_inside_a_borrowed_loop_goes_on_by_two_positions() {
    let seen = same(|| borrowed_nested(vec![vec![1, 2], vec![], vec![3]]));
    assert_eq!(seen.outcome, "Completed(15)");
    assert_eq!(seen.log.len(), 9);
}

twin! {
    async fn owned_kinds(io, h: HashMap<u32, u32>, d: VecDeque<u32>, s: BTreeSet<String>, o: Option<u32>, a: [u8; 3]) -> anyhow::Result<u32> {
        let mut sum = 0;
        for (k, v) in h { sum += step!("h", io.did("h", k * v).await?); }
        for x in d { sum += step!("d", io.did("d", x).await?) + x; }
        for x in s { sum += step!("s", io.did("s", x.len() as u32).await?); sum += x.len() as u32; }
        for x in o { sum += step!("o", io.did("o", x).await?); }
        for x in a { sum += u32::from(x); step!("a", io.did("a", ()).await?); }
        for x in [10, 20] { step!("array", io.did("array", ()).await?); sum += x; }
        for x in vec![1, 2, 3].into_iter().map(|x| x * 2).filter(|x| x % 4 != 0).collect::<Vec<_>>() { step!("map", io.did("map", ()).await?); sum += x; }
        Ok(sum)
    }
}

#[test]
fn collections_by_value_keep_their_remaining_items() {
    let seen = same(|| {
        owned_kinds(HashMap::from([(3, 4)]), VecDeque::from([1, 2]), BTreeSet::from(["ab".into(), "c".into()]), Some(5), [1, 2, 3])
    });
    assert_eq!(seen.outcome, "Completed(73)");
}

/// An iterator over a container of one's own.
struct Cards(std::vec::IntoIter<u32>);

impl Iterator for Cards {
    type Item = u32;
    fn next(&mut self) -> Option<u32> {
        self.0.next()
    }
}

impl forever::fiber::EagerIterator for Cards {}

twin! {
    async fn eager_kinds(io, v: Vec<u32>, text: String) -> anyhow::Result<String> {
        let mut out = String::new();
        for (n, x) in v.clone().into_iter().zip(1..) { out += &step!("a", io.did("a", format!("{n}{x} ")).await?); }
        for x in v.clone().into_iter().cycle().take(4) { out += &step!("b", io.did("b", format!("{x}")).await?); }
        for x in v.clone().into_iter().rev().chain(7..9).skip(1).step_by(2) { out += &step!("c", io.did("c", format!("-{x}")).await?); }
        for x in vec![v.clone(), vec![6]].into_iter().flatten().enumerate() { out += &step!("d", io.did("d", format!("{x:?}")).await?); }
        for x in text.to_uppercase().chars().rev() { out.push(x); step!("e", io.did("e", ()).await?); }
        for x in std::iter::repeat_n("z".to_owned(), 2) { out += &x; step!("f", io.did("f", ()).await?); }
        for x in (0..).step_by(5).take(3) { out += &step!("g", io.did("g", format!(" {x}")).await?); }
        for x in Cards(v.into_iter()).peekable() { out += &step!("h", io.did("h", format!(".{x}")).await?); }
        Ok(out)
    }
}

#[test]
fn iterators_that_only_walk_a_container_keep_their_remaining_items() {
    let seen = same(|| eager_kinds(vec![1, 2, 3], "ab".into()));
    assert_eq!(seen.outcome, r#"Completed("11 22 33 1231-2-7(0, 1)(1, 2)(2, 3)(3, 6)BAzz 0 5 10.1.2.3")"#);
}

twin! {
    async fn into_iter_by_hand(io, v: Vec<u32>) -> anyhow::Result<u32> {
        let mut sum = 0;
        let mut queue: VecDeque<u32> = v.into();
        while let Some(x) = queue.pop_front() {
            sum += step!("x", io.did(format!("x {x}"), x).await?);
            if x > 2 { queue.push_back(x / 2); }
        }
        loop {
            sum += 1;
            if sum % 5 == 0 { break }
            step!("tick", io.did("tick", ()).await?);
        }
        Ok(sum)
    }
}

#[test]
fn a_queue_that_grows_while_it_is_worked_off() {
    assert_eq!(same(|| into_iter_by_hand(vec![5, 1, 8])).outcome, "Completed(25)");
}

twin! {
    async fn patterns_in_for(io, v: Vec<(u32, Option<(String, u32)>)>) -> anyhow::Result<Vec<String>> {
        let mut out = vec![];
        for (i, (n, opt)) in v.into_iter().enumerate() {
            let Some((name, age)) = opt else {
                step!("none", io.did(format!("none {i}"), ()).await?);
                continue;
            };
            step!("some", io.did(format!("some {n}"), ()).await?);
            out.push(format!("{i} {n} {name} {age}"));
        }
        Ok(out)
    }
}

#[test]
fn the_pattern_of_a_for_binds_names_that_live_across_steps() {
    let seen = same(|| patterns_in_for(vec![(1, None), (2, Some(("x".into(), 3))), (4, Some(("y".into(), 5)))]));
    assert_eq!(seen.outcome, r#"Completed(["1 2 x 3", "2 4 y 5"])"#);
    assert_eq!(seen.log, ["none 0", "some 2", "some 4"]);
}

twin! {
    async fn patterns_in_borrowed_for(io, v: Vec<(u32, String)>) -> anyhow::Result<Vec<String>> {
        let mut out = vec![];
        for (i, (n, name)) in v.iter().enumerate() {
            step!("see", io.did(format!("see {i}"), ()).await?);
            let &(ref m, _) = &v[i];
            out.push(format!("{n}{name}{m}"));
        }
        for &(n, ref name) in &v {
            step!("again", io.did(format!("again {n}"), ()).await?);
            out.push(format!("{n}{name}"));
        }
        Ok(out)
    }
}

#[test]
fn the_pattern_of_a_borrowed_for_binds_borrows_that_are_taken_again() {
    let seen = same(|| patterns_in_borrowed_for(vec![(1, "a".into()), (2, "b".into())]));
    assert_eq!(seen.outcome, r#"Completed(["1a1", "2b2", "1a", "2b"])"#);
}

twin! {
    async fn nothing_to_do(io, v: Vec<u32>) -> anyhow::Result<u32> {
        for x in &v { step!("a", io.did("a", *x).await?); }
        for x in v.clone() { step!("b", io.did("b", x).await?); }
        for _ in 0..v.len() { step!("c", io.did("c", ()).await?); }
        for _ in &v {}
        for x in v { let _ = x; }
        step!("end", io.did("end", ()).await?);
        Ok(1)
    }
}

#[test]
fn loops_over_nothing_make_no_steps() {
    assert_eq!(same(|| nothing_to_do(vec![])).log, ["end"]);
    assert_eq!(same(|| nothing_to_do(vec![7])).log, ["a", "b", "c", "end"]);
}

twin! {
    async fn counters(io, n: u64) -> anyhow::Result<u64> {
        let (mut a, mut b) = (0, 1);
        for _ in 0..n {
            let next = a + b;
            a = b;
            b = step!("b", io.did("b", next).await?);
        }
        Ok(a)
    }
}

#[test]
fn a_loop_carries_two_variables_round() {
    assert_eq!(same(|| counters(10)).outcome, "Completed(55)");
}

twin! {
    async fn twenty(io, n: u32) -> anyhow::Result<u32> {
        let a = step!(io.did("a", n + 1).await?); let b = step!(io.did("b", a + 1).await?); let c = step!(io.did("c", b + 1).await?);
        let d = step!(io.did("d", c + 1).await?); let e = step!(io.did("e", d + 1).await?); let f = step!(io.did("f", e + 1).await?);
        let g = step!(io.did("g", f + 1).await?); let h = step!(io.did("h", g + 1).await?); let i = step!(io.did("i", h + 1).await?);
        let j = step!(io.did("j", i + 1).await?); let k = step!(io.did("k", j + 1).await?); let l = step!(io.did("l", k + 1).await?);
        let m = step!(io.did("m", l + 1).await?); let o = step!(io.did("o", m + 1).await?); let p = step!(io.did("p", o + 1).await?);
        let q = step!(io.did("q", p + 1).await?); let r = step!(io.did("r", q + 1).await?); let s = step!(io.did("s", r + 1).await?);
        let t = step!(io.did("t", s + 1).await?); let u = step!(io.did("u", t + 1).await?);
        Ok(a + b + c + d + e + f + g + h + i + j + k + l + m + o + p + q + r + s + t + u)
    }
}

#[test]
fn twenty_steps_in_a_line() {
    let seen = same(|| twenty(0));
    assert_eq!((seen.outcome.as_str(), seen.log.len()), ("Completed(210)", 20));
}

twin! {
    async fn arguments_that_change(io, jobs: Vec<u32>, rows: Vec<Vec<u32>>, text: String) -> anyhow::Result<String> {
        let mut out = Vec::new();
        let mut budget = 3;
        for job in jobs.iter().take(budget) {
            out.push(step!("run", io.did(format!("run {job}"), *job).await?));
            budget -= 1;
        }
        let mut skip = 1;
        for job in jobs.iter().skip(skip).step_by(skip + 1) {
            skip += 1;
            out.push(step!("skip", io.did(format!("skip {job}"), *job).await?));
        }
        let mut size = 2;
        for part in jobs.chunks(size) {
            size += 3;
            out.push(step!("chunk", io.did(format!("chunk {part:?} {size}"), part.len() as u32).await?));
        }
        let mut size = 2;
        for part in jobs.windows(size).zip(jobs.iter().skip(size - 1)) {
            size = 1;
            out.push(step!("window", io.did(format!("window {part:?}"), 0).await?));
        }
        let mut row = 0;
        for cell in &rows[row] {
            row += 1;
            out.push(step!("cell", io.did(format!("cell {cell} {row}"), *cell).await?));
        }
        let (mut from, mut to) = (1, 4);
        for job in &jobs[from..to] {
            from += 1;
            to -= 1;
            out.push(step!("slice", io.did(format!("slice {job}"), *job).await?));
        }
        let mut row = 1;
        for cell in rows[row].iter().rev() {
            row = 0;
            out.push(step!("row", io.did(format!("row {cell}"), *cell).await?));
        }
        let mut sep = ",".to_owned();
        for word in text.split(sep.as_str()) {
            out.push(step!("word", io.did(format!("word {word}"), 0).await?));
            if word == "b" { break; }
        }
        sep.push(';');
        let mut sep = ',';
        for word in text.split(sep) {
            sep = ';';
            out.push(step!("other", io.did(format!("other {word}"), 0).await?));
        }
        let mut limit = Limit { most: 2 };
        for job in jobs.iter().take(limit.most) {
            limit.most = 0;
            out.push(step!("limit", io.did(format!("limit {job}"), *job).await?));
        }
        let mut counted = first_of(&jobs);
        out.append(&mut counted);
        Ok(format!("{out:?} {budget} {skip} {size} {row} {from} {to} {sep} {}", limit.most))
    }
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Limit {
    most: usize,
}

fn first_of(jobs: &[u32]) -> Vec<u32> {
    jobs.iter().take(1).copied().collect()
}

#[test]
fn the_arguments_of_what_a_loop_goes_over_are_evaluated_once() {
    same(|| arguments_that_change(vec![1, 2, 3, 4, 5], vec![vec![10, 11], vec![20, 21, 22]], "a,b,c".into()));
}

const TOPICS: [&str; 3] = ["law", "sales", "tax"];

const TOPICS_LABEL: &str = "topics";

fn label(n: u32) -> &'static str {
    match n {
        0 => "none",
        _ => "some",
    }
}

twin! {
    async fn literal_lists(io, n: u32) -> anyhow::Result<String> {
        let mut out = Vec::new();
        for topic in ["law", "sales"] {
            out.push(step!("topic", io.did(topic, format!("{topic}!")).await?));
        }
        let names = ["a", "b"];
        for name in names {
            out.push(step!("name", io.did(name, format!("{name}?")).await?));
        }
        for name in &names {
            out.push(step!("again", io.did(*name, format!("{name}.")).await?));
        }
        for topic in TOPICS {
            out.push(step!("const", io.did(topic, topic.to_owned()).await?));
        }
        for topic in TOPICS.iter().rev() {
            out.push(step!("rev", io.did(*topic, topic.to_string()).await?));
        }
        for topic in ["law", "sales"].into_iter().rev() {
            out.push(step!("into", io.did(topic, topic.to_owned()).await?));
        }
        for (at, topic) in TOPICS.into_iter().enumerate() {
            out.push(step!("at", io.did(topic, format!("{at}{topic}")).await?));
        }
        for name in vec!["v", "w"].into_iter().chain(["x"]) {
            out.push(step!("chained", io.did(name, name.to_owned()).await?));
        }
        for (name, weight) in [("x", 1), ("y", 2)] {
            out.push(step!("pair", io.did(name, format!("{name}{weight}")).await?));
        }
        let pair = ("literal", 3);
        step!("pair kept", io.did("kept", ()).await?);
        out.push(format!("{}{}", pair.0, pair.1));
        let mut label_of = "start";
        for n in [1, 2, 3] {
            out.push(step!("number", io.did(format!("{n} {label_of}"), format!("{n}")).await?));
            label_of = "later";
        }
        for x in &[1, 2, 3] {
            out.push(step!("borrowed", io.did(format!("b{x}"), format!("{x}")).await?));
        }
        let kind = match n { 0 => "none", 1 => if out.is_empty() { "odd" } else { TOPICS_LABEL }, _ => return Ok("many".into()) };
        let chosen;
        if n > 0 { chosen = "positive"; } else { chosen = "zero"; }
        step!("end", io.did("end", ()).await?);
        out.push(format!("{kind} {chosen} {}", label(n)));
        Ok(format!("{out:?} {label_of} {names:?}"))
    }
}

#[test]
fn lists_of_literals_are_gone_over() {
    for n in [0, 1, 2] {
        same(|| literal_lists(n));
    }
}

twin! {
    async fn walked_by_hand(io, last: u32) -> anyhow::Result<u32> {
        let mut range = 1..=last;
        let mut back = 'a'..='c';
        let mut sum = 0;
        while let Some(x) = range.next() {
            sum += step!("x", io.did(format!("{x}"), x).await?);
            io.log(format!("{:?}", back.next_back()));
        }
        step!("end", io.did("end", ()).await?);
        Ok(sum + range.count() as u32 + back.count() as u32)
    }
}

#[test]
fn an_inclusive_range_is_saved_with_whether_its_last_item_was_taken() {
    for last in [0, 1, 3, 4] {
        same(|| walked_by_hand(last));
    }
}

/// An inclusive range inside of another type, which only serde can write.
#[derive(serde::Serialize, serde::Deserialize)]
struct Pages(std::ops::RangeInclusive<u32>);

#[forever::fiber]
async fn walked_inside(io: forever::fiber::Res<super::harness::Io>, last: u32) -> anyhow::Result<u32> {
    let mut pages = Pages(1..=last);
    let mut sum = 0;
    while let Some(x) = pages.0.next() {
        sum += step!("x", io.did("x", x).await?);
    }
    Ok(sum)
}

#[test]
fn an_inclusive_range_in_another_type_is_not_saved_where_its_last_item_is_in_doubt() {
    let (outcome, log, _) = super::harness::everywhere(|| walked_inside(3));
    assert!(outcome.contains("it has an inclusive range whose start is its end"), "{outcome}");
    assert_eq!(log, ["x", "x"]);
}

twin! {
    async fn chains_in_arms(io, n: u32) -> anyhow::Result<u32> {
        let mut sum = 0;
        if n > 0 {
            let list = vec![n, 2, 3];
            for x in list.iter().map(|x| x * 2).collect::<Vec<_>>() {
                sum += step!("one", io.did("one", x).await?);
            }
            sum += list.len() as u32;
        }
        let outer = vec![n, 5];
        if n > 0 {
            for x in outer.iter().map(|x| x + 1).collect::<Vec<_>>() {
                sum += step!("two", io.did("two", x).await?);
            }
            sum += outer.len() as u32;
        }
        match n {
            0 => {}
            _ => {
                while let Some(last) = outer.iter().copied().filter(|x| x + 20 > sum).max() {
                    sum += step!("three", io.did("three", last).await?) + 1;
                }
                sum += 1;
            }
        }
        Ok(sum)
    }
}

#[test]
fn a_loop_over_a_chain_of_iterators_may_begin_an_arm_that_goes_on() {
    for n in 0..3 {
        same(|| chains_in_arms(n));
    }
}
