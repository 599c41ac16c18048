//! Errors, and their texts.
pub use forever_store::{Error, ErrorKind, Result};

/// The text of an error and of those that caused it, joined by `: `; a cause that its parent
/// already tells is not repeated.
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut told = text.clone();
    let mut next = error.source();
    while let Some(cause) = next {
        let words = cause.to_string();
        // Some errors repeat their cause, some causes repeat what they caused in more words.
        if !text.ends_with(&words) && !words.ends_with(&told) {
            text.push_str(": ");
            text.push_str(&words);
            told = words;
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{Error, ErrorKind, chain};

    #[test]
    fn a_chain_names_every_cause_once() {
        let disk = Error::new(ErrorKind::Store, "no space");
        let told = Error::new(ErrorKind::Store, "write failed: no space").with_source(disk);
        let outer = Error::new(ErrorKind::Store, "fiber `a` stopped").with_source(told);
        assert_eq!(chain(&outer), "fiber `a` stopped: write failed: no space");
    }
}
