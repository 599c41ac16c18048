//! Which values of a stored fiber are not shown: what the code says of each function on its call
//! stack, and the layout that it was left under.
use crate::exec::executor::Executor;
use crate::frame::machine::LocalRole;
use crate::frame::snapshot::Snapshot;
use crate::layout::rows::machine_of;
use crate::layout::spec::Layout;
use crate::secret::are_secret;
use crate::store::{FiberRow, LayoutRow, LoadedFiber};

/// What is known of a function's secrets.
pub(super) struct Secrecy {
    /// Whether all of its values may be secret.
    all: bool,
    code: Option<Layout>,
    stored: Option<Layout>,
}

/// Of the function of a fiber, and of those that it is calling, outermost first.
pub(super) fn of_stack(exec: &Executor, row: &FiberRow, loaded: Option<&LoadedFiber>, snapshot: Option<&Snapshot>) -> Vec<Secrecy> {
    let layout = loaded.and_then(|loaded| loaded.layout.as_ref());
    let mut stack = vec![Secrecy::of(exec, &row.name, layout, are_secret(&row.args))];
    let mut frame = snapshot;
    while let Some((caller, callee)) = frame.and_then(|caller| Some((caller, caller.call.as_deref()?))) {
        // The arguments of a call are secret if its code mentions one.
        let all = stack.last().is_some_and(|outer| outer.mentions(&caller.at));
        let hash = callee.layout.as_deref();
        let layout = loaded.and_then(|loaded| loaded.callees.iter().find(|row| Some(row.hash.as_str()) == hash));
        stack.push(Secrecy::of(exec, callee.fiber.as_deref().unwrap_or(&row.name), layout, all));
        frame = Some(callee);
    }
    stack
}

impl Secrecy {
    fn of(exec: &Executor, name: &str, stored: Option<&LayoutRow>, all: bool) -> Self {
        let machine = exec.registry.get(name).map(|known| known.machine).or_else(|| machine_of(name, None));
        Secrecy { all, code: machine.map(Layout::of), stored: stored.and_then(|row| Layout::read(row).ok()) }
    }

    /// Whether a value is not shown. Where neither the code nor a layout is known, none is.
    pub(super) fn hides(&self, name: &str) -> bool {
        self.is_unknown() || self.layouts().any(|layout| layout.is_secret(name))
    }

    /// Whether the code of a cut point mentions what is not shown.
    pub(super) fn mentions(&self, step: &str) -> bool {
        self.has_entry(|entry| entry.strip_prefix('@') == Some(step))
    }

    /// Whether the result is not shown.
    pub(super) fn hides_result(&self) -> bool {
        self.has_entry(|entry| entry == "return")
    }

    /// Whether one of its values is not shown.
    pub(super) fn has_some(&self) -> bool {
        self.has_entry(|_| true)
    }

    fn has_entry(&self, is: impl Fn(&str) -> bool) -> bool {
        self.is_unknown() || self.layouts().any(|layout| layout.secrets().iter().any(|entry| is(entry)))
    }

    fn is_unknown(&self) -> bool {
        self.all || self.layouts().next().is_none()
    }

    fn layouts(&self) -> impl Iterator<Item = &Layout> {
        self.code.iter().chain(&self.stored)
    }

    pub(super) fn role(&self, at: &str, name: &str) -> Option<LocalRole> {
        self.stored.iter().chain(&self.code).find_map(|layout| layout.role(at, name))
    }
}
