//! Expansions of bodies, one construct each, formatted for reading.
//!
//! A snapshot shows the function as it was written, the function that replaces it, and the table of
//! its cut points.
use quote::quote;
use syn::visit::{self, Visit};
use syn::visit_mut::{self, VisitMut};

use super::bodies::CONSTRUCTS;
use super::{expanded, tokens};
use crate::expand::expand;

/// The parts of an expansion that show the lowering, at any depth.
#[derive(Default)]
struct Shown {
    table: Option<syn::Expr>,
    /// Local enums and the lowered function, without the checks that each kept variable can be
    /// saved.
    items: Vec<syn::Item>,
}

impl Shown {
    fn of(source: &str) -> Shown {
        let mut file: syn::File = syn::parse2(expand(quote!(), tokens(source))).expect("an expansion is a list of items");
        Short.visit_file_mut(&mut file);
        let mut shown = Shown::default();
        shown.visit_file(&file);
        shown
    }
}

impl<'ast> Visit<'ast> for Shown {
    fn visit_impl_item_const(&mut self, item: &'ast syn::ImplItemConst) {
        if item.ident == "MACHINE" {
            self.table = Some(item.expr.clone());
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        let (sig, block) = (&item.sig, &item.block);
        if has_attribute(&item.attrs, "not (rust_analyzer)") {
            self.items.push(syn::parse_quote!(#sig #block));
        } else {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.items.push(syn::Item::Enum(item.clone()));
    }
}

fn has_attribute(attrs: &[syn::Attribute], text: &str) -> bool {
    attrs.iter().any(|attr| matches!(&attr.meta, syn::Meta::List(list) if list.tokens.to_string() == text))
}

/// Shortens `::forever::__private::x` to `__private::x` and `::core::option::Option::Some` to `Some`.
struct Short;

impl Short {
    /// Number of segments to remove.
    fn shorten(path: &mut syn::Path) -> usize {
        let skip = match path.segments.first() {
            Some(first) if path.leading_colon.is_some() && first.ident == "forever" => 1,
            Some(first) if path.leading_colon.is_some() && first.ident == "core" => path.segments.len() - 1,
            _ => return 0,
        };
        path.leading_colon = None;
        path.segments = std::mem::take(&mut path.segments).into_iter().skip(skip).collect();
        skip
    }
}

impl VisitMut for Short {
    /// Removes the fields of a `Local` that are `None`.
    fn visit_expr_struct_mut(&mut self, literal: &mut syn::ExprStruct) {
        visit_mut::visit_expr_struct_mut(self, literal);
        if literal.path.segments.last().is_some_and(|s| s.ident == "Local") {
            let fields = std::mem::take(&mut literal.fields);
            let is_none = |value: &syn::Expr| matches!(value, syn::Expr::Path(path) if path.path.is_ident("None"));
            literal.fields =
                fields.into_iter().filter(|f| !(matches!(&f.member, syn::Member::Named(n) if n == "was") && is_none(&f.expr))).collect();
        }
        // A test has no file, and few functions have secrets.
        if literal.path.segments.last().is_some_and(|s| s.ident == "Machine") {
            let fields = std::mem::take(&mut literal.fields);
            let is_usual = |f: &syn::FieldValue| matches!(&f.member, syn::Member::Named(n) if n == "source" || n == "secrets" && quote!(#f).to_string().ends_with("[]"));
            literal.fields = fields.into_iter().filter(|f| !is_usual(f)).collect();
        }
    }

    fn visit_path_mut(&mut self, path: &mut syn::Path) {
        visit_mut::visit_path_mut(self, path);
        Short::shorten(path);
    }

    fn visit_type_path_mut(&mut self, ty: &mut syn::TypePath) {
        match &mut ty.qself {
            // `<Output as ::forever::__private::IsResult>::Err`
            Some(qself) => {
                self.visit_type_mut(&mut qself.ty);
                qself.position -= Short::shorten(&mut ty.path);
            }
            None => self.visit_path_mut(&mut ty.path),
        }
    }
}

/// `Machine { .. }`, with a line for each cut point.
fn table(machine: &syn::Expr) -> String {
    let item: syn::Item = syn::parse_quote!(
        const MACHINE: &Machine = #machine;
    );
    prettyplease::unparse(&syn::File { shebang: None, frontmatter: None, attrs: Vec::new(), items: vec![item] })
}

fn check(name: &str, source: &str) {
    let Shown { table: machine, items } = Shown::of(source);
    let becomes = prettyplease::unparse(&syn::File { shebang: None, frontmatter: None, attrs: Vec::new(), items });
    let table = table(&machine.expect("a fiber has a table"));
    let source = source.trim();
    let text = format!("#[fiber]\n{source}\n\n// becomes\n\n{becomes}\n// with the table\n\n{table}");
    settings().bind(|| insta::assert_snapshot!(name, text));
}

fn settings() -> insta::Settings {
    let mut settings = insta::Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings
}

#[test]
fn each_construct_becomes_what_its_snapshot_shows() {
    for (name, source) in CONSTRUCTS {
        check(name, source);
    }
}

#[test]
fn a_whole_expansion_has_the_function_the_type_and_the_machine() {
    let source = r"
/// Researches a topic.
pub async fn research(ctx: &FiberContext, io: Res<Io>, topic: String) -> anyhow::Result<u32> {
    let conn = io.connect(ctx);
    let hits = step!(io.search(&topic).await?);
    Ok(hits + conn.id)
}";
    let text = expanded(quote!(name = "shop.research", version = 2, max_recoveries = 5, migrate = migrations::research), tokens(source));
    settings().bind(|| insta::assert_snapshot!("whole", text.replace("::forever::__private::", "__private::")));
}

#[test]
fn a_refused_function_still_gives_its_item() {
    let source = r"
async fn research(topic: &str) -> anyhow::Result<u32> {
    let late = async { step!(search(topic).await?) };
    Ok(late.await)
}";
    let text = expanded(quote!(nam = "research"), tokens(source));
    settings().bind(|| insta::assert_snapshot!("refused", text.replace("::forever::__private::", "__private::")));
}

#[test]
fn expansions_are_the_same_each_time() {
    for (name, source) in CONSTRUCTS {
        assert_eq!(expanded(quote!(), tokens(source)), expanded(quote!(), tokens(source)), "{name}");
    }
}

#[test]
fn secrets_are_named_in_the_table_and_their_marks_are_gone() {
    let source = r"
async fn sync(account: String, #[secret] token: String, #[secret] (user, r#type): (String, String)) -> Result<u32, E> {
    #[secret]
    let session = step!(log_in(&token, &account, &user, &r#type).await?);
    if session.is_new() {
        #[secret]
        let (a, b) = (1, 2);
        step!(use_it(a, b));
    }
    step!(rows(&session).await?);
    #[secret]
    let unkept = 1;
    Ok(unkept)
}";
    let text = expanded(quote!(), tokens(source));
    let entries =
        r#"secrets: &["@rows", "@session", "@use_it", "a", "arg3", "b", "return", "session", "token", "type", "unkept", "user",],"#;
    let table: String = text.split_whitespace().collect();
    assert!(table.contains(&entries.replace(' ', "")), "{text}");
    assert!(text.contains("source: ::core::option::Option::None"), "a test has no file");
    // The copy for editors has them, and has them alone.
    let compiled = text.split("#[cfg(rust_analyzer)]").next().unwrap();
    assert!(!compiled.contains("#[secret]"), "{compiled}");
}
