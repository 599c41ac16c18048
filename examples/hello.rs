//! A fiber that survives its process: run it, press Ctrl-C, run it again.
//!
//! ```text
//! cargo run --example hello
//! ```
//!
//! The second run continues after the last name that was greeted. Remove `hello.db*` to start over.
#![forbid(unsafe_code)]

use std::time::Duration;

use forever::prelude::*;

/// Greets everyone, one name a second.
#[fiber]
async fn greet(names: Vec<String>) -> anyhow::Result<usize> {
    for name in &names {
        step!("greet", println!("hello, {name}"));
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    Ok(names.len())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let forever = Forever::builder().sqlite("hello.db").fiber::<greet>().open().await?;
    let names = ["Ada", "Grace", "Edsger", "Barbara", "Tony"].map(str::to_owned).to_vec();
    let handle = forever.spawn(greet(names)).key("hello").await?;
    println!("{} were greeted", handle.wait().await?);
    Ok(forever.close().await?)
}
