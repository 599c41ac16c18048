//! What no write may do, whatever it has read before: triggers of the one connection that writes.
//!
//! They are temporary, so they are no part of the file, and a person with another tool may repair
//! it by hand.
use rusqlite::Connection;

/// Installs the triggers on the writer's connection.
pub(super) fn install(conn: &Connection) -> rusqlite::Result<()> {
    conn.execute_batch(
        "CREATE TEMP TRIGGER completed_operation_begins BEFORE UPDATE OF state ON main.ops
         WHEN NEW.state = 'started' AND OLD.state = 'completed' AND NOT OLD.resolved
         BEGIN SELECT RAISE(ABORT, 'an operation has completed, and does not begin again'); END;
         CREATE TEMP TRIGGER fiber_is_made_for_no_worker BEFORE INSERT ON main.snapshots WHEN NEW.worker <= 0
         BEGIN SELECT RAISE(ABORT, 'a fiber is claimed by a worker that does not exist'); END;
         CREATE TEMP TRIGGER fiber_is_claimed_by_no_worker BEFORE UPDATE OF worker ON main.snapshots WHEN NEW.worker <= 0
         BEGIN SELECT RAISE(ABORT, 'a fiber is claimed by a worker that does not exist'); END;",
    )
}

#[cfg(test)]
mod tests {
    use crate::conformance::{accept_by, new};
    use crate::sqlite::Sqlite;
    use crate::sqlite::job::Scope;
    use crate::{Claim, FiberStore, NewFiber};

    #[tokio::test]
    async fn worker_that_does_not_exist_claims_nothing() {
        let store = Sqlite::in_memory().await.unwrap();
        let worker = store.join(0).await.unwrap();
        store.accept(NewFiber { worker: Some(0), ..new("a", None) }).await.unwrap_err();
        let held = accept_by(&store, "b", worker).await;
        store.suspend(held, crate::Suspension::Interrupted("x".into()), 1).await.unwrap();
        let seen = Claim { epoch: held.epoch + 1, ..held };
        store.claim(seen, 0, 2).await.unwrap_err();
        assert_eq!(store.claim_of(held.fiber).await.unwrap().unwrap().epoch, seen.epoch);
    }

    #[tokio::test]
    async fn completed_operation_does_not_begin_again_by_any_write() {
        let store = Sqlite::in_memory().await.unwrap();
        let worker = store.join(0).await.unwrap();
        let held = accept_by(&store, "a", worker).await;
        for (state, resolved, begins) in [("completed", 0, false), ("completed", 1, true), ("failed", 0, true), ("not_executed", 1, true)] {
            let set = async |state: &'static str| {
                let sql = "INSERT INTO ops (fiber, number, id, kind, function, step, state, resolved, started_ms, changed_ms)
                           VALUES (?1, 0, 'x', 'effect', 'f', 's', ?2, ?3, 1, 1)
                           ON CONFLICT DO UPDATE SET state = ?2, resolved = ?3";
                let values = (held.fiber, state, resolved);
                store.write("set a state", Scope::Many, move |c| c.execute(sql, values)).await
            };
            set(state).await.unwrap();
            assert_eq!(set("started").await.is_ok(), begins, "{state}");
        }
    }
}
