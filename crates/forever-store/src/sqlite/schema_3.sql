-- Version 3: the ledger of operations, and the migrations of the program's own tables.

-- How often a fiber was begun anew: its operations by hand are other ones each time.
ALTER TABLE fibers ADD COLUMN restarts INTEGER NOT NULL DEFAULT 0;

ALTER TABLE ops RENAME TO ops_2;

-- Operations, by the checkpoint before them (-1 for those by hand): what began since the last one stands together at the end, however long
-- the ledger is. Effects and operations by hand stay as long as their fiber; what is kept for plain steps and transactions goes with the
-- next checkpoint.
CREATE TABLE ops (
    fiber      INTEGER NOT NULL REFERENCES fibers (seq) ON DELETE CASCADE,
    number     INTEGER NOT NULL,
    id         TEXT NOT NULL,
    kind       TEXT NOT NULL CHECK (kind IN ('step', 'effect', 'op', 'transaction')),
    function   TEXT NOT NULL,
    step       TEXT NOT NULL,
    key        TEXT,
    state      TEXT NOT NULL CHECK (state IN ('started', 'completed', 'failed', 'not_executed')),
    outcome    TEXT,
    resolved   INTEGER NOT NULL DEFAULT 0 CHECK (resolved IN (0, 1)),
    failed     INTEGER NOT NULL DEFAULT 0,
    stash      TEXT,
    started_ms INTEGER NOT NULL,
    changed_ms INTEGER NOT NULL,
    PRIMARY KEY (fiber, number, id)
) STRICT, WITHOUT ROWID;

INSERT INTO ops (fiber, number, id, kind, function, step, state, failed, stash, started_ms, changed_ms)
SELECT o.fiber, s.number, o.id, 'step', f.name, o.step, 'started', o.failed, o.stash, o.changed_ms, o.changed_ms
FROM ops_2 o JOIN fibers f ON f.seq = o.fiber JOIN snapshots s ON s.fiber = o.fiber;
DROP TABLE ops_2;

-- The items of the logs of operations, until these have ended.
CREATE TABLE op_items (
    fiber  INTEGER NOT NULL,
    number INTEGER NOT NULL,
    op     TEXT NOT NULL,
    n      INTEGER NOT NULL,
    data   TEXT NOT NULL,
    PRIMARY KEY (fiber, number, op, n),
    FOREIGN KEY (fiber, number, op) REFERENCES ops (fiber, number, id) ON DELETE CASCADE
) STRICT;

-- The migrations of the program's own tables that have run.
CREATE TABLE user_migrations (
    n          INTEGER PRIMARY KEY,
    name       TEXT NOT NULL UNIQUE,
    hash       TEXT NOT NULL,
    applied_ms INTEGER NOT NULL
) STRICT;
