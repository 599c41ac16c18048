-- Version 5: claims, and messages that are sent once.

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
