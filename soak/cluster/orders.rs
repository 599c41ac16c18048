//! The fibers of the example: orders and their parcels, with everything that they do outside the
//! database.
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use forever::BoxError;
use forever::prelude::*;

use crate::bookings::book;
use crate::journal::Journal;

/// Items of an order.
pub(crate) const ITEMS: u64 = 12;

/// What is paid for each order, by message.
pub(crate) const PRICE: u64 = 7;

/// What every order gives.
pub(crate) const RESULT: u64 = ITEMS * (ITEMS - 1) / 2 + 3 * ITEMS + PRICE;

/// Topic of the message that an order waits for.
pub(crate) const PAID: &str = "paid";

/// The end of the name of a parcel in the log.
pub(crate) const PARCEL: &str = "/parcel";

/// The world outside the database: the log, and a bank that knows charges by their keys.
#[derive(Debug)]
pub(crate) struct Desk {
    pub(crate) journal: Journal,
    bank: PathBuf,
    /// Schema of the store, after which the table of bookings is named.
    schema: String,
}

/// One stretch of work on an order in one process, from its begin or its resume on.
#[derive(Debug)]
pub(crate) struct Stretch<'a> {
    desk: &'a Desk,
    order: String,
}

pub(crate) fn bank(dir: &Path) -> PathBuf {
    dir.join("bank")
}

/// How many charges the bank has of each order.
pub(crate) fn charges(dir: &Path) -> anyhow::Result<BTreeMap<String, usize>> {
    let mut charges = BTreeMap::new();
    for charge in std::fs::read_dir(bank(dir))? {
        let name = charge?.file_name();
        let name = name.to_string_lossy();
        let (order, _) = name.split_once('.').context("a charge has an order and a key")?;
        *charges.entry(order.to_owned()).or_default() += 1;
    }
    Ok(charges)
}

impl Desk {
    pub(crate) fn new(dir: &Path, schema: &str) -> anyhow::Result<Self> {
        Ok(Desk { journal: Journal::open(dir)?, bank: bank(dir), schema: schema.to_owned() })
    }

    /// The code of an order is entered in this process.
    fn enter(&self, order: &str) -> Stretch<'_> {
        self.journal.write("enter", order, "");
        Stretch { desk: self, order: order.to_owned() }
    }

    /// As [`enter`](Self::enter), for the parcel of an order.
    fn enter_parcel(&self, id: &str) -> Stretch<'_> {
        self.enter(&format!("{id}{PARCEL}"))
    }

    fn is_charged(&self, order: &str, key: &str) -> bool {
        self.charge_of(order, key).exists()
    }

    /// Makes a charge, once for each key.
    fn charge(&self, order: &str, key: &str) -> Result<(), BoxError> {
        match OpenOptions::new().write(true).create_new(true).open(self.charge_of(order, key)) {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn charge_of(&self, order: &str, key: &str) -> PathBuf {
        self.bank.join(format!("{order}.{key}"))
    }
}

impl Stretch<'_> {
    async fn pick(&self, item: u64) -> Result<u64, BoxError> {
        self.begin(&format!("pick-{item}"));
        tokio::time::sleep(Duration::from_millis(5 + item)).await;
        Ok(item)
    }

    fn begin(&self, step: &str) {
        self.desk.journal.write("begin", &self.order, step);
    }

    /// A step has finished: its result is stored.
    fn passed(&self, step: &str) {
        self.desk.journal.write("passed", &self.order, step);
    }
}

#[fiber]
pub(crate) async fn parcel(ctx: &FiberContext, desk: Res<Desk>, order: String, items: u64) -> Result<u64, BoxError> {
    #[fresh]
    let here = desk.enter_parcel(ctx.id());
    let weight = step!("weigh", {
        here.begin("weigh");
        // There is no parcel before the order is charged.
        desk.journal.write("passed", &order, "charge");
        3 * items
    });
    here.passed("weigh");
    Ok(weight)
}

#[fiber]
pub(crate) async fn order(ctx: &FiberContext, desk: Res<Desk>, items: u64) -> Result<u64, BoxError> {
    #[fresh]
    let here = desk.enter(ctx.id());
    let mut sum = 0;
    for item in 0..items {
        sum += step!("pick", here.pick(item).await?);
        here.passed(&format!("pick-{item}"));
    }
    let check = OnUnknown::check(async |op| Ok::<_, BoxError>(desk.is_charged(ctx.id(), op.id()).then_some(())));
    step!("charge", effect, on_unknown = check, |op| {
        here.begin("charge");
        desk.charge(ctx.id(), op.id())?
    });
    here.passed("charge");
    step!("book", {
        here.begin("book");
        book(ctx, &desk.schema).await?;
    });
    here.passed("book");
    let weighed = spawn!(parcel(ctx.id().to_owned(), items));
    let weight = wait!(weighed)?;
    sleep!(Duration::from_millis(30));
    let paid: u64 = recv!("paid");
    let total = step!("total", {
        here.begin("total");
        sum + weight + paid
    });
    here.passed("total");
    Ok(total)
}
