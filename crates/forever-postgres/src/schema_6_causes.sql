-- Version 6: the digest of each message that was sent with an id, so that another one with the same
-- id is an error. NULL for those that earlier versions have stored.

ALTER TABLE @message_ids ADD COLUMN digest TEXT;

-- The error that ended a turn, for the program: `reason` is what clients are shown.
ALTER TABLE @turns ADD COLUMN error TEXT;
