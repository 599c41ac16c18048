//! Handles the frames of a client.
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use forever_chat::__server::ClientRequests;
use forever_chat::message::UiMessage;
use forever_chat::{ChatHandle, ToolAnswer, TurnState, TurnStatus};
use forever_runtime::__layers::chain;
use forever_runtime::{BoxError, ErrorKind};
use serde_json::Value;
use tokio::sync::Notify;
use tracing::{debug, warn};

use super::super::auth::Rejection;
use super::super::client_messages::{Known, harmless, shown_call};
use super::super::protocol::{Body, FromClient, Malformed, Response, ToClient};
use super::{Answer, Answering, HeldProbe, Over, Session, origins};

/// Maximum number of calls that a client may wait for, and of its answers that may wait.
const CALLS: usize = 64;

/// Frame types that are refused by name.
const CANCEL: &str = "cf_agent_chat_request_cancel";
const CLEAR: &str = "cf_agent_chat_clear";
const MESSAGES: &str = "cf_agent_chat_messages";
const TOOL_RESULT: &str = "cf_agent_tool_result";
const TOOL_APPROVAL: &str = "cf_agent_tool_approval";
const KINDS: [&str; 9] = [
    MESSAGES,
    TOOL_RESULT,
    TOOL_APPROVAL,
    CANCEL,
    CLEAR,
    "cf_agent_stream_resume_request",
    "cf_agent_stream_resume_ack",
    "cf_agent_use_chat_request",
    "rpc",
];

impl Session<'_> {
    pub(super) async fn asked(&mut self, frame: FromClient) -> std::result::Result<(), Over> {
        if let Some(reason) = self.refusal(&frame).await {
            return self.refuse(&frame, &reason).await;
        }
        match frame {
            FromClient::Ask { id, init } => match init.body.as_deref().map(serde_json::from_str::<Body>) {
                Some(Ok(body)) => self.ask(&id, body).await,
                _ => self.refuse_question(&id, "The question was not understood.").await,
            },
            FromClient::Cancel { id } => {
                if self.subscriptions.watches(&id) {
                    self.cancelled.insert(id.clone());
                }
                self.agent.cancel(&id, "it was cancelled").await?;
                Ok(())
            }
            FromClient::Clear => {
                self.own_clears += 1;
                Ok(self.agent.clear().await?)
            }
            FromClient::Messages { messages } => self.replace(messages).await,
            FromClient::ResumeRequest { probe_id } => {
                self.probes |= probe_id.is_some();
                self.resume(probe_id.as_deref()).await
            }
            FromClient::ResumeAck { id, from } => self.acknowledged(&id, from.unwrap_or(0)).await,
            FromClient::ToolResult { tool_call_id, output, state, error_text, auto_continue } => {
                let answer = if state.as_deref() == Some("output-error") {
                    ToolAnswer::Error(error_text.unwrap_or_else(|| "the tool has failed".to_owned()))
                } else {
                    ToolAnswer::Output(harmless(output))
                };
                self.answer(TOOL_RESULT, &tool_call_id, None, answer, auto_continue).await
            }
            FromClient::ToolApproval { tool_call_id, approved, input, auto_continue } => {
                let answer = if approved { ToolAnswer::Approved } else { ToolAnswer::Refused };
                self.answer(TOOL_APPROVAL, &tool_call_id, input, answer, auto_continue).await
            }
            FromClient::State { state } => self.set_state(&state).await,
            FromClient::Call { id, method, args } => self.call(id, &method, args).await,
            FromClient::Unknown => Ok(()),
        }
    }

    /// Reason why a frame is not permitted, if so.
    async fn refusal(&mut self, frame: &FromClient) -> Option<String> {
        self.at.permits(self.served, frame.changes()?).await.err().map(|refused| refused.reason().to_owned())
    }

    async fn refuse(&mut self, frame: &FromClient, error: &str) -> std::result::Result<(), Over> {
        let refused = |of, id, tool_call_id| ToClient::Refused { of, id, tool_call_id, error };
        let refused = match frame {
            FromClient::Ask { id, .. } => return self.refuse_question(id, error).await,
            FromClient::Call { id, .. } => ToClient::Called { id, success: false, result: None, error: Some(error), done: None },
            FromClient::State { .. } => ToClient::StateError { error },
            FromClient::Cancel { id } => refused(CANCEL, Some(id), None),
            FromClient::Clear => refused(CLEAR, None, None),
            FromClient::Messages { .. } => refused(MESSAGES, None, None),
            FromClient::ToolResult { tool_call_id, .. } => refused(TOOL_RESULT, None, Some(tool_call_id)),
            FromClient::ToolApproval { tool_call_id, .. } => refused(TOOL_APPROVAL, None, Some(tool_call_id)),
            FromClient::ResumeRequest { .. } | FromClient::ResumeAck { .. } | FromClient::Unknown => return Ok(()),
        };
        self.send(&refused).await
    }

    /// Answers a frame that cannot be read, if its type is known.
    pub(super) async fn malformed(&mut self, text: &str) -> std::result::Result<(), Over> {
        let Some(frame) = Malformed::read(text) else { return Ok(()) };
        let (Some(kind), id) = (frame.kind(), frame.id()) else { return Ok(()) };
        match (kind.as_str(), id.as_deref()) {
            ("cf_agent_use_chat_request", Some(id)) => self.refuse_question(id, "The question was not understood.").await,
            ("rpc", Some(id)) => {
                let error = Some("the call was not understood");
                self.send(&ToClient::Called { id, success: false, result: None, error, done: None }).await
            }
            ("cf_agent_state", _) => self.send(&ToClient::StateError { error: "the state was refused" }).await,
            (of, id) => {
                let call = frame.tool_call_id();
                let (of, known) = KINDS.iter().find(|kind| **kind == of).map_or(("unknown", false), |kind| (*kind, true));
                if !known && id.is_none() {
                    return Ok(());
                }
                let error = "the frame was not understood";
                self.send(&ToClient::Refused { of, id, tool_call_id: call.as_deref(), error }).await
            }
        }
    }

    async fn refuse_question(&mut self, id: &str, why: &str) -> std::result::Result<(), Over> {
        let refused = Response { id, body: why.into(), done: true, error: true, outcome: Some("error"), ..Response::default() };
        self.send(&ToClient::Response(refused)).await
    }

    /// Replaces the conversation by the client's messages, as far as it may write them.
    async fn replace(&mut self, sent: Vec<UiMessage>) -> std::result::Result<(), Over> {
        let (policy, as_sent) = (self.served.messages, sent.clone());
        let (mut is_as_sent, shown_from) = (false, self.shown_from.clone());
        let replaced = self.agent.replace_messages(|stored| {
            // Messages that were not sent to the client are not deleted.
            let hidden = stored.iter().position(|message| Some(&message.id) == shown_from.as_ref()).unwrap_or(0);
            let before = stored[..hidden].to_vec();
            let mut chosen = policy.replacement(&Known::of(stored), sent);
            is_as_sent = chosen == as_sent;
            chosen.retain(|message| before.iter().all(|there| there.id != message.id));
            [before, chosen].concat()
        });
        match replaced.await {
            // If the stored messages are those that the client shows, it is sent nothing; otherwise
            // it gets the messages like all other clients.
            Ok(()) if is_as_sent => {
                self.own_replacements += 1;
                Ok(())
            }
            Ok(()) => Ok(()),
            Err(error) if matches!(error.kind(), ErrorKind::Busy | ErrorKind::Value) => {
                debug!(error = %chain(&error), "messages were not replaced");
                let error = if error.kind() == ErrorKind::Busy { "an answer is being given" } else { "the messages were refused" };
                self.send(&ToClient::Refused { of: MESSAGES, id: None, tool_call_id: None, error }).await
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Handles a question: a turn of the client's own.
    async fn ask(&mut self, id: &str, body: Body) -> std::result::Result<(), Over> {
        let Body { messages, trigger, client_tools, other } = body;
        let last = messages.last().map(|message| message.id.clone());
        let known = Known::load(&self.agent).await?;
        let Some(said) = self.served.messages.question(&known, messages) else {
            return self.refuse_question(id, "The question was refused.").await;
        };
        let mut new = self.agent.save_messages(said).id(id).body(&other).client_tools(client_tools);
        if let (Some("regenerate-message"), Some(last)) = (trigger.as_deref(), last) {
            new = new.after(last);
        }
        let asked_first = self.own.insert(id.to_owned());
        match new.await {
            Ok(turn) if turn.accepted() => {
                self.subscriptions.start(&turn, 0, false, true).await?;
                // Messages of other turns since the question have removed it from the client's
                // page.
                if std::mem::take(&mut self.may_hide_question) || self.subscriptions.overlapped() {
                    self.transcript().await?;
                }
                Ok(())
            }
            // The question was sent again: its turn may be running by now.
            Ok(turn) => {
                self.offer(&turn).await?;
                self.send(&ToClient::Resuming { id, probe_id: None }).await
            }
            Err(error) if error.is_closed() => Err(error.into()),
            Err(error) => {
                if asked_first {
                    self.own.remove(id);
                }
                debug!(error = %chain(&error), "a question was refused");
                let body =
                    if error.kind() == ErrorKind::Busy { "Too many questions wait for an answer." } else { "The question was refused." };
                self.refuse_question(id, body).await
            }
        }
    }

    /// Stores an answer to a tool call. An answer that cannot be stored yet waits concurrently with
    /// the rest of the connection.
    async fn answer(
        &mut self,
        of: &'static str,
        call: &str,
        input: Option<Value>,
        answer: ToolAnswer,
        auto_continue: bool,
    ) -> std::result::Result<(), Over> {
        if self.answers.len() >= CALLS {
            let error = "too many answers at once";
            return self.send(&ToClient::Refused { of, id: None, tool_call_id: Some(call), error }).await;
        }
        let (agent, waits, call) = (self.agent.clone(), Arc::new(Notify::new()), call.to_owned());
        let told = Arc::clone(&waits);
        let mut answering: Answering = Box::pin(async move {
            let result = agent.answer_tool_as_client(shown_call(&call, input), answer, auto_continue, waits).await;
            Answer { of, call, result }
        });
        let mut told = pin!(told.notified());
        let answered = poll_fn(|context| match answering.as_mut().poll(context) {
            Poll::Ready(answer) => Poll::Ready(Some(answer)),
            Poll::Pending => told.as_mut().poll(context).map(|()| None),
        });
        let Some(answer) = answered.await else {
            self.answers.push(answering);
            return Ok(());
        };
        self.answered(answer).await
    }

    /// Reports that an answer that had to wait was stored, or refused.
    pub(super) async fn answered_late(&mut self, answer: Answer) -> std::result::Result<(), Over> {
        self.answered(answer).await?;
        match self.held_probe.take_if(|_| self.answers.is_empty()) {
            Some(HeldProbe(id)) => self.resume(id.as_deref()).await,
            None => Ok(()),
        }
    }

    async fn answered(&mut self, answer: Answer) -> std::result::Result<(), Over> {
        let Answer { of, call, result } = answer;
        let error = match result.map(|answered| answered.continued) {
            // The client requests the turn by itself, unless the turn is shown live.
            Ok(Some(turn)) if !self.subscriptions.watches(turn.id()) => return self.offer(&turn).await,
            Ok(_) => return Ok(()),
            Err(error) => error,
        };
        let why = match error.kind() {
            ErrorKind::NotFound => "there is no such call",
            ErrorKind::Conflict => "the call has another input",
            ErrorKind::Value => "the call does not take this answer from a client",
            ErrorKind::Busy => "the turn of the call is not under way: try again later",
            _ => return Err(error.into()),
        };
        debug!(error = %chain(&error), "the answer to a call was refused");
        self.send(&ToClient::Refused { of, id: None, tool_call_id: Some(&call), error: why }).await
    }

    /// Answers a probe for a turn to resume.
    pub(super) async fn resume(&mut self, probe_id: Option<&str>) -> std::result::Result<(), Over> {
        self.pending_probe = None;
        self.held_probe = None;
        let open = self.agent.turns(&[TurnState::Queued, TurnState::Running]).await?;
        if let Some(turn) = open.iter().find(|turn| turn.state() == TurnState::Running).or(open.first()) {
            let id = turn.id();
            if self.own.contains(id) && !self.offered.contains(id) {
                // It is shown live on this connection.
                return self.send(&ToClient::ResumeNone { reason: Some("idle"), probe_id }).await;
            }
            if turn.state() == TurnState::Queued {
                self.pending_probe = Some((id.to_owned(), probe_id.map(str::to_owned)));
            }
            return self.offer_under_way(turn, probe_id).await;
        }
        // An error is shown until the next question.
        if let Some(last) = self.agent.latest_turns(&[], 0, 1).await?.pop().filter(|last| last.state() == TurnState::Error) {
            return self.resuming(&last, probe_id).await;
        }
        if !self.answers.is_empty() {
            // A turn may follow from this client's answers, which it sent before the probe.
            self.held_probe = Some(HeldProbe(probe_id.map(str::to_owned)));
            return Ok(());
        }
        self.send(&ToClient::ResumeNone { reason: Some("idle"), probe_id }).await
    }

    /// Offers a turn under way.
    ///
    /// For a turn that continues an answer, the client is first sent that there is nothing to
    /// resume: the request comes from the stream of a new message (`ai` from 6.0.250 on), to which
    /// nothing can be added. The page takes the continuation instead, as in every other client.
    pub(super) async fn resuming(&mut self, turn: &TurnStatus, probe_id: Option<&str>) -> std::result::Result<(), Over> {
        let id = turn.id();
        self.pending_probe.take_if(|(of, _)| of == id);
        self.held_probe = None;
        if turn.is_continuation() {
            self.send(&ToClient::ResumeNone { reason: Some("continuation-owned"), probe_id }).await?;
            return self.send(&ToClient::Resuming { id, probe_id: None }).await;
        }
        self.send(&ToClient::Resuming { id, probe_id }).await
    }

    /// Sends the log of a turn that the client has accepted.
    async fn acknowledged(&mut self, id: &str, from: u64) -> std::result::Result<(), Over> {
        let Some(turn) = self.agent.turn(id).await? else {
            return self.send(&ToClient::Response(Response { id, done: true, replay: true, ..Response::default() })).await;
        };
        let status = turn.status().await?;
        match status.state() {
            TurnState::Queued | TurnState::Running | TurnState::Error => {
                // The client appends new messages to its own, and may have been away when the
                // question was asked. A continuation has its place already.
                if !status.is_continuation() {
                    self.catch_up().await?;
                }
                self.offered.remove(id);
                // A client that requests a turn which is still queued has its reply with the log.
                self.pending_probe.take_if(|(of, _)| of == id);
                Ok(self.subscriptions.start(&turn, from, true, self.own.contains(id)).await?)
            }
            // It has just ended, and its end is about to be sent.
            _ if self.offered.contains(id) => Ok(()),
            // Its message is in the conversation.
            state => {
                let outcome = (state != TurnState::Completed).then(|| state.as_str());
                let message_ids = origins(&status);
                let ended = Response { id, done: true, replay: true, message_ids, outcome, ..Response::default() };
                self.send(&ToClient::Response(ended)).await
            }
        }
    }

    async fn set_state(&mut self, state: &Value) -> std::result::Result<(), Over> {
        let text = match self.agent.stored_state(&state.to_string()) {
            Ok(text) => text,
            Err(why) => {
                debug!(error = %chain(&why), "a state was refused");
                return self.send(&ToClient::StateError { error: "the state was refused" }).await;
            }
        };
        self.own_state = Some(text.clone());
        self.agent.set_stored_state(text).await?;
        Ok(())
    }

    async fn call(&mut self, id: String, method: &str, args: Vec<Value>) -> std::result::Result<(), Over> {
        let Some(call) = self.served.calls.get(&(self.at.class, method.to_owned())) else {
            let error = format!("Method {method} does not exist");
            let refused = ToClient::Called { id: &id, success: false, result: None, error: Some(&error), done: None };
            return self.send(&refused).await;
        };
        if self.calls.len() >= CALLS {
            let error = Some("too many calls at once");
            return self.send(&ToClient::Called { id: &id, success: false, result: None, error, done: None }).await;
        }
        let called = call(&self.served.forever, &self.at.name, args);
        let name = (self.at.class, method.to_owned());
        self.calls.push(Box::pin(async move {
            let result = called.await.map_err(|why| {
                warn!(agent.class = name.0, call = name.1, error = %chain(&*why), "a call of a client failed");
                told(&why)
            });
            (id, result)
        }));
        Ok(())
    }

    pub(super) async fn called(&mut self, id: &str, result: std::result::Result<Value, String>) -> std::result::Result<(), Over> {
        let (success, error) = (result.is_ok(), result.as_ref().err().map(String::as_str));
        self.send(&ToClient::Called { id, success, result: result.as_ref().ok(), error, done: success.then_some(true) }).await
    }
}

/// Error text of a failed call, for the client.
fn told(error: &BoxError) -> String {
    error.downcast_ref::<Rejection>().map_or("the call failed", Rejection::reason).to_owned()
}
