//! Fibers with effects that must not repeat: charges at the bank, under every policy, and rows in a
//! table of the program's own.
use forever::ops::{OpResolution, OpState};
use forever::prelude::*;

use super::round::{add, honoured};
use super::world::{Account, World};

#[fiber(max_recoveries = 1_000_000)]
pub(crate) async fn by_retry(ctx: &FiberContext, world: Res<World>) -> anyhow::Result<String> {
    let id = ctx.id().to_owned();
    step!("order", world.calm(&id, 1).await?);
    let receipt = step!("charge", effect, key = &id, on_unknown = OnUnknown::Retry, |op| {
        world.calm(&id, 2).await?;
        world.charge(Account::HonoursIds, &id, op.id()).await?
    });
    step!("ship", world.calm(&id, 3).await?);
    Ok(receipt)
}

#[fiber(max_recoveries = 1_000_000)]
pub(crate) async fn by_check(ctx: &FiberContext, world: Res<World>) -> anyhow::Result<String> {
    let id = ctx.id().to_owned();
    step!("order", world.calm(&id, 1).await?);
    let check = OnUnknown::check(async |op| world.find(&id, op.id()).await);
    let receipt = step!("charge", effect, key = &id, on_unknown = check, |op| {
        world.calm(&id, 2).await?;
        world.charge(Account::Plain, &id, op.id()).await?
    });
    step!("ship", world.calm(&id, 3).await?);
    Ok(receipt)
}

#[fiber(max_recoveries = 1_000_000)]
pub(crate) async fn by_park(ctx: &FiberContext, world: Res<World>) -> anyhow::Result<String> {
    let id = ctx.id().to_owned();
    step!("order", world.calm(&id, 1).await?);
    let receipt = step!("charge", effect, key = &id, |op| {
        world.calm(&id, 2).await?;
        world.charge(Account::Plain, &id, op.id()).await?
    });
    step!("ship", world.calm(&id, 3).await?);
    Ok(receipt)
}

#[fiber(max_recoveries = 1_000_000)]
pub(crate) async fn by_fail(ctx: &FiberContext, world: Res<World>) -> anyhow::Result<String> {
    let id = ctx.id().to_owned();
    step!("order", world.calm(&id, 1).await?);
    let receipt = loop {
        match call!(one_charge(id.clone())) {
            Ok(receipt) => break receipt,
            Err(error) if error.downcast_ref::<forever::Error>().is_some_and(forever::Error::is_op_unknown) => {}
            Err(error) => return Err(error),
        }
        if let Some(receipt) = step!("look up", world.find_key(&id).await?) {
            break receipt;
        }
    };
    step!("ship", world.calm(&id, 3).await?);
    Ok(receipt)
}

#[fiber]
async fn one_charge(world: Res<World>, id: String) -> anyhow::Result<String> {
    Ok(step!("charge", effect, key = &id, on_unknown = OnUnknown::Fail, |op| {
        world.calm(&id, 2).await?;
        world.charge(Account::Plain, &id, op.id()).await?
    }))
}

/// Manual operations. Half of them go to each account, and so need another policy.
#[fiber(max_recoveries = 1_000_000)]
pub(crate) async fn by_hand(ctx: &FiberContext, world: Res<World>, size: u32) -> anyhow::Result<String> {
    let mut receipts = Vec::new();
    for n in 1..=size {
        receipts.push(charge_by_hand(ctx, &world, n).await?);
        step!("note", world.calm(ctx.id(), n).await?);
    }
    Ok(receipts.join(" "))
}

async fn charge_by_hand(ctx: &FiberContext, world: &World, n: u32) -> anyhow::Result<String> {
    let key = format!("{}/{n}", ctx.id());
    let account = if honoured(n) { Account::HonoursIds } else { Account::Plain };
    let policy = match account {
        Account::HonoursIds => OnUnknown::Retry,
        Account::Plain => OnUnknown::check(async |op| world.find(&key, op.id()).await),
    };
    let charge = ctx.op("charge", n, async |op| world.charge(account, &key, op.id()).await);
    charge.on_unknown(policy).await
}

/// The program's own table. It has no constraint against duplicate rows.
pub(crate) const BOOKINGS: &str = "CREATE TABLE bookings (fiber TEXT NOT NULL, place INTEGER NOT NULL, value INTEGER NOT NULL) STRICT";

#[fiber(max_recoveries = 1_000_000)]
pub(crate) async fn booking(ctx: &FiberContext, world: Res<World>, size: u32) -> anyhow::Result<String> {
    let mut sum = 0;
    for n in 1..=size {
        let value = step!("book", {
            let value = world.calm(ctx.id(), n).await?;
            book(ctx, n, value).await?;
            world.pause().await;
            value
        });
        sum = add(sum, value);
    }
    Ok(sum.to_string())
}

async fn book(ctx: &FiberContext, n: u32, value: u64) -> anyhow::Result<()> {
    let row = (ctx.id().to_owned(), n, i64::try_from(value)?);
    let insert = move |tx: &forever::ops::Tx<'_>| -> anyhow::Result<()> {
        tx.execute("INSERT INTO bookings VALUES (?1, ?2, ?3)", (&row.0, row.1, row.2))?;
        Ok(())
    };
    ctx.transaction("book", insert).await
}

/// The operator: queries the bank about the operations that a fiber began, and resolves them.
/// Returns how many there were.
pub(crate) async fn look_into(forever: &Forever, world: &World, fiber: &str) -> anyhow::Result<usize> {
    let mut resolved = 0;
    for op in forever.ops(fiber).await? {
        if op.state == OpState::Started {
            let how = match world.find(fiber, &op.id).await? {
                Some(receipt) => OpResolution::completed(&receipt)?,
                None => OpResolution::NotExecuted,
            };
            forever.resolve_op(&op.id, how).await?;
            resolved += 1;
        }
    }
    Ok(resolved)
}
