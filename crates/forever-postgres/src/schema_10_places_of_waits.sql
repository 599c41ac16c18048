-- Version 10: where the fibers stand that wait, so that they are counted from an index.

-- A digest of the function, the cut point, its layout and those of the functions that are called; NULL for a closure, and where an
-- earlier version has stored the row. Written when a fiber begins to wait, and not at its checkpoints.
ALTER TABLE @waits ADD COLUMN place BYTEA;
UPDATE @waits w SET place = substr(sha256(convert_to(json_build_array(f.name, s.at, s.layout, s.callees)::text, 'UTF8')), 1, 16)
FROM @fibers f JOIN @snapshots s ON s.fiber = f.seq WHERE f.seq = w.fiber AND NOT f.closure;
CREATE INDEX waits_place ON @waits (place, fiber) WHERE place IS NOT NULL;
CREATE INDEX waits_without_place ON @waits (fiber) WHERE place IS NULL;
