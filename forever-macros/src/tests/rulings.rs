//! Rulings on differences between plain Rust and a resume, one test each: what a step keeps, what
//! is made again, and what is refused. `scripts/nightly mutants` undoes them one at a time.
use super::{expanded, kept, messages, tokens};

fn function(body: &str) -> String {
    format!("async fn f(a: Vec<u32>, mut n: usize, o: Option<u32>, p: Pair) -> Result<(), E> {{ {body} Ok(()) }}")
}

/// The variables that the step `s` keeps.
fn at_s(body: &str) -> String {
    kept(&function(body), "s").join(", ")
}

/// The only error of a body; empty if there is none.
fn refusal(body: &str) -> String {
    let found = messages("", &function(body));
    assert!(found.len() < 2, "{body}: {found:#?}");
    found.into_iter().next().unwrap_or_default()
}

fn expansion(body: &str) -> String {
    expanded(tokens(""), tokens(&function(body)))
}

#[test]
fn the_arguments_of_what_a_loop_goes_over_are_evaluated_once() {
    for (for_loop, keeps) in [
        ("a.iter().take(n + 1)", "a, n, n+1, a.iter().take(n+1) at"),
        ("a.iter().take(n)", "a, n, n#2, a.iter().take(n) at"),
        ("&a[n..]", "a, n, n#2, a[n..] at"),
        ("a.chunks(size())", "a, n, size(), a.chunks(size()) at"),
        ("a.iter().take(3)", "a, n, a.iter().take(3) at"),
    ] {
        assert_eq!(at_s(&format!("for x in {for_loop} {{ step!(\"s\", b(x)); n += 1; }}")), keeps, "{for_loop}");
    }
}

#[test]
fn a_slice_of_what_has_no_name_is_taken_again_from_the_whole() {
    let for_loop = |over: &str| at_s(&format!("for x in {over} {{ step!(\"s\", b(x)); n += 1; }}"));
    assert_eq!(for_loop("&rows()[n..]"), "n, rows(), n#2, rows()[n..] at");
    assert_eq!(for_loop("&[\"law\", \"tax\"][n..]"), "n, n#2, [\"law\",\"tax\"][n..] at");
}

#[test]
fn fields_that_each_arm_moves_in_an_order_of_its_own_are_not_asked_to_be_copies() {
    let arm = |first: u32, later: u32| format!("{{ let x = p.{first}; step!(b(x)); let y = p.{later}; step!(b(y)); c(x, y); }}");
    let made = expansion(&format!("match n {{ 0 => {} _ => {} }}", arm(0, 1), arm(1, 0)));
    assert!(!made.contains("only_copied(&"), "{made}");
    assert!(made.contains("only_fields"), "{made}");
}

#[test]
fn a_copy_out_of_a_borrow_is_a_value() {
    assert_eq!(at_s("let &x = &p.0; step!(\"s\", b()); c(x);"), "x");
    assert_eq!(at_s("match &o { &Some(x) => { step!(\"s\", b()); c(x); } None => {} }"), "x");
    assert_eq!(at_s("match &o { Some(x) => { step!(\"s\", b()); c(x); } None => {} }"), "o", "a borrow");
}

#[test]
fn a_binding_that_can_be_changed_is_a_value() {
    assert_eq!(at_s("let mut x = &p.0; step!(\"s\", b()); c(x);"), "x");
    assert_eq!(at_s("let x = &p.0; step!(\"s\", b()); c(x);"), "p", "a borrow");
    assert_eq!(at_s("let mut x = \"ada\"; step!(\"s\", b()); c(x);"), "x");
    assert_eq!(at_s("let x = \"ada\"; step!(\"s\", b()); c(x);"), "", "a constant");
}

#[test]
fn a_borrow_through_an_index_that_changes_is_no_plain_borrow() {
    assert_eq!(at_s("let x = &a[n]; step!(\"s\", b()); c(x);"), "x");
    assert_eq!(at_s("let i = 1; let x = &a[i]; step!(\"s\", b()); c(x);"), "a, i", "taken again");
}

#[test]
fn a_lookup_by_a_key_that_changes_is_refused() {
    let body = |key: &str| format!("{key} for x in &p.rows[&key] {{ step!(\"s\", b(x)); }}");
    assert!(refusal(&body("let mut key = k();")).starts_with("what is looked up by `key`, which is `mut`"));
    assert_eq!(refusal(&body("let key = k();")), "");
}

#[test]
fn a_loop_that_borrows_exclusively_or_goes_through_a_closure_is_refused() {
    let for_loop = |over: &str| refusal(&format!("for x in {over} {{ step!(\"s\", b(x)); }}"));
    assert!(for_loop("&mut p.rows").starts_with("a `for` loop with a step in it cannot hold a mutable borrow"));
    assert!(for_loop("a.iter().map(|x| x + 1)").starts_with("a borrowed iterator with a closure"));
    assert!(for_loop("rest.by_ref()").starts_with("a `for` loop with a step in it keeps the items that are left"));
    assert_eq!(for_loop("&p.rows"), "");
}

#[test]
fn a_pattern_that_borrows_exclusively_over_a_step_is_refused() {
    assert!(refusal("if let Some(x) = &mut p.0 { step!(\"s\", b()); c(x); }").starts_with("`x` borrows exclusively"));
    assert_eq!(refusal("if let Some(x) = &mut p.0 { c(x); step!(\"s\", b()); }"), "");
}

#[test]
fn a_borrowed_loop_asks_whether_what_it_goes_over_keeps_its_order() {
    for for_loop in ["&p.rows", "p.rows.iter().rev()", "a.iter().zip(&p.rows)"] {
        let text = expansion(&format!("for x in {for_loop} {{ step!(\"s\", b(x)); }}"));
        assert!(text.contains("in_order(&p.rows)"), "{text}");
    }
}

#[test]
fn a_position_over_what_no_snapshot_holds_has_a_fingerprint() {
    let has_fingerprint = |for_loop: &str| expansion(&format!("{for_loop} {{ step!(\"s\", b(x)); }}")).contains("LoopCursor::new");
    assert!(has_fingerprint("for x in [\"law\", \"sales\"]"));
    assert!(has_fingerprint("for x in TOPICS"));
    assert!(has_fingerprint("#[fresh] let list = made(); for x in &list"));
    assert!(!has_fingerprint("for x in &a"));
}

#[test]
fn a_body_that_may_not_run_or_run_again_cannot_change_locals() {
    for options in ["effect", "retry = Retry::times(3)"] {
        for change in ["n = 1", "n += 1", "c(&mut n)", "(n, _) = c()"] {
            let message = refusal(&format!("step!(\"s\", {options}, {{ {change}; }}); c(n);"));
            assert!(message.starts_with("`n` is changed in the body of "), "{options}, {change}: {message}");
        }
        let message = refusal(&format!("let x = &mut n; step!(\"s\", {options}, {{ c(x); }}); c(n);"));
        assert!(message.starts_with("`x` borrows exclusively"), "{options}: {message}");
        // What depends on types, such as a method that takes `&mut self`, is left to the compiler.
        let text = expansion(&format!("step!(\"s\", {options}, {{ n.grow(); }}); c(n);"));
        let text: String = text.split_whitespace().collect();
        assert!(text.contains("SharedBorrows::new().and(&n)"), "{text}");
    }
    assert!(refusal("steps!({ n = 1; }, b()); c(n);").starts_with("`n` is changed in a branch of `steps!`"));
    assert_eq!(refusal("step!(\"s\", { n = 1; }); c(n);"), "", "it runs once");
}

#[test]
fn a_text_that_is_one_of_several_constants_is_kept_as_which() {
    let chosen = "let x = if n > 1 { \"many\" } else { match o { Some(_) => \"one\", None => return Ok(()) } };";
    let text = expansion(&format!("{chosen} step!(\"s\", b()); c(x);"));
    assert!(text.contains("one_of(\"x\", &[\"many\", \"one\"])"), "{text}");
}

#[test]
fn fields_that_are_left_take_the_place_of_what_one_was_moved_out_of() {
    let moved = "let x = p.title; step!(\"s\", b(x));";
    assert!(expansion(&format!("{moved} c(p.rows);")).contains("remains"), "the others are kept");
    let text = expansion(&format!("{moved} c(p);"));
    assert!(text.contains("`p.title` is moved out of `p` before `step!(s)`, which keeps `p`"), "{text}");
}

#[test]
fn a_macro_of_the_body_that_names_a_local_across_a_step_is_refused() {
    assert!(refusal("macro_rules! m { () => { n } } step!(\"s\", b()); c(m!());").starts_with("a `macro_rules!` in the body"));
    assert_eq!(refusal("macro_rules! m { () => { 1 } } step!(\"s\", b()); c(m!());"), "");
}

#[test]
fn conditional_code_around_what_is_kept_is_refused() {
    assert!(refusal("#[cfg(test)] step!(\"s\", b());").starts_with("`#[cfg]` on code with a step"));
    assert!(refusal("match n { #[cfg(test)] 1 => { step!(\"s\", b()); } _ => {} }").starts_with("`#[cfg]` on code with a step"));
    assert!(refusal("#[cfg(test)] let x = 1; step!(\"s\", b()); c(x);").starts_with("`#[cfg]` on a local that is kept"));
    assert_eq!(refusal("#[cfg(test)] let x = 1; c(x); step!(\"s\", b());"), "");
}

#[test]
fn a_step_where_no_snapshot_can_be_taken_is_refused() {
    for (body, place) in [
        ("c(|| step!(b()));", "a closure"),
        ("c(async { step!(b()) });", "an `async` block"),
        ("fn g() { step!(b()) }", "a nested function"),
        ("c(vec![step!(b())]);", "the arguments of `vec!`"),
        ("step!(c(step!(b())));", "another `step!`"),
        ("match n { 1 if step!(b()) => {} _ => {} }", "a match guard"),
    ] {
        assert!(refusal(body).contains(&format!("`step!` cannot be used in {place}")), "{body}: {}", refusal(body));
    }
}

#[test]
fn what_a_steps_body_would_leave_is_refused() {
    assert!(refusal("step!(\"s\", { return Ok(()) });").starts_with("`return` cannot leave a step's body"));
    assert!(refusal("loop { step!(\"s\", { break; }); }").starts_with("`break` cannot leave a step's body"));
    assert_eq!(refusal("step!(\"s\", loop { break; });"), "");
}

#[test]
fn a_hidden_variable_is_reached_without_renaming_it() {
    let text = expansion("let x = n; { let x = b(); step!(\"s\", c(x)); d(x); } step!(\"t\", c(x));");
    assert!(text.contains("macro_rules!"), "{text}");
    assert!(text.contains("let x = n;"), "{text}");
}

#[test]
fn operands_before_a_step_are_values_or_borrowed_again() {
    assert_eq!(at_s("c(b(), step!(\"s\", d()));"), "b(), s()");
    assert_eq!(at_s("c(n, step!(\"s\", { n = 1; d() })); e(n);"), "n, n#2, s()", "the value before the step");
    assert_eq!(at_s("c(n, step!(\"s\", d())); e(n);"), "n, s()", "nothing changes it");
    assert_eq!(at_s("c(&a, step!(\"s\", d()));"), "a, s()");
    assert_eq!(at_s("c(1, step!(\"s\", d()));"), "s()");
}

#[test]
fn a_closure_is_made_again_from_what_it_captures() {
    let kept_by = |made: &str| at_s(&format!("let f = {made}; step!(\"s\", b()); c(f(1));"));
    assert_eq!(kept_by("|q| q + p.0"), "p");
    assert_eq!(kept_by("move |q| q + o"), "o");
    assert_eq!(kept_by("async |q| g(q, &a).await"), "a");
    assert_eq!(kept_by("|q| q + n"), "f", "`n` may change");
    assert_eq!(kept_by("move |q| q + p.0"), "p", "a field that is captured");
    assert_eq!(kept_by("move |q| q + p.0.len()"), "p");
    let is_checked = |made: &str| expansion(&format!("let f = {made}; step!(\"s\", b()); c(f(1));")).contains("p_0_is_copied");
    assert_eq!([is_checked("move |q| g(q, p.0)"), is_checked("move |q| g(q, &p.0)")], [true, false], "a field that is moved");
    assert_eq!(at_s("for x in &a { let f = |q| q + x; step!(\"s\", b()); c(f(1)); }"), "a, a at");
    let of_a_field = |rest: &str| expansion(&format!("let r = e(); let f = move |q| q + r.0; {rest} step!(\"s\", b()); c(r.1);"));
    assert!(of_a_field("c(f(1));").contains("remains::"), "a closure that no step keeps takes the field");
    let kept_on = of_a_field("step!(\"t\", b()); c(f(1));");
    assert!(!kept_on.contains("remains::"), "one that is kept borrows it, so that `r` stays whole: {kept_on}");
    let changing = "let mut m = e(); m.push(1);";
    let over_an_item = format!("{changing} for x in &m {{ let f = |q| q + x; step!(\"s\", b()); c(f(1)); }}");
    assert_eq!(at_s(&over_an_item), "m, m at", "an item is what it is for the whole round");
    let over_a_fresh = format!("{changing} #[fresh] let x = g(&m); let f = |q| q + x.0; step!(\"s\", b()); c(f(1));");
    assert_eq!(at_s(&over_a_fresh), "m", "a fresh value is made from what `m` is by then");
    let made = |rest: &str| expansion(&format!("let f = move |q| q + o; c(f(1)); step!(\"s\", b()); {rest}"));
    // The body as it was written, for editors, has one.
    assert_eq!(made("c(f(2));").matches("= move |q|").count(), 1, "what it captures is kept, so it is borrowed");
    assert_eq!(made("").matches("= move |q|").count(), 2, "as it was written");
}

#[test]
fn the_items_of_a_list_of_literals_are_values() {
    // However it is broken into lines.
    let for_loop = |items: &str| {
        let text = expansion(&format!("let w = [\"law\", \"tax\"]; for x in {items} {{ step!(\"s\", b(x)); }}"));
        text.split_whitespace().collect::<String>()
    };
    assert!(for_loop("w.into_iter().enumerate()").contains("in_order_value(w).into_iter()"));
    assert!(for_loop("w.iter().enumerate()").contains("in_order(&w).iter()"));
}

#[test]
fn what_a_fresh_value_is_made_from_has_its_type_on_a_resume() {
    let made = expansion("#[fresh] let x = connect(&a); step!(\"s\", b()); c(x);");
    assert!(made.matches("type_of_a_").count() >= 3, "declared, exported and restored: {made}");
}

#[test]
fn a_fresh_value_in_an_arm_is_made_from_the_binding_of_the_arm() {
    let made = expansion("if let Some(x) = o { #[fresh] let y = connect(&x); step!(\"s\", b()); c(y); }");
    assert!(!made.contains("let mut x;"), "{made}");
}

#[test]
fn what_the_value_of_a_block_borrows_from_stays_where_it_is() {
    let body = |value: &str, rest: &str| {
        format!("let x = if step!(\"t\", b()) {{ step!(\"u\", b()); {value} }} else {{ &p.1 }}; c(x); step!(\"s\", b()); {rest}")
    };
    for value in ["&a[0]", "Some(&a)", "a.first()", "(1, &a[..])", "if e() { &a[0] } else { g() }"] {
        assert_eq!(at_s(&body(value, "")), "a, p", "{value}");
    }
    assert_eq!(at_s(&body("g(a.len())", "")), "p", "no borrow by its form");
    let of_a_loop = "let x = 'l: { for y in &a { if step!(\"t\", b(y)) { break 'l Some(y); } } None }; c(x); step!(\"s\", b());";
    assert_eq!(at_s(of_a_loop), "a", "an item is a borrow");
    let of_places = of_a_loop.replace("for y in &a", "for (y, _) in a.iter().enumerate()");
    assert_eq!(at_s(&of_places), "", "its place is none");
    assert_eq!(refusal(&body("&a[0]", "return e(a);")), "", "no step comes behind the move");
    let moved = refusal(&body("&a[0]", "e(a); step!(\"v\", b());"));
    assert!(moved.starts_with("`x` borrows from `a` out of a block with a step"), "{moved}");
}
