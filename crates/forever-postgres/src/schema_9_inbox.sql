-- Version 9: topics that fibers have closed. A message to one of them is refused.
CREATE TABLE @closed_topics (
    fiber  BIGINT NOT NULL REFERENCES @fibers (seq) ON DELETE CASCADE,
    topic  TEXT NOT NULL,
    -- The checkpoint that has closed it.
    number BIGINT NOT NULL,
    PRIMARY KEY (fiber, topic)
);
