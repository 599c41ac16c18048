//! The loop of model and tools over each of the providers, with the whole runtime.
mod forms;
mod interrupted;
mod place;
mod provider;
mod silent;
mod twice;

use serde_json::Value;

use crate::support::Provider;
use crate::support::server::Server;
use place::{Place, ask, calls, log};
use provider::provider;

/// The name of a snapshot.
fn name(by: Provider, what: &str) -> String {
    format!("{}-{what}", format!("{by:?}").to_lowercase())
}

/// What a provider is told in its second request, and what is stored of both answers.
async fn round(by: Provider) {
    let server: Server = provider(by, None).await;
    let place = Place::new();
    let (_forever, agent) = place.open::<0>(by, &server).await;
    let message = place.answer(&agent).await;
    let asked = server.asked();
    assert_eq!(asked.len(), 2);
    forms::check_all(by, &asked);
    let body = |of: &Value| serde_json::to_string_pretty(of).expect("it is JSON");
    insta::assert_snapshot!(name(by, "second-request"), body(&asked[1].body));
    insta::assert_snapshot!(name(by, "stored"), body(&serde_json::to_value(&message.parts).expect("it is JSON")));
    let settled = calls(&message);
    assert_eq!(settled.len(), (place.ran("search") + place.ran("now")) as usize);
    assert!(settled.iter().all(|(.., state)| state.is_settled()));
    assert!(log(&ask(&agent).await).await.len() > 10, "the turn is not asked for again");
    assert_eq!(server.asked().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_second_request_to_responses_carries_the_calls_with_their_results() {
    round(Provider::Responses).await;
}

#[tokio::test(start_paused = true)]
async fn the_second_request_for_completions_carries_the_calls_with_their_results() {
    round(Provider::Completions).await;
}

#[tokio::test(start_paused = true)]
async fn the_second_request_to_anthropic_carries_the_calls_with_their_results_and_signed_thoughts() {
    round(Provider::Anthropic).await;
}
