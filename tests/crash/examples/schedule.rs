//! A cake that is due after three seconds, with a clock and a spoon that never stop.
use std::sync::{Arc, Mutex};
use std::time::Duration;

use forever::Forever;
use forever::testing::crash_everywhere;
use forever_testkit::waiting::eventually;
use tokio::sync::Notify;

use super::Kitchen;

#[tokio::test]
async fn the_cake_is_never_forgotten() {
    let oven = Mutex::new(Arc::new(Notify::new()));
    crash_everywhere(
        |world| {
            let cake = Arc::new(Notify::new());
            *oven.lock().unwrap() = Arc::clone(&cake);
            Forever::builder().in_memory().clock(world.clock()).agent(move |me| Kitchen { me, cake: Arc::clone(&cake) })
        },
        async |forever: Forever| {
            let cake = Arc::clone(&oven.lock().unwrap());
            let kitchen = forever.agent::<Kitchen>("kitchen");
            kitchen.wake().await.unwrap();
            kitchen.schedule(Duration::from_secs(3), "cake", ()).idempotent(true).await.unwrap();
            cake.notified().await;
            // It may have been the one that an earlier life has asked for, and this one's is still to come.
            let schedules = async || kitchen.schedules().await.unwrap();
            eventually("the last cake", async || schedules().await.iter().all(|there| there.name() != "cake")).await;
        },
    )
    .await
    .unwrap();
}
