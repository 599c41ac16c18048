//! Several workers over a modelled store, with crashes, pauses and partitions: programs that come through
//! [`forever::testing::cluster`], programs that do not, and stores with a defect.
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use forever::prelude::*;
use forever::Builder;
use forever::testing::{World, cluster};

use crate::kinds::noted;

const MINUTE: Duration = Duration::from_secs(60);

/// How many times as many seeds there are as usual: `FOREVER_CRASHES`.
fn seeds(usual: u32) -> u32 {
    usual * std::env::var("FOREVER_CRASHES").map_or(1, |text| text.parse::<u32>().expect("FOREVER_CRASHES"))
}

/// A bank that knows its charges by their ids.
#[derive(Clone, Debug, Default)]
struct Bank(Arc<Mutex<BTreeMap<String, u64>>>);

impl Bank {
    fn charge(&self, world: &World, id: &str, cents: u64) -> u64 {
        if self.0.lock().unwrap().insert(id.to_owned(), cents).is_none() {
            world.effect(format!("charge of {cents}"));
        }
        cents
    }
}

#[fiber]
async fn order(world: Res<World>, bank: Res<Bank>, items: u64) -> anyhow::Result<u64> {
    let mut sum = 0;
    for item in 1..=items {
        sum += step!("price", noted(&world, "price", item * 10));
    }
    let (a, b) = steps!(noted(&world, "packed", 1), noted(&world, "labelled", 2));
    let charged = step!("charge", effect, on_unknown = OnUnknown::Retry, |op| bank.charge(&world, op.id(), sum));
    sleep!(MINUTE);
    Ok(step!("ship", noted(&world, "ship", charged + a + b)))
}

#[fiber]
async fn part(world: Res<World>, name: String) -> anyhow::Result<String> {
    let loud = step!("loud", name.to_uppercase());
    sleep!(MINUTE / 2);
    noted(&world, &loud, 1);
    Ok(step!("twice", loud.repeat(2)))
}

#[fiber]
async fn whole(names: Vec<String>) -> anyhow::Result<Vec<String>> {
    let mut children = Vec::new();
    for name in names {
        children.push(spawn!(part(name)));
    }
    let mut all = Vec::new();
    for ended in wait_all!(children) {
        all.push(ended?);
    }
    Ok(all)
}

#[fiber]
async fn listens(world: Res<World>, of: usize) -> anyhow::Result<Vec<String>> {
    let mut heard = vec![];
    while heard.len() < of {
        let word: Option<String> = recv!("word", timeout = MINUTE * 60);
        let Some(word) = word else { break };
        heard.push(step!("heard", word.to_uppercase()));
        noted(&world, "heard", heard.len() as u64);
    }
    Ok(heard)
}

/// Calls of the program panic when a fault hinders them, and are repeated. That is not shown.
fn hide_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let in_test = panic.location().is_some_and(|at| at.file().ends_with("crash/cluster.rs"));
            let text = panic.payload_as_str().unwrap_or_default();
            if !in_test || text.contains(", 3 workers") || !text.contains("`Result::unwrap()`") {
                before(panic);
            }
        }));
    });
}

fn shop(world: &World) -> Builder {
    let builder = Forever::builder().resource(world.clone()).resource(world.shared::<Bank>());
    builder.fiber::<order>().fiber::<part>().fiber::<whole>().fiber::<listens>()
}

async fn trade(forever: Forever) -> (Vec<u64>, Vec<String>, Vec<String>) {
    let mut orders = Vec::new();
    for items in 2..5 {
        orders.push(forever.spawn(order(items)).key(format!("order {items}")).await.unwrap());
    }
    let whole = forever.spawn(whole(["ada", "grace"].map(str::to_owned).to_vec())).key("whole").await.unwrap();
    let listener = forever.spawn(listens(3)).id("listener").await.unwrap();
    for word in ["one", "two", "three"] {
        forever.send("listener", "word", &word).message_id(word).await.unwrap();
        tokio::time::sleep(MINUTE / 4).await;
    }
    let mut sums = Vec::new();
    for order in orders {
        sums.push(order.wait().await.unwrap());
    }
    (sums, whole.wait().await.unwrap(), listener.wait().await.unwrap())
}

#[test]
fn fibers_with_steps_effects_waits_children_and_messages_come_through() {
    hide_panics();
    let survived = cluster(1, 3).seeds(seeds(300)).run(shop, trade).unwrap();
    let (sums, whole, heard) = &survived.outcome;
    assert_eq!(*sums, [33, 63, 103]);
    assert_eq!((whole.join(" "), heard.join(" ")), ("ADAADA GRACEGRACE".to_owned(), "ONE TWO THREE".to_owned()));
    assert!(survived.faults > 300, "{}", survived.faults);
}

#[test]
fn same_seed_is_the_same_run() {
    hide_panics();
    for seed in 1..40 {
        let traces = [(); 2].map(|()| cluster(seed, 3).run(shop, trade).unwrap().trace);
        let first = traces[0].iter().zip(&traces[1]).position(|(one, other)| one != other);
        assert_eq!(first.map(|line| (&traces[0][line.saturating_sub(5)..=line], &traces[1][line])), None, "seed {seed}");
        assert_eq!(traces[0].len(), traces[1].len(), "seed {seed}");
    }
}
