//! A step whose error is a value: `catch` stores it, and the fiber takes another branch.
//!
//! ```text
//! cargo run --example fallback
//! ```
//!
//! A resumed fiber reads the same error, and takes the same branch.
#![forbid(unsafe_code)]

use std::time::Duration;

use forever::prelude::*;

/// Asks the large model, and the small one if that does not answer in time.
#[fiber]
async fn answer(question: String) -> anyhow::Result<String> {
    let limit = Duration::from_millis(200);
    match step!("ask", retry = Retry::times(1), timeout = limit, catch, large(&question).await?) {
        Ok(answer) => Ok(answer),
        Err(error) if error.is_timeout() => {
            println!("fallback after {} attempts: {error}", error.attempts());
            Ok(step!("ask small", small(&question).await?))
        }
        Err(error) => Err(error.into()),
    }
}

async fn large(question: &str) -> anyhow::Result<String> {
    anyhow::ensure!(!question.is_empty(), "an empty question");
    tokio::time::sleep(Duration::from_secs(60)).await;
    Ok(format!("a long answer to {question:?}"))
}

async fn small(question: &str) -> anyhow::Result<String> {
    tokio::time::sleep(Duration::from_millis(20)).await;
    Ok(format!("a short answer to {question:?}"))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let forever = Forever::builder().in_memory().fiber::<answer>().open().await?;
    println!("{}", forever.run(answer("why?".into())).await?);
    println!("{}", forever.run(answer(String::new())).await.expect_err("not every error is a timeout"));
    Ok(forever.close().await?)
}
