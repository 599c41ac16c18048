-- Version 9: a fiber that is spawned, runs and ends is written in fewer indexes, and the newest items of a history stand in the snapshot row.

-- The newest items of the stream `history` of the fiber, one JSON text a line: a checkpoint rewrites this row anyway. They follow those
-- of `streams`.
ALTER TABLE snapshots ADD COLUMN history TEXT;

-- `key` is unique by an index of those that have one: SQLite writes NULL into the index of a UNIQUE column.
CREATE TABLE new_fibers (
    seq         INTEGER PRIMARY KEY,
    id          TEXT NOT NULL UNIQUE,
    name        TEXT NOT NULL,
    key         TEXT,
    state       TEXT NOT NULL CHECK (state IN
                ('pending', 'running', 'waiting', 'completed', 'failed', 'cancelled', 'interrupted', 'parked')),
    reason      TEXT,
    args        TEXT NOT NULL,
    metadata    TEXT,
    result      TEXT,
    created_ms  INTEGER NOT NULL,
    changed_ms  INTEGER NOT NULL,
    finished_ms INTEGER,
    kind        TEXT NOT NULL DEFAULT 'function' CHECK (kind IN ('function', 'closure')),
    class       TEXT,
    agent       TEXT,
    parent      INTEGER REFERENCES fibers (seq) ON DELETE SET NULL,
    cancel      TEXT,
    restarts    INTEGER NOT NULL DEFAULT 0,
    id_given    INTEGER NOT NULL DEFAULT 0 CHECK (id_given IN (0, 1))
) STRICT;
INSERT INTO new_fibers (seq, id, name, key, state, reason, args, metadata, result, created_ms, changed_ms, finished_ms, kind, class,
                        agent, parent, cancel, restarts, id_given)
SELECT seq, id, name, key, state, reason, args, metadata, result, created_ms, changed_ms, finished_ms, kind, class,
       agent, parent, cancel, restarts, id_given
FROM fibers ORDER BY seq;
DROP TABLE fibers;
ALTER TABLE new_fibers RENAME TO fibers;
CREATE UNIQUE INDEX fibers_key ON fibers (key) WHERE key IS NOT NULL;
CREATE INDEX fibers_open ON fibers (state, seq) WHERE state <> 'completed';
CREATE INDEX fibers_ended ON fibers (state, finished_ms) WHERE finished_ms IS NOT NULL;
CREATE INDEX fibers_agent ON fibers (class, agent, seq) WHERE agent IS NOT NULL;
CREATE INDEX fibers_parent ON fibers (parent) WHERE parent IS NOT NULL;
-- Running ones are listed by `fibers_open`.
CREATE INDEX fibers_function ON fibers (name, state, seq) WHERE state <> 'running';
