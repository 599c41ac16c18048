//! A fiber that waits for a person for up to three days, in a process that does not.
//!
//! ```text
//! cargo run --example await_approval               # starts the refund, and ends
//! cargo run --example await_approval -- approve    # minutes or days later
//! ```
//!
//! While the fiber waits it is a row in `refunds.db`. Remove `refunds.db*` to start over.
#![forbid(unsafe_code)]

use std::time::Duration;

use forever::fiber::FiberState;
use forever::prelude::*;

#[fiber]
async fn refund(customer: String, cents: u32) -> anyhow::Result<String> {
    step!("ask", println!("may {customer} have {cents} cents back?"));
    let approved: Option<bool> = recv!("approval", timeout = Duration::from_secs(3 * 24 * 60 * 60));
    Ok(match approved {
        Some(true) => step!("pay", format!("{customer} was paid {cents} cents")),
        Some(false) => "refused".to_owned(),
        None => "no answer in three days".to_owned(),
    })
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let forever = Forever::builder().sqlite("refunds.db").fiber::<refund>().open().await?;
    let handle = forever.spawn(refund("Ada".into(), 4200)).id("refund-7").await?;
    if let Some(word @ ("approve" | "refuse")) = std::env::args().nth(1).as_deref() {
        forever.send("refund-7", "approval", &(word == "approve")).message_id("decision").await?;
        println!("{}", handle.wait().await?);
    } else {
        while handle.status().await?.state == FiberState::Running {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        println!("refund-7 is {}", handle.status().await?.state);
    }
    Ok(forever.close().await?)
}
