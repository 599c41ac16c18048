//! Concurrent work: branches of one fiber with `steps!`, and child fibers with `spawn!`.
//!
//! ```text
//! cargo run --example parallel
//! ```
//!
//! Each result is stored when it is ready. After a crash only the others run again.
#![forbid(unsafe_code)]

use std::time::Duration;

use forever::prelude::*;

/// Spawns a fiber for each topic, and waits for all of them.
#[fiber]
async fn report(topics: Vec<String>) -> anyhow::Result<Vec<String>> {
    let mut chapters = Vec::new();
    for topic in topics {
        chapters.push(spawn!(chapter(topic)));
    }
    let mut texts = Vec::new();
    for text in wait_all!(chapters) {
        texts.push(text?);
    }
    Ok(texts)
}

/// Reads twelve pages, at most four at a time.
#[fiber]
async fn chapter(topic: String) -> anyhow::Result<String> {
    let pages = steps!(for page in 1..=12_u32, limit = 4, retry = Retry::times(3), read(&topic, page).await?);
    // A tuple: both branches run concurrently.
    let (title, words) = steps!(topic.to_uppercase(), pages.iter().map(|text| text.split(' ').count()).sum::<usize>());
    Ok(format!("{title}: {words} words"))
}

async fn read(topic: &str, page: u32) -> anyhow::Result<String> {
    tokio::time::sleep(Duration::from_millis(50)).await;
    Ok(format!("page {page} about {topic}"))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let forever = Forever::builder().in_memory().fiber::<report>().fiber::<chapter>().open().await?;
    for text in forever.run(report(vec!["tides".into(), "bells".into()])).await? {
        println!("{text}");
    }
    Ok(forever.close().await?)
}
