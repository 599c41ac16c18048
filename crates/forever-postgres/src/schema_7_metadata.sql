-- Version 7: whether a field of the metadata of a fiber has a value, both as JSON. Arrays and objects
-- are equal to nothing.
--
-- Metadata that is no object, no JSON, or nested too deep to be read has no field. It is not an
-- error: one damaged row must not fail a list of others. Text of the server has no U+0000, so that
-- is replaced as in all other text of this library, and with it the character that marks what was
-- replaced; what follows an escaped backslash is no escape.
--
-- The handler of errors needs a subtransaction, and parallel workers cannot have one.
CREATE FUNCTION @metadata_has(metadata TEXT, field TEXT, value TEXT) RETURNS BOOLEAN
LANGUAGE plpgsql IMMUTABLE PARALLEL UNSAFE AS $$
DECLARE
    escaped TEXT;
    wanted TEXT;
BEGIN
    escaped := replace(replace(replace(metadata, '\\', '\u005c'), '\u001a', '\u001a1'), '\u0000', '\u001a0');
    wanted := replace(replace(replace(value, '\\', '\u005c'), '\u001a', '\u001a1'), '\u0000', '\u001a0');
    RETURN coalesce(json_typeof(escaped::JSON) = 'object' AND (escaped::JSON -> field)::TEXT = wanted AND wanted !~ '^[\[{]', FALSE);
EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
    RETURN FALSE;
END
$$;
