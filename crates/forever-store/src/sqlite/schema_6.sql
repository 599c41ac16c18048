-- Version 6: results of branches by their names, the layouts of called functions and of what began behind a snapshot, messages that wait
-- for a person, and the newest chunks of turns.

-- What the branches of a `steps!` have given so far, until all of them have. A result of an earlier version of this library has the place of
-- its branch for a name: `#0`.
CREATE TABLE branch_results (
    fiber  INTEGER NOT NULL REFERENCES fibers (seq) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    branch TEXT NOT NULL,
    data   TEXT NOT NULL,
    -- That of the code that stored it. None where an earlier version did: then it is that of the snapshot.
    layout TEXT REFERENCES layouts (hash),
    PRIMARY KEY (fiber, number, branch)
) STRICT, WITHOUT ROWID;
-- A damaged row that belongs to no fiber must not keep the others from being taken over.
INSERT INTO branch_results (fiber, number, branch, data)
SELECT fiber, number, '#' || n, data FROM arrived WHERE fiber IN (SELECT seq FROM fibers);
DROP TABLE arrived;

-- The layouts of the functions that are being called, outermost first: their hashes, with a space between them. None without a call
-- under way.
ALTER TABLE snapshots ADD COLUMN callees TEXT;

-- The layout of the code that began an operation. None by hand, and where an earlier version began it: then it is that of the snapshot.
ALTER TABLE ops ADD COLUMN layout TEXT REFERENCES layouts (hash);

-- Of a step that is retried: the text of the last error, and when the next attempt is due.
ALTER TABLE ops ADD COLUMN error TEXT;
ALTER TABLE ops ADD COLUMN next_ms INTEGER;

-- Since when a message of a chat has had a tool call that waits for a person or their client. None in all others. Code fills it for the
-- messages that are there.
ALTER TABLE chat_messages ADD COLUMN pending_ms INTEGER;
-- The latest first, of all chats and of one.
CREATE INDEX chat_messages_pending ON chat_messages (pending_ms, seq, chat) WHERE pending_ms IS NOT NULL;
CREATE INDEX chat_messages_pending_chat ON chat_messages (chat, pending_ms, seq) WHERE pending_ms IS NOT NULL;

-- The newest chunks of all turns, in the order of their arrival, until they are in `turn_chunks`; and for a while after that. It refers to
-- turns that may be deleted: an index by turn would be written with each chunk.
CREATE TABLE turn_tail (
    seq       INTEGER PRIMARY KEY,
    turn      INTEGER NOT NULL,
    first     INTEGER NOT NULL,
    count     INTEGER NOT NULL,
    data      TEXT NOT NULL,
    stored_ms INTEGER NOT NULL
) STRICT;

-- Of these rows, those that are not in `turn_chunks` yet.
CREATE VIEW turn_tail_left (seq, turn, first, count, data, stored_ms) AS
WITH copied (turn, chunks) AS MATERIALIZED (
    SELECT u.seq, coalesce((SELECT c.first + c.count FROM turn_chunks c WHERE c.turn = u.seq ORDER BY c.first DESC LIMIT 1), 0)
    FROM turns u WHERE u.folded = 0 AND u.seq IN (SELECT turn FROM turn_tail)
)
SELECT t.seq, t.turn, t.first, t.count, t.data, t.stored_ms
FROM turn_tail t JOIN copied ON copied.turn = t.turn
WHERE NOT (t.first >= 0 AND t.count > 0 AND t.first + t.count <= copied.chunks);

-- The log of each turn.
CREATE VIEW turn_log (turn, first, count, data, stored_ms) AS
SELECT turn, first, count, data, stored_ms FROM turn_chunks
UNION ALL
SELECT turn, first, count, data, stored_ms FROM turn_tail_left;
