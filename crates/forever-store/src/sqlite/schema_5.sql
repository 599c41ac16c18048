-- Version 5: claims, messages that are sent once, the keys of fibers that were deleted, and waiting for the first of several things.

-- One row for each runtime that has opened the database; its number is the owner of its claims.
CREATE TABLE workers (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    joined_ms INTEGER NOT NULL
) STRICT;

-- The claim of a fiber: the worker that runs it while the fiber is `running`, and a count that grows
-- with every claim and with every command that changes what the next activation begins with. It stands
-- in the row that a checkpoint replaces, so that the condition costs no second look-up.
ALTER TABLE snapshots ADD COLUMN epoch INTEGER NOT NULL DEFAULT 0;
ALTER TABLE snapshots ADD COLUMN worker INTEGER;

-- The ids that senders gave their messages: a message with an id is stored once, also after it was received.
CREATE TABLE message_ids (
    fiber INTEGER NOT NULL REFERENCES fibers (seq) ON DELETE CASCADE,
    id    TEXT NOT NULL,
    PRIMARY KEY (fiber, id)
) STRICT, WITHOUT ROWID;

-- Whether the program gave the id: such a fiber is remembered when it is deleted.
ALTER TABLE fibers ADD COLUMN id_given INTEGER NOT NULL DEFAULT 0 CHECK (id_given IN (0, 1));
-- Of earlier fibers: every id that is not of the length of those that a runtime makes.
UPDATE fibers SET id_given = 1 WHERE parent IS NULL AND length(id) <> 36 AND name <> 'forever.turn';

-- What is remembered of fibers that had a key or an id of the program's, after they were deleted: a spawn joins them, and begins nothing.
CREATE TABLE past_fibers (
    id          TEXT PRIMARY KEY,
    key         TEXT,
    name        TEXT NOT NULL,
    args        TEXT NOT NULL,
    state       TEXT NOT NULL CHECK (state IN ('completed', 'failed', 'cancelled')),
    finished_ms INTEGER NOT NULL,
    deleted_ms  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX past_fibers_key ON past_fibers (key) WHERE key IS NOT NULL;
CREATE INDEX past_fibers_deleted ON past_fibers (deleted_ms);

-- Waiting for the first of several things: whether the end of one of the fibers in `joins` is enough, and the topics where there
-- is more than one. A single topic stands in `waits`.
ALTER TABLE waits ADD COLUMN any_join INTEGER NOT NULL DEFAULT 0 CHECK (any_join IN (0, 1));
CREATE TABLE wait_topics (
    fiber INTEGER NOT NULL REFERENCES waits (fiber) ON DELETE CASCADE,
    topic TEXT NOT NULL,
    PRIMARY KEY (fiber, topic)
) STRICT, WITHOUT ROWID;
