-- One row for each fiber; touched when a fiber begins, stops and ends, not at its checkpoints.
CREATE TABLE fibers (
    seq         INTEGER PRIMARY KEY,
    id          TEXT NOT NULL UNIQUE,
    name        TEXT NOT NULL,
    key         TEXT UNIQUE,
    state       TEXT NOT NULL CHECK (state IN
                ('pending', 'running', 'waiting', 'completed', 'failed', 'cancelled', 'interrupted', 'parked')),
    reason      TEXT,
    args        TEXT NOT NULL,
    metadata    TEXT,
    result      TEXT,
    created_ms  INTEGER NOT NULL,
    changed_ms  INTEGER NOT NULL,
    finished_ms INTEGER
) STRICT;

-- The fibers that have not ended, oldest first.
CREATE INDEX fibers_unfinished ON fibers (seq) WHERE finished_ms IS NULL;

-- The shape of the snapshots of a fiber function, by the hash of its description.
CREATE TABLE layouts (
    hash   TEXT PRIMARY KEY,
    fiber  TEXT NOT NULL,
    layout TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Where each fiber stands: the one row that a checkpoint replaces.
CREATE TABLE snapshots (
    fiber    INTEGER PRIMARY KEY REFERENCES fibers (seq) ON DELETE CASCADE,
    number   INTEGER NOT NULL DEFAULT 0,
    deaths   INTEGER NOT NULL DEFAULT 0,
    saved_ms INTEGER,
    at       TEXT,
    layout   TEXT REFERENCES layouts (hash),
    data     TEXT
) STRICT;

-- What is known of steps that have begun and not finished.
CREATE TABLE ops (
    fiber      INTEGER NOT NULL REFERENCES fibers (seq) ON DELETE CASCADE,
    id         TEXT NOT NULL,
    step       TEXT NOT NULL,
    failed     INTEGER NOT NULL,
    stash      TEXT,
    changed_ms INTEGER NOT NULL,
    PRIMARY KEY (fiber, id)
) STRICT, WITHOUT ROWID;
