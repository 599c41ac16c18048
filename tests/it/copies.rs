//! Edits, forks, exports and imports: what a person makes of a fiber that has stopped.
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use forever::fiber::{FiberExport, FiberState, History, HistoryOrigin, Log};
use forever::prelude::*;
use forever::testing::Fuse;
use forever::view::FiberView;
use forever::{Builder, ErrorKind};
use forever_testkit::database::{self, Database};
use forever_testkit::waiting::settled;
use serde_json::{Value, json};

use crate::support::stands;

/// What the functions below do outside, and whether the shop is open.
#[derive(Clone, Default)]
struct World {
    charges: Arc<AtomicU32>,
    shipped: Arc<AtomicU32>,
}

impl World {
    fn charges(&self) -> u32 {
        self.charges.load(Ordering::Relaxed)
    }

    async fn charge(&self, cents: u32) -> anyhow::Result<String> {
        tokio::task::yield_now().await;
        let n = self.charges.fetch_add(1, Ordering::Relaxed);
        Ok(format!("receipt {n} for {cents}"))
    }

    async fn ship(&self, weight: u32, limit: u32) -> anyhow::Result<u32> {
        if weight > limit {
            // The other branch comes to its end meanwhile, and is stored.
            while self.charges() == 0 {
                settled().await;
            }
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
            anyhow::bail!("{weight} is more than {limit}");
        }
        tokio::task::yield_now().await;
        self.shipped.fetch_add(1, Ordering::Relaxed);
        Ok(weight)
    }
}

/// Charges in a branch that is stored before the other one fails.
#[fiber]
async fn order(cents: u32, #[secret] card: String, world: Res<World>) -> anyhow::Result<String> {
    let weight = step!("weigh", async { cents / 10 }.await);
    let limit = step!("limit", async { weight / 2 }.await);
    let notes = step!("note", async { "n".repeat(700) }.await);
    let (receipt, shipped) = steps!(step!("charge", effect, world.charge(cents).await?), step!("ship", world.ship(weight, limit).await?),);
    let end = step!("thank", async { format!("{receipt}, {shipped} kg, {} {}", notes.len(), card.len()) }.await);
    Ok(end)
}

/// A loop, a call, a log and an effect in each round.
#[fiber]
async fn tour(stops: Vec<String>, world: Res<World>) -> anyhow::Result<String> {
    let mut log = Log::new();
    let mut spent = 0;
    for stop in &stops {
        let price = call!(priced(stop.clone()))?;
        step!("pay", effect, world.charge(price).await?);
        spent += price;
        log.push(stop.clone());
        step!("look", tokio::task::yield_now().await);
    }
    let word = recv!("word");
    let word: String = word;
    Ok(format!("{word}: {} for {spent}", log.iter().cloned().collect::<Vec<_>>().join("+")))
}

#[fiber]
async fn priced(stop: String) -> anyhow::Result<u32> {
    let letters = step!("count", async { u32::try_from(stop.len()) }.await?);
    let price = step!(
        "price",
        async {
            anyhow::ensure!(letters < 9, "{letters} letters are too many");
            anyhow::Ok(letters * 10)
        }
        .await?
    );
    Ok(price)
}

/// Fails before its first checkpoint.
#[fiber]
async fn halve(number: u32) -> anyhow::Result<u32> {
    let half = step!(
        "half",
        async {
            anyhow::ensure!(number % 2 == 0, "{number} is odd");
            anyhow::Ok(number / 2)
        }
        .await?
    );
    Ok(half)
}

fn builder(path: &Path, world: &World) -> Builder {
    let builder = Forever::builder().sqlite(path).history(History::last(100)).resource(world.clone());
    builder.fiber::<order>().fiber::<tour>().fiber::<priced>().fiber::<halve>()
}

async fn failed_order(forever: &Forever, id: &str) {
    let error = forever.spawn(order(420, "visa-secret".into())).id(id).await.unwrap().wait().await.unwrap_err();
    assert!(error.reason().contains("42 is more than 21"), "{}", error.reason());
}

/// All that is shown of a fiber.
async fn shown(forever: &Forever, id: &str) -> (FiberView, Value, Value) {
    let (ops, history) = (forever.ops(id).await.unwrap(), forever.history(id).await.unwrap());
    (forever.view(id).await.unwrap(), serde_json::to_value(ops).unwrap(), serde_json::to_value(history).unwrap())
}

#[tokio::test(start_paused = true)]
async fn failed_fiber_goes_on_with_an_edited_local_and_repeats_no_effect() {
    let (folder, world) = (tempfile::tempdir().unwrap(), World::default());
    let forever = builder(&folder.path().join("a.db"), &world).open().await.unwrap();
    failed_order(&forever, "o").await;
    let before = shown(&forever, "o").await;

    let wrong = forever.edit("o", |locals| locals.set("limit", "much")).await.unwrap_err();
    assert_eq!(wrong.kind(), ErrorKind::Value);
    assert!(wrong.to_string().contains("local `limit` saved at step `steps pending` cannot be read as `u32`"), "{wrong}");
    let unknown = forever.edit("o", |locals| locals.set("limits", &1)).await.unwrap_err();
    assert!(unknown.to_string().contains("there is no local `limits`") && unknown.to_string().contains("`limit`"), "{unknown}");
    let bad_json = forever.edit("o", |locals| locals.set_json("limit", "1,")).await.unwrap_err();
    assert_eq!(bad_json.kind(), ErrorKind::Value);
    let reference = forever.edit("o", |locals| locals.set_json("notes", r#"{"$part":"notes"}"#)).await.unwrap_err();
    assert!(reference.to_string().contains("refers to another row"), "{reference}");
    let own = forever.edit("o", |_| Err(forever::Error::new(ErrorKind::Value, "not today"))).await.unwrap_err();
    assert_eq!(own.to_string(), "not today");
    assert_eq!(forever.edit("nothing", |_| Ok(())).await.unwrap_err().kind(), ErrorKind::NotFound);
    forever.edit("o", |locals| locals.set("limit", &21)).await.unwrap();
    assert_eq!(shown(&forever, "o").await, before, "nothing was changed");

    forever
        .edit("o", |locals| {
            let limit: u32 = locals.get("limit")?;
            locals.set("limit", &(limit * 2))?;
            locals.set("notes", "short")?;
            locals.set_json("card", " \n\"1111-secret-2\"\n ")
        })
        .by("ann")
        .await
        .unwrap();
    let after = forever.view("o").await.unwrap();
    assert_eq!((after.status.state, &after.status.reason), (FiberState::Failed, &before.0.status.reason));
    forever.resume("o").await.unwrap();
    let end = forever.fiber::<order>("o").wait().await.unwrap();
    assert_eq!(end, "receipt 0 for 420, 42 kg, 5 13");
    assert_eq!((world.charges(), world.shipped.load(Ordering::Relaxed)), (1, 1));

    let history = forever.history("o").await.unwrap();
    let edits: Vec<_> = history.iter().filter_map(|entry| entry.origin.as_ref().map(|origin| (entry.number, origin))).collect();
    let [(4, HistoryOrigin::Edit { by, changes, .. })] = &edits[..] else { panic!("{edits:?}") };
    assert_eq!(by.as_deref(), Some("ann"));
    let values: Vec<_> = changes.iter().map(|c| (c.name.as_str(), c.before.clone(), c.after.clone(), c.is_secret)).collect();
    assert_eq!(values[0], ("card", None, None, true));
    assert_eq!(values[1], ("limit", Some(json!(21)), Some(json!(42)), false));
    assert_eq!((values[2].0, &values[2].2), ("notes", &Some(json!("short"))));
    assert!(!serde_json::to_string(&history).unwrap().contains("-secret"), "{history:?}");
    let completed = forever.edit("o", |locals| locals.set("limit", &1)).await.unwrap_err();
    assert_eq!(completed.kind(), ErrorKind::InvalidState);
    forever.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn arguments_are_edited_before_the_first_checkpoint() {
    let (folder, world) = (tempfile::tempdir().unwrap(), World::default());
    let forever = builder(&folder.path().join("a.db"), &world).open().await.unwrap();
    forever.spawn(halve(7)).id("h").await.unwrap().wait().await.unwrap_err();
    let wrong = forever.edit("h", |locals| locals.set("number", &-1)).await.unwrap_err();
    assert!(wrong.to_string().contains("argument `number`"), "{wrong}");
    forever.edit("h", |locals| locals.set_json("number", "\n8\n")).await.unwrap();
    forever.resume("h").await.unwrap();
    assert_eq!(forever.fiber::<halve>("h").wait().await.unwrap(), 4);
    assert!(matches!(forever.history("h").await.unwrap()[0].origin, Some(HistoryOrigin::Edit { .. })));
    forever.close().await.unwrap();
}

/// What is counted stands behind a cut point whose value is not needed.
#[fiber]
async fn counted(world: Res<World>, number: u32) -> anyhow::Result<u32> {
    step!("begin", tokio::task::yield_now().await);
    world.shipped.fetch_add(1, Ordering::Relaxed);
    let half = step!(
        "half",
        async {
            anyhow::ensure!(number % 2 == 0, "{number} is odd");
            anyhow::Ok(number / 2)
        }
        .await?
    );
    Ok(half)
}

#[tokio::test(start_paused = true)]
async fn dry_run_of_an_edit_runs_nothing_behind_the_cut_point() {
    let world = World::default();
    let forever = Forever::builder().in_memory().fiber::<counted>().resource(world.clone()).open().await.unwrap();
    forever.spawn(counted(7)).id("c").await.unwrap().wait().await.unwrap_err();
    forever.edit("c", |locals| locals.set("number", "seven")).await.unwrap_err();
    forever.edit("c", |locals| locals.set("number", &8)).await.unwrap();
    assert_eq!(world.shipped.load(Ordering::Relaxed), 1);
    forever.resume("c").await.unwrap();
    assert_eq!(forever.fiber::<counted>("c").wait().await.unwrap(), 4);
    assert_eq!(world.shipped.load(Ordering::Relaxed), 2);
    forever.close().await.unwrap();
}

/// A tour that has failed in a called function.
async fn failed_tour(forever: &Forever, id: &str) {
    let stops = ["Bonn", "Wuppertal", "Kiel"].map(str::to_owned).to_vec();
    let error = forever.spawn(tour(stops)).id(id).await.unwrap().wait().await.unwrap_err();
    assert!(error.to_string().contains("9 letters are too many"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn locals_of_called_functions_loops_and_logs_are_edited() {
    let (folder, world) = (tempfile::tempdir().unwrap(), World::default());
    let forever = builder(&folder.path().join("a.db"), &world).open().await.unwrap();
    failed_tour(&forever, "t").await;
    let before = shown(&forever, "t").await;
    let shorter = forever.edit("t", |locals| locals.set("stops", &["Bonn"])).await.unwrap_err();
    assert!(shorter.to_string().contains("was not reached"), "the loop has passed the end of the list: {shorter}");
    assert_eq!(shown(&forever, "t").await, before);
    forever
        .edit("t", |locals| {
            assert!(locals.names().any(|name| name == "1:letters"));
            assert_eq!(locals.get::<Vec<String>>("log")?, ["Bonn"]);
            locals.set("log", &["Berlin", "Bonn"])?;
            locals.set("stops", &["Bonn", "Ulm"])?;
            locals.set("1:letters", &3)
        })
        .await
        .unwrap();
    forever.resume("t").await.unwrap();
    forever.send("t", "word", "there").await.unwrap();
    let end: String = forever.fiber::<tour>("t").wait().await.unwrap();
    assert_eq!(end, "there: Berlin+Bonn+Ulm for 70");
    assert_eq!(world.charges(), 2);
    forever.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn fork_goes_on_from_the_last_checkpoint_and_leaves_the_other_fiber_as_it_is() {
    let (folder, world) = (tempfile::tempdir().unwrap(), World::default());
    let forever = builder(&folder.path().join("a.db"), &world).open().await.unwrap();
    failed_order(&forever, "o").await;
    let before = shown(&forever, "o").await;
    let wrong = forever.fork("o").id("f").edit(|locals| locals.set("limit", "much")).await.unwrap_err();
    assert_eq!(wrong.kind(), ErrorKind::Value, "{wrong}");
    assert_eq!(forever.status("f").await.unwrap_err().kind(), ErrorKind::NotFound);

    for _ in 0..2 {
        // Safe to repeat.
        let fork = forever.fork("o").id("f").edit(|locals| locals.set("limit", &50)).await.unwrap();
        assert_eq!(fork.wait().await.unwrap(), json!("receipt 0 for 420, 42 kg, 700 11"));
    }
    assert_eq!((world.charges(), world.shipped.load(Ordering::Relaxed)), (1, 1), "the effect was done");
    assert_eq!(shown(&forever, "o").await, before);
    let (of_fork, of_other) = (forever.ops("f").await.unwrap(), forever.ops("o").await.unwrap());
    assert_ne!(of_fork[0].id, of_other[0].id);
    let origin = forever.history("f").await.unwrap()[0].origin.clone().unwrap();
    assert!(matches!(&origin, HistoryOrigin::Fork { of, checkpoint: 4, .. } if of == "o"), "{origin:?}");
    for taken in ["o", "f"] {
        let conflict = forever.fork("o").at(1).id(taken).repeat_effects().await.unwrap_err();
        assert_eq!(conflict.kind(), ErrorKind::Conflict, "{conflict}");
    }
    let nameless = forever.fork("o").await.unwrap();
    nameless.wait().await.unwrap_err();
    forever.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn fork_at_an_earlier_checkpoint_repeats_effects_only_where_that_is_allowed() {
    let (folder, world) = (tempfile::tempdir().unwrap(), World::default());
    let forever = builder(&folder.path().join("a.db"), &world).open().await.unwrap();
    failed_order(&forever, "o").await;
    let op = forever.ops("o").await.unwrap().remove(0);
    let refused = forever.fork("o").at(2).id("f").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidState);
    assert!(refused.to_string().contains(&format!("`steps[charge]` ({})", op.id)), "{refused}");
    assert_eq!(world.charges(), 1);
    let fork = forever.fork("o").at(2).id("f").repeat_effects().edit(|locals| locals.set("limit", &50)).await.unwrap();
    assert_eq!(fork.wait().await.unwrap(), json!("receipt 1 for 420, 42 kg, 700 11"));
    assert_eq!(world.charges(), 2);
    assert_eq!(forever.fork("o").at(9).await.unwrap_err().kind(), ErrorKind::NotFound);

    // One that has completed, at a checkpoint with a log, after a call.
    failed_tour(&forever, "t").await;
    forever.edit("t", |locals| locals.set("1:letters", &3)).await.unwrap();
    forever.resume("t").await.unwrap();
    forever.send("t", "word", "there").await.unwrap();
    forever.fiber::<tour>("t").wait().await.unwrap();
    assert_eq!(forever.fork("t").await.unwrap_err().kind(), ErrorKind::InvalidState, "its snapshot is gone");
    let history = forever.history("t").await.unwrap();
    let early = history.iter().find(|entry| entry.at == "count").unwrap().number;
    let fork = forever.fork("t").at(early).id("t2").repeat_effects().edit(|locals| locals.set("stops", &["Bonn", "Ulm"])).await.unwrap();
    forever.send("t2", "word", "again").await.unwrap();
    assert_eq!(fork.wait().await.unwrap(), json!("again: Bonn+Ulm for 70"));
    forever.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn exported_fiber_goes_on_in_another_database_without_its_secrets() {
    let (folder, world) = (tempfile::tempdir().unwrap(), World::default());
    let here = builder(&folder.path().join("a.db"), &world).open().await.unwrap();
    failed_order(&here, "o").await;
    let before = shown(&here, "o").await;
    let export = here.export("o").await.unwrap();
    assert_eq!((export.id(), export.name(), export.state()), ("o", "order", FiberState::Failed));
    let withheld: Vec<&str> = export.withheld().collect();
    assert_eq!(withheld, ["card", "history"]);
    let text = serde_json::to_string_pretty(&export).unwrap();
    assert!(!text.contains("visa"), "{text}");
    assert_eq!(shown(&here, "o").await, before);

    let there = builder(&folder.path().join("b.db"), &world).open().await.unwrap();
    let export: FiberExport = serde_json::from_str(&text).unwrap();
    for _ in 0..2 {
        let imported = there.import(export.clone()).await.unwrap();
        assert_eq!(imported.status().await.unwrap().state, FiberState::Failed);
    }
    let lacking = there.edit("o", |locals| locals.set("limit", &50)).await.unwrap_err();
    assert!(lacking.to_string().contains("local `card`"), "what was withheld has to be set: {lacking}");
    there.edit("o", |locals| locals.set("limit", &50).and_then(|()| locals.set("card", "1234"))).await.unwrap();
    there.resume("o").await.unwrap();
    assert_eq!(there.fiber::<order>("o").wait().await.unwrap(), "receipt 0 for 420, 42 kg, 700 4");
    assert_eq!(world.charges(), 1, "what it has done is done");

    // Under another id, in the same database.
    let again = here.import(export.clone()).id("o2").await.unwrap();
    here.edit("o2", |locals| locals.set("limit", &50).and_then(|()| locals.set("card", "12"))).await.unwrap();
    again.resume().await.unwrap();
    assert_eq!(again.wait().await.unwrap(), json!("receipt 0 for 420, 42 kg, 700 2"));
    assert_eq!(here.import(export).await.unwrap_err().kind(), ErrorKind::Conflict, "it is there");
    here.close().await.unwrap();
    there.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn waiting_fiber_moves_with_its_log_and_its_messages() {
    let (folder, world) = (tempfile::tempdir().unwrap(), World::default());
    let here = builder(&folder.path().join("a.db"), &world).open().await.unwrap();
    let stops = ["Bonn", "Ulm"].map(str::to_owned).to_vec();
    let handle = here.spawn(tour(stops)).id("t").key("k").metadata(json!({ "by": "ann" })).await.unwrap();
    stands(&handle, FiberState::Waiting).await;
    here.close().await.unwrap();
    // The code is not needed to take it out.
    let here = Forever::builder().sqlite(folder.path().join("a.db")).open_idle().await.unwrap();
    let text = serde_json::to_string(&here.export("t").await.unwrap()).unwrap();
    here.close().await.unwrap();

    let there = builder(&folder.path().join("b.db"), &world).open().await.unwrap();
    let stopped = there.import(serde_json::from_str(&text).unwrap()).id("stopped").await.unwrap().status().await.unwrap();
    assert!(stopped.reason.unwrap().contains("it was waiting where it came from"));
    assert_eq!((stopped.state, stopped.key), (FiberState::Failed, None));
    let imported = there.import(serde_json::from_str(&text).unwrap()).resume().await.unwrap();
    there.send("t", "word", "there").await.unwrap();
    assert_eq!(imported.wait().await.unwrap(), json!("there: Bonn+Ulm for 70"));
    assert_eq!(world.charges(), 2);
    let status = there.status("t").await.unwrap();
    assert_eq!((status.key.as_deref(), status.metadata), (Some("k"), Some(json!({ "by": "ann" }))));
    there.close().await.unwrap();
}

/// Something that is wrong with an export.
type Damage = fn(&mut Value);

#[tokio::test(start_paused = true)]
async fn damaged_exports_are_refused() {
    let (folder, world) = (tempfile::tempdir().unwrap(), World::default());
    let forever = builder(&folder.path().join("a.db"), &world).open().await.unwrap();
    failed_tour(&forever, "t").await;
    let export = serde_json::to_value(forever.export("t").await.unwrap()).unwrap();
    let damage: [(&str, Damage); 6] = [
        ("version 2 of an export", |export| export["forever_export"] = json!(2)),
        ("the snapshot cannot be read", |export| export["snapshot"]["main"] = json!({ "at": 1 })),
        ("is missing", |export| export["layouts"] = json!([])),
        ("is not the one of this hash", |export| export["layouts"][0]["hash"] = json!("0".repeat(32))),
        ("is not a kind of operation", |export| export["ops"][0]["kind"] = json!("wish")),
        ("must not be empty or blank", |export| export["fiber"]["id"] = json!(" ")),
    ];
    for (reason, damage) in damage {
        let mut export = export.clone();
        damage(&mut export);
        let error = forever.import(serde_json::from_value(export).unwrap()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Value, "{error}");
        assert!(error.to_string().contains(reason), "{reason}: {error}");
    }
    assert_eq!(forever.fibers().await.unwrap().fibers.len(), 1, "nothing was stored");
    forever.close().await.unwrap();
}

/// Writes of an open, a command, and the run of its fiber, at each of which the process dies once.
async fn dies_at_each_write(from: &Path, command: impl AsyncFn(&Forever) -> forever::Result<()>, check: impl AsyncFn(&Forever, &World)) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let copied = async || {
        for end in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(format!("{}{end}", path.display()));
        }
        database::copy(from, &path).await;
    };
    copied().await;
    let (whole, world) = (Fuse::never(), World::default());
    let forever = builder(&path, &world).fuse(whole.clone()).open().await.unwrap();
    command(&forever).await.unwrap();
    check(&forever, &world).await;
    forever.close().await.unwrap();
    let writes = whole.writes();
    assert!(writes >= 4, "there are {writes}");
    for write in 1..=writes {
        for fuse in [Fuse::before(write), Fuse::after(write)] {
            copied().await;
            let world = World::default();
            let dying = async {
                let forever = builder(&path, &world).fuse(fuse.clone()).open().await?;
                command(&forever).await?;
                check(&forever, &world).await;
                forever.close().await
            };
            tokio::select! {
                _ = dying => {}
                () = fuse.blown() => {}
            }
            let forever = builder(&path, &world).open().await.unwrap();
            command(&forever).await.unwrap();
            check(&forever, &world).await;
            forever.close().await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn edit_and_fork_that_die_at_any_write_are_done_whole_or_not_at_all() {
    let (folder, world) = (tempfile::tempdir().unwrap(), World::default());
    let path = folder.path().join("a.db");
    let forever = builder(&path, &world).open().await.unwrap();
    failed_order(&forever, "o").await;
    let before = shown(&forever, "o").await;
    forever.close().await.unwrap();

    let raised = async |forever: &Forever| {
        let there = forever.status("o").await?;
        if there.state == FiberState::Failed {
            forever.edit("o", |locals| locals.set("limit", &50)).by("ann").await?;
            forever.resume("o").await?;
        }
        forever.fiber::<order>("o").wait().await.map(drop).map_err(|why| forever::Error::new(ErrorKind::Value, why.to_string()))
    };
    dies_at_each_write(&path, raised, async |forever, world| {
        assert_eq!(world.charges(), 0, "the effect was done before");
        assert_eq!(forever.status("o").await.unwrap().state, FiberState::Completed);
        let edits = forever.history("o").await.unwrap().into_iter().filter(|entry| entry.origin.is_some()).count();
        assert_eq!(edits, 1, "it is recorded once");
    })
    .await;

    let forked = async |forever: &Forever| {
        let fork = forever.fork("o").id("f").edit(|locals| locals.set("limit", &50)).await?;
        fork.wait().await.map(drop).map_err(|why| forever::Error::new(ErrorKind::Value, why.to_string()))
    };
    dies_at_each_write(&path, forked, async |forever, world| {
        assert_eq!(world.charges(), 0, "the effect was done before");
        assert_eq!(forever.status("f").await.unwrap().state, FiberState::Completed);
        assert_eq!(shown(forever, "o").await, before, "the other fiber is not touched");
    })
    .await;
}

/// Its page grows by a line at each step, and fails at last.
#[fiber]
async fn writes(lines: u32) -> anyhow::Result<usize> {
    let mut page = "é\n".repeat(3_000);
    for line in 0..lines {
        page = step!("write", format!("{page}line {line} \"of\" {lines}\n"));
    }
    anyhow::ensure!(lines == 0, "not printed");
    Ok(page.len())
}

#[tokio::test(start_paused = true)]
async fn history_of_a_long_value_has_what_changed_and_is_whole_in_an_export() {
    let folder = tempfile::tempdir().unwrap();
    let builder = |name: &str| Forever::builder().sqlite(folder.path().join(name)).fiber::<writes>();
    let (here, there) = (builder("a.db").open().await.unwrap(), builder("b.db").open().await.unwrap());
    here.spawn(writes(50)).id("w").await.unwrap().wait().await.unwrap_err();
    let stored = Database::open(folder.path().join("a.db")).number("SELECT sum(length(data)) FROM stream_log WHERE name = 'history'");
    assert!(stored < 5 * 9_000, "{stored} bytes for 50 checkpoints with 9 KB");

    let export = serde_json::to_value(here.export("w").await.unwrap()).unwrap();
    // As after a formatter, which may also write its texts in another way.
    let formatted = serde_json::to_string_pretty(&export).unwrap().replace('é', "\\u00e9");
    there.import(serde_json::from_str(&formatted).unwrap()).await.unwrap();
    let (before, after) = (here.history("w").await.unwrap(), there.history("w").await.unwrap());
    assert_eq!((before.len(), &after[..before.len()]), (50, &before[..]));
    for entry in &before {
        // But for the lengths of their texts, which are other ones where `é` is escaped.
        let at = async |forever: &Forever| {
            let frames = forever.locals_at("w", entry.number).await.unwrap();
            let locals = frames.into_iter().flat_map(|frame| frame.locals);
            locals.map(|local| (local.name, local.value.value)).collect::<Vec<_>>()
        };
        assert_eq!(at(&there).await, at(&here).await, "checkpoint {}", entry.number);
    }

    here.fork("w").at(25).id("half").await.unwrap().wait().await.unwrap_err();
    let forked = here.history("half").await.unwrap().last().unwrap().number;
    for (id, number, lines) in [("w", 1, 1), ("w", 25, 25), ("w", 50, 50), ("half", forked, 50)] {
        let frames = here.locals_at(id, number).await.unwrap();
        let page = frames[0].locals.iter().find(|local| local.name == "write()").unwrap();
        let expected: Vec<String> = (0..lines).map(|line| format!("line {line} \"of\" 50\n")).collect();
        assert_eq!(page.value.value, Some(json!("é\n".repeat(3_000) + &expected.concat())), "{id} at {number}");
    }
    here.close().await.unwrap();
    there.close().await.unwrap();
}
