-- Version 4: chats: their messages, and turns with their logs.

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
    UNIQUE (chat, id)
) STRICT;
CREATE INDEX chat_messages_place ON chat_messages (chat, place);

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

-- What the logs of turns hold before their end: in each row some chunks, one a line, from number `first` on.
CREATE TABLE turn_chunks (
    turn      INTEGER NOT NULL REFERENCES turns (seq) ON DELETE CASCADE,
    first     INTEGER NOT NULL,
    count     INTEGER NOT NULL,
    data      TEXT NOT NULL,
    stored_ms INTEGER NOT NULL,
    PRIMARY KEY (turn, first)
) STRICT, WITHOUT ROWID;

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
