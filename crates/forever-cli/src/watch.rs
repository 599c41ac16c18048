//! `watch`: prints each change of a fiber, or of all.
use std::process::ExitCode;

use http_body_util::BodyExt;
use serde_json::Value;

use crate::client::Client;
use crate::commands::{now_ms, string};
use crate::failure::Failure;
use crate::table::{is_closed, say, say_json};
use crate::text::{escaped, note, short};

/// The longest line of events that is kept, in bytes.
const LONGEST: usize = 1 << 20;

pub(crate) async fn watch(client: &mut Client, only: Option<String>, json: bool) -> Result<ExitCode, Failure> {
    // The stream has its connection to itself, so that fibers can be asked for over the other.
    let mut other = client.again().await?;
    let mut events = other.stream("events").await?;
    if let Some(id) = &only
        && is_over(&show(client, id, json).await?)
    {
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = String::new();
    while let Some(frame) = events.frame().await {
        if is_closed() {
            return Ok(ExitCode::SUCCESS);
        }
        let frame = frame.map_err(|why| Failure::unreachable(format!("the owner has gone: {why}")))?;
        let Ok(data) = frame.into_data() else { continue };
        text.push_str(&String::from_utf8_lossy(&data));
        while let Some(end) = text.find('\n') {
            let line: String = text.drain(..=end).collect();
            let Some(event) = line.trim_end().strip_prefix("data: ").and_then(|data| serde_json::from_str::<Value>(data).ok()) else {
                continue;
            };
            let ids = event["fibers"].as_array().into_iter().flatten().filter_map(Value::as_str);
            // A line has room for some fibers, and counts the others.
            let misses = event["missed"].as_u64() > Some(0);
            for id in ids.filter(|id| only.as_deref().is_none_or(|only| only == *id)) {
                if is_over(&show(client, id, json).await?) && only.is_some() {
                    return Ok(ExitCode::SUCCESS);
                }
            }
            if let (true, Some(id)) = (misses, &only)
                && is_over(&show(client, id, json).await?)
            {
                return Ok(ExitCode::SUCCESS);
            }
        }
        if text.len() > LONGEST {
            return Err(Failure::unreachable("this is no stream of events"));
        }
    }
    Err(Failure::unreachable("the owner has closed the database"))
}

/// Prints one fiber in one line; gives its state.
async fn show(client: &mut Client, id: &str, json: bool) -> Result<String, Failure> {
    let answer = match client.get(&format!("fibers/{}", escaped(id))).await {
        Err(failure) if failure.is_not_found() => return Ok("deleted".to_owned()),
        answer => answer?,
    };
    let status = &answer["fiber"]["status"];
    if json {
        say_json(&status.to_string());
    } else {
        let which = status["key"].as_str().map_or_else(|| string(&status["id"]), str::to_owned);
        say(&format!("{:<11} {} {which}  {}", string(&status["state"]), string(&status["name"]), short(&note(status, now_ms()), 120)));
    }
    Ok(string(&status["state"]))
}

fn is_over(state: &str) -> bool {
    ["completed", "failed", "cancelled", "parked", "interrupted", "deleted"].contains(&state)
}
