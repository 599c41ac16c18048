//! The arguments of `step!`: `step!([ "name", ] [ option, ]* body)`.
use syn::parse::{Parse, ParseStream};
use syn::{Expr, ExprLit, Lit, LitStr, Macro, Pat, Token};

use crate::report::Report;
use crate::sealed::Sealed;

/// A step with its options.
#[derive(Clone)]
pub(crate) struct Step {
    pub(crate) name: Option<LitStr>,
    pub(crate) was: Option<LitStr>,
    pub(crate) retry: Option<Expr>,
    pub(crate) timeout: Option<Expr>,
    /// Set when the step is an effect.
    pub(crate) effect: Option<Effect>,
    /// Whether an error of the body is a value: `Result<T, StepError>`.
    pub(crate) catch: bool,
    /// The pattern of `|op| ..`.
    pub(crate) op: Option<Pat>,
    pub(crate) body: Expr,
}

/// Options of effects.
#[derive(Clone, Default)]
pub(crate) struct Effect {
    pub(crate) key: Option<Expr>,
    pub(crate) on_unknown: Option<Expr>,
}

const OPTIONS: &str = "`catch`, `effect`, `key`, `on_unknown`, `retry`, `timeout`, `was`";

/// Options that take a value, each with an example.
const VALUED: [(&str, &str); 5] = [
    ("key", "(&order, cents)"),
    ("on_unknown", "OnUnknown::Retry"),
    ("retry", "Retry::times(3)"),
    ("timeout", "Duration::from_secs(30)"),
    ("was", "\"search\""),
];

/// Options that only effects take, with their places.
type OfEffects = Vec<(Expr, String)>;

/// Whether a word is an option of `step!`.
pub(super) fn is_option(word: &syn::Ident) -> bool {
    word == "catch" || word == "effect" || VALUED.iter().any(|(option, _)| word == option)
}

/// The macro in which the options are written, for messages.
#[derive(Clone, Copy)]
pub(super) struct Taker {
    pub(super) name: &'static str,
    /// The options that it takes.
    pub(super) options: &'static str,
}

const STEP: Taker = Taker { name: "step!", options: OPTIONS };

impl Step {
    /// Parses the arguments. Errors go to `report`, and the step has what could be read.
    pub(crate) fn parse(mac: &Macro, report: &mut Report) -> Option<Step> {
        let items = match mac.parse_body_with(parse_items) {
            Ok(items) => items,
            Err(error) => {
                report.push(error);
                return None;
            }
        };
        if items.is_empty() {
            report.over(&mac.path, "`step!` needs a body: `step!(fetch(&url).await?)`");
            return None;
        }
        if let [Expr::Lit(ExprLit { lit: Lit::Str(name), .. })] = items.as_slice() {
            report.at(name.span(), format!("`step!` needs a body after its name: `step!({}, fetch(&url).await?)`", name.token()));
            return None;
        }
        Some(Step::read(items, STEP, report))
    }

    /// A step without options.
    pub(super) fn plain(body: Expr) -> Step {
        Step { name: None, was: None, retry: None, timeout: None, effect: None, catch: false, op: None, body }
    }

    /// Reads the options and, last, the body.
    pub(super) fn read(items: Vec<Expr>, taker: Taker, report: &mut Report) -> Step {
        let mut step = Step::plain(empty());
        let (mut is_effect, mut effect, mut of_effects) = (false, Effect::default(), OfEffects::new());
        let count = items.len();
        for (place, item) in items.into_iter().enumerate() {
            let last = place + 1 == count;
            match item {
                Expr::Lit(ExprLit { lit: Lit::Str(name), .. }) if place == 0 && !last => {
                    if name.value().trim().is_empty() || name.value().contains('#') {
                        report.at(name.span(), "a step's name is text without `#` that is not empty");
                    }
                    step.name = Some(name);
                }
                Expr::Assign(option) if !last => step.option(&option, taker, &mut effect, &mut of_effects, report),
                Expr::Closure(closure) if last => {
                    if closure.inputs.len() != 1 || closure.asyncness.is_some() {
                        report.over(&closure, "a step's body is an expression, a block, or `|op| expression`: `step!(\"charge\", |op| charge(op.id()).await?)`");
                    }
                    step.op = closure.inputs.first().cloned();
                    step.body = *closure.body;
                }
                body if last => step.body = body,
                Expr::Path(path) if path.path.is_ident("effect") => {
                    if std::mem::replace(&mut is_effect, true) {
                        report.over(&path, "option `effect` is given twice");
                    }
                }
                Expr::Path(path) if path.path.is_ident("catch") => {
                    if std::mem::replace(&mut step.catch, true) {
                        report.over(&path, "option `catch` is given twice");
                    }
                }
                other => report.over(&other, no_option(&other, taker)),
            }
        }
        if is_effect {
            step.effect = Some(effect);
        } else {
            for (place, option) in of_effects {
                report.over(
                    &place,
                    format!("`{option}` is an option of effects: `step!(effect, {option} = .., |op| charge(op.id()).await?)`"),
                );
            }
        }
        step
    }

    /// Why the body must not change variables around it: it may be skipped, or run again. `None` if
    /// it may change them.
    pub(crate) fn sealed(&self) -> Option<Sealed> {
        // With both, the error is about skipping.
        let retry = self.retry.as_ref().map(|_| Sealed::Retry);
        self.effect.as_ref().map(|_| Sealed::Effect).or(retry)
    }

    /// The values of its options.
    pub(crate) fn options(&self) -> impl Iterator<Item = &Expr> {
        let effect = self.effect.iter().flat_map(|effect| [&effect.key, &effect.on_unknown]);
        [&self.retry, &self.timeout].into_iter().chain(effect).flatten()
    }

    fn option(&mut self, option: &syn::ExprAssign, taker: Taker, effect: &mut Effect, of_effects: &mut OfEffects, report: &mut Report) {
        let Expr::Path(path) = &*option.left else {
            report.over(&option.left, format!("unknown option of `{}`; known options: {}", taker.name, taker.options));
            return;
        };
        let key = path.path.get_ident().map(ToString::to_string).unwrap_or_default();
        let value = (*option.right).clone();
        if matches!(key.as_str(), "key" | "on_unknown") {
            of_effects.push(((*option.left).clone(), key.clone()));
        }
        let twice = match key.as_str() {
            "retry" => self.retry.replace(value).is_some(),
            "timeout" => self.timeout.replace(value).is_some(),
            "key" => effect.key.replace(value).is_some(),
            "on_unknown" => effect.on_unknown.replace(value).is_some(),
            "was" => {
                if let Expr::Lit(ExprLit { lit: Lit::Str(old), .. }) = value {
                    self.was.replace(old).is_some()
                } else {
                    report.over(&option.right, "`was` takes the old name as a literal: `was = \"search\"`");
                    false
                }
            }
            "effect" => {
                report.over(option, "option `effect` takes no value: `step!(effect, |op| charge(op.id()).await?)`");
                false
            }
            "catch" => {
                report.over(
                    option,
                    "option `catch` takes no value: `match step!(catch, fetch(&url).await?) { Ok(page) => .., Err(error) => .. }`",
                );
                false
            }
            _ => {
                report.over(&option.left, format!("unknown option `{key}` of `{}`; known options: {}", taker.name, taker.options));
                false
            }
        };
        if twice {
            report.over(&option.left, format!("option `{key}` is given twice"));
        }
    }
}

/// The error for an expression before the body that is no option.
fn no_option(item: &Expr, taker: Taker) -> String {
    let valued = |path: &syn::Path| VALUED.iter().find(|(option, _)| path.is_ident(option));
    if let Expr::Path(path) = item
        && let Some((option, value)) = valued(&path.path)
    {
        return format!("option `{option}` needs a value: `{option} = {value}`");
    }
    let text = crate::text::compact(item);
    format!("`{text}` is no option of `{}`; known options: {}; the name comes first and the body last", taker.name, taker.options)
}

/// Parses expressions separated by commas; syn parses `name = value` as an assignment.
fn parse_items(input: ParseStream<'_>) -> syn::Result<Vec<Expr>> {
    let mut items = Vec::new();
    while !input.is_empty() {
        items.push(input.parse::<Body>()?.0);
        if input.is_empty() {
            break;
        }
        input.parse::<Token![,]>()?;
    }
    Ok(items)
}

/// An expression. `let` statements in a step's body need braces, and the error says so.
struct Body(Expr);

impl Parse for Body {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        if input.peek(Token![let]) {
            return Err(input.error("a step's body is an expression: put statements in a block, `step!({ let x = ..; f(x).await? })`"));
        }
        let body = input.parse()?;
        if input.peek(Token![;]) {
            return Err(input.error("a step's body is an expression: put statements in a block, `step!({ a().await?; b().await? })`"));
        }
        Ok(Body(body))
    }
}

fn empty() -> Expr {
    syn::parse_quote!(())
}
