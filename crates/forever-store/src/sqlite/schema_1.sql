-- Schema 1. Every table and column is explained in docs/guide/src/reference/format.md.

-- One row for each fiber; touched when a fiber begins, stops and ends, not at its checkpoints. `key` is unique by an index of those that
-- have one: SQLite writes NULL into the index of a UNIQUE column.
CREATE TABLE fibers (
    seq         INTEGER PRIMARY KEY,
    id          TEXT NOT NULL UNIQUE,
    name        TEXT NOT NULL,
    key         TEXT,
    state       TEXT NOT NULL CHECK (state IN
                ('pending', 'running', 'waiting', 'completed', 'failed', 'cancelled', 'interrupted', 'parked')),
    kind        TEXT NOT NULL DEFAULT 'function' CHECK (kind IN ('function', 'closure')),
    -- Whether the program gave the id: such a fiber is remembered when it is deleted.
    id_given    INTEGER NOT NULL DEFAULT 0 CHECK (id_given IN (0, 1)),
    -- The agent that owns the fiber.
    class       TEXT,
    agent       TEXT,
    -- The fiber that spawned it.
    parent      INTEGER REFERENCES fibers (seq) ON DELETE SET NULL,
    -- How often it was begun anew: its operations by hand are other ones each time.
    restarts    INTEGER NOT NULL DEFAULT 0,
    reason      TEXT,
    -- The reason why it has been told to end.
    cancel      TEXT,
    args        TEXT NOT NULL,
    metadata    TEXT,
    result      TEXT,
    created_ms  INTEGER NOT NULL,
    changed_ms  INTEGER NOT NULL,
    finished_ms INTEGER
) STRICT;
CREATE UNIQUE INDEX fibers_key ON fibers (key) WHERE key IS NOT NULL;
-- Everything but the completed ones, by state: what opening and lists look at.
CREATE INDEX fibers_open ON fibers (state, seq) WHERE state <> 'completed';
-- What has ended, oldest first: what retention looks at.
CREATE INDEX fibers_ended ON fibers (state, finished_ms) WHERE finished_ms IS NOT NULL;
CREATE INDEX fibers_agent ON fibers (class, agent, seq) WHERE agent IS NOT NULL;
CREATE INDEX fibers_parent ON fibers (parent) WHERE parent IS NOT NULL;
-- Lists of a function's fibers by state, and counts, which read the index alone. Running ones are listed by `fibers_open`.
CREATE INDEX fibers_function ON fibers (name, state, seq) WHERE state <> 'running';

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

-- One row for each runtime that has opened the database; its number is the owner of its claims.
CREATE TABLE workers (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    joined_ms INTEGER NOT NULL
) STRICT;

-- The shape of the snapshots of a fiber function, by the hash of its description.
CREATE TABLE layouts (
    hash   TEXT PRIMARY KEY,
    fiber  TEXT NOT NULL,
    layout TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Where each fiber stands: the one row that a checkpoint replaces, with the claim, so that the condition costs no second look-up.
CREATE TABLE snapshots (
    fiber    INTEGER PRIMARY KEY REFERENCES fibers (seq) ON DELETE CASCADE,
    -- Grows with every claim and with every command that changes what the next activation begins with.
    epoch    INTEGER NOT NULL DEFAULT 0,
    -- The worker that runs the fiber while it is `running`.
    worker   INTEGER,
    number   INTEGER NOT NULL DEFAULT 0,
    deaths   INTEGER NOT NULL DEFAULT 0,
    saved_ms INTEGER,
    at       TEXT,
    layout   TEXT REFERENCES layouts (hash),
    -- The layouts of the functions that are being called, outermost first: their hashes, with a space between them. None without a call
    -- under way.
    callees  TEXT,
    data     TEXT,
    -- The newest effects, JSON: an array with an array for each. To begin and to settle one rewrites the row that its checkpoint replaces
    -- anyway.
    ops      TEXT,
    -- The newest items of the stream `history` of the fiber, one JSON text a line: a checkpoint rewrites this row anyway. They follow
    -- those of `streams`.
    history  TEXT
) STRICT;

-- Locals whose text is long; `{"$part":"name"}` stands for them in the snapshot. A checkpoint writes only the rows that are new or have
-- changed.
CREATE TABLE parts (
    fiber INTEGER NOT NULL REFERENCES snapshots (fiber) ON DELETE CASCADE,
    name  TEXT NOT NULL,
    data  TEXT NOT NULL,
    PRIMARY KEY (fiber, name)
) STRICT;

-- Operations, by the checkpoint before them (-1 for those by hand): what began since the last one stands together at the end, however long
-- the ledger is. Effects and operations by hand stay as long as their fiber; what is kept for plain steps and transactions goes with the
-- next checkpoint.
CREATE TABLE ops (
    fiber      INTEGER NOT NULL REFERENCES fibers (seq) ON DELETE CASCADE,
    number     INTEGER NOT NULL,
    id         TEXT NOT NULL,
    kind       TEXT NOT NULL CHECK (kind IN ('step', 'effect', 'op', 'transaction')),
    function   TEXT NOT NULL,
    step       TEXT NOT NULL,
    key        TEXT,
    state      TEXT NOT NULL CHECK (state IN ('started', 'completed', 'failed', 'not_executed')),
    outcome    TEXT,
    resolved   INTEGER NOT NULL DEFAULT 0 CHECK (resolved IN (0, 1)),
    failed     INTEGER NOT NULL DEFAULT 0,
    stash      TEXT,
    -- The layout of the code that began it. None by hand.
    layout     TEXT REFERENCES layouts (hash),
    -- Of a step that is retried: the text of the last error, and when the next attempt is due.
    error      TEXT,
    next_ms    INTEGER,
    started_ms INTEGER NOT NULL,
    changed_ms INTEGER NOT NULL,
    PRIMARY KEY (fiber, number, id)
) STRICT, WITHOUT ROWID;
-- Those that are retried, and those that were when their fibers failed.
CREATE INDEX ops_retried ON ops (next_ms) WHERE error IS NOT NULL;

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

-- What the branches of a `steps!` have given so far, until all of them have.
CREATE TABLE branch_results (
    fiber  INTEGER NOT NULL REFERENCES fibers (seq) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    branch TEXT NOT NULL,
    data   TEXT NOT NULL,
    -- That of the code that stored it.
    layout TEXT REFERENCES layouts (hash),
    PRIMARY KEY (fiber, number, branch)
) STRICT, WITHOUT ROWID;

-- What wakes a waiting fiber: a time, a message of a topic, or the end of other fibers (joins).
CREATE TABLE waits (
    fiber    INTEGER PRIMARY KEY REFERENCES fibers (seq) ON DELETE CASCADE,
    due_ms   INTEGER,
    -- A single topic; several are in `wait_topics`.
    topic    TEXT,
    -- Whether the end of one of the fibers in `joins` is enough.
    any_join INTEGER NOT NULL DEFAULT 0 CHECK (any_join IN (0, 1)),
    -- A digest of the function, the cut point, its layout and those of the functions that are called; NULL for a closure. Written when a
    -- fiber begins to wait, and not at its checkpoints, so that the fibers are counted from the index.
    place    BLOB
) STRICT;
CREATE INDEX waits_due ON waits (due_ms) WHERE due_ms IS NOT NULL;
CREATE INDEX waits_place ON waits (place) WHERE place IS NOT NULL;
CREATE TABLE wait_topics (
    fiber INTEGER NOT NULL REFERENCES waits (fiber) ON DELETE CASCADE,
    topic TEXT NOT NULL,
    PRIMARY KEY (fiber, topic)
) STRICT, WITHOUT ROWID;

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

-- The ids that senders gave their messages: a message with an id is stored once, also after it was received.
CREATE TABLE message_ids (
    fiber  INTEGER NOT NULL REFERENCES fibers (seq) ON DELETE CASCADE,
    id     TEXT NOT NULL,
    -- Of the message, so that another one with the same id is an error.
    digest TEXT,
    PRIMARY KEY (fiber, id)
) STRICT, WITHOUT ROWID;

-- Topics that fibers have closed: a message to one of them is refused.
CREATE TABLE closed_topics (
    fiber  INTEGER NOT NULL REFERENCES fibers (seq) ON DELETE CASCADE,
    topic  TEXT NOT NULL,
    -- The checkpoint that has closed it.
    number INTEGER NOT NULL,
    PRIMARY KEY (fiber, topic)
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

-- Agents that have a chat.
CREATE TABLE chats (
    seq   INTEGER PRIMARY KEY,
    class TEXT NOT NULL,
    agent TEXT NOT NULL,
    held  TEXT,
    UNIQUE (class, agent)
) STRICT;

-- The messages of a chat, by their places.
CREATE TABLE chat_messages (
    seq        INTEGER PRIMARY KEY,
    chat       INTEGER NOT NULL REFERENCES chats (seq) ON DELETE CASCADE,
    place      INTEGER NOT NULL,
    id         TEXT NOT NULL,
    role       TEXT NOT NULL CHECK (role IN ('system', 'user', 'assistant')),
    data       TEXT NOT NULL,
    changed_ms INTEGER NOT NULL,
    -- Since when the message has had a tool call that waits for a person or their client. None in all others.
    pending_ms INTEGER,
    UNIQUE (chat, id)
) STRICT;
CREATE INDEX chat_messages_place ON chat_messages (chat, place);
-- The latest first, of all chats and of one.
CREATE INDEX chat_messages_pending ON chat_messages (pending_ms, seq, chat) WHERE pending_ms IS NOT NULL;
CREATE INDEX chat_messages_pending_chat ON chat_messages (chat, pending_ms, seq) WHERE pending_ms IS NOT NULL;

-- Turns: answers that were asked for, under way, and past. How one ended is the last entry of its log.
CREATE TABLE turns (
    seq        INTEGER PRIMARY KEY,
    chat       INTEGER NOT NULL REFERENCES chats (seq) ON DELETE CASCADE,
    id         TEXT NOT NULL,
    key        TEXT,
    kind       TEXT NOT NULL CHECK (kind IN ('answer', 'continue')),
    policy     TEXT NOT NULL CHECK (policy IN ('queue', 'latest', 'merge', 'debounce')),
    state      TEXT NOT NULL CHECK (state IN ('queued', 'running', 'completed', 'error', 'aborted', 'skipped', 'interrupted')),
    reason     TEXT,
    -- The error that ended the turn, for the program: `reason` is what clients are shown.
    error      TEXT,
    cancel     TEXT,
    fiber      INTEGER REFERENCES fibers (seq) ON DELETE SET NULL,
    message    TEXT NOT NULL,
    place      INTEGER NOT NULL,
    origins    TEXT NOT NULL,
    due_ms     INTEGER,
    deaths     INTEGER NOT NULL DEFAULT 0,
    created_ms INTEGER NOT NULL,
    started_ms INTEGER,
    settled_ms INTEGER,
    folded     INTEGER NOT NULL DEFAULT 0 CHECK (folded IN (0, 1)),
    UNIQUE (chat, id)
) STRICT;
CREATE UNIQUE INDEX turns_key ON turns (chat, key) WHERE key IS NOT NULL;
CREATE INDEX turns_chat ON turns (chat, seq);
CREATE INDEX turns_fiber ON turns (fiber) WHERE fiber IS NOT NULL;
CREATE INDEX turns_open ON turns (chat, seq) WHERE settled_ms IS NULL;
CREATE INDEX turns_failed ON turns (seq) WHERE state IN ('error', 'interrupted');
CREATE INDEX turns_settled ON turns (settled_ms) WHERE settled_ms IS NOT NULL;
-- Those whose chunks are still there.
CREATE INDEX turns_unfolded ON turns (settled_ms) WHERE settled_ms IS NOT NULL AND folded = 0;

-- What a turn was asked with, which may be long and never changes; and what it stashed.
CREATE TABLE turn_requests (
    turn     INTEGER PRIMARY KEY REFERENCES turns (seq) ON DELETE CASCADE,
    body     TEXT,
    tools    TEXT,
    metadata TEXT,
    stash    TEXT
) STRICT;

-- Interruptions of turns, with what was spent on going on.
CREATE TABLE incidents (
    turn        INTEGER PRIMARY KEY REFERENCES turns (seq) ON DELETE CASCADE,
    kind        TEXT NOT NULL CHECK (kind IN ('retry', 'continue')),
    state       TEXT NOT NULL CHECK (state IN ('attempting', 'recovered', 'exhausted')),
    attempts    INTEGER NOT NULL,
    attempt_ms  INTEGER NOT NULL,
    chunks      INTEGER NOT NULL,
    began_at    INTEGER NOT NULL,
    progress_ms INTEGER NOT NULL,
    reason      TEXT,
    created_ms  INTEGER NOT NULL,
    changed_ms  INTEGER NOT NULL
) STRICT;

-- A stream: what is appended to it is never changed. It is that of a turn, or one of a fiber by its name: `log/3` is log 3 of its snapshot,
-- `op/12/ID` the log of an operation that began after checkpoint 12, and `op/ID` that of one by hand.
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

-- The items of a stream, several in a row, one a line. With rowids: without them a row of more than 1 000 bytes has a page of its own
-- beside it.
CREATE TABLE stream_chunks (
    stream    INTEGER NOT NULL REFERENCES streams (seq) ON DELETE CASCADE,
    first     INTEGER NOT NULL,
    count     INTEGER NOT NULL,
    data      TEXT NOT NULL,
    stored_ms INTEGER NOT NULL,
    PRIMARY KEY (stream, first)
) STRICT;

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

-- Of the rows of the tail, those that are not in `stream_chunks` yet.
CREATE VIEW stream_tail_left (seq, stream, first, count, data, stored_ms) AS
WITH copied (stream, items) AS MATERIALIZED (
    SELECT s.seq, coalesce((SELECT c.first + c.count FROM stream_chunks c WHERE c.stream = s.seq ORDER BY c.first DESC LIMIT 1), 0)
    FROM streams s WHERE s.seq IN (SELECT stream FROM stream_tail)
)
SELECT t.seq, t.stream, t.first, t.count, t.data, t.stored_ms
FROM stream_tail t JOIN copied ON copied.stream = t.stream
WHERE NOT (t.first >= 0 AND t.count > 0 AND t.first + t.count <= copied.items);

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

-- The migrations of the program's own tables that have run.
CREATE TABLE user_migrations (
    n          INTEGER PRIMARY KEY,
    name       TEXT NOT NULL UNIQUE,
    hash       TEXT NOT NULL,
    applied_ms INTEGER NOT NULL
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
