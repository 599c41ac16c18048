-- Version 13: topics that are closed, and where the fibers stand that wait.

-- Topics that fibers have closed: a message to one of them is refused.
CREATE TABLE closed_topics (
    fiber  INTEGER NOT NULL REFERENCES fibers (seq) ON DELETE CASCADE,
    topic  TEXT NOT NULL,
    -- The checkpoint that has closed it.
    number INTEGER NOT NULL,
    PRIMARY KEY (fiber, topic)
) STRICT, WITHOUT ROWID;

-- A digest of the function, the cut point, its layout and those of the functions that are called; NULL for a closure. Written when a fiber
-- begins to wait, and not at its checkpoints, so that the fibers are counted from the index.
ALTER TABLE waits ADD COLUMN place BLOB;
CREATE INDEX waits_place ON waits (place) WHERE place IS NOT NULL;
