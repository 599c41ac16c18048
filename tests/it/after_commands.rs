//! What is answered after a command, in one process: see [`rounds`].
use forever_testkit::database;
use forever_testkit::waiting::DEADLINE;

pub(crate) mod rounds;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_wait_answers_with_what_a_command_has_changed() {
    let (world, mut met) = (rounds::World::default(), rounds::Met::default());
    let folder = tempfile::tempdir().unwrap();
    let open = || rounds::builder(&world).sqlite(folder.path().join("rounds.db")).wait_for_lock(DEADLINE).open();
    let forever = open().await.unwrap();
    rounds::leave_interrupted(&forever, &world).await;
    drop(forever);
    let forever = open().await.unwrap();
    rounds::every_command_to_interrupted(&forever, &forever, &mut met).await;
    rounds::every_combination(&forever, &forever, &world, &mut met, rounds::rounds()).await;
    println!("{}:\n{met}", if database::is_in_postgres() { "Postgres" } else { "SQLite" });
    forever.close().await.unwrap();
}
