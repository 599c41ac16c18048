-- Version 5: the keys of fibers that were deleted.

-- 1 if the program gave the id: such a fiber is remembered when it is deleted.
ALTER TABLE fibers ADD COLUMN id_given INTEGER NOT NULL DEFAULT 0 CHECK (id_given IN (0, 1));
-- Of earlier fibers: every id that is not of the length of those that a runtime makes.
UPDATE fibers SET id_given = 1 WHERE parent IS NULL AND length(id) <> 36 AND name <> 'forever.turn';

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
