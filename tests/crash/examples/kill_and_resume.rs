//! A short day in the warehouse.
use forever::Forever;
use forever::testing::crash_everywhere;

use super::work::{Desk, in_one_go};
use super::{JOURNAL, KEY, warehouse};

#[tokio::test]
async fn the_orders_of_a_day_are_sent_out() {
    let (steps, seed) = (8, 1);
    let survived = crash_everywhere(
        |world| {
            let database = world.database();
            let desk = Desk::open(&database.with_file_name(JOURNAL), usize::MAX).unwrap();
            Forever::builder().sqlite(database).resource(desk).fiber::<warehouse>()
        },
        async |forever: Forever| forever.spawn(warehouse(steps, seed)).key(KEY).await.unwrap().wait().await.unwrap(),
    )
    .await
    .unwrap();
    assert_eq!(survived.outcome, in_one_go(steps, seed).0);
}
