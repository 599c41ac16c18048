//! Addresses of agents: `/agents/{class}/{name}`, as the client packages write them.

/// The class in a URL: both `ChatAgent` and `CHAT_AGENT` are `chat-agent`. The rule of the `agents`
/// package.
pub(super) fn kebab(class: &str) -> String {
    if class.chars().any(char::is_uppercase) && !class.chars().any(char::is_lowercase) {
        return class.to_lowercase().replace('_', "-");
    }
    let mut kebab = String::with_capacity(class.len() + 4);
    for letter in class.chars() {
        if letter.is_ascii_uppercase() {
            if !kebab.is_empty() {
                kebab.push('-');
            }
            kebab.push(letter.to_ascii_lowercase());
        } else {
            kebab.push(if letter == '_' { '-' } else { letter });
        }
    }
    if kebab.ends_with('-') {
        kebab.pop();
    }
    kebab
}

/// Maximum length in bytes of an agent's name in a URL.
pub(super) const LONGEST_NAME: usize = 256;

/// Whether an agent that a client asks for may have this name.
pub(super) fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= LONGEST_NAME && !name.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_written_as_the_clients_package_writes_it() {
        let cases = [
            ("ChatAgent", "chat-agent"),
            ("CHAT_AGENT", "chat-agent"),
            ("CHAT", "chat"),
            ("chatAgent", "chat-agent"),
            ("chat_agent", "chat-agent"),
            ("chat-agent", "chat-agent"),
            ("My_Agent_", "my--agent"),
            ("HTTPAgent", "h-t-t-p-agent"),
            ("a", "a"),
        ];
        for (class, in_url) in cases {
            assert_eq!(kebab(class), in_url, "{class}");
        }
    }

    #[test]
    fn names_are_short_and_without_control_characters() {
        assert!(is_name("ada") && is_name("été 7/..") && is_name(&"x".repeat(256)));
        assert!(!is_name("") && !is_name("a\nb") && !is_name(&"x".repeat(257)));
    }
}
