//! The builder of a runtime: all parts are checked before any fiber runs.
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::agent::class::BoxError;
use crate::agent::{Agent, AgentHandle, Agents, Classes};
use crate::api::client::Client;
use crate::api::forever::Forever;
use crate::clock::{Clock, SystemClock};
use crate::error::{Error, ErrorKind, Result};
use crate::exec::agent_hooks::AgentHooks;
use crate::exec::compatibility::{Compared, Compatibility, OnIncompatible};
use crate::exec::executor::Executor;
use crate::exec::registry::Registry;
use crate::exec::{compatibility, dispatch, executor, recovery, retention};
use crate::frame::current;
use crate::frame::fiber::Fiber;
use crate::frame::locals::OnRenamedField;
use crate::frame::resources::Resources;
use crate::history::History;
use crate::layers::agents::EngineAgents;
use crate::layers::engine::Engine;
use crate::layers::layer::{Functions, Layer};
use crate::runtime::cluster;
use crate::runtime::database::Database;
use crate::runtime::events::{Events, Listeners};
#[cfg(feature = "metrics")]
use crate::runtime::gauges;
use crate::runtime::link::RuntimeGuard;
use crate::runtime::messages;
use crate::runtime::settings::{Retention, Settings};
use crate::runtime::state::{Parts, Runtime};
use crate::runtime::store_time::StoreTime;
use crate::runtime::timer;
#[cfg(feature = "postgres")]
use crate::store::PostgresStore;
use crate::store::sqlite::copied::Copied;
use crate::store::sqlite::user::Migration;
use crate::store::{Durability, SeenBy, Sqlite, Store};
#[cfg(all(feature = "postgres", feature = "testing"))]
use crate::testing::elsewhere::Schema;
use crate::{agent, clock, layout};

/// Builder of a runtime: where it stores, what it runs, and its limits. [`open`](Builder::open)
/// starts it.
///
/// One call is required: [`sqlite`](Builder::sqlite), [`in_memory`](Builder::in_memory), `postgres`
/// (feature `postgres`) or [`store`](Builder::store). Of several, the last one counts. Everything
/// else has a default. Methods only take notes: mistakes, such as two fibers of one name, are
/// errors of [`open`](Builder::open), before any fiber runs.
///
/// ```
/// # use forever_runtime as forever;
/// use forever::{Forever, Retention};
/// use std::time::Duration;
///
/// struct Mailer;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> forever::Result<()> {
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("jobs.db");
/// let forever = Forever::builder()
///     .sqlite(path)
///     // A deploy starts the new process while the old one still owns the file.
///     .wait_for_lock(Duration::from_secs(30))
///     .resource(Mailer)
///     .retention(Retention::default().completed(Duration::from_secs(7 * 24 * 60 * 60)))
///     .cancel_grace(Duration::from_secs(20))
///     // And `.fiber::<order>()` for each function.
///     .open()
///     .await?;
/// forever.close().await
/// # }
/// ```
///
/// The guide has all options in one table, `docs/guide/src/reference/options.md`.
#[derive(Debug)]
#[must_use = "a runtime is opened by `.open().await`"]
pub struct Builder {
    place: Option<Place>,
    durability: Durability,
    wait_for_lock: Duration,
    registry: Result<Registry>,
    classes: Result<Classes>,
    agents: agent::Settings,
    /// The layers above.
    pub(super) layers: Vec<Box<dyn Layer>>,
    resources: Resources,
    clock: Arc<dyn Clock>,
    settings: Settings,
    migrations: Vec<Migration>,
    listeners: Listeners,
    seen_by: SeenBy,
    on_incompatible: OnIncompatible,
}

#[derive(Debug)]
pub(crate) enum Place {
    File(PathBuf),
    Memory,
    /// A store that the program has opened.
    Store(Arc<dyn Store>),
    /// The Postgres database with this URL.
    #[cfg(feature = "postgres")]
    Postgres(String),
    /// The Postgres store that the program has opened.
    #[cfg(feature = "postgres")]
    PostgresStore(Arc<PostgresStore>),
    /// One database for all runtimes of this process that use the name, as long as a runtime or a
    /// test has it open.
    #[cfg(feature = "testing")]
    Named(String),
    /// The database of a test that is kept in Postgres.
    #[cfg(all(feature = "postgres", feature = "testing"))]
    Schema(Schema),
}

impl Place {
    /// The place of a store that the program has opened.
    fn of(store: impl Store + 'static) -> Self {
        let store = Arc::new(store);
        #[cfg(feature = "postgres")]
        {
            let any: Arc<dyn std::any::Any + Send + Sync> = store.clone();
            if let Ok(store) = any.downcast() {
                return Place::PostgresStore(store);
            }
        }
        Place::Store(store)
    }
}

impl Builder {
    pub(super) fn new() -> Self {
        Builder {
            place: None,
            durability: Durability::default(),
            wait_for_lock: Duration::ZERO,
            registry: Ok(Registry::default()),
            classes: Ok(Classes::default()),
            agents: agent::Settings::default(),
            layers: Vec::new(),
            resources: Resources::default(),
            clock: Arc::new(SystemClock::new()),
            settings: Settings::default(),
            migrations: Vec::new(),
            listeners: Listeners::default(),
            seen_by: None,
            on_incompatible: OnIncompatible::default(),
        }
    }

    /// Stores everything in the SQLite file at `path`, which is created if it does not exist.
    ///
    /// Next to it are SQLite's `-wal` and `-shm` files and `.lock`, which contains the owner's
    /// process id. The folder has to exist, on a local disk. One process at a time owns the file:
    /// another open fails with [`Busy`](ErrorKind::Busy), or waits as
    /// [`wait_for_lock`](Builder::wait_for_lock) says.
    pub fn sqlite(mut self, path: impl AsRef<Path>) -> Self {
        self.place = Some(Place::File(path.as_ref().to_owned()));
        self
    }

    /// Stores everything in memory, for tests. It is lost with the runtime.
    ///
    /// Each runtime has a database of its own. [`durability`](Builder::durability) and
    /// [`wait_for_lock`](Builder::wait_for_lock) have no effect.
    pub fn in_memory(mut self) -> Self {
        self.place = Some(Place::Memory);
        self
    }

    /// Stores everything in the Postgres database at `url`, which any number of workers share.
    ///
    /// `url` is one of `postgres://user:password@host/database`. The tables are in the schema
    /// `forever`, and are created if they do not exist. Every open runtime is a worker. A worker
    /// runs the fibers that it claims, and takes over those of workers that have died.
    ///
    /// [`PostgresStore::builder`](crate::store::PostgresStore::builder) has the options: another
    /// schema, the lease, a pooler, TLS. Its store is given to [`store`](Builder::store). The
    /// abilities that only SQLite has are listed there.
    ///
    /// ```no_run
    /// # use forever_runtime as forever;
    /// # async fn open() -> forever::Result<()> {
    /// let forever = forever::Forever::builder().postgres("postgres://app:secret@db.local/app").open().await?;
    /// # forever.close().await
    /// # }
    /// ```
    #[cfg(feature = "postgres")]
    #[cfg_attr(docsrs, doc(cfg(feature = "postgres")))]
    pub fn postgres(mut self, url: impl Into<String>) -> Self {
        self.place = Some(Place::Postgres(url.into()));
        self
    }

    /// Uses a store that the program has opened: another database than SQLite, or a wrapper.
    ///
    /// The contract of a store is in the documentation of [`store`](crate::store). A store serves
    /// one runtime: do not give it to a second builder. The runtime closes it.
    ///
    /// Features that only SQLite has return an error of kind [`Setup`](ErrorKind::Setup) with such
    /// a store, even if it wraps a [`Sqlite`]:
    /// [`FiberContext::transaction`](crate::fiber::FiberContext::transaction), [`Forever::transaction`],
    /// [`migration`](Builder::migration) and [`Forever::backup`]. A `PostgresStore` (feature
    /// `postgres`) has `FiberContext::postgres_transaction` and `Forever::postgres_transaction`,
    /// unless it is wrapped.
    /// [`durability`](Builder::durability) and [`wait_for_lock`](Builder::wait_for_lock) have no
    /// effect: the store was opened with its own.
    ///
    /// ```
    /// # use forever_runtime as forever;
    /// use forever::Forever;
    /// use forever::store::Sqlite;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> forever::Result<()> {
    /// let store = Sqlite::in_memory().await?;
    /// let forever = Forever::builder().store(store).open().await?;
    /// forever.close().await
    /// # }
    /// ```
    pub fn store(mut self, store: impl Store + 'static) -> Self {
        self.place = Some(Place::of(store));
        self
    }

    /// Adds a migration of the program's own tables in the same database.
    ///
    /// A migration is SQL that is applied once, after those before it.
    ///
    /// At open, before any fiber runs, the missing migrations are applied, each in a transaction of
    /// its own. Never change, move or remove a migration that was applied: add a new one. A
    /// migration that fails leaves no changes. It may do what a transaction may
    /// ([`Tx`](crate::ops::Tx)); the names of its tables must not be Forever's. Foreign keys are checked
    /// at its end.
    ///
    /// ```
    /// # use forever_runtime as forever;
    /// let builder = forever::Forever::builder()
    ///     .in_memory()
    ///     .migration("bookings", "CREATE TABLE bookings (id TEXT PRIMARY KEY) STRICT")
    ///     .migration("bookings have a price", "ALTER TABLE bookings ADD COLUMN cents INTEGER");
    /// # let _ = builder;
    /// ```
    pub fn migration(mut self, name: impl Into<String>, sql: impl Into<String>) -> Self {
        self.migrations.push(Migration { name: name.into(), sql: sql.into() });
        self
    }

    /// Sets what a commit to the SQLite file survives. Defaults to [`Durability::Power`]: each
    /// commit waits for the disk.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Sets the maximum wait for another process that owns the SQLite file. Defaults to zero: no
    /// wait.
    ///
    /// After that time [`open`](Builder::open) fails with [`Busy`](ErrorKind::Busy).
    /// [`Duration::MAX`] waits without a limit.
    pub fn wait_for_lock(mut self, wait: Duration) -> Self {
        self.wait_for_lock = wait;
        self
    }

    /// Registers a fiber function, to be spawned and resumed: `.fiber::<order>()`.
    ///
    /// A stored fiber whose function is not registered is parked at [`open`](Builder::open), or makes
    /// it fail, as [`on_incompatible`](Builder::on_incompatible) says. To register a function again
    /// changes nothing. Another one of the same name is an error of kind
    /// [`Setup`](ErrorKind::Setup) at open, and so is a missing [`resource`](Builder::resource) that
    /// it takes.
    pub fn fiber<F: Fiber>(mut self) -> Self {
        self.registry = self.registry.and_then(|mut registry| registry.add::<F>().map(|()| registry));
        self
    }

    /// Registers a class of agents: `.agent(|me| Gardener { me })`.
    ///
    /// `make` constructs each agent when it comes into memory. A second class of the same name, or
    /// a name with a `/`, is an error of kind [`Setup`](ErrorKind::Setup) at open.
    pub fn agent<A: Agent>(mut self, make: impl Fn(AgentHandle<A>) -> A + Send + Sync + 'static) -> Self {
        self.classes = self.classes.and_then(|mut classes| classes.add(make).map(|()| classes));
        self
    }

    /// Registers a method of a class of agents, to be called by name from any worker with
    /// [`AgentHandle::call`].
    ///
    /// `method` gets the agent and the arguments, which are read from JSON: one value, or a tuple.
    /// A method of the type itself can be given by its path, as in
    /// [`AgentHandle::call`]: `.callable("add", Counter::add)`.
    ///
    /// An error reaches the caller as its text, with the texts of its causes: the caller may be
    /// another process. Clients of a server cannot call it, unless `Server::expose` lets them. A
    /// name that is empty, too long or reserved is an error of kind [`Setup`](ErrorKind::Setup) at
    /// open.
    ///
    /// ```
    /// # use forever_runtime as forever;
    /// use forever::agent::Agent;
    /// use forever::{BoxError, Forever};
    /// use std::sync::Arc;
    ///
    /// struct Counter;
    ///
    /// impl Agent for Counter {
    ///     const CLASS: &'static str = "counter";
    ///     type State = ();
    /// }
    ///
    /// async fn double(_counter: Arc<Counter>, n: u64) -> Result<u64, BoxError> {
    ///     Ok(2 * n)
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> forever::Result<()> {
    /// let forever = Forever::builder().in_memory().agent(|_| Counter).callable("double", double).open().await?;
    /// assert_eq!(forever.agent::<Counter>("ada").call::<u64>("double", 21).await?, 42);
    /// forever.close().await
    /// # }
    /// ```
    pub fn callable<A, F, P, B, R, E>(mut self, name: impl Into<String>, method: F) -> Self
    where
        A: Agent,
        F: Fn(Arc<A>, P) -> B + Send + Sync + 'static,
        P: DeserializeOwned + Send + 'static,
        B: Future<Output = Result<R, E>> + Send + 'static,
        R: Serialize + 'static,
        E: Into<BoxError> + 'static,
    {
        let name: String = name.into();
        self.classes = self.classes.and_then(|mut classes| classes.methods.add(&name, method).map(|()| classes));
        self
    }

    /// Sets how long an idle agent stays in memory. Defaults to 90 s.
    ///
    /// An agent is idle without a request, connection, running fiber, keep-alive guard and running
    /// schedule. Zero lets it leave as soon as it is idle, and [`Duration::MAX`] never. It is woken
    /// again by what needs it.
    pub fn idle_timeout(mut self, timeout: Duration) -> Self {
        self.agents.idle_timeout = timeout;
        self
    }

    /// Sets the maximum number of agents in memory. Defaults to 10 000.
    ///
    /// It is no hard limit. When there are more, the agents that nothing needs leave at once
    /// instead of after [`idle_timeout`](Builder::idle_timeout), those that have been idle for
    /// longest first. An agent with a request, connection, running fiber, keep-alive or running
    /// schedule stays.
    pub fn max_agents_in_memory(mut self, agents: usize) -> Self {
        self.agents.max_in_memory = agents;
        self
    }

    /// Sets how often the heartbeats of agents with a keep-alive guard are renewed. Defaults to 30
    /// s.
    ///
    /// All of them are one write. The agents that have a heartbeat are woken at the next open.
    pub fn keep_alive_interval(mut self, interval: Duration) -> Self {
        self.agents.keep_alive_interval = interval;
        self
    }

    /// Sets the maximum time of a schedule's run. Defaults to 30 s.
    ///
    /// A longer run is dropped where it is, and counts as failed. The time to wake its agent
    /// counts. Longer work belongs into a fiber.
    pub fn hung_schedule_timeout(mut self, timeout: Duration) -> Self {
        self.agents.hung_schedule_timeout = timeout;
        self
    }

    /// Adds a resource, which fibers take as `Res<T>`: a client, a pool, a setting. It is never
    /// stored.
    ///
    /// A second one of the same type replaces it. A registered fiber that takes a type of which
    /// there is no resource is an error of kind [`Setup`](ErrorKind::Setup) at open.
    pub fn resource<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.resources.insert(value);
        self
    }

    /// Sets the clock of the runtime, for time and ids. Defaults to [`SystemClock`].
    ///
    /// A test gives one that it drives, `testing::VirtualClock`.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Sets how long ended fibers and their keys are kept. Defaults to 24 hours for completed
    /// fibers, 7 days for failed and cancelled ones, and 30 days more for their keys.
    ///
    /// The result of a fiber can be read for as long. [`Retention::forever`] keeps everything.
    pub fn retention(mut self, retention: Retention) -> Self {
        self.settings.retention = retention;
        self
    }

    /// Sets how many checkpoints of each fiber are kept, with the values of its locals. Defaults to
    /// the last 100.
    pub fn history(mut self, history: History) -> Self {
        self.settings.history = history;
        self
    }

    /// Sets the grace of a cancelled fiber before it is dropped where it is. Defaults to 5 s.
    ///
    /// It counts from the moment at which the running fiber is asked to stop, when
    /// [`Op::cancelled`](crate::ops::Op::cancelled) becomes ready. Zero drops it at once.
    /// [`Duration::MAX`] waits for its next checkpoint.
    pub fn cancel_grace(mut self, grace: Duration) -> Self {
        self.settings.cancel_grace = grace;
        self
    }

    /// Sets the maximum time of an agent's recovery hook. Defaults to 10 s.
    ///
    /// A hook that takes longer is dropped, and counts as failed.
    pub fn hook_timeout(mut self, timeout: Duration) -> Self {
        self.settings.hook_timeout = timeout;
        self
    }

    /// Sets the maximum time of an [`OnUnknown::check`](crate::ops::OnUnknown::check). Defaults to
    /// 30 s.
    ///
    /// A check that takes longer is dropped and parks the fiber.
    pub fn check_timeout(mut self, timeout: Duration) -> Self {
        self.settings.check_timeout = timeout;
        self
    }

    /// Sets what is done about a stored value that has a key which its type does not read, while
    /// one of the type's own keys is not stored. Defaults to [`OnRenamedField::Park`].
    ///
    /// A key that is not read stays in the snapshot: a release that reads it finds it again.
    pub fn on_renamed_field(mut self, what: OnRenamedField) -> Self {
        if let Ok(registry) = &mut self.registry {
            registry.on_renamed_field = what;
        }
        self
    }

    /// Sets what [`open`](Builder::open) does about fibers that do not fit the code. Defaults to
    /// [`OnIncompatible::Park`].
    ///
    /// [`check`](Builder::check) compares without opening, before a deploy.
    pub fn on_incompatible(mut self, what: OnIncompatible) -> Self {
        self.on_incompatible = what;
        self
    }

    /// Ends the process, as far as the database shows, at the write that the fuse names. Defaults
    /// to none.
    ///
    /// It needs SQLite: with a [`store`](Builder::store) it is an error of kind
    /// [`Setup`](ErrorKind::Setup) at open.
    #[cfg(feature = "testing")]
    pub fn fuse(mut self, fuse: crate::testing::fuse::Fuse) -> Self {
        self.settings.fuse = Some(fuse.clone());
        self.seen_by = Some(Arc::new(fuse));
        self
    }

    /// The place of the database, for tests to replace.
    #[cfg(feature = "testing")]
    pub(crate) fn place(&mut self) -> &mut Option<Place> {
        &mut self.place
    }

    /// Shows every event of this process as it occurs.
    #[cfg(feature = "testing")]
    pub(crate) fn event_witness(&self, witness: impl Fn(&crate::runtime::events::Event) + Send + Sync + 'static) {
        self.listeners.observe(witness);
    }

    /// Holds back the tasks of the runtime while a gate is shut.
    #[cfg(feature = "testing")]
    pub(crate) fn gate(&mut self, gate: Arc<crate::runtime::gate::Gate>) {
        self.settings.gate = Some(gate);
    }

    /// All events from the start on.
    #[cfg(feature = "testing")]
    pub(crate) fn all_events(&self) -> Events {
        self.listeners.listen_to_all()
    }

    /// Check for [`layout::check!`](crate::layout::check): returns what is wrong with the file.
    #[doc(hidden)]
    pub fn __check_layouts(self, path: &Path) -> Result<(), String> {
        let registry = self.registry.map_err(|error| error.to_string())?;
        layout::file::check(registry.layouts(), path, layout::file::accepts())
    }

    /// Compares the unfinished fibers of the database with the code, without changing anything.
    ///
    /// For a check before a deploy, on the database in use or on a backup of it.
    ///
    /// It runs no step, migration or hook, and takes no lock. A live process may own the file: its
    /// current state is copied into the system's folder for temporary files and compared there.
    /// Functions that are only `call!`ed are compared if they are registered with
    /// [`fiber`](Builder::fiber) as well. Stored values are read as the types of the code where the
    /// [`resource`](Builder::resource)s that a function takes are given; `#[fresh]` initialisers run
    /// for that. An operation in doubt counts as one that parks unless its step has `on_unknown`.
    ///
    /// ```no_run
    /// # use forever_runtime as forever;
    /// # async fn check<F: forever::fiber::Fiber>() -> forever::Result<()> {
    /// let found = forever::Forever::builder().sqlite("backup.db").fiber::<F>().check().await?;
    /// println!("{found}");
    /// std::process::exit(i32::from(!found.is_ok()));
    /// # }
    /// ```
    ///
    /// # Errors
    /// When no database was named, it is not there or cannot be read, has a newer schema, or two
    /// fibers share a name.
    pub async fn check(self) -> Result<Compatibility> {
        let (mut registry, resources) = (self.registry?, self.resources);
        let agents = Agents::new(self.classes?, self.agents, shared_classes(&self.layers));
        register(self.layers, &mut registry)?;
        let (store, database, copy) = match moved(self.place)? {
            Some(Place::File(path)) => {
                let copy = Copied::of(&path).await?;
                let store = Arc::new(Sqlite::open_seen(&copy.path(), Durability::Process, Duration::ZERO, None).await?);
                (Arc::<Sqlite>::clone(&store) as Arc<dyn Store>, Database::Sqlite(store), Some(copy))
            }
            place => {
                let (store, database) = open_store(place, self.durability, self.wait_for_lock, None, Vec::new(), 0).await?;
                (store, database, None)
            }
        };
        // No worker has number 0: it claims nothing.
        let parts = Parts { store, database, worker: 0, clock: self.clock, listeners: self.listeners, settings: self.settings };
        let runtime = Arc::new(Runtime::new(parts, tokio::runtime::Handle::current()));
        let exec = Arc::new(Executor::new(Arc::clone(&runtime), registry, resources, agents, Compatibility::default()));
        let compared = compatibility::compare(&*runtime.store, &exec.registry, None, Some(&exec)).await;
        if copy.is_some() {
            runtime.store.abandon();
        }
        Ok(compared?.compatibility)
    }

    /// Opens the database to look at it and to give commands, and runs nothing.
    ///
    /// No fiber is resumed, none is taken over, and no agent is woken. What is spawned or made
    /// ready is stored as `pending`: a worker of the same Postgres database runs it, and otherwise
    /// the next [`open`](Builder::open). Functions do not have to be registered.
    ///
    /// # Errors
    /// As [`open`](Builder::open), except for what concerns fibers, resources and agents.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn open_idle(self) -> Result<Forever> {
        let (registry, resources) = (self.registry?, self.resources);
        let agents = Agents::new(self.classes?, self.agents, shared_classes(&self.layers));
        let now_ms = clock::ms(self.clock.now());
        let (store, database) = open_store(self.place, self.durability, self.wait_for_lock, self.seen_by, self.migrations, now_ms).await?;
        let (clock, time) = clock_over(&store, self.clock).await?;
        // No worker has number 0: it claims nothing, and closing interrupts nothing.
        let parts = Parts { store, database, worker: 0, clock, listeners: self.listeners, settings: self.settings };
        let runtime = Arc::new(Runtime::new(parts, tokio::runtime::Handle::current()));
        if let Some(time) = time {
            runtime.start(time.follow(Arc::clone(&runtime)))?;
        }
        let hooks: Arc<dyn AgentHooks> = Arc::<Agents>::clone(&agents);
        let exec = Arc::new(Executor::new(Arc::clone(&runtime), registry, resources, hooks, Compatibility::default()));
        agents.attach(&exec);
        if runtime.cluster().is_some() {
            // Other workers run what this one waits for.
            runtime.start(cluster::run(Arc::clone(&runtime), || std::future::ready(()), || std::future::ready(true), false))?;
        }
        Ok(Forever { agents, exec, guard: Arc::new(RuntimeGuard(runtime)) })
    }

    /// Connects to the workers of a Postgres database, to spawn, send, wait, list and follow
    /// streams, and runs nothing.
    ///
    /// For a process that only asks, such as a web service in front of workers. It needs no
    /// registered function, holds no lease, and makes no tables: a worker of this version has to
    /// have opened the database before. Options of the connection are those of a store:
    /// `.store(PostgresStore::builder(url).schema("orders").connect_without_migrating().await?)`.
    ///
    /// # Errors
    /// Of kind [`Setup`](ErrorKind::Setup) for SQLite, whose file one process owns, and for any
    /// other store that one worker has; of kind [`Format`](ErrorKind::Format) when there are no
    /// tables, or those of another version; when no database was named, or it cannot be reached.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn client(self) -> Result<Client> {
        let is_shared = match &self.place {
            Some(Place::Store(store)) => store.cluster().is_some(),
            #[cfg(feature = "postgres")]
            Some(Place::Postgres(_) | Place::PostgresStore(_)) => true,
            None => true,
            Some(_) => false,
        };
        if !is_shared {
            let why = "a client asks the workers of a Postgres database, and one process owns an SQLite file: open it in the process that runs the fibers, and ask that one";
            return Err(Error::new(ErrorKind::Setup, why));
        }
        #[cfg(feature = "postgres")]
        let idle = match self.place {
            Some(Place::Postgres(url)) => {
                let store = PostgresStore::builder(url).connect_without_migrating().await?;
                Builder { place: Some(Place::PostgresStore(Arc::new(store))), ..self }
            }
            place => Builder { place, ..self },
        };
        #[cfg(not(feature = "postgres"))]
        let idle = self;
        Ok(Client::over(idle.open_idle().await?))
    }

    /// Stream of the events of all fibers from the start on, those of recovery at open included.
    ///
    /// Call it before [`open`](Builder::open). [`Forever::events`] gives a stream that begins later.
    ///
    /// ```
    /// # use forever_runtime as forever;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> forever::Result<()> {
    /// let builder = forever::Forever::builder().in_memory();
    /// let mut events = builder.events();
    /// let forever = builder.open().await?;
    /// forever.close().await?;
    /// assert_eq!(events.next().await, None);
    /// # Ok(())
    /// # }
    /// ```
    pub fn events(&self) -> Events {
        self.listeners.listen()
    }

    /// Opens the runtime and resumes every unfinished fiber.
    ///
    /// It also wakes agents that were kept awake, and runs schedules that became due. Fibers run in
    /// tasks of the tokio runtime that calls it, and may begin before it returns.
    ///
    /// # Cancel safety
    /// If the future is dropped, the effect is that of a process that dies: what was opened is
    /// closed, and fibers that have begun resume at the next open.
    ///
    /// # Errors
    /// Before anything runs: of kind [`Incompatible`](ErrorKind::Incompatible) when the code cannot
    /// resume all fibers and [`on_incompatible`](Builder::on_incompatible) says to refuse; when no
    /// database was named, two fibers or two agent classes share a name, a resource is missing, the
    /// file cannot be used, is not one of ours or has a newer schema, or a live process owns it
    /// ([`Error::is_busy`]); of kind [`Setup`](ErrorKind::Setup) when a migration fails, was
    /// changed after it was applied, stands elsewhere, or is in the database but not in the
    /// program, and when a [`store`](Builder::store) was given together with a migration.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn open(self) -> Result<Forever> {
        let (mut registry, resources) = (self.registry?, self.resources);
        let agents = Agents::new(self.classes?, self.agents, shared_classes(&self.layers));
        let layers = register(self.layers, &mut registry)?;
        registry.check_needs(&resources)?;
        let now_ms = clock::ms(self.clock.now());
        let (store, database) = open_store(self.place, self.durability, self.wait_for_lock, self.seen_by, self.migrations, now_ms).await?;
        let Compared { compatibility, to_wake, is_alone } = compatibility::compare(&*store, &registry, None, None).await?;
        if self.on_incompatible == OnIncompatible::Refuse && !compatibility.is_ok() {
            store.abandon();
            return Err(compatibility::refused(&compatibility));
        }
        let (clock, time) = clock_over(&store, self.clock).await?;
        Error::on_closed(current::sees_closing);
        let worker = store.join(clock::ms(clock.now())).await?;
        let parts = Parts { store, database, worker, clock, listeners: self.listeners, settings: self.settings };
        let runtime = Arc::new(Runtime::new(parts, tokio::runtime::Handle::current()));
        if let Some(time) = time {
            runtime.start(time.follow(Arc::clone(&runtime)))?;
        }
        let hooks: Arc<dyn AgentHooks> = Arc::<Agents>::clone(&agents);
        let exec = Arc::new(Executor::new(Arc::clone(&runtime), registry, resources, hooks, compatibility));
        agents.attach(&exec);
        let forever = Forever { agents, exec, guard: Arc::new(RuntimeGuard(runtime)) };
        let (runtime, exec, agents) = (forever.runtime(), &forever.exec, &forever.agents);
        let engine = Engine::new(Arc::clone(exec));
        runtime.timer.on(retention::RETENTION, retention::ring());
        agents.listen(&runtime.timer);
        for layer in &layers {
            Arc::clone(layer).open(&engine, EngineAgents::new(Arc::clone(agents)));
        }
        runtime.start(timer::run(Arc::clone(runtime)))?;
        #[cfg(feature = "metrics")]
        gauges::begin(runtime)?;
        executor::report_exits(exec);
        messages::report_unread(runtime);
        dispatch::listen(exec)?;
        recovery::recover(exec, !is_alone).await?;
        compatibility::report(exec, to_wake).await?;
        for layer in layers {
            layer.recover(engine.clone()).await?;
        }
        agents.recover(runtime).await?;
        retention::set_alarm(runtime);
        Ok(forever)
    }
}

/// The clock of a runtime over a store, and what keeps it right.
async fn clock_over(store: &Arc<dyn Store>, own: Arc<dyn Clock>) -> Result<(Arc<dyn Clock>, Option<Arc<StoreTime>>)> {
    let time = StoreTime::of(store, &own).await?;
    Ok((time.clone().map_or(own, |time| time), time))
}

/// Names of the classes of agents that several workers may have in memory.
fn shared_classes(layers: &[Box<dyn Layer>]) -> BTreeSet<&'static str> {
    layers.iter().flat_map(|layer| layer.shared_classes()).collect()
}

/// Adds layers with their functions to those of the program.
fn register(layers: Vec<Box<dyn Layer>>, registry: &mut Registry) -> Result<Vec<Arc<dyn Layer>>> {
    let layers: Vec<Arc<dyn Layer>> = layers.into_iter().map(Arc::from).collect();
    for layer in &layers {
        Arc::clone(layer).register(&mut Functions::new(registry))?;
        registry.layers.add(Arc::<dyn Layer>::clone(layer));
    }
    Ok(layers)
}

/// Where a place is when a test keeps its databases elsewhere.
#[cfg(all(feature = "postgres", feature = "testing"))]
fn moved(place: Option<Place>) -> Result<Option<Place>> {
    Ok(Schema::of(place.as_ref())?.map(Place::Schema).or(place))
}

#[cfg(not(all(feature = "postgres", feature = "testing")))]
#[allow(clippy::unnecessary_wraps, reason = "as with the features")]
fn moved(place: Option<Place>) -> Result<Option<Place>> {
    Ok(place)
}

/// Opens the store of a runtime; gives it a second time by its type.
async fn open_store(
    place: Option<Place>,
    durability: Durability,
    wait: Duration,
    seen_by: SeenBy,
    migrations: Vec<Migration>,
    now_ms: i64,
) -> Result<(Arc<dyn Store>, Database)> {
    let place = moved(place)?;
    #[cfg(all(feature = "postgres", feature = "testing"))]
    let (place, seen_by) = match place {
        Some(Place::Schema(schema)) => (Some(Place::PostgresStore(schema.connect(seen_by).await?)), None),
        place => (place, seen_by),
    };
    #[cfg(feature = "postgres")]
    let place = match place {
        Some(Place::Postgres(url)) => Some(Place::PostgresStore(Arc::new(PostgresStore::connect(url).await?))),
        place => place,
    };
    let sqlite = match place {
        Some(Place::File(path)) => Sqlite::open_seen(&path, durability, wait, seen_by).await?,
        Some(Place::Memory) => Sqlite::in_memory_seen(None, seen_by).await?,
        #[cfg(feature = "testing")]
        Some(Place::Named(name)) => Sqlite::in_memory_seen(Some(name), seen_by).await?,
        Some(Place::Store(store)) => {
            check_needs_no_sqlite(&migrations, &seen_by)?;
            return Ok((store, Database::Other));
        }
        #[cfg(feature = "postgres")]
        Some(Place::PostgresStore(store)) => {
            check_needs_no_sqlite(&migrations, &seen_by)?;
            return Ok((Arc::<PostgresStore>::clone(&store), Database::Postgres(store)));
        }
        #[cfg(feature = "postgres")]
        Some(Place::Postgres(_)) => unreachable!("it was connected to above"),
        #[cfg(all(feature = "postgres", feature = "testing"))]
        Some(Place::Schema(_)) => unreachable!("it was connected to above"),
        None => {
            let why = "no database was named: call `.sqlite(path)`, `.in_memory()` or `.store(store)`";
            return Err(Error::new(ErrorKind::Setup, why));
        }
    };
    sqlite.migrate(migrations, now_ms).await?;
    let sqlite = Arc::new(sqlite);
    Ok((Arc::<Sqlite>::clone(&sqlite), Database::Sqlite(sqlite)))
}

/// Fails if the program has asked for what only the SQLite store has.
fn check_needs_no_sqlite(migrations: &[Migration], seen_by: &SeenBy) -> Result<()> {
    let needs_sqlite = [(!migrations.is_empty(), "`.migration(..)`"), (seen_by.is_some(), "`.fuse(..)`")];
    let Some((_, what)) = needs_sqlite.into_iter().find(|(is_set, _)| *is_set) else { return Ok(()) };
    let why = format!("{what} needs the SQLite store: call `.sqlite(path)` or `.in_memory()` in place of `.store(..)`");
    Err(Error::new(ErrorKind::Setup, why))
}
