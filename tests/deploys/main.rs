//! Rolling deploys in [`forever::testing::cluster`]: workers close while others run, busy ones take
//! long between two calls of the store, some are idle, and clocks are wrong.
use std::time::Duration;

use forever::Builder;
use forever::ops::Op;
use forever::prelude::*;
use forever::testing::{Cluster, Interleavings, World, cluster};

/// How many times as many seeds there are as usual: `FOREVER_CRASHES`.
fn seeds(usual: u32) -> u32 {
    usual * std::env::var("FOREVER_CRASHES").map_or(1, |text| text.parse::<u32>().expect("FOREVER_CRASHES"))
}

/// Jobs of a run.
const JOBS: u64 = 8;

/// Rounds of a job.
const ROUNDS: u64 = 6;

const SHORT: Duration = Duration::from_millis(40);

/// A step that stores how far it has come, and takes its time.
async fn count(world: &World, op: &Op) -> anyhow::Result<u64> {
    let mut done: u64 = op.stashed()?.unwrap_or_default();
    while done < 3 {
        tokio::time::sleep(SHORT).await;
        done += 1;
        op.stash(&done).await?;
        world.attempt(format!("part {done}"));
    }
    Ok(done)
}

/// Takes a time that `n` decides.
async fn slow(world: &World, what: &str, n: u64) -> u64 {
    tokio::time::sleep(SHORT * u32::try_from(n % 4).unwrap()).await;
    world.attempt(format!("{what} {n}"));
    n
}

/// A charge of a bank that cannot tell a second one from the first.
async fn charge(world: &World, of: &str, n: u64) -> u64 {
    world.effect(format!("{of} {n}"));
    tokio::time::sleep(SHORT / 2).await;
    n
}

/// Advances a step or two, waits, and is woken at once.
#[fiber]
async fn job(world: Res<World>, number: u64) -> anyhow::Result<u64> {
    let mut sum = 0;
    for round in 0..ROUNDS {
        let n = number * 10 + round;
        sum += step!("first", slow(&world, "first", n).await);
        sleep!(SHORT / 4);
        match round % 3 {
            0 => sum += step!("charge", effect, charge(&world, "charge", n).await),
            1 => {
                let (left, right) = steps!(slow(&world, "left", n).await, step!("right", effect, charge(&world, "right", n).await));
                sum += left + right;
            }
            _ => sum += step!("count", |op| count(&world, op).await?),
        }
        let more: u64 = recv!("more");
        sum += more;
    }
    Ok(sum)
}

fn shop(world: &World) -> Builder {
    Forever::builder().resource(world.clone()).fiber::<job>()
}

/// Starts the jobs, and sends each what it waits for as soon as it can.
async fn deploy(forever: Forever) -> Vec<u64> {
    for number in 0..JOBS {
        forever.spawn(job(number)).id(format!("job {number}")).await.unwrap();
    }
    for round in 0..ROUNDS {
        for number in 0..JOBS {
            let id = format!("job {number}");
            // One that has ended needs none.
            let sent = forever.send(&id, "more", &round).message_id(format!("more {round}")).await;
            if let Err(error) = sent {
                assert!(error.is_invalid_state(), "{error}");
            }
        }
        tokio::time::sleep(SHORT * 2).await;
    }
    let mut sums = Vec::new();
    for number in 0..JOBS {
        sums.push(forever.fiber::<job>(&format!("job {number}")).wait().await.unwrap());
    }
    sums
}

/// Ten deploys of four workers, of which one is idle.
fn series(seed: u64) -> Cluster {
    cluster(seed, 4).idle(1).deploys(10)
}

#[track_caller]
fn are_met(met: Interleavings) {
    println!("{met:?}");
    assert!(met.overtaken > 0 && met.advanced_and_woken > 0 && met.stored_and_released > 0 && met.claims_refused > 0, "{met:?}");
}

#[test]
fn nothing_finished_is_carried_out_again_in_clean_rolling_deploys() {
    are_met(series(1).seeds(seeds(100)).without_faults().run(shop, deploy).unwrap().met);
}
