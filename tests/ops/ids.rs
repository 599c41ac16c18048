//! The id of an operation: one for each, the same in every run of it, whatever is edited elsewhere.
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use forever::fiber::{Fiber, FiberErrorKind};
use forever::ops::{Op, OpResolution};
use forever::prelude::*;
use forever::testing::Fuse;
use forever_testkit::database;
use forever_testkit::prng::Prng;
use forever_testkit::sizes::size;
use forever_testkit::waiting::soon;
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::support::{Bank, Place, Plan, opening, words};

/// A piece of a program.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Node {
    Step,
    Effect,
    Keyed(u32),
    Retried { fails: u32 },
    Repeated { times: u32 },
    Loop { times: u32, body: Vec<Node> },
    Call(Vec<Node>),
}

/// Runs a program; each place tells the diary under which id it ran.
#[fiber]
async fn program(diary: Res<Diary>, nodes: Vec<Node>, place: String) -> anyhow::Result<u32> {
    let mut done = 0;
    for (at, node) in nodes.iter().enumerate() {
        let here = format!("{place}/{at}");
        match node {
            Node::Step => done += step!("step", |op| diary.did(&here, op, 0).await?),
            Node::Effect => done += step!("effect", effect, on_unknown = OnUnknown::Retry, |op| diary.did(&here, op, 0).await?),
            Node::Keyed(key) => {
                done += step!("keyed", effect, key = (key, "text"), on_unknown = OnUnknown::check(async |_| None), |op| {
                    diary.did(&here, op, 0).await?
                });
            }
            Node::Retried { fails } => {
                let retry = Retry::times(3).backoff(Backoff::none());
                done += step!("retried", effect, on_unknown = OnUnknown::Retry, retry = retry, |op| diary.did(&here, op, *fails).await?);
            }
            Node::Repeated { times } => {
                for round in 0..*times {
                    done += step!("repeated", effect, on_unknown = OnUnknown::Retry, |op| {
                        diary.did(&format!("{here}.{round}"), op, 0).await?
                    });
                }
            }
            Node::Loop { times, body } => {
                for round in 0..*times {
                    done += call!(program(body.clone(), format!("{here}.{round}")))?;
                }
            }
            Node::Call(body) => done += call!(program(body.clone(), here.clone()))?,
        }
    }
    Ok(done)
}

impl Node {
    fn random(prng: &mut Prng, depth: u32) -> Node {
        match prng.below(if depth == 0 { 5 } else { 8 }) {
            0 => Node::Step,
            1 => Node::Effect,
            2 => Node::Keyed(prng.below(2)),
            3 => Node::Retried { fails: prng.below(4) },
            4 => Node::Repeated { times: prng.below(4) },
            5 | 6 => Node::Loop { times: prng.below(4), body: Node::several(prng, depth - 1) },
            _ => Node::Call(Node::several(prng, depth - 1)),
        }
    }

    fn several(prng: &mut Prng, depth: u32) -> Vec<Node> {
        (0..=prng.below(4)).map(|_| Node::random(prng, depth)).collect()
    }
}

/// What ran, and in which call of it the process dies. It outlives every process.
#[derive(Clone, Debug, Default)]
struct Diary(Arc<Pages>);

#[derive(Debug, Default)]
struct Pages {
    entries: Mutex<Vec<Entry>>,
    dies_in: Mutex<Option<usize>>,
    dead: watch::Sender<bool>,
}

/// A body that ran: where, as which operation, and which attempt of it.
#[derive(Clone, Debug)]
struct Entry {
    place: String,
    id: String,
    attempt: u32,
}

impl Diary {
    /// A body; as many attempts of it fail.
    async fn did(&self, place: &str, op: &Op, fails: u32) -> anyhow::Result<u32> {
        tokio::task::yield_now().await;
        let entry = Entry { place: place.to_owned(), id: op.id().to_owned(), attempt: op.attempt() };
        let calls = {
            let mut entries = self.0.entries.lock().unwrap();
            entries.push(entry);
            entries.len()
        };
        if *self.0.dies_in.lock().unwrap() == Some(calls) {
            self.0.dead.send_replace(true);
            std::future::pending::<()>().await;
        }
        anyhow::ensure!(op.attempt() > fails, "attempt {} of {place} fails", op.attempt());
        Ok(1)
    }

    async fn dead(&self) {
        self.0.dead.subscribe().wait_for(|dead| *dead).await.unwrap();
    }

    fn entries(&self) -> Vec<Entry> {
        self.0.entries.lock().unwrap().clone()
    }

    /// The id of each place; every run of a place must have had the same one.
    fn ids(&self) -> BTreeMap<String, String> {
        let mut ids: BTreeMap<String, String> = BTreeMap::new();
        for Entry { place, id, .. } in self.entries() {
            let first = ids.entry(place.clone()).or_insert_with(|| id.clone());
            assert_eq!(*first, id, "another id at {place}");
        }
        ids
    }
}

async fn opened(place: &Place, diary: &Diary, fuse: &Fuse) -> Forever {
    place.builder(&Bank::default()).resource(diary.clone()).fiber::<program>().fuse(fuse.clone()).open().await.unwrap()
}

/// Runs a program as the fiber of that id, in one life; gives the diary and how often was written.
async fn lives(nodes: &[Node], id: &str) -> (Diary, u64) {
    let (place, diary, fuse) = (Place::new(), Diary::default(), Fuse::never());
    let forever = opened(&place, &diary, &fuse).await;
    forever.spawn(program(nodes.to_vec(), String::new())).id(id).await.unwrap().wait().await.unwrap();
    let writes = fuse.writes();
    forever.close().await.unwrap();
    (diary, writes)
}

/// Runs it until it dies, and then to its end.
async fn dies(nodes: &[Node], id: &str, fuse: Fuse, in_call: Option<usize>) -> Diary {
    let (place, diary) = (Place::new(), Diary::default());
    *diary.0.dies_in.lock().unwrap() = in_call;
    {
        let forever = opened(&place, &diary, &fuse).await;
        let life = async { forever.spawn(program(nodes.to_vec(), String::new())).id(id).await.unwrap().wait().await };
        tokio::select! {
            ended = life => panic!("it lived: {ended:?}"),
            () = fuse.blown() => {}
            () = diary.dead() => {}
        }
    }
    *diary.0.dies_in.lock().unwrap() = None;
    let forever = opened(&place, &diary, &Fuse::never()).await;
    // Where it was not accepted, it starts now.
    forever.spawn(program(nodes.to_vec(), String::new())).id(id).await.unwrap().wait().await.unwrap();
    forever.close().await.unwrap();
    diary
}

#[tokio::test(start_paused = true)]
async fn each_operation_has_an_id_of_its_own_that_every_run_of_it_has() {
    let (mut operations, mut again) = (0, 0);
    // A life over a server takes a third of a second.
    let programs = size("FOREVER_IDS_PROGRAMS", 12, if database::is_in_postgres() { 12 } else { 60 });
    for seed in 0..programs {
        let mut prng = Prng::of_purpose(seed, "programs");
        let nodes = Node::several(&mut prng, 2);
        let case = async {
            let (whole, writes) = lives(&nodes, "one").await;
            let ids = whole.ids();
            let different: BTreeSet<&String> = ids.values().collect();
            assert_eq!(different.len(), ids.len(), "two operations have one id: {ids:#?}");
            let other = lives(&nodes, "two").await.0.ids();
            assert!(other.values().all(|id| !different.contains(id)), "another fiber has the same ids");
            let calls = whole.entries().len();
            for _ in 0..3 {
                // Not while the database is opened; one that comes after the last never comes.
                let write = opening() + 1 + prng.number() % (writes - opening());
                let fuse = if prng.below(2) == 0 { Fuse::before(write) } else { Fuse::after(write) };
                assert_eq!(dies(&nodes, "one", fuse, None).await.ids(), ids, "killed at write {write}");
                if calls > 0 {
                    let call = 1 + prng.below(u32::try_from(calls).unwrap()) as usize;
                    let killed = dies(&nodes, "one", Fuse::never(), Some(call)).await;
                    assert_eq!(killed.ids(), ids, "killed in call {call}");
                    assert_eq!(killed.entries().len(), calls + 1, "killed in call {call}");
                    again += 1;
                }
            }
            ids.len()
        };
        operations += soon(&format!("the end of program {seed}, {nodes:?}"), case).await;
    }
    let programs = usize::try_from(programs).unwrap();
    assert!(
        operations > 5 * programs && again + 20 > 2 * programs,
        "the programs have become too small: {operations} operations, {again} run again"
    );
}

#[tokio::test(start_paused = true)]
async fn all_attempts_of_an_operation_have_one_id() {
    let nodes = [Node::Retried { fails: 3 }, Node::Retried { fails: 2 }];
    for call in 1..=7 {
        let diary = soon("the end", dies(&nodes, "one", Fuse::never(), Some(call))).await;
        let attempts = |place: &str| diary.entries().iter().filter(|e| e.place == place).map(|e| e.attempt).collect::<Vec<_>>();
        let (mut first, mut second) = (vec![1, 2, 3, 4], vec![1, 2, 3]);
        // The attempt in which the process died did not fail: it is made again.
        let (list, at) = if call <= 4 { (&mut first, call) } else { (&mut second, call - 4) };
        list.insert(at, u32::try_from(at).unwrap());
        assert_eq!((attempts("/0"), attempts("/1")), (first, second), "killed in call {call}");
        assert_eq!(diary.ids().len(), 2);
    }
}

/// Fibers of one stored name: a function, and what becomes of it while its fiber is not running.
mod versions {
    use super::*;

    #[fiber(name = "order")]
    pub(super) async fn first(bank: Res<Bank>, cents: u64) -> anyhow::Result<u64> {
        let price = step!("price", twice(cents));
        let receipt = step!("charge", effect, on_unknown = OnUnknown::Retry, |op| bank.charge(op.id(), price).await?);
        step!("note", noted(receipt));
        Ok(receipt)
    }

    /// Other code before it, between it and the last checkpoint, and after it; steps where the fiber has been already, and after.
    #[fiber(name = "order")]
    pub(super) async fn edited_elsewhere(bank: Res<Bank>, cents: u64) -> anyhow::Result<u64> {
        let greeting = step!("greet", format!("order of {cents}"));
        for letter in greeting.chars() {
            step!("spell", effect, key = letter, noted(u64::from(letter)));
        }
        let price = step!("price", twice(cents + 1));
        let halves = [price / 2, price - price / 2];
        let receipt = step!("charge", effect, on_unknown = OnUnknown::Retry, |op| bank.charge(op.id(), halves.iter().sum()).await?);
        let mut total = receipt;
        for half in halves {
            step!("half", effect, on_unknown = OnUnknown::Retry, noted(half));
            total += half;
        }
        step!("note", noted(total));
        Ok(total - price)
    }

    #[fiber(name = "order")]
    pub(super) async fn renamed(bank: Res<Bank>, cents: u64) -> anyhow::Result<u64> {
        let price = step!("price", twice(cents));
        let receipt = step!("bill", was = "charge", effect, on_unknown = OnUnknown::Retry, |op| bank.charge(op.id(), price).await?);
        Ok(receipt)
    }

    #[fiber(name = "order")]
    pub(super) async fn step_put_before(bank: Res<Bank>, cents: u64) -> anyhow::Result<u64> {
        let price = step!("price", twice(cents));
        let reduced = step!("reduce", price - 1);
        let receipt = step!("charge", effect, on_unknown = OnUnknown::Retry, |op| bank.charge(op.id(), reduced).await?);
        Ok(receipt)
    }

    #[fiber(name = "keyed")]
    pub(super) async fn keyed(bank: Res<Bank>, cents: u64) -> anyhow::Result<u64> {
        let key = (cents, "eur");
        Ok(step!("charge", effect, key = key, on_unknown = OnUnknown::Retry, |op| bank.charge(op.id(), cents).await?))
    }

    #[fiber(name = "keyed")]
    pub(super) async fn other_key(bank: Res<Bank>, cents: u64) -> anyhow::Result<u64> {
        let key = (cents, "usd");
        Ok(step!("charge", effect, key = key, on_unknown = OnUnknown::Retry, |op| bank.charge(op.id(), cents).await?))
    }

    #[fiber(name = "keyed")]
    pub(super) async fn no_key(bank: Res<Bank>, cents: u64) -> anyhow::Result<u64> {
        Ok(step!("charge", effect, on_unknown = OnUnknown::Retry, |op| bank.charge(op.id(), cents).await?))
    }

    #[fiber(name = "keyed")]
    pub(super) async fn fields(bank: Res<Bank>, cents: u64) -> anyhow::Result<u64> {
        let key = Fields(vec![("cents", cents), ("account", 7), ("zone", 1)]);
        Ok(step!("charge", effect, key = [key], on_unknown = OnUnknown::Retry, |op| bank.charge(op.id(), cents).await?))
    }

    #[fiber(name = "keyed")]
    pub(super) async fn fields_in_another_order(bank: Res<Bank>, cents: u64) -> anyhow::Result<u64> {
        let key = Fields(vec![("zone", 1), ("account", 7), ("cents", cents)]);
        Ok(step!("charge", effect, key = [key], on_unknown = OnUnknown::Retry, |op| bank.charge(op.id(), cents).await?))
    }

    fn twice(cents: u64) -> u64 {
        cents * 2
    }

    fn noted(_: u64) {}
}

/// A map that is written in the order in which it was made.
struct Fields(Vec<(&'static str, u64)>);

impl Serialize for Fields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

/// A fiber whose process died in the body of its "charge".
struct Interrupted {
    place: Place,
    bank: Bank,
    id: String,
}

async fn interrupted<F: Fiber<Output = u64>>(call: F, plan: Plan) -> Interrupted {
    let (place, bank) = (Place::new(), Bank::default());
    bank.plan([plan]);
    let forever = place.builder(&bank).fiber::<F>().open().await.unwrap();
    let life = async { forever.spawn(call).id("order-1").await.unwrap().wait().await };
    tokio::select! {
        ended = life => panic!("it lived: {ended:?}"),
        () = bank.called(1) => {}
    }
    let ops = forever.ops("order-1").await.unwrap();
    assert_eq!(words(&ops), ["charge started"]);
    Interrupted { id: ops[0].id.clone(), place, bank }
}

impl Interrupted {
    /// Under that code it goes on to its end; the bank is called again under the same id.
    async fn goes_on_as<F: Fiber<Output = u64>>(&self, what: &str) {
        let going = async {
            let forever = self.place.builder(&self.bank).fiber::<F>().open().await.unwrap();
            let receipt = forever.fiber::<F>("order-1").wait().await.unwrap();
            assert_eq!(receipt, 1000, "{what}");
            assert_eq!(self.bank.charges(), [(self.id.clone(), 200)], "{what}");
            assert_eq!(self.bank.calls(), 2, "{what}");
            let ops = forever.ops("order-1").await.unwrap();
            let op = ops.iter().find(|op| op.id == self.id).unwrap();
            assert_eq!(op.result, Some(1000.into()), "{what}");
            forever.close().await.unwrap();
        };
        soon(what, going).await;
    }

    /// Under that code it is parked; the reason.
    async fn parks_as<F: Fiber<Output = u64>>(&self) -> (Forever, String) {
        let parking = async {
            let forever = self.place.builder(&self.bank).fiber::<F>().open().await.unwrap();
            let error = forever.fiber::<F>("order-1").wait().await.unwrap_err();
            assert_eq!(error.kind(), FiberErrorKind::Parked, "{error}");
            assert_eq!(self.bank.calls(), 1);
            (forever, error.to_string())
        };
        soon("the end", parking).await
    }
}

#[tokio::test(start_paused = true)]
async fn an_edit_elsewhere_leaves_an_interrupted_operation_its_id() {
    for plan in [Plan::Silent, Plan::Lost] {
        interrupted(versions::first(100), plan.clone()).await.goes_on_as::<versions::first>("no edit").await;
        interrupted(versions::first(100), plan.clone()).await.goes_on_as::<versions::edited_elsewhere>("edits elsewhere").await;
        interrupted(versions::first(100), plan).await.goes_on_as::<versions::renamed>("its step has another name").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_step_put_before_an_interrupted_operation_parks_the_fiber_until_somebody_says_that_it_was_not_executed() {
    let order = interrupted(versions::first(100), Plan::Lost).await;
    let (forever, why) = order.parks_as::<versions::step_put_before>().await;
    let said = format!(
        "operation `{}` may have executed; verify, then resolve it: the code comes to step `reduce` before step `charge` of `order`",
        order.id
    );
    assert!(why.contains(&said), "{why}");
    forever.resolve_op(&order.id, OpResolution::NotExecuted).await.unwrap();
    let receipt = soon("the end", forever.fiber::<versions::step_put_before>("order-1").wait()).await.unwrap();
    assert_eq!(receipt, 1000);
    let charges = order.bank.charges();
    assert_eq!((charges.len(), charges[0].1), (1, 199));
    assert_ne!(charges[0].0, order.id, "it is another operation, at another place");
    assert_eq!(words(&forever.ops("order-1").await.unwrap()), ["charge not_executed", "charge completed 1000"]);
    forever.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn another_key_at_the_same_place_parks_the_fiber_and_both_keys_are_said() {
    let order = interrupted(versions::keyed(100), Plan::Silent).await;
    let (forever, why) = order.parks_as::<versions::other_key>().await;
    let said = format!(r#"operation `{}` of step `charge` was begun with key [100,"eur"] and is met again with key [100,"usd"]"#, order.id);
    assert!(why.contains(&said), "{why}");
    forever.close().await.unwrap();
    let (forever, why) = order.parks_as::<versions::no_key>().await;
    assert!(why.contains(r#"begun with key [100,"eur"] and is met again with key none"#), "{why}");
    forever.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn code_that_comes_to_the_old_key_again_lets_a_parked_fiber_go_on() {
    let order = interrupted(versions::keyed(200), Plan::Silent).await;
    let (forever, _) = order.parks_as::<versions::other_key>().await;
    forever.close().await.unwrap();
    order.goes_on_as::<versions::keyed>("the old key").await;
}

#[tokio::test(start_paused = true)]
async fn a_key_is_the_same_in_whatever_order_its_fields_come() {
    let order = interrupted(versions::fields(200), Plan::Silent).await;
    order.goes_on_as::<versions::fields_in_another_order>("fields in another order").await;
}
