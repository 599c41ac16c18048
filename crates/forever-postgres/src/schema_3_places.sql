-- Version 3: a checkpoint is stored in the same time however many old versions of its row there are.

-- A unique index reads every old version of a row that is not cleaned up yet before it takes a new
-- one. A fiber has one snapshot, because it is stored with the fiber and never apart.
ALTER TABLE @snapshots DROP CONSTRAINT snapshots_pkey;
CREATE INDEX snapshots_fiber ON @snapshots (fiber);
-- For logical replication, in place of the key.
ALTER TABLE @snapshots REPLICA IDENTITY FULL;
