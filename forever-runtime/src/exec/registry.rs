//! The fiber functions that a runtime knows, by stored name: how a row becomes a running function
//! again.
use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};

use serde_json::value::RawValue;

use crate::error::{Error, ErrorKind, Result, chain};
use crate::exact;
use crate::exec::compatibility::{Found, Verdict};
use crate::exec::slots::Slots;
use crate::frame::activation::Frame;
use crate::frame::arguments::{load_arguments, save_arguments};
use crate::frame::context::FiberContext;
use crate::frame::fiber::Fiber;
use crate::frame::locals::{OnRenamedField, UnreadKeys};
use crate::frame::machine::Machine;
use crate::frame::poll::{drive, exit_of};
use crate::frame::resources::Needs;
use crate::frame::run::Run;
use crate::frame::snapshot::Snapshot;
use crate::future::BoxFuture;
use crate::guard::guarded;
use crate::layout::rows::{LeftUnder, row_of};
use crate::layout::spec::Layout;
use crate::runtime::exit::Exit;
use crate::store::{LayoutRow, LoadedFiber};

/// Where a run begins.
pub(crate) enum Begin {
    /// At the start, with an invocation of the registered type.
    Call(Box<dyn Any + Send>),
    /// Where the store says.
    Stored(Box<LoadedFiber>),
}

/// All registered fiber functions.
#[derive(Default)]
pub(crate) struct Registry {
    functions: BTreeMap<&'static str, Arc<Known>>,
    /// Those of the layers above, of which no agent is asked or told.
    ours: Vec<&'static str>,
    pub(crate) on_renamed_field: OnRenamedField,
    /// The states of those layers.
    pub(crate) layers: Slots,
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.functions.keys()).finish()
    }
}

impl Registry {
    /// Adds a function; `Err` when another one has its name.
    pub(crate) fn add<F: Fiber>(&mut self) -> Result<()> {
        self.add_with::<F>(None)
    }

    fn add_with<F: Fiber>(&mut self, host: Option<Arc<dyn Any + Send + Sync>>) -> Result<()> {
        self.add_code(F::MACHINE, &Of::<F>(PhantomData), host)
    }

    fn add_code(&mut self, machine: &'static Machine, code: &'static dyn Typed, host: Option<Arc<dyn Any + Send + Sync>>) -> Result<()> {
        let name = machine.name;
        let known = Known { machine, code, host, layout: OnceLock::new(), row: OnceLock::new() };
        match self.functions.insert(name, Arc::new(known)) {
            Some(there) if there.code.function() != code.function() => Err(Error::new(
                ErrorKind::Setup,
                format!("two fibers are registered under the name `{name}`: give one of them `name = \"..\"`"),
            )),
            _ => Ok(()),
        }
    }

    /// Adds a function of a layer above, whose context has `host`: that layer decides about its
    /// recovery, and no agent.
    pub(crate) fn add_ours<F: Fiber>(&mut self, host: Arc<dyn Any + Send + Sync>) -> Result<()> {
        self.ours.push(F::MACHINE.name);
        self.add_with::<F>(Some(host))
    }

    /// Whether a function is of a layer above.
    pub(crate) fn is_ours(&self, name: &str) -> bool {
        self.ours.contains(&name)
    }

    pub(crate) fn get(&self, name: &str) -> Option<Arc<Known>> {
        self.functions.get(name).cloned()
    }

    /// All registered functions, by name.
    pub(crate) fn machines(&self) -> impl Iterator<Item = &'static Machine> {
        self.functions.values().map(|known| known.machine)
    }

    /// The layouts of all functions that the program has registered.
    pub(crate) fn layouts(&self) -> Vec<Layout> {
        let of_the_program = self.functions.values().filter(|known| !self.is_ours(known.machine.name));
        of_the_program.map(|known| Layout::of(known.machine)).collect()
    }

    /// Whether a registered function has the layout with this hash.
    pub(crate) fn has_layout(&self, hash: &str) -> bool {
        self.functions.values().any(|known| known.row().hash == hash)
    }

    /// The entry of `F` itself.
    pub(crate) fn of<F: Fiber>(&self) -> Result<Arc<Known>> {
        self.of_function(F::MACHINE.name, TypeId::of::<F>())
    }

    /// The entry of a function itself, and not of another one of its name.
    pub(crate) fn of_function(&self, name: &str, function: TypeId) -> Result<Arc<Known>> {
        self.get(name).filter(|known| known.code.function() == function).ok_or_else(|| {
            Error::new(ErrorKind::NotRegistered, format!("fiber `{name}` is not registered: add `.fiber::<{name}>()` before `.open()`"))
        })
    }

    /// Fails when a resource that a function needs is missing, naming all that are.
    pub(crate) fn check_needs(&self, resources: &crate::frame::resources::Resources) -> Result<()> {
        let mut lacks = Vec::new();
        for (name, known) in &self.functions {
            let mut needs = Needs::new(resources);
            known.needs(&mut needs);
            lacks.extend(needs.missing.iter().map(|(parameter, what)| format!("fiber `{name}` needs a `{what}` for `{parameter}`")));
        }
        if lacks.is_empty() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Setup, format!("missing resources: {}: add each with `.resource(..)`", lacks.join("; "))))
    }
}

/// A registered fiber function.
///
/// What depends on its types is behind [`Typed`], so that the rest is compiled once.
pub(crate) struct Known {
    pub(crate) machine: &'static Machine,
    code: &'static dyn Typed,
    /// What the context of a function of a layer above has.
    host: Option<Arc<dyn Any + Send + Sync>>,
    layout: OnceLock<Layout>,
    row: OnceLock<Arc<LayoutRow>>,
}

impl Known {
    pub(crate) fn needs(&self, needs: &mut Needs<'_>) {
        self.code.needs(needs);
    }

    /// The row of the table of layouts under which this code writes.
    pub(crate) fn row(&self) -> &Arc<LayoutRow> {
        self.row.get_or_init(|| row_of(self.machine))
    }

    fn layout(&self) -> &Layout {
        self.layout.get_or_init(|| Layout::of(self.machine))
    }

    /// Whether stored arguments are these, where the code that stored them had fewer: an argument
    /// or a field that was added since counts as its default.
    pub(crate) fn same_arguments(&self, stored: &str, args: &str) -> bool {
        let Some(stored) = with_defaults(stored, args) else { return false };
        // Read by the types of the code and written again, a field that was added has its default.
        let written = guarded(|| self.code.written_again(&stored));
        written.is_ok_and(|written| exact::same(&written, args))
    }

    /// Whether this code can begin with stored arguments.
    pub(crate) fn compare_arguments(&self, args: &str, on_renamed_field: OnRenamedField) -> Found {
        match guarded(|| self.code.load(args, on_renamed_field).map(drop)) {
            Ok(()) => Found { verdict: Verdict::Resumes, wait_changed: false },
            Err(why) => Found::parks(why),
        }
    }

    /// Whether it can resume a snapshot that was left under a layout.
    pub(crate) fn compare(&self, old: Option<&LayoutRow>, snapshot: &Snapshot, left: &LeftUnder) -> Found {
        if let Err(why) = left.check_begun(self.machine, old.map(|old| old.hash.as_str())) {
            return Found::parks(why);
        }
        match old.filter(|old| old.hash != self.row().hash).map(Layout::read) {
            Some(Ok(old)) => self.compare_with(&old, snapshot, left),
            _ => self.found(self.check(old, snapshot, left), false),
        }
    }

    /// Whether it can resume its part of a snapshot in which it is being called.
    pub(crate) fn compare_callee(&self, snapshot: &Snapshot, left: &LeftUnder) -> Found {
        if let Err(why) = left.check_begun(self.machine, snapshot.layout.as_deref()) {
            return Found::parks(why);
        }
        match snapshot.layout.as_deref().filter(|hash| *hash != self.row().hash).map(|hash| left.layout(hash)) {
            Some(Ok(old)) => self.compare_with(&old, snapshot, left),
            _ => self.found(self.machine.fits(snapshot, &self.row().hash, left), false),
        }
    }

    /// The verdict on a snapshot that was left under another layout.
    fn compare_with(&self, old: &Layout, snapshot: &Snapshot, left: &LeftUnder) -> Found {
        self.found(left.check(self.layout(), old, snapshot), self.layout().waits_otherwise(old, snapshot))
    }

    fn found(&self, fits: Result<(), String>, wait_changed: bool) -> Found {
        match (fits, self.machine.migrate) {
            (Ok(()), _) => Found { verdict: Verdict::Resumes, wait_changed },
            (Err(_), Some(_)) => Found { verdict: Verdict::Migrates, wait_changed: true },
            (Err(why), None) => Found::parks(why),
        }
    }

    /// Whether a snapshot left by the code of `old` fits; says why not.
    fn check(&self, old: Option<&LayoutRow>, snapshot: &Snapshot, left: &LeftUnder) -> Result<(), String> {
        match old {
            // The same shape: only what the snapshot itself lacks can be wrong, and the frame looks
            // for that.
            Some(old) if old.hash == self.row().hash => Ok(()),
            Some(old) => left.check(self.layout(), &Layout::read(old)?, snapshot),
            None => self.layout().check(None, snapshot).map_err(|drift| drift.to_string()),
        }
    }

    /// A run, not yet begun; `Err` says why the stored snapshot does not fit.
    pub(crate) fn prepare(&self, begin: Begin, ctx: FiberContext, run: Arc<Run>) -> Result<BoxFuture<'static, Exit>, String> {
        let (code, ctx) = (self.code, FiberContext { host: self.host.clone(), ..ctx });
        let start = |run: &Arc<Run>| Frame::start(self.machine, Arc::clone(run));
        let stored = match begin {
            Begin::Call(call) if (*call).type_id() != code.function() => return Err("the invocation is of another fiber".to_owned()),
            Begin::Call(call) => return Ok(code.run(Some(call), ctx, start(&run), run)),
            Begin::Stored(stored) => stored,
        };
        run.left().check_begun(self.machine, stored.layout.as_ref().map(|layout| layout.hash.as_str()))?;
        let Some(text) = stored.snapshot else {
            let start = start(&run);
            return Ok(Box::pin(async move {
                match guarded(|| code.load(&stored.args, run.backend.on_renamed_field())) {
                    Ok((call, unread)) => code.run(Some(call), ctx, start.with_unread(unread), run).await,
                    Err(why) => Exit::unfit(why),
                }
            }));
        };
        let mut snapshot: Snapshot = serde_json::from_str(&text).map_err(|e| format!("the stored snapshot cannot be read: {e}"))?;
        snapshot.put_back(&stored.rows)?;
        let fits = self.check(stored.layout.as_ref(), &snapshot, run.left());
        match (fits, self.machine.migrate) {
            (fits, Some(migrate)) if fits.is_err() || run.left().is_unreadable(0) => {
                snapshot.put_back_logs(&stored.rows)?;
                run.kept().resume(&text, stored.rows);
                let (machine, layout) = (self.machine, self.layout().clone());
                Ok(Box::pin(async move {
                    match migrated(machine, &layout, snapshot, migrate, &run) {
                        Ok(frame) => code.run(None, ctx, frame, run).await,
                        Err(why) => Exit::unfit(why),
                    }
                }))
            }
            (Err(why), _) => Err(why),
            (Ok(()), _) => {
                run.kept().resume(&text, stored.rows);
                let frame = Frame::resume(self.machine, Arc::clone(&run), snapshot)?;
                Ok(code.run(None, ctx, frame, run))
            }
        }
    }
}

type Migrate = fn(Snapshot) -> Result<Snapshot, Box<dyn std::error::Error + Send + Sync>>;

/// The frame of a snapshot that `migrate` has made; such a one is in the names of this code.
fn migrated(machine: &'static Machine, layout: &Layout, snapshot: Snapshot, migrate: Migrate, run: &Arc<Run>) -> Result<Frame, String> {
    run.left().migrate();
    let snapshot = guarded(|| migrate(snapshot).map_err(|e| chain(&*e)));
    let snapshot = snapshot.map_err(|why| format!("its snapshot could not be migrated: {why}"))?;
    layout.check(None, &snapshot).map_err(|drift| format!("its snapshot does not fit after it was migrated: {drift}"))?;
    Frame::resume(machine, Arc::clone(run), snapshot)
}

/// What is done with the types of a fiber function.
trait Typed: Send + Sync {
    fn function(&self) -> TypeId;
    fn needs(&self, needs: &mut Needs<'_>);
    /// An invocation with stored arguments, and what its types do not read of them.
    fn load(&self, args: &str, on_renamed_field: OnRenamedField) -> Result<(Box<dyn Any + Send>, UnreadKeys), String>;
    /// Stored arguments as this code writes them.
    fn written_again(&self, args: &str) -> Result<String, String>;
    /// Runs a frame, from its start with an invocation of this function.
    fn run(&self, start: Option<Box<dyn Any + Send>>, ctx: FiberContext, frame: Frame, run: Arc<Run>) -> BoxFuture<'static, Exit>;
}

struct Of<F>(PhantomData<fn() -> F>);

impl<F: Fiber> Typed for Of<F> {
    fn function(&self) -> TypeId {
        TypeId::of::<F>()
    }

    fn needs(&self, needs: &mut Needs<'_>) {
        F::needs(needs);
    }

    fn load(&self, args: &str, on_renamed_field: OnRenamedField) -> Result<(Box<dyn Any + Send>, UnreadKeys), String> {
        load_arguments::<F>(args, on_renamed_field).map(|(call, unread)| (Box::new(call) as Box<dyn Any + Send>, unread))
    }

    fn written_again(&self, args: &str) -> Result<String, String> {
        load_arguments::<F>(args, OnRenamedField::Warn).and_then(|(call, _)| save_arguments(&call))
    }

    fn run(&self, start: Option<Box<dyn Any + Send>>, ctx: FiberContext, frame: Frame, run: Arc<Run>) -> BoxFuture<'static, Exit> {
        // `Known` gives no other type.
        let start = start.and_then(|call| call.downcast::<F>().ok()).map(|call| *call);
        Box::pin(async move { exit_of(drive::<F>(start, &ctx, frame, &run).await) })
    }
}

/// Stored arguments with those that the code has beside them, if these are empty: null, false,
/// zero, or nothing in them.
fn with_defaults(stored: &str, args: &str) -> Option<String> {
    type Arguments = BTreeMap<String, Box<RawValue>>;
    let mut stored: Arguments = serde_json::from_str(stored).ok()?;
    let args: Arguments = serde_json::from_str(args).ok()?;
    for (name, value) in args {
        let is_empty = matches!(value.get(), "null" | "false" | "0" | "0.0" | "\"\"" | "[]" | "{}");
        if !stored.contains_key(&name) && is_empty {
            stored.insert(name, value);
        }
    }
    serde_json::to_string(&stored).ok()
}
