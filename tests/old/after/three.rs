//! What becomes of what version 3 has brought: the ledger, and the program's own tables.
use forever::Forever;
use forever::ops::{OpResolution, OpState};
use serde_json::json;

use super::soon;
use crate::programs::three::{anew, asked, booked, declined, known, letters, looked_up, rented, streamed, unknown};

pub(crate) async fn finish(forever: &Forever) {
    assert_eq!(soon("known", forever.fiber::<known>("known").wait()).await.unwrap(), 506);
    let op = forever.ops("known").await.unwrap().remove(0);
    assert_eq!((op.state, op.key, op.result), (OpState::Completed, Some(json!(["order", 500])), Some(json!(506))));
    assert_eq!(soon("asked", forever.fiber::<asked>("asked").wait()).await.unwrap(), 3);
    assert_eq!(soon("streamed", forever.fiber::<streamed>("streamed").wait()).await.unwrap(), ["chunk"]);
    assert_eq!(soon("rented", forever.fiber::<rented>("rented").wait()).await.unwrap(), (2, true));
    assert_eq!(soon("looked up", forever.fiber::<looked_up>("looked up").wait()).await.unwrap(), 99);
    assert!(forever.ops("looked up").await.unwrap()[0].resolved);
    assert_eq!(soon("booked", forever.fiber::<booked>("booked").wait()).await.unwrap(), 41);
    assert_eq!(soon("anew", forever.fiber::<anew>("anew").wait()).await.unwrap(), 11);

    let refused = forever.fiber::<declined>("declined");
    let error = soon("declined", refused.wait()).await.unwrap_err();
    assert_eq!((error.is_failed(), error.reason()), (true, "card declined"));
    let before = forever.ops("declined").await.unwrap().remove(0);
    assert_eq!((before.state, before.error.as_deref()), (OpState::Failed, Some("card declined")));
    forever.resume("declined").await.unwrap();
    assert_eq!(soon("declined", refused.wait()).await.unwrap(), 8);
    let ops = forever.ops("declined").await.unwrap();
    assert_eq!((ops.len(), &ops[0].id, ops[0].state), (1, &before.id, OpState::Completed));

    let parked = forever.fiber::<unknown>("unknown");
    let op = doubtful(forever, "unknown", soon("unknown", parked.wait()).await.unwrap_err()).await;
    forever.resolve_op(&op, OpResolution::completed(&77).unwrap()).await.unwrap();
    assert_eq!(soon("unknown", parked.wait()).await.unwrap(), 77);

    let parked = forever.fiber::<letters>("letters");
    let op = doubtful(forever, "letters", soon("letters", parked.wait()).await.unwrap_err()).await;
    forever.resolve_op(&op, OpResolution::NotExecuted).await.unwrap();
    assert_eq!(soon("letters", parked.wait()).await.unwrap(), 25);

    let entries = forever.transaction(|tx| {
        let one: i64 = tx.query_row("SELECT count(*) FROM entries WHERE what = 'booked' AND note IS NULL", (), |row| row.get(0))?;
        anyhow::Ok(one)
    });
    assert_eq!(entries.await.unwrap(), 1);
}

/// The one operation of which nobody knows; the fiber is parked and names it.
async fn doubtful(forever: &Forever, id: &str, error: forever::fiber::FiberError) -> String {
    let mut ops = forever.ops(id).await.unwrap();
    ops.retain(|op| op.state == OpState::Started);
    assert_eq!(ops.len(), 1);
    let op = ops.remove(0).id;
    assert!(error.is_parked() && error.reason().contains(&op), "{error}");
    op
}
