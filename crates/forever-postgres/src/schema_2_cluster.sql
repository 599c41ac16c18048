-- Version 2: what workers need to know of each other.

-- How a worker is found.
ALTER TABLE @workers ADD COLUMN process BIGINT, ADD COLUMN address TEXT;

-- Workers that cannot resume a fiber at its present checkpoint, because their code does not fit.
CREATE TABLE @declined (
    fiber  BIGINT NOT NULL REFERENCES @fibers (seq) ON DELETE CASCADE,
    worker BIGINT NOT NULL REFERENCES @workers (id) ON DELETE CASCADE,
    number BIGINT NOT NULL,
    PRIMARY KEY (fiber, worker)
);
CREATE INDEX declined_worker ON @declined (worker);

-- Cancelled fibers that have not ended, for the workers that run them.
CREATE INDEX fibers_cancelled ON @fibers (seq) WHERE cancel IS NOT NULL AND finished_ms IS NULL;

-- Raised with every change, so that other workers see that there was one.
ALTER TABLE @chats ADD COLUMN version BIGINT NOT NULL DEFAULT 0;
ALTER TABLE @agents ADD COLUMN version BIGINT NOT NULL DEFAULT 0;

-- The worker that has an agent in memory.
CREATE TABLE @agent_holders (
    class  TEXT NOT NULL,
    name   TEXT NOT NULL,
    worker BIGINT NOT NULL REFERENCES @workers (id) ON DELETE CASCADE,
    PRIMARY KEY (class, name)
) WITH (fillfactor = 80);
CREATE INDEX agent_holders_worker ON @agent_holders (worker);
