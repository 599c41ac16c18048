//! What is over its time: the chunks of turns that have ended go after a while, and later the turns themselves. Messages stay.
use std::sync::Arc;
use std::time::Duration;

use tracing::warn;

use super::Chats;
use crate::error::{Error, Result, chain};
use crate::fiber::core::Core;
use crate::fiber::dispatch;
use crate::fiber::timer::{Alarm, Ring, SET_BACK_MS, Timer};

/// The alarm of the next look.
const RETENTION: &str = "chat retention";

/// How often it is looked: a tenth of the time that chunks are kept, within these bounds.
const EVERY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60 * 60));

/// How many turns go in one transaction.
const BATCH: u32 = 64;

/// Says what to do when the alarm is due.
pub(crate) fn listen(timer: &mut Timer, chats: &Arc<Chats>) {
    let chats = Arc::clone(chats);
    let ring: Ring = Arc::new(move |core, _| {
        let chats = Arc::clone(&chats);
        Box::pin(async move {
            match forget(&core, &chats).await {
                Ok(()) => {}
                Err(error) if core.is_closing() || error.is_closed() => return,
                Err(error) => warn!(error = %chain(&error), "turns that were over their time could not be deleted"),
            }
            set_alarm(&core, &chats);
        })
    });
    timer.on(RETENTION, ring);
    timer.on_set_back(Arc::new(|core, _| Box::pin(async move { correct(&core).await })));
}

/// Lets no turn wait for the time of a clock that was ahead and has been set back since.
pub(super) async fn correct(core: &Arc<Core>) {
    let corrected = async {
        let now_ms = core.now_ms();
        if core.store.has_far_turns(now_ms, SET_BACK_MS).await? {
            let turns = core.store.correct_turns(now_ms, SET_BACK_MS).await?;
            warn!(turns, "turns that were far ahead, as the clock had been, are due earlier");
            dispatch::set_alarm(core).await?;
        }
        Ok::<_, Error>(())
    };
    if let Err(error) = corrected.await
        && !error.is_closed()
    {
        warn!(error = %chain(&error), "it could not be looked up which turns are far ahead");
    }
}

/// Sets the alarm for the next look.
pub(crate) fn set_alarm(core: &Core, chats: &Chats) {
    if !chats.classes.is_empty() {
        let every = (chats.settings.replay / 10).clamp(EVERY.0, EVERY.1);
        core.timer.set(Alarm::the(RETENTION), core.now_ms().saturating_add(ms(every)));
    }
}

async fn forget(core: &Core, chats: &Chats) -> Result<()> {
    let folded = core.now_ms().saturating_sub(ms(chats.settings.replay));
    while core.store.compact_turns(folded, BATCH).await? == u64::from(BATCH) && !core.is_closing() {}
    // A turn is kept for as long as a fiber that has failed.
    if let Some(keep) = core.settings.retention.failed {
        let deleted = core.now_ms().saturating_sub(ms(keep.max(chats.settings.replay)));
        while core.store.delete_turns(deleted, BATCH).await? == u64::from(BATCH) && !core.is_closing() {}
    }
    Ok(())
}

fn ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
