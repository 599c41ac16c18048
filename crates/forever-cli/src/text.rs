//! Texts: parts of URLs, ages, and values in one line.
use std::fmt::Write;
use std::path::Path;

use serde_json::Value;

/// A part of a URL, with everything escaped that is not plain.
pub(crate) fn escaped(text: &str) -> String {
    escape(text, b"-_.~")
}

/// A path in a URL.
pub(crate) fn escaped_path(path: &Path) -> String {
    escape(&path.to_string_lossy(), b"-_.~/")
}

fn escape(text: &str, plain: &[u8]) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || plain.contains(&byte);
    text.bytes().map(|byte| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

/// A length of time in its largest unit: `3 min`.
pub(crate) fn span(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..60_000 => format!("{} s", ms / 1_000),
        60_000..3_600_000 => format!("{} min", ms / 60_000),
        3_600_000..86_400_000 => format!("{} h", ms / 3_600_000),
        _ => format!("{} d", ms / 86_400_000),
    }
}

/// Milliseconds of a length of time that a person writes: `90s`, `30min`, `6h`, `2d`.
pub(crate) fn millis(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let unit = match unit.trim() {
        "s" => 1_000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

/// A time as an age, or as what is still to come.
pub(crate) fn age(ms: &Value, now: u64) -> String {
    let Some(ms) = ms.as_u64() else { return String::new() };
    if ms > now { format!("in {}", span(ms - now)) } else { format!("{} ago", span(now - ms)) }
}

/// A text in one line, cut off at a length.
pub(crate) fn short(text: &str, length: usize) -> String {
    let line = in_line(text);
    if line.chars().count() <= length { line } else { line.chars().take(length.saturating_sub(1)).chain(['…']).collect() }
}

/// Whether a terminal would obey it: a control character, or one that changes the direction of
/// writing.
pub(crate) fn is_obeyed(c: char) -> bool {
    c.is_control() || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A text in one line, without what a terminal would obey: a fiber's error may come from anywhere.
pub(crate) fn in_line(text: &str) -> String {
    let shown = |c| match c {
        '\n' | '\t' => ' ',
        c if is_obeyed(c) => '\u{fffd}',
        c => c,
    };
    text.chars().map(shown).collect()
}

/// A text as one word of a shell's command, to be pasted.
pub(crate) fn word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) { text.to_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

/// JSON with what a terminal would obey as escapes, which mean the same.
pub(crate) fn json_for_terminal(json: &str) -> String {
    let mut shown = String::with_capacity(json.len());
    for c in json.chars() {
        if is_obeyed(c) && c != '\n' {
            let _ = write!(shown, "\\u{:04x}", u32::from(c));
        } else {
            shown.push(c);
        }
    }
    shown
}

/// A stored value in one line.
pub(crate) fn value(view: &Value, length: usize) -> String {
    if view["is_secret"] == true {
        return "(secret)".to_owned();
    }
    match (&view["value"], &view["preview"]) {
        (Value::Null, Value::String(preview)) => short(preview, length),
        (value, _) => short(&value.to_string(), length),
    }
}

/// What a fiber does or needs, in one line.
pub(crate) fn note(fiber: &Value, now: u64) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let retry = &fiber["retry"];
    if retry.is_object() && fiber["state"] != "cancelled" {
        return format!(
            "`{}` failed {} times, next {}: {}",
            text(&retry["step"]),
            retry["failed"],
            age(&retry["next_attempt_ms"], now),
            text(&retry["error"])
        );
    }
    if let Some(reason) = fiber["reason"].as_str() {
        return reason.to_owned();
    }
    let wait = &fiber["wait"];
    if wait.is_object() {
        let list = |value: &Value| {
            value.as_array().map(|all| all.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", ")).unwrap_or_default()
        };
        let mut parts = Vec::new();
        for (what, which) in [("message on ", list(&wait["topics"])), ("fiber ", list(&wait["fibers"])), ("", age(&wait["due_ms"], now))] {
            if !which.is_empty() {
                parts.push(format!("{what}{which}"));
            }
        }
        return format!("waits: {}", parts.join(" or "));
    }
    let step = &fiber["step"];
    if step.is_object() {
        return format!("runs `{}` since {}", text(&step["name"]), age(&step["started_ms"], now).trim_end_matches(" ago"));
    }
    fiber["at"].as_str().map(|at| format!("behind `{at}`")).unwrap_or_default()
}

/// The name of a cut point, without what tells that it is not over.
pub(crate) fn at(name: &Value) -> String {
    let name = name.as_str().unwrap_or_default();
    let pending = name.split_once(" pending").filter(|(_, rest)| rest.is_empty() || rest.starts_with('#'));
    pending.map_or_else(|| name.to_owned(), |(before, rest)| format!("{before}{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_have_a_unit() {
        assert_eq!(["90s", "30min", "6h", "2 d"].map(millis), [90_000, 1_800_000, 21_600_000, 172_800_000].map(Some));
        assert_eq!(["", "6", "h", "-1h", "99999999999999999999h", "1y"].map(millis), [None; 6]);
    }

    #[test]
    fn texts_of_fibers_cannot_drive_the_terminal() {
        assert_eq!(short("a\u{1b}[2Jb\nc\td\u{202e}", 20), "a\u{fffd}[2Jb c d\u{fffd}");
        let text = serde_json::json!({ "a": "\u{1b}\u{9b}\u{202e}é" });
        let shown = json_for_terminal(&serde_json::to_string_pretty(&text).unwrap());
        assert!(!shown.chars().any(|c| is_obeyed(c) && c != '\n'), "{shown}");
        assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), text);
        assert_eq!(short("abcdef", 4), "abc…");
        assert_eq!([word("order-17"), word("a b"), word("$(rm -r ~)'`x`"), word("")], ["order-17", "'a b'", r"'$(rm -r ~)'\''`x`'", "''"]);
        assert_eq!(escaped("a/b?c d%é"), "a%2Fb%3Fc%20d%25%C3%A9");
    }
}
