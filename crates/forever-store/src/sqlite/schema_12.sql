-- The newest items of the histories of fibers that commit together: those of a commit are a row, and each is a line, a JSON array of
-- `streams.seq`, its number, the time at which it was stored, and the item.
CREATE TABLE history_tail (
    seq     INTEGER PRIMARY KEY,
    data    TEXT NOT NULL,
    -- 1 where a line cannot be read: the row is not deleted.
    damaged INTEGER NOT NULL DEFAULT 0
) STRICT;

-- Of the items of the tail, those that are not in `stream_chunks` yet.
CREATE VIEW history_tail_left (seq, stream, first, count, data, stored_ms) AS
WITH items (seq, stream, first, data, stored_ms) AS MATERIALIZED (
    SELECT t.seq, json_extract(i.value, '$[0]'), json_extract(i.value, '$[1]'), json_extract(i.value, '$[3]'), json_extract(i.value, '$[2]')
    FROM (SELECT seq, '[' || replace(data, char(10), ',') || ']' AS lines FROM history_tail) t,
         json_each(CASE WHEN json_valid(t.lines) THEN t.lines ELSE '[]' END) i
)
SELECT i.seq, i.stream, i.first, 1, i.data, i.stored_ms
FROM items i JOIN streams s ON s.seq = i.stream
WHERE i.first >= coalesce((SELECT c.first + c.count FROM stream_chunks c WHERE c.stream = s.seq ORDER BY c.first DESC LIMIT 1), 0);

DROP VIEW turn_log;
DROP VIEW stream_log;

-- Each stream from its beginning.
CREATE VIEW stream_log (stream, fiber, turn, name, first, count, data, stored_ms) AS
SELECT s.seq, s.fiber, s.turn, s.name, i.first, i.count, i.data, i.stored_ms
FROM (SELECT stream, first, count, data, stored_ms FROM stream_chunks
      UNION ALL
      SELECT stream, first, count, data, stored_ms FROM stream_tail_left
      UNION ALL
      SELECT stream, first, count, data, stored_ms FROM history_tail_left) i
JOIN streams s ON s.seq = i.stream;

-- The log of each turn.
CREATE VIEW turn_log (turn, first, count, data, stored_ms) AS
SELECT s.turn, i.first, i.count, i.data, i.stored_ms
FROM (SELECT stream, first, count, data, stored_ms FROM stream_chunks
      UNION ALL
      SELECT stream, first, count, data, stored_ms FROM stream_tail_left) i
JOIN streams s ON s.seq = i.stream
WHERE s.turn IS NOT NULL;
