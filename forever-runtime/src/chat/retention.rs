//! Retention: the chunks of ended turns are deleted after a while, and later the turns themselves.
//! Messages stay.
use std::sync::Arc;
use std::time::Duration;

use tracing::warn;

use crate::chat::chats::Chats;
use crate::error::{Error, Result, chain};
use crate::exec::dispatch;
use crate::runtime::state::Runtime;
use crate::runtime::timer::{Alarm, Ring, SET_BACK_MS, Timer};

/// The alarm of the next check.
const RETENTION: &str = "chat retention";

/// Interval of the checks: a tenth of the time that chunks are kept, within these bounds.
const EVERY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60 * 60));

/// Number of turns that are deleted in one transaction.
const BATCH: u32 = 64;

/// Registers the action of the alarm.
pub(crate) fn listen(timer: &Timer, chats: &Arc<Chats>) {
    let chats = Arc::clone(chats);
    let ring: Ring = Arc::new(move |runtime, _| {
        let chats = Arc::clone(&chats);
        Box::pin(async move {
            match forget(&runtime, &chats).await {
                Ok(()) => {}
                Err(error) if runtime.is_closing() || error.is_closed() => return,
                Err(error) => warn!(error = %chain(&error), "expired turns could not be deleted"),
            }
            set_alarm(&runtime, &chats);
        })
    });
    timer.on(RETENTION, ring);
    timer.on_set_back(Arc::new(|runtime, _| Box::pin(async move { correct(&runtime).await })));
}

/// Corrects turns that wait for a time computed while the clock was ahead.
pub(super) async fn correct(runtime: &Arc<Runtime>) {
    let corrected = async {
        let now_ms = runtime.now_ms();
        if runtime.store.has_far_turns(now_ms, SET_BACK_MS).await? {
            let turns = runtime.store.correct_turns(now_ms, SET_BACK_MS).await?;
            warn!(turns, "turns that were far ahead, as the clock had been, are due earlier");
            dispatch::set_alarm(runtime).await?;
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
pub(crate) fn set_alarm(runtime: &Runtime, chats: &Chats) {
    if !chats.classes.is_empty() {
        let every = (chats.settings.replay / 10).clamp(EVERY.0, EVERY.1);
        runtime.timer.set(Alarm::the(RETENTION), runtime.now_ms().saturating_add(ms(every)));
    }
}

async fn forget(runtime: &Runtime, chats: &Chats) -> Result<()> {
    let folded = runtime.now_ms().saturating_sub(ms(chats.settings.replay));
    while runtime.store.compact_turns(folded, BATCH).await? == u64::from(BATCH) && !runtime.is_closing() {}
    // A turn is kept for as long as a failed fiber.
    if let Some(keep) = runtime.settings.retention.failed {
        let deleted = runtime.now_ms().saturating_sub(ms(keep.max(chats.settings.replay)));
        while runtime.store.delete_turns(deleted, BATCH).await? == u64::from(BATCH) && !runtime.is_closing() {}
    }
    Ok(())
}

fn ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
