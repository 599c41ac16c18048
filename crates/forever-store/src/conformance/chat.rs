//! What every store keeps to with chats: turns in order, logs without gaps, ends that stay.
use super::ReadyReceiver;
use super::claims::is_lost;
use crate::{
    AcceptTurnResult, Admission, AgentId, Claim, End, FiberRef, FiberState, IncidentRow, IncidentState, InteractionQuery, MessageRow,
    MessageUpdate, NewFiber, NewTurnRow, QueuePolicy, Store, StreamBatch, Suspension, TurnFilter, TurnKind, TurnRow, TurnSettlement,
    TurnSettler, TurnStart, TurnState, TurnWrite, UpdateRefused,
};

fn chat(name: &str) -> AgentId {
    AgentId { class: "assistant".into(), name: name.into() }
}

fn message(id: &str, role: &str) -> MessageRow {
    MessageRow { id: id.into(), role: role.parse().unwrap(), data: format!("\"{id}\""), pending: false }
}

fn new(of: &str, id: &str) -> NewTurnRow {
    NewTurnRow {
        chat: chat(of),
        id: id.into(),
        key: None,
        kind: TurnKind::Reply,
        queueing: QueuePolicy::Queue,
        max_queued: 100,
        unless_asked: None,
        messages: vec![message(&format!("u-{id}"), "user")],
        cut_behind: None,
        update: None,
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

/// Updates a message of chat `a` from what it is.
async fn update(store: &impl Store, message: MessageRow, wanted: bool, now_ms: i64) {
    let there = store.chat_messages(chat("a"), i64::MAX).await.unwrap();
    let from = there.into_iter().find(|there| there.id == message.id).unwrap().data;
    let written = store.update_message(chat("a"), MessageUpdate { message, from }, wanted, now_ms).await.unwrap();
    assert_eq!(written, Ok(()));
}

async fn accept(store: &impl Store, turn: NewTurnRow) -> TurnRow {
    match store.accept_turn(turn).await.unwrap() {
        AcceptTurnResult::Created(row, fiber) => {
            assert_eq!(fiber.state, FiberState::Pending);
            *row
        }
        other => panic!("{other:?}"),
    }
}

/// Claims the fiber of a turn, as it stands now.
async fn claim(store: &impl Store, turn: &TurnRow) -> Claim {
    let fiber = store.find(FiberRef::Id(format!("fiber-{}-{}", turn.chat.name, turn.id))).await.unwrap().unwrap();
    super::claimed(store, fiber.seq, super::FIRST).await
}

async fn begin(store: &impl Store, turn: &TurnRow) -> TurnStart {
    match store.begin_turn(claim(store, turn).await, turn.seq, 10).await.unwrap() {
        Admission::Begun(begun) => *begun,
        other => panic!("{other:?}"),
    }
}

fn ends(state: TurnState, message: Option<&str>) -> TurnSettlement {
    let reason = (state != TurnState::Completed).then(|| "why".to_owned());
    let error = reason.as_ref().map(|why| format!("{why}: its cause"));
    TurnSettlement { state, reason, error, message: message.map(str::to_owned), pending: false, incident: None, now_ms: 20 }
}

async fn ids(store: &impl Store, of: &str, up_to: i64) -> Vec<String> {
    store.chat_messages(chat(of), up_to).await.unwrap().into_iter().map(|message| message.id).collect()
}

fn chunks(first: u64, lines: &[&str]) -> StreamBatch {
    StreamBatch { first, count: lines.len() as u64, data: lines.join("\n"), stored_ms: 5 }
}

pub(super) async fn accepts_a_turn_once(store: &impl Store) {
    let first = accept(store, NewTurnRow { key: Some("k".into()), ..new("a", "1") }).await;
    assert_eq!((first.state, first.origins.as_slice(), first.message.as_str()), (TurnState::Queued, &["u-1".to_owned()][..], "a-1"));
    let fiber = store.find(FiberRef::Id("fiber-a-1".into())).await.unwrap().unwrap();
    assert_eq!(fiber.state, FiberState::Pending);
    for again in [new("a", "1"), NewTurnRow { key: Some("k".into()), ..new("a", "2") }] {
        let id = again.fiber.id.clone();
        match store.accept_turn(again).await.unwrap() {
            AcceptTurnResult::Existing(there) => assert_eq!(there.seq, first.seq),
            other => panic!("{other:?}"),
        }
        assert!(id == "fiber-a-1" || store.find(FiberRef::Id(id)).await.unwrap().is_none());
    }
    assert_eq!(ids(store, "a", i64::MAX).await, ["u-1"]);
    // Ids and keys are of one chat.
    let other = accept(store, NewTurnRow { key: Some("k".into()), ..new("b", "1") }).await;
    assert_ne!(other.seq, first.seq);
    assert_eq!(store.turn(chat("a"), "1".into()).await.unwrap().unwrap().seq, first.seq);
    assert_eq!(store.turn_by_key(chat("b"), "k".into()).await.unwrap().unwrap().seq, other.seq);
    assert!(store.turn(chat("c"), "1".into()).await.unwrap().is_none());
    assert_eq!(store.turn_request(first.seq).await.unwrap().body.as_deref(), Some("{}"));
}

pub(super) async fn begins_turns_in_order_and_counts_deaths(store: &impl Store) {
    let (first, second) = (accept(store, new("a", "1")).await, accept(store, new("a", "2")).await);
    assert!(
        matches!(store.begin_turn(claim(store, &second).await, second.seq, 10).await.unwrap(), Admission::Behind(fiber) if fiber == "fiber-a-1")
    );
    let begun = begin(store, &first).await;
    assert_eq!((begun.again, begun.row.deaths, begun.row.state), (false, 1, TurnState::Running));
    let begun = begin(store, &first).await;
    assert_eq!((begun.again, begun.row.deaths), (true, 2), "the process died with it");
    store.release_turn(claim(store, &first).await, first.seq).await.unwrap();
    assert_eq!(store.turn_by_seq(first.seq).await.unwrap().unwrap().deaths, 1);
    // What another one asks is not seen by this one, and its answer stands before that.
    assert_eq!(ids(store, "a", first.place).await, ["u-1"]);
    assert_eq!(
        store
            .settle_turn(TurnSettler::Activation(claim(store, &first).await), first.seq, ends(TurnState::Completed, Some("\"answer\"")))
            .await
            .unwrap(),
        TurnWrite::Done
    );
    assert_eq!(ids(store, "a", i64::MAX).await, ["u-1", "a-1", "u-2"]);
    assert!(
        matches!(store.begin_turn(claim(store, &first).await, first.seq, 30).await.unwrap(), Admission::Settled(row) if row.state == TurnState::Completed)
    );
    // A turn in one chat keeps none in another waiting.
    let elsewhere = accept(store, new("b", "1")).await;
    begin(store, &second).await;
    begin(store, &elsewhere).await;
}

pub(super) async fn finds_turns_that_their_fibers_have_left(store: &impl Store) {
    let (first, second) = (accept(store, new("a", "1")).await, accept(store, new("a", "2")).await);
    begin(store, &first).await;
    assert!(store.orphaned_turns().await.unwrap().is_empty());
    let by_other = store.settle_turn(TurnSettler::Other, first.seq, ends(TurnState::Interrupted, None)).await.unwrap();
    assert_eq!(by_other, TurnWrite::HasFiber, "only its fiber ends it");
    let fiber = store.find(FiberRef::Id("fiber-a-1".into())).await.unwrap().unwrap();
    store.end(super::claimed(store, fiber.seq, super::FIRST).await, End::Failed("broken".into()), Vec::new(), Vec::new(), 5).await.unwrap();
    assert_eq!(store.orphaned_turns().await.unwrap(), [first.seq]);
    assert!(
        matches!(store.begin_turn(claim(store, &second).await, second.seq, 10).await.unwrap(), Admission::Orphaned(row) if row.seq == first.seq)
    );
    assert_eq!(store.settle_turn(TurnSettler::Other, first.seq, ends(TurnState::Interrupted, None)).await.unwrap(), TurnWrite::Done);
    assert!(store.orphaned_turns().await.unwrap().is_empty());
    begin(store, &second).await;
}

pub(super) async fn keeps_logs_without_gaps(store: &impl Store) {
    let turn = accept(store, new("a", "1")).await;
    assert_eq!(
        store.append_chunks(claim(store, &turn).await, turn.seq, chunks(0, &["a"])).await.unwrap(),
        TurnWrite::NotRunning,
        "it has not begun"
    );
    begin(store, &turn).await;
    assert_eq!(store.append_chunks(claim(store, &turn).await, turn.seq, chunks(0, &["a", "b"])).await.unwrap(), TurnWrite::Done);
    for wrong in [0, 1, 3] {
        store.append_chunks(claim(store, &turn).await, turn.seq, chunks(wrong, &["x"])).await.unwrap_err();
    }
    store.append_chunks(claim(store, &turn).await, turn.seq, chunks(2, &["c"])).await.unwrap();
    assert_eq!(store.chunks(turn.seq, 0, 9).await.unwrap(), [chunks(0, &["a", "b"]), chunks(2, &["c"])]);
    assert_eq!(store.chunks(turn.seq, 1, 9).await.unwrap().len(), 2, "the row that has chunk 1 in it");
    assert_eq!(store.chunks(turn.seq, 2, 9).await.unwrap(), [chunks(2, &["c"])]);
    assert_eq!(store.chunks(turn.seq, 0, 1).await.unwrap(), [chunks(0, &["a", "b"])]);
    assert_eq!(begin(store, &turn).await.chunks.len(), 2);
    store.settle_turn(TurnSettler::Activation(claim(store, &turn).await), turn.seq, ends(TurnState::Completed, None)).await.unwrap();
    assert_eq!(store.append_chunks(claim(store, &turn).await, turn.seq, chunks(3, &["d"])).await.unwrap(), TurnWrite::NotRunning);
    assert_eq!(store.compact_turns(20, 9).await.unwrap(), 0, "it was settled at 20");
    assert_eq!(store.compact_turns(21, 9).await.unwrap(), 1);
    assert!(store.chunks(turn.seq, 0, 9).await.unwrap().is_empty());
    assert_eq!(store.compact_turns(21, 9).await.unwrap(), 0, "it is folded");
    assert_eq!(store.delete_turns(20, 9).await.unwrap(), 0);
    assert_eq!(store.delete_turns(21, 9).await.unwrap(), 1);
    assert!(store.turn_by_seq(turn.seq).await.unwrap().is_none());
    assert_eq!(ids(store, "a", i64::MAX).await, ["u-1"], "messages stay");
}

pub(super) async fn ends_a_turn_once(store: &impl Store) {
    let turn = accept(store, new("a", "1")).await;
    begin(store, &turn).await;
    assert_eq!(store.stash_turn(claim(store, &turn).await, turn.seq, "1".into()).await.unwrap(), TurnWrite::Done);
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
    store.store_incident(claim(store, &turn).await, turn.seq, incident.clone(), 6).await.unwrap();
    assert_eq!(begin(store, &turn).await.incident, Some(incident));
    let exhausted = TurnSettlement { incident: Some(IncidentState::Exhausted), ..ends(TurnState::Error, Some("\"partial\"")) };
    assert_eq!(store.settle_turn(TurnSettler::Activation(claim(store, &turn).await), turn.seq, exhausted).await.unwrap(), TurnWrite::Done);
    assert_eq!(
        store
            .settle_turn(TurnSettler::Activation(claim(store, &turn).await), turn.seq, ends(TurnState::Completed, Some("\"late\"")))
            .await
            .unwrap(),
        TurnWrite::NotRunning
    );
    assert_eq!(store.stash_turn(claim(store, &turn).await, turn.seq, "2".into()).await.unwrap(), TurnWrite::NotRunning);
    let row = store.turn_by_seq(turn.seq).await.unwrap().unwrap();
    assert_eq!((row.state, row.reason.as_deref(), row.settled_ms), (TurnState::Error, Some("why"), Some(20)));
    assert_eq!(row.error.as_deref(), Some("why: its cause"));
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
    assert!(store.cancel_turn(99, "unknown".into(), 13).await.unwrap().is_none());
    assert_eq!(store.turn_fiber(first.seq).await.unwrap(), Some(FiberState::Running));
    assert_eq!(store.turn_fiber(99).await.unwrap(), None);
    let open = TurnFilter { states: vec![TurnState::Queued, TurnState::Running], ..TurnFilter::default() };
    let listed = store.turns(chat("a"), open, 0, 9).await.unwrap();
    assert_eq!(listed.iter().map(|row| row.seq).collect::<Vec<_>>(), [first.seq]);
    assert_eq!(store.turns(chat("a"), TurnFilter::default(), first.seq, 9).await.unwrap().len(), 1);
    let latest = |states: &[TurnState]| TurnFilter { states: states.to_vec(), latest_first: true };
    for (filter, after, limit, expected) in [
        (latest(&[]), 0, 9, &[second.seq, first.seq][..]),
        (latest(&[]), 0, 1, &[second.seq]),
        (latest(&[]), second.seq, 9, &[first.seq]),
        (latest(&[]), first.seq, 9, &[]),
        (latest(&[TurnState::Running]), 0, 9, &[first.seq]),
        (latest(&[TurnState::Aborted]), 0, 9, &[second.seq]),
    ] {
        let listed = store.turns(chat("a"), filter, after, limit).await.unwrap();
        assert_eq!(listed.iter().map(|row| row.seq).collect::<Vec<_>>(), expected);
    }
}

pub(super) async fn lists_the_turns_of_all_chats(store: &impl Store) {
    let mut seqs = Vec::new();
    for (name, id) in [("a", "1"), ("b", "1"), ("a", "2")] {
        seqs.push(accept(store, new(name, id)).await.seq);
    }
    seqs.reverse();
    for (before, limit, expected) in
        [(None, 9, &seqs[..]), (None, 2, &seqs[..2]), (Some(seqs[0]), 9, &seqs[1..]), (Some(seqs[2]), 9, &[]), (None, 0, &[])]
    {
        let listed = store.all_turns(before, limit).await.unwrap();
        assert_eq!(listed.iter().map(|row| row.seq).collect::<Vec<_>>(), expected, "{limit} before {before:?}");
    }
    let names: Vec<_> = store.all_turns(None, 9).await.unwrap().into_iter().map(|row| row.chat.name).collect();
    assert_eq!(names, ["a", "b", "a"]);
}

pub(super) async fn lists_the_failed_turns_of_all_chats(store: &impl Store) {
    let mut failed = Vec::new();
    for (name, state) in [
        ("a", TurnState::Completed),
        ("b", TurnState::Error),
        ("c", TurnState::Aborted),
        ("d", TurnState::Interrupted),
        ("e", TurnState::Error),
    ] {
        let turn = accept(store, new(name, "1")).await;
        begin(store, &turn).await;
        let claim = claim(store, &turn).await;
        store.settle_turn(TurnSettler::Activation(claim), turn.seq, ends(state, None)).await.unwrap();
        if matches!(state, TurnState::Error | TurnState::Interrupted) {
            failed.insert(0, turn.seq);
        }
    }
    begin(store, &accept(store, new("f", "1")).await).await;
    for (before, limit, expected) in
        [(None, 9, &failed[..]), (None, 2, &failed[..2]), (Some(failed[0]), 9, &failed[1..]), (Some(failed[2]), 9, &[])]
    {
        let listed = store.failed_turns(before, limit).await.unwrap();
        assert_eq!(listed.iter().map(|row| row.seq).collect::<Vec<_>>(), expected, "{limit} before {before:?}");
    }
}

/// The state of the fiber of a turn.
async fn fiber_state(store: &impl Store, turn: &TurnRow) -> FiberState {
    store.turn_fiber(turn.seq).await.unwrap().unwrap()
}

pub(super) async fn lets_a_parked_turn_see_that_it_was_cancelled(store: &impl Store) {
    let mut told = ReadyReceiver::by(store);
    for ends in ["cancelled", "cleared"] {
        let (parked, runs) = (accept(store, new(ends, "1")).await, accept(store, new(&format!("{ends} beside"), "1")).await);
        assert_eq!(begin(store, &runs).await.row.deaths, 1);
        assert_eq!(begin(store, &parked).await.row.deaths, 1);
        let claim = self::claim(store, &parked).await;
        assert!(store.park_turn(claim, parked.seq, "in doubt".into(), 11).await.unwrap());
        let there = super::row(store, &format!("fiber-{ends}-1")).await;
        assert_eq!((there.state, there.reason.as_deref()), (FiberState::Parked, Some("in doubt")));
        assert_eq!(store.turn_by_seq(parked.seq).await.unwrap().unwrap().deaths, 0, "no process dies with it");
        assert!(is_lost(store.suspend(claim, Suspension::Parked("in doubt".into()), 12).await), "the claim is released");
        assert!(told.ids().is_empty());
        if ends == "cleared" {
            assert_eq!(store.clear_chat(chat(ends), 13).await.unwrap().len(), 1);
            store.clear_chat(runs.chat.clone(), 13).await.unwrap();
        } else {
            store.cancel_turn(parked.seq, "enough".into(), 13).await.unwrap();
            store.cancel_turn(runs.seq, "enough".into(), 13).await.unwrap();
        }
        assert_eq!(told.ids(), [there.id.as_str()], "one that runs hears of it in its process");
        assert_eq!((fiber_state(store, &parked).await, fiber_state(store, &runs).await), (FiberState::Pending, FiberState::Running));
        assert!(is_lost(store.suspend(claim, Suspension::Parked("late".into()), 14).await));
        assert!(!store.load(claim.fiber).await.unwrap().interrupted, "a fiber that was parked was not interrupted");
        // It is ready already.
        store.cancel_turn(parked.seq, "again".into(), 15).await.unwrap();
        assert!(told.ids().is_empty());
    }
}

pub(super) async fn parks_no_turn_that_was_told_to_end(store: &impl Store) {
    for ends in ["cancelled", "cleared", "settled"] {
        let turn = accept(store, new(ends, "1")).await;
        begin(store, &turn).await;
        let held = claim(store, &turn).await;
        match ends {
            "cancelled" => drop(store.cancel_turn(turn.seq, "enough".into(), 11).await.unwrap()),
            "cleared" => drop(store.clear_chat(turn.chat.clone(), 11).await.unwrap()),
            _ => {
                let completed = self::ends(TurnState::Completed, None);
                store.settle_turn(TurnSettler::Activation(held), turn.seq, completed).await.unwrap();
            }
        }
        assert!(!store.park_turn(held, turn.seq, "in doubt".into(), 12).await.unwrap(), "{ends}");
        assert_eq!(fiber_state(store, &turn).await, FiberState::Running, "{ends}");
        // The claim is still in force, and the turn may be begun again.
        match store.begin_turn(held, turn.seq, 13).await.unwrap() {
            Admission::Begun(begun) => {
                assert_eq!((ends, begun.row.cancel.as_deref(), begun.row.deaths), ("cancelled", Some("enough"), 1));
            }
            Admission::Settled(_) => assert_ne!(ends, "cancelled"),
            other => panic!("{ends}: {other:?}"),
        }
    }
    // A fiber that was itself cancelled ends when it stops.
    let turn = accept(store, new("told", "1")).await;
    begin(store, &turn).await;
    let held = claim(store, &turn).await;
    store.cancel("fiber-told-1".into(), "enough".into(), 11).await.unwrap();
    assert!(store.park_turn(held, turn.seq, "in doubt".into(), 12).await.unwrap());
    let end = store.suspend(held, Suspension::Parked("in doubt".into()), 13).await.unwrap();
    assert_eq!(end, Some(End::Cancelled("enough".into())));
}

pub(super) async fn lets_others_take_the_place_of_a_turn(store: &impl Store) {
    let first = accept(store, new("a", "1")).await;
    begin(store, &first).await;
    let dropped = store.accept_turn(NewTurnRow { queueing: QueuePolicy::Drop, ..new("a", "2") }).await.unwrap();
    assert!(matches!(dropped, AcceptTurnResult::Dropped));
    assert_eq!(ids(store, "a", i64::MAX).await, ["u-1"]);
    let mut waiting = Vec::new();
    for id in ["3", "4"] {
        waiting.push(accept(store, NewTurnRow { queueing: QueuePolicy::Latest, ..new("a", id) }).await);
    }
    assert!(
        matches!(store.begin_turn(claim(store, &waiting[0]).await, waiting[0].seq, 12).await.unwrap(), Admission::Settled(row) if row.state == TurnState::Skipped)
    );
    assert!(matches!(store.begin_turn(claim(store, &waiting[1]).await, waiting[1].seq, 12).await.unwrap(), Admission::Behind(_)));
    store.settle_turn(TurnSettler::Activation(claim(store, &first).await), first.seq, ends(TurnState::Completed, None)).await.unwrap();
    begin(store, &waiting[1]).await;
    store
        .settle_turn(TurnSettler::Activation(claim(store, &waiting[1]).await), waiting[1].seq, ends(TurnState::Completed, None))
        .await
        .unwrap();
    let quiet = accept(store, NewTurnRow { queueing: QueuePolicy::Debounce(100), ..new("a", "5") }).await;
    assert!(matches!(store.begin_turn(claim(store, &quiet).await, quiet.seq, 100).await.unwrap(), Admission::NotBefore(101)));
    assert!(matches!(store.begin_turn(claim(store, &quiet).await, quiet.seq, 101).await.unwrap(), Admission::Begun(_)));
}

pub(super) async fn queues_no_more_turns_than_it_may(store: &impl Store) {
    let at_most = |max_queued, id: &str| NewTurnRow { max_queued, ..new("a", id) };
    assert!(matches!(store.accept_turn(at_most(0, "0")).await.unwrap(), AcceptTurnResult::Full));
    let running = accept(store, at_most(1, "1")).await;
    assert!(matches!(store.accept_turn(at_most(1, "2")).await.unwrap(), AcceptTurnResult::Full));
    begin(store, &running).await;
    // A turn that has begun is not queued.
    let queued = accept(store, at_most(2, "2")).await;
    accept(store, at_most(2, "3")).await;
    for policy in [QueuePolicy::Queue, QueuePolicy::Latest, QueuePolicy::Merge, QueuePolicy::Debounce(5)] {
        let refused = store.accept_turn(NewTurnRow { queueing: policy, ..at_most(2, "4") }).await.unwrap();
        assert!(matches!(refused, AcceptTurnResult::Full), "{policy:?}");
    }
    assert_eq!(ids(store, "a", i64::MAX).await, ["u-1", "u-2", "u-3"], "the messages of a refused turn are not stored");
    let more = NewTurnRow { kind: TurnKind::Continue, messages: Vec::new(), ..at_most(2, "5") };
    assert!(matches!(store.accept_turn(more).await.unwrap(), AcceptTurnResult::Created(..)), "a continuation is not limited");
    // A repeated request finds its turn, and other chats have a queue of their own.
    assert!(matches!(store.accept_turn(at_most(2, "3")).await.unwrap(), AcceptTurnResult::Existing(_)));
    accept(store, NewTurnRow { max_queued: 2, ..new("b", "1") }).await;
    store.cancel_turn(queued.seq, "not needed".into(), 12).await.unwrap();
    accept(store, at_most(3, "4")).await;
}

pub(super) async fn joins_the_turn_that_replies_to_a_message(store: &impl Store) {
    let unless = |message: &str, id: &str| NewTurnRow { unless_asked: Some(message.into()), ..new("a", id) };
    // A message that is new, and one that another chat has.
    let first = accept(store, unless("u-1", "1")).await;
    accept(store, NewTurnRow { messages: vec![message("u-1", "user")], unless_asked: Some("u-1".into()), ..new("b", "2") }).await;
    // Two messages at once, of which the first comes again by itself, before the turn has ended and
    // after that.
    let both = NewTurnRow { messages: vec![message("u-2", "user"), message("u-3", "user")], ..unless("u-3", "3") };
    let both = accept(store, both).await;
    for settled in [false, true] {
        for (asked, turn) in [("u-1", &first), ("u-2", &both), ("u-3", &both)] {
            let again = NewTurnRow { messages: vec![message(asked, "user")], ..unless(asked, &format!("again {asked}")) };
            let AcceptTurnResult::Existing(there) = store.accept_turn(again).await.unwrap() else { panic!("{asked} is asked twice") };
            assert_eq!(there.id, turn.id, "{asked} {settled}");
        }
        assert_eq!(ids(store, "a", i64::MAX).await.len(), if settled { 5 } else { 3 });
        if !settled {
            for turn in [&first, &both] {
                begin(store, turn).await;
                let ended = ends(TurnState::Completed, Some("\"answer\""));
                store.settle_turn(TurnSettler::Activation(claim(store, turn).await), turn.seq, ended).await.unwrap();
            }
        }
    }
    // Without the condition it is asked again; a continuation is no reply.
    let more = NewTurnRow { kind: TurnKind::Continue, messages: Vec::new(), ..new("a", "more") };
    assert!(matches!(store.accept_turn(more).await.unwrap(), AcceptTurnResult::Created(..)));
    let again = accept(store, NewTurnRow { messages: vec![message("u-3", "user")], ..new("a", "4") }).await;
    let AcceptTurnResult::Existing(latest) = store.accept_turn(unless("u-3", "5")).await.unwrap() else { panic!("asked twice") };
    assert_eq!(latest.id, again.id);
    // Ids may have any character.
    for (n, odd) in ["\0", "a\u{1a}0", "\"],[\"", "\\u0000", "%_\u{10ffff}"].into_iter().enumerate() {
        let of = |id: String| NewTurnRow { messages: vec![message(odd, "user")], unless_asked: Some(odd.into()), ..new("odd", &id) };
        let turn = accept(store, of(format!("{n}"))).await;
        assert_eq!(turn.origins, [odd]);
        let AcceptTurnResult::Existing(there) = store.accept_turn(of(format!("{n} again"))).await.unwrap() else { panic!("{odd:?}") };
        assert_eq!(there.id, turn.id, "{odd:?}");
    }
}

pub(super) async fn continues_and_asks_again(store: &impl Store) {
    let more = |id: &str| NewTurnRow { kind: TurnKind::Continue, messages: Vec::new(), ..new("a", id) };
    assert!(matches!(store.accept_turn(more("0")).await.unwrap(), AcceptTurnResult::NothingToContinue));
    let asked = NewTurnRow { body: Some("1".into()), tools: Some("[]".into()), metadata: Some("2".into()), ..new("a", "1") };
    let first = accept(store, asked).await;
    begin(store, &first).await;
    // What is under way is what will be continued, with what it was asked with.
    let next = accept(store, NewTurnRow { body: None, ..more("2") }).await;
    assert_eq!((next.message.as_str(), next.place), ("a-1", first.place));
    let request = store.turn_request(next.seq).await.unwrap();
    assert_eq!((request.body.as_deref(), request.tools.as_deref(), request.metadata), (Some("1"), Some("[]"), None));
    store
        .settle_turn(TurnSettler::Activation(claim(store, &first).await), first.seq, ends(TurnState::Completed, Some("\"answer\"")))
        .await
        .unwrap();
    begin(store, &next).await;
    store
        .settle_turn(TurnSettler::Activation(claim(store, &next).await), next.seq, ends(TurnState::Completed, Some("\"longer\"")))
        .await
        .unwrap();
    assert_eq!(ids(store, "a", i64::MAX).await, ["u-1", "a-1"]);
    assert_eq!(store.chat_messages(chat("a"), i64::MAX).await.unwrap()[1].data, "\"longer\"");
    let again = accept(store, NewTurnRow { messages: Vec::new(), cut_behind: Some("u-1".into()), ..new("a", "3") }).await;
    assert_eq!(ids(store, "a", i64::MAX).await, ["u-1"]);
    assert_eq!(again.origins, ["u-1"]);
    store.cancel_turn(again.seq, "enough".into(), 9).await.unwrap();
    assert!(matches!(store.accept_turn(more("4")).await.unwrap(), AcceptTurnResult::NothingToContinue), "the last message is the user's");
    assert!(
        store.replace_messages(chat("a"), vec![message("u", "user"), message("v", "assistant"), message("w", "user")], 10).await.unwrap()
    );
    update(store, message("v", "assistant"), true, 11).await;
    let stored = store.chat_messages(chat("a"), i64::MAX).await.unwrap();
    for nothing in [
        NewTurnRow { cut_behind: Some("u".into()), ..more("5") },
        NewTurnRow { messages: vec![asks("v"), message("x", "user")], ..more("5") },
    ] {
        assert!(matches!(store.accept_turn(nothing).await.unwrap(), AcceptTurnResult::NothingToContinue));
        assert_eq!(store.chat_messages(chat("a"), i64::MAX).await.unwrap(), stored, "nothing was changed");
        assert_eq!(store.continuation_target(chat("a")).await.unwrap().as_deref(), Some("v"));
    }
}

pub(super) async fn replaces_and_clears_messages(store: &impl Store) {
    assert_eq!(store.continuation_target(chat("a")).await.unwrap(), None);
    assert!(store.replace_messages(chat("a"), vec![message("m", "system"), message("n", "user")], 1).await.unwrap());
    let changed = MessageRow { data: "\"changed\"".into(), ..message("n", "user") };
    update(store, changed.clone(), true, 2).await;
    assert_eq!(store.continuation_target(chat("a")).await.unwrap().as_deref(), Some("n"));
    assert_eq!(store.chat_messages(chat("a"), i64::MAX).await.unwrap(), [message("m", "system"), changed]);
    let (first, second) = (accept(store, new("a", "1")).await, accept(store, new("a", "2")).await);
    assert_eq!(store.continuation_target(chat("a")).await.unwrap(), None, "what was to follow has followed");
    assert!(!store.replace_messages(chat("a"), Vec::new(), 3).await.unwrap(), "a turn is under way");
    begin(store, &first).await;
    store.append_chunks(claim(store, &first).await, first.seq, chunks(0, &["a"])).await.unwrap();
    let ended = store.clear_chat(chat("a"), 7).await.unwrap();
    let states: Vec<_> = ended.iter().map(|row| (row.seq, row.state, row.settled_ms)).collect();
    assert_eq!(states, [(first.seq, TurnState::Aborted, Some(7)), (second.seq, TurnState::Skipped, Some(7))]);
    assert!(ids(store, "a", i64::MAX).await.is_empty());
    assert!(store.chunks(first.seq, 0, 9).await.unwrap().is_empty());
    assert_eq!(
        store
            .settle_turn(TurnSettler::Activation(claim(store, &first).await), first.seq, ends(TurnState::Completed, Some("\"late\"")))
            .await
            .unwrap(),
        TurnWrite::NotRunning
    );
    assert!(ids(store, "a", i64::MAX).await.is_empty());
    assert!(store.clear_chat(chat("unknown"), 8).await.unwrap().is_empty());
}

pub(super) async fn holds_a_continuation_for_the_message_that_wants_it(store: &impl Store) {
    let said = |id: &str| message(id, "assistant");
    assert!(store.replace_messages(chat("a"), vec![said("m"), message("u", "user"), said("n")], 1).await.unwrap());
    let target = async || store.continuation_target(chat("a")).await.unwrap();
    for (id, wanted, held) in [
        ("m", true, Some("m")),
        ("n", false, Some("m")),
        ("n", true, Some("n")),
        ("m", true, Some("n")),
        ("m", false, Some("n")),
        ("n", false, None),
    ] {
        update(store, said(id), wanted, 2).await;
        assert_eq!(target().await.as_deref(), held, "{id} {wanted}");
    }
    for (id, held) in [("m", "m"), ("n", "n"), ("m", "n"), ("of a running turn", "of a running turn")] {
        store.want_continuation(chat("a"), id.into()).await.unwrap();
        assert_eq!(target().await.as_deref(), Some(held), "{id}");
    }
    store.want_continuation(chat("unknown"), "m".into()).await.unwrap();
}

/// An answer is stored in the message that was read, and not while a turn that has read the message
/// will write it.
pub(super) async fn updates_a_message_that_no_running_turn_has_read(store: &impl Store) {
    let more = |id: &str| NewTurnRow { kind: TurnKind::Continue, messages: Vec::new(), ..new("a", id) };
    let written = |data: &str| MessageRow { data: data.into(), ..message("n", "assistant") };
    let change = |from: &str, to: &str| MessageUpdate { message: written(to), from: from.into() };
    let tries = async |from: &str, to: &str, id: &str| {
        let before = store.chat_messages(chat("a"), i64::MAX).await.unwrap();
        let accepted = store.accept_turn(NewTurnRow { update: Some(change(from, to)), ..more(id) }).await.unwrap();
        let AcceptTurnResult::Refused(refused) = accepted else { panic!("{accepted:?}") };
        assert_eq!(store.update_message(chat("a"), change(from, to), true, 5).await.unwrap(), Err(refused));
        assert_eq!(store.chat_messages(chat("a"), i64::MAX).await.unwrap(), before, "nothing was changed");
        assert_eq!(store.continuation_target(chat("a")).await.unwrap(), None);
        refused
    };
    assert_eq!(store.update_message(chat("a"), change("1", "2"), true, 1).await.unwrap(), Err(UpdateRefused::Changed), "there is no chat");
    assert!(store.replace_messages(chat("a"), vec![message("u", "user"), written("1")], 1).await.unwrap());
    assert_eq!(tries("0", "2", "0").await, UpdateRefused::Changed);
    let turn = accept(store, NewTurnRow { update: Some(change("1", "2")), ..more("1") }).await;
    assert_eq!(store.chat_messages(chat("a"), i64::MAX).await.unwrap()[1], written("2"));
    // It is read when the turn begins.
    assert_eq!(store.update_message(chat("a"), change("2", "3"), false, 2).await.unwrap(), Ok(()));
    begin(store, &turn).await;
    assert_eq!(tries("3", "4", "2").await, UpdateRefused::InUse);
    assert_eq!(tries("0", "4", "2").await, UpdateRefused::InUse, "it may be the one that was read when the turn has ended");
    // The turn does not write another message.
    let other = MessageUpdate { message: MessageRow { data: "5".into(), ..message("u", "user") }, from: message("u", "user").data };
    assert_eq!(store.update_message(chat("a"), other, false, 3).await.unwrap(), Ok(()));
    // A fiber that does not run reads the message again when it does.
    store.take_over(super::SECOND, 3).await.unwrap();
    assert_eq!(store.update_message(chat("a"), change("3", "4"), false, 4).await.unwrap(), Ok(()));
    let fiber = store.find(FiberRef::Id("fiber-a-1".into())).await.unwrap().unwrap().seq;
    let claim = super::claimed(store, fiber, super::SECOND).await;
    assert_eq!(tries("4", "5", "3").await, UpdateRefused::InUse);
    store.settle_turn(TurnSettler::Activation(claim), turn.seq, ends(TurnState::Completed, Some("6"))).await.unwrap();
    assert_eq!(tries("4", "5", "4").await, UpdateRefused::Changed, "it was written since");
    assert_eq!(store.update_message(chat("a"), change("6", "7"), true, 6).await.unwrap(), Ok(()));
    store.clear_chat(chat("a"), 7).await.unwrap();
    assert_eq!(
        store.update_message(chat("a"), change("7", "8"), false, 8).await.unwrap(),
        Err(UpdateRefused::Changed),
        "it is not brought back"
    );
}

/// A message that waits for a person.
fn asks(id: &str) -> MessageRow {
    MessageRow { pending: true, ..message(id, "assistant") }
}

/// Chat, message and time of everything that is pending, the latest first; read one by one.
async fn pending(store: &impl Store, query: InteractionQuery) -> Vec<(String, String, i64)> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = store.pending_interactions(query.clone(), after, 1).await.unwrap();
        let Some(row) = page.into_iter().next() else { break };
        assert!(row.message.pending && after.is_none_or(|after| row.at < after), "{row:?} after {after:?}");
        after = Some(row.at);
        found.push(row);
    }
    assert_eq!(store.pending_interactions(query.clone(), None, 1000).await.unwrap(), found);
    if let [first, behind @ ..] = &*found {
        assert_eq!(store.pending_interactions(query, Some(first.at), 1000).await.unwrap(), behind);
    }
    found.into_iter().map(|row| (row.chat.name, row.message.id, row.at.pending_ms)).collect()
}

async fn all_pending(store: &impl Store) -> Vec<(String, String, i64)> {
    pending(store, InteractionQuery::default()).await
}

fn at(chat: &str, message: &str, since_ms: i64) -> (String, String, i64) {
    (chat.to_owned(), message.to_owned(), since_ms)
}

/// Every write of a message: the mark comes and goes with it, and the time is that of the first.
pub(super) async fn lists_messages_for_as_long_as_they_are_pending(store: &impl Store) {
    assert_eq!(all_pending(store).await, []);
    assert!(store.replace_messages(chat("a"), vec![message("m", "user"), asks("n")], 5).await.unwrap());
    assert_eq!(all_pending(store).await, [at("a", "n", 5)]);
    // It stays, whichever write comes; also at another place.
    update(store, MessageRow { data: "7".into(), ..asks("n") }, false, 6).await;
    assert!(store.replace_messages(chat("a"), vec![asks("n"), message("m", "user")], 7).await.unwrap());
    accept(store, NewTurnRow { messages: vec![asks("n")], now_ms: 8, ..new("a", "1") }).await;
    assert_eq!(all_pending(store).await, [at("a", "n", 5)]);
    let read = store.chat_messages(chat("a"), i64::MAX).await.unwrap();
    assert_eq!(read, [asks("n"), message("m", "user")]);
    // Answered, in each of the ways; and pending again, since then.
    update(store, message("n", "assistant"), true, 9).await;
    assert_eq!(all_pending(store).await, []);
    update(store, asks("n"), true, 10).await;
    assert_eq!(all_pending(store).await, [at("a", "n", 10)]);
    accept(store, NewTurnRow { messages: vec![message("n", "assistant"), asks("o")], now_ms: 11, ..new("a", "2") }).await;
    assert_eq!(all_pending(store).await, [at("a", "o", 11)]);
    // What is cut off goes, and so does everything when the chat is cleared.
    accept(store, NewTurnRow { messages: vec![asks("p")], cut_behind: Some("m".into()), now_ms: 12, ..new("a", "3") }).await;
    assert_eq!(all_pending(store).await, [at("a", "p", 12)]);
    store.clear_chat(chat("a"), 13).await.unwrap();
    assert_eq!(all_pending(store).await, []);
    assert!(store.replace_messages(chat("a"), vec![asks("p")], 14).await.unwrap());
    assert_eq!(all_pending(store).await, [at("a", "p", 14)], "nothing is known of the one that was cleared");
    assert!(store.replace_messages(chat("a"), vec![message("q", "user")], 15).await.unwrap());
    assert_eq!(all_pending(store).await, []);
}

pub(super) async fn lists_pending_messages_by_page_and_by_agent(store: &impl Store) {
    let other = AgentId { class: "clerk".into(), name: "a".into() };
    for (of, messages, now_ms) in [
        (chat("a"), vec![asks("1"), message("2", "user"), asks("3")], 5),
        (chat("b"), vec![asks("1")], 4),
        (other, vec![message("0", "user"), asks("1")], 5),
        (chat("c"), vec![message("1", "assistant")], 9),
        (chat("d"), vec![asks("1")], 6),
    ] {
        assert!(store.replace_messages(of, messages, now_ms).await.unwrap());
    }
    // Of one time, what was stored last comes first.
    assert_eq!(all_pending(store).await, [at("d", "1", 6), at("a", "1", 5), at("a", "3", 5), at("a", "1", 5), at("b", "1", 4)]);
    let of = |class: &str, agent: Option<&str>| InteractionQuery { class: Some(class.into()), agent: agent.map(str::to_owned) };
    assert_eq!(pending(store, of("clerk", None)).await, [at("a", "1", 5)]);
    assert_eq!(pending(store, of("assistant", None)).await, [at("d", "1", 6), at("a", "3", 5), at("a", "1", 5), at("b", "1", 4)]);
    assert_eq!(pending(store, of("assistant", Some("a"))).await, [at("a", "3", 5), at("a", "1", 5)]);
    assert_eq!(pending(store, of("assistant", Some("c"))).await, []);
    assert_eq!(pending(store, of("clerk", Some("b"))).await, []);
    let superseded: Vec<_> =
        store.pending_interactions(of("assistant", Some("a")), None, 9).await.unwrap().iter().map(|row| row.superseded).collect();
    assert_eq!(superseded, [false, true]);
}

pub(super) async fn leaves_out_the_message_of_a_running_turn(store: &impl Store) {
    let more = |id: &str| NewTurnRow { kind: TurnKind::Continue, messages: Vec::new(), ..new("a", id) };
    assert!(store.replace_messages(chat("a"), vec![asks("0"), message("u", "user")], 3).await.unwrap());
    let first = accept(store, new("a", "1")).await;
    begin(store, &first).await;
    assert_eq!(all_pending(store).await, [at("a", "0", 3)]);
    let settled = TurnSettlement { pending: true, ..ends(TurnState::Completed, Some("1")) };
    store.settle_turn(TurnSettler::Activation(claim(store, &first).await), first.seq, settled.clone()).await.unwrap();
    assert_eq!(all_pending(store).await, [at("a", "a-1", 20), at("a", "0", 3)]);
    let next = accept(store, more("2")).await;
    assert_eq!(all_pending(store).await, [at("a", "a-1", 20), at("a", "0", 3)], "it has not begun");
    begin(store, &next).await;
    assert_eq!(all_pending(store).await, [at("a", "0", 3)]);
    let still = TurnSettlement { now_ms: 30, ..settled };
    store.settle_turn(TurnSettler::Activation(claim(store, &next).await), next.seq, still).await.unwrap();
    assert_eq!(all_pending(store).await, [at("a", "a-1", 20), at("a", "0", 3)], "it has waited since then");
    let last = accept(store, more("3")).await;
    begin(store, &last).await;
    store.settle_turn(TurnSettler::Activation(claim(store, &last).await), last.seq, ends(TurnState::Completed, Some("2"))).await.unwrap();
    assert_eq!(all_pending(store).await, [at("a", "0", 3)]);
}

/// Every write of an activation of a turn, with a claim that is lost and with that of another
/// fiber: refused, and nothing is changed.
pub(super) async fn refuses_writes_without_the_claim_of_the_turn(store: &impl Store) {
    let (turn, other) = (accept(store, new("a", "1")).await, accept(store, new("b", "1")).await);
    let lost = claim(store, &turn).await;
    assert!(matches!(store.begin_turn(lost, turn.seq, 2).await.unwrap(), Admission::Begun(_)));
    store.append_chunks(lost, turn.seq, chunks(0, &["a"])).await.unwrap();
    store.take_over(super::SECOND, 3).await.unwrap();
    let fiber = store.find(FiberRef::Id("fiber-a-1".into())).await.unwrap().unwrap().seq;
    let held = super::claimed(store, fiber, super::SECOND).await;
    let of_other = claim(store, &other).await;
    let seen = async || {
        let row = store.turn_by_seq(turn.seq).await.unwrap();
        let request = store.turn_request(turn.seq).await.unwrap();
        format!("{row:?} {request:?} {:?} {:?}", store.chunks(turn.seq, 0, 9).await.unwrap(), ids(store, "a", i64::MAX).await)
    };
    let before = seen().await;
    let incident = IncidentRow {
        continues: true,
        state: IncidentState::Attempting,
        attempts: 1,
        attempt_ms: 3,
        chunks: 1,
        began_at: 1,
        progress_ms: 3,
        reason: None,
        created_ms: 3,
    };
    for wrong in [lost, of_other] {
        assert!(is_lost(store.begin_turn(wrong, turn.seq, 4).await));
        assert!(is_lost(store.append_chunks(wrong, turn.seq, chunks(1, &["b"])).await));
        assert!(is_lost(store.stash_turn(wrong, turn.seq, "1".into()).await));
        assert!(is_lost(store.store_incident(wrong, turn.seq, incident.clone(), 4).await));
        assert!(is_lost(store.release_turn(wrong, turn.seq).await));
        assert!(is_lost(store.park_turn(wrong, turn.seq, "why".into(), 4).await));
        let settled = store.settle_turn(TurnSettler::Activation(wrong), turn.seq, ends(TurnState::Completed, Some("\"late\""))).await;
        assert!(is_lost(settled));
    }
    assert_eq!(seen().await, before);
    assert_eq!(store.append_chunks(held, turn.seq, chunks(1, &["b"])).await.unwrap(), TurnWrite::Done);
    assert!(matches!(store.begin_turn(held, turn.seq, 5).await.unwrap(), Admission::Begun(begun) if begun.incident.is_none()));
}
