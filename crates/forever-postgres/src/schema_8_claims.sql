-- Version 8: what no write may do, whatever it has read before.

-- Workers are numbered from 1. A runtime that only asks is none, and claims nothing.
ALTER TABLE @snapshots ADD CONSTRAINT snapshots_worker CHECK (worker > 0);

-- An operation that has completed does not begin again. What a person has said of one is taken back
-- where its value cannot be read.
CREATE FUNCTION @keep_completed_operation() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'operation % of fiber % has completed, and does not begin again', OLD.id, OLD.fiber;
END
$$;
CREATE TRIGGER keep_completed_operation BEFORE UPDATE OF state ON @ops FOR EACH ROW
    WHEN (NEW.state = 'started' AND OLD.state = 'completed' AND NOT OLD.resolved)
    EXECUTE FUNCTION @keep_completed_operation();
