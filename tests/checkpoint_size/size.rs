//! How much a step writes, plain and as an effect, and how fast the file grows.
use forever::fiber::Log;
use forever::prelude::*;

use crate::support::{Place, World};

/// A transcript of messages of about `bytes` bytes, one a step.
#[fiber]
async fn transcript(world: Res<World>, bytes: usize) -> anyhow::Result<usize> {
    let mut messages = Log::new();
    loop {
        let text = step!("message", world.step(format!("{:08}{}", messages.len(), "m".repeat(bytes - 10))).await?);
        messages.push(text);
    }
    #[allow(unreachable_code)]
    Ok(messages.len())
}

const MESSAGES: usize = 1000;
/// The most bytes of values that a step may write, and the most that the file may grow by.
const BOUND: i64 = 700;
const GROWTH: i64 = 500;

#[tokio::test]
async fn a_long_transcript_costs_the_same_at_every_step() {
    let (place, world) = (Place::new(), World::new(0));
    drop(place.open::<transcript>(&world).await);
    place
        .sql()
        .execute_batch(
            "CREATE TABLE bound (bytes INTEGER);
             CREATE TRIGGER main AFTER UPDATE OF data ON snapshots BEGIN UPDATE bound SET bytes = bytes + length(CAST(new.data AS BLOB)) + 40; END;
             CREATE TRIGGER item AFTER INSERT ON stream_chunks BEGIN UPDATE bound SET bytes = bytes + length(CAST(new.data AS BLOB)) + 24; END;
             CREATE TRIGGER again AFTER UPDATE ON stream_chunks BEGIN UPDATE bound SET bytes = bytes + length(CAST(new.data AS BLOB)) + 24; END;
             CREATE TRIGGER part AFTER INSERT ON parts BEGIN UPDATE bound SET bytes = bytes + length(CAST(new.data AS BLOB)) + 24; END;
             INSERT INTO bound VALUES (0);",
        )
        .unwrap();
    let forever = place.open::<transcript>(&world).await;
    forever.spawn(transcript(170)).await.unwrap();
    let pages = || place.number("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size");
    let mut sizes = Vec::new();
    for tenth in 0..=10 {
        world.open(MESSAGES / 10 * usize::from(tenth > 0) + 10 * usize::from(tenth == 0));
        world.held().await;
        sizes.push(pages());
        let bound = place.number("SELECT bytes FROM bound");
        place.change("UPDATE bound SET bytes = 0");
        let steps = if tenth == 0 { 10 } else { 100 };
        println!("step {}: {} bytes a step bound", 10 + 100 * tenth, bound / steps);
        assert!(bound / steps < BOUND, "{} bytes a step", bound / steps);
    }
    for (n, pair) in sizes.windows(2).enumerate() {
        let growth = (pair[1] - pair[0]) / 100;
        println!("steps {}..{}: the file grew by {growth} bytes a step", 10 + 100 * n, 110 + 100 * n);
        assert!(growth < GROWTH, "{growth} bytes a step");
    }
}

/// Steps that are effects, with results of 160 bytes.
#[fiber]
async fn payments(world: Res<World>) -> anyhow::Result<String> {
    let mut receipt = "r".repeat(160);
    for n in 0..=PAYMENTS {
        let next: String = receipt.chars().skip(4).chain(format!("{n:04}").chars()).collect();
        receipt = step!("pay", effect, world.step(next).await?);
    }
    Ok(receipt)
}

const PAYMENTS: usize = 200;
/// The most bytes that an effect may add to the write-ahead log, with its checkpoint.
const EFFECT: u64 = 5500;

#[tokio::test]
async fn an_effect_writes_the_page_of_its_snapshot_twice_and_little_else() {
    let (place, world) = (Place::new(), World::new(PAYMENTS / 10));
    let forever = place.open::<payments>(&world).await;
    forever.spawn(payments()).await.unwrap();
    let log = || std::fs::metadata(place.path().with_extension("db-wal")).unwrap().len();
    world.held().await;
    let before = log();
    world.open(PAYMENTS - PAYMENTS / 10);
    world.held().await;
    let bytes = (log() - before) / (PAYMENTS - PAYMENTS / 10) as u64;
    println!("{bytes} bytes an effect");
    assert!(bytes < EFFECT, "{bytes} bytes an effect");
    assert_eq!(place.number("SELECT count(*) FROM op_ledger WHERE state = 'completed'"), i64::try_from(PAYMENTS).unwrap());
}
