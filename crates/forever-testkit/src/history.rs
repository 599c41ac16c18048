//! The history of a database: triggers write down each change of a fiber, in the transaction that
//! makes it. The library has no part in that.
//!
//! `@` stands for the schema, whose tables are there already.

/// Makes the table of the history and the triggers that fill it.
///
/// A change is numbered while its row is locked, so changes of one fiber are in their order. A test
/// may write the epoch of its claim into what it stores, as [`claim`] does: then the history has
/// it, and shows whose write was stored.
pub const BEGIN: &str = r#"
CREATE TABLE @history (n BIGINT GENERATED ALWAYS AS IDENTITY, fiber BIGINT, what TEXT, epoch BIGINT, number BIGINT, worker BIGINT,
    writer BIGINT);
CREATE FUNCTION @epoch_of_claim(stored TEXT) RETURNS BIGINT LANGUAGE sql IMMUTABLE AS $$
    SELECT substring(stored FROM '^\{"claim":([0-9]+)\}$')::bigint
$$;
CREATE FUNCTION @write_history() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    what TEXT;
    writer BIGINT;
BEGIN
    IF TG_OP = 'INSERT' THEN what := 'made';
    ELSIF NEW.number <> OLD.number THEN
        what := 'checkpoint';
        writer := @epoch_of_claim(NEW.data);
    ELSIF NEW.epoch <> OLD.epoch OR NEW.worker IS DISTINCT FROM OLD.worker THEN
        what := CASE WHEN NEW.worker IS NULL THEN 'released' ELSE 'claimed' END;
        -- A fiber that is suspended has its reason by now.
        IF NEW.worker IS NULL THEN
            SELECT @epoch_of_claim(f.reason) INTO writer FROM @fibers f WHERE f.seq = NEW.fiber;
        END IF;
    ELSE RETURN NULL;
    END IF;
    INSERT INTO @history (fiber, what, epoch, number, worker, writer)
    VALUES (NEW.fiber, what, NEW.epoch, NEW.number, NEW.worker, writer);
    RETURN NULL;
END $$;
CREATE TRIGGER history AFTER INSERT OR UPDATE ON @snapshots FOR EACH ROW EXECUTE FUNCTION @write_history();
CREATE FUNCTION @write_end() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO @history (fiber, what, writer) VALUES (NEW.seq, NEW.state, @epoch_of_claim(NEW.result));
    RETURN NULL;
END $$;
CREATE TRIGGER history_end AFTER UPDATE ON @fibers FOR EACH ROW
    WHEN (NEW.finished_ms IS NOT NULL AND NEW.finished_ms IS DISTINCT FROM OLD.finished_ms) EXECUTE FUNCTION @write_end();
"#;

/// Reads the history: a line for each change, with the id of the fiber, what happened, the epoch,
/// the number of the checkpoint and the worker after it, and the epoch of the claim that the writer
/// had. What is not known is 0.
pub const LINES: &str = "
SELECT f.id || ' ' || h.what || ' ' || coalesce(h.epoch, 0) || ' ' || coalesce(h.number, 0) || ' ' || coalesce(h.worker, 0)
    || ' ' || coalesce(h.writer, 0)
FROM @history h JOIN @fibers f ON f.seq = h.fiber ORDER BY h.n";

/// SQL of this module in a schema.
#[must_use]
pub fn in_schema(sql: &str, schema: &str) -> String {
    sql.replace('@', &format!("\"{schema}\"."))
}

/// What a test stores under a claim, so that the history has the epoch of the claim.
#[must_use]
pub fn claim(epoch: i64) -> String {
    format!("{{\"claim\":{epoch}}}")
}
