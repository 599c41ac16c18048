//! Which variables code uses, what patterns bind, and how steps are named.
use quote::quote;

use super::{analysed, kept};
use crate::names::format::captures;
use crate::pattern;

/// Whether `x` is kept across a step, because of the code after it.
fn uses_x(after: &str) -> bool {
    let source = format!("async fn f(x: u32) -> Result<(), E> {{ step!(\"s\", a().await?); {after} }}");
    kept(&source, "s").contains(&"x".to_owned())
}

#[test]
fn format_strings_name_variables() {
    for used in [
        r#"println!("{x}");"#,
        r#"println!("{x:?}");"#,
        r#"println!("{x:>8.2}");"#,
        r#"println!("{{{x}}}");"#,
        r#"println!("{:x$}", 1);"#,
        r#"println!("{:>x$}", 1);"#,
        r#"println!("{:.x$}", 1);"#,
        r#"println!("{:+#08.x$?}", 1);"#,
        r#"println!("{y:>w$.x$}");"#,
        r#"println!("{y:é>x$}");"#,
        r#"println!("{:0x$}", 1);"#,
        r#"println!("{y:+0x$.2}");"#,
        r#"println!("{x }");"#,
        r#"println!("ünïcödé {x} ☃");"#,
        r##"println!(r#"{x}"#);"##,
        r#"println!(r"{x}");"#,
        "println!(\"a\n  {x}\");",
        r#"let text = format!("{}{x}", 1);"#,
        r#"tracing::info!("{x}");"#,
        r#"anyhow::bail!("{x}");"#,
        r#"Err(anyhow!("{x}"))?;"#,
    ] {
        assert!(uses_x(used), "{used}");
    }
}

#[test]
fn format_strings_are_read_by_their_grammar() {
    for (literal, names) in [
        // Arguments.
        (r#""""#, &[][..]),
        (r#""{}""#, &[]),
        (r#""{n}""#, &["n"]),
        (r#""{n}{m} {n}""#, &["n", "m", "n"]),
        (r#""{0} {1:?}""#, &[]),
        (r#""{_n1}""#, &["_n1"]),
        (r#""{größe}""#, &["größe"]),
        (r#""{n }""#, &["n"]),
        (r#""{n:? }""#, &["n"]),
        // Types.
        (r#""{n:?}""#, &["n"]),
        (r#""{n:#?}""#, &["n"]),
        (r#""{n:x?} {n:#X?} {n:x} {n:e} {n:p}""#, &["n", "n", "n", "n", "n"]),
        // Fill, alignment, sign, `#`.
        (r#""{n:<5}{n:^5}{n:>5}""#, &["n", "n", "n"]),
        (r#""{:p>w$}""#, &["w"]),
        (r#""{:w<5}""#, &[]),
        (r#""{n:}<w$}""#, &["n", "w"]),
        (r#""{n:{>w$}""#, &["n", "w"]),
        (r#""{n:$<w$}""#, &["n", "w"]),
        (r#""{n:0<w$}""#, &["n", "w"]),
        (r#""{n:.>w$.p$}""#, &["n", "w", "p"]),
        (r#""{n:+}{n:-5}{n:+w$}""#, &["n", "n", "n", "w"]),
        (r#""{n:#x}{n:#w$}""#, &["n", "n", "w"]),
        // The flag `0`, and `0` as an argument.
        (r#""{n:0pad$}""#, &["n", "pad"]),
        (r#""{n:05}{n:08.3}""#, &["n", "n"]),
        (r#""{n:+#010x}{n:#0w$b}""#, &["n", "n", "w"]),
        (r#""{n:0$}{n:00$}{n:01$}""#, &["n", "n", "n"]),
        (r#""{0:w$} {0:0w$} {:1$}""#, &["w", "w"]),
        (r#""{n:0}""#, &["n"]),
        // Width and precision.
        (r#""{:w$}{:.p$}{:w$.p$}""#, &["w", "p", "w", "p"]),
        (r#""{n:5.p$?}{n:w$.2}{n:w$x?}{n:.p$e}""#, &["n", "p", "n", "w", "n", "w", "n", "p"]),
        (r#""{:.*}{n:.*}{:w$.*}{:.1$}""#, &["n", "w"]),
        (r#""{:>1}{:>w$?}""#, &["w"]),
        // Not captures.
        (r#""{{n}} }} {{""#, &[]),
        (r#""{{{n}}}""#, &["n"]),
        (r#""{{n:w$}}""#, &[]),
        (r#""n w$""#, &[]),
        (r#""{n.field} {n[0]}""#, &["n", "n"]),
        (r#""{ {m}""#, &["m"]),
        (r#""{""#, &[]),
        (r#""{n""#, &["n"]),
        // Escapes.
        (r#""\u{7b}n\u{7d}""#, &["n"]),
        (r#""\u{e9}{n:\u{e9}>w$}\n\t\"{m}\"\\""#, &["n", "w", "m"]),
        (r#""\x41{n}\'\0""#, &["n"]),
        ("\"a \\\n   {n}\"", &["n"]),
        // Raw strings have none.
        (r#"r"\u{n}""#, &["n"]),
        (r###"r##"{n} "# {m:w$}"##"###, &["n", "m", "w"]),
        // Other literals.
        (r#"b"{n}""#, &[]),
        (r#"br"{n}""#, &[]),
        (r#"c"{n}""#, &[]),
        ("'{'", &[]),
        ("17", &[]),
    ] {
        let captures = captures(literal);
        let found: Vec<&str> = captures.iter().map(|c| c.name.as_str()).collect();
        assert_eq!(found, names, "{literal}");
        for capture in &captures {
            assert_eq!(literal.get(capture.place.clone()).unwrap(), capture.name, "{literal}");
        }
    }
}

#[test]
fn other_text_names_no_variables() {
    for unused in [
        r#"println!("x");"#,
        r#"println!("{{x}}");"#,
        r#"println!("{{{{x}}}}");"#,
        r#"println!("{0}", 1);"#,
        r#"println!("{}", 1);"#,
        r#"println!("{xs}");"#,
        r#"println!("{y:x}");"#,
        r#"println!("{y:x>3}");"#,
        r#"println!("{");"#,
        r#"take("{x}");"#,
        r#"let text = "{x}";"#,
        r#"include_bytes!(b"{x}");"#,
    ] {
        assert!(!uses_x(unused), "{unused}");
    }
}

#[test]
fn escapes_in_a_text_name_no_variables() {
    let source = r#"async fn f(c: u32) -> Result<(), E> { step!("s", a().await?); println!("\u{c}"); }"#;
    assert_eq!(kept(source, "s"), Vec::<String>::new());
    let source = r#"async fn f(c: u32) -> Result<(), E> { step!("s", a().await?); println!("\u{c}{c}\\{c}"); }"#;
    assert_eq!(kept(source, "s"), ["c"]);
}

#[test]
fn a_format_string_names_a_raw_identifier_without_its_prefix() {
    let source = r#"async fn f(r#type: u32) -> Result<(), E> { step!("s", a().await?); println!("{type}"); }"#;
    assert_eq!(kept(source, "s"), ["type"]);
}

#[test]
fn variables_in_the_arguments_of_macros_are_uses() {
    for used in [
        "vec![1, x];",
        "json!({ \"a\": x });",
        "json!({ x: 1 });",
        "assert!(matches!(x, 1 | 2));",
        "tracing::info!(%x, \"a\");",
        "tracing::info!(?x);",
        "tracing::info!(y = x);",
        "tracing::info!(y.z = %x);",
        "unknown!(a => x);",
        "unknown!([{ (x) }]);",
        "unknown!(x == 1);",
        "unknown!(1 != x);",
        "unknown!(x.y);",
        "unknown!(0..x);",
        "unknown!(..x);",
        "unknown!(!x);",
        "unknown!(S { y: x });",
        "unknown!(|y| x + y);",
    ] {
        assert!(uses_x(used), "{used}");
    }
    for unused in ["unknown!(y.x);", "unknown!(x::y);", "unknown!(y::x);", "unknown!(x!(1));", "unknown!(S { x: 1 });"] {
        assert!(!uses_x(unused), "{unused}");
    }
}

#[test]
fn what_is_set_before_it_is_used_is_not_kept() {
    assert!(!uses_x("x = 1; take(x);"));
    assert!(!uses_x("let x = 1; take(x);"));
    assert!(!uses_x("for x in 0..3 { take(x); }"));
    assert!(!uses_x("match y { x => take(x) }"));
    assert!(!uses_x("if let Some(x) = y { take(x) }"));
    assert!(!uses_x("let Some(x) = y else { return Ok(()) }; take(x);"));
    assert!(!uses_x("take(|x| x + 1);"));
    assert!(!uses_x("(x, y) = (1, 2); take(x);"));
    assert!(!uses_x("fn inner(x: u32) -> u32 { x } inner(1);"));
    assert!(!uses_x("take(S { x: 1 }.x);"));
    assert!(!uses_x("loop { x = 1; if y { break } take(x); }"));
}

#[test]
fn what_may_be_used_before_it_is_set_is_kept() {
    assert!(uses_x("if y { x = 1; } take(x);"));
    assert!(uses_x("x += 1;"));
    assert!(uses_x("x.y = 1;"));
    assert!(uses_x("x = x + 1; take(x);"));
    assert!(uses_x("take(|| x);"));
    assert!(uses_x("async { x };"));
    assert!(uses_x("take(|x| x + 1, x);"));
    assert!(uses_x("let x = x + 1; take(x);"));
    assert!(uses_x("if let Some(x) = x { take(x) }"));
    assert!(uses_x("let Some(x) = x else { return Ok(()) }; take(x);"));
    assert!(uses_x("take(S { x });"));
    assert!(uses_x("y && { x = 1; true }; take(x);"));
    assert!(uses_x("loop { if y { break } x = 1; } take(x);"));
    assert!(uses_x("while y { take(x); x = 1; }"));
    assert!(uses_x("'a: { if y { break 'a } x = 1; } take(x);"));
    assert!(uses_x("{ let x = 1; take(x); } take(x);"));
    assert!(uses_x("match y { 1 if x == 1 => {} _ => {} }"));
}

fn bindings(pat: proc_macro2::TokenStream) -> String {
    let pat = syn::parse::Parser::parse2(syn::Pat::parse_multi_with_leading_vert, pat).expect("it is a pattern");
    let bindings = pattern::bindings(&pat);
    let text = |b: &pattern::Binding| {
        let (by_ref, mutable) = (if b.by_ref { "ref " } else { "" }, if b.mutable || b.by_ref_mut { "mut " } else { "" });
        format!("{by_ref}{mutable}{}", b.ident)
    };
    bindings.iter().map(text).collect::<Vec<_>>().join(", ")
}

#[test]
fn patterns_bind_names_in_the_order_of_the_source() {
    assert_eq!(bindings(quote!(x)), "x");
    assert_eq!(bindings(quote!(mut x)), "mut x");
    assert_eq!(bindings(quote!(ref x)), "ref x");
    assert_eq!(bindings(quote!(ref mut x)), "ref mut x");
    assert_eq!(bindings(quote!(_)), "");
    assert_eq!(bindings(quote!((a, .., (b, &c)))), "a, b, c");
    assert_eq!(bindings(quote!(Some(x) | Other { x, .. })), "x");
    assert_eq!(bindings(quote!(Plan { title, limit: mut n, kind: Kind::Tag(ref tag), .. })), "title, mut n, ref tag");
    assert_eq!(bindings(quote!([first, rest @ .., last])), "first, rest, last");
    assert_eq!(bindings(quote!(whole @ Some(part @ 1..=9))), "whole, part");
    assert_eq!(bindings(quote!(r#type)), "r#type");
}

#[test]
fn names_in_capitals_are_constants_unless_the_pattern_says_otherwise() {
    assert_eq!(bindings(quote!(None)), "");
    assert_eq!(bindings(quote!((LIMIT, Kind::Plain, _MAX))), "");
    assert_eq!(bindings(quote!((X @ 1, ref Y, mut Z))), "X, ref Y, mut Z");
    assert_eq!(bindings(quote!((_x, __y, größe, Ä))), "_x, __y, größe");
}

#[test]
fn a_variable_in_an_arm_may_be_named_as_constants_are() {
    let in_arm = |lines: &str| {
        let source = format!(r#"async fn f(n: u32) -> Result<u32, E> {{ select! {{ m: u32 = recv!("a") => {{ {lines} }} }} Ok(1) }}"#);
        kept(&source, "s")
    };
    assert_eq!(in_arm(r#"let (LIMIT, _) = (n, 1); step!("s", a()); show(LIMIT);"#), ["LIMIT"]);
    assert_eq!(in_arm(r#"let LIMIT: u32 = n; step!("s", a()); show(LIMIT);"#), ["LIMIT"]);
    assert_eq!(in_arm(r#"for (LIMIT, _) in list() { step!("s", a()); show(LIMIT); }"#), ["for LIMIT", "LIMIT"]);
    // What an arm itself binds, in a macro of the program's own that is named as one of std.
    assert_eq!(in_arm(r#"let x = file!(m + 0); step!("s", a()); show(x);"#), ["x"]);
    assert_eq!(in_arm(r#"let x = file!("m"); step!("s", a()); show(x);"#), Vec::<String>::new());
    // Where a pattern may fail, it may be a constant.
    assert_eq!(in_arm(r#"if let (LIMIT, k) = (n, 1) { step!("s", a()); show(LIMIT, k); }"#), ["k"]);
    assert_eq!(in_arm(r#"let (LIMIT, k) = (n, 1) else { return Ok(2) }; step!("s", a()); show(LIMIT, k);"#), ["k"]);
}

fn step_names(body: &str) -> Vec<String> {
    let plan = analysed(&format!("async fn f() -> Result<(), E> {{ {body} }}")).plan;
    plan.names.into_iter().map(|(name, _)| name).collect()
}

#[test]
fn a_step_is_named_by_its_text_its_variable_or_what_it_calls() {
    assert_eq!(step_names(r#"let plan = step!("find", fetch().await?);"#), ["find"]);
    assert_eq!(step_names("let plan = step!(fetch().await?);"), ["plan"]);
    assert_eq!(step_names("let mut plan: Plan = step!(fetch().await?);"), ["plan"]);
    assert_eq!(step_names("let _plan = step!(fetch().await?);"), ["plan"]);
    assert_eq!(step_names("let r#type = step!(fetch().await?);"), ["type"]);
    assert_eq!(step_names("let _ = step!(fetch().await?);"), ["fetch"]);
    assert_eq!(step_names("let (a, b) = step!(fetch().await?);"), ["fetch"]);
    assert_eq!(step_names("step!(client.fetch(&url).await?);"), ["fetch"]);
    assert_eq!(step_names("step!(web::client::fetch(&url).await.unwrap());"), ["fetch"]);
    assert_eq!(step_names("step!(fetch(&url).await.map_err(Error::Web)?.clone());"), ["fetch"]);
    assert_eq!(step_names("step!({ fetch().await? });"), ["fetch"]);
    assert_eq!(step_names("step!({ let a = 1; fetch(a).await? });"), ["step"]);
    assert_eq!(step_names("step!(Ok(fetch().await?));"), ["fetch"]);
    assert_eq!(step_names("step!(a + b);"), ["step"]);
    assert_eq!(step_names("let plan = weigh(step!(fetch().await?));"), ["fetch"]);
    assert_eq!(step_names("step!(|op| pay(op.id()).await?);"), ["pay"]);
    assert_eq!(step_names("call!(web::search(1))?; let found = call!(search(1))?;"), ["search", "found"]);
}

#[test]
fn derived_names_are_numbered_around_the_given_ones() {
    assert_eq!(step_names("step!(a()); step!(a()); step!(a());"), ["a", "a#2", "a#3"]);
    assert_eq!(step_names("step!(a()); step!(\"a\", b()); step!(a());"), ["a#2", "a", "a#3"]);
    assert_eq!(step_names("step!(\"a\", b()); let a = step!(b()); step!(b());"), ["a", "a#2", "b"]);
}
