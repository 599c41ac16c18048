//! Checks whether the snapshot of a function under way in a call fits the code.
use std::collections::BTreeSet;

use crate::frame::machine::{Local, Machine, base};
use crate::frame::snapshot::Snapshot;
use crate::layout::rows::LeftUnder;
use crate::layout::spec::Layout;

impl Machine {
    /// A callee's snapshot in the form that this function, whose layout has the hash `layout`, can
    /// resume, after `migrate` if needed.
    pub(crate) fn fit(&'static self, snapshot: Snapshot, layout: &str, left: &LeftUnder, depth: u32) -> Result<Snapshot, String> {
        self.is_called(&snapshot)?;
        left.check_begun(self, snapshot.layout.as_deref())?;
        let fits = self.fits(&snapshot, layout, left);
        match self.migrate {
            Some(migrate) if fits.is_err() || left.is_unreadable(depth) => {
                left.migrate();
                migrate(snapshot).map_err(|e| format!("the snapshot of `{}` could not be migrated: {e}", self.name))
            }
            _ => fits.map(|()| snapshot),
        }
    }

    /// Checks that a callee's snapshot belongs to this function.
    fn is_called(&self, snapshot: &Snapshot) -> Result<(), String> {
        let was = snapshot.fiber.as_deref().unwrap_or_default();
        if was != self.name {
            return Err(format!(
                "the function that was being called is `{was}`, and the code calls `{}` there now: if it is the same, give it `name = \"{was}\"`",
                self.name
            ));
        }
        Ok(())
    }

    /// Checks that a callee's snapshot fits this function without migration.
    pub(crate) fn fits(&self, snapshot: &Snapshot, layout: &str, left: &LeftUnder) -> Result<(), String> {
        match &snapshot.layout {
            Some(old) if old == layout => Ok(()),
            Some(old) => left.layout(old).and_then(|old| left.check(&Layout::of(self), &old, snapshot)),
            None => self.moved(snapshot).map_or(Ok(()), Err),
        }
    }

    /// Reason why a callee's snapshot without a layout cannot be trusted. Earlier versions of this
    /// library stored the version and the shared names in place of the layout.
    fn moved(&self, snapshot: &Snapshot) -> Option<String> {
        let name = self.name;
        if snapshot.version != self.version {
            return Some(format!("`{name}` has version {} now and had {} when it was stopped", self.version, snapshot.version));
        }
        let Some(cut) = self.find(&snapshot.at).map(|cut| &self.cuts[cut as usize]) else {
            return Some(format!("step `{}` of `{name}` is not in the code any more", snapshot.at));
        };
        let before = |kind: &str, name: &str| snapshot.of.get(&format!("{kind} {}", base(name))).copied().unwrap_or(1);
        let steps = before("step", cut.name);
        if !cut.explicit && cut.was.is_none() && steps != cut.of {
            let base = base(cut.name);
            return Some(format!(
                "`{base}` stands for {} steps of `{name}` now and for {steps} before: which one was meant cannot be told",
                cut.of
            ));
        }
        cut.locals.iter().find_map(|local| {
            let value_to_come = local.result && snapshot.call.is_some();
            let stored = match cut.stored_name(local, |name| snapshot.locals.contains_key(name)) {
                Some(stored) => stored,
                None if value_to_come => return None,
                None => {
                    return Some(format!("local `{}` of `{name}` is needed after step `{}` but was not kept", local.name, cut.name));
                }
            };
            let (bindings, now) = (before("local", stored), self.locals_named(base(stored), snapshot));
            (bindings != now).then(|| {
                let base = base(stored);
                format!("`{base}` stands for {now} locals of `{name}` now and for {bindings} before: which one was meant cannot be told")
            })
        })
    }

    /// Number of locals that share a name, including those that had it when a snapshot was taken.
    fn locals_named(&self, name: &str, snapshot: &Snapshot) -> u32 {
        let all = || self.cuts.iter().flat_map(|cut| cut.locals);
        let bearers = all().find(|local| base(local.name) == name).map_or(0, |local| local.of);
        let renamed = |local: &&Local| base(local.name) != name && local.was.is_some_and(|was| base(was) == name);
        let leavers: BTreeSet<&str> =
            all().filter(renamed).filter(|local| !snapshot.locals.contains_key(local.name)).map(|local| local.name).collect();
        bearers.saturating_add(u32::try_from(leavers.len()).unwrap_or(u32::MAX))
    }
}
