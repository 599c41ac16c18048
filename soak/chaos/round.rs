//! The plan of a round. All of it is drawn from the round's seed, so the killer, each worker and
//! the audit compute the same one.
use std::fmt;

use forever::Durability;

use forever_testkit::prng::Prng;

/// Kinds of fibers. `fibers.rs`, `money.rs` and `office.rs` have the code of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// Steps in a loop, some of which fail at first and are retried.
    Chain,
    /// Fibers called inline, two deep, in a loop.
    Nested,
    /// Concurrent steps.
    Side,
    /// A long local and a `Log`.
    Notes,
    /// An effect under each policy.
    Retry,
    Check,
    Park,
    Fail,
    /// Manual operations between steps.
    ByHand,
    /// Rows in a table of the program's own.
    Booking,
    /// Durable timers.
    Sleeper,
    /// Messages.
    Inbox,
    /// Children.
    Family,
    /// Is cancelled, with its children.
    Doomed,
    /// A closure with a stash, of an agent.
    Closure,
}

impl Kind {
    const ALL: [(Kind, &str); 15] = [
        (Kind::Chain, "chain"),
        (Kind::Nested, "nested"),
        (Kind::Side, "side"),
        (Kind::Notes, "notes"),
        (Kind::Retry, "retry"),
        (Kind::Check, "check"),
        (Kind::Park, "park"),
        (Kind::Fail, "fail"),
        (Kind::ByHand, "byhand"),
        (Kind::Booking, "booking"),
        (Kind::Sleeper, "sleeper"),
        (Kind::Inbox, "inbox"),
        (Kind::Family, "family"),
        (Kind::Doomed, "doomed"),
        (Kind::Closure, "closure"),
    ];

    /// Draws a kind; those that exercise more are drawn more often.
    fn draw(prng: &mut Prng) -> Kind {
        match prng.below(20) {
            0 => Kind::Chain,
            1 => Kind::Family,
            2 => Kind::Side,
            3 => Kind::Retry,
            4 => Kind::Check,
            _ => Kind::ALL[prng.below(15_usize)].0,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Kind::ALL.iter().find(|(kind, _)| kind == self).map_or("", |(_, name)| name);
        f.write_str(name)
    }
}

/// A fiber of a round.
#[derive(Debug, Clone)]
pub(crate) struct Spec {
    pub(crate) kind: Kind,
    /// Number of its steps, charges, messages or children.
    pub(crate) size: u32,
    /// Its id, and its name in the log of effects.
    pub(crate) id: String,
    /// The agent that it belongs to.
    pub(crate) agent: Option<String>,
}

/// A schedule that is due once.
#[derive(Debug, Clone)]
pub(crate) struct Errand {
    pub(crate) agent: String,
    pub(crate) name: String,
    /// Number of runs that fail at first.
    pub(crate) failures: u32,
}

/// The work of one round, and its settings.
#[derive(Debug)]
pub(crate) struct Round {
    pub(crate) seed: u64,
    pub(crate) durability: Durability,
    /// Threads of the async runtime; 1 is `current_thread`.
    pub(crate) threads: u32,
    /// Most fibers that are under way at a time.
    pub(crate) window: u32,
    pub(crate) fibers: Vec<Spec>,
    pub(crate) errands: Vec<Errand>,
}

pub(crate) const AGENTS: u32 = 3;

impl Round {
    pub(crate) fn drawn(seed: u64) -> Self {
        let mut prng = Prng::of_purpose(seed, "round");
        let durability = if prng.below(2) == 0 { Durability::Power } else { Durability::Process };
        let threads = 1 + prng.below(2);
        let window = [4, 16, 64][prng.below(3_usize)];
        let agent = |prng: &mut Prng| format!("clerk-{}", prng.below(AGENTS));
        let fibers = (1..=40 + prng.below(80))
            .map(|number| {
                let kind = Kind::draw(&mut prng);
                let owned = kind == Kind::Closure || (kind == Kind::Chain && prng.below(2) == 0);
                let agent = owned.then(|| agent(&mut prng));
                // The count of deaths takes the work of a hook as one piece, and a closure is given
                // up after ten deaths: the hook's work must be short.
                let size = if kind == Kind::Closure { 1 + prng.below(2) } else { 2 + prng.below(7) };
                Spec { kind, size, id: format!("{kind}-{number}"), agent }
            })
            .collect();
        let errands =
            (1..=2 + prng.below(8)).map(|n| Errand { agent: agent(&mut prng), name: format!("errand-{n}"), failures: n % 2 }).collect();
        Round { seed, durability, threads, window, fibers, errands }
    }

    pub(crate) fn find(&self, id: &str) -> Option<&Spec> {
        self.fibers.iter().find(|spec| spec.id == id)
    }
}

/// The result of a step.
pub(crate) fn value(fiber: &str, place: u32) -> u64 {
    Prng::of_purpose(u64::from(place), fiber).number() % 1000
}

/// Adds a value so that the order matters.
pub(crate) fn add(sum: u64, value: u64) -> u64 {
    sum.rotate_left(9) ^ value
}

/// The name of a child, and its number of steps.
pub(crate) fn child(parent: &str, n: u32) -> (String, u32) {
    (format!("{parent}.{n}"), 2 + n % 3)
}

/// Number of steps of a child that is to be cancelled.
pub(crate) const ENDLESS: u32 = 300;

/// The long local of a fiber of notes.
pub(crate) fn page(fiber: &str, n: u32) -> String {
    format!("page {n} of {fiber}; ").repeat(40 * n as usize)
}

/// One of its notes.
pub(crate) fn note(fiber: &str, n: u32) -> String {
    format!("{} ", value(fiber, n)).repeat(1 + 60 * (n as usize % 3))
}

pub(crate) fn digest<'a>(texts: impl IntoIterator<Item = &'a str>) -> u64 {
    texts.into_iter().flat_map(str::bytes).fold(0, |sum, byte| add(sum, u64::from(byte)))
}

impl Spec {
    fn sum(&self, places: impl IntoIterator<Item = u32>) -> u64 {
        places.into_iter().fold(0, |sum, place| add(sum, value(&self.id, place)))
    }

    /// The expected result; `None` where it depends on timing.
    pub(crate) fn expected(&self) -> Option<String> {
        let (id, size) = (&self.id, self.size);
        let receipts = |keys: &mut dyn Iterator<Item = String>| keys.map(|key| format!("receipt:{key}")).collect::<Vec<_>>().join(" ");
        Some(match self.kind {
            Kind::Chain | Kind::Booking => self.sum(1..=size).to_string(),
            Kind::Nested => self.sum(1..=size + 2).to_string(),
            Kind::Side => {
                let branches = (0..size).map(|n| format!("{id}/2.{n}")).chain((0..2).map(|n| format!("{id}/3.{n}")));
                branches.collect::<Vec<_>>().join(" ")
            }
            Kind::Notes => {
                let notes: Vec<_> = (1..=size).map(|n| note(id, n)).collect();
                digest(notes.iter().map(String::as_str).chain([page(id, size).as_str()])).to_string()
            }
            Kind::Retry | Kind::Check | Kind::Park | Kind::Fail => receipts(&mut std::iter::once(id.clone())),
            Kind::ByHand | Kind::Closure => receipts(&mut (1..=size).map(|n| format!("{id}/{n}"))),
            Kind::Sleeper => "on time".to_owned(),
            Kind::Family => {
                let children = (0..size).map(|n| child(id, n)).map(|(name, steps)| sum_of_child(&name, steps));
                let sum = children.fold(value(id, 1), add);
                add(sum, value(id, 2)).to_string()
            }
            Kind::Inbox | Kind::Doomed => return None,
        })
    }

    /// The last place whose step has finished after this many checkpoints; `None` where that
    /// depends on timing.
    pub(crate) fn place_after(&self, checkpoints: u32) -> Option<u32> {
        let at = |cuts: &[u32]| cuts.get(checkpoints as usize - 1).copied();
        match self.kind {
            _ if checkpoints == 0 => Some(0),
            Kind::Chain | Kind::Notes | Kind::Booking | Kind::ByHand => Some(checkpoints),
            Kind::Nested => {
                // A step that is alone in a fiber finishes first, and then the call of that fiber.
                let inner = (2..=self.size + 1).flat_map(|n| if n % 2 == 0 { vec![n, n] } else { vec![n] });
                let all: Vec<_> = [1].into_iter().chain(inner).chain([self.size + 1, self.size + 2]).collect();
                at(&all)
            }
            // Each `steps!` is two cut points; the first one stores what it waits for.
            Kind::Side => at(&[1, 1, 2, 2, 3, 4]),
            Kind::Retry | Kind::Check | Kind::Park => at(&[1, 2, 3]),
            Kind::Sleeper => at(&[1, 1, 2, 2, 3]),
            // Two for each message, one for each step.
            Kind::Inbox => Some(checkpoints / 3),
            Kind::Family => Some(if checkpoints <= self.size + 3 { 1 } else { 2 }),
            Kind::Fail | Kind::Doomed | Kind::Closure => None,
        }
    }

    /// Whether messages to it have ids of their own.
    pub(crate) fn names_messages(&self) -> bool {
        self.size.is_multiple_of(2)
    }

    /// Whether a charge of it may be requested again without a query first.
    pub(crate) fn asks_again(&self, key: &str) -> bool {
        match self.kind {
            Kind::Retry => true,
            Kind::ByHand => key.rsplit_once('/').and_then(|(_, n)| n.parse::<u32>().ok()).is_some_and(honoured),
            _ => false,
        }
    }

    /// The keys of its charges.
    pub(crate) fn charges(&self) -> Vec<String> {
        match self.kind {
            Kind::Retry | Kind::Check | Kind::Park | Kind::Fail => vec![self.id.clone()],
            Kind::ByHand | Kind::Closure => (1..=self.size).map(|n| format!("{}/{n}", self.id)).collect(),
            _ => Vec::new(),
        }
    }
}

/// Whether a manual operation goes to the account that honours ids.
pub(crate) fn honoured(n: u32) -> bool {
    n.is_multiple_of(2)
}

pub(crate) fn sum_of_child(name: &str, steps: u32) -> u64 {
    (1..=steps).fold(0, |sum, place| add(sum, value(name, place)))
}
