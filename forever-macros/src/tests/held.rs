//! Locals that are held at a cut point which does not keep them.
use super::analysed;

/// The variables whose types are checked, with the cut points.
fn held(source: &str) -> Vec<(String, String)> {
    let lowered = analysed(source);
    let name = |var| lowered.table.var(var).ident.to_string();
    lowered.plan.held.iter().map(|(var, cut)| (name(*var), lowered.plan.names[*cut].0.clone())).collect()
}

fn in_body(body: &str) -> String {
    let held = held(&format!("async fn f(c: bool) -> Result<(), E> {{ {body} Ok(()) }}"));
    held.iter().map(|(var, cut)| format!("{var} at {cut}")).collect::<Vec<_>>().join(", ")
}

#[test]
fn a_local_without_uses_is_held_at_the_first_cut_point_of_its_scope() {
    for (body, found) in [
        // In its scope, and after it.
        ("let _g = g(); step!(\"s\", a());", "_g at s"),
        ("let _g = g(); step!(\"s\", a()); step!(\"t\", a());", "_g at s"),
        ("step!(\"s\", a()); let _g = g();", ""),
        ("{ let _g = g(); } step!(\"s\", a());", ""),
        ("{ let _g = g(); b(); step!(\"s\", a()); }", "_g at s"),
        ("let _g = g(); if c { step!(\"s\", a()); }", "_g at s"),
        ("let _g = g(); loop { step!(\"s\", a()); break; }", "_g at s"),
        ("loop { step!(\"s\", a()); let _g = g(); if c { break } }", ""),
        ("loop { let _g = g(); if c { break } step!(\"s\", a()); }", "_g at s"),
        ("if c { let _g = g(); } else { step!(\"s\", a()); }", ""),
        ("let _g = g(); return step!(\"s\", a());", "_g at s"),
        // Its own value.
        ("let _g = step!(\"s\", g());", "_g at s"),
        ("let _ = step!(\"s\", g());", ""),
        // Patterns.
        ("let (_g, h) = g(); step!(\"s\", h); ", "_g at s"),
        ("if let Some(_g) = g() { step!(\"s\", a()); }", "_g at s"),
        ("match g() { A(_g) => { step!(\"s\", a()); } B { _h, .. } => b(), }", "_g at s"),
        ("while let Some(_g) = g() { step!(\"s\", a()); }", "_g at s"),
        ("let Some(_g) = g() else { return Ok(()) }; step!(\"s\", a());", "_g at s"),
        ("let Some(_g) = g() else { step!(\"s\", a()); return Ok(()) };", ""),
        ("let Some(_g) = g() else { step!(\"s\", a()); return Ok(()) }; step!(\"t\", a());", "_g at t"),
        ("let _g = if c { step!(\"s\", a()) } else { g() }; step!(\"t\", a());", "_g at t"),
        // The remaining items of a loop by value are kept, so their type is checked there.
        ("for _g in gs() { step!(\"s\", a()); }", ""),
        // Set later.
        ("let _g; step!(\"s\", a()); _g = g();", ""),
        ("let _g; _g = g(); step!(\"s\", a());", "_g at s"),
        ("let _g; if c { _g = g(); step!(\"s\", a()); } step!(\"t\", a());", "_g at s"),
        ("let _g; if c { step!(\"s\", a()); return Ok(()) } else { _g = g(); } step!(\"t\", a());", "_g at t"),
        ("let mut _g = g(); step!(\"s\", a()); _g = g();", "_g at s"),
        // Made again, but only where it is needed.
        ("#[fresh] let _g = g(); step!(\"s\", a());", "_g at s"),
        ("#[fresh] let g = g(); step!(\"s\", a()); b(&g);", ""),
    ] {
        assert_eq!(in_body(body), found, "{body}");
    }
}

#[test]
fn a_local_with_uses_is_dropped_where_its_block_ends() {
    for body in [
        "let g = g(); step!(\"s\", a(&g)); step!(\"t\", a());",
        "let g = g(); b(&g); step!(\"s\", a());",
        "let g = g(); drop(g); step!(\"s\", a());",
        "let g = g(); step!(\"s\", a()); b(g);",
        "let g = g(); step!(\"s\", println!(\"{g}\")); step!(\"t\", a());",
        "let g = &c; step!(\"s\", a());",
        "let g = \"text\"; step!(\"s\", a());",
    ] {
        assert_eq!(in_body(body), "", "{body}");
    }
}

#[test]
fn a_locks_guard_is_held_until_it_is_dropped() {
    for (body, found) in [
        ("let g = m.lock().unwrap(); b(&g); step!(\"s\", a());", "g at s"),
        ("let g = m.lock().await; b(&g); step!(\"s\", a());", "g at s"),
        ("let g = m.try_lock()?; b(&g); drop(g); step!(\"s\", a());", ""),
        ("let g = m.try_lock()?; b(&g); std::mem::drop(g); step!(\"s\", a());", ""),
        ("let g = m.lock().await; notify(g); step!(\"s\", a());", ""),
        ("let g = m.lock().unwrap(); step!(\"s\", a()); drop(g);", ""),
        ("let g = m.lock(key); b(&g); step!(\"s\", a());", ""),
        ("{ let g = m.lock().unwrap(); b(&g); } step!(\"s\", a());", ""),
    ] {
        assert_eq!(in_body(body), found, "{body}");
    }
}
