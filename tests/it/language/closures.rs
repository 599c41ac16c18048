//! Closures and `async` blocks between steps that use kept variables.
use super::harness::{plain_step as step, same, twin};

twin! {
    async fn capturing(io, base: u32, words: Vec<String>) -> anyhow::Result<String> {
        let factor = step!(io.did("factor", base * 2).await?);
        let add = |x: u32| x + base + factor;
        let one = add(1);
        step!("one", io.did("one", one).await?);
        let mut counted = 0;
        let mut count = |w: &String| { counted += w.len(); counted };
        let lens: Vec<usize> = words.iter().map(&mut count).collect();
        step!("two", io.did("two", ()).await?);
        let joined = words.iter().map(|w| format!("{w}{base}")).collect::<Vec<_>>().join(",");
        let base = { let f = move |y: u32| base * y; f(3) };
        step!("three", io.did("three", base).await?);
        let owner = words;
        let long = (move || owner.into_iter().filter(|w| w.len() > 1).count())();
        step!("four", io.did("four", ()).await?);
        Ok(format!("{one} {lens:?} {counted} {joined} {base} {long}"))
    }
}

#[test]
fn closures_between_steps_capture_what_is_kept() {
    let seen = same(|| capturing(2, vec!["a".into(), "bc".into()]));
    assert_eq!(seen.outcome, r#"Completed("7 [1, 3] 3 a2,bc2 6 1")"#);
}

twin! {
    async fn in_steps(io, items: Vec<u32>, limit: u32) -> anyhow::Result<Vec<u32>> {
        let io2 = io.clone();
        let big = step!("big", { let picked: Vec<u32> = items.iter().copied().filter(|x| *x > limit).collect(); io2.did("big", picked).await? });
        let mut out = Vec::new();
        for x in &big {
            let y = step!("async", async { io.did(format!("async {x}"), x + limit).await }.await?);
            out.push(y);
        }
        let extra = async { out.len() as u32 + limit }.await;
        out.push(step!("extra", (|| async { io.did("extra", extra).await })().await?));
        out.sort_by_key(|x| std::cmp::Reverse(x % (limit + 3)));
        step!("sorted", io.did("sorted", ()).await?);
        Ok(out)
    }
}

#[test]
fn closures_and_async_blocks_stand_in_steps_and_between_them() {
    let seen = same(|| in_steps(vec![1, 5, 9], 2));
    assert_eq!(
        seen.outcome,
        "Completed([4, 11, 7])".replace("4, 11, 7", &{
            let mut v = vec![7u32, 11, 4];
            v.sort_by_key(|x| std::cmp::Reverse(x % 5));
            v.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
        })
    );
}

twin! {
    async fn parameter_hides(io, x: u32) -> anyhow::Result<u32> {
        let y = step!(io.did("y", x + 1).await?);
        let f = |x: u32, (y, _): (u32, u32)| x * 10 + y;
        let a = f(1, (2, 3));
        step!("a", io.did("a", ()).await?);
        let g = |n: u32| { let y = n; move |x: u32| x + y + a };
        let b = g(1)(2);
        step!("b", io.did("b", ()).await?);
        Ok(a + b + x * 1000 + y * 100)
    }
}

#[test]
fn a_closures_parameter_hides_a_kept_variable() {
    assert_eq!(same(|| parameter_hides(1)).outcome, "Completed(1227)");
}

twin! {
    async fn kept(io, base: u32, words: Vec<String>) -> anyhow::Result<String> {
        let double = |n: u32| n * 2;
        let known = |word: &str| words.iter().any(|w| w.starts_with(word));
        let limit = step!("limit", io.did("limit", double(base)).await?);
        let over = |n: &u32| *n > limit && n % 2 == 0;
        let note = |what: &str| io.log(what.to_uppercase());
        let mut found = Vec::new();
        for n in 0..limit + 5 {
            if !over(&n) {
                continue;
            }
            note("over");
            let base = step!("base", io.did("base", base + n).await?);
            let limit = double(base);
            found.push(limit);
            if step!("known", io.did("known", known("b")).await?) {
                let words = vec![found.len()];
                let longer = |v: &Vec<usize>| v.len() + words[0];
                step!("inner", io.did("inner", ()).await?);
                found.push(double(longer(&words) as u32));
                found.push(u32::from(known("b")));
            }
            let rest: Vec<u32> = found.iter().copied().filter(over).collect();
            step!("rest", io.did(format!("{rest:?}"), ()).await?);
        }
        note("end");
        Ok(format!("{found:?} {}", known("zz")))
    }
}

#[test]
fn closures_over_what_does_not_change_are_kept() {
    let seen = same(|| kept(2, vec!["ab".into(), "bc".into()]));
    assert!(seen.outcome.contains("false"), "{}", seen.outcome);
    same(|| kept(1, vec![]));
}

twin! {
    async fn named_in_macros(io, order: u32, words: Vec<String>) -> anyhow::Result<String> {
        let prefix = format!("order {order}");
        let label = |part: &str| format!("{prefix}/{part}:{}", words.len());
        let is_known = |word: &str| matches!(words.first(), Some(first) if first == word);
        let mut out = vec![label("start")];
        step!("start", io.did(label("start"), ()).await?);
        for word in &words {
            if is_known(word) { continue }
            out.push(step!("word", io.did(label(word), format!("<{word}>")).await?));
        }
        step!("end", io.did(label("end"), ()).await?);
        Ok(format!("{out:?} {}", label("last")))
    }
}

#[test]
fn closures_that_name_what_they_capture_in_macros_are_kept() {
    let seen = same(|| named_in_macros(7, vec!["a".into(), "b".into()]));
    assert!(seen.outcome.contains("order 7/last:2"), "{}", seen.outcome);
}
