//! Tables of the program that refer to fibers, and triggers on them.
use std::time::Duration;

use forever_postgres::PostgresStore;
use forever_store::{AdminStore, Deletion, FiberQuery, FiberStore, Seq};
use forever_testkit::waiting::soon;

use crate::schemas::client;
use crate::workers::joined;
use crate::{accept, cluster, end};

/// Columns, and what follows them, of tables that refer to a fiber and do not let it go.
const REFUSES: [&str; 12] = [
    "f BIGINT REFERENCES fibers (seq)",
    "f BIGINT REFERENCES fibers (seq) DEFERRABLE INITIALLY DEFERRED",
    "f BIGINT NOT NULL REFERENCES fibers (seq) ON DELETE SET NULL",
    "f BIGINT CHECK (f IS NOT NULL) REFERENCES fibers (seq) ON DELETE SET NULL",
    // The default is there once already.
    "f BIGINT REFERENCES fibers (seq) ON DELETE SET DEFAULT); CREATE UNIQUE INDEX ON own (coalesce(f, 0)); INSERT INTO own VALUES (NULL",
    "f BIGINT REFERENCES fibers (seq) ON DELETE CASCADE); CREATE TRIGGER t BEFORE DELETE ON own FOR EACH ROW EXECUTE FUNCTION raise('P0001'",
    "f BIGINT REFERENCES fibers (seq) ON DELETE CASCADE); CREATE TRIGGER t BEFORE DELETE ON own FOR EACH ROW EXECUTE FUNCTION raise('KEEP1'",
    "f BIGINT REFERENCES fibers (seq) ON DELETE CASCADE); CREATE TRIGGER t BEFORE DELETE ON own FOR EACH ROW EXECUTE FUNCTION raise('0A000'",
    "f BIGINT REFERENCES fibers (seq) ON DELETE CASCADE); CREATE TRIGGER t BEFORE DELETE ON own FOR EACH ROW EXECUTE FUNCTION divide(",
    "f BIGINT REFERENCES fibers (seq) ON DELETE CASCADE); CREATE TRIGGER t BEFORE DELETE ON own FOR EACH ROW EXECUTE FUNCTION nowhere(",
    "f BIGINT REFERENCES fibers (seq) ON DELETE CASCADE); CREATE CONSTRAINT TRIGGER t AFTER DELETE ON own DEFERRABLE INITIALLY DEFERRED
     FOR EACH ROW EXECUTE FUNCTION raise('22023'",
    // Of this one another session has locked the row.
    "f BIGINT REFERENCES fibers (seq) ON DELETE CASCADE",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_deletion_of_a_fiber_keeps_no_other() {
    let Some(url) = cluster::url() else { return };
    let schema = cluster::schema();
    let builder = PostgresStore::builder(&url).schema(&schema).lease(Duration::from_secs(3600)).call_limit(Duration::from_secs(600));
    let (store, worker) = joined(builder).await;
    let program = client(&url).await;
    let functions = format!(
        "SET search_path = \"{schema}\";
         CREATE FUNCTION raise() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'keep' USING ERRCODE = TG_ARGV[0]; END $$;
         CREATE FUNCTION divide() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN OLD.f := OLD.f / 0; RETURN OLD; END $$;
         CREATE FUNCTION nowhere() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN DELETE FROM nothing; RETURN OLD; END $$"
    );
    program.batch_execute(&functions).await.unwrap();
    let mut held = Vec::new();
    for (n, refuses) in REFUSES.iter().enumerate() {
        let id = format!("held {n}");
        let (free, claim) = (accept(&store, &format!("free {n}"), worker).await, accept(&store, &id, worker).await);
        end(&store, free).await;
        end(&store, claim).await;
        let table = format!("CREATE TABLE own ({refuses}); INSERT INTO own VALUES ({})", claim.fiber).replace("own", &format!("own_{n}"));
        program.batch_execute(&table).await.unwrap();
        held.push(id);
    }
    let locked = accept(&store, "locked", worker).await;
    end(&store, locked).await;
    let left = async || store.list(FiberQuery::default(), 0, 99).await.unwrap().into_iter().map(|row| row.id).collect::<Vec<_>>();
    let delete = async || {
        let deleted = soon("it is done", store.delete(Deletion { limit: 99, ..Deletion::default() })).await;
        deleted.map(|deleted| (deleted.count, deleted.held))
    };

    // Not only the rows that refer to a fiber may be locked.
    let lock = |row: &str| format!("SELECT 1 FROM {row} FOR UPDATE;");
    let own = format!("own_{}", REFUSES.len() - 1);
    program.batch_execute(&format!("BEGIN; {} {}", lock(&own), lock(&format!("fibers WHERE seq = {}", locked.fiber)))).await.unwrap();
    let each = REFUSES.len() as u64;
    assert_eq!(delete().await.unwrap(), (each, each));
    held.push("locked".to_owned());
    assert_eq!(left().await, held);
    program.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(delete().await.unwrap(), (2, each - 1), "what was locked is free now");
    held.truncate(REFUSES.len() - 1);
    assert_eq!(left().await, held);
    assert_eq!(store.ready(Seq::MIN, 9).await.unwrap().len(), 0, "the connection is as it was");
}
