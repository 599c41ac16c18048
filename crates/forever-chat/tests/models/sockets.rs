//! Answers that come over HTTP.
use forever_chat::model::{Anthropic, ChatModel, ModelErrorKind, OpenAiCompatible, OpenAiResponses};
use futures_util::StreamExt;
use tokio::sync::oneshot;

use crate::support::server::{Reply, Server, come};
use crate::support::{ModelOutput, Provider, RECORDED, Recorded, client, question, recorded};

fn model(by: Provider, server: &Server) -> Box<dyn ChatModel> {
    match by {
        Provider::Responses => Box::new(OpenAiResponses::new("m").api_key("k").base_url(server.url()).client(client())),
        Provider::Completions => Box::new(OpenAiCompatible::new("m").api_key("k").base_url(server.url()).client(client())),
        Provider::Anthropic => Box::new(Anthropic::new("m").api_key("k").base_url(server.url()).client(client())),
    }
}

async fn told(recorded: Recorded, reply: Reply) -> ModelOutput {
    let server = Server::with(vec![reply]).await;
    ModelOutput::soon(model(recorded.by, &server).answer(question("?"))).await
}

/// Some of the places, spread over all of them.
fn places(length: usize, count: usize) -> impl Iterator<Item = usize> {
    (0..=count).map(move |place| place * length / count)
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_the_same_in_two_writes_or_many() {
    for &recorded in RECORDED {
        let (bytes, whole) = (recorded.text.as_bytes(), recorded.whole());
        for cut in places(bytes.len(), 12) {
            let pieces = vec![bytes[..cut].to_vec(), bytes[cut..].to_vec()];
            assert_eq!(told(recorded, Reply::Stream(pieces)).await, whole, "{} cut at {cut}", recorded.name);
        }
        let pieces = bytes.chunks(1).map(<[u8]>::to_vec).collect();
        assert_eq!(told(recorded, Reply::Stream(pieces)).await, whole, "{} byte by byte", recorded.name);
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_lost_leaves_the_beginning_and_an_error() {
    for &recorded in RECORDED {
        let (bytes, whole) = (recorded.text.as_bytes(), recorded.whole());
        for cut in places(bytes.len(), 12) {
            // Lost, or ended as HTTP has it but too early.
            for reply in [Reply::Cut, Reply::Stream] {
                let told = told(recorded, reply(vec![bytes[..cut].to_vec()])).await;
                assert!(whole.events.starts_with(&told.events), "{} cut off at {cut}: {}", recorded.name, told.lines());
                match (&told.end, &whole.end) {
                    (Ok(_), _) => assert_eq!(told.events, whole.events, "{} cut off at {cut}", recorded.name),
                    (Err(error), Err(of_provider)) if error == of_provider => {}
                    (Err(error), _) => assert_eq!(error.kind(), ModelErrorKind::Transient, "{} cut off at {cut}", recorded.name),
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn events_are_given_as_they_come_and_dropping_the_answer_closes_the_connection() {
    for name in ["responses-text", "completions-text", "anthropic-text"] {
        let recorded = recorded(name);
        let half = recorded.text.len() / 2;
        let half = half + recorded.text[half..].find("\n\n").expect("there is more") + 2;
        let begun = recorded.read([&recorded.text.as_bytes()[..half]], None);
        let (closed, is_closed) = oneshot::channel();
        let server = Server::with(vec![Reply::Silent(vec![recorded.text.as_bytes()[..half].to_vec()], closed)]).await;
        let mut answer = model(recorded.by, &server).answer(question("?"));
        for event in &begun.events {
            assert_eq!(answer.next().await, Some(Ok(event.clone())), "{name}");
        }
        drop(answer);
        come(is_closed).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_connection_is_closed_with_the_last_event_though_the_server_keeps_it_open() {
    for name in ["responses-text", "responses-failed", "completions-text", "anthropic-text"] {
        let recorded = recorded(name);
        let (closed, is_closed) = oneshot::channel();
        let server = Server::with(vec![Reply::Silent(vec![recorded.text.as_bytes().to_vec()], closed)]).await;
        let mut answer = model(recorded.by, &server).answer(question("?"));
        let mut count = 0;
        while count <= recorded.whole().events.len() {
            assert!(answer.next().await.is_some(), "{name}");
            count += 1;
        }
        come(is_closed).await;
        assert!(answer.next().await.is_none(), "{name}");
    }
}
