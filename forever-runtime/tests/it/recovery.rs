//! What an earlier process has left goes on.
use crate::fibers::{Outer, Three, three};
use crate::support::{Place, Probe};

#[tokio::test]
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
    assert_eq!(forever.handle::<Three>(&id).wait().await.unwrap(), 17);
    assert_eq!(forever.by_key::<Three>("k").await.unwrap().wait().await.unwrap(), 17);
    assert_eq!(probe.log(), ["a.three", "a.end"]);
    forever.close().await.unwrap();
}

#[tokio::test]
async fn a_fiber_goes_on_inside_the_one_it_calls() {
    let (place, probe) = (Place::new(), Probe::default());
    probe.hold("o.inner.two");
    let forever = place.open(&probe).await;
    let id = forever.spawn(Outer { label: "o".into() }).await.unwrap().id().to_owned();
    probe.reached("o.inner.two").await;
    drop(forever);

    probe.clear();
    let forever = place.open(&probe).await;
    assert_eq!(forever.handle::<Outer>(&id).wait().await.unwrap(), 11 + 11 + 13);
    assert_eq!(probe.log(), ["o.inner.two", "o.inner.three", "o.inner.end", "o.after"]);
}
