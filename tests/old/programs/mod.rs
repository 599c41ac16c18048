//! The programs whose database is damaged: together they have rows in every table, and fibers, operations and turns in every state.
pub(crate) mod calls;
pub(crate) mod chats;
pub(crate) mod closed_topics;
pub(crate) mod deleted;
pub(crate) mod effects;
pub(crate) mod group_commits;
pub(crate) mod history;
pub(crate) mod ledger;
pub(crate) mod logs;
pub(crate) mod loops;
pub(crate) mod message_ids;
pub(crate) mod recent_history;
pub(crate) mod waits;

use forever::{Builder, Forever};

use crate::desk::Desk;

/// What is held in which life.
pub(crate) fn holds() -> Vec<(u32, &'static str)> {
    [
        loops::HOLDS,
        waits::HOLDS,
        ledger::HOLDS,
        chats::HOLDS,
        deleted::HOLDS,
        calls::HOLDS,
        effects::HOLDS,
        history::HOLDS,
        recent_history::HOLDS,
        logs::HOLDS,
        message_ids::HOLDS,
        group_commits::HOLDS,
        closed_topics::HOLDS,
    ]
    .concat()
}

/// What has to be so in the database at the end of which life.
pub(crate) fn settled() -> Vec<(u32, &'static str)> {
    [
        loops::SETTLED,
        waits::SETTLED,
        ledger::SETTLED,
        chats::SETTLED,
        deleted::SETTLED,
        calls::SETTLED,
        effects::SETTLED,
        history::SETTLED,
        recent_history::SETTLED,
        logs::SETTLED,
        message_ids::SETTLED,
        group_commits::SETTLED,
        closed_topics::SETTLED,
    ]
    .concat()
}

/// A runtime that knows all fibers.
pub(crate) fn registered(builder: Builder, desk: &Desk) -> Builder {
    let builder = loops::registered(builder.resource(desk.clone()), desk.life());
    let builder =
        group_commits::registered(message_ids::registered(logs::registered(recent_history::registered(history::registered(builder)))));
    let builder = closed_topics::registered(builder);
    let builder = effects::registered(calls::registered(builder, desk));
    deleted::registered(chats::registered(ledger::registered(waits::registered(builder, desk)), desk))
}

/// What a life begins when the database is open.
pub(crate) async fn begin(forever: &Forever, desk: &Desk) -> anyhow::Result<()> {
    if desk.life() == 1 {
        loops::start(forever).await?;
        waits::start(forever, desk).await?;
        ledger::start(forever).await?;
        chats::start(forever).await?;
        deleted::start(forever).await?;
        calls::start(forever).await?;
        effects::start(forever).await?;
        history::start(forever).await?;
        recent_history::start(forever).await?;
        logs::start(forever).await?;
        message_ids::start(forever).await?;
        group_commits::start(forever).await?;
        closed_topics::start(forever).await
    } else {
        ledger::resolve(forever).await
    }
}

/// What it does when everything is held.
pub(crate) async fn then(forever: &Forever, desk: &Desk) -> anyhow::Result<()> {
    loops::then(forever, desk.life()).await?;
    waits::then(forever, desk.life()).await
}

/// What a life needs besides: in the first one, what is told to end ends at once.
pub(crate) fn settings(builder: Builder, life: u32) -> Builder {
    if life == 1 { builder.cancel_grace(std::time::Duration::ZERO) } else { builder }
}
