//! Labelled loops and blocks, `break` and `continue` to them, with and without values.
use super::harness::{plain_step as step, same, twin};

twin! {
    async fn outer_jumps(io, n: u32) -> anyhow::Result<Vec<(u32, u32)>> {
        let mut out = vec![];
        'outer: for a in 0..n {
            'inner: for b in 0..n {
                let c = step!(io.did(format!("c {a} {b}"), a * 10 + b).await?);
                match c {
                    2 => continue 'outer,
                    11 => break 'inner,
                    22 => break 'outer,
                    20 => continue 'inner,
                    _ => {}
                }
                step!("kept", io.did("kept", ()).await?);
                out.push((a, b));
            }
            step!("row", io.did("row", ()).await?);
        }
        Ok(out)
    }
}

#[test]
fn labelled_jumps_leave_and_continue_the_loops_they_name() {
    let seen = same(|| outer_jumps(4));
    assert_eq!(seen.outcome, "Completed([(0, 0), (0, 1), (1, 0), (2, 1)])");
}

twin! {
    async fn break_value(io, n: u32) -> anyhow::Result<u32> {
        let mut i = 0;
        let found = loop {
            i += 1;
            if step!("test", io.did(format!("test {i}"), i * i > n).await?) { break i }
        };
        let twice = 'outer: loop {
            let mut j = found;
            loop {
                j += 1;
                if j % 7 == 0 { break 'outer step!("seven", io.did("seven", j * 2).await?); }
                if j > found + 3 { break }
            }
            if step!("give up", io.did("give up", true).await?) { break 'outer 0 }
        };
        Ok(found * 1000 + twice)
    }
}

#[test]
fn a_loop_has_the_value_of_its_break_also_of_a_step_in_it() {
    assert_eq!(same(|| break_value(10)).outcome, "Completed(4014)");
    assert_eq!(same(|| break_value(60)).outcome, "Completed(8000)");
}

twin! {
    async fn block_value(io, n: u32) -> anyhow::Result<String> {
        let got = 'found: {
            if n == 0 { break 'found "none".to_owned(); }
            for i in 0..n {
                let hit = step!(io.did(format!("hit {i}"), i == 2).await?);
                if hit { break 'found format!("at {i}"); }
                if i == 4 { break 'found step!("four", io.did("four", "four".to_owned()).await?); }
            }
            step!("end", io.did("end", "end".to_owned()).await?)
        };
        let unit = 'b: { if n > 1 { break 'b; } step!("one", io.did("one", ()).await?); };
        let () = unit;
        Ok(got)
    }
}

#[test]
fn a_labelled_block_takes_its_value_through_loops_with_steps() {
    let ends: Vec<_> = [0, 2, 5].map(|n| same(|| block_value(n)).outcome).into();
    assert_eq!(ends, [r#"Completed("none")"#, r#"Completed("end")"#, r#"Completed("at 2")"#]);
}

twin! {
    async fn same_label_twice(io, n: u32) -> anyhow::Result<u32> {
        let mut sum = 0;
        'a: loop {
            sum += step!(io.did("first", 1).await?);
            if sum > n { break 'a }
            'b: { if sum == 2 { break 'b } step!("not two", io.did("not two", ()).await?); }
        }
        'a: for i in 0..3u32 {
            'b: while sum > 0 {
                sum -= 1;
                if step!("odd", io.did("odd", sum % 2 == 1).await?) { continue 'a }
                if i == 2 { break 'a }
                break 'b;
            }
        }
        Ok(sum)
    }
}

#[test]
fn a_label_is_used_again_after_its_loop() {
    assert_eq!(same(|| same_label_twice(3)).outcome, "Completed(1)");
}

twin! {
    async fn labelled_while(io, n: u32) -> anyhow::Result<u32> {
        let mut i = 0;
        let mut seen = 0;
        'w: while step!("go", io.did("go", i < n).await?) {
            i += 1;
            for j in (0..i).rev() {
                if j == 1 { continue 'w }
                if step!("stop", io.did(format!("stop {i} {j}"), i + j == 100).await?) { break 'w }
                seen += 1;
            }
            if i == 1 { continue }
            seen += 100;
        }
        Ok(seen)
    }
}

#[test]
fn a_while_with_a_step_in_its_condition_is_continued_by_label() {
    assert_eq!(same(|| labelled_while(4)).outcome, "Completed(4)");
}

twin! {
    async fn block_in_loop(io, n: u32) -> anyhow::Result<Vec<u32>> {
        let mut out = Vec::new();
        'i: for i in 0..n {
            let v = 'v: {
                if i == 1 { continue 'i }
                if i == 3 { break 'i }
                if i == 2 { break 'v 20 }
                step!("v", io.did(format!("v {i}"), i + 1).await?)
            };
            out.push(v);
        }
        Ok(out)
    }
}

#[test]
fn continue_and_break_inside_a_labelled_block_mean_the_loop() {
    assert_eq!(same(|| block_in_loop(6)).outcome, "Completed([1, 20])");
}

twin! {
    async fn loop_in_condition(io, n: u32) -> anyhow::Result<u32> {
        let mut tries = 0;
        if loop { tries += 1; if step!("try", io.did("try", tries >= n).await?) { break tries % 2 == 0 } } {
            Ok(tries)
        } else {
            Ok(tries + match 'm: { if tries == 3 { break 'm None } Some(step!("m", io.did("m", 5).await?)) } { Some(x) => x, None => 100 })
        }
    }
}

#[test]
fn loops_and_labelled_blocks_stand_in_conditions_and_scrutinees() {
    assert_eq!(same(|| loop_in_condition(2)).outcome, "Completed(2)");
    assert_eq!(same(|| loop_in_condition(3)).outcome, "Completed(103)");
    assert_eq!(same(|| loop_in_condition(1)).outcome, "Completed(6)");
}

twin! {
    async fn never_loop(io, n: u32) -> anyhow::Result<u32> {
        let mut i = 0;
        loop {
            i += step!("i", io.did("i", 1).await?);
            if i > n { return Ok(i) }
        }
    }
}

#[test]
fn an_endless_loop_ends_by_return() {
    assert_eq!(same(|| never_loop(2)).outcome, "Completed(3)");
}
