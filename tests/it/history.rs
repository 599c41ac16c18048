//! The history of a fiber: what is kept of each checkpoint, and what is not shown.
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use forever::fiber::History;
use forever::prelude::*;
use forever::{Builder, ErrorKind};
use forever_testkit::waiting::found;
use serde_json::{Value, json};

#[derive(Clone)]
struct Held(Arc<tokio::sync::Semaphore>, Arc<AtomicU32>);

impl Default for Held {
    fn default() -> Self {
        Held(Arc::new(tokio::sync::Semaphore::new(0)), Arc::default())
    }
}

#[fiber]
async fn reviews(titles: Vec<String>, #[secret] token: String, held: Res<Held>) -> anyhow::Result<u32> {
    let mut total = 0;
    let mut notes = String::new();
    for title in titles {
        let words = call!(counts(title.clone()))?;
        total = step!("add", async { total + words }.await);
        notes = step!("note", format!("{notes}{title} {}", "x".repeat(600)));
    }
    let answer = step!("hold", retry = Retry::times(3).backoff(Backoff::none()), held.answer(&token).await?);
    Ok(total + answer)
}

impl Held {
    async fn answer(&self, token: &str) -> anyhow::Result<u32> {
        if self.1.fetch_add(1, Ordering::Relaxed) == 0 {
            anyhow::bail!("refused for {token}");
        }
        self.0.acquire().await?.forget();
        Ok(1)
    }
}

#[fiber]
async fn counts(title: String) -> anyhow::Result<u32> {
    let length = step!("count", async { title.len() as u32 }.await);
    Ok(length)
}

fn builder(path: &std::path::Path, held: &Held) -> Builder {
    Forever::builder().sqlite(path).history(History::last(100)).fiber::<reviews>().fiber::<counts>().resource(held.clone())
}

/// Locals of one frame, by name. The value of a step whose value is assigned is kept as `add()`.
fn values(frame: &forever::view::FrameView) -> Value {
    frame.locals.iter().map(|local| (local.name.clone(), local.value.value.clone().unwrap_or(Value::Null))).collect()
}

#[tokio::test(start_paused = true)]
async fn each_kept_checkpoint_has_its_values_in_calls_and_after_a_restart_without_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let held = Held::default();
    let forever = builder(&path, &held).open().await.unwrap();
    let titles = ["law", "sales"].map(str::to_owned).to_vec();
    let id = forever.spawn(reviews(titles, "s3cret-token".into())).id("r").await.unwrap().id().to_owned();
    let before = found("the second attempt", async || {
        let history = forever.history(&id).await.unwrap();
        (held.1.load(Ordering::Relaxed) >= 2).then_some(history)
    })
    .await;
    forever.close().deadline(std::time::Duration::ZERO).await.unwrap();

    let forever = builder(&path, &held).open().await.unwrap();
    held.0.add_permits(1);
    assert_eq!(forever.fiber::<reviews>(&id).wait().await.unwrap(), 3 + 5 + 1);
    let history = forever.history(&id).await.unwrap();
    assert_eq!(history[..before.len()], before, "what is kept does not change");
    let last = history.last().unwrap();
    assert_eq!((last.at.as_str(), last.is_resumed), ("hold", true));
    let numbers: Vec<u64> = history.iter().map(|entry| entry.number).collect();
    assert_eq!(numbers, (1..=history.len() as u64).collect::<Vec<_>>());

    let at: Vec<&str> = history.iter().map(|entry| entry.at.as_str()).collect();
    let in_call = at.iter().position(|at| *at == "count").unwrap();
    let frames = forever.locals_at(&id, numbers[in_call]).await.unwrap();
    let functions: Vec<&str> = frames.iter().map(|frame| frame.function.as_str()).collect();
    assert_eq!(functions, ["reviews", "counts"]);
    assert_eq!(frames[1].at, "count");

    let totals: Vec<Value> = {
        let mut all = Vec::new();
        for entry in history.iter().filter(|entry| entry.at == "add") {
            all.push(values(&forever.locals_at(&id, entry.number).await.unwrap()[0])["add()"].clone());
        }
        all
    };
    assert_eq!(totals, [json!(3), json!(8)], "what the step gave, before it is assigned");
    let notes = history.iter().filter(|entry| entry.at == "note").map(|entry| entry.number);
    for (number, words) in notes.zip(["law ", "law "]) {
        let notes = values(&forever.locals_at(&id, number).await.unwrap()[0])["note()"].clone();
        assert!(notes.as_str().unwrap().starts_with(words), "a long value is kept whole: {notes}");
    }
    let all = serde_json::to_string(&history).unwrap();
    let mut shown = all;
    for number in &numbers {
        shown += &serde_json::to_string(&forever.locals_at(&id, *number).await.unwrap()).unwrap();
    }
    assert!(!shown.contains("s3cret-token"), "{shown}");
    for number in [0, numbers.len() as u64 + 1] {
        assert_eq!(forever.locals_at(&id, number).await.unwrap_err().kind(), ErrorKind::NotFound);
    }
    assert_eq!(forever.history("other").await.unwrap_err().kind(), ErrorKind::NotFound);
    forever.close().await.unwrap();
}

#[fiber]
async fn climbs(steps: u32) -> anyhow::Result<u32> {
    let mut height = 0;
    while height < steps {
        height = step!("climb", async { height + 1 }.await);
    }
    Ok(height)
}

#[tokio::test(start_paused = true)]
async fn the_newest_checkpoints_are_kept_or_none() {
    let folder = tempfile::tempdir().unwrap();
    for (history, least, most) in [(History::last(50), 50, 400), (History::all(), 1000, 1000), (History::off(), 0, 0)] {
        let path = folder.path().join(format!("{least}.db"));
        let forever = Forever::builder().sqlite(&path).fiber::<climbs>().history(history).open().await.unwrap();
        assert_eq!(forever.spawn(climbs(1000)).id("c").await.unwrap().wait().await.unwrap(), 1000);
        let entries = forever.history("c").await.unwrap();
        assert!((least..=most).contains(&entries.len()), "{} of {history:?}", entries.len());
        for entry in entries.iter().step_by(37) {
            let frames = forever.locals_at("c", entry.number).await.unwrap();
            assert_eq!(values(&frames[0])["climb()"], json!(entry.number));
        }
        assert!(entries.last().is_none_or(|entry| entry.number == 1000));
        forever.close().await.unwrap();
    }
}
