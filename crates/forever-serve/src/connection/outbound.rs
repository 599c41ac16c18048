//! Shows the events of a chat to a client.
use axum::extract::ws::Message;
use forever_chat::__server::ClientRequests;
use forever_chat::{ChatEvent, ChatHandle, TurnEnd, TurnHandle, TurnState, TurnStatus};
use forever_runtime::agent::Pushed;
use serde_json::value::RawValue;

use super::super::protocol::{Response, ToClient};
use super::super::subscriptions::{Subscription, SubscriptionItem};
use super::{Over, Session, close, not_written, origins};

/// States of turns that have ended.
const SETTLED: [TurnState; 5] = [TurnState::Completed, TurnState::Error, TurnState::Aborted, TurnState::Skipped, TurnState::Interrupted];

/// Maximum number of turns under way that are offered to a connecting client. The others are shown
/// when they begin.
const OFFERED: usize = 64;

/// Number of ended turns that are sent to a connecting client: as many as the packages remember.
const ENDED: u32 = 32;

impl Session<'_> {
    /// Offers the turns that are under way when the client connects.
    pub(super) async fn offer_what_is_under_way(&mut self) -> std::result::Result<(), Over> {
        let recovering = self.agent.recovering()?;
        let open = self.agent.turns(&[TurnState::Queued, TurnState::Running]).await?;
        self.say_what_has_ended(!open.is_empty()).await?;
        for turn in open.into_iter().take(OFFERED) {
            self.offer_under_way(&turn, None).await?;
        }
        match recovering {
            Some(id) => self.send(&ToClient::Recovering { recovering: true, id: Some(&id), connect: false }).await,
            None => Ok(()),
        }
    }

    /// Sends the ends of the latest turns, if another one can be resumed: one that is under way, or
    /// an error.
    ///
    /// A client that reconnects may show the beginning of a turn that has ended meanwhile. Its page
    /// stays busy until it receives the end, or the message that nothing can be resumed.
    async fn say_what_has_ended(&mut self, under_way: bool) -> std::result::Result<(), Over> {
        let mut latest = self.agent.latest_turns(&SETTLED, 0, ENDED + 1).await?;
        if !under_way {
            if latest.first().is_none_or(|last| last.state() != TurnState::Error) {
                return Ok(());
            }
            latest.remove(0);
        }
        for turn in latest.iter().take(ENDED as usize).rev() {
            let outcome = match turn.state() {
                TurnState::Completed => None,
                TurnState::Interrupted => Some(TurnState::Error.as_str()),
                state => Some(state.as_str()),
            };
            let (id, message_ids) = (turn.id(), origins(turn));
            let ended = Response { id, done: true, replay: true, connect: true, message_ids, outcome, ..Response::default() };
            self.send(&ToClient::Response(ended)).await?;
        }
        Ok(())
    }

    /// Sends what a client may have missed: at the connect, and again when a turn is over.
    pub(super) async fn catch_up(&mut self) -> std::result::Result<(), Over> {
        self.conversation(true).await
    }

    /// Sends the conversation, or as many of its newest messages as fit.
    async fn conversation(&mut self, connect: bool) -> std::result::Result<(), Over> {
        let conversation = self.served.conversation(self.at).await?;
        if connect && conversation.len() == 0 {
            return Ok(());
        }
        let (frame, messages, sent) = (conversation.frame(connect)?, conversation.len(), conversation.sent());
        self.shown_from = conversation.first_sent().filter(|_| sent < messages).map(str::to_owned);
        // A slow client holds the bytes of its frame alone.
        drop(conversation);
        self.put(Message::Text(frame)).await?;
        if sent == messages {
            return Ok(());
        }
        self.send(&ToClient::Truncated { messages, sent }).await
    }

    /// Offers a turn that is under way: to all, or to the probe that asked.
    pub(super) async fn offer_under_way(&mut self, turn: &TurnStatus, probe_id: Option<&str>) -> std::result::Result<(), Over> {
        if let Some(handle) = self.agent.turn(turn.id()).await? {
            self.offer(&handle).await?;
        }
        if turn.state() == TurnState::Running {
            self.resuming(turn, probe_id).await
        } else {
            self.send(&ToClient::Pending { id: turn.id(), probe_id }).await
        }
    }

    /// Shows only the end of a turn from now on, until the client requests it.
    pub(super) async fn offer(&mut self, turn: &TurnHandle) -> std::result::Result<(), Over> {
        self.subscriptions.offer(turn).await?;
        self.offered.insert(turn.id().to_owned());
        Ok(())
    }

    pub(super) async fn event(&mut self, event: ChatEvent) -> std::result::Result<(), Over> {
        match event {
            ChatEvent::Accepted(turn) => {
                if self.own.contains(turn.id()) {
                    return Ok(());
                }
                // A continuation has no new message to send; the answer to its call was sent
                // separately.
                if !turn.is_continuation() {
                    self.transcript().await?;
                }
                if turn.is_continuation() && !self.answers.is_empty() && !self.subscriptions.watches(turn.id()) {
                    // It may follow from an answer of this client, which requests it by itself.
                    return match self.agent.turn(turn.id()).await? {
                        Some(turn) => self.offer(&turn).await,
                        None => Ok(()),
                    };
                }
                self.show(&turn).await
            }
            ChatEvent::Began(turn) => {
                if self.offered.contains(turn.id()) {
                    self.resuming(&turn, None).await
                } else {
                    self.show(&turn).await
                }
            }
            ChatEvent::Recovering { turn, recovering } => {
                self.send(&ToClient::Recovering { recovering, id: Some(&turn), connect: false }).await
            }
            ChatEvent::Updated(message) => {
                self.updated(&message.id).await?;
                Ok(())
            }
            ChatEvent::Replaced if self.own_replacements > 0 => {
                self.own_replacements -= 1;
                Ok(())
            }
            ChatEvent::Replaced => self.transcript().await,
            ChatEvent::Cleared if self.own_clears > 0 => {
                self.own_clears -= 1;
                Ok(())
            }
            ChatEvent::Cleared => self.send(&ToClient::Clear).await,
            ChatEvent::Lagged(_) => Err(Over::Close(close::TRY_AGAIN, "too slow")),
            // An event that clients have no frame for.
            _ => Ok(()),
        }
    }

    /// Shows a turn live, unless it is shown or offered already.
    async fn show(&mut self, turn: &TurnStatus) -> std::result::Result<(), Over> {
        if self.subscriptions.watches(turn.id()) || self.offered.contains(turn.id()) {
            return Ok(());
        }
        if let Some(turn) = self.agent.turn(turn.id()).await? {
            self.subscriptions.start(&turn, 0, false, false).await?;
        }
        Ok(())
    }

    /// Sends the message of a turn that has ended: alone if the client has built it from chunks,
    /// otherwise with the conversation.
    async fn answer_of(&mut self, watched: &Subscription) -> std::result::Result<(), Over> {
        // Older packages build a message of their own from a turn they watch, until they get the
        // conversation. So does a page that was not connected when the continuation was accepted.
        if self.probes
            && watched.is_begun()
            && !watched.status.is_continuation()
            && let Some(behind) = self.updated(watched.status.message_id()).await?
        {
            // A queued question was there before the answer, also where its turn is over by now.
            self.subscriptions.set_overlapped(self.subscriptions.overlapped() || behind > 0);
            return Ok(());
        }
        self.transcript().await
    }

    /// Sends a message alone, as it is now or later, and gives how many are behind it; `None` if it
    /// is not there.
    async fn updated(&mut self, id: &str) -> std::result::Result<Option<usize>, Over> {
        let conversation = self.served.conversation(self.at).await?;
        let Some(number) = conversation.number_of(id) else { return Ok(None) };
        let (frame, behind) = (conversation.updated(number)?, conversation.len() - number - 1);
        // A slow client holds the bytes of this message alone.
        drop(conversation);
        self.put(Message::Text(frame)).await?;
        Ok(Some(behind))
    }

    pub(super) async fn transcript(&mut self) -> std::result::Result<(), Over> {
        self.conversation(false).await
    }

    pub(super) async fn log(&mut self, watched: &Subscription, shown: Vec<SubscriptionItem>) -> std::result::Result<(), Over> {
        let status = &watched.status;
        let (id, continuation) = (status.id(), status.is_continuation());
        for shown in shown {
            match shown {
                SubscriptionItem::Chunk { number, chunk, replay } => {
                    if number == 0 {
                        watched.begin();
                    }
                    let body = chunk.json().into();
                    let piece = Response { id, body, continuation, replay, seq: Some(number), ..Response::default() };
                    self.send(&ToClient::Response(piece)).await?;
                }
                SubscriptionItem::CaughtUp => {
                    let caught_up = Response { id, continuation, replay: true, replay_complete: true, ..Response::default() };
                    self.send(&ToClient::Response(caught_up)).await?;
                }
                SubscriptionItem::End { end, replay } => {
                    self.subscriptions.stop(id);
                    self.ended(watched, &end, replay).await?;
                }
                // It was deleted meanwhile.
                SubscriptionItem::Failed(error) if error.is_not_found() => {}
                SubscriptionItem::Failed(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Sends the end of a turn, after its message.
    async fn ended(&mut self, watched: &Subscription, end: &TurnEnd, replay: bool) -> std::result::Result<(), Over> {
        let status = &watched.status;
        let (id, continuation) = (status.id(), status.is_continuation());
        let message_ids = origins(status);
        let own = watched.own;
        self.own.remove(id);
        let offered = self.offered.remove(id);
        let cancelled = self.cancelled.remove(id);
        if !own && !replay && end.state() != TurnState::Skipped {
            self.answer_of(watched).await?;
        }
        if offered && continuation && self.probes {
            // The client is about to request it, and would otherwise take the end for that of
            // another, empty message. An older client makes an empty message from this very frame.
            let first = Response { id, body: r#"{"type":"start"}"#.into(), continuation, replay: true, ..Response::default() };
            self.send(&ToClient::Response(first)).await?;
        }
        self.say_ended(watched, end, replay, Response { id, done: true, message_ids, continuation, ..Response::default() }).await?;
        if let Some((_, probe)) = self.pending_probe.take_if(|(of, _)| of == id) {
            self.resume(probe.as_deref()).await?;
        }
        if self.subscriptions.is_empty() && (cancelled || self.subscriptions.overlapped()) {
            // The client's messages may be in another order, or incomplete. The conversation is not
            // sent before the end: until then clients put the answer where it began.
            self.subscriptions.set_overlapped(false);
            self.may_hide_question = true;
            self.transcript().await?;
        }
        Ok(())
    }

    /// Sends that a turn has ended, and how.
    async fn say_ended(
        &mut self,
        watched: &Subscription,
        end: &TurnEnd,
        replay: bool,
        ended: Response<'_>,
    ) -> std::result::Result<(), Over> {
        let Response { id, message_ids, continuation, .. } = ended;
        match end.state() {
            TurnState::Error | TurnState::Interrupted => {
                let text = end.client_text().unwrap_or("An error occurred.");
                if replay {
                    self.send(&ToClient::Response(Response { body: text.into(), error: true, ..ended })).await?;
                    return self.catch_up().await;
                }
                let error = Response { id, body: text.into(), error: true, message_ids, continuation, ..Response::default() };
                self.send(&ToClient::Response(error)).await?;
                self.send(&ToClient::Response(Response { outcome: Some("error"), ..ended })).await?;
                // Clients keep the message that they have built from the chunks, which does not
                // show how it ended.
                if watched.own { Ok(()) } else { self.answer_of(watched).await }
            }
            TurnState::Aborted | TurnState::Skipped => {
                self.send(&ToClient::Response(Response { outcome: Some(end.state().as_str()), ..ended })).await
            }
            _ => {
                // The answer is empty.
                let body = end.reason().map_or("", |_| "No response was generated by the agent.");
                self.send(&ToClient::Response(Response { body: body.into(), replay, ..ended })).await
            }
        }
    }

    pub(super) async fn pushed(&mut self, pushed: Pushed) -> std::result::Result<(), Over> {
        match pushed {
            Pushed::State(state) => {
                if self.own_state.take_if(|own| own == state.json()).is_some() {
                    return Ok(());
                }
                let raw: &RawValue = serde_json::from_str(state.json()).map_err(|why| not_written("a state", why))?;
                self.send(&ToClient::State { state: raw }).await
            }
            Pushed::Broadcast(message) => self.put(Message::Text(message.json().into())).await,
            Pushed::Lagged(_) => Err(Over::Close(close::TRY_AGAIN, "too slow")),
            _ => Ok(()),
        }
    }
}
