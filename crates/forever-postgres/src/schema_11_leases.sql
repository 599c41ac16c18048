-- Version 11: until when the worker that had a fiber claimed may have gone on with its code, by the clock of the database. Set when the
-- fiber is taken over from a worker whose process may live; the latest of several counts.
ALTER TABLE @snapshots ADD COLUMN leased_until TIMESTAMPTZ;
