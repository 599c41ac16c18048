-- Version 8: one pair of tables for all streams. Those of the logs of turns become it.

-- A stream: what is appended to it is never changed. It is that of a turn, or one of a fiber by its name.
CREATE TABLE streams (
    seq   INTEGER PRIMARY KEY,
    fiber INTEGER REFERENCES fibers (seq) ON DELETE CASCADE,
    turn  INTEGER REFERENCES turns (seq) ON DELETE CASCADE,
    name  TEXT NOT NULL,
    -- Items before this one were deleted, as far as they stood in rows without later ones.
    kept  INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE UNIQUE INDEX streams_fiber ON streams (fiber, name) WHERE fiber IS NOT NULL;
CREATE UNIQUE INDEX streams_turn ON streams (turn) WHERE turn IS NOT NULL;

-- The items of a stream, several in a row, one a line.
CREATE TABLE stream_chunks (
    stream    INTEGER NOT NULL REFERENCES streams (seq) ON DELETE CASCADE,
    first     INTEGER NOT NULL,
    count     INTEGER NOT NULL,
    data      TEXT NOT NULL,
    stored_ms INTEGER NOT NULL,
    PRIMARY KEY (stream, first)
) STRICT, WITHOUT ROWID;

-- The newest items of all streams, in the order of their arrival, until they are in `stream_chunks`; and for a while after that. It refers
-- to streams that may be deleted: an index by stream would be written with each item.
CREATE TABLE stream_tail (
    seq       INTEGER PRIMARY KEY,
    stream    INTEGER NOT NULL,
    first     INTEGER NOT NULL,
    count     INTEGER NOT NULL,
    data      TEXT NOT NULL,
    stored_ms INTEGER NOT NULL
) STRICT;

-- The numbers of the turns serve as those of their streams.
INSERT INTO streams (seq, turn, name)
SELECT seq, seq, 'log' FROM turns
WHERE folded = 0 AND seq IN (SELECT turn FROM turn_chunks UNION ALL SELECT turn FROM turn_tail_left);
-- Also those of a damaged row, whose turn there is not.
INSERT INTO stream_chunks (stream, first, count, data, stored_ms)
SELECT turn, first, count, data, stored_ms FROM turn_chunks;
INSERT INTO stream_tail (seq, stream, first, count, data, stored_ms)
SELECT seq, turn, first, count, data, stored_ms FROM turn_tail_left;
DROP VIEW turn_log;
DROP VIEW turn_tail_left;
DROP TABLE turn_tail;
DROP TABLE turn_chunks;

-- Of the rows of the tail, those that are not in `stream_chunks` yet.
CREATE VIEW stream_tail_left (seq, stream, first, count, data, stored_ms) AS
WITH copied (stream, items) AS MATERIALIZED (
    SELECT s.seq, coalesce((SELECT c.first + c.count FROM stream_chunks c WHERE c.stream = s.seq ORDER BY c.first DESC LIMIT 1), 0)
    FROM streams s WHERE s.seq IN (SELECT stream FROM stream_tail)
)
SELECT t.seq, t.stream, t.first, t.count, t.data, t.stored_ms
FROM stream_tail t JOIN copied ON copied.stream = t.stream
WHERE NOT (t.first >= 0 AND t.count > 0 AND t.first + t.count <= copied.items);

-- Each stream from its beginning.
CREATE VIEW stream_log (stream, fiber, turn, name, first, count, data, stored_ms) AS
SELECT s.seq, s.fiber, s.turn, s.name, i.first, i.count, i.data, i.stored_ms
FROM (SELECT stream, first, count, data, stored_ms FROM stream_chunks
      UNION ALL
      SELECT stream, first, count, data, stored_ms FROM stream_tail_left) i
JOIN streams s ON s.seq = i.stream;

-- The log of each turn.
CREATE VIEW turn_log (turn, first, count, data, stored_ms) AS
SELECT turn, first, count, data, stored_ms FROM stream_log WHERE turn IS NOT NULL;

-- Fibers by function and state, for lists of a function and for counts, which read the index alone.
CREATE INDEX fibers_function ON fibers (name, state, seq);
