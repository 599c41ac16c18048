//! The end of what version 6 has brought: a call that is under way, and loops of agents, which are fibers of their own before version 7.
use forever::Forever;
use forever::agent::Agent;
use forever::chat::message::Part;
use forever::prelude::*;
use serde_json::json;

use super::soon;
use crate::programs::six::{MINERS, Miner, caller};

pub(crate) async fn finish(forever: &Forever, version: u32) {
    let sum = soon("caller", forever.fiber::<caller>("caller").wait()).await.unwrap();
    assert_eq!(sum, "called: first".len() + "called: second".len() + "caller: end".len());
    for (name, turn, tool) in MINERS {
        let agent = forever.agent::<Miner>(name);
        let end = soon(turn, agent.turn(turn).await.unwrap().unwrap().wait()).await.unwrap();
        assert!(end.is_completed(), "{turn}: {end:?}");
        let messages = agent.messages().await.unwrap();
        assert_eq!(messages.len(), 2, "{turn}");
        let parts = &messages[1].parts;
        assert_eq!(messages[1].text(), "Well. Done.", "{turn}");
        let calls: Vec<&Part> = parts.iter().filter(|part| part.is_tool()).collect();
        assert_eq!(calls.len(), 2, "{turn}: {parts:?}");
        let fiber = if version < 7 { format!("miner/{name}/turn/{turn}") } else { fiber_of_turn(forever, name).await };
        let ops = forever.ops(&fiber).await.unwrap();
        let op = |call: &str| ops.iter().find(|op| op.key == Some(json!(call))).unwrap();
        assert_eq!(calls[0].get("output"), Some(&json!(op("one").id)), "the operation of then");
        if tool == "dig" {
            assert_eq!(calls[1].get("output"), Some(&json!(op("two").id)), "the operation of then");
        } else {
            let why = calls[1].get("errorText").unwrap().as_str().unwrap();
            assert!(why.contains("may have been carried out"), "{why}");
        }
    }
}

/// The fiber of the only turn of a miner, in which its loop is.
async fn fiber_of_turn(forever: &Forever, name: &str) -> String {
    let mut fibers = forever.fibers().agent(Miner::CLASS, name).await.unwrap().fibers;
    assert_eq!(fibers.len(), 1, "the loop is in the fiber of its turn");
    fibers.remove(0).id
}
