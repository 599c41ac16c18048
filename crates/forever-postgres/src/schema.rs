//! The tables, and migrations of older ones. Every table and column is explained in
//! docs/guide/src/reference/postgres.md.
use std::sync::Arc;

use forever_store::{Error, ErrorKind, Result};

use crate::sql::{Done, Fail, Tx, args};

/// Scripts, one for each version. The version of a schema is the number of scripts that have run.
/// Released scripts never change.
const MIGRATIONS: &[&str] = &[
    include_str!("schema_1.sql"),
    include_str!("schema_2_cluster.sql"),
    include_str!("schema_3_places.sql"),
    include_str!("schema_4_requests.sql"),
    include_str!("schema_5_streams.sql"),
    include_str!("schema_6_causes.sql"),
    include_str!("schema_7_metadata.sql"),
    include_str!("schema_8_claims.sql"),
    include_str!("schema_9_inbox.sql"),
    include_str!("schema_10_places_of_waits.sql"),
    include_str!("schema_11_leases.sql"),
];

/// The version that this code reads and writes.
pub(crate) fn version() -> i64 {
    i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX)
}

/// Returns the name of a schema, quoted.
pub(crate) fn quoted(name: &str) -> Result<Arc<str>> {
    // Postgres truncates longer names, so that two could become one. `@` marks the schema in our
    // SQL.
    if name.is_empty() || name.len() > 63 || name.contains(['\0', '@']) {
        let why = format!("`{name}` is not a name for a schema: it has 1 to 63 bytes, without `@`");
        return Err(Error::new(ErrorKind::Setup, why));
    }
    Ok(format!("\"{}\"", name.replace('"', "\"\"")).into())
}

/// What there is of a schema.
struct There {
    schema: bool,
    /// The version of its tables; `None` if it has none.
    version: Option<i64>,
}

/// Looks at a schema. Tables that are not of this library, or of a newer version, are an error.
async fn look(tx: &Tx, name: &str) -> Done<There> {
    let there = tx
        .one(
            "SELECT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = $1) AS schema,
                    EXISTS (SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                            WHERE n.nspname = $1 AND c.relname = 'forever_schema') AS version,
                    EXISTS (SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                            WHERE n.nspname = $1 AND c.relname IN ('fibers', 'snapshots')) AS tables",
            args![name],
        )
        .await?;
    let schema = there.flag("schema")?;
    if !there.flag("version")? {
        if there.flag("tables")? {
            return Err(wrong(format!("schema `{name}` has tables of the same names that are not of this library")));
        }
        return Ok(There { schema, version: None });
    }
    let stored = tx.one("SELECT coalesce(max(version), 0) AS version FROM @forever_schema", args![]).await?.int("version")?;
    if stored > version() {
        let why = format!("schema `{name}` has version {stored}, and this version of the library knows {} at most", version());
        return Err(wrong(why));
    }
    Ok(There { schema, version: Some(stored) })
}

fn wrong(why: String) -> Fail {
    Fail::Refused(Error::new(ErrorKind::Format, why))
}

/// Creates the tables that are missing, in the transaction.
pub(crate) async fn migrate(tx: &Tx, name: &str) -> Done<()> {
    // When several workers open a new database at the same time, one of them creates the tables.
    let key = format!("forever {name}");
    tx.rows("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))::text AS locked", args![&key]).await?;
    let there = look(tx, name).await?;
    if there.version.is_none() {
        if !there.schema {
            tx.batch(&format!("CREATE SCHEMA {}", quoted(name)?)).await?;
        }
        tx.batch("CREATE TABLE @forever_schema (version BIGINT PRIMARY KEY, applied TIMESTAMPTZ NOT NULL DEFAULT now())").await?;
    }
    let stored = there.version.unwrap_or(0);
    for (script, version) in MIGRATIONS.iter().zip(1..).skip(usize::try_from(stored).unwrap_or(0)) {
        tx.batch(script).await?;
        tx.run("INSERT INTO @forever_schema (version) VALUES ($1)", args![i64::from(version)]).await?;
    }
    Ok(())
}

/// Fails unless the tables are those of this version.
pub(crate) async fn check(tx: &Tx, name: &str) -> Done<()> {
    match look(tx, name).await?.version {
        Some(stored) if stored == version() => Ok(()),
        Some(stored) => Err(wrong(format!(
            "schema `{name}` has version {stored}, and this process needs version {}: it makes no tables itself, a worker of this version does when it opens",
            version()
        ))),
        None => Err(wrong(format!("there are no tables in schema `{name}`: this process makes none, a worker does when it opens"))),
    }
}
