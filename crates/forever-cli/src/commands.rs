//! What each command asks and prints.
use std::path::Path;
use std::process::ExitCode;

use clap::ArgMatches;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::args::CONDITIONS;
use crate::client::Client;
use crate::failure::{ATTENTION, Failure, warn};
use crate::table::{Table, is_closed, say, say_json, say_lines, say_title};
use crate::target::Target;
use crate::text::{age, at, escaped, millis, note, short, span, value};
use crate::{doctor, watch};

/// Commands that change something.
const CHANGES: [&str; 10] = ["resume", "restart", "cancel", "resolve", "resolve-op", "send", "discard", "edit", "fork", "import"];

/// Carries out a command line.
pub(crate) async fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let Some((name, given)) = matches.subcommand() else { return Err(Failure::usage("a command is missing")) };
    if name == "doctor" {
        return doctor::run(matches).await;
    }
    let mut target = Target::reach(matches, CHANGES.contains(&name)).await?;
    let code = carried_out(name, given, &mut target, matches.get_flag("json")).await;
    let closed = target.close().await;
    let code = code?;
    closed.map(|()| code)
}

async fn carried_out(name: &str, given: &ArgMatches, target: &mut Target, json: bool) -> Result<ExitCode, Failure> {
    let client = &mut target.client;
    let answer = match name {
        "status" => client.get("overview").await?,
        "ls" => list(client, given).await?,
        "show" => {
            let id = id_of(client, given).await?;
            client.get(&format!("fibers/{}", escaped(&id))).await?
        }
        "watch" if !target.is_live => return Err(Failure::refused("nothing happens here: no live process owns this database")),
        "watch" => {
            let id = if given.contains_id("id") { Some(id_of(client, given).await?) } else { None };
            return watch::watch(client, id, json).await;
        }
        "ops" if given.contains_id("id") => {
            let id = id_of(client, given).await?;
            client.get(&format!("fibers/{}/ops", escaped(&id))).await?
        }
        "ops" => client.get("ops").await?,
        "functions" => client.get("functions").await?,
        "agents" => all(client, "agents", "agents").await?,
        "schedules" => all(client, "schedules", "schedules").await?,
        "chats" => newest_turns(client, limit_of(given) as usize, given.get_flag("failed")).await?,
        "chat" => {
            let chat = text(given, "chat").unwrap_or_default();
            let (class, name) = chat.split_once('/').ok_or_else(|| Failure::usage("a chat is CLASS/NAME, as `chats` prints it"))?;
            client.get(&format!("chats/{}/{}?limit={}", escaped(class), escaped(name), limit_of(given))).await?
        }
        "check" => client.get("check").await?,
        "resume" | "restart" | "cancel" => many(client, name, given).await?,
        "resolve" => {
            let id = id_of(client, given).await?;
            let body = match (text(given, "complete"), text(given, "fail")) {
                (Some(result), _) => json!({ "how": "complete", "value": parsed(result)? }),
                (None, reason) => json!({ "how": "fail", "reason": reason }),
            };
            client.post(&format!("fibers/{}/resolve", escaped(&id)), &body).await?
        }
        "resolve-op" => {
            let id = text(given, "id").unwrap_or_default();
            let body = match (text(given, "completed"), text(given, "failed")) {
                (Some(result), _) => json!({ "how": "completed", "value": parsed(result)? }),
                (None, Some(error)) => json!({ "how": "failed", "error": error }),
                (None, None) => json!({ "how": "not_executed" }),
            };
            client.post(&format!("ops/{}/resolve", escaped(id)), &body).await?
        }
        "send" => {
            let id = id_of(client, given).await?;
            let value = parsed(text(given, "value").unwrap_or_default())?;
            let body = json!({ "topic": text(given, "topic"), "value": value, "message_id": text(given, "message-id") });
            client.post(&format!("fibers/{}/send", escaped(&id)), &body).await?
        }
        "discard" => {
            let id = id_of(client, given).await?;
            let body = json!({ "number": given.get_one::<i64>("number") });
            client.post(&format!("fibers/{}/discard", escaped(&id)), &body).await?
        }
        "edit" => {
            let id = id_of(client, given).await?;
            let body = format!("{{\"set\":{},\"by\":{}}}", settings(given)?, json!(text(given, "by")));
            client.post_text(&format!("fibers/{}/edit", escaped(&id)), body).await?
        }
        "fork" => {
            let id = id_of(client, given).await?;
            let (at, new_id) = (json!(given.get_one::<u64>("at")), json!(text(given, "new-id")));
            let (set, repeats) = (settings(given)?, given.get_flag("repeat-effects"));
            let body = format!("{{\"at\":{at},\"id\":{new_id},\"set\":{set},\"repeat_effects\":{repeats}}}");
            client.post_text(&format!("fibers/{}/fork", escaped(&id)), body).await?
        }
        "timeline" => {
            let id = id_of(client, given).await?;
            let answer = client.get(&format!("fibers/{}", escaped(&id))).await?;
            json!({ "history": answer["history"], "history_problem": answer["history_problem"], "now_ms": answer["now_ms"] })
        }
        "locals" => {
            let id = id_of(client, given).await?;
            let number = given.get_one::<u64>("number").copied().unwrap_or_default();
            client.get(&format!("fibers/{}/at/{number}", escaped(&id))).await?
        }
        "export" => return export(client, given).await,
        "import" => import(client, given).await?,
        "backup" => backup(client, given).await?,
        other => return Err(Failure::usage(format!("there is no command `{other}`"))),
    };
    if json {
        say_json(&serde_json::to_string_pretty(&answer).unwrap_or_default());
    } else {
        print(name, &answer);
    }
    let attention = name == "check" && answer["is_ok"] == false;
    let refused = answer["refused"].as_array().is_some_and(|refused| !refused.is_empty())
        || name == "timeline" && answer["history_problem"].is_string();
    Ok(if attention { ExitCode::from(ATTENTION) } else { ExitCode::from(u8::from(refused)) })
}

fn text<'a>(given: &'a ArgMatches, name: &str) -> Option<&'a str> {
    given.get_one::<String>(name).map(String::as_str)
}

fn parsed(text: &str) -> Result<Value, Failure> {
    serde_json::from_str(text).map_err(|why| Failure::usage(format!("`{text}` is not JSON ({why}): text is written in quotes, '\"yes\"'")))
}

async fn backup(client: &mut Client, given: &ArgMatches) -> Result<Value, Failure> {
    let path = std::path::absolute(text(given, "path").unwrap_or_default()).map_err(|why| Failure::usage(why.to_string()))?;
    let answer = client.post("backup", &json!({ "path": path })).await?;
    // The owner is on this machine, and so is what it has copied.
    match std::fs::metadata(&path) {
        Ok(found) if found.len() > 0 => Ok(answer),
        _ => Err(Failure::refused(format!("the owner says that it has made `{}`, and there is no such file", path.display()))),
    }
}

/// The id of the fiber that is named by id or key.
async fn id_of(client: &mut Client, given: &ArgMatches) -> Result<String, Failure> {
    id_of_named(client, text(given, "id").unwrap_or_default()).await
}

async fn id_of_named(client: &mut Client, name: &str) -> Result<String, Failure> {
    if name.trim().is_empty() {
        return Err(Failure::usage("a fiber is named by its id or key, and neither is empty"));
    }
    // A program may give a fiber a key that is the id of another one.
    if let Some(id) = name.strip_prefix("id:") {
        return has_id(client, id)
            .await?
            .then(|| id.to_owned())
            .ok_or_else(|| Failure::not_found(format!("there is no fiber with id `{id}`")));
    }
    let has_id = has_id(client, name).await?;
    let by_key = client.get(&format!("fibers?key={}", escaped(name))).await?;
    match (has_id, by_key["fibers"][0]["id"].as_str()) {
        (true, Some(other)) if other != name => Err(Failure::usage(format!(
            "`{name}` is the id of one fiber and the key of another: say `id:{name}` for the first, `{other}` for the second"
        ))),
        (true, _) => Ok(name.to_owned()),
        (false, Some(id)) => Ok(id.to_owned()),
        (false, None) => Err(Failure::not_found(format!("there is no fiber with id or key `{name}`"))),
    }
}

async fn has_id(client: &mut Client, id: &str) -> Result<bool, Failure> {
    match client.get(&format!("fibers/{}/ops", escaped(id))).await {
        Err(failure) if failure.is_not_found() => Ok(false),
        Err(failure) => Err(failure),
        Ok(_) => Ok(true),
    }
}

/// New values by name, given as `limit=50`, as a JSON object. Numbers stay as they are written.
fn settings(given: &ArgMatches) -> Result<String, Failure> {
    let setting = |text: &String| {
        let (name, value) = text.split_once('=').ok_or_else(|| Failure::usage(format!("`{text}` is not NAME=JSON")))?;
        parsed(value)?;
        Ok(format!("{}:{value}", json!(name)))
    };
    let settings: Vec<String> = given.get_many::<String>("set").unwrap_or_default().map(setting).collect::<Result<_, Failure>>()?;
    Ok(format!("{{{}}}", settings.join(",")))
}

/// Prints exported fibers, one a line. Those that cannot be exported are named, and keep none of
/// the others from it.
async fn export(client: &mut Client, given: &ArgMatches) -> Result<ExitCode, Failure> {
    if given.contains_id("id") {
        let id = id_of(client, given).await?;
        say_json(&client.get_text(&format!("fibers/{}/export", escaped(&id))).await?);
        return Ok(ExitCode::SUCCESS);
    }
    let query = format!("{}oldest_first=true&", query(&filter(client, given).await?));
    let (mut refused, mut after) = (0_u64, Value::Null);
    loop {
        let page;
        (page, after) = fibers_behind(client, &query, &after, 500).await?;
        for fiber in &page {
            let id = string(&fiber["id"]);
            match client.get_text(&format!("fibers/{}/export", escaped(&id))).await {
                Ok(export) => say_json(&export),
                Err(why) => {
                    refused += 1;
                    warn(why.text());
                }
            }
        }
        if after.is_null() || is_closed() {
            return Ok(ExitCode::from(u8::from(refused > 0)));
        }
    }
}

/// Stores exported fibers, one a line.
async fn import(client: &mut Client, given: &ArgMatches) -> Result<Value, Failure> {
    let path = text(given, "path").unwrap_or_default();
    let read = if path == "-" { std::io::read_to_string(std::io::stdin()) } else { std::fs::read_to_string(path) };
    let text_of = read.map_err(|why| Failure::usage(format!("`{path}` cannot be read: {why}")))?;
    let exports = serde_json::Deserializer::from_str(&text_of).into_iter::<Box<RawValue>>();
    let (mut done, mut refused) = (0_u64, Vec::new());
    for export in exports {
        let export = export.map_err(|why| Failure::usage(format!("`{path}` has no exported fibers: {why}")))?;
        let id = serde_json::from_str::<Value>(export.get()).map(|export| string(&export["fiber"]["id"])).unwrap_or_default();
        // The export stays as it is written: numbers of any length come through.
        let (new_id, resume) = (json!(text(given, "new-id")), given.get_flag("resume"));
        let body = format!("{{\"export\":{},\"id\":{new_id},\"resume\":{resume}}}", export.get());
        match client.post_text("import", body).await {
            Ok(_) => done += 1,
            Err(why) => refused.push(json!({ "id": id, "error": why.text() })),
        }
    }
    Ok(json!({ "done": done, "refused": refused }))
}

/// The conditions that were given, as the API names them. A parent may be given by its key.
async fn filter(client: &mut Client, given: &ArgMatches) -> Result<Map<String, Value>, Failure> {
    let mut filter = Map::new();
    if let Some(states) = given.get_many::<String>("state") {
        let states = states.map(|state| condition("state", state)).collect::<Result<Vec<_>, _>>()?;
        filter.insert("state".to_owned(), states.join(",").into());
    }
    if let Some(fields) = given.get_many::<String>("metadata") {
        // As an object, in which a value may have any character.
        let mut metadata = Map::new();
        for field in fields {
            let (name, value) = field.split_once('=').ok_or_else(|| Failure::usage(format!("`{field}` is not FIELD=JSON")))?;
            let value = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
            if metadata.insert(name.to_owned(), value).is_some() {
                return Err(Failure::usage(format!("--metadata has `{name}` twice")));
            }
        }
        filter.insert("metadata".to_owned(), Value::Object(metadata).to_string().into());
    }
    if let Some(within) = text(given, "within") {
        let span = millis(within).ok_or_else(|| Failure::usage(format!("`{within}` is no length of time: 30min, 6h or 2d")))?;
        filter.insert("changed_from_ms".to_owned(), now_ms().saturating_sub(span).into());
    }
    for name in CONDITIONS {
        if ["in-doubt", "retrying"].contains(&name) {
            if given.get_flag(name) {
                filter.insert(name.replace('-', "_"), true.into());
            }
        } else if let Some(value) = text(given, name) {
            let value = if name == "parent" { id_of_named(client, value).await? } else { condition(name, value)?.to_owned() };
            filter.insert(name.to_owned(), value.into());
        }
    }
    Ok(filter)
}

/// The value of a condition. One without a value would let every fiber through.
fn condition<'a>(name: &str, value: &'a str) -> Result<&'a str, Failure> {
    if value.trim().is_empty() { Err(Failure::usage(format!("--{name} has no value"))) } else { Ok(value) }
}

fn query(filter: &Map<String, Value>) -> String {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let conditions: Vec<String> = filter.iter().map(|(name, value)| format!("{name}={}&", escaped(&text(value)))).collect();
    conditions.concat()
}

/// A page of fibers behind `after`, and where the next one begins.
async fn fibers_behind(client: &mut Client, query: &str, after: &Value, limit: usize) -> Result<(Vec<Value>, Value), Failure> {
    let behind = if after.is_null() { String::new() } else { format!("after={}&", escaped(&after.to_string())) };
    let mut answer = client.get(&format!("fibers?{query}{behind}limit={limit}")).await?;
    let fibers = answer["fibers"].as_array_mut().map(std::mem::take).unwrap_or_default();
    Ok((fibers, answer["next"].take()))
}

fn limit_of(given: &ArgMatches) -> u32 {
    given.get_one::<u32>("limit").copied().unwrap_or(50)
}

/// As many fibers as were asked for, page by page.
async fn list(client: &mut Client, given: &ArgMatches) -> Result<Value, Failure> {
    let limit = limit_of(given) as usize;
    let mut query = query(&filter(client, given).await?);
    if given.get_flag("oldest-first") {
        query.push_str("oldest_first=true&");
    }
    let (mut found, mut after) = (Vec::new(), Value::Null);
    loop {
        let page;
        (page, after) = fibers_behind(client, &query, &after, (limit - found.len()).min(1000)).await?;
        found.extend(page);
        if after.is_null() || found.len() >= limit {
            return Ok(json!({ "fibers": found, "next": after }));
        }
    }
}

/// All agents or schedules, page by page.
pub(crate) async fn all(client: &mut Client, path: &str, field: &str) -> Result<Value, Failure> {
    let (mut found, mut page) = (Vec::new(), String::new());
    loop {
        let mut answer = client.get(&format!("{path}?limit=1000{page}")).await?;
        found.extend(answer[field].as_array_mut().map(std::mem::take).unwrap_or_default());
        page = match &answer["next"] {
            Value::String(after) => format!("&after={}", escaped(after)),
            Value::Object(after) => {
                let place = |(name, value): (&String, &Value)| format!("&{name}={}", escaped(value.as_str().unwrap_or_default()));
                after.iter().map(place).collect::<Vec<_>>().concat()
            }
            _ => return Ok(json!({ field: found, "now_ms": answer["now_ms"] })),
        };
    }
}

/// As many turns as were asked for, page by page, and the calls that wait for an answer.
async fn newest_turns(client: &mut Client, limit: usize, failed: bool) -> Result<Value, Failure> {
    let mut answer = client.get(&format!("chats?failed={failed}&limit={}", limit.min(1000))).await?;
    while let (Some(turns), Some(before)) = (answer["turns"].as_array().map(Vec::len), answer["next"].as_i64())
        && turns < limit
    {
        let mut page = client.get(&format!("chats?failed={failed}&before={before}&limit={}", (limit - turns).min(1000))).await?;
        if let (Value::Array(turns), Value::Array(more)) = (&mut answer["turns"], page["turns"].take()) {
            turns.extend(more);
        }
        answer["next"] = page["next"].take();
    }
    Ok(answer)
}

/// One command for one fiber, or for all of a filter.
async fn many(client: &mut Client, name: &str, given: &ArgMatches) -> Result<Value, Failure> {
    let reason = if name == "cancel" { text(given, "reason") } else { None };
    if given.contains_id("id") {
        let id = id_of(client, given).await?;
        let body = reason.map_or_else(|| json!({}), |reason| json!({ "reason": reason }));
        return client.post(&format!("fibers/{}/{name}", escaped(&id)), &body).await;
    }
    let filter = filter(client, given).await?;
    if filter.is_empty() {
        return Err(Failure::usage("--all needs a filter, such as --state failed"));
    }
    let (mut done, mut refused, mut after) = (0, Vec::new(), Value::Null);
    loop {
        let mut answer = client.post("bulk", &json!({ "action": name, "filter": filter, "reason": reason, "after": after })).await?;
        done += answer["done"].as_u64().unwrap_or(0);
        refused.extend(answer["refused"].as_array_mut().map(std::mem::take).unwrap_or_default());
        after = answer["next"].take();
        if after.is_null() {
            return Ok(json!({ "done": done, "refused": refused }));
        }
    }
}

fn print(name: &str, answer: &Value) {
    let now = answer["now_ms"].as_u64().unwrap_or_else(now_ms);
    match name {
        "status" => status(answer, now),
        "ls" => {
            fibers(&answer["fibers"], now);
            if !answer["next"].is_null() {
                say("there are more: --limit N");
            }
        }
        "show" => show(answer, now),
        "ops" => {
            operations(&answer["ops"], now);
            and_more(&answer["more"]);
        }
        "functions" => functions(&answer["functions"]),
        "agents" => agents(&answer["agents"], now),
        "schedules" => schedules(&answer["schedules"], now),
        "chats" => chats(answer, now),
        "chat" => chat(&answer["chat"], now),
        "timeline" => timeline(answer, now),
        "locals" => locals(answer),
        "check" => say_lines("", answer["summary"].as_str().unwrap_or_default()),
        _ => done(answer),
    }
}

#[allow(clippy::disallowed_methods, reason = "for ages that are printed")]
pub(crate) fn now_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn done(answer: &Value) {
    match (&answer["done"], answer["refused"].as_array()) {
        (Value::Number(done), Some(refused)) => {
            say(&format!("{done} done, {} refused", refused.len()));
            for one in refused {
                say(&format!("  {}: {}", string(&one["id"]), string(&one["error"])));
            }
        }
        _ => match answer["status"]["state"].as_str() {
            Some(state) => match answer["id"].as_str() {
                Some(id) => say(&format!("done; fiber {id} is {state}")),
                None => say(&format!("done; the fiber is {state}")),
            },
            None => say("done"),
        },
    }
}

pub(crate) fn each(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

pub(crate) fn string(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

pub(crate) fn fibers(list: &Value, now: u64) {
    let mut table = Table::new(&["state", "function", "key", "id", "lasted", "changed", "what"]);
    for fiber in each(list) {
        let changed = ["finished_ms", "saved_ms", "changed_ms"].iter().map(|name| &fiber[*name]).find(|ms| !ms.is_null());
        let changed = changed.map(|ms| age(ms, now)).unwrap_or_default();
        // From its acceptance to its end, or since its state has changed.
        let (from, to) = match fiber["finished_ms"].as_u64() {
            Some(finished) => (&fiber["created_ms"], finished),
            None => (&fiber["changed_ms"], now),
        };
        table.row([
            string(&fiber["state"]),
            string(&fiber["name"]),
            short(&string(&fiber["key"]), 24),
            string(&fiber["id"]),
            span(to.saturating_sub(from.as_u64().unwrap_or(to))),
            changed,
            short(&note(fiber, now), 120),
        ]);
    }
    if table.is_empty() { say("no fiber agrees with this") } else { table.print() }
}

fn status(answer: &Value, now: u64) {
    let mut wrong = Table::new(&["what", "of", "how many", "first", "last", "for example", "reason"]);
    for trouble in each(&answer["troubles"]) {
        wrong.row([
            string(&trouble["kind"]),
            of_trouble(trouble),
            number_of(&trouble["count"], &trouble["at_least"]),
            age(&trouble["first_ms"], now),
            age(&trouble["last_ms"], now),
            example_of(trouble),
            short(&string(&trouble["reason"]), 140),
        ]);
    }
    for schedule in each(&answer["schedules"]) {
        let next = if schedule["next_ms"].is_null() { "set aside".to_owned() } else { age(&schedule["next_ms"], now) };
        let failed = if schedule["attempts"] == 0 { "last run".to_owned() } else { format!("{} attempts", schedule["attempts"]) };
        let reason = format!("next {next}: {}", short(&string(&schedule["error"]), 120));
        wrong.row(["schedule".to_owned(), string(&schedule["name"]), failed, String::new(), String::new(), agent_of(schedule), reason]);
    }
    for queue in each(&answer["queues"]) {
        let fiber = &queue["fiber"];
        wrong.row([
            "unread".to_owned(),
            string(&fiber["name"]),
            number_of(&queue["messages"], &queue["at_least"]),
            age(&queue["first_ms"], now),
            age(&queue["last_ms"], now),
            which(&fiber["key"], &fiber["id"]),
            format!("messages; it is {}: {}", string(&fiber["state"]), short(&note(fiber, now), 100)),
        ]);
    }
    if wrong.is_empty() {
        say("nothing is wrong");
    } else {
        wrong.print();
    }
    and_more(&answer["schedules_more"]);
    if each(&answer["in_doubt"]).next().is_some() {
        say_title("outcome unknown:");
        operations(&answer["in_doubt"], now);
        and_more(&answer["in_doubt_more"]);
    }
    if each(&answer["oldest_waiting"]).next().is_some() {
        say_title("waiting longest:");
        fibers(&answer["oldest_waiting"], now);
    }
    say("");
    let mut table = Table::new(&["function", "state", "fibers"]);
    for count in each(&answer["counts"]) {
        table.row([string(&count["name"]), string(&count["state"]), count["fibers"].to_string()]);
    }
    table.print();
}

/// A number of things, of which there may be more.
pub(crate) fn number_of(number: &Value, at_least: &Value) -> String {
    format!("{number}{}", if *at_least == true { " or more" } else { "" })
}

/// The function of a group with its step, or the class of its chats.
pub(crate) fn of_trouble(trouble: &Value) -> String {
    match trouble["step"].as_str() {
        Some(step) => format!("{} `{step}`", string(&trouble["name"])),
        None => string(&trouble["name"]),
    }
}

/// What names one fiber or chat of a group in another command.
pub(crate) fn example_of(trouble: &Value) -> String {
    if trouble["kind"] == "turn" {
        return format!("{}/{}", string(&trouble["agent"][0]), string(&trouble["agent"][1]));
    }
    which(&trouble["key"], &trouble["example"])
}

/// The key of a fiber, or its id.
fn which(key: &Value, id: &Value) -> String {
    key.as_str().map_or_else(|| string(id), str::to_owned)
}

fn and_more(more: &Value) {
    if *more == true {
        say("and more");
    }
}

fn operations(list: &Value, now: u64) {
    let mut table = Table::new(&["state", "step", "began", "fiber", "id", "outcome"]);
    for item in each(list) {
        // In the list of all, each has its fiber beside it.
        let op = if item["op"].is_object() { &item["op"] } else { item };
        let fiber = if item["fiber"].is_object() { string(&item["fiber"]["key"]) } else { String::new() };
        let outcome = if op["error"].is_string() {
            string(&op["error"])
        } else if op["result"].is_null() {
            String::new()
        } else {
            op["result"].to_string()
        };
        table.row(vec![
            string(&op["state"]),
            string(&op["step"]),
            age(&op["started_ms"], now),
            fiber,
            string(&op["id"]),
            short(&outcome, 80),
        ]);
    }
    if table.is_empty() { say("no operations") } else { table.print() }
}

fn functions(list: &Value) {
    let mut table = Table::new(&["function", "version", "fibers", "source"]);
    for function in each(list) {
        let counts: Vec<String> = function["fibers"].as_object().into_iter().flatten().map(|(state, n)| format!("{n} {state}")).collect();
        let place = function["file"].as_str().map(|file| format!("{file}:{}", function["line"])).unwrap_or_default();
        table.row(vec![string(&function["name"]), function["version"].to_string(), counts.join(", "), place]);
    }
    table.print();
}

fn agents(list: &Value, now: u64) {
    let mut table = Table::new(&["class", "name", "awake", "changed", "state"]);
    for agent in each(list) {
        let awake = if agent["awake_ms"].is_null() { "" } else { "yes" };
        table.row(vec![
            string(&agent["class"]),
            string(&agent["name"]),
            awake.to_owned(),
            age(&agent["changed_ms"], now),
            value(&agent["state"], 100),
        ]);
    }
    table.print();
}

/// The agent that a row belongs to.
fn agent_of(row: &Value) -> String {
    format!("{}/{}", string(&row["class"]), string(&row["agent"]))
}

fn schedules(list: &Value, now: u64) {
    let mut table = Table::new(&["agent", "name", "kind", "next", "failed", "error"]);
    for schedule in each(list) {
        let next = if schedule["next_ms"].is_null() { "set aside".to_owned() } else { age(&schedule["next_ms"], now) };
        let agent = agent_of(schedule);
        table.row(vec![
            agent,
            string(&schedule["name"]),
            string(&schedule["kind"]),
            next,
            schedule["attempts"].to_string(),
            short(&string(&schedule["error"]), 80),
        ]);
    }
    table.print();
}

fn chats(answer: &Value, now: u64) {
    if each(&answer["pending"]).next().is_some() {
        let mut table = Table::new(&["waits for an answer", "message", "since"]);
        for pending in each(&answer["pending"]) {
            table.row(vec![agent_of(pending), string(&pending["message"]["id"]), age(&pending["since_ms"], now)]);
        }
        table.print();
        and_more(&answer["pending_more"]);
        say("");
    }
    turns(&answer["turns"], now);
    if !answer["next"].is_null() {
        say("there are older ones: --limit N");
    }
}

fn turns(list: &Value, now: u64) {
    let mut table = Table::new(&["chat", "turn", "state", "began", "why"]);
    for turn in each(list) {
        let why: Vec<&str> = ["reason", "error", "cancel"].iter().filter_map(|name| turn[name].as_str()).collect();
        table.row(vec![
            agent_of(turn),
            string(&turn["id"]),
            string(&turn["state"]),
            age(&turn["created_ms"], now),
            short(&why.join(": "), 80),
        ]);
    }
    table.print();
}

/// What was said, and the turns.
fn chat(chat: &Value, now: u64) {
    if let Some(earlier) = chat["earlier"].as_u64().filter(|earlier| *earlier > 0) {
        say(&format!("{earlier} earlier messages: --limit N"));
    }
    for message in each(&chat["messages"]) {
        let waits = if message["is_pending"] == true { ", waits for an answer" } else { "" };
        say(&format!("{} {}{waits}", string(&message["role"]), string(&message["id"])));
        let parts = &message["message"]["value"]["parts"];
        if parts.is_array() {
            for part in each(parts) {
                say_lines("  ", &part["text"].as_str().map_or_else(|| short(&part.to_string(), 200), str::to_owned));
            }
        } else {
            say(&format!("  {}", value(&message["message"], 200)));
        }
    }
    say("");
    turns(&chat["turns"], now);
}

fn timeline(answer: &Value, now: u64) {
    if let Some(problem) = answer["history_problem"].as_str() {
        say(problem);
        return;
    }
    let mut table = Table::new(&["number", "at", "stored", "took", "failed", "changed"]);
    for entry in each(&answer["history"]) {
        let what = match entry["origin"].as_object().and_then(|origin| origin.iter().next()) {
            None => at(&entry["at"]),
            Some((kind, of)) => match (kind.as_str(), of["by"].as_str()) {
                ("edit", Some(by)) => format!("edited by {by}"),
                ("edit", None) => "edited".to_owned(),
                ("fork", _) => format!("forked from {} at {}", string(&of["of"]), of["checkpoint"]),
                _ => format!("imported, was {}", string(&of["of"])),
            },
        };
        let names = each(&entry["changed"]).map(string).collect::<Vec<_>>().join(", ");
        let failed = entry["failed_attempts"].as_u64().filter(|n| *n > 0).map(|n| n.to_string()).unwrap_or_default();
        let took = format!("{} ms", entry["took_ms"]);
        table.row(vec![entry["number"].to_string(), what, age(&entry["stored_ms"], now), took, failed, short(&names, 80)]);
    }
    if table.is_empty() { say("no checkpoint is kept: see `Builder::history`") } else { table.print() }
}

/// Locals behind a checkpoint; `-` and `+` are what it has changed.
fn locals(answer: &Value) {
    for (depth, frame) in each(&answer["frames"]).enumerate() {
        say(&format!("in {} at `{}`", string(&frame["function"]), at(&frame["at"])));
        let before = &answer["before"][depth];
        let same = before["function"] == frame["function"];
        let old = |name: &Value| each(&before["locals"]).find(|local| same && local["name"] == *name);
        for local in each(&frame["locals"]) {
            let line = |mark: &str, local: &Value| say(&format!("  {mark} {} = {}", string(&local["name"]), value(local, 160)));
            match old(&local["name"]) {
                Some(old) if old == local => line(" ", local),
                Some(old) => {
                    line("-", old);
                    line("+", local);
                }
                None => line("+", local),
            }
        }
        let is_gone = |old: &&Value| each(&frame["locals"]).all(|local| local["name"] != old["name"]);
        for old in each(&before["locals"]).filter(|_| same).filter(is_gone) {
            say(&format!("  - {} = {}", string(&old["name"]), value(old, 160)));
        }
    }
}

/// One fiber: what it does, its frames with their source, its values and its operations.
fn show(answer: &Value, now: u64) {
    let (fiber, status) = (&answer["fiber"], &answer["fiber"]["status"]);
    say(format!("{} {} {}", string(&status["name"]), string(&status["id"]), string(&status["key"])).trim_end());
    let what = note(status, now);
    say(format!("{}: {what}", string(&status["state"])).trim_end_matches(": "));
    let failed_in = &answer["failed_in"];
    if failed_in.is_object() {
        say(&format!("failed in step `{}` of {}", string(&failed_in["step"]), string(&failed_in["function"])));
    }
    if !status["progress"].is_null() {
        say(&format!("progress: {}", status["progress"]));
    }
    if let Some(problem) = fiber["problem"].as_str() {
        say(&format!("problem: {problem}"));
    }
    if each(&fiber["frames"]).next().is_none() && failed_in.is_object() {
        source(answer, &json!({ "function": failed_in["function"] }));
    }
    for frame in each(&fiber["frames"]) {
        say_title(&format!(
            "in {} at `{}`{}",
            string(&frame["function"]),
            at(&frame["at"]),
            if frame["is_current"] == true { "" } else { " (not the layout of this code)" }
        ));
        source(answer, frame);
        for local in each(&frame["locals"]) {
            say(&format!("    {} = {}", string(&local["name"]), value(local, 160)));
        }
    }
    for (title, list) in [("arguments", &fiber["arguments"]), ("branches", &fiber["branches"])] {
        if each(list).next().is_some() {
            say_title(title);
            each(list).for_each(|local| say(&format!("    {} = {}", string(&local["name"]), value(local, 160))));
        }
    }
    if each(&fiber["messages"]).next().is_some() {
        let topics = each(&status["unread"]).map(|unread| format!("{}: {}", string(&unread["topic"]), unread["messages"]));
        say_title(&format!("messages that it has not received ({})", topics.collect::<Vec<_>>().join(", ")));
        let mut table = Table::new(&["number", "topic", "sent", "value"]);
        for message in each(&fiber["messages"]) {
            let number = message["number"].to_string();
            table.row(vec![number, string(&message["topic"]), age(&message["sent_ms"], now), value(message, 100)]);
        }
        table.print();
    }
    for stream in each(&fiber["streams"]) {
        let newest: Vec<&Value> = each(&stream["newest"]).collect();
        let items = stream["items"].as_u64().unwrap_or_default();
        say_title(&format!("stream {} ({items} items)", string(&stream["name"])));
        for (number, item) in (items.saturating_sub(newest.len() as u64)..).zip(newest) {
            say(&format!("    {number}: {}", value(item, 160)));
        }
    }
    for (title, view) in [("result", &fiber["result"]), ("stash", &fiber["stash"])] {
        if view.is_object() {
            say_title(&format!("{title}: {}", value(view, 400)));
        }
    }
    if each(&answer["ops"]).next().is_some() {
        say_title("operations");
        operations(&answer["ops"], now);
    }
    if each(&answer["children"]["fibers"]).next().is_some() {
        say_title("children");
        let mut table = Table::new(&["state", "function", "id", "arguments", "what"]);
        for child in each(&answer["children"]["fibers"]) {
            let arguments = each(&child["arguments"]).map(|argument| format!("{} = {}", string(&argument["name"]), value(argument, 60)));
            let arguments = short(&arguments.collect::<Vec<_>>().join(", "), 80);
            table.row([string(&child["state"]), string(&child["name"]), string(&child["id"]), arguments, short(&note(child, now), 100)]);
        }
        table.print();
        and_more(&answer["children"]["more"]);
    }
}

/// The step that a fiber has failed in, or that is retried, in a function.
fn faulty<'a>(answer: &'a Value, function: &Value) -> Option<&'a Value> {
    let (failed, status) = (&answer["failed_in"], &answer["fiber"]["status"]);
    if failed.is_object() {
        return Some(&failed["step"]).filter(|_| failed["function"] == *function);
    }
    let is_over = ["completed", "failed", "cancelled"].iter().any(|state| status["state"] == *state);
    Some(&status["retry"]["step"]).filter(|step| step.is_string() && !is_over)
}

/// The lines around the cut point that a frame stands at, and the one that has failed.
fn source(answer: &Value, frame: &Value) {
    let function = each(&answer["functions"]).find(|function| function["name"] == frame["function"]);
    let Some(function) = function else { return };
    let line_of = |name: &Value| each(&function["cuts"]).find(|cut| cut["name"] == *name).and_then(|cut| cut["line"].as_u64());
    let innermost = each(&answer["fiber"]["frames"]).last().is_none_or(|last| last["function"] == frame["function"]);
    let fault = faulty(answer, &frame["function"]).filter(|_| innermost).and_then(line_of);
    let saved = line_of(&frame["at"]);
    let (Some(line), Some(text)) = (fault.or(saved), function["source"]["text"].as_str()) else { return };
    let first = function["source"]["line"].as_u64().unwrap_or(1);
    let name = Path::new(function["source"]["file"].as_str().unwrap_or_default());
    say(&format!("  {}:{}", name.display(), first + line));
    let from = saved.unwrap_or(line).min(line);
    for (n, text) in (0_u64..).zip(text.lines()).filter(|(n, _)| n.abs_diff(line) <= 3 || (from..=line).contains(n) && line - from <= 20) {
        let mark = match (Some(n) == fault, Some(n) == saved) {
            (true, _) => "✗",
            (false, true) if fault.is_some() => "✓",
            (false, true) => "→",
            (false, false) => " ",
        };
        say(&format!("  {mark} {:>5}  {}", first + n, text.replace('\t', "    ")));
    }
}
