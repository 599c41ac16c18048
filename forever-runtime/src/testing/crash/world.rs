//! The outside of the process, which outlives it.
use std::any::{Any, TypeId};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tempfile::TempDir;

use crate::testing::clock::VirtualClock;

/// World outside of the program, which outlives its processes.
///
/// Each run of [`crash_everywhere`](super::crash_everywhere) has a fresh one, shared by all processes
/// of the run. Clones are the same world.
///
/// ```
/// # use forever_runtime as forever;
/// use forever::testing::World;
/// use forever::{Builder, Forever};
///
/// /// A bank that counts: a resource for `step!("charge", effect, |op| bank.charge(op.id()))`.
/// struct Bank(World);
///
/// impl Bank {
///     fn charge(&self, id: &str) {
///         self.0.effect(format!("charge {id}"));
///     }
/// }
///
/// /// The `setup` of a test.
/// fn setup(world: &World) -> Builder {
///     let bank = Bank(world.clone());
///     Forever::builder().sqlite(world.database()).clock(world.clock()).resource(bank)
/// }
/// ```
#[derive(Clone, Default)]
pub struct World(Arc<Inner>);

#[derive(Default)]
struct Inner {
    effects: Mutex<BTreeMap<String, u64>>,
    attempts: Mutex<BTreeMap<String, u64>>,
    shared: Mutex<HashMap<TypeId, Box<dyn Any + Send>>>,
    clock: OnceLock<VirtualClock>,
    dir: OnceLock<TempDir>,
}

impl World {
    /// Records an effect, which must occur as often as in the uninterrupted run.
    pub fn effect(&self, what: impl Into<String>) {
        *lock(&self.0.effects).entry(what.into()).or_default() += 1;
    }

    /// Records an event that a death may repeat, such as the body of a step.
    ///
    /// It must occur at least as often as in the uninterrupted run.
    pub fn attempt(&self, what: impl Into<String>) {
        *lock(&self.0.attempts).entry(what.into()).or_default() += 1;
    }

    /// Shared value of this run, such as a bank; created on first use.
    pub fn shared<T: Default + Clone + Send + 'static>(&self) -> T {
        let mut shared = lock(&self.0.shared);
        let there = shared.entry(TypeId::of::<T>()).or_insert_with(|| Box::new(T::default()));
        there.downcast_ref::<T>().cloned().unwrap_or_default()
    }

    /// The clock of this run, for [`Builder::clock`](crate::Builder::clock).
    ///
    /// It stands still while the store is in use, and jumps to the next sleeper after a few idle
    /// milliseconds, so a fiber may sleep for a month without real waiting. Do not set a timeout by
    /// it on steps that wait longer than that for something real, such as a socket.
    pub fn clock(&self) -> VirtualClock {
        self.0.clock.get_or_init(VirtualClock::new).clone()
    }

    /// The file of this run, for [`Builder::sqlite`](crate::Builder::sqlite), in a folder that is removed with it.
    ///
    /// # Panics
    /// When the system gives no folder for temporary files.
    pub fn database(&self) -> PathBuf {
        let make = || tempfile::Builder::new().prefix("forever-crash-").tempdir().expect("a folder for temporary files");
        self.0.dir.get_or_init(make).path().join("crash.db")
    }

    /// The clock, if it was requested.
    pub(super) fn clock_in_use(&self) -> Option<&VirtualClock> {
        self.0.clock.get()
    }

    pub(super) fn effects(&self) -> BTreeMap<String, u64> {
        lock(&self.0.effects).clone()
    }

    pub(super) fn attempts(&self) -> BTreeMap<String, u64> {
        lock(&self.0.attempts).clone()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").field("effects", &self.effects()).field("attempts", &self.attempts()).finish_non_exhaustive()
    }
}
