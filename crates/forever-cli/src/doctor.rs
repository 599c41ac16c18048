//! `doctor`: looks for everything that needs a person, and says what there is to do.
use std::path::Path;
use std::process::ExitCode;

use clap::ArgMatches;
use forever_store::rusqlite::ErrorCode;
use serde_json::{Value, json};

use crate::commands::{all, each, example_of, now_ms, number_of, of_trouble, string};
use crate::failure::{ATTENTION, Failure};
use crate::table::{say, say_json};
use crate::target::{Target, named_file, read_only};
use crate::text::{age, note, short, word};

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

pub(crate) async fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    // The file first: one that is damaged may not be opened, or read as a whole.
    let file = named_file(matches);
    let damage = file.as_deref().map(damage_of).transpose()?.flatten();
    let is_damaged = damage.is_some();
    let mut found = Vec::from_iter(damage);
    found.extend(file.as_deref().and_then(long_log_of));
    match examine(matches).await {
        Ok(more) => found.extend(more),
        Err(why) if is_damaged => found.push(Finding::new(format!("its fibers cannot be read: {}", why.text()), "restore a backup")),
        Err(why) => return Err(why),
    }
    if matches.get_flag("json") {
        let findings: Vec<Value> = found.iter().map(|finding| json!({ "what": finding.what, "remedy": finding.remedy })).collect();
        say_json(&serde_json::to_string_pretty(&json!({ "is_ok": found.is_empty(), "findings": findings })).unwrap_or_default());
    } else if found.is_empty() {
        say("all is well");
    } else {
        for finding in &found {
            say(&format!("- {}", finding.what));
            say(&format!("    {}", finding.remedy));
        }
    }
    Ok(if found.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(ATTENTION) })
}

/// What is wrong with the fibers.
async fn examine(matches: &ArgMatches) -> Result<Vec<Finding>, Failure> {
    let mut target = Target::reach(matches, false).await?;
    let looked = look(&mut target).await;
    let closed = target.close().await;
    let found = looked?;
    closed.map(|()| found)
}

async fn look(target: &mut Target) -> Result<Vec<Finding>, Failure> {
    let client = &mut target.client;
    let (overview, in_doubt, check) = (client.get("overview").await?, client.get("ops").await?, client.get("check").await?);
    let schedules = all(client, "schedules", "schedules").await?;
    let mut found = of_ops(&in_doubt);
    found.extend(of_fibers(&overview, target.is_live));
    found.extend(of_schedules(&schedules));
    if check["is_ok"] == false {
        let what = format!("layouts have drifted: {}", short(&string(&check["summary"]), 200));
        found.push(Finding::new(what, "deploy code that fits, or resolve the parked fibers"));
    }
    Ok(found)
}

fn damage_of(file: &Path) -> Result<Option<Finding>, Failure> {
    let checked = read_only(file).and_then(|conn| conn.query_row("PRAGMA integrity_check(5)", (), |row| row.get(0)));
    let damage: String = match checked {
        Ok(damage) => damage,
        Err(why) if why.sqlite_error_code() == Some(ErrorCode::DatabaseCorrupt) => why.to_string(),
        Err(why) => return Err(Failure::unreachable(format!("`{}` cannot be read: {why}", file.display()))),
    };
    let finding = || Finding::new(format!("the file is damaged: {}", short(&damage, 300)), "stop the program and restore a backup");
    Ok((damage != "ok").then(finding))
}

fn long_log_of(file: &Path) -> Option<Finding> {
    let mut log = file.as_os_str().to_owned();
    log.push("-wal");
    let length = std::fs::metadata(&log).map_or(0, |log| log.len());
    (length > LONG_LOG).then(|| {
        let what = format!("the write-ahead log has {} MB", length >> 20);
        Finding::new(what, "end what reads the database for long: a tool with an open transaction keeps the log")
    })
}

/// Operations of unknown outcome.
fn of_ops(ops: &Value) -> Vec<Finding> {
    let mut found = Vec::new();
    for item in each(&ops["ops"]) {
        let (op, fiber) = (&item["op"], &item["fiber"]);
        let id = string(&op["id"]);
        let (step, name, key) = (string(&op["step"]), string(&fiber["name"]), string(&fiber["key"]));
        found.push(Finding::new(
            format!("`{step}` of {name} {key} may have been carried out, id {id}"),
            format!(
                "look at the other side, then: forever FILE resolve-op {} --completed JSON | --not-executed | --failed ERROR",
                word(&id)
            ),
        ));
    }
    if ops["more"] == true {
        found.push(Finding::new("there are more operations of unknown outcome", "forever FILE ls --in-doubt lists their fibers"));
    }
    found
}

/// Schedules that failed, or are set aside.
fn of_schedules(schedules: &Value) -> Vec<Finding> {
    let failed =
        |schedule: &&Value| schedule["next_ms"].is_null() || schedule["attempts"].as_u64() > Some(0) || schedule["error"].is_string();
    let finding = |schedule: &Value| {
        let what = format!(
            "schedule `{}` of {}/{}: {}",
            string(&schedule["name"]),
            string(&schedule["class"]),
            string(&schedule["agent"]),
            short(&string(&schedule["error"]), 160)
        );
        Finding::new(what, "mend its cause; one that is set aside runs when it is asked for again")
    };
    each(&schedules["schedules"]).filter(failed).map(finding).collect()
}

fn of_fibers(overview: &Value, is_live: bool) -> Vec<Finding> {
    let now = overview["now_ms"].as_u64().unwrap_or_else(now_ms);
    let list = |name: &str| overview[name].as_array().cloned().unwrap_or_default();
    let mut found = Vec::new();
    for trouble in list("troubles") {
        let what = format!(
            "{} {} of `{}`, first {}, last {}: {}",
            number_of(&trouble["count"], &trouble["at_least"]),
            kind_of(&trouble),
            of_trouble(&trouble),
            age(&trouble["first_ms"], now),
            age(&trouble["last_ms"], now),
            short(&string(&trouble["reason"]), 160)
        );
        found.push(Finding::new(what, remedy_of(&trouble)));
    }
    for queue in list("queues") {
        let fiber = &queue["fiber"];
        let id = word(&string(&fiber["id"]));
        let what = format!(
            "{} messages to {} {} are not received, the first sent {}; it is {}: {}",
            number_of(&queue["messages"], &queue["at_least"]),
            string(&fiber["name"]),
            string(&fiber["key"]),
            age(&queue["first_ms"], now),
            string(&fiber["state"]),
            short(&note(fiber, now), 120)
        );
        let topic = word(fiber["wait"]["topics"][0].as_str().unwrap_or("TOPIC"));
        found
            .push(Finding::new(what, format!("send what it waits for: forever FILE send {id} {topic} JSON; or: forever FILE cancel {id}")));
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
    found
}

fn kind_of(trouble: &Value) -> String {
    match trouble["kind"].as_str() {
        Some("turn") => "failed turns".to_owned(),
        kind => kind.unwrap_or_default().to_owned(),
    }
}

/// What a person can do about fibers or turns that are in trouble for one reason.
fn remedy_of(trouble: &Value) -> String {
    let (name, reason) = (word(&string(&trouble["name"])), string(&trouble["reason"]));
    let example = word(&example_of(trouble));
    match trouble["kind"].as_str() {
        Some("turn") => format!("fix the cause, and let the person ask again: forever FILE chat {example}"),
        Some("retrying") => format!("fix what the step calls, it is tried again by itself: forever FILE show {example}"),
        Some("failed") if reason.starts_with("the process died ") => {
            format!("it ends its process each time: forever FILE show {example}, deploy a fix, then: forever FILE resume {example}")
        }
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
