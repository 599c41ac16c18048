//! Each kind of fiber comes through the end of its process at every write, in memory and in a file.
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use forever::Builder;
use forever::fiber::{History, Log};
use forever::ops::{OpResolution, OpState};
use forever::prelude::*;
use forever::testing::{Survived, World, crash_everywhere};
use forever_testkit::{database, sizes};

/// In memory and in a file, at every write and at random ones; in the gate the file has ten of each.
pub(crate) async fn comes_through<R: Debug + PartialEq>(
    setup: impl Fn(&World) -> Builder,
    call: impl AsyncFn(Forever) -> R,
) -> Survived<R> {
    let in_memory = crash_everywhere(|world| setup(world).in_memory(), &call).crash_randomly(1, sizes::crashes(60)).await.unwrap();
    let in_file = crash_everywhere(|world| setup(world).sqlite(world.database()), &call)
        .crash_randomly(2, sizes::crashes(30))
        .at_most(sizes::at_most(10))
        .await
        .unwrap();
    assert_eq!(in_memory.outcome, in_file.outcome);
    // At each write on both sides, and closed there, unless a run has made fewer of them than the whole one; over a server at some.
    let enough = |survived: &Survived<R>, is_sample: bool| match survived {
        Survived { deaths, closes, .. } if is_sample => *deaths >= 10 && *closes >= 5,
        Survived { writes, deaths, closes, .. } => *deaths >= 2 * writes && closes >= writes,
    };
    let over_server = database::is_in_postgres();
    assert!(enough(&in_memory, over_server) && enough(&in_file, over_server || !sizes::is_night()), "{in_memory:?} {in_file:?}");
    let (memory, file) = (&in_memory, &in_file);
    println!("writes={} deaths_in_memory={} deaths_in_files={}", memory.writes, memory.deaths, file.deaths);
    println!("closes_in_memory={} closes_in_files={}", memory.closes, file.closes);
    in_memory
}

/// A bank of its own for each world: it knows its charges by their ids.
#[derive(Clone, Debug, Default)]
struct Bank(Arc<Mutex<BTreeMap<String, u64>>>);

impl Bank {
    fn of(world: &World) -> Self {
        world.shared()
    }

    /// Makes a charge for whoever asks once and no more.
    fn charge_once(&self, world: &World, id: &str, order: u64) -> u64 {
        world.effect(format!("request for order {order}"));
        self.charge(world, id, order)
    }

    fn charge(&self, world: &World, id: &str, order: u64) -> u64 {
        let new = self.0.lock().unwrap().insert(id.to_owned(), order).is_none();
        if new {
            world.effect(format!("charge for order {order}"));
        }
        100 + order
    }

    fn find(&self, id: &str) -> Option<u64> {
        self.0.lock().unwrap().get(id).map(|order| 100 + order)
    }
}

pub(crate) fn noted(world: &World, what: &str, value: u64) -> u64 {
    world.attempt(format!("{what} {value}"));
    value
}

#[fiber]
async fn loops(world: Res<World>, rounds: u32) -> anyhow::Result<u64> {
    let mut sum = 0;
    for round in 0..rounds {
        sum += step!("add", noted(&world, "add", u64::from(round)));
        if round % 2 == 1 {
            sum *= call!(doubled(sum))?;
        }
    }
    Ok(step!("last", noted(&world, "last", sum)))
}

#[fiber]
async fn doubled(world: Res<World>, of: u64) -> anyhow::Result<u64> {
    let twice = step!("twice", noted(&world, "twice", of * 2));
    Ok(step!("once more", noted(&world, "once more", twice)))
}

#[tokio::test]
async fn steps_loops_and_calls() {
    let setup = |world: &World| Forever::builder().resource(world.clone()).fiber::<loops>().fiber::<doubled>();
    let survived = comes_through(setup, async |forever: Forever| {
        let handle = forever.spawn(loops(4)).key("once").await.unwrap();
        handle.wait().await.unwrap()
    })
    .await;
    assert!(survived.deaths > if database::is_in_postgres() { 8 } else { 40 }, "{survived:?}");
}

#[tokio::test]
async fn each_checkpoint_is_in_the_history() {
    let setup = |world: &World| Forever::builder().resource(world.clone()).history(History::all()).fiber::<loops>().fiber::<doubled>();
    let survived = comes_through(setup, async |forever: Forever| {
        let handle = forever.spawn(loops(8)).key("once").await.unwrap();
        let sum = handle.wait().await.unwrap();
        let history = forever.history(handle.id()).await.unwrap();
        (sum, history.into_iter().map(|entry| (entry.number, entry.at)).collect::<Vec<_>>())
    })
    .await;
    let numbers: Vec<u64> = survived.outcome.1.iter().map(|(number, _)| *number).collect();
    // Eight steps and the last one, and three checkpoints of each of four calls.
    assert_eq!(numbers, (1..=21).collect::<Vec<_>>());
}

/// Fails for good after some rounds.
#[fiber]
async fn fails(world: Res<World>) -> anyhow::Result<u64> {
    let mut tries = 0;
    loop {
        tries += step!("try", retry = Retry::times(3).backoff(Backoff::fixed(Duration::ZERO)), |op| {
            if op.attempt() < 2 {
                anyhow::bail!("not yet")
            }
            noted(&world, "try", tries);
            1
        });
        if tries == 2 {
            anyhow::bail!("it is over after {tries}");
        }
    }
}

#[tokio::test]
async fn retries_and_a_failure() {
    let setup = |world: &World| Forever::builder().resource(world.clone()).fiber::<fails>();
    let survived = comes_through(setup, async |forever: Forever| {
        let handle = forever.spawn(fails()).id("fails").await.unwrap();
        handle.wait().await.unwrap_err().reason().to_owned()
    })
    .await;
    assert_eq!(survived.outcome, "it is over after 2");
}

#[fiber]
async fn side_by_side(world: Res<World>) -> anyhow::Result<Vec<u64>> {
    let (a, b) = steps!(noted(&world, "a", 1), noted(&world, "b", 2));
    let all = steps!(for n in 3..7u64, limit = 2, noted(&world, "each", n));
    Ok([vec![a, b], all].concat())
}

#[tokio::test]
async fn steps_side_by_side() {
    let setup = |world: &World| Forever::builder().resource(world.clone()).fiber::<side_by_side>();
    let survived = comes_through(setup, async |forever: Forever| {
        let handle = forever.spawn(side_by_side()).key("once").await.unwrap();
        handle.wait().await.unwrap()
    })
    .await;
    assert_eq!(survived.outcome, [1, 2, 3, 4, 5, 6]);
}

#[fiber]
async fn by_retry(world: Res<World>, order: u64) -> anyhow::Result<u64> {
    let receipt = step!("charge", effect, on_unknown = OnUnknown::Retry, |op| Bank::of(&world).charge(&world, op.id(), order));
    Ok(step!("note", noted(&world, "note", receipt)))
}

#[fiber]
async fn by_check(world: Res<World>, order: u64) -> anyhow::Result<u64> {
    let check = OnUnknown::check(async |op| Ok::<_, anyhow::Error>(Bank::of(&world).find(op.id())));
    let receipt = step!("charge", effect, key = &order, on_unknown = check, |op| Bank::of(&world).charge_once(&world, op.id(), order));
    Ok(step!("note", noted(&world, "note", receipt)))
}

#[fiber]
async fn by_park(world: Res<World>, order: u64) -> anyhow::Result<u64> {
    let receipt = step!("charge", effect, |op| Bank::of(&world).charge_once(&world, op.id(), order));
    Ok(step!("note", noted(&world, "note", receipt)))
}

#[fiber]
async fn by_hand(ctx: &FiberContext, world: Res<World>, orders: u64) -> anyhow::Result<u64> {
    let mut sum = 0;
    for order in 0..orders {
        let (bank, world) = (Bank::of(&world), World::clone(&world));
        let known = OnUnknown::Retry;
        let charge = ctx.op("charge", order, async |op| Ok::<_, anyhow::Error>(bank.charge(&world, op.id(), order)));
        sum += step!("charge", charge.on_unknown(known).await?);
    }
    Ok(sum)
}

#[tokio::test]
async fn effects_are_carried_out_once_under_each_policy() {
    let setup =
        |w: &World| Forever::builder().resource(w.clone()).fiber::<by_retry>().fiber::<by_check>().fiber::<by_park>().fiber::<by_hand>();
    let survived =
        comes_through(setup, async |forever: Forever| forever.spawn(by_retry(1)).id("order").await.unwrap().wait().await.unwrap()).await;
    assert_eq!(survived.outcome, 101);
    let survived =
        comes_through(setup, async |forever: Forever| forever.spawn(by_check(2)).id("order").await.unwrap().wait().await.unwrap()).await;
    assert_eq!(survived.outcome, 102);
    let survived =
        comes_through(setup, async |forever: Forever| forever.spawn(by_hand(3)).id("order").await.unwrap().wait().await.unwrap()).await;
    assert_eq!(survived.outcome, 303);
}

#[tokio::test]
async fn an_effect_that_parks_is_carried_out_once_if_somebody_looks() {
    let bank = Mutex::new(Bank::default());
    let setup = |w: &World| {
        *bank.lock().unwrap() = Bank::of(w);
        Forever::builder().resource(w.clone()).fiber::<by_park>()
    };
    comes_through(setup, async |forever: Forever| {
        let handle = forever.spawn(by_park(7)).id("order").await.unwrap();
        loop {
            match handle.wait().await {
                Err(stopped) if stopped.is_parked() => {
                    let op = forever.ops("order").await.unwrap().remove(0);
                    let found = bank.lock().unwrap().find(&op.id);
                    let how = found.map_or(OpResolution::NotExecuted, |receipt| OpResolution::completed(&receipt).unwrap());
                    assert_eq!(op.state, OpState::Started);
                    forever.resolve_op(&op.id, how).await.unwrap();
                }
                ended => break ended.unwrap(),
            }
        }
    })
    .await;
}

#[fiber]
async fn books(ctx: &FiberContext, names: Vec<String>) -> anyhow::Result<i64> {
    let mut last = 0;
    for name in names {
        last = step!("book", book(ctx, name).await?);
    }
    Ok(last)
}

async fn book(ctx: &FiberContext, name: String) -> anyhow::Result<i64> {
    ctx.transaction("book", move |tx| {
        tx.execute("INSERT INTO bookings (name) VALUES (?1)", [&name])?;
        Ok::<_, anyhow::Error>(tx.last_insert_rowid())
    })
    .await
}

#[tokio::test]
async fn transactions_of_the_program_are_committed_once() {
    let table = "CREATE TABLE bookings (n INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT) STRICT";
    let setup = |_: &World| Forever::builder().migration("bookings", table).fiber::<books>();
    let survived = comes_through(setup, async |forever: Forever| {
        let last = forever.spawn(books(["ada", "grace", "mary"].map(str::to_owned).into())).key("k").await.unwrap().wait().await.unwrap();
        let all = forever.transaction(|tx| {
            Ok::<_, anyhow::Error>(tx.query_row("SELECT group_concat(name) FROM bookings", (), |r| r.get::<_, String>(0))?)
        });
        (last, all.await.unwrap())
    })
    .await;
    assert_eq!(survived.outcome, (3, "ada,grace,mary".to_owned()));
}

/// What is long or append-only stands in rows of its own.
#[fiber]
async fn keeps_much(rounds: u32) -> anyhow::Result<usize> {
    let text = step!("long", "many words ".repeat(500));
    let mut log = Log::new();
    for round in 0..rounds {
        let line = step!("line", format!("line {round}"));
        log.push(line);
    }
    Ok(text.len() + log.len())
}

#[tokio::test]
async fn long_locals_and_logs() {
    let setup = |_: &World| Forever::builder().fiber::<keeps_much>();
    let survived =
        comes_through(setup, async |forever: Forever| forever.spawn(keeps_much(4)).key("k").await.unwrap().wait().await.unwrap()).await;
    assert_eq!(survived.outcome, 5500 + 4);
}

/// Sums up what effects give: by themselves, and in branches with options.
#[fiber]
async fn sums_up(world: Res<World>, bank: Res<Bank>) -> anyhow::Result<u64> {
    let retry = Retry::times(1).backoff(Backoff::none());
    let mut total = 0;
    for order in 1..3 {
        let check = OnUnknown::check(async |op| bank.find(op.id()));
        total += step!("charge", effect, on_unknown = check, |op| bank.charge_once(&world, op.id(), order));
    }
    let (a, b) = steps!(
        step!("a", effect, on_unknown = OnUnknown::Retry, |op| bank.charge(&world, op.id(), 3)),
        step!("b", retry = retry, catch, {
            noted(&world, "b", total);
            anyhow::bail!("never")
        }),
    );
    let b: Result<u64, StepError> = b;
    total += a + b.unwrap_err().attempts() as u64;
    let all = steps!(for order in 4..7, limit = 2, effect, key = order, on_unknown = OnUnknown::check(async |op| bank.find(op.id())), catch, |op| {
        bank.charge_once(&world, op.id(), order)
    });
    for charged in all {
        total += charged?;
    }
    Ok(step!("last", noted(&world, "last", total)))
}

#[tokio::test]
async fn effects_with_and_without_branches_are_summed_up() {
    let setup = |world: &World| Forever::builder().resource(world.clone()).resource(Bank::of(world)).fiber::<sums_up>();
    let survived = comes_through(setup, async |forever: Forever| {
        let handle = forever.spawn(sums_up()).key("once").await.unwrap();
        handle.wait().await.unwrap()
    })
    .await;
    assert_eq!(survived.outcome, (101 + 102) + 103 + 2 + (104 + 105 + 106));
}
