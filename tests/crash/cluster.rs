//! Several workers over a modelled store, with crashes, pauses and partitions: programs that come through
//! [`forever::testing::cluster`], programs that do not, and stores with a defect.
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use forever::agent::{Agent, AgentHandle, Due};
use forever::prelude::*;
use forever::testing::{ClusterFailure, ClusterSurvived, Defect, World, cluster};
use forever::{BoxError, Builder};

use forever_testkit::sizes;

use crate::kinds::noted;

const MINUTE: Duration = Duration::from_secs(60);

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
            let text = panic.payload().downcast_ref::<String>().map_or("", String::as_str);
            if !in_test || text.contains(": seed ") || !text.contains("`Result::unwrap()`") {
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
    let survived = cluster(1, 3).seeds(sizes::crashes(300)).run(shop, trade).unwrap();
    let (sums, whole, heard) = &survived.outcome;
    assert_eq!(*sums, [33, 63, 103]);
    assert_eq!((whole.join(" "), heard.join(" ")), ("ADAADA GRACEGRACE".to_owned(), "ONE TWO THREE".to_owned()));
    assert!(survived.faults > u64::from(sizes::crashes(300)), "{}", survived.faults);
}

#[test]
fn same_seed_is_the_same_run() {
    hide_panics();
    for seed in (1..40).step_by(sizes::stride(4)) {
        let workers = 1 + usize::try_from(seed).unwrap() % 5;
        let lease = MINUTE / 30 * u32::try_from(1 + seed % 7).unwrap();
        let traces = [(); 2].map(|()| cluster(seed, workers).lease(lease).run(shop, trade).unwrap().trace);
        let first = traces[0].iter().zip(&traces[1]).position(|(one, other)| one != other);
        assert_eq!(first.map(|line| (&traces[0][line.saturating_sub(5)..=line], &traces[1][line])), None, "seed {seed}");
        assert_eq!(traces[0].len(), traces[1].len(), "seed {seed}");
    }
}

/// Keys that are known to be in the state of a counter.
#[derive(Clone, Debug, Default)]
struct Stored(Arc<Mutex<BTreeSet<String>>>);

/// An agent that any worker calls, with a schedule and fibers of its own.
struct Counter {
    me: AgentHandle<Counter>,
    world: World,
}

impl Agent for Counter {
    const CLASS: &'static str = "counter";
    /// What was recorded, by key.
    type State = BTreeMap<String, u64>;

    async fn on_schedule(&self, due: &Due) -> Result<(), BoxError> {
        noted(&self.world, due.name(), 1);
        self.ring(due.name());
        self.me.set_state(&BTreeMap::from([(due.name().to_owned(), 1)])).await?;
        Ok(())
    }
}

#[allow(clippy::unused_async, reason = "methods of agents are async")]
impl Counter {
    /// A bell outside of the program, which rings once for each name.
    fn ring(&self, name: &str) {
        if self.world.shared::<Bank>().0.lock().unwrap().insert(format!("bell {name}"), 1).is_none() {
            self.world.effect(format!("bell for {name}"));
        }
    }

    async fn record(self: Arc<Self>, (key, n): (String, u64)) -> Result<u64, BoxError> {
        noted(&self.world, "record", n);
        self.ring(&key);
        Ok(n * 2)
    }

    /// Reads, and writes what it has read together with what is new.
    async fn add(self: Arc<Self>, (key, n): (String, u64)) -> Result<usize, BoxError> {
        let stored = self.world.shared::<Stored>();
        let before = stored.0.lock().unwrap().clone();
        let mut all = self.me.state().await?;
        if let Some(lost) = before.iter().find(|key| !all.contains_key(*key)) {
            self.world.effect(format!("loss of {lost}"));
        }
        // What a model takes.
        tokio::time::sleep(MINUTE / 8).await;
        all.insert(key.clone(), n);
        self.me.set_state(&all).await?;
        stored.0.lock().unwrap().insert(key);
        Ok(all.len())
    }
}

fn agents(world: &World) -> Builder {
    let of_agents = world.clone();
    shop(world).agent(move |me| Counter { me, world: of_agents.clone() }).callable("record", Counter::record).callable("add", Counter::add)
}

/// Schedules that three workers in a row have not survived: a person lets them run again.
async fn another_chance<A: Agent>(agent: &AgentHandle<A>) {
    let has_died = |error: &str| error.contains("died");
    let schedules = agent.schedules().await.unwrap();
    for there in schedules.iter().filter(|there| there.next().is_none() && there.error().is_some_and(has_died)) {
        agent.cancel_schedule(there.id()).await.unwrap();
        agent.schedule(MINUTE / 4, there.name(), ()).idempotent(true).await.unwrap();
    }
}

async fn count(forever: Forever) -> (u64, u64) {
    let counter = forever.agent::<Counter>("c");
    let is_served = async || counter.state().await.unwrap().contains_key("tea");
    if !is_served().await {
        counter.schedule(MINUTE, "tea", ()).idempotent(true).await.unwrap();
    }
    let mut sum = 0;
    for n in 1..=4 {
        sum += counter.call::<u64>("record", (format!("key {n}"), n)).await.unwrap();
        tokio::time::sleep(MINUTE / 8).await;
    }
    // Another client may have started it.
    let order = forever.spawn(order(2)).agent("counter", "c").key("order").await.unwrap();
    while !is_served().await || !counter.schedules().await.unwrap().is_empty() {
        another_chance(&counter).await;
        tokio::time::sleep(MINUTE / 8).await;
    }
    (sum, order.wait().await.unwrap())
}

#[test]
fn agents_with_calls_of_other_workers_schedules_and_fibers_come_through() {
    hide_panics();
    let survived = cluster(1, 3).clients(2).seeds(sizes::crashes(150)).run(agents, count).unwrap();
    assert_eq!(survived.outcome, (20, 33));
}

/// A worker that stood still in the middle of a call writes nothing back when another one has the agent.
#[test]
fn calls_that_write_back_what_they_have_read_lose_nothing() {
    hide_panics();
    let call = async |forever: Forever| {
        let counter = forever.agent::<Counter>("c");
        for n in 1..=6 {
            let key = format!("key {n}");
            while !counter.state().await.unwrap().contains_key(&key) {
                // Its outcome may be unknown.
                let _ = counter.call::<usize>("add", (key.clone(), n)).await;
            }
        }
        counter.state().await.unwrap()
    };
    let survived = cluster(1, 3).clients(2).seeds(sizes::crashes(100)).run(agents, call).unwrap();
    assert_eq!(survived.outcome, (1..=6).map(|n| (format!("key {n}"), n)).collect());
}

fn failure<R: std::fmt::Debug>(ran: Result<ClusterSurvived<R>, ClusterFailure>) -> String {
    hide_panics();
    let failure = ran.unwrap_err();
    assert_eq!(failure.to_string(), format!("{failure:?}"), "`unwrap` shows it as a person reads it");
    failure.to_string()
}

#[track_caller]
fn says(report: &str, what: &[&str]) {
    for line in what {
        assert!(report.contains(line), "`{line}` is not in:\n{report}");
    }
}

#[test]
fn defect_of_each_kind_is_found_and_reported() {
    let defects = [
        (Defect::ClaimKeepsEpoch, "was given before"),
        (Defect::WriteWithoutFence, "was given"),
        (Defect::EarlyTakeover, "whose lease of 10000 ms is "),
        (Defect::CheckpointLost, "was acknowledged"),
    ];
    for (defect, what) in defects {
        let report = failure(cluster(1, 3).seeds(50).defect(defect).run(shop, trade));
        says(&report, &[what, "it does not come through: seed ", "\ntrace:\n", "claims fiber", "to repeat it: `cluster("]);
    }
}

#[fiber]
async fn charges_in_a_step(world: Res<World>, cents: u64) -> anyhow::Result<u64> {
    let price = step!("price", cents * 2);
    step!("charge", world.effect(format!("charge of {price}")));
    Ok(step!("note", price))
}

#[test]
fn effect_in_a_plain_step_is_found_to_come_twice() {
    let setup = |world: &World| Forever::builder().resource(world.clone()).fiber::<charges_in_a_step>();
    let call = async |forever: Forever| forever.spawn(charges_in_a_step(100)).id("order").await.unwrap().wait().await.unwrap();
    let ran = cluster(1, 2).seeds(100).run(setup, call);
    let seed = ran.as_ref().unwrap_err().seed();
    let report = failure(ran);
    says(&report, &["the effect `charge of 200` came twice, and not once", "faults, as few as show it:"]);
    // The seed alone repeats it.
    assert_eq!(failure(cluster(seed, 2).run(setup, call)), report);
}

/// An agent whose schedules write back what they have read before.
struct Diary {
    me: AgentHandle<Diary>,
}

impl Agent for Diary {
    const CLASS: &'static str = "diary";
    type State = Vec<String>;

    async fn on_schedule(&self, due: &Due) -> Result<(), BoxError> {
        let mut entries = self.me.state().await?;
        // What a model takes.
        tokio::time::sleep(MINUTE / 20).await;
        if !entries.iter().any(|there| there == due.name()) {
            entries.push(due.name().to_owned());
        }
        self.me.set_state(&entries).await?;
        Ok(())
    }
}

/// A claim of a schedule whose answer is lost is found again, and a run that has not begun because the store failed is no failed one.
#[test]
fn schedules_that_write_the_state_of_their_agent_come_through() {
    hide_panics();
    let setup = |_: &World| Forever::builder().agent(|me| Diary { me });
    let call = async |forever: Forever| {
        let diary = forever.agent::<Diary>("d");
        for n in 1..=4 {
            if !diary.state().await.unwrap().contains(&format!("entry {n}")) {
                diary.schedule(MINUTE / 4 * n, format!("entry {n}"), ()).idempotent(true).await.unwrap();
            }
        }
        while !diary.schedules().await.unwrap().is_empty() {
            another_chance(&diary).await;
            tokio::time::sleep(MINUTE / 60).await;
        }
        let mut entries = diary.state().await.unwrap();
        entries.sort();
        entries
    };
    // With the second one, a worker that counts as dead cannot hold the agent of a schedule that it has begun.
    for (seed, number) in [(1, sizes::crashes(200)), (955, 1)] {
        let survived = cluster(seed, 3).seeds(number).run(setup, call).unwrap();
        assert_eq!(survived.outcome.len(), 4);
    }
}

#[fiber]
async fn waits_in_vain() -> anyhow::Result<u64> {
    let word: Option<u64> = recv!("word", timeout = MINUTE * 60 * 24 * 365);
    Ok(word.unwrap_or_default())
}

#[test]
fn program_that_does_not_end_is_reported_after_its_time() {
    let setup = |_: &World| Forever::builder().fiber::<waits_in_vain>();
    let call = async |forever: Forever| forever.run(waits_in_vain()).await.unwrap();
    let report = failure(cluster(1, 2).patience(MINUTE * 30).run(setup, call));
    says(&report, &["it does not come to its end even without faults", "after 1800s of simulated time", "waits_in_vain{} "]);
    assert_eq!(cluster(1, 2).patience(MINUTE * 60 * 24 * 366).without_faults().run(setup, async |_| 7).unwrap().outcome, 7);
}

#[tokio::test]
async fn cluster_inside_of_a_tokio_runtime_is_refused() {
    let report = failure(cluster(1, 2).run(shop, async |_| ()));
    says(&report, &["call it in a `#[test]`, not a `#[tokio::test]`"]);
}
