-- Version 7: effects begin and end in the snapshot row of their fiber.

-- The newest effects, JSON: an array with an array for each. To begin and to settle one rewrites the row that its checkpoint replaces
-- anyway.
ALTER TABLE snapshots ADD COLUMN ops TEXT;

-- Settled effects that were moved out of snapshots, several in a row, in the same format. Never changed: appending costs little.
CREATE TABLE settled_ops (
    seq   INTEGER PRIMARY KEY,
    fiber INTEGER NOT NULL REFERENCES fibers (seq) ON DELETE CASCADE,
    ops   TEXT NOT NULL
) STRICT;
CREATE INDEX settled_ops_fiber ON settled_ops (fiber);

-- The ledger: all operations, one in a row.
CREATE VIEW op_ledger (fiber, number, id, kind, function, step, key, state, outcome, resolved, failed, stash, error, next_ms,
                       started_ms, changed_ms, layout) AS
SELECT fiber, number, id, kind, function, step, key, state, outcome, resolved, failed, stash, error, next_ms, started_ms, changed_ms, layout
FROM ops
UNION ALL
SELECT s.fiber, e.value ->> 0, e.value ->> 1, 'effect', e.value ->> 2, e.value ->> 3, e.value ->> 8, e.value ->> 4, e.value ->> 7, 0, 0,
       NULL, NULL, NULL, e.value ->> 5, (e.value ->> 5) + (e.value ->> 6), e.value ->> 9
FROM snapshots s JOIN json_each(CASE WHEN json_valid(s.ops) THEN s.ops END) e WHERE s.ops IS NOT NULL AND e.type = 'array'
UNION ALL
SELECT s.fiber, e.value ->> 0, e.value ->> 1, 'effect', e.value ->> 2, e.value ->> 3, e.value ->> 8, e.value ->> 4, e.value ->> 7, 0, 0,
       NULL, NULL, NULL, e.value ->> 5, (e.value ->> 5) + (e.value ->> 6), e.value ->> 9
FROM settled_ops s JOIN json_each(CASE WHEN json_valid(s.ops) THEN s.ops END) e WHERE e.type = 'array';
