//! Names of the traits that decide what a type can do. The compiler names the trait in the error,
//! so the name says what is missing, and of what: `conn_in_billing_line_9_can_be_saved`.
use proc_macro2::{Ident, Span};

/// Name of the trait that holds where `what`, at `span`, `is` so.
///
/// File and line make it the only one of its name in a crate: the compiler shows such a name
/// without the path to the generated module that it is in.
pub(crate) fn name(what: &str, is: &str, span: Span) -> Ident {
    let place = if proc_macro::is_available() { place(span.unwrap()) } else { String::new() };
    Ident::new(&format!("{}{place}_{is}", word(what)), span)
}

fn place(span: proc_macro::Span) -> String {
    let file = span.file();
    let stem = std::path::Path::new(&file).file_stem().map(|stem| word(&stem.to_string_lossy())).unwrap_or_default();
    format!("_in_{stem}_line_{}", span.line())
}

/// A text with `_` for everything that no identifier has.
fn word(text: &str) -> String {
    let words: Vec<&str> = text.trim_start_matches("r#").split(|c: char| !c.is_ascii_alphanumeric()).filter(|w| !w.is_empty()).collect();
    match words.join("_") {
        word if word.starts_with(|c: char| c.is_ascii_alphabetic()) => word,
        word => format!("value_{word}").trim_end_matches('_').to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_an_identifier_whatever_it_is_made_from() {
        let of = |what| name(what, "can_be_saved", Span::call_site()).to_string();
        assert_eq!(of("conn"), "conn_can_be_saved");
        assert_eq!(of("r#type"), "type_can_be_saved");
        assert_eq!(of("_permit"), "permit_can_be_saved");
        assert_eq!(of("plan.steps[0]"), "plan_steps_0_can_be_saved");
        assert_eq!([of("0"), of("größe"), of("値")], ["value_0_can_be_saved", "gr_e_can_be_saved", "value_can_be_saved"]);
    }
}
