//! Runs the database to its end, whatever is in it, and compares what came of it with what should have.
use std::collections::{BTreeMap, BTreeSet};
use std::panic;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, Once, OnceLock};
use std::time::Duration;

use forever::chat::{ChatAgent, ToolAnswer};
use forever::fiber::Resolution;
use forever::ops::{OpResolution, OpState};
use forever::prelude::*;
use forever::testing::VirtualClock;
use forever::{Durability, ErrorKind, Forever, Retention};
use forever_testkit::waiting::{DEADLINE, eventually, settled, soon};
use rusqlite::Connection;
use rusqlite::types::Value;
use serde_json::Value as Json;
use tempfile::TempDir;

use super::cells::{Cell, Damage, careless};
use super::database::whole;
use crate::desk::{Desk, LAST};
use crate::programs;
use crate::programs::calls::Miner;
use crate::programs::chats::{self, Talker};
use crate::programs::waits::{Clerk, HOUR};

/// State, result and reason of each fiber by its id, how often which work was done, and what there is of each chat.
#[derive(Clone, Debug, Default)]
pub(crate) struct Came {
    fibers: BTreeMap<String, [String; 2]>,
    done: BTreeMap<String, usize>,
    /// Messages and the ends of turns, by the agent. The fibers of turns are not among the others unless they are parked, and then as their
    /// agents too.
    chats: BTreeMap<String, String>,
    /// The numbers of the items in the histories of fibers.
    histories: BTreeMap<String, Vec<u64>>,
}

/// All agents with chats.
const CHATS: [&str; 5] = [chats::CHATS[0], chats::CHATS[1], chats::CHATS[2], "ann", "bob"];

/// What is no fiber of a turn.
const OTHER: &str = "name <> 'forever.turn'";

/// A database with fibers in each state.
pub(crate) struct World {
    folder: TempDir,
}

/// What comes of the database as it is.
fn golden() -> &'static Came {
    static GOLDEN: OnceLock<Came> = OnceLock::new();
    GOLDEN.get_or_init(|| {
        let world = World::new();
        let came = world.live(&BTreeSet::new(), None, false);
        let ends = came.fibers.values().filter(|[state, _]| state.starts_with("completed") || state.starts_with("cancelled")).count();
        assert_eq!(ends, came.fibers.len() - 1, "all but one end: {came:#?}");
        came
    })
}

impl World {
    pub(crate) fn new() -> Self {
        // In memory, where there is such a place: most of the time would be spent waiting for the disk.
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        let world = World { folder: folder.unwrap() };
        std::fs::write(world.path(), whole()).unwrap();
        world
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("old.db")
    }

    pub(crate) fn sql(&self) -> Connection {
        careless(&self.path())
    }

    /// Runs everything to its end; waits for those that are not among the `touched`, if it is known what is to come of them.
    fn live(&self, touched: &BTreeSet<String>, golden: Option<&Came>, again: bool) -> Came {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let desk = Desk::new(LAST, &[]);
            let clock = VirtualClock::new();
            let builder = Forever::builder().sqlite(self.path()).clock(clock.clone()).durability(Durability::Process);
            let opened = soon("open", programs::registered(builder.retention(Retention::forever()), &desk).open()).await;
            let forever = match opened {
                Ok(forever) => forever,
                Err(error) => panic!("it cannot be opened: {error:?}"),
            };
            let life = Life { forever: &forever, clock: &clock, desk: &desk, sql: self.sql(), touched, golden, again };
            life.begin().await;
            life.poke().await;
            life.end().await;
            let histories = life.histories().await;
            soon("close", forever.close()).await.unwrap();
            Came { histories, ..life.came() }
        })
    }
}

struct Life<'a> {
    forever: &'a Forever,
    clock: &'a VirtualClock,
    desk: &'a Desk,
    sql: Connection,
    touched: &'a BTreeSet<String>,
    golden: Option<&'a Came>,
    /// Everything that is not parked has been to its end before.
    again: bool,
}

/// Fibers that need more than to be resumed, and are finished by `poke` and `end`.
const LATER: [&str; 12] =
    ["inbox", "patient", "impatient", "sleeper", "refused", "panicked", "choosy", "closure", "declined", "unknown", "letters", "counter"];

impl Life<'_> {
    /// Waits for what comes to its end by itself.
    async fn begin(&self) {
        if self.again {
            return;
        }
        for id in ["unknown", "letters", "moved"] {
            if !self.touched.contains(id) {
                let parked = self.forever.find_fiber::<Json>(id).await.unwrap();
                assert!(soon(id, parked.wait()).await.unwrap_err().is_parked(), "{id}");
            }
        }
        self.until("what goes on by itself", |id, state| {
            LATER.contains(&id)
                || id.starts_with("counter clerk")
                || ["completed", "cancelled", "parked"].contains(&state)
                || self.waits_for_time(id)
        })
        .await;
        // Before anything is due.
        for (chat, turn) in [("grace", "second thought"), ("hopper", "asks")] {
            if !self.touched.contains(chat) {
                let turn = self.forever.agent::<Talker>(chat).turn(turn).await.unwrap().unwrap();
                assert!(soon(chat, turn.wait()).await.unwrap().is_completed(), "{chat}");
            }
        }
    }

    /// The parent, and the child that sleeps.
    fn waits_for_time(&self, id: &str) -> bool {
        id == "parent" || (id.starts_with("01") && self.state(id) == "waiting")
    }

    fn state(&self, id: &str) -> String {
        self.sql.query_row("SELECT state FROM fibers WHERE id = ?1", [id], |row| row.get(0)).unwrap_or_default()
    }

    /// Sends, resumes and resolves. What is damaged may be refused.
    async fn poke(&self) {
        let forever = self.forever;
        let _ = soon("send", forever.send("inbox", "mail", "four")).await;
        let _ = soon("send", forever.send("patient", "word", "at last")).await;
        let _ = soon("send", forever.send("counter", "telegram", "stop")).await;
        for n in 0..5 {
            let topic = if n < 3 { "word" } else { "sign" };
            let _ = soon("send", forever.send(&format!("counter clerk {n}"), topic, "yes")).await;
        }
        for id in ["refused", "panicked", "choosy", "declined"] {
            let _ = soon("resume", forever.resume(id)).await;
        }
        let _ = soon("resolve", forever.resolve("closure", Resolution::completed(&vec![6]).unwrap())).await;
        for (id, how) in [("unknown", OpResolution::completed(&77).unwrap()), ("letters", OpResolution::NotExecuted)] {
            for op in soon("ops", forever.ops(id)).await.unwrap_or_default() {
                if op.state == OpState::Started {
                    let _ = soon("resolve_op", forever.resolve_op(&op.id, how.clone())).await;
                }
            }
        }
        // Whatever is asked about what is damaged, there is an answer.
        for id in self.ids() {
            if let Ok(handle) = soon("find", forever.find_fiber::<Json>(&id)).await {
                let _ = soon("status", handle.status()).await;
            }
            let _ = soon("ops", forever.ops(&id)).await;
        }
        let listed = soon("fibers", forever.fibers().limit(1000)).await.unwrap();
        for id in self.golden.iter().flat_map(|golden| golden.fibers.keys()).filter(|id| !self.touched.contains(*id)) {
            assert!(listed.fibers.iter().any(|fiber| fiber.id == *id), "{id} is not listed");
        }
        let hopper = forever.agent::<Talker>("hopper");
        let answered = soon("answer", hopper.answer_tool("down", ToolAnswer::Output("a cellar".into()), false)).await;
        assert!(answered.is_ok() || self.touched.contains("hopper"), "{answered:?}");
        for chat in chats::CHATS {
            self.look_at::<Talker>(chat).await;
        }
        for chat in ["ann", "bob"] {
            self.look_at::<Miner>(chat).await;
        }
        for agent in ["ada", "busy"] {
            let agent = forever.agent::<Clerk>(agent);
            let _ = soon("state", agent.state()).await;
            let _ = soon("schedules", agent.schedules()).await;
        }
    }

    /// Whatever is asked about a chat, there is an answer; about one that is not touched it is the right one.
    async fn look_at<A: ChatAgent>(&self, chat: &str) {
        let agent = self.forever.agent::<A>(chat);
        let messages = soon("messages", agent.messages()).await;
        let turns = soon("turns", agent.turns(&[])).await;
        let _ = soon("pending", agent.has_pending_interaction()).await;
        if !self.touched.contains(chat) {
            assert!(messages.is_ok() && turns.is_ok(), "{chat}: {messages:?} {turns:?}");
        }
        for status in turns.unwrap_or_default() {
            let _ = (status.created(), status.started(), status.settled());
            if let Ok(Some(turn)) = soon("turn", agent.turn(status.id())).await {
                let _ = soon("status", turn.status()).await;
                let _ = soon("metadata", turn.metadata::<Json>()).await;
                let entries = soon("entries", turn.entries()).await;
                assert!(entries.is_ok() || self.touched.contains(chat), "{chat}: {entries:?}");
            }
        }
    }

    async fn end(&self) {
        self.clock.advance(Duration::from_secs(1));
        self.work("ada: shaky at last", 1).await;
        self.clock.advance(HOUR);
        self.work("ada: once after an hour", 1).await;
        self.work("ada: often {\"n\":1}", 1).await;
        self.clock.advance(23 * HOUR);
        for work in ["ada: once at three", "ada: cron midnight"] {
            self.work(work, 1).await;
        }
        self.work("ada: often {\"n\":1}", 2).await;
        self.until("the end", |id, state| match self.golden {
            Some(golden) => golden.fibers.get(id).is_some_and(|[wanted, _]| wanted == state),
            None => ["completed", "cancelled"].contains(&state) || id == "moved",
        })
        .await;
        self.chats_end().await;
        if !self.touched.iter().any(|id| id.starts_with("ada")) {
            let agent = self.forever.agent::<Clerk>("ada");
            let schedules = async || agent.schedules().await.unwrap();
            eventually("schedules", async || schedules().await.iter().filter(|s| !s.is_running()).count() == 2).await;
        }
    }

    /// Waits until the chats that are not touched have come to their ends.
    async fn chats_end(&self) {
        let ended = async {
            loop {
                let chats = self.chats();
                let is_over = |(chat, what): (&String, &String)| match self.golden {
                    Some(golden) => self.touched.contains(chat) || golden.chats.get(chat) == Some(what),
                    None => !what.contains("queued") && !what.contains("running"),
                };
                let there = |chat: &&str| self.touched.contains(*chat) || chats.contains_key(*chat);
                if CHATS.iter().all(there) && chats.iter().all(is_over) {
                    return;
                }
                settled().await;
            }
        };
        assert!(tokio::time::timeout(DEADLINE, ended).await.is_ok(), "the chats do not end: {:#?}", self.chats());
    }

    fn chats(&self) -> BTreeMap<String, String> {
        let mut chats: BTreeMap<String, String> = BTreeMap::new();
        for query in [
            "SELECT agent, role, data FROM chat_messages JOIN chats ON chat = chats.seq ORDER BY place",
            "SELECT agent, state, coalesce(reason, '') FROM turns JOIN chats ON chat = chats.seq ORDER BY turns.seq",
        ] {
            let mut query = self.sql.prepare_cached(query).unwrap();
            let rows = query.query_map((), |row| Ok((lossy(row, 0), format!("{}: {}\n", lossy(row, 1), lossy(row, 2))))).unwrap();
            for (chat, what) in rows.map(Result::unwrap) {
                chats.entry(chat).or_default().push_str(&what);
            }
        }
        chats
    }

    async fn work(&self, name: &str, times: usize) {
        if self.touched.contains("ada") || self.touched.contains(name) || self.again {
            return;
        }
        eventually(name, async || self.desk.done().iter().filter(|work| *work == name).count() >= times).await;
    }

    /// Waits until that can be said of all fibers that are not touched.
    async fn until(&self, what: &str, so: impl Fn(&str, &str) -> bool) {
        let mut left = Vec::new();
        let begun = tokio::time::Instant::now();
        while begun.elapsed() < DEADLINE {
            let mut query = self.sql.prepare_cached(&format!("SELECT id, state FROM fibers WHERE {OTHER}")).unwrap();
            let rows = query.query_map((), |row| Ok((lossy(row, 0), lossy(row, 1)))).unwrap().map(Result::unwrap);
            left = rows.filter(|(id, state)| !self.touched.contains(id) && !so(id, state)).collect();
            if left.is_empty() {
                return;
            }
            settled().await;
        }
        panic!("{what} does not come about: {left:?}");
    }

    /// What can be read of the histories; that of a turn is one of its agent.
    async fn histories(&self) -> BTreeMap<String, Vec<u64>> {
        let mut histories: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        let of: Vec<_> = {
            let query = format!("SELECT id, CASE WHEN {OTHER} THEN id ELSE agent END FROM fibers ORDER BY seq");
            let mut query = self.sql.prepare(&query).unwrap();
            query.query_map((), |row| Ok((lossy(row, 0), lossy(row, 1)))).unwrap().map(Result::unwrap).collect()
        };
        for (id, whose) in of {
            let Ok(history) = soon("history", self.forever.history(&id)).await else { continue };
            let numbers: Vec<u64> = history.iter().map(|entry| entry.number).collect();
            for number in numbers.first().into_iter().chain(numbers.last()) {
                let read = soon("locals", self.forever.locals_at(&id, *number)).await;
                assert!(read.is_ok() || self.touched.contains(&whose), "{id} at {number}: {read:?}");
            }
            if !numbers.is_empty() {
                histories.entry(whose).or_default().extend(numbers);
            }
        }
        histories
    }

    fn ids(&self) -> Vec<String> {
        let mut query = self.sql.prepare_cached("SELECT id FROM fibers").unwrap();
        query.query_map((), |row| Ok(lossy(row, 0))).unwrap().map(Result::unwrap).collect()
    }

    fn came(&self) -> Came {
        let mut came = Came { chats: self.chats(), ..Came::default() };
        let mut query = self.sql.prepare(&format!("SELECT id, state, coalesce(result, reason, '') FROM fibers WHERE {OTHER}")).unwrap();
        let rows = query.query_map((), |row| Ok((lossy(row, 0), [lossy(row, 1), lossy(row, 2)]))).unwrap();
        came.fibers.extend(rows.map(Result::unwrap));
        let parked = format!("SELECT agent, id, coalesce(reason, '') FROM fibers WHERE NOT ({OTHER}) AND state = 'parked'");
        let mut query = self.sql.prepare(&parked).unwrap();
        let rows = query.query_map((), |row| Ok([lossy(row, 0), lossy(row, 1), lossy(row, 2)])).unwrap();
        for [agent, id, why] in rows.map(Result::unwrap) {
            came.fibers.extend([agent, id].map(|of| (of, ["parked".to_owned(), why.clone()])));
        }
        for work in self.desk.done() {
            *came.done.entry(work).or_default() += 1;
        }
        came
    }
}

/// Text that may be none.
fn lossy(row: &rusqlite::Row<'_>, n: usize) -> String {
    row.get_ref(n).map(|v| String::from_utf8_lossy(v.as_bytes().unwrap_or_default()).into_owned()).unwrap_or_default()
}

/// The fibers and agents whose row it is in which a cell stands.
fn owners(sql: &Connection, cell: &Cell) -> BTreeSet<String> {
    let column = &cell.column;
    let row = |name: &str| Cell { column: super::cells::Column { name: name.to_owned(), ..column.clone() }, ..cell.clone() }.read(sql);
    let of = |name: &str| row(name).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let mut all = BTreeSet::new();
    let mut add = |query: &str, values: &[&str]| {
        let mut found = sql.prepare(query).unwrap();
        let ids = found.query_map(rusqlite::params_from_iter(values), |row| Ok(lossy(row, 0))).unwrap();
        all.extend(ids.map(Result::unwrap));
    };
    match column.table.as_str() {
        "fibers" => add("SELECT id FROM fibers WHERE seq = CAST(?1 AS INTEGER)", &[&of("seq")]),
        "layouts" => {
            let hash = of("hash");
            add("SELECT id FROM fibers JOIN snapshots ON fiber = seq WHERE layout = ?1 OR instr(callees, ?1) > 0", &[&hash]);
            for table in ["ops", "branch_results"] {
                add(&format!("SELECT fibers.id FROM fibers JOIN {table} t ON t.fiber = fibers.seq WHERE t.layout = ?1"), &[&hash]);
            }
        }
        "agents" => {
            add("SELECT id FROM fibers WHERE agent = ?1", &[&of("name")]);
            all.extend(["ada".to_owned(), "busy".to_owned(), of("name")]);
        }
        // One of an agent, and no other.
        "schedules" => all.extend([format!("ada: {} {}", of("name"), of("payload").trim_matches('"'))]),
        "joins" => add("SELECT id FROM fibers WHERE seq IN (CAST(?1 AS INTEGER), CAST(?2 AS INTEGER))", &[&of("child"), &of("fiber")]),
        // Of no fiber that there is.
        "user_migrations" | "past_fibers" | "workers" => {}
        // All of a chat, and no other.
        "chats" => all.extend([of("agent")]),
        "chat_messages" | "turns" => add("SELECT agent FROM chats WHERE seq = CAST(?1 AS INTEGER)", &[&of("chat")]),
        "turn_requests" | "incidents" => {
            add("SELECT agent FROM turns JOIN chats ON chat = chats.seq WHERE turns.seq = CAST(?1 AS INTEGER)", &[&of("turn")]);
        }
        "streams" => {
            add("SELECT agent FROM turns JOIN chats ON chat = chats.seq WHERE turns.seq = CAST(?1 AS INTEGER)", &[&of("turn")]);
            add("SELECT id FROM fibers WHERE seq = CAST(?1 AS INTEGER)", &[&of("fiber")]);
        }
        "stream_chunks" | "stream_tail" => {
            let owner = "FROM streams s LEFT JOIN turns ON turns.seq = s.turn LEFT JOIN chats ON chats.seq = turns.chat";
            add(&format!("SELECT agent {owner} WHERE s.seq = CAST(?1 AS INTEGER) AND agent IS NOT NULL"), &[&of("stream")]);
            add("SELECT id FROM fibers WHERE seq = (SELECT fiber FROM streams s WHERE s.seq = CAST(?1 AS INTEGER))", &[&of("stream")]);
        }
        // All whose items are in the row.
        "history_tail" => {
            let data = of("data");
            for stream in data.lines().filter_map(|line| line.strip_prefix('[')?.split(',').next()) {
                add("SELECT id FROM fibers WHERE seq = (SELECT fiber FROM streams WHERE seq = CAST(?1 AS INTEGER))", &[stream]);
            }
        }
        _ => add("SELECT id FROM fibers WHERE seq = CAST(?1 AS INTEGER)", &[&of("fiber")]),
    }
    all
}

/// These, and all who wait for them or for whom they wait.
fn related(sql: &Connection, mut all: BTreeSet<String>) -> BTreeSet<String> {
    loop {
        let before = all.len();
        for id in all.clone() {
            let mut related = sql
                .prepare_cached(
                    "SELECT p.id FROM fibers f JOIN fibers p ON p.seq = f.parent WHERE f.id = ?1
                     UNION SELECT c.id FROM fibers f JOIN fibers c ON c.parent = f.seq WHERE f.id = ?1
                     UNION SELECT o.id FROM fibers f JOIN joins ON child = f.seq JOIN fibers o ON o.seq = joins.fiber WHERE f.id = ?1
                     UNION SELECT o.id FROM fibers f JOIN joins j ON j.fiber = f.seq JOIN fibers o ON o.seq = j.child WHERE f.id = ?1
                     UNION SELECT agent FROM fibers WHERE id = ?1 AND agent IS NOT NULL",
                )
                .unwrap();
            all.extend(related.query_map([id], |row| Ok(lossy(row, 0))).unwrap().map(Result::unwrap));
        }
        if all.len() == before {
            return all;
        }
    }
}

/// Whose work it is, by how its name begins.
const WORKERS: &[(&str, &[&str])] = &[
    ("seal few", &["few seals"]),
    ("seal many", &["many seals"]),
    ("called:", &["caller"]),
    ("caller:", &["caller"]),
    ("miner: ann", &["ann"]),
    ("miner: bob", &["bob"]),
    ("model:", &["ann", "bob"]),
    ("tool:", &["ann", "bob"]),
    ("before paying", &["payer"]),
    ("pay last", &["payer"]),
    ("before filing", &["clerk"]),
    ("file last", &["clerk"]),
    ("open few", &["few seals"]),
    ("open many", &["many seals"]),
    ("weigh", &["scale"]),
    ("sign", &["notary"]),
    ("stamp 0", &["clerk 0"]),
    ("stamp 1", &["clerk 1"]),
    ("stamp 2", &["clerk 2"]),
    ("stamp 3", &["clerk 3"]),
    ("stamp 4", &["clerk 4"]),
    ("stamp 5", &["clerk 5"]),
    ("ash:", &["warehouse"]),
    ("birch:", &["warehouse"]),
    ("cedar:", &["warehouse"]),
    ("seal", &["warehouse"]),
    ("customs:", &["export"]),
    ("stamp:", &["export"]),
    ("warehouse of customs", &["export"]),
    ("early", &["early", "late"]),
    ("first attempt", &["retrying"]),
    ("second attempt", &["retrying"]),
    ("gone:", &["gone"]),
    ("moved:", &["moved"]),
    ("refused:", &["refused"]),
    ("panicked:", &["panicked"]),
    ("done", &["done"]),
    ("before sleep", &["sleeper"]),
    ("slept", &["sleeper"]),
    ("inbox:", &["inbox"]),
    ("choosy:", &["choosy"]),
    ("spawned", &["parent"]),
    ("child", &["parent"]),
    ("side", &["side"]),
    ("page", &["pages"]),
    ("line", &["lines"]),
    ("told", &["told"]),
    ("held back", &["cancelled"]),
    ("ada:", &["ada"]),
    ("owned", &["owned"]),
    ("charge", &["known", "unknown", "asked", "looked up"]),
    ("ship", &["known"]),
    ("ask", &["asked"]),
    ("stream", &["streamed"]),
    ("first rent", &["rented"]),
    ("rent", &["rented"]),
    ("declined", &["declined"]),
    ("first letter", &["letters"]),
    ("second letter", &["letters"]),
    ("pack", &["looked up"]),
    ("book", &["booked"]),
    ("begun anew", &["anew"]),
    ("pay by hand", &["anew"]),
    ("grace:", &["grace"]),
    ("hopper:", &["hopper"]),
    ("lovelace:", &["lovelace"]),
];

fn is_of(work: &str, touched: &BTreeSet<String>) -> bool {
    let workers = WORKERS.iter().find(|(begins, _)| work.starts_with(begins)).map(|(_, workers)| *workers);
    // Work that nobody should do is that of a fiber whose locals were damaged.
    let by = |workers: &[&str]| workers.iter().any(|worker| touched.contains(*worker));
    let of_a_schedule = work.starts_with("ada: ") && touched.iter().any(|id| id.starts_with("ada: "));
    touched.contains(work) || of_a_schedule || !touched.is_empty() && workers.is_none_or(by)
}

/// What was found: whether SQLite let the damage be done, and what became of the fiber.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Refused,
    /// It cannot be opened, and says why.
    Closed,
    Parked,
    /// It was parked, and went on when the cell was put right.
    Mended,
    WentOn,
}

/// Overwrites a cell and sees what comes of it.
///
/// # Panics
/// When anything is wrong with that.
pub(crate) fn damage(cell: &Cell, damage: &Damage) -> Found {
    catch_panics();
    let golden = golden();
    let world = World::new();
    let sql = world.sql();
    let mut touched = related(&sql, owners(&sql, cell));
    if !cell.write(&sql, damage) {
        return Found::Refused;
    }
    let moved = cell.moved(damage);
    let owners = owners(&sql, &moved);
    touched.extend(related(&sql, owners.clone()));
    let written = moved.read(&sql);
    drop(sql);
    if ["user_migrations", "workers"].contains(&cell.column.table.as_str()) {
        let other = World::new();
        cell.write(&other.sql(), damage);
        if !opens(&other) {
            assert_no_panic();
            return Found::Closed;
        }
    }

    let came = world.live(&touched, Some(golden), false);
    assert_no_panic();
    compare(golden, &came, &touched);
    let parked = came
        .fibers
        .iter()
        .filter(|(id, [state, _])| state == "parked" && golden.fibers.get(*id).is_none_or(|[wanted, _]| wanted != "parked"));
    let Some((_, [_, why])) = parked.clone().next() else { return Found::WentOn };
    assert!(!why.is_empty(), "it is parked for no reason");
    // Where a fiber stands is written by us, and so is that an operation is unknown again whose outcome cannot be read. Rows that wait to be
    // copied and cannot be make room for the others.
    let rewritten = match cell.column.table.as_str() {
        "fibers" => ["state", "reason", "changed_ms"].contains(&cell.column.name.as_str()),
        "ops" => true,
        "stream_tail" => cell.column.name == "seq",
        _ => false,
    };
    let sql = world.sql();
    let there = moved.read(&sql);
    let left = rewritten || !parked.clone().any(|(id, _)| owners.contains(id)) || there == written;
    assert!(left, "the damaged cell of a fiber that is parked was touched");
    if rewritten || !parked.clone().any(|(id, _)| owners.contains(id)) || !moved.write(&sql, &Damage::Value(cell.value.clone())) {
        return Found::Parked;
    }
    drop(sql);
    // A turn whose fiber had another number has ended without it.
    let renumbered = cell.column.table == "fibers" && cell.column.name == "seq";
    let ended: BTreeSet<String> = touched.iter().filter(|id| renumbered && CHATS.contains(&id.as_str())).cloned().collect();
    let mut mended = world.live(&ended, Some(golden), true);
    assert_no_panic();
    for (work, times) in &came.done {
        *mended.done.entry(work.clone()).or_default() += times;
    }
    // A number says where a fiber stands, and another one leaves open what it has done. What is done before the loop of a turn, or
    // by an agent that looks after itself, is in no step.
    let numbers = matches!(cell.value, Value::Integer(_));
    mended.done.retain(|work, _| !(work.starts_with("ada") || work.starts_with("miner") || numbers && is_of(work, &touched)));
    for (work, times) in &mended.done {
        assert!(golden.done.get(work).is_some_and(|wanted| times <= wanted), "{work} is done {times} times");
    }
    // Its result tells for which reason it was handed to its agent.
    for (id, end) in golden.fibers.iter().filter(|(id, _)| *id != "closure of ada") {
        assert_eq!(mended.fibers.get(id), Some(end), "{id} is mended");
    }
    for chat in CHATS.iter().filter(|chat| !ended.contains(**chat)) {
        assert_eq!(mended.chats.get(*chat), golden.chats.get(*chat), "{chat} is mended");
    }
    Found::Mended
}

fn opens(world: &World) -> bool {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let desk = Desk::new(LAST, &[]);
        let builder = Forever::builder().sqlite(world.path()).clock(VirtualClock::new()).durability(Durability::Process);
        match soon("open", programs::registered(builder, &desk).open()).await {
            Ok(_) => true,
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::Setup | ErrorKind::Store | ErrorKind::Value), "{error:?}");
                false
            }
        }
    })
}

/// What is not touched is as it would be without the damage.
fn compare(golden: &Came, came: &Came, touched: &BTreeSet<String>) {
    for (id, end) in &golden.fibers {
        if !touched.contains(id) {
            assert_eq!(came.fibers.get(id), Some(end), "{id}");
        }
    }
    for (chat, what) in &golden.chats {
        if !touched.contains(chat) {
            assert_eq!(came.chats.get(chat), Some(what), "{chat}");
        }
    }
    for (id, numbers) in &golden.histories {
        if !touched.contains(id) {
            assert_eq!(came.histories.get(id), Some(numbers), "the history of {id}");
        }
    }
    let works: BTreeSet<&String> = golden.done.keys().chain(came.done.keys()).collect();
    for work in works.into_iter().filter(|work| !is_of(work, touched)) {
        assert_eq!(came.done.get(work), golden.done.get(work), "{work}");
    }
}

static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// From now on every panic of a thread of ours is remembered. What a program does with a value that fits its type but not its sense, as
/// with an index that is too large, is its own affair.
fn catch_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let place = info.location().map_or_else(String::new, ToString::to_string);
            if !place.contains("tests/old/") && !place.contains("forever-testkit") {
                PANICS.lock().unwrap().push(info.to_string());
            }
            if !place.contains("tests/old/programs") {
                usual(info);
            }
        }));
    });
}

fn assert_no_panic() {
    let panics = std::mem::take(&mut *PANICS.lock().unwrap());
    assert!(panics.is_empty(), "{panics:?}");
}
