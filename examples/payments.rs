//! A hundred charges at a bank, by a process that is killed before, between and after charge and
//! answer.
//!
//! ```text
//! cargo run -p examples-http --example payments
//! cargo run -p examples-http --example payments -- --orders 40 --kills 60 --seed 7
//! cargo run -p examples-http --example payments -- --forgetful
//! ```
//!
//! The program is a bank, a payment server on loopback that honours `Idempotency-Key`. It starts
//! itself as a worker, a second process that runs a fiber for each order from a database file, and
//! kills it with SIGKILL: when the operation has begun and no charge is made, when the charge is
//! made and the answer is on its way, when the answer has arrived, and while the worker starts. The
//! next worker finds operations in doubt. Then `on_unknown` decides, and there is a fiber for each
//! policy:
//!
//! - [`by_retry`]: the bank is called again under the same key. Requests may exceed charges.
//! - [`by_check`]: the bank is queried first.
//! - [`by_park`]: nothing is called. The fiber is parked until an [operator](look_into) has queried
//!   the bank and resolved the operation.
//! - [`by_fail`]: the fiber gets an error and handles it.
//!
//! You see a line for each kill, then a table, and last
//!
//! ```text
//! policy=all orders=100 kills=30 charges=100 started_left=0 result=ok
//! ```
//!
//! What is checked; anything else ends with an error and exit code 1:
//!
//! - `charges`: one for each order, and each fiber has the receipt of its own.
//! - `started_left`: operations in the ledger whose outcome is unknown. There are none.
//! - Under `check` and `park` no charge is requested again before the bank was queried about it,
//!   under `fail` none under the same key.
//!
//! With `--forgetful` the bank ignores the keys. Then `by_retry`, which relies on them, charges
//! twice, the others do not, and the program reports it and ends with exit code 1.
//!
//! Unix only: it needs SIGKILL.
#![forbid(unsafe_code)]

#[path = "support/bank.rs"]
mod bank;
#[path = "support/bank_server.rs"]
mod bank_server;
#[path = "support/business_day.rs"]
mod business_day;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::bail;
use forever::ops::{OpResolution, OpState};
use forever::prelude::*;

use bank::{Bank, Order, Policy, Receipt};
use forever_testkit::args::{Args, exit_code};

const USAGE: &str = "\
Charges for orders in a process that is killed around its charges.

usage: payments [--orders N] [--kills N] [--seed N] [--forgetful]
  --orders N   how many orders there are, 4 to 1000 (100)
  --kills N    how often to kill it, 0 to 1000 (30)
  --seed N     what the moments of the kills are drawn from (1)
  --forgetful  the bank takes no notice of idempotency keys";

/// For a bank that honours keys: it is called again, and charges once.
#[fiber(max_recoveries = 1000)]
async fn by_retry(bank: Res<Bank>, order: Order) -> anyhow::Result<Receipt> {
    let key = (order.id(), order.cents);
    Ok(step!("charge", effect, key = &key, on_unknown = OnUnknown::Retry, |op| bank.charge(op.idempotency_key(), &order).await?))
}

/// For a bank that can be queried: it is called only if it has made no charge.
#[fiber(max_recoveries = 1000)]
async fn by_check(bank: Res<Bank>, order: Order) -> anyhow::Result<Receipt> {
    let key = (order.id(), order.cents);
    let check = OnUnknown::check(async |op| bank.find(Policy::Check, op.id()).await);
    Ok(step!("charge", effect, key = &key, on_unknown = check, |op| bank.charge(op.idempotency_key(), &order).await?))
}

/// For any other bank: a person decides. This is the default of an effect.
#[fiber(max_recoveries = 1000)]
async fn by_park(bank: Res<Bank>, order: Order) -> anyhow::Result<Receipt> {
    let key = (order.id(), order.cents);
    Ok(step!("charge", effect, key = &key, |op| bank.charge(op.idempotency_key(), &order).await?))
}

/// For a program that has another way: here, it asks the bank about the order instead of the key.
#[fiber(max_recoveries = 1000)]
async fn by_fail(bank: Res<Bank>, order: Order) -> anyhow::Result<Receipt> {
    loop {
        match call!(one_charge(order.clone())) {
            Ok(receipt) => return Ok(receipt),
            Err(error) if is_unknown(&error) => {}
            Err(error) => return Err(error),
        }
        let found = step!("look up", bank.find_order(&order).await?);
        if let Some(receipt) = found {
            return Ok(receipt);
        }
    }
}

/// The part of [`by_fail`] that ends in an error when the outcome of the charge is unknown.
#[fiber]
async fn one_charge(bank: Res<Bank>, order: Order) -> anyhow::Result<Receipt> {
    let key = (order.id(), order.cents);
    Ok(step!("charge", effect, key = &key, on_unknown = OnUnknown::Fail, |op| bank.charge(op.idempotency_key(), &order).await?))
}

fn is_unknown(error: &anyhow::Error) -> bool {
    error.downcast_ref::<forever::Error>().is_some_and(forever::Error::is_op_unknown)
}

/// The operator: queries the bank about the operations that a fiber began, and resolves them. A
/// fiber that is parked for one continues.
async fn look_into(forever: &Forever, bank: &Bank, order: &Order) -> anyhow::Result<usize> {
    let mut resolved = 0;
    for op in forever.ops(&order.id()).await? {
        if op.state == OpState::Started {
            let how = match bank.find(order.policy, &op.id).await? {
                Some(receipt) => OpResolution::completed(&receipt)?,
                None => OpResolution::NotExecuted,
            };
            forever.resolve_op(&op.id, how).await?;
            resolved += 1;
        }
    }
    Ok(resolved)
}

/// The orders of a day under one policy.
fn orders(policy: Policy, of: u32) -> impl Iterator<Item = Order> {
    let first = Policy::ALL.iter().position(|there| *there == policy).unwrap_or_default();
    (1..=of).skip(first).step_by(Policy::ALL.len()).map(move |number| Order { policy, number, cents: 100 + number })
}

/// Runs the orders of one policy, one after the other.
async fn till(forever: &Forever, bank: &Bank, policy: Policy, of: u32) -> anyhow::Result<()> {
    for order in orders(policy, of) {
        let (id, call) = (order.id(), order.clone());
        let handle = match policy {
            Policy::Retry => forever.spawn(by_retry(call)).id(id).await?,
            Policy::Check => forever.spawn(by_check(call)).id(id).await?,
            Policy::Park => forever.spawn(by_park(call)).id(id).await?,
            Policy::Fail => forever.spawn(by_fail(call)).id(id).await?,
        };
        loop {
            match handle.wait().await {
                Ok(_) => break,
                Err(stopped) if stopped.is_parked() => {
                    if look_into(forever, bank, &order).await? == 0 {
                        bail!(stopped);
                    }
                }
                Err(ended) => bail!(ended),
            }
        }
        // A fiber that handled the error has left its operation in doubt.
        look_into(forever, bank, &order).await?;
    }
    Ok(())
}

/// File name of a day's database, in a folder of its own.
const DATABASE: &str = "orders.db";

/// A worker: runs all orders, unless it is killed.
#[tokio::main(flavor = "current_thread")]
async fn work(dir: &Path, url: &str, of: u32) -> anyhow::Result<()> {
    forever_testkit::process::end_with_parent();
    let bank = Bank::at(url)?;
    let builder = Forever::builder().sqlite(dir.join(DATABASE)).resource(bank.clone());
    let builder = builder.fiber::<by_retry>().fiber::<by_check>().fiber::<by_park>().fiber::<by_fail>();
    let forever = builder.open().await?;
    let till = |policy| till(&forever, &bank, policy, of);
    tokio::try_join!(till(Policy::Retry), till(Policy::Check), till(Policy::Park), till(Policy::Fail))?;
    forever.close().await?;
    Ok(())
}

fn main() -> ExitCode {
    let mut args = Args::of_program(USAGE);
    let dir: Option<PathBuf> = args.value("--worker", "a folder", |_| true);
    let url: Option<String> = args.value("--bank", "a URL", |_| true);
    let orders = args.value("--orders", "a number from 4 to 1000", |orders| (4..=1000).contains(orders)).unwrap_or(100);
    let kills = args.value("--kills", "a number from 0 to 1000", |kills| *kills <= 1000).unwrap_or(30);
    let seed = args.value("--seed", "a number", |_| true).unwrap_or(1);
    let forgetful = args.flag("--forgetful");
    args.finish();
    let done = match dir.zip(url) {
        Some((dir, url)) => work(&dir, &url, orders).map(|()| true),
        None => business_day::run(orders, kills, seed, forgetful),
    };
    exit_code(done)
}

// A test kills it at every write.
#[cfg(test)]
#[path = "../tests/crash/examples/payments.rs"]
mod crash;
