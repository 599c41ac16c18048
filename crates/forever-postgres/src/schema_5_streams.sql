-- Version 5: one table for all streams: the logs of turns, the items of logs, and the logs of
-- operations. `log/3` is log 3 of a snapshot, `op/12/ID` the log of an operation that began after
-- checkpoint 12, and `op/ID` that of one by hand.

-- A row is of a stream of a fiber, or of the log of a turn.
ALTER TABLE @stream_items DROP CONSTRAINT stream_items_pkey;
ALTER TABLE @stream_items ALTER COLUMN fiber DROP NOT NULL, ADD COLUMN turn BIGINT, ALTER COLUMN name TYPE TEXT COLLATE "C";

INSERT INTO @stream_items (fiber, name, first, count, data, stored_ms)
SELECT i.fiber, 'log/' || i.log, i.n, 1, translate(i.data, E'\r\n', '  '), coalesce(s.saved_ms, 0)
FROM @log_items i LEFT JOIN @snapshots s ON s.fiber = i.fiber;
INSERT INTO @stream_items (fiber, name, first, count, data, stored_ms)
SELECT i.fiber, CASE i.number WHEN -1 THEN 'op/' || i.op ELSE 'op/' || i.number || '/' || i.op END, i.n, 1,
       translate(i.data, E'\r\n', '  '), coalesce(o.changed_ms, 0)
FROM @op_items i LEFT JOIN @ops o ON o.fiber = i.fiber AND o.number = i.number AND o.id = i.op;
INSERT INTO @stream_items (turn, name, first, count, data, stored_ms)
SELECT turn, 'log', first, count, data, stored_ms FROM @turn_chunks;

DROP TABLE @log_items, @op_items, @turn_chunks;
CREATE UNIQUE INDEX stream_items_fiber ON @stream_items (fiber, name, first) WHERE fiber IS NOT NULL;
CREATE UNIQUE INDEX stream_items_turn ON @stream_items (turn, first) WHERE turn IS NOT NULL;
ALTER TABLE @stream_items REPLICA IDENTITY FULL;
