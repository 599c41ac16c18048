//! Errors with the exit code that each has.
use std::process::ExitCode;

use crate::text::in_line;

/// Prints a line beside what was asked for.
pub(crate) fn warn(text: &str) {
    eprintln!("forever: {}", in_line(text));
}

/// Something needs a person: of `doctor` and `check`.
pub(crate) const ATTENTION: u8 = 5;

/// Why a command is not carried out.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    text: String,
}

impl Failure {
    /// Refused or failed.
    pub(crate) fn refused(text: impl Into<String>) -> Self {
        Failure { code: 1, text: text.into() }
    }

    /// Written wrongly.
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Failure { code: 2, text: text.into() }
    }

    /// There is no such fiber or operation.
    pub(crate) fn not_found(text: impl Into<String>) -> Self {
        Failure { code: 3, text: text.into() }
    }

    /// The database or its owner cannot be reached.
    pub(crate) fn unreachable(text: impl Into<String>) -> Self {
        Failure { code: 4, text: text.into() }
    }

    pub(crate) fn is_not_found(&self) -> bool {
        self.code == 3
    }

    /// The reason.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Prints it; gives its exit code.
    pub(crate) fn say(&self) -> u8 {
        warn(&self.text);
        self.code
    }

    pub(crate) fn report(&self) -> ExitCode {
        ExitCode::from(self.say())
    }
}
