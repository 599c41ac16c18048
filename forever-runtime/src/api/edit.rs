//! Changing what a stopped fiber has stored: [`Forever::edit`].
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tracing::info;

use crate::api::forever::Forever;
use crate::api::redact::Redactor;
use crate::api::view::{Stored, arguments};
use crate::error::{Error, ErrorKind, Result};
use crate::exact;
use crate::exec::dry_run;
use crate::exec::executor::Executor;
use crate::exec::registry::Known;
use crate::frame::saved::{text_to_keep, unreadable};
use crate::frame::snapshot::{Snapshot, without_spaces};
use crate::frame::tracker::{depth_and_name, is_reference, local_name, part_of};
use crate::history::{Change, Changes, Origin, item_of};
use crate::layout::rows::machine_of;
use crate::runtime::commands::done;
use crate::runtime::link::Link;
use crate::store::{Claim, CommandResult, FiberEdit, FiberRow, FiberState, HISTORY, LoadedFiber, StreamAppend};

impl Forever {
    /// Changes locals of a fiber that is not running; it continues with the new values.
    ///
    /// `change` gets the stored values and sets new ones. Before anything is stored, the code of
    /// this program reads all of them back in a dry run, up to the cut point where the fiber
    /// stands: an edit after which the fiber could not be resumed is refused, with the reason. The
    /// state of the fiber stays: [`resume`](Self::resume) one that has failed or is parked.
    ///
    /// Before its first checkpoint a fiber has its arguments, and these are changed.
    ///
    /// ```
    /// # use forever_runtime as forever;
    /// # async fn mend(forever: forever::Forever) -> forever::Result<()> {
    /// forever.edit("order-17", |locals| locals.set("limit", &500)).by("ann").await?;
    /// forever.resume("order-17").await
    /// # }
    /// ```
    ///
    /// Each edit is recorded in the [history](Self::history) of the fiber, whether or not one is
    /// kept: who, when, and the values before and after. Values marked `#[secret]` can be changed,
    /// and are recorded by name alone.
    ///
    /// The dry run makes the values of `#[fresh] let` again, as a resume does.
    ///
    /// # Errors
    /// Those of `change`. Of kind [`NotFound`](ErrorKind::NotFound) if there is no such fiber; of
    /// kind [`InvalidState`](ErrorKind::InvalidState) while it runs, when it has completed or was
    /// cancelled, and when it has run meanwhile; of kind [`Value`](ErrorKind::Value) if the code
    /// could not continue with these values; of kind [`NotRegistered`](ErrorKind::NotRegistered) if
    /// this program does not have its function; of kind [`Conflict`](ErrorKind::Conflict) for a
    /// closure, or a turn of a chat; when the store fails. Nothing is changed then.
    pub fn edit<F>(&self, id: &str, change: F) -> Edit<F>
    where
        F: FnOnce(&mut LocalsMut) -> Result<()> + Send + 'static,
    {
        Edit { link: self.exec_link(), id: id.to_owned(), change, by: None }
    }
}

/// Change of a fiber's locals, carried out by `.await`; made by [`Forever::edit`].
///
/// ```
/// # use forever_runtime as forever;
/// # async fn raise(forever: forever::Forever) -> forever::Result<()> {
/// // The author is recorded in the history of the fiber.
/// forever.edit("order-17", |locals| locals.set("limit", &500)).by("ann").await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a fiber is changed when this is awaited"]
pub struct Edit<F> {
    link: Link<Executor>,
    id: String,
    change: F,
    by: Option<String>,
}

impl<F> Edit<F> {
    /// Who changes it, for the record.
    pub fn by(mut self, who: impl Into<String>) -> Self {
        self.by = Some(who.into());
        self
    }
}

impl<F> fmt::Debug for Edit<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Edit").field("id", &self.id).field("by", &self.by).finish_non_exhaustive()
    }
}

impl<F> IntoFuture for Edit<F>
where
    F: FnOnce(&mut LocalsMut) -> Result<()> + Send + 'static,
{
    type Output = Result<()>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        let Edit { link, id, change, by } = self;
        Box::pin(async move { edit(&link.get()?, &id, change, by).await })
    }
}

/// The stored values of a fiber, and those that are to take their place.
///
/// A local of a function that is called by `call!` has the depth of the call before its name:
/// `1:total`.
///
/// ```
/// # use forever_runtime as forever;
/// use forever::fiber::LocalsMut;
///
/// fn double_limit(locals: &mut LocalsMut) -> forever::Result<()> {
///     let limit: u64 = locals.get("limit")?;
///     locals.set("limit", &(2 * limit))
/// }
///
/// # async fn mend(forever: forever::Forever) -> forever::Result<()> {
/// forever.edit("order-17", double_limit).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default)]
pub struct LocalsMut {
    /// Stored values, JSON, by name.
    stored: BTreeMap<String, String>,
    /// Names that the code keeps where the fiber stands.
    wanted: BTreeSet<String>,
    set: BTreeMap<String, String>,
}

impl LocalsMut {
    /// Names of the stored values.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.stored.keys().map(String::as_str)
    }

    /// Reads a value.
    ///
    /// # Errors
    /// When there is no value with this name, or it is no `T`.
    pub fn get<T: DeserializeOwned + 'static>(&self, name: &str) -> Result<T> {
        let text = self.set.get(name).or_else(|| self.stored.get(name)).ok_or_else(|| self.unknown(name))?;
        exact::from_str(text).map_err(|why| Error::new(ErrorKind::Value, format!("local `{name}` {}", unreadable::<T>(why))))
    }

    /// Sets a value.
    ///
    /// # Errors
    /// When there is no value with this name, or `value` cannot be saved.
    pub fn set<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) -> Result<()> {
        let text = text_to_keep(value).map_err(|why| Error::new(ErrorKind::Value, format!("the new value of local `{name}` {why}")))?;
        self.put(name, text)
    }

    /// Sets a value to JSON, in the form that [`view`](Forever::view) shows.
    ///
    /// # Errors
    /// When there is no value with this name, or `json` is no JSON.
    pub fn set_json(&mut self, name: &str, json: &str) -> Result<()> {
        let refused = |why: String| Error::new(ErrorKind::Value, format!("the new value of local `{name}` {why}"));
        let read: Box<RawValue> = serde_json::from_str(json).map_err(|why| refused(format!("is no JSON: {why}")))?;
        let text = without_spaces(read.get());
        if is_reference(&text) {
            return Err(refused("refers to another row; give the value itself".to_owned()));
        }
        self.put(name, text)
    }

    fn put(&mut self, name: &str, text: String) -> Result<()> {
        if !self.stored.contains_key(name) && !self.wanted.contains(name) {
            return Err(self.unknown(name));
        }
        self.set.insert(name.to_owned(), text);
        Ok(())
    }

    fn unknown(&self, name: &str) -> Error {
        let names: Vec<String> =
            self.stored.keys().chain(&self.wanted).map(|name| format!("`{name}`")).collect::<BTreeSet<_>>().into_iter().collect();
        let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        Error::new(ErrorKind::NotFound, format!("there is no local `{name}` where the fiber stands; there: {there}"))
    }
}

/// What a fiber would resume from after an edit.
pub(super) struct Edited {
    /// The fiber as it would be loaded.
    pub(super) loaded: LoadedFiber,
    /// Parts that its snapshot no longer refers to.
    pub(super) removed_parts: Vec<String>,
    /// The values before and after, by name; `None` for those that are secret.
    pub(super) changes: Changes,
}

/// Applies a change to what a fiber has stored, and checks that the code can continue with it.
pub(super) async fn edited(
    exec: &Arc<Executor>,
    stored: &Stored,
    change: impl FnOnce(&mut LocalsMut) -> Result<()> + Send,
) -> Result<Edited> {
    let row = stored.row();
    let refused = |why: String| Error::new(ErrorKind::Value, format!("failed to edit fiber `{}`: {why}", row.id));
    let known = exec.registry.get(&row.name).ok_or_else(|| {
        let why = format!("failed to edit fiber `{}`: this program does not have its function `{}`", row.id, row.name);
        Error::new(ErrorKind::NotRegistered, why)
    })?;
    let mut locals = LocalsMut::of(exec, stored, &known).map_err(refused)?;
    change(&mut locals)?;
    locals.set.retain(|name, text| locals.stored.get(name) != Some(text));
    // The reason may repeat a value, the new one or one that was there.
    let mut hidden = Redactor::default();
    let secrets = locals.set.iter().filter(|(name, _)| {
        let (depth, local) = depth_and_name(name);
        stored.is_secret(depth, local)
    });
    secrets.for_each(|(_, text)| hidden.add(text));
    let mut edited = locals.apply(stored).map_err(refused)?;
    if !edited.changes.is_empty() {
        let checked = dry_run::check(exec, &row.id, &known, edited.loaded.clone()).await;
        checked.map_err(|why| refused(stored.redacted(&hidden.text(&why))))?;
    }
    edited.loaded.rows.parts.retain(|name, _| !edited.removed_parts.contains(name));
    Ok(edited)
}

impl LocalsMut {
    /// The values of a fiber, and the names that its code keeps where it stands.
    fn of(exec: &Executor, stored: &Stored, known: &Arc<Known>) -> Result<Self, String> {
        let mut locals = LocalsMut::default();
        if let Some(why) = stored.problem() {
            return Err(why.to_owned());
        }
        let mut next = stored.snapshot();
        if next.is_none() {
            locals.stored = arguments(&stored.row().args).into_iter().collect();
            locals.wanted = known.machine.arguments.iter().map(|&name| name.to_owned()).collect();
        }
        let mut depth = 0;
        while let Some(frame) = next {
            let of_callee = || {
                frame
                    .fiber
                    .as_deref()
                    .and_then(|name| exec.registry.get(name).map(|known| known.machine).or_else(|| machine_of(name, None)))
            };
            let machine = if depth == 0 { Some(known.machine) } else { of_callee() };
            let kept = machine.and_then(|machine| Some(machine.cuts[machine.find(&frame.at)? as usize].locals)).unwrap_or_default();
            // The result of a call is there when it has returned.
            let kept = kept.iter().filter(|local| !local.result || frame.call.is_none());
            locals.wanted.extend(kept.map(|local| local_name(depth, local.name).into_owned()));
            locals.stored.extend(frame.locals.iter().map(|(name, text)| (local_name(depth, name).into_owned(), text.get().to_owned())));
            next = frame.call.as_deref();
            depth += 1;
        }
        Ok(locals)
    }

    /// The fiber with the values that were set.
    fn apply(self, stored: &Stored) -> Result<Edited, String> {
        let mut loaded = stored.loaded().cloned().ok_or("nothing is stored of it")?;
        let (mut removed_parts, mut changes) = (Vec::new(), Changes::new());
        let raw = |name: &str, text: String| RawValue::from_string(text).map_err(|why| format!("local `{name}` is no JSON: {why}"));
        for (name, text) in &self.set {
            let (depth, local) = depth_and_name(name);
            let before = self.stored.get(name).map(|text| raw(name, text.clone())).transpose()?;
            let change = Change { before, after: raw(name, text.clone())? };
            changes.insert(name.clone(), (!stored.is_secret(depth, local)).then_some(change));
        }
        match &loaded.snapshot {
            None => {
                let mut args: BTreeMap<String, Box<RawValue>> = serde_json::from_str(&loaded.args).map_err(|why| why.to_string())?;
                for (name, text) in self.set {
                    args.insert(name.clone(), raw(&name, text)?);
                }
                loaded.args = serde_json::to_string(&args).map_err(|why| why.to_string())?;
            }
            Some(text) => {
                // Here, parts and logs that stay as they are are only referred to.
                let mut snapshot: Snapshot =
                    serde_json::from_str(text).map_err(|why| format!("the stored snapshot cannot be read: {why}"))?;
                let mut depth = 0;
                snapshot.each(|frame| {
                    for (name, text) in &self.set {
                        let (of, local) = depth_and_name(name);
                        if of == depth {
                            let before = frame.locals.insert(local.to_owned(), raw(name, text.clone())?);
                            removed_parts.extend(before.and_then(|before| part_of(before.get())));
                        }
                    }
                    depth += 1;
                    Ok::<_, String>(())
                })?;
                loaded.snapshot = Some(serde_json::to_string(&snapshot).map_err(|why| why.to_string())?);
            }
        }
        Ok(Edited { loaded, removed_parts, changes })
    }
}

async fn edit(exec: &Arc<Executor>, id: &str, change: impl FnOnce(&mut LocalsMut) -> Result<()> + Send, by: Option<String>) -> Result<()> {
    let stored = Stored::read(exec, id).await?;
    let row = stored.row();
    if matches!(row.state, FiberState::Running | FiberState::Completed | FiberState::Cancelled) {
        return done(CommandResult::InvalidState(row.state), id, "edit");
    }
    is_editable(exec, row, "edit")?;
    let Edited { loaded, removed_parts, changes } = edited(exec, &stored, change).await?;
    if changes.is_empty() {
        return Ok(());
    }
    let names = changes.keys().cloned().collect::<Vec<_>>().join(", ");
    let who = by.clone().unwrap_or_default();
    let now_ms = exec.runtime.now_ms();
    let origin = Origin::Edit { by, changes };
    let record = StreamAppend {
        name: HISTORY.into(),
        first: None,
        count: 1,
        data: item_of(&loaded, row.at.as_deref().unwrap_or_default(), now_ms, &origin),
        keep: None,
    };
    let is_of_snapshot = loaded.snapshot.is_some();
    let edit = FiberEdit {
        seen: Claim { fiber: row.seq, epoch: loaded.epoch },
        args: (!is_of_snapshot).then_some(loaded.args),
        snapshot: loaded.snapshot,
        removed_parts,
        record,
        now_ms,
    };
    if !done(exec.runtime.store.edit(edit).await?, id, "edit")? {
        let why = format!("failed to edit fiber `{id}`: it has run meanwhile");
        return Err(Error::new(ErrorKind::InvalidState, why));
    }
    info!(fiber.id = id, fiber.name = %row.name, by = who, locals = names, "fiber edited");
    Ok(())
}

/// Refuses closures, of which no code goes on, and functions of the layers above, whose fibers
/// belong to something else.
pub(super) fn is_editable(exec: &Executor, row: &FiberRow, what: &str) -> Result<()> {
    let why = if row.closure {
        "a closure, of which nothing is left but its stash"
    } else if exec.registry.is_ours(&row.name) {
        "a turn of a chat"
    } else {
        return Ok(());
    };
    Err(Error::new(ErrorKind::Conflict, format!("failed to {what} fiber `{}`: it is {why}", row.id)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_space_is_left_out_between_values_and_kept_in_texts() {
        let json = "{ \"a b\" : [ 1 , \"x \\\" y\" ,\n\"\\\\\" , 12345678901234567890123 ] }";
        assert_eq!(without_spaces(json), "{\"a b\":[1,\"x \\\" y\",\"\\\\\",12345678901234567890123]}");
    }
}
