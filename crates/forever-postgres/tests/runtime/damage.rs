//! One cell of a schema is overwritten with whatever the server takes: every list still has the rows of all others.
use std::collections::BTreeSet;
use std::time::Duration;

use forever::agent::{Agent, Due};
use forever::chat::message::{Chunk, UiMessage};
use forever::chat::{ChatAgent, Turn};
use forever::fiber::{FiberFilter, FiberState, History};
use forever::ops::OnUnknown;
use forever::prelude::*;
use forever::{BoxError, Durability, Retention};
use forever_postgres::tokio_postgres::{Client, NoTls, SimpleQueryMessage, connect};
use forever_testkit::waiting::eventually;
use serde_json::json;

use crate::{cluster, store};

#[fiber]
async fn pays(n: u64) -> Result<u64, BoxError> {
    let paid = step!("pay", effect, n);
    let (_, word): (String, u64) = recv!(["word", "number"]);
    Ok(paid + word)
}

#[fiber]
async fn side() -> Result<u64, BoxError> {
    let (first, ()) = steps!(step!("first", 1_u64), step!("never", std::future::pending::<()>().await));
    Ok(first)
}

#[fiber]
async fn doubts() -> Result<u64, BoxError> {
    step!("doubt", effect, on_unknown = OnUnknown::Park, std::future::pending::<()>().await);
    let word: u64 = recv!("word");
    Ok(word)
}

#[fiber]
async fn parent() -> Result<u64, BoxError> {
    let child = spawn!(pays(1));
    Ok(wait!(child)?)
}

#[fiber]
async fn ends(n: u64) -> Result<u64, BoxError> {
    if n == 0 { Err("it fails".into()) } else { Ok(n) }
}

/// Says little, or waits until it dies.
struct Talker;

impl Agent for Talker {
    const CLASS: &'static str = "talker";
    type State = Vec<u32>;

    async fn on_schedule(&self, _: &Due) -> Result<(), BoxError> {
        Ok(())
    }
}

impl ChatAgent for Talker {
    async fn on_chat_message(&self, turn: &Turn) -> Result<(), BoxError> {
        turn.stash(&1).await?;
        turn.write(Chunk::text_start("t")).await?;
        turn.write(Chunk::text_delta("t", "well")).await?;
        let asked = turn.messages().last().map(UiMessage::text).unwrap_or_default();
        if asked == "wait" {
            std::future::pending::<()>().await;
        }
        turn.write(Chunk::text_end("t")).await?;
        if asked == "ask" {
            turn.write(Chunk::tool_input_available("call", "look", json!({}))).await?;
        }
        turn.write(Chunk::finish()).await?;
        Ok(())
    }
}

async fn open(url: &str, schema: &str, idle: bool) -> Forever {
    let builder = Forever::builder().store(store(url, schema, Duration::from_secs(3600)).await).durability(Durability::Process);
    let builder = builder.retention(Retention::forever()).history(History::last(10));
    let builder = builder.fiber::<pays>().fiber::<side>().fiber::<doubts>().fiber::<parent>().fiber::<ends>().chat_agent(|_| Talker);
    if idle { builder.open_idle().await.unwrap() } else { builder.open().await.unwrap() }
}

/// Fibers in most states, two agents, schedules, and chats with turns.
async fn fill(forever: &Forever) {
    for n in 0..3 {
        forever.spawn(pays(n)).key(format!("pays {n}")).metadata(json!({ "tenant": "acme", "n": n })).await.unwrap();
        forever.spawn(ends(n)).id(format!("ends {n}")).await.unwrap();
    }
    forever.spawn(doubts()).id("doubts").await.unwrap();
    forever.spawn(parent()).id("parent").agent("talker", "ada").await.unwrap();
    forever.send("doubts", "word", &1).message_id("one").await.unwrap();
    forever.spawn(side()).id("side").await.unwrap();
    forever.spawn(ends(7)).key("past").await.unwrap().wait().await.unwrap();
    forever.delete(FiberFilter::new().key("past")).await.unwrap();
    for name in ["ada", "bob"] {
        let agent = forever.agent::<Talker>(name);
        agent.set_state(&vec![1, 2]).await.unwrap();
        agent.schedule(Duration::from_secs(3600), "later", 1).await.unwrap();
        agent.schedule_every(Duration::from_secs(3600), "often", 2).await.unwrap();
        for text in ["talk", "ask", "wait", "queued"] {
            let turn = agent.submit(format!("{text} once"), [UiMessage::user(format!("{name} {text}"), text)]).id(text).await.unwrap();
            if text == "talk" || text == "ask" {
                turn.wait().await.unwrap();
            }
        }
    }
    eventually("all stand where they stay", async || {
        let counts = forever.counts().await.unwrap();
        let of = |name: &str, state| counts.iter().find(|count| count.name == name && count.state == state).map_or(0, |count| count.fibers);
        let turns = of("forever.turn", FiberState::Running);
        of("pays", FiberState::Waiting) == 4 && of("ends", FiberState::Failed) == 1 && of("parent", FiberState::Waiting) == 1 && turns == 2
    })
    .await;
    let started = |op: &forever::ops::OpStatus| op.state == forever::ops::OpState::Started;
    eventually("it is in doubt", async || forever.ops("doubts").await.unwrap().iter().any(started)).await;
}

/// What the lists show, each entry after the name of its list. An entry is known by what stays when another cell is damaged.
async fn shown(forever: &Forever) -> Result<BTreeSet<String>, String> {
    let mut all = BTreeSet::new();
    let mut list = |what: &str, names: Vec<String>| all.extend(names.into_iter().map(|name| format!("{what}: {name}")));
    let failed = |what: &'static str| move |error: forever::Error| format!("{what}: {error:?}");
    let fibers = forever.fibers().limit(100).await.map_err(failed("fibers"))?.fibers;
    list("fibers", fibers.into_iter().map(|fiber| fiber.id).collect());
    let of_tenant =
        forever.fibers().filter(FiberFilter::new().metadata("tenant", "acme")).limit(100).await.map_err(failed("metadata"))?.fibers;
    list("metadata", of_tenant.into_iter().map(|fiber| fiber.id).collect());
    forever.fibers().filter(FiberFilter::new().text("acme")).await.map_err(failed("text"))?;
    forever.fibers().filter(FiberFilter::new().in_doubt()).await.map_err(failed("in doubt"))?;
    forever.counts().await.map_err(failed("counts"))?;
    forever.positions().await.map_err(failed("positions"))?;
    forever.workers().await.map_err(failed("workers"))?;
    let agents = forever.view_agents(None, 100).await.map_err(failed("agents"))?;
    list("agents", agents.into_iter().map(|agent| agent.name).collect());
    let schedules = forever.view_schedules(None, 100).await.map_err(failed("schedules"))?;
    list("schedules", schedules.into_iter().map(|schedule| schedule.id).collect());
    let turns = forever.view_turns(None, 100).await.map_err(failed("turns"))?;
    list("turns", turns.into_iter().map(|turn| format!("{} {}", turn.agent, turn.id)).collect());
    let interactions = forever.view_pending_interactions(100).await.map_err(failed("interactions"))?;
    list("interactions", interactions.into_iter().map(|asked| asked.agent).collect());
    for name in ["ada", "bob"] {
        let chat = forever.view_chat("talker", name, 100).await.map_err(failed("chat"))?;
        list(&format!("chat {name}"), chat.turns.into_iter().map(|turn| turn.id).collect());
        list(&format!("messages {name}"), chat.messages.into_iter().map(|message| message.id).collect());
        let agent = forever.agent::<Talker>(name);
        let turns = agent.turns(&[]).await.map_err(failed("turns of an agent"))?;
        list(&format!("turns of {name}"), turns.into_iter().map(|turn| turn.id().to_owned()).collect());
    }
    Ok(all)
}

/// A connection that writes whatever it is given.
async fn careless(url: &str, schema: &str) -> Client {
    let (client, connection) = connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute(&format!("SET search_path = \"{schema}\"; SET session_replication_role = replica")).await.unwrap();
    client
}

/// Rows of a query.
async fn rows(client: &Client, sql: &str) -> Vec<Vec<Option<String>>> {
    let said = client.simple_query(sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    let row = |said| match said {
        SimpleQueryMessage::Row(row) => Some((0..row.len()).map(|n| row.get(n).map(str::to_owned)).collect()),
        _ => None,
    };
    said.into_iter().filter_map(row).collect()
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_damaged_cell_keeps_a_list_from_showing_the_others() {
    let Some(url) = cluster::url() else { return };
    let schema = cluster::schema();
    let forever = open(&url, &schema, false).await;
    fill(&forever).await;
    forever.close().await.unwrap();
    let forever = open(&url, &schema, true).await;
    let golden = shown(&forever).await.unwrap();
    assert!(golden.len() > 60, "{golden:#?}");
    let client = careless(&url, &schema).await;
    // A handler of errors fails in a parallel worker, of which small tables have none.
    let parallel =
        "SELECT proparallel FROM pg_proc WHERE proname = 'metadata_has' AND pronamespace = quote_ident(current_schema())::regnamespace";
    assert_eq!(rows(&client, parallel).await, [[Some("u".to_owned())]]);
    let columns = "SELECT table_name, column_name, data_type FROM information_schema.columns
                   WHERE table_schema = current_schema() AND data_type IN ('text', 'bigint', 'boolean') ORDER BY 1, ordinal_position";
    let (mut damaged, mut refused, mut empty) = (0, 0, BTreeSet::new());
    let stride = forever_testkit::sizes::stride(5);
    for (c, column) in rows(&client, columns).await.into_iter().enumerate() {
        let [table, column, kind] = <[_; 3]>::try_from(column).unwrap().map(Option::unwrap);
        let deep = "[".repeat(100_000);
        let values = match &*kind {
            "text" => {
                ["", "x", "{", "\"", "null", "{\"tenant\":\"\\ud800\"}", "[{}]", "\u{1a}", "\u{1a}0", "-1", &deep].map(quoted).to_vec()
            }
            "bigint" => [i64::MIN, i64::MIN + 1, -1, 0, 1 << 53, i64::MAX - 1, i64::MAX].map(|n| quoted(&n.to_string())).to_vec(),
            _ => ["TRUE", "FALSE"].map(str::to_owned).to_vec(),
        };
        let cells = format!("SELECT ctid::text, \"{column}\"::text FROM \"{table}\" ORDER BY ctid");
        if rows(&client, &cells).await.is_empty() {
            empty.insert(table);
            continue;
        }
        for (v, value) in values.into_iter().chain(["NULL".to_owned()]).enumerate() {
            // In the gate another value for each column.
            if !(c + v).is_multiple_of(stride) {
                continue;
            }
            let there = rows(&client, &cells).await;
            let [ctid, before] = <[_; 2]>::try_from(there[(c + v) % there.len()].clone()).unwrap();
            let write = format!("UPDATE \"{table}\" SET \"{column}\" = {value} WHERE ctid = '{}' RETURNING ctid::text", ctid.unwrap());
            let Ok(said) = client.simple_query(&write).await else {
                refused += 1;
                continue;
            };
            let Some(SimpleQueryMessage::Row(row)) = said.iter().find(|said| matches!(said, SimpleQueryMessage::Row(_))) else {
                panic!("{write}: no row")
            };
            let ctid = row.get(0).unwrap().to_owned();
            damaged += 1;
            let what = format!("{table}.{column} = {value:.60}");
            let shown = shown(&forever).await.unwrap_or_else(|why| panic!("{what}: {why}"));
            let missing: Vec<_> = golden.difference(&shown).collect();
            // The name under which its own row is listed, its state, or what it belongs to.
            let allowed = match &*table {
                "fibers" | "agents" | "schedules" | "turns" | "chat_messages" => 4,
                "chats" => 20,
                _ => 0,
            };
            assert!(missing.len() <= allowed, "{what}: {missing:?}");
            let before = before.map_or("NULL".to_owned(), |before| quoted(&before));
            let put_right = format!("UPDATE \"{table}\" SET \"{column}\" = {before} WHERE ctid = '{ctid}'");
            client.batch_execute(&put_right).await.unwrap();
        }
    }
    assert_eq!(shown(&forever).await.unwrap(), golden);
    println!("{damaged} damaged, {refused} refused; without rows: {empty:?}");
    assert!(damaged > 500 / stride && refused > 50 / stride, "{damaged} {refused}");
    forever.close().await.unwrap();
}
