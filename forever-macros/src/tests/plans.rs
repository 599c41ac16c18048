//! The kept variables of each cut point, and where the function may continue from it.
use super::bodies::{CONSTRUCTS, RICH};
use super::planned;

fn settings() -> insta::Settings {
    let mut settings = insta::Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.set_snapshot_path("snapshots/plans");
    settings
}

#[test]
fn each_construct_keeps_what_is_needed_later_and_nothing_else() {
    for (name, source) in CONSTRUCTS {
        let text = format!("{}\n\n{}", source.trim(), planned(source));
        settings().bind(|| insta::assert_snapshot!(*name, text));
    }
}

#[test]
fn a_long_function_keeps_what_is_needed_later_and_nothing_else() {
    settings().bind(|| insta::assert_snapshot!("rich", format!("{}\n\n{}", RICH.trim(), planned(RICH))));
}
