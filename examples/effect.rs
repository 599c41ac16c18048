//! A charge that is never made twice: an `effect` with an idempotency key, and a check after a
//! crash.
//!
//! ```text
//! cargo run --example effect
//! ```
//!
//! The first charge is made, but its answer is lost. The check finds it, and the body does not run
//! again.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::sync::Mutex;

use anyhow::{Context, anyhow};
use forever::prelude::*;

/// The payment provider: what was charged under which idempotency key.
#[derive(Default)]
struct Bank(Mutex<HashMap<String, u32>>);

impl Bank {
    fn charge(&self, key: &str, cents: u32) -> anyhow::Result<u32> {
        self.0.lock().expect("no panic holds it").insert(key.to_owned(), cents);
        Err(anyhow!("the connection broke before the answer came"))
    }

    fn find(&self, key: &str) -> Option<u32> {
        self.0.lock().expect("no panic holds it").get(key).copied()
    }
}

#[fiber]
async fn checkout(bank: Res<Bank>, order: String, cents: u32) -> anyhow::Result<u32> {
    let check = OnUnknown::check(async |op| Ok::<_, anyhow::Error>(bank.find(op.id())));
    let charged = step!("charge", effect, key = (&order, cents), on_unknown = check, |op| {
        // `op.unknown`: after this error the charge may have been made.
        bank.charge(op.idempotency_key(), cents).map_err(|error| op.unknown(error))?
    });
    Ok(charged)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let forever = Forever::builder().in_memory().resource(Bank::default()).fiber::<checkout>().open().await?;
    let handle = forever.spawn(checkout("A-1".into(), 4200)).id("order-A-1").await?;
    println!("charged {}", handle.wait().await?);
    let ledger = forever.ops("order-A-1").await?;
    let charge = ledger.first().context("the ledger has the charge")?;
    println!("{} {}: {}", charge.step, charge.id, charge.state);
    Ok(forever.close().await?)
}
