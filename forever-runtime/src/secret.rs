//! Texts that may repeat a value marked `#[secret]`.
//!
//! A fiber holds a secret if one of its functions has one, or if it was spawned by code that
//! mentions one. The text of an error that such code has made is stored with a mark in front, by
//! the code that made it: then everything that shows it knows without that code. It is shown to
//! the program alone, and not to another fiber.
use std::borrow::Cow;

use crate::store::SECRET_MARK as MARK;

/// What is shown in its place.
pub(crate) const HIDDEN: &str = "hidden: the function has values marked `#[secret]`";

/// A text with the mark.
pub(crate) fn marked(text: &str) -> String {
    if is_marked(text) { text.to_owned() } else { format!("{MARK}{text}") }
}

/// Whether a text, or one in it, has the mark.
pub fn is_marked(text: &str) -> bool {
    text.contains(MARK)
}

/// A text for people.
pub fn shown(text: &str) -> &str {
    if is_marked(text) { HIDDEN } else { text }
}

/// A text without the mark, for the code that has made it.
pub fn plain(text: &str) -> &str {
    text.strip_prefix(MARK).unwrap_or(text)
}

/// The name beside the arguments of a fiber that code which mentions a secret has spawned. It is no
/// name of an argument.
const ARGUMENTS: &str = "{\"$secret\":true";

/// Arguments with it.
pub(crate) fn secret_arguments(args: &str) -> String {
    match args.strip_prefix('{') {
        Some(_) if are_secret(args) => args.to_owned(),
        Some("}") => format!("{ARGUMENTS}}}"),
        Some(rest) => format!("{ARGUMENTS},{rest}"),
        None => args.to_owned(),
    }
}

pub(crate) fn are_secret(args: &str) -> bool {
    args.starts_with(ARGUMENTS)
}

/// Arguments without it.
pub(crate) fn plain_arguments(args: &str) -> Cow<'_, str> {
    match args.strip_prefix(ARGUMENTS) {
        Some(rest) => Cow::Owned(format!("{{{}", rest.strip_prefix(',').unwrap_or(rest))),
        None => Cow::Borrowed(args),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn arguments_are_marked_once_and_are_the_same_without_the_mark() {
        for args in ["{}", r#"{"n":1}"#] {
            let secret = secret_arguments(args);
            assert!(are_secret(&secret) && !are_secret(args));
            assert_eq!(secret_arguments(&secret), secret);
            assert_eq!(plain_arguments(&secret), args);
            assert_eq!(plain_arguments(args), args);
            assert!(serde_json::from_str::<Value>(&secret).unwrap().is_object(), "{secret}");
        }
    }
}
