//! Answers that are cut off after each event, by a connection that is lost and by the end of the process.
use std::collections::HashSet;

use forever_chat::message::{ToolState, UiMessage};
use forever_chat::model::ModelEvent;

use super::forms;
use super::place::{Place, ask, calls, log};
use super::provider::{Cut, How, events, provider, rounds};
use crate::support::Provider;
use crate::support::server::Server;
use forever_testkit::sizes::stride;
use forever_testkit::waiting::eventually;

/// All the places where an answer can be cut off, of which the gate takes every third one.
fn cuts(by: Provider, how: How) -> impl Iterator<Item = Cut> {
    let rounds = rounds(by).into_iter().enumerate();
    // After the last event it is whole.
    rounds.flat_map(move |(round, recorded)| (0..events(&recorded).len()).map(move |after| Cut { round, after, how })).step_by(stride(3))
}

/// How many chunks the events before the cut make, and whether the provider has said under which id it keeps them.
fn said(by: Provider, cut: Cut) -> (usize, bool) {
    let recorded = rounds(by)[cut.round];
    let events = events(&recorded);
    let told = |after: usize| recorded.read(events[..after].iter().map(Vec::as_slice), None);
    // One whose reason is known is ended by the end of the connection, which does not come if it is silent.
    let told = (0..=cut.after).rev().map(told).find(|told| told.end.is_err()).expect("it begins").events;
    (chunks(&told), told.iter().any(|event| matches!(event, ModelEvent::Response(_))))
}

fn chunks(told: &[ModelEvent]) -> usize {
    told.iter().filter(|event| matches!(event, ModelEvent::Chunk(_))).count()
}

/// What holds wherever an answer was cut off.
fn check(by: Provider, cut: Cut, place: &Place, server: &Server, message: &UiMessage) {
    let at = || format!("{by:?}, {cut:?}: {message:#?}\n{:#?}", server.asked());
    forms::check_all(by, &server.asked());
    let calls = calls(message);
    let ids: HashSet<_> = calls.iter().map(|(_, id, _)| *id).collect();
    assert_eq!(ids.len(), calls.len(), "an id is there twice: {}", at());
    assert!(calls.iter().all(|(.., state)| state.is_settled()), "a call is left open: {}", at());
    let mut done = 0;
    for tool in ["search", "now"] {
        let with_result = calls.iter().filter(|(name, _, state)| *name == tool && *state == ToolState::OutputAvailable).count();
        assert_eq!(place.ran(tool) as usize, with_result, "each call that was made has its result: {}", at());
        done += with_result;
    }
    assert!((1..=2).contains(&done), "something was done, and nothing twice: {}", at());
    let last = rounds(by)[1].whole().text();
    assert!(message.text().ends_with(&last), "it ends as it should: {}", at());
}

/// What the answer is when nothing happens, with the chunks of its log.
async fn undisturbed(by: Provider) -> (UiMessage, usize) {
    let (server, place) = (provider(by, None).await, Place::new());
    let (_forever, agent) = place.open::<0>(by, &server).await;
    let message = place.answer(&agent).await;
    (message, log(&ask(&agent).await).await.len())
}

async fn lost(by: Provider) {
    let (whole, _) = undisturbed(by).await;
    for cut in cuts(by, How::Lost) {
        let (server, place) = (provider(by, Some(cut)).await, Place::new());
        let (_forever, agent) = place.open::<0>(by, &server).await;
        let message = place.answer(&agent).await;
        check(by, cut, &place, &server, &message);
        check_fetched(by, cut, &server, &message, &whole);
    }
}

/// A provider that keeps its answers is not asked for one a second time, and the answer is what it would have been.
fn check_fetched(by: Provider, cut: Cut, server: &Server, message: &UiMessage, whole: &UiMessage) {
    let (chunks, kept) = said(by, cut);
    // A process that ends before anything was shown may not have come to know the id.
    if by != Provider::Responses || !kept || (chunks == 0 && cut.how == How::Silent) {
        return;
    }
    let (anew, fetched) = ("POST /v1/responses", ["GET /v1/responses/resp_tools_01", "GET /v1/responses/resp_text_01"]);
    let lines = if cut.round == 0 { [anew, fetched[0], anew] } else { [anew, anew, fetched[1]] };
    assert_eq!(server.lines(), lines, "{cut:?}");
    assert_eq!(message.parts, whole.parts, "{cut:?}");
}

async fn killed(by: Provider) {
    let (whole, length) = undisturbed(by).await;
    let last = chunks(&rounds(by)[1].whole().events);
    for cut in cuts(by, How::Silent) {
        let (server, place) = (provider(by, Some(cut)).await, Place::new());
        // What is before the answer in the log, and what of it has come.
        let before = if cut.round == 0 { 2 } else { length - last - 2 };
        let shown = before + said(by, cut).0;
        let (forever, agent) = place.open::<0>(by, &server).await;
        let turn = ask(&agent).await;
        eventually("the cut", async || log(&turn).await.len() >= shown && server.asked().len() > cut.round).await;
        let before = log(&turn).await;
        drop((turn, agent, forever));
        let (_forever, agent) = place.open::<0>(by, &server).await;
        let message = place.answer(&agent).await;
        let after = log(&ask(&agent).await).await;
        assert!(after.starts_with(&before), "what was shown stays: {by:?}, {cut:?}");
        check(by, cut, &place, &server, &message);
        check_fetched(by, cut, &server, &message, &whole);
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_responses_that_is_lost_anywhere_is_fetched_and_not_asked_for_again() {
    lost(Provider::Responses).await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_completions_that_is_lost_anywhere_goes_on() {
    lost(Provider::Completions).await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_anthropic_that_is_lost_anywhere_goes_on() {
    lost(Provider::Anthropic).await;
}

#[tokio::test(start_paused = true)]
async fn a_process_that_ends_anywhere_in_responses_fetches_the_rest() {
    killed(Provider::Responses).await;
}

#[tokio::test(start_paused = true)]
async fn a_process_that_ends_anywhere_in_completions_goes_on() {
    killed(Provider::Completions).await;
}

#[tokio::test(start_paused = true)]
async fn a_process_that_ends_anywhere_in_anthropic_goes_on() {
    killed(Provider::Anthropic).await;
}
