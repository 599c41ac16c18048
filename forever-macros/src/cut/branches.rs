//! The arguments of `steps!`.
//!
//! `steps!(a, step!(..), ..)` and `steps!(for pat in items, [limit = n,] [option,]* body)`.
use syn::parse::ParseStream;
use syn::spanned::Spanned;
use syn::{Expr, Macro, Pat, Token};

use super::step::{Step, Taker, is_option};
use super::waits::{check_name, is_word, take_name};
use super::{CutKind, Names, callee};
use crate::messages;
use crate::report::Report;

/// A `steps!` as the user wrote it.
pub(crate) enum SideBySide {
    Branches(Vec<Branch>),
    Each { pat: Pat, items: Expr, limit: Option<Expr>, step: Step },
}

/// One branch of `steps!(a, b, ..)`.
#[derive(Clone)]
pub(crate) struct Branch {
    /// Its literal name, the function that it calls, or `branch`; numbered where that is not
    /// unique.
    pub(crate) name: String,
    pub(crate) step: Step,
}

impl Branch {
    /// A derived name without its number.
    pub(crate) fn base(&self) -> &str {
        self.name.split('#').next().unwrap_or(&self.name)
    }
}

/// Parts in the order of parsing.
enum Parsed {
    Branches(Vec<Expr>),
    Each { pat: Pat, items: Expr, limit: Option<Expr>, options: Vec<Expr>, body: Expr },
}

const SHAPE: &str =
    "`steps!` takes what is to run side by side: `steps!(a().await?, b().await?)`, or `steps!(for item in items, work(item).await?)`";
const ONE: &str = "`steps!` runs two things or more side by side: use `step!` for one";
const MANY: &str = "`steps!` takes at most 12 things: for more, `steps!(for item in items, work(item).await?)`";
const EACH: &str = "`steps!(for ..)` needs a comma behind what it goes over, and a body: `steps!(for item in items, work(item).await?)`";
const LIMIT: &str = "`limit` stands between the items and the body: `steps!(for item in items, limit = 8, work(item).await?)`";
const LAST: &str = "the body of `steps!(for ..)` comes last, and is one expression: put more into a block, `{ a().await?; b().await? }`";
const FOR: Taker = Taker { name: "steps!", options: "`catch`, `effect`, `key`, `limit`, `on_unknown`, `retry`, `timeout`, `was`" };

impl SideBySide {
    /// Parses the arguments; errors go to `report`.
    pub(crate) fn parse(mac: &Macro, report: &mut Report) -> Option<(SideBySide, Names)> {
        if mac.tokens.is_empty() {
            report.over(&mac.path, SHAPE);
            return None;
        }
        match mac.parse_body_with(parse) {
            Ok((parsed, mut names)) => {
                check_name(&names, report);
                let written = match parsed {
                    Parsed::Branches(branches) => SideBySide::Branches(named(branches, report)?),
                    Parsed::Each { pat, items, limit, options, body } => {
                        let mut step = match as_step(&body) {
                            Some(mac) if options.is_empty() => Step::parse(mac, report)?,
                            _ => Step::read(options.into_iter().chain([body]).collect(), FOR, report),
                        };
                        // The names of its step are those of the whole: an item has no name.
                        names.name = names.name.or_else(|| step.name.clone());
                        if let Some(was) = step.was.take()
                            && let Some(again) = names.was.replace(was)
                        {
                            report.over(again, "option `was` is given twice");
                        }
                        SideBySide::Each { pat, items, limit, step }
                    }
                };
                Some((written, names))
            }
            Err(error) => {
                report.push(error);
                None
            }
        }
    }
}

/// The macro of a branch that is written as a step.
fn as_step(branch: &Expr) -> Option<&Macro> {
    match branch {
        Expr::Macro(e) => (CutKind::of(&e.mac) == Some(CutKind::Step)).then_some(&e.mac),
        Expr::Paren(e) => as_step(&e.expr),
        Expr::Group(e) => as_step(&e.expr),
        _ => None,
    }
}

/// Names the branches. Literals come first, and a derived name that is taken is numbered.
fn named(branches: Vec<Expr>, report: &mut Report) -> Option<Vec<Branch>> {
    let mut steps = Vec::new();
    for branch in branches {
        steps.push(match as_step(&branch) {
            Some(mac) => Step::parse(mac, report)?,
            None => Step::plain(branch),
        });
    }
    let mut taken: Vec<String> = Vec::new();
    for literal in steps.iter().filter_map(|step| step.name.as_ref()) {
        if taken.contains(&literal.value()) {
            report.over(literal, messages::same_name(&literal.value()));
        }
        taken.push(literal.value());
    }
    let with_name = |step: Step| {
        let name = step.name.as_ref().map_or_else(
            || {
                let base = callee(&step.body).unwrap_or_else(|| "branch".to_owned());
                let names = std::iter::once(base.clone()).chain((2..).map(|n| format!("{base}#{n}")));
                let name = names.into_iter().find(|name| !taken.contains(name)).unwrap_or(base);
                taken.push(name.clone());
                name
            },
            syn::LitStr::value,
        );
        Branch { name, step }
    };
    Some(steps.into_iter().map(with_name).collect())
}

fn parse(input: ParseStream<'_>) -> syn::Result<(Parsed, Names)> {
    let names = take_name(input)?;
    Ok((parsed(input)?, names))
}

fn parsed(input: ParseStream<'_>) -> syn::Result<Parsed> {
    if input.peek(Token![for]) && !input.peek2(Token![<]) {
        return each(input);
    }
    let first = input.span();
    let mut branches = Vec::new();
    while !input.is_empty() {
        let branch: Expr = input.parse()?;
        if let Expr::Assign(option) = &branch {
            if is_word(&option.left, "limit") {
                return Err(syn::Error::new(option.left.span(), LIMIT));
            }
            if let Some(word) = option_word(&option.left) {
                let why = format!(
                    "`{word}` is an option of a branch: write the branch as a step, `steps!(step!({word} = .., a().await?), b().await?)`"
                );
                return Err(syn::Error::new(option.left.span(), why));
            }
        }
        branches.push(branch);
        if branches.len() > 12 {
            return Err(syn::Error::new(branches[12].span(), MANY));
        }
        if !input.is_empty() {
            input.parse::<Token![,]>()?;
        }
    }
    if branches.len() < 2 {
        return Err(syn::Error::new(branches.first().map_or(first, Spanned::span), ONE));
    }
    Ok(Parsed::Branches(branches))
}

/// The option of a step that an expression names.
fn option_word(expr: &Expr) -> Option<&syn::Ident> {
    match expr {
        Expr::Path(path) => path.path.get_ident().filter(|word| is_option(word)),
        _ => None,
    }
}

fn each(input: ParseStream<'_>) -> syn::Result<Parsed> {
    input.parse::<Token![for]>()?;
    let pat = Pat::parse_multi_with_leading_vert(input)?;
    input.parse::<Token![in]>()?;
    let items = Expr::parse_without_eager_brace(input)?;
    if !input.peek(Token![,]) {
        return Err(syn::Error::new(input.span(), EACH));
    }
    input.parse::<Token![,]>()?;
    let (mut limit, mut options) = (None, Vec::new());
    loop {
        if input.is_empty() {
            return Err(syn::Error::new(input.span(), EACH));
        }
        let next: Expr = input.parse()?;
        let last = input.is_empty() || input.peek(Token![,]) && input.peek2(syn::parse::End);
        match next {
            Expr::Assign(option) if is_word(&option.left, "limit") => {
                if limit.is_some() {
                    return Err(syn::Error::new(option.left.span(), "option `limit` is given twice"));
                }
                limit = Some(*option.right);
                input.parse::<Option<Token![,]>>()?;
            }
            Expr::Assign(option) if last && option_word(&option.left).is_some() => {
                input.parse::<Option<Token![,]>>()?;
                return Err(syn::Error::new(input.span(), EACH));
            }
            // An option word with more after it cannot be the body.
            option if !last && (matches!(option, Expr::Assign(_)) || option_word(&option).is_some()) => {
                options.push(option);
                input.parse::<Token![,]>()?;
            }
            body => {
                input.parse::<Option<Token![,]>>()?;
                if !input.is_empty() {
                    return Err(input.error(LAST));
                }
                return Ok(Parsed::Each { pat, items, limit, options, body });
            }
        }
    }
}
