//! `if`, `else if`, `if let`, let-chains, `match`, `while`, `&&` and `||`, with steps in conditions and in branches.
use super::harness::{plain_step as step, same, twin};

twin! {
    async fn if_without_else(io, n: u32) -> anyhow::Result<u32> {
        let mut total = n;
        if n > 2 {
            total += step!(io.did("more", 10).await?);
        }
        if n > 3 { }
        if total > 100 {
            step!("never", io.did("never", ()).await?);
        }
        step!("end", io.did("end", ()).await?);
        Ok(total)
    }
}

#[test]
fn an_if_without_else_runs_its_branch_or_nothing() {
    let seen = same(|| if_without_else(3));
    assert_eq!((seen.outcome.as_str(), &*seen.log), ("Completed(13)", &["more".to_owned(), "end".to_owned()][..]));
    let seen = same(|| if_without_else(1));
    assert_eq!((seen.outcome.as_str(), &*seen.log), ("Completed(1)", &["end".to_owned()][..]));
}

#[test]
fn steps_in_an_else_if_chain_run_only_as_far_as_the_chain_goes() {
    for (n, ends, log) in [
        (-1, "negative", &["negative"][..]),
        (0, "zero", &["negative", "zero"]),
        (3, "small", &["negative", "small"]),
        (5, "odd", &["negative", "small", "huge", "odd"]),
        (2000, "odd", &["negative", "small", "huge", "odd"]),
        (50, "large", &["negative", "small", "huge"]),
    ] {
        let seen = same(|| text_of(n));
        assert_eq!(seen.outcome, format!("Completed({ends:?})"));
        assert_eq!(seen.log, log);
    }
}

twin! {
    async fn text_of(io, n: i32) -> anyhow::Result<String> {
        Ok(if step!("negative", io.did("negative", n < 0).await?) {
            "negative"
        } else if n == 0 {
            step!("zero", io.did("zero", ()).await?);
            "zero"
        } else if step!("small", io.did("small", n < 10).await?) && n != 5 {
            "small"
        } else if step!("huge", io.did("huge", n > 1000).await?) || n == 5 {
            step!("odd", io.did("odd", ()).await?);
            "odd"
        } else {
            "large"
        }.to_owned())
    }
}

twin! {
    async fn both_operands(io, bits: u8) -> anyhow::Result<bool> {
        let bit = |n: u8| bits & (1 << n) != 0;
        let first = bit(0);
        let second = bit(1);
        let third = bit(2);
        let fourth = bit(3);
        Ok((step!("a", io.did("a", first).await?) && step!("b", io.did("b", second).await?))
            || (step!("c", io.did("c", third).await?) && !step!("d", io.did("d", fourth).await?)))
    }
}

#[test]
fn nested_and_or_stop_early_like_the_plain_ones() {
    for bits in 0..16 {
        same(|| both_operands(bits));
    }
    let seen = same(|| both_operands(0b0101));
    assert_eq!(seen.outcome, "Completed(true)");
    assert_eq!(seen.log, ["a", "b", "c", "d"]);
    assert_eq!(same(|| both_operands(0b0011)).log, ["a", "b"]);
    assert_eq!(same(|| both_operands(0b0010)).log, ["a", "c"]);
}

twin! {
    async fn step_left_of_and(io, n: u32) -> anyhow::Result<u32> {
        if step!("left", io.did("left", n > 1).await?) && n < 5 {
            return Ok(1);
        }
        if n > 7 && step!("right", io.did("right", n < 9).await?) && n != 0 {
            return Ok(2);
        }
        if n == 9 || step!("or", io.did("or", n == 0).await?) || n == 1 {
            return Ok(3);
        }
        Ok(4)
    }
}

#[test]
fn a_step_stands_left_or_right_of_and_and_or() {
    let ends: Vec<String> = (0..11).map(|n| same(|| step_left_of_and(n)).outcome).collect();
    let want = [3, 3, 1, 1, 1, 4, 4, 4, 2, 3, 4].map(|n| format!("Completed({n})"));
    assert_eq!(ends, want);
}

twin! {
    async fn if_let_step(io, n: Option<u32>) -> anyhow::Result<u32> {
        if let Some(x) = step!("look", io.did("look", n).await?) {
            let y = step!(io.did("y", x + 1).await?);
            Ok(x * y)
        } else if let Ok(z) = step!("parse", io.did("parse", "7".parse::<u32>().map_err(|e| e.to_string())).await?) {
            Ok(z)
        } else {
            Ok(0)
        }
    }
}

#[test]
fn if_let_takes_a_step_apart() {
    assert_eq!(same(|| if_let_step(Some(4))).outcome, "Completed(20)");
    assert_eq!(same(|| if_let_step(None)).outcome, "Completed(7)");
}

twin! {
    async fn match_on_step(io, n: i64) -> anyhow::Result<String> {
        let word = match step!("sign", io.did("sign", n.signum()).await?) {
            -1 => "minus".to_owned(),
            0 => step!("zero", io.did("zero", "null".to_owned()).await?),
            1 if n > 100 => {
                let big = step!(io.did("big", n / 100).await?);
                format!("{big} hundred")
            }
            1 => return Ok("early".into()),
            other => unreachable!("{other}"),
        };
        step!("end", io.did(&word, ()).await?);
        Ok(word)
    }
}

#[test]
fn a_match_on_a_step_may_step_give_or_return_in_each_arm() {
    let ends: Vec<_> = [-5, 0, 700, 7].map(|n| same(|| match_on_step(n)).outcome).into();
    assert_eq!(ends, [r#"Completed("minus")"#, r#"Completed("null")"#, r#"Completed("7 hundred")"#, r#"Completed("early")"#]);
}

twin! {
    async fn match_as_argument(io, n: u32) -> anyhow::Result<u32> {
        fn add(a: u32, b: u32, c: u32) -> u32 { a * 100 + b * 10 + c }
        let seed = n + 1;
        let total = add(
            step!("first", io.did("first", seed).await?),
            match n {
                0 => 5,
                1 => step!("one", io.did("one", 6).await?),
                _ if n > 3 => { step!("many", io.did("many", ()).await?); 7 }
                _ => { 8 }
            },
            if n == 2 { step!("two", io.did("two", 1).await?) } else { 0 },
        );
        Ok(total)
    }
}

#[test]
fn a_match_in_an_argument_steps_in_some_arms_only() {
    let ends: Vec<_> = (0..5).map(|n| same(|| match_as_argument(n)).outcome).collect();
    assert_eq!(ends, ["Completed(150)", "Completed(260)", "Completed(381)", "Completed(480)", "Completed(570)"]);
}

twin! {
    async fn while_step(io, n: u32) -> anyhow::Result<u32> {
        let mut left = n;
        while step!("more", io.did("more", left > 0).await?) {
            left -= 1;
            if left == 2 { continue }
            if left == 0 { break }
            step!("work", io.did(format!("work {left}"), ()).await?);
        }
        Ok(left)
    }
}

#[test]
fn a_while_condition_is_a_step() {
    let seen = same(|| while_step(4));
    assert_eq!(seen.log, ["more", "work 3", "more", "more", "work 1", "more"]);
    assert_eq!(same(|| while_step(0)).log, ["more"]);
}

twin! {
    async fn while_with_operands(io, n: u32) -> anyhow::Result<u32> {
        let mut i = 0;
        while i < n && step!("more", io.did("more", i != 5).await?) || step!("again", io.did("again", i == 5).await?) {
            i += 1;
        }
        Ok(i)
    }
}

#[test]
fn a_while_condition_mixes_steps_and_plain_operands() {
    assert_eq!(same(|| while_with_operands(3)).outcome, "Completed(3)");
    assert_eq!(same(|| while_with_operands(8)).outcome, "Completed(8)");
}

twin! {
    async fn while_let_step(io, items: Vec<u32>) -> anyhow::Result<u32> {
        let mut items = items;
        let mut sum = 0;
        while let Some(x) = step!("next", io.did("next", items.pop()).await?) {
            sum += step!("double", io.did(format!("double {x}"), x * 2).await?) + x;
        }
        while let Some(x) = items.pop() {
            step!("never", io.did("never", x).await?);
        }
        Ok(sum)
    }
}

#[test]
fn while_let_takes_steps_until_one_does_not_match() {
    let seen = same(|| while_let_step(vec![1, 2]));
    assert_eq!(seen.outcome, "Completed(9)");
    assert_eq!(seen.log, ["next", "double 2", "next", "double 1", "next"]);
}

twin! {
    async fn negated(io, n: u32) -> anyhow::Result<(bool, i32)> {
        let no = !step!("yes", io.did("yes", n == 1).await?);
        let minus = -step!("one", io.did("one", 1i32).await?);
        if !(no && !step!("second", io.did("second", n == 2).await?)) {
            return Ok((no, minus));
        }
        Ok((no, minus - 1))
    }
}

#[test]
fn unary_operators_apply_to_steps() {
    assert_eq!(same(|| negated(1)).outcome, "Completed((false, -1))");
    assert_eq!(same(|| negated(2)).outcome, "Completed((true, -1))");
    assert_eq!(same(|| negated(3)).outcome, "Completed((true, -2))");
}

twin! {
    async fn deep(io, n: u32) -> anyhow::Result<Vec<u32>> {
        let mut out = Vec::new();
        for a in 0..n {
            if a % 2 == 0 {
                let mut b = a;
                while step!("b", io.did("b", b < 3).await?) {
                    match b {
                        1 => {
                            if let Some(c) = step!("c", io.did("c", Some(b + 10)).await?) {
                                let d = step!(io.did("d", c * 2).await?);
                                loop {
                                    let e = step!(io.did("e", out.len() as u32).await?);
                                    if e > d / 8 { break }
                                    out.push(c + d + e);
                                }
                            }
                        }
                        _ => out.push(b),
                    }
                    b += 1;
                }
            } else {
                out.push(step!("odd", io.did("odd", a).await?));
            }
        }
        Ok(out)
    }
}

#[test]
fn five_levels_of_control_flow_nest() {
    let seen = same(|| deep(4));
    assert_eq!(seen.outcome, "Completed([0, 34, 35, 2, 1, 2, 3])");
}

twin! {
    async fn blocks(io, n: u32) -> anyhow::Result<u32> {
        {}
        let a = { let inner = n + 1; { inner * step!("in", io.did("in", 2).await?) } };
        let b = { step!("only", io.did("only", a + 1).await?) };
        { step!("unit", io.did("unit", ()).await?) }
        { {} }
        let () = {};
        let c = { let d = step!("danger", io.did("danger", b).await?); core::hint::black_box(d) };
        Ok({ { a + b + c } })
    }
}

#[test]
fn blocks_have_values_through_any_nesting() {
    let seen = same(|| blocks(3));
    assert_eq!(seen.outcome, "Completed(26)");
    assert_eq!(seen.log, ["in", "only", "unit", "danger"]);
}

twin! {
    async fn unit_tail(io, n: u32) -> Result<(), std::convert::Infallible> {
        if n == 0 {
            step!("zero", io.get("zero", ()).await)
        } else {
            match n { 1 => step!("one", io.get("one", ()).await), 2 => {} _ => { step!("many", io.get("many", ()).await); } }
        }
        Ok(step!("tail", io.get("tail", ()).await))
    }
}

#[test]
fn unit_steps_stand_in_tail_position() {
    assert_eq!(same(|| unit_tail(0)).log, ["zero", "tail"]);
    assert_eq!(same(|| unit_tail(1)).log, ["one", "tail"]);
    assert_eq!(same(|| unit_tail(2)).log, ["tail"]);
    assert_eq!(same(|| unit_tail(3)).log, ["many", "tail"]);
}

twin! {
    async fn whole_result_is_a_step(io, n: u32) -> Result<u32, String> {
        step!("all", io.get("all", if n > 1 { Ok(n) } else { Err(format!("{n} is small")) }).await)
    }
}

#[test]
fn the_tail_is_a_step_whose_value_is_the_result() {
    assert_eq!(same(|| whole_result_is_a_step(2)).outcome, "Completed(2)");
    assert_eq!(same(|| whole_result_is_a_step(1)).outcome, "Failed(\"1 is small\")");
}

twin! {
    async fn diverging(io, n: u32) -> anyhow::Result<u32> {
        let x = if n == 0 { return Ok(99) } else if n == 1 { panic!("one") } else { step!("x", io.did("x", n).await?) };
        let y = match step!("y", io.did("y", x).await?) {
            2 => { step!("two", io.did("two", ()).await?); return Ok(2) }
            3 => anyhow::bail!("three"),
            n => n,
        };
        Ok(y)
    }
}

#[test]
fn diverging_arms_leave_the_function() {
    let ends: Vec<_> = (0..5).map(|n| same(|| diverging(n)).outcome).collect();
    assert_eq!(ends, ["Completed(99)", "Failed(\"panicked: one\")", "Completed(2)", "Failed(\"three\")", "Completed(4)"]);
}

twin! {
    async fn let_chain(io, a: Option<u32>, b: Option<String>) -> anyhow::Result<String> {
        if let Some(x) = a
            && x > 1
            && let Some(y) = step!("b", io.did("b", b.clone()).await?)
            && step!("long", io.did("long", y.len() > 1).await?)
            && let [first, .., last] = y.as_bytes()
        {
            let both = first + last;
            step!("inside", io.did(format!("inside {x} {y}"), ()).await?);
            Ok(format!("{x} {y} {both}"))
        } else {
            step!("else", io.did("else", ()).await?);
            Ok(format!("none {a:?} {b:?}"))
        }
    }
}

#[test]
fn a_let_chain_holds_steps_among_its_links() {
    let seen = same(|| let_chain(Some(2), Some("ab".into())));
    assert_eq!(seen.outcome, "Completed(\"2 ab 195\")");
    assert_eq!(seen.log, ["b", "long", "inside 2 ab"]);
    assert_eq!(same(|| let_chain(Some(1), None)).log, ["else"]);
    assert_eq!(same(|| let_chain(Some(2), None)).log, ["b", "else"]);
    assert_eq!(same(|| let_chain(Some(2), Some("a".into()))).log, ["b", "long", "else"]);
}

twin! {
    async fn let_chain_without_else(io, pairs: Vec<(u32, Option<u32>)>) -> anyhow::Result<Vec<u32>> {
        let mut out = vec![];
        for (a, b) in pairs {
            if a > 0 && let Some(b) = b && step!("ask", io.did(format!("ask {a} {b}"), a != b).await?) {
                out.push(step!(io.did("sum", a + b).await?));
                if b > 5 && let Some(c) = step!("c", io.did("c", b.checked_sub(a)).await?) && c > 3 { continue; }
                out.push(0);
            }
        }
        Ok(out)
    }
}

#[test]
fn a_let_chain_in_a_loop_may_continue_from_its_depth() {
    let seen = same(|| let_chain_without_else(vec![(0, None), (1, Some(1)), (1, Some(9)), (2, None), (8, Some(6)), (2, Some(3))]));
    assert_eq!(seen.outcome, "Completed([10, 14, 0, 5, 0])");
}

twin! {
    async fn while_let_chain(io, items: Vec<u32>) -> anyhow::Result<u32> {
        let mut items = items;
        let mut sum = 0;
        while let Some(x) = items.pop() && step!("fits", io.did(format!("fits {x}"), x < 10).await?) && sum < 12 {
            sum += x;
            step!("took", io.did(format!("took {x}"), ()).await?);
        }
        Ok(sum + items.len() as u32 * 100)
    }
}

#[test]
fn a_while_let_chain_ends_at_its_first_false_link() {
    assert_eq!(same(|| while_let_chain(vec![1, 2, 3])).outcome, "Completed(6)");
    assert_eq!(same(|| while_let_chain(vec![1, 20, 3])).outcome, "Completed(103)");
    assert_eq!(same(|| while_let_chain(vec![1, 9, 8, 7])).outcome, "Completed(115)");
}
