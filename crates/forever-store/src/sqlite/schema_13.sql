-- Topics that fibers have closed: a message to one of them is refused.
CREATE TABLE closed_topics (
    fiber  INTEGER NOT NULL REFERENCES fibers (seq) ON DELETE CASCADE,
    topic  TEXT NOT NULL,
    -- The checkpoint that has closed it.
    number INTEGER NOT NULL,
    PRIMARY KEY (fiber, topic)
) STRICT, WITHOUT ROWID;
