//! A step that is retried with exponential backoff, and has a timeout.
//!
//! ```text
//! cargo run --example retry
//! ```
//!
//! The number of failed attempts is stored, so a restart neither forgets nor repeats one.
#![forbid(unsafe_code)]

use std::io::{Error, ErrorKind};
use std::time::Duration;

use forever::prelude::*;

/// Downloads a page from an unreliable server.
#[fiber]
async fn download(url: String) -> anyhow::Result<usize> {
    let retry = Retry::times(5)
        .backoff(Backoff::exponential(Duration::from_millis(100), Duration::from_secs(5)))
        .when(|error: &anyhow::Error| error.downcast_ref::<Error>().is_none_or(|e| e.kind() != ErrorKind::NotFound));
    let page = step!("get", retry = retry, timeout = Duration::from_secs(10), |op| get(&url, op.attempt()).await?);
    Ok(page.len())
}

/// Stands for a request: the third attempt succeeds.
async fn get(url: &str, attempt: u32) -> Result<String, Error> {
    println!("attempt {attempt}: GET {url}");
    tokio::time::sleep(Duration::from_millis(20)).await;
    if url.ends_with("/missing") {
        return Err(Error::new(ErrorKind::NotFound, "404"));
    }
    if attempt < 3 {
        return Err(Error::new(ErrorKind::ConnectionRefused, "no answer"));
    }
    Ok("<p>hello</p>".to_owned())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let forever = Forever::builder().in_memory().fiber::<download>().open().await?;
    println!("{} bytes", forever.run(download("https://example.com/".into())).await?);
    // A false condition ends the retries: this fails at its first attempt.
    let missing = forever.run(download("https://example.com/missing".into())).await;
    println!("{}", missing.expect_err("there is no such page"));
    Ok(forever.close().await?)
}
