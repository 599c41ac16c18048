//! `doctor`: looks for everything that needs a person, and says what there is to do.
use std::path::Path;
use std::process::ExitCode;

use serde_json::{Value, json};

use crate::commands::{now_ms, string};
use crate::failure::{ATTENTION, Failure};
use crate::table::say;
use crate::target::{Target, read_only};
use crate::text::{age, clean, note, short};

/// A log that is longer than this is not copied into the database, because a reader keeps it.
const LONG_LOG: u64 = 64 << 20;

/// A fiber that is ready for longer than this has no worker that takes it.
const STUCK_MS: u64 = 60_000;

/// One finding.
#[derive(Debug)]
struct Finding {
    what: String,
    remedy: String,
}

impl Finding {
    fn new(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Finding { what: what.into(), remedy: remedy.into() }
    }
}

pub(crate) async fn run(target: &mut Target, json: bool) -> Result<ExitCode, Failure> {
    let mut found = Vec::new();
    if let Some(file) = &target.file {
        found.extend(of_file(file)?);
    }
    let overview = target.client.get("overview").await?;
    let check = target.client.get("check").await?;
    found.extend(of_fibers(&overview, target.is_live));
    if check["is_ok"] == false {
        let what = format!("layouts have drifted: {}", short(&string(&check["summary"]), 200));
        found.push(Finding::new(what, "deploy code that fits, or resolve the parked fibers"));
    }
    if json {
        let findings: Vec<Value> = found.iter().map(|finding| json!({ "what": finding.what, "remedy": finding.remedy })).collect();
        say(&serde_json::to_string_pretty(&json!({ "is_ok": found.is_empty(), "findings": findings })).unwrap_or_default());
    } else if found.is_empty() {
        say("all is well");
    } else {
        for finding in &found {
            say(&format!("- {}\n    {}", clean(&finding.what), finding.remedy));
        }
    }
    Ok(if found.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(ATTENTION) })
}

/// What is wrong with the file itself.
fn of_file(file: &Path) -> Result<Vec<Finding>, Failure> {
    let mut found = Vec::new();
    let failed = |why: forever_store::rusqlite::Error| Failure::unreachable(format!("`{}` cannot be read: {why}", file.display()));
    let damage: String =
        read_only(file).and_then(|conn| conn.query_row("PRAGMA integrity_check(5)", (), |row| row.get(0))).map_err(failed)?;
    if damage != "ok" {
        found.push(Finding::new(format!("the file is damaged: {}", short(&damage, 300)), "stop the program and restore a backup"));
    }
    let mut log = file.as_os_str().to_owned();
    log.push("-wal");
    let length = std::fs::metadata(&log).map_or(0, |log| log.len());
    if length > LONG_LOG {
        let what = format!("the write-ahead log has {} MB", length >> 20);
        found.push(Finding::new(what, "end what reads the database for long: a tool with an open transaction keeps the log"));
    }
    Ok(found)
}

fn of_fibers(overview: &Value, is_live: bool) -> Vec<Finding> {
    let now = overview["now_ms"].as_u64().unwrap_or_else(now_ms);
    let list = |name: &str| overview[name].as_array().cloned().unwrap_or_default();
    let mut found = Vec::new();
    for item in list("in_doubt") {
        let (op, fiber) = (&item["op"], &item["fiber"]);
        let what = format!(
            "`{}` of {} {} may have been carried out, id {}",
            string(&op["step"]),
            string(&fiber["name"]),
            string(&fiber["key"]),
            string(&op["id"])
        );
        let id = string(&op["id"]);
        found.push(Finding::new(
            what,
            format!("look at the other side, then: forever FILE resolve-op {id} --completed JSON | --not-executed | --failed ERROR"),
        ));
    }
    for group in list("reasons") {
        let what = format!(
            "{} {} of `{}`: {}",
            group["fibers"],
            string(&group["state"]),
            string(&group["name"]),
            short(&string(&group["reason"]), 160)
        );
        found.push(Finding::new(what, remedy_of(&group)));
    }
    for fiber in list("retrying") {
        let what = format!("{} {}: {}", string(&fiber["name"]), string(&fiber["key"]), short(&note(&fiber, now), 200));
        found.push(Finding::new(what, "mend what the step calls; it is tried again by itself"));
    }
    let stuck = |fiber: &&Value| fiber["changed_ms"].as_u64().is_some_and(|at| now.saturating_sub(at) > STUCK_MS);
    if let Some(fiber) = list("oldest_pending").iter().find(stuck).filter(|_| is_live) {
        let what = format!(
            "{} {} is ready since {}, and no worker takes it",
            string(&fiber["name"]),
            string(&fiber["id"]),
            age(&fiber["changed_ms"], now)
        );
        found.push(Finding::new(what, "is its function registered, and its worker alive?"));
    }
    let running: u64 = list("counts").iter().filter(|count| count["state"] == "running").filter_map(|count| count["fibers"].as_u64()).sum();
    if running > 0 && !is_live {
        found.push(Finding::new(format!("{running} fibers ran when their process ended"), "start the program: it resumes them"));
    }
    for schedule in list("schedules") {
        let what = format!(
            "schedule `{}` of {}/{}: {}",
            string(&schedule["name"]),
            string(&schedule["class"]),
            string(&schedule["agent"]),
            short(&string(&schedule["error"]), 160)
        );
        found.push(Finding::new(what, "mend its cause; one that is set aside runs when it is asked for again"));
    }
    found
}

/// What a person can do about fibers that stopped for one reason.
fn remedy_of(group: &Value) -> String {
    let (name, example, reason) = (string(&group["name"]), string(&group["example"]), string(&group["reason"]));
    match group["state"].as_str() {
        Some("failed") => format!("fix the cause, then: forever FILE resume --all --state failed --name {name}"),
        Some("parked") if reason.contains("may have executed") => "resolve the operation, see above: it is resumed then".to_owned(),
        Some("parked") if reason.starts_with("a message to ") => format!(
            "forever FILE show {example} has the message's number, then: forever FILE discard {example} NUMBER, forever FILE resume {example}"
        ),
        Some("parked") => {
            format!("deploy code that fits what is stored, or: forever FILE resolve {example} --complete JSON | --fail REASON")
        }
        _ => format!("forever FILE resume {example}, or for a closure: forever FILE resolve {example} --complete JSON | --fail REASON"),
    }
}
