//! Makes the survival of an answer visible: a part `data-resumed` in the message has the place
//! where the server stopped, and how long it was gone.
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use forever::BoxError;
use forever::chat::Turn;
use forever::chat::message::Chunk;
use serde_json::json;

/// Interval at which a turn stores the time, so that the next process knows when this one stopped.
const BEAT: Duration = Duration::from_millis(500);

/// Runs the answer of a turn, and first reports an interruption to the page.
pub(crate) async fn visible<F>(turn: &Turn, answer: F) -> Result<(), BoxError>
where
    F: Future<Output = Result<(), BoxError>>,
{
    if let Some(recovery) = turn.recovery()
        && let Some(last) = turn.stashed::<u64>()?
    {
        let message = turn.message().await;
        let marks = || message.parts.iter().filter(|part| part.kind() == "data-resumed");
        let kills = marks().filter(|part| part.get("data").is_some_and(|data| data["killed"] == true)).count();
        // A close is no death.
        let killed = u64::from(recovery.deaths()) > kills as u64;
        // The page counts as JavaScript does, in units of UTF-16.
        let at = message.text().encode_utf16().count();
        let gone = json!({ "at": at, "ms": now_ms().saturating_sub(last), "killed": killed });
        turn.write(Chunk::data("resumed", Some(&format!("resumed-{}", marks().count())), gone)).await?;
    }
    let beats = async {
        loop {
            turn.stash(&now_ms()).await?;
            tokio::time::sleep(BEAT).await;
        }
    };
    tokio::select! {
        answered = answer => answered,
        // The heartbeats end only with an error.
        failed = beats => failed,
    }
}

#[expect(clippy::disallowed_methods, reason = "how long a process was gone is wall-clock time")]
fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
