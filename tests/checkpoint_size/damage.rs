//! Rows that somebody has damaged: the fiber is parked with a reason, nothing is lost, and mended rows let it go on.
use forever::fiber::Log;
use forever::prelude::*;

use crate::support::{Place, World};

#[fiber]
async fn keeps(world: Res<World>, text: String) -> anyhow::Result<String> {
    let mut log = Log::new();
    for n in 0..3 {
        log.push(format!("item {n}"));
        step!("round", world.step(()).await?);
    }
    Ok(format!("{} {}", text.len(), log.join(", ")))
}

/// Stops a fiber before its third step, does the damage, looks at the reason, mends it.
async fn parks(damage: &str, why: &str, mend: &str) {
    let (place, world) = (Place::new(), World::new(2));
    let forever = place.open::<keeps>(&world).await;
    forever.spawn(keeps("t".repeat(1000))).id("f").await.unwrap();
    world.held().await;
    drop(forever);
    world.died();
    place
        .sql()
        .execute_batch("CREATE TABLE parts_before AS SELECT * FROM parts; CREATE TABLE items_before AS SELECT * FROM stream_chunks")
        .unwrap();
    assert_eq!(place.change(damage), 1, "{damage}");
    let all = "SELECT group_concat(name || data) || (SELECT coalesce(group_concat(first || data), '') FROM stream_chunks) FROM
               (SELECT name, data FROM parts UNION ALL SELECT 'main', data FROM snapshots)";
    let damaged = place.text(all);
    for _ in 0..2 {
        let forever = place.open::<keeps>(&world).await;
        let error = forever.fiber::<keeps>("f").wait().await.unwrap_err();
        assert!(error.is_parked(), "{error}");
        assert!(error.reason().contains(why), "{}", error.reason());
        forever.close().await.unwrap();
        assert_eq!(place.text(all), damaged, "a damaged row was touched");
    }
    assert_eq!(place.change(mend), 1, "{mend}");
    world.open(1);
    let forever = place.open::<keeps>(&world).await;
    assert_eq!(forever.fiber::<keeps>("f").wait().await.unwrap(), "1000 item 0, item 1, item 2");
}

#[tokio::test]
async fn a_missing_part_parks() {
    let why = "local `text` at `round` is not stored: there is no part \"text\"";
    parks("DELETE FROM parts", why, "INSERT INTO parts SELECT * FROM parts_before").await;
}

#[tokio::test]
async fn a_part_that_is_not_json_parks() {
    let why = "local `text` at `round` cannot be read: the part \"text\" is not JSON: ";
    parks("UPDATE parts SET data = '\"t'", why, "UPDATE parts SET data = (SELECT data FROM parts_before)").await;
}

#[tokio::test]
async fn a_part_of_another_type_parks() {
    let why = "local `text` saved at step `round` cannot be read as `String`";
    parks("UPDATE parts SET data = '7'", why, "UPDATE parts SET data = (SELECT data FROM parts_before)").await;
}

#[tokio::test]
async fn a_missing_item_parks() {
    let mend = "INSERT INTO stream_chunks SELECT * FROM items_before WHERE first = ";
    let why = "local `log` saved at step `round` cannot be read as";
    parks("DELETE FROM stream_chunks WHERE first = 0", why, &format!("{mend}0")).await;
    parks("DELETE FROM stream_chunks WHERE first = 1", "of the 2 items of log 0 only 1 are stored", &format!("{mend}1")).await;
}

#[tokio::test]
async fn an_item_that_is_not_json_parks() {
    let mend = "UPDATE stream_chunks SET data = '\"item 1\"' WHERE first = 1";
    parks("UPDATE stream_chunks SET data = '\"item' WHERE first = 1", "at `[1]`: string without an end", mend).await;
    parks("UPDATE stream_chunks SET data = '\"item 1\" 7' WHERE first = 1", "at `[1]`: more text than one value", mend).await;
    parks("UPDATE stream_chunks SET data = '{}' WHERE first = 1", "at `[1]`: invalid type", mend).await;
}

#[tokio::test]
async fn items_that_no_snapshot_names_are_not_seen() {
    let (place, world) = (Place::new(), World::new(2));
    let forever = place.open::<keeps>(&world).await;
    forever.spawn(keeps("t".repeat(1000))).id("f").await.unwrap();
    world.held().await;
    drop(forever);
    world.died();
    // As if items and snapshot were not stored together.
    place.change("INSERT INTO stream_chunks SELECT stream, 2, 1, '\"from nowhere\"', 0 FROM stream_chunks LIMIT 1");
    place.change("INSERT INTO streams (seq, fiber, name) SELECT 1000, fiber, 'log/7' FROM streams LIMIT 1");
    place.change("INSERT INTO stream_chunks VALUES (1000, 0, 1, '\"of nobody\"', 0)");
    let before = place.document();
    assert_eq!(before["locals"]["log"], serde_json::json!(["item 0", "item 1"]));
    let forever = place.open::<keeps>(&world).await;
    world.open(1);
    assert_eq!(forever.fiber::<keeps>("f").wait().await.unwrap(), "1000 item 0, item 1, item 2");
}

#[tokio::test]
async fn a_log_named_twice_goes_on_as_two() {
    #[fiber]
    async fn two(world: Res<World>) -> anyhow::Result<String> {
        let (mut a, mut b) = (Log::new(), Log::new());
        a.push(1);
        b.push(2);
        step!("one", world.step(()).await?);
        a.push(3);
        b.push(4);
        step!("two", world.step(()).await?);
        step!("three", world.step(()).await?);
        Ok(format!("{a:?} {b:?}"))
    }
    let (place, world) = (Place::new(), World::new(1));
    let forever = place.open::<two>(&world).await;
    forever.spawn(two()).id("f").await.unwrap();
    world.held().await;
    drop(forever);
    world.died();
    assert_eq!(place.change("UPDATE snapshots SET data = replace(data, '\"$log\":1', '\"$log\":0')"), 1);
    let forever = place.open::<two>(&world).await;
    world.open(1);
    world.held().await;
    drop(forever);
    world.died();
    world.open(1);
    let forever = place.open::<two>(&world).await;
    assert_eq!(forever.fiber::<two>("f").wait().await.unwrap(), "[1, 3] [1, 4]");
}

#[tokio::test]
async fn a_position_behind_the_end_of_a_loop_parks_and_nothing_behind_the_loop_runs() {
    #[fiber]
    async fn walks(world: Res<World>, items: Vec<u32>) -> anyhow::Result<u32> {
        let mut sum = 0;
        for item in &items {
            sum += step!("walk", world.step(*item).await?);
        }
        world.did("behind").await?;
        Ok(sum)
    }
    let (place, world) = (Place::new(), World::new(2));
    let forever = place.open::<walks>(&world).await;
    forever.spawn(walks(vec![1, 2, 3])).id("f").await.unwrap();
    world.held().await;
    drop(forever);
    world.died();
    assert_eq!(place.change("UPDATE snapshots SET data = replace(data, '\"items at\":1', '\"items at\":9')"), 1);
    world.open(9);
    let forever = place.open::<walks>(&world).await;
    let error = forever.fiber::<walks>("f").wait().await.unwrap_err();
    assert!(error.is_parked() && error.reason().starts_with("step `walk` of `walks` was not reached"), "{error}");
    assert!(world.done().is_empty(), "nothing behind the loop has run");
    drop(forever);
    assert_eq!(place.change("UPDATE snapshots SET data = replace(data, '\"items at\":9', '\"items at\":1')"), 1);
    let forever = place.open::<walks>(&world).await;
    assert_eq!(forever.fiber::<walks>("f").wait().await.unwrap(), 6);
    assert_eq!(world.done(), ["behind"]);
}
