//! Fibers that wait for time, for messages and for each other, over a whole runtime. The test drives all time.
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use forever::fiber::{FiberFilter, FiberState, Resolution};
use forever::prelude::*;
use forever::testing::VirtualClock;
use forever::{Builder, Retention};
use forever_testkit::database::Database;
use forever_testkit::waiting::{eventually, found};
use tempfile::TempDir;
use tokio::sync::{Semaphore, watch};

use crate::support::Ears;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(60 * 60);

/// What the steps of the fibers see.
#[derive(Clone, Default)]
struct World {
    log: Arc<watch::Sender<Vec<String>>>,
    /// One permit lets one held step go on.
    gate: Arc<Gate>,
    /// How many fibers are in memory.
    present: Arc<AtomicUsize>,
}

struct Gate(Semaphore);

impl Default for Gate {
    fn default() -> Self {
        Gate(Semaphore::new(0))
    }
}

/// Counts a fiber as present for as long as it lives.
struct Presence(Arc<AtomicUsize>);

impl Drop for Presence {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl World {
    async fn did(&self, what: impl Into<String>) {
        tokio::task::yield_now().await;
        self.log.send_modify(|log| log.push(what.into()));
    }

    async fn held(&self, what: &str) {
        self.did(what).await;
        self.gate.0.acquire().await.unwrap().forget();
    }

    fn let_go(&self, how_many: usize) {
        self.gate.0.add_permits(how_many);
    }

    fn enter(&self) -> Presence {
        self.present.fetch_add(1, Ordering::Relaxed);
        Presence(Arc::clone(&self.present))
    }

    fn present(&self) -> usize {
        self.present.load(Ordering::Relaxed)
    }

    fn log(&self) -> Vec<String> {
        self.log.borrow().clone()
    }

    /// Ready when something was done.
    async fn reached(&self, what: &str) {
        self.log.subscribe().wait_for(|log| log.iter().any(|done| done == what)).await.unwrap();
    }
}

/// A database, a clock and a world that outlive the runtimes over them.
struct Scene {
    folder: TempDir,
    clock: VirtualClock,
    world: World,
}

impl Scene {
    fn new() -> Self {
        Scene { folder: tempfile::tempdir().unwrap(), clock: VirtualClock::new(), world: World::default() }
    }

    fn builder(&self) -> Builder {
        Forever::builder()
            .sqlite(self.folder.path().join("fibers.db"))
            .clock(self.clock.clone())
            .retention(Retention::forever())
            .resource(self.world.clone())
            .fiber::<reminder>()
            .fiber::<collector>()
            .fiber::<patient>()
            .fiber::<holds>()
            .fiber::<holds_nothing>()
            .fiber::<sleeps>()
            .fiber::<asks>()
            .fiber::<parent>()
            .fiber::<family>()
            .fiber::<child>()
            .fiber::<late_parent>()
            .fiber::<keeps>()
            .fiber::<checks>()
    }

    async fn open(&self) -> Forever {
        self.builder().open().await.unwrap()
    }

    fn database(&self) -> Database {
        Database::open(self.folder.path().join("fibers.db"))
    }
}

#[fiber]
async fn reminder(world: Res<World>, name: String, hours: u32) -> anyhow::Result<String> {
    step!("begin", world.did(format!("{name} begins")).await);
    sleep!(HOUR * hours);
    step!("wake", world.did(format!("{name} wakes")).await);
    Ok(name)
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_sleep_is_fixed_once_over_restarts() {
    let scene = Scene::new();
    let forever = scene.open().await;
    let mut ears = Ears::of(&forever);
    forever.spawn(reminder("a".into(), 10)).id("a").await.unwrap();
    ears.hear("a", "waiting", 1).await;
    drop((forever, ears));

    scene.clock.advance(HOUR * 4);
    let forever = scene.open().await;
    let handle = forever.fiber::<reminder>("a");
    assert_eq!(handle.status().await.unwrap().state, FiberState::Waiting);
    scene.clock.advance(HOUR * 5 + MINUTE * 59 + MINUTE / 2);
    // The timer has looked at the time, and sleeps for what is left.
    eventually("its look", async || scene.clock.next_sleeper() == Some(MINUTE / 2)).await;
    assert_eq!(handle.status().await.unwrap().state, FiberState::Waiting);
    assert_eq!(scene.world.log(), ["a begins"]);
    scene.clock.advance(MINUTE / 2);
    assert_eq!(handle.wait().await.unwrap(), "a");
    assert_eq!(scene.world.log(), ["a begins", "a wakes"]);
    let status = handle.status().await.unwrap();
    assert_eq!(status.finished.unwrap().duration_since(status.created).unwrap(), HOUR * 10);
}

#[tokio::test(start_paused = true)]
async fn fibers_that_fell_due_while_nobody_was_there_are_entered_once_each_at_open() {
    let scene = Scene::new();
    let forever = scene.open().await;
    forever.close().await.unwrap();
    // So many that opening reads several pages, and the last ones are found after the timer has rung.
    let sql = "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 1100)
               INSERT INTO fibers (id, name, state, args, created_ms, changed_ms) SELECT 'x' || n, 'unknown', 'parked', '{}', 1, 1 FROM n;
               INSERT INTO snapshots (fiber, epoch) SELECT seq, 0 FROM fibers";
    scene.database().run(sql);
    let forever = scene.open().await;
    let names: Vec<String> = (0..40).map(|n| format!("r{n}")).collect();
    for name in &names {
        forever.spawn(reminder(name.clone(), 1)).id(name).await.unwrap();
    }
    let waiting = async || forever.fibers().state(FiberState::Waiting).await.unwrap().fibers.len();
    eventually("the waits of all", async || waiting().await == names.len()).await;
    drop(forever);

    scene.clock.advance(HOUR * 2);
    let forever = scene.open().await;
    for name in &names {
        assert_eq!(forever.fiber::<reminder>(name).wait().await.unwrap(), *name);
    }
    let mut woke: Vec<_> = scene.world.log().into_iter().filter(|line| line.ends_with("wakes")).collect();
    woke.sort();
    let mut expected: Vec<_> = names.iter().map(|name| format!("{name} wakes")).collect();
    expected.sort();
    assert_eq!(woke, expected);
}

#[fiber]
async fn collector(world: Res<World>, wanted: usize) -> anyhow::Result<(Vec<u32>, String)> {
    let mut numbers = Vec::new();
    while numbers.len() < wanted {
        let number: u32 = recv!("number");
        numbers.push(number);
        step!("note", world.did(format!("got {number}")).await);
    }
    let name: String = recv!("name");
    Ok((numbers, name))
}

#[tokio::test(start_paused = true)]
async fn each_message_is_received_once_in_the_order_of_the_sends_over_restarts() {
    let scene = Scene::new();
    let forever = scene.open().await;
    let mut ears = Ears::of(&forever);
    forever.spawn(collector(6)).id("c").await.unwrap();
    ears.hear("c", "waiting", 1).await;
    forever.send("c", "number", &1).await.unwrap();
    ears.hear("c", "waiting", 2).await;
    assert_eq!(ears.times("c", "woken"), 1);
    drop((forever, ears));

    let forever = scene.open().await;
    // Of a topic that comes later, and more than one at a time.
    forever.send("c", "name", "ada").await.unwrap();
    for number in [2, 3, 2, 4] {
        forever.send("c", "number", &number).await.unwrap();
    }
    scene.world.reached("got 4").await;
    drop(forever);

    let forever = scene.open().await;
    forever.send("c", "number", &5).await.unwrap();
    assert_eq!(forever.fiber::<collector>("c").wait().await.unwrap(), (vec![1, 2, 3, 2, 4, 5], "ada".to_owned()));
    assert_eq!(scene.database().number("SELECT count(*) FROM messages"), 0);
}

#[fiber]
async fn patient(world: Res<World>) -> anyhow::Result<u32> {
    #[fresh]
    let presence = world.enter();
    let number: u32 = recv!("number");
    sleep!(HOUR);
    let more: u32 = step!(number + u32::from(presence.0.load(Ordering::Relaxed) > 0));
    Ok(more)
}

#[tokio::test(start_paused = true)]
async fn a_fiber_that_waits_is_not_in_memory() {
    let scene = Scene::new();
    let forever = scene.open().await;
    let mut ears = Ears::of(&forever);
    let names: Vec<String> = (0..50).map(|n| format!("p{n}")).collect();
    for name in &names {
        forever.spawn(patient()).id(name).await.unwrap();
    }
    for name in &names {
        ears.hear(name, "waiting", 1).await;
    }
    assert_eq!(scene.world.present(), 0);
    for name in &names {
        forever.send(name, "number", &7).await.unwrap();
    }
    for name in &names {
        ears.hear(name, "waiting", 2).await;
        assert_eq!((ears.times(name, "started"), ears.times(name, "woken")), (2, 1));
    }
    assert_eq!(scene.world.present(), 0);
    assert_eq!(forever.fibers().state(FiberState::Waiting).limit(100).await.unwrap().fibers.len(), 50);
    scene.clock.advance(HOUR);
    for name in &names {
        assert_eq!(forever.fiber::<patient>(name).wait().await.unwrap(), 8);
    }
    assert_eq!(scene.world.present(), 0);
}

/// What serde cannot store, and what says when it is dropped.
struct Permit(&'static str, World);

impl World {
    fn permit(&self, name: &'static str) -> Permit {
        Permit(name, self.clone())
    }

    fn says(&self, what: &str) {
        self.log.send_modify(|log| log.push(what.to_owned()));
    }
}

impl Permit {
    fn length(&self) -> usize {
        self.0.len()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.1.says(&format!("{} dropped", self.0));
    }
}

#[fiber]
async fn sleeps() -> anyhow::Result<u32> {
    sleep!(MINUTE);
    Ok(2)
}

#[fiber]
async fn holds(world: Res<World>, n: usize) -> anyhow::Result<usize> {
    let mut sum = 0;
    {
        let local = world.permit("local");
        sum += local.length();
        sleep!(MINUTE);
        world.says("after local");
    }
    match world.permit("scrutinee").length() {
        length if length == n => world.says("never"),
        length => {
            sum += length;
            sleep!(MINUTE);
            world.says("after scrutinee");
        }
    }
    if let Some(in_arm) = Some(world.permit("in arm")) {
        sum += in_arm.length();
        let more: u32 = call!(sleeps())?;
        world.says(&format!("after in arm {more}"));
    }
    for round in 0..2 {
        let in_round = world.permit("in round");
        if round == n {
            continue;
        }
        sum += in_round.length();
        sleep!(MINUTE);
        world.says("after in round");
    }
    let hidden = world.permit("hidden");
    let hidden = hidden.length();
    sum += hidden;
    let moved = world.permit("moved");
    if n == 1 {
        drop(moved);
    }
    'inner: {
        let outer = world.permit("outer");
        {
            sum += outer.length();
            if sum == n {
                break 'inner;
            }
            sleep!(MINUTE);
            world.says("after inner");
        }
        world.says("after block");
    }
    let end = step!("end", retry = Retry::times(2).backoff(Backoff::fixed(MINUTE)), {
        world.did("attempt").await;
        if world.log().iter().filter(|done| *done == "attempt").count() == 1 {
            anyhow::bail!("not yet");
        }
        sum
    });
    let handle = spawn!(sleeps());
    let number: u32 = select! {
        number: u32 = recv!("number") => number,
        _ = sleep!(HOUR) => 0,
    };
    let child = wait!(handle)?;
    world.says(&format!("end {number} {child}"));
    Ok(end)
}

/// A kept value or a copy of one is no reason to stay in memory.
#[fiber]
async fn holds_nothing(world: Res<World>, n: usize) -> anyhow::Result<usize> {
    let text = format!("{n}");
    let length = text.len();
    let pairs = vec![(1, text.as_str())];
    let sum = pairs.len() + length;
    let permit = world.permit("given away");
    drop(permit);
    sleep!(MINUTE);
    Ok(sum)
}

#[tokio::test(start_paused = true)]
async fn a_local_that_cannot_be_saved_is_dropped_where_its_block_ends_and_keeps_its_fiber_in_memory_until_then() {
    let scene = Scene::new();
    let forever = scene.open().await;
    let mut ears = Ears::of(&forever);
    forever.spawn(holds(7)).id("h").await.unwrap();
    for _ in 0..6 {
        eventually("a sleep in memory", async || scene.clock.next_sleeper() == Some(MINUTE)).await;
        assert_eq!(ears.times("h", "waiting"), 0);
        scene.clock.advance(MINUTE);
    }
    scene.world.reached("attempt").await;
    eventually("a pause in memory", async || scene.clock.next_sleeper() == Some(MINUTE)).await;
    scene.clock.advance(MINUTE);
    forever.send("h", "number", &5).await.unwrap();
    eventually("the child's sleep", async || scene.clock.next_sleeper() == Some(MINUTE)).await;
    scene.clock.advance(MINUTE);
    let sum = ["local", "scrutinee", "in arm", "in round", "in round", "hidden", "outer"].iter().map(|name| name.len()).sum::<usize>();
    assert_eq!(forever.fiber::<holds>("h").wait().await.unwrap(), sum);
    assert_eq!(
        scene.world.log(),
        [
            "after local",
            "local dropped",
            "after scrutinee",
            "scrutinee dropped",
            "after in arm 2",
            "in arm dropped",
            "after in round",
            "in round dropped",
            "after in round",
            "in round dropped",
            "after inner",
            "after block",
            "outer dropped",
            "attempt",
            "attempt",
            "end 5 2",
            "moved dropped",
            "hidden dropped",
        ]
    );
    assert_eq!(ears.times("h", "waiting"), 0);

    forever.spawn(holds_nothing(10)).id("n").await.unwrap();
    ears.hear("n", "waiting", 1).await;
    scene.clock.advance(MINUTE);
    assert_eq!(forever.fiber::<holds_nothing>("n").wait().await.unwrap(), 3);
}

#[fiber]
async fn asks(world: Res<World>) -> anyhow::Result<String> {
    let answer: Option<String> = recv!("answer", timeout = HOUR);
    match answer {
        Some(answer) => Ok(answer),
        None => Ok(step!("nobody", {
            world.did("nobody answers").await;
            "nobody".to_owned()
        })),
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_a_message_ends_when_its_time_is_over_and_not_before() {
    let scene = Scene::new();
    let forever = scene.open().await;
    let mut ears = Ears::of(&forever);
    for id in ["answered", "late", "both"] {
        forever.spawn(asks()).id(id).await.unwrap();
        ears.hear(id, "waiting", 1).await;
    }
    scene.clock.advance(MINUTE * 59);
    forever.send("answered", "answer", "yes").await.unwrap();
    assert_eq!(forever.fiber::<asks>("answered").wait().await.unwrap(), "yes");
    drop((forever, ears));

    // What was sent in time is received, even if nobody was there when the time was over.
    let sent = "INSERT INTO messages (fiber, topic, data, sent_ms) SELECT seq, 'answer', '\"in time\"', 1 FROM fibers WHERE id = 'both'";
    scene.database().run(sent);
    scene.clock.advance(MINUTE);
    let forever = scene.open().await;
    assert_eq!(forever.fiber::<asks>("late").wait().await.unwrap(), "nobody");
    assert_eq!(forever.fiber::<asks>("both").wait().await.unwrap(), "in time");
    assert_eq!(scene.world.log(), ["nobody answers"]);
    let error = forever.send("late", "answer", "too late").await.unwrap_err();
    assert_eq!(error.to_string(), "failed to send to fiber `late` on topic `answer`: it has completed already");
}

#[tokio::test(start_paused = true)]
async fn a_message_that_cannot_be_received_is_refused_with_the_reason() {
    let scene = Scene::new();
    let forever = scene.open().await;
    let mut ears = Ears::of(&forever);
    forever.spawn(collector(1)).id("c").await.unwrap();
    forever.spawn(reminder("r".into(), 1)).id("r").await.unwrap();
    forever.spawn(child(Role::Fails)).id("f").await.unwrap();
    forever.spawn_closure("closure", |_| async { Ok::<_, forever::Error>(()) }).id("closure").await.unwrap();
    ears.hear("c", "waiting", 1).await;
    ears.hear("f", "failed", 1).await;
    let refused = async |id: &str, topic: &str| forever.send(id, topic, "text").await.unwrap_err();

    let nobody = refused("nobody", "number").await;
    assert!(nobody.is_not_found());
    assert_eq!(nobody.to_string(), "failed to send to fiber `nobody` on topic `number`: there is no such fiber");
    for (id, topic, why) in [
        ("c", "numbers", "it is a fiber `collector`, and it receives on `number`, `name`"),
        ("r", "number", "it is a fiber `reminder`, and it receives no messages"),
        ("f", "word", "it has failed already"),
        ("closure", "word", "it is a closure, and receives no messages"),
    ] {
        let error = refused(id, topic).await;
        assert!(if id == "f" { error.is_invalid_state() } else { error.is_conflict() }, "{error:?}");
        assert_eq!(error.to_string(), format!("failed to send to fiber `{id}` on topic `{topic}`: {why}"));
    }
    let error = refused("c", "number").await;
    assert!(error.is_conflict());
    let start = "failed to send to fiber `c` on topic `number`: the value cannot be read as `u32`: ";
    assert!(error.to_string().starts_with(start), "{error}");
    // None of them has left anything behind.
    forever.send("c", "number", &1).await.unwrap();
    forever.send("c", "name", "ada").await.unwrap();
    assert_eq!(forever.fiber::<collector>("c").wait().await.unwrap(), (vec![1], "ada".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_message_of_a_type_that_was_not_known_yet_is_discarded_and_the_fiber_goes_on() {
    let scene = Scene::new();
    let forever = scene.open().await;
    let mut ears = Ears::of(&forever);
    let handle = forever.spawn(collector(1)).id("c").await.unwrap();
    ears.hear("c", "waiting", 1).await;
    assert_eq!(handle.status().await.unwrap().at.as_deref(), Some("number"), "the wait, as the source names it");
    assert_eq!(forever.status("c").await.unwrap().at.as_deref(), Some("number"));
    // No fiber of this process has reached `recv!("name")`.
    handle.send("name", &5).await.unwrap();
    handle.send("name", "ada").await.unwrap();
    handle.send("name", "bob").message_id("mail-17").await.unwrap();
    handle.send("number", &1).await.unwrap();
    let parked = handle.wait().await.unwrap_err();
    assert!(parked.is_parked(), "{parked}");
    assert!(parked.to_string().contains("a message to `collector` on topic `name` cannot be read as `String`"), "{parked}");
    let error = handle.send("name", &6).await.unwrap_err();
    assert!(error.is_conflict(), "the type is known now: {error}");

    let waiting = forever.messages("c").await.unwrap();
    let texts: Vec<_> = waiting.iter().map(|message| (&*message.topic, message.value.to_string())).collect();
    assert_eq!(texts, [("name", "5".to_owned()), ("name", "\"ada\"".to_owned()), ("name", "\"bob\"".to_owned())]);
    assert_eq!(handle.messages().await.unwrap(), waiting);
    let view = forever.view("c").await.unwrap();
    assert_eq!(view.messages.iter().map(|message| message.number).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(view.messages[0].value.value, Some(5.into()));

    let number = waiting[0].number;
    handle.discard_message(number).await.unwrap();
    let error = forever.discard_message("c", number).await.unwrap_err();
    assert!(error.is_not_found());
    assert_eq!(error.to_string(), format!("failed to discard message {number} of fiber `c`: no message with this number waits for it"));
    let error = forever.discard_message("nobody", number).await.unwrap_err();
    assert_eq!(error.to_string(), format!("failed to discard message {number} of fiber `nobody`: there is no such fiber"));
    assert!(forever.messages("nobody").await.unwrap_err().is_not_found());
    handle.resume().await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), (vec![1], "ada".to_owned()));

    // It has ended, and still knows which message it was sent with the id.
    handle.send("name", "bob").message_id("mail-17").await.unwrap();
    let error = handle.send("name", "eve").message_id("mail-17").await.unwrap_err();
    assert!(error.is_conflict());
    assert_eq!(error.to_string(), "failed to send to fiber `c` on topic `name`: another message was sent to it with this message id");
    let unread = handle.messages().await.unwrap();
    assert_eq!(unread.iter().map(|message| message.value.clone()).collect::<Vec<_>>(), ["bob"], "it was not received");
}

/// What a child does.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
enum Role {
    Gives(u32),
    Waits,
    Held,
    Fails,
    /// Has a child of its own.
    Parent(Box<Role>),
}

#[fiber]
async fn child(ctx: &FiberContext, world: Res<World>, role: Role) -> anyhow::Result<u32> {
    step!("begin", world.did(format!("child {role:?}")).await);
    match role {
        Role::Gives(number) => Ok(number),
        Role::Waits => Ok(recv!("word")),
        Role::Held => {
            step!("hold", world.held(&format!("held {}", ctx.id().len())).await);
            step!("after", world.did("went on").await);
            Ok(0)
        }
        Role::Fails => anyhow::bail!("no luck"),
        Role::Parent(role) => {
            let handle = spawn!(child(*role));
            Ok(wait!(handle)?)
        }
    }
}

/// The ids of a parent's children, in the order in which they were made.
async fn children(forever: &Forever, parent: &str) -> Vec<String> {
    let all = forever.fibers().name("child").limit(100).await.unwrap().fibers;
    all.into_iter().filter(|fiber| fiber.parent.as_deref() == Some(parent)).map(|fiber| fiber.id).collect()
}

#[fiber]
async fn parent(world: Res<World>, role: Role) -> anyhow::Result<String> {
    #[fresh]
    let presence = world.enter();
    let handle = spawn!(child(role));
    let came = wait!(&handle);
    drop(presence);
    let text = match came {
        Ok(number) => number.to_string(),
        Err(error) => error.to_string().replace(handle.id(), "ID"),
    };
    Ok(step!("note", {
        world.did(&text).await;
        text
    }))
}

#[tokio::test(start_paused = true)]
async fn a_parent_waits_for_its_child_over_restarts_of_both() {
    let scene = Scene::new();
    let forever = scene.open().await;
    let mut ears = Ears::of(&forever);
    forever.spawn(parent(Role::Waits)).id("p").await.unwrap();
    ears.hear("p", "waiting", 1).await;
    let child_id = children(&forever, "p").await.remove(0);
    ears.hear(&child_id, "waiting", 1).await;
    assert_eq!(scene.world.present(), 0);
    drop((forever, ears));
    for _ in 0..2 {
        drop(scene.open().await);
    }

    let forever = scene.open().await;
    let states: Vec<_> = forever.fibers().await.unwrap().fibers.into_iter().map(|fiber| (fiber.state, fiber.deaths)).collect();
    assert_eq!(states, [(FiberState::Waiting, 0), (FiberState::Waiting, 0)]);
    forever.send(&child_id, "word", &5).await.unwrap();
    assert_eq!(forever.fiber::<parent>("p").wait().await.unwrap(), "5");
    assert_eq!(scene.world.log(), ["child Waits", "5"]);
}

#[tokio::test(start_paused = true)]
async fn a_parent_hears_how_its_child_ended() {
    let scene = Scene::new();
    let forever = scene.open().await;
    assert_eq!(forever.run(parent(Role::Gives(3))).await.unwrap(), "3");
    assert_eq!(forever.run(parent(Role::Fails)).await.unwrap(), "fiber `child` (ID) failed: no luck");

    let mut ears = Ears::of(&forever);
    let handle = forever.spawn(parent(Role::Waits)).id("p").await.unwrap();
    ears.hear("p", "waiting", 1).await;
    let child_id = children(&forever, "p").await.remove(0);
    ears.hear(&child_id, "waiting", 1).await;
    forever.cancel(&child_id, "not needed").await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), "fiber `child` (ID) was cancelled: not needed");
    ears.hear(&child_id, "cancelled", 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_parent_of_a_parked_child_waits_until_it_is_resolved() {
    let scene = Scene::new();
    let forever = scene.open().await;
    let mut ears = Ears::of(&forever);
    forever.spawn(parent(Role::Waits)).id("p").await.unwrap();
    ears.hear("p", "waiting", 1).await;
    let child_id = children(&forever, "p").await.remove(0);
    ears.hear(&child_id, "waiting", 1).await;
    drop((forever, ears));
    let damage = format!("UPDATE snapshots SET data = 'nonsense' WHERE fiber = (SELECT seq FROM fibers WHERE id = '{child_id}')");
    scene.database().run(&damage);
    let forever = scene.open().await;
    forever.send(&child_id, "word", &5).await.unwrap();
    assert!(forever.fiber::<child>(&child_id).wait().await.unwrap_err().is_parked());
    assert_eq!(forever.fiber::<parent>("p").status().await.unwrap().state, FiberState::Waiting);
    forever.resolve(&child_id, Resolution::completed(&9_u32).unwrap()).await.unwrap();
    assert_eq!(forever.fiber::<parent>("p").wait().await.unwrap(), "9");
}

#[fiber]
async fn late_parent(world: Res<World>, how_many: u32) -> anyhow::Result<Vec<String>> {
    let mut handles = Vec::new();
    for number in 0..how_many {
        handles.push(spawn!(child(Role::Gives(number))));
    }
    let more: u32 = recv!("more");
    let last = spawn!(child(Role::Gives(more)));
    step!("status", {
        let status = last.status().await?;
        world.did(format!("child of {:?}", status.parent)).await;
    });
    handles.push(last);
    let results = wait_all!(&handles);
    Ok(results.into_iter().map(|came| came.map_or_else(|error| format!("{:?}", error.kind()), |number| number.to_string())).collect())
}

#[tokio::test(start_paused = true)]
async fn handles_in_a_snapshot_are_those_of_the_runtime_that_resumes() {
    let scene = Scene::new();
    let forever = scene.open().await;
    let mut ears = Ears::of(&forever);
    forever.spawn(late_parent(5)).id("p").await.unwrap();
    ears.hear("p", "waiting", 1).await;
    for id in children(&forever, "p").await {
        ears.hear(&id, "completed", 1).await;
    }
    drop((forever, ears));

    let forever = scene.open().await;
    forever.send("p", "more", &100).await.unwrap();
    assert_eq!(forever.fiber::<late_parent>("p").wait().await.unwrap(), ["0", "1", "2", "3", "4", "100"]);
    assert!(scene.world.log().contains(&"child of Some(\"p\")".to_owned()), "{:?}", scene.world.log());
}

#[tokio::test(start_paused = true)]
async fn a_child_that_was_deleted_is_told_to_its_parent() {
    let scene = Scene::new();
    let forever = scene.open().await;
    let mut ears = Ears::of(&forever);
    forever.spawn(late_parent(2)).id("p").await.unwrap();
    ears.hear("p", "waiting", 1).await;
    for id in children(&forever, "p").await {
        ears.hear(&id, "completed", 1).await;
    }
    assert_eq!(forever.delete(FiberFilter::new().name("child")).await.unwrap(), 2);
    forever.send("p", "more", &100).await.unwrap();
    assert_eq!(forever.fiber::<late_parent>("p").wait().await.unwrap(), ["NotFound", "NotFound", "100"]);
}

#[tokio::test(start_paused = true)]
async fn the_result_of_a_child_is_kept_until_its_parent_has_ended() {
    let scene = Scene::new();
    let keep = Retention::forever().completed(MINUTE);
    let forever = scene.builder().retention(keep).open().await.unwrap();
    let mut ears = Ears::of(&forever);
    forever.spawn(late_parent(3)).id("p").await.unwrap();
    forever.spawn(child(Role::Gives(1))).id("alone").await.unwrap();
    ears.hear("p", "waiting", 1).await;
    ears.hear("alone", "completed", 1).await;
    for id in children(&forever, "p").await {
        ears.hear(&id, "completed", 1).await;
    }
    let left = async |wanted: usize| {
        found("the end of their retention", async || {
            scene.clock.advance(MINUTE);
            let left = forever.fibers().await.unwrap().fibers;
            (left.len() <= wanted).then(|| left.into_iter().map(|fiber| fiber.name).collect::<Vec<_>>())
        })
        .await
    };
    assert_eq!(left(4).await, ["late_parent", "child", "child", "child"], "the one without a parent goes");
    forever.send("p", "more", &9).await.unwrap();
    assert_eq!(forever.fiber::<late_parent>("p").wait().await.unwrap(), ["0", "1", "2", "9"]);
    assert_eq!(left(0).await, [""; 0]);
}

#[fiber]
async fn family(roles: Vec<Role>) -> anyhow::Result<Vec<Option<u32>>> {
    let mut handles = Vec::new();
    for role in roles {
        handles.push(spawn!(child(role)));
    }
    Ok(wait_all!(handles).into_iter().map(Result::ok).collect())
}

#[tokio::test(start_paused = true)]
async fn what_came_of_children_is_in_the_order_of_their_handles() {
    let scene = Scene::new();
    let forever = scene.open().await;
    let mut ears = Ears::of(&forever);
    let roles = vec![Role::Waits, Role::Gives(1), Role::Fails, Role::Waits, Role::Parent(Box::new(Role::Gives(4)))];
    let handle = forever.spawn(family(roles)).id("f").await.unwrap();
    ears.hear("f", "waiting", 1).await;
    let ids = children(&forever, "f").await;
    for (at, number) in [(3, 3), (0, 0)] {
        ears.hear(&ids[at], "waiting", 1).await;
        forever.send(&ids[at], "word", &number).await.unwrap();
    }
    assert_eq!(handle.wait().await.unwrap(), [Some(0), Some(1), None, Some(3), Some(4)]);
}

#[tokio::test(start_paused = true)]
async fn cancelling_a_parent_reaches_everything_below_it() {
    let scene = Scene::new();
    let forever = scene.open().await;
    let mut ears = Ears::of(&forever);
    let roles = vec![Role::Waits, Role::Held, Role::Parent(Box::new(Role::Waits)), Role::Gives(1)];
    let handle = forever.spawn(family(roles)).id("f").await.unwrap();
    ears.hear("f", "waiting", 1).await;
    let ids = children(&forever, "f").await;
    ears.hear(&ids[0], "waiting", 1).await;
    ears.hear(&ids[2], "waiting", 1).await;
    ears.hear(&ids[3], "completed", 1).await;
    let below = children(&forever, &ids[2]).await.remove(0);
    ears.hear(&below, "waiting", 1).await;
    scene.world.reached(&format!("held {}", ids[1].len())).await;

    handle.cancel("enough").await.unwrap();
    let error = handle.wait().await.unwrap_err();
    assert!(error.is_cancelled());
    assert_eq!(error.reason(), "enough");
    for id in [&ids[0], &ids[2], &below] {
        assert_eq!(forever.fiber::<child>(id).wait().await.unwrap_err().reason(), "enough");
    }
    // One that runs ends at its next checkpoint.
    assert_eq!(forever.fiber::<child>(&ids[1]).status().await.unwrap().state, FiberState::Running);
    scene.world.let_go(1);
    assert!(forever.fiber::<child>(&ids[1]).wait().await.unwrap_err().is_cancelled());
    assert!(!scene.world.log().contains(&"went on".to_owned()));
    assert_eq!(forever.fiber::<child>(&ids[3]).wait().await.unwrap(), 1, "what has ended stays as it is");
    for id in ["f", &ids[0], &ids[1], &ids[2], &below] {
        ears.hear(id, "cancelled", 1).await;
    }
}

#[fiber]
async fn keeps(world: Res<World>) -> anyhow::Result<u32> {
    // Not a step: what follows is the first checkpoint after the gate.
    world.held("about to spawn").await;
    let handle = spawn!(child(Role::Gives(1)));
    Ok(wait!(handle)?)
}

#[tokio::test(start_paused = true)]
async fn a_fiber_that_is_told_to_end_makes_no_children_any_more() {
    let scene = Scene::new();
    let forever = scene.open().await;
    let handle = forever.spawn(keeps()).id("k").await.unwrap();
    scene.world.reached("about to spawn").await;
    handle.cancel("enough").await.unwrap();
    scene.world.let_go(1);
    assert!(handle.wait().await.unwrap_err().is_cancelled());
    assert_eq!(forever.fibers().name("child").await.unwrap().fibers, []);
    assert_eq!(scene.world.log(), ["about to spawn"]);
}

#[fiber]
async fn checks(world: Res<World>, good: u32) -> anyhow::Result<(Vec<u32>, u32)> {
    let numbers = steps!(for number in 0..=good, limit = 1, {
        world.did(format!("check {number}")).await;
        if number == 1 && world.present() == 0 { world.held("hold").await; }
        anyhow::ensure!(number < good || world.present() > 0, "{number} is bad");
        number
    });
    Ok((numbers, recv!("word")))
}

#[tokio::test(start_paused = true)]
async fn a_failed_fiber_keeps_what_had_arrived_and_what_was_sent_to_it() {
    let scene = Scene::new();
    let forever = scene.open().await;
    let mut ears = Ears::of(&forever);
    let handle = forever.spawn(checks(2)).id("c").await.unwrap();
    scene.world.reached("hold").await;
    // It is stored, and not received before the failure.
    forever.send("c", "word", &8).await.unwrap();
    scene.world.let_go(1);
    assert_eq!(handle.wait().await.unwrap_err().reason(), "2 is bad");
    ears.hear("c", "failed", 1).await;
    assert_eq!(scene.world.log(), ["check 0", "check 1", "hold", "check 2"]);

    let _fixed = scene.world.enter();
    forever.resume("c").await.unwrap();
    assert_eq!(handle.wait().await.unwrap(), (vec![0, 1, 2], 8));
    assert_eq!(scene.world.log(), ["check 0", "check 1", "hold", "check 2", "check 2"]);
}
