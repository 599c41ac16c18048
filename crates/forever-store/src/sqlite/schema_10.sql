-- Version 10: the items of logs and of the logs of operations become streams of their fiber: `log/3` is log 3 of its snapshot,
-- `op/12/ID` the log of an operation that began after checkpoint 12, and `op/ID` that of one by hand.

-- With rowids: without them a row of more than 1 000 bytes has a page of its own beside it.
CREATE TABLE new_stream_chunks (
    stream    INTEGER NOT NULL REFERENCES streams (seq) ON DELETE CASCADE,
    first     INTEGER NOT NULL,
    count     INTEGER NOT NULL,
    data      TEXT NOT NULL,
    stored_ms INTEGER NOT NULL,
    PRIMARY KEY (stream, first)
) STRICT;
INSERT INTO new_stream_chunks (stream, first, count, data, stored_ms)
SELECT stream, first, count, data, stored_ms FROM stream_chunks ORDER BY stream, first;
DROP TABLE stream_chunks;
ALTER TABLE new_stream_chunks RENAME TO stream_chunks;

-- The numbers follow those that are used, as far as they leave any behind them.
INSERT INTO streams (seq, fiber, name)
SELECT n.used + row_number() OVER (ORDER BY o.fiber, o.name), o.fiber, o.name
FROM (SELECT fiber, 'log/' || log AS name FROM log_items
      UNION
      SELECT fiber, CASE number WHEN -1 THEN 'op/' || op ELSE 'op/' || number || '/' || op END FROM op_items) o,
     (SELECT max(coalesce((SELECT max(seq) FROM streams WHERE seq < 1 << 62), 0),
                 coalesce((SELECT max(stream) FROM stream_tail WHERE stream < 1 << 62), 0),
                 coalesce((SELECT max(stream) FROM stream_chunks WHERE stream < 1 << 62), 0)) AS used) n
-- Of a damaged row, the fiber may not be there.
WHERE o.fiber IN (SELECT seq FROM fibers);

-- An item is one line. Outside of its strings a line break is white space, and inside there is none.
INSERT INTO stream_chunks (stream, first, count, data, stored_ms)
SELECT s.seq, i.n, 1, replace(replace(i.data, char(13), ' '), char(10), ' '), coalesce((SELECT saved_ms FROM snapshots WHERE fiber = i.fiber), 0)
FROM log_items i JOIN streams s ON s.fiber = i.fiber AND s.name = 'log/' || i.log;
INSERT INTO stream_chunks (stream, first, count, data, stored_ms)
SELECT s.seq, i.n, 1, replace(replace(i.data, char(13), ' '), char(10), ' '),
       coalesce((SELECT changed_ms FROM ops WHERE fiber = i.fiber AND number = i.number AND id = i.op), 0)
FROM op_items i JOIN streams s ON s.fiber = i.fiber AND s.name = CASE i.number WHEN -1 THEN 'op/' || i.op ELSE 'op/' || i.number || '/' || i.op END;

DROP VIEW snapshot_documents;
DROP TABLE log_items;
DROP TABLE op_items;

-- Each snapshot as one JSON document, with its parts and the items of its logs put back. No value of a program can hold the
-- text that stands for a part or a log, because keys that begin with `$` are escaped.
CREATE VIEW snapshot_documents AS
SELECT f.id, f.name, s.at, s.number, (
    WITH RECURSIVE
    part (k, placeholder, data) AS (
        SELECT row_number() OVER (ORDER BY p.name), '{"$part":' || json_quote(p.name) || '}', p.data FROM parts p WHERE p.fiber = s.fiber
    ),
    -- With the first k parts put back.
    with_parts (k, text) AS (
        SELECT 0, s.data
        UNION ALL
        SELECT part.k, replace(w.text, part.placeholder, part.data) FROM with_parts w JOIN part ON part.k = w.k + 1
    ),
    -- With the items of all logs before `rest` put back. By turns `rest` is what is still to be searched, and what follows a
    -- `{"$log":` that was found in it.
    with_logs (done, rest, found) AS (
        SELECT '', text, 0 FROM (SELECT text FROM with_parts ORDER BY k DESC LIMIT 1)
        UNION ALL
        SELECT
            done || CASE found
                WHEN 0 THEN substr(rest, 1, instr(rest, '{"$log":') - 1)
                ELSE (
                    SELECT CASE coalesce(sum(count), 0)
                        WHEN CAST(substr(rest, instr(rest, ':') + 1, 20) AS INTEGER)
                        THEN '[' || coalesce(group_concat(replace(data, char(10), ','), ','), '') || ']'
                        ELSE '{"$log":' || substr(rest, 1, instr(rest, '}'))
                    END FROM (
                        SELECT c.data, c.count FROM streams l JOIN stream_chunks c ON c.stream = l.seq
                        WHERE l.fiber = s.fiber AND l.name = 'log/' || CAST(substr(rest, 1, 20) AS INTEGER)
                        AND c.first + c.count <= CAST(substr(rest, instr(rest, ':') + 1, 20) AS INTEGER)
                        ORDER BY c.first
                    )
                )
            END,
            substr(rest, CASE found WHEN 0 THEN instr(rest, '{"$log":') + 8 ELSE instr(rest, '}') + 1 END),
            1 - found
        FROM with_logs WHERE found OR instr(rest, '{"$log":') > 0
    )
    SELECT done || rest FROM with_logs WHERE NOT found AND instr(rest, '{"$log":') = 0
) AS document
FROM fibers f JOIN snapshots s ON s.fiber = f.seq;
