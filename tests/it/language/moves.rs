//! Values moved on one path only, unset, moved out at a cut point and assigned again.
use super::harness::{names, plain_step as step, same, twin};

twin! {
    async fn on_one_path(io, text: String, n: u32) -> anyhow::Result<String> {
        let mut out = String::new();
        if n == 1 {
            out = text;
            step!("moved", io.did("moved", ()).await?);
        } else if n == 2 {
            step!("kept", io.did("kept", ()).await?);
            out = text + "!";
        } else {
            drop(text);
        }
        step!("end", io.did("end", ()).await?);
        Ok(out)
    }
}

#[test]
fn a_value_moved_on_one_path_only() {
    let ends: Vec<_> = (1..4).map(|n| same(|| on_one_path("t".into(), n)).outcome).collect();
    assert_eq!(ends, [r#"Completed("t")"#, r#"Completed("t!")"#, r#"Completed("")"#]);
}

twin! {
    async fn moved_and_set_again(io, words: Vec<String>) -> anyhow::Result<Vec<String>> {
        let mut line = String::new();
        let mut out = Vec::new();
        for word in words {
            line.push_str(&word);
            if line.len() > 3 {
                out.push(line);
                step!("flush", io.did(format!("flush {}", out.len()), ()).await?);
                line = String::from("-");
            }
            step!("word", io.did(word, ()).await?);
        }
        out.push(line);
        Ok(out)
    }
}

#[test]
fn a_value_moved_out_at_a_step_and_assigned_before_its_next_use() {
    let seen = same(|| moved_and_set_again(["ab", "cd", "e", "fgh", "i"].map(Into::into).into()));
    assert_eq!(seen.outcome, r#"Completed(["abcd", "-efgh", "-i"])"#);
    let flush = seen.snapshots.iter().find(|s| s.contains(r#""at":"flush""#)).unwrap();
    assert!(!names(flush).contains(&"line".to_owned()), "{flush}");
}

twin! {
    async fn unset_at_a_step(io, n: u32) -> anyhow::Result<String> {
        let text: String;
        let number;
        step!("before", io.did("before", ()).await?);
        if n > 1 {
            number = step!("number", io.did("number", n).await?);
            text = format!("big {number}");
        } else {
            text = step!("text", io.did("text", "small".to_owned()).await?);
            number = 0;
        }
        step!("after", io.did("after", ()).await?);
        Ok(format!("{text} {number}"))
    }
}

#[test]
fn a_variable_without_a_value_at_a_step_gets_one_later() {
    assert_eq!(same(|| unset_at_a_step(1)).outcome, r#"Completed("small 0")"#);
    assert_eq!(same(|| unset_at_a_step(2)).outcome, r#"Completed("big 2 2")"#);
    assert_eq!(names(&same(|| unset_at_a_step(2)).snapshots[0]), ["n"]);
}

twin! {
    async fn never_set_on_one_path(io, n: u32) -> anyhow::Result<u32> {
        let x: u32;
        let done = step!(io.did("done", n == 0).await?);
        if done {
            step!("early", io.did("early", ()).await?);
            return Ok(0);
        } else {
            x = n * 2;
        }
        let y = loop {
            let z;
            if step!("z", io.did("z", true).await?) { z = x + 1; } else { continue }
            step!("set", io.did("set", ()).await?);
            break z;
        };
        Ok(y)
    }
}

#[test]
fn a_variable_that_one_path_never_sets() {
    assert_eq!(same(|| never_set_on_one_path(0)).outcome, "Completed(0)");
    assert_eq!(same(|| never_set_on_one_path(4)).outcome, "Completed(9)");
}

twin! {
    async fn taken_in_a_loop(io, n: u32) -> anyhow::Result<Vec<u32>> {
        let mut buffer = vec![0];
        let mut done = Vec::new();
        let mut i = 0;
        while i < n {
            let mut full = buffer;
            full.push(step!(io.did("full", i).await?));
            if i % 2 == 0 {
                buffer = full;
            } else {
                step!("big", io.did("big", full.len()).await?);
                done.extend(full);
                step!("reset", io.did("reset", ()).await?);
                buffer = Vec::new();
            }
            i += 1;
        }
        done.extend(buffer);
        Ok(done)
    }
}

#[test]
fn a_value_goes_round_a_loop_by_move() {
    assert_eq!(same(|| taken_in_a_loop(5)).outcome, "Completed([0, 0, 1, 2, 3, 4])");
}

twin! {
    async fn partly(io, pair: (String, Vec<u32>)) -> anyhow::Result<String> {
        let (text, list) = pair;
        let mut out = text.clone();
        for x in list {
            out += &step!("x", io.did("x", x.to_string()).await?);
        }
        step!("end", io.did("end", ()).await?);
        Ok(out + &text)
    }
}

#[test]
fn a_value_taken_apart_before_it_is_moved_in_parts() {
    assert_eq!(same(|| partly(("t".into(), vec![1, 2]))).outcome, r#"Completed("t12t")"#);
}

twin! {
    async fn option_take(io, n: u32) -> anyhow::Result<Vec<String>> {
        let mut pending = Some("first".to_owned());
        let mut out = vec![];
        for i in 0..n {
            if let Some(text) = pending.take() {
                let upper = step!(io.did("upper", text.to_uppercase()).await?);
                out.push(text);
                out.push(upper);
            } else {
                pending = Some(format!("again {i}"));
            }
            let swapped = std::mem::replace(&mut pending, None);
            step!("round", io.did("round", ()).await?);
            pending = swapped;
        }
        Ok(out)
    }
}

#[test]
fn take_and_replace_empty_a_variable_across_a_step() {
    assert_eq!(same(|| option_take(3)).outcome, r#"Completed(["first", "FIRST", "again 1", "AGAIN 1"])"#);
}

twin! {
    async fn moved_into_a_step(io, text: String, n: u32) -> anyhow::Result<usize> {
        let mut total = 0;
        let mut text = text;
        for i in 0..n {
            let owned = text;
            total += step!("eat", { let t = owned; io.did("eat", t.len()).await? });
            text = "x".repeat(i as usize + 2);
        }
        let last = step!(io.did("last", text).await?);
        Ok(total + last.len())
    }
}

#[test]
fn a_value_moved_into_a_steps_body_is_not_kept() {
    let seen = same(|| moved_into_a_step("abc".into(), 3));
    assert_eq!(seen.outcome, "Completed(12)");
    assert!(!names(&seen.snapshots[0]).contains(&"text".to_owned()));
}

twin! {
    async fn unit_and_never(io, n: u32) -> anyhow::Result<()> {
        let unit = step!("unit", io.did("unit", ()).await?);
        let other = if n > 0 { unit } else { anyhow::bail!("none") };
        step!("end", io.did("end", ()).await?);
        Ok(other)
    }
}

#[test]
fn unit_values_are_values() {
    assert_eq!(same(|| unit_and_never(1)).outcome, "Completed(())");
    assert_eq!(same(|| unit_and_never(0)).outcome, "Failed(\"none\")");
}
