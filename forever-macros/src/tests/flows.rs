//! Kept variables of cut points in code that diverges.
use super::kept;

/// The variables that the step `s` keeps.
fn at_s(body: &str) -> String {
    kept(&format!("async fn f(c: bool, o: Option<u32>) -> Result<(), E> {{ {body} Ok(()) }}"), "s").join(", ")
}

#[test]
fn a_step_before_an_end_keeps_nothing_for_what_is_behind_it() {
    for (end, keeps) in [
        ("bail!(\"no\")", ""),
        ("anyhow::bail!(\"no\");", ""),
        ("panic!()", ""),
        ("core::panic!();", ""),
        ("unreachable!()", ""),
        ("todo!()", ""),
        ("unimplemented!();", ""),
        ("return Err(e())", ""),
        ("return Err(e());", ""),
        ("fail()", ""),
        ("fail();", ""),
        ("give_up!()", ""),
        ("std::process::exit(1)", ""),
        ("loop {}", ""),
        ("loop { b(); }", ""),
        ("if c { fail() } else { return Ok(()) }", "c"),
        ("match o { Some(1) => panic!(), _ => { bail!(\"no\") } };", "o"),
    ] {
        assert_eq!(at_s(&format!("let Some(x) = o else {{ step!(\"s\", a()); {end} }}; b(x);")), keeps, "{end}");
        assert_eq!(at_s(&format!("let x; if d {{ x = 1; }} else {{ step!(\"s\", a()); {end} }} b(x);")), keeps, "{end}");
    }
}

#[test]
fn a_variable_that_is_set_on_a_path_is_kept_behind_it() {
    assert_eq!(at_s("let x; if c { x = 1; } else { fail(); } step!(\"s\", a()); b(x);"), "x");
    assert_eq!(at_s("let x; loop { if c { x = 1; break; } } step!(\"s\", a()); b(x);"), "x");
    assert_eq!(at_s("let x; 'a: { if c { x = 1; break 'a; } x = 2; step!(\"s\", a()); } b(x);"), "x");
    assert_eq!(at_s("let x; 'a: { if c { x = 1; break 'a; } step!(\"s\", a()); x = 2; } b(x);"), "");
    assert_eq!(at_s("let mut x; x = 1; loop { step!(\"s\", a()); b(x); x = 2; }"), "x");
    assert_eq!(at_s("loop { let x; step!(\"s\", a()); x = 1; b(x); }"), "");
    assert_eq!(at_s("loop { let x; if c { x = 1; } else { step!(\"s\", a()); fail(); } b(x); }"), "c");
}

#[test]
fn a_body_that_fails_hides_nothing_of_what_its_options_do_with_the_error() {
    assert_eq!(at_s("let x = 1; step!(\"s\", bail!(\"no\")); b(x);"), "x");
    assert_eq!(at_s("let x = a(); step!(\"s\", a()); let y = step!(\"t\", catch, bail!(\"no\")); b(x);"), "x");
    assert_eq!(at_s("let x = a(); let y = step!(\"t\", { bail!(\"no\") }); step!(\"s\", a()); b(x);"), "x");
}
