//! Operations in every state of the ledger, and tables of the program's own.
use forever::prelude::*;
use forever::{Builder, ops::OpResolution};

use crate::desk::{Desk, LAST};

pub(crate) const HOLDS: &[(u32, &str)] = &[
    (1, "ship"),
    (2, "ship"),
    (1, "charge of which nobody knows"),
    (1, "charge to ask about"),
    (2, "ask"),
    (1, "stream"),
    (2, "stream"),
    (1, "second letter"),
    (1, "charge that was looked up"),
    (2, "pack what was looked up"),
    (1, "book"),
    (2, "book"),
    (1, "rent"),
    (2, "rent"),
    (2, "begun anew"),
];

pub(crate) const SETTLED: &[(u32, &str)] = &[
    (1, "SELECT state = 'failed' FROM fibers WHERE id = 'anew'"),
    (1, "SELECT ops.state = 'completed' FROM op_ledger AS ops JOIN fibers ON fiber = seq WHERE fibers.id = 'anew'"),
    (2, "SELECT state = 'completed' AND outcome IS NOT NULL AND key IS NOT NULL FROM op_ledger AS ops WHERE step = 'charge known'"),
    (2, "SELECT state = 'parked' FROM fibers WHERE id = 'unknown'"),
    (2, "SELECT state = 'started' FROM op_ledger AS ops WHERE step = 'ask first'"),
    (2, "SELECT sum(count) = 2 FROM stream_log WHERE name LIKE 'op/%' AND fiber NOT IN (SELECT seq FROM fibers WHERE name = 'weighs')"),
    (2, "SELECT state = 'started' AND stash IS NOT NULL AND failed = 1 FROM op_ledger AS ops WHERE step = 'rent'"),
    (2, "SELECT state = 'failed' FROM op_ledger AS ops WHERE step = 'declined'"),
    (2, "SELECT state = 'parked' FROM fibers WHERE id = 'letters'"),
    (2, "SELECT count(*) = 2 AND max(state) = 'started' FROM op_ledger AS ops WHERE kind = 'op' AND step = 'letter'"),
    (2, "SELECT resolved = 1 AND state = 'completed' FROM op_ledger AS ops WHERE step = 'look up'"),
    (2, "SELECT count(*) = 1 FROM op_ledger AS ops WHERE kind = 'transaction'"),
    (2, "SELECT count(*) = 1 FROM entries"),
    (2, "SELECT count(*) = 2 FROM user_migrations"),
    (2, "SELECT restarts = 1 FROM fibers WHERE id = 'anew'"),
];

/// The tables of the program's own.
const MIGRATIONS: [(&str, &str); 2] = [
    ("entries", "CREATE TABLE entries (n INTEGER PRIMARY KEY, what TEXT NOT NULL UNIQUE) STRICT"),
    ("notes", "ALTER TABLE entries ADD COLUMN note TEXT"),
];

/// Behind an effect that has completed.
#[fiber]
pub(crate) async fn known(desk: Res<Desk>, cents: usize) -> anyhow::Result<usize> {
    let charge = step!("charge known", effect, key = ("order", cents), desk.work("charge").await? + cents);
    step!(desk.work("ship").await?);
    Ok(charge)
}

/// In an effect of which nobody knows whether it was carried out: parked.
#[fiber]
pub(crate) async fn unknown(desk: Res<Desk>) -> anyhow::Result<usize> {
    let charge = step!("charge unknown", effect, desk.work("charge of which nobody knows").await?);
    Ok(charge)
}

/// The same, but somebody is asked.
#[fiber]
pub(crate) async fn asked(desk: Res<Desk>) -> anyhow::Result<usize> {
    let check = OnUnknown::check(async |_| desk.work("ask").await.map(Some));
    let charge = step!("ask first", effect, on_unknown = check, desk.work("charge to ask about").await?);
    Ok(charge)
}

/// May run again, and goes on with what it has so far.
#[fiber]
pub(crate) async fn streamed(desk: Res<Desk>) -> anyhow::Result<Vec<String>> {
    let all = step!("stream", effect, on_unknown = OnUnknown::Retry, |op| {
        let log = op.log::<String>();
        if log.items().await?.is_empty() {
            desk.work("stream begins").await?;
            log.extend([op.id(), "chunk"].map(str::to_owned)).await?;
        }
        desk.work("stream").await?;
        let items = log.items().await?;
        anyhow::ensure!(items[0] == op.id(), "the log is of another operation");
        items[1..].to_vec()
    });
    Ok(all)
}

/// With an attempt that has failed and a stash.
#[fiber]
pub(crate) async fn rented(desk: Res<Desk>) -> anyhow::Result<(u32, bool)> {
    let retry = Retry::times(3).backoff(Backoff::none());
    let rent = step!("rent", effect, on_unknown = OnUnknown::Retry, retry = retry, |op| {
        let Some(stashed) = op.stashed::<String>()? else {
            op.stash(op.idempotency_key()).await?;
            desk.work("first rent").await?;
            anyhow::bail!("not at once");
        };
        desk.work("rent").await?;
        (op.attempt(), stashed == op.idempotency_key())
    });
    Ok(rent)
}

#[fiber]
pub(crate) async fn declined(desk: Res<Desk>) -> anyhow::Result<usize> {
    let charge = step!("declined", effect, if desk.life() < LAST { anyhow::bail!("card declined") } else { desk.work("declined").await? });
    Ok(charge)
}

/// One operation by hand is done, and nobody knows of the other.
#[fiber]
pub(crate) async fn letters(ctx: &FiberContext, desk: Res<Desk>) -> anyhow::Result<usize> {
    let mut lengths = 0;
    for name in ["first letter", "second letter"] {
        let desk = desk.clone();
        lengths += ctx.op("letter", name, |_| async move { desk.work(name).await }).await?;
    }
    Ok(lengths)
}

/// Parked, and resolved by hand.
#[fiber]
pub(crate) async fn looked_up(desk: Res<Desk>) -> anyhow::Result<usize> {
    let charge = step!("look up", effect, desk.work("charge that was looked up").await?);
    step!(desk.work("pack what was looked up").await?);
    Ok(charge)
}

/// Behind a transaction in the program's own tables, and before the checkpoint.
#[fiber]
pub(crate) async fn booked(ctx: &FiberContext, desk: Res<Desk>) -> anyhow::Result<i64> {
    let row = ctx
        .transaction("book", |tx| {
            tx.execute("INSERT INTO entries (what) VALUES ('booked')", ())?;
            anyhow::Ok(tx.last_insert_rowid() + 40)
        })
        .await?;
    step!(desk.work("book").await?);
    Ok(row)
}

/// Begun anew by hand, so its operations by hand are other ones.
#[fiber]
pub(crate) async fn anew(ctx: &FiberContext, desk: Res<Desk>) -> anyhow::Result<usize> {
    let by_hand = desk.clone();
    let paid = ctx.op("pay", 1, |_| async move { by_hand.work("pay by hand").await }).await?;
    if desk.life() == 1 {
        anyhow::bail!("no luck");
    }
    step!(desk.work("begun anew").await?);
    Ok(paid)
}

pub(crate) fn registered(builder: Builder) -> Builder {
    let builder = MIGRATIONS.into_iter().fold(builder, |builder, (name, sql)| builder.migration(name, sql));
    let builder = builder.fiber::<known>().fiber::<unknown>().fiber::<asked>().fiber::<streamed>().fiber::<rented>();
    builder.fiber::<declined>().fiber::<letters>().fiber::<looked_up>().fiber::<booked>().fiber::<anew>()
}

pub(crate) async fn start(forever: &Forever) -> anyhow::Result<()> {
    forever.spawn(known(500)).id("known").await?;
    forever.spawn(unknown()).id("unknown").await?;
    forever.spawn(asked()).id("asked").await?;
    forever.spawn(streamed()).id("streamed").await?;
    forever.spawn(rented()).id("rented").await?;
    forever.spawn(declined()).id("declined").await?;
    forever.spawn(letters()).id("letters").await?;
    forever.spawn(looked_up()).id("looked up").await?;
    forever.spawn(booked()).id("booked").await?;
    forever.spawn(anew()).id("anew").await?;
    Ok(())
}

/// What is done in the second life once it has begun.
pub(crate) async fn resolve(forever: &Forever) -> anyhow::Result<()> {
    // It is parked first.
    let _ = forever.fiber::<looked_up>("looked up").wait().await;
    let op = forever.ops("looked up").await?.remove(0);
    forever.resolve_op(&op.id, OpResolution::completed(&99)?).await?;
    forever.restart("anew").await?;
    Ok(())
}
