//! What every store keeps to with chats: turns in order, logs without gaps, ends that stay.
use crate::fiber::owner::AgentId;
use crate::store::chat::{
    AcceptedTurn, Chunks, IncidentRow, IncidentState, MayBegin, MessageRow, NewTurn, OfTurn, Queueing, Settle, TurnBegun, TurnKind,
    TurnRow, TurnState, WhichTurns,
};
use crate::store::{End, FiberState, Find, NewFiber, Store};

fn chat(name: &str) -> AgentId {
    AgentId { class: "assistant".into(), name: name.into() }
}

fn message(id: &str, role: &'static str) -> MessageRow {
    MessageRow { id: id.into(), role, data: format!("\"{id}\"") }
}

fn new(of: &str, id: &str) -> NewTurn {
    NewTurn {
        chat: chat(of),
        id: id.into(),
        key: None,
        kind: TurnKind::Answer,
        queueing: Queueing::Queue,
        messages: vec![message(&format!("u-{id}"), "user")],
        cut_behind: None,
        message: format!("a-{id}"),
        body: Some("{}".into()),
        tools: None,
        metadata: None,
        fiber: NewFiber {
            id: format!("fiber-{of}-{id}"),
            name: "forever.turn".into(),
            key: None,
            id_given: false,
            closure: false,
            args: "{}".into(),
            metadata: None,
            agent: Some(chat(of)),
            parent: None,
            worker: None,
            now_ms: 1,
        },
        now_ms: 1,
    }
}

async fn accept(store: &impl Store, turn: NewTurn) -> TurnRow {
    match store.accept_turn(turn).await.unwrap() {
        AcceptedTurn::New(row, fiber) => {
            assert_eq!(fiber.state, FiberState::Pending);
            *row
        }
        other => panic!("{other:?}"),
    }
}

async fn begin(store: &impl Store, turn: &TurnRow) -> TurnBegun {
    match store.begin_turn(turn.seq, 10).await.unwrap() {
        MayBegin::Now(begun) => *begun,
        other => panic!("{other:?}"),
    }
}

fn ends(state: TurnState, message: Option<&str>) -> Settle {
    let reason = (state != TurnState::Completed).then(|| "why".to_owned());
    Settle { state, reason, message: message.map(str::to_owned), incident: None, now_ms: 20 }
}

async fn ids(store: &impl Store, of: &str, up_to: i64) -> Vec<String> {
    store.chat_messages(chat(of), up_to).await.unwrap().into_iter().map(|message| message.id).collect()
}

fn chunks(first: u64, lines: &[&str]) -> Chunks {
    Chunks { first, count: lines.len() as u64, data: lines.join("\n"), stored_ms: 5 }
}

pub(super) async fn accepts_a_turn_once(store: &impl Store) {
    let first = accept(store, NewTurn { key: Some("k".into()), ..new("a", "1") }).await;
    assert_eq!((first.state, first.origins.as_slice(), first.message.as_str()), (TurnState::Queued, &["u-1".to_owned()][..], "a-1"));
    let fiber = store.find(Find::Id("fiber-a-1".into())).await.unwrap().unwrap();
    assert_eq!(fiber.state, FiberState::Pending);
    for again in [new("a", "1"), NewTurn { key: Some("k".into()), ..new("a", "2") }] {
        let id = again.fiber.id.clone();
        match store.accept_turn(again).await.unwrap() {
            AcceptedTurn::Existing(there) => assert_eq!(there.seq, first.seq),
            other => panic!("{other:?}"),
        }
        assert!(id == "fiber-a-1" || store.find(Find::Id(id)).await.unwrap().is_none());
    }
    assert_eq!(ids(store, "a", i64::MAX).await, ["u-1"]);
    // Ids and keys are of one chat.
    let other = accept(store, NewTurn { key: Some("k".into()), ..new("b", "1") }).await;
    assert_ne!(other.seq, first.seq);
    assert_eq!(store.turn(chat("a"), "1".into()).await.unwrap().unwrap().seq, first.seq);
    assert_eq!(store.turn_by_key(chat("b"), "k".into()).await.unwrap().unwrap().seq, other.seq);
    assert!(store.turn(chat("c"), "1".into()).await.unwrap().is_none());
    assert_eq!(store.turn_request(first.seq).await.unwrap().body.as_deref(), Some("{}"));
}

pub(super) async fn begins_turns_in_order_and_counts_deaths(store: &impl Store) {
    let (first, second) = (accept(store, new("a", "1")).await, accept(store, new("a", "2")).await);
    assert!(matches!(store.begin_turn(second.seq, 10).await.unwrap(), MayBegin::Behind(fiber) if fiber == "fiber-a-1"));
    let begun = begin(store, &first).await;
    assert_eq!((begun.again, begun.row.deaths, begun.row.state), (false, 1, TurnState::Running));
    let begun = begin(store, &first).await;
    assert_eq!((begun.again, begun.row.deaths), (true, 2), "the process died with it");
    store.leave_turn(first.seq).await.unwrap();
    assert_eq!(store.turn_by_seq(first.seq).await.unwrap().unwrap().deaths, 1);
    // What another one asks is not seen by this one, and its answer stands before that.
    assert_eq!(ids(store, "a", first.place).await, ["u-1"]);
    assert_eq!(store.settle_turn(first.seq, ends(TurnState::Completed, Some("\"answer\""))).await.unwrap(), OfTurn::Done);
    assert_eq!(ids(store, "a", i64::MAX).await, ["u-1", "a-1", "u-2"]);
    assert!(matches!(store.begin_turn(first.seq, 30).await.unwrap(), MayBegin::Over(row) if row.state == TurnState::Completed));
    // A turn in one chat keeps none in another waiting.
    let elsewhere = accept(store, new("b", "1")).await;
    begin(store, &second).await;
    begin(store, &elsewhere).await;
}

pub(super) async fn finds_turns_that_their_fibers_have_left(store: &impl Store) {
    let (first, second) = (accept(store, new("a", "1")).await, accept(store, new("a", "2")).await);
    begin(store, &first).await;
    assert!(store.left_turns().await.unwrap().is_empty());
    let fiber = store.find(Find::Id("fiber-a-1".into())).await.unwrap().unwrap();
    store.end(super::claimed(store, fiber.seq, super::FIRST).await, End::Failed("broken".into()), Vec::new(), 5).await.unwrap();
    assert_eq!(store.left_turns().await.unwrap(), [first.seq]);
    assert!(matches!(store.begin_turn(second.seq, 10).await.unwrap(), MayBegin::Left(row) if row.seq == first.seq));
    store.settle_turn(first.seq, ends(TurnState::Interrupted, None)).await.unwrap();
    assert!(store.left_turns().await.unwrap().is_empty());
    begin(store, &second).await;
}

pub(super) async fn keeps_logs_without_gaps(store: &impl Store) {
    let turn = accept(store, new("a", "1")).await;
    assert_eq!(store.append_chunks(turn.seq, chunks(0, &["a"])).await.unwrap(), OfTurn::Over, "it has not begun");
    begin(store, &turn).await;
    assert_eq!(store.append_chunks(turn.seq, chunks(0, &["a", "b"])).await.unwrap(), OfTurn::Done);
    for wrong in [0, 1, 3] {
        store.append_chunks(turn.seq, chunks(wrong, &["x"])).await.unwrap_err();
    }
    store.append_chunks(turn.seq, chunks(2, &["c"])).await.unwrap();
    assert_eq!(store.chunks(turn.seq, 0, 9).await.unwrap(), [chunks(0, &["a", "b"]), chunks(2, &["c"])]);
    assert_eq!(store.chunks(turn.seq, 1, 9).await.unwrap().len(), 2, "the row that has chunk 1 in it");
    assert_eq!(store.chunks(turn.seq, 2, 9).await.unwrap(), [chunks(2, &["c"])]);
    assert_eq!(store.chunks(turn.seq, 0, 1).await.unwrap(), [chunks(0, &["a", "b"])]);
    assert_eq!(begin(store, &turn).await.chunks.len(), 2);
    store.settle_turn(turn.seq, ends(TurnState::Completed, None)).await.unwrap();
    assert_eq!(store.append_chunks(turn.seq, chunks(3, &["d"])).await.unwrap(), OfTurn::Over);
    assert_eq!(store.fold_turns(20, 9).await.unwrap(), 0, "it was settled at 20");
    assert_eq!(store.fold_turns(21, 9).await.unwrap(), 1);
    assert!(store.chunks(turn.seq, 0, 9).await.unwrap().is_empty());
    assert_eq!(store.fold_turns(21, 9).await.unwrap(), 0, "it is folded");
    assert_eq!(store.delete_turns(20, 9).await.unwrap(), 0);
    assert_eq!(store.delete_turns(21, 9).await.unwrap(), 1);
    assert!(store.turn_by_seq(turn.seq).await.unwrap().is_none());
    assert_eq!(ids(store, "a", i64::MAX).await, ["u-1"], "messages stay");
}

pub(super) async fn ends_a_turn_once(store: &impl Store) {
    let turn = accept(store, new("a", "1")).await;
    begin(store, &turn).await;
    assert_eq!(store.stash_turn(turn.seq, "1".into()).await.unwrap(), OfTurn::Done);
    assert_eq!(begin(store, &turn).await.request.stash.as_deref(), Some("1"));
    let incident = IncidentRow {
        continues: true,
        state: IncidentState::Attempting,
        attempts: 2,
        attempt_ms: 3,
        chunks: 4,
        began_at: 1,
        progress_ms: 5,
        reason: None,
        created_ms: 2,
    };
    store.store_incident(turn.seq, incident.clone(), 6).await.unwrap();
    assert_eq!(begin(store, &turn).await.incident, Some(incident));
    let exhausted = Settle { incident: Some(IncidentState::Exhausted), ..ends(TurnState::Error, Some("\"partial\"")) };
    assert_eq!(store.settle_turn(turn.seq, exhausted).await.unwrap(), OfTurn::Done);
    assert_eq!(store.settle_turn(turn.seq, ends(TurnState::Completed, Some("\"late\""))).await.unwrap(), OfTurn::Over);
    assert_eq!(store.stash_turn(turn.seq, "2".into()).await.unwrap(), OfTurn::Over);
    let row = store.turn_by_seq(turn.seq).await.unwrap().unwrap();
    assert_eq!((row.state, row.reason.as_deref(), row.settled_ms), (TurnState::Error, Some("why"), Some(20)));
    assert_eq!(store.chat_messages(chat("a"), i64::MAX).await.unwrap()[1].data, "\"partial\"");
}

pub(super) async fn cancels_a_turn_that_waits_and_asks_one_that_runs(store: &impl Store) {
    let (first, second) = (accept(store, new("a", "1")).await, accept(store, new("a", "2")).await);
    begin(store, &first).await;
    let row = store.cancel_turn(first.seq, "enough".into(), 11).await.unwrap().unwrap();
    assert_eq!((row.state, row.cancel.as_deref()), (TurnState::Running, Some("enough")));
    store.cancel_turn(first.seq, "again".into(), 12).await.unwrap();
    assert_eq!(begin(store, &first).await.row.cancel.as_deref(), Some("enough"), "the first reason stays");
    let row = store.cancel_turn(second.seq, "enough".into(), 12).await.unwrap().unwrap();
    assert_eq!((row.state, row.settled_ms), (TurnState::Aborted, Some(12)));
    let row = store.cancel_turn(second.seq, "late".into(), 13).await.unwrap().unwrap();
    assert_eq!((row.reason.as_deref(), row.settled_ms), (Some("enough"), Some(12)));
    assert!(store.cancel_turn(99, "nobody".into(), 13).await.unwrap().is_none());
    let open = WhichTurns { states: vec![TurnState::Queued, TurnState::Running] };
    let listed = store.turns(chat("a"), open, 0, 9).await.unwrap();
    assert_eq!(listed.iter().map(|row| row.seq).collect::<Vec<_>>(), [first.seq]);
    assert_eq!(store.turns(chat("a"), WhichTurns::default(), first.seq, 9).await.unwrap().len(), 1);
}

pub(super) async fn lets_others_take_the_place_of_a_turn(store: &impl Store) {
    let first = accept(store, new("a", "1")).await;
    begin(store, &first).await;
    let dropped = store.accept_turn(NewTurn { queueing: Queueing::Drop, ..new("a", "2") }).await.unwrap();
    assert!(matches!(dropped, AcceptedTurn::Dropped));
    assert_eq!(ids(store, "a", i64::MAX).await, ["u-1"]);
    let mut waiting = Vec::new();
    for id in ["3", "4"] {
        waiting.push(accept(store, NewTurn { queueing: Queueing::Latest, ..new("a", id) }).await);
    }
    assert!(matches!(store.begin_turn(waiting[0].seq, 12).await.unwrap(), MayBegin::Over(row) if row.state == TurnState::Skipped));
    assert!(matches!(store.begin_turn(waiting[1].seq, 12).await.unwrap(), MayBegin::Behind(_)));
    store.settle_turn(first.seq, ends(TurnState::Completed, None)).await.unwrap();
    begin(store, &waiting[1]).await;
    store.settle_turn(waiting[1].seq, ends(TurnState::Completed, None)).await.unwrap();
    let quiet = accept(store, NewTurn { queueing: Queueing::Debounce(100), ..new("a", "5") }).await;
    assert!(matches!(store.begin_turn(quiet.seq, 100).await.unwrap(), MayBegin::Due(101)));
    assert!(matches!(store.begin_turn(quiet.seq, 101).await.unwrap(), MayBegin::Now(_)));
}

pub(super) async fn continues_and_asks_again(store: &impl Store) {
    let more = |id: &str| NewTurn { kind: TurnKind::Continue, messages: Vec::new(), ..new("a", id) };
    assert!(matches!(store.accept_turn(more("0")).await.unwrap(), AcceptedTurn::NothingToContinue));
    let asked = NewTurn { body: Some("1".into()), tools: Some("[]".into()), metadata: Some("2".into()), ..new("a", "1") };
    let first = accept(store, asked).await;
    begin(store, &first).await;
    // What is under way is what will be continued, with what it was asked with.
    let next = accept(store, NewTurn { body: None, ..more("2") }).await;
    assert_eq!((next.message.as_str(), next.place), ("a-1", first.place));
    let request = store.turn_request(next.seq).await.unwrap();
    assert_eq!((request.body.as_deref(), request.tools.as_deref(), request.metadata), (Some("1"), Some("[]"), None));
    store.settle_turn(first.seq, ends(TurnState::Completed, Some("\"answer\""))).await.unwrap();
    begin(store, &next).await;
    store.settle_turn(next.seq, ends(TurnState::Completed, Some("\"longer\""))).await.unwrap();
    assert_eq!(ids(store, "a", i64::MAX).await, ["u-1", "a-1"]);
    assert_eq!(store.chat_messages(chat("a"), i64::MAX).await.unwrap()[1].data, "\"longer\"");
    let again = accept(store, NewTurn { messages: Vec::new(), cut_behind: Some("u-1".into()), ..new("a", "3") }).await;
    assert_eq!(ids(store, "a", i64::MAX).await, ["u-1"]);
    assert_eq!(again.origins, ["u-1"]);
    store.cancel_turn(again.seq, "enough".into(), 9).await.unwrap();
    assert!(matches!(store.accept_turn(more("4")).await.unwrap(), AcceptedTurn::NothingToContinue), "the last message is the user's");
}

pub(super) async fn replaces_and_clears_messages(store: &impl Store) {
    assert_eq!(store.held(chat("a")).await.unwrap(), None);
    assert!(store.replace_messages(chat("a"), vec![message("m", "system"), message("n", "user")], 1).await.unwrap());
    let changed = MessageRow { data: "\"changed\"".into(), ..message("n", "user") };
    store.hold(chat("a"), changed.clone(), true, 2).await.unwrap();
    assert_eq!(store.held(chat("a")).await.unwrap().as_deref(), Some("n"));
    assert_eq!(store.chat_messages(chat("a"), i64::MAX).await.unwrap(), [message("m", "system"), changed]);
    let (first, second) = (accept(store, new("a", "1")).await, accept(store, new("a", "2")).await);
    assert_eq!(store.held(chat("a")).await.unwrap(), None, "what was to follow has followed");
    assert!(!store.replace_messages(chat("a"), Vec::new(), 3).await.unwrap(), "a turn is under way");
    begin(store, &first).await;
    store.append_chunks(first.seq, chunks(0, &["a"])).await.unwrap();
    let ended = store.clear_chat(chat("a"), 7).await.unwrap();
    let states: Vec<_> = ended.iter().map(|row| (row.seq, row.state, row.settled_ms)).collect();
    assert_eq!(states, [(first.seq, TurnState::Aborted, Some(7)), (second.seq, TurnState::Skipped, Some(7))]);
    assert!(ids(store, "a", i64::MAX).await.is_empty());
    assert!(store.chunks(first.seq, 0, 9).await.unwrap().is_empty());
    assert_eq!(store.settle_turn(first.seq, ends(TurnState::Completed, Some("\"late\""))).await.unwrap(), OfTurn::Over);
    assert!(ids(store, "a", i64::MAX).await.is_empty());
    assert!(store.clear_chat(chat("nobody"), 8).await.unwrap().is_empty());
}
