//! The items that a fiber function becomes: the function that makes an invocation, its type, and
//! the machine.
use std::collections::BTreeSet;

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::spanned::Spanned;
use syn::{Expr, GenericParam, Ident};

use super::savable;
use crate::cut::{Awaited, AwaitedEvent, Branch, CutBody, Effect, Steps, Topics};
use crate::hir::Body;
use crate::kept::Role;
use crate::options::Options;
use crate::plan::Plan;
use crate::signature::Signature;

/// What replaces the function.
pub(crate) struct Machine<'a> {
    pub(crate) signature: &'a Signature,
    pub(crate) private: &'a syn::Path,
    /// Local enums and lowered statements. `None` for a refused function, of which only what
    /// callers need is emitted.
    pub(crate) code: Option<(TokenStream, TokenStream)>,
    /// The description of the cut points.
    pub(crate) table: TokenStream,
    /// The body as the user wrote it, for editors.
    pub(crate) original: &'a syn::Block,
}

impl Machine<'_> {
    pub(crate) fn items(&self) -> TokenStream {
        let (invocation, implementation) = (self.invocation(), self.implementation());
        emit!(#invocation #implementation)
    }

    /// `fn NAME(args) -> NAME` and `struct NAME { args }`.
    fn invocation(&self) -> TokenStream {
        let sig = self.signature;
        let (vis, name, private) = (&sig.vis, &sig.name, self.private);
        let (impl_generics, ty_generics, where_clause) = sig.generics.split_for_impl();
        let fields: Vec<&Ident> = sig.arguments.iter().map(|a| &a.name).collect();
        let types: Vec<_> = sig.arguments.iter().map(|a| &a.ty).collect();
        let marker = marker(sig).map(|ty| emit!(__forever: #private::PhantomData<fn() -> #ty>,));
        let mark = marker.is_some().then(|| emit!(__forever: #private::PhantomData,));
        let attrs = sig.attrs.iter();
        let documented: Vec<_> =
            sig.attrs.iter().filter(|a| a.path().is_ident("doc") || a.path().is_ident("cfg") || a.path().is_ident("deprecated")).collect();
        let params = sig.arguments.iter().map(|a| {
            let (attrs, name, ty) = (&a.attrs, &a.name, &a.ty);
            emit!(#(#attrs)* #name: #ty)
        });
        emit! {
            #(#documented)*
            #[allow(non_camel_case_types)]
            #[must_use = "an invocation does nothing until it is spawned, run or called"]
            #vis struct #name #impl_generics #where_clause { #(#fields: #types,)* #marker }

            #(#attrs)*
            #[allow(clippy::too_many_arguments, clippy::needless_pass_by_value)]
            #vis fn #name #impl_generics (#(#params),*) -> #name #ty_generics #where_clause {
                #name { #(#fields,)* #mark }
            }
        }
    }

    fn implementation(&self) -> TokenStream {
        let sig = self.signature;
        let (name, private, output) = (&sig.name, self.private, &sig.output);
        let (impl_generics, ty_generics, where_clause) = sig.generics.split_for_impl();
        let needs = sig.resources.iter().map(|r| {
            let (ty, name) = (&r.ty, &r.name);
            emit!(needs.resource::<#ty>(#name);)
        });
        let needs: Vec<_> = needs.collect();
        let fields: Vec<&Ident> = sig.arguments.iter().map(|a| &a.name).collect();
        let keys: Vec<String> = fields.iter().map(|f| f.to_string().trim_start_matches("r#").to_owned()).collect();
        let mark = marker(sig).map(|_| emit!(__forever: #private::PhantomData,));
        let (table, drive, awaited) = (&self.table, self.drive(), self.awaited());
        let (checks, values, loads) = savable::arguments(sig, private);
        let output_span = Span::mixed_site().located_at(output.span());
        let output_types = quote_spanned! {output_span=>
            type Output = <#output as #private::IsResult>::Ok;
            type Error = <#output as #private::IsResult>::Err;
        };
        emit! {
            const _: () = {
            #checks
            #[allow(unexpected_cfgs, non_local_definitions)]
            #[automatically_derived]
            impl #impl_generics #private::Fiber for #name #ty_generics #where_clause {
                #output_types
                const MACHINE: &'static #private::Machine = &#table;

                fn needs(needs: &mut #private::Needs<'_>) {
                    let _ = &needs;
                    #(#needs)*
                }

                fn arguments(
                    access: #private::Arguments<'_, '_, Self>,
                ) -> ::core::result::Result<::core::option::Option<Self>, #private::Unreadable> {
                    match access {
                        #private::Arguments::Save(invocation, save) => {
                            let _ = (&invocation, &save);
                            #(save.put(#keys, #values);)*
                            ::core::result::Result::Ok(::core::option::Option::None)
                        }
                        #private::Arguments::Load(arguments) => {
                            let _ = &arguments;
                            ::core::result::Result::Ok(::core::option::Option::Some(#name { #(#fields: #loads,)* #mark }))
                        }
                    }
                }

                #drive
            }

            #awaited
            };
        }
    }

    /// A `Future` impl for invocations, whose bound never holds.
    ///
    /// So awaiting one like an `async fn` gives an error that says what to do. The bound is over
    /// all lifetimes, so that the compiler checks it only where an invocation is awaited.
    fn awaited(&self) -> TokenStream {
        let sig = self.signature;
        let (name, private, output) = (&sig.name, self.private, &sig.output);
        let (impl_generics, ty_generics, where_clause) = sig.generics.split_for_impl();
        let bounds = where_clause.map(|bounds| bounds.predicates.iter()).into_iter().flatten();
        emit! {
            #[automatically_derived]
            impl #impl_generics ::core::future::Future for #name #ty_generics
            where
                #(#bounds,)*
                for<'never> (): #private::Awaitable<'never, #name #ty_generics>,
            {
                type Output = #output;
                fn poll(self: ::core::pin::Pin<&mut Self>, _: &mut ::core::task::Context<'_>) -> ::core::task::Poll<#output> {
                    ::core::task::Poll::Pending
                }
            }
        }
    }

    fn drive(&self) -> TokenStream {
        let sig = self.signature;
        let (name, private, output, ctx, original) = (&sig.name, self.private, &sig.output, &sig.ctx, self.original);
        let (impl_generics, ty_generics, where_clause) = sig.generics.split_for_impl();
        let resources = sig.resources.iter().map(|r| {
            let (pat, ty) = (&r.pat, &r.ty);
            emit!(let #pat = #ctx.resource::<#ty>();)
        });
        let resources: Vec<_> = resources.collect();
        let fiber = Ident::new("fiber", Span::mixed_site());
        let macros = crate::cut::names();
        let params = sig.arguments.iter().map(|a| {
            let (pat, ty) = (&a.pat, &a.ty);
            emit!(let #pat: #ty = ::core::unimplemented!();)
        });
        let params: Vec<_> = params.collect();
        // An associated function has the user's name in backtraces, and hides no function from the
        // body.
        let head = emit!(async fn #name(start: ::core::option::Option<#name #ty_generics>, #ctx: &#private::FiberContext, #fiber: &mut #private::Frame) -> #output);
        let (items, body) = match &self.code {
            Some((items, body)) => (items.clone(), body.clone()),
            None => (TokenStream::new(), emit!(let _ = (start, #fiber, #ctx); ::core::unimplemented!())),
        };
        let lowered_resources = if self.code.is_some() { emit!(#(#resources)*) } else { TokenStream::new() };
        emit! {
            fn drive<'run>(
                start: ::core::option::Option<Self>,
                ctx: &'run #private::FiberContext,
                frame: &'run mut #private::Frame,
            ) -> impl ::core::future::Future<Output = ::core::result::Result<Self::Output, Self::Error>> + ::core::marker::Send + 'run {
                #items
                impl #impl_generics #name #ty_generics #where_clause {
                #[cfg(not(rust_analyzer))]
                #[allow(
                    unused_mut, unreachable_code, unused_braces, unused_macros, unused_parens, unused_labels, clippy::all, clippy::pedantic,
                )]
                #head {
                    let _ = &#ctx;
                    #lowered_resources
                    #body
                }
                #[cfg(rust_analyzer)]
                #head {
                    use #private::ide::{#(#macros),*};
                    #(#resources)*
                    #(#params)*
                    #original
                }
                }
                Self::#name(start, ctx, frame)
            }
        }
    }
}

/// A tuple of all type parameters, so that an unused one is no error.
fn marker(sig: &Signature) -> Option<TokenStream> {
    let types: Vec<_> =
        sig.generics.params.iter().filter_map(|p| if let GenericParam::Type(ty) = p { Some(&ty.ident) } else { None }).collect();
    if types.is_empty() { None } else { Some(emit!((#(#types,)*))) }
}

/// What the table says of the function for people.
pub(crate) struct Described {
    pub(crate) source: TokenStream,
    pub(crate) secrets: Vec<String>,
}

/// `Machine { .. }`, the static description of the cut points.
pub(crate) fn table(
    options: &Options,
    signature: &Signature,
    private: &syn::Path,
    told: Described,
    described: Option<(&Body, &Plan)>,
) -> TokenStream {
    let Described { source, secrets } = told;
    let name = options.name.as_ref().map_or_else(|| signature.name.to_string().trim_start_matches("r#").to_owned(), syn::LitStr::value);
    let version = options.version.as_ref().and_then(|v| v.base10_parse::<u32>().ok()).unwrap_or(0);
    let max_recoveries = optional(options.max_recoveries.as_ref().and_then(|v| v.base10_parse::<u32>().ok()));
    let arguments = signature.arguments.iter().map(|a| a.name.to_string().trim_start_matches("r#").to_owned());
    let migrate = match &options.migrate {
        Some(path) => emit!(::core::option::Option::Some(|old| ::core::result::Result::map_err(#path(old), ::core::convert::Into::into))),
        None => emit!(::core::option::Option::None),
    };
    let (cuts, first) = match described {
        Some((body, plan)) => {
            ((0..body.cuts.len()).map(|cut| cut_entry(body, plan, cut, private)).collect(), numbers(&plan.first, private))
        }
        None => (Vec::new(), emit!(&[])),
    };
    let received = described.map(|(body, _)| body.cuts.iter().flat_map(|cut| topics_of(&cut.body)).collect()).unwrap_or_default();
    let mut topics = topics(received);
    if described.is_some_and(|(body, _)| body.cuts.iter().flat_map(|cut| topics_of(&cut.body)).any(|t| matches!(t, Topics::Kept(_)))) {
        topics.push(emit!(#private::COMPUTED_TOPIC));
    }
    emit! {
        #private::Machine {
            name: #name,
            version: #version,
            max_recoveries: #max_recoveries,
            arguments: &[#(#arguments),*],
            cuts: &[#(#cuts),*],
            first: #first,
            topics: &[#(#topics),*],
            migrate: #migrate,
            secrets: &[#(#secrets),*],
            source: #source,
        }
    }
}

/// The literal topics, without duplicates.
fn topics(received: Vec<&Topics>) -> Vec<TokenStream> {
    let mut fixed: Vec<&syn::LitStr> = Vec::new();
    for topics in received {
        match topics {
            Topics::One(topic) => fixed.push(topic),
            Topics::Several(topics) => fixed.extend(topics),
            Topics::Kept(_) => {}
        }
    }
    let mut seen = BTreeSet::new();
    fixed.retain(|topic| seen.insert(topic.value()));
    fixed.iter().map(ToTokens::to_token_stream).collect()
}

fn topics_of(body: &CutBody) -> Vec<&Topics> {
    match body {
        CutBody::Recv { topics, .. } | CutBody::TryRecv(topics) | CutBody::Close(topics) => vec![topics],
        CutBody::Select(arms) => {
            let topics = arms.iter().map(|arm| if let AwaitedEvent::Message { topics, .. } = &arm.what { Some(topics) } else { None });
            topics.flatten().collect()
        }
        _ => Vec::new(),
    }
}

fn cut_entry(body: &Body, plan: &Plan, cut: usize, private: &syn::Path) -> TokenStream {
    let source = &body.cuts[cut];
    let (name, of) = (&plan.names[cut].0, number32(plan.names[cut].1));
    let (explicit, next) = (source.explicit, numbers(&plan.next[cut], private));
    let (kind, was) = (kind(source), optional(source.was.as_ref()));
    let body_text = match &source.body {
        CutBody::Step(step) => fingerprint(&crate::text::whole(&step.body)),
        CutBody::Call { invocation, .. } => {
            let called = crate::cut::callee(invocation).unwrap_or_default();
            format!("{}-{}", fingerprint(&called), fingerprint(&crate::text::whole(invocation)))
        }
        _ => fingerprint(&source.text),
    };
    let effect_of = match &source.body {
        CutBody::Step(step) => step.effect.as_ref(),
        CutBody::Steps(steps) => match &**steps {
            Steps::Each(each) => each.step.effect.as_ref(),
            Steps::Branches(_) => None,
        },
        _ => None,
    };
    let wraps = match &source.body {
        CutBody::Step(step) if step.catch => "Result",
        CutBody::Call { question: None, .. } | CutBody::Wait { question: None, .. } => "Result",
        CutBody::Recv { until: Some(_), .. } | CutBody::TryRecv(_) => "Option",
        CutBody::Close(_) | CutBody::WaitAll { .. } => "Vec",
        CutBody::Steps(steps) => match &**steps {
            Steps::Each(each) if each.step.catch => "Vec<Result>",
            _ => "",
        },
        _ => "",
    };
    let (effect, decides) = (effect_of.is_some(), effect_of.is_some_and(decides));
    let branches = branches(&source.body, name, private);
    let topics = topics(topics_of(&source.body));
    let locals = plan.kept[cut].iter().map(|kept| {
        let (key, of, result) = (&kept.key, number32(kept.of), kept.result);
        let (why, was) = (&kept.why, optional(kept.was.as_ref()));
        let role = match kept.role {
            Role::Value => emit!(Value),
            Role::Items => emit!(Items),
            Role::Position => emit!(Position),
        };
        emit!(#private::Local { name: #key, of: #of, was: #was, result: #result, role: #private::LocalRole::#role, why: #why })
    });
    let locals: Vec<_> = locals.collect();
    let line = quote::quote_spanned!(source.span=> ::core::line!());
    emit! {
        #private::Cut {
            name: #name, explicit: #explicit, of: #of, body: #body_text, was: #was, kind: #private::CutKind::#kind, effect: #effect,
            decides: #decides, wraps: #wraps, locals: &[#(#locals),*], branches: &[#(#branches),*], topics: &[#(#topics),*], next: #next, line: #line,
        }
    }
}

/// Whether an effect has a policy for a doubt about its outcome, other than to park.
fn decides(effect: &Effect) -> bool {
    let parks = |policy: &Expr| matches!(policy, Expr::Path(path) if path.path.segments.last().is_some_and(|s| s.ident == "Park"));
    effect.on_unknown.as_ref().is_some_and(|policy| !parks(policy))
}

/// The branches of a `steps!(a, b, ..)`, or the arms of a `select!`.
fn branches(body: &CutBody, of_steps: &str, private: &syn::Path) -> Vec<TokenStream> {
    if let CutBody::Select(arms) = body {
        return arms.iter().enumerate().map(|(place, arm)| arm_entry(arms, place, arm, private)).collect();
    }
    let CutBody::Steps(steps) = body else { return Vec::new() };
    let Steps::Branches(branches) = &**steps else { return Vec::new() };
    let derived = |base: &str| branches.iter().filter(|b| b.step.name.is_none() && b.base() == base).count();
    let entry = |branch: &Branch| {
        let (name, explicit) = (&branch.name, branch.step.name.is_some());
        let stored = format!("{of_steps}[{name}]");
        let of = number32(if explicit { 1 } else { derived(branch.base()) });
        let body = fingerprint(&crate::text::whole(&branch.step.body));
        let was = optional(branch.step.was.as_ref());
        let effect = branch.step.effect.is_some();
        let decides = branch.step.effect.as_ref().is_some_and(decides);
        let wraps = if branch.step.catch { "Result" } else { "" };
        emit! {
            #private::BranchSpec {
                name: #name, stored: #stored, explicit: #explicit, of: #of, body: #body, was: #was, effect: #effect, decides: #decides,
                wraps: #wraps,
            }
        }
    };
    branches.iter().map(entry).collect()
}

fn arm_entry(arms: &[Awaited], place: usize, arm: &Awaited, private: &syn::Path) -> TokenStream {
    let alike = |arms: &[Awaited]| arms.iter().filter(|other| other.base == arm.base).count();
    let (of, number) = (number32(alike(arms)), alike(&arms[..place]) + 1);
    let name = if number == 1 { arm.base.clone() } else { format!("{}#{number}", arm.base) };
    let (body, was) = (fingerprint(&arm.text), optional(None::<syn::LitStr>));
    emit! {
        #private::BranchSpec {
            name: #name, stored: "", explicit: false, of: #of, body: #body, was: #was, effect: false, decides: false, wraps: "",
        }
    }
}

/// The runtime's name of a kind of cut point.
fn kind(cut: &crate::hir::Cut) -> TokenStream {
    match &cut.body {
        CutBody::Step(_) => emit!(Step),
        CutBody::Call { .. } => emit!(Call),
        CutBody::Spawn(_) => emit!(Spawn),
        CutBody::Sleep(_) => emit!(Sleep),
        CutBody::Pending(_) => emit!(Pending),
        CutBody::Recv { .. } | CutBody::TryRecv(_) | CutBody::Close(_) => emit!(Recv),
        CutBody::Wait { .. } | CutBody::WaitAll { .. } => emit!(Wait),
        CutBody::Steps(_) => emit!(Steps),
        CutBody::Select(_) => emit!(Select),
    }
}

/// A short hash of a text (FNV-1a, the same in every build).
fn fingerprint(text: &str) -> String {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    format!("{hash:016x}")
}

fn number32(n: usize) -> TokenStream {
    proc_macro2::Literal::u32_unsuffixed(u32::try_from(n).unwrap_or(u32::MAX)).to_token_stream()
}

fn numbers(next: &[Option<usize>], private: &syn::Path) -> TokenStream {
    let numbers = next.iter().map(|n| match n {
        Some(n) => number32(*n),
        None => emit!(#private::END),
    });
    emit!(&[#(#numbers),*])
}

fn optional(value: Option<impl ToTokens>) -> TokenStream {
    match value {
        Some(value) => emit!(::core::option::Option::Some(#value)),
        None => emit!(::core::option::Option::None),
    }
}
