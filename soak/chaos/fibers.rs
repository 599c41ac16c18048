//! Fibers of steps, waits and children.
use std::time::{Duration, SystemTime};

use forever::fiber::Log;
use forever::prelude::*;

use super::round::{self, ENDLESS, add};
use super::world::World;

const BACKOFF: Backoff = Backoff::exponential(Duration::from_millis(40), Duration::from_millis(80));

#[fiber(max_recoveries = 1_000_000)]
pub(crate) async fn chain(ctx: &FiberContext, world: Res<World>, size: u32) -> anyhow::Result<String> {
    let mut sum = 0;
    for n in 1..=size {
        let value = if n % 3 == 0 {
            step!("flaky", retry = Retry::times(2).backoff(BACKOFF), |op| world.flaky(ctx.id(), n, op.attempt()).await?)
        } else {
            step!("work", world.work(ctx.id(), n).await?)
        };
        sum = add(sum, value);
    }
    Ok(sum.to_string())
}

#[fiber(max_recoveries = 1_000_000)]
pub(crate) async fn nested(ctx: &FiberContext, world: Res<World>, size: u32) -> anyhow::Result<String> {
    let sum = add(0, step!("first", world.work(ctx.id(), 1).await?));
    let sum = call!(middle(ctx.id().to_owned(), size, sum))?;
    let last = step!("last", world.work(ctx.id(), size + 2).await?);
    Ok(add(sum, last).to_string())
}

#[fiber]
async fn middle(world: Res<World>, fiber: String, size: u32, mut sum: u64) -> anyhow::Result<u64> {
    for n in 2..=size + 1 {
        let value = if n % 2 == 0 { call!(leaf(fiber.clone(), n))? } else { step!("work", world.work(&fiber, n).await?) };
        sum = add(sum, value);
    }
    Ok(sum)
}

#[fiber]
async fn leaf(world: Res<World>, fiber: String, n: u32) -> anyhow::Result<u64> {
    Ok(step!("work", world.work(&fiber, n).await?))
}

#[fiber(max_recoveries = 1_000_000)]
pub(crate) async fn side(ctx: &FiberContext, world: Res<World>, size: u32) -> anyhow::Result<String> {
    step!("first", world.work(ctx.id(), 1).await?);
    let mut all = steps!(for n in 0..size, limit = 3, world.branch(ctx.id(), 2, n).await?);
    let (one, other) = steps!(world.branch(ctx.id(), 3, 0).await?, world.branch(ctx.id(), 3, 1).await?);
    all.extend([one, other]);
    step!("last", world.work(ctx.id(), 4).await?);
    Ok(all.join(" "))
}

#[fiber(max_recoveries = 1_000_000)]
pub(crate) async fn notes(ctx: &FiberContext, world: Res<World>, size: u32) -> anyhow::Result<String> {
    let mut notes = Log::new();
    let mut page = String::new();
    for n in 1..=size {
        let note = step!("write", {
            world.work(ctx.id(), n).await?;
            round::note(ctx.id(), n)
        });
        notes.push(note);
        page = round::page(ctx.id(), n);
    }
    Ok(round::digest(notes.iter().map(String::as_str).chain([page.as_str()])).to_string())
}

#[fiber(max_recoveries = 1_000_000)]
pub(crate) async fn sleeper(ctx: &FiberContext, world: Res<World>, size: u32) -> anyhow::Result<String> {
    for (n, factor) in [(1, 1), (2, 20)] {
        let nap = Duration::from_millis(u64::from(100 * size * factor));
        let begun = step!("lie down", {
            world.calm(ctx.id(), n).await?;
            ms(ctx.clock().now())
        });
        sleep!(nap);
        // Stored times are rounded to a millisecond.
        anyhow::ensure!(ms(ctx.clock().now()) + 1 >= begun + nap.as_millis(), "woken before its time");
    }
    step!("get up", world.calm(ctx.id(), 3).await?);
    Ok("on time".to_owned())
}

fn ms(time: SystemTime) -> u128 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis()
}

/// Number of messages after which the fiber stops, because it has missed the last one.
const FLOOD: usize = 100;

/// Receives messages until the one with number `size`, and returns their numbers.
#[fiber(max_recoveries = 1_000_000)]
pub(crate) async fn inbox(ctx: &FiberContext, world: Res<World>, size: u32) -> anyhow::Result<String> {
    let mut read = Vec::new();
    while read.last() != Some(&size) && read.len() < FLOOD {
        let number: u32 = recv!("mail");
        read.push(number);
        step!("read", world.calm(ctx.id(), u32::try_from(read.len())?).await?);
    }
    Ok(read.iter().map(u32::to_string).collect::<Vec<_>>().join(" "))
}

#[fiber(max_recoveries = 1_000_000)]
pub(crate) async fn family(ctx: &FiberContext, world: Res<World>, size: u32) -> anyhow::Result<String> {
    let mut sum = step!("first", world.calm(ctx.id(), 1).await?);
    let mut children = Vec::new();
    for n in 0..size {
        let (name, steps) = round::child(ctx.id(), n);
        children.push(spawn!(child(name, steps)));
    }
    for came in wait_all!(children) {
        sum = add(sum, came?);
    }
    let last = step!("last", world.calm(ctx.id(), 2).await?);
    Ok(add(sum, last).to_string())
}

/// Is cancelled before its children are done, unless the worker died before it could cancel it.
#[fiber(max_recoveries = 1_000_000)]
pub(crate) async fn doomed(ctx: &FiberContext, world: Res<World>) -> anyhow::Result<String> {
    step!("first", world.calm(ctx.id(), 1).await?);
    let mut children = Vec::new();
    for n in 0..2 {
        children.push(spawn!(child(round::child(ctx.id(), n).0, ENDLESS)));
    }
    wait_all!(children);
    Ok("spared".to_owned())
}

#[fiber(max_recoveries = 1_000_000)]
pub(crate) async fn child(ctx: &FiberContext, world: Res<World>, name: String, steps: u32) -> anyhow::Result<u64> {
    let mut sum = 0;
    for n in 1..=steps {
        let value = step!("work", {
            if n == 1 {
                world.write(&format!("born {name} {}", ctx.id()));
            }
            if steps == ENDLESS {
                tokio::time::sleep(Duration::from_millis(3)).await;
            }
            world.calm(&name, n).await?
        });
        sum = add(sum, value);
    }
    Ok(sum)
}
