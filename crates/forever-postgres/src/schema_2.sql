-- Version 2: lists and counts of fibers by function.

-- The fibers of a function, by state and number; counts by function and state read it alone.
CREATE INDEX fibers_function ON @fibers (name, state, seq);
