//! Runs a fiber without a kill, killed after each of its checkpoints and killed before each of them, and compares outcome and
//! effects, also with those of the same body as a plain `async fn`.
//!
//! [`twin!`] makes a fiber and the plain function out of one text: in the plain one `step!(body)` is `body` and `call!(child)`
//! runs the child's plain function. Test files import the plain macros by name; `#[fiber]` knows its own by their names.
use std::cell::{Cell, RefCell};
use std::fmt::Debug;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use forever::fiber::Fiber;
use forever::testing::{Kill, Outcome, Stage, StageRun, StartFrom};

/// The outside world: what was done, in order, and how often each step finished.
#[derive(Clone, Debug, Default)]
pub(crate) struct Io(Arc<Mutex<Vec<String>>>);

impl Io {
    pub(crate) fn log(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push(what.into());
    }

    /// Makes the world forget what was done after its first so many deeds: a step whose body is killed before its checkpoint
    /// runs again, and does the same again.
    fn rewind(&self, deeds: usize) -> Vec<String> {
        self.0.lock().unwrap().split_off(deeds)
    }

    pub(crate) fn taken(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    /// A step's work: logged, gives its argument back.
    pub(crate) async fn did<T>(&self, what: impl Into<String>, value: T) -> anyhow::Result<T> {
        tokio::task::yield_now().await;
        self.log(what);
        Ok(value)
    }

    /// A step's work that cannot fail.
    pub(crate) async fn get<T>(&self, what: impl Into<String>, value: T) -> T {
        tokio::task::yield_now().await;
        self.log(what);
        value
    }

    /// A step's work that fails.
    pub(crate) async fn fails(&self, what: &str) -> anyhow::Result<u32> {
        tokio::task::yield_now().await;
        self.log(what);
        anyhow::bail!("{what} failed")
    }
}

thread_local! {
    /// The world of the plain function that runs on this thread.
    static WORLD: RefCell<Io> = RefCell::default();
}

/// What a plain function has in place of its resource.
pub(crate) fn world() -> Io {
    WORLD.with_borrow(Io::clone)
}

/// A fiber whose body is also known as a plain function.
pub(crate) trait Twin: Fiber {
    fn plain(self) -> impl Future<Output = Result<Self::Output, Self::Error>>;
}

/// A fiber and a plain function with the same body. The first parameter is the [`Io`].
macro_rules! twin {
    ($(#[$attr:meta])* async fn $name:ident($io:ident $(, $arg:ident: $ty:ty)* $(,)?) -> $output:ty { $($body:tt)* }) => {
        $(#[$attr])*
        #[forever::fiber]
        async fn $name($io: forever::fiber::Res<$crate::language::harness::Io> $(, $arg: $ty)*) -> $output { $($body)* }

        #[allow(clippy::all, clippy::pedantic)]
        impl $crate::language::harness::Twin for $name {
            async fn plain(self) -> $output {
                let $io = $crate::language::harness::world();
                let _ = &$io;
                let Self { $($arg,)* .. } = self;
                $($body)*
            }
        }
    };
}
pub(crate) use twin;

/// What `step!(|op| ..)` of a plain function has: no id that a fiber's could be compared with.
pub(crate) struct PlainOp {
    pub(crate) attempt: u32,
}

impl PlainOp {
    pub(crate) fn attempt(&self) -> u32 {
        self.attempt
    }

    pub(crate) fn id(&self) -> &'static str {
        "0123456789abcdef0123456789abcdef"
    }
}

/// `step!` of a plain function. Of the options only `retry` does something, if it is written as it is here.
macro_rules! plain_step {
    (@ $times:tt $name:literal, $($rest:tt)+) => { $crate::language::harness::plain_step!(@ $times $($rest)+) };
    (@ $times:tt effect, $($rest:tt)+) => { $crate::language::harness::plain_step!(@ $times $($rest)+) };
    (@ 0 retry = Retry::times($times:tt).backoff(Backoff::none()), $($rest:tt)+) => {
        $crate::language::harness::plain_step!(@ $times $($rest)+)
    };
    (@ $times:tt $option:ident = $value:expr, $($rest:tt)+) => { $crate::language::harness::plain_step!(@ $times $($rest)+) };
    (@ 0 |$op:pat_param| $body:expr) => {{
        let $op = &$crate::language::harness::PlainOp { attempt: 1 };
        $body
    }};
    (@ 0 $body:expr) => { $body };
    (@ $times:tt |$op:pat_param| $body:expr) => {{
        let mut attempt = 1;
        loop {
            let $op = &$crate::language::harness::PlainOp { attempt };
            match async { Ok::<_, anyhow::Error>($body) }.await {
                Ok(value) => break value,
                Err(error) if attempt > $times => return Err(error),
                Err(_) => attempt += 1,
            }
        }
    }};
    (@ $times:tt $body:expr) => { $crate::language::harness::plain_step!(@ $times |_op| $body) };
    ($($rest:tt)+) => { $crate::language::harness::plain_step!(@ 0 $($rest)+) };
}
pub(crate) use plain_step;

/// `call!` of a plain function.
macro_rules! plain_call {
    ($call:expr) => {
        Box::pin($crate::language::harness::Twin::plain($call)).await
    };
}
pub(crate) use plain_call;

thread_local! {
    /// What was sent to the plain function that runs on this thread: topics and JSON, the oldest first.
    static INBOX: RefCell<Vec<(String, String)>> = RefCell::default();
}

/// Messages that are there when a body begins.
#[derive(Default)]
pub(crate) struct Letters(Vec<(&'static str, serde_json::Value)>);

impl Letters {
    pub(crate) fn with(mut self, topic: &'static str, value: impl serde::Serialize) -> Self {
        self.0.push((topic, serde_json::to_value(value).unwrap()));
        self
    }
}

/// The topic or topics of a plain `recv!`, and what a message of them is there.
pub(crate) trait PlainTopics {
    type Received<T>;
    fn has(&self, topic: &str) -> bool;
    fn received<T>(topic: String, message: T) -> Self::Received<T>;
}

macro_rules! plain_topic {
    ($($ty:ty),*) => {$(
        impl PlainTopics for $ty {
            type Received<T> = T;
            fn has(&self, topic: &str) -> bool {
                *self == topic
            }
            fn received<T>(_: String, message: T) -> T {
                message
            }
        }
    )*};
}
plain_topic!(&str, String, &String);

macro_rules! plain_topics {
    ([$($generics:tt)*] $ty:ty) => {
        impl<S: AsRef<str>, $($generics)*> PlainTopics for $ty {
            type Received<T> = (String, T);
            fn has(&self, topic: &str) -> bool {
                self.iter().any(|there| there.as_ref() == topic)
            }
            fn received<T>(topic: String, message: T) -> (String, T) {
                (topic, message)
            }
        }
    };
}
plain_topics!([] Vec<S>);
plain_topics!([] &Vec<S>);
plain_topics!([const N: usize] [S; N]);

/// The next message of a plain function; without one, its timeout is over.
pub(crate) fn letter<T: serde::de::DeserializeOwned, K: PlainTopics>(topics: K) -> Option<K::Received<T>> {
    INBOX.with_borrow_mut(|inbox| {
        let place = inbox.iter().position(|(t, _)| topics.has(t))?;
        let (topic, data) = inbox.remove(place);
        Some(K::received(topic, serde_json::from_str(&data).unwrap()))
    })
}

/// `recv!` of a plain function.
macro_rules! plain_recv {
    ($topic:expr) => {
        $crate::language::harness::letter($topic).expect("it was sent")
    };
    ($topic:expr, timeout = $timeout:expr) => {{
        let (topic, timeout) = ($topic, $timeout);
        let _: std::time::Duration = timeout;
        $crate::language::harness::letter(topic)
    }};
}
pub(crate) use plain_recv;

/// `try_recv!` of a plain function.
macro_rules! plain_try_recv {
    ($topic:expr) => {
        $crate::language::harness::letter($topic)
    };
}
pub(crate) use plain_try_recv;

/// `close!` of a plain function: the letters that are left.
macro_rules! plain_close {
    ($topic:expr $(, name = $name:literal)?) => {{
        let topic = String::from($topic);
        std::iter::from_fn(|| $crate::language::harness::letter(topic.as_str())).collect::<Vec<_>>()
    }};
}
pub(crate) use plain_close;

/// `select!` of a plain function: messages are there or never come, and time is over.
macro_rules! plain_select {
    (@) => { unreachable!("nothing would ever come") };
    (@ , $($rest:tt)*) => { $crate::language::harness::plain_select!(@ $($rest)*) };
    (@ $pat:pat = sleep!($end:expr) => $body:block $($rest:tt)*) => {{ let $pat = drop($end); $body }};
    (@ $pat:pat = sleep!($end:expr) => $body:expr $(, $($rest:tt)*)?) => {{ let $pat = drop($end); $body }};
    (@ $pat:pat = sleep_until!($end:expr) => $body:expr $(, $($rest:tt)*)?) => {{ let $pat = drop($end); $body }};
    (@ $pat:ident: $ty:ty = recv!($topic:expr, timeout = $timeout:expr) => $body:expr $(, $($rest:tt)*)?) => {{
        let $pat: $ty = $crate::language::harness::plain_recv!($topic, timeout = $timeout);
        $body
    }};
    (@ $pat:ident: $ty:ty = recv!($topic:expr) => $body:block $($rest:tt)*) => {
        if let Some(letter) = $crate::language::harness::letter($topic) { let $pat: $ty = letter; $body }
        else { $crate::language::harness::plain_select!(@ $($rest)*) }
    };
    (@ $pat:ident: $ty:ty = recv!($topic:expr) => $body:expr $(, $($rest:tt)*)?) => {
        if let Some(letter) = $crate::language::harness::letter($topic) { let $pat: $ty = letter; $body }
        else { $crate::language::harness::plain_select!(@ $($($rest)*)?) }
    };
    (@ ($($pat:pat),*): $ty:ty = recv!($topic:expr) => $body:block $($rest:tt)*) => {
        if let Some(letter) = $crate::language::harness::letter($topic) { let ($($pat),*): $ty = letter; $body }
        else { $crate::language::harness::plain_select!(@ $($rest)*) }
    };
    ($($arms:tt)+) => { $crate::language::harness::plain_select!(@ $($arms)+) };
}
pub(crate) use plain_select;

/// `sleep!` and `sleep_until!` of a plain function.
macro_rules! plain_sleep {
    ($end:expr) => {
        drop($end)
    };
}
pub(crate) use plain_sleep;

/// `steps!` of a plain function: one after the other.
macro_rules! plain_steps {
    (for $item:pat in $items:expr, limit = $limit:expr, $body:expr) => {{
        let _: usize = $limit;
        $crate::language::harness::plain_steps!(for $item in $items, $body)
    }};
    (for $item:pat in $items:expr, $body:expr) => {{
        let mut values = Vec::new();
        for $item in $items {
            values.push($body);
        }
        values
    }};
    ($($branch:expr),+ $(,)?) => { ($($branch,)+) };
}
pub(crate) use plain_steps;

thread_local! {
    /// The bodies that run on this thread keep a `HashMap` or a `HashSet`, of which no two have the same order.
    pub(crate) static HASHED: Cell<bool> = const { Cell::new(false) };
}

/// A snapshot as it is compared: as it stands, but for bodies that keep what has no order.
fn ordered(snapshot: &str) -> String {
    fn sort(value: &mut serde_json::Value) {
        match value {
            serde_json::Value::Array(items) => {
                items.iter_mut().for_each(sort);
                items.sort_by_key(ToString::to_string);
            }
            serde_json::Value::Object(entries) => {
                entries.values_mut().for_each(sort);
            }
            _ => {}
        }
    }
    if !HASHED.get() {
        return snapshot.to_owned();
    }
    let mut value = serde_json::from_str(snapshot).unwrap();
    sort(&mut value);
    value.to_string()
}

/// What a body came to: its end, its effects, its snapshots.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) outcome: String,
    pub(crate) log: Vec<String>,
    pub(crate) snapshots: Vec<String>,
}

type Playing<'a> = Pin<Box<dyn Future<Output = StageRun<String>> + 'a>>;
/// Where a process begins.
enum Begin {
    Start,
    Restart,
    Snapshot(String),
}

/// Plays a fiber until its end or until it is killed.
type Player<'a> = &'a dyn for<'s> Fn(&'s Stage, Begin, Kill) -> Playing<'s>;

/// Why a fiber is parked whose effect was killed between its body and its checkpoint, if nothing else is said.
const IN_DOUBT: &str = "may have executed";

fn text<T: Debug>(outcome: Outcome<T>) -> Outcome<String> {
    match outcome {
        Outcome::Completed(value) => Outcome::Completed(format!("{value:?}")),
        Outcome::Failed(why) => Outcome::Failed(why),
        Outcome::Parked(why) => Outcome::Parked(why),
        Outcome::Killed => Outcome::Killed,
        Outcome::Waiting => Outcome::Waiting,
    }
}

fn shown(outcome: &Outcome<String>) -> String {
    match outcome {
        Outcome::Completed(value) => format!("Completed({value})"),
        other => format!("{other:?}"),
    }
}

async fn run<F: Fiber>(stage: &Stage, from: StartFrom<F>, kill: Kill) -> StageRun<String>
where
    F::Output: Debug,
{
    let played = stage.run_until(from, kill).await;
    StageRun { snapshots: played.snapshots, outcome: text(played.outcome) }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// Plays the fiber in one go, then killed after each checkpoint, before each checkpoint, and after every checkpoint in a row.
/// Gives back the outcome, the log and the snapshots of the run in one go.
#[track_caller]
pub(crate) fn everywhere<F: Fiber>(make: impl Fn() -> F) -> (String, Vec<String>, Vec<String>)
where
    F::Output: Debug,
{
    let seen = everywhere_seen(make, &Letters::default(), true);
    (seen.outcome, seen.log, seen.snapshots)
}

/// [`everywhere`] without the kills before checkpoints, for bodies that do something else when they run again: they look at
/// their attempt or their stash, or are asked what became of the first.
#[track_caller]
pub(crate) fn everywhere_after<F: Fiber>(make: impl Fn() -> F) -> (String, Vec<String>, Vec<String>)
where
    F::Output: Debug,
{
    let seen = everywhere_seen(make, &Letters::default(), false);
    (seen.outcome, seen.log, seen.snapshots)
}

#[track_caller]
fn everywhere_seen<F: Fiber>(make: impl Fn() -> F, letters: &Letters, kills_before: bool) -> Seen
where
    F::Output: Debug,
{
    block_on(killed_everywhere(
        &|stage, begin, kill| {
            let from = match begin {
                Begin::Start => StartFrom::Start(make()),
                Begin::Restart => StartFrom::Restart(make()),
                Begin::Snapshot(text) => StartFrom::Snapshot(text),
            };
            Box::pin(run::<F>(stage, from, kill))
        },
        letters,
        kills_before,
    ))
}

/// A world of its own, with all letters there.
fn stage(letters: &Letters) -> (Io, Stage) {
    let io = Io::default();
    let stage = Stage::new().resource(io.clone());
    letters.0.iter().for_each(|(topic, value)| stage.send(topic, value));
    (io, stage)
}

async fn killed_everywhere(play: Player<'_>, letters: &Letters, kills_before: bool) -> Seen {
    let (io, world) = stage(letters);
    let whole = play(&world, Begin::Start, Kill::Never).await;
    let (want, log) = (whole.outcome, io.taken());
    // How much was done when each checkpoint was made.
    let mut done = vec![0];
    for k in 1..=whole.snapshots.len() {
        let (io, world) = stage(letters);
        let killed = play(&world, Begin::Start, Kill::After(k)).await;
        done.push(io.taken().len());
        assert_eq!(killed.outcome, Outcome::Killed, "at checkpoint {k}");
        let snapshot = killed.snapshots.last().unwrap().clone();
        assert_eq!(ordered(&snapshot), ordered(&whole.snapshots[k - 1]), "another snapshot at checkpoint {k}");
        let resumed = play(&world, Begin::Snapshot(snapshot.clone()), Kill::Never).await;
        assert_eq!(resumed.outcome, want, "killed after checkpoint {k}: {snapshot}");
        assert_eq!(io.taken(), log, "killed after checkpoint {k}: {snapshot}");
        let (again, first): (Vec<_>, Vec<_>) =
            (resumed.snapshots.iter().map(|s| ordered(s)).collect(), whole.snapshots[k..].iter().map(|s| ordered(s)).collect());
        assert_eq!(again, first, "killed after checkpoint {k}: {snapshot}");
    }
    for k in (1..=whole.snapshots.len()).filter(|_| kills_before) {
        let (io, world) = stage(letters);
        let killed = play(&world, Begin::Start, Kill::Before(k)).await;
        assert_eq!((killed.outcome, killed.snapshots.len()), (Outcome::Killed, k - 1), "before checkpoint {k}");
        let lost = io.rewind(done[k - 1]);
        let begin = killed.snapshots.last().map_or(Begin::Restart, |snapshot| Begin::Snapshot(snapshot.clone()));
        let resumed = play(&world, begin, Kill::Never).await;
        if matches!(&resumed.outcome, Outcome::Parked(why) if why.contains(IN_DOUBT)) {
            continue;
        }
        assert_eq!(resumed.outcome, want, "killed before checkpoint {k}");
        // What the killed process did is done again, but for branches of a `steps!`, whose results are kept one by one.
        let taken = io.taken();
        let mut again = taken.iter().peekable();
        let missing: Vec<&String> = log.iter().filter(|deed| again.next_if_eq(deed).is_none()).collect();
        assert_eq!(again.next(), None, "killed before checkpoint {k}: {taken:?}");
        assert!(missing.iter().all(|deed| lost.contains(deed)), "killed before checkpoint {k}: {missing:?} of {log:?}");
    }
    // Out of memory before each attempt of a step with `retry`.
    for k in (1..).take_while(|_| want != Outcome::Waiting) {
        let (io, world) = stage(letters);
        let mut left = play(&world, Begin::Start, Kill::AtAttempt(k)).await;
        if left.outcome != Outcome::Waiting {
            assert_eq!(left.outcome, want, "with fewer attempts than {k}");
            break;
        }
        let snapshot = left.snapshots.pop().unwrap();
        let resumed = play(&world, Begin::Snapshot(snapshot.clone()), Kill::Never).await;
        assert_eq!(resumed.outcome, want, "out of memory before attempt {k}: {snapshot}");
        assert_eq!(io.taken(), log, "out of memory before attempt {k}: {snapshot}");
    }
    if !whole.snapshots.is_empty() {
        let (io, world) = stage(letters);
        let mut played = play(&world, Begin::Start, Kill::After(1)).await;
        let mut made = 1;
        while played.outcome == Outcome::Killed {
            let snapshot = played.snapshots.last().unwrap().clone();
            played = play(&world, Begin::Snapshot(snapshot), Kill::After(1)).await;
            made += played.snapshots.len();
        }
        assert_eq!(played.outcome, want, "killed after every checkpoint");
        assert_eq!(io.taken(), log, "killed after every checkpoint");
        assert_eq!(made, whole.snapshots.len());
    }
    Seen { outcome: shown(&want), log, snapshots: whole.snapshots }
}

/// [`everywhere`], and the plain function comes to the same.
#[track_caller]
pub(crate) fn same<F: Twin>(make: impl Fn() -> F) -> Seen
where
    F::Output: Debug,
    F::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    same_as_plain(&make, |_| make().plain())
}

/// [`same`], with messages that are there from the beginning.
#[track_caller]
pub(crate) fn same_with<F: Twin>(letters: Letters, make: impl Fn() -> F) -> Seen
where
    F::Output: Debug,
    F::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    same_as_plain_with(&letters, true, &make, |_| make().plain())
}

/// [`same`] without the kills before checkpoints: see [`everywhere_after`].
#[track_caller]
pub(crate) fn same_after<F: Twin>(make: impl Fn() -> F) -> Seen
where
    F::Output: Debug,
    F::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    same_as_plain_with(&Letters::default(), false, &make, |_| make().plain())
}

/// [`everywhere`], and the plain future comes to the same; it is given its own world.
#[track_caller]
pub(crate) fn same_as_plain<F: Fiber, P, E>(make: impl Fn() -> F, plain: impl FnOnce(Io) -> P) -> Seen
where
    F::Output: Debug,
    P: Future<Output = Result<F::Output, E>>,
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    same_as_plain_with(&Letters::default(), true, make, plain)
}

#[track_caller]
fn same_as_plain_with<F: Fiber, P, E>(letters: &Letters, kills_before: bool, make: impl Fn() -> F, plain: impl FnOnce(Io) -> P) -> Seen
where
    F::Output: Debug,
    P: Future<Output = Result<F::Output, E>>,
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let io = Io::default();
    INBOX.set(letters.0.iter().map(|(topic, value)| ((*topic).to_owned(), value.to_string())).collect());
    WORLD.set(io.clone());
    let ended = std::panic::catch_unwind(AssertUnwindSafe(|| block_on(plain(io.clone()))));
    let want = match ended {
        Ok(Ok(value)) => Outcome::Completed(format!("{value:?}")),
        Ok(Err(error)) => Outcome::Failed(error.into().to_string()),
        Err(panic) => {
            let message = panic.downcast_ref::<&str>().map(ToString::to_string).or_else(|| panic.downcast_ref::<String>().cloned());
            Outcome::Failed(format!("panicked: {}", message.unwrap_or_default()))
        }
    };
    let seen = everywhere_seen(make, letters, kills_before);
    assert_eq!(seen.outcome, shown(&want), "the plain function ends otherwise");
    assert_eq!(seen.log, io.taken(), "the plain function does something else");
    seen
}

/// The locals in a snapshot, by name, as JSON.
pub(crate) fn locals(snapshot: &str) -> Vec<(String, serde_json::Value)> {
    let snapshot: serde_json::Value = serde_json::from_str(snapshot).unwrap();
    snapshot["locals"].as_object().unwrap().iter().map(|(k, v)| (k.clone(), v.clone())).collect()
}

/// The names of the locals in a snapshot, sorted.
pub(crate) fn names(snapshot: &str) -> Vec<String> {
    let mut names: Vec<_> = locals(snapshot).into_iter().map(|(name, _)| name).collect();
    names.sort();
    names
}

/// Where the snapshots were taken, in order.
pub(crate) fn places(snapshots: &[String]) -> Vec<String> {
    snapshots.iter().map(|s| serde_json::from_str::<serde_json::Value>(s).unwrap()["at"].as_str().unwrap().to_owned()).collect()
}
