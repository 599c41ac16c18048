//! Programs that do not come through, and what they are told.
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forever::Builder;
use forever::fiber::{FiberFilter, FiberState};
use forever::prelude::*;
use forever::testing::{World, crash_everywhere};

/// What a program is told that does not come through.
async fn account<R: std::fmt::Debug + PartialEq>(setup: impl Fn(&World) -> Builder, call: impl AsyncFn(Forever) -> R) -> String {
    let failure = crash_everywhere(setup, call).await.unwrap_err();
    assert_eq!(failure.to_string(), format!("{failure:?}"), "`unwrap` shows it as a person reads it");
    failure.to_string()
}

#[track_caller]
fn says(account: &str, what: &[&str]) {
    for line in what {
        assert!(account.contains(line), "`{line}` is not in:\n{account}");
    }
}

#[fiber]
async fn charges_in_a_step(world: Res<World>, cents: u64) -> anyhow::Result<u64> {
    let price = step!("price", cents * 2);
    step!("charge", world.effect(format!("charge of {price}")));
    Ok(price)
}

fn charging(world: &World) -> Builder {
    Forever::builder().in_memory().resource(world.clone()).fiber::<charges_in_a_step>()
}

#[tokio::test]
async fn an_effect_in_a_plain_step_comes_twice() {
    let account =
        account(charging, async |forever: Forever| forever.spawn(charges_in_a_step(100)).id("order").await.unwrap().wait().await.unwrap())
            .await;
    // Opening writes twice; then it is accepted, "price", "charge".
    let expected = r#"it does not come through
  process 1 ended before write 5
  process 2 was left alone, and made 7 writes

other than in a run that nothing interrupted:
  the effect `charge of 200` came twice, and not once

the write was: store a checkpoint
  before it:
    charges_in_a_step{"cents":100} `order` is running after checkpoint 1, `price`
      {"at":"price","locals":{"price":200},"call":null}
  after it:
    charges_in_a_step{"cents":100} `order` is running after checkpoint 2, `charge`
      {"at":"charge","locals":{"price":200},"call":null}

at the end:
    charges_in_a_step{"cents":100} `order` is completed: 200
"#;
    assert_eq!(account, expected);
}

#[tokio::test]
async fn a_call_without_a_key_starts_a_second_fiber() {
    let account = account(charging, async |forever: Forever| forever.run(charges_in_a_step(100)).await.unwrap()).await;
    says(
        &account,
        &["process 1 ended after write 3\n", "the effect `charge of 200` came twice, and not once", "more: fiber charges_in_a_step"],
    );
}

#[fiber]
async fn looks_at_the_clock(world: Res<World>) -> anyhow::Result<u64> {
    let lives: std::sync::Arc<AtomicU64> = world.shared();
    Ok(lives.load(Ordering::Relaxed))
}

fn counting_lives(world: &World) -> Builder {
    world.shared::<std::sync::Arc<AtomicU64>>().fetch_add(1, Ordering::Relaxed);
    Forever::builder().in_memory().resource(world.clone()).fiber::<looks_at_the_clock>()
}

#[tokio::test]
async fn what_depends_on_the_process_is_another_outcome() {
    let account =
        account(counting_lives, async |forever: Forever| forever.spawn(looks_at_the_clock()).id("f").await.unwrap().wait().await.unwrap())
            .await;
    says(&account, &["process 1 ended before write 1\n", "the outcome is not the same\n    expected: 2\n    came:     3"]);
}

#[tokio::test]
async fn a_program_that_is_not_the_same_twice_cannot_be_compared() {
    let n = AtomicU64::new(0);
    let account = account(charging, async |_| n.fetch_add(1, Ordering::Relaxed)).await;
    says(&account, &["two runs that nothing interrupts are not the same", "expected: 0\n    came:     1"]);
}

#[fiber]
async fn adds(numbers: Vec<u64>) -> anyhow::Result<u64> {
    let mut sum = 0;
    for number in numbers {
        sum += step!("add", number);
    }
    Ok(step!("double", sum * 2))
}

#[tokio::test]
async fn a_program_that_begins_anew_repeats_finished_steps() {
    let setup = |_: &World| Forever::builder().in_memory().fiber::<adds>();
    let account = account(setup, async |forever: Forever| {
        let handle = forever.spawn(adds(vec![1, 2])).id("sum").await.unwrap();
        if !handle.accepted() {
            handle.wait().await.unwrap();
            forever.delete(FiberFilter::new().state(FiberState::Completed).forget_keys()).await.unwrap();
            return forever.spawn(adds(vec![1, 2])).id("sum").await.unwrap().wait().await.unwrap();
        }
        handle.wait().await.unwrap()
    })
    .await;
    says(
        &account,
        &["a finished step was repeated\n    `double` of fiber adds{\"numbers\":[1,2]} was begun twice, where the deaths account for once"],
    );
}

#[tokio::test]
async fn what_hangs_is_told_after_a_while() {
    let hangs = crash_everywhere(charging, async |_: Forever| std::future::pending::<()>().await);
    let failure = hangs.patience(Duration::from_millis(500)).await.unwrap_err();
    says(&failure.to_string(), &["it does not come to its end even if nothing interrupts it: it has not come to its end after 500ms"]);
}

#[tokio::test]
async fn what_panics_after_a_death_is_told_with_the_death() {
    let account = account(charging, async |forever: Forever| {
        let handle = forever.spawn(charges_in_a_step(100)).id("order").await.unwrap();
        assert!(handle.accepted(), "nobody thought of this");
        handle.wait().await.unwrap()
    })
    .await;
    says(&account, &["process 1 ended after write 3\n", "came:     it panicked: nobody thought of this"]);
}

#[tokio::test]
async fn each_run_needs_a_file_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.db");
    let account = account(|world| charging(world).sqlite(&path), async |_| ()).await;
    says(&account, &["each run needs a file of its own: give `.sqlite(world.database())`"]);
    assert!(!path.exists());
}

/// Comes through one death, but not through two.
#[fiber]
async fn counts_on_one_death(world: Res<World>) -> anyhow::Result<u64> {
    for n in 0..4u64 {
        step!("work", {
            // Counted outside of the fiber: a local would go back to what it was at the last checkpoint.
            let tries: std::sync::Arc<AtomicU64> = world.shared();
            if tries.fetch_add(1, Ordering::Relaxed) >= 5 {
                anyhow::bail!("too often");
            }
            n
        });
    }
    Ok(1)
}

#[tokio::test]
async fn a_random_failure_is_told_with_as_few_deaths_as_it_takes() {
    let setup = |world: &World| Forever::builder().in_memory().resource(world.clone()).fiber::<counts_on_one_death>();
    let call = async |forever: Forever| {
        let handle = forever.spawn(counts_on_one_death()).id("f").await.unwrap();
        handle.wait().await.map_err(|error| error.reason().to_owned())
    };
    crash_everywhere(setup, call).await.unwrap();
    let failure = crash_everywhere(setup, call).crash_randomly(5, 400).await.unwrap_err();
    says(&failure.to_string(), &["process 3 was left alone", "came:     Err(\"too often\")"]);
    assert!(!failure.to_string().contains("process 4"), "{failure}");
}
