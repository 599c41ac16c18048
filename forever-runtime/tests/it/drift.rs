//! Snapshots and arguments that do not fit the code: parked with a reason, untouched, resumed when they fit.
use forever_runtime::__private::{Arguments, Cut, CutKind, END, Frame, Machine, Needs, Unreadable};
use forever_runtime::Forever;
use forever_runtime::fiber::{Fiber, FiberContext, FiberErrorKind, FiberState, Snapshot};

use crate::fibers::{Outer, Three, cut, local, machine, three};
use crate::support::{Place, Probe};

/// A file with a fiber `a` that stands at its first step.
async fn left_at_step_one() -> (Place, Probe) {
    let (place, probe) = (Place::new(), Probe::default());
    probe.hold("a.two");
    let forever = place.open(&probe).await;
    forever.spawn(three("a")).key("a").await.unwrap();
    probe.reached("a.two").await;
    drop(forever);
    probe.clear();
    (place, probe)
}

/// Opens, expects `a` to be parked for a reason that contains `why`, and an unrelated fiber to run.
async fn parks(place: &Place, probe: &Probe, why: &str) {
    let before = place.text("SELECT coalesce(data, '') || args FROM snapshots JOIN fibers ON seq = fiber WHERE key = 'a'");
    let forever = place.open(probe).await;
    let handle = forever.fiber_by_key::<Three>("a").await.unwrap();
    let error = handle.wait().await.unwrap_err();
    assert_eq!(error.kind(), FiberErrorKind::Parked);
    assert!(error.is_parked() && error.reason().contains(why), "{error}");
    assert_eq!(handle.status().await.unwrap().state, FiberState::Parked);
    assert_eq!(forever.run(three("b")).await.unwrap(), 17);
    forever.close().await.unwrap();
    let after = place.text("SELECT coalesce(data, '') || args FROM snapshots JOIN fibers ON seq = fiber WHERE key = 'a'");
    assert_eq!(before, after, "the row is not touched");
    assert!(!probe.log().iter().any(|step| step.starts_with("a.")));
}

async fn goes_on(place: &Place, probe: &Probe) {
    let forever = place.open(probe).await;
    assert_eq!(forever.fiber_by_key::<Three>("a").await.unwrap().wait().await.unwrap(), 17);
    forever.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_corrupt_snapshot_parks_its_fiber_and_no_other() {
    let (place, probe) = left_at_step_one().await;
    let good = place.text("SELECT data FROM snapshots");
    for bad in ["{\"at\":\"one\",", "[]", "", "{\"at\":\"one\",\"locals\":{},\"call\":null,\"more\":1}"] {
        place.sql().execute("UPDATE snapshots SET data = ?1", [bad]).unwrap();
        parks(&place, &probe, "the stored snapshot cannot be read: ").await;
    }
    place.sql().execute("UPDATE snapshots SET data = ?1", [good]).unwrap();
    goes_on(&place, &probe).await;
}

#[tokio::test(start_paused = true)]
async fn text_that_is_not_utf_8_parks_its_fiber_and_no_other() {
    let (place, probe) = left_at_step_one().await;
    let good = place.text("SELECT data FROM snapshots");
    place.sql().execute("UPDATE snapshots SET data = CAST(x'ff7b' AS TEXT)", ()).unwrap();
    let forever = place.open(&probe).await;
    let error = forever.fiber_by_key::<Three>("a").await.unwrap().wait().await.unwrap_err();
    assert!(error.is_parked(), "{error}");
    assert_eq!(forever.run(three("b")).await.unwrap(), 17);
    drop(forever);
    place.sql().execute("UPDATE snapshots SET data = ?1", [good]).unwrap();
    goes_on(&place, &probe).await;
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_without_a_needed_local_parks_its_fiber() {
    let (place, probe) = left_at_step_one().await;
    place.sql().execute("UPDATE snapshots SET data = '{\"at\":\"one\",\"locals\":{\"label\":\"a\"},\"call\":null}'", ()).unwrap();
    parks(&place, &probe, "`total`").await;
}

#[tokio::test(start_paused = true)]
async fn a_local_of_another_type_parks_its_fiber() {
    let (place, probe) = left_at_step_one().await;
    place.sql().execute("UPDATE snapshots SET data = replace(data, '5', '\"five\"')", ()).unwrap();
    parks(&place, &probe, "local `total` saved at step `one` cannot be read as `u64`").await;
    assert_eq!(place.number("SELECT deaths FROM snapshots WHERE data IS NOT NULL"), 1, "being parked is no death");
    place.sql().execute("UPDATE snapshots SET data = replace(data, '\"five\"', '5')", ()).unwrap();
    goes_on(&place, &probe).await;
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_that_is_gone_parks_its_fiber_which_does_not_begin_anew() {
    let (place, probe) = left_at_step_one().await;
    place.sql().execute_batch("CREATE TABLE before AS SELECT * FROM snapshots; UPDATE snapshots SET data = NULL").unwrap();
    parks(&place, &probe, "its snapshot is missing").await;
    place.sql().execute_batch("PRAGMA foreign_keys = OFF; DELETE FROM snapshots").unwrap();
    let forever = place.open(&probe).await;
    let error = forever.fiber_by_key::<Three>("a").await.unwrap().wait().await.unwrap_err();
    assert!(error.is_parked() && error.reason().contains("its row in `snapshots` is missing"), "{error}");
    forever.close().await.unwrap();
    assert!(!probe.log().iter().any(|step| step.starts_with("a.")));
    place.sql().execute_batch("INSERT INTO snapshots SELECT * FROM before WHERE fiber = 1; DROP TABLE before").unwrap();
    goes_on(&place, &probe).await;
}

#[tokio::test(start_paused = true)]
async fn deaths_that_cannot_be_counted_any_more_keep_nobody_from_being_opened() {
    let (place, probe) = left_at_step_one().await;
    for absurd in [i64::MAX, -7] {
        place.sql().execute("UPDATE fibers SET state = 'running' WHERE key = 'a'", ()).unwrap();
        place.sql().execute("UPDATE snapshots SET deaths = ?1", [absurd]).unwrap();
        probe.hold("a.two");
        let forever = place.open(&probe).await;
        assert_eq!(forever.run(three("b")).await.unwrap(), 17);
        let handle = forever.fiber_by_key::<Three>("a").await.unwrap();
        assert_eq!(handle.status().await.unwrap().id, handle.id());
        drop(forever);
        probe.clear();
    }
}

#[tokio::test(start_paused = true)]
async fn a_row_that_cannot_be_read_does_not_keep_the_others_from_being_listed() {
    let (place, probe) = left_at_step_one().await;
    let forever = place.open(&probe).await;
    for name in ["b", "c", "d"] {
        forever.run(three(name)).await.unwrap();
    }
    forever.close().await.unwrap();
    drop(forever);
    let sql = place.sql();
    sql.execute_batch("PRAGMA ignore_check_constraints = ON; UPDATE fibers SET state = 'asleep' WHERE seq = 2").unwrap();
    for column in ["name", "key", "reason", "args", "metadata", "result", "agent", "class"] {
        sql.execute(&format!("UPDATE fibers SET {column} = CAST(x'61ff' AS TEXT) WHERE seq = 3"), ()).unwrap();
        let forever = place.open(&probe).await;
        let mut seen = Vec::new();
        let mut page = forever.fibers().limit(1).await.unwrap();
        while let Some(next) = page.next {
            seen.extend(page.fibers.iter().map(|fiber| fiber.state));
            page = forever.fibers().limit(1).after(next).await.unwrap();
        }
        assert_eq!(seen.len(), 3, "{column}: all but the one of which the state is not known, page by page");
        forever.close().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_step_that_is_gone_parks_its_fiber() {
    let (place, probe) = left_at_step_one().await;
    place.sql().execute("UPDATE snapshots SET data = replace(data, 'one', 'zero')", ()).unwrap();
    parks(&place, &probe, "`zero`").await;
}

#[tokio::test(start_paused = true)]
async fn corrupt_arguments_park_a_fiber_that_has_not_begun() {
    let (place, probe) = (Place::new(), Probe::default());
    probe.hold("a.one");
    let forever = place.open(&probe).await;
    forever.spawn(three("a")).key("a").await.unwrap();
    drop(forever);
    probe.clear();
    for (bad, why) in [
        ("{\"label\":", "the stored arguments are not a JSON object"),
        ("{}", "argument `label` is not stored"),
        ("{\"label\":7}", "argument `label` cannot be read as `String`"),
    ] {
        place.sql().execute("UPDATE fibers SET args = ?1 WHERE key = 'a'", [bad]).unwrap();
        parks(&place, &probe, why).await;
    }
    place.sql().execute("UPDATE fibers SET args = '{\"label\":\"a\"}' WHERE key = 'a'", ()).unwrap();
    goes_on(&place, &probe).await;
}

#[tokio::test(start_paused = true)]
async fn a_fiber_that_is_not_registered_waits_for_the_program_that_knows_it() {
    let (place, probe) = left_at_step_one().await;
    for _ in 0..2 {
        let forever = Forever::builder().resource(probe.clone()).fiber::<Outer>().sqlite(place.path()).open().await.unwrap();
        let error = forever.fiber_by_key::<Three>("a").await.unwrap().wait().await.unwrap_err();
        assert!(error.is_parked());
        assert_eq!(error.reason(), "fiber `three` is not registered: register it, or give the function that it is now `name = \"three\"`");
        forever.close().await.unwrap();
    }
    goes_on(&place, &probe).await;
}

#[tokio::test(start_paused = true)]
async fn the_layout_of_each_snapshot_is_kept() {
    let (place, _) = left_at_step_one().await;
    let layout = forever_runtime::layout::of::<Three>();
    let (hash, stored) = place
        .sql()
        .query_row("SELECT hash, l.layout FROM snapshots s JOIN layouts l ON hash = s.layout", (), |r| {
            Ok((r.get::<_, String>(0)?, r.get::<_, String>(1)?))
        })
        .unwrap();
    assert_eq!(hash, layout.hash());
    assert_eq!(serde_json::from_str::<forever_runtime::layout::Layout>(&stored).unwrap(), layout);
}

#[tokio::test(start_paused = true)]
async fn code_that_does_not_fit_parks_and_a_migration_makes_it_fit() {
    let (place, probe) = left_at_step_one().await;
    let forever = Forever::builder().fiber::<Renamed<false>>().sqlite(place.path()).open().await.unwrap();
    let error = forever.fiber_by_key::<Renamed<false>>("a").await.unwrap().wait().await.unwrap_err();
    assert!(error.is_parked() && error.reason().contains("`one`"), "{error}");
    forever.close().await.unwrap();
    drop(forever);

    let forever = Forever::builder().fiber::<Renamed<true>>().sqlite(place.path()).open().await.unwrap();
    assert_eq!(forever.fiber_by_key::<Renamed<true>>("a").await.unwrap().wait().await.unwrap(), 5);
    forever.close().await.unwrap();
    assert!(probe.log().is_empty());
}

/// A later version of [`Three`] with one step of another name, with and without a migration.
struct Renamed<const MIGRATES: bool>;

const CUTS: &[Cut] = &[cut("begin", CutKind::Step, &[local("total")], &[END])];
static PLAIN: Machine = machine("three", &["label"], CUTS);
static MIGRATING: Machine = Machine {
    migrate: Some(|mut old: Snapshot| {
        assert_eq!(old.at, "one");
        "begin".clone_into(&mut old.at);
        Ok(old)
    }),
    ..machine("three", &["label"], CUTS)
};

impl<const MIGRATES: bool> Fiber for Renamed<MIGRATES> {
    type Output = u64;
    type Error = String;
    const MACHINE: &'static Machine = if MIGRATES { &MIGRATING } else { &PLAIN };
    fn needs(_: &mut Needs<'_>) {}
    fn arguments(access: Arguments<'_, '_, Self>) -> Result<Option<Self>, Unreadable> {
        match access {
            Arguments::Save(_, save) => {
                save.put("label", &String::new());
                Ok(None)
            }
            Arguments::Load(_) => Ok(Some(Renamed)),
        }
    }
    async fn drive<'run>(_: Option<Self>, _: &'run FiberContext, frame: &'run mut Frame) -> Result<u64, String> {
        let total = frame.restore(|l| l.get::<u64>("total")).await;
        frame.arrive(0).await;
        Ok(total)
    }
}
