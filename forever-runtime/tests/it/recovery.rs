//! What an earlier process has left goes on.
use forever_runtime::__private::{Arguments, Frame, Machine, Needs, Unreadable};
use forever_runtime::fiber::{Fiber, FiberContext, FiberState};

use crate::fibers::{Outer, Three, machine, three};
use crate::support::{Place, Probe, usual};

#[tokio::test(start_paused = true)]
async fn a_fiber_goes_on_in_the_middle_after_a_crash() {
    let (place, probe) = (Place::new(), Probe::default());
    let gate = probe.hold("a.three");
    let forever = place.open(&probe).await;
    let handle = forever.spawn(three("a")).key("k").await.unwrap();
    assert!(handle.accepted());
    let id = handle.id().to_owned();
    probe.reached("a.three").await;
    drop((forever, handle));
    assert_eq!(place.text("SELECT data FROM snapshots").unwrap(), r#"{"at":"two","locals":{"label":"a","total":10},"call":null}"#);

    probe.clear();
    gate.add_permits(1);
    let forever = place.open(&probe).await;
    assert_eq!(forever.fiber::<Three>(&id).wait().await.unwrap(), 17);
    assert_eq!(forever.fiber_by_key::<Three>("k").await.unwrap().wait().await.unwrap(), 17);
    assert_eq!(probe.log(), ["a.three", "a.end"]);
    forever.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_fiber_goes_on_inside_the_one_it_calls() {
    let (place, probe) = (Place::new(), Probe::default());
    probe.hold("o.inner.two");
    let forever = place.open(&probe).await;
    let id = forever.spawn(Outer { label: "o".into() }).await.unwrap().id().to_owned();
    probe.reached("o.inner.two").await;
    drop(forever);

    probe.clear();
    let forever = place.open(&probe).await;
    assert_eq!(forever.fiber::<Outer>(&id).wait().await.unwrap(), 11 + 11 + 13);
    assert_eq!(probe.log(), ["o.inner.two", "o.inner.three", "o.inner.end", "o.after"]);
}

#[tokio::test(start_paused = true)]
async fn deaths_are_counted_and_end_a_fiber_that_makes_no_progress() {
    let (place, probe) = (Place::new(), Probe::default());
    probe.hold("a.two");
    let forever = place.open(&probe).await;
    forever.spawn(three("a")).key("k").await.unwrap();
    probe.reached("a.two").await;
    drop(forever);
    for deaths in 1..=10 {
        probe.clear();
        probe.hold("a.two");
        let forever = place.open(&probe).await;
        probe.reached("a.two").await;
        let status = forever.fiber_by_key::<Three>("k").await.unwrap().status().await.unwrap();
        assert_eq!((status.state, status.deaths), (FiberState::Running, deaths));
    }
    probe.clear();
    let forever = place.open(&probe).await;
    let handle = forever.fiber_by_key::<Three>("k").await.unwrap();
    let error = handle.wait().await.unwrap_err();
    assert!(error.is_failed());
    assert!(error.reason().starts_with("the process died 11 times"), "{error}");
    assert!(probe.log().is_empty());
    assert_eq!(handle.status().await.unwrap().at.as_deref(), Some("one"), "the snapshot is kept");
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_forgets_the_deaths_before_it() {
    let (place, probe) = (Place::new(), Probe::default());
    probe.hold("a.two");
    let forever = place.open(&probe).await;
    forever.spawn(three("a")).key("k").await.unwrap();
    probe.reached("a.two").await;
    drop(forever);
    probe.clear();
    probe.hold("a.three");
    let forever = place.open(&probe).await;
    probe.reached("a.three").await;
    assert_eq!(forever.fiber_by_key::<Three>("k").await.unwrap().status().await.unwrap().deaths, 0);
}

#[tokio::test(start_paused = true)]
async fn a_fiber_may_say_how_many_recoveries_it_has() {
    let (place, probe) = (Place::new(), Probe::default());
    let open = || usual(&probe).fiber::<Once>().sqlite(place.path()).open();
    probe.hold("once");
    let forever = open().await.unwrap();
    forever.spawn(Once).key("k").await.unwrap();
    probe.reached("once").await;
    drop(forever);
    probe.clear();
    probe.hold("once");
    let forever = open().await.unwrap();
    probe.reached("once").await;
    drop(forever);
    let forever = open().await.unwrap();
    let error = forever.fiber_by_key::<Once>("k").await.unwrap().wait().await.unwrap_err();
    assert_eq!(error.reason(), "the process died 2 times while it ran, without a checkpoint in between; 1 recoveries are allowed");
}

#[tokio::test(start_paused = true)]
async fn unfinished_fibers_are_entered_oldest_first() {
    let (place, probe) = (Place::new(), Probe::default());
    let labels: Vec<String> = (0..30).map(|n| format!("f{n}")).collect();
    for label in &labels {
        probe.hold(&format!("{label}.two"));
    }
    let forever = place.open(&probe).await;
    for label in &labels {
        // Ids in the opposite order: age counts, not names.
        forever.spawn(three(label)).id(format!("{:03}", 900 - probe.log().len())).await.unwrap();
        probe.reached(&format!("{label}.two")).await;
    }
    drop(forever);
    probe.clear();
    for label in &labels {
        probe.hold(&format!("{label}.two"));
    }
    let forever = place.open(&probe).await;
    probe.reached("f29.two").await;
    assert_eq!(probe.log(), labels.iter().map(|l| format!("{l}.two")).collect::<Vec<_>>());
    drop(forever);
}

#[tokio::test(start_paused = true)]
async fn a_fiber_that_was_stored_but_not_entered_is_started() {
    let (place, probe) = (Place::new(), Probe::default());
    place.open(&probe).await.close().await.unwrap();
    let sql =
        "INSERT INTO fibers (id, name, state, args, created_ms, changed_ms) VALUES ('x', 'three', 'pending', '{\"label\":\"a\"}', 1, 1)";
    place.sql().execute_batch(&format!("{sql}; INSERT INTO snapshots (fiber) SELECT seq FROM fibers")).unwrap();
    let forever = place.open(&probe).await;
    assert_eq!(forever.fiber::<Three>("x").wait().await.unwrap(), 17);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_comes_right_after_the_restart_gets_the_result() {
    let (place, probe) = (Place::new(), Probe::default());
    let gate = probe.hold("a.two");
    let forever = place.open(&probe).await;
    forever.spawn(three("a")).key("k").await.unwrap();
    probe.reached("a.two").await;
    drop(forever);
    let forever = place.open(&probe).await;
    let joined = forever.spawn(three("a")).key("k").await.unwrap();
    assert!(!joined.accepted());
    gate.add_permits(1);
    assert_eq!(joined.wait().await.unwrap(), 17);
}

/// May be recovered once.
struct Once;

static ONCE: Machine = Machine { max_recoveries: Some(1), first: &[], ..machine("once", &[], &[]) };

impl Fiber for Once {
    type Output = ();
    type Error = String;
    const MACHINE: &'static Machine = &ONCE;
    fn needs(_: &mut Needs<'_>) {}
    fn arguments(access: Arguments<'_, '_, Self>) -> Result<Option<Self>, Unreadable> {
        Ok(matches!(access, Arguments::Load(_)).then_some(Once))
    }
    async fn drive<'run>(_: Option<Self>, ctx: &'run FiberContext, _: &'run mut Frame) -> Result<(), String> {
        ctx.resource::<Probe>().step("once").await.map(drop)
    }
}
