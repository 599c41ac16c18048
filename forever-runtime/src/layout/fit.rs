//! Checks whether the snapshot of a function under way in a call fits the code.
use crate::frame::machine::Machine;
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
            // The caller's `migrate` function has made it, in the names of this code.
            None => Layout::of(self).check(None, snapshot).map_err(|drift| drift.to_string()),
        }
    }
}
