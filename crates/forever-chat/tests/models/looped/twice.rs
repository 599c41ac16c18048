//! An answer that is cut off twice, the second time after it was asked for anew: each answer of the provider is told apart in the one text.
use forever_chat::message::{Part, ToolState};

use super::forms;
use super::place::{Place, calls};
use super::provider::{events, rounds};
use crate::support::Provider;
use crate::support::server::{Reply, Server};

/// The answer with text under other ids, as a provider gives it that is asked anew.
fn another(text: &str) -> String {
    text.replace("resp_text_01", "resp_text_02").replace("msg_text_01", "msg_text_02")
}

#[tokio::test(start_paused = true)]
async fn text_that_was_asked_for_anew_and_cut_off_is_fetched_without_what_was_there_before() {
    let [tools, text] = rounds(Provider::Responses);
    let begun = events(&text);
    let anew: Vec<Vec<u8>> = begun.iter().map(|event| another(std::str::from_utf8(event).expect("it is text")).into_bytes()).collect();
    let json = |status, body: String| Reply::Plain(status, "content-type: application/json\r\n", body);
    // Up to where the id is known, and further and further into the text.
    for after in [2, 4, 5, 8, 12, 17, 18, 20] {
        let replies = vec![
            Reply::Stream(events(&tools)),
            Reply::Cut(begun[..9].to_vec()),
            json(404, r#"{"error":{"message":"There is no such response."}}"#.to_owned()),
            Reply::Cut(anew[..after].to_vec()),
            json(200, another(include_str!("../recorded/responses-text.stored.json"))),
        ];
        let (server, place) = (Server::with(replies).await, Place::new());
        let (_forever, agent) = place.open::<0>(Provider::Responses, &server).await;
        let message = place.answer(&agent).await;
        forms::check_all(Provider::Responses, &server.asked());
        let last = message.parts.iter().rev().find_map(Part::as_text).expect("there is text");
        let first = text.read(begun[..9].iter().map(Vec::as_slice), None).text();
        assert!(first.len() > 10);
        assert_eq!(last, format!("{first}{}", text.whole().text()), "cut off after {after}");
        let lines: Vec<String> = server.lines().split_off(2);
        assert_eq!(lines, ["GET /v1/responses/resp_text_01", "POST /v1/responses", "GET /v1/responses/resp_text_02"]);
    }
}

/// With other ids as well.
fn another_with_calls(event: &[u8]) -> Vec<u8> {
    let text = std::str::from_utf8(event).expect("it is text").replace("_tools_01", "_tools_03").replace("_tools_02", "_tools_04");
    text.replace("call_Tool", "call_Other").into_bytes()
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_input_nobody_has_any_more_is_settled_and_the_ones_that_are_made_instead_are_made() {
    let [tools, text] = rounds(Provider::Responses);
    let begun = events(&tools);
    let gone = r#"{"error":{"message":"There is no such response."}}"#.to_owned();
    let replies = vec![
        // In the middle of the first call's input.
        Reply::Cut(begun[..26].to_vec()),
        Reply::Plain(404, "content-type: application/json\r\n", gone),
        Reply::Stream(begun.iter().map(|event| another_with_calls(event)).collect()),
        Reply::Stream(events(&text)),
    ];
    let (server, place) = (Server::with(replies).await, Place::new());
    let (_forever, agent) = place.open::<0>(Provider::Responses, &server).await;
    let message = place.answer(&agent).await;
    forms::check_all(Provider::Responses, &server.asked());
    let made = ToolState::OutputAvailable;
    let expected = [("search", "call_Tool01", ToolState::OutputError), ("search", "call_Other01", made), ("search", "call_Other02", made)];
    assert_eq!(calls(&message), expected);
    assert_eq!((place.ran("search"), server.asked().len()), (2, 4));
}
