//! Silence that is a stall, and silence that is none.
use std::time::Duration;

use forever_testkit::waiting::eventually;
use serde_json::json;
use tokio::sync::oneshot;

use super::place::{Place, ask, log};
use super::provider::{Cut, How, events, provider, rounds};
use crate::support::Provider;
use crate::support::server::{Reply, Server};

/// More than the model may be silent, and less than one look at a stored answer may take.
const LONG: Duration = Duration::from_secs(20);

/// What is shown of an answer before it falls silent, behind `start` and `start-step`.
const SHOWN: usize = 5;

fn plain(status: u16, body: String) -> Reply {
    Reply::Plain(status, "content-type: application/json\r\n", body)
}

/// The first answer of Responses, which falls silent after a while.
fn falls_silent() -> Reply {
    Reply::Silent(events(&rounds(Provider::Responses)[0])[..12].to_vec(), oneshot::channel().0)
}

fn whole(round: usize) -> Reply {
    Reply::Stream(events(&rounds(Provider::Responses)[round]))
}

/// A process that ends while the first answer comes.
async fn ends_in_the_middle(place: &Place, server: &Server) {
    let (forever, agent) = place.open::<5>(Provider::Responses, server).await;
    let turn = ask(&agent).await;
    eventually("the beginning of an answer", async || log(&turn).await.len() >= SHOWN).await;
    drop((turn, agent, forever));
}

#[tokio::test(start_paused = true)]
async fn a_model_that_falls_silent_is_interrupted_and_goes_on() {
    let cut = Cut { round: 0, after: 2, how: How::Silent };
    let (server, place) = (provider(Provider::Completions, Some(cut)).await, Place::new());
    let (_forever, agent) = place.open::<5>(Provider::Completions, &server).await;
    let turn = ask(&agent).await;
    eventually("the beginning of an answer", async || log(&turn).await.len() >= 4).await;
    place.clock.advance(LONG);
    let message = place.answer(&agent).await;
    assert_eq!((place.recoveries(), server.asked().len()), (1, 3));
    assert!(message.text().starts_with("Two calls.Two calls."), "{message:?}");
}

#[tokio::test(start_paused = true)]
async fn a_tool_takes_as_long_as_it_takes() {
    let (server, place) = (provider(Provider::Completions, None).await, Place::new());
    place.tools_may_end.send_replace(false);
    let (_forever, agent) = place.open::<5>(Provider::Completions, &server).await;
    let turn = ask(&agent).await;
    eventually("the tool", async || place.ran("search") == 1).await;
    place.clock.advance(LONG);
    // Whoever watches has been told.
    turn.entries().await.expect("they can be read");
    place.tools_may_end.send_replace(true);
    place.answer(&agent).await;
    assert_eq!((place.recoveries(), server.asked().len()), (0, 2));
}

#[tokio::test(start_paused = true)]
async fn a_stored_answer_that_is_still_being_written_is_no_stall() {
    let mut replies = vec![falls_silent()];
    for _ in 0..2 {
        replies.push(plain(200, json!({ "id": "resp_tools_01", "status": "in_progress", "output": [] }).to_string()));
    }
    replies.push(plain(200, include_str!("../recorded/responses-tools.stored.json").to_owned()));
    replies.push(whole(1));
    let (server, place) = (Server::with(replies).await, Place::new());
    ends_in_the_middle(&place, &server).await;
    let (_forever, agent) = place.open::<5>(Provider::Responses, &server).await;
    for looks in 1..=2 {
        eventually("the next look", async || server.asked().len() == 1 + looks).await;
        place.clock.advance(LONG);
    }
    let message = place.answer(&agent).await;
    assert_eq!(message.text(), format!("I look both up.{}", rounds(Provider::Responses)[1].whole().text()));
    assert_eq!((place.recoveries(), server.asked().len()), (1, 5), "taken up once, when the process had ended");
}

#[tokio::test(start_paused = true)]
async fn a_model_that_is_asked_anew_in_place_of_a_stored_answer_is_watched_like_any_other() {
    let gone = || plain(404, r#"{"error":{"message":"There is no such response."}}"#.to_owned());
    let silent = Reply::Silent(Vec::new(), oneshot::channel().0);
    let replies = vec![falls_silent(), gone(), silent, gone(), whole(0), whole(1)];
    let (server, place) = (Server::with(replies).await, Place::new());
    ends_in_the_middle(&place, &server).await;
    let (_forever, agent) = place.open::<5>(Provider::Responses, &server).await;
    eventually("the question", async || server.asked().len() == 3).await;
    place.clock.advance(LONG);
    place.answer(&agent).await;
    assert_eq!((place.recoveries(), server.asked().len()), (2, 6));
}
