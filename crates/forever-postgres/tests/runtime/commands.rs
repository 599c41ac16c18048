//! Commands of one worker, and waits in another.
use std::time::Duration;

use crate::{cluster, store};

#[path = "../../../../tests/it/after_commands/rounds.rs"]
mod rounds;

/// Shorter than anything waits: the session of a worker shows that it lives.
const LEASE: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_wait_answers_with_what_a_command_of_another_worker_has_changed() {
    let Some(url) = cluster::url() else { return };
    let (world, mut met) = (rounds::World::default(), rounds::Met::default());
    let schema = cluster::schema();
    let open = async || rounds::builder(&world).store(store(&url, &schema, LEASE).await).open().await.unwrap();
    let dies = open().await;
    rounds::leave_interrupted(&dies, &world).await;
    drop(dies);
    let (waits, commands) = (open().await, open().await);
    rounds::every_command_to_interrupted(&waits, &commands, &mut met).await;
    rounds::every_combination(&waits, &commands, &world, &mut met, rounds::rounds()).await;
    println!("{met}");
    waits.close().await.unwrap();
    commands.close().await.unwrap();
}
