//! Ten faults at night, each found and answered by the command in at most three lines, whose names
//! and ids are those that the first line has printed.
#![allow(missing_docs, unreachable_pub, clippy::print_stdout, clippy::string_slice)]

mod faults;

use std::path::Path;
use std::process::Command;

use forever_inspect::{Inspector, socket_path};
use forever_runtime::Forever;
use forever_runtime::fiber::{FiberFilter, FiberState};
use forever_testkit::waiting::eventually;

/// Runs the command; gives what it prints.
async fn line(file: &Path, arguments: &str) -> String {
    let (file, arguments) = (file.to_owned(), arguments.split(' ').map(str::to_owned).collect::<Vec<_>>());
    let run = move || Command::new(env!("CARGO_BIN_EXE_forever")).arg(file).args(arguments).output().unwrap();
    let output = tokio::task::spawn_blocking(run).await.unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(!text.contains("visa"), "the card is marked #[secret]: {text}");
    assert!([Some(0), Some(5)].contains(&output.status.code()), "{text}");
    text
}

/// The finding of `doctor` about a function, and the remedy below it.
fn finding<'a>(doctor: &'a str, about: &str) -> (&'a str, &'a str) {
    let mut lines = doctor.lines();
    let found = lines.by_ref().find(|line| line.starts_with("- ") && line.contains(about));
    let found = found.unwrap_or_else(|| panic!("{about} is not in {doctor}"));
    (found, lines.next().unwrap())
}

/// A command that a remedy proposes, from its first word on.
fn proposed<'a>(remedy: &'a str, from: &str) -> &'a str {
    let at = remedy.find(&format!("forever FILE {from}")).unwrap_or_else(|| panic!("{from} is not in {remedy}"));
    remedy[at + "forever FILE ".len()..].split([':', ',', ';', '|']).next().unwrap().trim()
}

async fn in_state(forever: &Forever, key: &str, state: FiberState) {
    let of = || forever.fibers().filter(FiberFilter::new().key(key));
    eventually(&format!("{key} is {state}"), async || of().await.unwrap().fibers[0].state == state).await;
}

/// The process that the other test kills.
#[tokio::test(flavor = "multi_thread")]
async fn die() {
    if let Some(folder) = std::env::var_os("NIGHT") {
        faults::die(Path::new(&folder)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_faults_are_answered_in_three_lines_each() {
    let folder = tempfile::tempdir().unwrap();
    let program = std::env::current_exe().unwrap();
    let forever = faults::open(folder.path(), || {
        let mut process = Command::new(&program);
        process.args(["--exact", "die", "--nocapture"]).env("NIGHT", folder.path());
        process
    })
    .await;
    let file = folder.path().join("night.db");
    let socket = tokio::spawn(Inspector::new(&forever).listen_beside(file.clone()));
    eventually("the socket", async || tokio::net::UnixStream::connect(socket_path(&file)).await.is_ok()).await;
    let works = |what: &str| std::fs::write(folder.path().join(what), "").unwrap();
    // The first line of each but the fifth.
    let doctor = line(&file, "doctor").await;
    let completed = async |key: &str| in_state(&forever, key, FiberState::Completed).await;

    // 1: a step is gone.
    let (what, remedy) = finding(&doctor, "`report`");
    assert!(what.contains("1 parked") && what.contains("first ") && remedy.contains("deploy code"), "{what} {remedy}");
    let resolve = proposed(remedy, "resolve report-9");
    line(&file, &resolve.replace("JSON", "900")).await;
    completed("report-9").await;

    // 2: an API is down. The line that fails is marked.
    let (what, remedy) = finding(&doctor, "`bill `post the bill``");
    assert!(what.contains("3 retrying") && what.contains("billing: connection refused"), "{what}");
    let shown = line(&file, proposed(remedy, "show bill-")).await;
    assert!(shown.lines().any(|line| line.contains('✗') && line.contains("post the bill")), "{shown}");
    assert!(shown.lines().any(|line| line.contains('✓') && line.contains("add up")), "{shown}");
    works("billing");
    for customer in ["ada", "grace", "edsger"] {
        completed(&format!("bill-{customer}")).await;
    }

    // 3: a payment may have been made.
    let (_, remedy) = finding(&doctor, "`charge` of pay payment-7 may have been carried out");
    let resolve = proposed(remedy, "resolve-op ").replace("JSON", "\"receipt\"");
    line(&file, &resolve).await;
    completed("payment-7").await;

    // 4: it ends its process.
    let (what, remedy) = finding(&doctor, "`render`");
    assert!(what.contains("the process died"), "{what}");
    let shown = line(&file, proposed(remedy, "show page-3")).await;
    assert!(shown.contains("in render at `lay out`"), "{shown}");
    works("renderer");
    line(&file, proposed(remedy, "resume page-3")).await;
    completed("page-3").await;

    // 5: what it waits for was never sent.
    let status = line(&file, "status").await;
    let waits = status.lines().find(|line| line.contains("approval-5")).unwrap();
    assert!(waits.contains("message on approval"), "{waits}");
    line(&file, "send approval-5 approval true").await;
    completed("approval-5").await;

    // 6: answers of a chat fail.
    let (what, remedy) = finding(&doctor, "`desk`");
    assert!(what.contains("2 failed turns"), "{what}");
    let chat = line(&file, proposed(remedy, "chat desk/alan")).await;
    assert!(chat.contains("Is it open?") && chat.contains("error"), "{chat}");
    works("model");

    // 7: a schedule fails.
    let (what, _) = finding(&doctor, "schedule `sweep` of janitor/cellar");
    assert!(what.contains("disk: connection refused"), "{what}");
    works("disk");
    eventually("it runs", async || forever.view_schedules(None, 9).await.unwrap()[0].error.is_none()).await;
    assert!(!line(&file, "doctor").await.contains("`sweep`"));

    // 8: an agent cannot be woken.
    let (what, remedy) = finding(&doctor, "`seal`");
    assert!(what.contains("keys: connection refused"), "{what}");
    works("keys");
    works("key");
    line(&file, proposed(remedy, "resume drawer-4")).await;
    completed("drawer-4").await;

    // 9: messages are not received.
    let (what, remedy) = finding(&doctor, "12 messages to import");
    assert!(what.contains("waits: message on begin"), "{what}");
    line(&file, &proposed(remedy, "send ").replace("JSON", "true")).await;
    completed("import-2").await;

    // 10: they failed.
    let (what, remedy) = finding(&doctor, "`ship`");
    assert!(what.contains("2 failed") && what.contains("warehouse: connection refused"), "{what}");
    works("warehouse");
    line(&file, proposed(remedy, "resume --all")).await;
    for order in ["order-8", "order-9"] {
        completed(&format!("parcel-{order}")).await;
    }
    // The turns of today stay failed, and what the code did not fit when it was opened. What has
    // been counted a moment ago is shown again.
    let stays = |line: &str| line.contains("failed turns") || line.contains("layouts have drifted");
    eventually("nothing else is left", async || {
        let after = line(&file, "doctor").await;
        after.lines().filter(|line| line.starts_with("- ")).all(stays)
    })
    .await;
    forever.close().await.unwrap();
    socket.await.unwrap().unwrap();
}
