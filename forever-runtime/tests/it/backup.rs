//! Copies of a database that is in use.
use std::path::PathBuf;

use forever_runtime::fiber::FiberState;
use forever_runtime::{ErrorKind, Forever};

use crate::fibers::{Three, three};
use crate::support::{Place, Probe, usual};

fn names(place: &Place) -> Vec<String> {
    let entries = std::fs::read_dir(place.folder.path()).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn copy_of(place: &Place) -> PathBuf {
    place.folder.path().join("copy.db")
}

/// A fiber stands in its second step, another has ended; the copy has both, and goes on by itself.
async fn copy_goes_on_by_itself(forever: Forever, probe: &Probe, elsewhere: &Place) {
    let gate = probe.hold("a.two");
    forever.spawn(three("ended")).key("ended").await.unwrap().wait().await.unwrap();
    let original = forever.spawn(three("a")).key("k").await.unwrap();
    probe.reached("a.two").await;
    forever.backup(copy_of(elsewhere)).await.unwrap();
    assert_eq!(names(elsewhere), ["copy.db"]);
    forever.spawn(three("after")).key("after").await.unwrap().wait().await.unwrap();

    let of_copy = Probe::default();
    let copy = usual(&of_copy).sqlite(copy_of(elsewhere)).open().await.unwrap();
    assert_eq!(copy.fiber_by_key::<Three>("k").await.unwrap().wait().await.unwrap(), 17);
    assert_eq!(copy.fiber_by_key::<Three>("ended").await.unwrap().status().await.unwrap().state, FiberState::Completed);
    assert_eq!(of_copy.log(), ["a.two", "a.three", "a.end"]);
    assert_eq!(copy.fiber_by_key::<Three>("after").await.unwrap_err().kind(), ErrorKind::NotFound);

    assert_eq!(original.status().await.unwrap().state, FiberState::Running);
    gate.add_permits(1);
    assert_eq!(original.wait().await.unwrap(), 17);
    copy.close().await.unwrap();
    forever.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn copy_of_a_file_goes_on_by_itself() {
    let (place, elsewhere, probe) = (Place::new(), Place::new(), Probe::default());
    copy_goes_on_by_itself(place.open(&probe).await, &probe, &elsewhere).await;
}

#[tokio::test(start_paused = true)]
async fn copy_of_a_database_in_memory_goes_on_by_itself() {
    let (elsewhere, probe) = (Place::new(), Probe::default());
    copy_goes_on_by_itself(usual(&probe).in_memory().open().await.unwrap(), &probe, &elsewhere).await;
}

#[tokio::test(start_paused = true)]
async fn copy_takes_the_place_of_no_file() {
    let (place, elsewhere, probe) = (Place::new(), Place::new(), Probe::default());
    let forever = place.open(&probe).await;
    for content in ["", "a letter"] {
        std::fs::write(copy_of(&elsewhere), content).unwrap();
        let error = forever.backup(copy_of(&elsewhere)).await.unwrap_err();
        let why = format!("failed to copy the database to `{}`: there is a file already", copy_of(&elsewhere).display());
        assert_eq!((error.kind(), error.to_string()), (ErrorKind::Store, why));
        assert_eq!(std::fs::read_to_string(copy_of(&elsewhere)).unwrap(), content);
    }
    assert_eq!(names(&elsewhere), ["copy.db"]);
    forever.backup(place.path()).await.unwrap_err();
    let missing = elsewhere.folder.path().join("none/copy.db");
    assert_eq!(forever.backup(missing).await.unwrap_err().kind(), ErrorKind::Store);
    forever.close().await.unwrap();
    assert!(forever.backup(elsewhere.folder.path().join("late.db")).await.unwrap_err().is_closed());
}

/// The reader of the copy is in nobody's way, and none is in its.
#[tokio::test(start_paused = true)]
async fn writes_go_on_while_a_copy_is_made_and_each_copy_is_whole() {
    let (place, elsewhere, probe) = (Place::new(), Place::new(), Probe::default());
    let forever = place.open(&probe).await;
    let writer = forever.clone();
    let running = tokio::spawn(async move {
        for n in 0..200 {
            writer.run(three(&format!("{n}"))).await.unwrap();
        }
    });
    let mut copies = 0;
    while !running.is_finished() {
        let path = elsewhere.folder.path().join(format!("{copies}.db"));
        forever.backup(&path).await.unwrap();
        let copy = rusqlite::Connection::open(&path).unwrap();
        let whole: String = copy.query_row("PRAGMA integrity_check", (), |row| row.get(0)).unwrap();
        assert_eq!(whole, "ok");
        let ahead: i64 = copy
            .query_row(
                "SELECT count(*) FROM fibers f WHERE (state = 'completed') = EXISTS (SELECT 1 FROM snapshots WHERE fiber = f.seq)",
                (),
                |row| row.get(0),
            )
            .unwrap();
        assert_eq!(ahead, 0, "a fiber and its snapshot are of one moment");
        copies += 1;
    }
    running.await.unwrap();
    assert!(copies > 0);
    assert!(!names(&elsewhere).concat().contains(".part"));
}

#[tokio::test(start_paused = true)]
async fn copy_that_is_given_up_leaves_nothing_at_its_place() {
    let (place, elsewhere, probe) = (Place::new(), Place::new(), Probe::default());
    let forever = place.open(&probe).await;
    forever.run(three("a")).await.unwrap();
    let given_up = tokio::time::timeout(std::time::Duration::ZERO, forever.backup(copy_of(&elsewhere))).await;
    assert!(given_up.is_err());
    assert!(!copy_of(&elsewhere).exists());
    forever.backup(copy_of(&elsewhere)).await.unwrap();
    forever.close().await.unwrap();
}
