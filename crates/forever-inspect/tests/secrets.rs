//! A planted secret appears in no answer and no log, whatever it has got into.
use std::fmt::{Debug, Write as _};
use std::sync::Mutex;
use std::time::Duration;

use forever::Forever;
use forever::fiber::{FiberState, History, Retry};
use forever_inspect::Inspector;
use forever_macros::fiber;
use forever_testkit::waiting::eventually;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Metadata, Subscriber};

use crate::client::{get, post, raw};
use crate::{in_state, serve};

/// With characters that JSON and debug output escape.
const SECRET: &str = "tok-5up3r\"s3cr3t\n-é";
/// A part that stands in each form of it.
const PART: &str = "5up3r";

type Result<T> = std::result::Result<T, forever::Error>;

fn refused(text: &str) -> forever::Error {
    forever::Error::new(forever::ErrorKind::Value, format!("401 for {text:?}"))
}

#[fiber(crate = forever_runtime)]
async fn waits(ctx: &FiberContext, #[secret] token: String, shown: String) -> Result<u32> {
    #[secret]
    let session = step!("log in", vec![token.clone(), "other".to_owned()]);
    // What a function with secrets sends may be one that it keeps no longer.
    ctx.stream("sent").send(&format!("by {token}"))?;
    ctx.set_progress(&format!("logged in with {session:?}"))?;
    let kept = step!("keep", shown.len());
    let n: u32 = recv!("go");
    let _used = step!("use", session.len() + token.len());
    Ok(n + u32::try_from(kept).unwrap_or(0))
}

#[fiber(crate = forever_runtime)]
async fn fails(#[secret] token: String) -> Result<u32> {
    let n = step!("first", token.len());
    if n > 0 {
        return Err(refused(&token));
    }
    let _never = step!("never", token.len());
    Ok(0)
}

#[fiber(crate = forever_runtime)]
async fn tries(#[secret] token: String) -> Result<u32> {
    Ok(step!("post", retry = Retry::times(1000), Err::<u32, _>(refused(&token))?))
}

/// The secret is an argument of a child.
#[fiber(crate = forever_runtime)]
async fn parent(#[secret] token: String) -> Result<u32> {
    let mut children = Vec::new();
    let child = spawn!(waits(token.clone(), "for a child".into()));
    children.push(child);
    let done = wait_all!(children);
    Ok(u32::try_from(done.len() + token.len()).unwrap_or(0))
}

/// The secret is that of a function that is called, and that is not registered.
#[fiber(crate = forever_runtime)]
async fn calls(n: u32) -> Result<u32> {
    let got = call!(called(n))?;
    Ok(got)
}

#[fiber(crate = forever_runtime)]
async fn called(n: u32) -> Result<u32> {
    #[secret]
    let token = step!("fetch token", SECRET.to_owned());
    for part in token.split('-').map(str::to_owned).collect::<Vec<_>>() {
        let go: u32 = recv!("go");
        if go == 0 {
            return Err(refused(&token));
        }
        let _part = step!("part", part.len());
    }
    Ok(n)
}

/// In the ledger: the key and the outcome of an effect.
#[fiber(crate = forever_runtime)]
async fn pays(#[secret] token: String) -> Result<String> {
    let receipt = step!("charge", effect, key = token.clone(), |op| format!("{} by {token}", op.id().len()));
    let done: bool = recv!("go");
    step!("end", (done, token.len()));
    Ok(receipt)
}

/// Without secrets: its error is in the log.
#[fiber(crate = forever_runtime)]
async fn plain(n: u32) -> Result<u32> {
    let _told = step!("tell", n + 1);
    Err(forever::Error::new(forever::ErrorKind::Value, "the printer is on fire"))
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
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
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

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_is_in_no_answer_and_in_no_log() {
    tracing::subscriber::set_global_default(Logged).unwrap();
    let builder = Forever::builder().in_memory().history(History::all());
    let builder =
        builder.fiber::<waits>().fiber::<parent>().fiber::<fails>().fiber::<tries>().fiber::<calls>().fiber::<pays>().fiber::<plain>();
    let forever = builder.open().await.unwrap();
    let at = serve(Inspector::new(&forever).allow_actions()).await;
    let metadata = serde_json::json!({ "note": format!("of {SECRET}"), SECRET: 1 });
    let waiting = forever.spawn(waits(SECRET.into(), "for all to see".into())).key("key of tok-5up3r").metadata(&metadata).await.unwrap();
    let failing = forever.spawn(fails(SECRET.into())).await.unwrap();
    let trying = forever.spawn(tries(SECRET.into())).await.unwrap();
    let calling = forever.spawn(calls(3)).await.unwrap();
    let paying = forever.spawn(pays(SECRET.into())).await.unwrap();
    let with_child = forever.spawn(parent(SECRET.into())).await.unwrap();
    let events = tokio::spawn(raw(at, b"GET /api/events HTTP/1.1\r\nhost: localhost\r\n\r\n"));
    for (id, state) in [
        (waiting.id(), FiberState::Waiting),
        (failing.id(), FiberState::Failed),
        (calling.id(), FiberState::Waiting),
        (paying.id(), FiberState::Waiting),
        (with_child.id(), FiberState::Waiting),
    ] {
        in_state(&forever, id, state).await;
    }
    eventually("a retry", async || forever.status(trying.id()).await.unwrap().retry.is_some()).await;
    let ids = [waiting.id(), failing.id(), trying.id(), calling.id(), paying.id(), with_child.id()];
    let check = async || {
        let mut seen = String::new();
        let mut paths: Vec<String> =
            ["overview", "fibers", "functions", "ops", "agents", "chats", "schedules", "check", "functions/waits", "fibers?text=for"]
                .iter()
                .map(|p| format!("/api/{p}"))
                .collect();
        for id in ids {
            paths.push(format!("/api/fibers/{id}"));
            paths.push(format!("/api/fibers/{id}/ops"));
            paths.push(format!("/api/fibers/{id}/export"));
            let checkpoints = forever.history(id).await.unwrap().into_iter().map(|entry| entry.number);
            paths.extend(checkpoints.map(|number| format!("/api/fibers/{id}/at/{number}")));
        }
        for path in paths {
            let answer = get(at, &path).await;
            assert_eq!(answer.status, 200, "{path}: {}", answer.body);
            // The key is no secret of the program's: it was given as it is.
            let body = answer.body.replace("key of tok-5up3r", "");
            assert!(!body.contains(PART), "{path}: {body}");
            seen.push_str(&body);
        }
        seen
    };
    // A secret may be changed, by name and by what it is; the record says only that it was.
    let edit = format!("/api/fibers/{}/edit", waiting.id());
    let edited = post(at, &edit, r#"{"set":{"session":["tok-5up3r-anew"],"kept":12},"by":"ann"}"#).await;
    assert!(edited.status == 200 && !edited.body.replace("key of tok-5up3r", "").contains(PART), "{}", edited.body);
    let refused = post(at, &edit, r#"{"set":{"session":"tok-5up3r-anew"}}"#).await;
    assert!(refused.status >= 400 && !refused.body.contains(PART), "{}", refused.body);
    // A message may be what a function keeps as a secret.
    forever.send(calling.id(), "later", SECRET).await.unwrap();
    let seen = check().await;
    // What is no secret is shown, and so is that there was one.
    for shown in [
        "for all to see",
        "hidden: the function has values marked",
        "for a child",
        "•••",
        "\"is_secret\":true",
        "session",
        "fetch token",
        "\"topic\":\"later\"",
        "\"by\":\"ann\"",
        "\"withheld\":",
        "\"items\":1,\"name\":\"sent\"",
    ] {
        assert!(seen.contains(shown), "{shown}");
    }
    forever.send(calling.id(), "go", &0).await.unwrap();
    in_state(&forever, calling.id(), FiberState::Failed).await;
    forever.send(paying.id(), "go", &true).await.unwrap();
    forever.send(waiting.id(), "go", &1).await.unwrap();
    in_state(&forever, waiting.id(), FiberState::Completed).await;
    in_state(&forever, paying.id(), FiberState::Completed).await;
    check().await;
    let resumed = post(at, &format!("/api/fibers/{}/resume", failing.id()), "").await;
    assert!(resumed.status == 200 && !resumed.body.contains(PART), "{}", resumed.body);
    let events = events.await.unwrap();
    assert!(events.contains("\"fibers\":[") && !events.contains(PART), "{events}");
    forever.spawn(plain(1)).await.unwrap().wait().await.unwrap_err();
    forever.close().deadline(Duration::ZERO).await.unwrap();
    let lines = LINES.lock().unwrap().clone();
    assert!(!lines.contains(PART), "{lines}");
    let line = |words: &[&str]| lines.lines().any(|line| words.iter().all(|word| line.contains(word)));
    assert!(line(&["ERROR", "fiber failed", "the printer is on fire", "remedy=\"fix the cause"]), "{lines}");
    assert!(line(&["ERROR", "fiber failed", "hidden: the function has values marked"]), "{lines}");
    assert!(line(&["WARN", "failed and is retried", "hidden"]) || line(&["WARN", "retr", "hidden"]), "{lines}");
}
