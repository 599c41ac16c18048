//! Servers that fail: a primary that is lost, and a disk that is full.
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use forever::fiber::{FiberErrorKind, FiberHandle, FiberState};
use forever::prelude::*;
use forever::{BoxError, ErrorKind};
use forever_postgres::PostgresStore;
use forever_testkit::waiting::{eventually, soon};
use tokio::sync::watch;
use tokio_postgres::NoTls;

use crate::cluster;

const FIBERS: u64 = 6;
const STEPS: u64 = 60;
const LEASE: Duration = Duration::from_secs(4);

/// What happened, in its order: each body of a step, and each step that has finished.
#[derive(Clone, Default)]
struct Notes {
    seen: Arc<Mutex<Vec<(bool, String)>>>,
    /// Whether the last steps may end.
    may_end: Arc<watch::Sender<bool>>,
}

impl Notes {
    fn body(&self, step: &str) {
        self.seen.lock().unwrap().push((false, step.to_owned()));
    }

    fn finished(&self, step: &str) {
        self.seen.lock().unwrap().push((true, step.to_owned()));
    }

    fn len(&self) -> usize {
        self.seen.lock().unwrap().len()
    }

    /// Lets the last steps end, of which none has ended before.
    fn let_them_end(&self) {
        self.may_end.send_replace(true);
    }

    /// The steps that have finished, after a check that the body of none of them ran again.
    fn finished_once(&self) -> BTreeSet<String> {
        let mut finished = BTreeSet::new();
        for (is_finished, step) in &*self.seen.lock().unwrap() {
            if *is_finished {
                finished.insert(step.clone());
            } else {
                assert!(!finished.contains(step), "{step} has finished, and its body runs again");
            }
        }
        finished
    }
}

#[fiber]
async fn noted(notes: Res<Notes>, name: String) -> Result<u64, BoxError> {
    let mut sum = 0;
    for n in 0..STEPS {
        let step = format!("{name} {n}");
        sum += step!("add", {
            notes.body(&step);
            if n == STEPS - 1 {
                notes.may_end.subscribe().wait_for(|may| *may).await?;
            }
            n
        });
        notes.finished(&step);
    }
    Ok(sum)
}

/// The texts of the causes of an error.
fn causes(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(String::new, |cause| format!("{cause}: {}", causes(cause)))
}

async fn open(url: &str, notes: &Notes) -> Forever {
    let store = PostgresStore::builder(url).lease(LEASE).connect().await.unwrap();
    Forever::builder().store(store).fiber::<noted>().resource(notes.clone()).open().await.unwrap()
}

/// The result of a fiber. While the server is gone for long, those who wait for a fiber are told that
/// it is interrupted, and it is tried again.
async fn result_of(handle: &FiberHandle<u64>) -> u64 {
    let result = async {
        loop {
            match handle.wait().await {
                Ok(result) => return result,
                Err(error) if error.kind() == FiberErrorKind::Interrupted => tokio::time::sleep(Duration::from_millis(20)).await,
                Err(error) => panic!("{error}"),
            }
        }
    };
    soon("it ends", result).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fibers_go_on_at_a_promoted_standby_and_repeat_no_finished_step() {
    let Some(primary) = cluster::own() else { return };
    let standby = primary.start_standby();
    let (client, connection) = tokio_postgres::connect(&primary.url(), NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    eventually("the standby is synchronous", async || {
        client.query("SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'", &[]).await.unwrap().len() == 1
    })
    .await;
    drop(client);
    connection.await.unwrap().unwrap();

    // The standby comes first: it accepts connections, and no writes.
    let url = format!("host={},{} user=postgres dbname=postgres", standby.folder().display(), primary.folder().display());
    let notes = Notes::default();
    let (a, b) = (open(&url, &notes).await, open(&url, &notes).await);
    let mut handles = Vec::new();
    for n in 0..FIBERS {
        handles.push([&a, &b][usize::from(n % 2 == 1)].spawn(noted(format!("f{n}"))).await.unwrap());
    }
    eventually("they are under way", async || notes.len() as u64 > FIBERS * STEPS / 2).await;
    primary.crash();
    notes.let_them_end();
    standby.promote();
    for handle in &handles {
        let result = soon("it ends", handle.wait()).await.unwrap();
        assert_eq!(result, STEPS * (STEPS - 1) / 2);
        assert_eq!(handle.status().await.unwrap().state, FiberState::Completed);
    }
    assert_eq!(notes.finished_once().len() as u64, FIBERS * STEPS);
    a.close().await.unwrap();
    b.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fibers_wait_for_room_on_a_full_disk_of_the_server() {
    let Some(server) = cluster::own() else { return };
    let Some(disk) = server.small_disk(24) else { return };
    let (client, connection) = tokio_postgres::connect(&server.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute(&format!("CREATE TABLESPACE small LOCATION '{}'", disk.folder().display())).await.unwrap();
    let url = format!("{} options='-c default_tablespace=small'", server.url());
    let notes = Notes::default();
    let forever = open(&url, &notes).await;
    let mut handles = Vec::new();
    for n in 0..FIBERS {
        handles.push(forever.spawn(noted(format!("f{n}"))).await.unwrap());
    }
    eventually("they are under way", async || notes.len() as u64 > FIBERS * STEPS / 4).await;
    disk.fill();
    // What a page has room for is stored all the same.
    let big = |n: u64| forever.spawn(noted("big".repeat(100_000))).key(format!("big {n}"));
    let mut n = 0;
    let error = loop {
        match big(n).await {
            Ok(handle) => handle.cancel("enough").await.map(drop).unwrap_or_default(),
            Err(error) => break error,
        }
        n += 1;
    };
    assert_eq!(error.kind(), ErrorKind::Store, "{error}");
    assert!(error.is_retryable(), "{error}");
    assert!(causes(&error).contains("No space left on device"), "{error}: {}", causes(&error));
    notes.let_them_end();
    disk.free();
    for handle in &handles {
        let result = soon("it ends", handle.wait()).await.unwrap();
        assert_eq!(result, STEPS * (STEPS - 1) / 2);
    }
    let finished = notes.finished_once();
    assert_eq!(finished.iter().filter(|step| step.starts_with('f')).count() as u64, FIBERS * STEPS);
    big(n).await.unwrap().cancel("enough").await.unwrap();
    forever.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fibers_wait_for_a_server_that_stops_without_room_for_its_log() {
    let Some(server) = cluster::own() else { return };
    let Some(disk) = server.small_disk(96) else { return };
    server.move_log(&disk);
    let notes = Notes::default();
    let forever = open(&server.url(), &notes).await;
    let mut handles = Vec::new();
    for n in 0..FIBERS {
        handles.push(forever.spawn(noted(format!("f{n}"))).await.unwrap());
    }
    eventually("they are under way", async || notes.len() as u64 > FIBERS * STEPS / 4).await;
    disk.fill();
    let (client, connection) = tokio_postgres::connect(&server.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    // The segments of the log that are there already have room for some.
    while client.batch_execute("SELECT pg_logical_emit_message(true, 'filler', repeat('x', 4000000))").await.is_ok() {}
    eventually("the server has stopped", async || server.has_stopped()).await;
    notes.let_them_end();
    let error = forever.spawn(noted("late".to_owned())).await.unwrap_err();
    assert!(error.is_retryable() && error.kind() == ErrorKind::Store, "{error:?}");
    disk.free();
    server.start_again();
    for handle in &handles {
        assert_eq!(result_of(handle).await, STEPS * (STEPS - 1) / 2);
    }
    assert_eq!(notes.finished_once().len() as u64, FIBERS * STEPS);
    forever.close().await.unwrap();
}
