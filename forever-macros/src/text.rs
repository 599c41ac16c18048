//! Tokens as text, for stored names and for messages.
use quote::ToTokens;

/// Tokens as text with the fewest spaces, shortened: the stored name of an unnamed value. Written
/// here because the compiler prints tokens differently from version to version.
pub(crate) fn compact(tokens: &impl ToTokens) -> String {
    let text = whole(tokens);
    match text.char_indices().nth(40).and_then(|(end, _)| text.get(..end)) {
        Some(start) => format!("{start}.."),
        None => text,
    }
}

/// As [`compact`], not shortened.
pub(crate) fn whole(tokens: &impl ToTokens) -> String {
    fn write(tokens: proc_macro2::TokenStream, text: &mut String) {
        for token in tokens {
            match token {
                proc_macro2::TokenTree::Group(group) => {
                    let (open, close) = match group.delimiter() {
                        proc_macro2::Delimiter::Parenthesis => ("(", ")"),
                        proc_macro2::Delimiter::Brace => ("{", "}"),
                        proc_macro2::Delimiter::Bracket => ("[", "]"),
                        proc_macro2::Delimiter::None => ("", ""),
                    };
                    text.push_str(open);
                    write(group.stream(), text);
                    text.push_str(close);
                }
                other => {
                    let other = other.to_string();
                    let word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
                    if word(text.chars().next_back()) && word(other.chars().next()) {
                        text.push(' ');
                    }
                    text.push_str(&other);
                }
            }
        }
    }
    let mut text = String::new();
    write(tokens.to_token_stream(), &mut text);
    text
}

/// The words of a text, without separators.
pub(crate) fn words(text: &str) -> Vec<String> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|w| !w.is_empty()).map(str::to_owned).collect()
}
