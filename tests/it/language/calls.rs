//! `call!` in every position.
use forever::prelude::{Res, fiber};

use super::harness::{Io, everywhere, plain_call as call, plain_step as step, same, twin};

twin! {
    async fn child(io, n: u32) -> anyhow::Result<u32> {
        let a = step!(io.did(format!("a {n}"), n).await?);
        if a == 13 { anyhow::bail!("unlucky {a}"); }
        let b = step!(io.did(format!("b {n}"), a + 1).await?);
        Ok(a + b)
    }
}

twin! {
    async fn unit_child(io, what: String) -> anyhow::Result<()> {
        step!("unit", io.did(what, ()).await?);
        Ok(())
    }
}

twin! {
    async fn every_position(io, n: u32) -> anyhow::Result<u32> {
        let first = call!(child(n))?;
        call!(unit_child("statement".into()))?;
        let result = call!(child(first));
        let second = match result { Ok(v) => v, Err(e) => { step!("e", io.did(e.to_string(), 0).await?) } };
        let mut sum = call!(child(1))? + second * call!(child(2))?;
        sum += call!(child(3))?;
        if call!(child(4))? > 5 && call!(child(5)).is_ok() || call!(child(6)).is_err() {
            sum += 1;
        }
        let text = { call!(child(7))? }.to_string();
        while call!(child(sum))? < 400 {
            sum += 50;
            if let Ok(v) = call!(child(8)) { sum += v }
        }
        for i in 0..call!(child(0))? {
            for x in [i, 2] { sum += call!(child(x))?; }
        }
        let list = vec![sum];
        let arg = step!("arg", io.did("arg", list.len() as u32).await?);
        let arg = call!(child(arg))?;
        Ok(sum + text.len() as u32 + arg)
    }
}

#[test]
fn a_call_stands_wherever_an_await_would() {
    let seen = same(|| every_position(2));
    assert!(seen.snapshots.len() > 40, "{}", seen.snapshots.len());
    assert!(seen.snapshots[0].contains(r#""call":{"#), "{}", seen.snapshots[0]);
}

twin! {
    async fn errors(io, n: u32) -> anyhow::Result<String> {
        let kept = "kept".to_owned();
        let text = match call!(child(n)) {
            Ok(v) if v > 100 => format!("big {v}"),
            Ok(v) => { step!("ok", io.did(format!("ok {v}"), ()).await?); format!("{v}") }
            Err(e) => { let e = e.to_string(); step!("err", io.did(format!("err {e}"), ()).await?); format!("failed: {e}") }
        };
        let Ok(v) = call!(child(n + 1)) else {
            step!("else", io.did("else", ()).await?);
            return Ok(format!("{text} {kept} else"));
        };
        let or = call!(child(n + 2)).unwrap_or(0);
        let w = call!(child(n + 3)).map_err(|e| e.context("outer"))?;
        Ok(format!("{text} {kept} {v} {or} {w}"))
    }
}

#[test]
fn a_callees_error_is_a_value_of_the_caller() {
    assert_eq!(same(|| errors(1)).outcome, r#"Completed("3 kept 5 7 9")"#);
    assert_eq!(same(|| errors(13)).outcome, r#"Completed("failed: unlucky 13 kept 29 31 33")"#);
    assert_eq!(same(|| errors(12)).outcome, r#"Completed("25 kept else")"#);
    assert_eq!(same(|| errors(11)).outcome, r#"Completed("23 kept 25 0 29")"#);
    assert_eq!(same(|| errors(10)).outcome, "Failed(\"outer\")");
    assert_eq!(same(|| errors(60)).outcome, r#"Completed("big 121 kept 123 125 127")"#);
}

twin! {
    async fn middle(io, n: u32) -> anyhow::Result<u32> {
        let own = n * 2;
        let mut sum = 0;
        for i in 0..2 {
            let got = call!(child(own + i))?;
            step!("got", io.did("got", ()).await?);
            sum += got;
        }
        Ok(sum + call!(child(n))?)
    }
}

twin! {
    async fn outer(io, list: Vec<u32>) -> anyhow::Result<Vec<u32>> {
        let mut out = vec![];
        for n in &list {
            out.push(call!(middle(*n))?);
            step!("pushed", io.did("pushed", ()).await?);
        }
        out.push(call!(middle(list[0]))?);
        Ok(out)
    }
}

#[test]
fn calls_nest_two_deep_in_loops() {
    let seen = same(|| outer(vec![1, 2]));
    assert_eq!(seen.outcome, "Completed([15, 25, 15])");
    let deep: serde_json::Value = serde_json::from_str(&seen.snapshots[0]).unwrap();
    assert_eq!(deep["at"], "middle");
    assert_eq!(deep["call"]["at"], "got#2");
    assert_eq!(deep["call"]["call"]["at"], "a");
    assert_eq!(deep["call"]["call"]["locals"]["a"], 2);
    assert_eq!(deep["call"]["call"]["call"], serde_json::Value::Null);
}

twin! {
    async fn fails_deep(io, n: u32) -> anyhow::Result<u32> {
        let v = call!(middle(n))?;
        step!("never for 13", io.did("after", ()).await?);
        Ok(v)
    }
}

#[test]
fn an_error_two_calls_down_comes_up_through_question_marks() {
    let seen = same(|| fails_deep(6));
    assert_eq!(seen.outcome, "Failed(\"unlucky 13\")");
    assert_eq!(seen.log, ["a 12", "b 12", "got", "a 13"]);
}

#[fiber]
async fn echo<T: serde::Serialize + serde::de::DeserializeOwned + Send + Clone + 'static, const N: usize>(
    io: Res<Io>,
    t: T,
) -> Result<[T; N], String>
where
    [T; N]: serde::Serialize + serde::de::DeserializeOwned,
{
    let t = step!(io.get("t", t).await);
    let again = std::array::from_fn(|_| t.clone());
    step!("again", io.get("again", ()).await);
    Ok(again)
}

#[fiber]
async fn calls_generic(io: Res<Io>, n: u32) -> anyhow::Result<String> {
    let a = forever::call!(echo::<u32, 2>(n)).map_err(anyhow::Error::msg)?;
    let b: [String; 1] = call!(echo("x".to_owned())).map_err(anyhow::Error::msg)?;
    let [c, d] = call!(echo::<_, 2>((n, 'c'))).map_err(anyhow::Error::msg)?;
    step!("end", io.did("end", ()).await?);
    Ok(format!("{a:?}{b:?}{c:?}{d:?}"))
}

#[test]
fn a_generic_fiber_is_called_with_types_given_or_inferred() {
    let (outcome, log, _) = everywhere(|| calls_generic(1));
    assert_eq!(outcome, r#"Completed("[1, 1][\"x\"](1, 'c')(1, 'c')")"#);
    assert_eq!(log, ["t", "again", "t", "again", "t", "again", "end"]);
}

twin! {
    async fn panics(io, n: u32) -> anyhow::Result<u32> {
        let x = step!(io.did("x", n).await?);
        assert!(x < 2, "too big: {x}");
        Ok(x)
    }
}

twin! {
    async fn calls_panicking(io, n: u32) -> anyhow::Result<u32> {
        step!("start", io.did("start", ()).await?);
        let r = call!(panics(n));
        Ok(r.unwrap_or(7))
    }
}

#[test]
fn a_panic_in_a_callee_fails_the_caller() {
    assert_eq!(same(|| calls_panicking(1)).outcome, "Completed(1)");
    assert_eq!(same(|| calls_panicking(2)).outcome, "Failed(\"panicked: too big: 2\")");
}

mod nested {
    use super::{Io, Res, fiber};

    #[fiber]
    pub(super) async fn remote(io: Res<Io>, n: u32) -> Result<u32, std::num::TryFromIntError> {
        let small = u8::try_from(n)?;
        let x = forever::step!(io.get("x", small).await);
        Ok(x.into())
    }
}

#[fiber]
async fn by_path(io: Res<Io>, n: u32) -> Result<u32, Box<dyn std::error::Error + Send + Sync>> {
    let a = call!(nested::remote(n))?;
    let b = call!(self::nested::remote(n + a))?;
    step!("end", io.get("end", ()).await);
    Ok(a + b)
}

#[test]
fn a_callee_is_named_by_path_and_its_error_converts() {
    assert_eq!(everywhere(|| by_path(1)).0, "Completed(3)");
    let (outcome, log, _) = everywhere(|| by_path(200));
    assert_eq!((outcome.as_str(), &*log), ("Failed(\"out of range integral type conversion attempted\")", &["x".to_owned()][..]));
}

twin! {
    async fn factorial(io, n: u64) -> anyhow::Result<u64> {
        step!("enter", io.did(format!("enter {n}"), ()).await?);
        if n <= 1 { return Ok(1) }
        let below = call!(factorial(n - 1))?;
        step!("leave", io.did(format!("leave {n}"), ()).await?);
        Ok(n * below)
    }
}

#[test]
fn a_fiber_calls_itself() {
    let seen = same(|| factorial(4));
    assert_eq!(seen.outcome, "Completed(24)");
    assert_eq!(seen.log, ["enter 4", "enter 3", "enter 2", "enter 1", "leave 2", "leave 3", "leave 4"]);
}

twin! {
    async fn factors(io, n: u32, from: u32) -> anyhow::Result<Vec<u32>> {
        let mut found = vec![from];
        for f in from..=n {
            if f > 1 && n % f == 0 {
                let own = step!(io.did(format!("{f} of {n}"), f).await?);
                if n == f {
                    return Ok(vec![own]);
                }
                found = call!(factors(n / f, f))?;
                let rest = call!(factors(own, own))?;
                found.extend(rest);
                break;
            }
        }
        Ok(found)
    }
}

twin! {
    async fn even(io, n: u32) -> anyhow::Result<bool> {
        if n == 0 { return Ok(true); }
        step!(io.did(format!("even {n}"), ()).await?);
        Ok(call!(odd(n - 1))?)
    }
}

twin! {
    async fn odd(io, n: u32) -> anyhow::Result<bool> {
        if n == 0 { return Ok(false); }
        let found = call!(even(n - 1))?;
        step!(io.did(format!("odd {n}"), ()).await?);
        Ok(found)
    }
}

#[test]
fn fibers_call_themselves_in_loops_and_each_other() {
    assert_eq!(same(|| factors(12, 2)).outcome, "Completed([3, 2, 2])");
    let seen = same(|| even(5));
    assert_eq!(seen.outcome, "Completed(false)");
    assert!(seen.snapshots.iter().any(|s| s.matches(r#""call":{"#).count() == 4), "{:#?}", seen.snapshots);
}
