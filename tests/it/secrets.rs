//! A value that `#[secret]` marks is in nothing that leaves the process but the database, whatever
//! the program makes of it: every byte of the inspector, logs, events, metrics, exports, histories
//! and standard error is searched for planted ones.
use std::collections::BTreeMap;
use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use forever::agent::{Agent, AgentHandle};
use forever::chat::message::UiMessage;
use forever::chat::{ChatAgent, Turn};
use forever::fiber::{FiberState, History, Retry};
use forever::inspect::Inspector;
use forever::prelude::*;
use forever::{BoxError, Forever};
use forever_testkit::process::{ran, say, this_test};
use forever_testkit::sizes::size;
use forever_testkit::waiting::eventually;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Metadata, Subscriber};

/// How every planted secret begins. What follows has characters that quotes escape.
const BEGINNING: &str = "Zq7xVwKpTb";

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn secret(n: u64) -> String {
    format!("{BEGINNING}{n:06}\"q\n-é")
}

/// Forms in which a program may pass a secret on.
const FORMS: [&str; 10] = ["raw", "upper", "percent", "base64", "hex", "debug", "json", "bytes", "lines", "reversed"];

fn made(form: &str, text: &str) -> String {
    match form {
        "raw" => text.to_owned(),
        "upper" => text.to_uppercase(),
        "percent" => listed(text, |byte| format!("%{byte:02X}")),
        "base64" => base64(text.as_bytes()),
        "hex" => listed(text, |byte| format!("{byte:02x}")),
        "debug" => format!("{text:?}"),
        "json" => serde_json::json!({ "Authorization": text }).to_string(),
        "bytes" => format!("{:?}", text.as_bytes()),
        "lines" => text.chars().flat_map(|char| [char, '\n']).collect(),
        "reversed" => text.chars().rev().collect(),
        other => unreachable!("{other}"),
    }
}

fn listed(text: &str, byte: impl Fn(u8) -> String) -> String {
    text.bytes().map(byte).collect::<Vec<_>>().concat()
}

fn base64(bytes: &[u8]) -> String {
    let encode = |three: &[u8]| {
        let number = three.iter().chain([&0; 2]).take(3).fold(0, |number, byte| number << 8 | usize::from(*byte));
        [18, 12, 6, 0].map(|shift| char::from(ALPHABET[number >> shift & 63]))
    };
    bytes.chunks(3).flat_map(encode).collect()
}

/// Where the beginning of a secret stands in a text, in one of the forms.
fn found(text: &str) -> Option<String> {
    let whole = |offset: usize| {
        let encoded = base64(&[&[0; 2][..offset], BEGINNING.as_bytes()].concat());
        // Without what depends on the bytes beside it.
        encoded[offset * 2..encoded.len() - 5].to_owned()
    };
    let mut forms: Vec<String> =
        FORMS.iter().filter(|form| !["base64", "lines", "json"].contains(form)).map(|form| made(form, BEGINNING)).collect();
    forms.extend((0..3).map(whole));
    let found = |text: &str| {
        forms.iter().find_map(|form| {
            let form = form.trim_matches(['"', '[', ']']);
            let at = text.to_lowercase().find(&form.to_lowercase())?;
            Some(format!(
                "{form} at {}",
                text.chars().skip(text[..at.min(text.len())].chars().count().saturating_sub(200)).take(600).collect::<String>()
            ))
        })
    };
    let joined: String =
        text.replace("\\n", "").replace("\\\\n", "").chars().filter(|char| !char.is_whitespace() && *char != '\\').collect();
    let numbers = text.replace(char::is_whitespace, "");
    let bytes = made("bytes", BEGINNING).replace(' ', "");
    let listed = numbers.contains(bytes.trim_matches(['[', ']'])).then(|| "bytes".to_owned());
    found(text).or_else(|| found(&joined)).or(listed)
}

/// The runtime of the round, for the functions.
static FOREVER: Mutex<Option<Forever>> = Mutex::new(None);

fn forever() -> Forever {
    FOREVER.lock().unwrap().clone().unwrap()
}

fn refused(form: &str, token: &str) -> anyhow::Error {
    anyhow::anyhow!("401 for {}", made(form, token))
}

/// All that a value goes into.
#[fiber]
async fn holds(ctx: &FiberContext, #[secret] token: String, form: String, shown: String) -> anyhow::Result<usize> {
    let derived = step!("derive", made(&form, &token));
    let mut list = vec!["first".to_owned()];
    list.push(made(&form, &derived));
    let bytes = token.as_bytes().to_vec();
    let by_token = BTreeMap::from([(made(&form, &token), 1)]);
    let mut assigned = String::new();
    assigned += &derived;
    for part in derived.split('-').map(str::to_owned).collect::<Vec<_>>() {
        let _told = step!("part", part.len());
    }
    ctx.stream("sent").send(&derived)?;
    ctx.set_progress(&list)?;
    #[public]
    let len = token.len();
    let kept = step!("keep", shown.len() + len);
    let go: usize = recv!("go");
    let late: String = recv!("later");
    step!("use", (late.len(), bytes.len(), by_token.len(), assigned.len(), list.len(), derived.len(), token.len()));
    Ok(go + kept + len)
}

/// The secret is dead when the error is made.
#[fiber]
async fn fails(n: u64, form: String) -> anyhow::Result<()> {
    #[secret]
    let token = step!("fetch", secret(n));
    let text = refused(&form, &token).to_string();
    step!("after", 1);
    Err(anyhow::anyhow!(text))
}

#[fiber]
async fn retries(#[secret] token: String, form: String) -> anyhow::Result<()> {
    step!("plain", 1);
    step!("post", retry = Retry::times(1000), Err::<(), _>(refused(&form, &token))?);
    Ok(())
}

#[fiber]
async fn calls(n: u64, form: String) -> anyhow::Result<()> {
    let given = step!("given", secret(n).len());
    #[secret]
    let token = step!("fetch", secret(n));
    call!(called(token, form, given)).map_err(|error| anyhow::anyhow!("called: {error}"))?;
    Ok(())
}

/// Nothing is secret here but by the call.
#[fiber]
async fn called(text: String, form: String, given: usize) -> anyhow::Result<()> {
    let copy = step!("copy", made(&form, &text));
    let paid = step!("pay", effect, key = copy.clone(), |op| format!("{} for {copy}", op.id().len()));
    let go: usize = recv!("go");
    step!("end", (go, given));
    Err(anyhow::anyhow!("{paid} {text}"))
}

#[fiber]
async fn pays(#[secret] token: String, form: String) -> anyhow::Result<String> {
    let receipt = step!("charge", effect, key = made(&form, &token), |op| format!("{} by {}", op.id().len(), made(&form, &token)));
    let go: usize = recv!("go");
    step!("end", go);
    Ok(receipt)
}

#[fiber]
async fn doubts(#[secret] token: String, form: String) -> anyhow::Result<()> {
    step!("transfer", effect, |op| Err::<(), _>(op.unknown(refused(&form, &token)))?);
    Ok(())
}

#[fiber]
async fn panics(#[secret] token: String, form: String) -> anyhow::Result<()> {
    step!("first", 1);
    if !token.is_empty() {
        panic!("no session for {}", made(&form, &token));
    }
    Ok(())
}

#[fiber]
async fn branches(#[secret] token: String, form: String) -> anyhow::Result<()> {
    let (a, b) = steps!(step!("a", made(&form, &token)), step!("b", retry = Retry::times(1000), Err::<usize, _>(refused(&form, &token))?),);
    let _told = step!("end", a.len() + b);
    Ok(())
}

#[fiber]
async fn spawns(#[secret] token: String, form: String) -> anyhow::Result<()> {
    let text = made(&form, &token);
    let _beside = spawn!(child(text.clone()));
    step!("start", {
        let forever = forever();
        let key = format!("child of {text}");
        forever.spawn(child(text.clone())).key(key).metadata(serde_json::json!({ "for": text })).await?;
        let text = text.clone();
        forever.spawn_closure(format!("closure {form}"), move |_| async move { Err::<(), _>(text) }).start().await?;
    });
    let go: usize = recv!("go");
    step!("end", (go, token.len()));
    Ok(())
}

/// No attribute says that it is given a secret.
#[fiber]
async fn child(text: String) -> anyhow::Result<()> {
    let copy = step!("copy", text.clone());
    let grandchild = spawn!(grandchild(copy.clone()));
    let error = wait!(grandchild).map_err(|error| error.to_string()).unwrap_err();
    let _told = step!("end", error.len());
    Err(anyhow::anyhow!("no {copy}: {error}"))
}

#[fiber]
async fn grandchild(text: String) -> anyhow::Result<()> {
    let _told = step!("first", text.len());
    Err(anyhow::anyhow!("nor {text}"))
}

/// It has no secret, and waits for one that has.
#[fiber]
async fn awaits(n: u64, form: String) -> anyhow::Result<()> {
    let other = spawn!(fails(n, form));
    let error = wait!(other).unwrap_err();
    let text = format!("{error} {} {error:?}", error.reason());
    let _told = step!("keep", text.len());
    let waited = forever().spawn(fails(n, "raw".to_owned())).await?.wait().await.unwrap_err();
    Err(anyhow::anyhow!("{text} {waited}"))
}

/// Without secrets.
#[fiber]
async fn plain(n: u64) -> anyhow::Result<()> {
    let _told = step!("tell", n + 1);
    Err(anyhow::anyhow!("the printer is on fire"))
}

struct Desk;

impl Agent for Desk {
    const CLASS: &'static str = "desk";
    type State = ();
}

impl ChatAgent for Desk {
    async fn on_chat_message(&self, turn: &Turn) -> Result<(), BoxError> {
        match turn.body().cloned().map(serde_json::from_value::<(u64, String)>) {
            Some(Ok((n, form))) => turn.run(fails(n, form)).await.map_err(|error| format!("the tool: {error}").into()),
            _ => Err("the oven is off".into()),
        }
    }
}

/// Everything that is logged, whatever the level.
struct Logged;

static LINES: Mutex<String> = Mutex::new(String::new());

struct Line<'a>(&'a mut String);

impl Visit for Line<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {}={value:?}", field.name()).unwrap();
    }
}

impl Subscriber for Logged {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("forever")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        span.record(&mut Line(&mut LINES.lock().unwrap()));
        Id::from_u64(1)
    }

    fn event(&self, event: &tracing::Event<'_>) {
        let mut lines = LINES.lock().unwrap();
        write!(lines, "\n{}", event.metadata().level()).unwrap();
        event.record(&mut Line(&mut lines));
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        values.record(&mut Line(&mut LINES.lock().unwrap()));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// What the oracle finds, which shares nothing with the code.
#[test]
fn each_form_is_found() {
    for form in FORMS {
        for lead in ["", "x", "xy"] {
            let planted = made(form, &format!("{lead}{}", secret(17)));
            for text in
                [format!("GET /?key={planted}&a"), format!("{planted:?}"), serde_json::json!({ "a": [planted.clone()] }).to_string()]
            {
                assert!(found(&text).is_some(), "{form}: {text}");
            }
        }
    }
    assert_eq!(found("Zq7xV and WnE3 and 90, 113"), None);
}

#[test]
fn planted_secrets_are_nowhere() {
    let ran = ran(&mut this_test("secrets::plants").unwrap(), Duration::from_secs(3600));
    assert!(ran.status.success(), "{}{}", ran.text, ran.errors);
    for text in [&ran.text, &ran.errors] {
        assert_eq!(found(text), None);
    }
    assert!(ran.errors.contains("panicked at") && ran.errors.contains("the message is hidden"), "{}", ran.errors);
    ran.text.lines().filter(|line| line.contains("secrets:")).for_each(|line| println!("{line}"));
}

/// Each call is given what may be secret by the one before.
#[fiber]
async fn descends(#[secret] token: String, left: u32) -> anyhow::Result<u32> {
    if left == 0 {
        let go: u32 = recv!("go");
        return Ok(go);
    }
    let depth = call!(descends(token, left - 1))?;
    Ok(depth + 1)
}

#[tokio::test]
async fn a_fiber_in_many_nested_calls_is_viewed_as_fast_as_any() {
    let forever = Forever::builder().in_memory().fiber::<descends>().open().await.unwrap();
    let deep = forever.spawn(descends(secret(1), 100)).await.unwrap();
    eventually("its wait", async || deep.status().await.unwrap().state == FiberState::Waiting).await;
    let view = forever.view(deep.id()).await.unwrap();
    assert_eq!(view.frames.len(), 101);
    assert!(view.frames.iter().flat_map(|frame| &frame.locals).all(|local| local.value.is_secret), "{view:?}");
    forever.close().deadline(Duration::ZERO).await.unwrap();
}

/// What was looked at.
#[derive(Default)]
struct Seen {
    planted: u64,
    answers: usize,
    bytes: usize,
}

impl Seen {
    fn secret(&mut self) -> (u64, String) {
        self.planted += 1;
        (self.planted, secret(self.planted))
    }

    fn look(&mut self, what: &str, text: &str) {
        if let Some(found) = found(text) {
            panic!("{what}: {found}");
        }
        self.answers += 1;
        self.bytes += text.len();
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "run by `planted_secrets_are_nowhere`, in a process of its own"]
async fn plants() {
    tracing::subscriber::set_global_default(Logged).unwrap();
    rustls::crypto::ring::default_provider().install_default().unwrap();
    let metrics = crate::metrics::recorded();
    let mut seen = Seen::default();
    for _ in 0..size("FOREVER_SECRETS", 1, 91) {
        plant(&mut seen).await;
    }
    let lines = LINES.lock().unwrap().clone();
    seen.look("logs", &lines);
    seen.look("metrics", &metrics.names());
    assert!(metrics.names().contains("forever"), "{}", metrics.names());
    let line = |words: &[&str]| lines.lines().any(|line| words.iter().all(|word| line.contains(word)));
    assert!(line(&["ERROR", "fiber failed", "the printer is on fire"]), "{lines}");
    assert!(line(&["ERROR", "fiber failed", "hidden"]), "{lines}");
    assert!(line(&["WARN", "a turn has failed", "the oven is off"]), "{lines}");
    let Seen { planted, answers, bytes } = seen;
    say(format!("secrets: planted={planted} found=0 answers={answers} bytes={bytes}"));
}

/// Every function plants a secret in every form.
async fn plant(seen: &mut Seen) {
    let builder = Forever::builder().in_memory().history(History::all());
    let builder = builder.fiber::<holds>().fiber::<fails>().fiber::<retries>().fiber::<calls>().fiber::<pays>().fiber::<doubts>();
    let builder = builder.fiber::<panics>().fiber::<branches>().fiber::<spawns>().fiber::<child>();
    let builder = builder.fiber::<grandchild>().fiber::<awaits>().fiber::<plain>().chat_agent(|_| Desk);
    let forever = builder.open().await.unwrap();
    *FOREVER.lock().unwrap() = Some(forever.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(Inspector::new(&forever).allow_actions().serve(listener));
    let told = Arc::new(Mutex::new(String::new()));
    let events = {
        let (mut events, told) = (forever.events(), Arc::clone(&told));
        tokio::spawn(async move {
            while let Some(item) = events.next().await {
                writeln!(told.lock().unwrap(), "{item:?}").unwrap();
            }
        })
    };

    let mut fibers = Vec::new();
    let desk: AgentHandle<Desk> = forever.agent("ann");
    for form in FORMS {
        let f = || form.to_owned();
        let mut add = |handle: &str, state| fibers.push((handle.to_owned(), state));
        let (_, of) = seen.secret();
        let held = forever.spawn(holds(of.clone(), f(), "for all to see".into()));
        // A key and metadata are looked at as texts: what was computed is not found in them.
        let text = made(if form == "reversed" { "raw" } else { form }, &of);
        let metadata = serde_json::json!({ "note": format!("of {text}"), text.clone(): [&text], "bytes": text.as_bytes() });
        let held = held.key(format!("key {text}")).metadata(metadata).await.unwrap();
        forever.send(held.id(), "later", &made(form, &of)).await.unwrap();
        add(held.id(), FiberState::Waiting);
        add(forever.spawn(fails(seen.secret().0, f())).await.unwrap().id(), FiberState::Failed);
        add(forever.spawn(retries(seen.secret().1, f())).await.unwrap().id(), FiberState::Running);
        let called = forever.spawn(calls(seen.secret().0, f())).await.unwrap();
        add(called.id(), FiberState::Waiting);
        let pays = forever.spawn(pays(seen.secret().1, f())).await.unwrap();
        add(pays.id(), FiberState::Waiting);
        add(forever.spawn(doubts(seen.secret().1, f())).await.unwrap().id(), FiberState::Parked);
        add(forever.spawn(panics(seen.secret().1, f())).await.unwrap().id(), FiberState::Failed);
        add(forever.spawn(branches(seen.secret().1, f())).await.unwrap().id(), FiberState::Running);
        add(forever.spawn(spawns(seen.secret().1, f())).await.unwrap().id(), FiberState::Waiting);
        add(forever.spawn(awaits(seen.secret().0, f())).await.unwrap().id(), FiberState::Failed);
        let turn = desk.save_messages([UiMessage::user(form, "hi")]).body(&(seen.secret().0, f())).await.unwrap();
        turn.wait().await.unwrap();
    }
    fibers.push((forever.spawn(plain(1)).await.unwrap().id().to_owned(), FiberState::Failed));
    desk.save_messages([UiMessage::user("plain", "hi")]).await.unwrap().wait().await.unwrap();
    for (id, state) in &fibers {
        eventually(&format!("{id} {state}"), async || forever.status(id).await.unwrap().state == *state).await;
    }
    let of = async |name: &str| forever.fibers().name(name).limit(100).await.unwrap().fibers;
    for (name, count) in [("child", 20), ("grandchild", 20)] {
        let ended = async || of(name).await.iter().filter(|fiber| fiber.state == FiberState::Failed).count() == count;
        eventually(&format!("the ends of each {name}"), ended).await;
    }
    let retried = async || of("retries").await.iter().chain(&of("branches").await).all(|fiber| fiber.retry.is_some());
    eventually("retries", retried).await;

    let mut paths: Vec<String> =
        ["overview", "fibers?limit=1000", "functions", "ops", "agents", "chats", "chats/desk/ann", "schedules", "check", "fibers?text=for"]
            .map(|path| format!("/api/{path}"))
            .into();
    for fiber in forever.fibers().limit(1000).await.unwrap().fibers {
        let id = fiber.id;
        paths.extend(["", "/ops", "/export"].map(|of| format!("/api/fibers/{id}{of}")));
        let history = forever.history(&id).await.unwrap();
        seen.look(&format!("the history of {id}"), &format!("{history:?}"));
        paths.extend(history.iter().map(|entry| format!("/api/fibers/{id}/at/{}", entry.number)));
    }
    let mut shown = String::new();
    for path in paths {
        let answer = reqwest::get(format!("{at}{path}")).await.unwrap();
        // Of a closure, and of a turn, there is no export.
        assert!(answer.status().is_success() || path.ends_with("/export"), "{path}: {answer:?}");
        let body = answer.text().await.unwrap();
        seen.look(&path, &body);
        shown.push_str(&body);
    }
    // What is no secret is shown.
    for text in ["for all to see", "the printer is on fire", "the oven is off", "hidden", "\"len\"", "\"keep\"", "\"given\""] {
        assert!(shown.contains(text), "{text}");
    }
    FOREVER.lock().unwrap().take();
    forever.close().deadline(Duration::ZERO).await.unwrap();
    events.await.unwrap();
    let told = told.lock().unwrap().clone();
    assert!(told.contains("the printer is on fire") && told.contains("hidden"), "{told}");
    seen.look("events", &told);
}
