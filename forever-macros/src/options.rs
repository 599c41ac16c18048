//! The arguments of the attribute.
//!
//! `#[fiber(name = "..", version = 2, max_recoveries = 5, source = false, crate = path, migrate =
//! path)]`
use proc_macro2::TokenStream;
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::{Ident, LitBool, LitInt, LitStr, Path, Token};

use crate::report::Report;

const KNOWN: &str = "`name`, `version`, `max_recoveries`, `source`, `crate`, `migrate`";

/// Arguments of the attribute.
#[derive(Default)]
pub(crate) struct Options {
    pub(crate) name: Option<LitStr>,
    pub(crate) version: Option<LitInt>,
    pub(crate) max_recoveries: Option<LitInt>,
    /// Whether the text of the function is recorded, for people.
    pub(crate) source: Option<LitBool>,
    pub(crate) krate: Option<Path>,
    pub(crate) migrate: Option<Path>,
}

impl Options {
    /// Parses the arguments. Errors go to `report`, and valid arguments are used.
    pub(crate) fn parse(attr: TokenStream, report: &mut Report) -> Options {
        let mut options = Options::default();
        let parsed = (|input: ParseStream<'_>| options.read(input, report)).parse2(attr);
        if let Err(error) = parsed {
            report.push(error);
        }
        if let Some(name) = &options.name {
            if name.value().trim().is_empty() {
                report.at(name.span(), "a fiber's stored name cannot be empty");
            }
        }
        for number in [&options.version, &options.max_recoveries].into_iter().flatten() {
            if number.base10_parse::<u32>().is_err() {
                report.at(number.span(), "expected a whole number from 0 to 4294967295");
            }
        }
        options
    }

    fn read(&mut self, input: ParseStream<'_>, report: &mut Report) -> syn::Result<()> {
        while !input.is_empty() {
            let key = input.call(Ident::parse_any)?;
            let text = key.to_string();
            if !["name", "version", "max_recoveries", "source", "crate", "migrate"].contains(&text.as_str()) {
                return Err(syn::Error::new(key.span(), format!("unknown option `{text}` of `#[fiber]`; known options: {KNOWN}")));
            }
            if !input.peek(Token![=]) {
                return Err(syn::Error::new(key.span(), format!("option `{text}` needs a value: `{}`", example(&text))));
            }
            input.parse::<Token![=]>()?;
            let wrong = |error: syn::Error| syn::Error::new(error.span(), format!("option `{text}` is written `{}`", example(&text)));
            let twice = match text.as_str() {
                "name" => self.name.replace(input.parse().map_err(wrong)?).is_some(),
                "version" => self.version.replace(input.parse().map_err(wrong)?).is_some(),
                "max_recoveries" => self.max_recoveries.replace(input.parse().map_err(wrong)?).is_some(),
                "source" => self.source.replace(input.parse().map_err(wrong)?).is_some(),
                "crate" => self.krate.replace(input.call(Path::parse_mod_style).map_err(wrong)?).is_some(),
                _ => self.migrate.replace(input.parse().map_err(wrong)?).is_some(),
            };
            if twice {
                report.at(key.span(), format!("option `{text}` is given twice"));
            }
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(())
    }

    /// The path of the runtime's private names.
    pub(crate) fn private(&self) -> Path {
        match &self.krate {
            Some(krate) => syn::parse_quote!(#krate::__private),
            None => syn::parse_quote!(::forever::__private),
        }
    }
}

fn example(key: &str) -> &'static str {
    match key {
        "name" => "name = \"checkout\"",
        "version" => "version = 2",
        "max_recoveries" => "max_recoveries = 5",
        "source" => "source = false",
        "crate" => "crate = path::to::forever",
        _ => "migrate = path::to::function",
    }
}
