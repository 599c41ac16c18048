//! What the code of a run may hold of values marked `#[secret]`, and mention now.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::frame::machine::Machine;
use crate::runtime::exit::Exit;
use crate::secret::marked;

/// Whether the code of a run may make texts that repeat a secret.
#[derive(Debug, Default)]
pub(crate) struct RunSecrets {
    /// Whether all of its values may, since its arguments may.
    all: bool,
    /// Whether one of its functions has a secret. It stays.
    holds: AtomicBool,
    /// Whether the code under way may: a step that mentions none does not.
    mentions: AtomicBool,
}

impl RunSecrets {
    /// Of a run whose arguments may be secret, or not.
    pub(crate) fn new(are_arguments: bool) -> Self {
        let secrets = RunSecrets { all: are_arguments, ..RunSecrets::default() };
        if are_arguments {
            secrets.hold();
        }
        secrets
    }

    pub(crate) fn are_arguments(&self) -> bool {
        self.all
    }

    /// It comes to a function.
    pub(crate) fn enter(&self, machine: &Machine) {
        if !machine.secrets.is_empty() {
            self.hold();
        }
    }

    pub(crate) fn hold(&self) {
        self.holds.store(true, Ordering::Relaxed);
        self.mentions.store(true, Ordering::Relaxed);
    }

    /// It begins the code of a cut point.
    pub(crate) fn begin(&self, mentions: bool) {
        self.mentions.store(mentions && self.holds(), Ordering::Relaxed);
    }

    /// It is between cut points.
    pub(crate) fn between(&self) {
        self.mentions.store(self.holds(), Ordering::Relaxed);
    }

    pub(crate) fn holds(&self) -> bool {
        self.holds.load(Ordering::Relaxed)
    }

    pub(crate) fn mentions(&self) -> bool {
        self.mentions.load(Ordering::Relaxed)
    }

    /// The exit of its code.
    pub(crate) fn exit(&self, exit: Exit) -> Exit {
        let mark = |why: Arc<str>| self.text(why.to_string()).into();
        match exit {
            // An error leaves the function from the step under way.
            Exit::Failed(why) if !self.mentions() => Exit::Failed(why),
            Exit::Failed(why) => Exit::Failed(mark(why)),
            Exit::Unfit(why) => Exit::Unfit(mark(why)),
            Exit::Unreadable { why, depth, migrates } => Exit::Unreadable { why: mark(why), depth, migrates },
            exit => exit,
        }
    }

    /// A text that its code has made.
    pub(crate) fn text(&self, text: String) -> String {
        if self.holds() { marked(&text) } else { text }
    }
}
