//! The function's head: context, resources, arguments, return type.
use proc_macro2::{Span, TokenStream, TokenTree};
use quote::{ToTokens, format_ident};
use syn::{Attribute, FnArg, GenericParam, Generics, Ident, ItemFn, Pat, PathArguments, ReturnType, Type, Visibility};

use crate::report::Report;

/// Head of a fiber function.
pub(crate) struct Signature {
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) vis: Visibility,
    pub(crate) name: Ident,
    pub(crate) generics: Generics,
    /// The name of the context: the user's, or a hidden one.
    pub(crate) ctx: Ident,
    pub(crate) resources: Vec<Resource>,
    pub(crate) arguments: Vec<Argument>,
    pub(crate) output: Type,
}

/// A parameter `model: Res<Model>`.
pub(crate) struct Resource {
    pub(crate) pat: Pat,
    /// The name in messages.
    pub(crate) name: String,
    /// The type inside the `Res`.
    pub(crate) ty: Type,
}

/// A parameter that is saved when the fiber is spawned.
pub(crate) struct Argument {
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) pat: Pat,
    /// Field and stored name.
    pub(crate) name: Ident,
    pub(crate) ty: Type,
    /// Whether it is marked `#[secret]`.
    pub(crate) secret: bool,
}

pub(crate) fn read(item: &ItemFn, report: &mut Report) -> Signature {
    crate::pattern::note_variables(item);
    let sig = &item.sig;
    if sig.asyncness.is_none() {
        report.over(sig.fn_token, "a fiber is an `async fn`: write `async fn`");
    }
    if let Some(token) = &sig.constness {
        report.over(token, "a fiber cannot be `const`: remove `const`");
    }
    if !matches!(sig.safety, syn::Safety::Default) {
        report.over(&sig.safety, "a fiber cannot be `unsafe`: put the unsafe code in a function that a step calls");
    }
    if let Some(abi) = &sig.abi {
        report.over(abi, "a fiber cannot have an ABI of its own: remove `extern`");
    }
    if let Some(variadic) = &sig.variadic {
        report.over(variadic, "a fiber cannot take a variable number of arguments: take a `Vec`");
    }
    for param in &sig.generics.params {
        if let GenericParam::Lifetime(lifetime) = param {
            report.over(lifetime, "a fiber outlives its caller, so it cannot have lifetime parameters: take owned values");
        }
    }
    for param in sig.generics.type_params() {
        let missing = missing_bounds(param, sig);
        if !missing.is_empty() {
            let (name, missing) = (&param.ident, missing.join(" + "));
            report.over(name, format!("values of type `{name}` are saved, so it needs bounds: `{name}: {missing}`"));
        }
    }
    let mut signature = Signature {
        attrs: item.attrs.clone(),
        vis: item.vis.clone(),
        name: sig.ident.clone(),
        generics: sig.generics.clone(),
        ctx: Ident::new("ctx", Span::mixed_site()),
        resources: Vec::new(),
        arguments: Vec::new(),
        output: output(&sig.output, &sig.ident, report),
    };
    for (place, input) in sig.inputs.iter().enumerate() {
        match input {
            FnArg::Receiver(receiver) => {
                report.over(receiver, "a fiber is a free function: take the value as a resource, `app: Res<App>`, or as an argument");
            }
            FnArg::Typed(param) if is_context(&param.ty) => signature.context(place, &param.pat, report),
            FnArg::Typed(param) => match resource(&param.ty) {
                Some(ty) => {
                    if let Type::TraitObject(object) = &ty {
                        let object = crate::text::whole(object);
                        let message =
                            format!("a resource has a size: take `Res<Arc<{object}>>`, and give it with `.resource::<Arc<{object}>>(..)`");
                        report.over(&ty, message);
                    }
                    let name = name_of(&param.pat).map_or_else(|| format!("parameter {}", place + 1), |n| n.to_string());
                    signature.resources.push(Resource { pat: (*param.pat).clone(), name, ty });
                }
                None if last_segment(&param.ty).is_some_and(|s| s.ident == "FiberContext") => {
                    report.over(&param.ty, "the context is taken by reference: `ctx: &FiberContext`");
                }
                None => signature.argument(param, report),
            },
        }
    }
    signature
}

/// What the type of a value has to be that is saved, and the traits of which each is a part.
const SAVED: [(&str, &[&str]); 4] = [
    ("serde::Serialize", &["Serialize"]),
    ("serde::de::DeserializeOwned", &["DeserializeOwned", "Deserialize"]),
    ("Send", &["Send"]),
    ("'static", &["static"]),
];

/// Traits that ask for nothing of this.
const OTHERS: [&str; 14] =
    ["AsRef", "Clone", "Copy", "Debug", "Default", "Display", "Eq", "Hash", "Ord", "PartialEq", "PartialOrd", "Sized", "Sync", "Unpin"];

/// Bounds that a type parameter lacks for certain: one without bounds can be in no fiber. Another
/// trait may ask for them, being one of the program.
fn missing_bounds(param: &syn::TypeParam, sig: &syn::Signature) -> Vec<&'static str> {
    let mut bounds: Vec<&syn::TypeParamBound> = param.bounds.iter().collect();
    for predicate in sig.generics.where_clause.iter().flat_map(|clause| &clause.predicates) {
        match predicate {
            syn::WherePredicate::Type(of) if matches!(&of.bounded_ty, Type::Path(path) if path.path.is_ident(&param.ident)) => {
                bounds.extend(&of.bounds);
            }
            other if mentions(other.to_token_stream(), &param.ident) => return Vec::new(),
            _ => {}
        }
    }
    let name = |bound: &syn::TypeParamBound| match bound {
        syn::TypeParamBound::Trait(bound) => bound.path.segments.last().map_or_else(String::new, |s| s.ident.to_string()),
        syn::TypeParamBound::Lifetime(lifetime) => lifetime.ident.to_string(),
        _ => String::new(),
    };
    let names: Vec<String> = bounds.into_iter().map(name).collect();
    let has = |of: &[&str]| names.iter().any(|name| of.contains(&&**name));
    let is_known = |name: &String| OTHERS.contains(&&**name) || SAVED.iter().any(|(_, of)| of.contains(&&**name));
    let is_argument = |input: &FnArg| {
        let FnArg::Typed(argument) = input else { return false };
        resource(&argument.ty).is_none() && mentions(argument.ty.to_token_stream(), &param.ident)
    };
    let is_saved = sig.inputs.iter().any(is_argument) || mentions(sig.output.to_token_stream(), &param.ident);
    let is_clear = names.iter().all(|name| name == "Sized") || is_saved && names.iter().all(is_known);
    SAVED.iter().filter(|(_, of)| is_clear && !has(of)).map(|(bound, _)| *bound).collect()
}

fn mentions(tokens: TokenStream, ident: &Ident) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(found) => found == *ident,
        TokenTree::Group(group) => mentions(group.stream(), ident),
        _ => false,
    })
}

impl Signature {
    fn context(&mut self, place: usize, pat: &Pat, report: &mut Report) {
        if place != 0 {
            report.over(pat, "the context comes first: `async fn f(ctx: &FiberContext, ..)`");
        }
        match pat {
            Pat::Ident(ident) if ident.by_ref.is_none() && ident.mutability.is_none() => self.ctx = ident.ident.clone(),
            Pat::Wild(_) => {}
            other => report.over(other, "the context is taken by name: `ctx: &FiberContext`"),
        }
    }

    fn argument(&mut self, param: &syn::PatType, report: &mut Report) {
        match &*param.ty {
            Type::Reference(reference) => {
                let owned = owned(&reference.elem);
                report.over(&param.ty, format!("an argument is saved when the fiber is spawned, so it is owned: take {owned}"));
            }
            ty if holds_reference(ty) => {
                report.over(
                    ty,
                    "an argument is saved when the fiber is spawned, so it holds no references: take owned values, `String` for `&str`",
                );
            }
            Type::ImplTrait(ty) => report.over(ty, "an argument is saved and read back by its type: name a type instead of `impl Trait`"),
            _ => {}
        }
        let name = name_of(&param.pat).cloned().unwrap_or_else(|| format_ident!("arg{}", self.arguments.len() + 1));
        let (secret, attrs): (Vec<_>, Vec<_>) = param.attrs.iter().cloned().partition(crate::pattern::is_secret);
        let secret = !secret.is_empty();
        self.arguments.push(Argument { attrs, pat: (*param.pat).clone(), name, ty: (*param.ty).clone(), secret });
    }

    /// Names of what every run receives anew: context and resources.
    pub(crate) fn given(&self) -> Vec<Ident> {
        let resources = self.resources.iter().flat_map(|r| crate::pattern::bindings(&r.pat)).map(|b| b.ident);
        std::iter::once(self.ctx.clone()).chain(resources).collect()
    }
}

fn output(output: &ReturnType, name: &Ident, report: &mut Report) -> Type {
    match output {
        ReturnType::Type(_, ty) => {
            if let Type::ImplTrait(ty) = &**ty {
                report.over(ty, "a fiber's value is stored by its type: name it, `-> Result<Report, Error>`");
            }
            if let Some(value) = value_of(ty).filter(|value| holds_reference(value)) {
                report.over(value, "a fiber's value is stored, so it holds no references: return owned values, `String` for `&str`");
            }
            if is_no_result(ty) {
                let written = crate::text::whole(ty);
                report.over(
                    ty,
                    format!("a fiber returns a `Result`, not `{written}`: `-> anyhow::Result<{written}>`, and `Ok(..)` at the end"),
                );
            }
            match &**ty {
                // `A + B` needs parentheses in `<.. as Trait>`.
                ty @ Type::TraitObject(_) => syn::parse_quote!((#ty)),
                ty => ty.clone(),
            }
        }
        ReturnType::Default => {
            report.at(name.span(), "a fiber returns a `Result`: add `-> anyhow::Result<()>`, and `Ok(())` at the end");
            syn::parse_quote!(::core::result::Result<(), ::std::string::String>)
        }
    }
}

/// Whether a type is no `Result` for certain. Of other names the compiler finds out.
fn is_no_result(ty: &Type) -> bool {
    const NAMES: [&str; 19] = [
        "bool", "char", "f32", "f64", "i128", "i16", "i32", "i64", "i8", "isize", "u128", "u16", "u32", "u64", "u8", "usize", "String",
        "Vec", "Option",
    ];
    match ty {
        Type::Tuple(_) | Type::Array(_) | Type::Slice(_) | Type::Ptr(_) => true,
        Type::Path(path) => path.path.segments.len() == 1 && last_segment(ty).is_some_and(|s| NAMES.iter().any(|name| s.ident == name)),
        _ => false,
    }
}

/// `T` of `Result<T, E>`.
fn value_of(ty: &Type) -> Option<&Type> {
    let result = last_segment(ty).filter(|s| s.ident == "Result")?;
    let syn::PathArguments::AngleBracketed(arguments) = &result.arguments else { return None };
    match arguments.args.first()? {
        syn::GenericArgument::Type(value) => Some(value),
        _ => None,
    }
}

/// Whether a type contains a reference through which data would borrow.
fn holds_reference(ty: &Type) -> bool {
    struct Find(bool);
    impl<'ast> syn::visit::Visit<'ast> for Find {
        fn visit_type_reference(&mut self, _: &'ast syn::TypeReference) {
            self.0 = true;
        }
        fn visit_parenthesized_generic_arguments(&mut self, _: &'ast syn::ParenthesizedGenericArguments) {}
    }
    let mut find = Find(false);
    syn::visit::Visit::visit_type(&mut find, ty);
    find.0
}

/// The place of a `Self` in a function, which only functions of an `impl` or `trait` can have.
/// Items in its body have a `Self` of their own.
pub(crate) fn self_type(function: &ItemFn) -> Option<Span> {
    struct Find(Option<Span>);
    impl<'ast> syn::visit::Visit<'ast> for Find {
        fn visit_ident(&mut self, ident: &'ast Ident) {
            if ident == "Self" {
                self.0.get_or_insert_with(|| ident.span());
            }
        }
        fn visit_macro(&mut self, mac: &'ast syn::Macro) {
            self.0 = self.0.or_else(|| self_in(mac.tokens.clone()));
        }
        fn visit_item(&mut self, _: &'ast syn::Item) {}
    }
    let mut find = Find(None);
    syn::visit::Visit::visit_signature(&mut find, &function.sig);
    syn::visit::Visit::visit_block(&mut find, &function.block);
    find.0
}

fn self_in(tokens: proc_macro2::TokenStream) -> Option<Span> {
    tokens.into_iter().find_map(|token| match token {
        proc_macro2::TokenTree::Ident(ident) => (ident == "Self").then(|| ident.span()),
        proc_macro2::TokenTree::Group(group) => self_in(group.stream()),
        _ => None,
    })
}

fn owned(ty: &Type) -> String {
    let text = ty.to_token_stream().to_string();
    match (text.as_str(), ty) {
        ("str", _) => "`String`".to_owned(),
        (_, Type::Slice(slice)) => format!("`Vec<{}>`", slice.elem.to_token_stream()),
        _ => format!("`{text}`"),
    }
}

fn last_segment(ty: &Type) -> Option<&syn::PathSegment> {
    match ty {
        Type::Path(path) if path.qself.is_none() => path.path.segments.last(),
        Type::Group(group) => last_segment(&group.elem),
        Type::Paren(paren) => last_segment(&paren.elem),
        _ => None,
    }
}

fn is_context(ty: &Type) -> bool {
    matches!(ty, Type::Reference(reference) if last_segment(&reference.elem).is_some_and(|s| s.ident == "FiberContext"))
}

fn resource(ty: &Type) -> Option<Type> {
    let segment = last_segment(ty).filter(|s| s.ident == "Res")?;
    match &segment.arguments {
        PathArguments::AngleBracketed(arguments) => match arguments.args.first() {
            Some(syn::GenericArgument::Type(ty)) => Some(ty.clone()),
            _ => None,
        },
        _ => None,
    }
}

fn name_of(pat: &Pat) -> Option<&Ident> {
    match pat {
        Pat::Ident(ident) => Some(&ident.ident),
        Pat::Paren(paren) => name_of(&paren.pat),
        _ => None,
    }
}
