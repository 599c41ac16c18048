//! The same name live twice, names that the expansion might use itself, odd names.
use super::harness::{plain_step as step, same, twin};

twin! {
    async fn shadowed(io, x: u32) -> anyhow::Result<String> {
        let x = step!("x", io.did("x", x + 1).await?);
        let y = x;
        let x = format!("text {x}");
        let long = {
            let x = step!("inner", io.did("inner", x.len()).await?);
            let x = x * 2;
            step!("twice", io.did("twice", ()).await?);
            x
        };
        for x in 0..x.len() as u32 / 3 {
            let x = x + 10;
            step!("loop", io.did(format!("loop {x}"), ()).await?);
            let x = x.to_string();
            step!("text", io.did(x, ()).await?);
        }
        if let Some(x) = Some(y) {
            step!("some", io.did("some", x).await?);
            let x = x as u64;
            step!("wide", io.did("wide", ()).await?);
            return Ok(format!("{x} {y} {long}"));
        }
        Ok(x)
    }
}

#[test]
fn one_name_is_used_for_many_variables() {
    let seen = same(|| shadowed(1));
    assert_eq!(seen.outcome, r#"Completed("2 2 12")"#);
    assert_eq!(seen.log, ["x", "inner", "twice", "loop 10", "10", "loop 11", "11", "some", "wide"]);
}

twin! {
    async fn hidden_by_a_let_else(io, n: u32, other: Option<u32>) -> anyhow::Result<u32> {
        let Some(n) = &other else {
            step!("none", io.did(format!("none {n}"), ()).await?);
            return Ok(n + 100);
        };
        let text = format!("{n}");
        let n = *n + text.len() as u32;
        let Some(n) = other.filter(|o| *o > 5).map(|o| o + n) else {
            step!("small", io.did(format!("small {n}"), ()).await?);
            return Ok(n + 200);
        };
        step!("end", io.did(format!("end {n}"), ()).await?);
        Ok(n)
    }
}

twin! {
    async fn hidden_in_a_loop(io, n: u32, others: Vec<Option<u32>>) -> anyhow::Result<u32> {
        let mut sum = 0;
        for other in &others {
            let Some(n) = other else {
                step!("none", io.did(format!("none {n}"), ()).await?);
                break;
            };
            sum += *n;
            let Some(n) = Some(n + 1).filter(|n| *n < 10) else {
                step!("large", io.did(format!("large {n}"), ()).await?);
                continue;
            };
            sum += n;
        }
        Ok(sum * 1000 + n)
    }
}

#[test]
fn what_a_let_else_in_a_loop_hides_is_there_behind_it() {
    assert_eq!(same(|| hidden_in_a_loop(1, vec![Some(2), None, Some(100)])).outcome, "Completed(5001)");
    let seen = same(|| hidden_in_a_loop(1, vec![Some(2), Some(20), Some(3)]));
    assert_eq!((seen.outcome.as_str(), seen.log), ("Completed(32001)", vec!["large 20".to_owned()]));
}

#[test]
fn what_a_let_else_binds_hides_what_its_else_uses() {
    assert_eq!(same(|| hidden_by_a_let_else(1, None)).outcome, "Completed(101)");
    assert_eq!(same(|| hidden_by_a_let_else(1, Some(3))).outcome, "Completed(204)");
    assert_eq!(same(|| hidden_by_a_let_else(1, Some(7))).outcome, "Completed(15)");
}

twin! {
    async fn both_live(io, x: String) -> anyhow::Result<String> {
        let outer = &x;
        let r = {
            let x = 5;
            step!("in", io.did("in", ()).await?);
            format!("{x}{outer}")
        };
        match r.len() {
            x @ 1..=9 => { let r = step!(io.did("r", x).await?); step!("again", io.did("again", ()).await?); assert_eq!(r, x); }
            _ => {}
        }
        let x = (x, 1);
        let (x, n) = x;
        step!("end", io.did("end", ()).await?);
        Ok(format!("{x}{r}{n}"))
    }
}

#[test]
fn a_hidden_variable_lives_on_behind_the_one_that_hides_it() {
    assert_eq!(same(|| both_live("a".into())).outcome, r#"Completed("a5a1")"#);
}

twin! {
    async fn round_and_round(io, n: u32) -> anyhow::Result<u32> {
        let acc = 1;
        let mut acc = acc;
        for n in 0..n {
            let acc_before = acc;
            let n = step!(io.did("n", n + acc_before).await?);
            let acc_now = { let acc = acc * 2; step!("acc", io.did("acc", acc + n).await?) };
            acc = acc_now;
            let acc = "hides".len() as u32;
            step!("hides", io.did("hides", acc).await?);
        }
        Ok(acc)
    }
}

#[test]
fn a_loop_that_hides_the_variable_it_changes() {
    assert_eq!(same(|| round_and_round(3)).outcome, "Completed(32)");
}

twin! {
    async fn names_of_the_machine(io, start: u32, fiber: u32, frame: String, saved: u32) -> anyhow::Result<String> {
        let save = step!("save", io.did("save", start + 1).await?);
        let value = step!(io.did("value", save + fiber).await?);
        let ctx = value + 1;
        let op = vec![ctx];
        let attempts = 3;
        let attempt = Some(attempts);
        let error = "no error".to_owned();
        let run = true;
        let kept_op = 1;
        let kept_op_2 = 2;
        let first = 0;
        let entered = 'e';
        let entered_1 = 'f';
        let inner = ();
        let invocation = 7;
        let own = 8;
        let restored = 9;
        let body = 10;
        let needs = 11;
        let arguments = 12;
        let __rest_1 = 13;
        let __value_1 = 14;
        let __at_1 = 15;
        let done = 16;
        for rest in op.iter() {
            let value = step!(io.did("value in", rest + saved).await?);
            if step!("fiber", io.did("fiber", run).await?) {
                let fiber = step!(io.did("fiber in", value).await?);
                step!("frame", io.did(&frame, fiber).await?);
            }
        }
        for i in [1, 2] { step!("i", io.did("i", i).await?); }
        match attempt { Some(attempt) => { step!("attempt", io.did("attempt", attempt).await?); } None => {} }
        let sum: u32 = first + body + kept_op + kept_op_2 + invocation + own + restored + needs + arguments + __rest_1 + __value_1 + __at_1 + done;
        Ok(format!("{start}{fiber}{frame}{saved}{save}{value}{ctx}{op:?}{attempts}{error}{entered}{entered_1}{inner:?}{sum}"))
    }
}

#[test]
fn variables_named_like_things_of_the_expansion() {
    let seen = same(|| names_of_the_machine(1, 2, "frame".into(), 4));
    assert_eq!(seen.outcome, r#"Completed("12frame4245[5]3no erroref()118")"#);
}

twin! {
    async fn odd_names(io, r#type: String, größe: u32, _hidden: u32) -> anyhow::Result<String> {
        let r#match = step!(io.did("match", r#type.len()).await?);
        let _kept = step!(io.did("_kept", größe + 1).await?);
        let 数 = step!(io.did("数", 3).await?);
        let big = 4;
        let é = 'é';
        for r#fn in 0..2u32 {
            step!("loop", io.did(format!("{}", r#fn), ()).await?);
        }
        let _ = step!("end", io.did("end", ()).await?);
        Ok(format!("{type} {match} {größe} {_hidden} {_kept} {数} {big} {é}", r#type = r#type, r#match = r#match))
    }
}

#[test]
fn raw_unicode_and_underscored_names() {
    let seen = same(|| odd_names("ty".into(), 1, 2));
    assert_eq!(seen.outcome, r#"Completed("ty 2 1 2 2 3 4 é")"#);
    assert!(seen.snapshots[0].contains(r#""type":"ty""#), "{}", seen.snapshots[0]);
    assert!(seen.snapshots[0].starts_with(r#"{"at":"match","#), "{}", seen.snapshots[0]);
}

twin! {
    async fn functions_and_variables(io, n: u32) -> anyhow::Result<u32> {
        fn helper(n: u32) -> u32 { let saved = n; saved + 1 }
        struct Local { n: u32 }
        impl Local { fn twice(&self) -> u32 { self.n * 2 } }
        const STEP: u32 = 3;
        let helped = helper(n);
        let local = Local { n: step!("n", io.did("n", helped).await?) }.twice();
        let helper = helper(local) + STEP;
        step!("end", io.did("end", ()).await?);
        use std::cmp::max as biggest;
        Ok(biggest(helper, n))
    }
}

#[test]
fn items_inside_a_body() {
    assert_eq!(same(|| functions_and_variables(1)).outcome, "Completed(8)");
}

#[derive(Debug, PartialEq)]
struct Point {
    x: u32,
    y: u32,
}

twin! {
    async fn hidden_in_macros(io, name: String, x: u32) -> anyhow::Result<String> {
        let all = {
            let name = name.len();
            let x = x + 1;
            let y = 3;
            step!("one", io.did("one", ()).await?);
            let literal = vec!["Dear {name}", "{x}"];
            let body = serde_json::json!({ "t": "Hello {name}", "name": name });
            let source = stringify!(name + x);
            let points = vec![Point { x, y }];
            let named = format!("{x} {name:>w$} {}", x, x = x + 1, w = name + 1);
            let far = matches!(points[0], Point { x, .. } if x > 5);
            let checked = (|| { anyhow::ensure!(x > 100); anyhow::Ok(()) })().unwrap_err().to_string();
            let counted = [x; 2].iter().map(|x| format!("{x}/{name}")).collect::<Vec<_>>();
            step!("two", io.did("two", ()).await?);
            format!("{literal:?} {body} {source} {named} {far} {checked} {counted:?} {x}{y}")
        };
        step!("three", io.did("three", ()).await?);
        Ok(format!("{all} {name} {x}"))
    }
}

#[test]
fn macros_see_the_names_that_are_written_also_where_one_hides_another() {
    let seen = same(|| hidden_in_macros("ada".into(), 1));
    assert!(seen.outcome.contains("Dear {name}"), "{}", seen.outcome);
    assert!(seen.outcome.contains("name + x"), "{}", seen.outcome);
}

twin! {
    async fn hidden_at_a_jump(io, n: u32) -> anyhow::Result<String> {
        let mut found = 1u32;
        let mut rounds = 0;
        'outer: loop {
            rounds += 1;
            if rounds > 1 {
                let found = 1000 * rounds;
                if found > 2000 { break 'outer; }
                let rounds = "hides";
                if found == 2000 && rounds.len() == 5 && n == 2 { continue 'outer; }
            }
            let last = found;
            found = 0;
            let step = step!("work", io.did(format!("work {rounds}"), last + n).await?);
            found += step;
        }
        Ok(format!("{found} {rounds}"))
    }
}

#[test]
fn a_jump_out_of_a_block_that_hides_a_variable_leaves_the_outer_one_as_it_is() {
    for n in [1, 2] {
        same(|| hidden_at_a_jump(n));
    }
}

twin! {
    async fn hidden_and_put_away(io, x: String, on: bool) -> anyhow::Result<String> {
        let mut out = Vec::new();
        // Not needed on every path: it is put away between stretches.
        let y = &x;
        if on { step!("on", io.did("on", ()).await?); }
        let x = 5u32;
        step!("five", io.did("five", x).await?);
        out.push(format!("{}{x}", y.len()));
        if on {
            let x = y.as_bytes()[0];
            step!("byte", io.did(format!("byte {x}"), ()).await?);
            out.push(format!("{y}{x}"));
        }
        let y = x + 1;
        step!("six", io.did(format!("six {x}"), y).await?);
        let x = x.to_string();
        for x in x.chars() {
            let y = step!("char", io.did(format!("char {x}"), y + 1).await?);
            out.push(format!("{x}{y}"));
        }
        Ok(format!("{out:?} {x} {y}"))
    }
}

#[test]
fn a_hidden_variable_that_is_borrowed_stays_where_it_is() {
    for on in [true, false] {
        same(|| hidden_and_put_away("abc".into(), on));
    }
}

twin! {
    async fn hidden_in_patterns(io, v: Option<(u32, String)>) -> anyhow::Result<String> {
        let name = "outer".to_owned();
        let read = &name;
        let out = match &v {
            Some((n, name)) if *n > 1 => {
                let len = name.len() as u32 + n;
                step!("some", io.did(format!("some {name}"), ()).await?);
                let name = format!("{name}{len}");
                step!("more", io.did(format!("more {name}"), ()).await?);
                format!("{name} {n} {read}")
            }
            Some((name, _)) => {
                let name = step!("small", io.did("small", name + 1).await?);
                step!("after", io.did(format!("after {name}"), ()).await?);
                name.to_string()
            }
            None => { step!("none", io.did(format!("none {name}"), ()).await?); name.clone() }
        };
        while let Some(name) = out.chars().next() {
            step!("char", io.did(format!("char {name}"), ()).await?);
            if name != 'z' { break; }
        }
        step!("end", io.did(format!("end {name}"), ()).await?);
        Ok(format!("{out} {read} {name}"))
    }
}

#[test]
fn patterns_that_hide_a_variable_give_it_back() {
    for v in [Some((3, "in".into())), Some((1, "in".into())), None] {
        same(|| hidden_in_patterns(v.clone()));
    }
}

#[forever::fiber]
async fn hidden_under_fresh(io: forever::fiber::Res<super::harness::Io>, part: String) -> anyhow::Result<String> {
    #[fresh]
    let made = format!("<{part}>");
    let part = part.len();
    step!("one", io.did(format!("one {part}"), ()).await?);
    let made = format!("{made}{part}");
    step!("two", io.did(format!("two {made}"), ()).await?);
    Ok(format!("{made} {part}"))
}

#[test]
fn what_is_made_anew_is_made_of_the_variables_that_its_let_names() {
    let (outcome, _, _) = super::harness::everywhere(|| hidden_under_fresh("abc".into()));
    assert_eq!(outcome, r#"Completed("<abc>3 3")"#);
}

twin! {
    async fn in_capitals(io, MAX: u32, ITEMS: Vec<u32>) -> anyhow::Result<u32> {
        let LIMIT = MAX;
        let (LOW, mut HIGH) = (MAX, MAX + 1);
        let k = LIMIT;
        let kept = HIGH;
        let list = [HIGH, 5];
        HIGH += 10;
        step!("one", io.did("one", k).await?);
        let Retry = k + kept + list[0] + LOW;
        let mut sum = 0;
        for x in ITEMS {
            sum += x + step!("x", io.did("x", x).await?);
        }
        step!("two", io.did("two", Retry).await?);
        Ok(Retry + HIGH + LIMIT + MAX + LOW + sum)
    }
}

#[test]
fn a_variable_that_is_named_as_a_constant_is_one() {
    let seen = same(|| in_capitals(2, vec![1, 2]));
    assert_eq!(seen.outcome, "Completed(35)");
}

// Macros of the program's own, named as some of the standard library's that give constant text.
macro_rules! file {
    ($e:expr) => {
        $e + 1
    };
}
macro_rules! env {
    ($io:expr) => {{
        $io.log("env");
        5u32
    }};
}
macro_rules! concat {
    ($e:ident) => {
        $e.repeat(3)
    };
}

twin! {
    async fn own_macros(io, text: String) -> anyhow::Result<String> {
        let mut n = 1;
        let a = file!(n);
        let b = env!(io);
        let c = concat!(text);
        n += 10;
        step!("one", io.did("one", ()).await?);
        let all = format!("{a} {b} {c}");
        step!("two", io.did("two", ()).await?);
        Ok(format!("{all} {n} {a} {b}"))
    }
}

#[test]
fn a_macro_of_the_programs_own_may_be_named_as_one_of_std() {
    let seen = same(|| own_macros("t".into()));
    assert_eq!(seen.outcome, "Completed(\"2 5 ttt 11 2 5\")");
}

twin! {
    async fn hidden_by_a_part(io, x: u32) -> anyhow::Result<u32> {
        let mut sum = 0;
        for n in 0..2u32 {
            let (twice, mut x) = (x * 2, x + 1);
            x += twice;
            sum += step!("one", io.did("one", x).await?);
            sum += step!("two", io.did("two", n).await?);
        }
        Ok(sum + x)
    }
}

#[test]
fn a_part_that_hides_what_its_let_reads() {
    let seen = same(|| hidden_by_a_part(3));
    assert_eq!(seen.outcome, "Completed(24)");
}
