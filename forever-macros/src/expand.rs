//! The passes in order: options, head, misplaced cut points, lowering, names, plan, checks, code.
use proc_macro2::TokenStream;
use quote::quote;
use syn::{Ident, ItemFn, Stmt};

use crate::emit::Code;
use crate::emit::machine::{self, Machine};
use crate::hir::Body;
use crate::lower::Crowded;
use crate::names::Table;
use crate::options::Options;
use crate::plan::{self, Plan};
use crate::report::Report;
use crate::signature::{self, Signature};
use crate::{attributes, check, emit, fallback, lower, names, remainder, scan, secrets, source};

/// Expands `#[fiber(attr)] item`. Never panics; errors come out as `compile_error!` beside the
/// item.
pub(crate) fn expand(attr: TokenStream, item: TokenStream) -> TokenStream {
    let mut report = Report::default();
    let options = Options::parse(attr, &mut report);
    let function: ItemFn = match syn::parse2(item.clone()) {
        Ok(function) => function,
        Err(error) => {
            if is_other_item(&item) {
                report.over(&item, "`#[fiber]` goes on an `async fn` with a body");
            } else {
                report.push(error);
            }
            let (errors, kept) = (report.to_compile_errors(), fallback::tokens(&item));
            return quote!(#errors #kept);
        }
    };
    let private = options.private();
    let mut signature = signature::read(&function, &mut report);
    let has_receiver = function.sig.inputs.iter().any(|i| matches!(i, syn::FnArg::Receiver(_)));
    if let Some(of_impl) = signature::self_type(&function).filter(|_| !has_receiver) {
        report.at(of_impl, crate::messages::IN_AN_IMPL);
    }
    // An item that is only valid in an `impl` is left unchanged.
    if !report.is_empty() && (has_receiver || signature::self_type(&function).is_some()) {
        let (errors, kept) = (report.to_compile_errors(), fallback::function(&function, &private));
        return quote!(#errors #kept);
    }
    let moved = attributes::above(&function, &mut report);
    let refused = !report.is_empty();
    if !moved {
        scan::misplaced(&function.block, &mut report);
    }
    attributes::below(&mut signature, &mut report);
    if refused {
        let (errors, kept) = (report.to_compile_errors(), fallback::refused(&signature, &private));
        return quote!(#errors #kept);
    }
    let lowered = if report.is_empty() { Some(lowered(&function, &signature, &private, &mut report)) } else { None };
    let lowered = lowered.filter(|_| report.is_empty());
    let source = source::source(
        options.source.as_ref().is_none_or(|wanted| wanted.value),
        &item,
        &private,
        lowered.as_ref().map(|l| (&l.body, &l.table, &l.plan)),
    );
    let described =
        machine::Described { source, secrets: secrets::of(&signature, &function.block, lowered.as_ref().map(|l| (&l.body, &l.plan))) };
    let table = machine::table(&options, &signature, &private, described, lowered.as_ref().map(|l| (&l.body, &l.plan)));
    let code = lowered.map(|lowered| (lowered.code.items, lowered.code.stmts));
    let items = Machine { signature: &signature, private: &private, code, table, original: &function.block }.items();
    let errors = report.to_compile_errors();
    quote!(#errors #items)
}

/// Whether the tokens are an item that is no function.
fn is_other_item(item: &TokenStream) -> bool {
    matches!(syn::parse2::<syn::Item>(item.clone()), Ok(other) if !matches!(other, syn::Item::Fn(_)))
}

/// A body after the analysing passes.
pub(crate) struct Lowered {
    pub(crate) body: Body,
    pub(crate) table: Table,
    pub(crate) plan: Plan,
    code: Code,
}

/// Runs the passes, once more where arms have to begin stretches of their own.
pub(crate) fn lowered(function: &ItemFn, signature: &Signature, private: &syn::Path, report: &mut Report) -> Lowered {
    let mut crowded = Crowded::new();
    loop {
        let mut found = Report::default();
        let mut lowered = passes(function, signature, private, &crowded, &mut found);
        let known = crowded.len();
        for (arm, bound) in std::mem::take(&mut lowered.code.crowded) {
            crowded.entry(arm).or_insert(bound);
        }
        if crowded.len() == known {
            report.append(found);
            return lowered;
        }
    }
}

fn passes(function: &ItemFn, signature: &Signature, private: &syn::Path, crowded: &Crowded, report: &mut Report) -> Lowered {
    let mut block = (*function.block).clone();
    if let Some(arguments) = arguments(signature, private) {
        block.stmts.insert(0, arguments);
    }
    let mut body = lower::lower(block, private, crowded, report);
    let given = signature.given();
    let table = names::resolve(&mut body, &given, report);
    let table = if report.is_empty() { remainder::keep_remainders(&mut body, table, &given, private) } else { table };
    let plan = plan::plan(&body, &table);
    check::check(&body, &table, &plan, report);
    let output = &signature.output;
    let error = quote!(<#output as #private::IsResult>::Err);
    let context = emit::Context { body: &body, table: &table, plan: &plan, private, ctx: &signature.ctx, error: &error };
    let code = if report.is_empty() { emit::emit(&context, report) } else { Code::default() };
    Lowered { body, table, plan, code }
}

/// `let NAME { topic, .. } = start..;`: the arguments are the first variables of the body.
fn arguments(signature: &Signature, private: &syn::Path) -> Option<Stmt> {
    if signature.arguments.is_empty() {
        return None;
    }
    let start = Ident::new("start", proc_macro2::Span::mixed_site());
    let name = &signature.name;
    let fields = signature.arguments.iter().map(|a| {
        let (name, pat) = (&a.name, &a.pat);
        quote!(#name: #pat)
    });
    // Written out, so that the compiler's suggestion for an unused argument fits an argument.
    Some(syn::parse_quote!(#[allow(non_shorthand_field_patterns)] let #name { #(#fields,)* .. } = #private::start(#start);))
}
