//! Panics of anything but the tests themselves, in whatever thread or task.
use std::sync::{Mutex, Once};

static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());
static WATCHED: Once = Once::new();

/// From now on they are counted.
pub(crate) fn watch() {
    WATCHED.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if panic.location().is_none_or(|location| !location.file().starts_with("tests/")) {
                SEEN.lock().unwrap().push(panic.to_string());
            }
            before(panic);
        }));
    });
}

/// There were none.
pub(crate) fn none(when: &str) {
    let seen = SEEN.lock().unwrap();
    assert!(seen.is_empty(), "{when}: {seen:?}");
}
