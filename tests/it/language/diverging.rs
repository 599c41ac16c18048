//! Ends that are never come to (`bail!`, `panic!`, functions that return `!`), and values that go nowhere.
use super::harness::{plain_step as step, same, twin};

/// Ends the caller, which only its type says.
fn fail(why: &str) -> ! {
    panic!("{why}")
}

macro_rules! give_up {
    ($why:expr) => {
        fail($why)
    };
}

twin! {
    async fn let_else(io, o: Option<u32>, how: u32) -> anyhow::Result<u32> {
        let kept = step!("before", io.did("before", 7).await?);
        let mut rounds = 0;
        let value = loop {
            rounds += 1;
            let Some(x) = o else {
                step!("missing", io.did("missing", ()).await?);
                match how {
                    0 => anyhow::bail!("missing {kept}"),
                    1 => panic!("missing {kept}"),
                    2 => return Ok(kept),
                    3 => break kept + 1,
                    4 if rounds < 3 => continue,
                    4 => break rounds,
                    5 => fail("gone"),
                    6 => give_up!("gone"),
                    7 => {
                        if step!("sure", io.did("sure", true).await?) { fail("gone") } else { unreachable!() }
                    }
                    8 => {
                        let why = step!("why", io.did("why", "for good".to_owned()).await?);
                        fail(&why);
                    }
                    _ => todo!("{kept}"),
                }
            };
            break x + kept;
        };
        step!("after", io.did("after", ()).await?);
        Ok(value + rounds)
    }
}

#[test]
fn the_else_of_a_let_may_end_in_anything_that_never_ends() {
    assert_eq!(same(|| let_else(Some(1), 0)).outcome, "Completed(9)");
    for how in 0..10 {
        let seen = same(|| let_else(None, how));
        assert_eq!(seen.log[..2], ["before", "missing"]);
        match how {
            2 => assert_eq!(seen.outcome, "Completed(7)"),
            3 => assert_eq!(seen.outcome, "Completed(9)"),
            4 => assert_eq!(seen.outcome, "Completed(6)"),
            5..=7 => assert!(seen.outcome.contains("gone"), "{}", seen.outcome),
            8 => assert!(seen.outcome.contains("for good"), "{}", seen.outcome),
            0 | 1 => assert!(seen.outcome.contains("missing 7"), "{}", seen.outcome),
            _ => assert!(seen.outcome.contains("not yet implemented: 7"), "{}", seen.outcome),
        }
    }
}

twin! {
    async fn nested_ends(io, o: Option<u32>, a: bool, b: bool) -> anyhow::Result<u32> {
        let Some(x) = o else {
            step!("one", io.did("one", ()).await?);
            if a {
                step!("two", io.did("two", ()).await?);
                fail("two");
            } else {
                let Some(y) = b.then_some(3) else {
                    step!("three", io.did("three", ()).await?);
                    give_up!("three");
                };
                match y {
                    3 => {
                        step!("four", io.did("four", ()).await?);
                        fail("four")
                    }
                    _ => fail("five"),
                };
            };
        };
        let Ok(z) = u8::try_from(x) else {
            loop {
                step!("six", io.did("six", ()).await?);
                if b { fail("six") }
                if a { return Ok(6); }
            }
        };
        let Some(w) = z.checked_sub(1) else {
            'out: {
                step!("seven", io.did("seven", ()).await?);
                if a { break 'out }
                fail("seven");
            }
            step!("eight", io.did("eight", ()).await?);
            anyhow::bail!("eight")
        };
        Ok(u32::from(w))
    }
}

#[test]
fn every_end_of_an_else_may_never_come_on_its_own() {
    assert_eq!(same(|| nested_ends(Some(5), true, true)).outcome, "Completed(4)");
    assert_eq!(same(|| nested_ends(Some(500), true, false)).outcome, "Completed(6)");
    for (o, a, b, end) in [
        (None, true, true, "two"),
        (None, false, false, "three"),
        (None, false, true, "four"),
        (Some(500), true, true, "six"),
        (Some(0), false, true, "seven"),
        (Some(0), true, true, "eight"),
    ] {
        let seen = same(|| nested_ends(o, a, b));
        assert!(seen.outcome.contains(end), "{}", seen.outcome);
        assert_eq!(seen.log.last().unwrap(), end);
    }
}

twin! {
    async fn set_or_ended(io, n: u32) -> anyhow::Result<String> {
        let x;
        let y: u32;
        let early = step!("early", io.did("early", n + 1).await?);
        if n < 9 {
            x = "set".to_owned();
        } else {
            step!("no x", io.did("no x", ()).await?);
            if n == 9 { anyhow::bail!("no x") }
            fail("no x");
        }
        match n {
            0 => y = 1,
            1 => {
                let read = step!("read", io.did("read", 10).await?);
                y = read + early;
                step!("has y", io.did("has y", ()).await?);
            }
            2 => {
                step!("no y", io.did("no y", ()).await?);
                give_up!("no y")
            }
            3 => {
                step!("nor y", io.did("nor y", ()).await?);
                unimplemented!("no y")
            }
            4 => {
                loop {
                    step!("round", io.did("round", ()).await?);
                    if early == 5 { y = 5; break; }
                    fail("never");
                }
            }
            _ => {
                step!("other", io.did("other", ()).await?);
                y = if early > 6 { fail("no y either") } else { step!("six", io.did("six", 6).await?) };
            }
        }
        step!("both", io.did("both", ()).await?);
        Ok(format!("{x} {y}"))
    }
}

#[test]
fn a_variable_that_is_set_later_may_stay_unset_where_the_code_ends() {
    for (n, end) in [
        (0, "Completed(\"set 1\")"),
        (1, "Completed(\"set 12\")"),
        (2, "no y"),
        (3, "no y"),
        (4, "Completed(\"set 5\")"),
        (5, "Completed(\"set 6\")"),
        (6, "no y either"),
        (9, "no x"),
        (10, "no x"),
    ] {
        let seen = same(|| set_or_ended(n));
        assert!(seen.outcome.contains(end), "{n}: {}", seen.outcome);
    }
}

twin! {
    async fn set_in_a_round(io, n: u32) -> anyhow::Result<u32> {
        let mut sum = 0;
        for i in 0..n {
            let part;
            if i % 2 == 0 {
                part = step!("even", io.did("even", i).await?);
            } else if i < 4 {
                step!("odd", io.did("odd", ()).await?);
                part = 100;
            } else {
                step!("end", io.did("end", ()).await?);
                fail("enough");
            }
            step!("add", io.did("add", ()).await?);
            sum += part;
        }
        Ok(sum)
    }
}

#[test]
fn a_variable_that_is_set_in_each_round_begins_unset_in_each() {
    assert_eq!(same(|| set_in_a_round(5)).outcome, "Completed(206)");
    assert!(same(|| set_in_a_round(6)).outcome.contains("enough"));
}

twin! {
    async fn values_of_arms(io, n: u32) -> anyhow::Result<u32> {
        let a = if n == 0 {
            step!("a", io.did("a", 1).await?)
        } else if n == 1 {
            step!("b", io.did("b", ()).await?);
            fail("b")
        } else if n == 2 {
            step!("c", io.did("c", ()).await?);
            fail("c");
        } else if n == 3 {
            fail("d");
        } else {
            if n == 4 {
                step!("e", io.did("e", ()).await?);
                give_up!("e");
            } else {
                give_up!("f");
            };
        };
        step!("end", io.did("end", ()).await?);
        Ok(a)
    }
}

#[test]
fn an_arm_without_a_value_may_be_one_that_never_ends() {
    assert_eq!(same(|| values_of_arms(0)).outcome, "Completed(1)");
    for (n, end) in [(1, "b"), (2, "c"), (3, "d"), (4, "e"), (5, "f")] {
        assert!(same(|| values_of_arms(n)).outcome.contains(end));
    }
}

twin! {
    async fn dropped_values(io, c: bool) -> anyhow::Result<u32> {
        { step!("a", io.did("a", 5).await?) };
        loop { step!("b", io.did("b", ()).await?); break 42; };
        'b: { if c { step!("c", io.did("c", ()).await?); break 'b 1 } 2 };
        if c { step!("d", io.did("d", 4).await?) } else { 3 };
        if c { 3 } else { step!("e", io.did("e", 4).await?) };
        match c { true => step!("f", io.did("f", "text".to_owned()).await?), false => String::new() };
        match c { true => 1, false => 2 + step!("g", io.did("g", 1).await?) };
        { { step!("i", io.did("i", 1).await?); 7 } };
        loop { { step!("j", io.did("j", ()).await?); break Some(1) }; };
        { step!("k", io.did("k", vec![1]).await?) }.len();
        (if c { step!("l", io.did("l", 1).await?) } else { 1 });
        let _ = { step!("m", io.did("m", 1).await?) };
        'outer: loop {
            loop {
                if step!("n", io.did("n", c).await?) { break 'outer 'x' };
                break 'outer 'y';
            };
        };
        if c {
            { step!("o", io.did("o", 5).await?) };
        }
        { step!("p", io.did("p", 5).await?) };
        Ok(1)
    }
}

#[test]
fn the_value_of_a_block_or_loop_may_go_nowhere() {
    let seen = same(|| dropped_values(true));
    assert_eq!(seen.outcome, "Completed(1)");
    assert_eq!(seen.log.concat(), "abcdfijklmnop");
    assert_eq!(same(|| dropped_values(false)).log.concat(), "abegijkmnp");
}

twin! {
    async fn other_forms(io, a: Option<u32>, b: Option<String>, how: u32) -> anyhow::Result<String> {
        let (Some(x), Some(text)) = (a, b) else {
            let logged = step!("pair", io.did("pair", how).await?);
            if logged == 7 { return Err(anyhow::anyhow!("returned")); }
            std::panic::panic_any(format!("pair {logged}"));
        };
        let Some(found): Option<u32> = step!("find", io.did("find", x.checked_sub(1)).await?) else {
            step!("not found", io.did("not found", ()).await?);
            match text.as_str() {
                "exit" => fail("exit"),
                _ => anyhow::bail!("not {text}"),
            }
        };
        let y;
        loop {
            match step!("next", io.did("next", found + how).await?) {
                0 => continue,
                n if n < 5 => {
                    step!("small", io.did("small", ()).await?);
                    y = n;
                    break;
                }
                5 => {
                    y = step!("five", io.did("five", 50).await?);
                    break;
                }
                _ => fail("too many"),
            }
        }
        let z;
        'set: {
            if y == 1 { z = "one"; break 'set }
            step!("not one", io.did("not one", ()).await?);
            if y == 2 { fail("two") }
            z = "more";
        }
        let done: u32 = match z {
            "one" => 1,
            "more" if y == 3 => { step!("three", io.did("three", ()).await?); fail("three") }
            _ => step!("last", io.did("last", 9).await?),
        };
        Ok(format!("{text} {y} {done}"))
    }
}

#[test]
fn ends_that_never_come_are_known_in_every_form() {
    let text = || Some("t".to_owned());
    for (a, b, how, end) in [
        (None, text(), 1, "pair 1"),
        (None, None, 7, "returned"),
        (Some(0), text(), 0, "not t"),
        (Some(0), Some("exit".to_owned()), 0, "exit"),
        (Some(2), text(), 0, "Completed(\"t 1 1\")"),
        (Some(2), text(), 1, "two"),
        (Some(2), text(), 2, "three"),
        (Some(2), text(), 3, "Completed(\"t 4 9\")"),
        (Some(2), text(), 4, "Completed(\"t 50 9\")"),
        (Some(9), text(), 4, "too many"),
    ] {
        let seen = same(|| other_forms(a, b.clone(), how));
        assert!(seen.outcome.contains(end), "{end}: {}", seen.outcome);
    }
}
