//! How fibers end: results, errors and panics, now and after a restart.
use std::fmt;

use forever_runtime::__private::{Arguments, CutKind, END, Frame, Machine, Needs, Unreadable};
use forever_runtime::Forever;
use forever_runtime::fiber::{Fiber, FiberContext, FiberErrorKind, FiberState};
use serde::{Deserialize, Serialize, Serializer, ser::Error as _};

use crate::fibers::{Big, Three, cut, local, machine, plain, three};
use crate::support::{Place, Plan, Probe, usual};

#[tokio::test(start_paused = true)]
async fn an_error_ends_the_fiber_with_its_text_and_keeps_its_snapshot() {
    let (place, probe) = (Place::new(), Probe::default());
    probe.plan("a.two", Plan::Fail("no more".into()));
    let forever = place.open(&probe).await;
    let handle = forever.spawn(three("a")).key("k").await.unwrap();
    let error = handle.wait().await.unwrap_err();
    assert!(error.is_failed());
    assert_eq!((error.reason(), error.id()), ("no more", handle.id()));
    assert_eq!(error.to_string(), format!("fiber `three` ({}) failed: no more", handle.id()));
    forever.close().await.unwrap();
    drop((forever, handle));

    probe.clear();
    let forever = place.open(&probe).await;
    let handle = forever.fiber_by_key::<Three>("k").await.unwrap();
    assert_eq!(handle.wait().await.unwrap_err(), error);
    assert_eq!(handle.status().await.unwrap().at.as_deref(), Some("one"));
    assert!(probe.log().is_empty(), "what has ended does not run again");
}

#[tokio::test(start_paused = true)]
async fn an_error_is_kept_with_its_causes() {
    let forever = usual(&Probe::default()).fiber::<Chained>().in_memory().open().await.unwrap();
    let error = forever.run(Chained { n: 1 }).await.unwrap_err();
    assert_eq!(error.reason(), "outer: middle 1");
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_the_failure_of_its_fiber_alone() {
    let probe = Probe::default();
    probe.plan("a.two", Plan::Panic("index out of bounds".into()));
    let gate = probe.hold("b.two");
    let forever = usual(&probe).in_memory().open().await.unwrap();
    let other = forever.spawn(three("b")).await.unwrap();
    let handle = forever.spawn(three("a")).await.unwrap();
    let error = handle.wait().await.unwrap_err();
    assert!(error.is_failed());
    assert_eq!(error.reason(), "panicked: index out of bounds");
    assert_eq!(handle.status().await.unwrap().state, FiberState::Failed);
    gate.add_permits(1);
    assert_eq!(other.wait().await.unwrap(), 17);
}

#[tokio::test(start_paused = true)]
async fn a_result_that_cannot_be_saved_is_a_failure_that_says_so() {
    let forever = usual(&Probe::default()).fiber::<BadResult>().fiber::<PanickingResult>().in_memory().open().await.unwrap();
    let error = forever.run(BadResult { n: 1 }).await.unwrap_err();
    assert!(error.is_failed());
    assert!(error.reason().starts_with("the result cannot be saved: "), "{error}");
    assert!(error.reason().contains("cannot be written"), "{error}");
    let error = forever.run(PanickingResult { n: 1 }).await.unwrap_err();
    assert_eq!(error.reason(), "the result cannot be saved: panicked: no such luck");
}

#[tokio::test(start_paused = true)]
async fn a_local_that_cannot_be_saved_is_a_failure_that_names_it() {
    let forever = usual(&Probe::default()).fiber::<BadLocal>().in_memory().open().await.unwrap();
    let error = forever.run(BadLocal).await.unwrap_err();
    assert!(error.is_failed());
    assert!(error.reason().starts_with("local `odd` cannot be saved at step `first`: "), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_called_fiber_that_lacks_a_resource_fails_its_caller_with_words() {
    let forever = Forever::builder().fiber::<Calls>().in_memory().open().await.unwrap();
    let error = forever.run(Calls).await.unwrap_err();
    assert!(error.is_failed());
    assert_eq!(
        error.reason(),
        "panicked: a fiber called from `calls` needs a `it::support::Probe`: add it with `.resource(..)`, and the fiber with `.fiber(..)`"
    );
}

#[tokio::test(start_paused = true)]
async fn a_result_of_another_type_is_an_error_that_names_it() {
    let place = Place::new();
    let forever = place.open(&Probe::default()).await;
    let id = forever.spawn(three("a")).await.unwrap().id().to_owned();
    forever.fiber::<Three>(&id).wait().await.unwrap();
    place.sql().execute("UPDATE fibers SET result = '\"seventeen\"'", ()).unwrap();
    let error = forever.fiber::<Three>(&id).wait().await.unwrap_err();
    assert_eq!(error.kind(), FiberErrorKind::Value);
    assert!(error.to_string().contains("completed, but its result cannot be read as `u64`"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn locals_of_64_mib_survive_a_crash() {
    let (place, probe) = (Place::new(), Probe::default());
    probe.hold("big.end");
    let forever = place.open(&probe).await;
    let bytes = 64 << 20;
    let handle = forever.spawn(Big { bytes }).key("k").await.unwrap();
    probe.reached("big.end").await;
    drop((forever, handle));

    probe.clear();
    let forever = place.open(&probe).await;
    assert_eq!(forever.fiber_by_key::<Big>("k").await.unwrap().wait().await.unwrap(), bytes);
    assert_eq!(probe.log(), ["big.end"]);
}

#[derive(Debug)]
pub struct Outer(std::io::Error);

impl fmt::Display for Outer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("outer")
    }
}

impl std::error::Error for Outer {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

#[derive(Debug, Deserialize)]
pub struct Unwritten;

impl Serialize for Unwritten {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(S::Error::custom("cannot be written"))
    }
}

#[derive(Debug, Deserialize)]
pub struct Panics;

impl Serialize for Panics {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        panic!("no such luck")
    }
}

plain!(Chained, "chained", n: u8, (), Outer, Err(Outer(std::io::Error::other(format!("middle {n}")))));
plain!(BadResult, "bad_result", n: u8, Unwritten, String, if n == 1 { Ok(Unwritten) } else { Err(String::new()) });
plain!(PanickingResult, "panicking_result", n: u8, Panics, String, if n == 1 { Ok(Panics) } else { Err(String::new()) });

struct BadLocal;

static BAD_LOCAL: Machine = machine("bad_local", &[], &[cut("first", CutKind::Step, &[local("odd")], &[END])]);

impl Fiber for BadLocal {
    type Output = ();
    type Error = String;
    const MACHINE: &'static Machine = &BAD_LOCAL;
    fn needs(_: &mut Needs<'_>) {}
    fn arguments(access: Arguments<'_, '_, Self>) -> Result<Option<Self>, Unreadable> {
        Ok(matches!(access, Arguments::Load(_)).then_some(BadLocal))
    }
    async fn drive<'run>(_: Option<Self>, _: &'run FiberContext, frame: &'run mut Frame) -> Result<(), String> {
        frame.checkpoint(0, |save| save.put("odd", &Unwritten)).await;
        Ok(())
    }
}

/// Calls a fiber that the builder was not told of.
struct Calls;

static CALLS: Machine = machine("calls", &[], &[cut("three", CutKind::Call, &[], &[END])]);

impl Fiber for Calls {
    type Output = ();
    type Error = String;
    const MACHINE: &'static Machine = &CALLS;
    fn needs(_: &mut Needs<'_>) {}
    fn arguments(access: Arguments<'_, '_, Self>) -> Result<Option<Self>, Unreadable> {
        Ok(matches!(access, Arguments::Load(_)).then_some(Calls))
    }
    async fn drive<'run>(_: Option<Self>, ctx: &'run FiberContext, frame: &'run mut Frame) -> Result<(), String> {
        frame.call(0, Some(three("a")), ctx, None, |_| ()).await.map(drop)
    }
}
