-- Version 13: where the fibers stand that wait, so that they are counted from an index.

-- A digest of the function, the cut point, its layout and those of the functions that are called; NULL for a closure. Written when a fiber
-- begins to wait, and not at its checkpoints.
ALTER TABLE waits ADD COLUMN place BLOB;
CREATE INDEX waits_place ON waits (place) WHERE place IS NOT NULL;
