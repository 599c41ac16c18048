-- Version 2: waiting, messages, children, agents, and snapshots in parts.

-- What owns a fiber, what it was spawned by, and whether it has been told to end.
ALTER TABLE fibers ADD COLUMN kind TEXT NOT NULL DEFAULT 'function' CHECK (kind IN ('function', 'closure'));
ALTER TABLE fibers ADD COLUMN class TEXT;
ALTER TABLE fibers ADD COLUMN agent TEXT;
ALTER TABLE fibers ADD COLUMN parent INTEGER REFERENCES fibers (seq) ON DELETE SET NULL;
ALTER TABLE fibers ADD COLUMN cancel TEXT;

DROP INDEX fibers_unfinished;
-- Everything but the completed ones, by state: what opening and lists look at.
CREATE INDEX fibers_open ON fibers (state, seq) WHERE state <> 'completed';
-- What has ended, oldest first: what retention looks at.
CREATE INDEX fibers_ended ON fibers (state, finished_ms) WHERE finished_ms IS NOT NULL;
CREATE INDEX fibers_agent ON fibers (class, agent, seq) WHERE agent IS NOT NULL;
CREATE INDEX fibers_parent ON fibers (parent) WHERE parent IS NOT NULL;

-- What wakes a waiting fiber: a time, a message of a topic, or the end of other fibers (joins).
CREATE TABLE waits (
    fiber  INTEGER PRIMARY KEY REFERENCES fibers (seq) ON DELETE CASCADE,
    due_ms INTEGER,
    topic  TEXT
) STRICT;
CREATE INDEX waits_due ON waits (due_ms) WHERE due_ms IS NOT NULL;

-- Which fibers wait for which others to end.
CREATE TABLE joins (
    child INTEGER NOT NULL REFERENCES fibers (seq) ON DELETE CASCADE,
    fiber INTEGER NOT NULL REFERENCES fibers (seq) ON DELETE CASCADE,
    PRIMARY KEY (child, fiber)
) STRICT, WITHOUT ROWID;
CREATE INDEX joins_fiber ON joins (fiber);

-- Messages that were sent to a fiber and not yet received, in the order of their arrival.
CREATE TABLE messages (
    seq     INTEGER PRIMARY KEY AUTOINCREMENT,
    fiber   INTEGER NOT NULL REFERENCES fibers (seq) ON DELETE CASCADE,
    topic   TEXT NOT NULL,
    data    TEXT NOT NULL,
    sent_ms INTEGER NOT NULL
) STRICT;
CREATE INDEX messages_fiber ON messages (fiber, topic, seq);

-- What steps side by side have given so far, until all of them have.
CREATE TABLE arrived (
    fiber  INTEGER NOT NULL REFERENCES fibers (seq) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    n      INTEGER NOT NULL,
    data   TEXT NOT NULL,
    PRIMARY KEY (fiber, number, n)
) STRICT, WITHOUT ROWID;

-- Agents that have a state, or that something keeps awake.
CREATE TABLE agents (
    class        TEXT NOT NULL,
    name         TEXT NOT NULL,
    state        TEXT,
    heartbeat_ms INTEGER,
    deaths       INTEGER NOT NULL DEFAULT 0,
    changed_ms   INTEGER NOT NULL,
    PRIMARY KEY (class, name)
) STRICT;
CREATE INDEX agents_awake ON agents (class, name) WHERE heartbeat_ms IS NOT NULL;

-- What an agent is to be told, and when: once, at the times of a pattern, or at an interval.
CREATE TABLE schedules (
    seq        INTEGER PRIMARY KEY,
    id         TEXT NOT NULL UNIQUE,
    class      TEXT NOT NULL,
    agent      TEXT NOT NULL,
    name       TEXT NOT NULL,
    payload    TEXT NOT NULL,
    kind       TEXT NOT NULL CHECK (kind IN ('delay', 'time', 'cron', 'every')),
    cron       TEXT,
    every_ms   INTEGER,
    due_ms     INTEGER NOT NULL,
    next_ms    INTEGER,
    running_ms INTEGER,
    attempts   INTEGER NOT NULL DEFAULT 0,
    deaths     INTEGER NOT NULL DEFAULT 0,
    error      TEXT,
    created_ms INTEGER NOT NULL
) STRICT;
CREATE INDEX schedules_next ON schedules (next_ms) WHERE next_ms IS NOT NULL AND running_ms IS NULL;
CREATE INDEX schedules_running ON schedules (running_ms) WHERE running_ms IS NOT NULL;
CREATE INDEX schedules_agent ON schedules (class, agent, name);

-- What stands beside the main text of a snapshot. A checkpoint writes only the rows that are new or have changed.

-- Locals whose text is long; `{"$part":"name"}` stands for them in the snapshot.
CREATE TABLE parts (
    fiber INTEGER NOT NULL REFERENCES snapshots (fiber) ON DELETE CASCADE,
    name  TEXT NOT NULL,
    data  TEXT NOT NULL,
    PRIMARY KEY (fiber, name)
) STRICT;

-- The items of append-only lists; `{"$log":log,"len":L}` stands for the first L of them in the snapshot.
CREATE TABLE log_items (
    fiber INTEGER NOT NULL REFERENCES snapshots (fiber) ON DELETE CASCADE,
    log   INTEGER NOT NULL,
    n     INTEGER NOT NULL,
    data  TEXT NOT NULL,
    PRIMARY KEY (fiber, log, n)
) STRICT;

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
                    SELECT CASE count(*)
                        WHEN CAST(substr(rest, instr(rest, ':') + 1, 20) AS INTEGER) THEN '[' || coalesce(group_concat(data, ','), '') || ']'
                        ELSE '{"$log":' || substr(rest, 1, instr(rest, '}'))
                    END FROM (
                        SELECT i.data FROM log_items i
                        WHERE i.fiber = s.fiber AND i.log = CAST(substr(rest, 1, 20) AS INTEGER)
                        AND i.n < CAST(substr(rest, instr(rest, ':') + 1, 20) AS INTEGER)
                        ORDER BY i.n
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
