//! Many fibers in one file: what does not run costs next to nothing. The figures are in docs/guide/src/internals/performance.md; here they only have to
//! be of the right order on a busy machine.
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, UNIX_EPOCH};

use forever::prelude::*;
use forever::{Clock, Durability, Retention, SystemClock};
use forever_testkit::process::{Process, say, this_test};
use tokio::sync::watch;

/// Makes the last fiber's rows those of so many more, which are due a millisecond after the other.
const COPIES: &str = "
    CREATE TEMP TABLE n AS WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < ?1) SELECT n FROM n;
    INSERT INTO fibers (seq, id, name, state, args, created_ms, changed_ms)
        SELECT f.seq + n, format('01960000-0000-7000-8000-%012d', n), name, state, args, created_ms, changed_ms FROM n, fibers f;
    INSERT INTO snapshots (fiber, number, saved_ms, at, layout, data)
        SELECT fiber + n, number, saved_ms, at, layout, replace(data, ?2, ?2 + n) FROM n, snapshots;
    INSERT INTO waits (fiber, due_ms, place) SELECT fiber + n, due_ms + n, place FROM n, waits;";

#[derive(Clone, Default)]
struct Bell {
    late_ms: Arc<watch::Sender<Vec<u128>>>,
    standing: Arc<watch::Sender<u64>>,
}

impl Bell {
    fn rings(&self, at_ms: u64) -> u64 {
        let late = SystemClock::new().now().duration_since(UNIX_EPOCH + Duration::from_millis(at_ms)).unwrap_or_default();
        self.late_ms.send_modify(|all| all.push(late.as_millis()));
        at_ms
    }

    async fn stands(&self) -> u64 {
        self.standing.send_modify(|standing| *standing += 1);
        std::future::pending().await
    }
}

#[fiber]
async fn sleeper(bell: Res<Bell>, at_ms: u64) -> anyhow::Result<u64> {
    sleep_until!(UNIX_EPOCH + Duration::from_millis(at_ms));
    Ok(step!("wakes", bell.rings(at_ms)))
}

#[fiber]
async fn stand(bell: Res<Bell>, number: u64) -> anyhow::Result<u64> {
    let first = step!("first", async { number + 1 }.await);
    Ok(first + step!("stands", bell.stands().await))
}

#[fiber]
async fn count(to: u64) -> anyhow::Result<u64> {
    let mut n = 0;
    while n < to {
        n = step!("count", async { n + 1 }.await);
    }
    Ok(n)
}

async fn open(path: &Path, bell: &Bell) -> Forever {
    let builder = Forever::builder().sqlite(path).durability(Durability::Process).retention(Retention::forever()).resource(bell.clone());
    builder.fiber::<sleeper>().fiber::<stand>().fiber::<count>().open().await.unwrap()
}

/// What the child that plays a role has said, by name.
fn child(role: &str, path: &Path) -> impl Fn(&str) -> u64 {
    let mut command = this_test("role").unwrap();
    let mut child = Process::start(command.env("FOREVER_ROLE", role).env("FOREVER_DB", path)).unwrap();
    let said: Vec<String> = std::iter::from_fn(|| child.said().unwrap()).take_while(|line| line != "now").collect();
    child.kill().unwrap();
    println!("{role}: {said:?}");
    move |name| {
        said.iter().find_map(|line| line.strip_prefix(&format!("{name}="))?.parse().ok()).unwrap_or_else(|| panic!("{name}: {said:?}"))
    }
}

/// A number in a file of `/proc/self`, 0 where there is none.
fn usage(file: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/self/{file}")).unwrap_or_default();
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok());
    value.unwrap_or(0)
}

/// Not a test: what a child does, until it is killed.
#[test]
#[ignore = "started by other tests"]
#[expect(clippy::disallowed_methods, reason = "real time is what is measured")]
fn role() {
    let (Ok(role), Ok(path)) = (std::env::var("FOREVER_ROLE"), std::env::var("FOREVER_DB")) else { return };
    let path = PathBuf::from(path);
    tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(async {
        let (bell, new) = (Bell::default(), !path.exists());
        let (memory, read, begun) = (usage("status", "VmRSS:"), usage("io", "rchar:"), Instant::now());
        let forever = open(&path, &bell).await;
        say(format!("open_ms={}", begun.elapsed().as_millis()));
        match role.as_str() {
            "wake" => {
                say(format!("open_kib={}", usage("status", "VmRSS:").saturating_sub(memory)));
                bell.late_ms.subscribe().wait_for(|late| late.len() >= 1_000).await.unwrap();
                let mut late = bell.late_ms.borrow().clone();
                late.sort_unstable();
                say(format!("late_p50_ms={}", late[late.len() / 2]));
                say(format!("late_max_ms={}", late[late.len() - 1]));
            }
            "count" => {
                forever.run(count(50)).await.unwrap();
                say(format!("read={}", usage("io", "rchar:") - read));
            }
            _ => {
                for number in 0..if new { 1_000 } else { 0 } {
                    forever.spawn(stand(number)).await.unwrap();
                }
                bell.standing.subscribe().wait_for(|standing| *standing >= 1_000).await.unwrap();
                say(format!("all_ms={}", begun.elapsed().as_millis()));
            }
        }
        say("now");
        std::future::pending::<()>().await;
    });
}

fn place() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fibers.db");
    (folder, path)
}

#[tokio::test]
async fn a_hundred_thousand_sleeping_fibers_open_at_once_and_wake_in_time() {
    let (_folder, path) = place();
    let now = SystemClock::new().now().duration_since(UNIX_EPOCH).unwrap().as_millis();
    // Late enough for the rows to be there, and for the child to be open.
    let first = i64::try_from(now).unwrap() + 15_000;
    let forever = open(&path, &Bell::default()).await;
    forever.spawn(sleeper(first.unsigned_abs())).await.unwrap();
    let sql = rusqlite::Connection::open(&path).unwrap();
    while sql.query_row("SELECT count(*) FROM waits", (), |row| row.get::<_, i64>(0)).unwrap() == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    forever.close().await.unwrap();
    let copies = COPIES.replace("?1", "99999").replace("?2", &first.to_string());
    sql.execute_batch(&format!("BEGIN; {copies} COMMIT;")).unwrap();
    drop(sql);
    let figure = child("wake", &path);
    assert!(figure("open_ms") < 2_000);
    assert!(figure("open_kib") < 150 * 1024);
    assert!(figure("late_p50_ms") < 100, "{}", figure("late_p50_ms"));
    assert!(figure("late_max_ms") < 2_000, "{}", figure("late_max_ms"));
}

#[tokio::test]
async fn finished_fibers_are_not_looked_at() {
    let (_folder, path) = place();
    let forever = open(&path, &Bell::default()).await;
    forever.run(count(1)).await.unwrap();
    forever.close().await.unwrap();
    let sql = rusqlite::Connection::open(&path).unwrap();
    sql.execute_batch(
        "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 300000)
         INSERT INTO fibers (id, name, state, args, result, created_ms, changed_ms, finished_ms)
         SELECT format('01960000-0000-7000-8000-%012d', n), name, state, args, result, created_ms, changed_ms, finished_ms
         FROM n, fibers WHERE seq = 1",
    )
    .unwrap();
    drop(sql);
    let figure = child("count", &path);
    assert!(figure("open_ms") < 1_000);
    // The file has some 70 MB.
    assert!(figure("read") < 2_000_000, "{}", figure("read"));
}

#[test]
fn a_thousand_killed_fibers_are_recovered_at_once() {
    let (_folder, path) = place();
    let _ = child("stand", &path);
    let figure = child("stand", &path);
    assert!(figure("all_ms") < 2_000, "{}", figure("all_ms"));
}
