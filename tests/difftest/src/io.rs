//! The outside world of a body: its calls are logged, and their values follow from the case, the call, how often that call
//! has finished before, and the arguments. Two runs in which the same calls finish in the same order see the same values.
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use forever_testkit::prng::Prng;
use serde::{Deserialize, Deserializer, Serialize};

use crate::{Item, Shape};

/// After this many finished calls every call fails, so that every body ends.
const FUEL: usize = 60;
/// One call in so many fails.
const FAILS_ONE_IN: u64 = 150;

/// The outside world; clones are the same world.
#[derive(Debug, Clone)]
pub struct Io(Arc<Mutex<World>>);

#[derive(Debug)]
struct World {
    seed: u64,
    /// How often each call has finished.
    visits: BTreeMap<u32, u32>,
    log: Vec<String>,
    /// Messages that nobody has received yet, for the plain functions.
    letters: Vec<(&'static str, u32)>,
    /// How many values with a destructor were made of each number.
    made: BTreeMap<u32, u32>,
    ending: Ending,
    /// Values with a destructor that went with their process.
    lost: BTreeSet<String>,
}

/// What destructors that run now belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// The body.
    Nothing,
    /// The end of a process, where none runs.
    Process,
    /// The body's leaving memory: what is saved comes back, nothing else may be there.
    InMemory,
}

thread_local! {
    /// The world of the body that runs on this thread.
    static HERE: RefCell<Option<Io>> = const { RefCell::new(None) };
}

/// The topics of the messages of a world.
const TOPICS: [&str; 2] = ["a", "b"];

/// Declares calls that differ in their value alone.
macro_rules! calls {
    ($($name:ident: $value:ty = $make:ident,)*) => {$(
        #[doc = concat!("A call that gives a `", stringify!($value), "`.")]
        pub async fn $name(&self, call: u32, arguments: &[u32]) -> Result<$value, String> {
            self.call(call, arguments, Draw::$make).await
        }
    )*};
}

impl Io {
    /// A world that nobody has called yet.
    pub fn new(seed: u64) -> Self {
        let mut draw = Draw(Prng::new(seed));
        let letters = (0..draw.below(6)).map(|_| (draw.one_of(&TOPICS), draw.number())).collect();
        let (visits, made) = (BTreeMap::new(), BTreeMap::new());
        Io(Arc::new(Mutex::new(World { seed, visits, log: Vec::new(), letters, made, ending: Ending::Nothing, lost: BTreeSet::new() })))
    }

    /// Makes it the world of this thread, in which a process begins.
    pub fn enter(&self) {
        self.world().ending = Ending::Nothing;
        HERE.set(Some(self.clone()));
    }

    /// The process ends: what it drops from now on is lost.
    pub fn dies(&self) {
        self.world().ending = Ending::Process;
    }

    /// The body leaves memory: what is saved and dropped from now on is lost.
    pub fn leaves_memory(&self) {
        self.world().ending = Ending::InMemory;
    }

    /// Whether a line tells of the drop of a value that went with its process.
    pub fn is_lost(&self, line: &str) -> bool {
        line.strip_prefix("dropped ").is_some_and(|name| self.world().lost.contains(name))
    }

    /// The messages that are there from the beginning, the oldest first.
    pub fn letters(&self) -> Vec<(&'static str, u32)> {
        self.world().letters.clone()
    }

    /// Receives the oldest message of a topic, as a plain function does.
    pub fn letter(&self, topic: &str) -> Option<u32> {
        let letters = &mut self.world().letters;
        let place = letters.iter().position(|(of, _)| *of == topic)?;
        Some(letters.remove(place).1)
    }

    /// A value that cannot be saved, and whose end shows in the log.
    pub fn guard(&self, number: u32) -> Guard {
        Guard { io: self.clone(), number, name: self.makes(number) }
    }

    /// A guard or nothing.
    pub fn guard_if(&self, is_there: bool, number: u32) -> Option<Guard> {
        is_there.then(|| self.guard(number))
    }

    /// A value that can be saved, and whose end shows in the log.
    pub fn noisy(&self, number: u32) -> Noisy {
        Noisy { number, name: self.makes(number) }
    }

    fn makes(&self, number: u32) -> String {
        let mut world = self.world();
        let count = world.made.entry(number).or_default();
        let name = format!("{number}.{count}");
        *count += 1;
        world.log.push(format!("made {name}"));
        name
    }

    fn drops(&self, name: &str, is_saved: bool) {
        let mut world = self.world();
        if world.ending == Ending::Process || world.ending == Ending::InMemory && is_saved {
            world.lost.insert(name.to_owned());
        } else {
            world.log.push(format!("dropped {name}"));
        }
    }

    /// What has happened so far.
    pub fn log(&self) -> Vec<String> {
        self.world().log.clone()
    }

    /// Makes the world forget what happened after the first so many lines of its log.
    pub fn rewind(&self, lines: usize) {
        let mut world = self.world();
        let forgotten = world.log.split_off(lines);
        for line in &forgotten {
            if let Some(name) = line.strip_prefix("dropped ") {
                world.lost.insert(name.to_owned());
            }
        }
        for line in forgotten {
            if let Some(name) = line.strip_prefix("made ") {
                world.lost.remove(name);
                if let Some(count) = name.split('.').next().and_then(|number| number.parse().ok()).and_then(|n: u32| world.made.get_mut(&n))
                {
                    *count -= 1;
                }
                continue;
            }
            let Some(call) = line.strip_prefix("finished ").and_then(|rest| rest.split('.').next()?.parse::<u32>().ok()) else { continue };
            let visits = world.visits.entry(call).or_default();
            *visits = visits.saturating_sub(1);
        }
    }

    /// The calls that have finished.
    pub fn called(&self) -> BTreeSet<u32> {
        self.world().visits.keys().copied().collect()
    }

    /// Puts a value down in the log.
    pub fn note(&self, value: impl Debug) {
        self.world().log.push(format!("note {value:?}"));
    }

    calls! {
        pick: u32 = number,
        flag: bool = flag,
        text: String = text,
        list: Vec<u32> = list,
        maybe: Option<u32> = maybe,
        pair: (u32, String) = pair,
        item: Item = item,
        shape: Shape = shape,
        grid: Vec<Vec<u32>> = grid,
        items: Vec<Item> = items,
    }

    /// A call that borrows a text.
    pub async fn read(&self, call: u32, text: &str) -> Result<u32, String> {
        let letters: Vec<u32> = text.bytes().map(u32::from).collect();
        self.call(call, &letters, Draw::number).await
    }

    async fn call<T: Debug>(&self, call: u32, arguments: &[u32], make: fn(&mut Draw) -> T) -> Result<T, String> {
        let visit = {
            let mut world = self.world();
            let visit = world.visits.get(&call).copied().unwrap_or(0);
            world.log.push(format!("started {call}.{visit} {arguments:?}"));
            visit
        };
        yield_once().await;
        let mut world = self.world();
        let mut draw = Draw(Prng::new(world.seed));
        for n in [call, visit].iter().chain(arguments) {
            draw.stir(*n);
        }
        let spent = world.log.iter().filter(|line| line.starts_with("finished")).count() >= FUEL;
        let value = if spent || draw.below(FAILS_ONE_IN) == 0 { Err(format!("call {call} failed")) } else { Ok(make(&mut draw)) };
        *world.visits.entry(call).or_default() += 1;
        world.log.push(format!("finished {call}.{visit} {value:?}"));
        value
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A value that cannot be saved, with a destructor that does something.
#[derive(Debug)]
pub struct Guard {
    io: Io,
    number: u32,
    name: String,
}

impl Guard {
    /// Its number.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Its number, if it is even.
    pub fn even(&self) -> Option<u32> {
        self.number.is_multiple_of(2).then_some(self.number)
    }

    /// The numbers below its last digit's quarter.
    pub fn list(&self) -> Vec<u32> {
        (0..self.number % 4).collect()
    }

    /// Its number; it ends here.
    pub fn into_number(self) -> u32 {
        self.number
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.io.drops(&self.name, false);
    }
}

/// A value that can be saved, with a destructor that does something.
#[derive(Serialize)]
pub struct Noisy {
    number: u32,
    name: String,
}

impl Noisy {
    /// Its number.
    pub fn number(&self) -> u32 {
        self.number
    }
}

impl Debug for Noisy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Noisy({})", self.number)
    }
}

impl<'de> Deserialize<'de> for Noisy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Stored {
            number: u32,
            name: String,
        }
        let Stored { number, name } = Stored::deserialize(deserializer)?;
        // It is there again.
        HERE.with_borrow(|io| {
            if let Some(io) = io {
                io.world().lost.remove(&name);
            }
        });
        Ok(Noisy { number, name })
    }
}

impl Drop for Noisy {
    fn drop(&mut self) {
        HERE.with_borrow(|io| io.iter().for_each(|io| io.drops(&self.name, true)));
    }
}

/// Is not ready when first asked.
async fn yield_once() {
    let mut asked = false;
    poll_fn(|context| {
        if std::mem::replace(&mut asked, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Values that are drawn.
struct Draw(Prng);

impl Draw {
    fn stir(&mut self, n: u32) {
        self.0.stir(u64::from(n));
    }

    fn below(&mut self, end: u64) -> u64 {
        self.0.below(end)
    }

    fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        self.0.one_of(of)
    }

    fn number(&mut self) -> u32 {
        // Small ones are drawn often, so that literal patterns match.
        let end = self.one_of(&[4, 60, 1000]);
        u32::try_from(self.below(end)).expect("it is below 1000")
    }

    fn flag(&mut self) -> bool {
        self.below(2) == 0
    }

    fn text(&mut self) -> String {
        self.one_of(&["", "ada", "\"quoted\"", "zwölf", "line\nbreak"]).to_owned()
    }

    fn list(&mut self) -> Vec<u32> {
        (0..self.below(4)).map(|_| self.number()).collect()
    }

    fn maybe(&mut self) -> Option<u32> {
        if self.below(3) == 0 { None } else { Some(self.number()) }
    }

    fn pair(&mut self) -> (u32, String) {
        (self.number(), self.text())
    }

    fn item(&mut self) -> Item {
        let tags = (0..self.below(3)).map(|_| self.text()).collect();
        let next = if self.below(2) == 0 { None } else { Some(Box::new(Item { id: self.number(), tags: Vec::new(), next: None })) };
        Item { id: self.number(), tags, next }
    }

    fn shape(&mut self) -> Shape {
        match self.below(4) {
            0 => Shape::Empty,
            1 => Shape::One(self.number()),
            2 => Shape::Two(self.number(), self.text()),
            _ => Shape::Named { id: self.number(), item: self.item() },
        }
    }

    fn grid(&mut self) -> Vec<Vec<u32>> {
        (0..self.below(3)).map(|_| self.list()).collect()
    }

    fn items(&mut self) -> Vec<Item> {
        (0..self.below(3)).map(|_| self.item()).collect()
    }
}
