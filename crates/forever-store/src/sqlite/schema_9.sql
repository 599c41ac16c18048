-- Version 9: the newest items of a history stand in the snapshot row, and running fibers in one index less.

-- The newest items of the stream `history` of the fiber, one JSON text a line: a checkpoint rewrites this row anyway. They follow those
-- of `streams`.
ALTER TABLE snapshots ADD COLUMN history TEXT;

-- Fibers by function and state, without the running ones: they are listed by `fibers_open`, and a fiber that is spawned, runs and ends
-- is written here once.
DROP INDEX fibers_function;
CREATE INDEX fibers_function ON fibers (name, state, seq) WHERE state <> 'running';
