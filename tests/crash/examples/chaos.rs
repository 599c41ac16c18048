//! The fibers of the chaos program, one at a time, with its bank and its log.
use std::sync::Mutex;

use forever::fiber::Fiber;
use forever::testing::{World as Outside, crash_everywhere};
use forever::{Builder, Forever};
use forever_testkit::sizes;

use super::fibers::{chain, child, family, nested, notes, side, sleeper};
use super::money::{self, BOOKINGS, booking, by_check, by_fail, by_hand, by_park, by_retry};
use super::world::{Mishaps, World};

/// The bank and the log of a run: in its folder, and read again by each process.
fn world(of: &Outside) -> World {
    World::open(of.database().parent().unwrap(), 1, 1, Mishaps::default(), false).unwrap()
}

fn builder(of: &Outside, world: &World) -> Builder {
    let builder = Forever::builder().in_memory().clock(of.clock()).resource(world.clone()).migration("bookings", BOOKINGS);
    let builder = builder.fiber::<chain>().fiber::<nested>().fiber::<side>().fiber::<notes>().fiber::<sleeper>();
    let builder = builder.fiber::<family>().fiber::<child>().fiber::<booking>().fiber::<by_retry>().fiber::<by_check>();
    builder.fiber::<by_park>().fiber::<by_fail>().fiber::<by_hand>()
}

/// Whatever it takes to its end: an operator looks into what is parked.
async fn comes_through<F: Fiber<Output = String>>(call: impl Fn() -> F, same_way: bool) {
    let here = Mutex::new(None);
    let test = crash_everywhere(
        |of| {
            let world = world(of);
            *here.lock().unwrap() = Some(world.clone());
            builder(of, &world)
        },
        async |forever: Forever| {
            let world = here.lock().unwrap().clone().unwrap();
            let handle = forever.spawn(call()).id("f").await.unwrap();
            loop {
                match handle.wait().await {
                    Err(stopped) if stopped.is_parked() => assert!(money::look_into(&forever, &world, "f").await.unwrap() > 0, "{stopped}"),
                    ended => break ended.unwrap(),
                }
            }
        },
    );
    let test = if same_way { test } else { test.may_go_other_ways() };
    test.crash_randomly(1, sizes::crashes(20)).at_most(sizes::at_most(12)).await.unwrap();
}

#[tokio::test]
async fn fibers_of_steps_waits_and_children() {
    comes_through(|| chain(4), true).await;
    comes_through(|| nested(3), true).await;
    comes_through(|| side(4), true).await;
    comes_through(|| notes(3), true).await;
    comes_through(|| sleeper(2), true).await;
    comes_through(|| family(2), true).await;
}

#[tokio::test]
async fn fibers_with_effects() {
    comes_through(by_retry, true).await;
    comes_through(by_check, true).await;
    comes_through(by_park, true).await;
    comes_through(by_fail, false).await;
    comes_through(|| by_hand(2), true).await;
    comes_through(|| booking(3), true).await;
}
