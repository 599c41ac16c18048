-- Version 8: lists and counts of fibers by function.

-- The fibers of a function, by state and number; what counts by function and state reads, without the rows.
CREATE INDEX fibers_function ON fibers (name, state, seq);
