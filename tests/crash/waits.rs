//! Fibers that wait, and that have children, come through the end of their process at every write.
use std::time::Duration;

use forever::Clock;
use forever::fiber::{FiberErrorKind, FiberState};
use forever::prelude::*;
use forever::testing::World;
use forever_testkit::waiting::eventually;

use crate::kinds::{comes_through, noted};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

#[fiber]
async fn sleeps(world: Res<World>) -> anyhow::Result<Vec<u64>> {
    let begun = step!("begun", day(&world));
    let mut days = Vec::new();
    for n in 1..=2 {
        sleep!(DAY * n);
        days.push(step!("woken", day(&world) - begun));
    }
    Ok(days)
}

fn day(world: &World) -> u64 {
    let since = world.clock().now().duration_since(std::time::UNIX_EPOCH).unwrap();
    since.as_secs() / DAY.as_secs()
}

#[tokio::test]
async fn a_sleep_of_days_ends_when_it_is_over() {
    let setup = |w: &World| Forever::builder().clock(w.clock()).resource(w.clone()).fiber::<sleeps>();
    let survived =
        comes_through(setup, async |forever: Forever| forever.spawn(sleeps()).key("k").await.unwrap().wait().await.unwrap()).await;
    assert_eq!(survived.outcome, [1, 3]);
}

/// Hears words by number, until it has all of them or nobody speaks for a day; whoever sends may not know what has arrived, and sends it again.
#[fiber]
async fn listens(world: Res<World>, of: usize) -> anyhow::Result<Vec<String>> {
    let mut heard = vec![];
    while heard.len() < of {
        let word: Option<(usize, String)> = recv!("word", timeout = DAY);
        let Some((n, word)) = word else { break };
        if n == heard.len() {
            heard.push(step!("heard", word.to_uppercase()));
            noted(&world, "heard", n as u64);
        }
    }
    Ok(heard)
}

#[tokio::test]
async fn messages_are_heard_in_their_order_and_none_is_lost() {
    let setup = |w: &World| Forever::builder().clock(w.clock()).resource(w.clone()).fiber::<listens>();
    let survived = comes_through(setup, async |forever: Forever| {
        let handle = forever.spawn(listens(3)).id("listener").await.unwrap();
        for numbered in ["one", "two", "three"].iter().enumerate() {
            // It hears no more when it has heard all.
            let _ = forever.send(handle.id(), "word", &numbered).await;
        }
        handle.wait().await.unwrap()
    })
    .await;
    assert_eq!(survived.outcome, ["ONE", "TWO", "THREE"]);
}

#[tokio::test]
async fn a_wait_for_a_message_ends_with_its_time() {
    let setup = |w: &World| Forever::builder().clock(w.clock()).resource(w.clone()).fiber::<listens>();
    let survived = comes_through(setup, async |forever: Forever| {
        let handle = forever.spawn(listens(2)).id("listener").await.unwrap();
        let _ = forever.send(handle.id(), "word", &(0, "one")).await;
        handle.wait().await.unwrap()
    })
    .await;
    assert_eq!(survived.outcome, ["ONE"]);
}

#[fiber]
async fn parent(world: Res<World>, names: Vec<String>) -> anyhow::Result<Vec<String>> {
    let mut children = Vec::new();
    for name in names {
        let letters = step!("count", noted(&world, &name, name.len() as u64));
        children.push(spawn!(child(name, letters)));
    }
    let first = wait!(children.remove(0))?;
    let mut all = vec![first];
    for ended in wait_all!(children) {
        all.push(match ended {
            Ok(name) => name,
            Err(error) => error.reason().to_owned(),
        });
    }
    Ok(all)
}

#[fiber]
async fn child(world: Res<World>, name: String, letters: u64) -> anyhow::Result<String> {
    noted(&world, &format!("entered {name}"), letters);
    if letters == 4 {
        anyhow::bail!("{name} does not come");
    }
    let loud = step!("loud", name.to_uppercase());
    sleep!(DAY);
    Ok(step!("twice", loud.repeat(2)))
}

#[tokio::test]
async fn children_are_made_once_and_waited_for() {
    let setup = |w: &World| Forever::builder().clock(w.clock()).resource(w.clone()).fiber::<parent>().fiber::<child>();
    let survived = comes_through(setup, async |forever: Forever| {
        let names = ["ada", "jean", "grace"].map(str::to_owned).to_vec();
        forever.spawn(parent(names)).key("family").await.unwrap().wait().await.unwrap()
    })
    .await;
    assert_eq!(survived.outcome, ["ADAADA", "jean does not come", "GRACEGRACE"]);
}

#[fiber]
async fn sits(world: Res<World>) -> anyhow::Result<()> {
    noted(&world, "sits down", 1);
    let below = spawn!(child("below".to_owned(), 5));
    sleep!(1000 * DAY);
    wait!(below)?;
    Ok(())
}

#[tokio::test]
async fn a_cancel_reaches_everything_below() {
    let setup = |w: &World| Forever::builder().resource(w.clone()).fiber::<sits>().fiber::<child>();
    let survived = comes_through(setup, async |forever: Forever| {
        let handle = forever.spawn(sits()).id("sitter").await.unwrap();
        // Until both wait: what is cancelled earlier ends at another place.
        let waiting = async || forever.fibers().state(FiberState::Waiting).await.unwrap().fibers.len();
        let is_over = async || handle.status().await.unwrap().state.is_final();
        eventually("both wait", async || waiting().await >= 2 || is_over().await).await;
        // It may have been told before the process died.
        let _ = handle.cancel("enough").await;
        let error = handle.wait().await.unwrap_err();
        (error.kind() == FiberErrorKind::Cancelled, error.reason().to_owned())
    })
    .await;
    assert_eq!(survived.outcome, (true, "enough".to_owned()));
}
