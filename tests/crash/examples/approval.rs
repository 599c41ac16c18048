//! A refund that a person approves, and one that nobody looks at for three days.
use forever::Forever;
use forever::testing::crash_everywhere;
use forever_testkit::sizes;

use super::{Approval, Refund, refund};

#[tokio::test]
async fn refunds_are_paid_once_or_expire() {
    let survived = crash_everywhere(
        |world| Forever::builder().in_memory().clock(world.clock()).fiber::<refund>(),
        async |forever: Forever| {
            let ada = forever.spawn(refund("Ada".into(), 4200)).id("ada").await.unwrap();
            let grace = forever.spawn(refund("Grace".into(), 999)).id("grace").await.unwrap();
            // Said again after a death, when the refund may be over.
            let _ = forever.send("ada", "approval", &Approval { by: "Charles".into(), granted: true }).await;
            (ada.wait().await.unwrap(), grace.wait().await.unwrap())
        },
    )
    .crash_randomly(1, sizes::crashes(100))
    .await
    .unwrap();
    assert_eq!(survived.outcome, (Refund::Paid, Refund::Expired));
}
