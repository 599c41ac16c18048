//! The snapshot writer: from the locals that a cut point keeps to one checkpoint.
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use crate::frame::activation::Frame;
use crate::frame::backend::Checkpoint;
use crate::frame::locals::{Apart, Save};
use crate::frame::machine::Cut;
use crate::frame::run::Run;
use crate::frame::saved::Saved;
use crate::frame::snapshot::push_json_string;
use crate::frame::tracker::SnapshotRefs;
use crate::runtime::exit::Exit;
use crate::secret::secret_arguments;
use crate::store::LayoutRow;

/// Main text of a snapshot, and its references.
pub(super) struct Written {
    pub(super) text: String,
    pub(super) named: SnapshotRefs,
}

impl Frame {
    // `save` is a trait object, so that this is not compiled for each cut point.
    pub(super) fn write(&self, cut: u32, save: &mut dyn FnMut(&mut Save<'_>), close: &str) -> Result<Written, String> {
        if self.mentions_secret(cut) {
            self.run.outbox().children.iter_mut().for_each(|(child, _)| child.args = secret_arguments(&child.args));
        }
        self.run.secrets.between();
        let cut = &self.machine.cuts[cut as usize];
        let mut text = String::with_capacity(self.prefix.len() + 256);
        if self.prefix.is_empty() {
            text.push('{');
        } else {
            text.push_str(&self.prefix);
        }
        text.push_str("\"at\":");
        push_json_string(&mut text, cut.name);
        text.push_str(",\"locals\":{");
        let mut written = Written { text, named: self.outer.clone() };
        self.forget_unread(cut.locals.iter().filter(|local| local.result).map(|local| local.name));
        self.put_locals(&mut written, cut.name, true, save)?;
        written.text.push_str("},\"call\":");
        written.text.push_str(close);
        written.text.push_str(&self.suffix);
        Ok(written)
    }

    /// Closes the open text of this frame after a call has returned.
    pub(super) fn close_call(&self, open: &mut Written, result: Option<&'static str>, value: &dyn Saved) -> Result<(), String> {
        const OPEN: &str = "},\"call\":";
        if let Some(name) = result {
            open.text.truncate(open.text.len() - OPEN.len());
            let first = open.text.ends_with("\"locals\":{");
            self.put_locals(open, name, first, &mut |save| save.put(name, value))?;
            open.text.push_str(OPEN);
        }
        open.text.push_str("null}");
        open.text.push_str(&self.suffix);
        Ok(())
    }

    /// Adds locals to the text of this frame, or to the rows beside it.
    pub(super) fn put_locals(
        &self,
        written: &mut Written,
        step: &'static str,
        first: bool,
        save: &mut dyn FnMut(&mut Save<'_>),
    ) -> Result<(), String> {
        let mut kept = self.run.kept();
        kept.adopt();
        let Written { text, named } = written;
        let unread = self.unread.lock().unwrap_or_else(PoisonError::into_inner);
        let apart = Apart { kept: &mut kept, named, depth: self.depth, unread: &unread };
        let mut out = Save { text, step, first, error: None, apart: Some(apart) };
        save(&mut out);
        if let Some(error) = out.error {
            return Err(error);
        }
        named.logs.append(&mut kept.logs.named);
        Ok(())
    }
}

pub(super) async fn commit(run: Arc<Run>, written: Result<Written, String>, cut: &'static Cut, callees: Vec<Arc<LayoutRow>>) {
    if let Err(stopped) = try_commit(&run, written, cut, callees).await {
        run.halt::<()>(stopped).await;
    }
}

/// Stores a checkpoint; an error is the exit of a run whose checkpoint cannot be stored.
pub(super) async fn try_commit(
    run: &Run,
    written: Result<Written, String>,
    cut: &'static Cut,
    callees: Vec<Arc<LayoutRow>>,
) -> Result<(), Exit> {
    run.step.end();
    run.value_counts(cut)?;
    run.tx_position.passed();
    run.take_unreadable();
    let Written { text: snapshot, named } = written.map_err(Exit::failed)?;
    let ops = run.ops.pass().map_err(Exit::parked)?;
    let (delta, mut streams) = run.kept().commit(named);
    streams.appended.extend(run.outputs.take());
    let number = run.checkpoints.fetch_add(1, Ordering::Relaxed) + 1;
    let outbox = std::mem::take(&mut *run.outbox());
    let checkpoint = Checkpoint { snapshot, at: cut.name, callees, number, replaces: false, ops, delta, streams, outbox };
    let stored = run.backend.commit(checkpoint).await;
    run.ops.stored();
    stored.map_err(Exit::interrupted)
}
