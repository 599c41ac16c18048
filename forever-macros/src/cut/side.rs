//! The arguments of `steps!`: `steps!(a, b, ..)` and `steps!(for pat in items, [limit = n,] body)`.
use syn::parse::ParseStream;
use syn::spanned::Spanned;
use syn::{Expr, Macro, Pat, Token};

use super::Names;
use super::waits::{check_name, is_word, take_name};
use crate::report::Report;

/// A `steps!` as the user wrote it.
pub(crate) enum Written {
    Branches(Vec<Expr>),
    Each { pat: Pat, items: Expr, limit: Option<Expr>, body: Expr },
}

const SHAPE: &str =
    "`steps!` takes what is to run side by side: `steps!(a().await?, b().await?)`, or `steps!(for item in items, work(item).await?)`";
const ONE: &str = "`steps!` runs two things or more side by side: use `step!` for one";
const MANY: &str = "`steps!` takes at most 12 things: for more, `steps!(for item in items, work(item).await?)`";
const EACH: &str = "`steps!(for ..)` needs a comma behind what it goes over, and a body: `steps!(for item in items, work(item).await?)`";
const LIMIT: &str = "`limit` stands between the items and the body: `steps!(for item in items, limit = 8, work(item).await?)`";

impl Written {
    /// Parses the arguments; what is wrong goes to `report`.
    pub(crate) fn parse(mac: &Macro, report: &mut Report) -> Option<(Written, Names)> {
        if mac.tokens.is_empty() {
            report.over(&mac.path, SHAPE);
            return None;
        }
        match mac.parse_body_with(parse) {
            Ok((written, names)) => {
                check_name(&names, report);
                Some((written, names))
            }
            Err(error) => {
                report.push(error);
                None
            }
        }
    }
}

fn parse(input: ParseStream<'_>) -> syn::Result<(Written, Names)> {
    let names = take_name(input)?;
    Ok((written(input)?, names))
}

fn written(input: ParseStream<'_>) -> syn::Result<Written> {
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
    Ok(Written::Branches(branches))
}

fn each(input: ParseStream<'_>) -> syn::Result<Written> {
    input.parse::<Token![for]>()?;
    let pat = Pat::parse_multi_with_leading_vert(input)?;
    input.parse::<Token![in]>()?;
    let items = Expr::parse_without_eager_brace(input)?;
    if !input.peek(Token![,]) {
        return Err(syn::Error::new(input.span(), EACH));
    }
    input.parse::<Token![,]>()?;
    let mut limit = None;
    loop {
        if input.is_empty() {
            return Err(syn::Error::new(input.span(), EACH));
        }
        let next: Expr = input.parse()?;
        match next {
            Expr::Assign(option) if is_word(&option.left, "limit") && limit.is_none() => {
                limit = Some(*option.right);
                input.parse::<Option<Token![,]>>()?;
            }
            Expr::Assign(option) if is_word(&option.left, "limit") => {
                return Err(syn::Error::new(option.left.span(), "option `limit` is given twice"));
            }
            body => {
                input.parse::<Option<Token![,]>>()?;
                if !input.is_empty() {
                    return Err(input.error("the body of `steps!(for ..)` comes last, and is one expression: put more into a block, `{ a().await?; b().await? }`"));
                }
                return Ok(Written::Each { pat, items, limit, body });
            }
        }
    }
}
