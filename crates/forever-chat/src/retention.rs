//! Retention: the chunks of ended turns are deleted after a while, and later the turns themselves.
//! Messages stay.
use std::sync::Arc;
use std::time::Duration;

use forever_runtime::__layers::{Engine, SET_BACK_MS, chain};
use forever_runtime::{Error, Result};
use tracing::warn;

use crate::registry::ChatRegistry;

/// The alarm of the next check.
const RETENTION: &str = "chat retention";

/// Interval of the checks: a tenth of the time that chunks are kept, within these bounds.
const EVERY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60 * 60));

/// Number of turns that are deleted in one transaction.
const BATCH: u32 = 64;

/// Registers the action of the alarm.
pub(crate) fn listen(engine: &Engine, chats: &Arc<ChatRegistry>) {
    let chats = Arc::clone(chats);
    engine.on_alarm(RETENTION, move |engine| {
        let chats = Arc::clone(&chats);
        Box::pin(async move {
            match forget(&engine, &chats).await {
                Ok(()) => {}
                Err(error) if engine.is_closing() || error.is_closed() => return,
                Err(error) => warn!(error = %chain(&error), "expired turns could not be deleted"),
            }
            set_alarm(&engine, &chats);
        })
    });
    engine.on_set_back(|engine| Box::pin(async move { correct(&engine).await }));
}

/// Corrects turns that wait for a time computed while the clock was ahead.
pub(super) async fn correct(engine: &Engine) {
    let corrected = async {
        let now_ms = engine.now_ms();
        if engine.store().has_far_turns(now_ms, SET_BACK_MS).await? {
            let turns = engine.store().correct_turns(now_ms, SET_BACK_MS).await?;
            warn!(turns, "turns that were far ahead, as the clock had been, are due earlier");
            engine.set_wait_alarm().await?;
        }
        Ok::<_, Error>(())
    };
    if let Err(error) = corrected.await
        && !error.is_closed()
    {
        warn!(error = %chain(&error), "turns that are far ahead could not be looked up");
    }
}

/// Sets the alarm for the next check.
pub(crate) fn set_alarm(engine: &Engine, chats: &ChatRegistry) {
    if !chats.classes.is_empty() {
        let every = (chats.settings.replay / 10).clamp(EVERY.0, EVERY.1);
        engine.set_alarm(RETENTION, engine.now_ms().saturating_add(ms(every)));
    }
}

async fn forget(engine: &Engine, chats: &ChatRegistry) -> Result<()> {
    let folded = engine.now_ms().saturating_sub(ms(chats.settings.replay));
    while engine.store().compact_turns(folded, BATCH).await? == u64::from(BATCH) && !engine.is_closing() {}
    // A turn is kept for as long as a failed fiber.
    if let Some(keep) = engine.keeps_failed() {
        let deleted = engine.now_ms().saturating_sub(ms(keep.max(chats.settings.replay)));
        while engine.store().delete_turns(deleted, BATCH).await? == u64::from(BATCH) && !engine.is_closing() {}
    }
    Ok(())
}

fn ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
