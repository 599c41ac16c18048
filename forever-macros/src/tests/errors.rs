//! Errors that depend on more than one place; `tests/ui/fail` shows the text of each.
use super::messages;

#[test]
fn all_errors_of_a_function_are_given_at_once() {
    let item = "fn f(a: &str, ctx: &FiberContext) { vec![step!(a())]; step!(return); async { step!(b()) }; }";
    let found = messages("nam = 1", item);
    for part in [
        "unknown option `nam`",
        "`async fn`",
        "take `String`",
        "the context comes first",
        "returns a `Result`",
        "of `vec!`",
        "`return`",
        "`async` block",
    ] {
        assert!(found.iter().any(|message| message.contains(part)), "nothing about {part}: {found:#?}");
    }
    assert_eq!(found.len(), 8, "{found:#?}");
}

#[test]
fn what_is_wrong_with_the_options_of_a_step_is_said_once_for_each() {
    let found = |arguments: &str| messages("", &format!("async fn f(x: u32) -> Result<u32, E> {{ Ok(step!({arguments})) }}"));
    let known = "known options: `catch`, `effect`, `key`, `on_unknown`, `retry`, `timeout`, `was`";
    for (arguments, want) in [
        ("effect, effect, a()", vec!["option `effect` is given twice".to_owned()]),
        ("catch, catch, a()", vec!["option `catch` is given twice".to_owned()]),
        (
            "catch = true, a()",
            vec!["option `catch` takes no value: `match step!(catch, fetch(&url).await?) { Ok(page) => .., Err(error) => .. }`".to_owned()],
        ),
        ("effect, key = x, key = x, a()", vec!["option `key` is given twice".to_owned()]),
        ("effect, on_unknown = x, on_unknown = x, a()", vec!["option `on_unknown` is given twice".to_owned()]),
        ("effect = true, a()", vec!["option `effect` takes no value: `step!(effect, |op| charge(op.id()).await?)`".to_owned()]),
        (
            "key = x, on_unknown = x, a()",
            vec![
                "`key` is an option of effects: `step!(effect, key = .., |op| charge(op.id()).await?)`".to_owned(),
                "`on_unknown` is an option of effects: `step!(effect, on_unknown = .., |op| charge(op.id()).await?)`".to_owned(),
            ],
        ),
        ("effect, key, a()", vec!["option `key` needs a value: `key = (&order, cents)`".to_owned()]),
        ("effect, keys = x, a()", vec![format!("unknown option `keys` of `step!`; {known}")]),
        ("effects, a()", vec![format!("`effects` is no option of `step!`; {known}; the name comes first and the body last")]),
    ] {
        assert_eq!(found(arguments), want, "step!({arguments})");
    }
}

#[test]
fn the_options_of_an_effect_come_in_any_order() {
    let options = ["effect", "catch", "key = (&x, 1)", "on_unknown = OnUnknown::Retry", "retry = r", "timeout = t", "was = \"b\""];
    for first in 0..options.len() {
        let mut turned = options;
        turned.rotate_left(first);
        for name in ["\"a\", ", ""] {
            for body in ["a(x).await?", "|op| a(op.id(), x).await?", "{ a(x).await? }"] {
                let item = format!("async fn f(x: u32) -> Result<u32, E> {{ Ok(step!({name}{}, {body})) }}", turned.join(", "));
                assert_eq!(messages("", &item), Vec::<String>::new(), "{item}");
            }
        }
    }
}

#[test]
fn messages_have_the_form_of_the_house() {
    let head = |body: &str| format!("async fn f(x: u32) -> Result<u32, E> {{ {body} }}");
    let bodies = [
        "step!()",
        "step!(a = 1, b())",
        "step!(a, b())",
        "step!(\"#\", b())",
        "step!(was = a, b())",
        "step!(let a = 1)",
        "step!(a; b)",
        "step!(|| a)",
        "step!(effect, effect, a())",
        "step!(effect = true, a())",
        "step!(effects, a())",
        "step!(key = x, a())",
        "step!(on_unknown = y, |op| a(op))",
        "step!(effect, key = x, key = x, a())",
        "step!(effect, on_unknown = y, on_unknown = y, a())",
        "step!(effect, key, a())",
        "step!(retry, a())",
        "step!(effect, return)",
        "step!(effect, key = step!(b()), a())",
        "step!(catch, catch, a())",
        "step!(catch = true, a())",
        "steps!(a(), step!(effect, b()) + 1)",
        "steps!(a(), step!(effects, b()))",
        "steps!(step!(\"a\", a()), step!(\"a\", b()))",
        "steps!(retry = r, a(), b())",
        "steps!(for x in xs, retries = 3, a())",
        "steps!(for x in xs, key = 3, a())",
        "steps!(was = \"c\", for x in xs, step!(was = \"b\", a()))",
        "steps!(for x in xs, retry = 3)",
        "tokio::join!(step!(a()), b())",
        "tokio::select! { x = step!(a()) => x }",
        "step!(return)",
        "loop { step!(break) }",
        "loop { step!(continue) }",
        "call!()",
        "call!(a)",
        "step!(step!(a()))",
        "vec![step!(a())];",
        "|| step!(a());",
        "async { step!(a()) };",
        "match x { _ if step!(a()) => {} }",
        "const { step!(a()) };",
        "#[cfg(a)] step!(a());",
        "fn g() { step!(a()) }",
        "macro_rules! m { () => { step!(a()) } }",
        "x[step!(a())] = 1;",
        "for a in &mut x { step!(a()) }",
        "for a in x.iter().map(|b| b) { step!(a()) }",
        "#[fresh] let a;",
        "#[fresh] let (a, b) = x; step!(a());",
        "step!(retry = a, retry = b, c())",
    ];
    let attrs = ["a = 1", "name", "name = 1", "name = \"\"", "version = 1.5", "version = 99999999999", "name = \"a\", name = \"b\""];
    let heads = [
        "fn f() -> R {}",
        "const async fn f() -> R {}",
        "async unsafe fn f() -> R {}",
        "async extern \"C\" fn f() -> R {}",
        "async fn f<'a>() -> R {}",
        "async fn f(&self) -> R {}",
        "async fn f(a: &str) -> R {}",
        "async fn f(a: impl A) -> R {}",
        "async fn f(a: u32, c: &FiberContext) -> R {}",
        "async fn f((a): &FiberContext) -> R {}",
        "async fn f() {}",
        "async fn f() -> impl A {}",
        "async fn f(a: u32, ...) -> R {}",
    ];
    let mut all: Vec<(String, String)> = Vec::new();
    all.extend(bodies.iter().map(|body| (String::new(), head(body))));
    all.extend(attrs.iter().map(|attr| ((*attr).to_owned(), head("Ok(1)"))));
    all.extend(heads.iter().map(|head| (String::new(), (*head).to_owned())));
    for (attr, item) in all {
        let found = messages(&attr, &item);
        assert!(!found.is_empty(), "nothing is said of #[fiber({attr})] {item}");
        for message in found {
            assert!(!message.ends_with('.') || message.ends_with(".."), "a full stop at the end: {message}");
            assert!(!message.contains('\n'), "more than one line: {message}");
            assert!(message.starts_with(|c: char| c.is_lowercase() || c == '`' || c == '#'), "it begins with a capital: {message}");
            for word in ["cut point", "lower", "stretch", "plan", "__", "forever_key", "carried"] {
                assert!(!message.contains(word), "`{word}` is a word of ours: {message}");
            }
        }
    }
}
