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
use forever_testkit::waiting::eventually;

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
        let of = serde_json::json!({ "customer": "Smith & Sons", "tier": 2 });
        let paying = forever.spawn(paying(SECRET.into())).key("pays").metadata(&of).await.unwrap();
        forever.spawn(retried(SECRET.into())).key("retries").await.unwrap();
        eventually("each kind of trouble", async || {
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
    assert!(listed.contains("hidden: "), "{listed}");
    assert!(done(&file, &["ls", "--state", "failed,waiting", "--oldest-first"]).await.lines().nth(1).unwrap().starts_with("waiting"));
    assert_eq!(json(&file, &["ls", "--limit", "2"]).await["fibers"].as_array().unwrap().len(), 2);
    assert!(done(&file, &["show", "waits"]).await.contains("seen = \"7 euros\""));
    let (code, out, _) = run(&file, &["doctor"]).await;
    assert_eq!(code, 5, "{out}");
    assert!(out.contains("1 failed of `failing`") && out.contains("may have been carried out"), "{out}");
    assert!(out.contains("--state failed --name failing"), "the remedy is the command: {out}");
    assert!(json(&file, &["chats"]).await["turns"].as_array().unwrap().is_empty());
    assert_eq!(run(&file, &["chat", "ada"]).await.0, 2, "a chat is class and name");
    assert_eq!(run(&file, &["chat", "desk/ada"]).await.0, 3, "there is none");
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
    eventually("the socket", async || std::os::unix::net::UnixStream::connect(socket_path(&file)).is_ok()).await;
    let mode = std::fs::metadata(socket_path(&file)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    eventually("the operation in doubt", async || forever.fibers().state(FiberState::Parked).await.unwrap().fibers.len() == 1).await;
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
    let link = shop.folder.path().join("link");
    std::os::unix::fs::symlink("shop db.sqlite", &link).unwrap();
    done(&link, &["cancel", "retries"]).await;
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
    eventually("the socket", async || socket_path(&file).exists()).await;
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
        (&file, &["ls", "--state", "sleepy"], 2),
        (&file, &["ls", "--limit", "0"], 2),
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

#[tokio::test(flavor = "multi_thread")]
async fn a_history_that_cannot_be_shown_says_why_and_not_that_there_is_none() {
    let shop = Shop::seeded().await;
    let file = shop.file();
    assert!(done(&file, &["timeline", "fails"]).await.contains("first"));
    let of_fails = "(SELECT seq FROM fibers WHERE key = 'fails')";
    let stream = format!("(SELECT seq FROM streams WHERE name = 'history' AND fiber = {of_fails})");
    change(&file, &format!("UPDATE snapshots SET number = 5001 WHERE fiber = {of_fails}"));
    let (code, out, _) = run(&file, &["timeline", "fails"]).await;
    assert_eq!((code, out.contains("too many")), (1, true), "{out}");
    change(
        &file,
        &format!(
            "UPDATE snapshots SET number = 1 WHERE fiber = {of_fails}; UPDATE stream_chunks SET data = '{{bad' WHERE stream = {stream}"
        ),
    );
    let (code, out, _) = run(&file, &["timeline", "fails"]).await;
    assert_eq!((code, out.contains("item 0 of its history cannot be read")), (1, true), "{out}");
    assert!(done(&file, &["show", "fails"]).await.contains("failed: "), "everything else is shown");
}

/// Changes a file without an owner.
fn change(file: &Path, sql: &str) {
    forever_store::rusqlite::Connection::open(file).unwrap().execute_batch(sql).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_or_a_condition_without_a_value_is_refused_and_touches_no_fiber() {
    let shop = Shop::seeded().await;
    let file = shop.file();
    let before = json(&file, &["ls"]).await;
    for name in ["", " "] {
        for arguments in [
            &["show", name][..],
            &["ops", name],
            &["timeline", name],
            &["export", name],
            &["cancel", name],
            &["resume", name],
            &["restart", name],
            &["send", name, "approval", "6"],
            &["resolve", name, "--fail", "no"],
            &["discard", name, "1"],
            &["edit", name, "amount=1"],
            &["fork", name],
            &["ls", "--parent", name],
            &["ls", "--key", name],
            &["ls", "--name", name],
            &["ls", "--text", name],
            &["ls", "--state", name],
            &["ls", "--metadata", name],
            &["ls", "--metadata", "tier"],
            &["ls", "--metadata", "tier=2", "--metadata", "tier=3"],
            &["cancel", "--all", "--state", name],
            &["cancel", "--all", "--state", ","],
            &["cancel", "--all", "--state", "waiting", "--key", name],
            &["cancel", "--all", "--metadata", "&"],
            &["cancel", "--all", "--agent", name],
        ] {
            let (code, out, err) = run(&file, arguments).await;
            assert_eq!((code, out.as_str()), (2, ""), "{arguments:?}: {err}");
        }
    }
    assert_eq!(json(&file, &["ls"]).await, before);
    for (tier, found) in [("tier=2", 1), ("tier=3", 0)] {
        let fibers = json(&file, &["ls", "--metadata", "customer=Smith & Sons", "--metadata", tier]).await;
        assert_eq!(fibers["fibers"].as_array().unwrap().len(), found, "{tier}");
    }
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_printed_is_a_failure_and_a_reader_that_goes_is_none() {
    let shop = Shop::seeded().await;
    let file = shop.file();
    let printed_to = |out: std::process::Stdio, arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forever"));
        let target = if arguments[0] == "completions" { None } else { Some(&file) };
        let output = command.args(target).args(arguments).stdout(out).stderr(std::process::Stdio::piped()).spawn().unwrap();
        let output = output.wait_with_output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    for arguments in [&["export", "--all"][..], &["ls"], &["show", "waits"], &["status", "--json"], &["doctor"], &["completions", "bash"]] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let (code, err) = printed_to(full.into(), arguments);
        assert_eq!(code, Some(1), "{arguments:?}: {err}");
        assert!(err.contains("cannot be written: No space left on device"), "{arguments:?}: {err}");

        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let found = if arguments == ["doctor"] { 5 } else { 0 };
        assert_eq!(printed_to(writer.into(), arguments), (Some(found), String::new()), "{arguments:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_stored_makes_no_line_of_its_own_and_drives_no_terminal() {
    let shop = Shop::new();
    let file = shop.file();
    let (id, key) = ("f\u{1b}]0;pwned\u{7}\u{9b}x", "k\nall is well\n\u{202e}\t\u{1b}[2J");
    let forever = shop.open().await;
    forever.spawn(failing("x".into())).id(id).key(key).await.unwrap().wait().await.unwrap_err();
    forever.close().await.unwrap();
    let changed = "UPDATE fibers SET name = name || char(27) || '[2J', reason = char(10) || 'all is well' || char(10) || char(27) || '[2J'";
    change(&file, changed);
    for arguments in [
        &["ls"][..],
        &["show", id],
        &["show", key],
        &["status"],
        &["doctor"],
        &["timeline", id],
        &["locals", id, "7"],
        &["export", id],
        &["ls", "--json"],
        &["cancel", id],
        &["cancel", "--all", "--key", key],
        &["fork", id, "--id", "g\u{1b}[2J\nall is well"],
        &["show", "nothing\u{1b}[2J"],
    ] {
        let (_, out, err) = run(&file, arguments).await;
        let obeyed = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
        assert!(!out.contains(obeyed) && !err.contains(obeyed), "{arguments:?}: {out:?} {err:?}");
        assert!(out.lines().chain(err.lines()).all(|line| line != "all is well"), "{arguments:?}: {out} {err}");
    }
    assert_eq!(json(&file, &["ls", "--limit", "9"]).await["fibers"].as_array().unwrap().last().unwrap()["id"], id, "JSON has it as it is");
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_names_everything_that_stopped_however_much_there_is() {
    let shop = Shop::seeded().await;
    let file = shop.file();
    change(
        &file,
        "INSERT INTO fibers (id, name, state, reason, args, created_ms, changed_ms, finished_ms)
         WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 12000)
         SELECT 'many ' || n, 'newer', 'failed', 'the server is down', '[]', 1, 1, 1 FROM n;
         INSERT INTO agents (class, name, changed_ms) VALUES ('Clock', 'one', 1);
         INSERT INTO schedules (id, class, agent, name, payload, kind, due_ms, next_ms, created_ms)
         WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 1200)
         SELECT printf('a%05d', n), 'Clock', 'one', 'tick', 'null', 'every', 1, 9000000000000, 1 FROM n;
         INSERT INTO schedules (id, class, agent, name, payload, kind, due_ms, created_ms, error)
         VALUES ('z', 'Clock', 'one', 'late', 'null', 'every', 1, 1, 'gone');",
    );
    let (code, out, _) = run(&file, &["doctor"]).await;
    assert_eq!(code, 5);
    for part in [
        "1 failed of `failing`",
        " or more failed of `newer`, first ",
        ": the server is down",
        "may have been carried out",
        "schedule `late` of Clock/one: gone",
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }
    assert!(!out.contains("`tick`"), "{out}");
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_names_damage_also_where_the_file_cannot_be_read_as_a_whole() {
    use std::os::unix::fs::FileExt;

    for what in ["fibers_function", "ops", "stream_chunks", "fibers", "layouts"] {
        let shop = Shop::seeded().await;
        let file = shop.file();
        let sql = "SELECT rootpage, (SELECT page_size FROM pragma_page_size) FROM sqlite_schema WHERE name = ?1";
        let conn = forever_store::rusqlite::Connection::open(&file).unwrap();
        let (root, size): (i64, i64) = conn.query_row(sql, [what], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        conn.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
        drop(conn);
        std::fs::OpenOptions::new()
            .write(true)
            .open(&file)
            .unwrap()
            .write_all_at(&[0xa5; 400], u64::try_from((root - 1) * size).unwrap())
            .unwrap();
        let (code, out, err) = run(&file, &["doctor"]).await;
        assert_eq!(code, 5, "{what}: {out}{err}");
        assert!(out.contains("the file is damaged") && out.contains("restore a backup"), "{what}: {out}");
    }
    let empty = tempfile::NamedTempFile::new().unwrap();
    for arguments in [&["doctor"][..], &["status"], &["ls"]] {
        let (code, _, err) = run(empty.path(), arguments).await;
        assert_eq!((code, err.contains("is empty")), (4, true), "{arguments:?}: {err}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn chats_are_read_as_far_as_they_are_asked_for_and_keep_errors_to_themselves() {
    let shop = Shop::new();
    let file = shop.file();
    shop.open().await.close().await.unwrap();
    change(
        &file,
        &format!(
            "INSERT INTO chats (seq, class, agent) VALUES (1, 'Desk', 'ada');
             INSERT INTO turns (chat, id, kind, policy, state, message, place, origins, created_ms, settled_ms, error)
             WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 1100)
             SELECT 1, 't' || n, 'answer', 'queue', 'error', n, n, '[]', n, n, iif(n = 1099, 'the oven is off', '#[secret] refused for {SECRET}') FROM n;
             INSERT INTO chat_messages (chat, id, place, role, changed_ms, data)
             WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 130)
             SELECT 1, 'm' || n, n, 'user', 1, json_object('id', 'm' || n, 'role', 'user', 'parts', json_array(json_object('type', 'text', 'text', 'word ' || n))) FROM n;"
        ),
    );
    // This process has no function: what is secret is stored with the text.
    let shown = done(&file, &["chats", "--limit", "1050"]).await;
    assert_eq!(shown.lines().filter(|line| line.contains("hidden: ")).count(), 1049);
    assert!(shown.contains("the oven is off"), "{shown:.200}");
    assert!(shown.ends_with("--limit N\n"), "{shown:.200}");
    assert_eq!(done(&file, &["chats", "--limit", "2000"]).await.lines().count(), 1101);
    let shown = done(&file, &["chat", "Desk/ada"]).await;
    assert!(shown.starts_with("80 earlier messages") && !shown.contains("word 80\n") && shown.contains("word 81\n"), "{shown}");
    assert!(done(&file, &["chat", "Desk/ada", "--limit", "500"]).await.contains("word 1\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fiber_is_named_by_its_id_whatever_keys_others_have() {
    let shop = Shop::new();
    let file = shop.file();
    let forever = shop.open().await;
    forever.spawn(approval("x".into(), 1)).id("victim").await.unwrap();
    let other = forever.spawn(approval("x".into(), 1)).id("other").key("victim").await.unwrap();
    forever.spawn(approval("x".into(), 1)).id("both").key("both").await.unwrap();
    forever.close().await.unwrap();
    for arguments in [&["cancel", "victim"][..], &["send", "victim", "approval", "2"], &["ls", "--parent", "victim"]] {
        let (code, out, err) = run(&file, arguments).await;
        assert_eq!(code, 2, "{arguments:?}: {out}");
        assert!(err.contains("`id:victim` for the first, `other` for the second"), "{err}");
    }
    let states = async || {
        let listed = json(&file, &["ls", "--oldest-first"]).await;
        listed["fibers"].as_array().unwrap().iter().map(|fiber| fiber["state"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert!(!states().await.contains(&"cancelled".to_owned()));
    done(&file, &["cancel", "id:victim"]).await;
    assert_eq!(states().await.iter().map(|state| state == "cancelled").collect::<Vec<_>>(), [true, false, false]);
    done(&file, &["cancel", other.id()]).await;
    done(&file, &["cancel", "both"]).await;
    assert_eq!(run(&file, &["cancel", "id:missing"]).await.0, 3);
}

/// Answers everything that is asked over a socket with this, as user `uid`.
#[cfg(unix)]
struct Impostor(std::process::Child);

#[cfg(unix)]
impl Impostor {
    async fn at(file: &Path, answer: &str, uid: u32) -> Self {
        use std::os::unix::process::CommandExt;

        const SERVER: &str = "
import socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
while True:
    asked, _ = listener.accept()
    while asked.recv(1 << 16):
        asked.sendall(b'HTTP/1.1 200 OK\\r\\ncontent-length: %d\\r\\n\\r\\n%s' % (len(sys.argv[2]), sys.argv[2].encode()))
";
        let socket = socket_path(file);
        drop(std::fs::remove_file(&socket));
        let child = Command::new("python3").args(["-c", SERVER]).arg(&socket).arg(answer).uid(uid).spawn().unwrap();
        let impostor = Impostor(child);
        eventually("the impostor", async || std::os::unix::net::UnixStream::connect(&socket).is_ok()).await;
        impostor
    }
}

#[cfg(unix)]
impl Drop for Impostor {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn what_was_not_done_is_not_said_to_be() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    let shop = Shop::seeded().await;
    let (file, copy) = (shop.file(), shop.folder.path().join("copy.db"));
    let backup = ["backup", copy.to_str().unwrap()];
    let me = std::fs::metadata(&file).unwrap().uid();
    for (answer, code) in [("{}", 4), ("null", 4), (r#"{"done":false}"#, 4), (r#"{"done":true}"#, 1)] {
        let _impostor = Impostor::at(&file, answer, me).await;
        let (got, out, _) = run(&file, &backup).await;
        assert_eq!((got, out.as_str()), (code, ""), "{answer}");
    }
    if me != 0 {
        return println!("left out: to serve as another user needs root");
    }
    std::fs::set_permissions(shop.folder.path(), std::fs::Permissions::from_mode(0o1777)).unwrap();
    let impostor = Impostor::at(&file, r#"{"done":true,"fibers":[]}"#, 65534).await;
    for arguments in [&backup[..], &["ls"], &["cancel", "waits"]] {
        let (code, out, err) = run(&file, arguments).await;
        assert_eq!((code, out.as_str()), (4, ""), "{arguments:?}: {err}");
        assert!(err.contains("is served by user 65534"), "{err}");
    }
    drop(impostor);
    // The socket is left behind, and no process listens on it.
    done(&file, &["cancel", "waits"]).await;
}
