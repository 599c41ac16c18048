//! An agent that talks, with two tools, each of its chunks a write.
use std::sync::Arc;
use std::time::Duration;

use forever::Forever;
use forever::chat::message::UiMessage;
use forever::prelude::*;
use forever::testing::crash_everywhere;
use forever_testkit::sizes;

use super::talkative_model::{BOOKED, UNKNOWN};
use super::{BOOKINGS, Concierge, QUESTION, builder};

#[tokio::test]
async fn an_evening_is_booked_once_or_the_person_is_told() {
    let survived = crash_everywhere(
        |world| {
            let place: Arc<tempfile::TempDir> = Arc::clone(&world.shared::<Place>().0);
            builder(place.path()).in_memory().clock(world.clock()).resource(place).turn_batching(1, Duration::ZERO)
        },
        async |forever: Forever| {
            let concierge = forever.agent::<Concierge>("table 7");
            let turn = concierge.save_messages([UiMessage::user("question", QUESTION)]).id("evening").await.unwrap();
            assert!(turn.wait().await.unwrap().is_completed());
            let answer = concierge.messages().await.unwrap().pop().unwrap().text();
            assert!(answer.ends_with(BOOKED) || answer.ends_with(UNKNOWN), "{answer}");
            answer.starts_with("Let me look what the evening will be like.It will be clear, so you can. I will book.")
        },
    )
    .crash_randomly(1, sizes::crashes(60))
    .at_most(sizes::at_most(12))
    .may_go_other_ways()
    .await
    .unwrap();
    assert!(survived.outcome);
}

/// The folder of one world.
#[derive(Clone)]
struct Place(Arc<tempfile::TempDir>);

impl Default for Place {
    fn default() -> Self {
        Place(Arc::new(tempfile::tempdir().unwrap()))
    }
}

impl Drop for Place {
    /// The last look at it: a table that was booked twice would be seen here.
    fn drop(&mut self) {
        if let Ok(booked) = std::fs::read_to_string(self.0.path().join(BOOKINGS)) {
            assert!(booked.lines().count() <= 1, "booked {booked}");
        }
    }
}
