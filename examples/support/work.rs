//! The work of `kill_and_resume`: the orders, what a step does, and the same work without steps.
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use forever_testkit::prng::Prng;
use serde::{Deserialize, Serialize};

use super::journal::{Journal, Line};

/// Order to send out.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) number: u32,
    pub(crate) way: Way,
}

/// Way in which an order is sent.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) enum Way {
    Letter,
    Parcel { items: Vec<String> },
    Abroad { queue: u32 },
}

/// Result of a day.
#[derive(Default, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) letters: u32,
    pub(crate) lucky: Vec<u32>,
    pub(crate) total: u64,
}

impl Report {
    /// Adds a cost so that the order of the costs matters.
    pub(crate) fn add(&mut self, cost: u64) {
        self.total = self.total.rotate_left(9) ^ cost;
    }
}

impl Order {
    /// Name of a step of this order, unique in the fiber.
    pub(crate) fn name(&self, what: &str) -> String {
        format!("order {}: {what}", self.number)
    }

    /// Number of its steps.
    fn steps(&self) -> u32 {
        match &self.way {
            Way::Letter => 1,
            Way::Parcel { items } => u32::try_from(items.len()).expect("a parcel has few items") + 1,
            Way::Abroad { queue } => queue + 2,
        }
    }
}

/// Orders that take exactly `steps` steps together.
fn orders(steps: u32, seed: u64) -> Vec<Order> {
    const THINGS: [&str; 4] = ["a lamp", "two books", "the blue chair", "a map of the moon"];
    let mut prng = Prng::of_purpose(seed, "orders");
    let mut orders = Vec::new();
    let mut left = steps;
    while left > 0 {
        let way = match prng.below(3) {
            0 => Way::Parcel { items: THINGS[prng.below(3_usize)..4].iter().map(ToString::to_string).collect() },
            1 => Way::Abroad { queue: prng.below(3) },
            _ => Way::Letter,
        };
        let number = u32::try_from(orders.len()).expect("fewer orders than steps") + 1;
        let order = Order { number, way };
        if order.steps() <= left {
            left -= order.steps();
            orders.push(order);
        }
    }
    orders
}

/// The result of the step with this name.
fn cost(name: &str) -> u64 {
    Prng::of_purpose(0, name).number() % 1000
}

/// The resource with which the fiber's steps do their work.
pub(crate) struct Desk {
    journal: Journal,
    hold_after: usize,
    finished: Mutex<BTreeSet<String>>,
}

impl Desk {
    /// Continues a journal. After `hold_after` steps, including those of earlier processes, steps
    /// wait for ever.
    pub(crate) fn open(journal: &Path, hold_after: usize) -> anyhow::Result<Self> {
        let (journal, lines) = Journal::open(journal)?;
        let finished = lines.into_iter().filter_map(Line::finished).collect();
        Ok(Desk { journal, hold_after, finished: Mutex::new(finished) })
    }

    /// The body of the first step.
    pub(crate) async fn read_orders(&self, steps: u32, seed: u64) -> anyhow::Result<Vec<Order>> {
        self.work("read orders").await?;
        // Without the first step and the last.
        Ok(orders(steps - 2, seed))
    }

    /// The body of a step: takes from no time to 100 ms and leaves two lines in the journal.
    pub(crate) async fn work(&self, name: &str) -> anyhow::Result<u64> {
        self.journal.write(&Line::Started(name.to_owned()))?;
        if self.finished().len() >= self.hold_after {
            std::future::pending::<()>().await;
        }
        let longest = [0_u64, 20, 60, 100][Prng::of_purpose(1, name).below(4_usize)];
        if longest > 0 {
            tokio::time::sleep(Duration::from_millis(Prng::of_purpose(2, name).below(longest))).await;
        }
        self.journal.write(&Line::Finished(name.to_owned()))?;
        self.finished().insert(name.to_owned());
        Ok(cost(name))
    }

    fn finished(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.finished.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One checkpoint of the fiber.
#[derive(Debug, PartialEq)]
pub(crate) enum Cut {
    /// After the step of this name.
    Step(String),
    /// After an inline call; no body belongs to it.
    Call,
}

/// The same work without steps: its result, and the checkpoints that the fiber makes.
pub(crate) fn in_one_go(steps: u32, seed: u64) -> (Report, Vec<Cut>) {
    let mut cuts = Vec::new();
    let step = |cuts: &mut Vec<Cut>, name: String| {
        let cost = cost(&name);
        cuts.push(Cut::Step(name));
        cost
    };
    step(&mut cuts, "read orders".to_owned());
    let mut report = Report::default();
    for order in &orders(steps - 2, seed) {
        let cost = match &order.way {
            Way::Letter => {
                report.letters += 1;
                step(&mut cuts, order.name("stamp"))
            }
            Way::Parcel { items } => {
                let weight: u64 = items.iter().map(|item| step(&mut cuts, order.name(&format!("pick {item}")))).sum();
                weight.max(step(&mut cuts, order.name("pack")))
            }
            Way::Abroad { queue } => {
                for ahead in (0..=*queue).rev() {
                    step(&mut cuts, order.name(&format!("{ahead} ahead")));
                }
                let duty = step(&mut cuts, order.name("declare"));
                cuts.push(Cut::Call);
                duty + u64::from(*queue)
            }
        };
        if cost % 7 == 0 {
            report.lucky.push(order.number);
        } else {
            report.add(cost);
        }
    }
    report.add(step(&mut cuts, "close the day".to_owned()));
    (report, cuts)
}
