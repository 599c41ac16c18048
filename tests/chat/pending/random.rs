//! Random operations on a few chats, and deaths of the process. After each one the list is what one finds by reading all messages.
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use forever::agent::AgentHandle;
use forever::chat::message::{Role, UiMessage};
use forever::chat::{InteractionKind, PendingInteraction, ToolAnswer, TurnState};
use forever::prelude::*;
use forever::testing::VirtualClock;
use forever::{Clock, Durability, ErrorKind, Forever};
use forever_testkit::database;
use forever_testkit::prng::Prng;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::watch;

use super::{Clerk, all, begin, builder, client_tools};

/// What is asked, time after time.
fn rounds(prng: &mut Prng) -> Value {
    let mut round = || (0..prng.below(4_usize)).map(|_| prng.one_of(&["tool", "approval"])).collect::<Vec<_>>();
    json!((0..3).map(|_| round()).collect::<Vec<_>>())
}

/// One of them, if there are any.
fn some<'a, T>(prng: &mut Prng, from: &'a [T]) -> Option<&'a T> {
    if from.is_empty() { None } else { Some(prng.pick(from)) }
}

const CHATS: [&str; 3] = ["ada", "bob", "eve"];

struct World {
    folder: TempDir,
    clock: VirtualClock,
    gate: watch::Sender<bool>,
    forever: Option<Forever>,
    prng: Prng,
    turns: usize,
    /// Since when each message that waits has done so, by its chat and id.
    since: BTreeMap<(String, String), SystemTime>,
    /// What was done, for a failure.
    done: Vec<String>,
}

/// Whether a call waits, as the AI SDK says it of its JSON.
fn waits(part: &Value) -> Option<InteractionKind> {
    let is_call = part["type"] == "dynamic-tool" || part["type"].as_str().is_some_and(|kind| kind.starts_with("tool-"));
    match part["state"].as_str() {
        Some("approval-requested") if is_call => Some(InteractionKind::Approval),
        Some("input-available") if is_call => Some(InteractionKind::ClientTool),
        _ => None,
    }
}

impl World {
    fn path(&self) -> PathBuf {
        self.folder.path().join("chat.db")
    }

    fn forever(&self) -> &Forever {
        self.forever.as_ref().unwrap()
    }

    /// Opens the database; a runtime that was open dies first.
    async fn open(&mut self) {
        self.forever = None;
        let builder = builder(&self.gate, &self.clock).sqlite(self.path()).durability(Durability::Process);
        self.forever = Some(builder.open().await.unwrap());
    }

    fn agent(&mut self) -> AgentHandle<Clerk> {
        let name = CHATS[self.prng.below(CHATS.len())];
        self.forever().agent(name)
    }

    fn id(&mut self) -> String {
        self.turns += 1;
        format!("t{}", self.turns)
    }

    /// Compares the list with the messages. The `renewed` message waited for nothing in between.
    async fn check(&mut self, renewed: Option<&str>) {
        let now = self.clock.now();
        let (mut before, mut wanted) = (std::mem::take(&mut self.since), BTreeMap::new());
        let listed = all(|| self.forever().pending_interactions()).await;
        for name in CHATS {
            let agent = self.forever().agent::<Clerk>(name);
            let running: BTreeSet<String> =
                agent.turns(&[TurnState::Running]).await.unwrap().iter().map(|turn| turn.message_id().to_owned()).collect();
            let messages = agent.messages().await.unwrap();
            let last = messages.last().map(|message| message.id.clone());
            for message in messages.iter().filter(|message| message.role == Role::Assistant) {
                let json = serde_json::to_value(message).unwrap();
                let calls: Vec<_> =
                    json["parts"].as_array().unwrap().iter().filter_map(|part| Some((part.clone(), waits(part)?))).collect();
                if calls.is_empty() {
                    continue;
                }
                let key = (name.to_owned(), message.id.clone());
                let since = before.remove(&key).filter(|_| renewed != Some(&*message.id)).unwrap_or(now);
                self.since.insert(key, since);
                if !running.contains(&message.id) {
                    let superseded = last.as_deref() != Some(&*message.id);
                    let asked = calls.into_iter().map(|(part, kind)| (part["toolCallId"].clone(), part["input"].clone(), kind));
                    wanted.insert((name.to_owned(), message.id.clone()), (asked.collect::<Vec<_>>(), since, superseded));
                }
            }
            let of_one = all(|| agent.pending_interactions()).await;
            assert_eq!(of_one, listed.iter().filter(|asked| asked.agent == name).cloned().collect::<Vec<_>>(), "{:#?}", self.done);
        }
        assert!(listed.is_sorted_by_key(|asked| std::cmp::Reverse(asked.since)), "{listed:#?} after {:#?}", self.done);
        let mut found = BTreeMap::new();
        for of_message in listed.chunk_by(|one, other| (&one.agent, &one.message) == (&other.agent, &other.message)) {
            let first = &of_message[0];
            let calls = of_message.iter().map(|asked| (json!(asked.call), asked.input.clone(), asked.kind)).collect::<Vec<_>>();
            let twice = found.insert((first.agent.clone(), first.message.clone()), (calls, first.since, first.superseded));
            assert!(twice.is_none() && of_message.iter().all(|asked| asked.since == first.since), "{listed:#?} after {:#?}", self.done);
        }
        assert_eq!(found, wanted, "after {:#?}", self.done);
    }

    /// Does something, and says what; the message that has waited for nothing in between, if there is one.
    async fn step(&mut self) -> (String, Option<String>) {
        let agent = self.agent();
        let name = agent.name().to_owned();
        let messages = agent.messages().await.unwrap();
        let of_user: Vec<_> = messages.iter().filter(|message| message.role == Role::User).map(|message| message.id.clone()).collect();
        match self.prng.below(11) {
            0 | 1 => {
                let (id, rounds) = (self.id(), rounds(&mut self.prng));
                begin(&agent, &id, rounds.clone()).await.wait().await.unwrap();
                (format!("{name} is asked {rounds}"), None)
            }
            2..=4 => self.answer().await,
            5 => {
                let (id, rounds) = (self.id(), rounds(&mut self.prng));
                let Some(after) = some(&mut self.prng, &of_user).cloned() else { return ("nothing to ask again".into(), None) };
                let edited: Vec<_> = (self.prng.below(2) == 0).then(|| UiMessage::user(&*after, "edited")).into_iter().collect();
                let again = agent.save_messages(edited).after(&*after).id(id).body(&rounds).client_tools(client_tools());
                again.await.unwrap().wait().await.unwrap();
                (format!("{name} is asked {after} again: {rounds}"), None)
            }
            6 => {
                let mut left = messages;
                left.retain(|_| self.prng.below(3) > 0);
                agent.set_messages(left.clone()).await.unwrap();
                (format!("{name} has these messages: {:?}", left.iter().map(|message| &message.id).collect::<Vec<_>>()), None)
            }
            7 => match agent.continue_last_turn().await {
                Ok(more) => {
                    more.wait().await.unwrap();
                    (format!("{name} goes on"), None)
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::NotFound);
                    (format!("{name} has nothing to go on with"), None)
                }
            },
            8 if self.prng.below(3) == 0 => {
                agent.clear().await.unwrap();
                (format!("{name} is cleared"), None)
            }
            8 | 9 => {
                drop(agent);
                self.hold(&name).await
            }
            _ => {
                drop(agent);
                self.open().await;
                ("the process dies".into(), None)
            }
        }
    }

    /// Answers one that is listed, in a way that may be another one's.
    async fn answer(&mut self) -> (String, Option<String>) {
        let asked = all(|| self.forever().pending_interactions()).await;
        let Some(one) = some(&mut self.prng, &asked).cloned() else { return ("nothing to answer".into(), None) };
        let PendingInteraction { agent, message, call, kind, .. } = &one;
        let answers = [ToolAnswer::Output(json!(1)), ToolAnswer::Error("no".into()), ToolAnswer::Approved, ToolAnswer::Refused];
        let (n, goes_on) = (self.prng.below(4), self.prng.below(2) == 0);
        let handle = self.forever().agent::<Clerk>(agent.as_str());
        let done = format!("{call} of {message} of {agent} is answered: {:?}, {goes_on}", answers[n]);
        let answered = handle.answer_tool(&one, answers[n].clone(), goes_on).await.unwrap();
        assert_eq!(answered.applied, (n > 1) == (*kind == InteractionKind::Approval), "{done}");
        let Some(more) = answered.continued else { return (done, None) };
        more.wait().await.unwrap();
        (done, Some(message.clone()))
    }

    /// A turn is under way for a while, in one process or in two; then it ends, or is cancelled.
    async fn hold(&mut self, name: &str) -> (String, Option<String>) {
        let agent = self.forever().agent::<Clerk>(name);
        self.gate.send_replace(false);
        let (id, rounds) = (self.id(), rounds(&mut self.prng));
        let last = agent.messages().await.unwrap().pop();
        let turn = if self.prng.below(2) == 0 && last.is_some_and(|last| last.role == Role::Assistant) {
            agent.continue_last_turn().await.unwrap()
        } else {
            begin(&agent, &id, rounds).await
        };
        let mut follow = turn.follow(0).await.unwrap();
        for _ in 0..2 {
            follow.next().await.unwrap();
        }
        self.done.push(format!("{name} is held"));
        self.check(None).await;
        let id = turn.id().to_owned();
        drop((follow, turn, agent));
        // A client's result goes into the log.
        let agent = self.forever().agent::<Clerk>(name);
        let said = agent.messages().await.unwrap().pop().into_iter().flat_map(|message| message.parts);
        let open = said
            .filter(|part| part.interaction() == Some(InteractionKind::ClientTool))
            .filter_map(|part| part.tool_call_id().map(str::to_owned));
        let open: Vec<String> = open.collect();
        if let Some(call) = some(&mut self.prng, &open) {
            let answered = agent.answer_tool(call, ToolAnswer::Output(json!(1)), false).await.unwrap();
            self.done.push(format!("{call} of {name} is answered meanwhile: {}", answered.applied));
            self.check(None).await;
        }
        drop(agent);
        if self.prng.below(3) == 0 {
            self.open().await;
            self.done.push("the process dies meanwhile".into());
        }
        let turn = self.forever().agent::<Clerk>(name).turn(&id).await.unwrap().unwrap();
        if self.prng.below(2) == 0 {
            turn.cancel("enough").await.unwrap();
        } else {
            self.gate.send_replace(true);
        }
        turn.wait().await.unwrap();
        self.gate.send_replace(true);
        (format!("{name} is let go"), None)
    }
}

async fn all_is_as_the_messages_say(seed: u64) {
    let memory = std::path::Path::new("/dev/shm");
    let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    let mut world = World {
        folder: folder.unwrap(),
        clock: VirtualClock::new(),
        gate: watch::Sender::new(true),
        forever: None,
        prng: Prng::new(seed),
        turns: 0,
        since: BTreeMap::new(),
        done: vec![format!("seed {seed}")],
    };
    world.open().await;
    let mut longest = 0;
    for _ in 0..60 {
        world.clock.advance(Duration::from_secs(1));
        let (done, renewed) = world.step().await;
        world.done.push(done);
        world.check(renewed.as_deref()).await;
        longest = longest.max(world.since.len());
    }
    assert!(longest > 1, "seed {seed} asks little");
}

#[tokio::test(start_paused = true)]
async fn the_list_is_what_one_finds_in_all_messages_after_each_of_many_random_operations() {
    for seed in 0..if database::is_in_postgres() { 4 } else { 20 } {
        all_is_as_the_messages_say(seed).await;
    }
}
