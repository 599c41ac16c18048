//! What becomes of what version 2 has brought: waits, messages, children, closures, agents and schedules.
use std::time::Duration;

use forever::Forever;
use forever::fiber::{FiberState, Resolution};
use forever::testing::VirtualClock;
use serde_json::json;

use super::{soon, until};
use crate::desk::Desk;
use crate::programs::two::{Clerk, HOUR, Papers, choosy, inbox, lines, owned, pages, parent, side, sleeper, told, waits};

pub(crate) async fn finish(forever: &Forever, clock: &VirtualClock, desk: &Desk) {
    at_once(forever).await;
    messages(forever).await;
    agents(forever, clock, desk).await;
    closures(forever).await;
}

/// What needs neither time nor messages.
async fn at_once(forever: &Forever) {
    assert_eq!(soon("side", forever.fiber::<side>("side").wait()).await.unwrap(), 1024);
    assert_eq!(soon("pages", forever.fiber::<pages>("pages").wait()).await.unwrap(), [6, 7, 8, 9, 10, 11]);
    let log: Vec<_> = (0..8).map(|n| (n, 6, 1000)).collect();
    assert_eq!(soon("lines", forever.fiber::<lines>("lines").wait()).await.unwrap(), format!("1000 800 {log:?}"));
    for (id, reason) in [("cancelled", "not needed"), ("told", "enough")] {
        let error = soon(id, forever.fiber::<told>(id).wait()).await.unwrap_err();
        assert!(error.is_cancelled(), "{error}");
        assert_eq!(error.reason(), reason);
    }
    let joined = forever.spawn(told("held back".to_owned())).key("cancelled too").await.unwrap();
    assert!(!joined.accepted());
    assert_eq!(joined.id(), "cancelled");
}

async fn messages(forever: &Forever) {
    let handle = forever.fiber::<inbox>("inbox");
    until("inbox", || async { handle.status().await.unwrap().state == FiberState::Waiting }).await;
    forever.send("inbox", "mail", "four").await.unwrap();
    assert_eq!(soon("inbox", handle.wait()).await.unwrap(), ["one", "two", "three", "four", "Some(4)"]);

    let patient = forever.fiber::<waits>("patient");
    assert_eq!(patient.status().await.unwrap().state, FiberState::Waiting);
    forever.send("patient", "word", "at last").await.unwrap();
    assert_eq!(soon("patient", patient.wait()).await.unwrap().as_deref(), Some("at last"));

    let choosy = forever.fiber::<choosy>("choosy");
    let error = soon("choosy", choosy.wait()).await.unwrap_err();
    assert_eq!(error.reason(), "no more");
    forever.resume("choosy").await.unwrap();
    assert_eq!(soon("choosy", choosy.wait()).await.unwrap(), 12, "what was sent before it failed is still there");
}

async fn agents(forever: &Forever, clock: &VirtualClock, desk: &Desk) {
    let ada = forever.agent::<Clerk>("ada");
    let papers = Papers { pile: vec!["a".to_owned(), "\u{e9}".to_owned()], top: Some(u64::MAX) };
    assert_eq!(ada.state().await.unwrap(), papers);
    assert_eq!(soon("owned", forever.fiber::<owned>("owned").wait()).await.unwrap(), 5);
    let closure = forever.find_fiber::<(Vec<u32>, String)>("closure of ada").await.unwrap();
    let (stash, reason) = soon("closure of ada", closure.wait()).await.unwrap();
    assert_eq!((stash, reason.as_str()), (vec![4, 5], "the process died"));

    let done = |work: &'static str, times: usize| {
        let desk = desk.clone();
        until(work, move || {
            let there = desk.done().iter().filter(|w| *w == work).count() == times;
            async move { there }
        })
    };
    let sleeper = forever.fiber::<sleeper>("sleeper");
    let impatient = forever.fiber::<waits>("impatient");
    assert_eq!(sleeper.status().await.unwrap().state, FiberState::Waiting);
    clock.advance(Duration::from_secs(1));
    done("ada: shaky at last", 1).await;
    clock.advance(HOUR);
    assert_eq!(soon("sleeper", sleeper.wait()).await.unwrap(), 17);
    assert_eq!(soon("parent", forever.fiber::<parent>("parent").wait()).await.unwrap(), [100, 100, 101, 102]);
    done("ada: once after an hour", 1).await;
    done("ada: often {\"n\":1}", 1).await;
    assert_eq!(impatient.status().await.unwrap().state, FiberState::Waiting);
    clock.advance(23 * HOUR);
    assert_eq!(soon("impatient", impatient.wait()).await.unwrap(), None);
    done("ada: once at three", 1).await;
    done("ada: cron midnight", 1).await;
    done("ada: often {\"n\":1}", 2).await;
    // What is due once is gone.
    until("schedules", || async { ada.schedules().await.unwrap().iter().filter(|s| !s.is_running()).count() == 2 }).await;
}

async fn closures(forever: &Forever) {
    let closure = forever.find_fiber::<Vec<u32>>("closure").await.unwrap();
    let status = closure.status().await.unwrap();
    assert_eq!((status.state, status.is_closure, status.metadata), (FiberState::Interrupted, true, Some(json!("by hand"))));
    forever.resolve("closure", Resolution::completed(&vec![6]).unwrap()).await.unwrap();
    assert_eq!(soon("closure", closure.wait()).await.unwrap(), [6]);
}
