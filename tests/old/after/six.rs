//! The end of what version 6 has brought: a call that is under way, and loops of agents that are fibers of their own.
use forever::Forever;
use forever::chat::message::Part;
use serde_json::json;

use super::soon;
use crate::programs::six::{MINERS, Miner, caller};

pub(crate) async fn finish(forever: &Forever) {
    let sum = soon("caller", forever.handle::<caller>("caller").wait()).await.unwrap();
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
        let ops = forever.ops(&format!("miner/{name}/turn/{turn}")).await.unwrap();
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
