//! The command over real databases and real processes: a live owner behind its socket, a file
//! without one, and a URL.
#![allow(clippy::print_stdout, missing_docs)]

extern crate forever_runtime as forever;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use forever::Forever;
use forever::fiber::{FiberFilter, FiberState, Retry};
use forever_inspect::{Inspector, socket_path};
use forever_macros::fiber;

/// What no output may hold.
const SECRET: &str = "tok-5up3r-s3cr3t";

#[fiber(crate = forever_runtime)]
async fn approval(#[secret] token: String, amount: u32) -> Result<u32, forever::Error> {
    let seen = step!("read", format!("{amount} euros"));
    let factor: u32 = recv!("approval");
    step!("log", (seen.len(), token.len()));
    Ok(amount * factor)
}

#[fiber(crate = forever_runtime)]
async fn failing(#[secret] token: String) -> Result<u32, forever::Error> {
    step!("first", 1);
    Err(forever::Error::new(forever::ErrorKind::Value, format!("the server refused {token}")))
}

#[fiber(crate = forever_runtime)]
async fn retried(#[secret] token: String) -> Result<u32, forever::Error> {
    Ok(step!("post", retry = Retry::times(1000), refused(&token)?))
}

fn refused(token: &str) -> Result<u32, forever::Error> {
    Err(forever::Error::new(forever::ErrorKind::Value, format!("401 for {token}")))
}

#[fiber(crate = forever_runtime)]
async fn paying(#[secret] token: String) -> Result<String, forever::Error> {
    Ok(step!("charge", effect, |op| never(op.id(), &token).await))
}

async fn never(_: &str, _: &str) -> String {
    std::future::pending().await
}

struct Shop {
    folder: tempfile::TempDir,
}

impl Shop {
    fn new() -> Self {
        Shop { folder: tempfile::tempdir().unwrap() }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("shop db.sqlite")
    }

    async fn open(&self) -> Forever {
        let builder = Forever::builder().sqlite(self.file());
        builder.fiber::<approval>().fiber::<failing>().fiber::<retried>().fiber::<paying>().open().await.unwrap()
    }

    /// A database with a fiber of each kind of trouble, and no owner.
    async fn seeded() -> Self {
        let shop = Shop::new();
        let forever = shop.open().await;
        forever.spawn(approval(SECRET.into(), 7)).key("waits").await.unwrap();
        forever.spawn(failing(SECRET.into())).key("fails").await.unwrap().wait().await.unwrap_err();
        let paying = forever.spawn(paying(SECRET.into())).key("pays").await.unwrap();
        forever.spawn(retried(SECRET.into())).key("retries").await.unwrap();
        until(async || {
            let of = |key: &str| forever.fibers().filter(FiberFilter::new().key(key));
            let waits = of("waits").await.unwrap().fibers[0].state == FiberState::Waiting;
            let retries = of("retries").await.unwrap().fibers[0].retry.is_some();
            waits && retries && !forever.ops(paying.id()).await.unwrap().is_empty()
        })
        .await;
        forever.close().deadline(Duration::ZERO).await.unwrap();
        shop
    }
}

async fn until(mut so: impl AsyncFnMut() -> bool) {
    for _ in 0..2000 {
        if so().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("it never was so");
}

fn forever_(target: &Path, arguments: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_forever")).arg(target).args(arguments).output().unwrap();
    for text in [&output.stdout, &output.stderr] {
        let text = String::from_utf8_lossy(text);
        assert!(!text.contains(SECRET), "{arguments:?}: {text}");
    }
    output
}

async fn run(target: &Path, arguments: &[&str]) -> (i32, String, String) {
    let (target, arguments) = (target.to_owned(), arguments.iter().map(|&a| a.to_owned()).collect::<Vec<_>>());
    let output = tokio::task::spawn_blocking(move || forever_(&target, &arguments.iter().map(String::as_str).collect::<Vec<_>>()));
    let output = output.await.unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

async fn done(target: &Path, arguments: &[&str]) -> String {
    let (code, out, err) = run(target, arguments).await;
    assert_eq!(code, 0, "{arguments:?}: {out}{err}");
    out
}

async fn json(target: &Path, arguments: &[&str]) -> serde_json::Value {
    serde_json::from_str(&done(target, &[arguments, &["--json"]].concat()).await).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_without_an_owner_is_read_and_repaired() {
    let shop = Shop::seeded().await;
    let file = shop.file();
    let listed = done(&file, &["ls"]).await;
    for key in ["waits", "fails", "pays", "retries"] {
        assert!(listed.contains(key), "{listed}");
    }
    assert!(listed.contains("the server refused •••"), "{listed}");
    assert!(done(&file, &["ls", "--state", "failed,waiting", "--oldest-first"]).await.lines().nth(1).unwrap().starts_with("waiting"));
    assert_eq!(json(&file, &["ls", "--limit", "2"]).await["fibers"].as_array().unwrap().len(), 2);
    assert!(done(&file, &["show", "waits"]).await.contains("seen = \"7 euros\""));
    let (code, out, _) = run(&file, &["doctor"]).await;
    assert_eq!(code, 5, "{out}");
    assert!(out.contains("1 failed of `failing`") && out.contains("may have been carried out"), "{out}");
    assert!(out.contains("--state failed --name failing"), "the remedy is the command: {out}");
    assert!(json(&file, &["chats"]).await["turns"].as_array().unwrap().is_empty());
    assert_eq!(run(&file, &["chat", "ada"]).await.0, 2, "a chat is class and name");
    assert!(json(&file, &["chat", "desk/ada"]).await["chat"]["messages"].as_array().unwrap().is_empty());
    assert!(!done(&file, &["ls", "--parent", "waits"]).await.contains("waits"), "a key is a parent without children");
    assert_eq!(run(&file, &["ls", "--parent", "nothing"]).await.0, 3);

    let op = json(&file, &["ops", "pays"]).await["ops"][0]["id"].as_str().unwrap().to_owned();
    done(&file, &["resolve-op", &op, "--completed", "\"paid\""]).await;
    let (code, _, err) = run(&file, &["resolve-op", &op, "--not-executed"]).await;
    assert_eq!(code, 1, "{err}");
    done(&file, &["resume", "--all", "--name", "failing"]).await;
    done(&file, &["cancel", "retries", "--reason", "not needed"]).await;
    // The file's reader does not know the type, so the value is stored; and deleted again.
    done(&file, &["send", "waits", "approval", "\"six\""]).await;
    let shown = done(&file, &["show", "waits"]).await;
    // Its function has a secret, which a message may be, too.
    assert!(shown.contains("messages that it has not received") && !shown.contains("six"), "{shown}");
    let number = json(&file, &["show", "waits"]).await["fiber"]["messages"][0]["number"].to_string();
    done(&file, &["discard", "waits", &number]).await;
    let (code, _, err) = run(&file, &["discard", "waits", &number]).await;
    assert_eq!((code, err.contains("no message with this number")), (3, true), "{err}");
    done(&file, &["send", "waits", "approval", "6"]).await;
    let states = json(&file, &["ls"]).await;
    let state = |key: &str| states["fibers"].as_array().unwrap().iter().find(|f| f["key"] == key).unwrap()["state"].clone();
    assert_eq!((state("fails"), state("retries"), state("waits")), ("pending".into(), "cancelled".into(), "pending".into()));
    done(&file, &["backup", shop.folder.path().join("copy.db").to_str().unwrap()]).await;

    // The program goes on with what was decided.
    let forever = shop.open().await;
    assert_eq!(forever.fiber_by_key::<approval>("waits").await.unwrap().wait().await.unwrap(), 42);
    assert_eq!(forever.fiber_by_key::<paying>("pays").await.unwrap().wait().await.unwrap(), "paid");
    forever.close().await.unwrap();
    assert!(done(&shop.folder.path().join("copy.db"), &["ls"]).await.contains("waits"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_live_owner_answers_over_its_socket() {
    use std::os::unix::fs::PermissionsExt;

    let shop = Shop::seeded().await;
    let file = shop.file();
    // Left behind by an owner that died.
    drop(std::os::unix::net::UnixListener::bind(socket_path(&file)).unwrap());
    let forever = shop.open().await;
    let socket = tokio::spawn({
        let (inspector, file) = (Inspector::new(&forever), file.clone());
        async move { inspector.listen_beside(file).await }
    });
    until(async || std::os::unix::net::UnixStream::connect(socket_path(&file)).is_ok()).await;
    let mode = std::fs::metadata(socket_path(&file)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    until(async || forever.fibers().state(FiberState::Parked).await.unwrap().fibers.len() == 1).await;
    let shown = done(&file, &["show", "waits"]).await;
    assert!(shown.contains("→") && shown.contains("recv!(\"approval\")"), "{shown}");
    let op = json(&file, &["ops"]).await["ops"][0]["op"]["id"].as_str().unwrap().to_owned();
    done(&file, &["resolve-op", &op, "--completed", "\"paid\""]).await;
    done(&file, &["send", "waits", "approval", "2", "--message-id", "m-1"]).await;
    assert_eq!(forever.fiber_by_key::<approval>("waits").await.unwrap().wait().await.unwrap(), 14);
    assert_eq!(forever.fiber_by_key::<paying>("pays").await.unwrap().wait().await.unwrap(), "paid");
    assert!(done(&file, &["watch", "waits"]).await.starts_with("completed"));
    assert!(done(&file, &["functions"]).await.contains("approval"));
    done(&file, &["status"]).await;
    done(&file, &["check"]).await;
    done(&file, &["agents"]).await;
    done(&file, &["schedules"]).await;
    forever.close().await.unwrap();
    socket.await.unwrap().unwrap();
    assert!(!socket_path(&file).exists());
}

/// Gives `big` as it is, after a limit that is too low.
#[fiber(crate = forever_runtime)]
async fn limited(amount: u32, big: u64) -> Result<u64, forever::Error> {
    let limit = step!("limit", 5_u32);
    let kept = step!("keep", big);
    if amount > limit {
        return Err(forever::Error::new(forever::ErrorKind::Value, format!("the limit is {limit}")));
    }
    Ok(kept)
}

#[tokio::test(flavor = "multi_thread")]
async fn fibers_are_edited_forked_and_moved() {
    let shop = Shop::new();
    let file = shop.file();
    let open = async |file: &Path| {
        Forever::builder().sqlite(file).history(forever::fiber::History::all()).fiber::<limited>().open().await.unwrap()
    };
    let forever = open(&file).await;
    forever.spawn(limited(7, u64::MAX)).id("l").key("limit").await.unwrap().wait().await.unwrap_err();
    forever.close().await.unwrap();
    // Nothing is run here, so there is no code that could read the new values.
    let (code, _, err) = run(&file, &["edit", "limit", "limit=9"]).await;
    assert_eq!((code, err.contains("does not have its function")), (1, true), "{err}");
    done(&file, &["fork", "limit", "--id", "early", "--at", "1"]).await;
    let timeline = done(&file, &["timeline", "limit"]).await;
    assert!(timeline.contains("limit") && timeline.contains("keep"), "{timeline}");

    let forever = open(&file).await;
    let socket = tokio::spawn(Inspector::new(&forever).listen_beside(file.clone()));
    until(async || socket_path(&file).exists()).await;
    assert!(forever.fiber::<limited>("early").wait().await.unwrap_err().to_string().contains("the limit is 5"));
    let locals = done(&file, &["locals", "limit", "2"]).await;
    assert!(locals.contains("    limit = 5") && locals.contains("  + ") && locals.contains(&u64::MAX.to_string()), "{locals}");
    for (wrong, code) in [(&["edit", "limit", "limit=x"][..], 2), (&["edit", "limit", "limit=-1"], 1), (&["edit", "limit", "other=1"], 3)] {
        let (got, out, err) = run(&file, wrong).await;
        assert_eq!(got, code, "{wrong:?}: {out}{err}");
    }
    done(&file, &["edit", "limit", "limit=9", "--by", "ann"]).await;
    assert!(done(&file, &["timeline", "limit"]).await.contains("edited by ann"));
    done(&file, &["resume", "limit"]).await;
    assert_eq!(forever.fiber::<limited>("l").wait().await.unwrap(), u64::MAX);
    let forked = done(&file, &["fork", "early", "--id", "late", "--set", "limit=8", "--set", &format!("kept={}", u64::MAX - 1)]).await;
    assert!(forked.contains("done; fiber late is"), "{forked}");
    assert_eq!(forever.fiber::<limited>("late").wait().await.unwrap(), u64::MAX - 1);

    let exports = shop.folder.path().join("fibers.jsonl");
    std::fs::write(&exports, done(&file, &["export", "--all"]).await).unwrap();
    let one = shop.folder.path().join("one.json");
    std::fs::write(&one, done(&file, &["export", "early"]).await).unwrap();
    forever.close().await.unwrap();
    socket.await.unwrap().unwrap();

    let other = shop.folder.path().join("other.db");
    open(&other).await.close().await.unwrap();
    assert_eq!(done(&other, &["import", exports.to_str().unwrap()]).await.trim(), "3 done, 0 refused");
    done(&other, &["import", one.to_str().unwrap(), "--id", "early-2"]).await;
    let (code, _, err) = run(&other, &["import", "/nowhere.jsonl"]).await;
    assert_eq!(code, 2, "{err}");
    let forever = open(&other).await;
    assert_eq!(forever.fiber_by_key::<limited>("limit").await.unwrap().wait().await.unwrap(), u64::MAX, "no digit is lost");
    let early = forever.status("early-2").await.unwrap();
    assert_eq!((early.state, early.reason.as_deref()), (FiberState::Failed, Some("the limit is 5")));
    forever.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_without_a_socket_is_read_from_a_copy() {
    let shop = Shop::seeded().await;
    let forever = shop.open().await;
    let (code, out, err) = run(&shop.file(), &["ls"]).await;
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("waits") && err.contains("copy of this moment"), "{out}{err}");
    let (code, _, err) = run(&shop.file(), &["cancel", "waits"]).await;
    assert_eq!(code, 4, "{err}");
    forever.close().deadline(Duration::ZERO).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_inspector_answers_by_its_url_and_refuses_what_it_does_not_allow() {
    let shop = Shop::seeded().await;
    let forever = shop.open().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = PathBuf::from(format!("http://{}", listener.local_addr().unwrap()));
    tokio::spawn({
        let inspector = Inspector::new(&forever);
        async move { inspector.serve(listener).await }
    });
    assert!(done(&url, &["ls", "--text", "WAITS"]).await.contains("waits"));
    let (code, _, err) = run(&url, &["cancel", "waits"]).await;
    assert_eq!((code, err.contains("read-only")), (1, true), "{err}");
    forever.close().deadline(Duration::ZERO).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn exit_codes_tell_what_went_wrong() {
    let shop = Shop::seeded().await;
    let file = shop.file();
    for (target, arguments, code) in [
        (&file, &["show", "nobody"][..], 3),
        (&file, &["resume", "nobody"], 3),
        (&file, &["resume", "waits"], 1),
        (&file, &["ls", "--state", "sleepy"], 1),
        (&file, &["send", "waits", "approval", "no json"], 2),
        (&file, &["discard", "waits", "first"], 2),
        (&file, &["resume", "--all"], 2),
        (&file, &["fly"], 2),
        (&file, &["watch"], 1),
        (&PathBuf::from("/nowhere.db"), &["ls"], 4),
        (&PathBuf::from("http://127.0.0.1:1"), &["ls"], 4),
        (&PathBuf::from("https://127.0.0.1"), &["ls"], 2),
    ] {
        let (got, out, err) = run(target, arguments).await;
        assert_eq!(got, code, "{arguments:?}: {out}{err}");
        assert!(!err.is_empty());
    }
    let completions = Command::new(env!("CARGO_BIN_EXE_forever")).args(["completions", "bash"]).output().unwrap();
    assert!(completions.status.success() && String::from_utf8_lossy(&completions.stdout).contains("resolve-op"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_database_is_an_error_and_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("notes.txt");
    std::fs::write(&file, "not a database, and longer than a header of one would be ........................").unwrap();
    let before = std::fs::read(&file).unwrap();
    for arguments in [&["ls"][..], &["resume", "x"], &["doctor"]] {
        assert_eq!(run(&file, arguments).await.0, 4, "{arguments:?}");
    }
    assert_eq!(std::fs::read(&file).unwrap(), before);
}
