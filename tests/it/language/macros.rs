//! Uses that hide in the arguments of other macros.
use serde_json::json;

use super::harness::{plain_step as step, same, twin};

twin! {
    async fn formatted(io, name: String, width: usize, precision: usize, number: f64) -> anyhow::Result<String> {
        let unused = 5;
        let fill = 7;
        step!("one", io.did("one", ()).await?);
        let a = format!("{name:>width$}|{number:.precision$}|{number:width$.precision$}|{name:?}|{{name}}|{number:0width$}");
        step!("two", io.did("two", ()).await?);
        let b = format!("{0}{x}{fill:#06x}{:>1$}", name, width, x = precision + 1);
        let c = concat!("a", 1).to_owned();
        step!("three", io.did("three", ()).await?);
        let mut text = String::new();
        use std::fmt::Write as _;
        write!(text, "{a}{b}{c}{unused:e}")?;
        writeln!(&mut text)?;
        Ok(text)
    }
}

#[test]
fn captures_in_format_strings_are_uses() {
    let seen = same(|| formatted("ab".into(), 6, 2, 1.5));
    assert_eq!(seen.outcome, r#"Completed("    ab|1.50|  1.50|\"ab\"|{name}|0001.5ab30x0007    aba15e0\n")"#.replace('\\', "\\"));
}

twin! {
    async fn json_and_vec(io, name: String, list: Vec<u32>) -> anyhow::Result<String> {
        let n = 2;
        step!("one", io.did("one", ()).await?);
        let body = json!({ "name": name, "k": [n, list[0], { "deep": list.len() }], "null": null });
        step!("two", io.did("two", ()).await?);
        let v = vec![n, list.len() as i32];
        let w = vec![name.clone(); n as usize];
        step!("three", io.did("three", ()).await?);
        Ok(format!("{body} {v:?} {w:?}"))
    }
}

#[test]
fn json_and_vec_use_variables() {
    let seen = same(|| json_and_vec("x".into(), vec![4, 5]));
    assert_eq!(seen.outcome, r#"Completed("{\"k\":[2,4,{\"deep\":2}],\"name\":\"x\",\"null\":null} [2, 2] [\"x\", \"x\"]")"#);
}

twin! {
    async fn asserted(io, n: u32, limit: u32, text: String) -> anyhow::Result<bool> {
        let least = 1;
        step!("one", io.did("one", ()).await?);
        assert!(n >= least, "{n} is under {least}: {text}");
        assert_eq!(text.len(), 1, "length of {text:?}");
        assert_ne!(n, 77);
        debug_assert!(n < 1000);
        let ok = matches!(n, 1..=5 if n < limit);
        step!("two", io.did("two", ()).await?);
        anyhow::ensure!(n != 3, "{n} is three, {limit}");
        if n == 4 { unreachable!("four {text}") }
        if n == 5 { todo!() }
        step!("three", io.did("three", ()).await?);
        eprint!("{}", &text[..0]);
        Ok(ok && !cfg!(any()) && dbg_free(&text))
    }
}

fn dbg_free(text: &str) -> bool {
    !text.is_empty()
}

#[test]
fn assertions_use_variables_and_fail_alike() {
    assert_eq!(same(|| asserted(2, 3, "t".into())).outcome, "Completed(true)");
    assert_eq!(same(|| asserted(2, 1, "t".into())).outcome, "Completed(false)");
    assert_eq!(same(|| asserted(0, 3, "t".into())).outcome, "Failed(\"panicked: 0 is under 1: t\")");
    assert_eq!(same(|| asserted(3, 9, "t".into())).outcome, "Failed(\"3 is three, 9\")");
    assert_eq!(same(|| asserted(4, 9, "t".into())).log, ["one", "two"]);
    assert_eq!(same(|| asserted(5, 9, "t".into())).outcome, "Failed(\"panicked: not yet implemented\")");
}

macro_rules! event {
    ($($field:ident = %$value:expr,)* $text:literal) => { { let mut t = String::from($text); $(t += &format!(" {}={}", stringify!($field), $value);)* t } };
    (?$name:ident) => { format!("{:?}", $name) };
}

macro_rules! maximum {
    ($a:expr) => { $a };
    ($a:expr, $($rest:expr),+) => { { let a = $a; let b = maximum!($($rest),+); if a > b { a } else { b } } };
}

twin! {
    async fn own_macros(io, id: u32, name: String) -> anyhow::Result<String> {
        let code = id * 2;
        step!("one", io.did("one", ()).await?);
        let line = event!(id = %code, user = %name.len(), "seen {}");
        step!("two", io.did("two", ()).await?);
        let debug = event!(?name);
        let top = maximum!(id, code, 3 + id);
        Ok(format!("{line} {debug} {top}"))
    }
}

#[test]
fn fields_of_tracing_like_macros_are_uses() {
    assert_eq!(same(|| own_macros(4, "ab".into())).outcome, r#"Completed("seen {} id=8 user=2 \"ab\" 8")"#);
}

twin! {
    async fn tracing_fields(io, id: u32, name: String) -> anyhow::Result<u32> {
        let question = 3;
        step!("one", io.did("one", ()).await?);
        tracing::info!(id, ?name, count = name.len(), user.name = %name, "asked {question}");
        tracing::debug!(target: "x", parent: None, { question = question }, "{}", id);
        let span = tracing::info_span!("work", id);
        step!("two", span.in_scope(|| 1));
        Ok(question)
    }
}

#[test]
fn tracing_events_between_steps_use_locals() {
    assert_eq!(same(|| tracing_fields(1, "n".into())).outcome, "Completed(3)");
}

twin! {
    async fn step_of_a_macro(io, n: u32) -> anyhow::Result<String> {
        let text = step!(format!("{n}"));
        let list = step!("list", vec![n; 2]);
        let got = step!("got", { let x = io.did("got", n).await?; json!({ "x": x, "n": n }) });
        Ok(format!("{text} {list:?} {got}"))
    }
}

#[test]
fn a_steps_body_is_a_macro_call() {
    assert_eq!(same(|| step_of_a_macro(3)).outcome, r#"Completed("3 [3, 3] {\"n\":3,\"x\":3}")"#);
}

twin! {
    async fn json_key(io, n: u32) -> anyhow::Result<String> {
        let key = "k".to_owned();
        step!("one", io.did("one", ()).await?);
        Ok(serde_json::json!({ key: n }).to_string())
    }
}
#[test]
fn a_json_key_is_a_variable() {
    assert_eq!(same(|| json_key(1)).outcome, "Completed(\"{\\\"k\\\":1}\")");
}

twin! {
    async fn parameter_of_a_locals_name(io, n: u32) -> anyhow::Result<u32> {
        macro_rules! twice {
            ($n:expr) => {
                $n * 2
            };
        }
        let k = twice!(n);
        step!("one", io.did("one", ()).await?);
        Ok(k + twice!(n))
    }
}

#[test]
fn a_parameter_of_a_macro_may_have_a_locals_name() {
    assert_eq!(same(|| parameter_of_a_locals_name(3)).outcome, "Completed(12)");
}
