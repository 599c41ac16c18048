//! Locals whose text is long: written when they change, and not otherwise.
use forever::fiber::Fiber;
use forever::prelude::*;
use serde_json::{Value, json};

use crate::support::{Place, World, run, same};

fn long(seed: &str) -> String {
    seed.repeat(20_000 / seed.len())
}

/// A long local that stays, and a short one that changes.
#[fiber]
async fn steady(world: Res<World>, text: String) -> anyhow::Result<usize> {
    let mut round = 0;
    while round < 5 {
        round = step!("round", world.step(round + 1).await?);
    }
    Ok(text.len() + round)
}

/// Which rows of the snapshot were written since the last look.
struct Watch(Place);

impl Watch {
    /// Has the database itself note down every write to the tables beside the snapshots.
    fn new(place: Place) -> Self {
        place
            .sql()
            .execute_batch(
                "CREATE TABLE written (what TEXT, name TEXT, bytes INTEGER);
                 CREATE TRIGGER part_new AFTER INSERT ON parts BEGIN INSERT INTO written VALUES ('new', new.name, length(new.data)); END;
                 CREATE TRIGGER part_changed AFTER UPDATE ON parts BEGIN INSERT INTO written VALUES ('changed', new.name, length(new.data)); END;
                 CREATE TRIGGER part_gone AFTER DELETE ON parts BEGIN INSERT INTO written VALUES ('gone', old.name, 0); END;
                 CREATE TRIGGER item_new AFTER INSERT ON stream_chunks BEGIN
                     INSERT INTO written SELECT 'item', substr(name, 5) || '.' || (new.first + key), length(value)
                     FROM streams, json_each('[' || replace(new.data, char(10), ',') || ']') WHERE seq = new.stream;
                 END;
                 CREATE TRIGGER item_gone BEFORE DELETE ON streams BEGIN
                     INSERT INTO written SELECT 'item gone', substr(old.name, 5) || '.' || (first + key), 0
                     FROM stream_chunks, json_each('[' || replace(data, char(10), ',') || ']') WHERE stream = old.seq;
                 END;
                 CREATE TRIGGER main AFTER UPDATE OF data ON snapshots BEGIN INSERT INTO written VALUES ('main', new.at, length(new.data)); END;",
            )
            .unwrap();
        Watch(place)
    }

    fn written(&self) -> Vec<String> {
        self.0.texts("DELETE FROM written RETURNING what || ' ' || name")
    }
}

/// Runs a fiber one step at a time and tells what each checkpoint has written.
async fn watched<F: Fiber>(call: F, steps: usize) -> Vec<Vec<String>> {
    let (place, world) = (Place::new(), World::new(0));
    drop(place.open::<F>(&world).await);
    let watch = Watch::new(place);
    let forever = watch.0.open::<F>(&world).await;
    forever.spawn(call).await.unwrap();
    let mut written = Vec::new();
    for _ in 0..steps {
        world.held().await;
        watch.written();
        world.open(1);
        world.held().await;
        written.push(watch.written());
    }
    written
}

#[tokio::test]
async fn a_long_local_that_stays_the_same_is_written_once() {
    let (place, world) = (Place::new(), World::new(0));
    drop(place.open::<steady>(&world).await);
    let watch = Watch::new(place);
    let forever = watch.0.open::<steady>(&world).await;
    forever.spawn(steady(long("same"))).await.unwrap();
    world.held().await;
    world.open(1);
    world.held().await;
    assert_eq!(watch.written(), ["main round", "new text"]);
    for _ in 0..2 {
        world.open(1);
        world.held().await;
        assert_eq!(watch.written(), ["main round"]);
        assert!(watch.0.number("SELECT length(data) FROM snapshots") < 100);
    }
    // Nor is it written again because another process goes on.
    drop(forever);
    world.died();
    let _forever = watch.0.open::<steady>(&world).await;
    world.open(1);
    world.held().await;
    assert_eq!(watch.written(), ["main round"]);
    assert_eq!(watch.0.document(), json!({"at": "round", "locals": {"text": long("same"), "round()": 4}, "call": null}));
}

#[tokio::test]
async fn a_fiber_of_short_locals_writes_one_row_a_step() {
    let written = watched(steady("short".into()), 4).await;
    assert!(written.iter().all(|written| *written == ["main round"]), "{written:?}");
}

/// A local that becomes long, changes, and becomes short again.
#[fiber]
async fn changing(world: Res<World>) -> anyhow::Result<usize> {
    let mut text = String::new();
    for n in 0..5 {
        text = match n {
            1 | 2 => "long".repeat(1000 + n),
            _ => "short".to_owned(),
        };
        step!(world.step(()).await?);
    }
    Ok(text.len())
}

#[tokio::test]
async fn a_part_is_written_when_it_changes_and_goes_when_it_is_short_again() {
    let written = watched(changing(), 4).await;
    let at = "main step";
    assert_eq!(written, [vec![at], vec![at, "new text"], vec![at, "changed text"], vec![at, "gone text"]]);
    let seen = same(changing).await;
    assert_eq!(seen.documents[2]["locals"]["text"], "long".repeat(1002));
    assert_eq!(seen.documents[3]["locals"]["text"], "short");
}

/// Two frames with a long local of the same name.
#[fiber]
async fn outer(world: Res<World>, text: String) -> anyhow::Result<String> {
    let first = step!("first", world.step(text.len()).await?);
    let inner = forever::call!(inner(text.to_uppercase()))?;
    step!("second", world.step(()).await?);
    step!("last", world.step(()).await?);
    Ok(format!("{first} {} {}", &text[..4], &inner[..4]))
}

#[fiber]
async fn inner(world: Res<World>, text: String) -> anyhow::Result<String> {
    let mut text = text;
    step!("a", world.step(()).await?);
    text.push('!');
    step!("b", world.step(()).await?);
    Ok(text)
}

#[tokio::test]
async fn long_locals_of_one_name_in_two_frames_are_kept_apart() {
    let text = long("text");
    let seen = same(|| outer(long("text"))).await;
    assert_eq!(seen.value, "20000 text TEXT");
    let called = &seen.documents[1];
    assert_eq!((&called["locals"]["text"], &called["call"]["locals"]["text"]), (&json!(text), &json!(text.to_uppercase())));

    let written = watched(outer(long("text")), 4).await;
    assert_eq!(written[0], ["main first", "new text"]);
    assert_eq!(written[1], ["main a", "new 1:text"]);
    // The end of the call comes before the next step.
    assert_eq!(written[2], ["main b", "changed 1:text", "main inner", "gone 1:text", "new inner"]);
    assert_eq!(written[3], ["main second"]);
}

/// Calls itself, so that as many frames have a long local of the same name.
#[fiber]
async fn deep(world: Res<World>, depth: u32) -> anyhow::Result<String> {
    let text = format!("{depth}").repeat(1000);
    step!("down", world.step(()).await?);
    let below = if depth == 0 { String::new() } else { forever::call!(deep(depth - 1))? };
    step!("up", world.did(format!("{depth}")).await?);
    Ok(format!("{}{below}", &text[..1]))
}

#[tokio::test]
async fn every_frame_of_a_recursion_has_its_own_parts() {
    let seen = same(|| deep(4)).await;
    assert_eq!((seen.value.as_str(), seen.done.len()), ("43210", 5));
    let mut frame = &seen.documents[4];
    for depth in (0..=4).rev() {
        assert_eq!(frame["locals"]["text"], format!("{depth}").repeat(1000));
        frame = &frame["call"];
    }
}

/// Names and texts that are hard to quote or look like what stands for a part.
#[fiber]
async fn odd(world: Res<World>, r#type: String) -> anyhow::Result<Vec<String>> {
    let mut all = Vec::new();
    all.push(r#type.clone() + &step!("{\"$part\":\"type\"}", world.step(String::from("{\"$part\":\"type\"}").repeat(100)).await?));
    all.push(format!("\"ä\t\u{7f}\\'{}", "}".repeat(600)) + &step!("it's", world.step("x".to_owned()).await?));
    let looks = std::collections::BTreeMap::from([("$part".to_owned(), "type".repeat(200)), ("$log".to_owned(), "1".to_owned())]);
    step!("next", world.step(()).await?);
    all.extend(looks.into_values());
    step!("last", world.step(()).await?);
    Ok(all)
}

#[tokio::test]
async fn a_value_that_looks_like_a_placeholder_is_a_value() {
    let seen = same(|| odd("{\"$part\":\"all\"}".repeat(50))).await;
    assert!(seen.value[0].starts_with("{\"$part\":\"all\"}{"));
    assert_eq!(seen.documents[0]["locals"]["r#type.clone()"], "{\"$part\":\"all\"}".repeat(50));
    // In the form of docs/guide/src/reference/format.md, in which such keys are escaped.
    let last = &seen.documents[2]["locals"];
    assert_eq!(last["looks"], json!({"$$log": "1", "$$part": "type".repeat(200)}));
    assert_eq!(last["all"].as_array().map(Vec::len), Some(2));
}

#[tokio::test]
async fn a_fiber_that_fails_keeps_its_parts() {
    #[fiber]
    async fn fails(world: Res<World>, text: String) -> anyhow::Result<()> {
        step!(world.step(()).await?);
        anyhow::bail!("{}", text.len())
    }
    let (place, world) = (Place::new(), World::new(1));
    let forever = place.open::<fails>(&world).await;
    forever.run(fails(long("text"))).await.unwrap_err();
    assert_eq!(place.document()["locals"]["text"], long("text"));
}

#[tokio::test]
async fn a_document_says_which_fiber_it_is_of() {
    let (place, world) = (Place::new(), World::new(1));
    let forever = place.open::<steady>(&world).await;
    forever.spawn(steady(long("a"))).id("mine").await.unwrap();
    world.held().await;
    assert_eq!(
        place.text("SELECT id || ' ' || name || ' ' || at || ' ' || number FROM snapshot_documents WHERE id = 'mine'"),
        "mine steady round 1"
    );
    let seen = run(steady(long("b")), false).await;
    assert!(seen.documents.iter().all(Value::is_object));
}
