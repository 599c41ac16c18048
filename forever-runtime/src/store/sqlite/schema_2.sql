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
